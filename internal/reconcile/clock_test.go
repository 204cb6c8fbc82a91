package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestClockIsSet has the clock be ahead when names become due, and be set right then, in the running
// program and beside a restart; or begin in 1970 and jump forward.
func TestClockIsSet(t *testing.T) {
	for _, ahead := range []time.Duration{8 * time.Hour, -30 * 365 * 24 * time.Hour} {
		for _, restart := range []bool{false, true} {
			t.Run(map[bool]string{true: "ahead", false: "behind"}[ahead > 0]+map[bool]string{true: ", restarted"}[restart], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testClockIsSet(t, ahead, restart) })
			})
		}
	}
}

func testClockIsSet(t *testing.T, ahead time.Duration, restart bool) {
	w := newWorld(t, "auto")
	w.service("down.example", w.account("key"))
	w.clock.Store(int64(ahead))
	w.start()
	after(10 * time.Second)
	w.vendor.on(func(_ context.Context, _, name string) error {
		if zoneOf(name) == "down.example" {
			return &provider.Error{Kind: provider.Temporary}
		}
		return nil
	})
	w.service("gone.example", w.account("key"))
	gone := w.reserve("gone.example", "office")
	w.due(gone, reconcile.LaneChanged)
	down := w.reserve("down.example", "office")
	w.due(down, reconcile.LaneChanged)
	after(3 * time.Second)
	w.exec(`DELETE FROM bindings WHERE usage_id = (SELECT id FROM usages WHERE name = ?1)`, gone)
	w.exec(`DELETE FROM usages WHERE name = ?`, gone)
	w.due(gone, reconcile.LaneAsked)
	after(time.Second) // it is withdrawn, to be looked at once more
	changed := w.reserve("gone.example", "changed")
	w.due(changed, reconcile.LaneChanged)
	w.exec(`UPDATE pass SET requested = 'change', requested_at = ?`, w.now().Add(reconcile.Debounce).UnixMilli())

	synctest.Wait() // the engine sees the new clock and the well provider together
	w.clock.Store(0)
	w.vendor.on(func(context.Context, string, string) error { return nil })
	if restart {
		w.restart()
	}
	after(30 * time.Second)
	for _, name := range []string{changed, down} {
		if !w.vendor.stands(name) {
			t.Errorf("%s is missing 30 s after the clock was set", name)
		}
	}
	if r := w.sync(time.Minute); !r.OK() {
		t.Errorf("%+v", r)
	}
	after(2 * reconcile.SecondLook)
	if n := w.count(`SELECT count(*) FROM places WHERE name = '` + gone + `'`); n != 0 {
		t.Error("the second look is not made")
	}
	before := w.vendor.called("")
	after(time.Minute)
	if n := w.vendor.called("") - before; n > 20 {
		t.Errorf("%d calls in a minute", n)
	}
}

// TestClockSkewIsTriedAgain has a provider refuse what a wrong clock has signed.
func TestClockSkewIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.exec(`UPDATE configuration SET max_retries = 3`)
		w.vendor.on(func(context.Context, string, string) error { return &provider.Error{Kind: provider.ClockSkew} })
		w.start()
		after(3 * time.Second)
		w.vendor.on(func(context.Context, string, string) error { return nil })
		after(10 * time.Second)
		if !w.vendor.stands("_host.example.com") {
			t.Error("it is not tried again")
		}
	})
}

// TestClockSkewBeforeStart has a provider refuse what a clock an hour ahead has signed, and starts the program with the
// right clock, as another machine does: the names do not wait until the hour has passed.
func TestClockSkewBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		names := []string{w.reserve("example.com", "a"), w.reserve("example.com", "b"), "_host.example.com"}
		w.clock.Store(int64(time.Hour))
		w.exec(`UPDATE configuration SET max_retries = 3`)
		w.vendor.on(func(context.Context, string, string) error { return &provider.Error{Kind: provider.ClockSkew} })
		w.start()
		after(3 * time.Second)
		w.stop()
		w.clock.Store(0)
		w.vendor.on(func(context.Context, string, string) error { return nil })
		w.restart()
		if r := w.sync(time.Minute); !r.OK() {
			t.Errorf("%+v", r)
		}
		for _, name := range names {
			if !w.vendor.stands(name) {
				t.Errorf("%s is missing", name)
			}
		}
	})
}

// TestClockSkewIsTold has a provider refuse what a wrong clock has signed: a caller hears of it at once, and
// another one after the clock is right that it is well, in mode manual too. The names are tried again meanwhile.
func TestClockSkewIsTold(t *testing.T) {
	for _, mode := range []string{"auto", "manual"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			w.exec(`UPDATE configuration SET max_retries = 3`)
			w.start()
			after(time.Second)
			skewed := &provider.Error{Kind: provider.ClockSkew}
			w.vendor.on(func(context.Context, string, string) error { return skewed })
			for range 2 {
				began := time.Now()
				r := w.sync(time.Minute)
				if r.Bad != 1 || r.FirstBad().Fault.Code != string(provider.ClockSkew) || time.Since(began) > time.Second {
					t.Errorf("%s: %+v after %s", mode, r, time.Since(began))
				}
			}
			w.vendor.on(func(context.Context, string, string) error { return nil })
			after(10 * time.Second)
			if !w.vendor.stands("_host.example.com") {
				t.Error("it is not tried again", mode)
			}
			w.vendor.on(func(context.Context, string, string) error { return skewed })
			w.sync(time.Minute)
			w.vendor.on(func(context.Context, string, string) error { return nil })
			if r := w.sync(time.Minute); !r.OK() {
				t.Errorf("%s: the clock is right: %+v", mode, r)
			}
		})
	}
}

// TestLookBeginsAtItsTime loses the answer to a write that arrives 58 s later, and releases its usage. A pass
// reads the name after 55 s, and its batch ends after a minute: the release waits for a look that began later.
func TestLookBeginsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.sync(time.Minute)
		late, slow := w.reserve("example.com", "a"), w.reserve("example.com", "b")
		w.vendor.on(func(_ context.Context, what, name string) error {
			if what == "change" && name == late {
				return &provider.Error{Kind: provider.Network}
			}
			return nil
		})
		w.due(late, reconcile.LaneChanged)
		after(100 * time.Millisecond)
		w.release(late)
		after(reconcile.SecondLook - 5*time.Second)
		w.vendor.on(func(_ context.Context, what, name string) error {
			if what == "read" && name == slow {
				<-time.After(7 * time.Second)
			}
			return nil
		})
		result := w.begin(false)
		after(3 * time.Second)
		w.vendor.put(late, orphan(1))
		<-result
		if w.count(`SELECT count(*) FROM usages`) != 2 {
			t.Error("the prefix is free although the value stands")
		}
		after(2 * reconcile.SecondLook)
		if w.vendor.stands(late) || w.count(`SELECT count(*) FROM usages`) != 1 {
			t.Errorf("the value stands: %t; %d usages are left, want 1", w.vendor.stands(late), w.count(`SELECT count(*) FROM usages`))
		}
	})
}
