package nameserver

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// maxUDPQuery bounds what is read: no honest one is near it; a longer one is
// cut, does not parse and costs little.
const maxUDPQuery = 4096

// serveUDP reads and answers one message after the other.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	packet := make([]byte, maxUDPQuery)
	control := make([]byte, destinationSize)
	var answer []byte
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
		asking := asker{address: from.Addr().Unmap(), limit: maxUDP, at: time.Now()}
		if answer = s.answer(ctx, answer[:0], packet[:n], asking); len(answer) > 0 {
			// What cannot be sent (port 0, no route back) concerns only who asked.
			conn.WriteMsgUDPAddrPort(answer, fromDestination(control[:controlled]), from)
		}
		s.udp.count(answer, asking.at)
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
