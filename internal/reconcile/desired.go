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

// Target is a name with its wanted records and the withdrawals there.
type Target struct {
	Name     Name
	Records  []Record
	Refusals []Refusal
	Follow   bool // a value has to be withdrawn once the wanted one stands
}

// Record is one name at one account: a value to publish, or a place to withdraw.
type Record struct {
	Name, Network string // Network is "" for the configuration's own record
	Account       Account
	Domain        string  // of the service, or the zone of the place
	Want          string  // the wanted value; "" to withdraw
	Place         Place   // of the wanted value, or to withdraw; its ID is 0 if it is not stored
	Others        []Place // unwanted places of the account: the wanted value may return to one of them
	Waited        bool    // a released usage waits for the withdrawal at the place
	Fault         Fault   // known without a call to the provider
	Warning       Fault   // of a value that is published nevertheless
	Withdrawal    Withdrawal

	goal goal // its want, standing and doubt are not set yet
}

// Withdrawal has the data of a record that withdraws.
type Withdrawal struct {
	Beside []Place // the places of the wanted value
	Wanted string  // the wanted value, "" for none
	Heir   Account // of the place's account; its ID is 0 if there is none
	Keep   bool    // the value stays until the wanted one stands
}

// Refusal is a network that does not get a name or has no account to publish at; Network is
// "" for the configuration.
type Refusal struct {
	Name, Network string
	Fault         Fault
}

// wish returns the wish for the record's place.
func (r Record) wish() Wish { return Wish{Value: r.Want, Waited: r.Waited, Keep: r.Withdrawal.Keep} }

// wanted returns the event of reading the wish again.
func (r Record) wanted() Event {
	if r.withdraws() {
		return Event{Kind: Unwanted}
	}
	return Event{Kind: Wanted}
}

// Now returns the place as the current wish makes it, in any stored state.
func (r Record) Now() Place {
	p, _ := r.Place.After(r.wanted(), r.wish(), r.goal.mode, time.Time{})
	return p
}

// lane returns the lane of the zone that the record belongs to.
func (r Record) lane() Lane { return ZoneLane(r.Account.ID, r.Domain) }

// withdraws reports whether the record has no wanted value: its place is withdrawn, or only
// looked at.
func (r Record) withdraws() bool { return r.Want == "" }

// Desired works out the targets of the names of a state, in their order. It is a pure function.
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
		if state.UpsertOnly && !mesh.IsProbe(t.Records[i].Place.Doubt.Value) { // probes are withdrawn in every mode
			g.mode = UpsertOnly
		}
	}
	return t
}

// before returns the withdrawals that are made while the wanted value does not stand yet. A
// value of the same network at another account stays until it does. A value at a wanted
// account is left out, because the wanted value replaces it.
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

// stands reports whether the wanted value is known to stand.
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

// waited reports whether a released usage waits for the withdrawal at a place.
func waited(n Name, p Place) bool {
	return slices.ContainsFunc(n.Usages, func(u Usage) bool { return u.Releasing && p.holds(u.Network) })
}

const builtinProvider = "builtin"

// wanted is the value that is wanted at a name, with the accounts to publish it at.
type wanted struct {
	network   string
	domain    string
	accounts  []Account
	endpoints []string
	leased    []mesh.Endpoint
	dead      []string
	own       bool
	nowhere   bool // the name is reserved, and there is no account to publish at
}

// wantedAt decides which network has the name: the one that reserved it first. The newest
// of its usages gives the endpoints, which are published at each account of its usages. The
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
		w.domain, w.endpoints, w.leased, w.dead = u.Domain, u.Endpoints, u.Leased, u.Dead
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
	own, leased := w.living(addresses)
	value, _ := mesh.Fit(w.network, owner, own, leased)
	_, unknown := mesh.Expand(w.endpoints, addresses.Now)
	r := Record{
		Name: n.Name, Network: w.network, Account: account, Domain: w.domain,
		Want:  value,
		Place: Place{Name: n.Name, Account: account, State: Pending},
	}
	if err := mesh.Check(w.network, owner, w.endpoints); err != nil {
		r.Fault = Fault{Code: CodeInvalid, Detail: msg.TextOf(err)}
	}
	if reason := dnsname.Fault(n.Name); reason != "" {
		r.Fault = Fault{Code: CodeInvalidName, Detail: reason}
	}
	switch {
	case addresses.Hidden && account.Provider == builtinProvider: // resolvers cannot reach the zone's server
		r.Warning = Fault{Code: CodeZoneUnreachable, Detail: msg.Say("ns." + r.Domain)}
	case len(unknown) > 0:
		r.Warning = Fault{Code: CodeAddressUnknown, Detail: msg.Say(strings.Join(unknown, " "))}
	}
	r.choosePlace(n.Places)
	r.Waited = waited(n, r.Place)
	return r
}

// living returns the endpoints with their addresses, without the dead ones. If all are dead, it
// returns all, because an empty value helps no client.
func (w wanted) living(addresses Addresses) (own []string, leased []mesh.Endpoint) {
	own, _ = mesh.Expand(w.endpoints, addresses.Last)
	dead := func(text string) bool { return slices.Contains(w.dead, text) }
	alive := slices.DeleteFunc(slices.Clone(own), dead)
	for _, e := range w.leased {
		if !dead(e.Text) {
			leased = append(leased, e)
		}
	}
	if len(alive)+len(leased) == 0 {
		return own, w.leased
	}
	return alive, leased
}

// choosePlace picks the account's place for the wanted value: the only one that is not
// unwanted, else one whose zone was never found. Without either the zone decides later.
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

// refused returns the networks that do not get the name, the configuration's record if it
// does not, and the network that has the name and no account to publish at.
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

// outcome returns the outcome of a refusal for a report.
func (r Refusal) outcome() Outcome {
	o := Outcome{Name: r.Name, Network: r.Network, Fault: r.Fault, Action: ActionSkipped}
	if r.Fault.Code == CodeNetworkConflict {
		o.Action = ActionConflict
	}
	return o
}
