package nameserver

import (
	"slices"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

// answerTimes are the bounds of the histogram of times to answer.
var answerTimes = [...]time.Duration{
	10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second,
}

// figures are the counters of one transport.
type figures struct {
	dropped   atomic.Uint64 // queries without an answer
	truncated atomic.Uint64
	times     [len(answerTimes) + 1]atomic.Uint64 // answers, by time to answer
	spent     atomic.Int64                        // the sum of these times, in nanoseconds
}

// count counts the answer to a query that was read at the given time. An empty answer means none.
func (f *figures) count(answer []byte, read time.Time) {
	if len(answer) == 0 {
		f.dropped.Add(1)
		return
	}
	if answer[2]&2 != 0 {
		f.truncated.Add(1)
	}
	took := time.Since(read)
	bucket := 0
	for bucket < len(answerTimes) && took > answerTimes[bucket] {
		bucket++
	}
	f.times[bucket].Add(1)
	f.spent.Add(int64(took))
}

// usual are the rcodes that the server uses. The metrics show them before the first such
// answer too.
var usual = []dns.Rcode{
	dns.RcodeSuccess, dns.RcodeFormErr, dns.RcodeServFail, dns.RcodeNXDomain, dns.RcodeNotImp,
	dns.RcodeRefused, dns.RcodeNotAuth, dns.RcodeBadVers, dns.RcodeBadCookie,
}

// mnemonic returns the name of an rcode. 16 is BADVERS here, and BADSIG only within TSIG.
func mnemonic(rcode dns.Rcode) string {
	if rcode == dns.RcodeBadVers {
		return "BADVERS"
	}
	return rcode.String()
}

// WriteMetrics writes the server's metrics.
func (s *Server) WriteMetrics(page *daemon.Page) {
	page.Family("meshddns_dns_answers_total", "counter", "Answers of the built-in DNS server.")
	for i := range s.answered {
		if n := s.answered[i].Load(); n > 0 || slices.Contains(usual, dns.Rcode(i)) {
			page.Figure(n, daemon.Label{Name: "rcode", Value: mnemonic(dns.Rcode(i))})
		}
	}
	udp, tcp := daemon.Label{Name: "transport", Value: "udp"}, daemon.Label{Name: "transport", Value: "tcp"}
	page.Family("meshddns_dns_answer_seconds", "histogram", "Time from reading a query to sending the answer.")
	s.udp.writeTimes(page, udp)
	s.tcp.writeTimes(page, tcp)
	page.Family("meshddns_dns_truncated_total", "counter", "Answers without records, for want of room or above the rate limit.")
	page.Figure(s.udp.truncated.Load(), udp)
	page.Figure(s.tcp.truncated.Load(), tcp)
	page.Family("meshddns_dns_dropped_total", "counter", "Queries read and not answered: no queries, or above the rate limit.")
	page.Figure(s.udp.dropped.Load(), udp)
	page.Figure(s.tcp.dropped.Load(), tcp)
	page.Single("meshddns_dns_overflow_total", "counter", "Queries over UDP that came faster than they were read.", s.overflow())
	if s.rates != nil {
		page.Family("meshddns_dns_rate_limited_total", "counter", "Queries over UDP above the rate limit: dropped, truncated or told a cookie.")
		page.Figure(s.rates.over.Load())
	}
	open, _, crowdedOut := s.limiter.Counts()
	page.Single("meshddns_dns_connections", "gauge", "Open TCP connections.", uint64(open))
	page.Single("meshddns_dns_connections_crowded_out_total", "counter", "TCP connections that were closed to make room.", crowdedOut)
	s.transfers.writeMetrics(page)
}

func (f *figures) writeTimes(page *daemon.Page, transport daemon.Label) {
	var counts [len(f.times)]uint64
	for i := range counts {
		counts[i] = f.times[i].Load()
	}
	page.Histogram(answerTimes[:], counts[:], time.Duration(f.spent.Load()), transport)
}

// overflow sums the queries that the kernel dropped because a socket's buffer was full.
func (s *Server) overflow() (sum uint64) {
	for _, end := range s.ends {
		for _, udp := range end.udp {
			if raw, err := udp.SyscallConn(); err == nil {
				sum += uint64(dropped(raw))
			}
		}
	}
	return sum
}
