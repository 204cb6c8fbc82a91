package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/metrics"
	"meshddns/internal/reconcile"
)

// change makes a name due as a node's change does, and gives the time that it waits.
func (b *book) change(name string) time.Duration {
	b.t.Helper()
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.MarkNode(ctx, tx, name) })
	n := b.name(name)
	if n.Due.After(b.now) != (n.Lane == reconcile.LaneLater) {
		b.t.Errorf("%s is due in %v in lane %q", name, n.Due.Sub(b.now), n.Lane)
	}
	return n.Due.Sub(b.now)
}

// written is the end of the work on a name.
func (b *book) written(name string) {
	b.t.Helper()
	b.settle(reconcile.Due{Name: name, Version: b.name(name).Version})
}

func (b *book) figures() string {
	var out bytes.Buffer
	b.must(b.WriteMetrics(b.t.Context(), metrics.NewPage(&out)))
	return out.String()
}

// TestBudget has names of one account that may cause five writes an hour: five stand at once, the next one waits
// for the sixth write, the one after it for the seventh.
func TestBudget(t *testing.T) {
	b := newBook(t)
	b.writes = 5
	b.configure("auto", b.account("own", "secret"))
	b.service("example.com", b.account("key", "secret"))
	var names []string
	for i := range 7 {
		names = append(names, b.reserve("example.com", fmt.Sprint("n", i), int64(i), "active"))
	}
	for i, name := range names {
		b.due(name, reconcile.LaneChanged) // as its reservation has done
		b.written(name)
		want := time.Duration(max(0, i-4)) * time.Hour / 5
		if got := b.change(name); got != want {
			t.Errorf("change %d waits for %v, want %v", i+1, got, want)
		}
	}
	if got := b.change(names[5]); got != time.Hour/5 {
		t.Errorf("a second change of a name that waits is due in %v: it waits with the first", got)
	}
	if count := strings.Count(b.log.String(), "used up"); count != 1 {
		t.Errorf("%d warnings, want one: %s", count, &b.log)
	}
	figures := b.figures()
	for _, line := range []string{`meshddns_node_writes_left{provider="cloudflare"} 0`, "meshddns_node_changes_waiting 2"} {
		if !strings.Contains(figures, line) {
			t.Errorf("%s is not in %s", line, figures)
		}
	}
	for _, name := range names {
		b.written(name)
	}
	b.now = b.now.Add(3 * time.Hour)
	if got := b.change(names[0]); got != 0 {
		t.Errorf("hours later a change waits for %v", got)
	}
	b.now = b.now.Add(-2 * time.Hour)
	if got := b.change(names[1]); got != 0 {
		t.Errorf("after the clock was set back, a change waits for %v", got)
	}
	if figures := b.figures(); !strings.Contains(figures, `writes_left{provider="cloudflare"} 3`) {
		t.Errorf("after two of five changes: %s", figures)
	}
}

// TestBudgetOfNames has a name that changes all the time: three times at once, and then once in ledger.ChangeEvery. The
// built-in server takes every change.
func TestBudgetOfNames(t *testing.T) {
	b := newBook(t)
	b.configure("auto", b.account("own", "secret"))
	b.service("example.com", b.account("key", "secret"))
	name := b.reserve("example.com", "x", 1, "active")
	writes := func() (count int) {
		for range 600 {
			if b.change(name) == 0 {
				count++
				b.written(name)
			}
			b.now = b.now.Add(time.Second)
			if n := b.name(name); n.Lane == reconcile.LaneLater && !n.Due.After(b.now) {
				count++
				b.written(name)
			}
		}
		return count
	}
	most := 3 + int(10*time.Minute/ledger.ChangeEvery)
	if got := writes(); got > most || got < most-1 {
		t.Errorf("%d writes in ten minutes, want %d", got, most)
	}
	b.exec(`UPDATE accounts SET provider = 'builtin'`)
	if got := writes(); got != 600 {
		t.Errorf("%d of 600 changes are written at once at the built-in server", got)
	}
}

