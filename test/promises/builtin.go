package promises

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/test/contract"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestBuiltinAnswers asks the built-in server as a resolver would: the
// zones of the configuration and of a service, and names in and beside them.
func (suite publishing) TestBuiltinAnswers(t *testing.T) {
	h := suite.serving(t)
	h.reserve(h.service("own.example.net", "provider", "builtin"), "office", 42)
	h.reserve(h.service("inner.example.com"), "branch", 43)
	c := dnsConfiguration(servertest.Server{})
	c["domain"] = "Deep.Sub.example.com."
	h.service("example.com", "provider", "builtin")
	h.configure(c)
	h.run()
	for _, test := range []struct {
		name  string
		kind  dns.Type
		rcode dns.Rcode
		want  string
	}{
		{"_mesh.office.own.example.net", dns.TypeTXT, dns.RcodeSuccess, "TXT 60"},
		{"_MESH.Office.OWN.example.net", dns.TypeTXT, dns.RcodeSuccess, "TXT 60"},
		{"office.own.example.net", dns.TypeTXT, dns.RcodeSuccess, "no data of own.example.net."},
		{"_mesh.office.own.example.net", dns.TypeA, dns.RcodeSuccess, "no data of own.example.net."},
		{"fice.own.example.net", dns.TypeTXT, dns.RcodeNXDomain, "no data of own.example.net."},
		{"own.example.net", dns.TypeSOA, dns.RcodeSuccess, "SOA 60"},
		{"own.example.net", dns.TypeNS, dns.RcodeSuccess, "NS 300 ns.own.example.net."},
		{"ns.own.example.net", dns.TypeA, dns.RcodeSuccess, "A 60"},
		{"ns.own.example.net", dns.TypeAAAA, dns.RcodeSuccess, "no data of own.example.net."},
		{"example.net", dns.TypeSOA, dns.RcodeRefused, "nothing"},
		{"xown.example.net", dns.TypeSOA, dns.RcodeRefused, "nothing"},
		{"deep.sub.example.com", dns.TypeSOA, dns.RcodeSuccess, "SOA 60"},
		{"_mesh-host.deep.sub.example.com", dns.TypeTXT, dns.RcodeSuccess, "TXT 60"},
		{"sub.example.com", dns.TypeTXT, dns.RcodeSuccess, "no data of example.com."},
		{"_mesh.branch.inner.example.com", dns.TypeTXT, dns.RcodeNXDomain, "no data of example.com."},
	} {
		answer := servertest.Ask(t, h.dnsAddress, test.name, test.kind)
		if got := servertest.AnswerText(answer); answer.Rcode != test.rcode || got != test.want {
			t.Errorf("%s type %d: %v, %s; want %v, %s", test.name, test.kind, answer.Rcode, got, test.rcode, test.want)
		}
	}
}

// TestBuiltinContract holds the built-in client to what every client promises.
func (suite publishing) TestBuiltinContract(t *testing.T) {
	h := suite.serving(t)
	client := builtin.Client{Store: h.Zones, Address: h.dnsAddress}
	contract.Test(t, contract.Backend{Client: client, Outside: dnsOutside{h, servertest.At(t, h.dnsAddress)}, Zone: servertest.Zone, Foreign: []provider.Value{
		{"v=spf1 -all"}, {strings.Repeat("k", 255), "more"}, {"a", "b"}, {"ab"}, {" led and trailed "}, {"\x00 \"quoted\" \\ \xff"}, {""},
	}})
}

// TestBuiltinTypes holds the built-in client to the promises about the types of records.
func (suite publishing) TestBuiltinTypes(t *testing.T) {
	h := suite.serving(t)
	client := builtin.Client{Store: h.Zones, Address: h.dnsAddress}
	contract.TestTypes(t, contract.Backend{Client: client, Outside: dnsOutside{h, servertest.At(t, h.dnsAddress)}, Zone: servertest.Zone})
}

// dnsOutside is another program that writes into the built-in zones.
type dnsOutside struct {
	h  *host
	at servertest.Server
}

func (o dnsOutside) Add(_ testing.TB, name string, value []string) {
	o.h.foreign(servertest.Server{Name: msg.Builtin}, name, value)
}

func (o dnsOutside) Remove(t testing.TB, name string, value []string) {
	support.Exec(t, o.h.Writer, `DELETE FROM zone_records WHERE name = ? AND data = ?`, dnsKey(name), dns.TXTData(value))
	o.h.outside(builtin.Changed{Records: []string{dnsKey(name)}})
}

func (o dnsOutside) Values(t testing.TB, name string) [][]string {
	return o.at.Values(t, name)
}

// Records gives the data of a type as dig prints it.
func (o dnsOutside) Records(t testing.TB, name, kind string) []string {
	return o.at.Records(t, name, kind)
}

func (o dnsOutside) AddRecord(t testing.TB, name, kind, text string) {
	o.record(t, `INSERT INTO zone_records (name, type, data, ttl) VALUES (?, ?, ?, 60)`, name, provider.Type(kind), text)
}

