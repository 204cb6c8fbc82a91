package promises

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestTest tries each server with right and with wrong settings.
func (suite publishing) TestTest(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := suite.newHost(t, s)
		readOnly := map[string]string{"BIND": "permission", "Knot": "credentials", "PowerDNS": "permission"}[s.Name]
		serial := s.Serial(t)
		for name, test := range map[string]struct {
			change members
			want   string
		}{
			"right":        {nil, "params:ok network:ok auth:ok zone:ok record:ok"},
			"at the apex":  {members{"txt_record_name": "@"}, "params:ok network:ok auth:ok zone:ok record:ok"},
			"wrong secret": {members{"access_key_secret": servertest.Secret512}, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"unknown key":  {members{"access_key_id": "stranger"}, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"read only":    {members{"access_key_id": servertest.ReadOnlyKey, "access_key_secret": servertest.ReadOnly}, "params:ok network:ok auth:" + readOnly + " zone:skipped record:skipped"},
			"refused":      {members{"endpoint": support.FreeAddress(t)}, "params:ok network:network auth:skipped zone:skipped record:skipped"},
			"other zone":   {members{"domain": "example.org"}, "params:ok network:ok auth:ok zone:zone_not_found record:skipped"},
			"alias":        {members{"txt_record_name": "alias"}, "params:ok network:ok auth:ok zone:ok record:conflict"},
			"no secret":    {members{"access_key_secret": ""}, "params:field_empty network:skipped auth:skipped zone:skipped record:skipped"},
			"not base64":   {members{"access_key_secret": servertest.Secret + "!"}, "params:invalid network:skipped auth:skipped zone:skipped record:skipped"},
			"bad name":     {members{"txt_record_name": "a b"}, "params:invalid_name network:skipped auth:skipped zone:skipped record:skipped"},
			"provider":     {members{"provider": "nobody"}, "params:unknown_provider network:skipped auth:skipped zone:skipped record:skipped"},
		} {
			c := dnsConfiguration(s)
			maps.Copy(c, test.change)
			for write, more := range map[bool]string{false: "", true: " write:skipped read:skipped authoritative:skipped cleanup:skipped"} {
				if write && strings.HasSuffix(test.want, "record:ok") {
					continue
				}
				items := h.test(t.Context(), c, write)
				if got := itemsText(items); got != test.want+more {
					t.Errorf("%s: %s, want %s", name, got, test.want+more)
				}
				if text := fmt.Sprintf("%+v %s", items, h.log); strings.Contains(text, servertest.Secret) || strings.Contains(text, servertest.Secret512) {
					t.Errorf("%s: the secret is in %s", name, text)
				}
			}
		}
		if s.Serial(t) != serial {
			t.Error("the zone was written")
		}
	})
}

// TestWriteTest writes a value at a name of its own, and takes it away.
func (suite publishing) TestWriteTest(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		c := dnsConfiguration(s)
		serial := s.Serial(t)
		want := "params:ok network:ok auth:ok zone:ok record:ok write:ok read:ok authoritative:ok cleanup:ok"
		if got := itemsText(h.test(t.Context(), c, true)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s.Serial(t) == serial {
			t.Error("nothing was written")
		}
		h.wantPlaces(dnsHost)
	})
}

