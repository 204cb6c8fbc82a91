package reconcile

// None is the state of a usage that has nowhere to be published.
const None PlaceState = "none"

// UsageStates are all states of a usage.
var UsageStates = []PlaceState{None, Pending, Published, Failed, Conflict, Withdrawing}

// Told is what is told of a usage. The database stores it, so a list, a total and an
// answer about one usage agree.
type Told struct {
	State PlaceState
	Place int64  // id of the place that the state is about, 0 for none
	Rival string // in a conflict of two networks, the network that has the name
}

// Retold gives the usages of a state of which the database tells something else than is
// true now. Each has in Told what is true.
func Retold(state State, addresses Addresses) (all []Usage) {
	for _, n := range state.Names {
		all = append(all, n.retold(desired(state, n, addresses), state.Configured)...)
	}
	return all
}

// retold is Retold for one name. The records are those that are desired there.
// Without a configuration nothing is published anew.
func (n Name) retold(records []Record, configured bool) (all []Usage) {
	for _, u := range n.Usages {
		stored := u.Told
		if u.Told = n.told(u.Network, u.Releasing, records); !configured && u.Told.State == Pending {
			u.Told = Told{State: None}
		}
		if u.Told != stored {
			all = append(all, u)
		}
	}
	return all
}

// OwnState gives the state of the configuration's own record, at the one name of a state.
func OwnState(state State, addresses Addresses) PlaceState {
	return state.Names[0].told("", false, Desired(state, addresses)).State
}

// told works out what is told of a network's usage. It is about the place where the value
// is wanted; of several the first where it does not stand. A released usage waits for
// what is withdrawn.
func (n Name) told(network string, releasing bool, records []Record) Told {
	t, found := Told{State: None}, false
	for _, r := range records {
		switch {
		case r.Network != network, !r.refusal() && r.withdrawal() && !(releasing && r.Waited):
			continue
		case r.Fault.Code == CodeNetworkConflict && r.refusal():
			t.State, t.Rival = Conflict, wantedAt(n).network
		case !r.refusal():
			state := r.Now().State
			if found && (t.State != Published || state == Published) {
				continue
			}
			t.State, t.Place, found = state, r.Place.ID, true
		}
	}
	if releasing {
		t.State, t.Rival = Withdrawing, ""
	}
	return t
}
