package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Target is a name with its wanted records and the withdrawals there.
type Target struct {
	Name     Name
	Records  []Record
	Refusals []Refusal
	Follow   []Sibling // records of which a value has to be withdrawn once the wanted one stands
}

// Record is one record of a name at one account: a value to publish, or a place to withdraw.
type Record struct {
	Name, Network string  // Network is "" for the configuration's own record
	Sibling       Sibling // the zero Sibling: the TXT record with our mark
	Account       Account
	Domain        string  // of the service, or the zone of the place
	Want          string  // the wanted value; "" to withdraw
	Place         Place   // of the wanted value, or to withdraw; its ID is 0 if it is not stored
	Places        []Place // all that the RRset has, at any account
	Elsewhere     bool    // the value is wanted at other accounts too, whose keys may reach the same zone
	Waited        bool    // a released usage waits for the withdrawal at the place
	Fault         Fault   // known without a call to the provider
	Warning       Fault   // of a value that is published nevertheless
	Withdrawal    Withdrawal

	goal goal  // its want, standing and doubt are not set yet
	made *made // the records of its name in other formats; nil: there are none
}

// Withdrawal has the data of a record that withdraws.
type Withdrawal struct {
	Beside []Place // the places of the wanted value
	Wanted string  // the wanted value with our mark, "" for none
	Heir   Account // of the place's account; its ID is 0 if there is none
	Keep   bool    // the value stays until the wanted one stands
}

// Refusal is a network that does not get a name or has no account to publish at; Network is
// "" for the configuration.
type Refusal struct {
	Name, Network string
	Sibling       Sibling // the record that is refused; the zero Sibling: all
	Denied        bool    // see Outcome
	Fault         Fault
}

// wantsBeside reports whether a value may be that of the wanted record, seen with another key. A
// sibling record has only the values that its place knows.
func (r Record) wantsBeside(v provider.Value) bool {
	if r.Sibling.marked() {
		return v.Text() == r.Withdrawal.Wanted
	}
	return slices.ContainsFunc(r.Withdrawal.Beside, func(p Place) bool { return p.knows(v.Text()) })
}

// ownerName returns the owner name of the record in DNS.
func (r Record) ownerName() string {
	name, _ := r.owner()
	return name
}

// owner returns the owner name and the type of the record in DNS.
func (r Record) owner() (name string, t provider.Type) {
	if r.Sibling == (Sibling{}) {
		return r.Name, provider.TXT
	}
	return r.Sibling.Owner, r.Sibling.Type
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
	values, made := w.values(n, state.Owner, addresses)
	t := Target{Name: n, Refusals: append(w.refused(n), made.refused(w)...)}
	var released []string
	for _, u := range n.Usages {
		if u.Releasing && u.Network != w.network {
			released = append(released, u.Network)
		}
	}
	places := map[Sibling][]Place{}
	for _, p := range n.Places {
		places[p.Sibling] = append(places[p.Sibling], p)
	}
	for _, s := range siblings(values, places) {
		t.add(w, s, values[s], places[s], state.Heirs)
	}
	for i := range t.Records {
		g := &t.Records[i].goal
		g.owner, g.adopted, g.released = state.Owner, state.Adopted, released
		t.Records[i].made = made
		if state.UpsertOnly && !g.open && !mesh.IsProbe(t.Records[i].Place.Doubt.Value) { // probes and challenges are withdrawn in every mode
			g.mode = UpsertOnly
		}
	}
	return t
}

// siblings returns the records of a name: those that are wanted and those that have places. The
// TXT record with our mark comes first.
func siblings(wanted map[Sibling]valueAt, places map[Sibling][]Place) []Sibling {
	all := slices.AppendSeq(slices.Collect(maps.Keys(wanted)), maps.Keys(places))
	slices.SortFunc(all, func(a, b Sibling) int { return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Type, b.Type)) })
	return slices.Compact(all)
}

// add adds one record of the name: at each account its value, and the withdrawals at its other
// places. places are all that the record has.
func (t *Target) add(w wanted, s Sibling, value valueAt, places []Place, heirs map[int64]Account) {
	var records, old []Record
	if value.text != "" || value.fault.Code != "" {
		for _, account := range w.accounts {
			records = append(records, w.record(t.Name, s, value, account, places))
		}
	}
	for _, p := range places {
		if !slices.ContainsFunc(records, func(r Record) bool { return r.Place.ID == p.ID }) {
			old = append(old, withdrawal(t.Name, p, records, heirs[p.Account.ID]))
		}
	}
	if slices.ContainsFunc(records, func(r Record) bool { return !r.stands() }) {
		if len(old) > 0 {
			t.Follow = append(t.Follow, s)
		}
		old = w.before(old)
	}
	for _, r := range slices.Concat(records, old) {
		r.goal.sibling, r.goal.open = !s.marked(), s == challengeOf(r.Name)
		r.Places, r.Elsewhere = places, len(records) > 1
		t.Records = append(t.Records, r)
	}
}

