package servertest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// Handler gives the answer to a message, nil for none; forward gives that
// of the server behind.
type Handler func(query []byte, forward func() []byte) []byte

// Silent gives no answer.
func Silent([]byte, func() []byte) []byte { return nil }

// Garbage gives an answer that is none.
func Garbage(query []byte, _ func() []byte) []byte {
	return append(slices.Clone(query[:2]), strings.Repeat("garbage!", 8)...)
}

// Unsigned drops the signature of an answer.
func Unsigned(_ []byte, forward func() []byte) []byte {
	m, err := dns.ParseMessage(forward())
	if err != nil {
		return nil
	}
	m.Additional = nil
	return m.Pack()
}

// ServFail answers that the server fails.
func ServFail(query []byte, _ func() []byte) []byte {
	m, err := dns.ParseMessage(query)
	if err != nil {
		return nil
	}
	return Fails(dns.RcodeServFail, false)(m, nil)
}

// IsUpdate reports whether a message is an update.
func IsUpdate(query []byte) bool {
	header, err := dns.ParseHeader(query)
	return err == nil && header.Opcode == dns.OpcodeUpdate
}

// Relay stands before a server and gives its own address.
func Relay(t testing.TB, server string, handle Handler) (addr string) {
	t.Helper()
	answer := func(query []byte) []byte {
		return handle(query, func() []byte {
			answer, _ := dns.ExchangeTCP(context.Background(), server, query)
			return answer
		})
	}
	return Listen(t, func(conn net.Conn) {
		if query, err := dns.ReadTCP(conn); err == nil {
			if answer := answer(query); answer != nil {
				dns.WriteTCP(conn, answer)
			}
		}
	}, answer)
}

// Listen serves connections and datagrams at one address until the end of the test. Every datagram gets the answer of
// udp, none if that is nil. With a nil udp no datagrams are received.
func Listen(t testing.TB, tcp func(net.Conn), udp func(query []byte) []byte) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	support.Must(t, err)
	var working sync.WaitGroup
	t.Cleanup(working.Wait)
	t.Cleanup(func() { listener.Close() })
	working.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			working.Go(func() {
				defer conn.Close()
				tcp(conn)
			})
		}
	})
	addr = listener.Addr().String()
	if udp == nil {
		return addr
	}
	packets, err := net.ListenPacket("udp", addr)
	support.Must(t, err)
	t.Cleanup(func() { packets.Close() })
	working.Go(func() {
		buffer := make([]byte, dns.MaxMessage)
		for n, from, err := packets.ReadFrom(buffer); err == nil; n, from, err = packets.ReadFrom(buffer) {
			query := slices.Clone(buffer[:n])
			working.Go(func() {
				if answer := udp(query); answer != nil {
					packets.WriteTo(answer, from)
				}
			})
		}
	})
	return addr
}
