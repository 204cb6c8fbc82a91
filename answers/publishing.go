package answers

import (
	"cmp"

	"meshddns/ledger"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/reconcile"
)

// StateNone is the state of a usage that has nowhere to be published.
const StateNone reconcile.PlaceState = "none"

// PublishStates are those that Publishing can have.
var PublishStates = []reconcile.PlaceState{
	StateNone, reconcile.Pending, reconcile.Published, reconcile.Failed, reconcile.Conflict, reconcile.Withdrawing,
}

// Publishing is how far a usage's record is.
type Publishing struct {
	State    reconcile.PlaceState
	Value    string
	Fault    reconcile.Fault
	Attempts int
	At       string
}

// PublishingOf works out how far the record of a network's usage is. State has its
// name alone. What counts is the place where the value is wanted; of several the
// first where it does not stand.
func PublishingOf(network string, releasing bool, state reconcile.State, addresses reconcile.Addresses, places []ledger.StoredPlace) Publishing {
	p := Publishing{State: StateNone}
	for _, place := range places {
		if meshtxt.Network(place.Place.Standing) == network {
			p.Value = cmp.Or(p.Value, place.Place.Standing)
		}
	}
	found := false
	for _, r := range reconcile.Desired(state, addresses) {
		left := r.Account.ID != 0 && r.Want == "" && !r.Waited // it is not where it is wanted
		if r.Network != network || left || found && r.Stands() {
			continue
		}
		switch {
		case r.Fault.Code == reconcile.CodeNoProvider:
			return Publishing{State: StateNone}
		case r.Fault.Code == reconcile.CodeNetworkConflict:
			return Publishing{State: reconcile.Conflict, Fault: r.Fault}
		}
		p.take(r, places)
		if found = true; !r.Stands() {
			break
		}
	}
	if releasing {
		p.State = reconcile.Withdrawing
	}
	return p
}

// take takes what a record says: its place, as what is wanted now makes it.
func (p *Publishing) take(r reconcile.Record, places []ledger.StoredPlace) {
	p.State, p.Fault, p.Attempts = r.Now().State, r.Place.Fault, r.Place.Attempts
	if meshtxt.Network(r.Place.Standing) == r.Network {
		p.Value = cmp.Or(r.Place.Standing, p.Value)
	}
	for _, place := range places {
		if place.Place.ID == r.Place.ID {
			p.At = place.At
		}
	}
}

type publishing struct {
	State    reconcile.PlaceState `json:"state"`
	Value    string               `json:"value"`
	Error    string               `json:"error"`
	Attempts int                  `json:"attempts"`
	At       string               `json:"at"`
}

// In gives it as clients see it.
func (p Publishing) In(language msg.Language) any {
	return publishing{State: p.State, Value: p.Value, Error: FaultText(p.Fault, language), Attempts: p.Attempts, At: p.At}
}
