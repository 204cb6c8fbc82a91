// Package reconcile brings the values in DNS to the wanted state. It takes the names that
// are due, works out the wanted records of each (desired.go), compares them with the values
// in DNS (rrset.go), changes DNS zone by zone (zone.go), and commits the outcomes
// (verdict.go, outcome.go). The engine decides when: it takes due names (engine.go,
// take.go, lane.go, task.go), and all names in passes (pass.go).
//
// The package has no SQL, no HTTP server and no text in a language: a fault is a code with
// its details.
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
)

// Account is a key at a provider. It never changes: another secret is another account.
type Account struct {
	ID                              int64
	Provider, Endpoint, AccessKeyID string
	Secret                          secrets.Secret // "" if it is not stored any more
	UsedBy                          string         // the user of the key, "" for the built-in server, which needs no key
}

// Builtin reports whether the account is of the built-in server.
func (a Account) Builtin() bool { return a.Provider == msg.Builtin }

// Masked reports whether the mask of answers stands in place of the secret.
func (a Account) Masked() bool { return a.Secret == secrets.Mask }

// NewAccount makes an account with a normalized endpoint. One of the built-in server has only a provider.
func NewAccount(name, endpoint, accessKeyID string, secret secrets.Secret) Account {
	if name == msg.Builtin {
		return Account{Provider: name}
	}
	return Account{Provider: name, Endpoint: provider.NormalEndpoint(name, endpoint), AccessKeyID: accessKeyID, Secret: secret}
}

// ServiceAccount returns the account that a service's config names.
func ServiceAccount(c mesh.ServiceConfig) Account {
	return NewAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret)
}

// ConfiguredAccount returns the account of the configuration.
func ConfiguredAccount(c mesh.Configuration) Account {
	return NewAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret)
}

// address is the provider and its endpoint, in the spelling that is stored.
func (a Account) address() [2]string { return [2]string{a.Provider, a.Endpoint} }

// Usage is a reserved prefix at a name, bound to a network.
type Usage struct {
	ID         string
	Service    string
	Network    string // network id, in decimal
	Tenant     bool   // see mesh.Claim
	Releasing  bool
	Account    *Account // nil if there is no account to publish at
	Domain     string   // of its service
	Endpoints  []string
	PeerID     string          // of the endpoints; "" for none
	Leased     []mesh.Endpoint // what nodes have renewed, in the order of the slots
	Dead       []string        // endpoints that a check has found dead, with their addresses
	Formats    []string        // of package mesh; none: mesh1
	Challenges []string        // values of ACME challenges that nodes have put
	Shown      Shown           // the stored one
}

// Own is the configuration's own record.
type Own struct {
	Account   Account
	Domain    string
	Endpoints []string
	Rival     string // network of a usage that has a TXT record in another format at this name; "" for none
}

// Name is a record name with everything that is stored about it.
type Name struct {
	Name    string
	Version int64
	Pass    PassMark  // of the last pass that counted it
	Due     time.Time // zero: it is not due
	Lane    Lane      // the lane in which it is due
	Look    time.Time // of the next second look at one of its places; zero: none
	Usages  []Usage   // in the order of their reservation
	Ground  mesh.Ground
	Own     *Own // nil if the configuration's record has another name
	Places  []Place
	Owners  []string // only the records at these owner names are read and worked out, "" being that with our mark; nil: all

	made *made // what the records in other formats were before, nil if that is not known
}

// has reports whether a record of the name is read and worked out.
func (n Name) has(s Sibling) bool { return n.Owners == nil || slices.Contains(n.Owners, s.Owner) }

// Releases reports whether a usage of the name is being released.
func (n Name) Releases() bool {
	return slices.ContainsFunc(n.Usages, func(u Usage) bool { return u.Releasing })
}

// owners are the claims of the usages of a name.
type owners struct{ mesh.Owners }

func (n Name) owners() owners {
	var claims []mesh.Claim
	for _, u := range n.Usages {
		claims = append(claims, mesh.Claim{Service: u.Service, Network: u.Network, Tenant: u.Tenant, Releasing: u.Releasing, Waits: u.Shown.Rival != ""})
	}
	return owners{mesh.OwnersOf(n.Name, n.Ground, claims)}
}

// title returns what a usage may do at a record of the name.
func (o owners) title(at int, s Sibling) mesh.Title {
	name, t := Record{Name: o.Name, Sibling: s}.owner()
	return o.Title(at, name, string(t))
}

// has reports whether a usage has the name.
func (o owners) has(at int) bool { return o.title(at, Sibling{}).Publishes() }

// holder returns what has the name, as the detail of a conflict: n=<network>, or "configuration" for its record.
func (o owners) holder() string {
	if o.Holder >= 0 {
		return "n=" + o.Claims[o.Holder].Network
	}
	return mesh.UsedByConfiguration
}

