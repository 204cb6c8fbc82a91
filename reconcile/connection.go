package reconcile

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/dnsname"
	"meshddns/meshtxt"
	"meshddns/provider"
)

// clientLife bounds how long a client is used: zones come and go.
const clientLife = time.Minute

// connection is a client of an account with what it has found. It lives for a
// minute at most: zones come and go.
type connection struct {
	client  provider.DNS
	refusal error // why there is no client
	opened  time.Time
	mu      sync.Mutex
	domains map[string]found  // zones of domains
	failed  atomic.Int64      // searches for zones of domains
	failure error             // of the last of them
	lists   map[string]*list  // of zones, by apex
	pairs   map[zonePair]bool // whether a zone is another connection's too
}

type found struct {
	apex string
	err  error
}

// list is a whole zone as it was read, but for what concerns nobody here. Names that
// were changed since are read anew.
type list struct {
	sets    map[string]provider.RRset
	changed map[string]bool
	refused bool // there is none: names are read one by one
	err     error
}

func connect(open func(Account) (provider.DNS, error), account Account, now time.Time) *connection {
	c := &connection{opened: now, domains: map[string]found{}, lists: map[string]*list{}, pairs: map[zonePair]bool{}}
	if client, err := open(account); err != nil {
		c.refusal = err
	} else {
		c.client = client
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

// domain gives the zone of a domain, asked for once. Who has waited for a search
// that failed has its failure.
func (c *connection) domain(ctx context.Context, domain string) found {
	failed := c.failed.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.domains[domain]
	switch {
	case ok:
		return f
	case c.failed.Load() != failed:
		return found{err: c.failure}
	}
	f.apex, f.err = c.client.Zone(ctx, domain)
	f.apex = dnsname.Fold(f.apex)
	if f.err != nil {
		c.failure = f.err
		c.failed.Add(1)
		return f
	}
	c.domains[domain] = f
	return f
}

// concerns is what of a zone is kept: all names that are reserved or may be, and our
// values wherever else they are.
func concerns(name string, value provider.TXT) bool {
	_, mesh := meshtxt.Owner(value.Text())
	return mesh || strings.HasPrefix(name, meshtxt.Label+".")
}

// list gives the list of a zone: the one that is at hand, if it need not be made
// anew. It is nil without an error where the provider has none.
func (c *connection) list(ctx context.Context, client provider.ZoneReader, apex string, anew bool) (*list, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lists[apex]
	if l == nil || anew && !l.refused {
		sets, err := client.ReadAll(ctx, apex, concerns)
		l = &list{sets: sets, changed: map[string]bool{}, refused: err != nil}
		if !errors.Is(err, provider.ErrNotListed) { // which is no failure
			l.err = err
		}
		c.lists[apex] = l
	}
	if l.refused {
		return nil, l.err
	}
	return l, nil
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
	if l := c.lists[apex]; l != nil {
		l.changed[name] = true
	}
}
