package reconcile_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// release lets the usages of a name go.
func (w *world) release(name string) {
	w.exec(`UPDATE bindings SET status = 'releasing' WHERE usage_id = (SELECT id FROM usages WHERE name = ?)`, name)
	w.due(name, reconcile.LaneAsked)
}

// TestManyRecordsOfAName has a usage with more records than a zone's queue has room for: one pass
// publishes them all.
func TestManyRecordsOfAName(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.reserve("example.com", "many")
		const count = 1200 // peers, each with an owner name of its own, because a name has at most 100 records of a type
		w.exec(`INSERT INTO usage_options VALUES (?, '["iroh"]', '', '')`, w.last)
		for i := range count {
			w.exec(`INSERT INTO leases VALUES (?1, ?1, ?2, 'p' || ?1, CAST(?1 AS BLOB), '[]', '[]', 60, '[]', ?3, '["udp://198.51.100.1:1"]', 1, '', 0)`,
				i+1, w.last, fmt.Sprintf("%064x", i+1))
		}
		w.start()
		after(time.Second)
		if standing := w.count(`SELECT count(*) FROM places WHERE type = 'TXT' AND state = 'published'`); standing != count {
			t.Errorf("%d of %d records are published", standing, count)
		}
	})
}

// TestWaiterOfFullQueue has a caller wait for a name while the queue of its zone is full: it is told
// when the value stands.
func TestWaiterOfFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		open := make(chan struct{})
		w.vendor.on(func(context.Context, string, string) error { <-open; return nil })
		w.start()
		for i := range 1100 {
			w.due(w.reserve("example.com", fmt.Sprint("old", i)), reconcile.LaneChanged)
		}
		after(time.Second)
		name := w.reserve("example.com", "young")
		waiter := w.engine.Expect(name)
		defer waiter.Close()
		w.due(name, reconcile.LaneChanged)
		told := make(chan bool)
		go func() {
			waiter.Wait(t.Context(), 2)
			told <- w.vendor.stands(name)
		}()
		after(time.Second)
		close(open)
		if !<-told {
			t.Error("the caller is told before the value stands")
		}
	})
}

// TestChangesGoFirst has a name change while the names of its zone are looked at by a pass: its write
// does not wait for the reads of those that are unchanged.
func TestChangesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		for i := range 100 {
			w.reserve("example.com", fmt.Sprint("old", i))
		}
		w.sync(time.Minute)
		w.exec(`UPDATE configuration SET sync_mode = 'manual'`)
		fresh := w.reserve("example.com", "young")
		began, reads := false, 0
		w.vendor.on(func(_ context.Context, what, name string) error {
			switch what {
			case "list":
				return &provider.Error{Kind: provider.Permission, Err: provider.ErrNotListed}
			case "read":
				w.vendor.mu.Lock()
				began = began || name == fresh
				if began && !w.vendor.changed(fresh) {
					reads++
				}
				w.vendor.mu.Unlock()
				<-time.After(250 * time.Millisecond)
			}
			return nil
		})
		result := w.begin(false)
		after(300 * time.Millisecond)
		w.due(fresh, reconcile.LaneChanged)
		<-result
		if !w.vendor.stands(fresh) || reads != 1 {
			t.Errorf("%d reads before the change is made", reads)
		}
	})
}

