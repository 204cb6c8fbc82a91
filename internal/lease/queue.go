package lease

import (
	"container/heap"
	"slices"
	"time"
)

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
