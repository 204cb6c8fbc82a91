package reconcile

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/test/support"
)

var (
	placeNow  = time.Unix(1_000_000, 0)
	placeSoon = placeNow.Add(time.Second)
	placePast = placeNow.Add(-time.Second)
)

// allPlaces gives every place that may be stored: with doubt about a write there is a time to
// look, a tombstone holds no value that is known to stand and is looked at, and a
// published value stands.
func allPlaces() (all []Place) {
	doubts := []Doubt{{}, {Value: ours1}, {Value: ours2}, {Value: ours1, More: true}, {More: true}}
	for _, state := range PlaceStates {
		for _, look := range []time.Time{{}, placePast, placeSoon} {
			for _, standing := range []string{"", ours1, ours2} {
				for _, doubt := range doubts {
					all = append(all, Place{ID: 1, State: state, Standing: standing, Doubt: doubt, LookAt: look})
				}
			}
			for _, standing := range []string{"", sibling1, sibling2, siblings12} {
				for _, doubt := range []Doubt{{}, {Value: sibling1}, {Value: sibling2, More: true}} {
					for _, gone := range []string{"", goneUntil(sibling1, placePast), goneUntil(sibling1, placeSoon), goneUntil(sibling2, placePast), goneUntil(sibling2, placeSoon)} {
						all = append(all, Place{ID: 1, Sibling: testSibling, State: state, Standing: standing, Doubt: doubt, Gone: gone, LookAt: look})
					}
				}
			}
		}
	}
	return slices.DeleteFunc(all, func(p Place) bool { return soundPlace(p) != "" })
}

// A sibling record of the tests, and texts of its values.
const (
	sibling1   = "n=1\n203.0.113.1:1"
	sibling2   = "n=1\n203.0.113.2:2"
	siblings12 = "n=1\n203.0.113.1:1\n203.0.113.2:2"
)

// goneUntil returns Gone with one value.
func goneUntil(value string, until time.Time) string { return Place{}.waiting(value, until) }

var testSibling = Sibling{Owner: "office.example.com", Type: provider.TXT}

func placeText(p Place) string {
	return fmt.Sprintf("%s %q, doubt %q, gone %q, look at %d", p.State, p.Standing, p.Doubt, p.Gone, p.LookAt.Unix())
}

// soundPlace says what is wrong with a place by itself.
func soundPlace(p Place) string {
	switch {
	case p.LookAt.IsZero() && (p.Doubt.Value != "" || p.Gone != "" || p.Doubt.More && !p.Sibling.marked()):
		return "a doubt that no look will ever settle"
	case slices.ContainsFunc(SiblingValues(p.Gone), func(line string) bool { _, until := cutTime(line); return until.After(p.LookAt) }):
		return "a value waits longer than its place"
	case p.State == Withdrawn && (p.LookAt.IsZero() || p.Standing != ""):
		return "a tombstone that no look will ever end, or with a value"
	case p.State == Published && p.Standing == "":
		return "published, and nothing stands"
	}
	return ""
}

// mayHold reports whether a value may stand by a place: a text of one value, of a sibling record.
func (p Place) mayHold(value string) bool {
	if !p.Sibling.marked() {
		return p.knows(SiblingValues(value)[0])
	}
	return p.Standing == value || p.Doubt.Value == value || p.Doubt.More
}

// valuesOf are the values of the tests at a place, each alone, and what else may be seen there.
func valuesOf(p Place) (alone, seen []string) {
	if p.Sibling.marked() {
		return []string{ours1, ours2}, []string{"", ours1, ours2}
	}
	return []string{sibling1, sibling2}, []string{"", sibling1, sibling2, siblings12}
}

