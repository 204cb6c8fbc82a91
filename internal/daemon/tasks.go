// Package daemon has what each part of a program needs that runs for months: tasks that run concurrently and end in
// order, panics as errors, faults that are logged when they begin and end, metrics, and a log that never waits.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// List has tasks that run concurrently, each until its context ends.
type List []func(context.Context) error

// Serve runs the tasks of all groups. When ctx ends or a task fails, it ends one group after the other,
// because the last answers of a group may need the groups after it. It returns the error of the
// first task that failed. A panic counts as an error and is logged.
func Serve(ctx context.Context, log *slog.Logger, groups ...List) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := func(err error) {
		if crashed, ok := errors.AsType[*Panic](err); ok {
			log.Error("a part of the program has crashed", "error", crashed)
		}
		cancel(err)
	}
	var ends []func()
	for _, group := range groups {
		work, end := context.WithCancel(context.WithoutCancel(ctx))
		running := group.run(work, failed)
		ends = append(ends, func() { end(); running.Wait() })
	}
	<-ctx.Done()
	for _, end := range ends {
		end()
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// run starts all tasks. It passes the error or panic of a task to failed. The result waits
// until all tasks have returned.
func (all List) run(ctx context.Context, failed func(error)) *sync.WaitGroup {
	var running sync.WaitGroup
	for _, task := range all {
		running.Go(func() {
			if err := Call(func() error { return task(ctx) }); err != nil {
				failed(err)
			}
		})
	}
	return &running
}

// Panic is a recovered panic as an error. Its text has the value only; LogValue adds the stack.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprint("panic: ", e.Value) }

// LogValue returns the text and the stack.
func (e *Panic) LogValue() slog.Value {
	return slog.GroupValue(slog.String("text", e.Error()), slog.String("stack", string(e.Stack)))
}

// Catch stores a panic in *err as a *Panic. Call it with defer.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Stack: debug.Stack()}
	}
}

// Call calls f and returns its error, or its panic as a *Panic.
func Call(f func() error) (err error) {
	defer Catch(&err)
	return f()
}

// Fault is the state of work that is tried again and again. Its zero value is "no fault".
type Fault struct {
	mu     sync.Mutex
	reason string
}

// Note logs a fault when it begins, when its reason changes and when it ends, not while it lasts. err is
// the result of the last try; text says what does not work.
func (f *Fault) Note(log *slog.Logger, text string, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	f.mu.Lock()
	before := f.reason
	f.reason = reason
	f.mu.Unlock()
	switch {
	case reason == before:
	case reason != "":
		log.Error(text, "error", err)
	default:
		log.Info("a fault is over", "fault", text)
	}
}
