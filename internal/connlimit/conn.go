package connlimit

import (
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// phase is how far a connection's current request is.
type phase int

const (
	idle    phase = iota // the server reads, and no octet of the next request has arrived
	resting              // the server does not read yet; a pipelined request may have arrived
	reading              // a part of the request has arrived
	ending               // the server has sent all answers and answers no more requests
	waiting              // the request has arrived and waits for its turn
	working              // the server works on the request
	yielded              // the request waits for other work, and is answered without a turn
	closed
)

// Conn is a connection within the limits of a Limiter. The server calls Work when a request
// has arrived and Rest when it is answered. A server that reads a part of a request
// after Work calls Await before that, and Work again after it. While a request waits for other
// work, it has no turn: the server calls Yield.
type Conn struct {
	net.Conn
	limiter *Limiter
	origin  origin

	// The lock of the Limiter guards these.
	share   *share
	phase   phase
	since   time.Time     // when the phase began
	reads   bool          // a Read is running
	writing time.Time     // when the running Write began; zero: none
	changes bool          // the request changes something
	turn    chan struct{} // closed when waiting ends
}

// become changes the phase. The caller holds the lock.
func (c *Conn) become(next phase, since time.Time) {
	l := c.limiter
	l.count(c, c.phase, -1)
	l.count(c, next, 1)
	c.phase, c.since, l.last = next, since, time.Now()
	l.changed.Broadcast()
}

// Await records that the server reads the rest of a request, whose first part arrived at since.
func (c *Conn) Await(since time.Time) { c.workEnds(reading, since) }

// Rest records that a request is answered. It reports whether the server should wait for
// another one; during Drain it should not.
func (c *Conn) Rest() bool { return c.workEnds(resting, time.Now()) }

func (c *Conn) workEnds(next phase, since time.Time) (goesOn bool) {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.phase != closed {
		c.become(next, since)
		l.giveTurns()
	}
	return !l.ending
}

// Read reads from the client. After the Limiter has ended the connection, Read discards
// input until the client closes, because closing a socket with unread input sends a reset, which
// discards the last answers.
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
	if c.phase == resting {
		c.phase = idle
	}
	c.limiter.changed.Broadcast()
}

// heard records the end of a read, and reports whether the Limiter has ended the connection.
func (c *Conn) heard(n int) (ended bool) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.reads = false
	if n > 0 && (c.phase == idle || c.phase == resting) {
		c.become(reading, time.Now())
	}
	return c.phase == ending
}

// writePart is the number of octets that the client must read within WriteTime.
const writePart = 32 << 10

// Write writes p in parts, each with the deadline WriteTime.
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

// End closes a connection after the client had time to read all that was sent.
func (c *Conn) End() {
	c.limiter.mu.Lock()
	if c.phase != closed {
		c.end()
	}
	c.limiter.mu.Unlock()
	c.Read(make([]byte, 1)) // discards input until the client closes its side
	c.Close()
}

// lingerTime bounds the wait for the client to close its side.
const lingerTime = 200 * time.Millisecond

// end closes the sending side, and lets the server read for lingerTime. The
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

// Peer returns the user and the process that connected to a unix socket, as they were at connect(2) (SO_PEERCRED, unix(7)).
func Peer(c *net.UnixConn) (user uint32, process int32, known bool) {
	control(c, func(fd int) {
		if cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			user, process, known = cred.Uid, cred.Pid, true
		}
	})
	return user, process, known
}

// unread reports whether the socket has input that the server has not read.
func unread(c net.Conn) (is bool) {
	control(c, func(fd int) {
		var octet [1]byte
		n, _, err := syscall.Recvfrom(fd, octet[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = err == nil && n > 0
	})
	return is
}

// control calls f with the descriptor of a connection that has one.
func control(c net.Conn, f func(fd int)) {
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
