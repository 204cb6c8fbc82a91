package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"meshddns/internal/metrics"
	"meshddns/internal/provider"
	"meshddns/internal/tasks"
)

// Why no work is done.
var (
	ErrNotConfigured = errors.New("no configuration is stored")
	ErrDisabled      = errors.New("synchronisation is disabled")
)

const (
	// AuditRate bounds the names a second that are looked at without a reason:
	// a thousand names take a second of each interval, a million seventeen minutes.
	AuditRate = 1000

	pageNames = 1000            // names taken together
	laneRoom  = 1000            // records that wait in memory for their zone
	breath    = 5 * time.Second // after a fault of the database
	// pace is the least time between two looks for what is due: each
	// commit wakes the engine, and many commits are no reason to look as often.
	pace = 10 * time.Millisecond
	// Debounce is the time that a change waits for further ones.
	Debounce = time.Second
)

// Config is what an engine is made of.
type Config struct {
	Database  Database
	Open      func(Account) (provider.DNS, error)
	Addresses func() Addresses
	Ready     <-chan struct{} // closed when the addresses have been looked up once
	Interval  time.Duration   // between two passes in the automatic modes
	Log       *slog.Logger
	Now       func() time.Time
}

// Engine brings names to their wanted state: those that are due, and in passes
// all. Each zone has a worker, a queue, and a time for its next try of its own.
type Engine struct {
	config Config
	wake   chan struct{}
	news   *news

	mu        sync.Mutex
	ctx       context.Context
	workers   sync.WaitGroup
	crashed   chan error // a worker has, and may hold the lock
	lanes     map[Lane]*zoneLane
	conns     map[int64]*connection
	busy      map[string]*task
	retry     provider.Backoff
	pass      *pass
	asked     []*request
	automatic bool
	ending    bool      // no configuration is stored: values are withdrawn, and none is written
	idleAt    time.Time // of the next pass by the interval; zero when none is planned
	awaited   map[string][]*Waiter
	slots     chan struct{} // bounds the zones worked on at a time,
	changes   chan struct{} // those that change,
	looks     chan struct{} // and those looked at for previews
	passes    metrics.Runs

	recovered bool                 // what an earlier run has left is taken up
	reviewing bool                 // all names are compared with what is wanted
	reviewed  string               // up to this name they are
	unstored  map[string]time.Time // names of which the last outcome could not be stored, and until when they wait
	mended    time.Time            // until then some of them wait; zero while there is none

	settling int // of work under way
	settled  int // so far
}

// Addresses gives this host's addresses, as they are published.
func (e *Engine) Addresses() Addresses { return e.config.Addresses() }

// Passes tells of the passes that have ended.
func (e *Engine) Passes() *metrics.Runs { return &e.passes }

// zonesAtOnce bounds the zones that are worked on at a time.
const zonesAtOnce = 32

// New makes an engine, which works while Run does.
func New(c Config) *Engine {
	return &Engine{
		config: c, wake: make(chan struct{}, 1), news: newNews(c.Log, c.Now), lanes: map[Lane]*zoneLane{}, conns: map[int64]*connection{},
		busy: map[string]*task{}, unstored: map[string]time.Time{}, awaited: map[string][]*Waiter{}, reviewing: true,
		slots: make(chan struct{}, zonesAtOnce), changes: make(chan struct{}, zonesAtOnce), looks: make(chan struct{}, zonesAtOnce), crashed: make(chan error, 1),
	}
}

// Wake says that something may be due: it is looked for soon.
func (e *Engine) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when what has begun is finished. A panic in
// what is not the work on a record is its error, at once.
func (e *Engine) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		err := tasks.Call(func() error { return e.run(ctx) })
		if _, ok := errors.AsType[*tasks.Panic](err); !ok {
			e.workers.Wait()
		}
		e.news.journal.wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case err := <-e.crashed:
		return err
	}
}

// begin has a worker do something.
func (e *Engine) begin(work func()) {
	e.workers.Go(func() {
		if err := tasks.Call(func() error { work(); return nil }); err != nil {
			select {
			case e.crashed <- err:
			default: // one is enough
			}
		}
	})
}