// TestCutPassBeginsAnew stops the program in a pass that a caller has asked for, and in which a name has failed: the next
// program begins the pass anew, without a caller and although the database fails at first, and its report has the failures.
func TestCutPassBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("bad.example", w.account("key"))
		w.service("slow.example", w.account("key"))
		bad, slow := w.reserve("bad.example", "office"), w.reserve("slow.example", "office")
		due := w.reserve("bad.example", "due")
		w.due(due, reconcile.LaneChanged)
		fails := func(_ context.Context, what, name string) error {
			if what == "change" && zoneOf(name) == "bad.example" {
				return &provider.Error{Kind: provider.Quota}
			}
			return nil
		}
		w.vendor.on(func(ctx context.Context, what, name string) error {
			if what == "read" && name == slow {
				<-ctx.Done()
				return ctx.Err()
			}
			return fails(ctx, what, name)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go w.engine.Sync(ctx, false)
		w.start()
		after(5 * time.Second)
		cancel()
		if n := w.count(`SELECT count(*) FROM names WHERE pass & 1`); n != 2 {
			t.Fatalf("%d names have failed before the stop", n)
		}
		w.vendor.on(fails)
		faults := 3
		w.fail(func(what string) error {
			if what == "begin pass" && faults > 0 {
				faults--
				return errors.New("the disk is full")
			}
			return nil
		})
		w.restart()
		after(time.Minute)
		r, _, err := w.engine.Last(t.Context())
		if err != nil || r == nil {
			t.Fatalf("no pass after the stop: %v", err)
		}
		if got := outcomes(*r); r.OK() || r.Trigger != reconcile.TriggerManual || r.Bad != 2 || !slices.Contains(got, bad+" failed quota") || !slices.Contains(got, due+" failed quota") {
			t.Errorf("%q, %+v", got, r)
		}
		w.vendor.on(func(context.Context, string, string) error { return nil })
		if r := w.sync(time.Minute); !r.OK() {
			t.Errorf("the next one: %+v", r)
		}
	})
}

// TestMarksBelongToThePass changes a service in mode manual while a pass runs, and synchronises: its
// names are published then.
func TestMarksBelongToThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("a.example", w.account("key"))
		w.service("z.example", w.account("key"))
		changed, held := w.reserve("a.example", "office"), w.reserve("z.example", "office")
		arrived, open := make(chan struct{}, 9), make(chan struct{})
		w.vendor.on(func(_ context.Context, what, name string) error {
			if what == "change" && name == held {
				arrived <- struct{}{}
				<-open
			}
			return nil
		})
		first := w.begin(false)
		<-arrived
		w.exec(`UPDATE services SET txt_endpoints = '["tcp://192.0.2.1:1"]' WHERE id = 'a.example'`)
		w.exec(`INSERT INTO marks (service_id, after) VALUES ('a.example', 0)`)
		second := w.begin(false)
		close(open)
		<-first
		<-second
		if got := fmt.Sprint(w.vendor.values[changed]); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("published is %s", got)
		}
	})
}

// TestWorkBeforeThePass has a name in work when what is wanted changes and a pass begins: the pass works on the name again,
// because that work knows only what was wanted before. The name was due, or its zone was down.
func TestWorkBeforeThePass(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "auto")
			w.exec(`UPDATE configuration SET max_retries = 3`)
			w.service("a.example", w.account("key"))
			w.service("b.example", w.account("key"))
			name := w.reserve("a.example", "a")
			w.reserve("b.example", "b") // the pass goes on behind the name
			w.sync(time.Minute)
			arrived, open, fails := make(chan struct{}, 9), make(chan struct{}), down
			w.vendor.on(func(_ context.Context, what, at string) error {
				switch {
				case zoneOf(at) == "a.example" && fails:
					fails = false
					return &provider.Error{Kind: provider.Network}
				case what == "change" && at == name:
					arrived <- struct{}{}
					<-open
				}
				return nil
			})
			w.exec(`UPDATE services SET txt_endpoints = '["tcp://192.0.2.1:1"]'`)
			w.due(name, reconcile.LaneChanged)
			<-arrived
			if waited := w.count(`SELECT count(*) FROM names WHERE lane GLOB 'zone *' AND due > 0`) == 1; waited != down {
				t.Errorf("the name waited for its zone: %v", waited)
			}
			w.exec(`UPDATE services SET txt_endpoints = '["tcp://192.0.2.2:1"]'`)
			w.tx(func(ctx context.Context, tx *sql.Tx) error {
				return w.ledger.RequestPass(ctx, tx, reconcile.TriggerChange)
			})
			after(3 * time.Second)
			close(open)
			after(3 * time.Second)
			if got := fmt.Sprint(w.vendor.values[name]); !strings.Contains(got, "192.0.2.2") {
				t.Errorf("published is %s, down %v", got, down)
			}
		})
	}
}

