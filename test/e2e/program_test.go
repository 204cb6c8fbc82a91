// Package e2e tests the built program from outside: its flags, its sockets,
// its signals, and the README as a new user reads it.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// limit is how long a wait may take on an idle machine.
const limit = support.Limit

// dir holds the programs that are built.
var dir string

// dirName is the variable that gives them to a process which runs one test in a namespace.
const dirName = "MESHDDNS_TEST_PROGRAMS"

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "24") // these tests mostly wait for other programs
	if dir = os.Getenv(dirName); dir != "" {
		os.Exit(m.Run())
	}
	var err error
	if dir, err = os.MkdirTemp("", "meshddns-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// binary gives the path of the program, built at its first use.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (path string, err error) { return compile(filepath.Join(dir, "meshddns")) })

// compile builds the program at a path, with some flags of go build, unless it is there.
func compile(path string, flags ...string) (string, error) {
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := support.OpenSources("../.."); err != nil {
		return "", err
	}
	made := fmt.Sprint(path, "-", os.Getpid()) // another process may look for the program meanwhile
	args := slices.Concat([]string{"build", buildFlag}, flags, []string{"-o", made, "../.."})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, os.Rename(made, path)
}

// program is a running meshddns.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *support.Log
	http   string // host:port or the path of a unix socket
	dns    string
	client *http.Client
	began  resources // what it held when it listened
}

// start runs the program on free ports of its own choice, and waits until it
// listens.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	return startAt(t, binary(t), args...)
}

// startAt runs the program of a path.
func startAt(t *testing.T, path string, args ...string) *program {
	t.Helper()
	return startWith(t, nil, []string{path}, args...)
}

// command is the program with arguments, which ends by itself.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), support.Slowest*limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Env = support.Environ()
	return cmd
}

// after gives the words of a command that does what a line of shell says, and then becomes
// the program of other words. No test writes a script and runs it: while a file is open for
// writing, another test's fork can inherit it, and the kernel does not run such a file
// (golang.org/issue/22315).
func after(line string, words ...string) []string {
	return append([]string{"sh", "-c", line + ` && exec "$@"`, "sh"}, words...)
}

// startWith runs the program of some words with more in its environment.
func startWith(t *testing.T, more, words []string, args ...string) *program {
	t.Helper()
	p := launch(t, more, words, args...)
	if p.client == nil {
		t.Fatalf("the program has ended:\n%s", p.log)
	}
	return p
}

// launch is startWith for a program that may end instead of listening: then it has no
// client.
func launch(t *testing.T, more, words []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, log: &support.Log{}}
	if !slices.Contains(args, "-listen") {
		args = append([]string{"-listen", "127.0.0.1:0"}, args...)
	}
	if !slices.Contains(args, "-dns-listen") {
		args = append([]string{"-dns-listen", "127.0.0.1:0"}, args...)
	}
	words = slices.Concat(words, args)
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.Env = append(support.Environ(), more...)
	p.cmd.Stderr = p.log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the program:\n%s", p.log)
		}
	})
	support.Start(t, p.cmd)
	var listens bool
	p.eventually("the program has started", func() bool {
		ended := support.Ended(p.cmd)
		p.http, p.dns, listens = support.Listening(p.log.String())
		return listens || ended
	})
	if listens {
		p.began = resourcesOf(p.cmd.Process.Pid)
		p.connect()
	}
	return p
}

// connect makes the client.
func (p *program) connect() {
	network := "tcp"
	if strings.HasPrefix(p.http, "/") {
		network = "unix"
	}
	p.client = &http.Client{Timeout: support.Slowest * limit, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, p.http)
		},
	}}
	p.t.Cleanup(p.client.CloseIdleConnections)
}

// eventually waits for a condition that another process brings about.
func (p *program) eventually(what string, holds func() bool) {
	p.t.Helper()
	support.Eventually(p.t, limit, what, holds)
}

// logged waits for a text in the log, which comes through a pipe.
func (p *program) logged(text string) {
	p.t.Helper()
	p.eventually("the log has "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   string
}

// field gives an entry of data as text.
func (a answer) field(name string) string {
	var body struct{ Data map[string]any }
	json.Unmarshal([]byte(a.body), &body)
	return fmt.Sprint(body.Data[name])
}

// try makes a request, which may fail.
func (p *program) try(method, path, body string, header ...string) (answer, error) {
	request, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			request.Host = header[i+1]
		}
	}
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// ask is try for a program that must answer. It asks again after the time that the program gives a request's header,
// because then one of the two processes got no processor, and the program has ended the connection without a request.
func (p *program) ask(method, path, body string, header ...string) (answer, error) {
	for {
		begun := time.Now()
		a, err := p.try(method, path, body, header...)
		ended := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !ended || time.Since(begun) < 5*time.Second {
			return a, err
		}
	}
}

// call makes a request that must be answered with a status.
func (p *program) call(want int, method, path, body string, header ...string) answer {
	p.t.Helper()
	a, err := p.ask(method, path, body, header...)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status != want {
		p.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, want, a.body)
	}
	return a
}

// dig gives the output of dig for a name and type at the built-in server.
func (p *program) dig(args ...string) string {
	p.t.Helper()
	host, port, err := net.SplitHostPort(p.dns)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := exec.Command("dig", append([]string{"@" + host, "-p", port, "+time=30", "+tries=3"}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("dig %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// txt returns the TXT records of a name at the built-in server, each on a line. It costs a hundredth of what dig does,
// so tests ask with it until something is published.
func (p *program) txt(name string) string {
	p.t.Helper()
	var lines []string
	for _, record := range servertest.Ask(p.t, p.dns, name, dns.TypeTXT).Answers {
		parts, err := dns.ParseTXT(record.Data)
		if err != nil {
			p.t.Fatal(err)
		}
		lines = append(lines, strings.Join(parts, ""))
	}
	return strings.Join(lines, "\n")
}

// stop ends the program with SIGTERM, which it must survive in good order.
func (p *program) stop() {
	p.t.Helper()
	if err := support.Stop(p.cmd); err != nil {
		p.t.Fatal(err)
	}
}

// notShort skips a test that takes long, with -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long")
	}
}

// long skips what takes minutes or a quiet machine, unless a variable asks for it.
func long(t *testing.T, variable string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("long: %s is not given", variable)
	}
}

// inNamespace runs the calling test once more in a network namespace of its
// own, where it may take any port and any address. It reports whether this is
// that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	return inNamespaces(t, syscall.CLONE_NEWNET, 0)
}

// inNamespaces is inNamespace for other kinds: new ones, and those that are left when
// the process runs already, with mounts that no other process sees.
func inNamespaces(t *testing.T, clone, unshare uintptr) bool {
	t.Helper()
	const mark = "MESHDDNS_TEST_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	support.Need(t, "ip")
	binary(t) // the files that the other process opens do not count, see support.OpenSources
	left := 5 * time.Minute
	if deadline, ok := t.Deadline(); ok {
		left = time.Until(deadline)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+left.String())
	cmd.Env = append(os.Environ(), mark+"="+t.Name(), dirName+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Unshareflags: unshare}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out := &support.Log{}
	cmd.Stdout, cmd.Stderr = out, out
	if testing.Verbose() { // as it comes
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	}
	err := cmd.Run()
	if cmd.Process == nil && os.Getenv("CI") != "true" {
		t.Skipf("no network namespace: %v", err)
	}
	if err != nil {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
	return false
}

// ip runs the ip command.
func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
}
