package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/reconcile"
)

// dueIn gives the names of a lane that are due by now, as many as there are.
func (b *book) dueIn(lane reconcile.Lane) []string {
	b.t.Helper()
	names, err := b.Due(b.t.Context(), lane, b.now, 100)
	b.must(err)
	return names
}

// TestDue has names in every lane: each lane gives its own, the longest due first, and not before
// their time.
func TestDue(t *testing.T) {
	const step = 100 * time.Millisecond
	b := newBook(t)
	zone := reconcile.ZoneLane(1, "example.com")
	for i, lane := range []reconcile.Lane{reconcile.LaneAsked, zone} {
		for n := range 3 {
			name := fmt.Sprintf("%d.%d", i, n)
			b.due(name, reconcile.LaneChanged)
			b.settle(reconcile.Due{Name: name, Version: 1, At: b.now.Add(time.Duration(3-n) * step), Lane: lane})
		}
		if got := b.dueIn(lane); len(got) > 0 {
			t.Errorf("lane %q: %q are due too early", lane, got)
		}
	}
	b.now = b.now.Add(2 * step)
	want(t, "asked", b.dueIn(reconcile.LaneAsked), []string{"0.2", "0.1"})
	want(t, "the zone", b.dueIn(zone), []string{"1.2", "1.1"})
	want(t, "to look at", b.dueIn(reconcile.LaneLook), nil)
	first, err := b.Due(t.Context(), zone, b.now, 1)
	b.must(err)
	want(t, "the first", first, []string{"1.2"})
	at, ok, err := b.NextDue(t.Context(), zone, b.now)
	if b.must(err); !ok || !at.Equal(b.now.Add(step)) {
		t.Errorf("the next is due at %v, %t", at, ok)
	}
	if at, ok, err = b.NextDue(t.Context(), zone, at); ok || err != nil {
		t.Errorf("behind the last: %v, %t, %v", at, ok, err)
	}
}

// TestDueAfterTheClockWasSetBack has times that are further ahead than any name waits.
func TestDueAfterTheClockWasSetBack(t *testing.T) {
	b := newBook(t)
	zone := reconcile.ZoneLane(1, "example.com")
	for _, lane := range []reconcile.Lane{reconcile.LaneAsked, zone} {
		b.due(string(lane)+"far", lane)
		b.settle(reconcile.Due{Name: string(lane) + "far", Version: 1, At: b.now.Add(lane.LongestWait() + time.Second), Lane: lane})
		b.due(string(lane)+"near", lane)
		b.settle(reconcile.Due{Name: string(lane) + "near", Version: 1, At: b.now.Add(lane.LongestWait()), Lane: lane})
		want(t, "lane "+string(lane), b.dueIn(lane), []string{string(lane) + "far"})
	}
	b.due("far", reconcile.LaneChanged) // a change does not wait
	b.settle(reconcile.Due{Name: "far", Version: 1, At: b.now.Add(time.Second), Lane: reconcile.LaneChanged})
	want(t, "changed", b.dueIn(reconcile.LaneChanged), []string{"far"})
	far := reconcile.LaneLook.LongestWait() + time.Second
	b.settle(reconcile.Due{Name: "far", Version: 1, Kept: true, Look: b.now.Add(far)})
	want(t, "to look at", b.dueIn(reconcile.LaneLook), []string{"far"})
}

// TestLook has a name that is due and to be looked at: one does not displace the other.
func TestLook(t *testing.T) {
	b := newBook(t)
	b.due("x", reconcile.LaneChanged)
	b.settle(reconcile.Due{Name: "x", Version: 1, At: b.now.Add(time.Second), Lane: reconcile.LaneChanged, Look: b.now.Add(time.Minute)})
	at, ok, err := b.NextDue(t.Context(), reconcile.LaneLook, b.now)
	if err != nil || !ok || !at.Equal(b.now.Add(time.Minute)) {
		t.Errorf("to be looked at %v, %t, %v", at, ok, err)
	}
	b.now = b.now.Add(time.Minute)
	want(t, "changed", b.dueIn(reconcile.LaneChanged), []string{"x"})
	want(t, "to look at", b.dueIn(reconcile.LaneLook), []string{"x"})
	b.settle(reconcile.Due{Name: "x", Version: 1, Kept: true})
	want(t, "changed, after the look", b.dueIn(reconcile.LaneChanged), []string{"x"})
	want(t, "to look at, after the look", b.dueIn(reconcile.LaneLook), nil)
}

