package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestListHangs has a firewall swallow the lists of many zones: every name stands, so the
// synchronisation succeeds soon, says which zones were not searched, and a change is made meanwhile.
func TestListHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		for i := range 100 {
			domain := fmt.Sprintf("zone%d.example", i)
			w.service(domain, w.account("key"))
			w.reserve(domain, "office")
		}
		w.service("late.example", w.account("key"))
		w.vendor.on(func(ctx context.Context, what, name string) error { return hangs("list", name)(ctx, what, name) })
		began := time.Now()
		result := w.begin(false)
		after(5 * time.Second)
		late := w.reserve("zone7.example", "late")
		w.due(late, reconcile.LaneAsked)
		after(time.Second)
		if !w.vendor.stands(late) {
			t.Error("a change waits for the list of its zone")
		}
		r := <-result
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the synchronisation takes %v", took)
		}
		if r.Bad != 0 || r.Counts[reconcile.ActionSkipped] != 102 || r.Counts[reconcile.ActionCreate] != 102 {
			t.Errorf("%d bad, %v", r.Bad, r.Counts)
		}
		if o := r.Records[len(r.Records)-1]; o.Fault.Code != reconcile.CodeNotSearched || !strings.Contains(o.Fault.Detail.String(), "nothing came for 10s") {
			t.Errorf("%+v", o)
		}
	})
}

// TestListTakesLong has a list that is slow, and goes on: it is read to its end.
func TestListTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		for i := range 8 {
			w.vendor.put(fmt.Sprintf("_mesh.lost%d.example.com", i), orphan(i+1))
		}
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "item" {
				<-time.After(6 * time.Second)
			}
			return nil
		})
		if r := w.sync(time.Hour); r.Counts[reconcile.ActionOrphan] != 8 || r.Counts[reconcile.ActionSkipped] != 0 {
			t.Errorf("%v", r.Counts)
		}
	})
}

// TestListHoldsNoOtherZone has the list of one zone hang while names of another one of the same
// account change: they change at once.
func TestListHoldsNoOtherZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("other.example", w.account("key"))
		w.sync(time.Minute)
		w.vendor.on(hangs("list", "example.com"))
		result := w.begin(false)
		name := w.reserve("other.example", "office")
		w.due(name, reconcile.LaneChanged)
		after(100 * time.Millisecond)
		if !w.vendor.stands(name) {
			t.Error("a change waits for the list of another zone")
		}
		<-result
	})
}

// TestSweepTellsOfZonesWithoutList has a provider that lists no zone: the report of a sweep says
// that orphans there were not looked for, and that of a plain synchronisation says nothing of it.
func TestSweepTellsOfZonesWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "list" {
				return &provider.Error{Kind: provider.Permission, Err: provider.ErrNotListed}
			}
			return nil
		})
		wantOutcomes(t, w.sync(time.Minute), "_host.example.com create")
		r := w.synchronise(time.Minute, true)
		wantOutcomes(t, r, "example.com skipped not_searched")
		if n := len(r.Records) - 1; !strings.Contains(r.Records[n].Fault.Detail.String(), "does not list") || r.Bad != 0 {
			t.Errorf("%+v", r.Records)
		}
		preview, err := w.engine.PreviewSweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantOutcomes(t, preview, "example.com skipped not_searched")
		if strings.Contains(w.log.String(), "not searched") {
			t.Error(w.log.String())
		}
	})
}

// TestSearchPanics has a vendor's list panic: that is this zone's failure, also after a restart,
// and the log tells it once.
func TestSearchPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "list" {
				panic("injected")
			}
			return nil
		})
		wantOutcomes(t, w.sync(time.Minute), "_host.example.com create", "example.com skipped not_searched")
		for range 3 {
			wantOutcomes(t, w.sync(time.Minute), "example.com skipped not_searched")
		}
		if n := strings.Count(w.log.String(), "injected"); n != 1 {
			t.Errorf("told %d times: %s", n, w.log.String())
		}
		w.restart()
		wantOutcomes(t, w.sync(time.Minute), "example.com skipped not_searched")
	})
}

// TestSearchOfAnEarlierPass has a search be under way when another pass begins, and then fail: the
// requests wait for the new pass, and have its report.
func TestSearchOfAnEarlierPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.sync(time.Minute)
		arrived, failed := make(chan struct{}), make(chan struct{})
		searches := 0
		w.fail(func(what string) error {
			if what != "leftovers" {
				return nil
			}
			if searches++; searches > 1 {
				<-time.After(5 * time.Second)
				return nil
			}
			close(arrived)
			<-failed
			return errors.New("failed")
		})
		w.vendor.put("_mesh.lost.example.com", orphan(9))
		result := w.begin(true)
		<-arrived
		w.exec(`UPDATE pass SET requested = 'change', requested_at = ?`, w.now().UnixMilli())
		w.engine.Wake()
		after(time.Second)
		close(failed)
		if r := <-result; !r.OK() || r.Trigger != reconcile.TriggerManual || r.Counts[reconcile.ActionOrphan] != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestOrphansAreStrangers has places that may be in the zone that is listed, and values that are wanted:
