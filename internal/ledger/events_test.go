package ledger_test

import (
	"slices"
	"testing"

	"meshddns/internal/events"
	"meshddns/internal/reconcile"
)

// TestIncidents: a conflict is told once, also if outages of its zone come between, and those of two
// records of a name apart. The end has no fault, and after it a conflict is told again.
func TestIncidents(t *testing.T) {
	b := newBook(t)
	b.account("token", "one")
	const none, taken, network = "", "name_conflict", "network"
	place := func(id int64, sibling reconcile.Sibling, code string) reconcile.Place {
		state := map[string]reconcile.PlaceState{none: reconcile.Published, taken: reconcile.Conflict, network: reconcile.Failed}[code]
		return reconcile.Place{ID: id, Name: "x", Sibling: sibling, Account: reconcile.Account{ID: 1}, Zone: "example", State: state, Fault: reconcile.Fault{Code: code}}
	}
	marked, host := reconcile.Sibling{}, reconcile.Sibling{Owner: "x", Type: "A"}
	ids := map[reconcile.Sibling]int64{marked: b.put(place(0, marked, none)).ID, host: b.put(place(0, host, none)).ID}
	for _, step := range []struct {
		of   reconcile.Sibling
		code string
		want events.Kind
	}{
		{marked, taken, events.RecordConflict}, {host, taken, events.RecordConflict},
		{marked, network, ""}, {host, network, ""}, {marked, taken, ""}, {host, taken, ""}, {marked, network, ""}, {marked, taken, ""},
		{marked, none, events.RecordRecovered}, {host, network, ""}, {host, taken, ""}, {host, none, events.RecordRecovered},
		{marked, network, events.RecordFailed}, {marked, taken, events.RecordConflict}, {marked, network, ""}, {marked, taken, ""},
	} {
		before, err := b.events.Last(t.Context())
		b.must(err)
		b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{place(ids[step.of], step.of, step.code)}}))
		page, err := b.events.Page(t.Context(), events.Filter{After: before}, 10)
		b.must(err)
		var want []events.Kind
		if step.want != "" {
			want = []events.Kind{step.want}
		}
		var told []events.Kind
		for _, e := range page {
			told = append(told, e.Kind)
			if e.Kind == events.RecordRecovered && e.Detail.Fault.Code != "" {
				t.Errorf("the end of a fault has one: %+v", e.Detail.Fault)
			}
		}
		if !slices.Equal(told, want) {
			t.Errorf("%+v: %v", step, told)
		}
	}
}
