package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"
)

// taking is the reason why names are taken.
type taking struct {
	lane   Lane
	by     time.Time // the names were due by then
	manual bool
	page   *pass // that takes them; nil: they are due
}

// take begins the work on the names that are not in work yet, and returns their number.
// After an error no name is taken, except those whose work could not be stored: they are
// due again.
func (e *Engine) take(ctx context.Context, names []string, why taking) (taken int, err error) {
	names, back, again := e.free(names, why)
	state, err := e.config.Database.State(ctx, names)
	if err != nil {
		return 0, err
	}
	targets, err := e.restate(ctx, state)
	if err != nil {
		return 0, err
	}
	var idle []*task
	var short shortage
	e.mu.Lock()
	if why.page != nil {
		why.page.again.add(again...)
	}
	for _, target := range targets {
		name := target.Name.Name
		if why.outdated(target.Name, e.config.Now()) {
			continue
		}
		if e.waitsForStore(target) {
			if why.page != nil {
				why.page.again.add(name)
			}
			continue
		}
		if e.hasToWait(target, why, &short) {
			continue
		}
		taken++
		if t := e.start(target, why, slices.Contains(back, name)); t.waiting == 0 {
			idle = append(idle, t)
		}
	}
	e.mu.Unlock()
	if err := e.deferAll(ctx, short); err != nil {
		return taken, errors.Join(err, e.settle(ctx, nil, &Settlement{}, idle))
	}
	return taken, e.settle(ctx, nil, &Settlement{}, idle)
}

// start begins the task of a name. back means that takeBack has ended its earlier task. The
// caller holds the lock.
func (e *Engine) start(target Target, why taking, back bool) *task {
	n := target.Name
	t := &task{name: n, taken: e.config.Now(), places: slices.Clone(n.Places), page: why.page, during: e.pass, again: why.lane.OfZone(), priority: why.priority()}
	switch paused := why.manual && e.pass == nil; why.lane {
	case LaneLook:
		t.look = paused || n.waits(t.taken)
	case LaneAsked: // the next owner's values wait for a person, and those of the released one go
		t.look = paused && n.Releases() && slices.ContainsFunc(target.Records, func(r Record) bool { return !r.withdraws() })
	}
	t.passed = e.pass != nil && t.page == nil && !t.again && n.Name <= e.pass.progress.Cursor && n.Version > 1 && !back
	e.busy[n.Name] = t
	e.enqueue(t, target, why)
	t.begun = t.waiting == 0
	return t
}

// waitsForStore reports whether a name has to wait because its last outcome, or its zone's,
// could not be stored: the next one would probably fail too. The caller holds the lock.
func (e *Engine) waitsForStore(t Target) bool {
	until := e.unstored[t.Name.Name]
	for _, r := range t.Records {
		if l := e.lanes[r.lane()]; l != nil && l.fault.Code == CodeDatabase && l.blocked.After(until) {
			until = l.blocked
		}
	}
	if !waits(until, e.config.Now(), breath) {
		return false
	}
	e.mended = soonest(e.mended, until)
	return true
}

// free returns the names that are not in work, the ones among them whose task of a later
// priority was taken back, and the names that the pass has to take again, because their task is
// not the pass's work. The pass waits for a task that is.
func (e *Engine) free(names []string, why taking) (free, back, again []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		t := e.busy[name]
		if t != nil && why.page == nil && t.priority > why.priority() && e.takeBack(t) {
			t, back = nil, append(back, name) // it has changed since
		}
		switch {
		case t == nil && len(free) < pageNames:
			free = append(free, name)
		case t != nil && why.page != nil && !t.belongs(why.page):
			again = append(again, name)
		case t != nil && why.page != nil && t.page == nil && t.joined != why.page:
			why.page.page++
			t.joined, t.passed = why.page, false
		}
	}
	return free, back, again
}

// takeBack removes the jobs of a task from their queues, so that the name's next task replaces it, for which a pass
// waits too. It reports false if the task has begun. The caller holds the lock.
func (e *Engine) takeBack(t *task) bool {
	if t.begun {
		return false
	}
	for i, j := range t.jobs {
		if i == 0 || j.lane != t.jobs[i-1].lane { // a name may have thousands of records
			j.lane.queue = slices.DeleteFunc(j.lane.queue, func(o *job) bool { return o.task == t })
		}
	}
	delete(e.busy, t.name.Name)
	t.leave(true)
	return true
}

// outdated reports whether the name was worked on since it was listed, so it would not be
// listed any more.
func (why taking) outdated(n Name, now time.Time) bool {
	if why.lane == LaneLook {
		return n.Look.IsZero() || n.Look.After(why.by) && waits(n.Look, now, LaneLook.LongestWait())
	}
	if why.page == nil {
		return n.Due.IsZero() || n.Lane != why.lane || n.Due.After(why.by) && waits(n.Due, now, n.Lane.LongestWait())
	}
	return n.Pass.Number == why.page.progress.Number || !n.Due.IsZero() && n.Lane.OfZone() || why.page.spares(n, now)
}

// byNode reports whether a node or a check has changed the names.
func (why taking) byNode() bool {
	return why.page == nil && (why.lane == LaneNode || why.lane == LaneLater)
}

// waits reports whether the change of a name waits for its share of the writes.
func (n Name) waits(now time.Time) bool {
	return n.Lane == LaneLater && waits(n.Due, now, LaneLater.LongestWait())
}

// enqueue puts the records of a task into the queues of their zones. If a queue is full,
// the name waits in the database, also one that a person ordered. The records of one zone go into its
// queue together, because a name may have more of them than a queue has room for. The caller
// holds the lock.
func (e *Engine) enqueue(t *task, target Target, why taking) {
	if !e.ending {
		t.follow = slices.Clone(target.Follow)
		for _, r := range target.Refusals {
			t.outcomes = append(t.outcomes, r.outcome())
		}
	}
	for _, r := range target.Records {
		if e.ending && !r.withdraws() || why.byNode() && r.settled() { // a change of a node that alters nothing asks no provider
			continue
		}
		l := e.lane(r.lane())
		if len(l.queue) >= laneRoom && !t.queuedIn(l) {
			t.comeBack(Due{At: e.config.Now(), Lane: l.key})
			t.deferred = true
			continue
		}
		j := &job{task: t, lane: l, record: r}
		if t.again {
			j.attempt = r.Place.Attempts
		}
		t.waiting++
		t.jobs = append(t.jobs, j)
		l.put(j)
		if !l.working {
			l.working = true
			e.begin(func() { e.runLane(l) })
		}
	}
}
