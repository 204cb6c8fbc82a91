package reconcile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/daemon"
)

// oneWrite is what a change costs that writes one record at an account of a cloud.
var oneWrite = cost{1: {"cloud", 1}}

// TestBudget has an account at which five writes an hour are allowed: five stand at once, the next one waits for the
// sixth write, the one after it for the seventh. A change that a person makes in its place gives its write back.
func TestBudget(t *testing.T) {
	b, now := newBudget(func(string) int { return 5 }), time.Unix(1_800_000_000, 0)
	told := 0
	spend := func(name string) time.Duration {
		wait, usedUp := b.spend(name, oneWrite, now, false)
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
		b.writeMetrics(daemon.NewPage(&out), now)
		return out.String()[strings.LastIndexByte(strings.TrimSpace(out.String()), '\n')+1:]
	}
	if got := left(); got != `meshddns_node_writes_left{provider="cloud"} 0`+"\n" {
		t.Error(got)
	}
	b.release("n6", now)
	if got := spend("n6"); got != 2*time.Hour/5 {
		t.Errorf("a change that was given back waits for %v", got)
	}
	b.release("n0", now) // it was begun
	if got := spend("n7"); got != 3*time.Hour/5 {
		t.Errorf("after a change that was given back once, the next one waits for %v", got)
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

// TestBudgetOfNames has a name that changes each second, at a provider without a limit: eight times at once, and then
// once in ChangeEvery.
func TestBudgetOfNames(t *testing.T) {
	b, now := newBudget(func(string) int { return 0 }), time.Unix(1_800_000_000, 0)
	writes, due, waits := 0, time.Time{}, false
	for range 10 * ChangeEvery / (ChangeEvery / 60) {
		if !due.After(now) {
			wait, _ := b.spend("n", oneWrite, now, waits)
			if waits = wait > 0; !waits {
				writes++
			}
			due = now.Add(wait)
		}
		now = now.Add(ChangeEvery / 60)
	}
	if writes < 17 || writes > 18 {
		t.Errorf("%d writes in ten periods, want 8 at once and one in each", writes)
	}
	for i := range 10_000 {
		now = now.Add(ChangeEvery)
		b.spend(fmt.Sprint("n", i), cost{int64(i): {"cloud", 1}}, now, false)
	}
	if len(b.names) > 500 || len(b.accounts) > 500 {
		t.Errorf("%d names and %d accounts are kept", len(b.names), len(b.accounts))
	}
}

// TestBudgetOfADay has more changes than an account has writes for a day: the last ones come back after a day, and wait
// again.
func TestBudgetOfADay(t *testing.T) {
	b, now := newBudget(func(string) int { return 1 }), time.Unix(1_800_000_000, 0)
	due := map[string]time.Time{}
	for i := range 60 {
		due[fmt.Sprint("n", i)] = now
	}
	var done []int
	for hour := range 72 {
		began := 0
		for name, at := range due {
			if at.After(now) {
				continue
			}
			wait, _ := b.spend(name, oneWrite, now, hour > 0)
			if wait > LaneLater.LongestWait() {
				t.Fatalf("a change waits for %v", wait)
			}
			if due[name] = now.Add(wait); wait == 0 {
				delete(due, name)
				began++
			}
		}
		done = append(done, began)
		now = now.Add(time.Hour)
	}
	if slices.Max(done) != 1 || len(due) > 0 {
		t.Errorf("changes in each hour %v, and %d wait", done, len(due))
	}
}

// TestBudgetOfJoined has changes of one write that wait, and that twenty more writes join before their turn: they are
// charged, so the writes in all stay within the bound. A change that is less at its turn gives the rest back.
func TestBudgetOfJoined(t *testing.T) {
	const most = 40
	b, began := newBudget(func(string) int { return most }), time.Unix(1_800_000_000, 0)
	now, writes := began, 0
	due, charged := map[string]time.Time{}, map[string]bool{}
	for range 6 * 3600 / 5 {
		for name := range 4 {
			name := fmt.Sprint("n", name)
			if due[name].After(now) {
				continue
			}
			c := cost{1: {"cloud", 1}} // the first change of a turn
			if charged[name] {
				c = cost{1: {"cloud", 21}}
			}
			wait, _ := b.spend(name, c, now, charged[name])
			if due[name], charged[name] = now.Add(wait), wait > 0; wait == 0 {
				writes += c[1].writes
			}
		}
		now = now.Add(5 * time.Second)
	}
	if bound := most + 6*most; writes > bound || writes < bound/2 {
		t.Errorf("%d writes in six hours, want %d at most", writes, bound)
	}
	full := now.Add(24 * time.Hour)
	b.spend("a", cost{1: {"cloud", most}}, full, false)
	b.spend("b", cost{1: {"cloud", 8}}, full, false)
	b.spend("b", oneWrite, full, true)
	if left := b.accounts[1].left(full, most, time.Hour/most); left != -1 {
		t.Errorf("%v writes are left", left)
	}
}

// TestShareOfAName has one name whose changes are many writes: it takes a quarter of an account's writes, and the
// names of others change at once.
func TestShareOfAName(t *testing.T) {
	b, now := newBudget(func(string) int { return 100 }), time.Unix(1_800_000_000, 0)
	for i, want := range []time.Duration{0, 17 * time.Hour / 25} { // 21 writes, and then 17 more than its share has
		if wait, _ := b.spend("greedy", cost{1: {"cloud", 21}}, now, false); wait != want {
			t.Errorf("change %d waits for %v, want %v", i+1, wait, want)
		}
	}
	for i := range 50 {
		if wait, _ := b.spend(fmt.Sprint("n", i), oneWrite, now, false); wait > 0 {
			t.Errorf("name %d waits for %v", i, wait)
		}
	}
	if wait, _ := b.spend("large", cost{1: {"cloud", 30}}, now.Add(48*time.Hour), false); wait > 0 {
		t.Errorf("a change of more writes than a share waits for %v", wait)
	}
	now = now.Add(96 * time.Hour)
	b.spend("large", cost{1: {"cloud", 50}}, now, false)
	b.spend("large", cost{1: {"cloud", 99}}, now, false) // waits for its share
	if wait, _ := b.spend("honest", cost{1: {"cloud", 50}}, now, false); wait > 0 {
		t.Errorf("a name waits for %v behind one that has used up its share", wait)
	}
}

// TestBudgetOfAZoneThatIsDown has changes join one that was begun and waits for its zone: they are charged, and a
// person's change is not.
func TestBudgetOfAZoneThatIsDown(t *testing.T) {
	b, now := newBudget(func(string) int { return 40 }), time.Unix(1_800_000_000, 0)
	left := func() float64 { return b.accounts[1].left(now, 40, time.Hour/40) }
	b.spend("a", oneWrite, now, false)
	b.join("a", cost{1: {"cloud", 5}}, now)
	b.join("a", cost{1: {"cloud", 3}}, now) // two of them are written
	if left() != 35 {
		t.Errorf("%v writes are left", left())
	}
	b.release("a", now)
	if b.join("a", cost{1: {"cloud", 9}}, now); left() != 35 {
		t.Errorf("after a person's change %v writes are left", left())
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
