package promises

import (
	"strings"
	"sync/atomic"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
)

// dnsGate is a relay that stops updates on their way, before the server gets
// them or after it has made them, and may lose their answers.
type dnsGate struct {
	after, lose bool
	addr        string
	skip, stop  atomic.Int64  // updates to let pass first, and then to stop
	arrived     chan struct{} // gets one for each that is stopped
	passed      chan struct{} // gets one for each that was stopped and is through
	open        chan struct{} // closed to let them go
	last        atomic.Pointer[string]
}

func (g *dnsGate) server(t testing.TB, s servertest.Server) servertest.Server {
	g.arrived, g.passed, g.open = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	g.addr = servertest.Relay(t, s.Addr, g.handle)
	return servertest.Server{Name: s.Name, Addr: g.addr}
}

// shut stops the next updates.
func (g *dnsGate) shut(count int64) { g.stop.Store(count) }

// name is that of the update that was stopped.
func (g *dnsGate) name() string { return *g.last.Load() }

func (g *dnsGate) handle(query []byte, forward func() []byte) (answer []byte) {
	if !servertest.IsUpdate(query) || g.stop.Load() == 0 || g.skip.Add(-1) >= 0 || g.stop.Add(-1) < 0 {
		return forward()
	}
	m, _ := dns.ParseMessage(query)
	name := strings.TrimSuffix(m.Answers[0].Name.String(), ".")
	g.last.Store(&name)
	if g.after {
		answer = forward()
	}
	g.arrived <- struct{}{}
	<-g.open
	if !g.after && !g.lose {
		answer = forward()
	}
	g.passed <- struct{}{}
	if g.lose {
		return nil
	}
	return answer
}
