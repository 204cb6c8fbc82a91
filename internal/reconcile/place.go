package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// PlaceState is the state of a place. docs/design.md has the table of all states and
// events.
type PlaceState string

// States of a place.
const (
	Pending     PlaceState = "pending"     // wanted, and another value or none stands
	Published   PlaceState = "published"   // wanted, and seen to stand
	Failed      PlaceState = "failed"      // wanted, and the last try failed
	Conflict    PlaceState = "conflict"    // wanted, and another owner has the name
	Withdrawing PlaceState = "withdrawing" // not wanted, and a value may stand
	Leftover    PlaceState = "leftover"    // not wanted, a value may stand, and no release waits for it
	Withdrawn   PlaceState = "withdrawn"   // not wanted, and one look saw no value of ours
)

// PlaceStates are all states of a place.
var PlaceStates = []PlaceState{Pending, Published, Failed, Conflict, Withdrawing, Leftover, Withdrawn}

// Place is a name in a zone of an account where a value of ours stands, stood, or may
// stand. A value that was written, or may have been, is in Standing, Doubt or Gone until a
// second look shows that it is gone. A value with our mark needs no Gone, because the look
// finds it by the mark.
type Place struct {
	ID        int64 // 0: not stored yet
	Name      string
	Sibling   Sibling // the zero Sibling: the TXT record with our mark
	Account   Account
	Zone      string // apex; "" until the zone is found
	ZoneID    string
	State     PlaceState
	Standing  string // the value of ours that is known to stand there, "" for none
	Doubt     Doubt
	Gone      string    // of a sibling record: values that stood or may come, each with the time (waiting) from which a look settles it
	LookAt    time.Time // of the second look; zero: none
	Disturbed int       // changes in a row by another writer with our mark
	Fault     Fault
	Attempts  int
}

// StoredPlace is a stored place, with the times that are shown of it.
type StoredPlace struct {
	Place     Place
	At, Since string // of the last write of the row, and of the last change of its state
}

// Doubt is the values that may stand at a place, now or later, because writes had no clear
// outcome. The zero Doubt means none.
type Doubt struct {
	Value string // of the last of these writes
	More  bool   // other values of ours, perhaps of another network, may stand too
}

// ParseDoubt is the inverse of Doubt.String.
func ParseDoubt(text string) Doubt {
	value, more := strings.CutPrefix(text, "*")
	return Doubt{Value: value, More: more}
}

// String returns a doubt in its stored form.
func (d Doubt) String() string {
	if d.More {
		return "*" + d.Value
	}
	return d.Value
}

// None reports whether the outcome of every write is known.
func (d Doubt) None() bool { return d == Doubt{} }

// with adds the value of a write.
func (d Doubt) with(value string) Doubt {
	return Doubt{Value: value, More: d.More || !d.None() && d.Value != value}
}

// doubting returns the place after a write of a value that is in doubt. The values of an earlier such write
// of a sibling record wait in Gone, because they have no mark by which they are found.
func (p Place) doubting(value string) Place {
	d := p.Doubt
	if p.Sibling.marked() {
		p.Doubt = d.with(value)
		return p
	}
	others := d.Value != "" && mesh.Network(d.Value) != mesh.Network(value)
	p.Gone, p.Doubt = p.waiting(d.Value, p.LookAt), Doubt{Value: value, More: d.More || others}
	return p
}

// waiting returns Gone with more values: each has a line with a tab and the time in milliseconds from which
// a look settles it. No line has a later time than LookAt.
func (p Place) waiting(values string, until time.Time) string {
	if values == "" {
		return p.Gone
	}
	added := SiblingValues(values)
	lines := slices.DeleteFunc(SiblingValues(p.Gone), func(line string) bool { v, _ := cutTime(line); return slices.Contains(added, v) })
	for _, v := range added {
		lines = append(lines, fmt.Sprintf("%s\t%d", v, until.UnixMilli()))
	}
	return siblingText(mesh.Network(values), lines)
}

// unsettled returns Gone without the values whose time has come when a look begins.
func (p Place) unsettled(began time.Time) string {
	return siblingText(mesh.Network(p.Gone), slices.DeleteFunc(SiblingValues(p.Gone), func(line string) bool {
		_, until := cutTime(line)
		return !began.Before(until)
	}))
}

// cutTime returns the value and the time of a line of Gone.
func cutTime(line string) (value string, until time.Time) {
	value, text, _ := strings.Cut(line, "\t")
	n, _ := strconv.ParseInt(text, 10, 64) // which waiting has written
	return value, time.UnixMilli(n)
}