// before returns the withdrawals that are made while the wanted value does not stand yet. A
// value of the same network at another account stays until it does. A value at a wanted
// account is left out, because the wanted value replaces it.
func (w wanted) before(old []Record) (all []Record) {
	for _, r := range old {
		if slices.ContainsFunc(w.accounts, func(a Account) bool { return a.ID == r.Account.ID }) {
			continue
		}
		r.Withdrawal.Keep = r.Place.mayHave(w.network)
		r.goal.spared = &w.network
		all = append(all, r)
	}
	return all
}

// stands reports whether the wanted value is known to stand.
func (r Record) stands() bool { return r.Place.State == Published && r.Place.Standing == r.Want }

func withdrawal(n Name, p Place, wanted []Record, heir Account) Record {
	r := Record{
		Name: n.Name, Sibling: p.Sibling, Network: mesh.Network(cmp.Or(p.Standing, p.Doubt.Value)),
		Account: p.Account, Domain: p.Zone, Place: p, Waited: waited(n, p), Withdrawal: Withdrawal{Heir: heir},
	}
	if r.Domain == "" {
		r.Domain = dns.Parent(dns.Parent(n.Name))
	}
	for _, w := range wanted {
		r.Withdrawal.Beside, r.Withdrawal.Wanted = append(r.Withdrawal.Beside, w.Place), w.Want
	}
	if p.Account.Secret == "" && !p.Account.Builtin() {
		r.Fault = Fault{Code: CodeCredentialsGone, Detail: msg.Say(p.Account.Provider)}
	}
	return r
}

// waited reports whether a released usage waits for the withdrawal at a place.
func waited(n Name, p Place) bool {
	return slices.ContainsFunc(n.Usages, func(u Usage) bool { return u.Releasing && p.holds(u.Network) })
}

// wanted is the value that is wanted at a name, with the accounts to publish it at.
type wanted struct {
	name      string
	ownName   string // the name of the configuration's record, "" for none
	usage     string // id of the one that gives the endpoints
	network   string
	domain    string
	accounts  []Account
	endpoints []string
	leased    []mesh.Endpoint
	dead      []string
	formats   []string
	peerID    string
	acme      []string                 // challenges
	title     func(Sibling) mesh.Title // of the usage that gives the endpoints
	own       bool
	nowhere   bool // the name is reserved, and there is no account to publish at
}

// wantedAt asks mesh.Ground which usages have the name. The newest of them gives the endpoints, which are published at each
// account of them. The configuration's own record never takes a usage's name, nor that of its record in another format.
func wantedAt(n Name) (w wanted) {
	o := n.owners()
	w.name, w.ownName, w.title = n.Name, n.Ground.Own, func(Sibling) mesh.Title { return mesh.Owned }
	for i, u := range n.Usages {
		if !o.has(i) {
			continue
		}
		w.network, w.nowhere = u.Network, true
		if u.Account == nil {
			continue
		}
		if o.title(i, challengeOf(n.Name)).Publishes() {
			w.acme = append(w.acme, u.Challenges...)
		}
		w.title = func(s Sibling) mesh.Title { return o.title(i, s) }
		w.usage, w.domain, w.endpoints, w.leased, w.dead, w.formats, w.peerID = u.ID, u.Domain, u.Endpoints, u.Leased, u.Dead, u.Formats, u.PeerID
		if !slices.ContainsFunc(w.accounts, func(a Account) bool { return a.ID == u.Account.ID }) {
			w.accounts = append(w.accounts, *u.Account)
		}
	}
	w.nowhere = w.nowhere && len(w.accounts) == 0
	if w.network == "" && n.Own != nil && n.Own.Rival == "" {
		w = wanted{own: true, title: w.title, domain: n.Own.Domain, accounts: []Account{n.Own.Account}, endpoints: n.Own.Endpoints}
	}
	return w
}

// valueAt is the wanted value of one record of a name.
type valueAt struct {
	text    string
	fault   Fault
	unknown []string // endpoints whose address is not known now
	hidden  bool     // resolvers cannot reach the built-in server
}

