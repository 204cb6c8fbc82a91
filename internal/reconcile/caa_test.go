package reconcile

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/internal/dns"
	"meshddns/internal/provider"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestCAA asks real servers about names with CAA records at them, above them, and above those.
func TestCAA(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		for _, record := range []string{
			`none.example.com 0 issue ";"`, `none.example.com 0 issuewild ";"`,
			`at.one.example.com 0 issue "ca.example.net"`, `one.example.com 0 issue ";"`, `one.example.com 0 issue "ca.example.net; account=1"`,
			`again.one.example.com 128 issue "; account=1"`, `again.one.example.com 0 iodef "mailto:x@example.com"`,
			`report.none.example.com 0 iodef "mailto:x@example.com"`, `wild.none.example.com 0 issuewild ";"`,
			`wildcards.none.example.com 0 issue ";"`, `wildcards.none.example.com 0 issuewild "ca.example.net"`,
			`critical.example.com 128 issuemail ";"`, `blank.example.com 0 ISSUE " "`,
		} {
			var name, text string
			fmt.Sscan(record, &name)
			text = record[len(name)+1:]
			s.AddRecord(t, name, "CAA", text)
		}
		s.AddRecord(t, "alias.none.example.com", "CNAME", "again.one.example.com.")
		look := func(name string) string {
			err := Public{}.refuses(t.Context(), provider.Authority{Server: s.Addr}, "EXAMPLE.com.", name)
			if e, ok := err.(*provider.Error); ok {
				return string(e.Kind) + " " + e.Detail.String()
			}
			return fmt.Sprint(err)
		}
		for name, want := range map[string]string{
			"example.com": "<nil>", "a.example.com": "<nil>",
			"none.example.com": "caa_refuses none.example.com", "a.b.none.example.com": "caa_refuses none.example.com",
			"one.example.com": "<nil>", "at.one.example.com": "<nil>", "a.again.one.example.com": "caa_refuses again.one.example.com",
			"report.none.example.com": "<nil>", "wild.none.example.com": "<nil>", "wildcards.none.example.com": "<nil>",
			"critical.example.com": "<nil>", "blank.example.com": "caa_refuses blank.example.com", "alias.none.example.com": "<nil>",
		} {
			if got := look(name); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		s.AddRecord(t, "example.com", "CAA", `0 issue ";"`)
		for name, want := range map[string]string{
			"a.example.com": "caa_refuses example.com", "example.com": "caa_refuses example.com", "a.one.example.com": "<nil>", "at.one.example.com": "<nil>",
			"a.critical.example.com": "<nil>",
		} {
			if got := look(name); got != want {
				t.Errorf("with a refusal at the apex, %s: %s, want %s", name, got, want)
			}
		}
	})
}

// TestCAAByDelegation has the public DNS tell the zone's servers, and servers that tell nothing.
func TestCAAByDelegation(t *testing.T) {
	s := servertest.BIND(t)
	s.AddRecord(t, servertest.Zone, "CAA", `0 issue ";"`)
	public, nobody := publicAt(t, s.Addr), publicAt(t, support.FreeAddress(t))
	at := func(server string) provider.Authority { return provider.Authority{Server: server} }
	for _, test := range []struct {
		name      string
		public    Public
		authority provider.Authority
		zone      string
		want      bool
	}{
		{"by delegation", public, provider.Authority{}, servertest.Zone, true},
		{"no resolver", nobody, provider.Authority{}, servertest.Zone, false},
		{"not delegated", public, provider.Authority{}, "keep." + servertest.Zone, false},
		{"no server", nobody, at(support.FreeAddress(t)), servertest.Zone, false},
		{"another zone's server", nobody, at(s.Addr), "example.org", false},
		{"a fault", nobody, at(servertest.Relay(t, s.Addr, servertest.ServFail)), servertest.Zone, false},
		{"a fault with authority", nobody, at(servertest.Relay(t, s.Addr, faultBelow)), servertest.Zone, false},
		{"garbage", nobody, at(servertest.Relay(t, s.Addr, garbled)), servertest.Zone, false},
	} {
		err := test.public.refuses(t.Context(), test.authority, test.zone, "a."+test.zone)
		if got := provider.KindOf(err) == CAARefuses; got != test.want {
			t.Errorf("%s: %v, want refused %t", test.name, err, test.want)
		}
	}
}

