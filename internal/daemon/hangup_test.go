package daemon_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/daemon"
)

// What waits is tried again after a second, and after twice the last pause, a minute at most; never when nothing waits.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		vain := []int{1, 2, 3, 4, 5, 6, 7, 8, 1, 0}
		last, pauses := time.Now(), []time.Duration(nil)
		tries := func() int { return vain[0] }
		again := func(context.Context) {
			pauses, last, vain = append(pauses, time.Since(last)/time.Second), time.Now(), vain[1:]
		}
		ended := make(chan error)
		go func() { ended <- daemon.OnHangUp(ctx, nil, nil, tries, again) }()
		<-time.After(time.Hour) // of a clock that does not wait
		cancel()
		if err := <-ended; err != nil || !slices.Equal(pauses, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 1}) {
			t.Errorf("the pauses are %d seconds, %v", pauses, err)
		}
	})
}
