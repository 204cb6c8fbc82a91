package notify

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

const (
	restTime    = time.Second     // between two looks at a log that grows
	faultPause  = 5 * time.Second // after a fault of the database
	maxSkipped  = 1000            // events that need not be told, before their seq is stored
	skippedTime = 24 * time.Hour  // the same as a time: rows that are deleted meanwhile would be told as a gap
	pageSize    = 1000            // events that are read at a time
)

// The pauses after a failure, and after a doubtful answer, where doubtTries take a day. Tries are counted and not
// hours, because the clock may be what is wrong.
var (
	pauses      = daemon.Backoff{First: 5 * time.Second, Longest: 5 * time.Minute}
	doubtPauses = daemon.Backoff{First: 5 * time.Second, Longest: 50 * time.Minute} // with jitter at most daemon.MaxRetryAfter
)

const doubtTries = 35

// Sender sends the messages of all targets.
type Sender struct {
	Targets *Table
	History *events.Log
	Well    func(context.Context) bool // all is well, so that healthchecks are pinged
	Log     *slog.Logger
}

// Run sends messages until ctx ends. Each target has a goroutine. A panic in it stops its target only.
func (s *Sender) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	running := map[string]bool{}
	ended := make(chan string)
	defer func() {
		cancel()
		for range running {
			<-ended
		}
	}()
	for {
		err := s.Targets.Refresh(ctx)
		changed := s.Targets.Changed()
		for _, t := range s.Targets.Known() {
			if running[t.ID] {
				continue
			}
			running[t.ID] = true
			go func() {
				defer func() { ended <- t.ID }()
				s.follow(ctx, t.ID)
			}()
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(faultPause)
		}
		select {
		case <-changed:
		case <-again:
		case id := <-ended: // its target may exist anew
			delete(running, id)
		case <-ctx.Done():
			return nil
		}
	}
}

// follow sends the messages of one target until it is deleted.
func (s *Sender) follow(ctx context.Context, id string) {
	w := worker{sender: s}
	for ctx.Err() == nil {
		changed, grown := s.Targets.Changed(), s.History.Grown()
		var wait waiting
		err := daemon.Call(func() (err error) {
			wait, err = w.turn(ctx, id)
			return err
		})
		if errors.Is(err, ErrUnknown) {
			return
		}
		if crash, ok := errors.AsType[*daemon.Panic](err); ok {
			w.crashed(crash)
		}
		if err != nil {
			wait = waiting{pause: faultPause} // the writers and readers of requests tell of a fault of the database
		}
		wait.until(ctx, changed, grown)
	}
}

// turn reads the target, and does what is due. It returns what to wait for, and ErrUnknown after the
// target is deleted.
func (w *worker) turn(ctx context.Context, id string) (waiting, error) {
	t, err := w.sender.Targets.One(ctx, id)
	if err != nil {
		return waiting{}, err
	}
	if t.revision != w.revision { // else memory is ahead of a database that takes no writes
		*w = worker{sender: w.sender, Target: t, seen: t.sent, stored: w.sender.Targets.now()}
		if _, known := receivers[t.Kind]; known && t.fault.Code == string(msg.KindNewer) {
			w.enter(OK, w.stored)
			w.fault, w.attempts, w.unsaved = mesh.Fault{}, 0, true
		}
	}
	return w.step(ctx)
}

// crashed stops the target after a panic in its work.
func (w *worker) crashed(crash *daemon.Panic) {
	w.sender.Log.Error("the work for a notification target has crashed", "id", w.ID, "kind", string(w.Kind), "error", crash)
	w.stop(mesh.Fault{Code: string(msg.MessageCrashed)})
	w.unsaved = true
}

// stop stops the target. The other targets are told when that is stored.
func (w *worker) stop(fault mesh.Fault) {
	w.untold = w.state != Stopped
	w.enter(Stopped, w.sender.Targets.now())
	w.fault, w.attempts, w.next = fault, w.attempts+1, time.Time{}
}

// waiting is what a worker waits for, besides a change of the targets.
type waiting struct {
	pause time.Duration // 0 for none
	grown bool          // the log of events grows
}

func (w waiting) until(ctx context.Context, changed, grown <-chan struct{}) {
	if !w.grown {
		grown = nil
	}
	var alarm <-chan time.Time
	if w.pause > 0 {
		alarm = time.After(w.pause)
	}
	select {
	case <-grown:
		select {
		case <-time.After(restTime):
		case <-changed:
		case <-ctx.Done():
		}
	case <-changed:
	case <-alarm:
	case <-ctx.Done():
	}
}

// worker is a target and what its goroutine remembers.
type worker struct {
	sender *Sender
	Target
	seen    int64     // seq of the last event that was looked at
	stored  time.Time // of the last write
	unsaved bool      // the last write failed
	untold  bool      // the event that the target is stopped is not stored yet
	pinged  time.Time // of the last GET of a dead man's switch
}

// step does what is due, and returns what to wait for.
func (w *worker) step(ctx context.Context) (waiting, error) {
	now := w.sender.Targets.now()
	switch {
	case w.unsaved:
		return waiting{pause: time.Nanosecond}, w.save(ctx)
	case !*w.Enabled || w.state == Stopped:
		return waiting{}, nil
	case w.next.After(now) && w.next.Sub(now) <= daemon.MaxRetryAfter: // else the clock was ahead
		return waiting{pause: w.next.Sub(now)}, nil
	case w.Kind == Healthchecks:
		return w.ping(ctx, now)
	}
	first, found, err := w.look(ctx)
	if err != nil {
		return waiting{}, err
	}
	if !found {
		return w.skip(ctx, now)
	}
	left := first.At.Add(window).Sub(now) // more than a window if the clock was ahead
	if left > 0 && left <= window && w.attempts == 0 && first.Kind != events.Gap {
		return waiting{pause: left}, nil
	}
	m, last, err := w.collect(ctx)
	if err != nil {
		return waiting{}, err
	}
	if w.try(ctx, m) {
		w.seen, w.sent = last, last
	}
	return waiting{pause: time.Nanosecond}, w.save(ctx)
}

