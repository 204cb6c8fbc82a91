package fuzz

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit bounds every wait.
const limit = 60 * time.Second

// program is a running meshddns, in a network of its own: no garbage reaches a vendor.
type program struct {
	cmd     *exec.Cmd
	address string
	path    string // of the database

	mu         sync.Mutex
	suspicious []string // lines of the log
	goroutines int      // that a dump has shown
	ended      chan struct{}
}

func (p *program) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// inNamespace runs the calling test once more in a network namespace of its own, and
// reports whether this is that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "MESHDDNS_FUZZ_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("ip link set lo up: %v %s", err, out)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2h")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil && os.Getenv("CI") != "true" {
		t.Skipf("NOT TESTED: no network namespace: %v", err)
	}
	if err != nil {
		t.Errorf("in the namespace: %v", err)
	}
	t.Logf("%s", out)
	return false
}

// start builds the program, or takes the one of MESHDDNS_PROGRAM, and runs it on an empty database.
func start(t *testing.T) *program {
	t.Helper()
	dir := t.TempDir()
	path := os.Getenv("MESHDDNS_PROGRAM")
	if path == "" {
		path = filepath.Join(dir, "meshddns")
		if out, err := exec.Command("go", "build", "-C", "../..", "-o", path, ".").CombinedOutput(); err != nil {
			t.Fatalf("build the program: %v\n%s", err, out)
		}
	}
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return launch(t, path, filepath.Join(dir, "meshddns.db"), secret)
}

func launch(t *testing.T, path, db, secret string) *program {
	t.Helper()
	p := &program{path: db, ended: make(chan struct{})}
	p.cmd = exec.Command(path, "-listen", "127.0.0.1:0", "-dns-listen", "127.0.0.1:0", "-db", db, "-token-file", secret, "-ipv4", "203.0.113.7", "-ipv6", "none")
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MESHDDNS_") })
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := make(chan string, 1)
	go p.follow(log, started)
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	select {
	case p.address = <-started:
	case <-p.ended:
		t.Fatalf("the program has ended: %q", p.suspicious)
	case <-time.After(limit):
		t.Fatal("the program does not start")
	}
	return p
}

var (
	listening = regexp.MustCompile(`msg=started .*listen=(\S+)`)
	harmless  = regexp.MustCompile(`^time=\S+ level=(INFO|WARN) `)
)

// follow reads the log, which is too long to keep.
func (p *program) follow(log io.Reader, started chan<- string) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if found := listening.FindStringSubmatch(line); found != nil {
			started <- found[1]
		}
		p.mu.Lock()
		if strings.HasPrefix(line, "goroutine ") {
			p.goroutines++
		}
		if line != "" && (!harmless.MatchString(line) || strings.Contains(line, "panic")) && len(p.suspicious) < 200 {
			p.suspicious = append(p.suspicious, line)
		}
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	p.cmd.Wait()
	close(p.ended)
}

// resources are what the program holds.
type resources struct {
	descriptors, threads int
	resident             int // KiB
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d KiB", r.descriptors, r.threads, r.resident)
}

var (
	residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	threadsLine  = regexp.MustCompile(`Threads:\s+(\d+)`)
)

func (p *program) resources(t *testing.T) (r resources) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	open, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	r.descriptors = len(open)
	r.resident, _ = strconv.Atoi(string(residentLine.FindSubmatch(status)[1]))
	r.threads, _ = strconv.Atoi(string(threadsLine.FindSubmatch(status)[1]))
	return r
}

// mayGrow is by how much memory may be more than after the first requests. Go gives memory back
// late: bodies of 64 KiB, listings and backups of eight clients come together at times, and
// what that took stays, 20 to 25 MiB whether 20 000 requests or 400 000 were sent. A leak of
// 100 octets a request is 40 MB in 400 000.
const mayGrow = 36 << 10 // KiB

// back waits until the program holds what it held before.
func (p *program) back(t *testing.T, before resources) (after resources) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		after = p.resources(t)
		if after.descriptors <= before.descriptors && after.resident <= before.resident+mayGrow {
			return after
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Errorf("before %v, after %v", before, after)
			return after
		}
	}
}

// end has the program show its goroutines and stops it, looks at its log, and compares
// the goroutines with those of one that has just begun on the same database.
func (p *program) end(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	for _, line := range p.suspicious {
		t.Errorf("log: %s", line)
	}
	p.mu.Unlock()
	fresh := launch(t, p.cmd.Path, p.path+"-fresh", p.cmd.Args[slices.Index(p.cmd.Args, "-token-file")+1])
	after, start := p.dump(t), fresh.dump(t)
	t.Logf("%d goroutines, of which one that has just begun has %d", after, start)
	if after > start+goroutinesMore {
		t.Errorf("%d goroutines, and one that has just begun has %d", after, start)
	}
}

// goroutinesMore are those that wait for what comes next: of the engine, a worker for
// each zone that it knows (six domains and few accounts), and of database/sql.
const goroutinesMore = 30

// dump ends a program by SIGQUIT, on which Go shows all goroutines.
func (p *program) dump(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(limit):
		t.Fatal("no end after SIGQUIT")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goroutines < 5 {
		t.Fatalf("%d goroutines in the dump", p.goroutines)
	}
	return p.goroutines
}
