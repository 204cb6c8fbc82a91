package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNewsIsBounded has more names fail, one after the other, than are remembered:
// the log says so once, and what two passes have not met is forgotten.
func TestNewsIsBounded(t *testing.T) {
	var log strings.Builder
	n := newNews(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return time.Unix(0, 0) })
	n.passBegins(1)
	fail := func(i int) {
		n.outcomes([]Outcome{{Name: fmt.Sprint("name", i), Zone: fmt.Sprint("zone", i), Action: ActionConflict, Fault: Fault{Code: "conflict"}, at: "1"}})
	}
	for range 2 {
		for i := range 2 * toldNames {
			fail(i)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != toldNames+1 || len(n.told) != toldNames {
		t.Errorf("%d lines, %d names", lines, len(n.told))
	}
	if full := strings.Count(log.String(), "more names"); full != 1 {
		t.Errorf("told %d times that there are more", full)
	}
	for number := range int64(3) {
		n.passBegins(2 + number)
		fail(7)
		n.passEnds(Report{Trigger: TriggerInterval})
	}
	if len(n.told) != 1 || strings.Count(log.String(), "\n") != toldNames+1 {
		t.Errorf("%d names after passes without them", len(n.told))
	}
}

// TestZonesAreBounded meets more zones that are well than are remembered, and one that is down: that one is.
func TestZonesAreBounded(t *testing.T) {
	n := newNews(slog.New(slog.DiscardHandler), func() time.Time { return time.Unix(1, 0) })
	e := &Engine{news: n}
	for i := range 2 * metZones {
		n.zone(Record{Account: Account{ID: 1}, Domain: fmt.Sprint("zone", i)}, ZoneState{Since: n.now()}, 0)
	}
	n.zone(Record{Account: Account{ID: 2}, Domain: "zone"}, ZoneState{Since: n.now(), Fault: Fault{Code: "network"}}, 1)
	if z, known := e.Zone(2, "zone"); !known || z.Since.IsZero() || len(n.zones) != metZones+1 {
		t.Errorf("%+v %t, %d zones", z, known, len(n.zones))
	}
	for i := range 2 * downZones {
		n.zone(Record{Account: Account{ID: 2}, Domain: fmt.Sprint("zone", i)}, ZoneState{Since: time.Unix(1, 0), Fault: Fault{Code: "network"}}, 1)
	}
	if down := e.DownZones(); len(down) != downZones {
		t.Errorf("%d zones are listed as down", len(down))
	}
}

// TestNewsOfARecord is the life of one record in the log.
func TestNewsOfARecord(t *testing.T) {
	var log strings.Builder
	n := newNews(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return time.Unix(0, 0) })
	leftover := Outcome{Name: "a", Action: ActionLeftover, Fault: Fault{Code: "credentials"}, at: "1 7"}
	for i, step := range []struct {
		outcome Outcome
		want    string
	}{
		{Outcome{Name: "a", Action: ActionCreate, at: "1"}, "level=INFO msg=record name=a"},
		{Outcome{Name: "a", Action: ActionUnchanged, at: "1"}, ""},
		{Outcome{Name: "a", Action: "", Fault: Fault{Code: "network"}, at: "1"}, ""}, // tried again
		{Outcome{Name: "a", Action: ActionFailed, Fault: Fault{Code: "network"}, at: "1", zoneDown: true}, ""},
		{Outcome{Name: "a", Action: ActionConflict, Fault: Fault{Code: "conflict", Detail: "x"}, at: "1"}, "level=WARN"},
		{Outcome{Name: "a", Action: ActionConflict, Fault: Fault{Code: "conflict", Detail: "y"}, at: "1"}, ""},
		{leftover, "level=WARN"},
		{Outcome{Name: "a", Action: ActionFailed, Fault: Fault{Code: "quota"}, at: "1"}, "level=WARN"},
		{leftover, ""},
		{Outcome{Name: "a", Action: ActionUpdate, Fault: Fault{Code: CodeAddressUnknown}, at: "1"}, "level=WARN"},
		{Outcome{Name: "a", Action: ActionUnchanged, Fault: Fault{Code: CodeAddressUnknown}, at: "1"}, ""},
		{Outcome{Name: "a", Action: ActionUnchanged, at: "1"}, "level=INFO msg=record name=a provider=\"\" action=unchanged code=\"\" was=address_unknown"},
		{Outcome{Name: "a", Action: ActionSkipped, Fault: Fault{Code: CodeNoProvider}}, "level=INFO"},
		{Outcome{Name: "a", Action: ActionSkipped, Fault: Fault{Code: CodeNoProvider}}, ""},
	} {
		log.Reset()
		clear(n.crowds)
		n.outcomes([]Outcome{step.outcome})
		if got := log.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestNewsOfTheDatabase has the database fail and work in turns, as on a full disk: that is
// one line until it has worked for a while.
func TestNewsOfTheDatabase(t *testing.T) {
	var log strings.Builder
	now := time.Unix(0, 0)
	n := newNews(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	full, other := errors.New("disk full"), errors.New("input/output error")
	for i, step := range []struct {
		after time.Duration
		err   error
		want  string
		next  time.Duration
	}{
		{0, nil, "", 0},
		{0, full, `level=ERROR msg="the database fails" what=settle error="disk full"`, 0},
		{time.Hour, full, "", 0},
		{time.Second, nil, "", calm},
		{calm - time.Second, full, "", 0},
		{time.Second, nil, "", calm},
		{time.Second, other, `error="input/output error"`, 0},
		{time.Minute, nil, "", calm},
		{time.Second, nil, "", calm - time.Second},
		{calm - time.Second, nil, `level=INFO msg="the database is well again" what=settle after=1m0s`, 0},
		{0, full, `error="disk full"`, 0},
	} {
		log.Reset()
		now = now.Add(step.after)
		n.database("settle", "zone", step.err)
		next := n.calmed()
		if got := log.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if next.IsZero() != (step.next == 0) || step.next != 0 && next.Sub(now) != step.next {
			t.Errorf("step %d: it is to be asked after %v, want %v", i, next.Sub(now), step.next)
		}
	}
}

// Of many records of a zone that change or fail within a second the first nine have a line each, and the
// rest one line that counts them. Other zones and later records are not among them.
func TestNewsCountsACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := newNews(slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		change := func(zone, action string, count int) {
			code := map[string]string{ActionFailed: "quota"}[action]
			for i := range count {
				n.outcomes([]Outcome{{Name: fmt.Sprint("name", i), Zone: zone, Provider: "p", Action: action, Fault: Fault{Code: code}, at: "1"}})
			}
		}
		next := func() (lines []string) {
			<-time.After(2 * crowdTime)
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			lines = strings.Split(strings.TrimSpace(log.String()), "\n")
			log.Reset()
			return lines
		}
		change("z", ActionUpdate, 10_000)
		change("other", ActionCreate, 3)
		change("z", ActionDelete, 1)
		lines := next()
		if len(lines) != crowdAfter+3+2 {
			t.Fatalf("%d lines:\n%s", len(lines), strings.Join(lines[:min(20, len(lines))], "\n"))
		}
		last := strings.Join(lines[len(lines)-2:], "\n")
		for _, want := range []string{
			`level=INFO msg=records names=9991 first=name9 provider=p zone=z action=update code="" was="" detail=""`,
			`msg=records names=1 first=name0 provider=p zone=z action=delete`,
		} {
			if !strings.Contains(last, want) {
				t.Errorf("the last lines are\n%s\nwant %s", last, want)
			}
		}
		change("z", ActionUpdate, 2)
		if lines = next(); len(lines) != 2 || len(n.crowds) != 0 {
			t.Errorf("a second later %d crowds are left:\n%s", len(n.crowds), strings.Join(lines, "\n"))
		}
		change("z", ActionFailed, 12)
		if lines = next(); len(lines) != crowdAfter+1 || !strings.Contains(lines[crowdAfter], `level=WARN msg=records names=3 first=name9 provider=p zone=z action=failed code=quota was=""`) {
			t.Errorf("some fail:\n%s", strings.Join(lines, "\n"))
		}
		change("z", ActionUnchanged, 12)
		if lines = next(); len(lines) != crowdAfter+1 || !strings.Contains(lines[crowdAfter], `level=INFO msg=records names=3 first=name9 provider=p zone=z action=unchanged code="" was=quota`) {
			t.Errorf("they are well again:\n%s", strings.Join(lines, "\n"))
		}
		change("z", ActionUpdate, 12)
		n.end() // as at a stop
		if got := log.String(); strings.Count(got, "\n") != crowdAfter+1 || !strings.Contains(got, "msg=records names=3") {
			t.Errorf("at the end:\n%s", got)
		}
		log.Reset()
		if lines = next(); lines[0] != "" {
			t.Errorf("after the end:\n%s", strings.Join(lines, "\n"))
		}
	})
}
