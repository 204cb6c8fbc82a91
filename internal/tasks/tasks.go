// Package tasks runs the parts of a program side by side, and ends them in their order.
package tasks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// List are tasks that run side by side, each until its context ends.
type List []func(context.Context) error

// Serve runs the tasks of the front, which answer clients, and those behind it, for which an answer
// may wait. When ctx ends, or a task fails, it ends the front first, and then the tasks behind it.
// It returns the error of the first task that failed; a panic is an error, and is logged.
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

// run begins all tasks; the result waits until they have returned. What goes wrong in one,
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
