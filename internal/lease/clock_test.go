package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestNoWalk: a look for leases whose time is over reads only the clocks of these. A nil pointer is one that it must
// not read.
func TestNoWalk(t *testing.T) {
	w := newWorld(t)
	w.slots(5)
	for seq := range int64(1000) {
		w.clocks.all[-seq] = nil
	}
	if got := w.untilNext(); got != 30*time.Second {
		t.Error(got)
	}
	w.pass(time.Minute)
	w.want(`SELECT detail FROM events WHERE kind = 'lease.held'`, `{"count":5}`)
	w.figures()
	w.untilNext()
}

// TestQueue compares the clocks that are over, and the number of those with endpoints, with what a walk through all
// finds, after any sequence of changes.
func TestQueue(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	c := clocks{all: map[int64]*clock{}}
	undos := []func(){}
	for step := range 20000 {
		now = now.Add(time.Duration(dice.IntN(1000)) * time.Millisecond)
		l := Lease{Seq: dice.Int64N(200), Rules: Rules{TTL: time.Duration(60+dice.IntN(3600)) * time.Second}}
		switch dice.IntN(8) {
		case 0, 1:
			if wait, undo := c.change(l, []part{{"a", Family(dice.IntN(2))}}, now); wait == 0 {
				undos = append(undos, undo)
			}
		case 2, 3:
			c.set(l, make([]string, dice.IntN(3)), now, Keep{})
		case 4, 5:
			c.extend(l, now, Keep{})
		case 6:
			c.forget(l.Seq)
		case 7:
			for _, undo := range undos {
				undo()
			}
			undos = nil
		}
		live, over := 0, []int64{}
		for seq, k := range c.all {
			if k.live {
				live++
			}
			if !k.over().After(now) {
				over = append(over, seq)
			}
		}
		got := []int64{}
		for _, k := range c.queue.until(now) {
			got = append(got, k.seq)
		}
		slices.Sort(over)
		slices.Sort(got)
		if !slices.Equal(got, over) || c.live != live || len(c.queue) != len(c.all) {
			t.Fatalf("step %d: over %v, want %v; live %d, want %d; %d of %d clocks", step, got, over, c.live, live, len(c.queue), len(c.all))
		}
		if dice.IntN(50) == 0 {
			c.due(now)
		}
	}
}

// TestQueueReads: the search for what is over reads two more clocks for each that is.
func TestQueueReads(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	c := clocks{all: map[int64]*clock{}}
	for seq := range int64(1000) {
		c.set(Lease{Seq: seq, Rules: Rules{TTL: time.Duration(60+seq) * time.Second}}, make([]string, 1), now, Keep{})
	}
	for i := 3; i < len(c.queue); i++ {
		c.queue[i] = nil
	}
	if over := c.queue.until(now.Add(time.Minute)); len(over) != 1 || over[0].seq != 0 {
		t.Errorf("%d are over, want the first", len(over))
	}
}
