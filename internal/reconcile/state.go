// Package reconcile keeps what is published true. It takes the names that are
// due, works out what is wanted at each (desired.go), compares it with what
// stands there (rrset.go), changes it zone by zone (zone.go), and commits what
// came of it (verdict.go, outcome.go). The engine says when: for names that are
// due (engine.go, lane.go, task.go), and for all of them (pass.go, survey.go).
//
// It knows no SQL and no HTTP server, and speaks no language: why something is
// not as it should be is a code and its particulars.
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
)

// Account is a key at a provider. It never changes: another secret is another account.
type Account struct {
	ID                              int64
	Provider, Endpoint, AccessKeyID string
	Secret                          secrets.Secret // "" when it is not known any more
	UsedBy                          string         // whose key it is, "" for the built-in server, which needs none
}

// Whose key an account is.
const (
	UsedByConfiguration = "configuration"
	UsedByService       = "service " // and its id behind it
	UsedByNothing       = "nothing"  // a place still needs the key
)

// address is where a server or vendor answers, as it is spelled.
func (a Account) address() [2]string { return [2]string{a.Provider, a.Endpoint} }

// Usage is a reserved prefix at a name, bound to a network.
type Usage struct {
	ID        string
	Network   string // in decimal
	Releasing bool
	Account   *Account // nil when there is nowhere to publish
	Domain    string   // of its service
	Endpoints []string
	Told      Told // as it is stored
}

// Own is the configuration's own record.
type Own struct {
	Account   Account
	Domain    string
	Endpoints []string
}

// Name is a record name with all that decides about it.
type Name struct {
	Name    string
	Version int64
	Pass    PassMark  // of the pass that counted it last
	Due     time.Time // zero: it is not
	Lane    Lane      // in which it is due
	Look    time.Time // when a place is to be looked at once more; zero: never
	Usages  []Usage   // in the order of their reservation
	Own     *Own      // nil when the configuration's record is elsewhere
	Places  []Place
}

// PassMark is a pass's note at a name that it has counted. The zero mark is none.
type PassMark struct {
	Number int64 // of the pass
	Bad    bool  // the name was not as it should be
}

// State is what is stored about some names, at one moment.
type State struct {
	Owner      string
	Adopted    []string
	UpsertOnly bool
	Configured bool // a configuration is stored: without one nothing is published anew
	Names      []Name
	Heirs      map[int64]Account // of accounts that nothing uses any more: the account with another secret for the key
}

// Addresses are this host's public ones.
type Addresses struct {
	Last mesh.Addresses // the last known ones
	Now  mesh.Addresses // those that are known at this moment

	Hidden bool // none of them is one at which the world finds the built-in server
}

// Settings are what the configuration says about the work itself.
type Settings struct {
	Configured, Enabled bool
	Automatic           bool // the mode is not manual
	Retry               provider.Backoff
}

// Lane says what a name that is due waits for. It is stored as it is.
type Lane string

// Lanes other than those of zones. A name may be due in another lane and wait in LaneLook too.
const (
	LaneAsked   Lane = "ask"  // a person's order: in every mode, at once
	LaneChanged Lane = ""     // a change: in the automatic modes, or when a pass runs
	LaneHeld    Lane = "held" // a change that waits for a person, in mode manual
	LaneLook    Lane = "look" // a place is to be looked at once more: in every mode
)

// ZonePrefix begins the lane of each zone, and no other.
const ZonePrefix = "zone "

// ZoneLane gives the lane of names that wait for the zone of a domain at an account.
func ZoneLane(account int64, domain string) Lane {
	return Lane(fmt.Sprint(ZonePrefix, account, " ", domain))
}

// OfZone reports whether names in the lane wait for a zone.
func (l Lane) OfZone() bool { return strings.HasPrefix(string(l), ZonePrefix) }

// Due says when a name is to be worked on next, if it has not changed since.
type Due struct {
	Name    string
	Version int64
	At      time.Time // zero: when a pass comes by
	Lane    Lane
	Kept    bool      // At and Lane stay as they are stored: it was only looked at
	Look    time.Time // when to look once more, zero: never; also if the name has changed
	Pass    PassMark  // of the pass that has counted it; zero: the stored one stays

	Released bool // usages may be free by what was settled
	Empty    bool // no place is left, and nothing is wanted
}