// placeEvents gives every event that a place may meet with a wish.
func placeEvents(p Place, w Wish, m Mode) (all []Event) {
	all = append(all, Event{Kind: Known, Before: p})
	_, seen := valuesOf(p)
	for _, value := range seen {
		all = append(all, Event{Kind: Seen, Value: value})
	}
	for _, kind := range []provider.Kind{provider.Network, provider.BadCredentials, provider.Conflict} {
		for _, final := range []bool{false, true} {
			f := Fault{Code: string(kind)}
			all = append(all, Event{Kind: Failure, Fault: f, Final: final || !transient(f)})
		}
	}
	all = append(all, Event{Kind: NoZone, Fault: Fault{Code: string(provider.ZoneNotFound)}}, Event{Kind: Intent, Value: w.Value})
	switch {
	case !p.Sibling.marked() && w.Value != "":
		return append(all, Event{Kind: Wanted}, Event{Kind: Intent})
	case !p.Sibling.marked() && w.Keep:
		return all
	case !p.Sibling.marked():
		return append(all, Event{Kind: Unwanted}, Event{Kind: Forced})
	case w.Value != "" && m == LookOnly:
		all = append(all, Event{Kind: Seen, Value: ours2, More: true})
		fallthrough
	case w.Value != "":
		return append(all, Event{Kind: Wanted}, Event{Kind: Intent}, Event{Kind: Intent, Value: w.Value, More: true})
	case w.Keep:
		return all
	}
	return append(all, Event{Kind: Seen, Value: ours1, More: true}, Event{Kind: Unwanted}, Event{Kind: Forced}, Event{Kind: Shared})
}

// TestPlaceTable has every place meet every event with every wish in every mode.
func TestPlaceTable(t *testing.T) {
	count := 0
	for _, p := range allPlaces() {
		want := ours1
		if !p.Sibling.marked() {
			want = sibling1
		}
		wishes := []Wish{{Value: want}, {Value: want, Waited: true}, {}, {Waited: true}, {Keep: true}, {Keep: true, Waited: true}}
		for _, w := range wishes {
			for _, m := range []Mode{Write, UpsertOnly, LookOnly} {
				for _, e := range placeEvents(p, w, m) {
					count++
					after, step := p.After(e, w, m, placeNow)
					for _, wrong := range placeFaults(p, e, w, after, step) {
						t.Errorf("%s\n%s\n  meets %d %q %+v final %t\nwish %+v, mode %d\n%s, step %d", wrong, placeText(p), e.Kind, e.Value, e.Fault, e.Final, w, m, placeText(after), step)
					}
				}
			}
		}
	}
	t.Logf("%d combinations", count)
	if count < 10_000 {
		t.Error("they are not all")
	}
}

// placeFaults says which promise a transition breaks.
func placeFaults(p Place, e Event, w Wish, after Place, step Step) (wrong []string) {
	say := func(what string, holds bool) {
		if !holds {
			wrong = append(wrong, what)
		}
	}
	ended := step == End || step == EndThenLook
	alone, _ := valuesOf(p)
	for _, value := range alone {
		kept := !ended && after.mayHold(value)
		say("a value that may stand is in no place: "+value, !p.mayHold(value) || kept || maySettle(p, e, value))
	}
	say("values that stay are looked at for ever", e.Kind != Seen || !e.More || after.LookAt.Equal(p.LookAt) || !after.LookAt.After(placeNow))
	say("a place that ends leaves something", !ended || e.Kind == Shared || after.empty())
	if e.Kind == Shared {
		return wrong
	}
	say("what is wanted is withdrawn", w.Value == "" || !ended && (!after.unwanted() || e.Kind == Known))
	if ended {
		return wrong
	}
	say(soundPlace(after), soundPlace(after) == "" || e.Kind == Intent && w.Keep)
	switch after.State {
	case Published:
		say("published, and not seen as wanted", e.Kind != Seen || after.Standing == w.Value || w.Keep)
		say("published after a failure", e.Kind != Failure && e.Kind != NoZone || w.Keep)
	case Failed, Conflict:
		say("it has failed, and is neither tried again nor told", e.Kind != Failure && e.Kind != NoZone || step == Tell || step == Again || w.Keep)
	case Leftover:
		say("a leftover that is not told", e.Kind != Failure || step == Tell || step == Again || w.Keep)
	case Withdrawn:
		say("a tombstone that is not looked at", step != Rest || after.LookAt.IsZero() == false)
	case Withdrawing:
		say("a withdrawal that rests", step != Rest || w.Keep || e.Kind == Seen)
	}
	return wrong
}

