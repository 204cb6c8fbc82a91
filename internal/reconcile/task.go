package reconcile

import (
	"context"
	"slices"
	"time"
)

// task is the work on one name, whose records may be in several zones.
type task struct {
	name     Name
	taken    time.Time
	priority priority
	jobs     []*job
	begun    bool // one of its jobs has begun, or it has none
	waiting  int  // jobs that have not ended
	settling int  // settlements with its places that are not stored yet, besides the one that ends it
	unstored bool // one of them could not be stored
	deferred bool // one of its records has found a full queue, or is work of the next batch
	outcomes []Outcome
	places   []Place   // of the name, brought up to date by each job
	next     Due       // the earliest next try
	follow   []Sibling // records after which the name is due again at once, each once its wanted value stands
	page     *pass     // that has taken it; nil: it was due
	during   *pass     // that ran when it began; nil: none did
	joined   *pass     // that waits for it, because it does the pass's work at the name; nil: none does
	again    bool      // it is a retry
	look     bool      // it writes nothing that is missing, because that waits for a person or for its share of the writes
	passed   bool      // the cursor of the running pass was already past the name
}

// job is one record of a task.
type job struct {
	task    *task
	lane    *zoneLane
	record  Record
	attempt int // failed attempts before
}

// belongs reports whether the task does the work of a pass at its name. A task that only
// looks does not, nor does a task that began before the pass: what is wanted may have changed since.
func (t *task) belongs(p *pass) bool { return !t.look && t.during == p }

// leave tells the pass that waits for the task, if any, that the task has ended. The pass takes the name again if it has
// to. The caller holds the lock.
func (t *task) leave(again bool) {
	for _, p := range []*pass{t.page, t.joined} {
		if p == nil {
			continue
		}
		if p.page--; again {
			p.again.add(t.name.Name)
		}
	}
}

// queuedIn reports whether a record of the task was put into the queue of a lane.
func (t *task) queuedIn(l *zoneLane) bool {
	return slices.ContainsFunc(t.jobs, func(j *job) bool { return j.lane == l })
}

// comeBack records a next try of the name. The earliest counts.
func (t *task) comeBack(d Due) {
	if t.next.At.IsZero() || d.At.Before(t.next.At) {
		t.next = d
	}
}

// take adds the outcome of one of the task's records to the task and to a settlement.
func (t *task) take(s *Settlement, i *item, o Outcome, back Due) {
	t.outcomes = append(t.outcomes, o)
	if !back.At.IsZero() {
		t.comeBack(back)
	}
	if i.step == End || i.step == EndThenLook {
		s.Ended = append(s.Ended, i.place)
		t.places = slices.DeleteFunc(t.places, func(p Place) bool { return p.ID == i.place.ID })
		return
	}
	for _, p := range i.store {
		at := slices.IndexFunc(t.places, func(q Place) bool { return q.ID == p.ID && p.ID != 0 })
		if at >= 0 && t.places[at] == *p && i.before == nil {
			continue
		}
		s.Places = append(s.Places, *p)
		if at >= 0 {
			t.places[at] = *p
		} else {
			t.places = append(t.places, *p)
		}
	}
}

// waits reports whether a record of the task is tried again before its fault counts.
func (t *task) waits() bool { return slices.ContainsFunc(t.outcomes, Outcome.waits) }

// done reports whether the work on an RRset has ended well at each of its places.
func (t *task) done(s Sibling) bool {
	is := func(o Outcome) bool { return o.Sibling == s && o.Provider != "" }
	return slices.ContainsFunc(t.outcomes, is) &&
		!slices.ContainsFunc(t.outcomes, func(o Outcome) bool { return is(o) && (o.bad() || o.waits()) })
}

// news returns the outcomes that a report counts. Of a name that is tried again these are
// only the changes.
func (t *task) news() []Outcome {
	if !t.waits() && !t.next.Lane.OfZone() {
		return t.outcomes
	}
	return written(t.outcomes)
}

// counts reports whether the pass that the task belongs to may mark the name.
func (t *task) counts() bool {
	return !t.waits() && slices.ContainsFunc(t.news(), func(o Outcome) bool { return o.Action != "" })
}

// due returns when the name is due next. pass is the number of the pass that marks the
// name, 0 for none. news is false if nothing about the name has to be stored. A look that failed is repeated in
// LaneLook, because a task from the zone's lane would write what waits.
func (t *task) due(pass int64, now time.Time) (d Due, news bool) {
	bad, asked := slices.ContainsFunc(t.outcomes, Outcome.bad), t.name.Lane == LaneAsked
	switch d = t.next; {
	case t.look && !d.At.IsZero():
		d = Due{Look: now.Add(lookAgain)}
	case t.look && asked && slices.ContainsFunc(t.outcomes, Outcome.open):
		d = Due{At: now, Lane: LaneHeld}
	}
	if slices.ContainsFunc(t.follow, t.done) && !(t.look && slices.ContainsFunc(t.outcomes, Outcome.open)) {
		d = Due{At: now, Lane: LaneAsked}
	}
	d.Kept = t.look && d.At.IsZero() && !asked
	if look := nextLook(t.places); !d.Lane.OfZone() && !look.IsZero() {
		switch d.Look = look; {
		case look.After(now):
		case look.After(t.taken): // it became due meanwhile
			d.Look = now.Add(SecondLook)
		default:
			d.Look = now.Add(lookAgain)
		}
	}
	d.Name, d.Version = t.name.Name, t.name.Version
	if pass > 0 && t.counts() {
		d.Pass = PassMark{pass, bad}
	}
	active := slices.ContainsFunc(t.name.Usages, func(u Usage) bool { return !u.Releasing })
	d.Released = t.name.Releases()
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

// Expect returns a Waiter for a name. The caller has to close it.
func (e *Engine) Expect(name string) *Waiter {
	w := &Waiter{engine: e, name: name, news: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaited[name] = append(e.awaited[name], w)
	return w
}

// see records that a version was worked on. The caller holds the engine's lock.
func (w *Waiter) see(version int64) {
	w.seen = max(w.seen, version)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Wait returns when the version was worked on since the last call of Wait, or ctx ends.
func (w *Waiter) Wait(ctx context.Context, version int64) {
	w.engine.Wake()
	for {
		w.engine.mu.Lock()
		worked := w.seen >= version
		if worked {
			w.seen = 0
		}
		w.engine.mu.Unlock()
		if worked {
			return
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return
		}
	}
}

// Close releases the Waiter.
func (w *Waiter) Close() {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	e := w.engine
	e.awaited[w.name] = slices.DeleteFunc(e.awaited[w.name], func(o *Waiter) bool { return o == w })
	if len(e.awaited[w.name]) == 0 {
		delete(e.awaited, w.name)
	}
}
