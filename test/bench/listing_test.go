package bench

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/support"
)

// sameJoin gives what a listing has.
const sameJoin = `
	SELECT u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive AS is_occupied,
	       b.network_id, '_mesh.' || u.record_prefix || '.' || s.domain AS full_domain, s.id, s.name
	FROM usages u LEFT JOIN bindings b ON b.seq = u.seq LEFT JOIN services s ON s.id = u.provider_id
	WHERE u.record_type = 'TXT' ORDER BY u.seq`

// listingSpeed compares a listing of everything with SQLite's own program, and
// measures what waits for it and for a backup.
func listingSpeed(t *testing.T, b *table) {
	support.Need(t, "sqlite3")
	s := speedScale()
	db := reserved(t, builtin, s.most)
	p := start(t, db)
	numbers := numbered()
	posts(1, numbers).times(t, p.http, 100)
	p.process.forgetPeak()
	before := p.process.resident()
	p.download("/usages/available")
	grown := float64(p.process.kilobytes("VmHWM"))/1024 - before
	b.state(t, absolute{
		row: "memory growth of a listing", measured: fmt.Sprintf("%d usages, VmHWM after it beyond VmRSS before", s.most),
		bound: most(16, 0), show: decimals, unit: " MB", counts: true,
	}, grown)
	var ours, theirs, processor []float64
	for range min(s.rounds, 5) {
		used := p.process.processor()
		ours = append(ours, p.download("/usages/available").Seconds())
		processor = append(processor, microseconds(p.process.processor()-used)/float64(s.most))
		theirs = append(theirs, run(t, "sqlite3", "-json", "file:"+db+"?mode=ro", sameJoin).Seconds())
	}
	b.compare(t, contest{
		row: "listing over HTTP / sqlite3 -json", measured: fmt.Sprintf("%d usages, the same join, read and thrown away", s.most),
		bound: most(2, 0), show: duration,
	}, ours, theirs)
	b.state(t, absolute{row: "processor time an entry of the listing", measured: "utime + stime", show: decimals, unit: " us"}, processor...)
	for _, beside := range []string{"/usages/available", "/backup"} {
		worstBeside(t, b, p, beside, numbers)
	}
}

// worstBeside measures the slowest of reservations, made one after the other, while
// something long is read; and of as long a time without.
func worstBeside(t *testing.T, b *table, p *program, path string, numbers *atomic.Int64) {
	var beside, alone []float64
	var requests int
	for range 5 {
		var through atomic.Bool
		done := make(chan time.Duration, 1)
		go func() {
			defer through.Store(true)
			done <- p.download(path)
		}()
		a := posts(1, numbers).until(t, p.http, through.Load)
		requests += a.requests
		beside = append(beside, milliseconds(slices.Max(a.delays)))
		a = posts(1, numbers).during(t, p.http, <-done)
		alone = append(alone, milliseconds(slices.Max(a.delays)))
	}
	b.state(t, absolute{
		row: "worst POST beside GET " + path, measured: fmt.Sprintf("%d usages, 5 times, %d POSTs; without it %s ms", speedScale().most, requests, spanned(alone, decimals)),
		bound: most(50, 0), show: decimals, unit: " ms", doubt: median(alone) > 50/steady, // this machine's disk itself is as slow
	}, beside...)
}

// download reads an answer and throws it away.
func (p *program) download(path string) time.Duration {
	began := time.Now()
	response, err := p.client.Get("http://" + p.http + "/api/v1/ddns" + path)
	if err != nil {
		p.t.Error(err)
		return time.Since(began)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		p.t.Errorf("GET %s: status %d, %v", path, response.StatusCode, err)
	}
	return time.Since(began)
}

// run runs a command without reading its output, and tells how long it took.
func run(t *testing.T, command ...string) time.Duration {
	t.Helper()
	began := time.Now()
	if err := exec.Command(command[0], command[1:]...).Run(); err != nil {
		t.Fatalf("%s: %v", command[0], err)
	}
	return time.Since(began)
}
