package reconcile

import (
	"errors"
	"slices"

	"meshddns/provider"
)

// A key may get another secret while values are to be withdrawn that were published with
// the old one. The old secret is tried first. Where it is refused, the place's heir
// withdraws the value: the account with the newest secret of that key. It may be the key
// of another zone, for some providers have one key id for all: so nothing is believed to
// be gone because the heir does not find its zone.

// bequeathed gives the withdrawal as the place's heir is to try it. It is not ok when the
// heir cannot do it better, or has a wanted value at the name, which replaces the old one.
func (i *item) bequeathed() (r Record, ok bool) {
	r = i.record
	heir := r.Place.Heir
	refused := i.fault.Code == string(provider.BadCredentials) || i.fault.Code == CodeCredentialsGone
	if !refused || !r.withdrawal() || r.inherited() || heir == nil ||
		slices.ContainsFunc(r.Beside, func(p Place) bool { return p.Account.ID == heir.ID }) {
		return r, false
	}
	r.Account, r.Fault, r.Refused = *heir, Fault{}, i.fault
	return r, true
}

// inherited reports whether the record is tried by the heir of its place.
func (r Record) inherited() bool { return r.Refused.Code != "" }

// gone reports whether an error means that what is to be withdrawn has gone with its zone.
func (r Record) gone(err error) bool {
	return r.withdrawal() && !r.inherited() && provider.KindOf(err) == provider.ZoneNotFound
}

// errOtherZone is the failure of an heir that has a zone of the same name only.
var errOtherZone = errors.New("the key reaches another zone of this name")

// bequeath has the heir of a job's place try it. The caller holds the lock.
func (e *Engine) bequeath(j *job, r Record) {
	l := e.lane(r.lane())
	l.queue = slices.Insert(l.queue, l.turn(taking{page: j.task.page}), &job{task: j.task, record: r, look: j.look, attempt: j.attempt})
	if !l.working {
		l.working = true
		e.begin(func() { e.runLane(l) })
	}
}