// empty reports whether no value of ours can stand at the place.
func (p Place) empty() bool { return p.Standing == "" && p.Doubt.None() && p.Gone == "" }

// known returns the values of a sibling record that stand, may stand, or may come back.
func (p Place) known() string {
	gone := SiblingValues(p.Gone)
	for n, line := range gone {
		gone[n], _ = cutTime(line)
	}
	return united(united(siblingText(mesh.Network(p.Gone), gone), p.Doubt.Value), p.Standing)
}

// knows reports whether a value of a sibling record is among them.
func (p Place) knows(value string) bool { return slices.Contains(SiblingValues(p.known()), value) }

// Unknown returns the values of a text that the place does not know.
func (p Place) Unknown(text string) string { return without(text, p.known()) }

// Absorbed returns a place of a sibling record with what another place of its zone knows, which
// ends in the same transaction.
func (p Place) Absorbed(q Place, now time.Time) Place {
	p.LookAt = now.Add(SecondLook)
	p.Gone = p.waiting(q.known(), p.LookAt)
	p.Doubt.More = p.Doubt.More || without(q.Standing, p.Standing) != "" || !q.Doubt.None()
	return p
}

// Keeping returns a place that takes the room of a stored one, with the values that the stored one waits for. The work at the
// place has not dropped these, so it began before a person made them ours.
func (p Place) Keeping(stored Place, now time.Time) Place {
	for _, line := range SiblingValues(stored.Gone) {
		if v, until := cutTime(line); waits(until, now, SecondLook) && !p.knows(v) {
			p.Gone = p.waiting(siblingText(mesh.Network(stored.Gone), []string{v}), until)
			p.LookAt = time.UnixMilli(max(p.LookAt.UnixMilli(), until.UnixMilli()))
		}
	}
	return p
}

// unwanted reports whether no value is wanted at the place.
func (p Place) unwanted() bool {
	return p.State == Withdrawing || p.State == Leftover || p.State == Withdrawn
}

// holds reports whether a value of the network stands or may stand there.
func (p Place) holds(network string) bool {
	return p.Standing != "" && mesh.Network(p.Standing) == network ||
		p.Doubt.More || p.Doubt.Value != "" && mesh.Network(p.Doubt.Value) == network
}

// mayHave reports whether a value of the network stands there, or a write in doubt or an old view may hide one. Values
// that a look has seen beside Standing are no reason: a withdrawal spares those of the network among them.
func (p Place) mayHave(network string) bool {
	if p.LookAt.IsZero() {
		p.Doubt.More = false
	}
	return p.holds(network) || p.Gone != "" && mesh.Network(p.Gone) == network
}

// looks reports whether a look that began at a time is the second look, which shows the outcome of
// every earlier write.
func (p Place) looks(began time.Time) bool { return !p.LookAt.IsZero() && !began.Before(p.LookAt) }

// Event is something that happened at a place.
type Event struct {
	Kind   EventKind
	Value  string // of Intent: the value to add; of Seen: our value that stands; "" for none
	More   bool   // of Seen: other values of ours stand beside it; of Intent: values other than Standing are removed
	Fault  Fault  // of Failure and NoZone
	Final  bool   // of Failure: no retry before the next pass
	Before Place  // of Known: the place before Intent

	Began time.Time // of Seen and NoZone: when the look began; zero: now
}

// EventKind is a kind of event.
type EventKind int

// Kinds of events.
const (
	Wanted   EventKind = iota // the wish was read again, and it has a value
	Unwanted                  // the value is wanted elsewhere, or not at all
	Forced                    // a person frees the prefix without waiting for the withdrawal
	Intent                    // a write is about to be sent
	Known                     // the outcome of that write is known: it was made, or certainly not
	Seen                      // the values at the place were read
	NoZone                    // the provider accepts the key, and the key has no such zone
	Failure                   // the read or the write failed
	Shared                    // the wanted value has a place of its own in the same zone
)

// Wish is the value that is wanted at a place.
type Wish struct {
	Value  string // "" for no value of ours
	Waited bool   // a released usage waits for the withdrawal
	Keep   bool   // no value is wanted, but the value that stands stays until the new place has it
}

// Mode limits the changes at a place.
type Mode int

// Modes of work.
const (
	Write      Mode = iota // missing values are written, unwanted values of ours are removed
	UpsertOnly             // a value is removed only when a new one replaces it
	LookOnly               // no missing value is written
)

