package mesh

import (
	"database/sql"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
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
	HeldBy                  sql.Null[NetworkID] // the network that already has the name or prefix of a new usage
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

// Fault is the reason of a failure: a code with a text in each language, details, and the key with
// which it happened.
type Fault struct {
	Code   string
	Detail msg.Text
	Key    string
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
