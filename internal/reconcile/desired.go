package reconcile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Target is a name with all that is wanted there.
type Target struct {
	Name     Name
	Records  []Record
	Refusals []Refusal
	Follow   bool // something is to be withdrawn when the value stands
}

// Record is one name at one account: a value to publish, or a place to withdraw.
type Record struct {
	Name, Network string // Network is "" for the configuration's record
	Account       Account
	Domain        string  // of the service, or the zone of the place
	Want          string  // the value; "" to withdraw
	Place         Place   // of the wanted value, or to withdraw; its ID is 0 when there is none
	Others        []Place // of the account, being withdrawn: the wanted value may come back to one of them
	Waited        bool    // a released usage waits for what stands at the place to go
	Fault         Fault   // known before the provider is asked
	Warning       Fault   // of a value that is published all the same
	Withdrawal    Withdrawal

	goal goal // without what the place says
}

// Withdrawal is what is known of a place to withdraw.
type Withdrawal struct {
	Beside []Place // the places of the wanted value
	Wanted string  // that value, "" for none
	Heir   Account // the account that has another secret for the same key id, if there is one
	Keep   bool    // the value stays until the wanted one stands, should its zone not go
}

// Refusal is a network that does not get a name, or has nowhere to publish; "" for the configuration.
type Refusal struct {
	Name, Network string
	Fault         Fault
}

// wish is what the record wants of its place.
func (r Record) wish() Wish { return Wish{Value: r.Want, Waited: r.Waited, Keep: r.Withdrawal.Keep} }

// wanted is the event of reading the wish again.
func (r Record) wanted() Event {
	if r.withdraws() {
		return Event{Kind: Unwanted}
	}
	return Event{Kind: Wanted}
}

// Now gives the place as what is wanted now makes it, whatever was stored before.
func (r Record) Now() Place {
	p, _ := r.Place.After(r.wanted(), r.wish(), r.goal.mode, time.Time{})
	return p
}

// lane is the zone that the record waits for, as far as it is known.
func (r Record) lane() Lane { return ZoneLane(r.Account.ID, r.Domain) }

// withdraws reports whether the record is a place to withdraw, or only to look at.
func (r Record) withdraws() bool { return r.Want == "" }

// Desired works out what is wanted at the names of a state, in their order: a pure function.
func Desired(state State, addresses Addresses) (all []Target) {
	for _, n := range state.Names {
		all = append(all, desired(state, n, addresses))
	}
	return all
}

func desired(state State, n Name, addresses Addresses) Target {
	w := wantedAt(n)
	t := Target{Name: n, Refusals: w.refused(n)}
	for _, account := range w.accounts {
		t.Records = append(t.Records, w.record(state.Owner, n, account, addresses))
	}
	var old []Record
	for _, p := range n.Places {
		if !slices.ContainsFunc(t.Records, func(r Record) bool { return r.Place.ID == p.ID }) {
			old = append(old, withdrawal(n, p, t.Records, state.Heirs[p.Account.ID]))
		}
	}
	if slices.ContainsFunc(t.Records, func(r Record) bool { return !r.stands() }) {
		t.Follow = len(old) > 0
		old = w.before(old)
	}
	t.Records = append(t.Records, old...)
	for i := range t.Records {
		g := &t.Records[i].goal
		g.owner, g.adopted = state.Owner, state.Adopted
		if state.UpsertOnly && !mesh.IsProbe(t.Records[i].Place.Doubt.Value) { // whose end no mode forbids
			g.mode = UpsertOnly
		}
	}
	return t
}

// before are the withdrawals at a name whose wanted value is not in place yet. What
// stands elsewhere for the same network stays until it is; what the account itself
// has is for the wanted value to replace.
func (w wanted) before(old []Record) (all []Record) {
	for _, r := range old {
		if slices.ContainsFunc(w.accounts, func(a Account) bool { return a.ID == r.Account.ID }) {
			continue
		}
		r.Withdrawal.Keep = r.Place.holds(w.network)
		r.goal.spared = &w.network
		all = append(all, r)
	}
	return all
}

// stands reports whether the wanted value is known to be in place.
func (r Record) stands() bool { return r.Place.State == Published && r.Place.Standing == r.Want }

func withdrawal(n Name, p Place, wanted []Record, heir Account) Record {
	r := Record{
		Name: n.Name, Network: mesh.Network(cmp.Or(p.Standing, p.Doubt.Value)),
		Account: p.Account, Domain: p.Zone, Place: p, Waited: waited(n, p), Withdrawal: Withdrawal{Heir: heir},
	}
	if r.Domain == "" {
		r.Domain = dnsname.Parent(dnsname.Parent(n.Name))
	}
	for _, w := range wanted {
		r.Withdrawal.Beside, r.Withdrawal.Wanted = append(r.Withdrawal.Beside, w.Place), w.Want
	}
	if p.Account.Secret == "" && p.Account.Provider != builtinProvider {
		r.Fault = Fault{Code: CodeCredentialsGone, Detail: msg.Say(p.Account.Provider)}
	}
	return r
}

