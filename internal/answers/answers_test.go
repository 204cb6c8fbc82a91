package answers

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// shown returns an answer in JSON.
func shown(t *testing.T, answer any) string {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTest has steps of a connection test that succeeded, failed, warned and were skipped. None contains
// the secret that the test used.
func TestTest(t *testing.T) {
	const secret = "sesame-sesame"
	refused := &provider.Error{Kind: provider.BadCredentials, Detail: "no key " + secret}
	items := TestItems([]reconcile.ProbeItem{
		{Name: "fine", Duration: 1500 * time.Microsecond},
		{Name: "failed", Err: refused},
		{Name: "warned", Warning: refused},
		{Name: "skipped", Skipped: true},
		{Name: "unknown", Skipped: true, Err: errors.New("no such step")},
	}, reconcile.Account{Secret: secret})
	var answer []struct {
		Name, Code, Message string
		OK, Skipped         bool
		DurationMS          int64 `json:"duration_ms"`
	}
	text := shown(t, Test(items, msg.English))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer) != len(items) {
		t.Fatalf("%v: %s", err, text)
	}
	for i, want := range []struct {
		name, code  string
		ok, skipped bool
	}{
		{"fine", "ok", true, false}, {"failed", string(provider.BadCredentials), false, false}, {"warned", string(provider.BadCredentials), true, false},
		{"skipped", "skipped", false, true}, {"unknown", string(provider.BadAnswer), false, true},
	} {
		if got := answer[i]; got.Name != want.name || got.Code != want.code || got.OK != want.ok || got.Skipped != want.skipped || got.Message == "" {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if answer[0].DurationMS != 1 || strings.Contains(text, secret) || !strings.Contains(text, "no key ***") {
		t.Error(text)
	}
}

// TestReport has a record with the raw texts of a provider, and times with more digits than an answer
// has.
func TestReport(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("east", 3600))
	text := shown(t, Report(reconcile.Report{
		StartedAt: begun, FinishedAt: begun.Add(time.Second), Trigger: "timer", Complete: true, Counts: map[string]int{reconcile.ActionOrphan: 1, "other": 5},
		Records: []reconcile.Outcome{{Name: "a\x1b[2J", Zone: "z\u202e", Value: "v\nw", Action: reconcile.ActionOrphan, Network: "18446744073709551615"}},
	}, time.Time{}, msg.English))
	for _, want := range []string{
		`"started_at":"2026-01-02T02:04:05.678Z"`, `"name":"a?[2J"`, `"zone":"z?"`, `"value":"v w"`, `"network_id":18446744073709551615`,
		`"` + reconcile.ActionOrphan + `":1`, `"` + reconcile.ActionCreate + `":0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if strings.Contains(text, "next_at") || strings.Contains(text, "other") {
		t.Errorf("%s has what is not known", text)
	}
	if empty := shown(t, Report(reconcile.Report{}, begun, msg.English)); !strings.Contains(empty, `"records":[]`) || !strings.Contains(empty, `"next_at":"2026-01-02T02:04:05.678Z"`) {
		t.Errorf("a report of nothing is %s", empty)
	}
}

func TestZoneAndLeftover(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	down := reconcile.Fault{Code: string(provider.BadCredentials)}
	for _, test := range []struct {
		zone  reconcile.ZoneState
		known bool
		want  Zone
	}{
		{reconcile.ZoneState{Since: since, Fault: down}, false, Zone{State: "unknown"}},
		{reconcile.ZoneState{Since: since}, true, Zone{State: "ok", Since: "2026-01-02T03:04:05.000Z"}},
		{reconcile.ZoneState{Since: since, Fault: down}, true, Zone{"down", "2026-01-02T03:04:05.000Z", down.In(msg.English)}},
	} {
		if got := NewZone(test.zone, test.known, msg.English); got != test.want {
			t.Errorf("%+v, want %+v", got, test.want)
		}
	}
	place := reconcile.Place{ID: 7, Name: "a\x00", Standing: "v\x1b", Fault: down, Attempts: 3, Account: reconcile.Account{Provider: "alidns", AccessKeyID: "id", Secret: "sesame-sesame"}}
	got := NewLeftover(place, "since", since, msg.English)
	want := Leftover{
		ID: "7", Name: "a?", Provider: "alidns", AccessKeyID: "id", Value: "v?", Code: "credentials", Error: down.In(msg.English), Attempts: 3, Since: "since", NextAt: since,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
