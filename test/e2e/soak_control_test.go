package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/e2e/soak"
	"meshddns/test/support"
)

// TestSoakFindsFaults plants what the soak is there to find into a program that works.
func TestSoakFindsFaults(t *testing.T) {
	long(t, "MESHDDNS_SOAK")
	support.Need(t, "dig", "knotd")
	t.Parallel()
	s := newSoaked(t, binary(t))
	p := s.p.Load()
	l := &liar{next: p.client.Transport}
	p.client.Transport = l
	s.run(0, func() {
		s.patience = 5 * time.Second
		s.phase(soak.Backup, "load alone", weather{}, func() func() int64 {
			s.pass(2 * time.Second)
			p.eventually("the first client has a usage", func() bool { return s.clients[0].anchor() != "" })
			return nil
		})
		if wrong := s.wrong(); len(wrong) > 0 {
			t.Errorf("before anything was planted: %s", strings.Join(wrong, "\n"))
		}
		s.spoil(l)
		s.phase(soak.Backup, "load with faults", weather{}, func() func() int64 {
			s.backups.Store(true)
			p.eventually("an answer and a backup are changed", func() bool { return l.errors.Load() > 0 && l.damages.Load() > 0 })
			return nil
		})
	})
	for _, what := range []string{"unexpected answers", "acknowledged and lost", "rows of", "names that DNS", "faults of backups", "descriptors"} {
		if !slices.ContainsFunc(s.result.Checks(), func(c soak.Check) bool { return !c.OK && strings.HasPrefix(c.What, what) }) {
			t.Errorf("%s: nothing is found, but\n%s", what, strings.Join(s.wrong(), "\n"))
		}
	}
}

// anchor returns a prefix that the client never releases, "" while it has none.
func (c *soakClient) anchor() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.anchors) == 0 {
		return ""
	}
	return c.anchors[0]
}

// spoil plants the faults: a usage is lost, a provider loses a value of another owner,
// answers are changed, and connections stay open.
func (s *soaked) spoil(l *liar) {
	s.t.Helper()
	s.rest.Lock()
	defer s.rest.Unlock()
	execute(s.t, s.db, `DELETE FROM usages WHERE record_prefix = ?`, s.clients[0].anchor())
	s.cloud.Remove(s.t, "www."+goodZone, []string{"foreign"})
	l.lies.Store(true)
	for range 30 {
		c, err := net.Dial("tcp", s.p.Load().http)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(support.Slowest * limit))
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 OK"))); err != nil { // the program has accepted it
			s.t.Fatal(err)
		}
	}
}

// liar changes answers on their way while it lies: one in twenty becomes an error, and
// backups lose what stands in their middle.
type liar struct {
	next            http.RoundTripper
	lies            atomic.Bool
	count           atomic.Int64
	errors, damages atomic.Int64
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil || !l.lies.Load() || l.count.Add(1)%20 != 0 && r.URL.Path != backupPath {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if r.URL.Path == backupPath {
		clear(body[len(body)/3 : len(body)/2])
		l.damages.Add(1)
	} else {
		l.errors.Add(1)
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
	changes := overlay(t, "../../internal/web/envelope.go", "\treturn answer(r)\n}\n",
		"\tkept <- bytes.Repeat([]byte{1}, 32<<10)\n\treturn answer(r)\n}\n\nvar kept = make(chan []byte, 1<<20)\n")
	path, err := compile(filepath.Join(t.TempDir(), "meshddns"), "-overlay", changes)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
