package reconcile

import (
	"context"
	"slices"
	"time"
)

// task is a name in work, with its records, perhaps in several zones.
type task struct {
	name     Name
	turn     turn
	jobs     []*job
	begun    bool // one of the jobs, or there is none
	waiting  int  // jobs
	outcomes []Outcome
	places   []Place // of the name, as they are by now
	next     Due     // the earliest reason to come back
	follow   bool
	page     *pass // that has taken it; nil when it was due
	again    bool  // it was tried before, and is tried again
	look     bool  // only to look, in mode manual
	passed   bool  // the pass that runs has come by, and has found it unchanged
}

// job is one record of a task.
type job struct {
	task    *task
	lane    *zoneLane
	record  Record
	attempt int // failed ones before
}

// belongs reports whether the task does the work of a pass at its name. A task that only looks does
// not, nor does one that an earlier pass has begun.
func (t *task) belongs(p *pass) bool { return !t.look && (t.page == nil || t.page == p) }

// comeBack notes a reason to come back to the name; the earliest counts.
func (t *task) comeBack(d Due) {
	if t.next.At.IsZero() || d.At.Before(t.next.At) {
		t.next = d
	}
}

// take takes what came of one of the task's records.
func (t *task) take(s *Settlement, i *item, o Outcome, back Due) {
	t.outcomes = append(t.outcomes, o)
	if !back.At.IsZero() {
		t.comeBack(back)
	}
	if i.step == End || i.step == EndThenLook {
		s.Ended = append(s.Ended, i.place)
		t.places = slices.DeleteFunc(slices.Clone(t.places), func(p Place) bool { return p.ID == i.place.ID })
		return
	}
	for _, p := range i.store {
		at := slices.IndexFunc(t.places, func(q Place) bool { return q.ID == p.ID && p.ID != 0 })
		if at >= 0 && t.places[at] == *p && i.before == nil {
			continue
		}
		s.Places = append(s.Places, *p)
		t.places = slices.Clone(t.places)
		if at >= 0 {
			t.places[at] = *p
		} else {
			t.places = append(t.places, *p)
		}
	}
}

// waits reports whether a record of the task is tried again before it counts.
func (t *task) waits() bool {
	return slices.ContainsFunc(t.outcomes, func(o Outcome) bool { return o.Action == "" && o.Fault.Code != "" })
}

// news are the outcomes that count already: of a name that is tried again only
// what was changed.
func (t *task) news() []Outcome {
	if !t.waits() && !t.next.Lane.OfZone() {
		return t.outcomes
	}
	return written(t.outcomes)
}

// counts reports whether a pass that the task belongs to may mark its name.
func (t *task) counts() bool {
	return !t.waits() && slices.ContainsFunc(t.news(), func(o Outcome) bool { return o.Action != "" })
}

// well reports whether the name is as it should be.
func (t *task) well() bool { return t.counts() && !slices.ContainsFunc(t.outcomes, Outcome.bad) }

// lookAgain is when a look is made again that was due and has told nothing.
const lookAgain = 5 * time.Minute

// due says when to come back to a name. News is false when nothing about it has
// to be stored.
func (t *task) due(pass int64, now time.Time) (d Due, news bool) {
	bad := slices.ContainsFunc(t.outcomes, Outcome.bad)
	stands := !t.waits() && !slices.ContainsFunc(t.outcomes, func(o Outcome) bool { return o.bad() && o.Provider != "" })
	if d = t.next; t.follow && stands {
		d = Due{At: now, Lane: LaneAsked}
	}
	d.Kept = t.look && d.At.IsZero()
	if look := nextLook(t.places); !d.Lane.OfZone() && !look.IsZero() {
		if d.Look = look; !look.After(now) {
			d.Look = now.Add(lookAgain)
		}
	}
	d.Name, d.Version = t.name.Name, t.name.Version
	if pass > 0 && t.counts() {
		d.Pass = PassMark{pass, bad}
	}
	active := slices.ContainsFunc(t.name.Usages, func(u Usage) bool { return !u.Releasing })
	d.Released = slices.ContainsFunc(t.name.Usages, func(u Usage) bool { return u.Releasing })
	d.Empty = len(t.places) == 0 && !active && t.name.Own == nil
	news = t.page == nil || !d.At.IsZero() || d.Released || d.Empty || bad || !t.name.Due.IsZero() || !d.Look.Equal(t.name.Look)
	return d, news
}

// Waiter waits until the engine has worked on a version of a name.
type Waiter struct {
	engine *Engine
	name   string
	seen   int64 // the newest version that was worked on
	news   chan struct{}
}

// Expect begins to wait for the work on a name. It ends with Close.
func (e *Engine) Expect(name string) *Waiter {
	w := &Waiter{engine: e, name: name, news: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaited[name] = append(e.awaited[name], w)
	return w
}

// see notes that a version was worked on. The caller holds the engine's lock.
func (w *Waiter) see(version int64) {
	w.seen = max(w.seen, version)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Wait waits until the version was worked on, or ctx ends.
func (w *Waiter) Wait(ctx context.Context, version int64) {
	w.engine.Wake()
	for {
		w.engine.mu.Lock()
		seen := w.seen
		w.engine.mu.Unlock()
		if seen >= version {
			return
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the waiting.
func (w *Waiter) Close() {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	e := w.engine
	e.awaited[w.name] = slices.DeleteFunc(e.awaited[w.name], func(o *Waiter) bool { return o == w })
	if len(e.awaited[w.name]) == 0 {
		delete(e.awaited, w.name)
	}
}