// Settlement is what came of some work.
type Settlement struct {
	Places []Place // to store
	Ended  []Place // nothing of ours is there any more
	Names  []Due
	Told   []string // names of whose usages the database tells something else than is true now
}

// names are those of which something is stored, in their order.
func (s Settlement) names() (all []string) {
	for _, p := range slices.Concat(s.Places, s.Ended) {
		all = append(all, p.Name)
	}
	for _, d := range s.Names {
		all = append(all, d.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// of is what is stored of one of them.
func (s Settlement) of(name string) (part Settlement) {
	others := func(p Place) bool { return p.Name != name }
	part.Places = slices.DeleteFunc(slices.Clone(s.Places), others)
	part.Ended = slices.DeleteFunc(slices.Clone(s.Ended), others)
	part.Names = slices.DeleteFunc(slices.Clone(s.Names), func(d Due) bool { return d.Name != name })
	return part
}

// Progress is how far a pass is.
type Progress struct {
	Number  int64
	Cursor  string // all names up to here are done, or wait for their zones
	Sweep   bool
	Orphans bool // the names are through, and orphans are looked for
	Report  Report
}

// Request asks for a pass.
type Request struct {
	Trigger string
	At      time.Time
}

// Zone is a zone of an account in which something of ours is or may be.
type Zone struct {
	Account Account
	Apex    string // "" when only a domain in it is known
	ID      string // what its provider tells it by from others of its name
	Domain  string
}

// name is what the zone is called where it is told of.
func (z Zone) name() string { return cmp.Or(z.Apex, z.Domain) }

// Database keeps what is wanted, what is due, and what came of it.
type Database interface {
	Settings(ctx context.Context) (Settings, error)

	// Due gives names of a lane that are due by a time, the longest due first. A name that is to wait
	// longer than its lane's LongestWait is due: the clock was set back.
	Due(ctx context.Context, lane Lane, by time.Time, limit int) ([]string, error)
	// NextDue gives the earliest time after another at which a name of the lane is due; ok is
	// false when none is.
	NextDue(ctx context.Context, lane Lane, after time.Time) (at time.Time, ok bool, err error)
	// ZoneLanes gives the lanes of zones in which names wait.
	ZoneLanes(ctx context.Context) ([]Lane, error)
	// Marked reports whether names are marked as a whole.
	Marked(ctx context.Context) (bool, error)
	// SpreadMarks makes some of them due.
	SpreadMarks(ctx context.Context, limit int) error

	State(ctx context.Context, names []string) (State, error)
	// Intend commits what is about to be written: decide gives the places to
	// store, out of what is wanted in that same transaction; when the first try comes
	// to nothing it is asked anew. New ones get ids once they are committed.
	Intend(ctx context.Context, names []string, decide func(State) []*Place) error
	// AddProbe stores the place of a probe before it is written, and gives it an id.
	AddProbe(ctx context.Context, p *Place) error
	// EndProbe forgets the place of a probe that was seen to be gone.
	EndProbe(ctx context.Context, p Place) error
	// Settle commits what came of it, frees the usages that waited for it, and stores what
	// is told of those whose places changed.
	Settle(ctx context.Context, s Settlement) error

	// Request gives what asks for a new pass, and whether one runs.
	Request(ctx context.Context) (r Request, running bool, err error)
	// DropRequest forgets what asks for a new pass.
	DropRequest(ctx context.Context) error
	// Pass gives how far the running pass is.
	Pass(ctx context.Context) (Progress, error)
	// BeginPass numbers a new pass and drops what asked for it.
	BeginPass(ctx context.Context, p Progress) (number int64, err error)
	SavePass(ctx context.Context, p Progress) error
	EndPass(ctx context.Context, r Report) error
	LastReport(ctx context.Context) (*Report, error)
	// NamesAfter gives names in their order that the pass has not counted. Of pass 0, none is.
	NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error)

	// BadNames gives names in their order that the pass has found not to be as they should be.
	BadNames(ctx context.Context, pass int64, after string, limit int) ([]string, error)

	// Zones gives every zone in which something of ours may be.
	Zones(ctx context.Context) ([]Zone, error)
	// Strangers gives those of the names that have no place in what may be the zone.
	Strangers(ctx context.Context, z Zone, names []string) ([]string, error)
	// AddLeftovers stores places to withdraw, and makes their names due.
	AddLeftovers(ctx context.Context, places []Place) error
}
