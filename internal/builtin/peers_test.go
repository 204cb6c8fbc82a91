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
	"meshddns/internal/dnswire"
	"meshddns/internal/metrics"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/test/support"
)

// group is several peers.
type group []*peers

func (g group) Key(name dnswire.Name) (key dnswire.Key, ok bool) {
	for _, p := range g {
		if p.key.Name == name {
			return p.key, true
		}
	}
	return key, false
}

func (g group) May(_ netip.Addr, key, _ dnswire.Name) bool { _, ok := g.Key(key); return ok }

func (g group) Names(netip.Addr, dnswire.Name, dnswire.Name, uint32) bool { return true }

func (g group) Fetched(netip.Addr, dnswire.Name, dnswire.Name, uint32) {}

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
func (p *peers) ask(name string, kind dnswire.Type, at time.Time, since ...uint32) []byte {
	apex, _ := dnswire.ParseName(name)
	q := dnswire.Message{ID: 4712, Questions: []dnswire.Question{{Name: apex, Type: kind, Class: dnswire.ClassIN}}}
	for _, serial := range since {
		soa := dnswire.SOA{MName: dnswire.Root, RName: dnswire.Root, Serial: serial}
		q.Authority = append(q.Authority, dnswire.RR{Name: apex, Type: dnswire.TypeSOA, Class: dnswire.ClassIN, Data: soa.Data()})
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
	stranger.key, _ = dnswire.ParseKey("stranger.example", peerSecret)
	liar.key, _ = dnswire.ParseKey(peerName, "YW5vdGhlciBzZWNyZXQ=")
	long := &peers{}
	long.key, _ = dnswire.ParseKey(strings.Repeat(strings.Repeat("k", 60)+".", 4)+"example", peerSecret)
	longName := strings.Repeat(strings.Repeat("n", 57)+".", 4) + "example.com"
	serial := w.serial("example.com")
	cut := peer.ask("example.com", dnswire.TypeAXFR, now)
	notify := (*peers)(nil).ask("example.com", dnswire.TypeSOA, now)
	notify[2] |= 4 << 3
	for what, test := range map[string]struct {
		tcp     bool
		message []byte
		want    string // rcode, TSIG error, records
	}{
		"AXFR of a zone that is not here":       {true, peer.ask("example.net", dnswire.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR below a zone":                     {true, peer.ask("x.example.com", dnswire.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR without a key":                    {true, (*peers)(nil).ask("example.com", dnswire.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR of the catalog without a key":     {true, (*peers)(nil).ask("catalog.invalid", dnswire.TypeAXFR, now), "REFUSED NOERROR 0"},
		"AXFR with an unknown key":              {true, stranger.ask("example.com", dnswire.TypeAXFR, now), "NOTAUTH BADKEY 0"},
		"AXFR with a wrong secret":              {true, liar.ask("example.com", dnswire.TypeAXFR, now), "NOTAUTH BADSIG 0"},
		"AXFR from the past":                    {true, peer.ask("example.com", dnswire.TypeAXFR, now.Add(-time.Hour)), "NOTAUTH BADTIME 0"},
		"AXFR from the future":                  {true, peer.ask("example.com", dnswire.TypeAXFR, now.Add(time.Hour)), "NOTAUTH BADTIME 0"},
		"AXFR with a cut TSIG":                  {true, cut[:len(cut)-7], "FORMERR NOERROR 0"},
		"AXFR over UDP":                         {false, peer.ask("example.com", dnswire.TypeAXFR, now), "REFUSED NOERROR 0"},
		"IXFR over UDP":                         {false, peer.ask("example.com", dnswire.TypeIXFR, now, serial-5), "NOERROR NOERROR 1"},
		"IXFR over UDP without a key":           {false, (*peers)(nil).ask("example.com", dnswire.TypeIXFR, now, serial), "REFUSED NOERROR 0"},
		"IXFR without a serial":                 {true, peer.ask("example.com", dnswire.TypeIXFR, now), "FORMERR NOERROR 0"},
		"IXFR without a serial over UDP":        {false, peer.ask("example.com", dnswire.TypeIXFR, now), "FORMERR NOERROR 0"},
		"IXFR with two serials":                 {true, peer.ask("example.com", dnswire.TypeIXFR, now, 1, 2), "FORMERR NOERROR 0"},
		"IXFR of the present":                   {true, peer.ask("example.com", dnswire.TypeIXFR, now, serial), "NOERROR NOERROR 1"},
		"IXFR from the future":                  {true, peer.ask("example.com", dnswire.TypeIXFR, now, serial+1), "NOERROR NOERROR 1"},
		"IXFR from 2^31-1 ahead":                {true, peer.ask("example.com", dnswire.TypeIXFR, now, serial+1<<31-1), "NOERROR NOERROR 1"},
		"IXFR from 2^31 away":                   {true, peer.ask("example.com", dnswire.TypeIXFR, now, serial+1<<31), "NOERROR NOERROR 1"},
		"IXFR from 2^31+1 away, the whole zone": {true, peer.ask("example.com", dnswire.TypeIXFR, now, serial+1<<31+1), "NOERROR NOERROR 3"},
		"NOTIFY towards the server":             {false, notify, "NOTIMP NOERROR 0"},
		"the catalog's SOA":                     {false, peer.ask("catalog.invalid", dnswire.TypeSOA, now), "NOERROR NOERROR 1 AA"},
		"the catalog's SOA without a key":       {false, (*peers)(nil).ask("catalog.invalid", dnswire.TypeSOA, now), "REFUSED NOERROR 0"},
		"a member without a key":                {false, (*peers)(nil).ask("version.catalog.invalid", dnswire.TypeTXT, now), "REFUSED NOERROR 0"},
		"a long unknown key":                    {false, long.ask(longName, dnswire.TypeTXT, now), "NOTAUTH NOERROR 0"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			exchange := overUDP
			if test.tcp {
				exchange = dnswire.ExchangeTCP
			}
			answer, err := exchange(t.Context(), server, test.message)
			if err != nil {
				t.Fatal(err)
			}
			m, err := dnswire.Parse(answer)
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
	answer := make([]byte, dnswire.MaxMessage)
	_, err = conn.Write(message)
	size, lost := conn.Read(answer)
	return answer[:size], errors.Join(err, lost)
}

// tsigError gives the error in the TSIG record of an answer, NOERROR without one.
func tsigError(m dnswire.Message) dnswire.Rcode {
	for _, rr := range m.Additional {
		if rr.Type == dnswire.TypeTSIG { // it ends with the error, the length of other data, and these
			other := 0
			if bytes.HasSuffix(rr.Data[:len(rr.Data)-6], []byte{0, 6}) {
				other = 6
			}
			return dnswire.Rcode(binary.BigEndian.Uint16(rr.Data[len(rr.Data)-4-other:]))
		}
	}
	return dnswire.RcodeSuccess
}

// TestUnreadTransfers: transfers that a peer does not read take neither the places of another peer nor
// memory without bound, and end.
func TestUnreadTransfers(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	w.fill(20_000)
	lazy, well := newPeers(t), newPeers(t)
	lazy.key, _ = dnswire.ParseKey("lazy.example", peerSecret)
	s, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}, Peers: group{lazy, well}, Versions: w.table},
		builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.task(s.Serve)
	var open []net.Conn
	for range 60 {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		conn.(*net.TCPConn).SetReadBuffer(4096)
		if err := dnswire.WriteTCP(conn, lazy.ask("example.com", dnswire.TypeAXFR, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	told := func(figure string) {
		t.Helper()
		support.Eventually(t, support.Limit, figure, func() bool {
			var page bytes.Buffer
			s.WriteMetrics(metrics.NewPage(&page))
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