// TestMarkDue has a name that is due already, and is made due again.
func TestMarkDue(t *testing.T) {
	zone := reconcile.ZoneLane(1, "example.com")
	for what, test := range map[string]struct {
		before, again reconcile.Lane
		lane          reconcile.Lane
		after         time.Duration // when it is due
		looked        bool          // it is to be looked at too
	}{
		"an order stays one":             {reconcile.LaneAsked, reconcile.LaneChanged, reconcile.LaneAsked, 0, false},
		"an order goes before a change":  {reconcile.LaneChanged, reconcile.LaneAsked, reconcile.LaneAsked, 0, false},
		"a second change does not delay": {reconcile.LaneChanged, reconcile.LaneChanged, reconcile.LaneChanged, -time.Millisecond, false},
		"a change waits for no zone":     {zone, reconcile.LaneChanged, reconcile.LaneChanged, 0, true},
		"an order waits for no zone":     {zone, reconcile.LaneAsked, reconcile.LaneAsked, 0, true},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBook(t)
			if b.due("x", test.before); test.before == zone {
				b.settle(reconcile.Due{Name: "x", Version: 1, At: b.now.Add(time.Hour), Lane: zone})
			}
			b.now = b.now.Add(time.Millisecond)
			b.due("x", test.again)
			n := b.name("x")
			if before := n.Due.Before(b.now.Add(test.after - time.Millisecond)); before || n.Due.After(b.now.Add(test.after)) {
				t.Errorf("due %v after now, want %v", n.Due.Sub(b.now), test.after)
			}
			if n.Lane != test.lane || n.Version != 2 || n.Look.IsZero() == test.looked {
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestMarkNode has nodes change usages of one name: a change of the one that waits makes nothing due.
func TestMarkNode(t *testing.T) {
	b := newBook(t)
	b.service("example.com", b.account("token", "one"))
	name := b.reserve("example.com", "a", 1, "active")
	b.reserve("example.com", "a", 2, "active")
	b.due(name, reconcile.LaneChanged)
	b.due(name, reconcile.LaneChanged) // with the usages that are known by then
	for usage, due := range map[int64]bool{1: true, 2: false, 3: false} {
		version := b.name(name).Version
		b.settle(reconcile.Due{Name: name, Version: version})
		b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.MarkNode(ctx, tx, usage) })
		if n := b.name(name); (n.Version > version) != due || n.Due.IsZero() == due || due && n.Lane != reconcile.LaneNode {
			t.Errorf("usage %d of %s: %+v", usage, b.shown(name), n)
		}
	}
}

// TestSettleAfterAChange has a name that has changed while it was worked on: it stays due, and its
// mark, but a look is stored.
func TestSettleAfterAChange(t *testing.T) {
	b := newBook(t)
	b.due("x", reconcile.LaneAsked)
	b.due("x", reconcile.LaneAsked)
	look := b.now.Add(time.Minute)
	b.settle(reconcile.Due{Name: "x", Version: 1, At: b.now.Add(time.Hour), Lane: reconcile.LaneHeld, Look: look, Pass: reconcile.PassMark{Number: 3}})
	if n := b.name("x"); !n.Due.Equal(began) || n.Lane != reconcile.LaneAsked || !n.Look.Equal(look) || n.Pass.Number != 0 {
		t.Errorf("%+v", n)
	}
}

// TestZoneLanes gives the lanes in which names wait for zones, and no other.
func TestZoneLanes(t *testing.T) {
	b := newBook(t)
	one, other, idle := reconcile.ZoneLane(1, "example.com"), reconcile.ZoneLane(2, "example.com"), reconcile.ZoneLane(3, "example.com")
	for name, lane := range map[string]reconcile.Lane{
		"a": one, "b": one, "c": other, "d": reconcile.LaneAsked, "e": reconcile.LaneChanged, "f": reconcile.LaneHeld, "g": idle,
	} {
		b.due(name, reconcile.LaneChanged)
		d := reconcile.Due{Name: name, Version: 1, At: b.now, Lane: lane}
		if lane == idle {
			d.At = time.Time{}
		}
		b.settle(d)
	}
	if lanes, err := b.ZoneLanes(t.Context()); err != nil || !slices.Equal(lanes, []reconcile.Lane{one, other}) {
		t.Errorf("%q, %v", lanes, err)
	}
}

// TestSpreadMarks has a service with more names than are spread at a time.
func TestSpreadMarks(t *testing.T) {
	b := newBook(t)
	b.service("example.com", 0)
	var all []string
	for n := range 5 {
		all = append(all, b.reserve("example.com", fmt.Sprint("p", n), int64(n), "active"))
	}
	marked := func() bool {
		marked, err := b.Marked(t.Context())
		b.must(err)
		return marked
	}
	if marked() {
		t.Error("marked before anything is")
	}
	b.exec(`INSERT INTO marks (service_id, after) VALUES ('example.com', 0)`)
	for _, want := range []int{2, 4, 5} {
		if !marked() {
			t.Errorf("not marked, before %d are due", want)
		}
		b.must(b.SpreadMarks(t.Context(), 2))
		b.reopen()
		if got := b.texts(`SELECT name FROM names ORDER BY name`); !slices.Equal(got, all[:want]) {
			t.Errorf("%q are due, want %d", got, want)
		}
	}
	if marked() {
		t.Error("marked after all are spread")
	}
	b.must(b.SpreadMarks(t.Context(), 2))
}

// TestDropName forgets a name only when nothing refers to it, and it has not changed.
func TestDropName(t *testing.T) {
	for what, test := range map[string]struct {
		name    string
		happens func(b *book)
		kept    bool
	}{
		"nothing is left":           {"x", func(*book) {}, false},
		"it has changed":            {"x", func(b *book) { b.due("x", reconcile.LaneChanged) }, true},
		"a usage has it":            {"_mesh.p.example.com", func(b *book) { b.reserve("example.com", "p", 1, "active") }, true},
		"a usage is to be released": {"_mesh.p.example.com", func(b *book) { b.reserve("example.com", "p", 1, ledger.StatusReleasing) }, true},
		"a place has it": {"x", func(b *book) {
			b.put(reconcile.Place{Name: "x", Account: reconcile.Account{ID: 1}, State: reconcile.Withdrawn})
		}, true},
		"the configuration has it": {host, func(b *book) { b.configure("manual", 1) }, true},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBook(t)
			b.service("example.com", b.account("token", "one"))
			b.due(test.name, reconcile.LaneAsked)
			test.happens(b)
			b.tx(func(ctx context.Context, tx *sql.Tx) error { return ledger.DropName(ctx, tx, test.name, 1) })
			if kept := len(b.texts(`SELECT name FROM names WHERE name = ?`, test.name)) > 0; kept != test.kept {
				t.Errorf("kept %t, want %t", kept, test.kept)
			}
		})
	}
}

