package fuzz

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
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
		if out, err := exec.Command("go", "build", "-C", "../../..", "-o", path, ".").CombinedOutput(); err != nil {
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
	descriptors, goroutines int
	database                int // descriptors of its files
	resident                int // KiB
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d of the database, %d KiB", r.descriptors, r.database, r.resident)
}

const (
	// mayGrow is by how much memory may be more than after the first requests, in KiB: what Go
	// keeps at hand between two collections. A leak of 100 octets a request is 40 MB in 400 000.
	mayGrow = 16 << 10
	// mayWait are the goroutines that wait for what comes next: of the engine, a worker for
	// each zone that it knows (six domains and few accounts), and of database/sql.
	mayWait = 30
	// maxDatabase are the descriptors of a writer and four readers, of which the last is opened when
	// four requests read at once: the file and the log of each, the index, the lock, the file itself,
	// and that of a connection that was closed, which SQLite keeps while others hold locks.
	maxDatabase = 14
)

// surplus says what a program holds that it did not hold before.
func (r resources) surplus(before resources) (wrong []string) {
	if r.descriptors > before.descriptors {
		wrong = append(wrong, fmt.Sprintf("%d descriptors, %d before", r.descriptors, before.descriptors))
	}
	if r.database > max(before.database, maxDatabase) {
		wrong = append(wrong, fmt.Sprintf("%d descriptors of the database, %d before", r.database, before.database))
	}
	if r.goroutines > before.goroutines+mayWait {
		wrong = append(wrong, fmt.Sprintf("%d goroutines, %d before", r.goroutines, before.goroutines))
	}
	if r.resident > before.resident+mayGrow {
		wrong = append(wrong, fmt.Sprintf("%d KiB, %d before", r.resident, before.resident))
	}
	return wrong
}

// residentLine is without the pages of the program's own file.
var residentLine = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

func (p *program) resources(t *testing.T) (r resources) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	open, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		file, _ := os.Readlink(proc + "fd/" + fd.Name()) // one that was closed since leads nowhere
		if strings.HasPrefix(file, p.path) {
			r.database++
		} else {
			r.descriptors++
		}
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	r.resident, _ = strconv.Atoi(string(residentLine.FindSubmatch(status)[1]))
	return r
}

// back waits until the program holds what it held before, and says what is still more. An
// idle program collects garbage every two minutes only: small requests have it done at once.
func (p *program) back(t *testing.T, before resources, patience time.Duration) (after resources, wrong []string) {
	t.Helper()
	health := request{method: "GET", target: "/healthz", headers: []string{"Host: 127.0.0.1", "Connection: keep-alive"}}
	for end := time.Now().Add(patience); ; {
		c := &client{address: p.address}
		for range 500 {
			if _, err := c.do(health); err != nil {
				t.Error(err)
				return after, wrong
			}
		}
		c.close()
		after = p.resources(t)
		if wrong = after.surplus(before); len(wrong) == 0 || time.Now().After(end) {
			return after, wrong
		}
	}
}

// end has the program show its goroutines and stops it, and says what is wrong with its
// log, with its goroutines beside those of one that has just begun, and with its database.
func (p *program) end(t *testing.T) (wrong []string) {
	t.Helper()
	p.mu.Lock()
	wrong = slices.Clone(p.suspicious)
	p.mu.Unlock()
	fresh := launch(t, p.cmd.Path, p.path+"-fresh", p.cmd.Args[slices.Index(p.cmd.Args, "-token-file")+1])
	after, start := resources{goroutines: p.dump(t)}, resources{goroutines: fresh.dump(t)}
	t.Logf("%d goroutines, of which one that has just begun has %d", after.goroutines, start.goroutines)
	return slices.Concat(wrong, after.surplus(start), p.unsound(t, ""))
}

// reserve leaves a service with a usage, whatever else was asked for.
func (p *program) reserve(t *testing.T) {
	t.Helper()
	for _, call := range [][2]string{
		{"services", `{"id":"of-the-test","name":"x","config":{"domain":"reserved.example"}}`},
		{"usages", `{"service_id":"of-the-test","prefix_mode":"custom","custom_prefix":"x","network_id":1}`},
	} {
		r, err := http.NewRequest("POST", "http://"+p.address+"/api/v1/ddns/"+call[0], strings.NewReader(call[1]))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", call[0], answer.Status)
		}
	}
}

// unsound gives what testdata/invariants.sql finds in the database, after a change that
// does not last.
func (p *program) unsound(t *testing.T, change string) (wrong []string) {
	t.Helper()
	invariants, err := os.ReadFile("../../../testdata/invariants.sql")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sqlite3", "-bail", p.path)
	cmd.Stdin = strings.NewReader("BEGIN;\n" + change + ";\n" + string(invariants) + "\nROLLBACK;\n")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Logf("NOT TESTED, the invariants of the database: %v", err)
		return nil
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for line := range strings.Lines(string(out)) {
		wrong = append(wrong, strings.TrimSpace(line))
	}
	return wrong
}

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
