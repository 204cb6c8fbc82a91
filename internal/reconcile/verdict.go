package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// ownerDoubts is the number of changes in a row by another writer with our mark from which
// the engine warns that a copy of the database may be in use elsewhere.
const ownerDoubts = 3

// verdict concludes an item: its outcome, the places to store, and the time of its next
// try.
type verdict struct {
	item    *item
	job     *job
	now     time.Time
	retry   provider.Backoff
	lane    *zoneLane
	down    bool          // the whole zone failed
	givenUp bool          // the zone has used up its retries
	again   time.Duration // the pause before the next try of a leftover where no pass comes; 0: a pass comes
}

// conclude returns the outcome of an item and its next try, and sets the places to store.
// An item that was interrupted or not tried waits in its lane, without an action.
func (v verdict) conclude() (o Outcome, back Due) {
	i, r := v.item, v.item.record
	o = Outcome{
		Name: r.Name, Sibling: r.Sibling, Provider: r.Account.Provider, Zone: cmp.Or(i.place.Zone, r.Place.Zone), Network: r.Network, Value: r.Want,
		Fault: i.fault, Attempts: v.job.attempt + 1, Duration: i.took, at: r.at(), zoneDown: v.withZone(),
	}
	switch {
	case i.fault.Code == "":
		i.store = i.places()
		o.Action = v.succeeded(&o)
		return o, Due{}
	case i.fault.Code == CodeInterrupted && !r.Withdrawal.Keep, i.phase == untried && !v.givenUp && !r.Withdrawal.Keep:
		i.store = slices.DeleteFunc(i.places(), func(p *Place) bool { return p.ID == 0 })
		return o, Due{At: v.now, Lane: v.lane.key}
	case i.phase == untried:
		o.Attempts = v.lane.fails
	}
	back = v.fail(&o)
	return o, back
}

// fail tells the place of an item of the failure, sets the outcome's action, and returns
// the next try, if there is one before the next pass.
func (v verdict) fail(o *Outcome) (back Due) {
	i, r := v.item, v.item.record
	if i.left != nil && i.place.ID == 0 { // the value keeps its old place until the new one is stored
		i.place, i.left = r.Place, nil
	}
	final := !transient(i.fault) || v.givenUp || o.Attempts > v.retry.Retries
	e := Event{Kind: Failure, Fault: i.fault, Final: final}
	if i.fault.Code == string(provider.ZoneNotFound) && !r.withdraws() {
		e.Kind = NoZone
	}
	i.place.Attempts = o.Attempts
	i.happens(e, v.now)
	i.store = i.places()
	if o.Action = v.failed(); r.withdraws() {
		o.Value = r.Place.Standing
	}
	switch {
	case i.step == Again:
		wait := v.retry.Delay(o.Attempts, nil)
		if i.wait > 0 {
			wait = min(i.wait, daemon.MaxRetryAfter)
		}
		back = Due{At: v.now.Add(wait), Lane: v.lane.key}
	case o.Action == "":
		o.Fault = Fault{} // no person has to be told
	case o.Action == ActionLeftover && v.again > 0:
		back = Due{At: v.now.Add(v.again), Lane: v.lane.key}
	}
	return back
}

// withZone reports whether the item failed because its whole zone failed.
func (v verdict) withZone() bool {
	return v.item.fault.Code != "" && (v.item.phase == untried || v.down && v.item.fault.Code == v.lane.fault.Code)
}

// at returns a key that differs between the records of one name and network.
func (r Record) at() string {
	if r.withdraws() {
		return fmt.Sprint(r.Account.ID, " ", r.Place.ID)
	}
	return fmt.Sprint(r.Account.ID, r.Sibling.Owner, r.Sibling.Type)
}

// succeeded returns the action of an item without a fault.
func (v verdict) succeeded(o *Outcome) string {
	i, r := v.item, v.item.record
	before := r.Place.State
	switch {
	case r.withdraws() && i.step == Tell:
		o.Fault, o.Value = i.place.Fault, i.place.Standing
		return ActionLeftover
	case r.withdraws() && i.place.State == Withdrawn && before != Withdrawn:
		return ActionDelete
	case r.withdraws() || i.place.State != Published:
		return ""
	}
	action := i.goal.action(i.change)
	if action != ActionUnchanged || before != Published {
		i.place.Attempts = o.Attempts
	} else {
		o.Attempts = i.place.Attempts
	}
	if o.Fault = r.Warning; i.place.Disturbed >= ownerDoubts {
		o.Fault = Fault{Code: CodeSameOwner, Detail: msg.Say(r.goal.owner)}
	}
	if i.place.Fault = i.goal.shared(i.change.Seen); o.Fault.Code == "" {
		o.Fault = i.place.Fault
	}
	switch lost := r.Place.Doubt.Value == r.Want && before != Published; {
	case action != ActionUnchanged || !lost:
		return action
	case r.Place.Standing == "":
		return ActionCreate // an earlier write, whose answer was lost, created it
	}
	return ActionUpdate
}

// failed returns the action of an item that failed, "" if it is tried again.
func (v verdict) failed() string {
	i := v.item
	switch {
	case i.step != Tell:
		return ""
	case i.place.State == Conflict:
		return ActionConflict
	case i.place.State == Leftover:
		return ActionLeftover
	}
	return ActionFailed
}

const (
	defaultRetryInterval = 5 * time.Second
	maxRetryInterval     = time.Hour
	defaultRetries       = 3
	maxRetries           = 10
)

// RetryPolicy returns the configuration's back-off, within its bounds. The interval is in
// seconds; retries counts attempts after the first.
func RetryPolicy(interval, retries *int64) provider.Backoff {
	b := provider.Backoff{First: defaultRetryInterval, Retries: defaultRetries}
	if n := interval; n != nil && *n > 0 {
		b.First = time.Duration(min(*n, int64(maxRetryInterval/time.Second))) * time.Second
	}
	if n := retries; n != nil && *n >= 0 {
		b.Retries = int(min(*n, maxRetries))
	}
	return b
}