// TestNodeChange has a node change a name that is due already, or not: its change joins what the name is due for. What a
// person has not asked for since the work began is a node's change after it.
func TestNodeChange(t *testing.T) {
	zone := reconcile.ZoneLane(1, "example.com")
	for _, test := range []struct {
		lane, joined, after reconcile.Lane // before the change, after it, and after work that began before it
	}{
		{reconcile.LaneAsked, reconcile.LaneAsked, reconcile.LaneNode},
		{reconcile.LaneChanged, reconcile.LaneChanged, reconcile.LaneNode},
		{reconcile.LaneHeld, reconcile.LaneHeld, reconcile.LaneNode},
		{reconcile.LaneNode, reconcile.LaneNode, reconcile.LaneNode},
		{reconcile.LaneLater, reconcile.LaneLater, reconcile.LaneNode},
		{zone, zone, reconcile.LaneNode},
	} {
		b := newBook(t)
		b.due("x", reconcile.LaneChanged)
		at := b.now.Add(time.Minute)
		b.settle(reconcile.Due{Name: "x", Version: 1, At: at, Lane: test.lane})
		b.due("x", reconcile.LaneNode)
		if n := b.name("x"); n.Lane != test.joined || n.Version != 2 || !n.Due.Equal(at) {
			t.Errorf("a node's change in lane %q: lane %q, due %v after that, version %d", test.lane, n.Lane, n.Due.Sub(at), n.Version)
		}
		b.settle(reconcile.Due{Name: "x", Version: 1, At: at.Add(time.Second), Lane: zone})
		if n := b.name("x"); n.Lane != zone || !n.Due.Equal(at.Add(time.Second)) {
			t.Errorf("after work that is tried again: lane %q, due %v", n.Lane, n.Due)
		}
		b.settle(reconcile.Due{Name: "x", Version: 1})
		if n := b.name("x"); n.Lane != test.after || !n.Due.Equal(b.now) {
			t.Errorf("after work that began before it, from lane %q: lane %q, due in %v", test.lane, n.Lane, n.Due.Sub(b.now))
		}
		b.due("x", reconcile.LaneChanged)
		b.due("x", reconcile.LaneNode)
		b.settle(reconcile.Due{Name: "x", Version: 2})
		if n := b.name("x"); n.Lane != reconcile.LaneChanged {
			t.Errorf("a person's change beside a node's: lane %q", n.Lane)
		}
		b.settle(reconcile.Due{Name: "x", Version: 4})
		if n := b.name("x"); !n.Due.IsZero() {
			t.Errorf("after all work: lane %q", n.Lane)
		}
	}
}

