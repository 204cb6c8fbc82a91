package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// zoneLane is the lane of a zone: its queue of jobs, and its back-off.
type zoneLane struct {
	key     Lane
	queue   []*job
	working bool
	stored  bool      // names wait in the database for this lane
	before  bool      // some of them have waited since before this start, perhaps by another clock
	puts    int       // how often names were stored for this lane
	blocked time.Time // the provider is not asked before this time
	told    bool      // the provider itself asked for that pause
	fails   int       // failures in a row
	since   time.Time // of the first failure since the last answer; zero: none
	fault   Fault     // the last failure
}

// priority orders the jobs of a zone. A batch has jobs of one priority, so a change does not wait
// for names that are only read.
type priority int

const (
	priorityAsked   priority = iota // a person's order
	priorityChanged                 // a change
	priorityNode                    // a change by a node or a check
	priorityWaiting                 // a name that has waited for its zone, or a second look
	priorityPage                    // a name of a pass
)

// priority returns the priority of the jobs of names that are taken for the reason.
func (why taking) priority() priority {
	switch {
	case why.page != nil:
		return priorityPage
	case why.lane == LaneAsked:
		return priorityAsked
	case why.lane == LaneChanged, why.lane == LaneHeld:
		return priorityChanged
	case why.byNode():
		return priorityNode
	}
	return priorityWaiting
}

// put puts a job into the queue, behind the jobs of its priority.
func (l *zoneLane) put(j *job) {
	at, _ := slices.BinarySearchFunc(l.queue, j.task.priority+1, func(o *job, p priority) int { return cmp.Compare(o.task.priority, p) })
	l.queue = slices.Insert(l.queue, at, j)
}

// closed reports whether the zone is not to be asked now.
func (l *zoneLane) closed(now time.Time) bool { return waits(l.blocked, now, longestZoneWait) }

// skewed reports whether the zone has refused this host's time.
func (l *zoneLane) skewed() bool { return l.fault.Code == string(provider.ClockSkew) }

// horizon returns until when a name of the zone may be due to be taken now. A person, another machine or a start may
// have set the clock by which the names wait.
func (l *zoneLane) horizon(now time.Time) time.Time {
	if (l.before || l.skewed()) && !l.closed(now) {
		return now.Add(longestZoneWait)
	}
	return now
}

// runLane works off the queue of a zone, batch by batch.
func (e *Engine) runLane(l *zoneLane) {
	for {
		jobs, conn := e.nextBatch(l)
		if jobs == nil {
			return
		}
		e.inSlot(jobs[0].task.priority, func() { e.workBatch(l, jobs, conn) })
		e.Wake()
	}
}

// slotTime is how long a batch keeps its slot. A batch that takes longer waits for a
// provider, and needs little of this machine.
const slotTime = time.Second

// inSlot runs a function in one of a bounded number of slots. Changes have slots of their own.
func (e *Engine) inSlot(t priority, work func()) {
	slots := e.slots
	if t <= priorityNode {
		slots = e.changes
	}
	slots <- struct{}{}
	leave := sync.OnceFunc(func() { <-slots })
	defer leave()
	defer time.AfterFunc(slotTime, leave).Stop()
	work()
}

// nextBatch takes the jobs of a batch off a queue, nil if the queue is empty or the program ends.
func (e *Engine) nextBatch(l *zoneLane) ([]*job, *connection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(l.queue) == 0 || e.ctx.Err() != nil {
		l.queue, l.working = nil, false
		return nil, nil
	}
	account := l.queue[0].record.Account
	conn := e.connection(account)
	looks := func(j *job) bool {
		at := j.record.Place.LookAt
		return at.After(conn.opened) && !at.After(e.config.Now())
	}
	if conn.zoneless.Load() && slices.ContainsFunc(l.queue, looks) {
		delete(e.conns, account.ID) // a second look asks the provider anew for a zone that was not found
		conn = e.connection(account)
	}
	count := min(len(l.queue), conn.batchSize())
	if other := slices.IndexFunc(l.queue, func(j *job) bool { return j.task.priority != l.queue[0].task.priority }); other >= 0 {
		count = min(count, other)
	}
	jobs := slices.Clone(l.queue[:count])
	l.queue = slices.Delete(l.queue, 0, count)
	for _, j := range jobs {
		j.task.begun = true
	}
	return jobs, conn
}

// connection returns the connection of an account, a new one if there is none. It first
// forgets all connections that are older than clientLife. The caller holds the lock.
func (e *Engine) connection(account Account) *connection {
	now := e.config.Now()
	maps.DeleteFunc(e.conns, func(_ int64, c *connection) bool { return !waits(c.opened.Add(clientLife), now, clientLife) })
	conn := e.conns[account.ID]
	if conn == nil {
		conn = connect(e.config.Open, account, now)
		e.conns[account.ID] = conn
	}
	return conn
}

