package provider

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff is the schedule of retries after transient failures.
type Backoff struct {
	First   time.Duration // before the first retry; each further pause is twice as long
	Longest time.Duration // limits the doubling; 0: maxDelay
	Retries int
}

// MaxRetryAfter is the longest pause that a provider can ask for.
const MaxRetryAfter = time.Hour

// maxDelay limits the doubling where a Backoff does not. A longer First stays unchanged.
const maxDelay = 300 * time.Second

// delay returns the pause after a number of failed attempts, before jitter.
func (b Backoff) delay(failed int) time.Duration {
	delay := b.First
	for range failed - 1 {
		delay = min(2*delay, max(cmp.Or(b.Longest, maxDelay), b.First))
	}
	return delay
}

// Delay returns the pause after a number of failed attempts: the provider's RetryAfter, or a pause
// that doubles each time. Jitter prevents that many hosts retry at the same moment.
func (b Backoff) Delay(failed int, err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return min(e.RetryAfter, MaxRetryAfter)
	}
	delay := b.delay(failed)
	return delay + rand.N(delay/5+1)
}

// poll calls done, with pauses, until it is true. It returns false if the context ends before.
func (b Backoff) poll(ctx context.Context, done func() bool) bool {
	for failed := 1; !done(); failed++ {
		if !pause(ctx, b.delay(failed)) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
