package provider_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
)

// front stands before a server, and hands on what comes, until it is told otherwise.
type front struct {
	addr   string // host:port, UDP and TCP
	server string
	mu     sync.Mutex
	spoil  spoil // of the next update that is made; nil for none
	refuse bool  // updates are not handed on
}

// spoil makes what the client gets of an answer, nil for nothing.
type spoil func(request dns.Message, answer []byte) []byte

// newFront starts one, which the end of the test stops.
func newFront(t testing.TB, s servertest.Server) *front {
	t.Helper()
	f := &front{server: s.Addr}
	f.addr = servertest.Listen(t, f.serve, func(query []byte) []byte {
		answer, _ := dns.Exchange(context.Background(), f.server, query)
		return answer
	})
	return f
}

// unread has the next update made, spoils its answer, and refuses every update after it
// with a signature, until end is called.
func (f *front) unread(spoil spoil) (end func()) {
	f.set(spoil, false)
	return func() { f.set(nil, false) }
}

func (f *front) set(spoil spoil, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spoil, f.refuse = spoil, refuse
}

// serve hands on one message, and all that comes back.
func (f *front) serve(conn net.Conn) {
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
func (f *front) update(query []byte) (answer []byte, spoilt bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := dns.ParseMessage(query)
	switch {
	case err != nil || m.Opcode != dns.OpcodeUpdate || f.spoil == nil:
		return nil, false
	case f.refuse:
		return servertest.Fails(dns.RcodeRefused, true)(m, nil), true
	}
	answer, _ = dns.ExchangeTCP(context.Background(), f.server, query)
	if after, err := dns.ParseMessage(answer); err == nil && after.Rcode == dns.RcodeSuccess {
		f.refuse = true
		return f.spoil(m, answer), true
	}
	return answer, true
}
