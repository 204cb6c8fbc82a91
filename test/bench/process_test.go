package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meshddns/test/support"
)

// dir holds the programs that are built.
var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "meshddns-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	printed.print()
	os.RemoveAll(dir)
	os.Exit(status)
}

// built gives the path of the program.
func built(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (path string, err error) {
	if err := support.OpenSources("../.."); err != nil {
		return "", err
	}
	return buildIn("../..", dir)
})

// buildIn builds the program of a source tree with the command of its pages, or in
// older ones of its README: that is what is used.
func buildIn(tree, into string, env ...string) (path string, err error) {
	readme, err := os.ReadFile(filepath.Join(tree, "README.md"))
	if err != nil {
		return "", err
	}
	page, err := os.ReadFile(filepath.Join(tree, "docs", "image.md"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	command := regexp.MustCompile(`(?m)^\$ (CGO_ENABLED=1 .*go build .*/meshddns" \.)$`).FindSubmatch(append(page, readme...))
	if command == nil {
		return "", fmt.Errorf("neither docs/image.md nor README.md in %s says how the program is built", tree)
	}
	cmd := exec.Command("sh", "-c", string(command[1]))
	cmd.Dir, cmd.Env = tree, append(append(os.Environ(), "TMPDIR="+into), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return filepath.Join(into, "meshddns"), nil
}

// process is a program that runs until the end of the test at most.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	log string // file
}

// launch runs a command that says what it has to say to a log.
func launch(t testing.TB, log string, env []string, command ...string) *process {
	t.Helper()
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := &process{t: t, cmd: exec.Command(command[0], command[1:]...), log: log}
	p.cmd.Env = append(support.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	support.Start(t, p.cmd)
	return p
}

// stop ends it in good order.
func (p *process) stop() {
	p.t.Helper()
	if err := support.Stop(p.cmd); err != nil {
		p.t.Fatalf("%v\n%s", err, p.said())
	}
}

func (p *process) said() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// processor is the time that it has had of all processors: utime and stime of
// /proc/PID/stat, to the nanosecond (clock_getcpuclockid).
func (p *process) processor() time.Duration {
	p.t.Helper()
	const sched = 2
	var now syscall.Timespec
	clock := ^uintptr(p.cmd.Process.Pid)<<3 | sched
	if _, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0); fault != 0 {
		p.t.Fatalf("processor clock: %v", fault)
	}
	return time.Duration(now.Nano())
}

// rest waits until the process takes less than a hundredth of a processor: until the work
// of its start is done.
func (p *process) rest() {
	p.t.Helper()
	const window = 200 * time.Millisecond
	support.Eventually(p.t, 3*limit, p.cmd.Path+" rests", func() bool {
		before := p.processor()
		<-time.After(window)
		return p.processor()-before < window/100
	})
}

// peak is the most memory that it has had, in MB of 2^20 octets.
func (p *process) peak() int { p.t.Helper(); return (p.kilobytes("VmHWM") + 1023) / 1024 }

// resident is the memory that it has, in MB.
func (p *process) resident() float64 { p.t.Helper(); return float64(p.kilobytes("VmRSS")) / 1024 }

// forgetPeak lets the peak begin again at what is there (proc(5), clear_refs).
func (p *process) forgetPeak() {
	p.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kilobytes(what string) int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	found := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		p.t.Fatalf("no %s in the status of %s", what, p.cmd.Path)
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kilobytes
}