// maySettle reports whether an event tells that a value of the place does not stand
// there: it was looked for and not seen, and no write of it can still arrive.
func maySettle(p Place, e Event, value string) bool {
	looked := e.Kind == Seen || e.Kind == NoZone
	inDoubt := p.Doubt.Value == value || p.Doubt.More && !p.LookAt.IsZero()
	switch {
	case !p.Sibling.marked(): // what stood has to be missed once more
		only := SiblingValues(value)[0]
		stood, doubted := slices.Contains(SiblingValues(p.Standing), only), slices.Contains(SiblingValues(p.Doubt.Value), only)
		due := slices.Contains(SiblingValues(p.Gone), SiblingValues(goneUntil(value, placePast))[0])
		return looked && (!stood || e.Kind == NoZone) && (p.looks(placeNow) || due && !stood && !doubted)
	case e.Kind == Shared:
		return true
	case e.Kind == NoZone:
		return !inDoubt || p.looks(placeNow)
	case !looked || e.Value == value || e.More:
		return false
	}
	return !inDoubt || p.looks(placeNow)
}

func TestDoubt(t *testing.T) {
	for text, want := range map[string]Doubt{"": {}, "*": {More: true}, ours1: {Value: ours1}, "*" + ours1: {Value: ours1, More: true}} {
		if got := ParseDoubt(text); got != want || got.String() != text {
			t.Errorf("%q: %+v, %q", text, got, got.String())
		}
	}
	for n, test := range []struct {
		doubt Doubt
		added string
		want  string
	}{
		{Doubt{}, ours1, ours1}, {Doubt{Value: ours1}, ours1, ours1}, {Doubt{Value: ours1}, ours2, "*" + ours2},
		{Doubt{More: true}, ours1, "*" + ours1}, {Doubt{Value: ours1, More: true}, ours1, "*" + ours1},
	} {
		if got := test.doubt.with(test.added).String(); got != test.want {
			t.Errorf("%d: %q, want %q", n, got, test.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	at := func(id int64, providerName, endpoint, key, zone, zoneID string) Place {
		return Place{Account: Account{ID: id, Provider: providerName, Endpoint: endpoint, AccessKeyID: key}, Zone: zone, ZoneID: zoneID}
	}
	for what, test := range map[string]struct {
		a, b Place
		want Identity
	}{
		"one account, one zone":               {at(1, "x", "e", "k", "z", ""), at(1, "x", "e", "k", "z", "9"), SameZone},
		"one account, two zones":              {at(1, "x", "e", "k", "z", ""), at(1, "x", "e", "k", "b.z", ""), OtherZone},
		"two keys, one id":                    {at(1, "x", "e", "k", "z", "9"), at(2, "x", "e", "l", "z", "9"), SameZone},
		"two keys, two ids":                   {at(1, "x", "e", "k", "z", "9"), at(2, "x", "e", "l", "z", "8"), OtherZone},
		"a new secret of one key":             {at(1, "x", "e", "k", "z", ""), at(2, "x", "e", "k", "z", ""), SameZone},
		"a new secret, another id":            {at(1, "x", "e", "token", "z", "9"), at(2, "x", "e", "token", "z", "8"), OtherZone},
		"two keys without ids":                {at(1, "x", "e", "k", "z", ""), at(2, "x", "e", "l", "z", ""), Unsure},
		"two addresses, one id":               {at(1, "x", "e", "k", "z", "9"), at(2, "x", "f", "k", "z", "9"), Unsure},
		"two addresses, two ids":              {at(1, "x", "e", "k", "z", "9"), at(2, "x", "f", "k", "z", "8"), Unsure},
		"two providers":                       {at(1, "x", "e", "k", "z", "9"), at(2, "y", "e", "k", "z", "9"), Unsure},
		"a zone that is not found yet":        {at(1, "x", "e", "k", "z", "9"), at(2, "x", "e", "l", "", ""), Unsure},
		"the built-in server and another one": {at(1, msg.Builtin, "", "", "z", ""), at(2, "x", "e", "l", "z", ""), OtherZone},
		"the built-in server, no zone found":  {at(1, msg.Builtin, "", "", "z", ""), at(2, "x", "e", "l", "", ""), OtherZone},
		"two built-in zones":                  {at(1, msg.Builtin, "", "", "z", ""), at(1, msg.Builtin, "", "", "b.z", ""), SameZone},
		"two keys of the built-in server":     {at(1, msg.Builtin, "", "a", "z", ""), at(2, msg.Builtin, "", "b", "b.z", ""), SameZone},
	} {
		if got, back := test.a.identity(test.b), test.b.identity(test.a); got != test.want || back != test.want {
			t.Errorf("%s: %d and %d, want %d", what, got, back, test.want)
		}
	}
}

// placeWorld is a place, what really stands at its name, and a write that is still
// on its way.
type placeWorld struct {
	sibling bool
	place   Place
	exists  bool
	stands  [3]bool // values
	foreign bool    // a value of others stands there, too
	view    [3]bool // what a look sees while it is old
	old     bool    // the provider does not show the last change yet
	late    placeWrite
	want    string
	mode    Mode
}

type placeWrite struct{ add, remove [3]bool }

// values are the values that may be wanted in the world, one at a time.
func (w placeWorld) values() [3]string {
	if w.sibling {
		return [3]string{sibling1, "n=2\n203.0.113.2:2"} // fewer, because each of them may be in three parts of a place
	}
	return [3]string{ours1, ours2, "v=mesh1 n=1 o=" + testOwner + " a://b:3"}
}

// foreignValue is a value of others.
const foreignValue = "198.51.100.9:9"

// standing returns a value as it stands in DNS.
func (w placeWorld) standing(n int) provider.Value {
	if text := SiblingValues(w.values()[n]); len(text) > 0 {
		return provider.Value(text)
	}
	return provider.Value{w.values()[n]}
}

// holds says which value of the world is in no place.
func (w placeWorld) holds() string {
	for n, value := range w.values() {
		if value != "" && (w.stands[n] || w.late.add[n]) && !(w.exists && w.place.mayHold(value)) {
			return value
		}
	}
	return ""
}

// seen is what a look sees.
func (w placeWorld) seen() (set provider.RRset) {
	stands := w.stands
	if w.old {
		stands = w.view
	}
	for n := range stands {
		if stands[n] {
			set.Values = append(set.Values, w.standing(n))
		}
	}
	if w.foreign {
		set.Values = append(set.Values, provider.Value{foreignValue})
	}
	return set
}

func (w placeWorld) set(values []provider.Value) (set [3]bool) {
	for n := range set {
		set[n] = slices.ContainsFunc(values, w.standing(n).Equal)
	}
	return set
}

// arrive makes a write, of which perhaps only the addition was made.
func (w *placeWorld) arrive(c placeWrite, whole bool) {
	for n := range w.stands {
		w.stands[n] = w.stands[n] && !(whole && c.remove[n]) || c.add[n]
	}
}

// wait lets the time to look come. Until then a write that is late has arrived, or
// never does.
func (w placeWorld) wait() placeWorld {
	if w.place.LookAt.Equal(placeNow.Add(SecondLook)) {
		w.place.LookAt = placePast
	}
	w = w.age()
	w.late, w.old = placeWrite{}, false
	return w
}

// age lets the time of what is gone come; a later change has put the time to look off.
func (w placeWorld) age() placeWorld {
	w.place.Gone = strings.ReplaceAll(w.place.Gone, fmt.Sprint("\t", placeNow.Add(SecondLook).UnixMilli()), fmt.Sprint("\t", placePast.UnixMilli()))
	return w
}

// placeOutcomes are what may become of the work on a place.
var placeOutcomes = []string{
	"well", "cannot read", "no zone", "killed before the write", "refused", "lost, not made", "lost, made", "lost, half made", "lost, late", "killed, made", "killed, late",
	"made by a retry, and the first try is late",
}

// work does what a batch does with one item.
func (w placeWorld) work(outcome string, lookOnly bool) placeWorld {
	if !w.exists {
		if w.want == "" {
			return w
		}
		w.place, w.exists = Place{ID: 1, Name: testName, Zone: "example.com", State: Pending}, true
	}
	r := Record{Name: testName, Place: w.place, Want: w.want, goal: goal{owner: testOwner, mode: w.mode, sibling: w.sibling}}
	if w.sibling {
		r.Sibling, w.place.Sibling, r.Place.Sibling = testSibling, testSibling, testSibling
	}
	i := newItem(r, lookOnly)
	if i.restate(placeNow); i.step != End {
		w.try(i, outcome)
	}
	w.place = i.place
	if w.exists = i.step != End && i.step != EndThenLook; !w.exists {
		w.place = Place{}
	}
	return w
}

func (w *placeWorld) try(i *item, outcome string) {
	failed := func(kind provider.Kind) {
		f := Fault{Code: string(kind)}
		i.happens(Event{Kind: Failure, Fault: f, Final: true}, placeNow)
	}
	switch outcome {
	case "cannot read":
		failed(provider.Network)
		return
	case "no zone":
		w.stands, w.late, w.old = [3]bool{}, placeWrite{}, false
		i.happens(Event{Kind: NoZone, Fault: Fault{Code: string(provider.ZoneNotFound)}}, placeNow)
		return
	}
	i.change, i.conflict = i.goal.plan(w.seen())
	if i.goal.action(i.change) == ActionUnchanged {
		i.looked(placeNow)
		w.judge(i)
		return
	}
	if w.sibling {
		i.sees(provider.Change{Seen: i.change.Seen}, placeNow)
	}
	before := i.place
	i.before, i.place = &before, i.intended(placeNow)
	if slices.ContainsFunc(i.change.Remove, provider.Value{foreignValue}.Equal) {
		panic("a value of others is removed")
	}
	write := placeWrite{w.set(i.change.Add), w.set(i.change.Remove)}
	switch outcome {
	case "made by a retry, and the first try is late":
		w.late = write
		fallthrough
	case "well", "lost, made", "killed, made":
		w.arrive(write, true)
	case "lost, half made":
		w.arrive(write, false)
	case "lost, late", "killed, late":
		w.late = write
	}
	switch outcome {
	case "made by a retry, and the first try is late":
		i.looked(placeNow)
		w.judge(i)
	case "well":
		i.happens(Event{Kind: Known, Before: before}, placeNow)
		i.looked(placeNow)
		w.judge(i)
	case "refused":
		i.happens(Event{Kind: Known, Before: before}, placeNow)
		failed(provider.Permission)
	case "lost, not made", "lost, made", "lost, half made", "lost, late":
		failed(provider.Network)
	}
}

// judge tells the place of a conflict, as a verdict does.
func (w *placeWorld) judge(i *item) {
	if i.fault.Code != "" {
		i.happens(Event{Kind: Failure, Fault: i.fault, Final: true}, placeNow)
	}
}

// TestPlaceWorlds follows every history of one place, of a value with our mark and of a sibling record, in
// a world in which calls fail, answers get lost, writes come late, a provider shows an old view, others
// write, and the program is killed: in each state that can be reached every value of ours that stands, or
// may still arrive, is in the place; no value of others is removed; and from each the world comes to what
// is wanted when calls succeed. The short form follows the shortest histories only.
func TestPlaceWorlds(t *testing.T) {
	sibling := placeWorld{want: sibling1, sibling: true}
	beside := sibling.work("well", false)
	beside.foreign = true
	for what, first := range map[string]placeWorld{"marked": {want: ours1}, "sibling": sibling, "sibling beside a value of others": beside} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			followWorlds(t, first, support.Count(8_000, math.MaxInt))
		})
	}
}

