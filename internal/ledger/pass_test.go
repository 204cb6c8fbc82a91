package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"meshddns/internal/reconcile"
)

// after gives the names that a pass has still to work on.
func (b *book) after(cursor string, pass int64) []string {
	b.t.Helper()
	names, err := b.NamesAfter(b.t.Context(), cursor, pass, 100)
	b.must(err)
	return names
}

// TestPassIsCut has a pass that a program begins, and that another one begins anew.
func TestPassIsCut(t *testing.T) {
	b := newBook(t)
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.RequestPass(ctx, tx, reconcile.TriggerAddress) })
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.RequestPass(ctx, tx, reconcile.TriggerChange) })
	asked := reconcile.Request{Trigger: reconcile.TriggerChange, At: b.now}
	b.wantRequest(asked)
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.RequestPass(ctx, tx, reconcile.TriggerAddress) })
	b.wantRequest(asked)

	settings, err := b.Settings(t.Context())
	b.must(err)
	progress := reconcile.Progress{Sweep: true, Report: reconcile.Report{StartedAt: b.now.UTC(), Trigger: reconcile.TriggerManual}}
	if number, err := b.BeginPass(t.Context(), progress, reconcile.Settings{Configured: true}); number != 0 || err != nil {
		t.Errorf("under other settings pass %d begins, %v", number, err)
	}
	b.wantRequest(asked)
	number, err := b.BeginPass(t.Context(), progress, settings)
	if b.must(err); number != 1 {
		t.Errorf("the first pass has number %d", number)
	}
	b.wantRequest(reconcile.Request{At: asked.At})
	if report, err := b.LastReport(t.Context()); report != nil || err != nil {
		t.Errorf("before the first pass ends: %+v, %v", report, err)
	}

	b.reopen()
	progress.Number = number
	got, err := b.CutPass(t.Context())
	if b.must(err); !reflect.DeepEqual(got, progress) {
		t.Errorf("%+v was cut, want %+v", got, progress)
	}
	b.wantRequest(reconcile.Request{At: asked.At})
	progress.Report.Names, progress.Report.Counts = 3, map[string]int{reconcile.ActionCreate: 3}
	progress.Report.Records = []reconcile.Outcome{{Name: "a", Action: reconcile.ActionCreate, Value: "v"}}
	b.must(b.EndPass(t.Context(), progress.Report))
	b.reopen()
	report, err := b.LastReport(t.Context())
	if b.must(err); !reflect.DeepEqual(report, &progress.Report) {
		t.Errorf("%+v is the report, want %+v", report, progress.Report)
	}
	b.wantRequest(reconcile.Request{At: asked.At})
	if got, err := b.CutPass(t.Context()); got.Number != 0 || err != nil {
		t.Errorf("after its end %+v was cut, %v", got, err)
	}
	progress.Report.Trigger = reconcile.TriggerChange
	if number, err = b.BeginPass(t.Context(), progress, settings); number != 2 || err != nil {
		t.Errorf("the next pass has number %d, %v", number, err)
	}
	_, err = b.CutPass(t.Context())
	b.must(err)
	b.wantRequest(reconcile.Request{Trigger: reconcile.TriggerChange, At: b.now})
}

func (b *book) wantRequest(want reconcile.Request) {
	b.t.Helper()
	r, err := b.Request(b.t.Context())
	if b.must(err); r.Trigger != want.Trigger || !r.At.Equal(want.At) {
		b.t.Errorf("asked for is %+v, want %+v", r, want)
	}
}

// TestRequestIsDropped drops what asks for a pass, but not what a change of the settings has asked for meanwhile.
func TestRequestIsDropped(t *testing.T) {
	b := newBook(t)
	known, err := b.Settings(t.Context())
	b.must(err)
	b.configure("auto", b.account("k", "s"))
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.RequestPass(ctx, tx, reconcile.TriggerChange) })
	if dropped, err := b.DropRequest(t.Context(), known); dropped || err != nil {
		t.Errorf("under other settings: dropped %t, %v", dropped, err)
	}
	b.wantRequest(reconcile.Request{Trigger: reconcile.TriggerChange, At: b.now})
	known, err = b.Settings(t.Context())
	b.must(err)
	if number, err := b.BeginPass(t.Context(), reconcile.Progress{Report: reconcile.Report{Trigger: reconcile.TriggerManual}}, known); number != 1 || err != nil {
		t.Errorf("pass %d begins, %v", number, err)
	}
	if dropped, err := b.DropRequest(t.Context(), known); !dropped || err != nil {
		t.Errorf("dropped %t, %v", dropped, err)
	}
	b.wantRequest(reconcile.Request{At: b.now})
	if cut, err := b.CutPass(t.Context()); cut.Number != 0 || err != nil {
		t.Errorf("a pass that was dropped is begun anew: %+v, %v", cut, err)
	}
}

// TestNamesOfAPass has names that a pass has counted, that wait for their zone, and that are due for
// other reasons.
func TestNamesOfAPass(t *testing.T) {
	b := newBook(t)
	for name, d := range map[string]reconcile.Due{
		"asked":     {At: b.now, Lane: reconcile.LaneAsked},
		"bad":       {Pass: reconcile.PassMark{Number: 4, Bad: true}},
		"bad too":   {Pass: reconcile.PassMark{Number: 4, Bad: true}},
		"bad once":  {Pass: reconcile.PassMark{Number: 3, Bad: true}},
		"changed":   {At: b.now, Lane: reconcile.LaneChanged},
		"counted":   {Pass: reconcile.PassMark{Number: 4}},
		"held":      {At: b.now, Lane: reconcile.LaneHeld},
		"idle":      {},
		"next pass": {Pass: reconcile.PassMark{Number: 5}},
		"waits":     {At: b.now, Lane: reconcile.ZoneLane(1, "example.com")},
		"probe":     {At: b.now.Add(reconcile.ProbeTime), Lane: reconcile.LaneAsked},
		"zone once": {Lane: reconcile.ZoneLane(1, "example.com")},
	} {
		b.due(name, reconcile.LaneChanged)
		d.Name, d.Version = name, 1
		b.settle(d)
		if n := b.name(name); n.Pass != d.Pass {
			t.Errorf("%s: mark %+v, want %+v", name, n.Pass, d.Pass)
		}
	}
	want(t, "the pass", b.after("", 4), []string{"asked", "bad once", "changed", "held", "idle", "next pass", "zone once"})
	want(t, "behind a cursor", b.after("changed", 4), []string{"held", "idle", "next pass", "zone once"})
	want(t, "of no pass", b.after("", 0), []string{"asked", "bad", "bad once", "bad too", "changed", "counted", "held", "idle", "next pass", "zone once"})
	b.settle(reconcile.Due{Name: "bad", Version: 1})
	if n := b.name("bad"); n.Pass != (reconcile.PassMark{Number: 4, Bad: true}) {
		t.Errorf("a mark goes without another: %+v", n.Pass)
	}
}

// TestPages goes through all names in pages.
func TestPages(t *testing.T) {
	b := newBook(t)
	var all, got []string
	for n := range 7 {
		all = append(all, fmt.Sprint("name ", n))
		b.due(all[n], reconcile.LaneChanged)
	}
	for cursor := ""; ; cursor = got[len(got)-1] {
		page, err := b.NamesAfter(t.Context(), cursor, 1, 3)
		if b.must(err); len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	if !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
}
