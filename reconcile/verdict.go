package reconcile

import (
	"cmp"
	"database/sql"
	"fmt"
	"time"

	"meshddns/provider"
)

// lookAgain is when a look that failed is made again without a pass.
const lookAgain = 5 * time.Minute

// ownerDoubts is how often in a row somebody with our mark changes a value
// before it is said that a copy of the database may be in use elsewhere.
const ownerDoubts = 3

// verdict says what the end of an item means: its outcome, what is stored, and
// when to come back.
type verdict struct {
	item    *item
	job     *job
	now     time.Time
	retry   provider.Backoff
	lane    *lane
	givenUp bool // the zone has failed as often as it may
}

func (v verdict) conclude() (o Outcome, back Due) {
	i, r := v.item, v.item.record
	o = Outcome{
		Name: r.Name, Provider: r.Account.Provider, Zone: cmp.Or(i.zone, r.Place.Zone), Network: r.Network, Value: r.Want,
		Fault: i.fault, Attempts: v.job.attempt + 1, Duration: i.took, at: r.at(), zoneDown: i.withZone,
	}
	switch {
	case i.fault.Code == "":
		o.Action = v.succeeded(&o)
		return o, Due{}
	case r.Keep: // nothing was to be done there yet
		o.Fault = Fault{}
		return o, Due{}
	case i.fault.Code == CodeInterrupted, i.untried && !v.givenUp:
		return o, Due{At: v.now, Lane: v.lane.key}
	case i.untried:
		o.Attempts = v.lane.fails
	}
	final := !i.fault.transient() || v.givenUp || o.Attempts > v.retry.Retries
	i.place.Fault, i.place.Attempts = i.fault, o.Attempts
	if r.withdrawal() {
		o.Action, o.Value = v.notWithdrawn(final), r.Place.Standing
	} else {
		o.Action = v.notPublished(final)
	}
	i.store = i.places()
	if !final {
		o.Action = ""
		wait := v.retry.Delay(o.Attempts, nil)
		if i.wait > 0 {
			wait = min(i.wait, provider.MaxRetryAfter)
		}
		return o, Due{At: v.now.Add(wait), Lane: v.lane.key}
	}
	if o.Action == "" {
		o.Fault = Fault{} // nobody has to know
	}
	if p := i.place; !p.LookAt.IsZero() && !p.LookAt.After(v.now) {
		back = Due{At: v.now.Add(lookAgain), Lane: LaneLook}
	}
	return o, back
}

// at tells the record from others of its name and network.
func (r Record) at() string {
	if r.withdrawal() {
		return fmt.Sprint(r.Account.ID, " ", r.Place.ID)
	}
	return fmt.Sprint(r.Account.ID)
}

// succeeded is the action of an item that is as wanted.
func (v verdict) succeeded(o *Outcome) string {
	i, r := v.item, v.item.record
	before := r.Place.State
	i.store = i.places()
	if r.withdrawal() {
		if before == Withdrawn && i.action == ActionUnchanged || i.place.State != Withdrawn || before == i.place.State {
			return ""
		}
		return ActionDelete
	}
	if i.action != ActionUnchanged || before != Published {
		i.place.Attempts = o.Attempts
	} else {
		o.Attempts = i.place.Attempts
	}
	if o.Fault = r.warning(); i.place.Disturbed >= ownerDoubts {
		o.Fault = Fault{Code: CodeSameOwner, Detail: r.owner}
	}
	switch lost := r.Place.Doubt == r.Want && before != Published; {
	case i.action != ActionUnchanged:
		return i.action
	case lost && r.Place.Standing == "":
		return ActionCreate // made by a write whose answer was lost
	case lost:
		return ActionUpdate
	case before != Published && i.goal.lookOnly:
		return ""
	}
	return i.action
}

// notPublished is the action of a value that is not in place. One that was to
// move, and has no new place yet, stays where it is.
func (v verdict) notPublished(final bool) string {
	i := v.item
	if i.left != nil && i.place.ID == 0 {
		fault, attempts := i.place.Fault, i.place.Attempts
		i.place, i.left = i.record.Place, nil
		i.place.Fault, i.place.Attempts = fault, attempts
	}
	i.place.State = Failed
	v.zoneGone()
	if i.fault.Code == string(provider.Conflict) {
		i.place.State = Conflict
		return ActionConflict
	}
	return ActionFailed
}

// zoneGone ends what stood in a zone that the key does not have any more, and that a
// released usage waits for, when that is seen a second time.
func (v verdict) zoneGone() {
	p := &v.item.place
	switch {
	case v.item.fault.Code != string(provider.ZoneNotFound) || !v.item.record.Waited:
	case p.LookAt.IsZero():
		p.LookAt = v.now.Add(SecondLook)
	case !v.now.Before(p.LookAt):
		p.Standing, p.Doubt, p.LookAt, p.Zone, p.ZoneID = "", "", time.Time{}, "", ""
	}
}

// notWithdrawn is the action of a value that may still stand. Nobody waits for a
// leftover; one that only cannot be looked at once more is none.
func (v verdict) notWithdrawn(final bool) string {
	i, r := v.item, v.item.record
	p := &i.place
	switch {
	case p.State == Withdrawn && p.Doubt == "":
		return ""
	case !final && p.State != Leftover && p.State != Withdrawn:
		p.State = Withdrawing
	case final && (!r.Waited || !i.fault.transient()):
		p.State = Leftover
		return ActionLeftover
	case final && p.State != Leftover:
		p.State = Withdrawing
	}
	return ActionFailed
}

const (
	defaultRetryInterval = 5 * time.Second
	maxRetryInterval     = time.Hour
	defaultRetries       = 3
	maxRetries           = 10
)

// RetryPolicy is what the configuration says, in seconds and attempts after the
// first, within its bounds.
func RetryPolicy(interval, retries sql.Null[int64]) provider.Backoff {
	b := provider.Backoff{First: defaultRetryInterval, Retries: defaultRetries}
	if n := interval; n.Valid && n.V > 0 {
		b.First = time.Duration(min(n.V, int64(maxRetryInterval/time.Second))) * time.Second
	}
	if n := retries; n.Valid && n.V >= 0 {
		b.Retries = int(min(n.V, maxRetries))
	}
	return b
}
