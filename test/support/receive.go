package support

import (
	"testing"
	"time"
)

// Patience bounds a wait that nothing else bounds: an answer, or a value of a channel.
const Patience = 3 * time.Minute

// Receive takes what comes from a channel, or ends the test.
func Receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience):
		t.Fatal("nothing came in time")
	}
	return v
}
