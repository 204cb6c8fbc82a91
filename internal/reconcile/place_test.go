package reconcile

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
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
		for _, standing := range []string{"", ours1, ours2} {
			for _, doubt := range doubts {
				for _, look := range []time.Time{{}, placePast, placeSoon} {
					p := Place{ID: 1, State: state, Standing: standing, Doubt: doubt, LookAt: look}
					if soundPlace(p) == "" {
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

func placeText(p Place) string {
	return fmt.Sprintf("%s %q, doubt %q, look at %d", p.State, p.Standing, p.Doubt, p.LookAt.Unix())
}

// soundPlace says what is wrong with a place by itself.
func soundPlace(p Place) string {
	switch {
	case p.Doubt.Value != "" && p.LookAt.IsZero():
		return "a doubt that no look will ever settle"
	case p.State == Withdrawn && (p.LookAt.IsZero() || p.Standing != ""):
		return "a tombstone that no look will ever end, or with a value"
	case p.State == Published && p.Standing == "":
		return "published, and nothing stands"
	}
	return ""
}

func (p Place) mayHold(value string) bool {
	return p.Standing == value || p.Doubt.Value == value || p.Doubt.More
}

// placeEvents gives every event that a place may meet with a wish.
func placeEvents(p Place, w Wish, m Mode) (all []Event) {
	all = append(all, Event{Kind: Known, Before: p})
	for _, value := range []string{"", ours1, ours2} {
		all = append(all, Event{Kind: Seen, Value: value})
	}
	for _, kind := range []provider.Kind{provider.Network, provider.BadCredentials, provider.Conflict} {
		for _, final := range []bool{false, true} {
			f := Fault{Code: string(kind)}
			all = append(all, Event{Kind: Failure, Fault: f, Final: final || !f.transient()})
		}
	}
	all = append(all, Event{Kind: NoZone, Fault: Fault{Code: string(provider.ZoneNotFound)}}, Event{Kind: Intent, Value: w.Value})
	switch {
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
	wishes := []Wish{{Value: ours1}, {Value: ours1, Waited: true}, {}, {Waited: true}, {Keep: true}, {Keep: true, Waited: true}}
	count := 0
	for _, p := range allPlaces() {
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
	for _, value := range []string{ours1, ours2} {
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
		"the built-in server and another one": {at(1, builtinProvider, "", "", "z", ""), at(2, "x", "e", "l", "z", ""), OtherZone},
	} {
		if got, back := test.a.identity(test.b), test.b.identity(test.a); got != test.want || back != test.want {
			t.Errorf("%s: %d and %d, want %d", what, got, back, test.want)
		}
	}
}

// placeWorld is a place, what really stands at its name, and a write that is still
// on its way.
type placeWorld struct {
	place  Place
	exists bool
	stands [3]bool // placeValues
	late   placeWrite
	want   string
	mode   Mode
}

type placeWrite struct{ add, remove [3]bool }

var placeValues = [3]string{ours1, ours2, "v=mesh1 n=1 o=" + testOwner + " a://b:3"}

// holds says which value of the world is in no place.
func (w placeWorld) holds() string {
	for n, value := range placeValues {
		if (w.stands[n] || w.late.add[n]) && !(w.exists && w.place.mayHold(value)) {
			return value
		}
	}
	return ""
}

func (w placeWorld) seen() (set provider.RRset) {
	for n, value := range placeValues {
		if w.stands[n] {
			set.Values = append(set.Values, provider.Value{value})
		}
	}
	return set
}

func placeSet(values []provider.Value) (set [3]bool) {
	for n, value := range placeValues {
		set[n] = slices.ContainsFunc(values, func(v provider.Value) bool { return v.Text() == value })
	}
	return set
}

// arrive makes a write, of which perhaps only the addition was made.
func (w *placeWorld) arrive(c placeWrite, whole bool) {
	for n := range placeValues {
		w.stands[n] = w.stands[n] && !(whole && c.remove[n]) || c.add[n]
	}
}

// wait lets the time to look come. Until then a write that is late has arrived, or
// never does.
func (w placeWorld) wait() placeWorld {
	if w.place.LookAt.Equal(placeNow.Add(SecondLook)) {
		w.place.LookAt = placePast
	}
	w.late = placeWrite{}
	return w
}

// placeOutcomes are what may become of the work on a place.
var placeOutcomes = []string{
	"well", "cannot read", "no zone", "killed before the write", "refused", "lost, not made", "lost, made", "lost, half made", "lost, late", "killed, made", "killed, late",
}

// work does what a batch does with one item.
func (w placeWorld) work(outcome string, lookOnly bool) placeWorld {
	if !w.exists {
		if w.want == "" {
			return w
		}
		w.place, w.exists = Place{ID: 1, Name: testName, Account: accountA, Zone: "example.com", State: Pending}, true
	}
	r := Record{Name: testName, Account: accountA, Place: w.place, Want: w.want, goal: goal{owner: testOwner, mode: w.mode}}
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
		w.stands, w.late = [3]bool{}, placeWrite{}
		i.happens(Event{Kind: NoZone, Fault: Fault{Code: string(provider.ZoneNotFound)}}, placeNow)
		return
	}
	var err error
	if i.change, err = i.goal.plan(w.seen()); err != nil {
		panic(err)
	}
	if i.goal.action(i.change) == ActionUnchanged {
		i.looked(placeNow)
		return
	}
	before := i.place
	i.before, i.place = &before, i.intended(placeNow)
	write := placeWrite{placeSet(i.change.Add), placeSet(i.change.Remove)}
	switch outcome {
	case "well", "lost, made", "killed, made":
		w.arrive(write, true)
	case "lost, half made":
		w.arrive(write, false)
	case "lost, late", "killed, late":
		w.late = write
	}
	switch outcome {
	case "well":
		i.happens(Event{Kind: Known, Before: before}, placeNow)
		i.looked(placeNow)
	case "refused":
		i.happens(Event{Kind: Known, Before: before}, placeNow)
		failed(provider.Permission)
	case "lost, not made", "lost, made", "lost, half made", "lost, late":
		failed(provider.Network)
	}
}

// TestPlaceWorlds follows every history of one place in a world in which calls
// fail, answers get lost, writes come late and the program is killed: in each state
// that can be reached every value of ours that stands, or may still arrive, is in
// the place; and from each the world comes to what is wanted when calls succeed.
func TestPlaceWorlds(t *testing.T) {
	first := placeWorld{want: placeValues[0]}
	known := map[placeWorld]bool{first: true}
	for queue := []placeWorld{first}; len(queue) > 0; {
		w := queue[0]
		queue = queue[1:]
		if value := w.holds(); value != "" {
			t.Fatalf("%q is in no place: %+v", value, w)
		}
		if wrong := comesToRest(w); wrong != "" {
			t.Fatalf("%s: %+v", wrong, w)
		}
		for _, next := range placeSteps(w) {
			if !known[next] {
				known[next] = true
				queue = append(queue, next)
			}
		}
	}
	t.Logf("%d worlds", len(known))
}

// placeSteps gives every world that can come next.
func placeSteps(w placeWorld) (all []placeWorld) {
	for _, want := range append([]string{""}, placeValues[:]...) {
		next := w
		next.want = want
		all = append(all, next)
	}
	other := w
	other.mode = UpsertOnly - w.mode
	arrived := w
	arrived.arrive(w.late, true)
	arrived.late = placeWrite{}
	all = append(all, other, arrived, w.wait())
	for _, outcome := range placeOutcomes {
		if w.late != (placeWrite{}) && outcome != "well" && outcome != "cannot read" {
			continue // one late write at a time
		}
		all = append(all, w.work(outcome, false))
	}
	return append(all, w.work("well", true))
}

// comesToRest says what is wrong after a while in which nothing fails.
func comesToRest(w placeWorld) string {
	for range 4 {
		w = w.wait().work("well", false)
	}
	switch stands := joined(w.seen().Values); {
	case w.want == "" && w.mode == Write && (w.exists || stands != ""):
		return "it is not withdrawn"
	case w.want == "" && stands != "" && w.place.State != Leftover:
		return "what stands is no leftover"
	case w.want != "" && (stands != w.want || w.place.State != Published || !w.place.Doubt.None()):
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

var stepNames = map[Step]string{Rest: "", Go: "", Again: "tried again", Look: "looked at again", Tell: "a person is told", End: "**ends**", EndThenLook: "**ends**"}

// placeTable is the table in docs/design.md: a row for each event, a column for
// each state.
func placeTable() string {
	var out strings.Builder
	out.WriteString("| event |")
	for _, state := range PlaceStates {
		fmt.Fprintf(&out, " `%s` |", state)
	}
	out.WriteString("\n|---" + strings.Repeat("|---", len(PlaceStates)) + "|\n")
	for _, c := range placeColumns {
		fmt.Fprintf(&out, "| %s |", c.name)
		for _, state := range PlaceStates {
			p := Place{ID: 1, State: state, Standing: ours1}
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
				out.WriteString(" – |")
				continue
			}
			after, step := p.After(c.event, c.wish, Write, placeNow)
			text := "`" + string(after.State) + "`"
			if step == End || step == EndThenLook {
				text = ""
			}
			fmt.Fprintf(&out, " %s |", strings.Trim(text+", "+stepNames[step], ", "))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestDesignHasTheTable compares the table in docs/design.md with the function.
func TestDesignHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- table of places -->\n\n")
	table, _, ended := strings.Cut(rest, "\n<!-- end of table -->")
	if want := placeTable(); !found || !ended || table != want {
		t.Errorf("the table is not\n%s", want)
	}
}
