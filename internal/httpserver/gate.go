package httpserver

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxConnections = 512 // memory that strangers may hold
	minConnections = 16

	// What a client is waited for at least before it makes room for another: for its
	// request, to read its answer, for its turn.
	askTime  = 100 * time.Millisecond
	readTime = 20 * time.Millisecond
	turnTime = 5 * time.Second

	lookAgain = 5 * time.Millisecond // whether there is room by now

	// sendBuffer bounds what the kernel takes of an answer that is not read: by itself
	// it would take megabytes, which all would have to be worked out first.
	sendBuffer = 64 << 10

	writePart = 32 << 10         // written in one go
	writeTime = 15 * time.Second // for a client to take so much, at least
	timedFor  = time.Second      // a deadline is good for parts that begin within this time
)

// MaxConnections bounds the connections by the limit of descriptors: three eighths of
// them, for the DNS server has a quarter, and the database and the providers need some.
func MaxConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return minConnections
	}
	return int(max(minConnections, min(maxConnections, uint64(limit.Cur)*3/8)))
}

// gate holds the connections that are open. One that comes always gets in: where
// there is no room, the one goes that has waited longest for its own client. As no
// more than half of them are worked on at a time, there is such a one.
type gate struct {
	max     int // connections; one client has three quarters of them at most
	mu      sync.Mutex
	open    map[*conn]struct{}
	from    map[client]*share
	queue   []*conn   // that wait for their turn, the longest waiting first
	looking bool      // soon, whether a caller has a turn by now
	total   share     // of all clients
	changed time.Time // when a connection came, or a request began or ended
	// crowdedOut counts those that were closed to make room.
	crowdedOut uint64
	stopping   atomic.Bool
}

// client is what one client cannot vary: an IPv4 address, the /64 of an IPv6 host,
// or the user at the other end of a unix socket.
type client struct {
	network netip.Prefix
	user    uint32
}

// share is what a client has of the gate.
type share struct {
	open, working int
	changing      int // of those that work
}

// phase is how far a connection is with its request.
type phase int

const (
	reading phase = iota // the request has not come, not as a whole, or was answered
	working              // on the answer, which may have begun
	waiting              // for others to be answered
)

// conn is a connection. Its state belongs to the gate's lock.
type conn struct {
	net.Conn
	gate    *gate
	client  client
	share   *share // of its client
	phase   phase
	changes bool      // its request is not one that reads only
	since   time.Time // when it came, was answered, or its request began to come
	gone    bool
	turn    chan struct{} // closed when it has come, or the connection is gone
	rested  atomic.Bool   // its answer has gone, and its next request is not in work
	idle    atomic.Bool   // and the next request is waited for, of which nothing has come
	reads   atomic.Bool   // it is being read from, or written to: else it is not the client
	writes  atomic.Bool   // that is waited for
	done    atomic.Bool   // with the answer, but for its end
	sent    atomic.Int64  // when the last part of its answer was begun, Unix nanoseconds; 0: none is yet
	timed   time.Time     // when the deadline of its writes was set
}

func newGate(most int) *gate {
	return &gate{max: most, open: map[*conn]struct{}{}, from: map[client]*share{}, changed: time.Now()}
}

func (g *gate) perClient() int { return g.max * 3 / 4 }

// mayWork bounds the requests that are worked on at a time, of all clients and of
// one: less than their connections, so that there is always one that can go.
func (g *gate) mayWork() (all, one int) { return g.max / 2, g.max / 4 }

// forChanges is how many of some turns requests may have that change something, which may
// all wait for the database: the others are for those that read.
func forChanges(turns int) int { return turns * 3 / 4 }

func clientOf(c net.Conn) (from client) {
	switch c := c.(type) {
	case *net.UnixConn:
		from.user = peerUser(c)
	case *net.TCPConn:
		remote, _ := c.RemoteAddr().(*net.TCPAddr)
		address := remote.AddrPort().Addr().Unmap()
		bits := 64
		if address.Is4() {
			bits = 32
		}
		from.network, _ = address.Prefix(bits)
	}
	return from
}

