package reconcile

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		change("z", ActionFailed, 12)
		if lines = next(); len(lines) != crowdAfter+1 || !strings.Contains(lines[crowdAfter], `level=WARN msg=records names=3 first=name9 provider=p zone=z action=failed code=quota`) {
			t.Errorf("some fail:\n%s", strings.Join(lines, "\n"))
		}
		change("z", ActionUnchanged, 12)
		if lines = next(); len(lines) != crowdAfter+1 || !strings.Contains(lines[crowdAfter], "level=INFO msg=records names=3") {
			t.Errorf("they are well again:\n%s", strings.Join(lines, "\n"))
		}
	})
}
