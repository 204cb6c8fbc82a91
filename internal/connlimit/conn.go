package connlimit

import (
	"io"
	"net"
	"slices"
	"time"
)

// state is how far a connection is with its request.
type state int

const (
	idle    state = iota // the server reads, and nothing of the next request has come
	resting              // the server does not read yet: the next request may have come with the last one
	reading              // a part of the request has come
	ending               // the server has sent all, and answers nothing any more
	waiting              // the request has come, and waits for its turn
	working              // the server works on the request
	closed
)

// Conn is a connection within the limits. The server tells it about each request: Work when
// the request has come, Rest when it is answered. A server that reads a part of a request
// only after Work calls Await before, and Work again after it.
type Conn struct {
	net.Conn
	limiter *Limiter
	origin  origin

	// The lock of the Limiter guards these.
	share   *share
	state   state
	since   time.Time     // when the state began
	reads   bool          // a read goes on
	writing time.Time     // when the write that goes on began; zero: there is none
	changes bool          // the request changes something
	turn    chan struct{} // closed at the end of waiting
}

// become changes the state. The caller holds the lock.
func (c *Conn) become(next state, since time.Time) {
	l := c.limiter
	if c.state == working {
		l.count(c, 0, -1)
	}
	if next == working {
		l.count(c, 0, 1)
	}
	c.state, c.since, l.last = next, since, time.Now()
	l.changed.Broadcast()
}

// Await notes that the server reads the rest of a request, whose first part came at a time.
func (c *Conn) Await(since time.Time) { c.workEnds(reading, since) }

// Rest notes that a request is answered. It reports whether the server should wait for
// another one: not when Drain ends the connections.
func (c *Conn) Rest() bool { return c.workEnds(resting, time.Now()) }

func (c *Conn) workEnds(next state, since time.Time) (goesOn bool) {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != closed {
		c.become(next, since)
		l.giveTurns()
	}
	return !l.ending
}

// Read reads what the client sends. Once the Limiter has ended the connection, Read discards
// what still comes, because a connection that is closed with input unread is reset, and
// takes the last answers with it.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.listens()
	n, err = c.Conn.Read(p)
	if ended := c.heard(n); ended && n > 0 {
		io.Copy(io.Discard, c.Conn)
		return 0, io.EOF
	}
	return n, err
}

func (c *Conn) listens() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.reads = true
	if c.state == resting {
		c.state = idle
	}
	c.limiter.changed.Broadcast()
}

// heard notes the end of a read, and reports whether the Limiter has ended the connection.
func (c *Conn) heard(n int) (ended bool) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.reads = false
	if n > 0 && (c.state == idle || c.state == resting) {
		c.become(reading, time.Now())
	}
	return c.state == ending
}

// writePart is what the client has WriteTime for.
const writePart = 32 << 10

// Write returns the client the same time for each part of an answer.
func (c *Conn) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, writePart) {
		now := time.Now()
		c.writes(now)
		c.SetWriteDeadline(now.Add(c.limiter.WriteTime))
		written, err := c.Conn.Write(part)
		c.writes(time.Time{})
		n += written
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (c *Conn) writes(since time.Time) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.writing = since
	c.limiter.changed.Broadcast()
}

// End closes a connection so that its client still reads all that was sent.
func (c *Conn) End() {
	c.limiter.mu.Lock()
	if c.state != closed {
		c.end()
	}
	c.limiter.mu.Unlock()
	c.Read(make([]byte, 1)) // discards what comes until the client closes its side, too
	c.Close()
}

// lingerTime is for a client to close its side of a connection that the server has ended.
const lingerTime = 200 * time.Millisecond

// end tells the client that nothing more comes, and lets the server read for lingerTime. The
// caller holds the lock.
func (c *Conn) end() {
	c.become(ending, time.Now())
	if half, ok := c.Conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		c.Conn.Close()
	}
	c.SetReadDeadline(time.Now().Add(lingerTime))
}

// Close closes the connection at once.
func (c *Conn) Close() error {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
	l.giveTurns()
	return nil
}