// TitleOf returns the title of a usage to its name, or if it owns that, to P; and the reason: what has the name, the configuration
// whose record the usage takes the name from, or the domain at or below P.
func TitleOf(n Name, usage string) (title mesh.Title, reason string) {
	o, at := n.owners(), slices.IndexFunc(n.Usages, func(u Usage) bool { return u.ID == usage })
	switch title = o.title(at, Sibling{}); title {
	case mesh.Contested:
		return title, o.holder()
	case mesh.Warned:
		return title, mesh.UsedByConfiguration
	}
	return o.title(at, Sibling{below(n.Name), provider.A}), n.Ground.Inner
}

// PassMark records at a name that a pass has counted it. The zero mark means none.
type PassMark struct {
	Number int64 // of the pass
	Bad    bool  // a record of the name failed or conflicted
}

// State is everything that is stored about some names, read in one snapshot.
type State struct {
	Owner      string
	Adopted    []string
	UpsertOnly bool
	Configured bool  // a configuration is stored; without one no new value is published
	Paused     Fault // see mesh.Configuration.Paused
	Names      []Name
	Heirs      map[int64]Account // by the id of an account without a user: its heir
}

// Addresses are this host's public addresses.
type Addresses struct {
	Last mesh.Addresses // the last known addresses
	Now  mesh.Addresses // the addresses known at this moment

	Hidden bool // resolvers cannot reach the built-in server at any of them
}

// Settings are the configuration's settings of the engine.
type Settings struct {
	Configured, Enabled bool
	Automatic           bool // the mode is not manual
	Retry               provider.Backoff
}

// Lane is a queue of due names, named after the thing that they wait for. The database
// stores it in this form.
type Lane string

// Lanes that do not belong to a zone. A name may be due in one lane and wait in LaneLook too.
const (
	LaneAsked   Lane = "ask"   // a person's order: in every mode, at once
	LaneChanged Lane = ""      // a change: in the automatic modes, or when a pass runs
	LaneNode    Lane = "node"  // a change by a node or a check: as LaneChanged
	LaneLater   Lane = "later" // such a change that waits for its share of the writes at a provider
	LaneHeld    Lane = "held"  // a change that waits for a person, in mode manual
	LaneLook    Lane = "look"  // a second look: in every mode
)

// changeLanes are the lanes of changes, which a pass takes in every mode.
var changeLanes = []Lane{LaneChanged, LaneNode, LaneHeld, LaneLater}

// ZonePrefix is the prefix of the lanes of zones, and of no other lane.
const ZonePrefix = "zone "

// ZoneLane returns the lane of names that wait for the zone of a domain at an account.
func ZoneLane(account int64, domain string) Lane {
	return Lane(fmt.Sprint(ZonePrefix, account, " ", domain))
}

// OfZone reports whether the lane belongs to a zone.
func (l Lane) OfZone() bool { return strings.HasPrefix(string(l), ZonePrefix) }

// Due is when a name is due next. At and Lane apply only if the name still has Version.
type Due struct {
	Name    string
	Version int64
	At      time.Time // zero: the next pass takes it
	Lane    Lane
	Kept    bool      // At and Lane stay as stored, because the name was only looked at
	Look    time.Time // of the next second look, zero: none; applies to any version
	Pass    PassMark  // of the pass that has counted it; zero: the stored mark stays

	Released bool // a released usage may be free now
	Empty    bool // no place is left, and no value is wanted
}

// Settlement is the result of some work, to be committed.
type Settlement struct {
	Places []Place // to store
	Ended  []Place // to delete: no value of ours stands there any more
	Names  []Due
	Shown  []string // names with a usage whose stored Shown is outdated
	By     string   // the cause of the work as events name it, "" for the program itself
}

// ByAddress is the cause of the work of a pass that a changed address of this host asks for.
const ByAddress = "address change"

// Parts splits the settlement into parts of so many names. All about one name is in one part.
func (s Settlement) Parts(names int) (parts []Settlement) {
	known := map[string]int{}
	part := func(name string) *Settlement {
		n, ok := known[name]
		if !ok {
			n = len(known) / names
			known[name] = n
		}
		if n == len(parts) {
			parts = append(parts, Settlement{By: s.By})
		}
		return &parts[n]
	}
	for _, p := range s.Places {
		to := part(p.Name)
		to.Places = append(to.Places, p)
	}
	for _, p := range s.Ended {
		to := part(p.Name)
		to.Ended = append(to.Ended, p)
	}
	for _, d := range s.Names {
		to := part(d.Name)
		to.Names = append(to.Names, d)
	}
	for _, name := range s.Shown {
		to := part(name)
		to.Shown = append(to.Shown, name)
	}
	return parts
}

