package provider

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestBackoffDelay: pauses double to 300 s. A longer first one stays. Jitter makes a pause longer by at most a fifth.
func TestBackoffDelay(t *testing.T) {
	for first, want := range map[time.Duration][]int{
		time.Second:       {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300},
		5 * time.Second:   {5, 10, 20, 40, 80, 160, 300, 300},
		300 * time.Second: {300, 300},
		time.Hour:         {3600, 3600, 3600},
	} {
		for i, seconds := range want {
			want := time.Duration(seconds) * time.Second
			if got := (Backoff{First: first}).Delay(i+1, nil); got < want || got > want*6/5 {
				t.Errorf("%v after %d failures: %v, want %v", first, i+1, got, want)
			}
		}
	}
}

// TestBackoffJitterAndWish: jitter makes a pause longer by at most a fifth. The provider's RetryAfter
// wins, up to an hour.
func TestBackoffJitterAndWish(t *testing.T) {
	policy := Backoff{First: 5 * time.Second, Retries: 3}
	for range 100 {
		if got := policy.Delay(2, errors.New("disk is full")); got < 10*time.Second || got > 12*time.Second {
			t.Errorf("%v", got)
		}
	}
	wish := func(after time.Duration) error {
		return fmt.Errorf("wrapped: %w", &Error{Kind: Throttled, RetryAfter: after})
	}
	for after, want := range map[time.Duration]time.Duration{90 * time.Second: 90 * time.Second, time.Hour: time.Hour, time.Hour + 1: time.Hour} {
		if got := policy.Delay(1, wish(after)); got != want {
			t.Errorf("%v for %v", got, after)
		}
	}
}

// TestTransient: only failures that may pass are retried.
func TestTransient(t *testing.T) {
	for _, kind := range []Kind{Network, Temporary, Throttled, Changed} {
		if !(&Error{Kind: kind}).Transient() {
			t.Errorf("%s is for good", kind)
		}
	}
	for _, kind := range []Kind{BadCredentials, Permission, ZoneNotFound, Conflict, Invalid, Quota, ClockSkew, BadAnswer, "unknown"} {
		if (&Error{Kind: kind}).Transient() {
			t.Errorf("%s is transient", kind)
		}
	}
}
