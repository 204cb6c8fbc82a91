package nameserver

import (
	"testing"
	"time"
)

// TestFailureLog: one failure a minute is logged, also after the clock was set back.
func TestFailureLog(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var l failureLog
	for _, test := range []struct {
		after  time.Duration
		hushed uint64
		ok     bool
	}{
		{0, 0, true}, {0, 0, false}, {failureInterval - 1, 0, false}, {failureInterval, 2, true},
		{-time.Hour, 0, true}, {failureInterval - time.Hour - 1, 0, false}, {failureInterval - time.Hour, 1, true},
	} {
		if hushed, ok := l.allow(begun.Add(test.after)); hushed != test.hushed || ok != test.ok {
			t.Errorf("after %v: %d, %v, want %d, %v", test.after, hushed, ok, test.hushed, test.ok)
		}
	}
}
