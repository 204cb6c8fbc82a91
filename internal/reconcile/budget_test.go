package reconcile

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"meshddns/internal/metrics"
)

// oneWrite is what a change costs that writes one record at an account of a cloud.
var oneWrite = cost{1: {"cloud", 1}}

// TestBudget has an account at which five writes an hour are allowed: five stand at once, the next one waits for the
// sixth write, the one after it for the seventh.
func TestBudget(t *testing.T) {
	b, now := newBudget(func(string) int { return 5 }), time.Unix(1_800_000_000, 0)
	told := 0
	spend := func(name string) time.Duration {
		wait, usedUp := b.spend(name, oneWrite, now)
		told += len(usedUp)
		return wait
	}
	for i := range 7 {
		want := time.Duration(max(0, i-4)) * time.Hour / 5
		if got := spend(fmt.Sprint("n", i)); got != want {
			t.Errorf("change %d waits for %v, want %v", i+1, got, want)
		}
	}
	if told != 1 {
		t.Errorf("it is told %d times that the writes are used up", told)
	}
	left := func() string {
		var out bytes.Buffer
		b.writeMetrics(metrics.NewPage(&out), now)
		return out.String()[strings.LastIndexByte(strings.TrimSpace(out.String()), '\n')+1:]
	}
	if got := left(); got != `meshddns_node_writes_left{provider="cloud"} 0`+"\n" {
		t.Error(got)
	}
	b.give("n6", oneWrite)
	if got := spend("n6"); got != 2*time.Hour/5 {
		t.Errorf("a change that was given back waits for %v", got)
	}
	now = now.Add(3 * time.Hour)
	if got := spend("n0"); got != 0 {
		t.Errorf("hours later a change waits for %v", got)
	}
	now = now.Add(-2 * time.Hour)
	if got := spend("n1"); got != 0 || left() != `meshddns_node_writes_left{provider="cloud"} 3`+"\n" {
		t.Errorf("after the clock was set back, a change waits for %v; %s", got, left())
	}
}

// TestBudgetOfNames has a name that changes each second, at a provider without a limit: three times at once, and then
// once in ChangeEvery.
func TestBudgetOfNames(t *testing.T) {
	b, now := newBudget(func(string) int { return 0 }), time.Unix(1_800_000_000, 0)
	writes, due := 0, time.Time{}
	for range 10 * ChangeEvery / (ChangeEvery / 60) {
		if !due.After(now) {
			writes++
			wait, _ := b.spend("n", oneWrite, now)
			due = now.Add(wait)
		}
		now = now.Add(ChangeEvery / 60)
	}
	if writes < 12 || writes > 13 {
		t.Errorf("%d writes in ten periods, want 3 at once and one in each", writes)
	}
	for i := range 10_000 {
		now = now.Add(ChangeEvery)
		b.spend(fmt.Sprint("n", i), oneWrite, now)
	}
	if len(b.names) > 500 {
		t.Errorf("%d names are kept", len(b.names))
	}
}

// TestLongestWaitOfBudget has more changes than an account has writes for a day.
func TestLongestWaitOfBudget(t *testing.T) {
	b, now := newBudget(func(string) int { return 1 }), time.Unix(1_800_000_000, 0)
	var last time.Duration
	for i := range 30 {
		last, _ = b.spend(fmt.Sprint("n", i), oneWrite, now)
	}
	if last != LaneLater.LongestWait() {
		t.Errorf("the last change waits for %v", last)
	}
}

// TestCostOf: a change costs a write for each record that is not as it should be, and nothing at the built-in server.
func TestCostOf(t *testing.T) {
	formats := []string{"mesh1", "srv:_x._tcp"}
	for what, test := range map[string]struct {
		account *Account
		want    int
	}{"a cloud": {&accountA, 4}, "the built-in server": {&served, 0}, "nowhere": {nil, 0}} {
		u := used(1, test.account, "tcp://192.0.2.1:1", "tcp://192.0.2.2:1")
		u.Formats = formats
		n := Name{Name: "_mesh.a.example.com", Usages: []Usage{u, used(2, test.account, "tcp://192.0.2.3:1")}}
		got := 0
		for _, at := range costOf(desired(State{Owner: testOwner, Configured: true}, n, Addresses{})) {
			got += at.writes
		}
		if got != test.want {
			t.Errorf("at %s a change costs %d writes, want %d", what, got, test.want)
		}
	}
}