// followWorlds follows the histories from a world on, the shortest first, until it has looked at so many worlds.
func followWorlds(t *testing.T, first placeWorld, most int) {
	known, rests := map[placeWorld]bool{first: true}, map[placeWorld]string{}
	looked := 0
	for queue := []placeWorld{first}; len(queue) > 0 && looked < most; looked++ {
		w := queue[0]
		queue = queue[1:]
		if value := w.holds(); value != "" {
			t.Fatalf("%q is in no place: %+v", value, w)
		}
		later := w.wait()
		if _, seen := rests[later]; !seen {
			rests[later] = comesToRest(later)
		}
		if wrong := rests[later]; wrong != "" {
			t.Fatalf("%s: %+v", wrong, w)
		}
		for _, next := range placeSteps(w) {
			if !known[next] {
				known[next] = true
				queue = append(queue, next)
			}
		}
	}
	t.Logf("%d of %d worlds that are known", looked, len(known))
}

// placeSteps gives every world that can come next.
func placeSteps(w placeWorld) (all []placeWorld) {
	values := w.values()
	for _, want := range append([]string{""}, values[:]...) {
		next := w
		next.want = want
		all = append(all, next)
	}
	other := w
	if !w.sibling { // of which the worlds are too many else
		other.mode = UpsertOnly - w.mode
	}
	arrived := w
	arrived.arrive(w.late, true)
	arrived.late = placeWrite{}
	all = append(all, other, arrived, w.wait())
	for _, outcome := range placeOutcomes {
		if (w.late != (placeWrite{}) || w.old) && outcome != "well" && outcome != "cannot read" {
			continue // one late write at a time
		}
		all = append(all, w.work(outcome, false))
	}
	if made := w.work("well", false); w.sibling && !w.old && w.late == (placeWrite{}) && made.stands != w.stands {
		made.old, made.view = true, w.stands
		all = append(all, made)
	}
	if w.sibling && !w.foreign && !w.old { // what an old view shows is not gone for so long
		all = append(all, w.age())
	}
	return append(all, w.work("well", true))
}