func (e *Engine) run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx = ctx
	e.mu.Unlock()
	select {
	case <-e.config.Ready:
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		began := e.config.Now()
		next, err := e.round(ctx)
		if ctx.Err() == nil {
			e.news.database("synchronise", "", err)
		}
		if err != nil && ctx.Err() == nil {
			e.refuse(err)
			next = e.config.Now().Add(breath)
		}
		e.rest(ctx, began, soonest(next, e.news.calmed()))
	}
	return nil
}

// recover takes up what an earlier run of the program has left, once.
func (e *Engine) recover(ctx context.Context) error {
	if e.recovered {
		return nil
	}
	keys, err := e.config.Database.ZoneLanes(ctx)
	if err != nil {
		return err
	}
	last, err := e.config.Database.LastReport(ctx)
	if err != nil {
		return err
	}
	if last != nil && last.OK() {
		e.passes.Remember(last.FinishedAt)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.lane(key).stored = true
	}
	e.recovered = true
	return nil
}

// rest waits until it is time, if there is one, or until something has happened, but
// never less than a moment, which is shorter when a caller waits. The clock may have
// been set since the round began: the shorter wait counts.
func (e *Engine) rest(ctx context.Context, began, next time.Time) {
	least := pace
	if e.awaitedNow() {
		least = time.Millisecond
	}
	moment := time.NewTimer(least)
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-ctx.Done():
		return
	}
	var due <-chan time.Time // never
	if !next.IsZero() {
		timer := time.NewTimer(min(next.Sub(began), next.Sub(e.config.Now())))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-e.wake:
	case <-ctx.Done():
	}
}

// awaitedNow reports whether a person waits for a name or for a pass.
func (e *Engine) awaitedNow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked) > 0 || len(e.awaited) > 0 || e.pass != nil && len(e.pass.waiting) > 0
}

// lane gives the lane of a key. The caller holds the lock.
func (e *Engine) lane(key Lane) *zoneLane {
	if e.lanes[key] == nil {
		e.lanes[key] = &zoneLane{key: key}
	}
	return e.lanes[key]
}

