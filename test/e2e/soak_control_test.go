package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/e2e/soak"
	"meshddns/test/support"
)

// What the soak is there to find, planted into a program that works, is found.
func TestSoakFindsFaults(t *testing.T) {
	long(t, "MESHDDNS_SOAK")
	support.Need(t, "dig", "knotd")
	t.Parallel()
	s := newSoaked(t, binary(t))
	s.run(0, func() {
		s.length, s.patience = time.Second, 5*time.Second
		s.phase(soak.Calm, "load alone", weather{}, nil)
		if wrong := s.wrong(); len(wrong) > 0 {
			t.Errorf("before anything was planted: %s", strings.Join(wrong, "\n"))
		}
		s.rest.Lock()
		execute(t, s.db, `DELETE FROM usages WHERE record_prefix = ?`, s.clients[0].anchors[0])
		s.cloud.Remove(t, "www."+goodZone, []string{"foreign"})
		p := s.p.Load()
		p.client.Transport = &liar{next: p.client.Transport}
		s.rest.Unlock()
		for range 30 {
			c, err := net.Dial("tcp", p.http)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		s.backups.Store(true)
		s.phase(soak.Calm, "load with faults", weather{}, nil)
	})
	failed := map[string]bool{}
	for _, c := range s.result.Checks() {
		failed[c.What] = !c.OK
	}
	for _, what := range []string{"unexpected answers", "acknowledged and lost", "rows of", "names that DNS", "faults of backups", "descriptors"} {
		found := false
		for check, not := range failed {
			found = found || not && strings.HasPrefix(check, what)
		}
		if !found {
			t.Errorf("%s: nothing is found, but\n%s", what, strings.Join(s.wrong(), "\n"))
		}
	}
}

// liar changes answers on their way: one in twenty becomes an error, and backups lose what
// stands in their middle.
type liar struct {
	next  http.RoundTripper
	count atomic.Int64
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil || l.count.Add(1)%20 != 0 && r.URL.Path != backupPath {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if r.URL.Path == backupPath {
		clear(body[len(body)/3 : len(body)/2])
	} else {
		response.StatusCode, body = 500, []byte(`{"error":"no"}`)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, err
}

// A program that keeps 32 KiB of each request is found by the slope of its memory.
func TestSoakFindsLeak(t *testing.T) {
	long(t, "MESHDDNS_SOAK")
	support.Need(t, "dig", "knotd")
	t.Parallel()
	s := newSoaked(t, leakyBinary(t))
	s.run(0, func() {
		s.length = 10 * time.Second
		s.phase(soak.Calm, "load alone", weather{}, nil)
	})
	slopes := s.result.Slopes()
	if len(slopes) != 1 || slopes[0].PerRequest < 4<<10 {
		t.Errorf("slopes %+v, want one of more than 4 KiB a request", slopes)
	}
	for _, c := range s.result.Checks() {
		if strings.HasPrefix(c.What, "growth of memory") {
			t.Logf("%s: %s (want %s)", c.What, c.Is, c.Want)
			if c.OK {
				t.Error("the leak is not found")
			}
		}
	}
}

// leakyBinary builds the program with a leak in its sources.
func leakyBinary(t *testing.T) string {
	t.Helper()
	if err := support.OpenSources("../.."); err != nil {
		t.Fatal(err)
	}
	changes := overlay(t, "../../internal/envelope/envelope.go", "\treturn answer(r)\n}\n",
		"\tkept <- bytes.Repeat([]byte{1}, 32<<10)\n\treturn answer(r)\n}\n\nvar kept = make(chan []byte, 1<<20)\n")
	path := filepath.Join(t.TempDir(), "meshddns")
	if out, err := exec.Command("go", "build", "-overlay", changes, "-o", path, "../..").CombinedOutput(); err != nil {
		t.Fatalf("build the control: %v\n%s", err, out)
	}
	return path
}
