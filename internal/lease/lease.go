// Package lease keeps the rights of nodes to renew endpoints. A lease is the right to one slot of one
// usage: its token changes the endpoints of the slot and nothing else. The package has the rules, the
// SQL of the table leases, the expiry, the calls of the administrator, and the listener on which nodes
// renew.
package lease

import (
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// Refusals of Table. A transaction returns one only before it changes anything.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownLease)
	ErrUnknownUsage = sqlite.Refusal(msg.UnknownUsage)
	ErrExists       = sqlite.Refusal(msg.LeaseExists)
	ErrTooMany      = sqlite.Refusal(msg.TooManyLeases)
	ErrReleased     = sqlite.Refusal(msg.LeaseReleased)
	ErrNoTemplate   = sqlite.Refusal(msg.LeaseNoTemplate)
)

const (
	// MaxLeases bounds the leases of a usage.
	MaxLeases = 256
	// MaxEndpoints bounds the endpoints of a lease.
	MaxEndpoints = 16

	minTTL, maxTTL = time.Minute, 7 * 24 * time.Hour
	maxEntries     = 16 // of schemes, cidrs and template
	tokenOctets    = 32
)

// Lease is a stored lease, with what events tell of its usage.
type Lease struct {
	Seq       int64
	ID        string
	Usage     int64 // its seq
	UsageID   string
	Name      string // full record name of the usage
	ServiceID string
	Network   sql.Null[mesh.NetworkID]
	Releasing bool // the usage is

	Rules
	Endpoints []string
	RenewedAt time.Time // of the last renewal that was written; zero for none
	RenewedBy string
}

// Rules say what a lease permits.
type Rules struct {
	Slot     string
	Schemes  []string       // empty: all
	CIDRs    []netip.Prefix // empty: see mesh.Permits
	TTL      time.Duration
	Template []string // endpoints with {ip}; empty: those of the usage
	PeerID   string
}

// Token is the text of a lease's token. The database has only its hash.
type Token string

// newToken returns a token of 32 random octets.
func newToken() Token {
	var octets [tokenOctets]byte
	rand.Read(octets[:])
	return Token(base64.RawURLEncoding.EncodeToString(octets[:]))
}

// hash returns the stored form of a token.
func (t Token) hash() []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:]
}

// body is the members of a lease that a client writes, and that answers have.
type body struct {
	Slot     string   `json:"slot"`
	Schemes  []string `json:"schemes"`
	CIDRs    []string `json:"cidrs"`
	TTL      int64    `json:"ttl"` // seconds
	Template []string `json:"template"`
	PeerID   string   `json:"peer_id"`
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"

	maxWord = 32 // characters of a slot or a scheme
)

func isSlot(text string) bool {
	return text != "" && len(text) <= maxWord && strings.Trim(text, lower+digits+"-") == ""
}

// isScheme reports whether a text is a scheme in lower case (RFC 3986, section 3.1).
func isScheme(text string) bool {
	return text != "" && len(text) <= maxWord && strings.Contains(lower, text[:1]) && strings.Trim(text, lower+digits+"+.-") == ""
}

// rules checks the body. The error is a msg.Refusal.
func (b body) rules() (r Rules, err error) {
	r = Rules{Slot: b.Slot, Schemes: b.Schemes, TTL: time.Duration(b.TTL) * time.Second, Template: b.Template, PeerID: b.PeerID}
	switch {
	case !isSlot(b.Slot):
		return r, msg.Refuse(msg.LeaseSlot)
	case b.TTL < int64(minTTL/time.Second) || b.TTL > int64(maxTTL/time.Second):
		return r, msg.Refuse(msg.LeaseTTL, int64(minTTL/time.Second), int64(maxTTL/time.Second))
	case len(b.Schemes) > maxEntries || slices.ContainsFunc(b.Schemes, func(s string) bool { return !isScheme(s) }):
		return r, msg.Refuse(msg.LeaseSchemes, maxEntries)
	case b.PeerID != "" && !mesh.IsPeerID(b.PeerID):
		return r, msg.Refuse(msg.LeasePeerID)
	case len(b.CIDRs) > maxEntries:
		return r, msg.Refuse(msg.LeaseCIDRs, "", maxEntries)
	}
	for _, text := range b.CIDRs {
		prefix, err := mesh.ParseRange(text)
		if err != nil {
			return r, msg.Refuse(msg.LeaseCIDRs, text, maxEntries)
		}
		r.CIDRs = append(r.CIDRs, prefix)
	}
	return r, r.checkTemplate()
}

