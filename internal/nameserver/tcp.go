package nameserver

import (
	"bufio"
	"cmp"
	"container/list"
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"meshddns/internal/dnswire"
)

const (
	idleTimeout    = 10 * time.Second // RFC 7766, section 6.2.3: a few seconds; also for one whole message to come in
	crowdedTimeout = 2 * time.Second  // the same while half of the places are taken
	writeTimeout   = 10 * time.Second // for a client that asks and does not read
	maxConnections = 512              // memory and descriptors that strangers may hold
	sharers        = 8                // one client may have an eighth of them
	acceptPause    = 50 * time.Millisecond

	// When the server is being stopped a connection is listened to for so long: one
	// that has asked nothing yet, or goes on asking, and one that has become silent.
	lastTime    = time.Second
	silenceTime = 200 * time.Millisecond

	// descriptorShare is the part of the descriptors that connections may have.
	descriptorShare = 4
	minConnections  = 16
)

// connectionsFor bounds the connections where descriptors are few.
func connectionsFor(descriptors uint64) int {
	return int(max(minConnections, min(maxConnections, descriptors/descriptorShare)))
}

// descriptors is how many this process may have open.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}

// connections are those that are open. When there is no room for another, the
// longest idle one goes: of the same client if that has its share, else of the
// clients that have most. So nobody keeps others out by being many (RFC 9210,
// section 4.2), and a client that asks at once is never the one to go.
type connections struct {
	most int // 0: maxConnections
	mu   sync.Mutex
	open list.List // of *connection, the longest idle first
	from map[netip.Prefix]int
	// crowdedOut counts those that were closed to make room.
	crowdedOut uint64
}

type connection struct {
	net.Conn
	client netip.Addr
	from   netip.Prefix // what one client cannot vary: an IPv4 address, or the /64 of an IPv6 host
	heard  time.Time    // when it was opened or the last query came
	place  *list.Element

	asked   atomic.Bool
	stopped time.Time // when it was seen that the server is being stopped
}

// admit takes a connection in and closes those that have to make room.
func (all *connections) admit(conn net.Conn) *connection {
	c := &connection{Conn: conn, heard: time.Now()}
	if remote, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		c.client = remote.AddrPort().Addr().Unmap()
		c.from = network(c.client, 32, 64)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.makeRoom(c)
	if all.from == nil {
		all.from = map[netip.Prefix]int{}
	}
	all.from[c.from]++
	c.place = all.open.PushBack(c)
	return c
}

func (all *connections) makeRoom(c *connection) {
	for all.crowded() && c.heard.Sub(all.open.Front().Value.(*connection).heard) >= crowdedTimeout {
		all.remove(all.open.Front().Value.(*connection))
		all.crowdedOut++
	}
	if all.from[c.from] >= all.room()/sharers {
		all.removeIdlest(func(other *connection) bool { return other.from == c.from })
	}
	if all.open.Len() >= all.room() {
		most := 0
		for _, n := range all.from {
			most = max(most, n)
		}
		all.removeIdlest(func(other *connection) bool { return all.from[other.from] == most })
	}
}

func (all *connections) room() int { return cmp.Or(all.most, maxConnections) }

func (all *connections) crowded() bool { return all.open.Len() >= all.room()/2 }

func (all *connections) removeIdlest(among func(*connection) bool) {
	for at := all.open.Front(); at != nil; at = at.Next() {
		if c := at.Value.(*connection); among(c) {
			all.remove(c)
			all.crowdedOut++
			return
		}
	}
}

// remove closes a connection, which ends what serves it.
func (all *connections) remove(c *connection) {
	if c.place == nil {
		return
	}
	all.open.Remove(c.place)
	c.place = nil
	if all.from[c.from]--; all.from[c.from] == 0 {
		delete(all.from, c.from)
	}
	c.Close()
}

// heardFrom notes that a query has come.
func (all *connections) heardFrom(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	c.heard = time.Now()
	if c.place != nil {
		all.open.MoveToBack(c.place)
	}
}

// idleTime is how long a connection may wait for its next query.
func (all *connections) idleTime() time.Duration {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.crowded() {
		return crowdedTimeout
	}
	return idleTimeout
}

func (all *connections) count() (open, crowdedOut uint64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	return uint64(all.open.Len()), all.crowdedOut
}

func (all *connections) leave(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(c)
}

// network is the part of an address that its first bits are, by family.
func network(address netip.Addr, bits4, bits6 int) netip.Prefix {
	bits := bits6
	if address.Is4() {
		bits = bits4
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

// serveTCP accepts connections and returns when all of them are closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	connCtx, cancel := context.WithCancel(ctx)
	defer cancel()         // when accepting fails, the connections end too
	defer listener.Close() // who comes now is refused, or waits for the next program
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !transient(err) {
				return err
			}
			pause(ctx)
			continue
		}
		c := s.connections.admit(conn)
		open.Go(func() { s.serveConn(connCtx, c) })
	}
}

// serveConn answers the messages of one connection in their order until the
// client closes, is idle, sends what is no query, or ctx has ended and it is silent.
func (s *Server) serveConn(ctx context.Context, c *connection) {
	defer s.connections.leave(c)
	defer context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now().Add(c.lastWait())) })()
	in := bufio.NewReaderSize(c, 1024)
	var answer []byte
	for s.awaited(ctx, c, in) {
		query, err := dnswire.ReadTCP(in)
		if err != nil {
			break
		}
		s.connections.heardFrom(c)
		c.asked.Store(true)
		asking := asker{address: c.client, limit: dnswire.MaxMessage, at: time.Now()}
		answer = s.answerSafely(ctx, answer[:0], query, asking)
		if len(answer) > 0 {
			c.SetWriteDeadline(asking.at.Add(writeTimeout))
			err = dnswire.WriteTCP(c, answer)
		}
		s.tcp.count(answer, asking.at)
		if len(answer) == 0 || err != nil {
			return
		}
	}
	if ctx.Err() != nil {
		c.sayGoodbye()
	}
}

// awaited sets the time for the next query, and reports whether there may be one.
func (s *Server) awaited(ctx context.Context, c *connection, in *bufio.Reader) bool {
	c.SetReadDeadline(time.Now().Add(s.connections.idleTime()))
	if ctx.Err() == nil {
		return true
	}
	// Looked at after the deadline is set, which may undo the one that the end of ctx set.
	if c.stopped.IsZero() {
		c.stopped = time.Now()
	}
	c.SetReadDeadline(time.Now().Add(c.lastWait()))
	return in.Buffered() > 0 || time.Since(c.stopped) < lastTime
}

// lastWait is the time for a query when the server is being stopped.
func (c *connection) lastWait() time.Duration {
	if c.asked.Load() {
		return silenceTime
	}
	return lastTime
}

// sayGoodbye closes so that the client still gets what was sent: a connection that is
// closed with queries unread is reset, and takes the answers with it.
func (c *connection) sayGoodbye() {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	tcp.SetReadDeadline(time.Now().Add(silenceTime))
	io.Copy(io.Discard, tcp)
}

// pause waits a little: a lack of descriptors lasts until some connection ends.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(acceptPause):
	}
}