// round takes what is due, and tells when to come back.
func (e *Engine) round(ctx context.Context) (next time.Time, err error) {
	e.mu.Lock()
	asked := slices.Clone(e.asked) // before it is read whether there is a configuration
	e.mu.Unlock()
	if err := e.recover(ctx); err != nil {
		return next, err
	}
	settings, err := e.config.Database.Settings(ctx)
	if err != nil {
		return next, err
	}
	e.mu.Lock()
	e.retry, e.automatic, e.ending, e.mended = settings.Retry, settings.Automatic, !settings.Configured, time.Time{}
	e.mu.Unlock()
	switch {
	case !settings.Configured:
		e.decline(asked, ErrNotConfigured)
		settings.Automatic = true
	case !settings.Enabled:
		next = e.stand(asked)
		at, err := e.review(ctx)
		return soonest(next, at), err
	}
	passAt, err := e.beginPass(ctx, settings.Automatic)
	if err != nil {
		return next, err
	}
	if settings.Automatic || e.passNumber() > 0 {
		if _, err := e.spread(ctx); err != nil {
			return next, err
		}
	}
	next, err = e.takeDue(ctx, settings.Automatic)
	if err != nil {
		return next, err
	}
	pageAt, err := e.workPass(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	return soonest(soonest(next, passAt), soonest(pageAt, e.mended)), err
}

// spread makes some of the names due that were marked as a whole, when there is
// room for them, and reports whether marks may be left. They belong to the pass that runs.
func (e *Engine) spread(ctx context.Context) (left bool, err error) {
	if left, err = e.config.Database.Marked(ctx); err != nil || !left {
		return left, err
	}
	e.mu.Lock()
	inWork := len(e.busy)
	e.mu.Unlock()
	waiting, err := e.config.Database.Due(ctx, LaneChanged, e.config.Now().Add(Debounce), pageNames+inWork)
	if err != nil || len(waiting)-inWork >= pageNames { // a zone that is slow keeps no other's marks back
		return true, err
	}
	if err := e.config.Database.SpreadMarks(ctx, pageNames); err != nil {
		return true, err
	}
	e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pass != nil {
		e.pass.horizon = e.config.Now().Add(Debounce)
	}
	return true, nil
}

// refuse tells the callers that wait for a pass that the database fails.
func (e *Engine) refuse(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.asked {
		r.end(Report{}, err)
	}
	e.asked = nil
	if e.pass != nil {
		e.pass.end(Report{}, err)
	}
}

// stand is the round of a program that is switched off.
func (e *Engine) stand(asked []*request) time.Time {
	e.decline(asked, ErrDisabled)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pass, e.idleAt = nil, time.Time{}
	for _, waiters := range e.awaited {
		for _, w := range waiters {
			w.see(math.MaxInt64)
		}
	}
	return e.config.Now().Add(time.Hour)
}

// decline tells the callers that wait for a pass why there is none for them.
func (e *Engine) decline(asked []*request, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = slices.DeleteFunc(e.asked, func(r *request) bool { return slices.Contains(asked, r) })
	for _, r := range asked {
		if !r.gone {
			r.end(Report{}, why)
		}
	}
	if e.pass != nil {
		e.pass.drop()
		e.pass.end(Report{}, why)
	}
}

// soonest gives the earlier of two times; zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// takeDue takes the names that are due, lane by lane, and tells when the next
// are.
func (e *Engine) takeDue(ctx context.Context, automatic bool) (next time.Time, err error) {
	lanes := []Lane{LaneAsked, LaneLook}
	e.mu.Lock()
	works := automatic || e.pass != nil
	if works {
		lanes = append(lanes, LaneChanged, LaneHeld)
	}
	e.prune()
	for key, l := range e.lanes {
		if l.stored && len(l.queue) < laneRoom/2 {
			lanes = append(lanes, key)
		}
	}
	e.mu.Unlock()
	if !works {
		if next, err = e.review(ctx); err != nil {
			return next, err
		}
	}
	for _, lane := range lanes {
		at, err := e.takeLane(ctx, lane, !automatic)
		if err != nil {
			return next, err
		}
		next = soonest(next, at)
	}
	return next, nil
}

// prune forgets the zones for which nothing waits and which may be asked again, and the names
// that may be stored again. The caller holds the lock.
func (e *Engine) prune() {
	now := e.config.Now()
	maps.DeleteFunc(e.lanes, func(_ Lane, l *zoneLane) bool {
		return !l.working && !l.stored && len(l.queue) == 0 && !l.closed(now)
	})
	maps.DeleteFunc(e.unstored, func(_ string, until time.Time) bool { return !waits(until, now, breath) })
}

func (e *Engine) takeLane(ctx context.Context, lane Lane, manual bool) (next time.Time, err error) {
	now := e.config.Now()
	e.mu.Lock()
	l, zone := e.lanes[lane]
	inWork := len(e.busy)
	var puts int
	var until time.Time
	if zone {
		puts = l.puts
		if l.closed(now) && !l.givenUp(now, e.retry) {
			until = l.blocked
		}
	}
	e.mu.Unlock()
	if !until.IsZero() {
		return until, nil
	}
	by := e.dueBy(lane)
	names, err := e.config.Database.Due(ctx, lane, by, pageNames+inWork)
	if err != nil {
		return next, err
	}
	taken, err := e.take(ctx, names, taking{lane: lane, by: by, manual: manual})
	if err != nil || taken > 0 {
		return now, err
	}
	at, ok, err := e.config.Database.NextDue(ctx, lane, by) // of the names that are due by now each is in work: its end wakes us
	switch {
	case err != nil:
		return next, err
	case ok && waits(at, now, lane.LongestWait()):
		return at, nil
	case !ok && len(names) == 0:
		e.emptied(lane, puts)
	}
	return time.Time{}, nil
}

// dueBy is the time by which a name must be due to be taken. When a caller waits
// for a pass, no change waits for further ones.
func (e *Engine) dueBy(lane Lane) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if (lane == LaneChanged || lane == LaneHeld) && e.pass != nil && len(e.pass.waiting) > 0 {
		return e.config.Now().Add(Debounce)
	}
	return e.config.Now()
}

