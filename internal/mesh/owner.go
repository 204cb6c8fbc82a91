// Who owns the names of a usage.

package mesh

import (
	"slices"

	"meshddns/internal/dns"
)

// Claim is a usage of a full name, as far as the owner of its names depends on it.
type Claim struct {
	Service, Network string
	Tenant           bool // a token of its service only has reserved it
	Releasing        bool
	Waits            bool // another one has had the name since the usage was reserved
}

// Ground is what else has names at or below the P of a full name _mesh.P.
type Ground struct {
	Inner   string // the domain of a service or of the configuration that is P or lies below it; "" for none
	Own     string // the name of the configuration's record, a TXT record; "" for none
	Program Program
}

// Program is the names that the program answers itself in the built-in zones.
type Program struct {
	Hosts   []string // of the server
	Catalog string   // the catalog zone, with all names below it; "" for none
}

// has reports whether the program answers a name itself.
func (p Program) has(name string) bool {
	return slices.Contains(p.Hosts, name) || p.Catalog != "" && dns.Within(name, p.Catalog)
}

// Title is what a usage may do at an owner name.
type Title int

// The titles, from the least to the most. Barred and Contested publish nothing.
const (
	Barred    Title = iota // the name is the program's, or of the service with the longest domain
	Contested              // another usage, or the configuration's record, has the name
	Warned                 // an administrator publishes at a name that would be another one's
	Owned
)

// Publishes reports whether the usage publishes at the name.
func (t Title) Publishes() bool { return t >= Warned }

// Holder returns the index of the claim that has a full name, -1 for none: the first one that does not wait, else the
// first one. A tenant's claim that waits does not take the name from the configuration's record.
func (g Ground) Holder(name string, claims []Claim) int {
	waiting := -1
	for i, c := range claims {
		switch {
		case c.Releasing:
		case !c.Waits:
			return i
		case waiting < 0 && !(c.Tenant && name == g.Own):
			waiting = i
		}
	}
	return waiting
}

// TitleOf is the one rule about owners. It returns the title of a claim to an owner name of a full name _mesh.P: to that name
// itself, P, or a name below P. claims are those to the full name in the order of their reservation; at is the index of the claim.
//
// The holder has the name. Other claims for its network join it, if they are of its service, or an administrator's. P and what is
// below it belong to the service with the longest domain at or above it; what the program answers itself is never a usage's.
func (g Ground) TitleOf(name string, claims []Claim, at int, owner, recordType string) Title {
	c, holder := claims[at], g.Holder(name, claims)
	switch p := dns.Parent(name); {
	case holder < 0 || c.Releasing:
		return Contested
	case at != holder && (c.Network != claims[holder].Network || c.Tenant && c.Service != claims[holder].Service):
		return Contested
	case owner != name && (g.Program.has(p) || g.Program.has(owner)):
		return Barred
	case owner == g.Own && recordType == typeTXT && c.Tenant && owner != name:
		return Contested
	case owner == g.Own && recordType == typeTXT && !c.Tenant:
		return Warned
	case owner != name && g.Inner != "" && c.Tenant:
		return Barred
	case owner != name && g.Inner != "":
		return Warned
	}
	return Owned
}