func (o dnsOutside) RemoveRecord(t testing.TB, name, kind, text string) {
	o.record(t, `DELETE FROM zone_records WHERE name = ? AND type = ? AND data = ?`, name, provider.Type(kind), text)
}

// record runs a statement with the name, type and data of a record.
func (o dnsOutside) record(t testing.TB, statement, name string, kind provider.Type, text string) {
	t.Helper()
	value, err := kind.Parse(text)
	support.Must(t, err)
	data, err := kind.Data(value)
	support.Must(t, err)
	support.Exec(t, o.h.Writer, statement, dnsKey(name), kind.Wire(), data)
	o.h.outside(builtin.Changed{Records: []string{dnsKey(name)}})
}

// TestBuiltinEmptyZone asks for a name between two zones, of which the
// lower one has no records yet: it exists, or nothing below it would.
func (suite publishing) TestBuiltinEmptyZone(t *testing.T) {
	for _, lower := range []string{"service", "configuration"} {
		t.Run(lower, func(t *testing.T) {
			h := suite.serving(t)
			c := dnsConfiguration(servertest.Server{})
			if c["domain"] = "deep.sub.example.com"; lower == "service" {
				c["domain"] = "example.com"
				h.service("deep.sub.example.com", "provider", "builtin")
			} else {
				h.service("example.com", "provider", "builtin")
			}
			h.configure(c)
			if answer := servertest.Ask(t, h.dnsAddress, "sub.example.com", dns.TypeTXT); answer.Rcode != dns.RcodeSuccess {
				t.Errorf("%v, want no data", answer.Rcode)
			}
		})
	}
}

// TestBuiltinChanged changes values that another writer has changed since
// they were seen.
func (suite publishing) TestBuiltinChanged(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	client := builtin.Client{Store: h.Zones}
	h.foreign(dnsBuiltinServer, dnsOffice, provider.Value{"one"})
	seen, err := client.Read(t.Context(), "example.com", dnsOffice, provider.TXT)
	support.Must(t, err)
	h.foreign(dnsBuiltinServer, dnsOffice, provider.Value{"two"})
	change := provider.Change{Type: provider.TXT, Name: dnsOffice, Seen: seen, Add: []provider.Value{{"ours"}}, Remove: []provider.Value{{"one"}}, TTL: 60}
	if err := client.Change(t.Context(), change); provider.KindOf(err) != provider.Changed {
		t.Errorf("%v", err)
	}
	h.wantStanding(dnsOffice, `"one"`, `"two"`)
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := client.Read(t.Context(), "", "a..b", provider.TXT); return err },
		"change": func() error { return client.Change(t.Context(), provider.Change{Type: provider.TXT, Name: "a..b"}) },
	} {
		if err := call(); provider.KindOf(err) != provider.Invalid {
			t.Errorf("%s of a name that is none: %v", name, err)
		}
	}
}

// serial gives what the server answers as the serial of a zone.
func (h *host) serial(zone string) uint32 {
	h.t.Helper()
	answer := servertest.Ask(h.t, h.dnsAddress, zone, dns.TypeSOA)
	if len(answer.Answers) != 1 || answer.Rcode != dns.RcodeSuccess {
		h.t.Fatalf("SOA of %s: %+v", zone, answer)
	}
	data := answer.Answers[0].Data
	return binary.BigEndian.Uint32(data[len(data)-20:])
}

