package lease

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

const (
	changePause = 5 * time.Second // the least time between two changes of one part of a lease
	maxChanges  = 4               // of a lease in changePause
)

// clock is the time that a lease has left. It is in memory only, so that no time passes while the
// program is down.
type clock struct {
	seq     int64 // of the lease
	index   int   // in the queue
	ttl     time.Duration
	ends    time.Time          // zero before the first renewal
	told    map[part]time.Time // when a renewal told the endpoints of a part last; replaced as a whole
	changes []*change          // the last ones, the oldest first; replaced as a whole
	live    bool               // endpoints are published
	ending  bool               // a transaction that ends the lease runs
	gone    bool               // the usage is released, so the end says nothing about the way from the node
	held    time.Time          // since when the end is held back; zero: it is not

	leftOut []reconcile.LeftOut // of the endpoints, as read at looked
	looked  time.Time
}

// change is one of the endpoints of a lease.
type change struct {
	at    time.Time
	parts []part // none for all
}

// clocks has the clocks of the leases by their seqs. A lease without endpoints whose last change is
// long ago has none.
type clocks struct {
	mu      sync.Mutex
	all     map[int64]*clock
	queue   queue       // of all
	live    int         // those with endpoints
	recent  []time.Time // of the ends in the last endWindow
	held    time.Time   // when leases were held back last
	looked  time.Time   // when those that are held back were looked at last
	untold  int         // leases that were held back, whose event is not stored yet
	renewed time.Time   // the last renewal of a lease that is not held

	refused map[int64]*refusal // the last ones of leases that were not renewed since, maxRefusals at most
}

// refusal is why a lease was not renewed, for its administrator.
type refusal struct {
	At      string `json:"at"`
	Reason  msg.ID `json:"reason"`
	Address string `json:"address"` // the refused one, else that of the client
}

// maxRefusals bounds the refusals in memory. One beyond it makes all others forgotten.
const maxRefusals = 4096

// refuse notes the last refusal of a lease; nil stands for a renewal or a challenge that was granted.
func (c *clocks) refuse(seq int64, last *refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.refused, seq); last == nil {
		return
	}
	if len(c.refused) == maxRefusals {
		clear(c.refused)
	}
	c.refused[seq] = last
}

// lastRefusal returns what refuse has noted.
func (c *clocks) lastRefusal(seq int64) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[seq]
}

// read returns a copy of the clock of a lease, the zero one if there is none.
func (c *clocks) read(seq int64) (copied clock) {
	c.each([]int64{seq}, func(k *clock) { copied = *k })
	return copied
}

// each calls f under the lock with the clock of each lease that has one.
func (c *clocks) each(seqs []int64, f func(*clock)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seq := range seqs {
		if k := c.all[seq]; k != nil {
			f(k)
		}
	}
}

// of returns the clock of a lease, a new one if there is none. The caller holds the lock.
func (c *clocks) of(l Lease) *clock {
	k := c.all[l.Seq]
	if k == nil {
		k = &clock{seq: l.Seq}
		c.add(k)
	}
	k.ttl = l.TTL
	return k
}

// set starts the time of a lease whose endpoints are being stored.
func (c *clocks) set(l Lease, endpoints []string, now time.Time, keep Keep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(l)
	c.put(k, now.Add(k.ttl), len(endpoints) > 0)
	c.note(k, endpoints, now, keep)
}

// extend starts the time of a lease again, unless the lease is ending or has ended.
func (c *clocks) extend(l Lease, now time.Time, keep Keep) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.all[l.Seq]
	if k == nil || !k.live || k.ending {
		return false
	}
	k.ttl = l.TTL
	c.put(k, now.Add(k.ttl), true)
	c.note(k, l.Endpoints, now, keep)
	return true
}

// note notes that a lease was renewed: its end is not held back any more. The caller holds the lock.
func (c *clocks) note(k *clock, endpoints []string, now time.Time, keep Keep) {
	if k.held.IsZero() {
		c.renewed = now
	}
	k.ending, k.gone, k.held = false, false, time.Time{}
	told := map[part]time.Time{}
	for _, text := range endpoints {
		p := partOf(text)
		if told[p] = now; keep.of(p) == Stay {
			told[p] = k.told[p]
		}
	}
	k.told = told
}

// fresh reports whether a renewal has told the endpoints of a part less than the lease's time ago.
func (k clock) fresh(p part, now time.Time) bool { return now.Sub(k.told[p]) < k.ttl }