// a value is an orphan only where another zone has the place, once, and a sweep fails for none.
func TestOrphansAreStrangers(t *testing.T) {
	for what, test := range map[string]struct {
		endpoint, id string // of the place
		other        bool   // its account has another key
		builtin      bool   // its account is that of the built-in server
		orphans      int
	}{
		"the same place":                {"", "example.com", false, false, 0},
		"a zone that was made anew":     {"", "before", false, false, 0},
		"another key":                   {"", "example.com", true, false, 0},
		"another key, no id":            {"", "", true, false, 0},
		"another key's zone":            {"", "elsewhere", true, false, 1},
		"another spelling":              {"VENDOR", "example.comVENDOR", true, false, 0},
		"another spelling, without ids": {"VENDOR", "", true, false, 0},
		"a built-in zone":               {"", "", true, true, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "manual")
				key := "key"
				if test.other {
					key = "another"
				}
				const name = "_mesh.lost.example.com"
				w.exec(`INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, NULL, '', 0)`, name)
				w.exec(`INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
					VALUES (?, ?, 'example.com', ?, 'leftover', ?, '', 0, 0, '', '', '', 0, '', '')`, name, w.account(key, test.endpoint), test.id, orphan(7))
				if test.builtin {
					w.others["another"] = newVendor()
					w.exec(`UPDATE accounts SET provider = 'builtin' WHERE access_key_id = 'another'`)
				}
				w.exec(`UPDATE configuration SET sync_mode = 'upsert-only'`) // what is left stays
				w.vendor.put(name, orphan(7))
				found := 0
				for range 2 {
					found += w.synchronise(time.Minute, true).Counts[reconcile.ActionOrphan]
				}
				if found > test.orphans || found == 0 && test.builtin { // an id may not be known yet, the provider is
					t.Errorf("%d orphans, want %d", found, test.orphans)
				}
			})
		})
	}
}

// TestSearchBeforeTheNameCounts has a search end while the failure of the only name there is stored,
// and does not count yet: the report says of the zone what the name tells, and no more.
func TestSearchBeforeTheNameCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.vendor.on(func(context.Context, string, string) error { return &provider.Error{Kind: provider.Network} })
		w.fail(func(what string) error {
			if what == "settled" {
				<-time.After(time.Second)
			}
			return nil
		})
		wantOutcomes(t, w.sync(time.Minute), "_host.example.com failed network")
	})
}

// TestZonesWithoutIDs has two keys with a zone of one name each. Without an id of it these may be two
// zones, and each is searched.
func TestZonesWithoutIDs(t *testing.T) {
	for _, nameless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "manual")
			w.vendor.nameless = nameless
			w.service("example.com", w.account("another"))
			w.reserve("example.com", "office")
			want := 1
			if nameless {
				want = 2
			}
			if w.sync(time.Minute); w.vendor.called("list example.com") != want {
				t.Errorf("without ids %t: the zone is listed %d times, want %d", nameless, w.vendor.called("list example.com"), want)
			}
		})
	}
}

// TestWantedIsNoOrphan has a name be reserved while a sweep lists its zone, in which the wanted value
// stands already: it is no orphan, and stays.
func TestWantedIsNoOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("example.com", w.account("key"))
		arrived, open := make(chan struct{}, 1), make(chan struct{})
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "list" {
				arrived <- struct{}{}
				<-open
			}
			return nil
		})
		result := w.begin(true)
		<-arrived
		name := w.reserve("example.com", "late")
		w.vendor.put(name, "v=mesh1 n=1 o="+owner+" tcp://203.0.113.7:1")
		close(open)
		if r := <-result; r.Counts[reconcile.ActionOrphan] != 0 || r.Counts[reconcile.ActionDelete] != 0 || !w.vendor.stands(name) {
			t.Errorf("%+v", r)
		}
	})
}

// TestWantedElsewhere has a value stand where no place knows it, while the same value is wanted at another account, as after
// a move and a restore. It is an orphan where that account surely has another zone, and goes when the wanted value stands.
func TestWantedElsewhere(t *testing.T) {
	builtin, vendor := reconcile.Account{Provider: "builtin"}, reconcile.Account{Provider: "vendor", AccessKeyID: "key", Secret: "secret"}
	user, spelled := vendor, vendor
	user.AccessKeyID, spelled.Endpoint = "user", "VENDOR"
	for what, test := range map[string]struct {
		wanted, stray reconcile.Account
		down          bool // no zone is found for the wanted value
		orphans       int
	}{
		"at the built-in server":        {builtin, vendor, false, 1},
		"at a vendor":                   {vendor, builtin, false, 1},
		"at a vendor that is down":      {vendor, builtin, true, 1},
		"in another user's zone":        {user, vendor, false, 1},
		"in a zone that is not known":   {user, vendor, true, 0},
		"in a zone that may be the one": {spelled, vendor, false, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "auto")
				w.others["builtin"], w.others["user"] = newVendor(), newVendor()
				w.others["user"].user = "user"
				w.service("inner.example.com", w.use(test.stray))
				w.service("example.com", w.use(test.wanted))
				name, wanted, stray := w.reserve("example.com", "moved"), w.at(test.wanted), w.at(test.stray)
				stray.put(name, "v=mesh1 n=1 o="+owner+" tcp://203.0.113.7:1")
				wanted.on(func(_ context.Context, what, _ string) error {
					if test.down && what == "zone" {
						return &provider.Error{Kind: provider.Network}
					}
					return nil
				})
				if r := w.synchronise(time.Minute, true); r.Counts[reconcile.ActionOrphan] != test.orphans {
					t.Errorf("%d orphans, want %d: %+v", r.Counts[reconcile.ActionOrphan], test.orphans, r.Records)
				}
				if after(time.Minute); test.down && !stray.stands(name) {
					t.Error("the value is gone before the wanted one stands")
				}
				test.down = false
				w.sync(time.Minute)
				if after(time.Minute); !wanted.stands(name) || stray.stands(name) != (test.orphans == 0) {
					t.Errorf("wanted stands: %t, stray stands: %t\n%s", wanted.stands(name), stray.stands(name), w.log.String())
				}
			})
		})
	}
}
