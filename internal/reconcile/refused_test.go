package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/reconcile"
)

// TestWarnRefusedInTime has the vendor of a name not answer: nothing is known of its CAA records after three seconds.
func TestWarnRefusedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		asked := 0
		w.vendor.on(func(ctx context.Context, what, _ string) error {
			asked++
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		if warnings := w.engine.WarnRefused(t.Context(), name); len(warnings) > 0 || asked == 0 {
			t.Errorf("%v after %d calls", warnings, asked)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		w.fail(func(string) error { return reconcile.ErrDisabled })
		if warnings := w.engine.WarnRefused(t.Context(), name); len(warnings) > 0 {
			t.Errorf("%v without the database", warnings)
		}
	})
}
