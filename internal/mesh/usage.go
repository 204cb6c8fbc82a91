package mesh

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// Usage is a reserved prefix with its binding to a network and its service.
type Usage struct {
	Seq                     int64
	ID, ServiceID           string
	Mode                    PrefixMode
	Prefix                  string
	RecordType, Description string
	Exclusive               bool
	Endpoints               []string
	Options                 Options
	CreatedAt               string
	Name                    string              // full record name in DNS form
	Network                 sql.Null[NetworkID] // NULL without a binding
	Status                  BindingStatus
	ServiceName, Domain     sql.Null[string]    // NULL without the service, Domain also without a valid config
	Tenant                  bool                // see Claim
	HeldBy                  sql.Null[NetworkID] // the network that already has the prefix of a new usage
	Title                   Title               // of a new usage, at its name and below it
	Rival                   string              // what gives the title its reason
	Publish                 Publishing
}

// BindingStatus is the state of a binding.
type BindingStatus string

// The states of a binding. A releasing one waits until its value is withdrawn.
const (
	Active    BindingStatus = "active"
	Releasing BindingStatus = "releasing"
)

// Publishing is the state of a usage's record.
type Publishing struct {
	State    string
	Value    string // the published value of the usage's network
	Fault    Fault
	Attempts int
	At       string // time of the last outcome
}

// Key identifies a usage by its service, its network and its prefix in any letter case.
func (u Usage) Key() string {
	return u.ServiceID + " " + u.Network.V.String() + " " + dns.Fold(u.Prefix)
}

// Describing is the text before the network's name in the description of a usage.
const Describing = "mesh sync - "

// Describe returns the description that names a network.
func Describe(networkName string) string { return Describing + networkName }

// NetworkName returns the network's name in a description, "" if the description has another form.
func NetworkName(description string) string {
	name, named := strings.CutPrefix(description, Describing)
	if !named {
		return ""
	}
	return name
}

// Documented reports whether the usage can appear in a document: it is active, and its row passes the
// checks that older rows may not pass.
func (u Usage) Documented() bool { return u.Network.Valid && u.Status == Active && u.Domain.Valid }

// ValueFormat is the format of the value with our mark. It is the only one of a usage without formats.
const ValueFormat = "mesh1"

// CheckEndpoints returns the refusal of own endpoints that cannot be published in the usage's formats.
func (u Usage) CheckEndpoints() error {
	network := AnyNetwork
	if u.Network.Valid {
		network = u.Network.V
	}
	if formats := u.Options.Formats; len(formats) > 0 && !slices.Contains(formats, ValueFormat) {
		return refused(CheckOthers(u.Endpoints))
	}
	return refused(Check(network.String(), AnyOwner, u.Endpoints))
}

// refused returns the refusal for an error of endpoints.
func refused(err error) error {
	if long, ok := errors.AsType[*TooLongError](err); ok {
		return msg.Refuse(msg.ValueTooLong, long.Octets, long.Most)
	}
	if bad, ok := errors.AsType[*EndpointError](err); ok {
		return msg.Refuse(msg.EndpointInvalid, bad.Text, bad.After())
	}
	return err
}

// Search is what a search for usages is about: full names, a prefix, and a network, of which a usage has one. State and
// Service select among those; "" selects all.
type Search struct {
	Names          []string
	Prefix         string
	Network        sql.Null[NetworkID]
	State, Service string
}

// AmissGroup is usages of one zone that are not as they should be for one reason.
type AmissGroup struct {
	Zone, Provider string // the domain of the service, and where a value stands or shall stand
	Bad            bool   // a person may have to act; otherwise they wait
	Fault          Fault  // without details if these differ
	Count          int
	First          []Usage // the first five, with id, name and state
}

// Reservation is the members by which a client asks for a prefix.
type Reservation struct {
	ServiceID    string     `json:"service_id"`
	PrefixMode   PrefixMode `json:"prefix_mode"`
	CustomPrefix string     `json:"custom_prefix"`
	NetworkID    *NetworkID `json:"network_id"`
}

// Complete refuses a reservation without a service or a mode.
func (r Reservation) Complete() error {
	return errors.Join(msg.RefuseIf(r.ServiceID == "", msg.ServiceIDEmpty),
		msg.RefuseIf(r.PrefixMode != AutomaticMode && r.PrefixMode != CustomMode, msg.PrefixModeInvalid))
}

// Prefix returns the prefix to reserve, or the fault of the prefix itself.
func (r Reservation) Prefix() (prefix string, fault msg.ID) {
	switch {
	case r.NetworkID == nil:
		return "", msg.NetworkIDMissing
	case r.PrefixMode == AutomaticMode:
		return AutomaticPrefix(*r.NetworkID), ""
	}
	return r.CustomPrefix, PrefixFault(r.CustomPrefix)
}

// NewUsage is the members of a usage that a client reserves.
type NewUsage struct {
	Reservation
	UsageChange
}

