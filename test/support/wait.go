package support

import (
	"testing"
	"time"
)

// Limit is how long a wait may take on an idle machine.
const Limit = 30 * time.Second

// Eventually waits until a condition holds, and ends the test if it never holds.
func Eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for until := time.Now().Add(limit); !holds(); <-ticker.C {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
