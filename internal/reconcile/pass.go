package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Triggers of a pass.
const (
	TriggerManual   = "manual"   // a caller asked
	TriggerStart    = "start"    // the program started, in an automatic mode
	TriggerChange   = "change"   // the configuration or the adopted owners changed
	TriggerAddress  = "address"  // this host's addresses changed
	TriggerInterval = "interval" // Config.Interval is over
)

// ErrUnfinished means that the caller's context has ended before the pass, which goes on.
var ErrUnfinished = errors.New("the pass is not through yet")

// pass goes through all names, page by page. Due names go first, so a pass is through when
// its cursor has reached the end and no name is due any more.
type pass struct {
	progress Progress
	page     int       // names of the page in work
	again    nameSet   // names that were in other work when the pass reached them
	nextPage time.Time // the earliest time of the next page, in a paced pass
	horizon  time.Time // names that are due by then belong to the pass
	paced    bool
	search   context.CancelFunc // ends the search for orphans; nil while none runs
	undone   []unsearched       // zones that the search could not search
	waiting  []*request
	answered bool // its callers know that the names that are left wait for this host's clock
}

// nameSet is a set of names. A name that the pass reached while it was in work, and whose work then ended, is in it
// once: two tasks of one name would store the same place twice.
type nameSet map[string]bool

func (s *nameSet) add(names ...string) {
	if *s == nil {
		*s = nameSet{}
	}
	for _, name := range names {
		(*s)[name] = true
	}
}

// take removes at most limit names, and returns them in order.
func (s nameSet) take(limit int) (names []string) {
	for name := range s {
		if len(names) == limit {
			break
		}
		names = append(names, name)
		delete(s, name)
	}
	slices.Sort(names)
	return names
}

// request is a caller that waits for a pass.
type request struct {
	sweep bool
	gone  bool // the caller waits no longer
	cut   bool // an earlier run of the program has begun its pass; no caller waits
	done  chan struct{}
	rep   Report
	err   error
}

func (r *request) end(report Report, err error) {
	r.rep, r.err = report, err
	close(r.done)
}

// spares reports whether the pass leaves out a name, because a change by a node or a check waits there for its share of the
// writes. Only a pass that the clock began leaves it out.
func (p *pass) spares(n Name, now time.Time) bool {
	return p.progress.Report.Trigger == TriggerInterval && n.waits(now)
}

func (p *pass) end(report Report, err error) {
	for _, r := range p.waiting {
		r.end(report, err)
	}
	p.waiting = nil
}

// drop ends the search of a pass that another pass replaces or that is declined.
func (p *pass) drop() {
	if p.search != nil {
		p.search()
	}
}

// count adds the outcomes of a task to the report. Of a task that is not the pass's work it
// adds only the changes, because the pass has yet to take that name.
func (p *pass) count(t *task) {
	mark := t.name.Pass
	counted := mark.Number == p.progress.Number
	outcomes := t.news()
	switch {
	case !t.belongs(p):
		counted = true
		outcomes = written(outcomes)
	case (counted || t.passed) && t.counts() && !t.next.Lane.OfZone(): // a record may not be wanted any more, or fail for another reason
		mark.Bad = !p.progress.Report.takeBack(t.name.Name) && mark.Bad
	}
	p.progress.Report.add(outcomes, counted || t.passed, counted && mark.Bad)
}

