package nameserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"meshddns/dnswire"
)

const (
	idleTimeout    = 10 * time.Second // RFC 7766, section 6.2.3: a few seconds; also for one whole message to come in
	writeTimeout   = 10 * time.Second // for a client that asks and does not read
	maxConnections = 128              // memory and descriptors that strangers may hold
	acceptPause    = 50 * time.Millisecond
	maxUDPQuery    = 4096 // no honest one is near it; a longer one is cut, does not parse and costs little
)

// serveUDP reads and answers one message after the other.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	packet := make([]byte, maxUDPQuery)
	control := make([]byte, destinationSize)
	for {
		n, controlled, _, from, err := conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if transient(err) {
				continue
			}
			return err
		}
		if answer := s.answer(ctx, packet[:n], maxUDP); answer != nil {
			// What cannot be sent (port 0, no route back) concerns only who asked.
			conn.WriteMsgUDPAddrPort(answer, fromDestination(control[:controlled]), from)
		}
	}
}

// serveTCP accepts connections and returns when all of them are closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) error {
	places := make(chan struct{}, maxConnections)
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
		select {
		case places <- struct{}{}:
			open.Go(func() {
				s.serveConn(connCtx, conn)
				<-places
			})
		default:
			conn.Close()
		}
	}
}

// serveConn answers the messages of one connection in their order until the
// client closes, is idle, sends what is no query, or ctx ends.
func (s *Server) serveConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(longAgo) })()
	in := bufio.NewReader(conn)
	for {
		conn.SetReadDeadline(time.Now().Add(idleTimeout))
		if ctx.Err() != nil { // looked at after the deadline is set, which may undo the one that ctx set
			return
		}
		query, err := dnswire.ReadTCP(in)
		if err != nil {
			return
		}
		answer := s.answer(ctx, query, dnswire.MaxMessage)
		if answer == nil {
			return
		}
		conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if dnswire.WriteTCP(conn, answer) != nil {
			return
		}
	}
}

// transient reports whether a socket still works after an error: it told of
// one peer (ICMP, an aborted connection) or of a shortage that passes.
func transient(err error) bool {
	for _, passing := range []syscall.Errno{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPROTO, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ENOPROTOOPT, syscall.EPERM, syscall.EINTR, syscall.EMSGSIZE,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// pause waits a little: a lack of descriptors lasts until some connection ends.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(acceptPause):
	}
}
