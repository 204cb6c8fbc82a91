package notify

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/provider"
	"meshddns/internal/tasks"
)

const (
	restTime    = time.Second     // between two looks at a log that grows
	faultPause  = 5 * time.Second // after a fault of the database
	maxSkipped  = 1000            // events that need not be told, before their seq is stored
	skippedTime = 24 * time.Hour  // the same as a time: rows that are deleted meanwhile would be told as a gap
	pageSize    = 1000            // events that are read at a time
)

// backoff is the schedule of the tries after a failure.
var backoff = provider.Backoff{First: 5 * time.Second}

// Sender sends the messages of all targets.
type Sender struct {
	Table   *Table
	History *events.Log
	Well    func(context.Context) bool // all is well, so that healthchecks are pinged
	Log     *slog.Logger
}

// Run sends messages until ctx ends. Each target has a goroutine.
func (s *Sender) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	running := map[string]bool{}
	ended := make(chan string)
	failed := make(chan error, MaxTargets)
	defer func() {
		cancel()
		for range running {
			<-ended
		}
	}()
	for {
		changed := s.Table.change()
		targets, err := s.Table.Targets(ctx)
		for _, t := range targets {
			if running[t.ID] {
				continue
			}
			running[t.ID] = true
			go func() {
				defer func() { ended <- t.ID }()
				if err := tasks.Call(func() error { s.follow(ctx, t.ID); return nil }); err != nil {
					failed <- err
				}
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
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// follow sends the messages of one target until it is deleted.
func (s *Sender) follow(ctx context.Context, id string) {
	w := worker{sender: s}
	for ctx.Err() == nil {
		changed, grown := s.Table.change(), s.History.Grown()
		t, err := s.Table.Target(ctx, id)
		if errors.Is(err, ErrUnknown) {
			return
		}
		wait := waiting{pause: faultPause}
		if err == nil {
			if t.revision != w.revision { // else memory is ahead of a database that takes no writes
				w = worker{sender: s, Target: t, seen: t.sent, stored: s.Table.now()}
			}
			wait, err = w.step(ctx)
		}
		if err != nil {
			wait = waiting{pause: faultPause} // the writers and readers of requests tell of a fault of the database
		}
		wait.until(ctx, changed, grown)
	}
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
	pinged  time.Time // of the last GET of a dead man's switch
}

// step does what is due, and returns what to wait for.
func (w *worker) step(ctx context.Context) (waiting, error) {
	now := w.sender.Table.now()
	switch {
	case w.unsaved:
		return waiting{pause: time.Nanosecond}, w.save(ctx)
	case !w.Enabled || w.state == Stopped:
		return waiting{}, nil
	case w.next.After(now) && w.next.Sub(now) <= provider.MaxRetryAfter: // else the clock was ahead
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
			if w.wants(e.Kind) {
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
	m, last = message{language: w.Language}, w.seen
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
			if w.wants(e.Kind) {
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
	r := send(ctx, w.Target, m, w.sender.Table.now())
	if ctx.Err() != nil && !r.ok() {
		return false // the program ends
	}
	now := w.sender.Table.now()
	before := w.state
	switch {
	case r.ok():
		w.enter(OK, now)
		w.fault, w.attempts, w.next = r.fault, 0, time.Time{}
	case r.final:
		w.enter(Stopped, now)
		w.fault, w.attempts, w.next = r.fault, w.attempts+1, time.Time{}
	default:
		w.enter(Retrying, now)
		w.fault, w.attempts = r.fault, w.attempts+1
		w.next = now.Add(backoff.Delay(w.attempts, &provider.Error{RetryAfter: r.pause}))
	}
	w.tell(before)
	return r.ok()
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
	err := w.sender.Table.store(context.WithoutCancel(ctx), w.Target)
	w.stored, w.unsaved = w.sender.Table.now(), err != nil
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
	if w.try(ctx, message{language: w.Language}); w.progress == before {
		return waiting{pause: pingEvery}, nil
	}
	return waiting{pause: time.Nanosecond}, w.save(ctx)
}
