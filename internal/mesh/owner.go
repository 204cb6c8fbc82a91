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

// keeps reports whether an owner name of a usage is the program's. A challenge gives a certificate for *.<parent>, which may be
// valid for a host of the program below.
func (p Program) keeps(owner, parent string) bool {
	certifies := func(host string) bool { return owner == ChallengeName(parent) && dns.Within(host, parent) }
	return p.has(parent) || p.has(owner) || slices.ContainsFunc(p.Hosts, certifies)
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

// Owners are the claims to a full name _mesh.P, in the order of their reservation.
type Owners struct {
	Ground
	Name   string
	Claims []Claim
	Holder int // index of the claim that has the name, -1 for none
}

// OwnersOf finds the holder of a full name: the first claim that does not wait, else the first one. A tenant's claim that waits does
// not take the name from the configuration's record.
func OwnersOf(name string, g Ground, claims []Claim) Owners {
	o := Owners{g, name, claims, -1}
	for i, c := range claims {
		switch {
		case c.Releasing:
		case !c.Waits:
			o.Holder = i
			return o
		case o.Holder < 0 && !(c.Tenant && name == g.Own):
			o.Holder = i
		}
	}
	return o
}

// Title is the one rule about owners. It returns the title of a claim to an owner name: the full name, P, or a name below P.
//
// The holder has the name. Other claims for its network join it, if they are of its service, or an administrator's. P and what is
// below it belong to the service with the longest domain at or above it; what the program answers itself is never a usage's.
func (o Owners) Title(at int, owner, recordType string) Title {
	c, full, record := o.Claims[at], owner == o.Name, owner == o.Own && recordType == typeTXT
	switch {
	case o.Holder < 0 || c.Releasing:
		return Contested
	case at != o.Holder && (c.Network != o.Claims[o.Holder].Network || c.Tenant && c.Service != o.Claims[o.Holder].Service):
		return Contested
	case full && record && !c.Tenant:
		return Warned
	case full:
		return Owned
	case o.Program.keeps(owner, dns.Parent(o.Name)):
		return Barred
	case record && c.Tenant:
		return Contested
	case o.Inner != "" && c.Tenant:
		return Barred
	case record || o.Inner != "":
		return Warned
	}
	return Owned
}
