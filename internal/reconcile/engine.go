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

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Reasons why a pass is declined.
var (
	ErrNotConfigured = msg.Refuse(msg.SyncNotConfigured)
	ErrDisabled      = msg.Refuse(msg.SyncDisabled)
)

const (
	// AuditRate is the speed of a paced pass, in names per second. A thousand names take
	// one second of each interval, a million names take seventeen minutes.
	AuditRate = 1000

	pageNames = 1000 // names of a page
	// spreadNames is the number of marked names that one transaction makes due.
	spreadNames = 250
	laneRoom    = 1000            // records that wait in memory for their zone, and those of one more name
	breath      = 5 * time.Second // pause after a fault of the database
	// pace is the least time between two searches for due names. Each commit wakes the
	// engine, and commits may come faster.
	pace = 10 * time.Millisecond
	// Debounce is the time that a changed address of this host waits for further changes.
	Debounce = time.Second
)

// Config has the parts and settings of an engine.
type Config struct {
	Database  Database
	Open      func(Account) (provider.DNS, error)
	Addresses func() Addresses
	Ready     <-chan struct{}                                                         // closed after the first look-up of the addresses
	Interval  time.Duration                                                           // from the end of a pass to the next one, in the automatic modes
	Warning   func(ctx context.Context, client provider.DNS, zone, name string) error // see Public.Warning
	Writes    func(provider string) int                                               // an hour that nodes and checks may cause at an account; 0: no limit
	Synced    func(ctx context.Context) error                                         // waits until all commits are in the replica; nil: there is none
	Log       *slog.Logger                                                            // which does not wait for its reader
	Now       func() time.Time
}

// Engine brings names to their wanted state: due names, and in passes all names. Each zone
// has its own worker, queue, and time of the next try.
type Engine struct {
	config Config
	wake   chan struct{}
	news   *news
	budget *budget // of nodes and checks

	mu        sync.Mutex
	ctx       context.Context
	workers   sync.WaitGroup
	crashed   chan error // a worker's panic; that worker may hold the lock
	lanes     map[Lane]*zoneLane
	conns     map[int64]*connection
	busy      map[string]*task
	retry     provider.Backoff
	pass      *pass
	asked     []*request
	automatic bool
	ending    bool      // no configuration is stored: values are withdrawn, none is written
	idleAt    time.Time // of the next pass by the interval; zero: none is planned
	awaited   map[string][]*Waiter
	slots     chan struct{} // bounds the zones that are worked on at once,
	changes   chan struct{} // the zones with changes,
	looks     chan struct{} // and the zones that previews read
	passes    daemon.Runs
	settings  Settings // of this round, which only rounds read

	recovered  bool                 // the state of an earlier run is taken over
	reviewing  bool                 // a review of all names is under way
	reviewed   string               // the last name that it has reviewed
	unreviewed nameSet              // names that were in work when it reached them
	unstored   map[string]time.Time // names whose last outcome could not be stored: each waits until its time
	mended     time.Time            // the earliest end of such a wait; zero: no name waits

	settling int // calls of settle under way
	settled  int // calls of settle that have ended
}

// Addresses returns this host's public addresses.
func (e *Engine) Addresses() Addresses { return e.config.Addresses() }

// Passes returns the metrics of the passes that have ended.
func (e *Engine) Passes() *daemon.Runs { return &e.passes }

// zonesAtOnce bounds the zones that are worked on at once.
const zonesAtOnce = 32

// New returns an engine, which works while Run does.
func New(c Config) *Engine {
	return &Engine{
		config: c, wake: make(chan struct{}, 1), news: newNews(c.Log, c.Now), budget: newBudget(c.Writes), lanes: map[Lane]*zoneLane{}, conns: map[int64]*connection{},
		busy: map[string]*task{}, unstored: map[string]time.Time{}, awaited: map[string][]*Waiter{}, reviewing: true,
		slots: make(chan struct{}, zonesAtOnce), changes: make(chan struct{}, zonesAtOnce), looks: make(chan struct{}, zonesAtOnce), crashed: make(chan error, 1),
	}
}

