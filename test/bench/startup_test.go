package bench

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"meshddns/test/support"
)

// startSpeed compares how long a start takes, and measures how much a program is
// that does nothing.
func startSpeed(t *testing.T, b *table) {
	s := speedScale()
	db := reserved(t, builtin, s.names)
	empty, err := buildFloor()
	if err != nil {
		t.Fatal(err)
	}
	var ours, floor, idle []float64
	for i := range s.rounds + 1 {
		var took [2][]time.Duration
		for range 5 {
			listen := support.FreeAddress(t)
			p, d := started(t, listen, append([]string{built(t)}, arguments(db, listen, "127.0.0.1:0")...)...)
			took[0] = append(took[0], d)
			support.Eventually(t, limit, "nothing is left to do after the start", func() bool { return bytes.Contains(p.said(), []byte("the database is sound")) })
			idle = append(idle, p.resident())
			p.stop()
			listen = support.FreeAddress(t)
			p, d = started(t, listen, empty, listen)
			took[1] = append(took[1], d)
			support.Kill(p.cmd)
		}
		if i > 0 { // the first round is for the file system
			ours, floor = append(ours, median(took[0]).Seconds()), append(floor, median(took[1]).Seconds())
		}
	}
	b.compare(t, contest{
		row: "start to first answer / an empty Go server", measured: fmt.Sprintf("GET /healthz, a database with %s, 5 starts a round", s.there("usages")),
		bound: most(1.6, 1.2), show: duration,
	}, ours, floor)
	b.state(t, absolute{
		row: "idle memory", measured: "VmRSS when nothing is left to do after the start, with the DNS server", bound: most(13, 10), show: decimals, unit: " MB",
	}, idle...)
	info, err := os.Stat(built(t))
	if err != nil {
		t.Fatal(err)
	}
	size := float64(info.Size()) / (1 << 20)
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`(?m)^\| (?:static binary \|.*? \||meshddns \|) ([0-9.]+) MB`).FindAllSubmatch(page, -1)
	for _, figure := range told {
		if mb, err := strconv.ParseFloat(string(figure[1]), 64); err != nil || math.Abs(mb-size) > size/50 {
			t.Errorf("docs/performance.md: %s; the binary has %.3g MB", figure[0], size)
		}
	}
	if len(told) != 2 {
		t.Errorf("docs/performance.md tells the size of the binary %d times, want 2", len(told))
	}
	b.state(t, absolute{
		row: "static binary", measured: fmt.Sprintf("%d octets, built as docs/image.md says", info.Size()),
		bound: most(14.5, 12), show: decimals, unit: " MB", counts: true,
	}, size)
}

// started runs a command, and tells how long it took until it answered.
func started(t *testing.T, listen string, command ...string) (*process, time.Duration) {
	t.Helper()
	return startedAt(t, "http://"+listen+"/healthz", command...)
}

func startedAt(t *testing.T, url string, command ...string) (*process, time.Duration) {
	t.Helper()
	began := time.Now()
	p := launch(t, filepath.Join(dir, "started.log"), nil, command...)
	firstAnswer(t, url)
	return p, time.Since(began)
}

// firstAnswer waits for an answer: it asks again at once while nothing listens.
func firstAnswer(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Timeout: limit}
	defer client.CloseIdleConnections()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		response, err := client.Get(url)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		<-time.After(100 * time.Microsecond)
	}
	t.Fatalf("no answer from %s", url)
}