// body is the inverse of rules.
func (r Rules) body() body {
	return body{
		Slot: r.Slot, Schemes: listed(r.Schemes), CIDRs: r.ranges(), TTL: int64(r.TTL / time.Second), Template: listed(r.Template), PeerID: r.PeerID,
	}
}

// checkTemplate checks each endpoint of the template with an address in it.
func (r Rules) checkTemplate() error {
	if len(r.Template) > maxEntries {
		return msg.Refuse(msg.LeaseTemplate, "", maxEntries)
	}
	for _, text := range r.Template {
		scheme, rest, _ := strings.Cut(text, "://")
		if !strings.HasPrefix(rest, placeholder+":") || !isEndpoint(fill(text, netip.IPv4Unspecified())) {
			return msg.Refuse(msg.LeaseTemplate, text, maxEntries)
		}
		if !r.permits(scheme) {
			return msg.Refuse(msg.LeaseScheme, scheme, strings.Join(r.Schemes, " | "))
		}
	}
	return nil
}

// permits reports whether an endpoint may have a scheme.
func (r Rules) permits(scheme string) bool {
	return len(r.Schemes) == 0 || slices.Contains(r.Schemes, scheme)
}

// Check returns a msg.Refusal for endpoints that the lease does not permit, or that do not fit into a
// value even alone.
func (l Lease) Check(endpoints []string) error {
	if len(endpoints) > MaxEndpoints {
		return msg.Refuse(msg.LeaseTooManyEndpoints, MaxEndpoints)
	}
	for _, text := range endpoints {
		if err := l.check(text); err != nil {
			return err
		}
	}
	err := mesh.Check(l.Network.V.String(), mesh.AnyOwner, endpoints)
	if long, ok := errors.AsType[*mesh.TooLongError](err); ok {
		return msg.Refuse(msg.ValueTooLong, long.Octets, long.Most)
	}
	return err
}

// isEndpoint reports whether a text is an endpoint without a placeholder. Placeholders are for this
// host's own addresses, so a node cannot use them.
func isEndpoint(text string) bool {
	return !strings.Contains(text, "{") && mesh.Check("", mesh.AnyOwner, []string{text}) == nil
}

// isNumeric reports whether a host is no address and no name either, because its last label is a number, such as 10.1, which
// some systems read as 10.0.0.1.
func isNumeric(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.Trim(last, "0123456789") == ""
}

// check checks one endpoint.
func (l Lease) check(text string) error {
	u, err := url.Parse(text)
	if err != nil || !isEndpoint(text) || isNumeric(u.Hostname()) {
		return msg.Refuse(msg.LeaseEndpoint, text[:min(len(text), mesh.MaxValue)])
	}
	if !l.permits(u.Scheme) {
		return msg.Refuse(msg.LeaseScheme, u.Scheme, strings.Join(l.Schemes, " | "))
	}
	address, err := netip.ParseAddr(u.Hostname())
	switch {
	case err != nil && len(l.CIDRs) == 0: // a name, whose addresses only a check looks at
		return nil
	case err == nil && mesh.Permits(l.CIDRs, address):
		return nil
	case len(l.CIDRs) == 0:
		return msg.Refuse(msg.LeaseAddress, u.Hostname(), msg.Phrase{ID: msg.PublicAddresses})
	}
	return msg.Refuse(msg.LeaseAddress, u.Hostname(), strings.Join(l.ranges(), " | "))
}

// ranges returns the address ranges as texts.
func (r Rules) ranges() []string {
	all := []string{}
	for _, p := range r.CIDRs {
		all = append(all, p.String())
	}
	return all
}

// Has reports whether a host name is the lease's: the record name of its usage, with or without its
// first label, in any letter case.
func (l Lease) Has(host string) bool {
	return slices.Contains(mesh.Meant(host), l.Name)
}

// Caller names the lease in audit lines and events.
func (l Lease) Caller() string { return "lease " + l.ID }

// event returns an event of the lease. Its endpoints are those before and after the change; nil
// stands for no lease.
func (l Lease) event(kind events.Kind, before, after []string) events.Event {
	shown := func(endpoints []string) []byte {
		if endpoints == nil {
			return nil
		}
		return events.JSON(struct {
			ID        string   `json:"id"`
			Slot      string   `json:"slot"`
			Endpoints []string `json:"endpoints"`
		}{l.ID, l.Slot, endpoints})
	}
	return events.Event{
		Kind: kind, Name: l.Name, Usage: l.Usage, UsageID: l.UsageID, ServiceID: l.ServiceID, Network: l.Network,
		Detail: events.Detail{Before: shown(before), After: shown(after)},
	}
}