// waited reports whether a released usage waits for what stands at a place to go.
func waited(n Name, p Place) bool {
	return slices.ContainsFunc(n.Usages, func(u Usage) bool { return u.Releasing && p.holds(u.Network) })
}

const builtinProvider = "builtin"

// wanted is what is wanted at a name.
type wanted struct {
	network   string
	domain    string
	accounts  []Account
	endpoints []string
	own       bool
	nowhere   bool // reserved, and there is nowhere to publish it
}

// wantedAt decides whose the name is: the network's that reserved it first. The
// newest of its usages says what is published, at each of their accounts. The
// configuration's own record never takes a usage's name.
func wantedAt(n Name) (w wanted) {
	for _, u := range n.Usages {
		if u.Releasing || w.network != "" && u.Network != w.network {
			continue
		}
		w.network, w.nowhere = u.Network, true
		if u.Account == nil {
			continue
		}
		w.domain, w.endpoints = u.Domain, u.Endpoints
		if !slices.ContainsFunc(w.accounts, func(a Account) bool { return a.ID == u.Account.ID }) {
			w.accounts = append(w.accounts, *u.Account)
		}
	}
	w.nowhere = w.nowhere && len(w.accounts) == 0
	if w.network == "" && n.Own != nil {
		w = wanted{own: true, domain: n.Own.Domain, accounts: []Account{n.Own.Account}, endpoints: n.Own.Endpoints}
	}
	return w
}

func (w wanted) record(owner string, n Name, account Account, addresses Addresses) Record {
	expanded, _ := mesh.Expand(w.endpoints, addresses.Last)
	_, unknown := mesh.Expand(w.endpoints, addresses.Now)
	r := Record{
		Name: n.Name, Network: w.network, Account: account, Domain: w.domain,
		Want:  mesh.Value(w.network, owner, expanded),
		Place: Place{Name: n.Name, Account: account, State: Pending},
	}
	if err := mesh.Check(w.network, owner, w.endpoints); err != nil {
		r.Fault = Fault{Code: CodeInvalid, Detail: msg.TextOf(err)}
	}
	if reason := dnsname.Fault(n.Name); reason != "" {
		r.Fault = Fault{Code: CodeInvalidName, Detail: reason}
	}
	switch {
	case addresses.Hidden && account.Provider == builtinProvider: // the world does not find the server of the zone
		r.Warning = Fault{Code: CodeZoneUnreachable, Detail: msg.Say("ns." + r.Domain)}
	case len(unknown) > 0:
		r.Warning = Fault{Code: CodeAddressUnknown, Detail: msg.Say(strings.Join(unknown, " "))}
	}
	r.choosePlace(n.Places)
	r.Waited = waited(n, r.Place)
	return r
}

// choosePlace takes the place at which the account has the value: there is at
// most one that is not being withdrawn. Without one the zone decides later, and a
// place whose zone was never found is taken back.
func (r *Record) choosePlace(places []Place) {
	for _, p := range places {
		switch {
		case p.Account.ID != r.Account.ID:
		case !p.unwanted(), p.Zone == "" && r.Place.ID == 0:
			r.Place = p
		default:
			r.Others = append(r.Others, p)
		}
	}
}

// refused are the usages, and the configuration's record, that do not get the
// name, and those that have nowhere to go.
func (w wanted) refused(n Name) (all []Refusal) {
	refuse := func(network, code string, detail msg.Text) {
		all = append(all, Refusal{Name: n.Name, Network: network, Fault: Fault{Code: code, Detail: detail}})
	}
	if w.nowhere {
		refuse(w.network, CodeNoProvider, "")
	}
	told := map[string]bool{w.network: true}
	for _, u := range n.Usages {
		if !u.Releasing && !told[u.Network] {
			told[u.Network] = true
			refuse(u.Network, CodeNetworkConflict, msg.Say(w.network))
		}
	}
	if n.Own != nil && !w.own {
		refuse("", CodeNetworkConflict, msg.Say(w.network))
	}
	return all
}

// outcome is that of a refusal in a report.
func (r Refusal) outcome() Outcome {
	o := Outcome{Name: r.Name, Network: r.Network, Fault: r.Fault, Action: ActionSkipped}
	if r.Fault.Code == CodeNetworkConflict {
		o.Action = ActionConflict
	}
	return o
}
