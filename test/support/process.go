package support

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Start starts a program that the end of the test kills. Without an environment of its
// own, the program gets the one of Environ.
func Start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = Environ()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Kill(cmd) })
}

// Environ returns the environment without the variables that begin with MESHDDNS_: some are
// of the tests, and meshddns refuses one that it does not know.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MESHDDNS_") })
}

// Kill ends a program with SIGKILL and waits for its end.
func Kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// Stop ends a program with SIGTERM and returns how it exited.
func Stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("after SIGTERM: %w", err)
	}
	return nil
}

// Ended reports whether a program has ended, without waiting for it.
func Ended(cmd *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

var started = regexp.MustCompile(`msg=started .*listen=(\S+) dns=(\S+)`)

// Listening finds in the log of meshddns the addresses at which it listens: host:port or the
// path of a unix socket for HTTP, host:port for DNS.
func Listening(log string) (http, dns string, ok bool) {
	if found := started.FindStringSubmatch(log); found != nil {
		return found[1], found[2], true
	}
	return "", "", false
}
