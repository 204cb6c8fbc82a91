package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/reconcile"
)

// TestOrdersHaveABound: more orders of a person than a zone has room for wait in the database, and a change does not have to
// wait for all of them. Each is done.
func TestOrdersHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names, room = 3000, 1000
		w := newWorld(t, "auto")
		account := w.account("key")
		w.service("example.com", account)
		last := w.reserve("example.com", "last")
		w.sync(time.Minute)
		after(2 * reconcile.SecondLook)
		open := make(chan struct{})
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "read" || what == "list" {
				<-open
			}
			return nil
		})
		w.exec(`
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
			INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
			SELECT '_mesh.o' || i || '.example.com', ?2, 'example.com', 'example.com', 'leftover', 'v=mesh1 n=1 o=`+owner+` tcp://203.0.113.9:1', '', 0, 0, '', '', '', 0, '', '' FROM n`, names, account)
		w.exec(`INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, ?, 'ask', 0 FROM places WHERE state = 'leftover'`, w.now().UnixMilli())
		w.engine.Wake()
		after(time.Second)
		if n := w.count(`SELECT count(*) FROM names WHERE due > 0 AND lane = 'ask'`); n > room+100 {
			t.Errorf("%d orders are in memory", n)
		}
		close(open)
		w.exec(`UPDATE services SET txt_endpoints = '["tcp://203.0.113.8:1"]'`)
		w.due(last, reconcile.LaneChanged)
		after(time.Hour)
		if n := w.count(`SELECT count(*) FROM names WHERE due > 0`); n > 0 || !w.vendor.stands(last) {
			t.Errorf("%d names are still due", n)
		}
	})
}

// TestCallerWhilePassEnds: a caller whose time ends while the report is being stored gets what was done. If it cannot be
// stored, the pass goes on and is stored at the next try, with what it does meanwhile.
func TestCallerWhilePassEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		w.reserve("example.com", "a")
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		w.fail(func(what string) error {
			if what != "end pass" {
				return nil
			}
			if tries++; tries == 1 {
				cancel()
				synctest.Wait()
				return errors.New("injected")
			}
			return nil
		})
		got := make(chan string)
		go func() {
			r, err := w.engine.Sync(ctx, false)
			got <- fmt.Sprint(r.Names, " ", r.Counts[reconcile.ActionCreate], " ", err)
		}()
		synctest.Wait()
		w.start()
		if said := <-got; said != "2 2 "+reconcile.ErrUnfinished.Error() {
			t.Error(said)
		}
		after(time.Minute)
		if last, next, err := w.engine.Last(t.Context()); err != nil || last == nil || last.Names != 2 || next.IsZero() || tries != 2 {
			t.Errorf("after %d tries: %+v %v %v", tries, last, next, err)
		}
	})
}
