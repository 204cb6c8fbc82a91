package builtin_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/test/support"
)

// group is several peers.
type group []*peers

func (g group) Key(name dns.Name) (key dns.Key, ok bool) {
	for _, p := range g {
		if p.key.Name == name {
			return p.key, true
		}
	}
	return key, false
}

func (g group) May(_ netip.Addr, key, _ dns.Name) bool { _, ok := g.Key(key); return ok }

func (g group) Names(netip.Addr, dns.Name, dns.Name, uint32) bool { return true }

func (g group) Fetched(netip.Addr, dns.Name, dns.Name, uint32) {}

// fill publishes many values in example.com.
func (w *world) fill(count int) {
	w.t.Helper()
	client := builtin.Client{Store: w.table, Address: "x"}
	for n := 0; n < count; n += 400 {
		var changes []provider.Change
		for i := range 400 {
			changes = append(changes, provider.Change{
				Type: provider.TXT,
				Zone: "example.com", Name: fmt.Sprintf("_mesh.n%d.example.com", n+i), Add: []provider.Value{{strings.Repeat("x", 200)}}, TTL: 60,
			})
		}
		for _, err := range client.ChangeAll(w.t.Context(), changes) {
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// ask is a question of a peer, signed at a time; since is the serial of an IXFR that has one.
func (p *peers) ask(name string, kind dns.Type, at time.Time, since ...uint32) []byte {
	apex, _ := dns.ParseName(name)
	q := dns.Message{ID: 4712, Questions: []dns.Question{{Name: apex, Type: kind, Class: dns.ClassIN}}}
	for _, serial := range since {
		soa := dns.SOA{MName: dns.Root, RName: dns.Root, Serial: serial}
		q.Authority = append(q.Authority, dns.RR{Name: apex, Type: dns.TypeSOA, Class: dns.ClassIN, Data: soa.Data()})
	}
	if p == nil {
		return q.Pack()
	}
	signed, _ := p.key.Sign(q.Pack(), at)
	return signed
}

// TestHostilePeers: what is not a peer's question gets the RFC's refusal.
func TestHostilePeers(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	w.name("catalog.invalid")
	peer, now := newPeers(t), time.Now()
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, peer)
	stranger, liar := &peers{}, &peers{}
	stranger.key, _ = dns.ParseKey("stranger.example", peerSecret)
	liar.key, _ = dns.ParseKey(peerName, "YW5vdGhlciBzZWNyZXQ=")
	long := &peers{}
	long.key, _ = dns.ParseKey(strings.Repeat(strings.Repeat("k", 60)+".", 4)+"example", peerSecret)
	longName := strings.Repeat(strings.Repeat("n", 57)+".", 4) + "example.com"
	serial := w.serial("example.com")
	cut := peer.ask("example.com", dns.TypeAXFR, now)
	notify := (*peers)(nil).ask("example.com", dns.TypeSOA, now)
	notify[2] |= 4 << 3
	for what, test := range map[string]struct {
		tcp     bool
		message []byte
		want    string // rcode, TSIG error, records
	}{
		"AXFR of a zone that is not here":       {true, peer.ask("example.net", dns.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR below a zone":                     {true, peer.ask("x.example.com", dns.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR without a key":                    {true, (*peers)(nil).ask("example.com", dns.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR of the catalog without a key":     {true, (*peers)(nil).ask("catalog.invalid", dns.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR with an unknown key":              {true, stranger.ask("example.com", dns.TypeAXFR, now), "NOTAUTH BADKEY 0"},
		"AXFR with a wrong secret":              {true, liar.ask("example.com", dns.TypeAXFR, now), "NOTAUTH BADSIG 0"},
		"AXFR from the past":                    {true, peer.ask("example.com", dns.TypeAXFR, now.Add(-time.Hour)), "NOTAUTH BADTIME 0"},
		"AXFR from the future":                  {true, peer.ask("example.com", dns.TypeAXFR, now.Add(time.Hour)), "NOTAUTH BADTIME 0"},
		"AXFR with a cut TSIG":                  {true, cut[:len(cut)-7], "FORMERR NOERROR 0"},
		"AXFR over UDP":                         {false, peer.ask("example.com", dns.TypeAXFR, now), "REFUSED NOERROR 0"},
		"IXFR over UDP":                         {false, peer.ask("example.com", dns.TypeIXFR, now, serial-5), "NOERROR NOERROR 1"},
		"IXFR over UDP without a key":           {false, (*peers)(nil).ask("example.com", dns.TypeIXFR, now, serial), "REFUSED NOERROR 0"},
		"IXFR without a serial":                 {true, peer.ask("example.com", dns.TypeIXFR, now), "FORMERR NOERROR 0"},
		"IXFR without a serial over UDP":        {false, peer.ask("example.com", dns.TypeIXFR, now), "FORMERR NOERROR 0"},
		"IXFR with two serials":                 {true, peer.ask("example.com", dns.TypeIXFR, now, 1, 2), "FORMERR NOERROR 0"},
		"IXFR of the present":                   {true, peer.ask("example.com", dns.TypeIXFR, now, serial), "NOERROR NOERROR 1"},
		"IXFR from the future":                  {true, peer.ask("example.com", dns.TypeIXFR, now, serial+1), "NOERROR NOERROR 1"},
		"IXFR from 2^31-1 ahead":                {true, peer.ask("example.com", dns.TypeIXFR, now, serial+1<<31-1), "NOERROR NOERROR 1"},
		"IXFR from 2^31 away":                   {true, peer.ask("example.com", dns.TypeIXFR, now, serial+1<<31), "NOERROR NOERROR 1"},
		"IXFR from 2^31+1 away, the whole zone": {true, peer.ask("example.com", dns.TypeIXFR, now, serial+1<<31+1), "NOERROR NOERROR 3"},
		"NOTIFY towards the server":             {false, notify, "NOTIMP NOERROR 0"},
		"the catalog's SOA":                     {false, peer.ask("catalog.invalid", dns.TypeSOA, now), "NOERROR NOERROR 1 AA"},
		"the catalog's SOA without a key":       {false, (*peers)(nil).ask("catalog.invalid", dns.TypeSOA, now), "REFUSED NOERROR 0"},
		"a member without a key":                {false, (*peers)(nil).ask("version.catalog.invalid", dns.TypeTXT, now), "REFUSED NOERROR 0"},
		"a long unknown key":                    {false, long.ask(longName, dns.TypeTXT, now), "NOTAUTH NOERROR 0"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			exchange := overUDP
			if test.tcp {
				exchange = dns.ExchangeTCP
			}
			answer, err := exchange(t.Context(), server, test.message)
			if err != nil {
				t.Fatal(err)
			}
			m, err := dns.ParseMessage(answer)
			if err != nil || !test.tcp && len(answer) > 512 {
				t.Fatalf("%d octets, %v", len(answer), err)
			}
			said := fmt.Sprintf("%v %v %d", m.Rcode, tsigError(m), len(m.Answers))
			if strings.HasSuffix(test.want, "AA") && m.Authoritative {
				said += " AA"
			}
			if said != test.want {
				t.Errorf("%s, want %s", said, test.want)
			}
		})
	}
}

// overUDP gives the answer over UDP, also one that is cut.
func overUDP(ctx context.Context, server string, message []byte) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(support.Limit))
	answer := make([]byte, dns.MaxMessage)
	_, err = conn.Write(message)
	size, lost := conn.Read(answer)
	return answer[:size], errors.Join(err, lost)
}

// tsigError gives the error in the TSIG record of an answer, NOERROR without one.
func tsigError(m dns.Message) dns.Rcode {
	for _, rr := range m.Additional {
		if rr.Type == dns.TypeTSIG { // it ends with the error, the length of other data, and these
			other := 0
			if bytes.HasSuffix(rr.Data[:len(rr.Data)-6], []byte{0, 6}) {
				other = 6
			}
			return dns.Rcode(binary.BigEndian.Uint16(rr.Data[len(rr.Data)-4-other:]))
		}
	}
	return dns.RcodeSuccess
}

// TestUnreadTransfers: transfers that a peer does not read, from many addresses with one key, take neither the places of
// another peer nor memory without bound, and end.
func TestUnreadTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.zone("example.com")
	w.fill(20_000)
	lazy, well := newPeers(t), newPeers(t)
	lazy.key, _ = dns.ParseKey("lazy.example", peerSecret)
	s, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}, Peers: group{lazy, well}, Versions: w.table},
		builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.task(s.Serve)
	var open []net.Conn
	for n := range 60 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+n))}}
		conn, err := from.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		conn.(*net.TCPConn).SetReadBuffer(4096)
		if err := dns.WriteTCP(conn, lazy.ask("example.com", dns.TypeAXFR, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	told := func(figure string) {
		t.Helper()
		support.Eventually(t, support.Limit, figure, func() bool {
			var page bytes.Buffer
			s.WriteMetrics(daemon.NewPage(&page))
			return strings.Contains(page.String(), figure)
		})
	}
	if all := well.transfer(t, s.Addr(), "example.com"); len(all) < 20_000 {
		t.Errorf("the other peer gets %d records", len(all))
	}
	told("meshddns_dns_transfers_refused_total 56\n")
	for _, conn := range open {
		conn.Close()
	}
	told(`meshddns_dns_transfers_total{kind="axfr",result="failed"} 4`)
	if all := lazy.transfer(t, s.Addr(), "example.com"); len(all) < 20_000 {
		t.Errorf("the lazy peer gets %d records", len(all))
	}
}
