package provider

import (
	"context"

	"meshddns/internal/msg"
)

// DNS reads and changes the TXT values at one name of a provider's zones.
// Names are in presentation form without the final dot, and letter case means
// nothing in them. Calls may overlap. Every error is, or wraps, an *Error or
// the context's.
type DNS interface {
	// Zone gives the apex of the longest zone of the account that contains
	// name. It changes nothing, and fails when the credentials are refused. It
	// is ZoneNotFound only when an accepted key has no such zone.
	Zone(ctx context.Context, name string) (zone string, err error)

	// Read gives the TXT values at name; none is no error. A CNAME there is
	// a Conflict, here or, where only a write tells, in Change.
	Read(ctx context.Context, zone, name string) (RRset, error)

	// Change adds and removes single values and leaves all others at the
	// name as they are; a new value is in place before an old one goes. To
	// add what is there or to remove what is not is no error. Where the
	// provider can compare and swap, a change of the values since they were
	// seen is Changed, and nothing is done. A change that adds and removes
	// nothing shows, where the provider can tell, that the key may write.
	// After an error the change may have been made, wholly or in part, unless
	// the error is Unmade.
	Change(ctx context.Context, change Change) error

	// Authority says who answers for the zone to the public.
	Authority(ctx context.Context, zone string) (Authority, error)
}

// ZoneReader is a DNS that gives a whole zone in few calls.
type ZoneReader interface {
	// ReadAll gives what stands at the names of the zone that have TXT values
	// or an alias, by folded name, as far as it is wanted. A list that is not whole
	// is an error. It is ErrNotListed where this key may not list, or the list is
	// too long; single reads may work then.
	ReadAll(ctx context.Context, zone string, wanted Wanted) (map[string]RRset, error)
}

// Wanted says what of a zone is of use, which may have a million names of others: all
// that stands at a name where it says so of the name and nil, else those values of which
// it says so. nil wants everything.
type Wanted func(name string, value TXT) bool

// BatchReader is a DNS that gives some names of a zone in one call.
type BatchReader interface {
	// ReadNames gives what stands at those of the names that have TXT values.
	ReadNames(ctx context.Context, zone string, names []string) (map[string]RRset, error)
}

// BatchChanger is a DNS that makes many changes of one zone in few calls.
type BatchChanger interface {
	// ChangeAll makes changes of different names of one zone, each as Change
	// would, and gives the error of each in their order. One that fails does
	// not keep the others from being made. Where a change is tried again after
	// an attempt of which the outcome is unknown, no later refusal is Unmade.
	ChangeAll(ctx context.Context, changes []Change) []error
	// BatchSize is how many changes are best made by one call of ChangeAll.
	BatchSize() int
}

// ZoneLister is a DNS that may know all zones of the account, so that Zone costs
// nothing more.
type ZoneLister interface {
	ZonesKnown(ctx context.Context) (bool, error)
}

// ZoneIdentifier is a DNS whose zones have ids: two keys that reach a zone of
// one name reach the same zone exactly when the ids are equal. "" tells nothing.
type ZoneIdentifier interface {
	ZoneID(ctx context.Context, zone string) (string, error)
}

// ErrNotListed is in the failure of ReadAll where the zone can be read name by
// name only.
var ErrNotListed = msg.Errorf("the provider does not list the zone for this key")
