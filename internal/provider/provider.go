// Package provider holds the clients of DNS providers, one file a provider.
//
// A client reads the TXT values at one name and changes single values there;
// every value that a change does not name stays as it is. The promises are
// written at the interface DNS, and one test suite holds every client to them.
package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// Credentials are what a client is made from.
type Credentials struct {
	AccessKeyID     string
	AccessKeySecret secrets.Secret
	Endpoint        string // where the provider answers, if not at the vendor's own address
}

// TXT is one value of a TXT RRset: its character-strings in order, each of at
// most 255 octets. The cut into strings is part of the value.
type TXT []string

// Text gives the value as readers see it, the character-strings joined.
func (t TXT) Text() string { return strings.Join(t, "") }

// Equal reports whether two values are the same octets with the same cut.
func (t TXT) Equal(u TXT) bool { return slices.Equal(t, u) }

// RRset is what stands at a name: its TXT values, in no order, and their TTL
// in seconds (0 without values).
type RRset struct {
	TTL    uint32
	Values []TXT
	Off    []TXT    // values in records that are disabled, or for some resolvers only: no change touches them
	Copies []TXT    // those of Values that stand in more than one record
	Alias  msg.Text // in ReadAll: where a CNAME at the name points, if there is one
}

// Change adds and removes single TXT values at one name. Names are in
// presentation form without the final dot.
type Change struct {
	Zone   string // as Zone gave it
	Name   string
	Seen   RRset // as Read gave it: the change fails with Changed if it is no longer so, where the provider can tell
	Add    []TXT
	Remove []TXT
	Copies []TXT  // values of which one record stays and the others go
	TTL    uint32 // of the values to add, in seconds
}

// Authority is who answers for a zone to the public.
type Authority struct {
	Server string   // host:port to ask; "" for those that the zone is delegated to
	Names  []string // the servers that the provider has for the zone, where it tells
}

// WriteTime bounds a write that has begun: several calls, and the wait until
// the provider shows what it has taken.
const WriteTime = 20 * time.Second

// WriteContext is for a write: once begun it is finished, also when the
// caller goes meanwhile, so that the program need not guess whether it was made. The
// caller's deadline holds.
func WriteContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Now().Add(WriteTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), limit)
}

// Kind sorts the failures of a provider by what helps against them.
type Kind string

const (
	Network        Kind = "network"        // not reached, or no answer in time
	Temporary      Kind = "temporary"      // the provider had a fault of its own (5xx, SERVFAIL)
	Throttled      Kind = "throttled"      // too many requests; see RetryAfter
	BadCredentials Kind = "credentials"    // unknown key, or a signature that does not verify
	Permission     Kind = "permission"     // the key is known and may not do this
	ClockSkew      Kind = "clock_skew"     // this host's clock differs too much from the provider's
	ZoneNotFound   Kind = "zone_not_found" // the provider does not serve the zone for this key
	Conflict       Kind = "conflict"       // what stands at the name excludes the change (a CNAME)
	Changed        Kind = "changed"        // another writer was faster: read again
	Invalid        Kind = "invalid"        // the provider does not take this value, name or setting
	Quota          Kind = "quota"          // no more records or requests in this plan
	BadAnswer      Kind = "bad_answer"     // the answer cannot be understood, or its signature is wrong
)

// Error is a failure of a provider.
type Error struct {
	Kind       Kind
	Detail     msg.Text      // for the operator: what was asked of whom, and the vendor's own code and words
	RetryAfter time.Duration // with Throttled, where the vendor says it
	Err        error

	// Unmade is set when the change was certainly not made: nothing was sent, or the
	// provider has refused this very change in an answer that can be read, and no earlier
	// attempt of the same call may have been made. When it is not set, nothing is known.
	Unmade bool

	status int // of the answer in HTTP, if it was that which failed
}

func (e *Error) Error() string { return e.Message().String() }

// Message gives the kind, the detail and the cause in both languages.
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

// Transient reports whether the same call may succeed when it is made again.
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

// unmade gives the failure of a change of which nothing was sent.
func unmade(err error) error { return marked(err, true) }

// unsure gives the failure of a change of which an earlier attempt may have been made.
func unsure(err error) error { return marked(err, false) }

func marked(err error, unmade bool) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Unmade == unmade {
		return err
	}
	copied := *e // which others may have, too
	if copied.Unmade = unmade; err != error(e) {
		copied.Detail, copied.Err = "", err
	}
	return &copied
}

// stale is the reason not to make a change.
const stale = "the records at the name are no longer those seen"

// staleAt gives the reason with the name.
func staleAt(name string) msg.Text { return msg.Textf("%s: %s", name, msg.Say(stale)) }

// ErrUnseen is in the failure of a change that the provider has taken, and has
// not shown in the time of a write.
var ErrUnseen = msg.Errorf("the provider has taken the change and does not show it yet")

// KindOf gives the kind of a failure, BadAnswer for one without a kind, and
// none without a failure.
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
