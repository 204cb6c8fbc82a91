package daemon_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/daemon"
)

// What waits is tried again after its pause, beside hang-ups, and never when nothing waits.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pauses := []time.Duration{time.Second, time.Minute, 0}
		begin, done := time.Now(), []time.Duration(nil)
		due := func() time.Duration { return pauses[0] }
		again := func(context.Context) { done, pauses = append(done, time.Since(begin)), pauses[1:] }
		ended := make(chan error)
		go func() { ended <- daemon.OnHangUp(ctx, nil, nil, due, again) }()
		<-time.After(time.Hour) // of a clock that does not wait
		cancel()
		if err := <-ended; err != nil || !slices.Equal(done, []time.Duration{time.Second, 61 * time.Second}) {
			t.Errorf("done at %v, %v", done, err)
		}
	})
}
