package bench

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"meshddns/test/support"
)

// postSpeed compares reservations with an empty handler and with SQLite by itself. There is a service and no
// provider: what the reconciler does for a name is measured elsewhere.
func postSpeed(t *testing.T, b *table) {
	support.Need(t, "cc")
	s := speedScale()
	p, floor := start(t, reserved(t, account{}, s.names)), startFloor(t)
	one := startCommits(t, reserved(t, account{}, s.names))
	numbers := numbered()
	clients := []int{1, 8, 64}
	ours := make([]turns, len(clients))
	var alone, empty turns
	for i := range s.rounds + 1 {
		rate := one.rate(t, s.turn)
		for k, n := range clients {
			ours[k].take(t, posts(n, numbers), p.http, p.process, s.turn)
		}
		empty.take(t, posts(64, numbers), floor.http, floor.process, s.turn)
		if alone.rates = append(alone.rates, rate); i == 0 { // the first round is for warming up
			ours, alone, empty = make([]turns, len(clients)), turns{}, turns{}
		}
	}
	b.compare(t, contest{row: "POST usages, 64 clients / empty POST handler", measured: s.there("usages"), bound: least(0.25, 0.45), show: perSecond}, ours[2].rates, empty.rates)
	for k, bound := range []bound{least(0.38, 0.60), least(1.2, 1.8), least(2.5, 4.5)} {
		row := "POST usages, " + clientsText(clients[k]) + " / C, one commit each"
		b.compare(t, contest{row: row, measured: s.there("usages") + ", cc -O2", bound: bound, show: perSecond}, ours[k].rates, alone.rates)
	}
	for k, n := range clients {
		ours[k].describe(t, b, "POST usages, "+clientsText(n))
	}
	empty.describe(t, b, "empty POST handler, 64 clients")
	b.add(t, line{row: "peak memory of reservations", measured: "VmHWM after all of them", figure: fmt.Sprintf("%d MB", p.process.peak())})
}

// prefixSpeed compares check-prefix with an empty handler.
func prefixSpeed(t *testing.T, b *table) {
	s := speedScale()
	p, floor := start(t, reserved(t, builtin, s.names)), startFloor(t)
	var ours, empty turns
	for i := range s.rounds + 1 {
		ours.take(t, checks(64, s.names), p.http, p.process, s.turn)
		empty.take(t, checks(64, s.names), floor.http, floor.process, s.turn)
		if i == 0 {
			ours, empty = turns{}, turns{}
		}
	}
	b.compare(t, contest{row: "check-prefix, 64 clients / empty GET handler", measured: s.there("usages"), bound: least(0.65, 0.85), show: perSecond}, ours.rates, empty.rates)
	ours.describe(t, b, "check-prefix, 64 clients")
	empty.describe(t, b, "empty GET handler, 64 clients")
}

func (s scale) there(what string) string { return fmt.Sprintf("%d %s", s.names, what) }

// turns is what one side did in each round.
type turns struct {
	rates     []float64
	processor []float64 // microseconds a request
	p50, p99  []float64 // milliseconds
}

// take lets a side have its turn.
func (r *turns) take(t *testing.T, l load, address string, p *process, so time.Duration) {
	t.Helper()
	before := p.processor()
	a := l.during(t, address, so)
	r.processor = append(r.processor, microseconds(p.processor()-before)/float64(a.requests))
	r.rates = append(r.rates, a.rate())
	r.p50 = append(r.p50, milliseconds(a.permille(500)))
	r.p99 = append(r.p99, milliseconds(a.permille(990)))
}

// describe adds a line with what no bound is about.
func (r *turns) describe(t *testing.T, b *table, row string) {
	b.add(t, line{
		row: "processor time a request, " + row, measured: "utime + stime of the server",
		figure: spanned(r.processor, decimals) + " us; p50 " + spanned(r.p50, decimals) + " ms; p99 " + spanned(r.p99, decimals) + " ms",
	})
}

var before = flag.String("before", "e61023c", "git revision that the delays are compared with")

// beforeAndAfter compares the delays of reservations with those of an earlier program.
func beforeAndAfter(t *testing.T, b *table) {
	if !*large {
		t.Skip("with -large only: another program has to be built")
	}
	support.Need(t, "git", "tar")
	tree := t.TempDir()
	archive, err := exec.Command("git", "-C", "../..", "archive", *before).Output()
	if err != nil {
		fmt.Printf("left out: p99 before and after, for revision %s is not here\n", *before)
		t.Skip(err)
	}
	tar := exec.Command("tar", "-x", "-C", tree)
	tar.Stdin = bytes.NewReader(archive)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	into := filepath.Join(tree, "built")
	if err := os.Mkdir(into, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := buildIn(tree, into)
	if err != nil {
		t.Fatal(err)
	}
	s := speedScale()
	was, is := startAs(t, reservedBy(t, way{path: old}, s.names), way{path: old}), start(t, reserved(t, builtin, s.names))
	numbers := numbered()
	var ours, theirs turns
	for i := range s.rounds + 1 {
		theirs.take(t, posts(64, numbers), was.http, was.process, s.turn)
		ours.take(t, posts(64, numbers), is.http, is.process, s.turn)
		if i == 0 {
			ours, theirs = turns{}, turns{}
		}
	}
	show := func(f float64) string { return decimals(f) + "ms" }
	b.compare(t, contest{
		row: "p99 of POST usages, 64 clients, before / after", measured: "before is " + *before + ", " + s.there("usages"),
		bound: least(8, 15), show: show, divided: true,
	}, theirs.p99, ours.p99)
	theirs.describe(t, b, "POST usages, 64 clients, before")
}

// rowsSpeed compares what is done among very many usages with the same among a
// thousand.
func rowsSpeed(t *testing.T, b *table) {
	s := speedScale()
	many := start(t, reserved(t, builtin, s.rows))
	numbers := numbered()
	for _, call := range []struct {
		row  string
		load func(names int) load
	}{
		{"check-prefix", func(names int) load { return checks(64, names) }},
		{"POST usages", func(int) load { return posts(64, numbers) }},
	} {
		var here, there turns
		for range s.rounds {
			few := start(t, reserved(t, builtin, thousand)) // anew, for reservations make it many
			call.load(thousand).times(t, few.http, thousand)
			call.load(s.rows).times(t, many.http, thousand)
			there.take(t, call.load(thousand), few.http, few.process, s.turn)
			here.take(t, call.load(s.rows), many.http, many.process, s.turn)
			few.stop()
		}
		b.compare(t, contest{
			row: call.row + ", very many / few rows", measured: fmt.Sprintf("%d / %d usages, 64 clients", s.rows, thousand),
			bound: least(0.8, 0.95), show: perSecond,
		}, here.rates, there.rates)
	}
}

const thousand = 1000