// workBatch works on some jobs of a zone and commits the outcomes.
func (e *Engine) workBatch(l *zoneLane, jobs []*job, conn *connection) {
	b := &batch{db: e.config.Database, addresses: e.config.Addresses(), now: e.config.Now, conn: conn, probe: e.oneZone, synced: e.config.Synced}
	for _, j := range jobs {
		b.items = append(b.items, newItem(j.record, j.task.look))
	}
	e.mu.Lock()
	closed, fault := l.closed(e.config.Now()), l.fault
	e.mu.Unlock()
	if closed {
		for _, i := range b.items {
			i.began = b.now()
			i.phase = done
			if i.restate(i.began); i.step != End {
				i.fault, i.phase = fault, untried
			}
		}
	} else {
		b.rescue(func() { b.work(e.ctx) }, b.items...)
		if b.crash != nil {
			e.config.Log.Error("a record is not worked on", "error", b.crash)
		}
	}
	e.inherit(e.ctx, b)
	if e.ctx.Err() != nil && !slices.ContainsFunc(b.items, func(i *item) bool { return i.fault.Code != CodeInterrupted }) {
		return // the program ends before any item has an outcome: the stored places say what its calls may have left behind
	}
	e.conclude(l, jobs, b)
}

// givenUp reports whether a closed zone has used up its retries, or is closed for longer
// than a pass waits. Its names fail without a call until the next try.
func (l *zoneLane) givenUp(now time.Time, retry provider.Backoff) bool {
	return l.closed(now) && (l.fails > retry.Retries || l.blocked.Sub(now) > passPatience)
}

// passPatience is the longest time that a pass waits for a zone.
const passPatience = time.Minute

// conclude updates the zone's back-off, concludes the jobs of a batch, and settles their outcomes.
func (e *Engine) conclude(l *zoneLane, jobs []*job, b *batch) {
	now := e.config.Now()
	var s Settlement
	var tasks []*task
	e.mu.Lock()
	e.judge(l, b, now)
	failed, waiting := 0, len(l.queue)
	again := time.Duration(0)
	if e.ending {
		again = e.config.Interval
	}
	for n, j := range jobs {
		i := b.items[n]
		v := verdict{item: i, job: j, now: now, retry: e.retry, lane: l, down: b.down != nil, givenUp: l.givenUp(now, e.retry), again: again}
		o, back := v.conclude()
		if o.zoneDown && o.level() > slog.LevelInfo {
			failed++
		}
		t := j.task
		if t.page != nil && t.page.progress.Report.Trigger == TriggerAddress {
			s.By = ByAddress
		}
		if i.verify || i.left != nil || i.step == EndThenLook {
			t.follow = append(t.follow, i.record.Sibling)
		}
		t.deferred = t.deferred || i.later
		t.take(&s, i, o, back)
		if t.waiting--; !slices.Contains(tasks, t) {
			tasks = append(tasks, t)
		}
	}
	ended, others := e.divide(tasks)
	fault, since := l.fault, cmp.Or(l.since, now)
	e.mu.Unlock()
	if first := b.items[0].record; failed > 0 {
		e.news.zone(first, ZoneState{Since: since, Fault: fault}, failed+waiting)
	} else {
		e.tellAnswer(first, b, now)
	}
	e.noteZone(e.ctx, b.items[0].record)
	if err := e.settle(e.ctx, l, &s, ended); err != nil {
		e.mu.Lock()
		l.blocked, l.fault = now.Add(breath), Fault{Code: CodeDatabase, Detail: msg.TextOf(err)}
		e.mu.Unlock()
	}
	e.endLast(others)
}

// divide returns the tasks that end with the next settlement, and the others: those that have jobs in work,
// or places in a settlement of another zone that is not stored yet. If such a task ended, the next one of its name
// would read places that are about to change. The caller holds the lock.
func (e *Engine) divide(tasks []*task) (ended, others []*task) {
	for _, t := range tasks {
		if t.waiting == 0 && t.settling == 0 {
			ended = append(ended, t)
			continue
		}
		t.settling++
		others = append(others, t)
	}
	return ended, others
}

// endLast ends those of some tasks, whose places are stored now, that no other zone works on or stores.
func (e *Engine) endLast(tasks []*task) {
	var ended []*task
	e.mu.Lock()
	for _, t := range tasks {
		if t.settling--; t.waiting == 0 && t.settling == 0 {
			ended = append(ended, t)
		}
	}
	e.mu.Unlock()
	if len(ended) > 0 {
		e.settle(e.ctx, nil, &Settlement{}, ended)
	}
}

// tellAnswer tells the log that the zone of a record has answered a batch, or that the
// provider has no such zone.
func (e *Engine) tellAnswer(r Record, b *batch, now time.Time) {
	if b.down != nil {
		return
	}
	if b.answered {
		state := ZoneState{Since: now}
		if authority, _ := b.conn.client.Authority(e.ctx, cmp.Or(b.items[0].place.Zone, r.Domain)); authority.Warning != nil {
			state.Warning = Describe(authority.Warning, r.Account)
		}
		e.news.zone(r, state, 0)
	} else if at := slices.IndexFunc(b.items, (*item).zoneless); at >= 0 {
		e.news.zone(r, ZoneState{Since: now, Fault: b.items[at].fault}, 0)
	}
}

