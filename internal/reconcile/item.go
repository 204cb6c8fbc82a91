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
	fault  Fault
	wait   time.Duration // the pause that the provider asked for
	began  time.Time
	took   time.Duration
	store  []*Place // places to store
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
	i.goal.want, i.goal.standing, i.goal.doubt = r.Want, r.Place.Standing, r.Place.Doubt
	if manualLook && !r.withdraws() {
		i.goal.mode = LookOnly
	}
	return i
}

// restate brings the state of the place into line with the current wish.
func (i *item) restate(now time.Time) { i.happens(i.record.wanted(), now) }

// happens applies an event to the place of the item.
func (i *item) happens(e Event, now time.Time) {
	i.place, i.step = i.place.After(e, i.record.wish(), i.goal.mode, now)
}

// looked ends the work on an item with the values that stand there now.
func (i *item) looked(now time.Time) {
	e := Event{Kind: Seen}
	e.Value, e.More = i.goal.remains(i.change)
	i.happens(e, now)
	i.phase = done
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

// choosePlace picks the item's place in the zone that was found. A value that stands in
// another zone of the account moves, and its old place is left.
func (i *item) choosePlace(zone, id string, now time.Time) {
	r := i.record
	if r.withdraws() {
		i.place.Zone = zone // an older database may lack it
	}
	if i.place.Zone != zone {
		old := i.place
		if old.Zone != "" {
			i.place = Place{Name: r.Name, Sibling: r.Sibling, Account: r.Account, State: Pending, Attempts: old.Attempts}
		}
		if at := slices.IndexFunc(r.Others, func(p Place) bool { return p.Zone == zone }); at >= 0 {
			i.place = r.Others[at]
		}
		if i.place.ID != old.ID && old.ID != 0 {
			old, _ = old.After(Event{Kind: Unwanted}, Wish{}, Write, now)
			i.left = &old
		}
		i.place.Zone = zone
		i.goal.standing, i.goal.doubt = i.place.Standing, i.place.Doubt
	}
	i.place.ZoneID = id
}

// intended returns the place as it is stored before the write.
func (i *item) intended(now time.Time) Place {
	e := Event{Kind: Intent}
	if len(i.change.Add) > 0 {
		e.Value = i.goal.want
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
