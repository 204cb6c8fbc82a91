package nameserver

import (
	"bufio"
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"meshddns/dnswire"
)

const (
	idleTimeout    = 10 * time.Second // RFC 7766, section 6.2.3: a few seconds; also for one whole message to come in
	crowdedTimeout = 2 * time.Second  // the same while half of the places are taken
	writeTimeout   = 10 * time.Second // for a client that asks and does not read
	maxConnections = 512              // memory and descriptors that strangers may hold
	maxFromOne     = maxConnections / 8
	acceptPause    = 50 * time.Millisecond
)

// connections are those that are open. When there is no room for another, the
// longest idle one goes: of the same client if that has its share, else of the
// clients that have most. So nobody keeps others out by being many (RFC 9210,
// section 4.2), and a client that asks at once is never the one to go.
type connections struct {
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
	if all.from[c.from] >= maxFromOne {
		all.removeIdlest(func(other *connection) bool { return other.from == c.from })
	}
	if all.open.Len() >= maxConnections {
		most := 0
		for _, n := range all.from {
			most = max(most, n)
		}
		all.removeIdlest(func(other *connection) bool { return all.from[other.from] == most })
	}
}

func (all *connections) crowded() bool { return all.open.Len() >= maxConnections/2 }

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
	defer cancel() // when accepting fails, the connections end too
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
// client closes, is idle, sends what is no query, or ctx ends.
func (s *Server) serveConn(ctx context.Context, c *connection) {
	defer s.connections.leave(c)
	defer context.AfterFunc(ctx, func() { c.SetReadDeadline(longAgo) })()
	in := bufio.NewReaderSize(c, 1024)
	var answer []byte
	for {
		c.SetReadDeadline(time.Now().Add(s.connections.idleTime()))
		if ctx.Err() != nil { // looked at after the deadline is set, which may undo the one that ctx set
			return
		}
		query, err := dnswire.ReadTCP(in)
		if err != nil {
			return
		}
		s.connections.heardFrom(c)
		asking := asker{address: c.client, limit: dnswire.MaxMessage, at: time.Now()}
		answer = s.answer(ctx, answer[:0], query, asking)
		if len(answer) > 0 {
			c.SetWriteDeadline(asking.at.Add(writeTimeout))
			err = dnswire.WriteTCP(c, answer)
		}
		s.tcp.count(answer, asking.at)
		if len(answer) == 0 || err != nil {
			return
		}
	}
}

// pause waits a little: a lack of descriptors lasts until some connection ends.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(acceptPause):
	}
}
