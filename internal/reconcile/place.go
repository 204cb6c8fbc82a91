package reconcile

import (
	"slices"
	"strings"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// PlaceState is how far a place is on its way. docs/design.md has the table of all
// states and events.
type PlaceState string

const (
	Pending     PlaceState = "pending"     // wanted, and what stands is not what is wanted
	Published   PlaceState = "published"   // wanted, and seen to stand
	Failed      PlaceState = "failed"      // wanted, and the last try failed
	Conflict    PlaceState = "conflict"    // wanted, and another owner has the name
	Withdrawing PlaceState = "withdrawing" // not wanted, and may stand
	Leftover    PlaceState = "leftover"    // not wanted, may stand, and no release waits for it
	Withdrawn   PlaceState = "withdrawn"   // not wanted, and seen to be gone once
)

// PlaceStates are all states.
var PlaceStates = []PlaceState{Pending, Published, Failed, Conflict, Withdrawing, Leftover, Withdrawn}

// Place is where a value stands, or may stand: a name in a zone of an account.
// A value that was written, or may have been, is in Standing or Doubt of a place
// until it was seen to be gone.
type Place struct {
	ID        int64 // 0: not stored yet
	Name      string
	Account   Account
	Zone      string // apex; "" until it is found
	ZoneID    string
	State     PlaceState
	Standing  string // the value of ours that was last seen there, "" for none
	Doubt     Doubt
	LookAt    time.Time // when to look here once more; zero: never
	Disturbed int       // how often in a row another writer with our mark had changed it
	Fault     Fault
	Attempts  int
}

// Doubt is what writes of unknown outcome may have put at a place, or may still
// put there. The zero Doubt is none.
type Doubt struct {
	Value string // of the last of these writes
	More  bool   // there may be other values of ours too
}

// ParseDoubt reads what String gives.
func ParseDoubt(text string) Doubt {
	value, more := strings.CutPrefix(text, "*")
	return Doubt{Value: value, More: more}
}

// String gives a doubt as it is stored.
func (d Doubt) String() string {
	if d.More {
		return "*" + d.Value
	}
	return d.Value
}

// None reports whether the outcome of every write is known.
func (d Doubt) None() bool { return d == Doubt{} }

// with adds a write.
func (d Doubt) with(value string) Doubt {
	return Doubt{Value: value, More: d.More || !d.None() && d.Value != value}
}

// empty reports whether nothing of ours can stand at the place.
func (p Place) empty() bool { return p.Standing == "" && p.Doubt.None() }

// unwanted reports whether the place is one to withdraw.
func (p Place) unwanted() bool {
	return p.State == Withdrawing || p.State == Leftover || p.State == Withdrawn
}

// holds reports whether a value of the network stands there, or may.
func (p Place) holds(network string) bool {
	return p.Standing != "" && mesh.Network(p.Standing) == network ||
		p.Doubt.More || p.Doubt.Value != "" && mesh.Network(p.Doubt.Value) == network
}

// looks reports whether a look now is the one that LookAt is about: it tells what
// became of every write before.
func (p Place) looks(now time.Time) bool { return !p.LookAt.IsZero() && !now.Before(p.LookAt) }

// Event is what happened at a place.
type Event struct {
	Kind   EventKind
	Value  string // of Intent: the value to add; of Seen: the value of ours that stands; "" for none
	More   bool   // of Seen: other values of ours stand beside it; of Intent: others than Standing are to go
	Fault  Fault  // of Failure and NoZone
	Final  bool   // of Failure: it is not tried again before the next pass
	Before Place  // of Known: the place before Intent
}

// EventKind is a kind of event.
type EventKind int

const (
	Wanted   EventKind = iota // the wish was read again
	Unwanted                  // the value is wanted elsewhere, or not at all
	Forced                    // a person gives the prefix free without waiting for the value to go
	Intent                    // a write is about to be sent
	Known                     // that write was made, or certainly not: it is in doubt no more
	Seen                      // it was looked at
	NoZone                    // an accepted key does not have the zone any more
	Failure                   // it was neither looked at nor written
	Shared                    // the wanted value has a place of its own in this very zone
)

// Wish is what is wanted at a place.
type Wish struct {
	Value  string // "" for nothing of ours
	Waited bool   // a released usage waits for what stands there to go
	Keep   bool   // nothing is wanted, but what stands stays until it stands elsewhere
}

// Mode is what may be changed.
type Mode int

const (
	Write      Mode = iota // what is missing is written, what is too much is removed
	UpsertOnly             // only what a new value replaces is removed
	LookOnly               // nothing that is missing is written
)

// Step is what is to be done next about a place.
type Step int

const (
	Rest        Step = iota // nothing, until something changes or a pass comes by
	Go                      // work goes on at once
	Again                   // another try, after a pause
	Look                    // a look at LookAt
	Tell                    // a person is told; a pass tries again
	End                     // the place is no more
	EndThenLook             // the place is no more, and the wanted value is looked at
)

// After gives the place after an event, and what is to be done next. It is the
// only code that changes a place's state, what stands there, doubt, or LookAt.
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
			return p.seen(Event{}, w, m, now)
		}
		return p.lost(e.Fault, w, now), Tell
	case Failure:
		return p.failed(e, w)
	}
	return p.shared(now)
}

