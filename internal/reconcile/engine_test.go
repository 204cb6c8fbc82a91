package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
)

func TestDescribe(t *testing.T) {
	for what, test := range map[string]struct {
		err       error
		want      Fault
		transient bool
	}{
		"a kind":      {&provider.Error{Kind: provider.Temporary, Detail: "the server said no"}, Fault{Code: "temporary", Detail: "the server said no"}, true},
		"a cause":     {fmt.Errorf("read: %w", &provider.Error{Kind: provider.Quota, Err: errors.New("full")}), Fault{Code: "quota", Detail: "full"}, false},
		"none":        {errors.New("odd"), Fault{Code: "bad_answer", Detail: "odd"}, false},
		"the secret":  {&provider.Error{Kind: provider.BadCredentials, Detail: "bad key s3cr3t!"}, Fault{Code: "credentials", Detail: "bad key ***!"}, false},
		"its hex":     {&provider.Error{Kind: provider.Invalid, Detail: "no key 733363723374210a"}, Fault{Code: "invalid", Detail: "no key ***"}, false},
		"no text":     {&provider.Error{Kind: provider.Invalid, Err: errors.New("a\x1b[2J\u202e\nb\xff")}, Fault{Code: "invalid", Detail: "a?[2J? b?"}, false},
		"interrupted": {fmt.Errorf("read: %w", context.Canceled), Fault{Code: CodeInterrupted, Detail: "broken off"}, true},
	} {
		got := Describe(test.err, Account{Secret: "s3cr3t"})
		said, want := got.Detail.String(), test.want.Detail.String()
		if strings.Contains(string(got.Detail), "s3cr3t") || got.Code != test.want.Code || !strings.Contains(want, "***") && said != want || transient(got) != test.transient {
			t.Errorf("%s: %+v, transient %t", what, got, transient(got))
		}
	}
}

func TestReportCounts(t *testing.T) {
	var r Report
	r.add([]Outcome{{Name: "b", Action: ActionCreate}, {Name: "b", Action: ActionDelete}}, false, false)
	r.add([]Outcome{{Name: "a", Action: ActionConflict}, {Name: "a", Action: ActionFailed}}, false, false)
	r.add([]Outcome{{Name: "c", Action: ActionUnchanged}}, false, false)
	r.add([]Outcome{{Name: "d", Action: ActionUnchanged, Fault: Fault{Code: CodeAddressUnknown}}}, false, false)
	r.add([]Outcome{{Name: "e", Action: ""}}, false, false)
	r.add([]Outcome{{Name: "c", Action: ActionUnchanged}}, true, false)
	r.add([]Outcome{{Name: "f", Action: ActionLeftover, Fault: Fault{Code: "credentials"}}}, false, false)
	r.finish(time.Unix(1, 0))
	want := map[string]int{
		ActionCreate: 1, ActionDelete: 1, ActionConflict: 1, ActionFailed: 1, ActionUnchanged: 2, ActionLeftover: 1, "warning": 1,
	}
	if r.Names != 5 || r.Bad != 1 || r.OK() || !r.Complete || r.FirstBad().Name != "a" || fmt.Sprint(r.Counts) != fmt.Sprint(want) {
		t.Errorf("%+v", r)
	}
	var names []string
	for _, o := range r.Records {
		names = append(names, o.Name)
	}
	if !slices.Equal(names, []string{"a", "a", "b", "b", "d", "f"}) {
		t.Errorf("records of %q", names)
	}
}

// TestReportIsBounded has more records than fit: those that are not as they
// should be stay, in order of name.
func TestReportIsBounded(t *testing.T) {
	var r Report
	for n := range 5 * maxRecords {
		o := Outcome{Name: fmt.Sprintf("%05d", n), Action: ActionCreate}
		if n%100 == 99 {
			o.Action = ActionFailed
		}
		r.add([]Outcome{o}, false, false)
	}
	r.finish(time.Unix(1, 0))
	bad := 0
	for _, o := range r.Records {
		if o.bad() {
			bad++
		}
	}
	if len(r.Records) != maxRecords || bad != 50 || r.Bad != 50 || r.Names != 5*maxRecords || r.Counts[ActionCreate] != 5*maxRecords-50 {
		t.Errorf("%d records, %d of them bad; %d of %d, %v", len(r.Records), bad, r.Bad, r.Names, r.Counts)
	}
	if !slices.IsSortedFunc(r.Records, func(a, b Outcome) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in order of name")
	}
}