// TestWriteTestCleansUp makes the write fail once the server has made it,
// and has the client go before and after that.
func (suite publishing) TestWriteTestCleansUp(t *testing.T) {
	for name, test := range map[string]struct {
		gate *dnsGate
		goes bool
		want string
	}{
		"answer lost":            {&dnsGate{after: true, lose: true}, false, "write:network read:skipped authoritative:skipped cleanup:ok"},
		"client goes, then made": {&dnsGate{}, true, "cleanup:ok"},
		"made, client goes":      {&dnsGate{after: true}, true, "cleanup:ok"},
	} {
		t.Run(name, func(t *testing.T) {
			s := servertest.BIND(t)
			gate := test.gate
			h := suite.newHost(t, gate.server(t, s))
			gate.skip.Store(1) // the change of nothing
			gate.shut(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := dnsConfiguration(servertest.Server{Name: s.Name, Addr: gate.addr})
			items := make(chan []item, 1)
			go func() { items <- h.test(ctx, c, true) }()
			support.Receive(t, gate.arrived)
			if test.goes {
				cancel()
			}
			got := dnsUntil(items, time.Second) // a cleanup that does not wait for the write is over by then
			close(gate.open)
			if got == nil {
				got = support.Receive(t, items)
			}
			if text := itemsText(got); !strings.HasSuffix(text, test.want) {
				t.Errorf("%s, want %s", text, test.want)
			}
			support.Receive(t, gate.passed)
			probe := gate.name()
			if !strings.HasPrefix(probe, "_mesh-test-") {
				t.Errorf("written at %s", probe)
			}
			wantTXT(t, s, probe)
		})
	}
}

// TestWriteTestSees has the written value vanish, and a server whose
// answers to the public are not what its key holders see.
func (suite publishing) TestWriteTestSees(t *testing.T) {
	s := servertest.BIND(t)
	for name, test := range map[string]struct {
		handle servertest.Handler
		want   string
	}{
		"vanished": {func(query []byte, forward func() []byte) []byte {
			answer := forward()
			if m, _ := dns.ParseMessage(query); servertest.IsUpdate(query) && strings.HasPrefix(m.Answers[0].Name.String(), "_mesh-test-") {
				s.Update(t, "delete "+m.Answers[0].Name.String())
			}
			return answer
		}, "write:ok read:value_missing authoritative:skipped cleanup:ok"},
		"not public": {func(query []byte, forward func() []byte) []byte {
			if m, _ := dns.ParseMessage(query); len(m.Additional) == 0 {
				return servertest.ServFail(query, forward)
			}
			return forward()
		}, "write:ok read:ok authoritative:zone_not_found cleanup:ok"},
		"public silent": {func(query []byte, forward func() []byte) []byte {
			if m, _ := dns.ParseMessage(query); len(m.Additional) == 0 {
				return nil
			}
			return forward()
		}, "write:ok read:ok authoritative:network cleanup:ok"},
	} {
		t.Run(name, func(t *testing.T) {
			place := servertest.Server{Name: s.Name, Addr: servertest.Relay(t, s.Addr, test.handle)}
			h := suite.newHost(t, place)
			c := dnsConfiguration(place)
			ctx, cancel := context.WithTimeout(t.Context(), support.Limit)
			defer cancel()
			if got := itemsText(h.test(ctx, c, true)); !strings.HasSuffix(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestAddressSourceIsDown starts a program whose source of addresses does not
// answer: the record keeps the last known address, and the report warns.
func (suite publishing) TestAddressSourceIsDown(t *testing.T) {
	var down atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "198.51.100.7")
	}))
	t.Cleanup(web.Close)
	source, err := hostaddr.ParseSource(hostaddr.IPv4, "url:"+web.URL)
	support.Must(t, err)
	h := suite.newHost(t, dnsBuiltinServer)
	var last mesh.Addresses
	for _, test := range []struct {
		down     bool
		warnings int
	}{{false, 0}, {true, 1}} {
		down.Store(test.down)
		book := hostaddr.NewBook(hostaddr.Sources{IPv4: source}, last, h.logger())
		h.engine = h.NewEngine(book, time.Hour, func(*reconcile.Config) {})
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- book.Watch(ctx, time.Hour, h.SaveAddresses) }()
		h.stop = nil
		if r := h.run(); !r.OK() || r.Counts["warning"] != test.warnings || test.down && r.Records[0].Fault.Code != reconcile.CodeAddressUnknown {
			t.Errorf("down %t: %+v", test.down, r)
		}
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.7:11010"))
		h.stop()
		cancel()
		if err := support.Receive(t, watched); err != nil {
			t.Error(err)
		}
		last, _ = book.Known()
	}
}

// A zone of the built-in server that nobody can reach is said aloud: in the test of
// the connection, in the report, and in the log once, and it fails neither of them.
func (suite publishing) TestZoneThatNobodyReaches(t *testing.T) {
	auto, err := hostaddr.ParseSource(hostaddr.IPv4, "auto")
	support.Must(t, err)
	ready := make(chan struct{})
	close(ready)
	for name, test := range map[string]struct {
		address netip.Addr
		named   bool
		hidden  bool
	}{
		"no address":            {hidden: true},
		"a private address":     {address: netip.MustParseAddr("192.168.1.5"), hidden: true},
		"an address of many":    {address: netip.MustParseAddr("100.64.1.5"), hidden: true},
		"a public address":      {address: netip.MustParseAddr("203.0.113.7")},
		"a name somewhere else": {named: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := suite.newHost(t, dnsBuiltinServer)
			c := dnsConfiguration(dnsBuiltinServer)
			book := hostaddr.NewBook(hostaddr.Sources{IPv4: auto}, mesh.Addresses{IPv4: test.address}, h.logger())
			h.Reach(test.named, book)
			h.engine = h.NewEngine(book, time.Hour, func(c *reconcile.Config) { c.Ready = ready })
			h.reserve(h.service("example.com", "provider", msg.Builtin), "office", 42)
			h.change(members{"txt_endpoints": []string{"tcp://a:1"}})
			want, warnings, lines := "ok", 0, 0
			if test.hidden {
				want, warnings, lines = "zone_unreachable", 2, 1
			}
			for range 2 {
				r := h.run()
				if !r.OK() || r.Counts["warning"] != warnings || test.hidden && r.Records[0].Fault != (reconcile.Fault{Code: want, Detail: "ns.example.com"}) {
					t.Errorf("%+v", r)
				}
				zone := h.test(t.Context(), c, false)[3]
				if zone.Name != "zone" || !zone.OK || zone.Skipped || zone.Code != want {
					t.Errorf("%+v", zone)
				}
			}
			if told := strings.Count(h.log.String(), "no resolver finds the built-in zones"); told != lines {
				t.Errorf("told %d times:\n%s", told, h.log)
			}
			if told := strings.Count(h.log.String(), "msg=record"); told != 2 { // when they were made
				t.Errorf("%d lines of records:\n%s", told, h.log)
			}
			h.stop()
		})
	}
}

