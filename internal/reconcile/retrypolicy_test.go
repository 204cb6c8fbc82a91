package reconcile_test

import (
	"math"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestRetryPolicy gives numbers of a configuration, and what the engine makes of them.
func TestRetryPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		interval, retries *int64
		want              provider.Backoff
	}{
		"absent":   {nil, nil, provider.Backoff{First: 5 * time.Second, Retries: 3}},
		"given":    {new(int64(7)), new(int64(2)), provider.Backoff{First: 7 * time.Second, Retries: 2}},
		"zero":     {new(int64(0)), new(int64(0)), provider.Backoff{First: 5 * time.Second, Retries: 0}},
		"negative": {new(int64(-1)), new(int64(-1)), provider.Backoff{First: 5 * time.Second, Retries: 3}},
		"at most":  {new(int64(3600)), new(int64(10)), provider.Backoff{First: time.Hour, Retries: 10}},
		"too much": {new(int64(3601)), new(int64(11)), provider.Backoff{First: time.Hour, Retries: 10}},
		"huge":     {new(int64(math.MaxInt64)), new(int64(math.MaxInt64)), provider.Backoff{First: time.Hour, Retries: 10}},
		"least":    {new(int64(math.MinInt64)), new(int64(math.MinInt64)), provider.Backoff{First: 5 * time.Second, Retries: 3}},
	} {
		if got := reconcile.RetryPolicy(test.interval, test.retries); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
