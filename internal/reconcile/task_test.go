package reconcile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestTaskEndsWithItsLastSettlement has a name whose value moves to a key that is refused, and holds the
// settlement of the new place until the old one is settled. The next task of the name must not begin before
// both are stored: it would store the new place once more.
func TestTaskEndsWithItsLastSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "office")
		w.due(name, reconcile.LaneAsked)
		w.sync(time.Minute)
		w.exec(`UPDATE services SET account = ?`, w.account("refused", "elsewhere"))
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "zone" {
				return &provider.Error{Kind: provider.BadCredentials}
			}
			return nil
		})
		open := make(chan struct{})
		release := sync.OnceFunc(func() { close(open) })
		w.settles = func(s reconcile.Settlement) {
			for _, p := range s.Places {
				if p.ID == 0 {
					<-open
				}
			}
		}
		w.due(name, reconcile.LaneAsked)
		after(time.Second)
		w.due(name, reconcile.LaneAsked)
		after(time.Second)
		release()
		after(time.Minute)
		if said := w.log.String(); strings.Contains(said, "UNIQUE") || strings.Contains(said, "the database fails") {
			t.Errorf("%s", said)
		}
		if places := w.count(`SELECT count(*) FROM places WHERE name = '` + name + `'`); places != 2 {
			t.Errorf("%d places, want the old and the new one", places)
		}
		w.stop()
	})
}
