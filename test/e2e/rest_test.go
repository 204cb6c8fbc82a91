package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// quiet waits until a program without requests has the descriptors and the memory
// that it began with.
func (p *program) quiet() {
	p.t.Helper()
	if wrong := p.unquiet(); wrong != "" {
		p.t.Error(wrong)
	}
}

func (p *program) unquiet() (wrong string) {
	p.client.CloseIdleConnections()
	support.Within(limit, func() bool {
		now := resourcesOf(p.cmd.Process.Pid)
		wrong = ""
		if now.files > p.began.files+spareFiles || now.resident > p.began.resident+restMemory {
			wrong = fmt.Sprintf("left over are %d descriptors and %d KiB, of %d and %d at the start", now.files, now.resident, p.began.files, p.began.resident)
		}
		return wrong == ""
	})
	return wrong
}

// rest is quiet, and then ends the program, which tells what goroutines are left.
func (p *program) rest() {
	p.t.Helper()
	p.quiet()
	if n := p.goroutines(); n == 0 || n > restRoutines {
		p.t.Errorf("%d goroutines are left", n)
	}
}

// restRoutines are those of a program at rest, and some of calls that have just ended.
const restRoutines = 50

// idle waits until the program takes no processor time for a while: on a busy machine the goroutines of many
// queries are about to end.
func (p *program) idle() {
	p.t.Helper()
	var last string
	var since time.Time
	support.Eventually(p.t, support.Limit, "the program is idle", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			p.t.Fatal(err)
		}
		_, fields, _ := strings.Cut(string(text), ") ")
		if now := strings.Join(strings.Fields(fields)[11:13], " "); now != last { // utime and stime, in ticks of 10 ms
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

// goroutines ends the program once it is idle, and counts those that wait.
func (p *program) goroutines() int {
	p.t.Helper()
	p.idle()
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Wait()
	dump := p.log.String()
	return strings.Count(dump, "\ngoroutine ") - strings.Count(dump, " [runnable")
}

// What a program holds for too long is found.
func TestRestFindsLeaks(t *testing.T) {
	t.Parallel()
	p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("manual", "tcp://203.0.113.7:1")
	p.quiet()
	for range restRoutines {
		c, err := net.Dial("tcp", p.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	now := resourcesOf(p.cmd.Process.Pid)
	if now.files <= p.began.files+spareFiles {
		t.Errorf("%d descriptors with %d connections, %d at the start: no leak would be found", now.files, restRoutines, p.began.files)
	}
	if n := p.goroutines(); n <= restRoutines {
		t.Errorf("%d goroutines with %d connections: no leak would be found", n, restRoutines)
	}
	at := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"))
	at.configure("manual", "tcp://203.0.113.7:1")
	at.call(200, "POST", syncPath, "")
	t.Logf("%d goroutines at rest, %d descriptors at the start", at.goroutines(), at.began.files)
}
