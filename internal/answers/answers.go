// Package answers writes for clients, in their language, the state that package reconcile and a
// connection test report, and derives the publishing state of a usage.
package answers

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// TestItem is the result of one step of a connection test.
type TestItem struct {
	Name        string
	OK, Skipped bool
	Fault       reconcile.Fault // with OK a warning; with Skipped the reason, unless an earlier step failed
	Duration    time.Duration
}

// TestItems returns the results of a test's steps without the secret of the account that the test used.
func TestItems(items []reconcile.ProbeItem, account reconcile.Account) (all []TestItem) {
	for _, item := range items {
		shown := TestItem{Name: item.Name, OK: item.Err == nil && !item.Skipped, Skipped: item.Skipped, Duration: item.Duration}
		if news := cmp.Or(item.Err, item.Warning); news != nil {
			shown.Fault = reconcile.Describe(news, account)
		}
		all = append(all, shown)
	}
	return all
}

type testItem struct {
	Name       string `json:"name"`
	OK         bool   `json:"ok"`
	Skipped    bool   `json:"skipped"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	DurationMS int64  `json:"duration_ms"`
}

// Test returns the items of a connection test.
func Test(items []TestItem, language msg.Language) any {
	var answer []testItem
	for _, item := range items {
		shown := item.Fault
		switch {
		case shown.Code == "" && item.Skipped:
			shown.Code = string(msg.TestSkipped)
		case shown.Code == "":
			shown.Code = string(msg.TestOK)
		}
		answer = append(answer, testItem{
			Name: item.Name, OK: item.OK, Skipped: item.Skipped, Code: shown.Code,
			Message: shown.In(language), DurationMS: item.Duration.Milliseconds(),
		})
	}
	return answer
}

type record struct {
	Name       string      `json:"name"`
	Provider   string      `json:"provider"`
	Zone       string      `json:"zone"`
	NetworkID  json.Number `json:"network_id,omitempty"`
	Action     string      `json:"action"`
	Value      string      `json:"value"`
	Error      string      `json:"error"`
	Attempts   int         `json:"attempts"`
	DurationMS int64       `json:"duration_ms"`
}

// Report returns a report and the time of the next planned pass. Names, zones and values of orphans
// come from the provider, and may be no valid text.
func Report(r reconcile.Report, next time.Time, language msg.Language) any {
	answer := struct {
		StartedAt  time.Time      `json:"started_at"`
		FinishedAt time.Time      `json:"finished_at"`
		Trigger    string         `json:"trigger"`
		OK         bool           `json:"ok"`
		Complete   bool           `json:"complete"`
		Counts     map[string]int `json:"counts"`
		Records    []record       `json:"records"`
		NextAt     time.Time      `json:"next_at,omitzero"`
	}{
		StartedAt: milliseconds(r.StartedAt), FinishedAt: milliseconds(r.FinishedAt), Trigger: r.Trigger, OK: r.OK(),
		Complete: r.Complete, Counts: map[string]int{}, Records: []record{}, NextAt: milliseconds(next),
	}
	for _, action := range reconcile.CountedActions {
		answer.Counts[action] = r.Counts[action]
	}
	for _, o := range r.Records {
		answer.Records = append(answer.Records, record{
			Name: msg.Printable(o.Sibling.Of(o.Name)), Provider: o.Provider, Zone: msg.Printable(o.Zone), NetworkID: json.Number(o.Network),
			Action: o.Action, Value: msg.Printable(o.Sibling.Shown(o.Value)),
			Error: o.Fault.In(language), Attempts: o.Attempts, DurationMS: o.Duration.Milliseconds(),
		})
	}
	return answer
}

// Leftover is a leftover in an answer.
type Leftover struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Zone        string    `json:"zone"`
	Provider    string    `json:"provider"`
	Endpoint    string    `json:"endpoint"`
	AccessKeyID string    `json:"access_key_id"`
	Value       string    `json:"value"`
	Code        string    `json:"code"`
	Error       string    `json:"error"`
	Attempts    int       `json:"attempts"`
	Since       string    `json:"since"`
	NextAt      time.Time `json:"next_at,omitzero"`
}

// NewLeftover makes a Leftover of a place. since is the time at which it became one, next the time of
// the next attempt.
func NewLeftover(p reconcile.Place, since string, next time.Time, language msg.Language) Leftover {
	return Leftover{
		ID: strconv.FormatInt(p.ID, 10), Name: msg.Printable(p.Sibling.Of(p.Name)), Zone: msg.Printable(p.Zone), Provider: p.Account.Provider,
		Endpoint: p.Account.Endpoint, AccessKeyID: p.Account.AccessKeyID, Value: msg.Printable(p.Sibling.Shown(cmp.Or(p.Standing, p.Doubt.Value))),
		Code: p.Fault.Code, Error: p.Fault.In(language), Attempts: p.Attempts, Since: since, NextAt: milliseconds(next),
	}
}

// Zone is the last known state of a zone.
type Zone struct {
	State string `json:"state"`
	Since string `json:"since"`
	Error string `json:"error"`
}

// NewZone makes a Zone of a state; known is false if there is none.
func NewZone(z reconcile.ZoneState, known bool, language msg.Language) Zone {
	switch {
	case !known:
		return Zone{State: "unknown"}
	case z.Fault.Code == "":
		return Zone{State: "ok", Since: sqlite.Shown(z.Since)}
	}
	return Zone{State: "down", Since: sqlite.Shown(z.Since), Error: z.Fault.In(language)}
}

func milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}
