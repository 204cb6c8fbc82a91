// Package tasks runs the parts of a program concurrently, and ends them in order.
package tasks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// List has tasks that run concurrently, each until its context ends.
type List []func(context.Context) error

// Serve runs the tasks in front, which answer clients, and the tasks behind, which these answers may
// wait for. When ctx ends or a task fails, it ends the tasks in front first, then the tasks behind.
// It returns the error of the first task that failed. A panic counts as an error and is logged.
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