// admit takes a connection in, once those are closed that have to make room. Each has
// had a moment to say what it wants: so who asks at once is heard, however many come.
func (g *gate) admit(inner net.Conn) *conn {
	c := &conn{Conn: inner, gate: g, client: clientOf(inner)}
	c.idle.Store(true)
	if socket, ok := inner.(interface{ SetWriteBuffer(int) error }); ok {
		socket.SetWriteBuffer(sendBuffer)
	}
	for !g.enter(c) {
		time.Sleep(lookAgain)
	}
	return c
}

// enter lets a connection in, if there is room.
func (g *gate) enter(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.share = g.shareOf(c.client)
	if len(g.open) >= g.max || c.share.open >= g.perClient() {
		o := g.next(c)
		if o == nil {
			return false
		}
		if o.phase == reading && unreadInput(o.Conn) {
			o.since = time.Now() // it is we who are slow
			return false
		}
		g.crowdOut(o)
		g.giveTurns()
		c.share = g.shareOf(c.client) // which goes with the last connection
	}
	c.since = time.Now()
	g.open[c] = struct{}{}
	g.count(c, 1, 0)
	g.changed = c.since
	return true
}

// next is the connection that makes room for another one: of the same client if that
// has its share, else of those that have most.
func (g *gate) next(c *conn) *conn {
	if c.share.open >= g.perClient() {
		return g.worst(func(o *conn) bool { return o.share == c.share })
	}
	most := 0
	for _, s := range g.from {
		most = max(most, s.open)
	}
	if o := g.worst(func(o *conn) bool { return o.share.open == most }); o != nil {
		return o
	}
	return g.worst(func(*conn) bool { return true })
}

// shareOf gives what a client has, which may be nothing.
func (g *gate) shareOf(from client) *share {
	if g.from[from] == nil {
		g.from[from] = &share{}
	}
	return g.from[from]
}

// count keeps what a client has.
func (g *gate) count(c *conn, open, working int) {
	for _, s := range []*share{c.share, &g.total} {
		s.open += open
		s.working += working
		if c.changes {
			s.changing += working
		}
	}
	if c.share.open == 0 {
		delete(g.from, c.client)
	}
}

// worst is of some connections the one that has been sending its request or idle for
// longest, else has not read for longest, else waits for its turn; nil if none may go.
func (g *gate) worst(among func(*conn) bool) *conn {
	var worst *conn
	for c := range g.open {
		if among(c) && c.mayGo() && (worst == nil || c.phase < worst.phase || c.phase == worst.phase && c.silent() > worst.silent()) {
			worst = c
		}
	}
	return worst
}

// silent is for how long a client that is waited for has done nothing.
func (c *conn) silent() time.Duration {
	if c.phase == working {
		return time.Since(time.Unix(0, c.sent.Load()))
	}
	return time.Since(c.since)
}

func (g *gate) crowdOut(c *conn) {
	g.crowdedOut++
	g.remove(c)
	c.Conn.Close()
}

// mayGo reports whether it is the client that is waited for, and no work is lost that
// the client could not see to be lost: its answer, if there is one, has begun.
func (c *conn) mayGo() bool {
	switch c.phase {
	case reading:
		return c.reads.Load() && c.silent() >= askTime
	case waiting:
		return c.silent() >= turnTime
	}
	return c.sent.Load() != 0 && (c.writes.Load() || c.done.Load() && c.reads.Load()) && c.silent() >= readTime
}

// remove forgets a connection.
func (g *gate) remove(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	if c.phase == working {
		g.count(c, 0, -1)
	}
	g.count(c, -1, 0)
	delete(g.open, c)
	g.changed = time.Now()
}

// work waits for the turn of a request that has come, and changes something or does not.
// It reports whether the connection is still open.
func (g *gate) work(c *conn, changes bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.gone || c.phase == working {
		return !c.gone
	}
	c.changes = changes
	c.rested.Store(false)
	if len(g.queue) == 0 && g.hasTurn(c) {
		g.begin(c)
		return true
	}
	c.phase, c.turn = waiting, make(chan struct{})
	g.queue = append(g.queue, c)
	g.giveTurns()
	g.mu.Unlock()
	<-c.turn
	g.mu.Lock()
	return !c.gone
}

