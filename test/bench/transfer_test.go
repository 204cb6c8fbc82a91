package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// transferSpeed compares transfers of a zone with those of Knot, which has it from the program, and
// measures what transfers cost the program.
func transferSpeed(t *testing.T, b *table) {
	support.Need(t, "dnsperf", "knotd")
	s := speedScale()
	names := s.most
	p := start(t, published(t, builtin, names))
	p.process.rest()
	p.allowHere("127.0.0.1:1")
	rest := p.process.resident()
	p.process.forgetPeak()
	var at sync.WaitGroup
	for range 4 {
		at.Go(func() { transferAll(t, p.dns) })
	}
	at.Wait()
	b.state(t, absolute{
		row: "memory of 4 transfers at once", measured: fmt.Sprintf("%d names, VmHWM above rest", names),
		bound: most(32, 0), show: decimals, unit: " MB", counts: true,
	}, float64(p.process.peak())-rest)
	knot := startKnot(t, p, names)
	var ours, theirs []float64
	for i := range s.rounds + 1 {
		our, their := transferAll(t, p.dns), transferAll(t, knot.server)
		if i > 0 {
			ours, theirs = append(ours, our), append(theirs, their)
		}
	}
	b.compare(t, contest{
		row: "records/s of a transfer / Knot", measured: fmt.Sprintf("AXFR of %d names", names), bound: least(0.5, 1), show: perSecond,
	}, ours, theirs)
	before := p.octets()
	p.reserve(first + 2*names)
	p.sync(1)
	awaitAnswer(t, knot.server, nameOf(first+2*names))
	b.state(t, absolute{
		row: "octets to a secondary for one change", measured: fmt.Sprintf("%d names, Knot", names), bound: most(1024, 0), show: decimals, counts: true,
	}, float64(p.octets()-before))
	besideUnread(t, b, p, names)
}

// besideUnread measures DNS answers while 100 clients begin transfers and do not read.
func besideUnread(t *testing.T, b *table, p *program, names int) {
	s := speedScale()
	file := questions(t, p.dns, dns.RcodeSuccess, s.questions, hits(names))
	var with, without []float64
	for i := range s.rounds + 1 {
		_, free := p.answering().cost(t, file, s.turn)
		var open []net.Conn
		for range 100 {
			conn, err := net.Dial("tcp", p.dns)
			if err != nil {
				break // there are no more places
			}
			conn.(*net.TCPConn).SetReadBuffer(4096)
			dns.WriteTCP(conn, transferQuery())
			open = append(open, conn)
		}
		_, beside := p.answering().cost(t, file, s.turn)
		for _, conn := range open {
			conn.Close()
		}
		if i > 0 {
			with, without = append(with, beside), append(without, free)
		}
	}
	b.compare(t, contest{
		row: "DNS answers/s beside 100 unread transfers / without", measured: fmt.Sprintf("%d names", names), bound: least(0.9, 0), show: perSecond,
	}, with, without)
}

// allowHere lets this host transfer the zones.
func (p *program) allowHere(address string) {
	p.t.Helper()
	p.call("PUT", "/secondaries/here", fmt.Sprintf(`{"address":%q}`, address))
}

// octets gives the octets of all transfers so far.
func (p *program) octets() (octets int) {
	p.t.Helper()
	response, err := http.Get("http://" + p.http + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	found := regexp.MustCompile(`(?m)^meshddns_dns_transfer_octets_total (\d+)$`).FindSubmatch(page)
	if err != nil || found == nil {
		p.t.Fatalf("no octets of transfers: %v", err)
	}
	octets, err = strconv.Atoi(string(found[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return octets
}

func transferQuery() []byte {
	apex, _ := dns.ParseName(zone)
	q := dns.Message{ID: 1, Questions: []dns.Question{{Name: apex, Type: dns.TypeAXFR, Class: dns.ClassIN}}}
	return q.Pack()
}

// transferAll reads a whole zone, and gives the records a second. It looks at the numbers of records and
// at the last record only, so that it is faster than every server.
func transferAll(t *testing.T, server string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began, records := time.Now(), 0
	if err := dns.WriteTCP(conn, transferQuery()); err != nil {
		t.Fatal(err)
	}
	for messages := 1; ; messages++ {
		message, err := dns.ReadTCP(conn)
		if err != nil || message[3]&15 != 0 {
			t.Fatalf("message %d of %s: %v, rcode %v", messages, server, err, message)
		}
		records += int(binary.BigEndian.Uint16(message[6:]))
		if records > 1 && endsWithSOA(message) {
			return float64(records) / time.Since(began).Seconds()
		}
	}
}

// endsWithSOA reports whether the last record of a message is a SOA record, whose timers stand at the end.
func endsWithSOA(message []byte) bool {
	const refresh, retry, expire, minimum = 3600, 300, 1209600, 60
	end := binary.BigEndian.AppendUint32(nil, refresh)
	for _, value := range []uint32{retry, expire, minimum} {
		end = binary.BigEndian.AppendUint32(end, value)
	}
	return string(message[len(message)-len(end):]) == string(end)
}