// Progress is the progress of a pass. The database keeps what it was at the begin.
type Progress struct {
	Number  int64
	Cursor  string // all names up to this one are done or wait for their zones
	Sweep   bool   // orphans are withdrawn
	Orphans bool   // all names are done, and the search for orphans has begun
	Report  Report
}

// Request is a stored request for a pass.
type Request struct {
	Trigger string
	At      time.Time
}

// Zone is a zone of an account that has or may have values of ours.
type Zone struct {
	Account Account
	Apex    string // "" if only a domain in the zone is known
	ID      string // the provider's id, which differs between zones of one name
	Domain  string
}

// name returns the zone's name for reports and log lines.
func (z Zone) name() string { return cmp.Or(z.Apex, z.Domain) }

// Database stores the wanted state, the due names, and the outcomes.
type Database interface {
	// Settings reads the configuration's settings of the engine.
	Settings(ctx context.Context) (Settings, error)

	// Due reads the names of a lane that are due by a time, the longest due first. A name
	// whose time is further ahead than its lane's LongestWait is due too: the clock was set
	// back.
	Due(ctx context.Context, lane Lane, by time.Time, limit int) ([]string, error)
	// NextDue reads the earliest time after another at which a name of the lane is due; ok
	// is false if there is none.
	NextDue(ctx context.Context, lane Lane, after time.Time) (at time.Time, ok bool, err error)
	// ZoneLanes reads the lanes of zones in which names wait.
	ZoneLanes(ctx context.Context) ([]Lane, error)
	// Defer lets names in LaneNode wait in LaneLater until their times, unless another change than that of a node was made
	// since their versions.
	Defer(ctx context.Context, all []Due) error
	// Marked reports whether the names of a service are marked.
	Marked(ctx context.Context) (bool, error)
	// SpreadMarks makes at most limit marked names due.
	SpreadMarks(ctx context.Context, limit int) error

	// State reads everything that is stored about some names.
	State(ctx context.Context, names []string) (State, error)
	// Intend stores places before DNS is written. decide gets the state of the names, with the records at
	// the owner names, in the same transaction and returns the places to store. It may run twice, because a
	// transaction may be tried twice. After the commit new places have ids.
	Intend(ctx context.Context, names, owners []string, decide func(State) []*Place) error
	// AddProbe stores the place of a probe before it is written, and gives it an id.
	AddProbe(ctx context.Context, p *Place) error
	// EndProbe deletes the place of a probe that was seen to be gone.
	EndProbe(ctx context.Context, p Place) error
	// Settle commits a settlement, deletes the released usages that are free by it, and
	// stores the Shown of the usages whose places changed.
	Settle(ctx context.Context, s Settlement) error

	// Request reads the request for a new pass.
	Request(ctx context.Context) (Request, error)
	// DropRequest deletes the request for a new pass, unless the settings are not the known ones.
	DropRequest(ctx context.Context, known Settings) (dropped bool, err error)
	// CutPass reads the begin of the pass that an earlier run of the program has not ended, zero if there is none. If a
	// change asked for that pass, the change asks again.
	CutPass(ctx context.Context) (Progress, error)
	// BeginPass stores a new pass, gives it a number, and deletes the request for it. If the
	// settings are not the known ones, it does nothing and returns 0.
	BeginPass(ctx context.Context, p Progress, known Settings) (number int64, err error)
	// EndPass stores the report of a pass, which does not run any more.
	EndPass(ctx context.Context, r Report) error
	// LastReport reads the report of the last complete pass, nil if there is none.
	LastReport(ctx context.Context) (*Report, error)
	// NamesAfter reads names in order that the pass has not counted. Pass 0 has counted no name.
	NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error)

	// NoteZone stores that a zone of an account is down, or well again, if that is news.
	NoteZone(ctx context.Context, account int64, z ZoneState) error
	// DownZones reads the lanes of the zones that NoteZone has stored as down.
	DownZones(ctx context.Context) ([]Lane, error)

	// Zones reads every zone that may have values of ours.
	Zones(ctx context.Context) ([]Zone, error)
	// Strangers returns those of the names that have no place in the zone, nor in one that may be it.
	Strangers(ctx context.Context, z Zone, names []string) ([]string, error)
	// AddLeftovers stores leftovers, and makes their names due.
	AddLeftovers(ctx context.Context, places []Place) error

	// Restored reports whether the database was restored since EndPass had a report with Swept.
	Restored(ctx context.Context) (bool, error)
	// AddUnmarked stores values without a mark that may be ours, those that no place knows, where no engine reads them.
	AddUnmarked(ctx context.Context, p *Place) (isNew bool, err error)
}