// faultBelow fails with authority below the apex.
func faultBelow(query []byte, forward func() []byte) []byte {
	m, err := dns.ParseMessage(query)
	if err != nil || m.Questions[0].Name.Bare() == servertest.Zone {
		return forward()
	}
	m = dns.Message{ID: m.ID, Response: true, Authoritative: true, Rcode: dns.RcodeServFail, Questions: m.Questions}
	return m.Pack()
}

// garbled cuts the data of CAA records.
func garbled(_ []byte, forward func() []byte) []byte {
	m, err := dns.ParseMessage(forward())
	if err != nil {
		return nil
	}
	for i := range m.Answers {
		m.Answers[i].Data = []byte{0, 200, 'i'}
	}
	m.Additional = nil
	return m.Pack()
}

// TestCAAServers has a zone with a server that refuses, and others. Eight of all are asked. The refusal stands beside
// servers that fail, and not beside one that permits.
func TestCAAServers(t *testing.T) {
	s := servertest.BIND(t)
	s.AddRecord(t, servertest.Zone, "CAA", `0 issue ";"`)
	public := publicAt(t, s.Addr)
	var asked sync.Map
	var permits atomic.Bool
	for i := 2; i <= caaServers+2; i++ {
		address := fmt.Sprintf("127.0.0.%d", i)
		conn, err := net.ListenPacket("udp", net.JoinHostPort(address, public.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			buffer := make([]byte, 512)
			for n, from, err := conn.ReadFrom(buffer); err == nil; n, from, err = conn.ReadFrom(buffer) {
				asked.Store(address, true)
				query, _ := dns.ParseMessage(buffer[:n])
				answer := dns.Message{ID: query.ID, Response: true, Rcode: dns.RcodeServFail, Questions: query.Questions}
				if permits.Load() {
					answer.Rcode, answer.Authoritative = dns.RcodeSuccess, true
				}
				conn.WriteTo(answer.Pack(), from)
			}
		}()
	}
	look := func(want provider.Kind) (others int) {
		t.Helper()
		asked.Clear()
		if err := public.refuses(t.Context(), provider.Authority{}, servertest.Zone, servertest.Zone); provider.KindOf(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
		asked.Range(func(any, any) bool { others++; return true })
		return others
	}
	add := func(i int) {
		name := fmt.Sprintf("other%d.%s", i, servertest.Zone)
		s.AddRecord(t, name, "A", fmt.Sprintf("127.0.0.%d", i))
		s.AddRecord(t, servertest.Zone, "NS", name+".")
	}
	for i := 2; i <= caaServers; i++ {
		add(i)
	}
	if n := look(CAARefuses); n != caaServers-1 {
		t.Errorf("of %d servers %d were asked beside the first", caaServers, n)
	}
	permits.Store(true)
	look("")
	permits.Store(false)
	add(caaServers + 1)
	add(caaServers + 2)
	s.RemoveRecord(t, servertest.Zone, "NS", "ns1."+servertest.Zone+".")
	if n := look(provider.Network); n != caaServers {
		t.Errorf("of %d servers %d were asked", caaServers+1, n)
	}
}

// TestCAAPatience has a server that does not answer: the look ends in the wait after the second query.
func TestCAAPatience(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var queries atomic.Int32
	go func() {
		for buffer := make([]byte, 512); ; queries.Add(1) {
			if _, _, err := silent.ReadFrom(buffer); err != nil {
				return
			}
		}
	}()
	err = Public{}.refuses(context.Background(), provider.Authority{Server: silent.LocalAddr().String()}, servertest.Zone, servertest.Zone)
	if n := queries.Load(); provider.KindOf(err) != provider.Network || n > 2 {
		t.Errorf("%v after %d queries", err, n)
	}
}