// comesToRest says what is wrong after a while in which nothing fails.
func comesToRest(w placeWorld) string {
	for range 4 {
		w = w.wait().work("well", false)
	}
	ours := w
	ours.foreign = false
	wanted := ours.want
	if w.sibling {
		wanted = strings.Join(SiblingValues(w.want), ", ")
	}
	switch stands := joined(ours.seen().Values); {
	case w.want == "" && w.mode == Write && (w.exists || stands != ""):
		return "it is not withdrawn"
	case w.want == "" && stands != "" && w.place.State != Leftover:
		return "what stands is no leftover"
	case w.want != "" && w.foreign && (stands != wanted && stands != "" || w.place.State != Conflict):
		return fmt.Sprintf("beside a value of others: %s", stands)
	case w.want != "" && !w.foreign && (stands != wanted || w.place.State != Published || !w.place.Doubt.None()):
		return fmt.Sprintf("it does not stand alone: %s", stands)
	}
	return ""
}

// placeColumns are the events of the table in docs/design.md.
var placeColumns = []struct {
	name  string
	wish  Wish
	event Event
	look  bool // LookAt has come
	empty bool
}{
	{"the value is wanted, and another stands", Wish{Value: ours2}, Event{Kind: Wanted}, false, false},
	{"a write begins", Wish{Value: ours2}, Event{Kind: Intent, Value: ours2}, false, false},
	{"the wanted value is seen", Wish{Value: ours1}, Event{Kind: Seen, Value: ours1}, false, false},
	{"another value is seen", Wish{Value: ours1}, Event{Kind: Seen, Value: ours2}, false, false},
	{"failure", Wish{Value: ours2}, Event{Kind: Failure, Fault: Fault{Code: "network"}}, false, false},
	{"conflict", Wish{Value: ours2}, Event{Kind: Failure, Fault: Fault{Code: "conflict"}, Final: true}, false, false},
	{"no zone", Wish{Value: ours2}, Event{Kind: NoZone, Fault: Fault{Code: "zone_not_found"}}, false, false},
	{"nothing is wanted", Wish{}, Event{Kind: Unwanted}, false, false},
	{"nothing is wanted, and it is empty", Wish{}, Event{Kind: Unwanted}, false, true},
	{"released by force", Wish{}, Event{Kind: Forced}, false, false},
	{"a withdrawal begins", Wish{}, Event{Kind: Intent}, false, false},
	{"nothing is seen, or no zone", Wish{}, Event{Kind: Seen}, false, false},
	{"the same at look_at", Wish{}, Event{Kind: Seen}, true, false},
	{"the value is seen to stay", Wish{}, Event{Kind: Seen, Value: ours1}, false, false},
	{"failure, tried again", Wish{}, Event{Kind: Failure, Fault: Fault{Code: "network"}}, false, false},
	{"failure, final", Wish{}, Event{Kind: Failure, Fault: Fault{Code: "network"}, Final: true}, false, false},
	{"failure, final, a release waits", Wish{Waited: true}, Event{Kind: Failure, Fault: Fault{Code: "network"}, Final: true}, false, false},
	{"the wanted value's place is in this zone", Wish{}, Event{Kind: Shared}, false, false},
}

