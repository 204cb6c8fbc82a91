package nameserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/dns"
)

const (
	idleTimeout    = 10 * time.Second // for one whole message to arrive (RFC 7766, section 6.2.3: a few seconds)
	crowdedTimeout = 2 * time.Second  // the same while half of the places are taken
	writeTimeout   = 10 * time.Second // for a client that does not read its answers
	lastTime       = 2 * time.Second  // for open connections, when the server stops

	// descriptorEighths is the share of the file descriptors for connections, in eighths.
	descriptorEighths = 2
	sharers           = 8 // one client may have an eighth of the connections
)

// newLimiter returns a limiter with a number of places. To make room, it never closes the
// connection of a client that sends its query at once (RFC 9210, section 4.2).
func newLimiter(places int) *connlimit.Limiter {
	return connlimit.New(connlimit.Config{
		Connections: places, PerClient: places / sharers, CrowdedIdle: crowdedTimeout, WriteTime: writeTimeout,
	})
}

// serveTCP accepts connections until ctx ends, and returns when all of them are closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	answering, end := context.WithCancel(context.WithoutCancel(ctx)) // what has arrived is answered after ctx
	defer end()                                                      // of the transfers that last longer
	defer s.drain()
	defer listener.Close() // a new client is refused, or waits for the next program
	for {
		c, err := listener.Accept()
		if errors.Is(err, connlimit.ErrStopped) {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() { s.serveConn(answering, c.(*connlimit.Conn)) })
	}
}

// drain ends the connections after the answers to the queries that have arrived, within lastTime.
func (s *Server) drain() {
	limit, done := context.WithTimeout(context.Background(), lastTime)
	defer done()
	s.limiter.Drain(limit)
}

// serveConn answers the messages of one connection in order, until the client closes it, is
// silent, or sends a message that has no answer, or the server stops. A client that asks again or ends
// the connection has read what it was sent; one that reset it, or is gone, may not have.
func (s *Server) serveConn(ctx context.Context, c *connlimit.Conn) {
	defer c.Close()
	var client netip.Addr
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		client = remote.AddrPort().Addr().Unmap()
	}
	in := bufio.NewReaderSize(c, 1024)
	var answer []byte
	var unread transferred
	for goesOn := true; goesOn || in.Buffered() > 0; goesOn = c.Rest() {
		c.SetReadDeadline(time.Now().Add(s.idleTime()))
		query, err := dns.ReadTCP(in)
		if unread.apex != "" && (err == nil || err == io.EOF) {
			s.peers.Fetched(client, unread.key, unread.apex, unread.serial)
		}
		unread = transferred{}
		if err != nil || !c.Work(false) {
			return
		}
		asking := asker{address: client, limit: dns.MaxMessage, at: time.Now()}
		sent, done, err := s.transferSafely(ctx, c, query, asking)
		if err != nil {
			return
		}
		if unread = sent; done {
			continue
		}
		answer = s.answerSafely(ctx, answer[:0], query, asking)
		if len(answer) > 0 {
			err = dns.WriteTCP(c, answer)
		}
		s.tcp.count(answer, asking.at)
		if len(answer) == 0 || err != nil {
			return
		}
	}
	c.End()
}

// idleTime returns how long a connection may wait for its next query.
func (s *Server) idleTime() time.Duration {
	if s.limiter.Crowded() {
		return crowdedTimeout
	}
	return idleTimeout
}