// Wake tells the engine that a name may be due. The engine searches soon.
func (e *Engine) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when all started work is finished. It returns a
// panic as its error at once, except a panic in the work on a record.
func (e *Engine) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		err := daemon.Call(func() error { return e.run(ctx) })
		if _, ok := errors.AsType[*daemon.Panic](err); !ok {
			e.workers.Wait()
		}
		e.news.end()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case err := <-e.crashed:
		return err
	}
}

// begin runs a function in a goroutine of its own, for which Run waits.
func (e *Engine) begin(work func()) {
	e.workers.Go(func() {
		if err := daemon.Call(func() error { work(); return nil }); err != nil {
			select {
			case e.crashed <- err:
			default: // Run returns the first one
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

// recover takes over the state that an earlier run of the program has left. It does so once.
func (e *Engine) recover(ctx context.Context) error {
	if e.recovered {
		return nil
	}
	keys, err := e.config.Database.ZoneLanes(ctx)
	if err != nil {
		return err
	}
	down, err := e.config.Database.DownZones(ctx)
	if err != nil {
		return err
	}
	last, err := e.config.Database.LastReport(ctx)
	if err != nil {
		return err
	}
	cut, err := e.config.Database.CutPass(ctx)
	if err != nil {
		return err
	}
	e.news.zonesNoted(down)
	if last != nil && last.OK() {
		e.passes.Remember(last.FinishedAt)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		l := e.lane(key)
		l.stored, l.before = true, true
	}
	if cut.Report.Trigger == TriggerManual { // its caller has gone, and gets the outcome by the report
		e.asked = append(e.asked, &request{sweep: cut.Sweep, cut: true, done: make(chan struct{})})
	}
	e.recovered = true
	return nil
}

// rest waits until next, if it is not zero, or until Wake is called. It waits at least
// pace, or a millisecond if a caller waits. The clock may have been set since the round
// began, so the shorter of both waits counts.
func (e *Engine) rest(ctx context.Context, began, next time.Time) {
	least := pace
	if e.awaitedNow() {
		least = time.Millisecond
	}
	select {
	case <-time.After(least):
	case <-ctx.Done():
		return
	}
	var due <-chan time.Time // nil: never ready
	if !next.IsZero() {
		due = time.After(min(next.Sub(began), next.Sub(e.config.Now())))
	}
	select {
	case <-due:
	case <-e.wake:
	case <-ctx.Done():
	}
}

// awaitedNow reports whether a caller waits for a name or for a pass.
func (e *Engine) awaitedNow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked) > 0 || len(e.awaited) > 0 || e.pass != nil && len(e.pass.waiting) > 0
}

// lane returns the lane of a key, a new one if there is none. The caller holds the lock.
func (e *Engine) lane(key Lane) *zoneLane {
	if e.lanes[key] == nil {
		e.lanes[key] = &zoneLane{key: key}
	}
	return e.lanes[key]
}

// round does the work of one wake-up, and returns the time of the next one, zero for none.
func (e *Engine) round(ctx context.Context) (next time.Time, err error) {
	e.mu.Lock()
	asked := slices.Clone(e.asked) // before Settings, so a declined caller asked before they were read
	e.mu.Unlock()
	if err := e.recover(ctx); err != nil {
		return next, err
	}
	settings, err := e.config.Database.Settings(ctx)
	if err != nil {
		return next, err
	}
	e.settings = settings
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
	return e.work(ctx, settings.Automatic)
}

// work begins a pass if one is asked for, and takes the due names and the next page of the
// pass. It returns the time of the next round, zero for none.
func (e *Engine) work(ctx context.Context, automatic bool) (next time.Time, err error) {
	passAt, err := e.beginPass(ctx, automatic)
	if err != nil {
		return next, err
	}
	if automatic || e.passNumber() > 0 {
		if _, err := e.spread(ctx); err != nil {
			return next, err
		}
	}
	next, err = e.takeDue(ctx, automatic)
	if err != nil {
		return next, err
	}
	pageAt, err := e.workPass(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	return soonest(soonest(next, passAt), soonest(pageAt, e.mended)), err
}

// spread makes some names of marked services due, if fewer than a page wait, and reports
// whether marks may be left. These names belong to the running pass.
func (e *Engine) spread(ctx context.Context) (left bool, err error) {
	if left, err = e.config.Database.Marked(ctx); err != nil || !left {
		return left, err
	}
	e.mu.Lock()
	inWork := len(e.busy)
	e.mu.Unlock()
	waiting, err := e.config.Database.Due(ctx, LaneChanged, e.config.Now(), pageNames+inWork)
	if err != nil || len(waiting)-inWork >= pageNames { // names in work do not count: a slow zone must not delay other zones' marks
		return true, err
	}
	if err := e.config.Database.SpreadMarks(ctx, spreadNames); err != nil {
		return true, err
	}
	e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pass != nil {
		e.pass.horizon = e.config.Now()
	}
	return true, nil
}

// refuse ends the callers that wait for a pass with an error of the database. A pass that an earlier run has begun stays
// asked for.
func (e *Engine) refuse(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = slices.DeleteFunc(e.asked, func(r *request) bool {
		if !r.cut {
			r.end(Report{}, err)
		}
		return !r.cut
	})
	if e.pass != nil {
		e.pass.end(Report{}, err)
	}
}

// stand is the round while synchronisation is disabled.
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

// decline ends the callers that wait for a pass with the reason why there is none.
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

// soonest returns the earlier of two times; zero means never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// takeDue takes the due names, lane by lane, and returns the time at which the next name is
// due.
func (e *Engine) takeDue(ctx context.Context, automatic bool) (next time.Time, err error) {
	lanes := []Lane{LaneAsked, LaneLook}
	e.mu.Lock()
	works := automatic || e.pass != nil
	if works {
		lanes = append(lanes, changeLanes...)
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

// prune forgets the lanes of zones in which no name waits and whose zone may be asked, and
// the names whose outcome may be stored again. The caller holds the lock.
func (e *Engine) prune() {
	now := e.config.Now()
	maps.DeleteFunc(e.lanes, func(_ Lane, l *zoneLane) bool {
		return !l.working && !l.stored && len(l.queue) == 0 && !l.closed(now)
	})
	maps.DeleteFunc(e.unstored, func(_ string, until time.Time) bool { return !waits(until, now, breath) })
}

// takeLane takes the due names of a lane, and returns the time at which its next name is due.
func (e *Engine) takeLane(ctx context.Context, lane Lane, manual bool) (next time.Time, err error) {
	now := e.config.Now()
	e.mu.Lock()
	inWork, by := len(e.busy), now
	until, puts := e.blockedUntil(lane, now)
	if l := e.lanes[lane]; l != nil {
		by = l.horizon(now)
	}
	e.mu.Unlock()
	if !until.IsZero() {
		return until, nil
	}
	names, err := e.config.Database.Due(ctx, lane, by, pageNames+inWork)
	if err != nil {
		return next, err
	}
	taken, err := e.take(ctx, names, taking{lane: lane, by: by, manual: manual})
	if err != nil || taken > 0 {
		return now, err
	}
	if by.After(now) {
		e.mu.Lock()
		e.lane(lane).before = false
		e.mu.Unlock()
	}
	at, ok, err := e.config.Database.NextDue(ctx, lane, now) // every name that is due by now is in work, whose end wakes the engine
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

// blockedUntil returns the time until which the zone of a lane is not asked, zero if its
// names can be taken, and how often names were stored for the lane. The names of a zone
// that is given up are taken, so that they fail. The caller holds the lock.
func (e *Engine) blockedUntil(lane Lane, now time.Time) (until time.Time, puts int) {
	l := e.lanes[lane]
	if l == nil {
		return time.Time{}, 0
	}
	if l.closed(now) && !l.givenUp(now, e.retry) {
		until = l.blocked
	}
	return until, l.puts
}

// emptied records that no name waits for a zone in the database, unless a name was stored
// for it since the engine read puts.
func (e *Engine) emptied(lane Lane, puts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[lane]; l != nil && l.puts == puts {
		l.stored = false
	}
}