// TestMarksOfOthers has a zone that hangs with a page of names: the names of another service that has
// changed are published all the same.
func TestMarksOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("hung.example", w.account("key"))
		w.service("well.example", w.account("key"))
		for i := range 1100 {
			w.reserve("hung.example", fmt.Sprint("n", i))
		}
		name := w.reserve("well.example", "office")
		w.sync(time.Minute)
		w.vendor.on(func(ctx context.Context, _, name string) error {
			if zoneOf(name) == "hung.example" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.exec(`UPDATE services SET txt_endpoints = '["tcp://192.0.2.1:1"]'`)
		w.exec(`INSERT INTO marks (service_id, after) VALUES ('hung.example', 0), ('well.example', 0)`)
		w.engine.Wake()
		after(10 * time.Second)
		if got := fmt.Sprint(w.vendor.values[name]); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("published is %s", got)
		}
		w.stop()
	})
}

// TestLookDoesNotCount has a name be looked at once more in mode manual when a pass begins: the pass
// looks at it itself.
func TestLookDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.sync(time.Minute)
		w.exec(`UPDATE places SET doubt = standing, look_at = ?1`, w.now().UnixMilli())
		w.vendor.put("_host.example.com")
		arrived, open := w.vendor.holdReads()
		w.look("_host.example.com")
		<-arrived
		result := w.begin(false)
		after(100 * time.Millisecond)
		close(open)
		r := <-result
		wantOutcomes(t, r, "_host.example.com create")
		if r.Names != 1 || r.Counts[reconcile.ActionUnchanged] != 0 || !w.vendor.stands("_host.example.com") {
			t.Errorf("%+v", r)
		}
	})
}

// TestFaultOfMarksIsTold has the database fail where marks are spread: the log says so, and the engine
// waits before it tries again.
func TestFaultOfMarksIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.sync(time.Minute)
		tries := 0
		w.fail(func(what string) error {
			if what == "spread" {
				tries++
				return errors.New("broken")
			}
			return nil
		})
		w.exec(`INSERT INTO marks (service_id, after) VALUES ('example.com', 0)`)
		w.engine.Wake()
		after(3 * time.Second)
		if tries > 2 || !strings.Contains(w.log.String(), "broken") {
			t.Errorf("%d tries in 3 s, logged: %s", tries, w.log.String())
		}
	})
}

// TestPassLosesNoName has the database fail when names are taken that were in other hands before.
func TestPassLosesNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.sync(time.Minute)
		w.exec(`UPDATE places SET doubt = standing, look_at = ?1`, w.now().UnixMilli())
		w.vendor.put("_host.example.com")
		arrived, open := w.vendor.holdReads()
		w.look("_host.example.com")
		<-arrived
		ctx, cancel := context.WithCancel(t.Context())
		go w.engine.Sync(ctx, false)
		after(100 * time.Millisecond)
		failed := false
		w.fail(func(what string) error {
			if !failed && what == "state _host.example.com" {
				failed = true
				return errors.New("broken")
			}
			return nil
		})
		close(open)
		after(20 * time.Second)
		cancel()
		if last, _, _ := w.engine.Last(t.Context()); !failed || !w.vendor.stands("_host.example.com") {
			t.Errorf("failed %t, %+v", failed, last)
		}
	})
}

// TestSlowPassEndsWithItsLastPage: a slow pass waits between two pages, and not after the last one.
func TestSlowPassEndsWithItsLastPage(t *testing.T) {
	for names, pauses := range map[int]int{900: 0, 1100: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "auto")
			w.service("example.com", w.account("key"))
			for i := range names {
				w.reserve("example.com", fmt.Sprint("office", i))
			}
			w.start()
			after(time.Minute)
			r, _, err := w.engine.Last(t.Context())
			if err != nil || r == nil || r.Trigger != reconcile.TriggerStart || r.Names != names+1 {
				t.Fatalf("%d names: %v, report %+v", names, err, r)
			}
			if lasted := r.FinishedAt.Sub(r.StartedAt); lasted.Round(time.Second) != time.Duration(pauses)*time.Second {
				t.Errorf("a pass over %d names takes %v", names, lasted)
			}
		})
	}
}

