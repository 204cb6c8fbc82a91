package answers

import (
	"cmp"

	"meshddns/ledger"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/reconcile"
)

// StateNone is the state of a usage that has nowhere to be published.
const StateNone = "none"

// PublishStates are those that Publishing can have.
var PublishStates = []string{
	StateNone, reconcile.Pending, reconcile.Published, reconcile.Failed, reconcile.Conflict, reconcile.Withdrawing,
}

// Publishing is how far a usage's record is.
type Publishing struct {
	State, Value string
	Fault        reconcile.Fault
	Attempts     int
	At           string
}

// PublishingOf works out how far the record of a network's usage is, from what is stored
// of its name: what counts is the place where it is wanted, and what stands anywhere.
func PublishingOf(network string, releasing bool, n reconcile.Name, places []ledger.StoredPlace) Publishing {
	p := Publishing{State: StateNone}
	for _, place := range places {
		if meshtxt.Network(place.Place.Standing) == network {
			p.Value = cmp.Or(p.Value, place.Place.Standing)
		}
	}
	for _, r := range reconcile.Desired(reconcile.State{Names: []reconcile.Name{n}}, reconcile.Addresses{}) {
		left := r.Place.State == reconcile.Leftover || r.Place.State == reconcile.Withdrawn
		if r.Network != network || left && !releasing { // what is left is not where it is wanted
			continue
		}
		switch {
		case r.Fault.Code == reconcile.CodeNoProvider:
			return Publishing{State: StateNone}
		case r.Fault.Code == reconcile.CodeNetworkConflict:
			return Publishing{State: reconcile.Conflict, Fault: r.Fault}
		}
		p.State = cmp.Or(r.Place.State, p.State)
		p.Fault, p.Attempts = r.Place.Fault, r.Place.Attempts
		for _, place := range places {
			if place.Place.ID == r.Place.ID {
				p.At = place.At
			}
		}
		break
	}
	if releasing {
		p.State = reconcile.Withdrawing
	}
	return p
}

type publishing struct {
	State    string `json:"state"`
	Value    string `json:"value"`
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	At       string `json:"at"`
}

// In gives it as clients see it.
func (p Publishing) In(language msg.Language) any {
	return publishing{State: p.State, Value: p.Value, Error: FaultText(p.Fault, language), Attempts: p.Attempts, At: p.At}
}
