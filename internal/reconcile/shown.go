package reconcile

// None is the state of a usage that has no account to publish at.
const None PlaceState = "none"

// UsageStates are all states of a usage.
var UsageStates = []PlaceState{None, Pending, Published, Failed, Conflict, Withdrawing}

// StateChoices returns the states of a usage, for a refusal of another one.
func StateChoices() string {
	text := ""
	for i, state := range UsageStates {
		if i > 0 {
			text += " | "
		}
		text += string(state)
	}
	return text
}

// Shown is the state of a usage that answers show. The database stores it, so a list, a count and an
// answer about one usage agree.
type Shown struct {
	State PlaceState
	Place int64  // id of the place that the state is about, 0 for none
	Rival string // of a usage that waits for the name: what has it, as in owners.holder
}

// ShownChange is a usage with its current Shown, and the outdated Shown that is stored.
type ShownChange struct {
	Now    Usage
	Before Shown
}

// Outdated returns the usages of a state whose stored Shown is outdated. The record with our mark is enough
// of a name, unless a usage is being released.
func Outdated(state State, addresses Addresses) (all []ShownChange) {
	for _, t := range Desired(state, addresses) {
		all = append(all, t.outdated(state.Configured)...)
	}
	return all
}

// outdated is Outdated for one name. Without a configuration nothing is published anew.
func (t Target) outdated(configured bool) (all []ShownChange) {
	o := t.Name.owners()
	for i, u := range t.Name.Usages {
		stored := u.Shown
		u.Shown = t.shown(u.Network, u.Releasing)
		switch {
		case !u.Releasing && !o.has(i):
			u.Shown = Shown{State: Conflict, Place: u.Shown.Place, Rival: o.holder()}
		case !configured && u.Shown.State == Pending:
			u.Shown = Shown{State: None}
		}
		if u.Shown != stored {
			all = append(all, ShownChange{Now: u, Before: stored})
		}
	}
	return all
}

// OwnState returns the state of the configuration's own record. The state has its name only.
func OwnState(state State, addresses Addresses) PlaceState {
	return Desired(state, addresses)[0].shown("", false).State
}

// shown works out the Shown of a network's usage. It is about the place of the wanted value;
// of several places about the first where the value does not stand. Records in other formats
// have no part in it. For a released usage it is about a withdrawal that the usage waits for.
func (t Target) shown(network string, releasing bool) Shown {
	shown, found := Shown{State: None}, false
	for _, r := range t.Records {
		if r.Network != network || r.goal.sibling && !releasing || r.withdraws() && !(releasing && r.Waited) {
			continue
		}
		state := r.Now().State
		if found && (shown.State != Published || state == Published) {
			continue
		}
		shown.State, shown.Place, found = state, r.Place.ID, true
	}
	for _, r := range t.Refusals {
		if network == "" && r.Network == "" {
			shown.State = Conflict
		}
	}
	if releasing {
		shown.State = Withdrawing
	}
	return shown
}
