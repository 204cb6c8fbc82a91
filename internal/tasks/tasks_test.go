package tasks

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What works behind the front begins after it, also when all ends before: an answer may
// wait for it.
func TestFrontBeginsFirst(t *testing.T) {
	for name, test := range map[string]struct{ end, want time.Duration }{
		"later": {end: time.Minute, want: headStart}, "at once": {end: headStart / 4, want: headStart / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.end)
				defer cancel()
				start := time.Now()
				var worked time.Duration
				began := make(chan struct{})
				front := func(ctx context.Context) error {
					if time.Since(start) != 0 {
						t.Errorf("the front began after %v", time.Since(start))
					}
					<-began // as the last answer does
					<-ctx.Done()
					return nil
				}
				behind := func(ctx context.Context) error {
					worked = time.Since(start)
					close(began)
					<-ctx.Done()
					return nil
				}
				err := Serve(ctx, slog.New(slog.DiscardHandler), List{front}, List{behind})
				if !errors.Is(err, context.DeadlineExceeded) || worked != test.want {
					t.Errorf("%v; what is behind began after %v, want %v", err, worked, test.want)
				}
			})
		})
	}
}

// A panic in a part of the program ends it with an error, after a line in the log; what
// answers ends before what works for it.
func TestCrashedTask(t *testing.T) {
	var log bytes.Buffer
	var order []string
	ended := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, name) // the two end one after the other
			return nil
		}
	}
	crashing := func(context.Context) error { panic("injected") }
	err := Serve(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), List{ended("front")}, List{ended("behind"), crashing})
	if err == nil || err.Error() != "panic: injected" || !strings.Contains(log.String(), "tasks_test.go") {
		t.Errorf("%v\n%s", err, log.String())
	}
	if !slices.Equal(order, []string{"front", "behind"}) {
		t.Errorf("ended: %v", order)
	}
}
