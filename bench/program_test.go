package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meshddns/dnswire"
)

// dir holds the program that is built.
var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "meshddns-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

var build = sync.OnceValues(func() (path string, err error) {
	if err := openSources(); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "meshddns")
	out, err := exec.Command("go", "build", "-o", path, "..").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// openSources opens every file of the program: what the compiler opens does not
// count when it is decided whether an old result still holds.
func openSources() error {
	return filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"), strings.HasSuffix(path, ".sql"), strings.HasSuffix(path, ".mod"):
			_, err = os.ReadFile(path)
		}
		return err
	})
}

// limit bounds what is not a pass over all names.
const limit = time.Minute

// program is a running meshddns.
type program struct {
	t      testing.TB
	cmd    *exec.Cmd
	db     string
	http   string
	dns    string
	client *http.Client
}

// start runs the program on a database, and waits until it listens. It looks for
// no address and begins no pass but the one at its start.
func start(t testing.TB, db string) *program {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(db + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &program{t: t, db: db, client: &http.Client{Timeout: 2 * limit}}
	p.cmd = exec.Command(path, "-db", db, "-listen", "127.0.0.1:0", "-dns-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-sync-interval", "24h")
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.client.CloseIdleConnections()
	})
	started := regexp.MustCompile(`msg=started .*listen=(\S+) dns=(\S+)`)
	p.eventually("the program has started", func() bool {
		text, err := os.ReadFile(log.Name())
		found := started.FindSubmatch(text)
		if found != nil {
			p.http, p.dns = string(found[1]), string(found[2])
		}
		return err == nil && found != nil
	})
	return p
}

// eventually waits for a condition that the program brings about.
func (p *program) eventually(what string, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// stop ends the program in good order.
func (p *program) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("after SIGTERM: %v", err)
	}
}

// try makes a request of the API.
func (p *program) try(method, path, body string) (status int, code, answer string, err error) {
	request, err := http.NewRequest(method, "http://"+p.http+"/api/v1/ddns"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	request.Header.Set("Accept-Language", "en")
	response, err := p.client.Do(request)
	if err != nil {
		return 0, "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("X-Error-Code"), string(text), err
}

// call makes a request that must succeed, and tells how long it took.
func (p *program) call(method, path, body string) (answer string, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	status, _, answer, err := p.try(method, path, body)
	took = time.Since(began)
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("%s %s: %v, status %d: %s", method, path, err, status, answer)
	}
	return answer, took
}

// report is what a pass has counted.
type report struct {
	Counts  map[string]int
	Records []struct{ Name, Action, Error string }
}

// sync has a pass made, as often as it takes, and tells how long each call took.
func (p *program) sync(most int) (r report, took []time.Duration) {
	p.t.Helper()
	for len(took) < most {
		began := time.Now()
		status, code, answer, err := p.try("POST", "/sync", "")
		took = append(took, time.Since(began))
		switch {
		case err != nil:
			p.t.Fatal(err)
		case status == http.StatusOK:
			body := struct{ Data *report }{&r}
			if err := json.Unmarshal([]byte(answer), &body); err != nil {
				p.t.Fatalf("%v: %s", err, answer)
			}
			return r, took
		case code != "sync_unfinished":
			p.t.Fatalf("POST /sync: status %d: %s", status, answer)
		}
		fmt.Printf("POST /sync, %s: %s\n", round(took[len(took)-1]), strings.TrimSpace(answer))
	}
	p.t.Errorf("not through after %d POSTs", most)
	return r, took
}

// answers reports whether the built-in server has a value at a name.
func (p *program) answers(name string) bool {
	owner, err := dnswire.ParseName(name)
	if err != nil {
		p.t.Fatal(err)
	}
	query := dnswire.Message{Questions: []dnswire.Question{{Name: owner, Type: dnswire.TypeTXT, Class: dnswire.ClassIN}}}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	data, err := dnswire.Exchange(ctx, p.dns, query.Pack())
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := dnswire.Parse(data)
	return err == nil && len(answer.Answers) > 0
}

// processor is the time that the program has had of all processors: utime and
// stime of /proc/PID/stat, to the nanosecond (clock_getcpuclockid).
func (p *program) processor() time.Duration {
	p.t.Helper()
	const sched = 2
	var now syscall.Timespec
	clock := ^uintptr(p.cmd.Process.Pid)<<3 | sched
	if _, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0); fault != 0 {
		p.t.Fatalf("processor clock: %v", fault)
	}
	return time.Duration(now.Nano())
}

// peak is the most memory that the program has had, in MB (VmHWM of /proc/PID/status).
func (p *program) peak() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	kilobytes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return (kilobytes + 1023) / 1024
}

// commits counts the transactions that have changed the database since it was
// opened: iChange of the index of its log (sqlite.org/walformat.html).
func (p *program) commits() int {
	p.t.Helper()
	index, err := os.ReadFile(p.db + "-shm")
	if err != nil || len(index) < 12 {
		p.t.Fatalf("index of the log: %v, %d octets", err, len(index))
	}
	return int(binary.NativeEndian.Uint32(index[8:]))
}
