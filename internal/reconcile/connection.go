package reconcile

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// clientLife bounds how long a client is used: zones come and go.
const clientLife = time.Minute

// listPatience is how long a list of a whole zone may bring nothing before it is given up: a
// firewall may swallow transfers. A list that goes on takes as long as it needs.
const listPatience = 10 * time.Second

var errSilent = msg.Errorf("nothing came for 10s")

// connection is a client of an account with what it has found. It lives for a
// minute at most: zones come and go. Its lock is held for no call: goroutines that need the
// same of one zone share a call, and goroutines that work on other zones wait for none.
type connection struct {
	client  provider.DNS
	refusal error // why there is no client
	opened  time.Time
	mu      sync.Mutex
	domains map[string]*found // zones of domains
	lists   map[string]*list  // of zones, by apex
	reading map[string]*list  // those that are being read
	pairs   sync.Map          // by zonePair: whether a zone is another connection's too
}

// found is a search for the zone of a domain, and its result once done is closed.
type found struct {
	done  chan struct{}
	apex  string
	err   error
	ended bool // by the caller's context: it says nothing to others
}

// list is a whole zone as it was read, except what concerns no name of ours. Names that
// were changed since its reading began are read anew.
type list struct {
	done    chan struct{} // closed when it is read
	sets    map[string]provider.RRset
	changed map[string]bool
	refused bool // there is none: names are read one by one
	err     error
}

func connect(open func(Account) (provider.DNS, error), account Account, now time.Time) *connection {
	c := &connection{opened: now, domains: map[string]*found{}, lists: map[string]*list{}, reading: map[string]*list{}}
	if c.client, c.refusal = open(account); c.refusal != nil {
		c.client = nil
	}
	return c
}

// batchSize is how many names are worked on together.
func (c *connection) batchSize() int {
	if many, ok := c.client.(provider.BatchChanger); ok {
		return many.BatchSize()
	}
	return singleNames
}

// knowsZones reports whether to ask for the zone of a name costs nothing.
func (c *connection) knowsZones(ctx context.Context) (bool, error) {
	lister, ok := c.client.(provider.ZoneLister)
	if !ok {
		return false, nil
	}
	return lister.ZonesKnown(ctx)
}

// domain gives the zone of a domain, asked for once. A caller that has waited for a
// search that failed has its failure.
func (c *connection) domain(ctx context.Context, domain string) *found {
	for {
		c.mu.Lock()
		f := c.domains[domain]
		if f == nil {
			f = &found{done: make(chan struct{}), err: msg.Errorf("the search for the zone has ended")}
			c.domains[domain] = f
			c.mu.Unlock()
			c.find(ctx, f, domain)
			return f
		}
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return &found{err: ctx.Err()}
		}
		if !f.ended {
			return f
		}
	}
}

// find searches for the zone of a domain. A failure is not kept.
func (c *connection) find(ctx context.Context, f *found, domain string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.err != nil {
			delete(c.domains, domain)
		}
		close(f.done)
	}()
	f.apex, f.err = c.client.Zone(ctx, domain)
	f.apex = dnsname.Fold(f.apex)
	f.ended = f.err != nil && ctx.Err() != nil
}

// concerns is what of a zone is kept: all names that are reserved or may be, and our
// values wherever else they are.
func concerns(name string, value provider.TXT) bool {
	_, ours := mesh.Owner(value.Text())
	return ours || strings.HasPrefix(name, mesh.Label+".")
}

// list gives the list of a zone: the one that is at hand, if it need not be made
// anew. It is nil without an error where the provider has none.
func (c *connection) list(ctx context.Context, client provider.ZoneReader, apex string, anew bool) (*list, error) {
	for {
		c.mu.Lock()
		l, reading := c.lists[apex], c.reading[apex]
		usable := l != nil && (l.refused || !anew)
		if !usable && reading == nil {
			l = &list{done: make(chan struct{}), changed: map[string]bool{}, refused: true, err: msg.Errorf("the list of the zone has ended")}
			c.reading[apex] = l
			c.mu.Unlock()
			c.read(ctx, client, l, apex)
			usable = true
		} else {
			c.mu.Unlock()
		}
		switch {
		case usable && l.refused:
			return nil, l.err
		case usable:
			return l, nil
		}
		select {
		case <-reading.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads a list. One that the caller's context has ended is not kept.
func (c *connection) read(ctx context.Context, client provider.ZoneReader, l *list, apex string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ctx.Err() == nil || !l.refused {
			c.lists[apex] = l
		}
		delete(c.reading, apex)
		close(l.done)
	}()
	sets, err := readAll(ctx, client, apex)
	l.sets, l.refused, l.err = sets, err != nil, err
	if errors.Is(err, provider.ErrNotListed) { // which is no failure
		l.err = nil
	}
}

// readAll lists a zone as long as something of it comes.
func readAll(ctx context.Context, client provider.ZoneReader, apex string) (map[string]provider.RRset, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(listPatience, func() { cancel(errSilent) })
	defer watch.Stop()
	sets, err := client.ReadAll(ctx, apex, func(name string, value provider.TXT) bool {
		watch.Reset(listPatience)
		return concerns(name, value)
	})
	if err != nil && context.Cause(ctx) == errSilent {
		err = &provider.Error{Kind: provider.Network, Detail: msg.Textf("list zone %s", apex), Err: errSilent}
	}
	return sets, err
}

// listed gives what a list says of a name, if it has kept all of it, and the name has not
// been changed since.
func (c *connection) listed(l *list, name string) (set provider.RRset, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return provider.Listed(l.sets, name), !l.changed[name] && concerns(dnsname.Fold(name), nil)
}

// unchanged gives what a list says of the names that were not changed since.
func (c *connection) unchanged(l *list) map[string]provider.RRset {
	c.mu.Lock()
	defer c.mu.Unlock()
	sets := maps.Clone(l.sets)
	maps.DeleteFunc(sets, func(name string, _ provider.RRset) bool { return l.changed[name] })
	return sets
}

// outdate makes a name be read anew that is about to change.
func (c *connection) outdate(apex, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range []*list{c.lists[apex], c.reading[apex]} {
		if l != nil {
			l.changed[name] = true
		}
	}
}
