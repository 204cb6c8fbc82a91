package bench

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	for i := range 3 * s.rounds {
		var servers [2]*process
		for k, side := range []struct {
			times   *[]float64
			command func(listen string) []string
		}{
			{&ours, func(listen string) []string {
				return append([]string{built(t)}, arguments(db, listen, "127.0.0.1:0")...)
			}},
			{&floor, func(listen string) []string { return []string{empty, listen} }},
		} {
			listen := freeAddress(t)
			began := time.Now()
			servers[k] = launch(t, filepath.Join(t.TempDir(), "log"), nil, side.command(listen)...)
			firstAnswer(t, "http://"+listen+"/healthz")
			if took := time.Since(began); i > 0 { // the first time is for the file system
				*side.times = append(*side.times, took.Seconds())
			}
		}
		idle = append(idle, servers[0].resident())
		servers[0].stop()
		servers[1].kill()
	}
	b.compare(t, contest{
		row: "start to first answer / an empty Go server", measured: fmt.Sprintf("GET /healthz, a database with %s", s.there("usages")),
		bound: most(1.6, 1.2), show: duration,
	}, ours, floor)
	b.state(t, absolute{
		row: "idle memory", measured: "VmRSS after the first answer, with the DNS server", bound: most(13, 10), show: decimals, unit: " MB", counts: true,
	}, idle...)
	info, err := os.Stat(built(t))
	if err != nil {
		t.Fatal(err)
	}
	b.state(t, absolute{
		row: "static binary", measured: fmt.Sprintf("%d octets, built as the README says", info.Size()),
		bound: most(11, 10), show: decimals, unit: " MB", counts: true,
	}, float64(info.Size())/(1<<20))
}

// firstAnswer waits for an answer: it asks again at once when nobody listens yet.
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
