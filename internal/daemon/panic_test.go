package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestCall(t *testing.T) {
	broken := errors.New("broken")
	if err := Call(func() error { return broken }); err != broken {
		t.Errorf("an error has become %v", err)
	}
	err := Call(func() error { panic("injected") })
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Error("crashed", "error", err)
	if err == nil || err.Error() != "panic: injected" || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "panic_test.go") {
		t.Errorf("%v; log: %s", err, log.String())
	}
}
