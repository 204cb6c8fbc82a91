// Package acme answers the calls by which a node gets a certificate for the name of its lease: it puts the challenge
// dns-01 of an ACME authority (RFC 8555, section 8.4) there. The calls are those of acme-dns and of lego's provider httpreq,
// so clients of both work as they are.
package acme

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"meshddns/internal/lease"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
)

const (
	patience = 30 * time.Second // of a request
	apart    = time.Second      // between two changes of a lease
	places   = 4                // of a lease, for requests that wait
)

// Config has the parts of Calls.
type Config struct {
	Leases *lease.Table
	Expect func(name string) *reconcile.Waiter
	// Taken waits until the secondaries of a built-in zone have its present version, and reports whether they have.
	Taken func(ctx context.Context, zone string) bool
}

// Calls returns the calls by the patterns of their routes.
func Calls(c Config) map[string]lease.Door {
	s := &calls{Config: c, next: map[int64]time.Time{}, waiting: map[int64]int{}}
	return map[string]lease.Door{"POST /update": s.update, "POST /present": s.present, "POST /cleanup": s.cleanup}
}

type calls struct {
	Config
	mu      sync.Mutex
	next    map[int64]time.Time // by the seqs of leases: when the next change may begin; what is past counts as none
	waiting map[int64]int       // by the seqs of leases: requests that wait
}

// update is the call of acme-dns.
func (s *calls) update(r *http.Request, l lease.Lease) (web.Reply, error) {
	var body struct {
		Text string `json:"txt"`
	}
	if err := web.Decode(r, &body); err != nil {
		return web.Reply{}, err
	}
	return s.put(r, l, body.Text, true, map[string]string{"txt": body.Text})
}

// present is lego's call to put a challenge.
func (s *calls) present(r *http.Request, l lease.Lease) (web.Reply, error) {
	value, err := decode(r, l)
	if err != nil {
		return web.Reply{}, err
	}
	return s.put(r, l, value, false, struct{}{})
}

// cleanup is lego's call to withdraw a challenge. It does not wait.
func (s *calls) cleanup(r *http.Request, l lease.Lease) (web.Reply, error) {
	value, err := decode(r, l)
	if err != nil {
		return web.Reply{}, err
	}
	reply := web.Reply{Data: struct{}{}, Bare: true, ID: l.ID}
	dropped, err := s.Leases.DropChallenge(r.Context(), l, value)
	if !dropped {
		reply.Audit = web.NotAudited
	}
	return reply, err
}

// decode reads the body of a call of lego, whose name has to be the lease's.
func decode(r *http.Request, l lease.Lease) (value string, err error) {
	var body struct {
		Name  string `json:"fqdn"`
		Value string `json:"value"`
	}
	if err := web.Decode(r, &body); err != nil {
		return "", err
	}
	switch own := l.ChallengeName(); {
	case !l.ACME:
		return "", lease.ErrNotPermitted
	case body.Name == "":
		return "", web.Fail(msg.ACMERaw)
	case !strings.EqualFold(strings.TrimSuffix(body.Name, "."), own):
		return "", web.Fail(msg.ACMEName, own)
	}
	return body.Value, check(body.Value)
}

const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" // of base64url (RFC 4648, section 5)

// check refuses what is no SHA-256 in base64url, because a node may publish nothing else at its name.
func check(value string) error {
	return msg.RefuseIf(len(value) != 43 || strings.Trim(value, digits) != "", msg.ACMEValue)
}

// put puts a challenge, and answers with data when the authority sees it. Each request takes a turn, also one that asks again.
func (s *calls) put(r *http.Request, l lease.Lease, value string, updated bool, data any) (reply web.Reply, err error) {
	reply = web.Reply{Data: data, Bare: true, ID: l.ID}
	switch err := check(value); {
	case !l.ACME:
		return reply, lease.ErrNotPermitted
	case l.Releasing:
		return reply, lease.ErrReleased
	case err != nil:
		return reply, err
	}
	if !s.waits(l.Seq, 1) {
		return reply, web.TooManyWaiting()
	}
	defer s.waits(l.Seq, -1)
	ctx, cancel, err := web.Wait(r, patience)
	if err != nil {
		return reply, err
	}
	defer cancel()
	if err := s.turn(ctx, l.Seq); err != nil {
		return reply, err
	}
	may, err := s.Leases.Challenge(r.Context(), l, "")
	if err = errors.Join(err, refusal(may)); err != nil {
		return reply, err
	}
	waiter := s.Expect(l.Name)
	defer waiter.Close()
	version, err := s.Leases.PutChallenge(r.Context(), l, value, updated)
	if err != nil {
		return reply, err
	}
	return reply, s.stands(ctx, l, waiter, value, version)
}

// waits counts requests of a lease that wait, and reports whether there is a place: all leases share those of the listener.
func (s *calls) waits(seq int64, more int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[seq]+more > places {
		return false
	}
	if s.waiting[seq] += more; s.waiting[seq] == 0 {
		delete(s.waiting, seq)
	}
	return true
}

// turn waits for the time at which a lease may change something again, or refuses a request for which that is too late.
func (s *calls) turn(ctx context.Context, seq int64) error {
	end, _ := ctx.Deadline()
	s.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(s.next, func(_ int64, at time.Time) bool { return at.Before(now) })
	at, waits := s.next[seq]
	if !waits {
		at = now
	}
	if at.Before(end) {
		s.next[seq] = at.Add(apart)
	}
	s.mu.Unlock()
	if !at.Before(end) {
		return web.TooManyWaiting()
	}
	select {
	case <-time.After(at.Sub(now)):
		return nil
	case <-ctx.Done(): // the program stops
		return web.TooManyWaiting()
	}
}

// stands waits until the authority sees a challenge. One that never stands as things are is dropped.
func (s *calls) stands(ctx context.Context, l lease.Lease, waiter *reconcile.Waiter, value string, version int64) error {
	lasting := context.WithoutCancel(ctx) // the last look comes after the end of ctx
	for {
		c, err := s.Leases.Challenge(lasting, l, value)
		fault := refusal(c)
		switch {
		case err != nil:
			return err
		case fault != nil:
			_, err = s.Leases.DropChallenge(lasting, l, value)
			return errors.Join(err, fault)
		case c.Stands:
			for _, zone := range c.Zones {
				if !s.Taken(ctx, zone) {
					return web.Fail(msg.ACMEUnseen, msg.Phrase{ID: msg.SecondaryLags})
				}
			}
			return nil
		case c.Gone:
			return web.Fail(msg.ACMEUnseen, msg.Phrase{ID: msg.Withdrawn})
		case ctx.Err() != nil:
			return web.Fail(msg.ACMEUnseen, msg.Phrase{ID: cmp.Or(msg.ID(c.Fault.Code), msg.InWork)})
		}
		waiter.Wait(ctx, version)
	}
}

// refusal returns the refusal of a challenge that a person has to make possible first, nil for any other. A node is not told
// the details, such as the network that has the name.
func refusal(c reconcile.Challenge) error {
	switch id := msg.ID(c.Fault.Code); id {
	case msg.Paused, msg.Conflict, msg.InvalidName, msg.NameNotAllowed:
		return web.Fail(id)
	}
	return nil
}