// TestPreviewIsBounded previews many zones: some at a time.
func TestPreviewIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.start()
		for i := range 200 {
			domain := fmt.Sprintf("zone%d.example", i)
			w.service(domain, w.account("key"))
			w.vendor.put(w.reserve(domain, "office"), orphan(7))
		}
		now, most := 0, 0
		w.vendor.on(func(_ context.Context, what, _ string) error {
			w.vendor.mu.Lock()
			now++
			most = max(most, now)
			w.vendor.mu.Unlock()
			<-time.After(time.Second)
			w.vendor.mu.Lock()
			now--
			w.vendor.mu.Unlock()
			return nil
		})
		held, err := w.engine.Held(t.Context(), owner)
		if len(held) != 200 || err != nil || !slices.IsSorted(held) {
			t.Errorf("%d names, %v", len(held), err)
		}
		if most > 32 {
			t.Errorf("%d zones at a time", most)
		}
	})
}

// TestUnstoredNameBlocksNoOther has the database refuse what came of one name: the others of its zone
// are published and told of at once, the log has the reason once, and the name follows when it can be stored.
func TestUnstoredNameBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.sync(time.Minute)
		w.service("example.com", w.account("key"))
		var names []string
		for i := range 20 {
			names = append(names, w.reserve("example.com", fmt.Sprint("office", i)))
		}
		w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON places WHEN old.name = '` + names[7] + `' BEGIN SELECT raise(ABORT, 'injected'); END`)
		for _, name := range names {
			w.due(name, reconcile.LaneChanged)
		}
		after(2 * time.Second)
		if n := w.count(`SELECT count(*) FROM places WHERE state = 'published'`); n != 20 {
			t.Errorf("%d of 20 values are published", n)
		}
		later := w.reserve("example.com", "later")
		w.due(later, reconcile.LaneChanged)
		after(2 * time.Second)
		if !w.vendor.stands(later) {
			t.Error("a change waits for a name that cannot be stored")
		}
		w.exec(`DROP TRIGGER refuse`)
		after(6 * time.Second)
		if n := w.count(`SELECT count(*) FROM places WHERE state = 'published'`); n != 22 {
			t.Errorf("%d of 22 values are published in the end", n)
		}
		if n := strings.Count(w.log.String(), "injected"); n != 1 {
			t.Errorf("told %d times:\n%s", n, w.log.String())
		}
	})
}

// TestChangesPassHangingZones has the vendor of many zones swallow every call, for a pass and for
// changes: a change in another zone is made within two seconds all the same.
func TestChangesPassHangingZones(t *testing.T) {
	for what, hang := range map[string]func(w *world, names []string){
		"a pass": func(w *world, _ []string) {
			w.exec(`UPDATE pass SET requested = 'change', requested_at = 0`)
			w.engine.Wake()
		},
		"changes": func(w *world, names []string) {
			for _, name := range names {
				w.due(name, reconcile.LaneChanged)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "auto")
				w.sync(time.Minute)
				var names []string
				for i := range 50 {
					zone := fmt.Sprintf("zone%d.example", i)
					w.service(zone, w.account("key"))
					names = append(names, w.reserve(zone, "office"))
				}
				w.vendor.on(func(ctx context.Context, what, name string) error {
					if strings.Contains(name, "zone") {
						<-ctx.Done()
						return &provider.Error{Kind: provider.Network, Err: ctx.Err()}
					}
					return nil
				})
				hang(w, names)
				after(time.Second)
				w.service("well.example", w.account("other"))
				name := w.reserve("well.example", "office")
				w.due(name, reconcile.LaneChanged)
				after(2 * time.Second)
				if !w.vendor.stands(name) {
					t.Error("a change waits for zones that hang")
				}
				w.stop()
			})
		})
	}
}

// TestPassCountsWhatIsTakenBack has a name change while it waits behind another one for the pass: it is
// worked on as a change, and is the pass's all the same.
func TestPassCountsWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		first, foreign := w.reserve("example.com", "a"), w.reserve("example.com", "b")
		w.vendor.put(foreign, "v=mesh1 n=9 o=ffffffffffff tcp://192.0.2.1:1")
		w.sync(time.Minute)
		arrived, open := w.vendor.holdReads()
		w.due(first, reconcile.LaneAsked)
		<-arrived
		result := w.begin(false)
		after(100 * time.Millisecond)
		w.due(foreign, reconcile.LaneChanged)
		after(100 * time.Millisecond)
		close(open)
		r := <-result
		wantOutcomes(t, r, foreign+" conflict conflict")
		if r.Names != 3 || r.Bad != 1 {
			t.Errorf("%d names, %d bad", r.Names, r.Bad)
		}
	})
}

// TestPassTakesWhatEndsAtItsBegin has a pass begin and reach a name while the outcome of earlier work at
// that name is stored: the pass takes the name after that.
func TestPassTakesWhatEndsAtItsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		stores, stored := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.fail(func(what string) error {
			if what == "settled" {
				once.Do(func() { close(stores); <-stored })
			}
			return nil
		})
		w.due(name, reconcile.LaneChanged)
		<-stores
		result := w.begin(false)
		after(time.Second)
		close(stored)
		if r := <-result; r.Names != 2 || r.Counts[reconcile.ActionUnchanged] != 2 {
			t.Errorf("%d names, %v; want both unchanged", r.Names, r.Counts)
		}
	})
}

// TestNameIsTakenOnce has a pass replace another one, and reach a name while the outcome of the other's work at that
// name is stored: the pass takes the name once after that, not twice.
func TestNameIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.reserve("example.com", "a")
		w.sync(time.Minute)
		stores, stored := make(chan struct{}), make(chan struct{})
		var held atomic.Bool
		w.fail(func(what string) error {
			if what == "settled" && held.CompareAndSwap(false, true) {
				close(stores)
				<-stored
			}
			return nil
		})
		w.settles = func(s reconcile.Settlement) {
			for _, d := range s.Names {
				if d.Version == 0 {
					t.Errorf("%s is taken without its state", d.Name)
				}
			}
		}
		w.vendor.put("_host.example.com") // which is news
		first := w.begin(false)
		<-stores
		w.tx(func(ctx context.Context, tx *sql.Tx) error {
			return w.ledger.RequestPass(ctx, tx, reconcile.TriggerChange)
		})
		second := w.begin(false)
		after(10 * time.Millisecond)
		close(stored)
		<-first
		if r := <-second; r.Names != 2 || r.Counts[reconcile.ActionUnchanged] != 2 {
			t.Errorf("%d names, %v; want both unchanged", r.Names, r.Counts)
		}
	})
}

// TestReviewComesBack has a name be looked at while the configuration changes, in mode manual: the name is reviewed when
// the look has ended, so that its state is that of what is wanted now.
func TestReviewComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		after(time.Hour)
		arrived, open := w.vendor.holdReads()
		w.look(name)
		<-arrived
		w.exec(`UPDATE services SET txt_endpoints = '["tcp://192.0.2.1:1"]'`)
		w.tx(func(ctx context.Context, tx *sql.Tx) error {
			return w.ledger.RequestPass(ctx, tx, reconcile.TriggerChange)
		})
		after(time.Second)
		close(open)
		after(time.Second)
		if n := w.count(`SELECT count(*) FROM usages WHERE state = 'pending'`); n != 1 {
			t.Errorf("%d usages are pending, want one", n)
		}
	})
}

// TestPassWaitsForItsWork has a pass reach a name that is only looked at, and then, when it comes again, a task that does
// its work there: it waits for that task, before it searches for orphans, and counts the name.
func TestPassWaitsForItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		after(time.Hour)
		arrived, open := make(chan struct{}), make(chan struct{})
		w.vendor.on(func(_ context.Context, what, of string) error {
			if what == "read" && of == name {
				arrived <- struct{}{}
				<-open
			}
			return nil
		})
		lists := w.vendor.called("list")
		w.look(name)
		<-arrived
		result := w.begin(false)
		after(time.Second)
		w.due(name, reconcile.LaneAsked)
		open <- struct{}{}
		<-arrived
		after(time.Second)
		if w.vendor.called("list") != lists {
			t.Error("the pass searches for orphans during its work at a name")
		}
		close(open)
		go func() {
			for range arrived {
			}
		}()
		if r := <-result; r.Names != 2 || r.Counts[reconcile.ActionUnchanged] != 2 {
			t.Errorf("%d names, %v; want both unchanged", r.Names, r.Counts)
		}
		w.stop()
		close(arrived)
	})
}

// TestPassWaitsForWhatIsTakenBack has a name change while it waits for the pass, behind another one: the pass waits for
// the work on the change, before it searches for orphans.
func TestPassWaitsForWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("slow.example", w.account("key"))
		first, second := w.reserve("slow.example", "a"), w.reserve("slow.example", "b")
		w.sync(time.Minute)
		arrived, open := make(chan struct{}, 9), map[string]chan struct{}{first: make(chan struct{}), second: make(chan struct{})}
		w.vendor.on(func(_ context.Context, what, of string) error {
			if what == "read" && open[of] != nil {
				arrived <- struct{}{}
				<-open[of]
			}
			return nil
		})
		lists := w.vendor.called("list")
		w.due(first, reconcile.LaneAsked)
		<-arrived
		result := w.begin(false)
		after(time.Second)
		w.due(second, reconcile.LaneChanged)
		after(time.Second)
		close(open[first])
		<-arrived
		after(time.Second)
		if w.vendor.called("list") != lists {
			t.Error("the pass searches for orphans during the work at a name")
		}
		close(open[second])
		if r := <-result; r.Names != 3 || r.Counts[reconcile.ActionUnchanged] != 3 {
			t.Errorf("%d names, %v; want three unchanged", r.Names, r.Counts)
		}
	})
}

// TestPassTakesBackWhatIsWell has a name in conflict that is well again before the pass has ended: its
// report says how it ended.
func TestPassTakesBackWhatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.service("slow.example", w.account("key"))
		mended, foreign, slow := w.reserve("example.com", "a"), w.reserve("example.com", "b"), w.reserve("slow.example", "c")
		w.vendor.put(mended, "v=mesh1 n=9 o=ffffffffffff tcp://192.0.2.1:1")
		w.vendor.put(foreign, "v=mesh1 n=9 o=ffffffffffff tcp://192.0.2.1:1")
		open := make(chan struct{})
		w.vendor.on(func(_ context.Context, what, name string) error {
			if what == "read" && name == slow {
				<-open
			}
			return nil
		})
		result := w.begin(false)
		after(time.Second)
		w.vendor.put(mended)
		w.due(mended, reconcile.LaneAsked)
		after(time.Second)
		close(open)
		r := <-result
		wantOutcomes(t, r, "_host.example.com create", mended+" create", foreign+" conflict conflict", slow+" create")
		if r.Names != 4 || r.Bad != 1 || r.Counts[reconcile.ActionConflict] != 1 {
			t.Errorf("%d names, %d bad, %v", r.Names, r.Bad, r.Counts)
		}
	})
}

// TestPassTellsTheLastFault has a name in conflict that fails for another reason before the pass has
// ended: its report has that reason only, and one bad name.
func TestPassTellsTheLastFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.service("slow.example", w.account("key"))
		bad, slow := w.reserve("example.com", "a"), w.reserve("slow.example", "c")
		w.vendor.put(bad, "v=mesh1 n=9 o=ffffffffffff tcp://192.0.2.1:1")
		open := make(chan struct{})
		var refuses atomic.Bool
		w.vendor.on(func(_ context.Context, what, name string) error {
			switch {
			case what == "read" && name == slow:
				<-open
			case what == "read" && name == bad && refuses.Load():
				return &provider.Error{Kind: provider.BadCredentials}
			}
			return nil
		})
		result := w.begin(false)
		after(time.Second)
		refuses.Store(true)
		w.due(bad, reconcile.LaneAsked)
		after(time.Second)
		close(open)
		r := <-result
		wantOutcomes(t, r, "_host.example.com create", bad+" failed "+string(provider.BadCredentials), slow+" create")
		if r.Names != 3 || r.Bad != 1 || r.Counts[reconcile.ActionConflict] != 0 || r.Counts[reconcile.ActionFailed] != 1 {
			t.Errorf("%d names, %d bad, %v", r.Names, r.Bad, r.Counts)
		}
	})
}

// TestSlowBatch loses the answer to a write, and has another write of the batch take longer than a second
// look waits: the look follows soon, and ends the release.
func TestSlowBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		lost, slow := w.reserve("example.com", "a"), w.reserve("example.com", "b")
		w.sync(time.Minute)
		var once atomic.Bool
		w.vendor.on(func(_ context.Context, what, name string) error {
			switch {
			case what != "change":
			case name == slow:
				<-time.After(reconcile.SecondLook + time.Second)
			case once.CompareAndSwap(false, true):
				w.vendor.put(lost)
				return &provider.Error{Kind: provider.Network}
			}
			return nil
		})
		w.release(lost)
		w.release(slow)
		w.engine.Wake()
		after(3 * reconcile.SecondLook)
		if w.vendor.stands(lost) || w.vendor.stands(slow) || w.count(`SELECT count(*) FROM usages`) > 0 {
			t.Errorf("%d usages are left\n%s", w.count(`SELECT count(*) FROM usages`), w.log.String())
		}
	})
}

// TestHalfAReplacement has the first half of a write arrive that replaces what another key has put
// there, in mode upsert-only: the next try removes what the first was to remove.
func TestHalfAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "upsert-only")
		w.service("example.com", w.account("old"))
		name := w.reserve("example.com", "office")
		w.sync(time.Minute)
		old := w.vendor.values[name][0]
		w.exec(`UPDATE services SET account = ?, txt_endpoints = '["tcp://192.0.2.1:1"]'`, w.account("new"))
		lost := false
		w.vendor.on(func(_ context.Context, what, n string) error {
			if what != "change" || n != name || lost {
				return nil
			}
			lost = true
			w.vendor.put(name, old, strings.ReplaceAll(old, "203.0.113.7", "192.0.2.1"))
			return &provider.Error{Kind: provider.Network}
		})
		w.sync(time.Minute)
		w.sync(time.Minute)
		if got := w.vendor.values[name]; !lost || len(got) != 1 || got[0] == old {
			t.Errorf("%q stand there, once %q", got, old)
		}
	})
}

// TestLockedDatabaseIsAskedOnce has a database that takes five seconds to refuse what came of many
// names: it is not asked again for each of them.
func TestLockedDatabaseIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.sync(time.Minute)
		w.stop()
		w.service("example.com", w.account("key"))
		for i := range 20 {
			w.due(w.reserve("example.com", fmt.Sprint("office", i)), reconcile.LaneAsked)
		}
		asked := 0
		w.fail(func(what string) error {
			if what == "settled" {
				asked++
				<-time.After(5 * time.Second)
				return errors.New("locked")
			}
			return nil
		})
		w.restart()
		after(4 * time.Second)
		first := asked
		if after(3 * time.Second); first != 1 || asked != 1 {
			t.Errorf("asked %d times, and then %d times", first, asked)
		}
		w.stop()
	})
}

// TestStartOutlivesADatabaseFault has the database fail when the engine begins: it begins all the same
// when the database works again.
func TestStartOutlivesADatabaseFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.fail(func(what string) error {
			if what == "lanes" {
				return errors.New("broken")
			}
			return nil
		})
		w.start()
		after(time.Minute)
		w.fail(func(string) error { return nil })
		w.engine.Wake()
		after(time.Minute)
		if !w.vendor.stands("_host.example.com") || strings.Count(w.log.String(), "broken") != 1 {
			t.Errorf("not begun, or told more than once:\n%s", w.log.String())
		}
	})
}

// TestPassUnderNewSettings: a pass does not begin under settings that have changed since the engine
// read them, for it would answer the request of the change.
func TestPassUnderNewSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		w.exec(`UPDATE configuration SET enabled = 1; CREATE TABLE kept AS SELECT * FROM configuration; DELETE FROM configuration`)
		w.fail(func(what string) error {
			if what == "settings read" && w.count(`SELECT count(*) FROM configuration`) == 0 {
				w.exec(`INSERT INTO configuration SELECT * FROM kept`)
				w.tx(func(ctx context.Context, tx *sql.Tx) error {
					return w.ledger.RequestPass(ctx, tx, reconcile.TriggerChange)
				})
			}
			return nil
		})
		w.start()
		synctest.Wait()
		if r := w.sync(time.Minute); r.Counts[reconcile.ActionCreate] != 1 {
			t.Errorf("the first synchronisation reports %v", r.Counts)
		}
	})
}
