package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// oneChange compares what a new name, and its release, cost the processor when
// there are few other names and when there are many. Both programs do the same at
// the same time.
func oneChange(t *testing.T, b *table) {
	s := size()
	var programs [2]*program
	for i, names := range []int{s.few, s.many} {
		programs[i] = start(t, published(t, builtin.automatic(), names))
		programs[i].sync(3) // in place of the pass at the start, which takes its time
	}
	var made, freed [2][]time.Duration
	for n := range s.changes {
		var both sync.WaitGroup
		for i, p := range programs {
			both.Go(func() {
				var id string
				made[i] = append(made[i], p.costs(func() { id, _ = p.publish(first + s.most + n) }))
				freed[i] = append(freed[i], p.costs(func() { p.call("DELETE", "/usages/"+id, "") }))
			})
		}
		both.Wait()
	}
	what := fmt.Sprintf("%d, %d against %d names, builtin, auto", s.changes, s.many, s.few)
	for _, l := range []struct {
		row  string
		took [2][]time.Duration
	}{{"processor time of one change", made}, {"processor time of one release", freed}} {
		of := ratio(l.took[1], l.took[0])
		b.add(t, line{
			row: l.row, measured: what, must: "1.5", ok: of <= 1.5,
			figure: fmt.Sprintf("%.2f (%s / %s)", of, round(median(l.took[1])), round(median(l.took[0]))),
		})
	}
}

// costs is the processor time that the program takes for something, and until
// it has committed what came of it.
func (p *program) costs(do func()) time.Duration {
	before := p.process.processor()
	do()
	for seen := -1; seen != p.commits(); {
		seen = p.commits()
		<-time.After(quiet)
	}
	return p.process.processor() - before
}

// quiet is how long a program that has written nothing is believed to be done.
const quiet = 30 * time.Millisecond

// publish reserves a prefix, waits until the built-in server answers for it, and
// tells how long that took. The server is asked when something was committed: to
// ask all the time would be what it costs.
func (p *program) publish(n int) (id string, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	id = p.reserve(n)
	seen := -1
	p.eventually(nameOf(n)+" answers", func() bool {
		before := seen
		seen = p.commits()
		return seen != before && p.answers(nameOf(n))
	})
	return id, time.Since(began)
}

// newName measures how long a new name takes beside two clients that release
// without pause.
func newName(t *testing.T, b *table) {
	s := size()
	p := start(t, published(t, builtin.automatic(), s.most))
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var released atomic.Int64
	began := time.Now()
	for client := range 2 {
		clients.Go(func() {
			for n := client + 1; ctx.Err() == nil && n < s.most; n += 2 {
				p.release(n)
				released.Add(1)
			}
		})
	}
	var took []time.Duration
	for n := range min(10, s.changes) {
		_, d := p.publish(first + s.most + n)
		took = append(took, d)
	}
	rate := float64(released.Load()) / time.Since(began).Seconds()
	cancel()
	clients.Wait()
	b.add(t, line{
		row:      "a new name answers",
		measured: fmt.Sprintf("the slowest of %d, builtin, auto, %d names, beside two clients that release %.0f names/s", len(took), s.most, rate),
		figure:   round(slowest(took)), must: "2 s", ok: slowest(took) <= 2*time.Second,
	})
}

// release releases a usage that was filled in; it need not be free at once.
func (p *program) release(n int) time.Duration {
	began := time.Now()
	status, _, answer, err := p.try("DELETE", "/usages/"+idOf(first+n), "")
	if err != nil || status/100 != 2 {
		p.t.Errorf("DELETE: %v, status %d: %s", err, status, answer)
	}
	return time.Since(began)
}

// besidePass measures releases while a pass goes through all names.
func besidePass(t *testing.T, b *table) {
	s := size()
	t.Run("builtin", func(t *testing.T) {
		releaseBeside(t, b, start(t, published(t, builtin, s.many)))
	})
	t.Run("Knot", func(t *testing.T) {
		p := start(t, reserved(t, atKnot(t).account, s.many))
		p.sync(5)
		releaseBeside(t, b, p)
	})
}

func releaseBeside(t *testing.T, b *table, p *program) {
	s := size()
	var through atomic.Bool
	var pass sync.WaitGroup
	pass.Go(func() {
		p.sync(5)
		through.Store(true)
	})
	var took []time.Duration
	for n := 1; !through.Load() && n < s.many; n++ {
		took = append(took, p.release(n))
	}
	pass.Wait()
	b.add(t, line{
		row: "release beside a pass, " + nameOfTest(t), measured: fmt.Sprintf("the slowest of %d, %d names; median %s", len(took), s.many, round(median(took))),
		figure: round(slowest(took)), must: "1 s", ok: slowest(took) <= time.Second,
	})
	b.add(t, line{row: "memory peak of both, " + nameOfTest(t), measured: fmt.Sprintf("%d names", s.many), figure: fmt.Sprintf("%d MB", p.process.peak())})
}
