// Package connlimit shares a limited number of connections, and of requests in work, among
// the clients of a server, so that slow or greedy clients cannot keep other clients out.
//
// A Limiter admits every new connection. If there is no room, it closes another one: a
// connection of the same client if that client has used its share, otherwise one of the
// client with the most connections. Of these it closes the one whose client has been silent
// for longest. A connection with a request in work stays open, unless its client does not
// read the answer.
package connlimit

import (
	"cmp"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// A client keeps its connection at least writeGrace while it does not read, and at least
	// turnGrace while its request waits for a turn.
	writeGrace = 20 * time.Millisecond
	turnGrace  = 5 * time.Second

	// sendBuffer bounds the octets of an unread answer in the kernel. Without it the
	// kernel buffers megabytes, and the server would have to produce them.
	sendBuffer = 64 << 10

	minPlaces, maxPlaces = 16, 512
)

// Places returns the number of connections that a server may have open: the given eighths of
// this process's descriptors, at least 16, and at most 512 to bound the memory.
func Places(eighths uint64) int {
	var limit syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // stays zero if it fails
	return int(max(minPlaces, min(maxPlaces, uint64(limit.Cur)/8*eighths)))
}

// Config has the limits of a Limiter.
type Config struct {
	Connections int // most open connections
	PerClient   int // most open connections of one client
	// Requests is the number of turns: most requests in work, at most half of Connections. One client may
	// have half of them. Half as many further requests may wait for other work, three quarters of these of
	// one client. 0: no limit.
	Requests int
	// Grace is the least time that a silent client keeps its connection. A
	// new connection without room waits until the grace of another one is over.
	Grace time.Duration
	// CrowdedIdle is the longest silence of a client while half of Connections are open; 0: no limit.
	CrowdedIdle time.Duration
	WriteTime   time.Duration // for a client to take 32 KiB of an answer
}

// Limiter keeps the open connections of a server within its limits.
type Limiter struct {
	Config
	mu      sync.Mutex
	changed sync.Cond // a connection has changed its phase
	open    map[*Conn]struct{}
	shares  map[origin]*share
	total   share     // of all clients
	queue   []*Conn   // connections whose requests wait for a turn, the oldest first
	looking bool      // a timer will call giveTurns
	last    time.Time // when a connection came or left, or a request began or ended
	ending  bool      // Drain closes the connections that are idle
	// crowdedOut counts the connections that were closed to make room.
	crowdedOut uint64
}

// New returns a Limiter without connections.
func New(c Config) *Limiter {
	l := &Limiter{Config: c, open: map[*Conn]struct{}{}, shares: map[origin]*share{}, last: time.Now()}
	l.changed.L = &l.mu
	return l
}

// origin identifies a client by what it cannot vary: an IPv4 address, the /64
// of an IPv6 address, or the user at the other end of a unix socket.
type origin struct {
	network netip.Prefix
	user    uint32
}

func originOf(c net.Conn) (from origin) {
	if unix, ok := c.(*net.UnixConn); ok {
		from.user, _, _ = Peer(unix)
	} else if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		from.network = Network(remote.AddrPort().Addr().Unmap(), 32, 64)
	}
	return from
}

// Network returns the network of an address, with the prefix length for its family.
func Network(address netip.Addr, bits4, bits6 int) netip.Prefix {
	bits := bits6
	if address.Is4() {
		bits = bits4
	}
	network, _ := address.Prefix(bits)
	return network
}

// share is the part of the limits that one client uses.
type share struct {
	open, working int
	changing      int // of working, the requests that change something
	yielded       int // requests that wait for other work
}

// shareOf returns the share of a client, which may be empty. The caller holds the lock.
func (l *Limiter) shareOf(from origin) *share {
	if l.shares[from] == nil {
		l.shares[from] = &share{}
	}
	return l.shares[from]
}

// count adds n connections in a phase to the share of a client. The caller holds the lock.
func (l *Limiter) count(c *Conn, in phase, n int) {
	for _, s := range []*share{c.share, &l.total} {
		switch {
		case in == yielded:
			s.yielded += n
		case in == working && c.changes:
			s.changing += n
			fallthrough
		case in == working:
			s.working += n
		}
	}
}

// countOpen adds n open connections to the share of a client. The caller holds the lock.
func (l *Limiter) countOpen(c *Conn, n int) {
	c.share.open += n
	l.total.open += n
	if c.share.open == 0 {
		delete(l.shares, c.origin)
	}
}

// Counts returns the numbers of open connections, of requests in work (also of those that
// wait for other work), and of connections that were closed to make room.
func (l *Limiter) Counts() (open, working int, crowdedOut uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total.open, l.total.working + l.total.yielded, l.crowdedOut
}

// Crowded reports whether half of Connections are open.
func (l *Limiter) Crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crowded()
}

func (l *Limiter) crowded() bool { return l.total.open >= l.Connections/2 }

