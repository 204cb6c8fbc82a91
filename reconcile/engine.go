package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"meshddns/metrics"
	"meshddns/provider"
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
	// pace is the least time between two looks for what is due: a commit of
	// somebody else's is no reason to look at once again and again.
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
	Config
	wake chan struct{}

	mu      sync.Mutex
	ctx     context.Context
	workers sync.WaitGroup
	lanes   map[string]*lane
	conns   map[int64]*connection
	busy    map[string]*task
	retry   provider.Backoff
	pass    *pass
	asked   []*request
	idleAt  time.Time // of the next pass by the interval; zero when none is planned
	awaited map[string][]*Waiter
	slots   chan struct{} // bounds the zones worked on at a time
	passes  metrics.Counter
}

// Passes counts the passes that have ended, by result.
func (e *Engine) Passes() *metrics.Counter { return &e.passes }

// zonesAtOnce bounds the zones that are worked on at a time.
const zonesAtOnce = 32

// lane is a zone, as far as it is known before it is asked for.
type lane struct {
	key     string
	queue   []*job
	working bool
	stored  bool      // names wait for it in the database
	puts    int       // how often names were stored for it
	blocked time.Time // until then nobody is asked
	fails   int       // in a row
	fault   Fault     // of the last
	secret  provider.Secret
}

// task is a name in work, with its records, perhaps in several zones.
type task struct {
	name     Name
	waiting  int
	outcomes []Outcome
	places   []Place // of the name, as they are by now
	next     Due     // the earliest reason to come back
	follow   bool
	page     *pass // that has taken it; nil when it was due
	again    bool  // it was tried before, and is tried again
	begun    time.Time
}

// job is one record of a task.
type job struct {
	task    *task
	record  Record
	look    bool // only to look, in mode manual
	attempt int  // failed ones before
}

// Waiter is somebody who waits until a version of a name was worked on.
type Waiter struct {
	engine *Engine
	name   string
	seen   int64 // the newest version that was worked on
	news   chan struct{}
}

// New makes an engine, which works while Run does.
func New(c Config) *Engine {
	return &Engine{
		Config: c, wake: make(chan struct{}, 1), lanes: map[string]*lane{}, conns: map[int64]*connection{},
		busy: map[string]*task{}, awaited: map[string][]*Waiter{}, slots: make(chan struct{}, zonesAtOnce),
	}
}

// Wake says that something may be due: it is looked for soon.
func (e *Engine) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when what has begun is finished.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx = ctx
	e.mu.Unlock()
	defer e.workers.Wait()
	select {
	case <-e.Ready:
	case <-ctx.Done():
		return nil
	}
	if err := e.recover(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		next, err := e.round(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Error("synchronise", "error", err)
			next = e.Now().Add(breath)
		}
		e.rest(ctx, next)
	}
	return nil
}

// recover takes up what an earlier run of the program has left.
func (e *Engine) recover(ctx context.Context) error {
	keys, err := e.Database.ZoneLanes(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		e.lane(key).stored = true
	}
	return nil
}

