package check

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/mesh"
)

// TestIdle: the endpoints are read every five seconds, however often one is probed, and only if something was stored.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, every5)
		w.reserve(2, 100, "tcp://192.0.2.2:1")
		w.Watch.now = time.Now
		looks, probes := 0, make(chan bool, 1<<20)
		w.addresses = func() mesh.Addresses { looks++; return mesh.Addresses{} }
		w.Watch.probe = func(context.Context, target) error { probes <- true; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		w.must(w.Run(ctx))
		if looks != 12 || len(probes) < 1980 {
			t.Errorf("%d looks and %d probes in a minute, want 12 and about 2300", looks, len(probes))
		}
		if allocations := testing.AllocsPerRun(10, func() { w.must(w.load(t.Context())) }); allocations > 2 {
			t.Errorf("%v allocations of a look without a change", allocations)
		}
		w.db.Exec(`UPDATE services SET checking = ''`)
		w.must(w.load(t.Context()))
		if len(w.targets) != 0 {
			t.Error("a change is not seen")
		}
	})
}
