package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// lookDuring makes a second look at a name while a change of its endpoints waits, and wants that nothing is written in
// half an hour.
func (w *world) lookDuring(lane reconcile.Lane, name string) {
	w.t.Helper()
	w.exec(`UPDATE services SET txt_endpoints = '["tcp://203.0.113.8:1"]'`)
	w.exec(`UPDATE names SET version = version + 1, lane = ?, due = ? WHERE name = ?`, lane, w.now().Add(time.Hour).UnixMilli(), name)
	after(5 * time.Second)
	w.exec(`UPDATE places SET doubt = standing, look_at = ? WHERE name = ?`, w.now().UnixMilli(), name)
	before := w.vendor.called("change")
	w.look(name)
	after(time.Second)
	w.vendor.on(func(context.Context, string, string) error { return nil })
	after(30 * time.Minute)
	if n := w.vendor.called("change") - before; n > 0 {
		w.t.Errorf("%d writes", n)
	}
	if n := w.count(fmt.Sprintf(`SELECT count(*) FROM names WHERE name = '%s' AND lane = '%s' AND due > 0`, name, lane)); n != 1 {
		w.t.Error("the change does not wait any more")
	}
	if n := w.count(`SELECT count(*) FROM places WHERE doubt <> ''`); n > 0 {
		w.t.Error("no look has settled the doubt")
	}
}

// TestFailedLookWritesNothing has a change wait for a person, or for its share of the writes, and a second look fail
// meanwhile: the next look settles the doubt and writes nothing either.
func TestFailedLookWritesNothing(t *testing.T) {
	for mode, lane := range map[string]reconcile.Lane{"manual": reconcile.LaneHeld, "auto": reconcile.LaneLater} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mode)
				w.exec(`UPDATE configuration SET max_retries = 3`)
				w.service("example.com", w.account("key"))
				name := w.reserve("example.com", "a")
				w.sync(time.Minute)
				after(2 * reconcile.SecondLook)
				w.vendor.on(func(_ context.Context, what, of string) error {
					if what == "read" && of == name {
						return &provider.Error{Kind: provider.Network}
					}
					return nil
				})
				w.lookDuring(lane, name)
			})
		})
	}
}

// TestLookBeforeAMove has a value wait in mode manual for its move to another account: a second look at its old place
// does not begin the move.
func TestLookBeforeAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		after(2 * reconcile.SecondLook)
		w.exec(`UPDATE services SET account = ?`, w.account("second", "elsewhere"))
		w.lookDuring(reconcile.LaneHeld, name)
	})
}

// TestPassLeavesOutWhatWaits has a change of a node wait for its share of the writes, which begins to wait when the pass has
// listed its name: a pass by the clock leaves it out, and one that a person asks for takes it, wherever it waits.
func TestPassLeavesOutWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		after(2 * reconcile.SecondLook)
		w.exec(`UPDATE services SET txt_endpoints = '["tcp://203.0.113.8:1"]'`)
		w.fail(func(what string) error {
			if strings.HasPrefix(what, "state ") && strings.Contains(what, name) {
				w.exec(`UPDATE names SET version = version + 1, lane = 'later', due = ? WHERE name = ?`, w.now().Add(time.Hour).UnixMilli(), name)
			}
			return nil
		})
		before := w.vendor.called("change")
		if after(11 * time.Minute); w.vendor.called("change") > before || w.count(`SELECT count(*) FROM names WHERE lane = 'later'`) != 1 {
			t.Errorf("passes by the clock: %d writes", w.vendor.called("change")-before)
		}
		w.fail(func(string) error { return nil })
		w.sync(time.Minute)
		if n := w.vendor.called("change"); n == before || w.count(`SELECT count(*) FROM names WHERE due > 0`) != 0 {
			t.Error("a person's pass leaves out what waits")
		}
	})
}