// rest waits until it is time, or until something has happened, but never less
// than a moment.
func (e *Engine) rest(ctx context.Context, next time.Time) {
	moment := time.NewTimer(pace)
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(max(0, next.Sub(e.Now())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.wake:
	case <-ctx.Done():
	}
}

// lane gives the lane of a key. The caller holds the lock.
func (e *Engine) lane(key string) *lane {
	if e.lanes[key] == nil {
		e.lanes[key] = &lane{key: key}
	}
	return e.lanes[key]
}

// round takes what is due, and tells when to come back.
func (e *Engine) round(ctx context.Context) (next time.Time, err error) {
	settings, err := e.Database.Settings(ctx)
	if err != nil {
		return next, err
	}
	e.mu.Lock()
	e.retry = settings.Retry
	e.mu.Unlock()
	if !settings.Configured || !settings.Enabled {
		return e.stand(ctx, settings)
	}
	passAt, err := e.beginPass(ctx, settings.Automatic)
	if err != nil {
		return next, err
	}
	if settings.Automatic {
		if more, err := e.spread(ctx); err != nil || more {
			e.Wake()
		}
	}
	next, err = e.takeDue(ctx, settings.Automatic)
	if err != nil {
		return next, err
	}
	pageAt, err := e.workPass(ctx)
	return soonest(soonest(next, passAt), pageAt), err
}

// spread makes some of the names due that were marked as a whole, when there is
// room for them.
func (e *Engine) spread(ctx context.Context) (bool, error) {
	waiting, err := e.Database.Due(ctx, LaneChanged, e.Now().Add(Debounce), pageNames)
	if err != nil || len(waiting) >= pageNames {
		return false, err
	}
	return e.Database.SpreadMarks(ctx, pageNames)
}

// stand is the round of a program that is switched off.
func (e *Engine) stand(ctx context.Context, settings Settings) (time.Time, error) {
	why := ErrDisabled
	if !settings.Configured {
		why = ErrNotConfigured
	}
	e.mu.Lock()
	p := e.pass
	e.pass, e.idleAt = nil, time.Time{}
	asked := e.asked
	e.asked = nil
	for _, waiters := range e.awaited {
		for _, w := range waiters {
			w.see(math.MaxInt64)
		}
	}
	e.mu.Unlock()
	for _, r := range asked {
		r.end(Report{}, why)
	}
	if p != nil {
		p.end(Report{}, why)
	}
	return e.Now().Add(time.Hour), nil
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
	lanes := []string{LaneAsked, LaneLook}
	e.mu.Lock()
	if automatic || e.pass != nil {
		lanes = append(lanes, LaneChanged)
	}
	for key, l := range e.lanes {
		if l.stored && len(l.queue) < laneRoom/2 {
			lanes = append(lanes, key)
		}
	}
	e.mu.Unlock()
	for _, lane := range lanes {
		at, err := e.takeLane(ctx, lane, !automatic)
		if err != nil {
			return next, err
		}
		next = soonest(next, at)
	}
	return next, nil
}

func (e *Engine) takeLane(ctx context.Context, lane string, manual bool) (next time.Time, err error) {
	now := e.Now()
	e.mu.Lock()
	l, zone := e.lanes[lane]
	inWork := len(e.busy)
	blocked := zone && l.blocked.After(now) && !l.givenUp(now, e.retry)
	puts := 0
	if zone {
		puts = l.puts
	}
	e.mu.Unlock()
	if blocked {
		return l.blocked, nil
	}
	names, err := e.Database.Due(ctx, lane, e.dueBy(lane), pageNames+inWork)
	if err != nil {
		return next, err
	}
	taken, err := e.take(ctx, names, taking{lane: lane, manual: manual})
	if err != nil || taken > 0 {
		return now, err
	}
	at, ok, err := e.Database.NextDue(ctx, lane)
	if err != nil {
		return next, err
	}
	if !ok {
		e.emptied(lane, puts)
		return time.Time{}, nil
	}
	if at.After(now) {
		return at, nil
	}
	return time.Time{}, nil // in work: who ends it wakes us
}

// dueBy is the time by which a name must be due to be taken. When somebody waits
// for a pass no change waits for further ones.
func (e *Engine) dueBy(lane string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lane == LaneChanged && e.pass != nil && len(e.pass.waiting) > 0 {
		return e.Now().Add(Debounce)
	}
	return e.Now()
}

// emptied notes that nobody waits for a zone in the database, if nobody has come
// since it was looked.
func (e *Engine) emptied(lane string, puts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[lane]; l != nil && l.puts == puts {
		l.stored = false
		if len(l.queue) == 0 && !l.working && !l.blocked.After(e.Now()) {
			delete(e.lanes, lane)
		}
	}
}

// taking says why names are taken.
type taking struct {
	lane   string
	manual bool
	page   *pass
}

// take begins the work on names that nobody works on yet, and gives how many.
func (e *Engine) take(ctx context.Context, names []string, why taking) (taken int, err error) {
	e.mu.Lock()
	names = slices.DeleteFunc(names, func(name string) bool { return e.busy[name] != nil })
	e.mu.Unlock()
	names = names[:min(len(names), pageNames)]
	if len(names) == 0 {
		return 0, nil
	}
	state, err := e.Database.State(ctx, names)
	if err != nil {
		return 0, err
	}
	records := map[string][]Record{}
	for _, r := range Desired(state, e.Addresses()) {
		records[r.Name] = append(records[r.Name], r)
	}
	var idle []*task
	e.mu.Lock()
	for _, n := range state.Names {
		t := &task{name: n, places: n.Places, page: why.page, again: isZone(why.lane), begun: e.Now()}
		e.busy[n.Name] = t
		if e.enqueue(t, records[n.Name], why); t.waiting == 0 {
			idle = append(idle, t)
		}
	}
	e.mu.Unlock()
	return len(state.Names), e.settle(ctx, nil, idle)
}

func isZone(lane string) bool { return len(lane) > len(laneZone) }

// enqueue hands the records of a task to their zones. Where a queue is full the
// name waits in the database; a person's order goes first. The caller holds the
// lock.
func (e *Engine) enqueue(t *task, records []Record, why taking) {
	for _, r := range records {
		if r.refusal() {
			t.outcomes = append(t.outcomes, r.refused())
			continue
		}
		t.follow = t.follow || r.Follow
		l := e.lane(r.lane())
		if len(l.queue) >= laneRoom && why.lane != LaneAsked {
			t.comeBack(Due{At: e.Now(), Lane: l.key})
			continue
		}
		j := &job{task: t, record: r, look: why.lane == LaneLook && why.manual && e.pass == nil}
		if t.again {
			j.attempt = r.Place.Attempts
		}
		t.waiting++
		if why.lane == LaneAsked {
			l.queue = slices.Insert(l.queue, 0, j)
		} else {
			l.queue = append(l.queue, j)
		}
		if !l.working {
			l.working = true
			e.workers.Go(func() { e.runLane(l) })
		}
	}
}

// refused is the outcome of a record that is no work.
func (r Record) refused() Outcome {
	o := Outcome{Name: r.Name, Network: r.Network, Fault: r.Fault, Action: ActionSkipped}
	if r.Fault.Code == CodeNetworkConflict {
		o.Action = ActionConflict
	}
	return o
}

// comeBack notes a reason to come back to the name; the earliest counts.
func (t *task) comeBack(d Due) {
	if t.next.At.IsZero() || d.At.Before(t.next.At) {
		t.next = d
	}
}

// runLane works off the queue of a zone, batch by batch.
func (e *Engine) runLane(l *lane) {
	for {
		jobs, conn := e.nextBatch(l)
		if jobs == nil {
			return
		}
		e.slots <- struct{}{}
		e.workBatch(l, jobs, conn)
		<-e.slots
		e.Wake()
	}
}

// nextBatch takes jobs off a queue, nil when it is empty or the program ends.
func (e *Engine) nextBatch(l *lane) ([]*job, *connection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(l.queue) == 0 || e.ctx.Err() != nil {
		l.queue, l.working = nil, false
		if l.fails == 0 && !l.stored {
			delete(e.lanes, l.key)
		}
		return nil, nil
	}
	account := l.queue[0].record.Account
	if account.Secret != l.secret {
		l.secret, l.fails, l.blocked = account.Secret, 0, time.Time{} // another key may fare better
	}
	conn := e.conns[account.ID]
	if conn == nil || conn.secret != account.Secret || e.Now().Sub(conn.opened) > clientLife {
		conn = connect(e.Open, account, e.Now())
		e.conns[account.ID] = conn
	}
	count := min(len(l.queue), conn.batchSize())
	jobs := slices.Clone(l.queue[:count])
	l.queue = slices.Delete(l.queue, 0, count)
	return jobs, conn
}

// workBatch works on some jobs of a zone and commits what came of it.
func (e *Engine) workBatch(l *lane, jobs []*job, conn *connection) {
	b := &batch{db: e.Database, addresses: e.Addresses(), now: e.Now, conn: conn}
	for _, j := range jobs {
		b.items = append(b.items, newItem(j.record, j.look))
	}
	e.mu.Lock()
	held := l.hold(e.Now())
	e.mu.Unlock()
	if held != nil {
		for _, i := range b.items {
			i.fault, i.done, i.untried = *held, true, true
		}
	} else {
		b.work(e.ctx)
	}
	if e.ctx.Err() != nil && !slices.ContainsFunc(b.items, func(i *item) bool { return i.fault.Code != CodeInterrupted }) {
		return // the program ends: all is as it was stored
	}
	e.conclude(l, jobs, b)
}

// hold is why a zone is not asked now, nil when it is.
func (l *lane) hold(now time.Time) *Fault {
	if !l.blocked.After(now) {
		return nil
	}
	fault := l.fault
	return &fault
}

// givenUp reports whether a zone that is not asked now has failed as often as it
// may: its names fail with it, until the next try.
func (l *lane) givenUp(now time.Time, retry provider.Backoff) bool {
	return l.blocked.After(now) && l.fails > retry.Retries
}

// conclude notes how the zone fared, and settles what came of the jobs.
func (e *Engine) conclude(l *lane, jobs []*job, b *batch) {
	now := e.Now()
	var s Settlement
	var ended []*task
	e.mu.Lock()
	e.judge(l, b, now)
	for n, j := range jobs {
		i := b.items[n]
		v := verdict{item: i, job: j, now: now, retry: e.retry, lane: l, givenUp: l.givenUp(now, e.retry)}
		o, back := v.conclude()
		t := j.task
		t.follow = t.follow || i.followed || i.left != nil
		t.take(&s, i, o, back)
		if t.waiting--; t.waiting == 0 {
			ended = append(ended, t)
		}
	}
	e.mu.Unlock()
	e.logOutcomes(ended)
	if err := e.settle(e.ctx, &s, ended); err != nil {
		e.Log.Error("settle", "error", err)
		e.mu.Lock()
		l.blocked, l.fault = now.Add(breath), Fault{Code: CodeDatabase, Detail: err.Error()}
		e.mu.Unlock()
	}
}

// judge says after a batch whether the zone is asked again at once.
func (e *Engine) judge(l *lane, b *batch, now time.Time) {
	switch {
	case b.down == nil && b.answered:
		l.fails, l.blocked = 0, time.Time{}
	case b.down != nil:
		if l.fails++; b.answered {
			l.fails = 1
		}
		l.fault = Describe(b.down, l.secret)
		l.blocked = now.Add(e.retry.Delay(l.fails, b.down))
		if !l.fault.transient() {
			l.fails = max(l.fails, e.retry.Retries+1)
			l.blocked = now.Add(e.retry.Delay(1, nil))
		}
	}
}

// take takes what came of one of the task's records.
func (t *task) take(s *Settlement, i *item, o Outcome, back Due) {
	t.outcomes = append(t.outcomes, o)
	if !back.At.IsZero() {
		t.comeBack(back)
	}
	if i.ended {
		s.Ended = append(s.Ended, i.place)
		t.places = slices.DeleteFunc(slices.Clone(t.places), func(p Place) bool { return p.ID == i.place.ID })
		return
	}
	for _, p := range i.store {
		at := slices.IndexFunc(t.places, func(q Place) bool { return q.ID == p.ID && p.ID != 0 })
		if at >= 0 && t.places[at] == *p {
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

// settle commits what came of some work, and ends the tasks that are through.
func (e *Engine) settle(ctx context.Context, s *Settlement, ended []*task) error {
	if s == nil {
		s = &Settlement{}
	}
	number := e.passNumber()
	for _, t := range ended {
		if d, news := t.due(number); news {
			s.Names = append(s.Names, d)
		}
	}
	var err error
	if len(s.Places)+len(s.Ended)+len(s.Names) > 0 {
		err = e.Database.Settle(context.WithoutCancel(ctx), *s)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range s.Names {
		if isZone(d.Lane) {
			l := e.lane(d.Lane)
			l.stored = true
			l.puts++
		}
	}
	for _, t := range ended {
		delete(e.busy, t.name.Name)
		if t.page != nil {
			t.page.page--
		}
		if err == nil && e.pass != nil {
			counted, bad := t.name.markedBy(e.pass.Number)
			e.pass.Report.add(t.news(), counted, bad)
		}
		for _, w := range e.awaited[t.name.Name] {
			w.see(t.name.Version)
		}
	}
	return err
}

// waits reports whether a record of the task is tried again before it counts.
func (t *task) waits() bool {
	return slices.ContainsFunc(t.outcomes, func(o Outcome) bool { return o.Action == "" && o.Fault.Code != "" })
}

// news are the outcomes that count already: of a name that is tried again only
// what was changed.
func (t *task) news() []Outcome {
	if !t.waits() {
		return t.outcomes
	}
	return slices.DeleteFunc(slices.Clone(t.outcomes), func(o Outcome) bool {
		return !slices.Contains([]string{ActionCreate, ActionUpdate, ActionDelete}, o.Action)
	})
}

// due says when to come back to a name. News is false when nothing about it has
// to be stored.
func (t *task) due(pass int64) (d Due, news bool) {
	d = t.next
	look := nextLook(t.places)
	bad := slices.ContainsFunc(t.outcomes, Outcome.bad)
	stands := !t.waits() && !slices.ContainsFunc(t.outcomes, func(o Outcome) bool { return o.bad() && o.Provider != "" })
	switch {
	case !d.At.IsZero():
	case t.follow && stands:
		d = Due{At: time.Unix(1, 0), Lane: LaneAsked}
	case !look.IsZero():
		d = Due{At: look, Lane: LaneLook}
	}
	d.Name, d.Version = t.name.Name, t.name.Version
	if !t.waits() && pass > 0 {
		d.Pass = passMark(pass, bad)
	}
	active := slices.ContainsFunc(t.name.Usages, func(u Usage) bool { return !u.Releasing })
	d.Released = slices.ContainsFunc(t.name.Usages, func(u Usage) bool { return u.Releasing })
	d.Empty = len(t.places) == 0 && !active && t.name.Own == nil
	return d, t.page == nil || !d.At.IsZero() || d.Released || d.Empty || bad
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

func (e *Engine) logOutcomes(ended []*task) {
	for _, t := range ended {
		for _, o := range t.outcomes {
			level := slog.LevelInfo
			switch {
			case o.Action == "" || o.Action == ActionUnchanged && o.Fault.Code == "":
				continue
			case o.bad() || o.warning():
				level = slog.LevelWarn
			}
			e.Log.Log(context.Background(), level, "record",
				"name", o.Name, "provider", o.Provider, "action", o.Action, "code", o.Fault.Code, "detail", o.Fault.Detail, "attempts", o.Attempts)
		}
	}
}
