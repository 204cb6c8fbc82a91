package provider

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff says when to make a call again after a transient failure.
type Backoff struct {
	First   time.Duration // before the first retry; each further one waits twice as long
	Retries int
}

// MaxRetryAfter bounds the pause that a provider can ask for.
const MaxRetryAfter = time.Hour

// maxDelay bounds the doubling; a longer First stays as it is.
const maxDelay = 300 * time.Second

// delay is the pause after a number of failed attempts, before jitter.
func (b Backoff) delay(failed int) time.Duration {
	delay := b.First
	for range failed - 1 {
		delay = min(2*delay, max(maxDelay, b.First))
	}
	return delay
}

// Delay is the pause after a number of failed attempts: what the provider has
// asked for, else one that doubles, with jitter so that many hosts do not come
// back at once.
func (b Backoff) Delay(failed int, err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return min(e.RetryAfter, MaxRetryAfter)
	}
	delay := b.delay(failed)
	return delay + rand.N(delay/5+1)
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
