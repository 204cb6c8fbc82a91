package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// The program serves the sockets that a service manager has opened, in the place of its own
// addresses, and refuses one that every network can reach.
func TestInheritedSockets(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dns.Close()
	p := inheriting(t, "http:dns", tcp, dns)
	support.Start(t, p.cmd)
	response, err := (&http.Client{Timeout: support.Slowest * limit}).Get("http://" + tcp.Addr().String() + "/healthz") // waits for the start
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("healthz: %s", response.Status)
	}
	conn, err := net.Dial("udp", dns.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(support.Slowest * limit))
	conn.Write([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x00\x00\x10\x00\x01"))
	if n, err := conn.Read(make([]byte, 512)); err != nil || n < 12 {
		t.Errorf("dns: %d octets, %v\n%s", n, err, p.log)
	}

	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	open := inheriting(t, "http", everywhere)
	if err := open.cmd.Run(); err == nil {
		t.Error("without a token it serves a socket that is open to every network")
	}
	open.eventually("the refusal is told", func() bool {
		return strings.Contains(open.log.String(), "is not a loopback address: -token-file is required")
	})
}

// inheriting is the program behind a shell, which knows its number, with sockets of names.
func inheriting(t *testing.T, names string, sockets ...any) *program {
	t.Helper()
	p := &program{t: t, log: &support.Log{}}
	ctx, cancel := context.WithTimeout(t.Context(), support.Slowest*limit)
	t.Cleanup(cancel)
	p.cmd = exec.CommandContext(ctx, "sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", binary(t), "-db", filepath.Join(t.TempDir(), "meshddns.db"), "-ipv4", "none", "-ipv6", "none")
	p.cmd.Env = append(support.Environ(), "LISTEN_FDNAMES="+names, "LISTEN_FDS="+strconv.Itoa(len(sockets)))
	p.cmd.Stderr = p.log
	for _, socket := range sockets {
		file, err := socket.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, file)
	}
	return p
}