// TestNewAddress gives the host another address: it is published.
func (suite publishing) TestNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := suite.newHost(t, dnsBuiltinServer)
		h.change(members{"sync_mode": modeAuto, "txt_endpoints": []string{"tcp://{ipv4}:1", "tcp://[{ipv6}]:1"}})
		h.knows(mesh.Addresses{}, mesh.Addresses{})
		h.loop()
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text(""))
		last, next, err := h.engine.Last(t.Context())
		if err != nil || !last.OK() || last.Counts["warning"] == 0 || !next.After(time.Now()) {
			t.Fatalf("%+v, next %v, %v", last, next, err)
		}
		if detail := string(last.Records[0].Fault.Detail); !strings.Contains(detail, "tcp://{ipv4}:1") || !strings.Contains(detail, "tcp://[{ipv6}]:1") {
			t.Errorf("%q does not say which", detail)
		}
		both := mesh.Addresses{IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8::1")}
		h.knows(both, both)
		support.Must(t, h.SaveAddresses(t.Context(), both))
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.1:1", "tcp://[2001:db8::1]:1"))
		if last, _, _ = h.engine.Last(t.Context()); last.Trigger != reconcile.TriggerAddress || last.Counts["warning"] > 0 {
			t.Errorf("%+v", last)
		}
	})
}