// left is a place that is not wanted any more.
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

// intended is a place before a write: from now on its outcome is in doubt.
func (p Place) intended(e Event, w Wish, now time.Time) Place {
	p.LookAt = now.Add(SecondLook)
	if e.Value != "" {
		p.Doubt = p.Doubt.with(e.Value)
	}
	p.Doubt.More = p.Doubt.More || e.More
	switch {
	case w.Value != "":
		p.State = Pending
	case p.State != Leftover:
		p.State = Withdrawing
	}
	return p
}

// seen is a place that was looked at. Only a look at LookAt or later settles a
// doubt: what stands before may be another write of the same value. A doubt without
// LookAt is about no write.
func (p Place) seen(e Event, w Wish, m Mode, now time.Time) (Place, Step) {
	looked := p.looks(now)
	if looked || p.LookAt.IsZero() {
		p.Doubt, p.LookAt = Doubt{}, time.Time{}
	}
	if e.More && (m == LookOnly || w.Value == "") { // a place tells of one value only
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

// rest is the step of a place at which nothing is to be done but a look.
func (p Place) rest() Step {
	if p.LookAt.IsZero() {
		return Rest
	}
	return Look
}

// gone is a place to withdraw where nothing of ours stands. The second look, at
// LookAt or later, ends it.
func (p Place) gone(looked bool, now time.Time) (Place, Step) {
	switch {
	case p.State == Withdrawn && looked:
		return p, End
	case p.State != Withdrawn:
		p.State, p.Fault, p.LookAt = Withdrawn, Fault{}, now.Add(SecondLook)
	}
	return p, Look
}

// lost is a wanted place whose zone is gone. A released usage waits no longer for
// what stood there when a second look sees no zone either.
func (p Place) lost(f Fault, w Wish, now time.Time) Place {
	p.State, p.Fault = Failed, f
	switch {
	case !w.Waited:
	case p.LookAt.IsZero():
		p.LookAt = now.Add(SecondLook)
	case p.looks(now):
		p.Standing, p.Doubt, p.LookAt = "", Doubt{}, time.Time{}
	}
	return p
}

// failed is a place that could not be looked at or written.
func (p Place) failed(e Event, w Wish) (Place, Step) {
	if w.Keep { // nothing was to be done there yet
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
	case e.Final && (!w.Waited || !e.Fault.transient()):
		p.State = Leftover
	case p.State != Leftover && p.State != Withdrawn:
		p.State = Withdrawing
	}
	if !e.Final {
		return p, Again
	}
	return p, Tell
}

// shared is a place in whose zone the wanted value has a place of its own, which
// answers for all that stands at the name. A write that may still arrive is
// waited for.
func (p Place) shared(now time.Time) (Place, Step) {
	switch {
	case p.Doubt.None():
		return p, End
	case p.looks(now):
		return p, EndThenLook
	}
	return p, Look
}

// Identity says whether two places are in one zone.
type Identity int

const (
	Unsure Identity = iota // only what stands there can tell
	SameZone
	OtherZone
)

// identity compares the zones of two places by what their providers say of them.
// How an address is spelled tells nothing: only where two keys have one address is
// an id of the zone comparable, and one key id with two secrets one user.
func (p Place) identity(q Place) Identity {
	a, b := p.Account, q.Account
	oneAddress := a.Provider == b.Provider && a.Endpoint == b.Endpoint
	switch {
	case a.ID == b.ID && p.Zone == q.Zone:
		return SameZone
	case p.Zone == "" || q.Zone == "":
		return Unsure
	case p.Zone != q.Zone, (a.Provider == builtinProvider) != (b.Provider == builtinProvider):
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

// Free gives the released usages whose prefix nothing holds any more: no value
// of their network can stand at the name, except one that another usage of that
// network wants there, and in mode upsert-only leftovers, which stay.
func Free(n Name, upsertOnly bool) (ids []string) {
	for _, u := range n.Usages {
		if !u.Releasing {
			continue
		}
		wanted := slices.ContainsFunc(n.Usages, func(o Usage) bool { return !o.Releasing && o.Network == u.Network })
		held := slices.ContainsFunc(n.Places, func(p Place) bool {
			return p.holds(u.Network) && !(upsertOnly && p.State == Leftover)
		})
		if wanted || !held {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// nextLook is the earliest time at which a place is to be looked at once more,
// zero for never.
func nextLook(places []Place) (at time.Time) {
	for _, p := range places {
		at = soonest(at, p.LookAt)
	}
	return at
}