// change begins a change of some parts of a lease, or returns the time until the next one is allowed. undo
// takes the beginning back if the change fails, and what set has done for it.
func (c *clocks) change(l Lease, changed []part, now time.Time) (wait time.Duration, undo func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(l)
	before := *k
	recent := slices.DeleteFunc(slices.Clone(k.changes), func(d *change) bool { return !d.at.Add(changePause).After(now) })
	for i, d := range recent {
		again := len(changed)*len(d.parts) == 0 || slices.ContainsFunc(changed, func(p part) bool { return slices.Contains(d.parts, p) })
		if again || i <= len(recent)-maxChanges {
			wait = max(wait, d.at.Add(changePause).Sub(now))
		}
	}
	if wait > 0 {
		return wait, nil
	}
	mine := &change{now, changed}
	k.changes = append(recent, mine)
	c.put(k, k.ends, k.live)
	return 0, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.all[l.Seq] != k {
			return // the lease is deleted
		}
		ends, live := k.ends, k.live
		k.changes = slices.DeleteFunc(slices.Clone(k.changes), func(d *change) bool { return d == mine })
		if k.ends.Equal(now.Add(k.ttl)) { // no other renewal has set it since
			ends, live, k.told, k.held = before.ends, before.live, before.told, before.held
		}
		c.put(k, ends, live)
	}
}

// deleted in a notice is the seq of a lease that is deleted, and expired a lease whose endpoints are withdrawn.
type (
	deleted int64
	expired struct {
		seq int64
		at  time.Time
	}
)

// Committed stops the clocks of the leases that a commit has ended.
func (t *Table) Committed(n sqlite.Notice) {
	for _, what := range n {
		switch what := what.(type) {
		case deleted:
			t.clocks.forget(int64(what))
		case expired:
			t.clocks.ended(what.seq, what.at)
		}
	}
}

// forget removes the clock of a lease that is deleted.
func (c *clocks) forget(seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, seq)
	if k := c.all[seq]; k != nil {
		c.remove(k)
	}
}

// ExpiresAt returns the time at which the endpoints of a lease are withdrawn if it is not renewed,
// zero if none are published.
func (t *Table) ExpiresAt(seq int64) time.Time {
	if k := t.clocks.read(seq); k.live {
		return k.ends
	}
	return time.Time{}
}

// LeftOut returns what the formats of the usage leave out of the endpoints of a lease that was just
// renewed. It works that out at most once in changePause, unless the lease has changed.
func (t *Table) LeftOut(ctx context.Context, l Lease, r Renewal) ([]reconcile.LeftOut, error) {
	if len(r.Endpoints) == 0 {
		return nil, nil
	}
	now := t.config.Now()
	k := t.clocks.read(l.Seq)
	if recent := now.Sub(k.looked) < changePause && !k.looked.After(now); recent && !r.Changed {
		return k.leftOut, nil
	}
	all, err := t.config.Ledger.LeftOut(ctx, l.Name, l.UsageID, l.Slot)
	if err == nil {
		t.clocks.each([]int64{l.Seq}, func(k *clock) { k.leftOut, k.looked = all, t.config.Now() })
	}
	return all, err
}

// over returns when the time of the lease is over, or without endpoints when the clock is of no use any more.
func (k *clock) over() time.Time {
	if k.live {
		return k.ends
	}
	if n := len(k.changes); n > 0 {
		return k.changes[n-1].at.Add(changePause)
	}
	return time.Time{}
}

// queue is a heap of clocks, by the times at which they are over.
type queue []*clock

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].over().Before(q[j].over()) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(k any) {
	k.(*clock).index = len(*q)
	*q = append(*q, k.(*clock))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	k := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return k
}

// next returns when the next lease is over, or those that are held back are to be looked at. It looks at each of these, and at
// two others for each. The caller holds the lock, and the queue is not empty.
func (c *clocks) next() time.Time {
	var all []time.Time
	for seen := []int{0}; len(seen) > 0; seen = seen[1:] {
		switch i := seen[0]; {
		case i >= len(c.queue):
		case c.queue[i].held.IsZero():
			all = append(all, c.queue[i].over())
		default:
			all = append(all, c.looked.Add(heldLook))
			seen = append(seen, 2*i+1, 2*i+2)
		}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// until returns the clocks that are over at a time. It looks at no others, except at two for each of them.
func (q queue) until(now time.Time) (all []*clock) {
	for next := []int{0}; len(next) > 0; next = next[1:] {
		if i := next[0]; i < len(q) && !q[i].over().After(now) {
			all = append(all, q[i])
			next = append(next, 2*i+1, 2*i+2)
		}
	}
	return all
}

// add adds a clock. The caller holds the lock, as for put and remove.
func (c *clocks) add(k *clock) {
	c.all[k.seq] = k
	heap.Push(&c.queue, k)
}

// put sets the end of a clock, and moves it in the queue; call it also after changes was set.
func (c *clocks) put(k *clock, ends time.Time, live bool) {
	if k.live {
		c.live--
	}
	if live {
		c.live++
	}
	k.ends, k.live = ends, live
	heap.Fix(&c.queue, k.index)
}

// remove removes a clock.
func (c *clocks) remove(k *clock) {
	c.put(k, k.ends, false)
	heap.Remove(&c.queue, k.index)
	delete(c.all, k.seq)
}