// Sync asks for a pass, or joins the running one, and returns its report. With sweep the
// pass also withdraws orphans. If ctx ends first, the pass goes on, and Sync returns the
// report so far with ErrUnfinished.
func (e *Engine) Sync(ctx context.Context, sweep bool) (Report, error) {
	r := &request{sweep: sweep, done: make(chan struct{})}
	e.mu.Lock()
	e.asked = append(e.asked, r)
	e.mu.Unlock()
	e.Wake()
	select {
	case <-r.done:
		return r.rep, r.err
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.gone = true
	e.asked = slices.DeleteFunc(e.asked, func(o *request) bool { return o == r })
	if e.pass == nil {
		return Report{}, ErrUnfinished
	}
	e.pass.waiting = slices.DeleteFunc(e.pass.waiting, func(o *request) bool { return o == r })
	return e.pass.report(), ErrUnfinished
}

// report returns a copy of the report so far, which the pass does not write. The caller holds the lock.
func (p *pass) report() Report {
	r := p.progress.Report
	r.Counts, r.Records = maps.Clone(r.Counts), slices.Clone(r.Records)
	return r
}

// Last returns the report of the last complete pass, nil if there is none, and the time of
// the next pass, zero if none is planned.
func (e *Engine) Last(ctx context.Context) (*Report, time.Time, error) {
	report, err := e.config.Database.LastReport(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	return report, e.idleAt, err
}

func (e *Engine) passNumber() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pass == nil {
		return 0
	}
	return e.pass.progress.Number
}

// beginPass begins a pass if one is wanted, and returns the time of the next one.
func (e *Engine) beginPass(ctx context.Context, automatic bool) (next time.Time, err error) {
	requested, err := e.config.Database.Request(ctx)
	if err != nil {
		return next, err
	}
	now := e.config.Now()
	e.mu.Lock()
	e.join(requested, now)
	trigger, at := e.trigger(requested, automatic, now)
	e.mu.Unlock()
	if trigger == "" || at.After(now) {
		return at, nil
	}
	return time.Time{}, e.startPass(ctx, trigger, now)
}

// paced reports whether a pass is slow (AuditRate), because no fault is known.
func paced(trigger string) bool { return trigger == TriggerInterval || trigger == TriggerStart }

// trigger returns the trigger and the time of the next pass; "" if there is none. The
// caller holds the lock.
func (e *Engine) trigger(requested Request, automatic bool, now time.Time) (string, time.Time) {
	switch {
	case e.ending && (e.pass != nil || requested.Trigger != TriggerChange):
		e.idleAt = time.Time{}
		return "", time.Time{}
	case len(e.asked) > 0 && !e.ending && (e.pass == nil || e.unhurried() || requested.Trigger != ""):
		return TriggerManual, now
	case automatic && requested.Trigger != "":
		if !waits(requested.At, now, Debounce) {
			requested.At = now
		}
		return requested.Trigger, requested.At
	case e.pass != nil:
		return "", time.Time{}
	case !automatic:
		e.idleAt = time.Time{}
		return "", time.Time{}
	case e.idleAt.IsZero():
		return TriggerStart, now
	case !waits(e.idleAt, now, e.config.Interval):
		return TriggerInterval, now
	}
	return TriggerInterval, e.idleAt
}

// unhurried reports whether no caller waits for the pass, and it is paced or has answered its
// callers: a caller that asks now gets a pass of its own.
func (e *Engine) unhurried() bool {
	return len(e.pass.waiting) == 0 && (e.pass.paced || e.pass.answered)
}

// join lets new callers wait for the running pass, except in four cases: the caller wants a
// sweep and the pass has none, the pass is unhurried, its search for orphans has begun, or a
// change since its begin requests another one. The caller holds the lock.
func (e *Engine) join(requested Request, now time.Time) {
	if e.pass == nil || e.unhurried() || e.pass.progress.Orphans || requested.Trigger != "" {
		return
	}
	e.asked = slices.DeleteFunc(e.asked, func(r *request) bool {
		joins := !r.sweep || e.pass.progress.Sweep
		if joins {
			e.pass.waiting = append(e.pass.waiting, r)
			e.pass.horizon = now
		}
		return joins
	})
}

// startPass stores a new pass, for all callers that wait, and makes it the running one.
func (e *Engine) startPass(ctx context.Context, trigger string, now time.Time) error {
	e.mu.Lock()
	waiting := slices.Clone(e.asked)
	if e.pass != nil {
		waiting = append(waiting, e.pass.waiting...)
	}
	if len(waiting) > 0 {
		trigger = TriggerManual
	}
	e.mu.Unlock()
	p := &pass{horizon: now, paced: paced(trigger)}
	p.progress.Report = Report{StartedAt: now, Trigger: trigger, Counts: map[string]int{}}
	p.progress.Sweep = slices.ContainsFunc(waiting, func(r *request) bool { return r.sweep })
	number, err := e.config.Database.BeginPass(ctx, p.progress, e.settings)
	if err != nil {
		return err
	}
	if number == 0 { // the next round begins it, if it is still wanted
		e.Wake()
		return nil
	}
	p.progress.Number = number
	e.replacePass(p, waiting)
	return nil
}

// replacePass makes a new pass the running one. It forgets connections and back-offs, so
// the pass finds and tries every zone anew, except a zone whose provider asked for a pause.
func (e *Engine) replacePass(p *pass, waiting []*request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.waiting = slices.DeleteFunc(waiting, func(r *request) bool { return r.gone })
	e.asked = slices.DeleteFunc(e.asked, func(r *request) bool { return slices.Contains(waiting, r) })
	if e.pass != nil {
		e.pass.drop()
		e.pass.waiting = nil // these callers wait for the new pass
	}
	e.news.passBegins(p.progress.Number)
	e.pass, e.idleAt = p, time.Time{}
	clear(e.conns)
	for _, l := range e.lanes {
		if l.fails = 0; !l.told {
			l.blocked = time.Time{}
		}
	}
}

// workPass takes the next page once the page before is done, and ends the pass once all
// names are. It returns the time of the next page.
func (e *Engine) workPass(ctx context.Context) (next time.Time, err error) {
	e.mu.Lock()
	p := e.pass
	if p == nil || p.page > 0 || p.search != nil {
		e.mu.Unlock()
		return next, nil
	}
	if now := e.config.Now(); waits(p.nextPage, now, pageNames*time.Second/AuditRate) {
		defer e.mu.Unlock()
		return p.nextPage, nil
	}
	cursor, orphans, again := p.progress.Cursor, p.progress.Orphans, len(p.again) > 0
	e.mu.Unlock()
	switch {
	case again:
		return e.workAgain(ctx, p)
	case orphans:
		return next, e.finish(ctx, p)
	}
	return e.workPage(ctx, p, cursor)
}

// workPage takes the page of names after the cursor. After the last page it begins the
// search for orphans.
func (e *Engine) workPage(ctx context.Context, p *pass, cursor string) (next time.Time, err error) {
	names, err := e.config.Database.NamesAfter(ctx, cursor, p.progress.Number, pageNames)
	if err != nil {
		return next, err
	}
	if len(names) == 0 {
		waits, err := e.passWaits(ctx, p)
		if err == nil && !waits { // names in work may get places, so orphans are searched later
			e.beginOrphans(ctx, p)
		}
		return next, err
	}
	e.mu.Lock()
	p.progress.Cursor = names[len(names)-1]
	if p.paced && len(p.waiting) == 0 && len(names) == pageNames { // after the last page nothing is left to space out
		p.nextPage = e.config.Now().Add(time.Duration(len(names)) * time.Second / AuditRate)
	}
	e.mu.Unlock()
	err = e.takePage(ctx, p, names, func() { p.progress.Cursor = cursor })
	return e.config.Now(), err
}

// takePage takes names for a pass. If an error has kept it from taking any, it calls undo,
// under the lock. Without an error, the names that it did not take are already in work,
// because they were due.
func (e *Engine) takePage(ctx context.Context, p *pass, names []string, undo func()) error {
	e.mu.Lock()
	p.page = len(names)
	e.mu.Unlock()
	taken, err := e.take(ctx, names, taking{lane: LaneChanged, page: p})
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.page -= len(names) - taken; err != nil && taken == 0 {
		undo()
	}
	return err
}

// workAgain takes the names that were in other work when the pass reached them.
func (e *Engine) workAgain(ctx context.Context, p *pass) (next time.Time, err error) {
	e.mu.Lock()
	names := p.again.take(pageNames)
	e.mu.Unlock()
	err = e.takePage(ctx, p, names, func() { p.again.add(names...) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.page == 0 && len(p.again) == 0 {
		next = e.config.Now()
	}
	return next, err // the end of other work wakes the engine
}

// beginOrphans begins the search of all zones for orphans, if a person asked for the pass
// or a caller waits for it.
func (e *Engine) beginOrphans(ctx context.Context, p *pass) {
	e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	p.progress.Orphans = true
	if p.progress.Report.Trigger != TriggerManual && len(p.waiting) == 0 {
		return
	}
	ctx, p.search = context.WithCancel(ctx)
	sweep := p.progress.Sweep
	e.begin(func() {
		found, err := e.findOrphans(ctx, sweep)
		if err == nil {
			err = e.findUnmarked(ctx, &found)
		}
		if err == nil && sweep && ctx.Err() == nil {
			err = e.config.Database.AddLeftovers(ctx, slices.DeleteFunc(slices.Clone(found.orphans), func(p Place) bool { return p.Fault.Code != "" }))
		}
		if ctx.Err() == nil {
			e.news.database("search for orphans", "", err)
		}
		e.endSearch(p, found, err)
		e.Wake()
	})
}

// endSearch adds the findings of a search to the report, if the pass that began it still runs.
func (e *Engine) endSearch(p *pass, found search, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pass != p {
		return
	}
	p.search()
	p.search = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		p.end(Report{}, err)
	}
	p.progress.Report.add(found.outcomes(), true, false)
	p.progress.Report.Swept, p.undone = found.swept && p.progress.Sweep && err == nil, found.undone
	p.horizon = e.config.Now()
}

// finish ends the pass if no name that belongs to it is due or in work: a name in work
// because it was due is still due in the database. If work is settled during this check, or left a name to take again,
// the check is repeated.
func (e *Engine) finish(ctx context.Context, p *pass) error {
	e.mu.Lock()
	settled := e.settled
	e.mu.Unlock()
	if waits, err := e.passWaits(ctx, p); err != nil || waits {
		return err
	}
	e.mu.Lock()
	if e.settled != settled || e.settling > 0 || len(p.again) > 0 {
		e.mu.Unlock()
		e.Wake()
		return nil
	}
	p.progress.Report.add(notSearched(p.undone, p.progress.Report.Records), true, false) // last, because it leaves out faults that the names' records tell
	p.undone = nil
	p.progress.Report.finish(e.config.Now()) // now nothing is counted, and a caller whose time ends gets it
	report := p.progress.Report
	e.mu.Unlock()
	err := e.config.Database.EndPass(ctx, report)
	if err == nil {
		e.passes.Ended(report.FinishedAt, report.Bad == 0)
		e.news.passEnds(report)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		p.progress.Report.Complete = false
		return err
	}
	if e.pass, e.idleAt = nil, (time.Time{}); e.automatic {
		e.idleAt = e.config.Now().Add(e.config.Interval)
	}
	p.end(report, nil)
	e.Wake()
	return nil
}

// passWaits reports whether a name that belongs to the pass is due, or a service is marked.
func (e *Engine) passWaits(ctx context.Context, p *pass) (bool, error) {
	if marks, err := e.spread(ctx); err != nil || marks {
		return true, err
	}
	for _, lane := range append([]Lane{LaneAsked, LaneLook}, changeLanes...) {
		if names, err := e.config.Database.Due(ctx, lane, p.horizon, 1); err != nil || len(names) > 0 {
			return true, err
		}
	}
	var stored []Lane
	skewed := map[Lane]Fault{}
	e.mu.Lock()
	for key, l := range e.lanes {
		switch {
		case l.stored && l.skewed() && l.closed(e.config.Now()):
			skewed[key] = l.fault
		case l.stored:
			stored = append(stored, key)
		}
	}
	e.mu.Unlock()
	for _, lane := range stored {
		if _, waits, err := e.config.Database.NextDue(ctx, lane, time.Time{}); err != nil || waits {
			return true, err
		}
	}
	return e.waitsForClock(ctx, p, skewed)
}

// waitsForClock reports whether names wait in lanes of zones that have refused this host's time, and tells
// the callers of the pass. These names are tried again, but for how long they wait a person decides.
func (e *Engine) waitsForClock(ctx context.Context, p *pass, lanes map[Lane]Fault) (bool, error) {
	var failed []Outcome
	for lane, f := range lanes {
		names, err := e.config.Database.Due(ctx, lane, e.config.Now().Add(longestZoneWait), pageNames)
		if err != nil {
			return true, err
		}
		for _, name := range names {
			failed = append(failed, Outcome{Name: name, Action: ActionFailed, Fault: f})
		}
	}
	if len(failed) == 0 {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(p.waiting) > 0 {
		report := p.report()
		report.Names, report.Bad = report.Names+len(failed), report.Bad+len(failed)
		report.Records = append(report.Records, failed...)
		p.end(report, nil)
		p.answered = true
	}
	return true, nil
}
