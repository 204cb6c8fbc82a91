package reconcile

// None is the state of a usage that has no account to publish at.
const None PlaceState = "none"

// UsageStates are all states of a usage.
var UsageStates = []PlaceState{None, Pending, Published, Failed, Conflict, Withdrawing}

// Told is the state of a usage that clients are told. The database stores it, so a list, a
// count and an answer about one usage agree.
type Told struct {
	State PlaceState
	Place int64  // id of the place that the state is about, 0 for none
	Rival string // in a conflict of two networks, the network that has the name
}

// Retelling is a usage with its current Told, and the outdated Told that is stored.
type Retelling struct {
	Now    Usage
	Before Told
}

// Retold returns the usages of a state whose stored Told is outdated. The record with our mark is enough
// of a name, unless a usage is being released.
func Retold(state State, addresses Addresses) (all []Retelling) {
	for _, t := range Desired(state, addresses) {
		all = append(all, t.retold(state.Configured)...)
	}
	return all
}

// retold is Retold for one name. Without a configuration nothing is published anew.
func (t Target) retold(configured bool) (all []Retelling) {
	for _, u := range t.Name.Usages {
		stored := u.Told
		if u.Told = t.told(u.Network, u.Releasing); !configured && u.Told.State == Pending {
			u.Told = Told{State: None}
		}
		if u.Told != stored {
			all = append(all, Retelling{Now: u, Before: stored})
		}
	}
	return all
}

// OwnState returns the state of the configuration's own record. The state has its name only.
func OwnState(state State, addresses Addresses) PlaceState {
	return Desired(state, addresses)[0].told("", false).State
}

// told works out the Told of a network's usage. It is about the place of the wanted value;
// of several places about the first where the value does not stand. Records in other formats
// have no part in it. For a released usage it is about a withdrawal that the usage waits for.
func (t Target) told(network string, releasing bool) Told {
	told, found := Told{State: None}, false
	for _, r := range t.Records {
		if r.Network != network || r.goal.sibling && !releasing || r.withdraws() && !(releasing && r.Waited) {
			continue
		}
		state := r.Now().State
		if found && (told.State != Published || state == Published) {
			continue
		}
		told.State, told.Place, found = state, r.Place.ID, true
	}
	for _, r := range t.Refusals {
		if r.Network == network && r.Fault.Code == CodeNetworkConflict {
			told.State, told.Rival = Conflict, wantedAt(t.Name).network
		}
	}
	if releasing {
		told.State, told.Rival = Withdrawing, ""
	}
	return told
}
