package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// A group runs until the one before it has ended, also when the context has ended before: the last
// answer may need it.
func TestServeEndedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := make(chan struct{})
	front := func(ctx context.Context) error {
		<-began // as the last answer does
		<-ctx.Done()
		return nil
	}
	behind := func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return nil
	}
	if err := Serve(ctx, slog.New(slog.DiscardHandler), List{front}, List{behind}); err != nil {
		t.Error(err)
	}
}

// A panic in a part of the program ends it with an error, after a line in the log, and the groups
// end in their order.
func TestCrashedTask(t *testing.T) {
	var log bytes.Buffer
	var order []string
	ended := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, name) // they end one after the other
			return nil
		}
	}
	crashing := func(context.Context) error { panic("injected") }
	err := Serve(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), List{ended("front")}, List{ended("middle")}, List{ended("behind"), crashing})
	if err == nil || err.Error() != "panic: injected" || !strings.Contains(log.String(), "tasks_test.go") {
		t.Errorf("%v\n%s", err, log.String())
	}
	if !slices.Equal(order, []string{"front", "middle", "behind"}) {
		t.Errorf("ended: %v", order)
	}
}