// emptied notes that no name waits for a zone in the database, if none was stored for it
// since the engine looked.
func (e *Engine) emptied(lane Lane, puts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[lane]; l != nil && l.puts == puts {
		l.stored = false
	}
}

// taking says why names are taken.
type taking struct {
	lane   Lane
	by     time.Time // by which they were due
	manual bool
	page   *pass
}

// take begins the work on names that are not in work yet, and gives how many. After an error
// either none is taken, or those whose work could not be stored are to be taken again.
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
	e.mu.Lock()
	if why.page != nil {
		why.page.again = append(why.page.again, again...)
	}
	for _, target := range targets {
		n := target.Name
		if why.outdated(n, e.config.Now()) {
			continue
		}
		if e.waitsForStore(target) {
			if why.page != nil {
				why.page.again = append(why.page.again, n.Name)
			}
			continue
		}
		taken++
		t := &task{name: n, places: n.Places, page: why.page, again: why.lane.OfZone(), turn: why.turn()}
		t.look = why.lane == LaneLook && why.manual && e.pass == nil
		t.passed = e.pass != nil && t.page == nil && !t.again && n.Name <= e.pass.progress.Cursor && n.Version > 1 && !slices.Contains(back, n.Name)
		e.busy[n.Name] = t
		if e.enqueue(t, target, why); t.waiting == 0 {
			t.begun = true
			idle = append(idle, t)
		}
	}
	e.mu.Unlock()
	return taken, e.settle(ctx, nil, &Settlement{}, idle)
}

// waitsForStore reports whether the last outcome of a name, or of its zone, could not be stored:
// the next one could not be either. The caller holds the lock.
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

// free gives those of some names that are not in work, those of them that were taken back, and those
// to which the pass comes again: what is done there is not the work of the pass.
func (e *Engine) free(names []string, why taking) (free, back, again []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		t := e.busy[name]
		if t != nil && why.page == nil && t.turn > why.turn() && e.takeBack(t) {
			t, back = nil, append(back, name) // it has changed since
		}
		switch {
		case t == nil && len(free) < pageNames:
			free = append(free, name)
		case t != nil && why.page != nil && !t.belongs(why.page):
			again = append(again, name)
		}
	}
	return free, back, again
}

// takeBack takes a task back that has not begun: its jobs leave their queues. The caller holds the lock.
func (e *Engine) takeBack(t *task) bool {
	if t.begun {
		return false
	}
	for _, j := range t.jobs {
		j.lane.queue = slices.DeleteFunc(j.lane.queue, func(o *job) bool { return o == j })
	}
	if delete(e.busy, t.name.Name); t.page != nil {
		t.page.page--
	}
	return true
}

// outdated reports whether the name was worked on since it was listed: then it would
// not be listed any more.
func (why taking) outdated(n Name, now time.Time) bool {
	if why.lane == LaneLook {
		return n.Look.IsZero() || n.Look.After(why.by) && waits(n.Look, now, LaneLook.LongestWait())
	}
	if why.page == nil {
		return n.Due.IsZero() || n.Lane != why.lane || n.Due.After(why.by) && waits(n.Due, now, n.Lane.LongestWait())
	}
	return n.Pass.Number == why.page.progress.Number || !n.Due.IsZero() && n.Lane.OfZone()
}

// enqueue hands the records of a task to their zones. Where a queue is full the
// name waits in the database; a person's order goes first. The caller holds the
// lock.
func (e *Engine) enqueue(t *task, target Target, why taking) {
	if !e.ending {
		t.follow = target.Follow
		for _, r := range target.Refusals {
			t.outcomes = append(t.outcomes, r.outcome())
		}
	}
	for _, r := range target.Records {
		if e.ending && !r.withdraws() {
			continue
		}
		l := e.lane(r.lane())
		if len(l.queue) >= laneRoom && why.lane != LaneAsked {
			t.comeBack(Due{At: e.config.Now(), Lane: l.key})
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
