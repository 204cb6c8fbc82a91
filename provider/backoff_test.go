package provider

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDelay(t *testing.T) {
	for first, want := range map[time.Duration][]int{
		time.Second:       {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300},
		5 * time.Second:   {5, 10, 20, 40, 80, 160, 300, 300},
		300 * time.Second: {300, 300},
		time.Hour:         {3600, 3600, 3600},
	} {
		for i, seconds := range want {
			if got := (Backoff{First: first}).delay(i + 1); got != time.Duration(seconds)*time.Second {
				t.Errorf("%v after %d failures: %v, want %d s", first, i+1, got, seconds)
			}
		}
	}
}

// attemptsTest are calls that fail, and how often and how long they are made.
type attemptsTest struct {
	policy      Backoff
	errs        []error // of the attempts; the last repeats
	attempts    int
	least, most time.Duration
}

// TestBackoffAttempts counts attempts and measures pauses; jitter makes a
// pause longer by a fifth at most.
func TestBackoffAttempts(t *testing.T) {
	fault := func(kind Kind) error { return fmt.Errorf("wrapped: %w", &Error{Kind: kind}) }
	busy := &Error{Kind: Throttled, RetryAfter: 90 * time.Second}
	policy := Backoff{5 * time.Second, 3}
	tests := map[string]attemptsTest{
		"success":          {policy, []error{nil}, 1, 0, 0},
		"second time":      {policy, []error{fault(Network), nil}, 2, 5 * time.Second, 6 * time.Second},
		"no retries":       {Backoff{5 * time.Second, 0}, []error{fault(Network)}, 1, 0, 0},
		"retry after":      {policy, []error{busy, nil}, 2, 90 * time.Second, 90 * time.Second},
		"not a provider's": {policy, []error{errors.New("disk is full")}, 1, 0, 0},
		"then for good":    {policy, []error{fault(Temporary), fault(Permission)}, 2, 5 * time.Second, 6 * time.Second},
	}
	for _, kind := range []Kind{Network, Temporary, Throttled} {
		tests[string(kind)] = attemptsTest{policy, []error{fault(kind)}, 4, 35 * time.Second, 42 * time.Second}
	}
	for _, kind := range []Kind{
		BadCredentials, Permission, ZoneNotFound, Conflict, Invalid, Quota,
		ClockSkew, BadAnswer, Kind("unknown"),
	} {
		tests[string(kind)] = attemptsTest{policy, []error{fault(kind)}, 1, 0, 0}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAttempts(t, test) })
		})
	}
}

func testAttempts(t *testing.T, test attemptsTest) {
	started, calls := time.Now(), 0
	attempts, err := test.policy.Do(t.Context(), func() error {
		calls++
		return test.errs[min(calls, len(test.errs))-1]
	})
	if attempts != test.attempts || calls != attempts || !errors.Is(err, test.errs[min(calls, len(test.errs))-1]) {
		t.Errorf("%d attempts, %d calls, %v; want %d", attempts, calls, err, test.attempts)
	}
	if took := time.Since(started); took < test.least || took > test.most {
		t.Errorf("took %v, want %v to %v", took, test.least, test.most)
	}
}

// TestBackoffEnds has callers that go: nobody waits for them.
func TestBackoffEnds(t *testing.T) {
	fail := func() error { return &Error{Kind: Network} }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		started := time.Now()
		if attempts, err := (Backoff{5 * time.Second, 3}).Do(ctx, fail); attempts != 1 || err == nil || time.Since(started) != 0 {
			t.Errorf("a pause longer than the time: %d attempts, %v, after %v", attempts, err, time.Since(started))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started := time.Now()
		time.AfterFunc(2*time.Second, cancel)
		if attempts, err := (Backoff{5 * time.Second, 3}).Do(ctx, fail); attempts != 1 || err == nil || time.Since(started) != 2*time.Second {
			t.Errorf("cancelled in a pause: %d attempts, %v, after %v", attempts, err, time.Since(started))
		}
	})
}
