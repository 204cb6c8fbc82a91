package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"meshddns/test/support"
)

// counters counts what a reservation takes, whatever the time: how often the disk
// is asked to be done, what is allocated, how large the file grows.
func counters(t *testing.T, b *table) {
	t.Run("fsyncs", func(t *testing.T) { fsyncs(t, b) })
	t.Run("allocated", func(t *testing.T) { allocated(t, b) })
	t.Run("bytes", func(t *testing.T) { bytesPerUsage(t, b) })
}

// fsyncs has strace note every fsync and fdatasync of the program. With a filter in
// the kernel nothing else stops it.
func fsyncs(t *testing.T, b *table) {
	support.Need(t, "strace")
	s := speedScale()
	db := reserved(t, builtin, s.names)
	notes := filepath.Join(t.TempDir(), "strace")
	p := startAs(t, db, way{wrap: []string{"strace", "-D", "-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", notes}})
	seen := func() int {
		text, err := os.ReadFile(notes)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(text, []byte("fdatasync(")) + bytes.Count(text, []byte("fsync("))
	}
	numbers := numbered()
	posts(64, numbers).times(t, p.http, 100)
	for _, c := range []struct {
		clients int
		must    float64
	}{{1, 1.05}, {8, 0.40}, {64, 0.05}} {
		before := seen()
		a := posts(c.clients, numbers).times(t, p.http, s.counted)
		b.state(t, absolute{
			row: "fsyncs per reservation, " + clientsText(c.clients), measured: fmt.Sprintf("%d reservations, strace -f --seccomp-bpf", a.requests),
			bound: most(c.must, 0), show: decimals, counts: true,
		}, float64(seen()-before)/float64(a.requests))
	}
}

// allocated tells how the memory of a program that never frees grows.
func allocated(t *testing.T, b *table) {
	s := speedScale()
	p := startAs(t, reserved(t, builtin, s.names), way{env: []string{"GOGC=off", "GOMEMLIMIT=off", "GODEBUG=gctrace=1"}})
	numbers := numbered()
	for _, call := range []struct {
		row  string
		load load
	}{
		{"POST usages", posts(8, numbers)}, {"check-prefix", checks(8, s.names)},
	} {
		call.load.times(t, p.http, 500)
		before := p.process.resident()
		a := call.load.times(t, p.http, s.counted)
		grown := (p.process.resident() - before) * 1024 / float64(a.requests)
		if bytes.Contains(p.process.said(), []byte("\ngc ")) {
			t.Errorf("%s: the program has collected garbage, which it was told not to", call.row)
		}
		b.state(t, absolute{
			row: "allocated for a request, " + call.row, measured: fmt.Sprintf("%d requests, growth of VmRSS with GOGC=off", a.requests),
			show: decimals, unit: " kB",
		}, grown)
	}
}

// bytesPerUsage compares the file before and after reservations that the program
// itself has made.
func bytesPerUsage(t *testing.T, b *table) {
	s := speedScale()
	p := start(t, reserved(t, builtin, 1))
	before := pages(t, p.db)
	a := posts(64, numbered()).times(t, p.http, s.counted)
	b.state(t, absolute{
		row: "bytes per usage", measured: fmt.Sprintf("%d reservations in no order, page_count of the database", a.requests), show: decimals,
	}, float64(pages(t, p.db)-before)/float64(a.requests))
}

// pages is the size of a database in octets, with what is still in its log.
func pages(t *testing.T, path string) (octets int) {
	t.Helper()
	db := support.OpenSQLite(t, path, "_query_only=1")
	defer db.Close()
	if err := db.QueryRow(`SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&octets); err != nil {
		t.Fatal(err)
	}
	return octets
}
