package daemon

import (
	"math"
	"testing"
	"time"
)

// TestBackoff: pauses double from the first to the longest one, however many failures there were. Jitter makes a
// pause longer by at most a fifth.
func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		Backoff
		want []time.Duration // in seconds
	}{
		{Backoff{time.Second, 5 * time.Second}, []time.Duration{1, 2, 4, 5, 5}},
		{Backoff{time.Second, 4 * time.Second}, []time.Duration{1, 2, 4, 4}},
		{Backoff{time.Hour, time.Minute}, []time.Duration{3600, 3600}},
	} {
		for i, want := range test.want {
			if got := test.Pause(i + 1); got != want*time.Second {
				t.Errorf("%v after %d failures: %v, want %d s", test.Backoff, i+1, got, want)
			}
			if got := test.Jittered(i + 1); got < want*time.Second || got > want*time.Second*6/5 {
				t.Errorf("%v after %d failures, with jitter: %v", test.Backoff, i+1, got)
			}
		}
		if got := test.Pause(math.MaxInt); got != test.Pause(len(test.want)) {
			t.Errorf("%v after ever so many failures: %v", test.Backoff, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "1.5": 0, "soon": 0, "99999999999": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:04 GMT": 0,
	} {
		if got := RetryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
