package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Record is one name at one account, and what is wanted there.
type Record struct {
	Name, Network string // Network is "" for the configuration's record
	Version, Pass int64  // of the name
	Account       Account
	Domain        string   // of the service, or the zone of the place
	Want          string   // the value; "" to withdraw
	Missing       []string // endpoints whose address is not known now
	Place         Place    // of the wanted value, or to withdraw; its ID is 0 when there is none
	Others        []Place  // of the account, being withdrawn: the value may come back to one of them
	Beside        []Place  // of a withdrawal: the places of the wanted value
	Wanted        string   // of a withdrawal: that value, "" for none
	Heir          Account  // of a withdrawal: the account that has another secret for the same key id, if there is one
	Waited        bool     // a released usage waits for what stands at the place to go
	Follow        bool     // something is to be withdrawn when the value stands
	Keep          bool     // of a withdrawal: the value stays until then, should its zone not go
	Fault         Fault    // known before the provider is asked

	hidden  bool // the world does not find the server of the zone
	owner   string
	adopted []string
	mode    Mode
	spares  bool   // a withdrawal leaves the values of the wanted network alone
	spared  string // that network
}

// wish is what the record wants of its place.
func (r Record) wish() Wish { return Wish{Value: r.Want, Waited: r.Waited, Keep: r.Keep} }

// wanted is the event of reading the wish again.
func (r Record) wanted() Event {
	if r.withdrawal() {
		return Event{Kind: Unwanted}
	}
	return Event{Kind: Wanted}
}

// Now gives the place as what is wanted now makes it, whatever was stored before.
func (r Record) Now() Place {
	p, _ := r.Place.After(r.wanted(), r.wish(), r.mode, time.Time{})
	return p
}

// lane is the zone that the record waits for, as far as it is known.
func (r Record) lane() string { return zoneLane(r.Account.ID, r.Domain) }

// zoneLane is the lane of the zone of a domain at an account.
func zoneLane(account int64, domain string) string {
	return fmt.Sprint(laneZone, " ", account, " ", domain)
}

// withdrawal reports whether the record is a place to withdraw, or only to look
// at.
func (r Record) withdrawal() bool { return r.Want == "" }

// Desired works out what is wanted at the names of a state: a pure function. A
// name whose records are all as they should be for now gives none.
func Desired(state State, addresses Addresses) []Record {
	var all []Record
	for _, n := range state.Names {
		all = append(all, desired(state, n, addresses)...)
	}
	return all
}

func desired(state State, n Name, addresses Addresses) []Record {
	w := wantedAt(n)
	var all []Record
	for _, account := range w.accounts {
		all = append(all, w.record(state.Owner, n, account, addresses))
	}
	var old []Record
	for _, p := range n.Places {
		if !slices.ContainsFunc(all, func(r Record) bool { return r.Place.ID == p.ID }) {
			r := withdrawal(n, p, all)
			r.Heir = state.Heirs[p.Account.ID]
			old = append(old, r)
		}
	}
	if slices.ContainsFunc(all, func(r Record) bool { return !r.Stands() }) {
		for i := range all {
			all[i].Follow = len(old) > 0
		}
		old = w.before(old)
	}
	all = append(all, old...)
	for i := range all {
		all[i].owner, all[i].adopted = state.Owner, state.Adopted
		if state.UpsertOnly && !mesh.IsProbe(all[i].Place.Doubt.Value) { // whose end no mode forbids
			all[i].mode = UpsertOnly
		}
	}
	return append(all, w.refused(n)...)
}

// before are the withdrawals at a name whose wanted value is not in place yet. What
// stands elsewhere for the same network stays until it is; what the account itself
// has is for the wanted value to replace.
func (w wanted) before(old []Record) (all []Record) {
	for _, r := range old {
		if slices.ContainsFunc(w.accounts, func(a Account) bool { return a.ID == r.Account.ID }) {
			continue
		}
		r.Keep = r.Place.holds(w.network)
		r.spares, r.spared = true, w.network
		all = append(all, r)
	}
	return all
}

// Stands reports whether the wanted value is known to be in place.
func (r Record) Stands() bool { return r.Place.State == Published && r.Place.Standing == r.Want }

func withdrawal(n Name, p Place, wanted []Record) Record {
	r := Record{
		Name: n.Name, Network: mesh.Network(cmp.Or(p.Standing, p.Doubt.Value)), Version: n.Version, Pass: n.Pass,
		Account: p.Account, Domain: p.Zone, Place: p,
	}
	if r.Domain == "" {
		r.Domain = dnsname.Parent(dnsname.Parent(n.Name))
	}
	for _, w := range wanted {
		r.Beside, r.Wanted = append(r.Beside, w.Place), w.Want
	}
	r.Waited = waited(n, p)
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
		Name: n.Name, Network: w.network, Version: n.Version, Pass: n.Pass, Account: account, Domain: w.domain,
		Want: mesh.Value(w.network, owner, expanded), Missing: unknown,
		Place: Place{Name: n.Name, Account: account, State: Pending},
	}
	if err := mesh.Check(w.network, owner, w.endpoints); err != nil {
		r.Fault = Fault{Code: CodeInvalid, Detail: msg.TextOf(err)}
	}
	if reason := dnsname.Fault(n.Name); reason != "" {
		r.Fault = Fault{Code: CodeInvalidName, Detail: reason}
	}
	r.hidden = addresses.Hidden && account.Provider == builtinProvider
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
func (w wanted) refused(n Name) (all []Record) {
	refuse := func(network, code string, detail msg.Text) {
		all = append(all, Record{Name: n.Name, Network: network, Version: n.Version, Pass: n.Pass, Fault: Fault{Code: code, Detail: detail}})
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

// refusal reports whether the record is no work but only news.
func (r Record) refusal() bool { return r.Account.ID == 0 }

// warning says that nobody can read the value, or else which endpoints' addresses
// are not known now.
func (r Record) warning() Fault {
	switch {
	case r.hidden:
		return Fault{Code: CodeZoneUnreachable, Detail: msg.Say("ns." + r.Domain)}
	case len(r.Missing) > 0:
		return Fault{Code: CodeAddressUnknown, Detail: msg.Say(strings.Join(r.Missing, " "))}
	}
	return Fault{}
}
