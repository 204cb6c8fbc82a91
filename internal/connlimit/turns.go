package connlimit

import (
	"slices"
	"time"
)

// Work waits for the turn of a request that has arrived. changes is true for a request that may
// change something. Work returns false if the connection was closed during the wait.
func (c *Conn) Work(changes bool) bool {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.phase == closed || c.phase == working || c.phase == yielded {
		return c.phase != closed
	}
	c.changes, c.turn = changes, nil
	c.become(waiting, time.Now())
	l.queue = append(l.queue, c)
	l.giveTurns()
	if c.phase == waiting {
		c.turn = make(chan struct{})
		l.mu.Unlock()
		<-c.turn
		l.mu.Lock()
	}
	return c.phase == working
}

// Yield ends the turn of a request in work, because it begins to wait for other work; it needs no turn
// for its answer. Yield returns false, and the request keeps its turn, while too many requests have yielded.
func (c *Conn) Yield() bool {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.Requests / 2
	if c.phase != working || l.Requests > 0 && (l.total.yielded >= most || c.share.yielded >= most*3/4) {
		return c.phase == yielded
	}
	c.become(yielded, time.Now())
	l.giveTurns()
	return true
}

// giveTurns ends the wait of requests that get a turn now, the oldest
// first, and of closed connections. The caller holds the lock.
func (l *Limiter) giveTurns() {
	type kind struct {
		share   *share
		changes bool
	}
	var stuck map[kind]bool
	l.queue = slices.DeleteFunc(l.queue, func(c *Conn) bool {
		k := kind{c.share, c.changes}
		switch {
		case c.phase == closed:
		case stuck[k] || !l.hasTurn(c):
			if stuck == nil {
				stuck = map[kind]bool{}
			}
			stuck[k] = true
			return false
		default:
			c.become(working, time.Now())
		}
		if c.turn != nil {
			close(c.turn)
		}
		return true
	})
	if len(l.queue) == 0 || l.looking {
		return
	}
	l.looking = true
	time.AfterFunc(writeGrace, func() { // a client may have stopped reading by then
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looking = false
		l.giveTurns()
	})
}

// forChanges returns the share of turns for requests that change something. All
// of these may wait for the database; the other turns are for requests that only read.
func forChanges(turns int) int { return turns * 3 / 4 }

// hasTurn reports whether one more request of a client may be worked on. If there is no turn, it closes a
// connection whose client does not read its answer, and takes that turn. The caller
// holds the lock.
func (l *Limiter) hasTurn(c *Conn) bool {
	if l.Requests == 0 {
		return true
	}
	perClient := l.Requests / 2
	own := c.share.working >= perClient // the client has its turns
	kind := false                       // requests that change something have theirs
	if c.changes {
		own = own || c.share.changing >= forChanges(perClient)
		kind = c.share.changing >= forChanges(perClient) || l.total.changing >= forChanges(l.Requests)
	}
	if !own && !kind && l.total.working < l.Requests {
		return true
	}
	slow, _ := l.firstToGo(func(o *Conn) bool {
		return o.phase == working && (!own || o.share == c.share) && (!kind || o.changes)
	})
	if slow == nil {
		return false
	}
	l.crowdOut(slow)
	return true
}
