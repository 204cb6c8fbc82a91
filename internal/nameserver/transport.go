package nameserver

import (
	"context"
	"encoding/binary"
	"net"
	"runtime/debug"
	"syscall"
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

// destinationSize holds the control message with either packet info.
var destinationSize = syscall.CmsgSpace(syscall.SizeofInet6Pktinfo)

// receiveDestination makes the socket report the destination address of each query. On a
// wildcard address the kernel would choose the source of the answer by its route, and a
// client drops an answer from another address than the one it asked.
func receiveDestination(conn syscall.RawConn) error {
	if setOption(conn, syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO) == nil {
		return nil
	}
	return setOption(conn, syscall.IPPROTO_IP, syscall.IP_PKTINFO)
}

// soReusePort is SO_REUSEPORT, which package syscall lacks on some
// architectures; where it has another number, the option is refused.
const soReusePort = 15

// sharePort lets several sockets of this user share one port.
func sharePort(conn syscall.RawConn) error { return setOption(conn, syscall.SOL_SOCKET, soReusePort) }

func setOption(conn syscall.RawConn, level, option int) (err error) {
	controlErr := conn.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, 1) })
	if controlErr != nil {
		return controlErr
	}
	return err
}

// fromDestination turns the control message of a query into that of its answer. It clears
// the interface, because the route of the answer may use another one.
func fromDestination(control []byte) []byte {
	if len(control) == 0 {
		return nil
	}
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil
	}
	index := 0 // in_pktinfo begins with the interface
	if messages[0].Header.Level == syscall.IPPROTO_IPV6 {
		index = 16 // in6_pktinfo has it after the address
	}
	if len(messages[0].Data) < index+4 {
		return nil
	}
	binary.NativeEndian.PutUint32(messages[0].Data[index:], 0)
	return control
}
