package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// answering is a DNS server that is asked.
type answering struct {
	server  string
	process *process
}

// cost is the processor time that a server takes for each query of a file, in
// microseconds, and how many it answers in a second.
func (a answering) cost(t *testing.T, file string, so time.Duration) (each, perSecond float64) {
	t.Helper()
	before := a.process.processor()
	q := dnsperf(t, a.server, file, so, asMany...)
	return microseconds(a.process.processor()-before) / float64(max(q.completed, 1)), q.perSecond
}

func (p *program) answering() answering { return answering{p.dns, p.process} }

// queryCost measures the processor time of a query, and what makes it dearer.
func queryCost(t *testing.T, b *table) {
	support.Need(t, "dnsperf")
	s := speedScale()
	p := start(t, published(t, builtin, s.names)).answering()
	there := questions(t, p.server, dns.RcodeSuccess, s.questions, hits(s.names))
	absent := questions(t, p.server, dns.RcodeNXDomain, s.questions, misses)
	short := questions(t, p.server, dns.RcodeNXDomain, s.questions, ofLabels(3))
	long := questions(t, p.server, dns.RcodeNXDomain, s.questions, ofLabels(118))
	var hit, miss, few, many []float64
	for range s.rounds {
		for _, q := range []struct {
			file string
			into *[]float64
		}{{there, &hit}, {absent, &miss}, {short, &few}, {long, &many}} {
			each, _ := p.cost(t, q.file, s.turn)
			*q.into = append(*q.into, each)
		}
	}
	what := fmt.Sprintf("%d names, utime + stime over queries of dnsperf, %d rounds", s.names, s.rounds)
	b.state(t, absolute{row: "processor time a DNS query, hit", measured: what, bound: most(12, 8), show: decimals, unit: " us"}, hit...)
	b.state(t, absolute{row: "processor time a DNS query, NXDOMAIN", measured: what, bound: most(12, 8), show: decimals, unit: " us"}, miss...)
	show := func(f float64) string { return decimals(f) + "us" }
	b.compare(t, contest{
		row: "processor time, name of 118 labels / of 3", measured: fmt.Sprintf("NXDOMAIN, %d names", s.names), bound: most(3, 0), show: show,
	}, many, few)
	costOfServices(t, b)
}

// ofLabels gives names of so many labels that are not there.
func ofLabels(many int) func(n int64) string {
	return func(n int64) string { return fmt.Sprintf("%010d.%s%s", n, strings.Repeat("a.", many-3), zone) }
}

// costOfServices compares the processor time of a query when there are very many
// other zones with that when there are none.
func costOfServices(t *testing.T, b *table) {
	s := speedScale()
	one, many := start(t, published(t, builtin, s.names)), start(t, published(t, builtin, s.names))
	load{clients: 16, request: func(to []byte, n int64) []byte {
		body := fmt.Sprintf(`{"id":"s%d","name":"s","config":{"domain":"s%d.example.com","provider":"builtin","access_key_id":"-","access_key_secret":"-"}}`, n, n)
		return fmt.Appendf(to, "POST /api/v1/ddns/services HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}}.times(t, many.http, s.services)
	inService := fmt.Sprintf("x.s%d.example.com", s.services)
	support.Eventually(t, limit, inService+" has a zone", func() bool {
		rcode, _ := ask(t, many.dns, inService)
		return rcode == dns.RcodeNXDomain
	})
	file := questions(t, many.dns, dns.RcodeNXDomain, s.questions, misses)
	var few, all []float64
	for range s.rounds {
		each, _ := one.answering().cost(t, file, s.turn)
		few = append(few, each)
		each, _ = many.answering().cost(t, file, s.turn)
		all = append(all, each)
	}
	b.compare(t, contest{
		row: "processor time, very many services / 1", measured: fmt.Sprintf("NXDOMAIN, %d names, %d services", s.names, s.services),
		bound: most(1.2, 0), show: func(f float64) string { return decimals(f) + "us" },
	}, all, few)
}
