package support

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

// TestLog writes to a log, reads it and takes its text.
func TestLog(t *testing.T) {
	var l Log
	for _, text := range []string{"a", "b"} {
		if n, err := l.Write([]byte(text)); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := []string{l.String(), l.Take(), l.String()}; got[0] != "ab" || got[1] != "ab" || got[2] != "" {
		t.Errorf("read %q", got)
	}
}

// TestWithin gives a condition that comes true, and one that does not, little time.
func TestWithin(t *testing.T) {
	left := 3
	if !Within(time.Millisecond, func() bool { left--; return left == 0 }) {
		t.Error("a condition that comes true within the stretched limit is not waited for")
	}
	asked := 0
	if Within(time.Nanosecond, func() bool { asked++; return false }) || asked < 2 {
		t.Errorf("a condition that never holds was asked for %d times, and holds", asked)
	}
}

// TestPaced wants no limit shortened, and none stretched without end.
func TestPaced(t *testing.T) {
	if got := Paced(time.Hour); got < time.Hour || got > Slowest*time.Hour {
		t.Errorf("an hour becomes %v", got)
	}
}

// TestProcesses ends two programs in two ways, and hides the tests' own variables from them.
func TestProcesses(t *testing.T) {
	t.Setenv(Long, "1")
	var out Log
	shell := exec.Command("sh", "-c", `echo "$MESHDDNS_LONG $EXTRA"; trap "exit 3" TERM; echo ready; while :; do wait; done`)
	shell.Stdout = &out
	shell.Env = append(Environ(), "EXTRA=more")
	Start(t, shell)
	Eventually(t, Limit, "the shell is ready", func() bool { return out.String() == " more\nready\n" })
	if Ended(shell) {
		t.Error("a running program has ended")
	}
	if err := Stop(shell); err == nil || shell.ProcessState.ExitCode() != 3 {
		t.Errorf("stopped: %v", err)
	}
	sleeper := exec.Command("sleep", "1000")
	Start(t, sleeper)
	sleeper.Process.Kill()
	Eventually(t, Limit, "the program has ended", func() bool { return Ended(sleeper) })
}

// TestListening reads the line that tells where the program listens.
func TestListening(t *testing.T) {
	http, dns, ok := Listening("time=x level=INFO msg=started version=1 listen=/run/x dns=127.0.0.1:53\n")
	if http != "/run/x" || dns != "127.0.0.1:53" || !ok {
		t.Errorf("%q, %q, %t", http, dns, ok)
	}
	if _, _, ok := Listening("msg=starting"); ok {
		t.Error("a program that has not started listens")
	}
}

// TestCount counts in the short form and in the long one.
func TestCount(t *testing.T) {
	for value, want := range map[string]int{"": 1, "1": 2} {
		t.Setenv(Long, value)
		if got := Count(1, 2); got != want {
			t.Errorf("%s=%s: %d, want %d", Long, value, got, want)
		}
	}
}

// TestFreeAddress binds the address that it is given, for UDP and TCP.
func TestFreeAddress(t *testing.T) {
	for try := 0; ; try++ {
		address := FreeAddress(t)
		tcp, err := net.Listen("tcp", address)
		if err == nil {
			defer tcp.Close()
			var udp net.PacketConn
			if udp, err = net.ListenPacket("udp", address); err == nil {
				udp.Close()
				return
			}
		}
		if try == 3 { // another process may have taken the ones before
			t.Fatal(err)
		}
	}
}

// TestUnlocked opens a database that a child holds for two tries.
func TestUnlocked(t *testing.T) {
	tries := 0
	err := Unlocked(func() error {
		if tries++; tries < 3 {
			return errors.New("x.db is in use by another meshddns, process 1")
		}
		return io.EOF
	})
	if err != io.EOF || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// TestOpenSQLite opens a database with an option.
func TestOpenSQLite(t *testing.T) {
	var on bool
	if err := OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "_foreign_keys=1").QueryRow(`PRAGMA foreign_keys`).Scan(&on); err != nil || !on {
		t.Errorf("foreign keys: %t, %v", on, err)
	}
}