// TestVerdicts are what becomes of a place after each kind of end.
func TestVerdicts(t *testing.T) {
	standing := Place{ID: 1, State: Published, Standing: ours1}
	for what, test := range map[string]struct {
		record  Record
		place   Place
		fault   Fault
		attempt int
		givenUp bool
		action  string
		state   PlaceState
		again   bool
		phase   phase
	}{
		"published, tried again":        {Record{Want: ours1}, standing, Fault{Code: "network"}, 0, false, "", Failed, true, done},
		"published, for the last time":  {Record{Want: ours1}, standing, Fault{Code: "network"}, 3, false, ActionFailed, Failed, false, done},
		"published, for good":           {Record{Want: ours1}, standing, Fault{Code: "permission"}, 0, false, ActionFailed, Failed, false, done},
		"published, its zone is down":   {Record{Want: ours1}, standing, Fault{Code: "network"}, 0, true, ActionFailed, Failed, false, untried},
		"not asked as yet":              {Record{Want: ours1}, standing, Fault{Code: "network"}, 0, false, "", Published, true, untried},
		"interrupted":                   {Record{Want: ours1}, standing, Fault{Code: CodeInterrupted}, 3, true, "", Published, true, done},
		"a conflict":                    {Record{Want: ours1}, standing, Fault{Code: "conflict"}, 0, false, ActionConflict, Conflict, false, done},
		"withdrawal, tried again":       {Record{Waited: true}, standing, Fault{Code: "network"}, 0, false, "", Withdrawing, true, done},
		"withdrawal that is waited for": {Record{Waited: true}, standing, Fault{Code: "network"}, 3, false, ActionFailed, Withdrawing, false, done},
		"withdrawal that never can be":  {Record{Waited: true}, standing, Fault{Code: "credentials"}, 0, false, ActionLeftover, Leftover, false, done},
		"withdrawal of nobody's":        {Record{}, standing, Fault{Code: "network"}, 3, false, ActionLeftover, Leftover, false, done},
		"a tombstone cannot be seen":    {Record{}, Place{ID: 1, State: Withdrawn}, Fault{Code: "credentials"}, 0, false, "", Withdrawn, false, done},
	} {
		test.record.Place = test.place
		i := &item{record: test.record, place: test.place, fault: test.fault, phase: test.phase}
		v := verdict{item: i, job: &job{attempt: test.attempt}, now: time.Unix(100, 0), retry: provider.Backoff{First: time.Second, Retries: 3}, lane: &zoneLane{key: "zone x"}, givenUp: test.givenUp}
		o, back := v.conclude()
		if o.Action != test.action || i.place.State != test.state || back.At.IsZero() == test.again {
			t.Errorf("%s: action %q, state %s, back %+v", what, o.Action, i.place.State, back)
		}
	}
}

// TestSilence has a provider that answered before answer nobody any more: the rest of a
// batch is not asked. One answer among the failures, and it is.
func TestSilence(t *testing.T) {
	silent := &provider.Error{Kind: provider.Network}
	for want, answers := range map[bool]int{true: -1, false: overlapping / 2} {
		b := &batch{answered: true}
		for n := range overlapping + 1 {
			var err error = silent
			if n == answers {
				err = nil
			}
			b.note(&item{}, err)
		}
		if down := b.down != nil; down != want || b.answered == want {
			t.Errorf("with an answer at %d: down %t, answered %t", answers, down, b.answered)
		}
	}
}

// TestLanesAreForgotten has zones of which nothing is left to do: one that failed is kept until it may
// be asked again.
func TestLanesAreForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	e := New(Config{Now: func() time.Time { return now }})
	e.lanes = map[Lane]*zoneLane{
		"zone failed long ago": {fails: 4, blocked: now.Add(-time.Second)},
		"zone failed":          {fails: 4, blocked: now.Add(time.Second)},
		"zone of a wrong time": {fails: 4, blocked: now.Add(8 * time.Hour)},
		"zone waits":           {fails: 1, stored: true},
		"zone in work":         {working: true},
	}
	e.prune()
	got := slices.Sorted(maps.Keys(e.lanes))
	if want := []Lane{"zone failed", "zone in work", "zone waits"}; !slices.Equal(got, want) {
		t.Errorf("%q are kept, want %q", got, want)
	}
}

// TestOpenPanics has the client of an account panic when it is made: that account's names fail, and the
// engine goes on.
func TestOpenPanics(t *testing.T) {
	conn := connect(func(Account) (provider.DNS, error) { panic("injected") }, Account{}, time.Now())
	if conn.client != nil || conn.refusal == nil || !strings.Contains(conn.refusal.Error(), "injected") {
		t.Errorf("%+v", conn)
	}
}