// TestCostOfFormats has a name with four formats: a change costs four writes.
func TestCostOfFormats(t *testing.T) {
	b := newBook(t)
	b.writes = 8
	b.configure("auto", b.account("own", "secret"))
	b.service("example.com", b.account("key", "secret"))
	for i, want := range []time.Duration{0, 0, time.Hour / 2} {
		name := b.reserve("example.com", fmt.Sprint("n", i), int64(i), "active")
		b.exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (?, '["mesh1","a","hostport","ip4p"]', '', '')`, i+1)
		if got := b.change(name); got != want {
			t.Errorf("change %d waits for %v, want %v", i+1, got, want)
		}
	}
}

// TestBudgetOfAnOrder: in mode manual, while synchronisation is disabled, and without a configuration, changes cost nothing.
func TestBudgetOfAnOrder(t *testing.T) {
	for what, settings := range map[string]string{
		"manual": `UPDATE configuration SET sync_mode = 'manual'`, "disabled": `UPDATE configuration SET enabled = 0`, "none": `DELETE FROM configuration`,
	} {
		b := newBook(t)
		b.writes = 1
		b.configure("auto", b.account("own", "secret"))
		b.service("example.org", b.account("key", "secret"))
		b.exec(settings)
		for i := range 5 {
			if got := b.change(b.reserve("example.org", fmt.Sprint("n", i), int64(i), "active")); got != 0 {
				t.Errorf("%s: change %d waits for %v", what, i+1, got)
			}
		}
	}
}

// TestLongestWaitOfBudget has more changes than an account has writes for a day.
func TestLongestWaitOfBudget(t *testing.T) {
	b := newBook(t)
	b.writes = 1
	b.configure("auto", b.account("own", "secret"))
	b.service("example.com", b.account("key", "secret"))
	var last time.Duration
	for i := range 30 {
		last = b.change(b.reserve("example.com", fmt.Sprint("n", i), int64(i), "active"))
	}
	if last != reconcile.LaneLater.LongestWait() {
		t.Errorf("the last change waits for %v", last)
	}
}

// TestMarkNode has a name that is due already when a node changes it and has to wait.
func TestMarkNode(t *testing.T) {
	zone := reconcile.ZoneLane(1, "example.com")
	for lane, want := range map[reconcile.Lane]reconcile.Lane{
		reconcile.LaneAsked: reconcile.LaneAsked, reconcile.LaneChanged: reconcile.LaneChanged, reconcile.LaneHeld: reconcile.LaneHeld, zone: zone,
		reconcile.LaneNode: reconcile.LaneLater, reconcile.LaneLater: reconcile.LaneLater,
	} {
		b := newBook(t)
		b.writes = 1
		b.configure("auto", b.account("own", "secret"))
		b.service("example.com", b.account("key", "secret"))
		name, other := b.reserve("example.com", "x", 1, "active"), b.reserve("example.com", "other", 2, "active")
		b.change(other)
		b.due(name, lane)
		b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.MarkNode(ctx, tx, name) })
		n := b.name(name)
		if n.Lane != want || n.Version != 2 || n.Due.After(b.now) != (want == reconcile.LaneLater) {
			t.Errorf("from lane %q to lane %q, due in %v, version %d", lane, n.Lane, n.Due.Sub(b.now), n.Version)
		}
		b.due(name, reconcile.LaneChanged)
		if n := b.name(name); n.Due.After(b.now) || n.Lane != reconcile.LaneChanged && n.Lane != reconcile.LaneAsked {
			t.Errorf("after a change by a person: lane %q, due in %v", n.Lane, n.Due.Sub(b.now))
		}
	}
}

// TestPassAndWaitingChanges: a pass by the clock leaves out the names that wait for writes, one that a person asks for
// takes them, and a review finds them.
func TestPassAndWaitingChanges(t *testing.T) {
	b := newBook(t)
	b.configure("auto", b.account("own", "secret"))
	b.writes = 1
	b.service("example.org", b.account("key", "secret"))
	first, second := b.reserve("example.org", "a", 1, "active"), b.reserve("example.org", "b", 2, "active")
	b.change(first)
	b.change(second)
	settings, err := b.Settings(t.Context())
	b.must(err)
	begin := func(trigger string) int64 {
		number, err := b.BeginPass(t.Context(), reconcile.Progress{Report: reconcile.Report{Trigger: trigger}}, settings)
		b.must(err)
		return number
	}
	want(t, "a pass by the clock", b.after("", begin(reconcile.TriggerInterval)), []string{first})
	want(t, "a review", b.after("", 0), []string{first, second})
	b.reopen()
	want(t, "the pass of a start", b.after("", begin(reconcile.TriggerStart)), []string{first, second})
	b.change(first)
	b.change(second)
	want(t, "a later pass by the clock", b.after("", begin(reconcile.TriggerInterval)), []string{first})
	want(t, "a pass that a person asks for", b.after("", begin(reconcile.TriggerManual)), []string{first, second})
	want(t, "due", b.dueIn(reconcile.LaneNode), []string{first, second})
}
