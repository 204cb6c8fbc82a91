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

// change gives a name another endpoint, and makes it due in a lane.
func (w *world) change(name string, n int, lane reconcile.Lane) {
	w.exec(`UPDATE usages SET txt_endpoints = json_array(?) WHERE name = ?`, fmt.Sprintf("tcp://192.0.2.%d:1", n), name)
	w.due(name, lane)
}

// TestNodeChangesWait has nodes change three names where two writes an hour are allowed: the third change waits, also for
// a pass by the clock and for a second look. A person's order writes it.
func TestNodeChangesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.writes = 2
		w.service("example.com", w.account("key"))
		var names []string
		for i := range 3 {
			names = append(names, w.reserve("example.com", fmt.Sprint("n", i)))
		}
		w.sync(time.Minute)
		after(time.Hour)
		written := func() int { return w.vendor.called("change") }
		before := written()
		for _, name := range names {
			w.change(name, 7, reconcile.LaneNode)
			after(time.Second)
		}
		after(reconcile.SecondLook + 11*time.Minute) // a second look, and passes
		if got := written() - before; got != 2 || w.count(`SELECT count(*) FROM names WHERE lane = 'later'`) != 1 {
			t.Errorf("%d of three changes are written; %s", got, w.log.String())
		}
		w.change(names[2], 8, reconcile.LaneNode)
		after(time.Second)
		if got := written() - before; got != 2 {
			t.Errorf("another change of the name that waits is written")
		}
		if r := w.sync(time.Minute); written()-before != 3 || !r.OK() {
			t.Errorf("a person's order: %d writes, %+v", written()-before, r)
		}
		w.change(names[2], 9, reconcile.LaneNode)
		after(time.Second)
		w.change(names[2], 10, reconcile.LaneChanged)
		after(time.Second)
		if got := written() - before; got != 4 {
			t.Errorf("a person's change of a name that waits: %d writes", got)
		}
		w.change(names[1], 11, reconcile.LaneNode)
		after(3 * time.Hour)
		if got := written() - before; got != 5 || w.count(`SELECT count(*) FROM names WHERE due > 0`) > 0 {
			t.Errorf("a change that waits is not written in time: %d writes", got)
		}
	})
}

// TestNodeChangesJoin has nodes change a name again and again while a write is in work, first for a person's change: what
// comes during a write is one change after it, and the ninth of these waits. A pass that a person asks for ends beside them.
func TestNodeChangesJoin(t *testing.T) {
	for _, begin := range []reconcile.Lane{reconcile.LaneNode, reconcile.LaneChanged, reconcile.LaneAsked} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "auto")
			w.service("example.com", w.account("key"))
			name := w.reserve("example.com", "a")
			w.sync(time.Minute)
			after(time.Hour)
			w.vendor.on(func(_ context.Context, what, of string) error {
				if what == "change" && of == name {
					<-time.After(time.Second)
				}
				return nil
			})
			before := w.vendor.called("change")
			w.change(name, 1, begin)
			ended := w.begin(false)
			for i := range 200 {
				after(100 * time.Millisecond)
				w.change(name, 2+i, reconcile.LaneNode)
			}
			if got := w.vendor.called("change") - before; got > 9 {
				t.Errorf("from lane %q: %d writes in 20 s", begin, got)
			}
			<-ended
			after(5 * time.Minute)
			if got := fmt.Sprint(w.vendor.values[name]); got != fmt.Sprintf("[v=mesh1 n=1 o=%s tcp://192.0.2.201:1]", owner) {
				t.Errorf("from lane %q: in the end %s stands", begin, got)
			}
		})
	}
}

// TestNodeChangesCostOnlyWrites has a node change a name of a zone that is down, and one in mode manual: what is not tried
// costs nothing.
func TestNodeChangesCostOnlyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.writes = 6
		w.service("example.com", w.account("key"))
		name, other := w.reserve("example.com", "a"), w.reserve("example.com", "b")
		w.sync(time.Minute)
		w.exec(`UPDATE configuration SET sync_mode = 'manual'`)
		for i := range 20 {
			w.change(name, 1+i, reconcile.LaneNode)
			after(5 * time.Second)
		}
		w.exec(`UPDATE configuration SET sync_mode = 'auto'`)
		w.sync(time.Minute)
		w.vendor.on(func(context.Context, string, string) error { return &provider.Error{Kind: provider.Network} })
		w.restart()
		for i := range 20 {
			w.change(name, 101+i, reconcile.LaneNode)
			after(5 * time.Second)
		}
		w.vendor.on(func(context.Context, string, string) error { return nil })
		after(10 * time.Minute)
		w.change(other, 200, reconcile.LaneNode)
		after(time.Second)
		if got := fmt.Sprint(w.vendor.values[other]); got != fmt.Sprintf("[v=mesh1 n=2 o=%s tcp://192.0.2.200:1]", owner) {
			t.Errorf("the change of another name waits: %s; %s", got, w.log.String())
		}
		w.stop()
	})
}

// TestNodeChangeOfNothing has a node change a name to what stands already: no provider is asked.
func TestNodeChangeOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.change(name, 1, reconcile.LaneChanged)
		w.sync(time.Minute)
		after(reconcile.SecondLook + time.Minute)
		before := w.vendor.called("")
		for range 20 {
			w.change(name, 1, reconcile.LaneNode)
			after(time.Second)
		}
		if got := w.vendor.called("") - before; got > 0 {
			t.Errorf("%d calls for changes of nothing", got)
		}
		if w.count(`SELECT count(*) FROM names WHERE due > 0`) > 0 {
			t.Error("the name is due still")
		}
	})
}

// TestNodeChangesAreCharged has a node change a name of one record, which waits, and then make it ten records: at its
// turn the change waits for the other nine.
func TestNodeChangesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.writes = 8
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "a")
		w.sync(time.Minute)
		after(time.Hour)
		written := func() int { return w.vendor.called("change") }
		for i := range 3 { // which name may take two writes at once, a quarter
			w.change(name, 1+i, reconcile.LaneNode)
			after(time.Second)
		}
		var endpoints []string
		for i := range 9 {
			endpoints = append(endpoints, fmt.Sprintf(`"tcp://192.0.2.%d:1"`, 100+i))
		}
		w.exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) SELECT seq, '["a"]', '', '' FROM usages WHERE name = ?`, name)
		w.exec(`UPDATE usages SET txt_endpoints = ? WHERE name = ?`, "["+strings.Join(endpoints, ",")+"]", name)
		w.due(name, reconcile.LaneNode)
		before := written()
		after(40 * time.Minute)
		if got := written() - before; got > 0 {
			t.Errorf("%d records are written at the turn of a change of one record", got)
		}
		formats, err := w.ledger.Formats(t.Context(), name, "1")
		if err != nil || len(formats) != 2 || formats[1].Fault.Code != reconcile.CodeWritesUsedUp || formats[1].Fault.Detail == "" {
			t.Errorf("the records are told as %+v, %v", formats, err)
		}
		after(12 * time.Hour)
		if got := written() - before; got == 0 {
			t.Error("the change is not written in its time")
		}
	})
}