// TestDefer lets a node's change wait, unless a person has changed the name meanwhile.
func TestDefer(t *testing.T) {
	b := newBook(t)
	at := b.now.Add(time.Hour)
	deferred := func(version int64) reconcile.Name {
		b.must(b.Defer(t.Context(), []reconcile.Due{{Name: "x", Version: version, At: at}}))
		return b.name("x")
	}
	b.due("x", reconcile.LaneNode)
	b.due("x", reconcile.LaneNode)
	if n := deferred(1); n.Lane != reconcile.LaneLater || !n.Due.Equal(at) {
		t.Errorf("lane %q, due in %v", n.Lane, n.Due.Sub(b.now))
	}
	if count, err := b.CountLater(t.Context()); count != 1 || err != nil {
		t.Errorf("%d names wait, %v", count, err)
	}
	b.due("x", reconcile.LaneChanged)
	if n := deferred(2); n.Lane != reconcile.LaneChanged || !n.Due.Equal(b.now) {
		t.Errorf("a person's change: lane %q, due in %v", n.Lane, n.Due.Sub(b.now))
	}
}

// TestPassAndWaitingChanges: the begin of a pass moves no name, however many wait for writes; the pass and a review find them.
func TestPassAndWaitingChanges(t *testing.T) {
	b := newBook(t)
	b.configure("auto", b.account("own", "secret"))
	settings, err := b.Settings(t.Context())
	b.must(err)
	b.due("x", reconcile.LaneNode)
	b.must(b.Defer(t.Context(), []reconcile.Due{{Name: "x", Version: b.name("x").Version, At: b.now.Add(time.Hour)}}))
	b.due("y", reconcile.LaneNode)
	for _, trigger := range []string{reconcile.TriggerInterval, reconcile.TriggerStart, reconcile.TriggerManual} {
		number, err := b.BeginPass(t.Context(), reconcile.Progress{Report: reconcile.Report{Trigger: trigger}}, settings)
		b.must(err)
		want(t, "a pass: "+trigger, b.after("", number), []string{"x", "y"})
		want(t, "a review", b.after("", 0), []string{"x", "y"})
		if x, y := b.name("x"), b.name("y"); x.Lane != reconcile.LaneLater || y.Lane != reconcile.LaneNode {
			t.Errorf("a pass: %s: the lanes are %q and %q", trigger, x.Lane, y.Lane)
		}
	}
}

// TestAddName has new names without a configuration, which wait for a pass, and with one; one of them is the name of a
// usage whose record in another format may be at the configuration's name.
func TestAddName(t *testing.T) {
	b := newBook(t)
	own := sql.Null[string]{V: host, Valid: true}
	beside := reconcile.Beside(host)[0]
	for _, test := range []struct {
		name  string
		own   sql.Null[string]
		known bool
		due   []string
	}{
		{"a", sql.Null[string]{}, false, nil},
		{"a", own, true, nil},
		{"b", own, false, []string{"b"}},
		{"b", sql.Null[string]{}, true, []string{"b"}},
		{beside, own, false, []string{"b", beside, host}},
	} {
		b.tx(func(ctx context.Context, tx *sql.Tx) error {
			known, err := b.AddName(ctx, tx, test.name, test.own)
			if known != test.known {
				t.Errorf("%s: known is %t", test.name, known)
			}
			return err
		})
		due := b.dueIn(reconcile.LaneChanged)
		slices.Sort(due)
		slices.Sort(test.due)
		want(t, test.name, due, test.due)
	}
}