// TestSerials makes changes of all kinds: the serials of the zones that a change
// concerns grow, and no other.
func (suite publishing) TestSerials(t *testing.T) {
	h := suite.serving(t)
	put := func(id, zone string) func() error {
		return func() error { return h.putService(id, dnsConfig(zone, "provider", msg.Builtin)) }
	}
	remove := func(id string) func() error { return func() error { return h.deleteService(id) } }
	publish := func(name string) func() error {
		return func() error {
			return builtin.Client{Store: h.Zones}.Change(t.Context(), provider.Change{Type: provider.TXT, Name: name, Add: []provider.Value{{"v"}}, TTL: 60})
		}
	}
	configure := func(name, domain string) func() error {
		return func() error {
			return h.putConfiguration(members{"provider": name, "access_key_id": "x", "access_key_secret": "x", "domain": domain, "txt_record_name": "_t"})
		}
	}
	for _, zone := range []string{"example.com", "a.b.example.com", "example.net"} {
		support.Must(t, put(zone, zone)())
	}
	for _, test := range []struct {
		what   string
		change func() error
		grow   []string
	}{
		{"a record", publish("x.example.com"), []string{"example.com"}},
		{"a record below the zone within", publish("x.a.b.example.com"), []string{"a.b.example.com"}},
		{"a record of no zone", publish("x.example.org"), nil},
		{"the same again", put("example.com", "example.com"), nil},
		{"a zone between", put("b.example.com", "b.example.com"), []string{"example.com"}},
		{"the same zone of another service", put("other", "b.example.com"), nil},
		{"a record in it", publish("x.b.example.com"), []string{"b.example.com"}},
		{"one of the two goes", remove("other"), nil},
		{"the zone within goes", remove("a.b.example.com"), []string{"b.example.com"}},
		{"and comes back", put("a.b.example.com", "a.b.example.com"), []string{"a.b.example.com", "b.example.com"}},
		{"the zone between goes", remove("b.example.com"), []string{"example.com"}},
		{"a configuration", configure("builtin", "c.example.net"), []string{"example.net"}},
		{"it moves", configure("builtin", "d.example.net"), []string{"example.net"}},
		{"it moves elsewhere", configure("builtin", "d.example.com"), []string{"example.net", "example.com"}},
		{"it goes to another provider", configure("rfc2136", "d.example.com"), []string{"example.com"}},
	} {
		zones, err := h.Zones.BuiltinZones(t.Context(), []string{"example.com", "a.b.example.com", "b.example.com", "example.net"})
		support.Must(t, err)
		if err := test.change(); err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		served, err := h.Zones.BuiltinZones(t.Context(), []string{"example.com", "a.b.example.com", "b.example.com", "example.net"})
		support.Must(t, err)
		for _, z := range zones {
			if slices.ContainsFunc(served, func(s builtin.Zone) bool { return s.Name == z.Name }) {
				h.wantSerial(test.what, z, slices.Contains(test.grow, z.Name))
			}
		}
	}
}

// wantSerial compares the serial of a zone with the one that it had before.
func (h *host) wantSerial(what string, before builtin.Zone, grow bool) {
	h.t.Helper()
	now := h.serial(before.Name)
	if grown := int32(now-before.Serial) > 0; grown != grow || !grown && now != before.Serial {
		h.t.Errorf("%s: the serial of %s goes from %d to %d", what, before.Name, before.Serial, now)
	}
}

// TestSerialAfterTheLast has a serial that cannot be counted up, and one ahead of
// the clock, whose zone goes and comes back.
func (suite publishing) TestSerialAfterTheLast(t *testing.T) {
	h := suite.serving(t)
	id := h.service("example.org", "provider", "builtin")
	for _, test := range []struct {
		serial uint32
		change func() error
	}{
		{1<<32 - 1, func() error {
			return builtin.Client{Store: h.Zones}.Change(t.Context(), provider.Change{Type: provider.TXT, Name: "x.example.org", Add: []provider.Value{{"v"}}})
		}},
		{uint32(time.Now().Unix()) + 1_000_000, func() error {
			if err := h.deleteService(id); err != nil {
				return err
			}
			h.service("example.org", "provider", "builtin")
			return nil
		}},
	} {
		support.Exec(t, h.Writer, `UPDATE zone_serials SET serial = ? WHERE zone = 'example.org'`, test.serial)
		h.outside(builtin.Changed{Zones: []string{"example.org"}})
		support.Must(t, test.change())
		if got := h.serial("example.org"); int32(got-test.serial) <= 0 {
			t.Errorf("after %d comes %d", test.serial, got)
		}
	}
}

// TestNoWildcard: a name at * would be a wildcard elsewhere. It is refused, and what
// stands there from earlier can be withdrawn; a query for it is as any other.
func (suite publishing) TestNoWildcard(t *testing.T) {
	h := suite.serving(t)
	h.service("example.com", "provider", "builtin")
	client := builtin.Client{Store: h.Zones, Address: h.dnsAddress}
	for _, name := range []string{"*.example.com", `\042.example.com`, "*.a.example.com", "*"} {
		err := client.Change(t.Context(), provider.Change{Type: provider.TXT, Name: name, Add: []provider.Value{{"v"}}})
		if provider.KindOf(err) != provider.Invalid || !strings.Contains(err.Error(), "wildcard") {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.foreign(servertest.Server{Name: msg.Builtin}, "*.example.com", provider.Value{"old"})
	if answer := servertest.Ask(t, h.dnsAddress, "*.example.com", dns.TypeTXT); servertest.AnswerText(answer) != "TXT 120" {
		t.Errorf("the name itself: %+v", answer)
	}
	if answer := servertest.Ask(t, h.dnsAddress, "x.example.com", dns.TypeTXT); answer.Rcode != dns.RcodeNXDomain {
		t.Errorf("a name beside it: %+v", answer)
	}
	remove := provider.Change{Type: provider.TXT, Name: "*.example.com", Seen: provider.RRset{Values: []provider.Value{{"old"}}}, Remove: []provider.Value{{"old"}}}
	if err := client.Change(t.Context(), remove); err != nil {
		t.Errorf("withdrawing it: %v", err)
	}
	for _, name := range []string{"a*.example.com", "*a.example.com", "x.*.example.com"} {
		if err := client.Change(t.Context(), provider.Change{Type: provider.TXT, Name: name, Add: []provider.Value{{"v"}}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
