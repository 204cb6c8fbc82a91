package mesh

import (
	"database/sql"
	"strings"

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
	CreatedAt               string
	Name                    string              // full record name as DNS has it
	Network                 sql.Null[NetworkID] // not valid without a binding
	Status                  BindingStatus
	ServiceName, Domain     sql.Null[string]    // not valid without the service, or its config
	HeldBy                  sql.Null[NetworkID] // the network that has the name, or the prefix, when a usage is created
	Publish                 Publishing
}

// BindingStatus is the state of a binding.
type BindingStatus string

const (
	Active    BindingStatus = "active"
	Releasing BindingStatus = "releasing"
)

// Publishing is how far the record of a usage is.
type Publishing struct {
	State    string
	Value    string // of the usage's network, that stands
	Fault    Fault
	Attempts int
	At       string // of the last news
}

// Fault is why something is not as it should be: a code that has a text in each language, the
// particulars, and whose key met it.
type Fault struct {
	Code   string
	Detail msg.Text
	Key    string
}

// Describing begins the description of a usage, before the name of its network.
const Describing = "mesh sync - "

// Describe gives the description that names a network.
func Describe(networkName string) string { return Describing + networkName }

// NetworkName gives the name of the network that a description names, "" when the description is
// another one.
func NetworkName(description string) string {
	name, named := strings.CutPrefix(description, Describing)
	if !named {
		return ""
	}
	return name
}

// Documented reports whether a document can have the usage: it is not being released, and not of
// the rows that are older than the checks.
func (u Usage) Documented() bool { return u.Network.Valid && u.Status == Active && u.Domain.Valid }