var stepNames = map[Step]string{Rest: "", Go: "", Again: "again", Look: "look", Tell: "tell", End: "**ends**", EndThenLook: "**ends**"}

// placeTables are the tables in docs/design.md: a row for each event, with what becomes of most states, and of the
// others. The second one has the rows that are others for a sibling record.
func placeTables() (marked, sibling string) {
	head := "| event | the place becomes | except |\n|---|---|---|\n"
	rows, others := placeRows(Sibling{}, strings.NewReplacer()), placeRows(testSibling, strings.NewReplacer(ours1, sibling1, ours2, sibling2))
	marked = head + strings.Join(rows, "")
	for n, row := range others {
		if row != rows[n] && placeColumns[n].event.Kind != Shared {
			sibling += row
		}
	}
	return marked, head + sibling
}

// placeRows are the rows of a table, for a record whose values are given.
func placeRows(s Sibling, values *strings.Replacer) (rows []string) {
	for _, c := range placeColumns {
		c.wish.Value, c.event.Value = values.Replace(c.wish.Value), values.Replace(c.event.Value)
		results := make([]string, len(PlaceStates))
		for n, state := range PlaceStates {
			p := Place{ID: 1, Sibling: s, State: state, Standing: values.Replace(ours1)}
			if c.empty || state == Withdrawn {
				p.Standing = ""
			}
			if state == Withdrawn {
				p.LookAt = placeSoon
			}
			if c.look {
				p.LookAt = placePast
			}
			if soundPlace(p) != "" {
				results[n] = "cannot happen"
				continue
			}
			after, step := p.After(c.event, c.wish, Write, placeNow)
			text := "`" + string(after.State) + "`"
			if step == End || step == EndThenLook {
				text = ""
			}
			results[n] = strings.Trim(text+", "+stepNames[step], ", ")
		}
		counts := map[string]int{}
		for _, result := range results {
			counts[result]++
		}
		most, except := slices.MaxFunc(results, func(a, b string) int { return counts[a] - counts[b] }), ""
		for n, state := range PlaceStates {
			if results[n] != most {
				except += fmt.Sprintf("; `%s`: %s", state, results[n])
			}
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |%s |\n", c.name, most, strings.TrimPrefix(except, ";")))
	}
	return rows
}

// TestDesignHasTheTables compares the tables in docs/design.md with the function.
func TestDesignHasTheTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	marked, sibling := placeTables()
	for title, want := range map[string]string{"table of places": marked, "table of sibling places": sibling} {
		_, rest, found := strings.Cut(string(page), "<!-- "+title+" -->\n\n")
		table, _, ended := strings.Cut(rest, "\n<!-- end of table -->")
		if !found || !ended || table != want {
			t.Errorf("the %s is not\n%s", title, want)
		}
	}
}