// Step is the next step for a place.
type Step int

// Steps after an event.
const (
	Rest        Step = iota // none until a change or a pass
	Go                      // the work goes on at once
	Again                   // a retry after a back-off
	Look                    // a look at LookAt
	Tell                    // a person is told; the next pass tries again
	End                     // the place is deleted
	EndThenLook             // the place is deleted, and the wanted value is read again
)

// After returns the place after an event, and the next step. No other code except Absorbed
// and Keeping changes the State, Standing, Doubt, Gone or LookAt of a place.
func (p Place) After(e Event, w Wish, m Mode, now time.Time) (Place, Step) {
	switch e.Kind {
	case Wanted:
		switch stands := p.Standing == w.Value; {
		case p.unwanted() || p.State == Published && !stands:
			p.State = Pending
		case p.State == Pending && stands && p.Doubt.None():
			p.State = Published
		}
		return p, Go
	case Unwanted, Forced:
		return p.left(e.Kind == Forced)
	case Intent:
		return p.intended(e, w, now), Go
	case Known:
		p.Doubt, p.LookAt = e.Before.Doubt, e.Before.LookAt
		return p, Go
	case Seen:
		return p.seen(e, w, m, now)
	case NoZone:
		if w.Value == "" {
			return p.seen(Event{Began: e.Began}, w, m, now)
		}
		return p.lost(e, w, now), Tell
	case Failure:
		return p.failed(e, w)
	}
	return p.shared(now)
}

// left returns the place and the step after its value is not wanted any more.
func (p Place) left(forced bool) (Place, Step) {
	switch {
	case p.State == Withdrawn:
		return p, p.rest()
	case forced && !p.empty():
		p.State = Leftover
	case p.State != Leftover:
		p.State = Withdrawing
	}
	if p.empty() {
		return p, End
	}
	return p, Go
}

// intended returns the place before a write, whose outcome is in doubt from now on.
func (p Place) intended(e Event, w Wish, now time.Time) Place {
	if e.Value != "" {
		p = p.doubting(e.Value)
	}
	p.LookAt = now.Add(SecondLook)
	p.Doubt.More = p.Doubt.More || e.More
	switch {
	case w.Value != "":
		p.State = Pending
	case p.State != Leftover:
		p.State = Withdrawing
	}
	return p
}

// seen returns the place and the step after a look. Only a look that began at LookAt or later
// settles a doubt about a write: a value seen earlier may come from another write of it. A doubt
// without LookAt is not about a write, so any look settles it. Changes that go on put LookAt off, so the
// values in Gone have times of their own.
func (p Place) seen(e Event, w Wish, m Mode, now time.Time) (Place, Step) {
	began := cmp.Or(e.Began, now)
	looked := p.looks(began)
	p.Gone = p.unsettled(began)
	if looked || p.LookAt.IsZero() {
		p.Doubt, p.Gone, p.LookAt = Doubt{}, "", time.Time{}
	}
	p = p.missed(e.Value, now)
	if e.More && (m == LookOnly || w.Value == "") { // Standing has room for one value only
		p.Doubt.More = true
	}
	p.Standing = e.Value
	switch {
	case w.Value == "" && e.Value == "":
		return p.gone(looked, now)
	case w.Value == "" && m == UpsertOnly && !w.Keep:
		p.State, p.Fault = Leftover, Fault{Code: CodeDeletesForbidden}
		return p, Tell
	case w.Value == "":
		if p.State == Withdrawn || !w.Keep && p.State != Leftover {
			p.State = Withdrawing
		}
	case e.Value == w.Value:
		p.State, p.Fault = Published, Fault{}
	default:
		p.State = Pending
	}
	return p, p.rest()
}

// missed keeps the values of a sibling record that stood and are not seen now, until a second
// look: the provider may show an old view, or a late write may bring them back.
func (p Place) missed(seen string, now time.Time) Place {
	if p.Sibling.marked() {
		return p
	}
	if gone := without(p.Standing, seen); gone != "" {
		p.LookAt = now.Add(SecondLook)
		p.Gone = p.waiting(gone, p.LookAt)
	}
	return p
}

// rest returns the step of a place that needs at most a look.
func (p Place) rest() Step {
	if p.LookAt.IsZero() {
		return Rest
	}
	return Look
}

