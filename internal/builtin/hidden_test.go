package builtin_test

import (
	"log/slog"
	"strings"
	"testing"

	"meshddns/internal/builtin"
	"meshddns/internal/nameserver"
)

// TestHiddenIsTold: the log says once that no resolver finds the zones, and once that they do again.
func TestHiddenIsTold(t *testing.T) {
	var log strings.Builder
	reachable := true
	hidden := builtin.Hidden(nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, func() bool { return reachable }, slog.New(slog.NewTextHandler(&log, nil)))
	for _, reachable = range []bool{true, false, false, true, true, false} {
		if hidden() == reachable {
			t.Errorf("reachable %t, hidden %t", reachable, !reachable)
		}
	}
	if lost, again := strings.Count(log.String(), "no resolver finds"), strings.Count(log.String(), "resolvers find the built-in zones again"); lost != 2 || again != 1 {
		t.Errorf("lost %d times, found again %d times:\n%s", lost, again, log.String())
	}
}
