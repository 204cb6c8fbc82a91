package reconcile

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// clientLife bounds the use of a client, because zones come and go.
const clientLife = time.Minute

// listPatience is how long a list of a whole zone may bring no data before it is given up:
// a firewall may swallow transfers. A list that brings data takes as long as it needs.
const listPatience = 10 * time.Second

var errSilent = msg.Errorf("nothing came for 10s")

// connection is a client of an account with the zones and lists that it has found. It lives
// for clientLife. It makes no call under its lock: goroutines that need the same data of a
// zone share one call, and others do not wait for it.
type connection struct {
	client   provider.DNS
	refusal  error // why there is no client
	opened   time.Time
	zoneless atomic.Bool // a zone in which a value stood was not found, which the client remembers
	mu       sync.Mutex
	domains  map[string]*found // zones of domains
	lists    map[string]*list  // of zones, by apex, once they are read
	reading  map[string]*list  // lists that are being read, by apex
	pairs    sync.Map          // by zonePair: whether both connections reach one zone
}

// found is a search for the zone of a domain. Its result is set when done is closed.
type found struct {
	done  chan struct{}
	apex  string
	err   error
	ended bool // the caller's context ended it, so other callers search again
}

// list is a list of a whole zone, reduced to the names and values that concern this
// program. A name that was changed since the reading began is in changed, and is read
// again.
type list struct {
	done    chan struct{} // closed when it is read
	sets    map[string]provider.RRset
	changed map[string]bool
	refused bool // there is no list: names are read one by one
	err     error
}

// connect opens a client of an account. A panic in it is that account's refusal.
func connect(open func(Account) (provider.DNS, error), account Account, now time.Time) *connection {
	c := &connection{opened: now, domains: map[string]*found{}, lists: map[string]*list{}, reading: map[string]*list{}}
	c.refusal = daemon.Call(func() (err error) {
		c.client, err = open(account)
		return err
	})
	if c.refusal != nil {
		c.client = nil
	}
	return c
}

// batchSize returns the number of names of a batch.
func (c *connection) batchSize() int {
	if many, ok := c.client.(provider.BatchChanger); ok {
		return many.BatchSize()
	}
	return singleNames
}

// knowsZones reports whether the client finds the zone of a name without a call.
func (c *connection) knowsZones(ctx context.Context) (bool, error) {
	lister, ok := c.client.(provider.ZoneLister)
	if !ok {
		return false, nil
	}
	return lister.ZonesKnown(ctx)
}

// domain finds the zone of a domain once. A caller that waits for another caller's search
// gets its result, also a failure.
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

// find searches for the zone of a domain. It does not keep a failure.
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
	f.apex = dns.Fold(f.apex)
	f.ended = f.err != nil && ctx.Err() != nil
}

// concerns reports whether a list keeps a value: at each name that can be reserved it keeps
// all values, at other names values in this program's format.
func concerns(name string, value provider.Value) bool {
	_, ours := mesh.Owner(value.Text())
	return ours || strings.HasPrefix(name, mesh.Label+".")
}

// list returns the list of a zone: a stored one, unless anew is set. It returns nil without
// an error if the provider lists no zones.
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

// read reads a list. It does not keep a list that the end of ctx has cut.
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
	if errors.Is(err, provider.ErrNotListed) { // not a failure
		l.err = nil
	}
}

// readAll lists a zone. It fails when no data comes for listPatience.
func readAll(ctx context.Context, client provider.ZoneReader, apex string) (map[string]provider.RRset, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(listPatience, func() { cancel(errSilent) })
	defer watch.Stop()
	sets, err := client.ReadAll(ctx, apex, func(name string, value provider.Value) bool {
		watch.Reset(listPatience)
		return concerns(name, value)
	})
	if err != nil && context.Cause(ctx) == errSilent {
		err = &provider.Error{Kind: provider.Network, Detail: msg.Textf("list zone %s", apex), Err: errSilent}
	}
	return sets, err
}

// listed returns a name's set from a list; ok is false if the list does not keep all values
// of the name, or the name was changed since.
func (c *connection) listed(l *list, name string) (set provider.RRset, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return provider.Listed(l.sets, name), !l.changed[name] && concerns(dns.Fold(name), nil)
}

// unchanged returns the sets of the names that were not changed since the list was read.
func (c *connection) unchanged(l *list) map[string]provider.RRset {
	c.mu.Lock()
	defer c.mu.Unlock()
	sets := maps.Clone(l.sets)
	maps.DeleteFunc(sets, func(name string, _ provider.RRset) bool { return l.changed[name] })
	return sets
}

// outdate marks a name that is about to change in the lists of a zone, so it is read again.
func (c *connection) outdate(apex, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range []*list{c.lists[apex], c.reading[apex]} {
		if l != nil {
			l.changed[name] = true
		}
	}
}