// values returns the wanted values of the records of a name, none if no value is wanted, and what those
// in other formats are made of.
func (w wanted) values(n Name, owner string, addresses Addresses) (map[Sibling]valueAt, *made) {
	if len(w.accounts) == 0 {
		return nil, nil
	}
	own, leased := w.living(addresses)
	value := valueAt{hidden: addresses.Hidden}
	value.text, _ = w.marked(owner, own, leased)
	_, value.unknown = mesh.Expand(w.endpoints, addresses.Now)
	err := mesh.CheckOthers(w.endpoints)
	if w.has(mesh.Mesh1) {
		err = mesh.Check(w.network, owner, w.endpoints)
	}
	if err != nil {
		value.fault = Fault{Code: CodeInvalid, Detail: msg.TextOf(err)}
	}
	all := map[Sibling]valueAt{{}: value}
	if s := challengeOf(n.Name); len(w.acme) > 0 && n.has(s) {
		all[s] = valueAt{text: siblingText(w.network, w.acme)}
	}
	if len(w.formats) == 0 || slices.Equal(n.Owners, []string{""}) {
		return all, nil
	}
	m := w.inFormats(n, slices.Concat(own, leased))
	for s, text := range m.texts {
		if n.has(s) && w.title(s).Publishes() {
			all[s] = valueAt{text: text}
		}
	}
	return all, m
}

// made is the records of a name in other formats, and what they are made of. A name with many leases has
// thousands, so a transaction works them out only if they have changed since.
type made struct {
	network   string
	formats   []string
	endpoints []mesh.Endpoint
	texts     map[Sibling]string
}

// inFormats returns the records of a name in other formats.
func (w wanted) inFormats(n Name, endpoints []mesh.Endpoint) *made {
	if m := n.made; m != nil && m.network == w.network && slices.Equal(m.formats, w.formats) && slices.Equal(m.endpoints, endpoints) {
		return m
	}
	m := &made{w.network, w.formats, endpoints, map[Sibling]string{}}
	for _, set := range mesh.FormatSets(w.formats, below(n.Name), endpoints) {
		if len(set.Values) > 0 {
			m.texts[siblingOf(set)] = siblingText(w.network, set.Values)
		}
	}
	return m
}

// refused returns the records that the rule about owners refuses to a usage. m may be nil.
func (m *made) refused(w wanted) (all []Refusal) {
	if m == nil {
		return nil
	}
	for s := range m.texts {
		if fault := w.denial(s); fault.Code != "" {
			all = append(all, Refusal{Name: w.name, Network: w.network, Sibling: s, Denied: true, Fault: fault})
		}
	}
	slices.SortFunc(all, func(a, b Refusal) int { return strings.Compare(a.Sibling.Of(""), b.Sibling.Of("")) })
	return all
}

// denial returns the fault of a record that the rule about owners refuses, none of another one.
func (w wanted) denial(s Sibling) Fault {
	switch w.title(s) {
	case mesh.Barred:
		return barred
	case mesh.Contested:
		return Fault{Code: CodeNetworkConflict, Detail: msg.Say(mesh.UsedByConfiguration)}
	}
	return Fault{}
}

// barred is the fault of a record at an owner name that is not the usage's.
var barred = Fault{Code: string(provider.NameNotAllowed), Detail: msg.Say("the name is the program's, or belongs to a longer domain")}

// marked returns the value with our mark, and the endpoints that it leaves out. It has
// no endpoints if the formats of the usage do not name it: then it only marks the name as ours.
func (w wanted) marked(owner string, own, leased []mesh.Endpoint) (value string, leftOut []mesh.Endpoint) {
	if !w.has(mesh.Mesh1) {
		return mesh.Value(w.network, owner, nil), nil
	}
	return mesh.Fit(w.network, owner, own, leased)
}

// has reports whether the usage has a format.
func (w wanted) has(name string) bool {
	return slices.Contains(w.formats, name) || len(w.formats) == 0 && name == mesh.Mesh1
}

// below returns the name below which the records in other formats are.
func below(name string) string { return strings.TrimPrefix(name, mesh.Label+".") }

func siblingOf(set mesh.FormatSet) Sibling {
	return Sibling{Owner: set.Name, Type: provider.Type(set.Type)}
}