// Options are what a usage has beyond the defaults of its service, as answers, events and documents have it.
type Options struct {
	Formats []string        `json:"formats,omitempty"` // in their normal form; none to use the service's
	Check   json.RawMessage `json:"check,omitempty"`   // how the endpoints are checked; none to use the service's
	PeerID  string          `json:"peer_id,omitempty"` // of the usage's own endpoints; "" for none
}

// Equal reports whether two options are the same.
func (o Options) Equal(p Options) bool {
	return slices.Equal(o.Formats, p.Formats) && bytes.Equal(o.Check, p.Check) && o.PeerID == p.PeerID
}

// Normalize brings the options into their normal form. The error joins the refusals of those that are not valid.
func (c *UsageChange) Normalize() error {
	c.Endpoints = append(c.Endpoints[:0:0], Once(c.Endpoints)...)
	faults := []error{msg.RefuseIf(c.PeerID != nil && *c.PeerID != "" && !IsPeerID(*c.PeerID), msg.PeerIDInvalid)}
	if c.Check != nil {
		checking, err := ParseCheck(c.Check)
		c.Check, faults = json.RawMessage(checking.Text()), append(faults, err)
	}
	if c.Formats != nil {
		formats, err := ParseFormats(c.Formats)
		c.Formats, faults = append([]string{}, formats...), append(faults, err)
	}
	return errors.Join(faults...)
}

// UsageChange is the members of a usage that a client changes; nil keeps the stored value. "formats": [] and "check": {}
// return to what the service has.
type UsageChange struct {
	Endpoints   []string        `json:"txt_endpoints"`
	Description *string         `json:"description"`
	NetworkName *string         `json:"network_name"` // for the description, where none is given
	Formats     []string        `json:"formats"`
	Check       json.RawMessage `json:"check"`
	PeerID      *string         `json:"peer_id"`
}

// Over returns a usage after the change, and reports whether it differs.
func (c UsageChange) Over(u Usage) (changed Usage, differs bool) {
	changed = u
	if c.Endpoints != nil {
		changed.Endpoints = c.Endpoints
	}
	switch {
	case c.Description != nil:
		changed.Description = *c.Description
	case c.NetworkName != nil:
		changed.Description = Describe(*c.NetworkName)
	}
	if c.Formats != nil {
		changed.Options.Formats = c.Formats
	}
	if c.Check != nil {
		changed.Options.Check = c.Check
	}
	if c.PeerID != nil {
		changed.Options.PeerID = *c.PeerID
	}
	return changed, changed.Description != u.Description || !slices.Equal(changed.Endpoints, u.Endpoints) || !changed.Options.Equal(u.Options)
}

// LeaseMembers are the members of a lease that requests, provisioning files, answers and documents have.
type LeaseMembers struct {
	Slot     string   `json:"slot"`
	Schemes  []string `json:"schemes"`
	CIDRs    []string `json:"cidrs"`
	TTL      int64    `json:"ttl"` // seconds
	Template []string `json:"template"`
	PeerID   string   `json:"peer_id"`
	ACME     bool     `json:"acme"` // the token may put challenges
}

// Lease is a lease of a usage in a document, with its token or the hash of it. GET state has the hash.
type Lease struct {
	LeaseMembers
	Token     secrets.Secret `json:"token,omitempty"`
	TokenHash string         `json:"token_hash"` // SHA-256 in hexadecimal digits
}

// Masked reports whether the token is the mask, which keeps the stored one.
func (l Lease) Masked() bool { return l.Token == secrets.Mask }

// autoPrefix is the beginning of every automatic prefix.
const autoPrefix = Label + "-"

// PrefixMode is the origin of a usage's prefix.
type PrefixMode string

// The modes of a prefix: derived from the network, or chosen by the client.
const (
	AutomaticMode PrefixMode = "auto"
	CustomMode    PrefixMode = "custom"
)

// PrefixFault returns the first rule that a custom prefix breaks, "" for a valid one. The contract
// defines the order of the rules.
func PrefixFault(prefix string) msg.ID {
	switch {
	case prefix == "":
		return msg.PrefixEmpty
	case len([]rune(prefix)) > dns.MaxLabel:
		return msg.PrefixTooLong
	case strings.Trim(prefix, dns.LabelAlphabet) != "":
		return msg.PrefixCharacters
	case isReserved(prefix):
		return msg.PrefixReserved
	}
	return ""
}

// isReserved reports whether a prefix begins with Label, as automatic prefixes do. The indexes of the
// database use the same test.
func isReserved(prefix string) bool { return strings.HasPrefix(dns.Fold(prefix), Label) }

// AutomaticPrefix returns the prefix of a network. It encodes the decimal text and not the octets of
// the number: DNS ignores letter case, and the encodings of two decimal texts never differ in case
// only.
func AutomaticPrefix(network NetworkID) string {
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(network.String()))
}

// FullName returns the record name of a prefix below a domain.
func FullName(prefix, domain string) string { return Label + "." + prefix + "." + domain }

// Meant returns the names that a person may mean with a text: the name itself, and the record name below it.
func Meant(text string) []string {
	name := dns.Parse(text)
	return []string{name, Label + "." + name}
}