// Admit adds a connection. If there is no room, it closes another one, and waits
// until one may be closed.
func (l *Limiter) Admit(inner net.Conn) *Conn {
	c := &Conn{Conn: inner, limiter: l, origin: originOf(inner), phase: resting}
	if socket, ok := inner.(interface{ SetWriteBuffer(int) error }); ok {
		socket.SetWriteBuffer(sendBuffer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeSilent()
	for {
		next, ok := l.makeRoom(c)
		if ok {
			break
		}
		l.wait(next)
	}
	l.giveTurns()
	c.since = time.Now()
	c.share = l.shareOf(c.origin)
	l.open[c] = struct{}{}
	l.countOpen(c, 1)
	l.last = c.since
	return c
}

// closeSilent closes connections that have been silent for CrowdedIdle, until
// the Limiter is not crowded. The caller holds the lock.
func (l *Limiter) closeSilent() {
	for l.CrowdedIdle > 0 && l.crowded() {
		c, _ := l.firstToGo(func(c *Conn) bool { return time.Since(c.since) >= l.CrowdedIdle })
		if c == nil {
			return
		}
		l.crowdOut(c)
	}
}

// makeRoom makes room for a connection. If no connection may be closed yet, it returns false
// and the time when one may, or the zero time if that depends on the requests in work. The
// caller holds the lock.
func (l *Limiter) makeRoom(c *Conn) (next time.Time, ok bool) {
	for {
		own := l.shareOf(c.origin)
		hasShare := own.open >= l.PerClient
		if !hasShare && l.total.open < l.Connections {
			return next, true
		}
		other, next := l.firstToGo(func(o *Conn) bool { return !hasShare || o.share == own })
		switch {
		case other == nil:
			return next, false
		case l.Grace > 0 && other.writing.IsZero() && other.phase <= reading && unread(other.Conn):
			other.since = time.Now() // the server is slow, not the client
		default:
			l.crowdOut(other)
		}
	}
}

// firstToGo returns the connection to close first of those that among accepts, or nil and the time
// when one may be closed. The caller holds the lock.
func (l *Limiter) firstToGo(among func(*Conn) bool) (first *Conn, next time.Time) {
	now := time.Now()
	for c := range l.open {
		_, from, ok := c.yields()
		switch {
		case !ok || !among(c):
		case from.After(now):
			if next.IsZero() || from.Before(next) {
				next = from
			}
		case first == nil || c.goesBefore(first):
			first = c
		}
	}
	return first, next
}

// yields returns the time from which the connection may be closed to make room. Of one
// client's connections the Limiter closes those of a lower rank first. It returns false for
// a connection that must stay open because its client waits for the server.
func (c *Conn) yields() (rank int, from time.Time, ok bool) {
	switch {
	case !c.writing.IsZero():
		return 1, c.writing.Add(writeGrace), true
	case c.phase == waiting:
		return 2, c.since.Add(turnGrace), true
	case c.phase == working || c.phase == yielded || !c.reads:
		// Without a limit of requests all connections may have one in work.
		return 3, c.since, c.limiter.Requests == 0
	}
	return 0, c.since.Add(c.limiter.Grace), true
}

func (c *Conn) goesBefore(other *Conn) bool {
	rank, from, _ := c.yields()
	otherRank, otherFrom, _ := other.yields()
	return cmp.Or(cmp.Compare(other.share.open, c.share.open), cmp.Compare(rank, otherRank), from.Compare(otherFrom)) < 0
}

// wait returns after a change, or at next. The caller holds the lock.
func (l *Limiter) wait(next time.Time) {
	if !next.IsZero() {
		defer time.AfterFunc(time.Until(next), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed.Broadcast()
		}).Stop()
	}
	l.changed.Wait()
}

// crowdOut closes a connection to make room. The caller holds the lock.
func (l *Limiter) crowdOut(c *Conn) {
	l.crowdedOut++
	l.remove(c)
}

// remove closes a connection and forgets it. The caller holds the lock.
func (l *Limiter) remove(c *Conn) {
	if c.phase == closed {
		return
	}
	c.become(closed, time.Now())
	l.countOpen(c, -1)
	delete(l.open, c)
	c.Conn.Close()
}

// Rate bounds how often each network may cause something. Each entry is the time at which the next
// one would be due if all so far had come at the allowed rate.
type Rate struct {
	interval time.Duration // between two at the allowed rate; 0: no limit
	seed     maphash.Seed
	begun    time.Time
	due      []atomic.Int64 // since begun
}

// NewRate returns a Rate of so many a second for one network; 0: no limit. The number of entries
// bounds the memory. More networks share entries, chosen by a hash whose seed clients do not know.
func NewRate(perSecond, entries int) *Rate {
	l := &Rate{seed: maphash.MakeSeed(), begun: time.Now(), due: make([]atomic.Int64, entries)}
	if perSecond > 0 {
		l.interval = time.Second / time.Duration(perSecond)
	}
	return l
}

// Allow counts one of a network, or reports false if it is above the limit. A network may have those
// of one second in a burst.
func (l *Rate) Allow(network netip.Prefix, at time.Time) bool {
	if l.interval == 0 {
		return true
	}
	due := &l.due[maphash.Comparable(l.seed, network)%uint64(len(l.due))]
	now := int64(at.Sub(l.begun))
	for {
		old := due.Load()
		if old-now > int64(time.Second-l.interval) {
			return false
		}
		if due.CompareAndSwap(old, max(old, now)+int64(l.interval)) {
			return true
		}
	}
}
