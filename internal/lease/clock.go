package lease

import (
	"sync"
	"time"
)

// changePause is the least time between two changes of one lease.
const changePause = 5 * time.Second

// clock is the time that a lease has left. It is in memory only, so that no time passes while the
// program is down.
type clock struct {
	ttl     time.Duration
	ends    time.Time // zero before the first renewal
	changed time.Time // when the endpoints changed last, as far as is known
	live    bool      // endpoints are published
	ending  bool      // a transaction that ends the lease runs
	gone    bool      // the usage is released, so the end says nothing about the way from the node
	held    time.Time // since when the end is held back; zero: it is not
}

// clocks has the clocks of the leases by their seqs. A lease without endpoints whose last change is
// long ago has none.
type clocks struct {
	mu      sync.Mutex
	all     map[int64]*clock
	recent  []time.Time // of the ends in the last endWindow
	untold  int         // leases that were held back, whose event is not stored yet
	renewed time.Time   // the last renewal of a lease that is not held
}

// of returns the clock of a lease, a new one if there is none. The caller holds the lock.
func (c *clocks) of(l Lease) *clock {
	k := c.all[l.Seq]
	if k == nil {
		k = &clock{ttl: l.TTL}
		c.all[l.Seq] = k
	}
	return k
}

// set starts the time of a lease whose endpoints are being stored; live is false if there are none.
func (c *clocks) set(l Lease, now time.Time, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(l)
	k.ends, k.live = now.Add(k.ttl), live
	c.note(k, now)
}

// extend starts the time of a lease again, unless the lease is ending or has ended.
func (c *clocks) extend(l Lease, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.all[l.Seq]
	if k == nil || !k.live || k.ending {
		return false
	}
	k.ends = now.Add(k.ttl)
	c.note(k, now)
	return true
}

// note notes that a lease was renewed: its end is not held back any more. The caller holds the lock.
func (c *clocks) note(k *clock, now time.Time) {
	if k.held.IsZero() {
		c.renewed = now
	}
	k.ending, k.gone, k.held = false, false, time.Time{}
}

// change begins a change of a lease, or returns the time until the next one is allowed. undo takes the
// beginning back if the change fails, and what set has done for it.
func (c *clocks) change(l Lease, now time.Time) (wait time.Duration, undo func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(l)
	before := *k
	if wait = k.changed.Add(changePause).Sub(now); !k.changed.IsZero() && wait > 0 {
		return wait, nil
	}
	k.changed = now
	return 0, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if k.changed.Equal(now) {
			k.changed = before.changed
		}
		if k.ends.Equal(now.Add(k.ttl)) { // no other renewal has set it since
			k.ends, k.live, k.held = before.ends, before.live, before.held
		}
	}
}

// forget removes the clock of a lease that is deleted.
func (c *clocks) forget(seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, seq)
}

// ExpiresAt returns the time at which the endpoints of a lease are withdrawn if it is not renewed,
// zero if none are published.
func (t *Table) ExpiresAt(seq int64) time.Time {
	t.clocks.mu.Lock()
	defer t.clocks.mu.Unlock()
	if k := t.clocks.all[seq]; k != nil && k.live {
		return k.ends
	}
	return time.Time{}
}
