package reconcile

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
)

// Of many records of a zone that change within a second the first nine have a line each, and the
// rest one line that counts them. Other zones and later records are not among them.
func TestNewsCountsACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := newNews(slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		change := func(zone, action string, count int) {
			for i := range count {
				n.outcomes([]Outcome{{Name: fmt.Sprint("name", i), Zone: zone, Provider: "p", Action: action, at: "1"}})
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
			`level=INFO msg=records names=9991 first=name9 provider=p zone=z action=update code="" detail=""`,
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
		change("z", ActionUpdate, 12)
		n.passEnds(Report{Trigger: TriggerManual})
		if lines = next(); len(lines) != crowdAfter+2 || !strings.Contains(lines[crowdAfter], "names=3") || !strings.Contains(lines[crowdAfter+1], "msg=synchronised") {
			t.Errorf("a pass has ended:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// That no resolver finds a zone is one warning, however many records it has, and a line when
// resolvers find it again.
func TestNewsOfAZoneThatIsNotFound(t *testing.T) {
	var log strings.Builder
	n := newNews(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return time.Unix(0, 0) })
	pass := func(number int64, action, code string) string {
		n.mu.Lock()
		log.Reset()
		n.mu.Unlock()
		n.passBegins(number)
		for i := range 51 {
			o := Outcome{Name: fmt.Sprint("name", i), Zone: "z", Provider: "builtin", Action: action, at: "1"}
			other := o // a record in another format has no warning
			o.Fault, other.Sibling, other.at = Fault{Code: code}, Sibling{Owner: "a", Type: provider.A}, "2"
			n.outcomes([]Outcome{o, other})
		}
		n.passEnds(Report{Trigger: TriggerInterval})
		n.mu.Lock()
		defer n.mu.Unlock()
		return log.String()
	}
	got := pass(1, ActionCreate, CodeZoneUnreachable)
	if strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, `level=WARN msg="no resolver finds the zone" zone=z provider=builtin code=zone_unreachable`) {
		t.Errorf("51 names:\n%s", got)
	}
	for number := range int64(3) {
		if got := pass(2+number, ActionUnchanged, CodeZoneUnreachable); got != "" {
			t.Errorf("what stays is told: %s", got)
		}
	}
	if got := pass(5, ActionUnchanged, ""); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=INFO msg="resolvers find the zone again" zone=z`) {
		t.Errorf("found again:\n%s", got)
	}
}
