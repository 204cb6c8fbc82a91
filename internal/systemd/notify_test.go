package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is the socket of a service manager.
type manager struct {
	t    testing.TB
	conn *net.UnixConn
}

func listen(t testing.TB, name string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn}
}

// told gives what has come, one text a message. A message of this process is there as soon as
// it is sent, so there is nothing to wait for.
func (m *manager) told() (messages []string) {
	m.t.Helper()
	raw, err := m.conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for err == nil {
		var n int
		if fault := raw.Control(func(fd uintptr) { n, _, err = syscall.Recvfrom(int(fd), buffer, syscall.MSG_DONTWAIT) }); fault != nil {
			m.t.Fatal(fault)
		}
		if err == nil {
			messages = append(messages, string(buffer[:n]))
		}
	}
	if !errors.Is(err, syscall.EAGAIN) {
		m.t.Fatal(err)
	}
	return messages
}

func (m *manager) wants(messages ...string) {
	m.t.Helper()
	if told := m.told(); strings.Join(told, "|") != strings.Join(messages, "|") {
		m.t.Errorf("told %q, want %q", told, messages)
	}
}

// service opens a service of the variables in a text.
func service(t testing.TB, text string) *Manager {
	t.Helper()
	s, err := Open(from(text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, name := range []string{path, fmt.Sprintf("@meshddns-test-%d", os.Getpid())} {
		m := listen(t, name)
		s := service(t, "NOTIFY_SOCKET="+name)
		for _, err := range []error{s.Ready("serves"), s.Status("one\nREADY=1\r\x7f"), s.Stopping()} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		m.wants("READY=1\nSTATUS=serves", "STATUS=one READY=1  ", "STOPPING=1\nSTATUS=stopping")
	}
}

// The manager takes a reload for a new one by a time of its own clock, in microseconds.
func TestReloadingTellsTheMonotonicTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	m, s := listen(t, path), service(t, "NOTIFY_SOCKET="+path)
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip("no /proc/uptime: ", err)
	}
	if err := s.Reloading(); err != nil {
		t.Fatal(err)
	}
	told := m.told()
	form := regexp.MustCompile(`^RELOADING=1\nSTATUS=reading files again\nMONOTONIC_USEC=([0-9]+)$`)
	if len(told) != 1 || !form.MatchString(told[0]) {
		t.Fatalf("told %q", told)
	}
	var before float64 // of the clock that also counts the time of a suspended machine
	var usec int64
	fmt.Sscan(string(uptime), &before)
	fmt.Sscan(form.FindStringSubmatch(told[0])[1], &usec)
	if now := time.Duration(usec) * time.Microsecond; now <= 0 || now.Seconds() > before+60 {
		t.Errorf("%v at an uptime of %v s", now, before)
	}
}

func TestWithoutManager(t *testing.T) {
	s := service(t, "")
	for _, err := range []error{s.Ready(""), s.Reloading(), s.Status(""), s.Stopping(), s.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// A manager that is not there, or cannot be reached from here, is told once, and the program starts.
func TestManagerThatIsNotThere(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left") // its file stays, and nothing reads there
	address := &net.UnixAddr{Name: left, Net: "unixgram"}
	listener, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	for text, want := range map[string]string{
		"NOTIFY_SOCKET=" + left + ".none": "no such file or directory",
		"NOTIFY_SOCKET=" + left:           "connection refused",
		"NOTIFY_SOCKET=vsock:2:1234":      "want a path or @name",
		"WATCHDOG_USEC=30s":               "want microseconds",
	} {
		var out bytes.Buffer
		s, err := Open(from(text), slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if told := out.String(); strings.Count(told, "\n") != 1 || !strings.Contains(told, "level=WARN") || !strings.Contains(told, want) {
			t.Errorf("%s: told %q, want %q", text, told, want)
		}
		for _, err := range []error{s.Ready(""), s.Close()} {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// A child must not speak for the service, nor take its sockets for its own.
func TestVariablesAreRemoved(t *testing.T) {
	for _, name := range variables {
		t.Setenv(name, "")
	}
	t.Setenv("JOURNAL_STREAM", "1:2")
	service(t, "")
	for _, name := range variables {
		if value, ok := os.LookupEnv(name); ok {
			t.Errorf("%s=%s is left", name, value)
		}
	}
	if os.Getenv("JOURNAL_STREAM") == "" {
		t.Error("JOURNAL_STREAM, which every child may look at, is gone")
	}
}
