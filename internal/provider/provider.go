// Package provider has the clients of DNS providers, one file for each provider.
//
// A client reads the values of one type at one name and changes single values there. Every value that a
// change does not name stays unchanged, and so does every value of another type. The interface DNS documents these guarantees, and one test
// suite checks them for every client.
package provider

import (
	"context"
	"errors"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// Credentials are the settings of a client.
type Credentials struct {
	AccessKeyID     string
	AccessKeySecret secrets.Secret
	Endpoint        string // address of the provider's API; empty means the vendor's own
}

// RRset is the values of one type at a name, in no order, and their TTL in seconds (0 without values).
type RRset struct {
	TTL    uint32
	Values []Value
	Off    []Value  // values of records that are disabled or for some resolvers only; no change touches them
	Copies []Value  // those of Values that are in more than one record
	Alias  msg.Text // only in ReadAll: the target of a CNAME at the name
}

// Change adds and removes single values of one type at one name. Names are in presentation form without
// the final dot.
type Change struct {
	Zone   string // as Zone returned it
	Name   string
	Type   Type
	Seen   RRset // as Read returned it; if the provider can tell that it has changed, the change fails with Changed
	Add    []Value
	Remove []Value
	Copies []Value // values that keep one record and lose all others
	TTL    uint32  // of the values to add, in seconds
}

// Authority is the authoritative servers that the public asks for a zone.
type Authority struct {
	Server  string   // host:port to ask; "" for the servers that the zone is delegated to
	Names   []string // the provider's servers for the zone, if the provider tells
	Warning error    // the reason why some of them do not get a change, nil for none
}

// WriteTime limits a write: several calls, and the wait until the provider shows the change.
const WriteTime = 20 * time.Second

// WriteContext returns a context for a write. The end of ctx does not cancel a write that has begun,
// so that its outcome is known. WriteTime and the deadline of ctx limit the write.
func WriteContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Now().Add(WriteTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), limit)
}

// late reports whether less than a share of WriteTime is left of ctx. ChangeAll begins no more calls then,
// so that those under way end in time, and the look that confirms them.
func late(ctx context.Context, share time.Duration) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < share
}

// Kind sorts the failures of a provider by their remedy.
type Kind string

const (
	Network        Kind = "network"        // no connection, or no answer in time
	Temporary      Kind = "temporary"      // a fault of the provider (5xx, SERVFAIL)
	Throttled      Kind = "throttled"      // too many requests; see RetryAfter
	BadCredentials Kind = "credentials"    // unknown key, or wrong signature
	Permission     Kind = "permission"     // a valid key without the right to do this
	ClockSkew      Kind = "clock_skew"     // this host's clock differs too much from the provider's
	ZoneNotFound   Kind = "zone_not_found" // the provider does not serve the zone for this key
	Conflict       Kind = "conflict"       // a record at the name excludes the change, such as a CNAME
	Changed        Kind = "changed"        // another writer was faster: read again
	Invalid        Kind = "invalid"        // the provider refuses this value, name or setting
	Quota          Kind = "quota"          // the plan allows no more records or requests
	BadAnswer      Kind = "bad_answer"     // the answer is unreadable, or its signature is wrong

	// NameNotAllowed means that the server takes no such name for the owner of an address or the target of a service.
	NameNotAllowed Kind = "name_not_allowed"

	// SerialStands is the kind of a warning: no change moves the zone's serial, so secondaries do not transfer the zone.
	SerialStands Kind = "serial_stands"

	// UnsupportedType means that the client has no records of this type. It made no call.
	UnsupportedType Kind = "unsupported_record_type"
)

// Error is a failure of a provider.
type Error struct {
	Kind       Kind
	Detail     msg.Text      // for the operator: the call, the host, and the vendor's code and words
	RetryAfter time.Duration // with Throttled, if the vendor sets it
	Err        error

	// Unmade means that the change was certainly not made: nothing was sent, or the provider
	// refused this change in a readable answer and no earlier attempt of the same call can have
	// succeeded. If Unmade is false, the outcome is unknown.
	Unmade bool

	status int  // HTTP status, if an answer was the failure
	hidden bool // values may stand at the name, and no read shows them
}

func (e *Error) Error() string { return e.Message().String() }

// Message returns the kind, the detail and the cause in both languages.
func (e *Error) Message() msg.Text {
	text := msg.Say(string(e.Kind))
	if e.Detail != "" {
		text = msg.Textf("%s: %s", text, e.Detail)
	}
	if e.Err != nil {
		text = msg.Textf("%s: %w", text, e.Err)
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether a retry of the same call may succeed.
func (e *Error) Transient() bool {
	switch e.Kind {
	case Network, Temporary, Throttled, Changed:
		return true
	}
	return false
}

// Unmade reports whether a change that failed with err was certainly not made.
func Unmade(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Unmade
}

// unmade marks the error of a change of which nothing was sent.
func unmade(err error) error { return marked(err, true) }

// unsure marks the error of a change of which an earlier attempt may have been made.
func unsure(err error) error { return marked(err, false) }

// ErrRepeated is the result of a change that ChangeAll made by a retry, after an attempt with an unknown
// outcome. The change stands, and the earlier attempt may still arrive.
var ErrRepeated = msg.Errorf("the change was made by a retry, and an earlier attempt may still arrive")

// repeated returns the result of a retry of a change of which an earlier attempt may have been made.
func repeated(err error) error {
	if err == nil {
		return ErrRepeated
	}
	return unsure(err)
}

// ErrLater is wrapped in the error of a change that ChangeAll did not begin, because its time was used up.
var ErrLater = msg.Errorf("the time of this batch is used up")

// errLater is Unmade, unless an attempt was made before.
var errLater = &Error{Kind: Temporary, Err: ErrLater, Unmade: true}

func marked(err error, unmade bool) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Unmade == unmade {
		return err
	}
	copied := *e // other goroutines may share e
	if copied.Unmade = unmade; err != error(e) {
		copied.Detail, copied.Err = "", err
	}
	return &copied
}

// Delegated returns the error of a name below a delegation, at which no resolver sees the provider's records.
func Delegated(at string) *Error {
	return &Error{Kind: Conflict, Detail: msg.Textf("NS records at %s delegate the name to other servers", at), hidden: true}
}

// Hidden reports whether values may stand at the name of a failed read, which shows none of them.
func Hidden(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.hidden
}

// stale is the reason of Changed.
const stale = "the records at the name are no longer those seen"

// staleAt returns the reason with the name.
func staleAt(name string) msg.Text { return msg.Textf("%s: %s", name, msg.Say(stale)) }

// ErrUnseen is wrapped in the error of a change that the provider accepted, and did not show within
// the time of a write.
var ErrUnseen = msg.Errorf("the provider has taken the change and does not show it yet")

// KindOf returns the kind of an error, BadAnswer for an error without a kind, and "" for nil.
func KindOf(err error) Kind {
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok:
		return e.Kind
	case err == nil:
		return ""
	}
	return BadAnswer
}