// gone returns an unwanted place, and its step, after a look saw no value of ours. The
// second look, at LookAt or later, ends the place.
func (p Place) gone(looked bool, now time.Time) (Place, Step) {
	switch {
	case p.State == Withdrawn && looked:
		return p, End
	case p.State != Withdrawn:
		p.State, p.Fault, p.LookAt = Withdrawn, Fault{}, now.Add(SecondLook)
	}
	return p, Look
}

// lost returns a wanted place whose zone is gone. If a second look finds no zone either, a
// released usage waits no longer for the value that stood there.
func (p Place) lost(e Event, w Wish, now time.Time) Place {
	p.State, p.Fault = Failed, e.Fault
	switch {
	case !w.Waited:
	case p.LookAt.IsZero():
		p.LookAt = now.Add(SecondLook)
	case p.looks(cmp.Or(e.Began, now)):
		p.Standing, p.Doubt, p.Gone, p.LookAt = "", Doubt{}, "", time.Time{}
	}
	return p
}

// failed returns the place and the step after a failed read or write.
func (p Place) failed(e Event, w Wish) (Place, Step) {
	if w.Keep { // no change was due there yet
		return p, p.rest()
	}
	p.Fault = e.Fault
	switch tombstone := p.State == Withdrawn && p.Doubt.None(); {
	case w.Value != "" && e.Fault.Code == string(provider.Conflict):
		p.State = Conflict
	case w.Value != "":
		p.State = Failed
	case p.empty() && p.State != Withdrawn:
		return p, End
	case tombstone:
		p.Fault = Fault{}
		if e.Final {
			return p, Look
		}
	case e.Final && (!w.Waited || !transient(e.Fault)):
		p.State = Leftover
	case p.State != Leftover && p.State != Withdrawn:
		p.State = Withdrawing
	}
	if !e.Final {
		return p, Again
	}
	return p, Tell
}

// shared returns the place and the step if the wanted value has its own place in the same
// zone. That place takes over all values with our mark at the name, so this one ends, but not
// before a write in doubt can have arrived. The place of a sibling record meets no such event:
// it is absorbed.
func (p Place) shared(now time.Time) (Place, Step) {
	switch {
	case p.Doubt.None():
		return p, End
	case p.looks(now):
		return p, EndThenLook
	}
	return p, Look
}

// Identity tells whether two places are in one zone.
type Identity int

// Results of comparing the zones of two places.
const (
	Unsure    Identity = iota // only the values in the zones can tell
	SameZone                  // both are in one zone
	OtherZone                 // they are in two zones
)

// identity tells whether two places are in one zone, by their providers' data. The built-in
// zones are one table, in which a record does not depend on the zone. Elsewhere two addresses may be two
// spellings of one server, so they prove nothing. Only at one address are the ids of
// zones comparable, and do equal key ids mean one user.
func (p Place) identity(q Place) Identity {
	a, b := p.Account, q.Account
	oneAddress := a.address() == b.address()
	switch {
	case a.Builtin() && b.Builtin(), a.ID == b.ID && p.Zone == q.Zone:
		return SameZone
	case a.Builtin() || b.Builtin():
		return OtherZone
	case p.Zone == "" || q.Zone == "":
		return Unsure
	case p.Zone != q.Zone:
		return OtherZone
	case oneAddress && p.ZoneID != "" && q.ZoneID != "":
		if p.ZoneID == q.ZoneID {
			return SameZone
		}
		return OtherZone
	case oneAddress && a.AccessKeyID == b.AccessKeyID:
		return SameZone
	}
	return Unsure
}

// Apart reports whether two places are surely in two zones. Two of one account are not, because a zone within another one may begin or end.
func (p Place) Apart(q Place) bool { return p.Account.ID != q.Account.ID && p.identity(q) == OtherZone }

// Free returns the ids of the released usages that can be deleted: no value of their
// network can stand at the name any more. Two exceptions do not hold a usage: a value of the
// network that now has the name, and leftovers in mode upsert-only.
func Free(n Name, upsertOnly bool) (ids []string) {
	wanted := wantedAt(n).network
	for _, u := range n.Usages {
		if !u.Releasing {
			continue
		}
		held := slices.ContainsFunc(n.Places, func(p Place) bool {
			return p.holds(u.Network) && !(upsertOnly && p.State == Leftover)
		})
		if u.Network == wanted || !held {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// nextLook returns the earliest time of a second look at some places, zero for none.
func nextLook(places []Place) (at time.Time) {
	for _, p := range places {
		at = soonest(at, p.LookAt)
	}
	return at
}