// record returns the record of a wanted value at an account. places are all that the record has.
func (w wanted) record(n Name, s Sibling, value valueAt, account Account, places []Place) Record {
	r := Record{
		Name: n.Name, Sibling: s, Network: w.network, Account: account, Domain: w.domain, Want: value.text, Fault: value.fault,
		Place: Place{Name: n.Name, Sibling: s, Account: account, State: Pending},
	}
	name, _ := r.owner()
	if reason := dns.NameFault(name); reason != "" {
		r.Fault = Fault{Code: CodeInvalidName, Detail: reason}
	}
	for _, text := range SiblingValues(value.text) {
		if reason := provider.RefusedAlways(account.Provider, s.Type, text); reason != "" {
			r.Fault = Fault{Code: string(provider.NameNotAllowed), Detail: reason}
		}
	}
	switch {
	case value.hidden && account.Builtin(): // resolvers cannot reach the zone's server
		r.Warning = Fault{Code: CodeZoneUnreachable, Detail: msg.Say("ns." + r.Domain)}
	case len(value.unknown) > 0:
		r.Warning = Fault{Code: CodeAddressUnknown, Detail: msg.Say(strings.Join(value.unknown, " "))}
	}
	r.choosePlace(places)
	r.Waited = waited(n, r.Place)
	return r
}

// living returns the endpoints with their addresses, without the dead ones. If all are dead, it
// returns all, because an empty value helps no client.
func (w wanted) living(addresses Addresses) (own, leased []mesh.Endpoint) {
	expanded, _ := mesh.Expand(w.endpoints, addresses.Last)
	for _, text := range expanded {
		own = append(own, mesh.Endpoint{Text: text, PeerID: w.peerID})
	}
	dead := func(e mesh.Endpoint) bool { return slices.Contains(w.dead, e.Text) }
	ownAlive := slices.DeleteFunc(slices.Clone(own), dead)
	leasedAlive := slices.DeleteFunc(slices.Clone(w.leased), dead)
	if len(ownAlive)+len(leasedAlive) == 0 {
		return own, w.leased
	}
	return ownAlive, leasedAlive
}

// choosePlace picks the account's place for the wanted value: one that is not unwanted, else
// one whose zone was never found, else one in the built-in zones, which are one table. Without them the zone decides later.
func (r *Record) choosePlace(places []Place) {
	for _, p := range places {
		first := r.Place.ID == 0 && (p.Zone == "" || p.Account.Builtin())
		if p.Account.ID == r.Account.ID && (!p.unwanted() || first) {
			r.Place = p
		}
	}
}

// Wants reports whether a value is wanted at the name: that of a usage that has it, or of the configuration's record.
func (n Name) Wants() bool {
	w := wantedAt(n)
	return w.network != "" || w.own
}

// refused returns the networks whose usages do not get the name, the configuration's record if it
// does not, and the network that has the name and no account to publish at.
func (w wanted) refused(n Name) (all []Refusal) {
	refuse := func(network, code, detail string, denied bool) {
		all = append(all, Refusal{Name: n.Name, Network: network, Denied: denied, Fault: Fault{Code: code, Detail: msg.Say(detail)}})
	}
	if w.nowhere {
		refuse(w.network, CodeNoProvider, "", false)
	}
	type claimant struct {
		network string
		tenant  bool
	}
	o, told := n.owners(), map[claimant]bool{}
	for i, u := range n.Usages {
		if c := (claimant{u.Network, u.Tenant}); !u.Releasing && !told[c] && !o.has(i) {
			told[c] = true
			refuse(u.Network, CodeNetworkConflict, o.holder(), u.Tenant)
		}
	}
	if rival := Rival(n); rival != "" {
		refuse("", CodeNetworkConflict, "n="+rival, false)
	}
	return all
}

// Rival returns the network that has the name of the configuration's own record, "" for none.
func Rival(n Name) string {
	if n.Own == nil {
		return ""
	}
	return cmp.Or(wantedAt(n).network, n.Own.Rival)
}

// Beside returns the names whose usages may have a record in another format at an owner name. It is
// at most two labels below their <prefix>.<domain>: _iroh.<peer_id>.
func Beside(owner string) (names []string) {
	for at, labels := owner, 0; at != "" && labels <= 2; at, labels = dns.Parent(at), labels+1 {
		if name := mesh.Label + "." + at; name != owner {
			names = append(names, name)
		}
	}
	return names
}

// BesideOwner returns the network of a usage that has a TXT record in another format at an owner
// name, "" for none. The state has the names of Beside.
func BesideOwner(state State, owner string, addresses Addresses) string {
	for _, t := range Desired(state, addresses) {
		for _, r := range t.Records {
			if r.Sibling == (Sibling{Owner: owner, Type: provider.TXT}) && !r.withdraws() {
				return r.Network
			}
		}
	}
	return ""
}

// outcome returns the outcome of a refusal for a report.
func (r Refusal) outcome() Outcome {
	o := Outcome{Name: r.Name, Sibling: r.Sibling, Network: r.Network, Denied: r.Denied, Fault: r.Fault, Action: ActionSkipped}
	if r.Fault.Code == CodeNetworkConflict {
		o.Action = ActionConflict
	}
	return o
}
