package provider

import (
	"context"
	"errors"
	"time"

	"meshddns/internal/daemon"
)

// Backoff is the schedule of retries after transient failures.
type Backoff struct {
	First   time.Duration // before the first retry; each further pause is twice as long
	Retries int
}

// maxDelay limits the doubling. A longer First stays unchanged.
const maxDelay = 300 * time.Second

// Delay returns the pause after a number of failed attempts: the provider's RetryAfter, or a pause
// that doubles each time. Jitter prevents that many hosts retry at the same moment.
func (b Backoff) Delay(failed int, err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return min(e.RetryAfter, daemon.MaxRetryAfter)
	}
	return daemon.Backoff{First: b.First, Longest: maxDelay}.Jittered(failed)
}

// poll calls done, with pauses, until it is true. It returns false if the context ends before.
func poll(ctx context.Context, pauses daemon.Backoff, done func() bool) bool {
	for failed := 1; !done(); failed++ {
		if !pause(ctx, pauses.Pause(failed)) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
