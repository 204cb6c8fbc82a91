package servertest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"meshddns/internal/dns"
)

// Front stands before a server, and hands on what comes, until it is told otherwise.
type Front struct {
	Addr string // host:port, UDP and TCP

	server string
	mu     sync.Mutex
	spoil  Spoil // of the next update that is made; nil for none
	refuse bool  // updates are not handed on
}

// Spoil makes what the client gets of an answer, nil for nothing.
type Spoil func(request dns.Message, answer []byte) []byte

// Fails is an answer that only says that a request has failed, signed or not.
func Fails(rcode dns.Rcode, signed bool) Spoil {
	return func(request dns.Message, _ []byte) []byte {
		m := dns.Message{ID: request.ID, Response: true, Opcode: request.Opcode, Rcode: rcode, Questions: request.Questions}
		if !signed {
			return m.Pack()
		}
		return NewSigner(macOf(request)).Next(m.Pack(), true)
	}
}

// Front starts one, which the end of the test stops.
func (s Server) Front(t testing.TB) *Front {
	t.Helper()
	f := &Front{server: s.Addr}
	f.Addr = Listen(t, f.serve, func(query []byte) []byte {
		answer, _ := dns.Exchange(context.Background(), f.server, query)
		return answer
	})
	return f
}

// Unread has the next update made, spoils its answer, and refuses every update after it
// with a signature, until end is called.
func (f *Front) Unread(spoil Spoil) (end func()) {
	f.set(spoil, false)
	return func() { f.set(nil, false) }
}

func (f *Front) set(spoil Spoil, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spoil, f.refuse = spoil, refuse
}

// serve hands on one message, and all that comes back.
func (f *Front) serve(conn net.Conn) {
	query, err := dns.ReadTCP(conn)
	if err != nil {
		return
	}
	if answer, spoilt := f.update(query); spoilt {
		if answer != nil {
			dns.WriteTCP(conn, answer)
		}
		return
	}
	up, err := net.Dial("tcp", f.server)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(io.Discard, conn) // until the client has what it wants
		up.Close()
	}()
	dns.WriteTCP(up, query)
	io.Copy(conn, up)
}

// update answers an update if something is to become of it.
func (f *Front) update(query []byte) (answer []byte, spoilt bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := dns.ParseMessage(query)
	switch {
	case err != nil || m.Opcode != dns.OpcodeUpdate || f.spoil == nil:
		return nil, false
	case f.refuse:
		return Fails(dns.RcodeRefused, true)(m, nil), true
	}
	answer, _ = dns.ExchangeTCP(context.Background(), f.server, query)
	if after, err := dns.ParseMessage(answer); err == nil && after.Rcode == dns.RcodeSuccess {
		f.refuse = true
		return f.spoil(m, answer), true
	}
	return answer, true
}

// macOf gives the MAC of a request (RFC 8945, section 4.2).
func macOf(m dns.Message) []byte {
	const before = len("\x0bhmac-sha256\x00") + 6 + 2 // algorithm, time, fudge
	data := m.Additional[len(m.Additional)-1].Data[before:]
	return data[2 : 2+binary.BigEndian.Uint16(data)]
}