// begin has a request worked on.
func (g *gate) begin(c *conn) {
	c.phase = working
	c.sent.Store(0)
	c.done.Store(false)
	g.count(c, 0, 1)
}

// giveTurns goes through those who wait. The caller holds the lock.
func (g *gate) giveTurns() {
	if len(g.queue) == 0 {
		return
	}
	type kind struct {
		share   *share
		changes bool
	}
	stuck := map[kind]bool{}
	g.queue = slices.DeleteFunc(g.queue, func(c *conn) bool {
		k := kind{c.share, c.changes}
		switch {
		case c.gone:
		case stuck[k] || !g.hasTurn(c):
			stuck[k] = true
			return false
		default:
			g.begin(c)
		}
		close(c.turn)
		return true
	})
	if len(g.queue) > 0 && !g.looking { // somebody may have stopped reading by then
		g.looking = true
		time.AfterFunc(lookAgain, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.looking = false
			g.giveTurns()
		})
	}
}

// hasTurn reports whether one more request of a client may be worked on. For it an
// answer is cut whose client does not read.
func (g *gate) hasTurn(c *conn) bool {
	all, one := g.mayWork()
	own := c.share.working >= one
	kind := false // no more of those that change something
	if c.changes {
		own = own || c.share.changing >= forChanges(one)
		kind = c.share.changing >= forChanges(one) || g.total.changing >= forChanges(all)
	}
	if !own && !kind && g.total.working < all {
		return true
	}
	o := g.worst(func(o *conn) bool {
		return o.phase == working && (!own || o.share == c.share) && (!kind || o.changes)
	})
	if o != nil {
		g.crowdOut(o)
	}
	return o != nil
}

// read notes that the rest of a request is waited for, since a time.
func (g *gate) read(c *conn, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.await(c, since)
}

// rest notes that an answer has gone. The next request may have come with the last one: it
// has not when the connection is read from once more.
func (g *gate) rest(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = time.Now()
	g.await(c, g.changed)
	c.rested.Store(true)
}

// await has the client waited for: the next request may have its turn. The caller holds
// the lock.
func (g *gate) await(c *conn, since time.Time) {
	if !c.gone && c.phase == working {
		g.count(c, 0, -1)
		defer g.giveTurns()
	}
	c.phase, c.since = reading, since
}

// heard notes that a request begins to come.
func (g *gate) heard(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.since = time.Now()
	g.changed = c.since
}

func (g *gate) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(c)
	g.giveTurns()
}

// quiet tells how many connections are open, and for how long none has come, spoken
// or been answered; 0 while one is about to.
func (g *gate) quiet() (open int, since time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		if !c.idle.Load() {
			return len(g.open), 0
		}
	}
	return len(g.open), time.Since(g.changed)
}

// dismiss closes the connections that are idle, and tells how many are left.
func (g *gate) dismiss() (open int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		if c.idle.Load() {
			g.remove(c)
			c.Conn.Close()
		}
	}
	g.giveTurns()
	return len(g.open)
}

func (c *conn) Read(p []byte) (n int, err error) {
	if c.rested.CompareAndSwap(true, false) {
		c.idle.Store(true)
	}
	c.reads.Store(true)
	n, err = c.Conn.Read(p)
	c.reads.Store(false)
	if n > 0 && c.idle.CompareAndSwap(true, false) {
		c.gate.heard(c)
	}
	return n, err
}

// Write gives a client time for each part of an answer, not for the whole.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(n+writePart, len(p))]
		now := time.Now()
		c.sent.Store(now.UnixNano())
		if now.Sub(c.timed) >= timedFor { // setting it for each part would cost more than the part
			c.timed = now
			c.Conn.SetWriteDeadline(now.Add(writeTime + timedFor))
		}
		c.writes.Store(true)
		written, err := c.Conn.Write(part)
		c.writes.Store(false)
		n += written
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

func (c *conn) Close() error {
	c.gate.leave(c)
	return c.Conn.Close()
}
