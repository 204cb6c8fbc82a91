package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// kinds opens one socket of each kind that a unit can ask for, by a word.
func kinds(t *testing.T) map[string]*os.File {
	t.Helper()
	files := map[string]*os.File{}
	add := func(word string, socket any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		file, err := socket.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close(); socket.(interface{ Close() error }).Close() })
		files[word] = file
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	add("tcp", tcp, err)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	add("udp", udp, err)
	path := filepath.Join(t.TempDir(), "http")
	unix, err := net.Listen("unix", path)
	add("unix", unix, err)
	abstract, err := net.Listen("unix", fmt.Sprintf("@meshddns-test-http-%d", os.Getpid()))
	add("abstract", abstract, err)
	unixgram, err := net.ListenPacket("unixgram", path+"-packets")
	add("unixgram", unixgram, err)
	conn, err := net.Dial("unix", path)
	add("connection", conn, err)
	file, err := os.Create(path + "-file")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	files["file"] = file
	return files
}

// given puts copies of files in a row, as the manager does, and gives the number of the first.
func given(t *testing.T, files ...*os.File) int {
	t.Helper()
	const first = 700 // no test has so many
	for i, file := range files {
		if err := syscall.Dup3(int(file.Fd()), first+i, 0); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

func TestInherit(t *testing.T) {
	files := kinds(t)
	first := given(t, files["udp"], files["tcp"], files["unix"], files["tcp"])
	s, err := inherit(first, []string{"dns", "dns", "http", "http"})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.HTTP) != 2 || len(s.DNSTCP) != 1 || len(s.DNSUDP) != 1 {
		t.Errorf("%+v", s)
	}
	if got := s.HTTP[0].Addr().Network() + " " + s.HTTP[1].Addr().Network(); got != "unix tcp" {
		t.Errorf("http: %s", got)
	}
	path := s.HTTP[0].Addr().String()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error("the manager's socket is gone with the program: ", err)
	}
	unused(t, first, 4)
}

// Sockets whose clients speak TLS are beside the others, and have the mark that package web asks for.
func TestInheritTLS(t *testing.T) {
	files := kinds(t)
	s, err := inherit(given(t, files["tcp"], files["tcp"], files["tcp"], files["tcp"]), []string{"http", "http-tls", "node-tls", "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var marks []bool
	for _, l := range append(s.HTTP, s.Node...) {
		_, ok := l.(interface{ TLS() })
		marks = append(marks, ok)
	}
	if got := fmt.Sprint(len(s.HTTP), marks); got != "2 [false true true false]" {
		t.Error(got)
	}
}

// unused tells descriptors that are left open.
func unused(t *testing.T, first, count int) {
	t.Helper()
	for fd := first; fd < first+count; fd++ {
		if _, err := syscall.Dup(fd); err != syscall.EBADF {
			t.Errorf("descriptor %d is left open: %v", fd, err)
		}
	}
}

func TestWrongSockets(t *testing.T) {
	files := kinds(t)
	for _, test := range []struct{ kind, name, want string }{
		{"udp", "http", "it is udp 127.0.0.1:"},
		{"unixgram", "http", "it is unixgram /"},
		{"unixgram", "dns", "it is unixgram /"},
		{"abstract", "http", "it is unix @meshddns-test-http"},
		{"unix", "dns", "it is unix /"},
		{"unix", "http-tls", "it is unix /"},
		{"udp", "node-tls", "it is udp 127.0.0.1:"},
		{"tcp", "dns-tls", "unknown name: "},
		{"connection", "http", "it does not listen: want Accept=no in the socket unit"},
		{"file", "http", "it is no socket: "},
		{"tcp", "meshddns.socket", "unknown name: want http, http-tls, dns, node or node-tls (FileDescriptorName= in the socket unit)"},
		{"tcp", "", "unknown name: "},
	} {
		first := given(t, files["tcp"], files[test.kind])
		_, err := inherit(first, []string{"http", test.name})
		want := fmt.Sprintf("socket %d (%q): %s", first+1, test.name, test.want)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s as %q: %v, want %s", test.kind, test.name, err, want)
		}
		unused(t, first, 2)
	}
}

// childVariable makes this test program the child of a test.
const childVariable = "MESHDDNS_SYSTEMD_TEST_CHILD"

// TestMain is the service when it is a child: it tells its sockets, the variables that are
// left, and what a child of its own has inherited, and answers one connection.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	s, err := Open(os.Getenv, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	own, _ := exec.Command("sh", "-c", "env | grep -cE '^(LISTEN|NOTIFY|WATCHDOG)'; ls -l /proc/self/fd | grep -c socket:").Output()
	fmt.Println(len(s.Sockets.HTTP), len(s.Sockets.DNSTCP), len(s.Sockets.DNSUDP), strings.Fields(string(own)))
	if len(s.Sockets.HTTP) > 0 {
		conn, err := s.Sockets.HTTP[0].Accept()
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		conn.Write([]byte("hello"))
	}
}

// child starts this program with sockets behind a shell that knows its number, and gives what it says.
func child(t *testing.T, pid string, names string, files ...*os.File) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), support.Limit)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", "LISTEN_PID="+pid+` exec "$0"`, program)
	command.Env = append(os.Environ(), childVariable+"=1", fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+names)
	command.ExtraFiles = files
	out, err := command.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// An inherited socket serves, and a child of the service gets neither the socket nor a variable.
func TestInheritedByProcess(t *testing.T) {
	files := kinds(t)
	address, err := net.FileListener(files["tcp"])
	if err != nil {
		t.Fatal(err)
	}
	defer address.Close()
	conn, err := net.DialTimeout("tcp", address.Addr().String(), support.Limit) // waits in the queue for the start
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := child(t, "$$", "http:dns:dns", files["tcp"], files["tcp"], files["udp"]); got != "1 1 1 [0 0]" {
		t.Errorf("the process says %q", got)
	}
	conn.SetDeadline(time.Now().Add(support.Limit))
	buffer := make([]byte, 5)
	if _, err := conn.Read(buffer); err != nil || string(buffer) != "hello" {
		t.Errorf("%q, %v", buffer, err)
	}
	if got := child(t, "1", "http:dns", files["tcp"], files["udp"]); !strings.HasPrefix(got, "0 0 0 ") {
		t.Errorf("with the number of another process: %q", got)
	}
}
