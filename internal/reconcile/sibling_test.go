package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
)

// TestOnlyAddedIsInDoubt: a write without an answer may have made the values that it adds. A wanted value that stood
// before it stays that of others.
func TestOnlyAddedIsInDoubt(t *testing.T) {
	s := Sibling{Owner: "p.example.com", Type: provider.A}
	i := newItem(Record{
		Name: testName, Sibling: s, Want: siblingText("42", []string{"192.0.2.2", "192.0.2.3"}),
		Place: Place{Name: testName, Sibling: s, State: Published, Standing: siblingText("42", []string{"192.0.2.1"})},
		goal:  goal{owner: testOwner, sibling: true, mode: Write},
	}, false)
	i.seen = provider.RRset{Values: []provider.Value{{"192.0.2.1"}, {"192.0.2.2"}}}
	i.change, _ = i.goal.plan(i.seen)
	if p := i.intended(time.Now()); p.knows("192.0.2.2") || !p.knows("192.0.2.1") || !p.knows("192.0.2.3") {
		t.Errorf("known before the write: %q", p.known())
	}
}

// TestNetworkOfWhatComesBack: a value that stood, was not seen and stands again still belongs to its network, so that
// its release waits for it, and a move keeps it until the new place has it.
func TestNetworkOfWhatComesBack(t *testing.T) {
	s := Sibling{Owner: "p.example.com", Type: provider.A}
	place := Place{Name: testName, Sibling: s, State: Withdrawing, Gone: siblingText("42", []string{"192.0.2.1"}), LookAt: time.Now()}
	seen := provider.RRset{Values: []provider.Value{{"192.0.2.1"}}}
	i := newItem(Record{Name: testName, Sibling: s, Place: place, goal: goal{owner: testOwner, sibling: true, mode: Write}}, false)
	i.sees(provider.Change{Seen: seen}, time.Now())
	if !i.place.holds("42") {
		t.Errorf("the place holds no value of the network: %+v", i.place)
	}
	spared := "42"
	i.goal.spared, i.goal.standing, i.goal.doubt, i.goal.gone = &spared, "", Doubt{}, place.Gone
	if change, _ := i.goal.plan(seen); len(change.Remove) > 0 {
		t.Errorf("a move removes %v", change.Remove)
	}
}

// TestForeignMayBeOfAnotherUsage: two usages may want one record, and a value has no mark of either.
func TestForeignMayBeOfAnotherUsage(t *testing.T) {
	g := goal{owner: testOwner, sibling: true, want: siblingText("42", []string{"192.0.2.1"})}
	err := g.foreign(provider.RRset{Values: []provider.Value{{"192.0.2.2"}}})
	if want := `"192.0.2.2" is not of this usage: it is another usage's, or not from this program`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRenewedValuesAreForgotten replaces eight values every five seconds, with and without an answer to the writes:
// the place knows those of the last minute, although each change puts the second look off, and that look forgets them.
func TestRenewedValuesAreForgotten(t *testing.T) {
	const values, pause = 8, 5 * time.Second
	for _, lost := range []bool{false, true} {
		place, now := Place{ID: 1, Name: testName, Sibling: testSibling, State: Pending}, placeNow
		var seen provider.RRset
		renew := func(want string) {
			i := newItem(Record{Name: testName, Sibling: testSibling, Place: place, Want: want, goal: goal{owner: testOwner, sibling: true}}, false)
			i.began, i.seen = now, seen
			i.restate(now)
			if i.change, _ = i.goal.plan(seen); len(i.change.Add) == 0 {
				i.looked(now)
				place = i.place
				return
			}
			i.sees(provider.Change{Seen: seen}, now)
			before := i.place
			i.place = i.intended(now)
			if lost {
				i.happens(Event{Kind: Failure, Fault: Fault{Code: "network"}}, now)
			} else {
				i.happens(Event{Kind: Known, Before: before}, now)
				i.looked(now)
			}
			place, seen.Values = i.place, i.change.Add
		}
		want := ""
		for n := range 720 {
			var all []string
			for v := range values {
				all = append(all, fmt.Sprintf("192.0.2.%d:%d", v, n))
			}
			want = siblingText("1", all)
			renew(want)
			if known, most := len(SiblingValues(place.known())), values*(int(SecondLook/pause)+2); known > most {
				t.Fatalf("lost %t: the place knows %d values after %d renewals, want at most %d", lost, known, n+1, most)
			}
			if n > 0 && !place.knows(fmt.Sprintf("192.0.2.0:%d", n-1)) {
				t.Fatalf("lost %t: the place forgets the values before those of renewal %d", lost, n)
			}
			now = now.Add(pause)
		}
		for range 2 { // after a lost answer the first look is also the first that misses the values before
			now = cmp.Or(place.LookAt, now)
			renew(want)
		}
		if place.known() != want || !place.LookAt.IsZero() {
			t.Errorf("lost %t: after the second looks: %s", lost, placeText(place))
		}
	}
}
