// Package lease keeps the rights of nodes to renew endpoints. A lease is the right to one slot of one
// usage: its token changes the endpoints of the slot and nothing else. The package has the rules, the
// SQL of the table leases, the expiry, the calls of the administrator, and the listener on which nodes
// renew.
package lease

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
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
	"meshddns/internal/web"
)

// Refusals of Table. A transaction returns one only before it changes anything.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownLease)
	ErrUnknownUsage = sqlite.Refusal(msg.UnknownUsage)
	ErrExists       = sqlite.Refusal(msg.LeaseExists)
	ErrTooMany      = sqlite.Refusal(msg.TooManyLeases)
	ErrReleased     = sqlite.Refusal(msg.LeaseReleased)
	ErrNoTemplate   = sqlite.Refusal(msg.LeaseNoTemplate)
	ErrTokenTaken   = sqlite.Refusal(msg.LeaseTokenTaken)
	ErrNotPermitted = sqlite.Refusal(msg.NotPermitted)
	ErrFull         = sqlite.Refusal(msg.ACMEFull)
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
	hash      string // of the token, in hexadecimal digits
	certified bool   // the token has put a challenge
}

// Rules say what a lease permits.
type Rules struct {
	Slot     string
	Schemes  []string       // empty: all
	CIDRs    []netip.Prefix // empty: see mesh.Permits
	TTL      time.Duration
	Template []string // endpoints with {ip}; empty: those of the usage
	PeerID   string
	ACME     bool // the token may put challenges
}

// Token is the text of a lease's token. The database has only its hash.
type Token string

// newToken returns a token of 32 random octets.
func newToken() Token {
	var octets [tokenOctets]byte
	rand.Read(octets[:])
	return Token(base64.RawURLEncoding.EncodeToString(octets[:]))
}

// hash returns the hash of a token in hexadecimal digits.
func (t Token) hash() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(t))) }

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

// rulesOf checks the members of a lease. The error joins a msg.Refusal for each mistake.
func rulesOf(m mesh.LeaseMembers) (r Rules, err error) {
	r = Rules{Slot: m.Slot, Schemes: m.Schemes, TTL: time.Duration(m.TTL) * time.Second, Template: m.Template, PeerID: m.PeerID, ACME: m.ACME}
	least, most := int64(minTTL/time.Second), int64(maxTTL/time.Second)
	faults := []error{
		msg.RefuseIf(!isSlot(m.Slot), msg.LeaseSlot),
		msg.RefuseIf(m.TTL < least || m.TTL > most, msg.LeaseTTL, least, most),
		msg.RefuseIf(len(m.Schemes) > maxEntries || slices.ContainsFunc(m.Schemes, func(s string) bool { return !isScheme(s) }), msg.LeaseSchemes, maxEntries),
		msg.RefuseIf(m.PeerID != "" && !mesh.IsPeerID(m.PeerID), msg.LeasePeerID),
		msg.RefuseIf(len(m.CIDRs) > maxEntries, msg.LeaseCIDRs, "", maxEntries),
	}
	for _, text := range m.CIDRs {
		prefix, err := mesh.ParseRange(text)
		r.CIDRs, faults = append(r.CIDRs, prefix), append(faults, msg.RefuseIf(err != nil, msg.LeaseCIDRs, text, maxEntries))
	}
	return r, errors.Join(append(faults, r.checkTemplate())...)
}

// document returns the lease as GET state has it, with the members that answers have. It is the inverse of parse.
func (l *Lease) document() mesh.Lease {
	return mesh.Lease{TokenHash: l.hash, LeaseMembers: mesh.LeaseMembers{
		Slot: l.Slot, Schemes: listed(l.Schemes), CIDRs: l.ranges(), TTL: int64(l.TTL / time.Second), Template: listed(l.Template), PeerID: l.PeerID, ACME: l.ACME,
	}}
}

// parse reads the leases in a usage of a provisioning file. One with a masked token has no hash.
func parse(body []byte) (all []Lease, err error) {
	var usage struct {
		Leases []mesh.Lease `json:"leases"`
	}
	if err := web.ParseBody(body, &usage); err != nil {
		return nil, err
	}
	var faults []error
	for i, d := range usage.Leases {
		hash := strings.ToLower(d.TokenHash)
		good := len(hash) == 2*sha256.Size && strings.Trim(hash, digits+"abcdef") == "" && d.Token == ""
		switch {
		case d.Masked():
			hash, good = "", d.TokenHash == ""
		case d.Token != "" && d.TokenHash == "":
			hash, good = Token(d.Token).hash(), web.CheckToken(string(d.Token)) == nil
		}
		r, err := rulesOf(d.LeaseMembers)
		faults = append(faults, msg.Faults(place(i), errors.Join(err, msg.RefuseIf(!good, msg.LeaseToken)))...)
		all = append(all, Lease{Rules: r, hash: hash})
	}
	return all, errors.Join(faults...)
}

// place is the place of a lease in a usage of a document.
func place(i int) string { return fmt.Sprintf("leases.[%d]", i) }

// Check checks the leases in a usage of a provisioning file.
func Check(body []byte) error {
	_, err := parse(body)
	return err
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

// ChallengeName returns the owner name of the challenges that the lease may put.
func (l Lease) ChallengeName() string {
	return mesh.ChallengeName(strings.TrimPrefix(l.Name, mesh.Label+"."))
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

// placeholder stands for an address in a template.
const placeholder = "{ip}"

// fill puts an address into an endpoint of a template.
func fill(text string, address netip.Addr) string {
	host := address.String()
	if address.Is6() {
		host = "[" + host + "]"
	}
	return strings.ReplaceAll(text, placeholder, host)
}

// Addressed returns the endpoints that the template makes of some addresses. Without a template it
// takes the endpoints of the usage that the lease permits, with their hosts replaced. The error is
// ErrNoTemplate if there are none.
func (t *Table) Addressed(ctx context.Context, l Lease, addresses []netip.Addr) (endpoints []string, err error) {
	template := l.Template
	if len(template) == 0 {
		if template, err = t.templateOf(ctx, l); err != nil {
			return nil, err
		}
	}
	if len(template) == 0 {
		return nil, ErrNoTemplate
	}
	for _, address := range addresses {
		for _, text := range template {
			endpoints = append(endpoints, fill(text, address))
		}
	}
	return endpoints, nil
}

// templateOf returns the endpoints of the lease's usage that the lease permits, with {ip} in place
// of their hosts.
func (t *Table) templateOf(ctx context.Context, l Lease) (template []string, err error) {
	state, err := t.config.Ledger.State(ctx, []string{l.Name})
	if err != nil {
		return nil, err
	}
	for _, u := range state.Names[0].Usages {
		if u.ID != l.UsageID {
			continue
		}
		for _, endpoint := range u.Endpoints {
			scheme, rest, _ := strings.Cut(endpoint, "://")
			port := rest[strings.LastIndexByte(rest, ':')+1:]
			if text := scheme + "://" + placeholder + ":" + port; l.permits(scheme) && !slices.Contains(template, text) {
				template = append(template, text)
			}
		}
	}
	return template, nil
}
