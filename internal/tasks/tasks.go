// Package tasks runs the parts of a program side by side, and ends them in their order.
package tasks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// List are tasks that run side by side, each until its context ends.
type List []func(context.Context) error

// headStart is how long the front has a start for itself: who waits for the first answer
// does not wait for what works behind it.
const headStart = 20 * time.Millisecond

// Serve runs what answers clients, and soon what works behind it for as long as an answer
// may wait for that. When ctx ends, or a task fails, the front ends, and then what is
// behind. The error is that of the first task that failed; a panic is one, and is logged.
func Serve(ctx context.Context, log *slog.Logger, front, behind List) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	failed := func(err error) {
		if crashed, ok := errors.AsType[*Panic](err); ok {
			log.Error("a part of the program has crashed", "error", crashed)
		}
		cancel(err)
	}
	answering := front.run(ctx, failed)
	select {
	case <-time.After(headStart):
	case <-ctx.Done():
	}
	working := behind.run(work, failed)
	<-ctx.Done()
	log.Info("stopping")
	answering.Wait()
	end()
	working.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// run begins all, and tells who waits when they have returned. What goes wrong in one,
// a panic too, is told.
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