// look returns the first event after seen that the target wants.
func (w *worker) look(ctx context.Context) (first events.Event, found bool, err error) {
	for {
		page, err := w.sender.History.Page(ctx, events.Filter{After: w.seen}, pageSize)
		if err != nil {
			return first, false, err
		}
		for _, e := range page {
			if w.wants(e) {
				return e, true, nil
			}
			w.seen = e.Seq
		}
		if len(page) < pageSize {
			return first, false, nil
		}
	}
}

// skip stores the place in the log if it is far ahead of the stored one.
func (w *worker) skip(ctx context.Context, now time.Time) (waiting, error) {
	wait := waiting{grown: true}
	left := skippedTime - now.Sub(w.stored)
	switch {
	case w.seen == w.sent:
		return wait, nil
	case w.seen-w.sent <= maxSkipped && left > 0 && left <= skippedTime:
		wait.pause = left
		return wait, nil
	}
	w.sent = w.seen
	return wait, w.save(ctx)
}

// collect returns the message of the events that wait after seen, and the seq of the last event that
// is told with it, or need not be.
func (w *worker) collect(ctx context.Context) (m message, last int64, err error) {
	m, last = message{language: languages[w.Language]}, w.seen
	end, err := w.sender.History.Last(ctx)
	if err != nil {
		return m, last, err
	}
	for last < end {
		page, err := w.sender.History.Page(ctx, events.Filter{After: last}, pageSize)
		if err != nil || len(page) == 0 {
			return m, last, err
		}
		for _, e := range page {
			if e.Seq > end || receivers[w.Kind].all && len(m.events) == maxEvents {
				return m, last, nil
			}
			last = e.Seq
			if w.wants(e) {
				m.add(e)
			}
		}
	}
	return m, last, nil
}

// add adds an event.
func (m *message) add(e events.Event) {
	if len(m.events) == maxEvents {
		m.more++
		return
	}
	m.events = append(m.events, e)
}

// try sends a message, and notes the outcome. It returns whether the message was delivered.
func (w *worker) try(ctx context.Context, m message) bool {
	r := send(ctx, w.Target, m, w.sender.Targets.now())
	if ctx.Err() != nil && !r.ok() {
		return false // the program ends
	}
	now := w.sender.Targets.now()
	before := w.state
	if r.outcome == doubtful && w.fault.Code != r.fault.Code { // only doubtful answers in a row stop a target
		w.attempts = 0
	}
	switch {
	case r.ok():
		w.enter(OK, now)
		w.fault, w.attempts, w.next = r.fault, 0, time.Time{}
	case r.outcome == final, r.outcome == doubtful && w.attempts >= doubtTries:
		w.stop(r.fault)
	default:
		w.again(r, now)
	}
	w.tell(before)
	return r.ok()
}

// again plans the next try after a failure.
func (w *worker) again(r result, now time.Time) {
	w.enter(Retrying, now)
	w.fault, w.attempts = r.fault, w.attempts+1
	pause := pauses.Jittered(w.attempts)
	switch {
	case r.pause > 0:
		pause = min(r.pause, daemon.MaxRetryAfter)
	case r.outcome == doubtful:
		pause = doubtPauses.Jittered(w.attempts)
	}
	w.next = now.Add(pause)
}

// tell logs a new state.
func (w *worker) tell(before State) {
	about := []any{"id", w.ID, "kind", string(w.Kind)}
	if w.state != OK {
		about = append(about, "code", w.fault.Code, "detail", w.fault.Detail)
	}
	switch {
	case w.state == before:
	case w.state == OK:
		w.sender.Log.Info("notifications are delivered again", about...)
	case w.state == Stopped:
		w.sender.Log.Warn("a notification target is stopped", about...)
	default:
		w.sender.Log.Warn("notifications are not delivered, and are tried again", about...)
	}
}

// save stores the progress. When the database takes no write, the next step tries again. The context
// of the program may have ended: what was delivered is stored all the same.
func (w *worker) save(ctx context.Context) error {
	var told []events.Event
	if w.untold {
		told = append(told, events.Event{Kind: events.NotificationStopped, Detail: events.Detail{After: events.JSON(w.ID), Fault: w.fault}})
	}
	err := w.sender.Targets.note(context.WithoutCancel(ctx), w.Target, w.sender.History, told...)
	w.stored, w.unsaved, w.untold = w.sender.Targets.now(), err != nil, w.untold && err != nil
	return err
}

// ping sends a GET if all is well and a minute has passed.
func (w *worker) ping(ctx context.Context, now time.Time) (waiting, error) {
	if left := pingEvery - now.Sub(w.pinged); left > 0 && left <= pingEvery && w.attempts == 0 {
		return waiting{pause: left}, nil
	}
	w.pinged = now
	if !w.sender.Well(ctx) {
		return waiting{pause: pingEvery}, nil
	}
	before := w.progress
	if w.try(ctx, message{language: languages[w.Language]}); w.progress == before {
		return waiting{pause: pingEvery}, nil
	}
	return waiting{pause: time.Nanosecond}, w.save(ctx)
}
