package nameserver

import (
	"context"
	"net"
	"runtime/debug"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

// maxUDPQuery bounds the octets of a query that are read. Normal queries are much shorter.
// A longer one is cut, does not parse, and costs little.
const maxUDPQuery = 4096

// serveUDP reads and answers one message after another, until ctx ends or the socket fails.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	packet := make([]byte, maxUDPQuery)
	control := make([]byte, destinationSize)
	var answer []byte
	answering := context.WithoutCancel(ctx) // what has arrived is answered
	for {
		n, controlled, _, from, err := conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			if connlimit.Passes(err) {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		asking := asker{address: from.Addr().Unmap(), limit: maxUDP, at: time.Now()}
		if answer = s.answerSafely(answering, answer[:0], packet[:n], asking); len(answer) > 0 {
			// An answer that cannot be sent (port 0, no route back) concerns only its client.
			conn.WriteMsgUDPAddrPort(answer, fromDestination(control[:controlled]), from)
		}
		s.udp.count(answer, asking.at)
	}
}

// answerSafely is answer, but after a panic it logs the panic and answers this query with
// SERVFAIL.
func (s *Server) answerSafely(ctx context.Context, buffer, packet []byte, from asker) (answer []byte) {
	defer func() {
		if value := recover(); value != nil {
			s.logFailure(ctx, &daemon.Panic{Value: value, Stack: debug.Stack()})
			answer = serverFailure(buffer, packet)
		}
	}()
	return s.answer(ctx, buffer, packet, from)
}

// transferSafely is transfer, but a panic is logged, and ends the connection as an error does.
func (s *Server) transferSafely(ctx context.Context, conn net.Conn, packet []byte, from asker) (sent transferred, done bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &daemon.Panic{Value: value, Stack: debug.Stack()}
			s.logFailure(ctx, err)
		}
	}()
	return s.transfer(ctx, conn, packet, from)
}

// serverFailure appends a SERVFAIL header to the buffer, or nothing if the packet is not a query.
func serverFailure(buffer, packet []byte) []byte {
	const response, opcodeAndRD, servFail = 0x80, 0x79, 2
	if len(packet) < dns.HeaderSize || packet[2]&response != 0 {
		return buffer
	}
	header := [dns.HeaderSize]byte{packet[0], packet[1], response | packet[2]&opcodeAndRD, servFail}
	return append(buffer, header[:]...)
}
