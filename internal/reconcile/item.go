package reconcile

import (
	"errors"
	"slices"
	"time"

	"meshddns/internal/provider"
)

// item is one record in work.
type item struct {
	record Record
	goal   goal
	phase  phase
	place  Place  // the place, brought up to date by each event
	before *Place // the place before the last committed intent; nil: none is committed
	step   Step   // the next step after the last event
	left   *Place // the old place of a value that moves to another zone
	seen   provider.RRset
	change provider.Change

	conflict error // of the change: values of others exclude what is wanted, also after the change

	fault  Fault
	wait   time.Duration // the pause that the provider asked for
	began  time.Time
	took   time.Duration
	store  []*Place // places to store
	later  bool     // the time of the batch was used up before its change began
	verify bool     // it withdraws the wanted value from another zone, so the wanted place is read again afterwards
}

// phase is the progress of the work on an item.
type phase int

const (
	unread phase = iota
	read
	done
	untried // done without a call, because the zone or the program had already failed or ended
)

// ended reports whether the work on an item is done.
func (i *item) ended() bool { return i.phase >= done }

func newItem(r Record, manualLook bool) *item {
	i := &item{record: r, place: r.Place, goal: r.goal}
	i.goal.want = r.Want
	if manualLook && !r.withdraws() {
		i.goal.mode = LookOnly
	}
	i.learn()
	return i
}

// learn brings what the places of the item's zone know into the goal. A value that only a place
// of another zone knows is not ours here.
func (i *item) learn() {
	g := &i.goal
	if g.standing, g.doubt = i.place.Standing, i.place.Doubt; !g.sibling {
		return
	}
	g.gone, g.known, g.beside = i.place.Gone, SiblingValues(i.place.known()), nil
	for _, p := range i.record.Places {
		if p.identity(i.place) == SameZone {
			g.known = append(g.known, SiblingValues(p.known())...)
		}
	}
	for _, p := range i.record.Withdrawal.Beside {
		if p.identity(i.place) == SameZone {
			g.beside = append(g.beside, SiblingValues(p.known())...)
		}
	}
}

// restate brings the state of the place into line with the current wish.
func (i *item) restate(now time.Time) { i.happens(i.record.wanted(), now) }

// happens applies an event to the place of the item.
func (i *item) happens(e Event, now time.Time) {
	e.Began = i.began // a late write may arrive while the provider answers
	i.place, i.step = i.place.After(e, i.record.wish(), i.goal.mode, now)
}

// sees tells the place the values of ours that stand after a change, which may be empty.
func (i *item) sees(change provider.Change, now time.Time) {
	e := Event{Kind: Seen}
	e.Value, e.More = i.goal.remains(change)
	i.happens(e, now)
}

// looked ends the work on an item with the values that stand there now.
func (i *item) looked(now time.Time) {
	i.sees(i.change, now)
	if i.phase = done; i.conflict != nil {
		i.fail(i.conflict)
	}
}

// fail ends the work on an item with an error.
func (i *item) fail(err error) {
	i.fault, i.phase = Describe(err, i.record.Account), done
	if e, ok := errors.AsType[*provider.Error](err); ok {
		i.wait = e.RetryAfter
	}
}

// zoneless reports whether the provider has no zone for the wanted value.
func (i *item) zoneless() bool { return i.fault.Code == string(provider.ZoneNotFound) }

// choosePlace picks the item's place in the zone that was found.
func (i *item) choosePlace(zone, id string, now time.Time) {
	if i.place.Zone != zone {
		i.moveTo(zone, now)
	}
	i.place.ZoneID = id
}

// moveTo moves the item to its place in another zone. A value that stands in another zone of the
// account moves, and its old place is left. Of two places in one zone only one may exist: it is the
// item's, or it ends a withdrawal, because it finds every value by its mark. The built-in zones are one
// table, so a place there only gets the name of another zone.
func (i *item) moveTo(zone string, now time.Time) {
	r, old := i.record, i.place
	at := slices.IndexFunc(r.Places, func(p Place) bool { return p.Account.ID == r.Account.ID && p.Zone == zone && p.ID != old.ID })
	switch {
	case at >= 0 && r.withdraws():
		i.happens(Event{Kind: Shared}, now)
		i.phase = done
		return
	case at >= 0:
		i.place = r.Places[at]
	case old.Zone != "" && !r.Account.Builtin() && !r.withdraws():
		i.place = Place{Name: r.Name, Sibling: r.Sibling, Account: r.Account, State: Pending, Attempts: old.Attempts}
	}
	if i.place.ID != old.ID && old.ID != 0 {
		old, _ = old.After(Event{Kind: Unwanted}, Wish{}, Write, now)
		i.left = &old
	}
	i.place.Zone = zone
}

// intended returns the place as it is stored before the write.
func (i *item) intended(now time.Time) Place {
	e := Event{Kind: Intent}
	if len(i.change.Add) > 0 {
		e.Value = i.goal.added(i.change)
		e.More = !i.goal.sibling && slices.ContainsFunc(i.change.Remove, func(v provider.Value) bool { return v.Text() != i.place.Standing })
	}
	p, _ := i.place.After(e, i.record.wish(), i.goal.mode, now)
	return p
}

// places returns the places of the item that are stored.
func (i *item) places() []*Place {
	if i.left == nil {
		return []*Place{&i.place}
	}
	return []*Place{&i.place, i.left}
}
