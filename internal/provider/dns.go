package provider

import (
	"context"

	"meshddns/internal/msg"
)

// DNS reads and changes the values of one type at one name of a provider's zones. Names are in
// presentation form without the final dot; letter case does not matter. Calls may overlap. Every error
// is, or wraps, an *Error or the context's error.
type DNS interface {
	// Zone returns the apex of the longest zone of the account that contains name. It changes
	// nothing. Refused credentials are an error. ZoneNotFound means that the provider accepted the
	// key, and the account has no such zone.
	Zone(ctx context.Context, name string) (zone string, err error)

	// Types returns the types of records that the client has. For any other type, all methods fail
	// with UnsupportedType and make no call.
	Types() []Type

	// Read returns the values of a type at name; no values are no error. A CNAME there is a
	// Conflict, here or, if only a write can tell, in Change.
	Read(ctx context.Context, zone, name string, t Type) (RRset, error)

	// Change adds and removes single values and leaves all others at the name unchanged, of its
	// type and of the other types. It adds new values before it removes old ones. Adding an existing value and removing a missing one
	// are no errors. If the values have changed since Seen, and the provider can compare and swap,
	// Change does nothing and fails with Changed. An empty change tests whether the key may write,
	// if the provider can tell. After an error the change may be made, wholly or in part, unless
	// the error is Unmade.
	Change(ctx context.Context, change Change) error

	// Authority returns the authoritative servers that the public asks for the zone.
	Authority(ctx context.Context, zone string) (Authority, error)
}

// ZoneReader is a DNS that reads a whole zone in few calls.
type ZoneReader interface {
	// ReadAll returns the names of the zone that have TXT values or an alias, as far as they are
	// wanted, by folded name. An incomplete list is an error. ErrNotListed means that the key may
	// not list the zone, or that the list is too long; Read may still work.
	ReadAll(ctx context.Context, zone string, wanted Wanted) (map[string]RRset, error)
}

// Wanted selects the useful part of a zone, which may have a million other names. If it is true for a
// name and nil, all values at the name are wanted, else each value for which it is true. A nil Wanted
// selects everything.
type Wanted func(name string, value Value) bool

// BatchReader is a DNS that reads several names of a zone in one call.
type BatchReader interface {
	// ReadNames returns the names that have values of the type.
	ReadNames(ctx context.Context, zone string, t Type, names []string) (map[string]RRset, error)
}

// BatchChanger is a DNS that makes many changes of one zone in few calls.
type BatchChanger interface {
	// ChangeAll makes changes of different names or types in one zone, each as Change would, and
	// returns their errors in the same order. A second change of a name and type is Changed. A failed change does not prevent the others. After an attempt
	// with an unknown outcome, the error of a retry is never Unmade, and a retry that succeeds gives ErrRepeated.
	// In the second half of the time of WriteContext it begins nothing more, except that some changes always
	// get an outcome. The others fail with ErrLater.
	ChangeAll(ctx context.Context, changes []Change) []error
	// BatchSize returns the best number of changes for one call of ChangeAll.
	BatchSize() int
}

// ZoneLister is a DNS that may know all zones of the account.
type ZoneLister interface {
	// ZonesKnown reports whether the client knows all zones, so that Zone needs no call.
	ZonesKnown(ctx context.Context) (bool, error)
}

// ZoneIdentifier is a DNS whose zones have ids.
type ZoneIdentifier interface {
	// ZoneID returns the id of a zone. Two keys reach the same zone of one name exactly if the ids
	// are equal; "" means unknown.
	ZoneID(ctx context.Context, zone string) (string, error)
}

// DelegationReader is a DNS that takes records below a delegation, which no resolver sees.
type DelegationReader interface {
	// Delegated returns the name of the NS records that delegate a part of the zone with domain in it
	// to other servers, "" if there are none.
	Delegated(ctx context.Context, zone, domain string) (at string, err error)
}

// ErrNotListed is wrapped in the error of ReadAll if the zone can only be read name by name.
var ErrNotListed = msg.Errorf("the provider does not list the zone for this key")
