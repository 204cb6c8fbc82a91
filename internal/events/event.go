// Package events keeps the log of everything that happened, with the SQL of the table events. Each
// row is written in the transaction of the change that it is about.
package events

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"meshddns/internal/mesh"
)

// Kind is a kind of event.
type Kind string

// The kinds of events. A failure and a conflict are told once, and so is their end.
const (
	ConfigurationChanged Kind = "configuration.changed"
	ServiceCreated       Kind = "service.created"
	ServiceChanged       Kind = "service.changed"
	ServiceDeleted       Kind = "service.deleted"
	UsageReserved        Kind = "usage.reserved"
	UsageChanged         Kind = "usage.changed"
	UsageReleasing       Kind = "usage.releasing" // the prefix is occupied until the value is withdrawn
	UsageReleased        Kind = "usage.released"
	RecordPublished      Kind = "record.published"
	RecordChanged        Kind = "record.changed"
	RecordWithdrawn      Kind = "record.withdrawn"
	RecordFailed         Kind = "record.failed"
	RecordConflict       Kind = "record.conflict"
	RecordRecovered      Kind = "record.recovered"
	ZoneDown             Kind = "zone.down"
	ZoneRecovered        Kind = "zone.recovered"
	AddressChanged       Kind = "address.changed"
	LeftoverAppeared     Kind = "leftover.appeared"
	LeftoverGone         Kind = "leftover.gone"
	OrphanFound          Kind = "orphan.found"
	ProvisionApplied     Kind = "provision.applied"
	ProvisionRefused     Kind = "provision.refused"
	BackupMade           Kind = "backup.made"
	DatabaseRestored     Kind = "database.restored" // or moved
	SecondaryBehind      Kind = "secondary.behind"  // for a minute
	SecondaryCaughtUp    Kind = "secondary.caught-up"
	EndpointDead         Kind = "endpoint.dead"
	EndpointAlive        Kind = "endpoint.alive"
	LeaseCreated         Kind = "lease.created"
	LeaseRenewed         Kind = "lease.renewed" // with other endpoints
	LeaseExpired         Kind = "lease.expired"
	LeaseEnded           Kind = "lease.ended"
	LeaseHeld            Kind = "lease.held" // leases whose time is over, which do not end
	NotificationStopped  Kind = "notification.stopped"
	CertificateExpiring  Kind = "certificate.expiring" // in 14 days, or it has

	// Gap stands for events that are not kept any more. No row has it: Log.Page makes it.
	Gap Kind = "gap"
)

// Kinds are all kinds of stored events.
var Kinds = []Kind{
	ConfigurationChanged, ServiceCreated, ServiceChanged, ServiceDeleted, UsageReserved, UsageChanged, UsageReleasing, UsageReleased,
	RecordPublished, RecordChanged, RecordWithdrawn, RecordFailed, RecordConflict, RecordRecovered, ZoneDown, ZoneRecovered,
	AddressChanged, LeftoverAppeared, LeftoverGone, OrphanFound, ProvisionApplied, ProvisionRefused, BackupMade, DatabaseRestored, SecondaryBehind, SecondaryCaughtUp,
	EndpointDead, EndpointAlive,
	LeaseCreated, LeaseRenewed, LeaseExpired, LeaseEnded, LeaseHeld, NotificationStopped, CertificateExpiring,
}

// Event is something that happened.
type Event struct {
	Seq       int64 // in the order of commits, from 1; after a restore it is far higher
	At        time.Time
	Kind      Kind
	Name      string // full record name in DNS form, or the zone of a zone's event; "" for none
	Usage     int64  // its number in the order of reservation; 0 for none
	UsageID   string // "" for none
	ServiceID string // "" for none
	Network   sql.Null[mesh.NetworkID]
	By        string // the caller as audit lines name it, "" for the program itself
	Detail    Detail
}

// Detail is what an event says about its change. It has no secret.
type Detail struct {
	Before, After json.RawMessage // what stood before and after; nil if nothing did
	Record        string          // owner name and type of a record in another format; "" for the TXT record of the name
	Zone          string          // apex, "" if it is not known
	Provider      string
	Fault         mesh.Fault // of a failure
	Count         int        // entries that a provisioning file changed; zones that a secondary lacks
	From, To      int64      // of a Gap: the seqs that are missing
}

// JSON returns a value as JSON, such as for Detail.Before and Detail.After.
func JSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type that JSON cannot hold is a mistake of this program
	}
	return text
}

// Matches reports whether a pattern selects a kind. A pattern is a kind, or its beginning followed
// by ".*" ("record.*").
func (k Kind) Matches(pattern string) bool {
	group, ok := strings.CutSuffix(pattern, "*")
	return string(k) == pattern || ok && strings.HasSuffix(group, ".") && strings.HasPrefix(string(k), group)
}

// GoodPattern reports whether a pattern selects any kind.
func GoodPattern(pattern string) bool {
	return slices.ContainsFunc(Kinds, func(k Kind) bool { return k.Matches(pattern) })
}

// ByProvision is the caller of the changes that a provisioning file makes.
const ByProvision = "provisioning file"

type callerKey struct{}

// By returns a context whose changes have a caller, named as in audit lines ("token 1", "127.0.0.1").
func By(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

func caller(ctx context.Context) string {
	text, _ := ctx.Value(callerKey{}).(string)
	return text
}