// judge updates the back-off of a zone after a batch.
func (e *Engine) judge(l *zoneLane, b *batch, now time.Time) {
	switch {
	case b.down == nil && b.answered:
		l.fails, l.blocked, l.since, l.fault = 0, time.Time{}, time.Time{}, Fault{}
	case b.down != nil:
		if l.fails++; b.answered {
			l.fails, l.since = 1, now
		}
		if l.since.IsZero() {
			l.since = now
		}
		l.fault = Describe(b.down, b.items[0].record.Account)
		l.blocked = now.Add(e.retry.Delay(l.fails, b.down))
		failure, ok := errors.AsType[*provider.Error](b.down)
		l.told = ok && failure.RetryAfter > 0
		if !transient(l.fault) {
			l.fails = max(l.fails, e.retry.Retries+1)
			l.blocked = now.Add(e.retry.Delay(1, nil))
		}
	}
}

// settle commits a settlement and ends tasks. l is the lane of the zone, nil if the work was in none.
func (e *Engine) settle(ctx context.Context, l *zoneLane, s *Settlement, ended []*task) error {
	e.mu.Lock()
	e.settling++
	p := e.pass
	e.mu.Unlock()
	for _, t := range ended {
		number := int64(0)
		if p != nil && t.belongs(p) {
			number = p.progress.Number
		}
		if d, news := t.due(number, e.config.Now()); news {
			s.Names = append(s.Names, d)
		}
	}
	unstored, fault, err := e.store(context.WithoutCancel(ctx), s)
	if l != nil {
		e.news.database("settle", l.key, fault) // before the callers go on that wait for the outcome
	}
	for _, t := range ended {
		if len(t.jobs) > 0 && !t.unstored && !unstored[t.name.Name] {
			e.news.outcomes(t.outcomes)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settling--
	e.settled++
	for name := range unstored {
		if t := e.busy[name]; t != nil {
			t.unstored = true
		}
	}
	for _, d := range s.Names {
		if d.Lane.OfZone() {
			l := e.lane(d.Lane)
			l.stored = true
			l.puts++
		}
	}
	for _, t := range ended {
		e.end(t, p, !t.unstored)
	}
	return err
}

// end ends a task. p is the pass that ran when the task was settled, nil if none did. The
// caller holds the lock.
func (e *Engine) end(t *task, p *pass, stored bool) {
	name := t.name.Name
	delete(e.busy, name)
	t.leave(!stored)
	switch {
	case !stored:
		e.unstored[name] = e.config.Now().Add(breath)
	case e.pass != nil:
		if p == e.pass && !p.progress.Report.Complete {
			p.count(t)
		}
		if t.during != e.pass && name <= e.pass.progress.Cursor { // the pass left out this name because it was in work
			e.pass.again.add(name)
		}
	}
	if t.deferred {
		return // the work goes on
	}
	for _, w := range e.awaited[name] {
		w.see(t.name.Version)
	}
}

// storeTime bounds the time in which a settlement is tried name by name. One try on a
// locked database takes longer than that.
const storeTime = time.Second

// store commits a settlement. If that fails, it tries name by name, so that one name's
// fault does not keep the others back. It returns the names that are not stored, the first
// fault, and the same fault as err if no name is stored.
func (e *Engine) store(ctx context.Context, s *Settlement) (unstored map[string]bool, fault, err error) {
	if len(s.Places)+len(s.Ended)+len(s.Names) == 0 {
		return nil, nil, nil
	}
	end := e.config.Now().Add(storeTime)
	if fault = e.config.Database.Settle(ctx, *s); fault == nil {
		return nil, nil, nil
	}
	unstored = map[string]bool{}
	parts, stored := s.Parts(1), 0
	for _, part := range parts {
		if len(parts) > 1 && e.config.Now().Before(end) && e.config.Database.Settle(ctx, part) == nil {
			stored++
			continue
		}
		for _, p := range slices.Concat(part.Places, part.Ended) {
			unstored[p.Name] = true
		}
		for _, d := range part.Names {
			unstored[d.Name] = true
		}
	}
	if stored == 0 {
		err = fault
	}
	return unstored, fault, err
}

// longestZoneWait is the longest time until a zone is tried again: the configuration's
// longest back-off with its jitter. It is longer than any pause that a provider may ask
// for.
const longestZoneWait = maxRetryInterval + maxRetryInterval/5

// LongestWait is the longest time that a name waits in a lane.
func (l Lane) LongestWait() time.Duration {
	switch {
	case l.OfZone():
		return longestZoneWait
	case l == LaneLook:
		return max(lookAgain, SecondLook)
	case l == LaneAsked:
		return ProbeTime
	case l == LaneLater:
		return 24 * time.Hour
	}
	return 0
}

// waits reports whether a time is still to come. A time that is further ahead than the
// longest wait counts as past: the clock was ahead when it was stored, and has been set
// back since.
func waits(at, now time.Time, longest time.Duration) bool {
	return at.After(now) && at.Sub(now) <= longest
}
