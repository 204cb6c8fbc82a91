package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/provider"
)

// fails makes every call to the vendor fail.
func fails(kind provider.Kind) func(context.Context, string, string) error {
	return func(context.Context, string, string) error { return &provider.Error{Kind: kind, Detail: "no secret"} }
}

func works(context.Context, string, string) error { return nil }

// TestOutageIsToldInFull has a zone fail for 100 s. The log tells of it when its names have failed for
// good, and counts its time from the first failure.
func TestOutageIsToldInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.exec(`UPDATE configuration SET max_retries = 3`)
		w.vendor.on(fails(provider.Network))
		w.start()
		began := time.Now()
		after(100 * time.Second)
		if !strings.Contains(w.log.String(), "zone is down") {
			t.Fatalf("the outage is not told:\n%s", w.log.String())
		}
		w.vendor.on(works)
		for !strings.Contains(w.log.String(), "zone is well again") {
			after(time.Second)
		}
		_, told, _ := strings.Cut(w.log.String(), "zone is well again")
		_, told, _ = strings.Cut(told, "after=")
		told, _, _ = strings.Cut(told, "\n")
		lasted, err := time.ParseDuration(told)
		if whole := time.Since(began); err != nil || lasted < whole-3*time.Second || lasted > whole {
			t.Errorf("%q after an outage of %v, %v:\n%s", told, whole, err, w.log.String())
		}
	})
}
