package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/dnswire"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/nameserver"
	"meshddns/provider"
	"meshddns/provider/cloudtest"
	"meshddns/provider/contract"
	"meshddns/provider/servertest"
)

// The names and the value that most tests here are about.
const (
	dnsHost     = "_mesh-host.example.com"   // the configuration's record
	dnsOffice   = "_mesh.office.example.com" // the record of the prefix "office"
	dnsEndpoint = "tcp://203.0.113.7:11010"  // the configuration's endpoint, as published
	dnsPatience = 30 * time.Second           // bounds every wait
	dnsOwner    = "0123456789ab"             // of the pure tests
	dnsStranger = "v=mesh1 n=7 o=ffffffffffff tcp://192.0.2.1:1"
)

func TestDNSRetryPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		interval, retries *int64
		want              provider.Backoff
	}{
		"absent":   {nil, nil, provider.Backoff{First: 5 * time.Second, Retries: 3}},
		"given":    {new(int64(7)), new(int64(2)), provider.Backoff{First: 7 * time.Second, Retries: 2}},
		"zero":     {new(int64(0)), new(int64(0)), provider.Backoff{First: 5 * time.Second, Retries: 0}},
		"negative": {new(int64(-1)), new(int64(-1)), provider.Backoff{First: 5 * time.Second, Retries: 3}},
		"at most":  {new(int64(3600)), new(int64(10)), provider.Backoff{First: time.Hour, Retries: 10}},
		"too much": {new(int64(3601)), new(int64(11)), provider.Backoff{First: time.Hour, Retries: 10}},
		"huge":     {new(int64(math.MaxInt64)), new(int64(math.MaxInt64)), provider.Backoff{First: time.Hour, Retries: 10}},
		"least":    {new(int64(math.MinInt64)), new(int64(math.MinInt64)), provider.Backoff{First: 5 * time.Second, Retries: 3}},
	} {
		if got := retryPolicy(configuration{RetryInterval: test.interval, MaxRetries: test.retries}); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestProvidersAreWhole has words and a client for each provider in the list.
func TestProvidersAreWhole(t *testing.T) {
	s := &syncer{}
	for _, p := range providers {
		endpoint := "https://192.0.2.1"
		if p.name == "rfc2136" {
			endpoint = "192.0.2.1"
		}
		if _, err := s.client(target{p.name, endpoint, "key", "c2VjcmV0"}); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		for _, language := range []msg.Language{msg.Chinese, msg.English} {
			if in := msg.ProviderIn(language, p.name); in.Title == "" || in.AccessKeyID == "" || in.AccessKeySecret == "" || in.Endpoint == "" {
				t.Errorf("%s: %+v", p.name, in)
			}
		}
	}
}

func TestDNSServiceConfig(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                         `{"" "" "" "" "" []}`,
		`{"domain":"a.example"}`:                     `{"a.example" "" "" "" "" []}`,
		`{"Domain":"a.example","DOMAIN":"b"}`:        `{"" "" "" "" "" []}`,
		`{"domain":7,"provider":["x"]}`:              `{"" "" "" "" "" []}`,
		`{"domain":null,"txt_endpoints":null}`:       `{"" "" "" "" "" []}`,
		`{"txt_endpoints":"tcp://a:1"}`:              `{"" "" "" "" "" []}`,
		`{"txt_endpoints":["tcp://a:1",1]}`:          `{"" "" "" "" "" []}`,
		`{"txt_endpoints":["tcp://a:1","ws://b:2"]}`: `{"" "" "" "" "" ["tcp://a:1" "ws://b:2"]}`,
		`{"domain":"d","provider":"p","access_key_id":"i","access_key_secret":"s","endpoint":"e","x":1}`: `{"d" "p" "i" "s" "e" []}`,
	} {
		if c, err := parseServiceConfig(text); err != nil || fmt.Sprintf("%q", c) != want {
			t.Errorf("%s: %q, %v; want %s", text, c, err, want)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `"text"`, `7`, `{`, `{"domain":}`} {
		if c, err := parseServiceConfig(text); err == nil {
			t.Errorf("%q: %q, want an error", text, c)
		}
	}
}

// dnsDesires are stored states and the records they ask for.
var dnsDesires = []struct {
	name string
	snap snapshot
	want []string
}{
	{"nothing", snapshot{}, nil},
	{"configuration", dnsSnap("Example.COM.", "_Mesh-Host"), []string{
		dnsHost + ` builtin "v=mesh1 o=` + dnsOwner + ` tcp://203.0.113.7:1"`,
	}},
	{"at the domain itself", dnsSnap("Example.com", "@"), []string{
		`example.com builtin "v=mesh1 o=` + dnsOwner + ` tcp://203.0.113.7:1"`,
	}},
	{"endpoints of the configuration", dnsSnap("", "", dnsUse(0, "Office", `{"domain":"EXAMPLE.com"}`)), []string{
		dnsOffice + ` builtin "v=mesh1 n=0 o=` + dnsOwner + ` tcp://203.0.113.7:1"`,
	}},
	{"endpoints of the service", dnsSnap("", "", dnsUse(math.MaxUint64, "office", `{"domain":"example.com.","txt_endpoints":["ws://s:1"]}`)), []string{
		dnsOffice + ` builtin "v=mesh1 n=18446744073709551615 o=` + dnsOwner + ` ws://s:1"`,
	}},
	{"endpoints of the usage", dnsSnap("", "", dnsUse(1, "office", `{"domain":"example.com","txt_endpoints":["ws://s:1"]}`, "wg://u:1", "tcp://u:2")), []string{
		dnsOffice + ` builtin "v=mesh1 n=1 o=` + dnsOwner + ` wg://u:1 tcp://u:2"`,
	}},
	{"addresses not known", dnsSnap("", "", dnsUse(1, "office", `{"domain":"example.com"}`, "tcp://[{ipv6}]:1", "tcp://{ipv4}:2")), []string{
		dnsOffice + ` builtin "v=mesh1 n=1 o=` + dnsOwner + ` tcp://203.0.113.7:2" missing [tcp://[{ipv6}]:1]`,
	}},
	{"credentials of its own", dnsSnap("", "",
		dnsUse(1, "a", `{"domain":"example.com","provider":"rfc2136","endpoint":"ns:53","access_key_id":"k","txt_endpoints":["a://b:1"]}`)), []string{
		`_mesh.a.example.com rfc2136/ns:53/k "v=mesh1 n=1 o=` + dnsOwner + ` a://b:1"`,
	}},
	{"credentials of the configuration", dnsSnap("", "",
		dnsUse(1, "a", `{"domain":"deep.sub.EXAMPLE.com"}`, "a://b:1"), dnsUse(2, "b", `{"domain":"com"}`),
		dnsUse(3, "c", `{"domain":"notexample.com"}`), dnsUse(4, "d", `{"domain":"example.com.net"}`)), []string{
		`_mesh.a.deep.sub.example.com builtin "v=mesh1 n=1 o=` + dnsOwner + ` a://b:1"`,
		`_mesh.b.com  "" no_provider`,
		`_mesh.c.notexample.com  "" no_provider`,
		`_mesh.d.example.com.net  "" no_provider`,
	}},
	{"nothing to publish", dnsSnap("", "", dnsUse(1, "a", `{}`), dnsUse(2, "b", `[]`), dnsUse(3, "c", `{"domain":7}`),
		usage{Prefix: "d", Status: statusActive, ServiceConfig: new(`{"domain":"example.com"}`)},
		usage{Prefix: "e", Status: statusActive, Network: new(networkID(1))},
		usage{Prefix: "f", Status: statusReleasing, Network: new(networkID(1)), ServiceConfig: new(`{"domain":"example.com"}`)}), nil},
	{"one network twice: the newest", dnsSnap("", "",
		dnsUse(1, "A", `{"domain":"example.com"}`, "a://old:1"), dnsUse(1, "a", `{"domain":"example.com"}`, "a://new:1")), []string{
		`_mesh.a.example.com builtin "v=mesh1 n=1 o=` + dnsOwner + ` a://new:1"`,
	}},
	{"two networks: the elder", dnsSnap("", "", dnsUse(9, "A", `{"domain":"example.com"}`, "a://b:1"), dnsUse(1, "a", `{"domain":"Example.com"}`)), []string{
		`_mesh.a.example.com builtin "" network_conflict`,
		`_mesh.a.example.com builtin "v=mesh1 n=9 o=` + dnsOwner + ` a://b:1"`,
	}},
	{"the configuration's own name", dnsSnap("example.com", "_mesh.a", dnsUse(9, "a", `{"domain":"example.com"}`)), []string{
		`_mesh.a.example.com builtin "" network_conflict`,
		`_mesh.a.example.com builtin "v=mesh1 o=` + dnsOwner + ` tcp://203.0.113.7:1"`,
	}},
	{"names that DNS does not have", dnsSnap("exa mple.com", "x",
		dnsUse(1, "a", `{"domain":"b..example.com","provider":"builtin"}`),
		dnsUse(2, "b", `{"domain":"`+strings.Repeat("long.", 50)+`net","provider":"builtin"}`)), []string{
		`_mesh.a.b..example.com builtin "v=mesh1 n=1 o=` + dnsOwner + ` tcp://203.0.113.7:1" invalid_name`,
		`_mesh.b.` + strings.Repeat("long.", 50) + `net builtin "v=mesh1 n=2 o=` + dnsOwner + ` tcp://203.0.113.7:1" invalid_name`,
		`x.exa mple.com builtin "v=mesh1 o=` + dnsOwner + ` tcp://203.0.113.7:1" invalid_name`,
	}},
	{"endpoints that are none", dnsSnap("", "", dnsUse(1, "a", `{"domain":"example.com"}`, "no url")), []string{
		`_mesh.a.example.com builtin "v=mesh1 n=1 o=` + dnsOwner + ` no url" invalid`,
	}},
	{"wanted no more", dnsStood(dnsSnap("", ""), publication{Name: "a.example.com", Provider: "builtin"}), []string{
		`a.example.com builtin "" withdraw`,
	}},
	{"wanted elsewhere", dnsStood(dnsSnap("example.com", "x"), publication{Name: "x.example.com", Provider: "rfc2136", Endpoint: "ns:53"}), []string{
		`x.example.com builtin "v=mesh1 o=` + dnsOwner + ` tcp://203.0.113.7:1"`,
		`x.example.com rfc2136/ns:53/ "" credentials_gone withdraw moved`,
	}},
}

func TestDNSDesired(t *testing.T) {
	for _, test := range dnsDesires {
		var got []string
		for _, r := range desired(test.snap, dnsAddresses) {
			if r.name != dnsLeftOut+"."+servertest.Zone {
				got = append(got, dnsRecordText(r))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestSyncLifecycle reserves, publishes, changes and releases, at every server.
func TestSyncLifecycle(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "Office", 42)
		wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
		wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
		wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
		h.wantRow(dnsOffice, "published written "+h.value("42", dnsEndpoint))
		serial := s.Serial(t)
		h.publish(u, "udp://{ipv4}:1", "wss://mesh.example.net:443")
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" update")
		wantTXT(t, s, dnsOffice, h.text("42", "udp://203.0.113.7:1", "wss://mesh.example.net:443"))
		if s.Serial(t) <= serial {
			t.Errorf("serial %s after %s", s.Serial(t), serial)
		}
		h.release(u, true)
		wantTXT(t, s, dnsOffice)
		if rcode := dnsAsk(t, s.Addr, "office.example.com", dnswire.TypeTXT).Rcode; rcode != dnswire.RcodeNXDomain {
			t.Errorf("rcode %v, want NXDOMAIN", rcode)
		}
		h.wantRow(dnsOffice, "")
		h.wantTaken("office", 0)
		wantReport(t, h.run(), dnsHost+" unchanged")
		wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	})
}

// dnsForeign are values of other programs; PowerDNS and nsupdate have others
// in the tests of the client.
var dnsForeign = []provider.TXT{
	{"v=spf1 include:example.net -all"},
	{"a \"quote\" and a \\"},
	{"caf\xc3\xa9 \xff\x00"},
	{strings.Repeat("k", 255), strings.Repeat("k", 100)},
	{"two", "strings"},
	{"", "led by an empty one"},
	{"V=mesh1 is another word"},
	{"v=mesh12 o=0"},
}

func TestSyncForeignValues(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		var foreign []string
		for _, v := range dnsForeign {
			h.foreign(s, dnsOffice, v)
			foreign = append(foreign, dnsQuoted(v))
		}
		wantTXT(t, s, dnsOffice, foreign...)
		u := h.reserve(h.service("example.com"), "office", 42)
		wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
		wantTXT(t, s, dnsOffice, append(foreign, h.text("42", dnsEndpoint))...)
		if ttl := dnsAsk(t, s.Addr, dnsOffice, dnswire.TypeTXT).Answers[0].TTL; ttl != dnsForeignTTL {
			t.Errorf("TTL %d, want that of the values there, %d", ttl, dnsForeignTTL)
		}
		h.publish(u, "udp://192.0.2.9:1")
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" update")
		wantTXT(t, s, dnsOffice, append(foreign, h.text("42", "udp://192.0.2.9:1"))...)
		h.release(u, true)
		wantTXT(t, s, dnsOffice, foreign...)
	})
}

// TestSyncApex publishes at the domain itself, beside what stands there.
func TestSyncApex(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		spf := provider.TXT{"v=spf1 -all"}
		h.foreign(s, "example.com", spf)
		h.change(func(c *configuration) { c.TXTRecordName = "@" })
		wantReport(t, h.run(), "example.com create")
		wantTXT(t, s, "example.com", h.text("", dnsEndpoint), dnsQuoted(spf))
		h.change(func(c *configuration) { c.TXTRecordName = "_mesh-host" })
		wantReport(t, h.run(), dnsHost+" create", "example.com delete")
		wantTXT(t, s, "example.com", dnsQuoted(spf))
	})
}

// TestSyncUnchanged repeats a synchronisation, later: nothing is written, at
// the server or to the database.
func TestSyncUnchanged(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		h.reserve(h.service("example.com"), "office", 42)
		h.reserve(h.service("sub.example.com"), "b", 43)
		wantReport(t, h.run(), dnsHost+" create", "_mesh.b.sub.example.com create", dnsOffice+" create")
		serial, version := s.Serial(t), h.version()
		h.store.now = func() time.Time { return time.Now().Add(time.Hour) }
		before := version()
		for range 3 {
			wantReport(t, h.run(), dnsHost+" unchanged", "_mesh.b.sub.example.com unchanged", dnsOffice+" unchanged")
		}
		if s.Serial(t) != serial {
			t.Errorf("serial %s, was %s", s.Serial(t), serial)
		}
		if after := version(); after != before {
			t.Errorf("the database was written: data version %d, was %d", after, before)
		}
	})
}

// TestSyncPreview plans a create, an update and a delete, and does nothing.
func TestSyncPreview(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		service := h.service("example.com")
		u, gone := h.reserve(service, "office", 42), h.reserve(service, "gone", 43)
		h.run()
		h.publish(u, "udp://192.0.2.9:1")
		h.reserve(service, "new", 44)
		if err := h.store.DeleteUsage(t.Context(), gone.ID); err != nil {
			t.Fatal(err)
		}
		last, _ := h.sync.Last()
		serial, version := s.Serial(t), h.version()
		before := version()
		r, err := h.sync.Preview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantReport(t, r, dnsHost+" unchanged", "_mesh.gone.example.com delete", "_mesh.new.example.com create", dnsOffice+" update")
		if s.Serial(t) != serial || version() != before {
			t.Errorf("serial %s, was %s; data version %d, was %d", s.Serial(t), serial, version(), before)
		}
		if now, _ := h.sync.Last(); now != last {
			t.Error("the last report is the preview's")
		}
	})
}

// TestSyncConflicts has a value of another owner, and aliases, at our names.
func TestSyncConflicts(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := newSyncHost(t, s)
		service := h.service("example.com")
		h.reserve(service, "office", 42)
		h.reserve(service, "alias", 43)
		h.foreign(s, dnsOffice, provider.TXT{dnsStranger})
		s.Update(t, "add _mesh.alias.example.com 60 CNAME keep.example.com")
		serial := s.Serial(t)
		r := h.run()
		wantReport(t, r, dnsHost+" create", "_mesh.alias.example.com conflict", dnsOffice+" conflict")
		if bad, first := r.bad(); bad != 2 || first.name != "_mesh.alias.example.com" || !strings.Contains(first.fault.detail, "keep.example.com") {
			t.Errorf("%d bad, the first %+v", bad, first)
		}
		if detail := r.outcomes[2].fault.detail; !strings.Contains(detail, dnsStranger) {
			t.Errorf("%q does not show the other value", detail)
		}
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.TXT{dnsStranger}))
		h.wantRow(dnsOffice, "conflict not written "+h.value("42", dnsEndpoint)+" conflict")
		// Once the stranger has gone, the name is ours.
		s.Update(t, "delete "+dnsOffice+" TXT", "delete _mesh.alias.example.com CNAME")
		wantReport(t, h.run(), dnsHost+" unchanged", "_mesh.alias.example.com create", dnsOffice+" create")
		if s.Serial(t) == serial {
			t.Error("nothing was written")
		}
	})
}

// TestSyncStrangerComes has another owner's value come beside ours: ours goes
// with the usage, and the other stays.
func TestSyncStrangerComes(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.foreign(s, dnsOffice, provider.TXT{dnsStranger})
		h.publish(u, "udp://192.0.2.9:1")
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" conflict")
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.TXT{dnsStranger}), h.text("42", dnsEndpoint))
		h.release(u, true)
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.TXT{dnsStranger}))
	})
}

// TestSyncTwoAppliances has two databases share a zone, and then a name.
func TestSyncTwoAppliances(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		a, b := newSyncHost(t, s), newSyncHost(t, s)
		c := dnsConfiguration(s)
		c.TXTRecordName = "_mesh-other"
		b.configure(c)
		a.reserve(a.service("example.com"), "a", 1)
		b.reserve(b.service("example.com"), "b", 1)
		wantReport(t, a.run(), dnsHost+" create", "_mesh.a.example.com create")
		wantReport(t, b.run(), "_mesh-other.example.com create", "_mesh.b.example.com create")
		wantReport(t, a.run(), dnsHost+" unchanged", "_mesh.a.example.com unchanged")
		u := a.reserve(a.service("example.com"), "office", 42)
		v := b.reserve(b.service("example.com"), "office", 42)
		wantReport(t, a.run(), dnsHost+" unchanged", "_mesh.a.example.com unchanged", dnsOffice+" create")
		wantReport(t, b.run(), "_mesh-other.example.com unchanged", "_mesh.b.example.com unchanged", dnsOffice+" conflict")
		b.release(v, true)
		wantTXT(t, s, dnsOffice, a.text("42", dnsEndpoint))
		b.reserve(b.service("example.com"), "office", 43)
		a.release(u, true)
		wantReport(t, b.run(), "_mesh-other.example.com unchanged", "_mesh.b.example.com unchanged", dnsOffice+" create")
		wantTXT(t, s, dnsOffice, b.text("43", dnsEndpoint))
		wantTXT(t, s, "_mesh.a.example.com", a.text("1", dnsEndpoint))
	})
}

// TestSyncManyWriters has two appliances and another program write to one
// name at once: no foreign value is lost, and no two owners stand there.
func TestSyncManyWriters(t *testing.T) {
	const rounds = 12
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		var writers sync.WaitGroup
		var hosts []*syncHost
		for n := range 2 {
			h := newSyncHost(t, s)
			hosts = append(hosts, h)
			c := dnsConfiguration(s)
			c.TXTRecordName = fmt.Sprint("_mesh-", n)
			h.configure(c)
			service := h.service("example.com")
			writers.Go(func() {
				for round := range rounds {
					u := h.reserve(service, "office", 42)
					h.publish(u, fmt.Sprintf("tcp://192.0.2.%d:%d", n, 1+round))
					h.run()
					h.sync.Release(t.Context(), u)
					h.store.DeleteUsage(t.Context(), u.ID) // not freed when the races were lost too often
				}
				h.run()
			})
		}
		var want []string
		for round := range 2 * rounds {
			v := provider.TXT{fmt.Sprint("foreign ", round)}
			h := hosts[0]
			h.foreign(s, dnsOffice, v)
			want = append(want, dnsQuoted(v))
			if found := s.TXT(t, dnsOffice); strings.Contains(fmt.Sprint(found), hosts[0].owner) && strings.Contains(fmt.Sprint(found), hosts[1].owner) {
				t.Errorf("two owners at one name: %q", found)
			}
		}
		writers.Wait()
		wantTXT(t, s, dnsOffice, want...)
	})
}

// TestDNSBuiltinAnswers asks the built-in server as a resolver would: the
// zones of the configuration and of a service, and names in and beside them.
func TestDNSBuiltinAnswers(t *testing.T) {
	h := syncServing(t)
	h.reserve(h.service("own.example.net", "provider", "builtin"), "office", 42)
	h.reserve(h.service("inner.example.com"), "branch", 43)
	c := dnsConfiguration(servertest.Server{})
	c.Domain = "Deep.Sub.example.com."
	h.service("example.com", "provider", "builtin")
	h.configure(c)
	h.run()
	for _, test := range []struct {
		name  string
		kind  dnswire.Type
		rcode dnswire.Rcode
		want  string
	}{
		{"_mesh.office.own.example.net", dnswire.TypeTXT, dnswire.RcodeSuccess, "TXT 60"},
		{"_MESH.Office.OWN.example.net", dnswire.TypeTXT, dnswire.RcodeSuccess, "TXT 60"},
		{"office.own.example.net", dnswire.TypeTXT, dnswire.RcodeSuccess, "no data of own.example.net."},
		{"_mesh.office.own.example.net", dnswire.TypeA, dnswire.RcodeSuccess, "no data of own.example.net."},
		{"fice.own.example.net", dnswire.TypeTXT, dnswire.RcodeNXDomain, "no data of own.example.net."},
		{"own.example.net", dnswire.TypeSOA, dnswire.RcodeSuccess, "SOA 60"},
		{"own.example.net", dnswire.TypeNS, dnswire.RcodeSuccess, "NS 300 ns.own.example.net."},
		{"ns.own.example.net", dnswire.TypeA, dnswire.RcodeSuccess, "A 60"},
		{"ns.own.example.net", dnswire.TypeAAAA, dnswire.RcodeSuccess, "no data of own.example.net."},
		{"example.net", dnswire.TypeSOA, dnswire.RcodeRefused, "nothing"},
		{"xown.example.net", dnswire.TypeSOA, dnswire.RcodeRefused, "nothing"},
		{"deep.sub.example.com", dnswire.TypeSOA, dnswire.RcodeSuccess, "SOA 60"},
		{"_mesh-host.deep.sub.example.com", dnswire.TypeTXT, dnswire.RcodeSuccess, "TXT 60"},
		{"sub.example.com", dnswire.TypeTXT, dnswire.RcodeSuccess, "no data of example.com."},
		{"_mesh.branch.inner.example.com", dnswire.TypeTXT, dnswire.RcodeNXDomain, "no data of example.com."},
	} {
		answer := dnsAsk(t, h.sync.dnsAddress, test.name, test.kind)
		if got := dnsAnswerText(answer); answer.Rcode != test.rcode || got != test.want {
			t.Errorf("%s type %d: %v, %s; want %v, %s", test.name, test.kind, answer.Rcode, got, test.rcode, test.want)
		}
	}
}

// TestDNSBuiltinContract holds the built-in client to what every client promises.
func TestDNSBuiltinContract(t *testing.T) {
	h := syncServing(t)
	client, err := h.sync.client(target{provider: dnsBuiltin})
	if err != nil {
		t.Fatal(err)
	}
	contract.Test(t, contract.Backend{Client: client, Outside: dnsOutside{h}, Zone: servertest.Zone, Foreign: []provider.TXT{
		{"v=spf1 -all"}, {strings.Repeat("k", 255), "more"}, {"a", "b"}, {"ab"}, {" led and trailed "}, {"\x00 \"quoted\" \\ \xff"}, {""},
	}})
}

// dnsOutside is another program that writes into the built-in zones.
type dnsOutside struct{ h *syncHost }

func (o dnsOutside) Add(_ testing.TB, name string, value []string) {
	o.h.foreign(servertest.Server{Name: dnsBuiltin}, name, value)
}

func (o dnsOutside) Remove(t testing.TB, name string, value []string) {
	key, err := zoneKey(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.h.store.writer.Exec(`DELETE FROM zone_records WHERE name = ? AND data = ?`, key, dnswire.TXTData(value)); err != nil {
		t.Fatal(err)
	}
}

func (o dnsOutside) Values(t testing.TB, name string) [][]string {
	return servertest.Server{Addr: o.h.sync.dnsAddress}.Values(t, name)
}

// TestDNSBuiltinEmptyZone asks for a name between two zones, of which the
// lower one has no records yet: it exists, or nothing below it would.
func TestDNSBuiltinEmptyZone(t *testing.T) {
	for _, lower := range []string{"service", "configuration"} {
		t.Run(lower, func(t *testing.T) {
			h := syncServing(t)
			c := dnsConfiguration(servertest.Server{})
			if c.Domain = "deep.sub.example.com"; lower == "service" {
				c.Domain = "example.com"
				h.service("deep.sub.example.com", "provider", "builtin")
			} else {
				h.service("example.com", "provider", "builtin")
			}
			h.configure(c)
			if answer := dnsAsk(t, h.sync.dnsAddress, "sub.example.com", dnswire.TypeTXT); answer.Rcode != dnswire.RcodeSuccess {
				t.Errorf("%v, want no data", answer.Rcode)
			}
		})
	}
}

// TestDNSBuiltinNotListening has a configuration for a server that is off.
func TestDNSBuiltinNotListening(t *testing.T) {
	h := newSyncHost(t, servertest.Server{Name: dnsBuiltin})
	h.configure(dnsConfiguration(servertest.Server{Name: dnsBuiltin}))
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}

// TestSyncFailures has providers that do not do what they should. Each makes
// a clear item, and the secret is nowhere.
func TestSyncFailures(t *testing.T) {
	s := servertest.BIND(t)
	echo := provider.TXT{"v=mesh1 o=ffffffffffff " + servertest.Secret}
	s.Update(t, `add _mesh-echo.example.com 60 TXT `+dnsQuoted(echo))
	right := dnsConfiguration(s)
	for name, test := range map[string]struct {
		change func(c *configuration)
		want   string
	}{
		"refused":      {func(c *configuration) { c.Endpoint = dnsClosedPort(t) }, dnsHost + " failed network"},
		"silent":       {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsSilent) }, dnsHost + " failed network"},
		"garbage":      {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsGarbage) }, dnsHost + " failed network"},
		"not signed":   {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsUnsigned) }, dnsHost + " failed bad_answer"},
		"server fails": {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsServFail) }, dnsHost + " failed temporary"},
		"wrong secret": {func(c *configuration) { c.AccessKeySecret = servertest.Secret512 }, dnsHost + " failed credentials"},
		"unknown key":  {func(c *configuration) { c.AccessKeyID = "stranger" }, dnsHost + " failed credentials"},
		"key without rights": {func(c *configuration) {
			c.AccessKeyID, c.AccessKeySecret = servertest.ReadOnlyKey, servertest.ReadOnly
		}, dnsHost + " failed permission"},
		"not base64":       {func(c *configuration) { c.AccessKeySecret = "!" + servertest.Secret }, dnsHost + " failed invalid"},
		"endpoint":         {func(c *configuration) { c.Endpoint = "no host" }, dnsHost + " failed invalid"},
		"unknown provider": {func(c *configuration) { c.Provider = "nobody" }, dnsHost + " failed unknown_provider"},
		"no such zone":     {func(c *configuration) { c.Domain = "example.org" }, "_mesh-host.example.org failed zone_not_found"},
		"bad name":         {func(c *configuration) { c.Domain = "exam ple.com" }, "_mesh-host.exam ple.com failed invalid_name"},
		"echo":             {func(c *configuration) { c.TXTRecordName = "_mesh-echo" }, "_mesh-echo.example.com conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			c := right
			test.change(&c)
			testFailure(t, s, c, test.want)
		})
	}
	wantTXT(t, s, "_mesh-echo.example.com", dnsQuoted(echo))
}

func testFailure(t *testing.T, s servertest.Server, c configuration, want string) {
	h := newSyncHost(t, s)
	h.configure(c)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	r, err := h.sync.Sync(ctx, triggerManual)
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, r, want)
	rows := h.rows(r.outcomes[0].name)
	if len(rows) != 1 || rows[0].State != r.outcomes[0].action || rows[0].Code != string(r.outcomes[0].fault.code) {
		t.Errorf("rows %+v", rows)
	}
	for _, secret := range []string{servertest.Secret, servertest.Secret512, servertest.ReadOnly} {
		if text := fmt.Sprintf("%+v %+v %s", r, rows, h.log); strings.Contains(text, secret) {
			t.Errorf("the secret is in %s", text)
		}
	}
}

// TestSyncDownOnce has a server with many names that fails: it is asked for
// its zone, and not again for each name.
func TestSyncDownOnce(t *testing.T) {
	var asked atomic.Int64
	s := servertest.Server{Name: "down", Addr: dnsRelay(t, "", func(query []byte, forward func() []byte) []byte {
		asked.Add(1)
		return dnsServFail(query, forward)
	})}
	h := newSyncHost(t, s)
	service := h.service("example.com")
	want := []string{dnsHost + " failed temporary"}
	for n := range 20 {
		h.reserve(service, fmt.Sprintf("p%02d", n), networkID(n))
		want = append(want, fmt.Sprintf("_mesh.p%02d.example.com failed temporary", n))
	}
	wantReport(t, h.run(), want...)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestSyncRetries has a server that fails twice: the configuration's retries
// are made, and the report counts them.
func TestSyncRetries(t *testing.T) {
	s := servertest.BIND(t)
	var asked atomic.Int64
	c := dnsConfiguration(s)
	c.RetryInterval, c.MaxRetries = new(int64(1)), new(int64(1))
	c.Endpoint = dnsRelay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if dnsIsUpdate(query) && asked.Add(1) == 1 {
			return dnsServFail(query, forward)
		}
		return forward()
	})
	h := newSyncHost(t, s)
	h.configure(c)
	r := h.run()
	wantReport(t, r, dnsHost+" create")
	if r.outcomes[0].attempts != 2 || r.outcomes[0].duration < time.Second {
		t.Errorf("%d attempts in %v", r.outcomes[0].attempts, r.outcomes[0].duration)
	}
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	version := h.version()
	before := version()
	wantReport(t, h.run(), dnsHost+" unchanged")
	if after := version(); after != before {
		t.Errorf("equal, but the database was written: data version %d, was %d", after, before)
	}
}

// TestSyncLostAnswer has a server that makes a change and never answers: the
// row says that a value may stand there, and the next synchronisation knows.
func TestSyncLostAnswer(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{after: true, lose: true}
	h := newSyncHost(t, gate.server(t, s))
	gate.shut(1)
	close(gate.open)
	wantReport(t, h.run(), dnsHost+" failed network")
	h.wantRow(dnsHost, "failed written "+h.value("", dnsEndpoint)+" network")
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	wantReport(t, h.run(), dnsHost+" unchanged")
	h.wantRow(dnsHost, "published written "+h.value("", dnsEndpoint))
}

// TestSyncRestart ends a process in the middle of a provider call, before or
// after the server has made the change. A new process on a copy of the
// database, taken at that moment, brings the name to its wanted state.
func TestSyncRestart(t *testing.T) {
	for _, release := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("release %t, made %t", release, after), func(t *testing.T) {
				s := servertest.BIND(t)
				gate := &dnsGate{after: after, lose: true}
				h := newSyncHost(t, gate.server(t, s))
				h.run()
				u := h.reserve(h.service("example.com"), "office", 42)
				if release {
					h.run()
				}
				gate.shut(1)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					if release {
						h.sync.Release(t.Context(), u)
					} else {
						h.sync.Sync(t.Context(), triggerManual)
					}
				}()
				dnsWait(t, gate.arrived)
				restarted := h.copied(t)
				close(gate.open)
				dnsWait(t, ended)
				testRestarted(t, restarted, s, release, after)
			})
		}
	}
}

func testRestarted(t *testing.T, h *syncHost, s servertest.Server, release, after bool) {
	u := h.usage("office")
	if release {
		h.wantRow(dnsOffice, "withdrawing written")
		if u.Status != statusReleasing {
			t.Errorf("status %s", u.Status)
		}
		h.wantTaken("office", 1)
		action := " delete"
		if after {
			action = " unchanged"
		}
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+action)
		h.wantRow(dnsOffice, "")
		h.wantTaken("office", 0)
		wantTXT(t, s, dnsOffice)
		return
	}
	h.wantRow(dnsOffice, "pending written "+h.value("42", dnsEndpoint))
	action := " create"
	if after {
		action = " unchanged"
	}
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+action)
	h.wantRow(dnsOffice, "published written "+h.value("42", dnsEndpoint))
	wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
}

// TestSyncStopDuringWrite ends the context while a write is at the server:
// the write is finished and its outcome stored, and the next one not begun.
func TestSyncStopDuringWrite(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{}
	h := newSyncHost(t, gate.server(t, s))
	gate.shut(1)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan report, 1)
	go func() {
		r, err := h.sync.Sync(ctx, triggerManual)
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	dnsWait(t, gate.arrived)
	cancel()
	close(gate.open)
	r := dnsWait(t, result)
	wantReport(t, r, dnsHost+" create")
	if !r.interrupted {
		t.Error("the report does not say that it was interrupted")
	}
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	h.wantRow(dnsHost, "published written "+h.value("", dnsEndpoint))
}

// TestSyncStopBeforeWrite ends the context while a name is read: nothing is
// written, and what is known of the name stays known.
func TestSyncStopBeforeWrite(t *testing.T) {
	s := servertest.BIND(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stop atomic.Bool
	place := servertest.Server{Name: s.Name, Addr: dnsRelay(t, s.Addr, func(_ []byte, forward func() []byte) []byte {
		if stop.Load() {
			cancel()
		}
		return forward()
	})}
	h := newSyncHost(t, place)
	h.run()
	h.change(func(c *configuration) { c.Endpoints = textList{"tcp://192.0.2.1:1"} })
	serial := s.Serial(t)
	stop.Store(true)
	r, err := h.sync.Sync(ctx, triggerManual)
	if err != nil || !r.interrupted {
		t.Fatalf("%+v, %v", r, err)
	}
	wantReport(t, r, dnsHost+" failed interrupted")
	if s.Serial(t) != serial {
		t.Error("the zone was written")
	}
	h.wantRow(dnsHost, "published written "+h.value("", dnsEndpoint))
}

// TestSyncDatabaseFails has the database refuse a statement: without the
// intent nothing is written to DNS, and without the outcome it is not believed.
func TestSyncDatabaseFails(t *testing.T) {
	const failed = dnsOffice + " failed database_unavailable"
	for name, test := range map[string]struct {
		trigger      string
		delete       bool
		before, next string // what the next synchronisation does
	}{
		"intent":            {"INSERT ON publications", false, "", dnsOffice + " create"},
		"intent alone":      {"INSERT ON publications WHEN NEW.state = 'pending'", false, "", dnsOffice + " create"},
		"outcome":           {"UPDATE ON publications WHEN NEW.state = 'published'", false, "stands", dnsOffice + " unchanged"},
		"intent to delete":  {"UPDATE ON publications WHEN NEW.state = 'withdrawing'", true, "stands", dnsOffice + " delete"},
		"outcome of delete": {"DELETE ON publications", true, "", dnsOffice + " unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSyncHost(t, dnsBuiltinServer)
			h.run()
			u := h.reserve(h.service("example.com"), "office", 42)
			if test.delete {
				h.run()
				h.exec(`UPDATE bindings SET status = 'releasing' WHERE usage_id = '` + u.ID + `'`)
			}
			h.exec(`CREATE TRIGGER broken BEFORE ` + test.trigger + ` BEGIN SELECT RAISE(FAIL, 'disk is full'); END`)
			wantReport(t, h.run(), dnsHost+" unchanged", failed)
			var want []string
			if test.before != "" {
				want = []string{h.text("42", dnsEndpoint)}
			}
			h.wantStanding(dnsOffice, want...)
			h.wantTaken("office", 1)
			h.exec(`DROP TRIGGER broken`)
			wantReport(t, h.run(), dnsHost+" unchanged", test.next)
		})
	}
}

// TestDNSBuiltinChanged changes values that another writer has changed since
// they were seen.
func TestDNSBuiltinChanged(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	client := builtin{store: h.store}
	h.foreign(dnsBuiltinServer, dnsOffice, provider.TXT{"one"})
	seen, err := client.Read(t.Context(), "example.com", dnsOffice)
	if err != nil {
		t.Fatal(err)
	}
	h.foreign(dnsBuiltinServer, dnsOffice, provider.TXT{"two"})
	change := provider.Change{Name: dnsOffice, Seen: seen, Add: []provider.TXT{{"ours"}}, Remove: []provider.TXT{{"one"}}, TTL: 60}
	if err := client.Change(t.Context(), change); provider.KindOf(err) != provider.Changed {
		t.Errorf("%v", err)
	}
	h.wantStanding(dnsOffice, `"one"`, `"two"`)
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := client.Read(t.Context(), "", "a..b"); return err },
		"change": func() error { return client.Change(t.Context(), provider.Change{Name: "a..b"}) },
	} {
		if err := call(); provider.KindOf(err) != provider.Invalid {
			t.Errorf("%s of a name that is none: %v", name, err)
		}
	}
}

// TestSyncReleaseUnpublished frees a prefix whose value never stood anywhere,
// without a call to the provider.
func TestSyncReleaseUnpublished(t *testing.T) {
	for name, before := range map[string]func(h *syncHost){
		"never tried":     func(*syncHost) {},
		"tried in vain":   func(h *syncHost) { h.run() },
		"disabled":        func(h *syncHost) { h.change(func(c *configuration) { c.Enabled = false }) },
		"service changed": func(h *syncHost) { h.exec(`UPDATE services SET config = '[]'`) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newSyncHost(t, servertest.Server{Name: "down", Addr: dnsClosedPort(t)})
			u := h.reserve(h.service("example.com"), "office", 42)
			before(h)
			looked := h.looked.Load()
			h.release(u, true)
			h.wantTaken("office", 0)
			if h.looked.Load() != looked {
				t.Error("a synchronisation was made")
			}
		})
	}
}

// TestSyncForgets has a row of a value that never came to stand, for a usage
// that is gone: the next synchronisation drops it and has nothing to say.
func TestSyncForgets(t *testing.T) {
	h := newSyncHost(t, servertest.Server{Name: "down", Addr: dnsClosedPort(t)})
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" failed network", dnsOffice+" failed network")
	h.release(u, true)
	if r, err := h.sync.Preview(t.Context()); err != nil || len(h.rows(dnsOffice)) != 1 {
		t.Errorf("preview %+v, %v, rows %+v", r, err, h.rows(dnsOffice))
	}
	wantReport(t, h.run(), dnsHost+" failed network")
	h.wantRow(dnsOffice, "")
}

// TestSyncReleaseWhileDown releases while the provider fails: the prefix stays
// taken until a later synchronisation has withdrawn the value.
func TestSyncReleaseWhileDown(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	h := newSyncHost(t, servertest.Server{Name: s.Name, Addr: dnsRelay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() {
			return dnsServFail(query, forward)
		}
		return forward()
	})})
	service := h.service("example.com")
	u := h.reserve(service, "Office", 42)
	h.run()
	down.Store(true)
	h.release(u, false)
	h.release(u, false) // and once more, as a client does that got no answer
	if u := h.usage("Office"); u.Status != statusReleasing {
		t.Errorf("status %s", u.Status)
	}
	h.wantRow(dnsOffice, "withdrawing written temporary")
	h.wantTaken("office", 1)
	if _, err := h.store.CreateUsage(t.Context(), usage{ServiceID: service, Mode: "custom", Prefix: "office"}, 43); !errors.Is(err, errPrefixTaken) {
		t.Errorf("the prefix is given to another: %v", err)
	}
	wantReport(t, h.run(), dnsHost+" failed temporary", dnsOffice+" failed temporary")
	h.wantTaken("office", 1)
	wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
	down.Store(false)
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" delete")
	wantTXT(t, s, dnsOffice)
	h.wantTaken("office", 0)
	h.wantRow(dnsOffice, "")
}

// TestSyncReleaseShared has several usages of one network at one name: the
// newest decides the endpoints, and the value goes with the last.
func TestSyncReleaseShared(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automaticPrefix(42)
	name := foldName(fullName(prefix, "example.com"))
	var usages []usage
	for n := range 3 {
		u := h.reserve(service, prefix, 42)
		h.publish(u, fmt.Sprintf("tcp://192.0.2.%d:1", n))
		usages = append(usages, u)
	}
	wantReport(t, h.run(), dnsHost+" create", name+" create")
	h.wantStanding(name, h.text("42", "tcp://192.0.2.2:1"))
	h.release(usages[0], true)
	h.wantStanding(name, h.text("42", "tcp://192.0.2.2:1"))
	h.release(usages[2], true)
	h.wantStanding(name, h.text("42", "tcp://192.0.2.1:1"))
	h.wantTaken(prefix, 1)
	h.release(usages[1], true)
	h.wantStanding(name)
	h.wantTaken(prefix, 0)
}

// TestSyncReleaseHandsOver has three networks want one name of a domain that
// services share. Each release gives it to the next elder one, and no network
// is kept from its release by one that waits.
func TestSyncReleaseHandsOver(t *testing.T) {
	for name, order := range map[string][]int{"elder first": {0, 1, 2}, "younger first": {2, 1, 0}, "middle first": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			h := newSyncHost(t, dnsBuiltinServer)
			var waiting []usage
			for n := range 3 {
				waiting = append(waiting, h.reserve(h.service("example.com"), "office", networkID(n)))
			}
			wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create", dnsOffice+" conflict network_conflict", dnsOffice+" conflict network_conflict")
			h.wantStanding(dnsOffice, h.text("0", dnsEndpoint))
			for _, n := range order {
				h.release(waiting[n], true)
				waiting[n].ID = ""
				left := slices.IndexFunc(waiting, func(u usage) bool { return u.ID != "" })
				if left < 0 {
					h.wantStanding(dnsOffice)
					break
				}
				h.run()
				h.wantStanding(dnsOffice, h.text(fmt.Sprint(left), dnsEndpoint))
			}
		})
	}
}

// TestSyncHandOverFails releases the elder of two networks while the server
// takes no change: the elder's value stands, so its prefix stays taken, however
// often the younger one's is tried in its place.
func TestSyncHandOverFails(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	h := newSyncHost(t, servertest.Server{Name: s.Name, Addr: dnsRelay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() && dnsIsUpdate(query) {
			return dnsServFail(query, forward)
		}
		return forward()
	})})
	elder := h.reserve(h.service("example.com"), "office", 1)
	h.reserve(h.service("example.com"), "office", 2)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create", dnsOffice+" conflict network_conflict")
	down.Store(true)
	h.release(elder, false)
	for range 2 {
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" failed temporary")
		h.wantTaken("office", 2)
	}
	h.release(elder, false)
	wantTXT(t, s, dnsOffice, h.text("1", dnsEndpoint))
	down.Store(false)
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" update")
	wantTXT(t, s, dnsOffice, h.text("2", dnsEndpoint))
	h.wantTaken("office", 1)
}

// TestSyncReleaseToOtherProvider has the younger of two networks publish
// elsewhere, in vain: the elder waits for the withdrawal of its own value only.
func TestSyncReleaseToOtherProvider(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	elder := h.reserve(h.service("example.com"), "office", 1)
	other := h.service("example.com", "provider", "rfc2136", "endpoint", dnsClosedPort(t), "access_key_id", servertest.Key, "access_key_secret", servertest.Secret)
	h.reserve(other, "office", 2)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create", dnsOffice+" conflict network_conflict")
	h.release(elder, true)
	h.wantStanding(dnsOffice)
	h.wantTaken("office", 1)
}

// TestSyncReleaseSharedConflict releases one of two usages of a network while
// a stranger's value stands beside ours: there is nothing to withdraw for it.
func TestSyncReleaseSharedConflict(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automaticPrefix(42)
	name := foldName(fullName(prefix, "example.com"))
	u := h.reserve(service, prefix, 42)
	h.reserve(service, prefix, 42)
	h.run()
	h.foreign(dnsBuiltinServer, name, provider.TXT{dnsStranger})
	wantReport(t, h.run(), dnsHost+" unchanged", name+" conflict")
	h.release(u, true)
	h.wantTaken(prefix, 1)
}

// TestSyncReleaseTwice has several callers release one usage at once.
func TestSyncReleaseTwice(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() { h.release(u, true) })
	}
	callers.Wait()
	h.wantStanding(dnsOffice)
	h.wantTaken("office", 0)
}

// TestSyncReleaserGoes has the client go while the value is withdrawn: the
// release is finished all the same.
func TestSyncReleaserGoes(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{}
	h := newSyncHost(t, gate.server(t, s))
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	gate.shut(1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.sync.Release(ctx, u)
	}()
	dnsWait(t, gate.arrived)
	cancel()
	close(gate.open)
	dnsWait(t, ended)
	wantTXT(t, s, dnsOffice)
	h.wantRow(dnsOffice, "")
	h.wantTaken("office", 0)
}

// TestSyncForceFreed frees a prefix while its value stands: the next
// synchronisation withdraws it.
func TestSyncForceFreed(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		if err := h.store.DeleteUsage(t.Context(), u.ID); err != nil {
			t.Fatal(err)
		}
		wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" delete")
		wantTXT(t, s, dnsOffice)
		h.wantRow(dnsOffice, "")
		wantReport(t, h.run(), dnsHost+" unchanged")
	})
}

// TestSyncReleaseBesideCloudAlias releases a name that somebody has given a CNAME.
func TestSyncReleaseBesideCloudAlias(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *cloudtest.Cloud{
		"jdcloud": cloudtest.JDCloud, "porkbun": cloudtest.Porkbun, "baiducloud": cloudtest.BaiduCloud,
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			h := newSyncHost(t, dnsBuiltinServer)
			u := h.reserve(h.service("example.com", "provider", name, "endpoint", c.URL, "access_key_id", c.AccessKeyID,
				"access_key_secret", c.AccessKeySecret), "office", 42)
			h.run()
			c.AddAlias(dnsOffice, "elsewhere.example.net")
			h.release(u, true)
			if left := c.Values(t, dnsOffice); len(left) != 0 {
				t.Errorf("released, and %q is left", left)
			}
		})
	}
}

// TestSyncCloudWithoutList has a release meet a success that lists nothing.
func TestSyncCloudWithoutList(t *testing.T) {
	c := cloudtest.AliDNS(t)
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com", "provider", "alidns", "endpoint", c.URL, "access_key_id", c.AccessKeyID,
		"access_key_secret", c.AccessKeySecret), "office", 42)
	h.run()
	// The zone takes two calls, the third is the list.
	c.Fail(cloudtest.Pass, cloudtest.Pass, cloudtest.Instead(cloudtest.Answer{Status: 200, Body: `{"RequestId":"x"}`}))
	freed, _ := h.sync.Release(t.Context(), u)
	if left := c.Values(t, dnsOffice); freed && len(left) != 0 {
		t.Errorf("freed, and %q is left", left)
	}
}

// TestSyncCloudOff has values of ours and of another appliance in records that
// are switched off, or for some resolvers only.
func TestSyncCloudOff(t *testing.T) {
	c := cloudtest.AliDNS(t)
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com", "provider", "alidns", "endpoint", c.URL, "access_key_id", c.AccessKeyID,
		"access_key_secret", c.AccessKeySecret), "office", 42)
	c.AddOff(dnsOffice, []string{dnsStranger})
	c.AddOff(dnsHost, []string{"v=spf1 -all"})
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict")
	c.RemoveOff(dnsOffice)
	h.run()
	c.AddOff(dnsOffice, []string{h.value("42", "tcp://192.0.2.1:1")})
	h.publish(u, "tcp://203.0.113.9:1")
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" conflict")
	h.release(u, false)
	c.RemoveOff(dnsOffice)
	h.run()
	if left := c.Values(t, dnsOffice); len(left) != 0 || len(h.rows(dnsOffice)) != 0 {
		t.Errorf("%q is left", left)
	}
}

// TestSyncTwoZonesOfOneAccount publishes in each zone what belongs there, and
// calls what an attempt with a lost answer has made by its name.
func TestSyncTwoZonesOfOneAccount(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		h := newSyncHost(t, dnsBuiltinServer)
		one := int64(1)
		h.change(func(conf *configuration) { conf.RetryInterval, conf.MaxRetries = &one, &one })
		for _, domain := range []string{"mesh.example.com", "notexample.com"} {
			h.reserve(h.service(domain, "provider", c.Provider, "endpoint", c.URL, "access_key_id", c.AccessKeyID,
				"access_key_secret", c.AccessKeySecret), "office", 42)
		}
		c.Fail(cloudtest.Lost)
		wantReport(t, h.run(), dnsHost+" create", "_mesh.office.mesh.example.com create", "_mesh.office.notexample.com create")
		for _, name := range []string{"_mesh.office.mesh.example.com", "_mesh.office.notexample.com"} {
			if got := c.Values(t, name); len(got) != 1 {
				t.Errorf("%s has %q", name, got)
			}
		}
	})
}

// TestSyncUpsertOnly never deletes, not even on release; another mode does it
// later.
func TestSyncUpsertOnly(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	h.change(func(c *configuration) { c.SyncMode = modeUpsertOnly })
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	h.publish(u, "udp://192.0.2.9:1")
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" update")
	if _, err := h.sync.Release(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	r := h.run()
	wantReport(t, r, dnsHost+" unchanged", dnsOffice+" skipped deletes_forbidden")
	if bad, _ := r.bad(); bad > 0 {
		t.Error("a record that is skipped counts as bad")
	}
	h.wantStanding(dnsOffice, h.text("42", "udp://192.0.2.9:1"))
	h.change(func(c *configuration) { c.SyncMode = modeAuto })
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" delete")
	h.wantStanding(dnsOffice)
}

// TestSyncReleaseBesideAlias releases a name that somebody has made an alias:
// nothing of ours can stand there, so there is nothing to wait for.
func TestSyncReleaseBesideAlias(t *testing.T) {
	s := servertest.BIND(t)
	h := newSyncHost(t, s)
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	s.Update(t, "delete "+dnsOffice+" TXT", "add "+dnsOffice+" 60 CNAME keep.example.com.")
	wantReport(t, h.run(), dnsHost+" unchanged", dnsOffice+" conflict")
	h.release(u, true)
	wantReport(t, h.run(), dnsHost+" unchanged")
}

// TestSyncDoesNotWaitForBackground has a run in the background that would
// pause for an hour. A caller with a better configuration does not wait for it.
func TestSyncDoesNotWaitForBackground(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	good, err := h.store.Configuration(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.change(func(c *configuration) {
		c.Provider, c.Endpoint, c.AccessKeyID, c.AccessKeySecret = "rfc2136", dnsClosedPort(t), servertest.Key, servertest.Secret
		c.RetryInterval, c.MaxRetries = new(int64(3600)), new(int64(10))
	})
	background := make(chan report, 1)
	go func() {
		r, _ := h.sync.Sync(t.Context(), triggerInterval)
		background <- r
	}()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for running := false; !running; <-ticker.C {
		h.sync.mu.Lock()
		running = h.sync.current != nil
		h.sync.mu.Unlock()
	}
	h.configure(good)
	wantReport(t, h.run(), dnsHost+" create")
	if r := dnsWait(t, background); !r.interrupted {
		t.Errorf("the background run was not interrupted: %+v", r)
	}
}

// TestSyncRecordMoves renames the configuration's record, and then its domain:
// what stands at the old name goes.
func TestSyncRecordMoves(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		h.run()
		h.change(func(c *configuration) { c.TXTRecordName = "_renamed" })
		wantReport(t, h.run(), dnsHost+" delete", "_renamed.example.com create")
		wantTXT(t, s, dnsHost)
		h.change(func(c *configuration) { c.Domain = "sub.example.com" })
		r := h.run()
		wantReport(t, r, "_renamed.example.com delete", "_renamed.sub.example.com create")
		wantTXT(t, s, "_renamed.example.com")
		wantTXT(t, s, "_renamed.sub.example.com", h.text("", dnsEndpoint))
		wantReport(t, h.run(), "_renamed.sub.example.com unchanged")
	})
}

// TestSyncServiceGone deletes a service of the built-in server after its
// usage was freed by force: the zone is no longer served, and its records go.
func TestSyncServiceGone(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service := h.service("own.example.net", "provider", "builtin")
	u := h.reserve(service, "office", 42)
	h.run()
	if err := errors.Join(h.store.DeleteUsage(t.Context(), u.ID), h.store.DeleteService(t.Context(), service)); err != nil {
		t.Fatal(err)
	}
	wantReport(t, h.run(), dnsHost+" unchanged", "_mesh.office.own.example.net delete")
	h.wantStanding("_mesh.office.own.example.net")
	wantReport(t, h.run(), dnsHost+" unchanged")
}

// TestSyncProviderMoves changes the provider of a record: it goes at the old
// one, where there are credentials left for it, and comes at the new one.
func TestSyncProviderMoves(t *testing.T) {
	old, next := servertest.BIND(t), servertest.Knot(t)
	h := newSyncHost(t, old)
	h.run()
	h.configure(dnsConfiguration(next))
	wantReport(t, h.run(), dnsHost+" skipped credentials_gone", dnsHost+" create")
	wantTXT(t, next, dnsHost, h.text("", dnsEndpoint))
	wantTXT(t, old, dnsHost, h.text("", dnsEndpoint))
	h.service("other.example.com", "provider", "rfc2136", "endpoint", old.Addr, "access_key_id", servertest.Key, "access_key_secret", servertest.Secret)
	wantReport(t, h.run(), dnsHost+" delete", dnsHost+" unchanged")
	wantTXT(t, old, dnsHost)
	wantReport(t, h.run(), dnsHost+" unchanged")
}

// TestSyncTwoKeys has a service whose key is not the configuration's, at one
// server. What it wrote is withdrawn with its key, also after it got a new one.
func TestSyncTwoKeys(t *testing.T) {
	const name = "_mesh.a.sub.example.com"
	for _, rotated := range []bool{false, true} {
		t.Run(fmt.Sprintf("rotated %t", rotated), func(t *testing.T) {
			s := servertest.BIND(t)
			h := newSyncHost(t, s)
			h.change(func(c *configuration) {
				c.AccessKeyID, c.AccessKeySecret = servertest.ReadOnlyKey, servertest.ReadOnly
			})
			service := h.service("sub.example.com", "provider", "rfc2136", "endpoint", s.Addr, "access_key_id", servertest.Key, "access_key_secret", servertest.Secret)
			u := h.reserve(service, "a", 42)
			wantReport(t, h.run(), dnsHost+" failed permission", name+" create")
			if rotated {
				h.exec(`UPDATE services SET config = json_set(config, '$.access_key_id', '` + servertest.Key512 + `', '$.access_key_secret', '` + servertest.Secret512 + `')`)
			}
			h.release(u, true)
			wantTXT(t, s, name)
		})
	}
}

// TestSyncKeepsWorkingKey tries a new value with a key that may not write: the
// key that wrote the standing one is remembered, and withdraws it.
func TestSyncKeepsWorkingKey(t *testing.T) {
	s := servertest.BIND(t)
	h := newSyncHost(t, s)
	wantReport(t, h.run(), dnsHost+" create")
	h.change(func(c *configuration) {
		c.AccessKeyID, c.AccessKeySecret = servertest.ReadOnlyKey, servertest.ReadOnly
		c.Endpoints = textList{"tcp://192.0.2.1:1"}
	})
	wantReport(t, h.run(), dnsHost+" failed permission")
	h.service("other.example.com", "provider", "rfc2136", "endpoint", s.Addr, "access_key_id", servertest.Key, "access_key_secret", servertest.Secret)
	h.change(func(c *configuration) { c.TXTRecordName = "_elsewhere" })
	wantReport(t, h.run(), "_elsewhere.example.com failed permission", dnsHost+" delete")
	wantTXT(t, s, dnsHost)
}

// TestSyncLoop runs the loop in each mode, by a clock that the test turns.
func TestSyncLoop(t *testing.T) {
	for _, test := range []struct {
		mode                                string
		enabled                             bool
		start, change, withdrawn, intervals bool
	}{
		{"manual", true, false, false, false, false},
		{"", true, false, false, false, false},
		{"AUTO", true, false, false, false, false},
		{"auto", false, false, false, false, false},
		{"auto", true, true, true, true, true},
		{"upsert-only", true, true, true, false, true},
	} {
		t.Run(fmt.Sprintf("%q enabled %t", test.mode, test.enabled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				h.change(func(c *configuration) { c.SyncMode, c.Enabled = test.mode, test.enabled })
				defer h.loop()()
				stands := func(what, name string, want bool) {
					if t.Helper(); len(h.standing(name)) > 0 != want {
						t.Errorf("%s: %s has %q, want some: %t", what, name, h.standing(name), want)
					}
				}
				stands("start", dnsHost, test.start)
				u := h.reserve(h.service("example.com"), "office", 42)
				h.sync.Changed(triggerChange)
				dnsPass(2 * time.Second)
				stands("change", dnsOffice, test.change)
				h.exec(`DELETE FROM usages WHERE id = '` + u.ID + `'`)
				h.sync.Changed(triggerChange)
				dnsPass(2 * time.Second)
				stands("withdrawal", dnsOffice, test.change && !test.withdrawn)
				h.exec(`DELETE FROM zone_records`)
				dnsPass(4 * time.Minute)
				stands("before the interval", dnsHost, false)
				dnsPass(time.Minute)
				stands("interval", dnsHost, test.intervals)
			})
		})
	}
}

// TestSyncDebounce makes changes one after the other: they are waited for,
// but not for ever.
func TestSyncDebounce(t *testing.T) {
	for name, test := range map[string]struct {
		changes int
		every   time.Duration
		runs    []time.Duration // since the first change
	}{
		"one":    {1, 0, []time.Duration{time.Second}},
		"burst":  {50, time.Millisecond, []time.Duration{1049 * time.Millisecond}},
		"few":    {20, 100 * time.Millisecond, []time.Duration{2900 * time.Millisecond}},
		"steady": {23, 450 * time.Millisecond, []time.Duration{5 * time.Second, 10400 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				h.change(func(c *configuration) { c.SyncMode = modeAuto })
				defer h.loop()()
				var started time.Time
				var runs []time.Duration
				h.look = func(context.Context) meshtxt.Addresses {
					runs = append(runs, time.Since(started))
					return dnsAddresses
				}
				dnsPass(time.Minute)
				started = time.Now()
				for n := range test.changes {
					if n > 0 {
						dnsPass(test.every)
					}
					h.sync.Changed(triggerChange)
				}
				dnsPass(30 * time.Second)
				if last, _ := h.sync.Last(); !slices.Equal(runs, test.runs) || last.trigger != triggerChange {
					t.Errorf("ran %v, want %v; the last by %s", runs, test.runs, last.trigger)
				}
			})
		})
	}
}

// TestSyncNewAddress gives the host another address: it is published, and an
// address that is not known is left out and said.
func TestSyncNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.change(func(c *configuration) {
			c.SyncMode, c.Endpoints = modeAuto, textList{"tcp://{ipv4}:1", "tcp://[{ipv6}]:1"}
		})
		var now atomic.Pointer[meshtxt.Addresses]
		h.look = func(context.Context) meshtxt.Addresses { return *now.Load() }
		change := func(ipv4, ipv6 netip.Addr) { now.Store(&meshtxt.Addresses{IPv4: ipv4, IPv6: ipv6}) }
		change(netip.Addr{}, netip.Addr{})
		defer h.loop()()
		h.wantStanding(dnsHost, h.text(""))
		last, next := h.sync.Last()
		wantReport(t, *last, dnsHost+" create address_unknown")
		if bad, _ := last.bad(); bad > 0 || last.trigger != triggerStart || !next.Equal(time.Now().Add(h.sync.interval)) {
			t.Errorf("%d bad, trigger %s, next %v", bad, last.trigger, next)
		}
		if detail := last.outcomes[0].fault.detail; !strings.Contains(detail, "tcp://{ipv4}:1") || !strings.Contains(detail, "tcp://[{ipv6}]:1") {
			t.Errorf("%q does not say which", detail)
		}
		change(netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1"))
		h.sync.Changed(triggerAddress)
		dnsPass(time.Second)
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.1:1", "tcp://[2001:db8::1]:1"))
		if last, _ = h.sync.Last(); last.trigger != triggerAddress {
			t.Errorf("trigger %s", last.trigger)
		}
	})
}

// TestSyncModeChanges turns automatic work on and off while the loop runs.
func TestSyncModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.exec(`DELETE FROM configuration`)
		defer h.loop()()
		for _, mode := range []string{modeAuto, modeManual, modeAuto} {
			h.configure(dnsConfiguration(dnsBuiltinServer))
			h.change(func(c *configuration) { c.SyncMode = mode })
			h.exec(`DELETE FROM zone_records`)
			h.sync.Changed(triggerChange)
			dnsPass(time.Second)
			if got, want := len(h.standing(dnsHost)) > 0, mode == modeAuto; got != want {
				t.Errorf("%s: published %t", mode, got)
			}
			if _, next := h.sync.Last(); next.IsZero() != (mode == modeManual) {
				t.Errorf("%s: next at %v", mode, next)
			}
		}
		if strings.Contains(h.log.String(), "level=ERROR") {
			t.Error(h.log)
		}
	})
}

// TestSyncLoopGoesOn has the database fail for a while: the loop says so and
// works again after.
func TestSyncLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.change(func(c *configuration) { c.SyncMode = modeAuto })
		h.exec(`ALTER TABLE configuration RENAME TO hidden`)
		defer h.loop()()
		if text := h.log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "configuration") {
			t.Errorf("log: %s", text)
		}
		h.exec(`ALTER TABLE hidden RENAME TO configuration`)
		dnsPass(h.sync.interval)
		h.wantStanding(dnsHost, h.text("", dnsEndpoint))
	})
}

func TestSyncNotBegun(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	h.change(func(c *configuration) { c.Enabled = false })
	if _, err := h.sync.Sync(t.Context(), triggerManual); !errors.Is(err, errDisabled) {
		t.Errorf("disabled: %v", err)
	}
	if _, err := h.sync.Preview(t.Context()); !errors.Is(err, errDisabled) {
		t.Errorf("disabled: %v", err)
	}
	h.exec(`DELETE FROM configuration`)
	if _, err := h.sync.Sync(t.Context(), triggerManual); !errors.Is(err, errNotConfigured) {
		t.Errorf("not configured: %v", err)
	}
	if last, next := h.sync.Last(); last != nil || !next.IsZero() {
		t.Errorf("last %+v, next %v", last, next)
	}
}

// TestSyncJoin has many callers at once: they share one run.
func TestSyncJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		open := h.hold()
		var calls []<-chan report
		for range 5 {
			calls = append(calls, h.begin(t.Context()))
		}
		synctest.Wait()
		close(open)
		for _, call := range calls {
			wantReport(t, <-call, dnsHost+" create")
		}
		if n := h.looked.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestSyncJoinAfterChange calls after a change, while a run from before the
// change is under way: the report is of a run that has seen the change.
func TestSyncJoinAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		open := h.hold()
		before := h.begin(t.Context())
		synctest.Wait()
		h.reserve(h.service("example.com"), "office", 42)
		h.sync.Changed(triggerChange)
		var after []<-chan report
		for range 3 {
			after = append(after, h.begin(t.Context()))
		}
		synctest.Wait()
		close(open)
		wantReport(t, <-before, dnsHost+" create")
		for _, call := range after {
			wantReport(t, <-call, dnsHost+" unchanged", dnsOffice+" create")
		}
		if n := h.looked.Load(); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestSyncStarterGoes cancels the caller whose run others have joined, in two
// places: they get a report of the whole.
func TestSyncStarterGoes(t *testing.T) {
	for name, hold := range map[string]func(h *syncHost) (open func()){
		"before its plan": (*syncHost).holdReaders,
		"after its plan":  func(h *syncHost) func() { open := h.hold(); return func() { close(open) } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				open := hold(h)
				ctx, cancel := context.WithCancel(t.Context())
				go h.sync.Sync(ctx, triggerManual)
				synctest.Wait()
				call := h.begin(t.Context())
				synctest.Wait()
				cancel()
				synctest.Wait()
				open()
				r := <-call
				if r.interrupted {
					t.Error("the report is interrupted")
				}
				if len(r.outcomes) != 1 || r.outcomes[0].bad() {
					t.Errorf("%+v", r.outcomes)
				}
			})
		})
	}
}

// TestSyncJoinerGoes cancels a caller that waits for the run of another.
func TestSyncJoinerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		open := h.hold()
		call := h.begin(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.sync.Sync(ctx, triggerManual); !errors.Is(err, errInterrupted) {
			t.Errorf("%v", err)
		}
		close(open)
		wantReport(t, <-call, dnsHost+" create")
	})
}

// TestSyncReleaseWaits releases while a run is under way whose plan publishes
// the name: the value does not come back.
func TestSyncReleaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		u := h.reserve(h.service("example.com"), "office", 42)
		open := h.hold()
		call := h.begin(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if freed, err := h.sync.Release(ctx, u); freed || err != nil {
			t.Errorf("while the run is under way: freed %t, %v", freed, err)
		}
		released := make(chan bool, 1)
		go func() {
			freed, err := h.sync.Release(t.Context(), u)
			released <- freed && err == nil
		}()
		synctest.Wait()
		close(open)
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" create")
		if !<-released {
			t.Error("not released")
		}
		h.wantStanding(dnsOffice)
		h.wantTaken("office", 0)
	})
}

// TestSyncTest tries each server with right and with wrong settings.
func TestSyncTest(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := newSyncHost(t, s)
		readOnly := map[string]string{"BIND": "permission", "Knot": "credentials", "PowerDNS": "permission"}[s.Name]
		serial := s.Serial(t)
		for name, test := range map[string]struct {
			change func(c *configuration)
			want   string
		}{
			"right":        {func(*configuration) {}, "params:ok network:ok auth:ok zone:ok record:ok"},
			"at the apex":  {func(c *configuration) { c.TXTRecordName = "@" }, "params:ok network:ok auth:ok zone:ok record:ok"},
			"wrong secret": {func(c *configuration) { c.AccessKeySecret = servertest.Secret512 }, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"unknown key":  {func(c *configuration) { c.AccessKeyID = "stranger" }, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"read only": {func(c *configuration) {
				c.AccessKeyID, c.AccessKeySecret = servertest.ReadOnlyKey, servertest.ReadOnly
			}, "params:ok network:ok auth:" + readOnly + " zone:skipped record:skipped"},
			"refused":    {func(c *configuration) { c.Endpoint = dnsClosedPort(t) }, "params:ok network:network auth:skipped zone:skipped record:skipped"},
			"other zone": {func(c *configuration) { c.Domain = "example.org" }, "params:ok network:ok auth:ok zone:zone_not_found record:skipped"},
			"alias":      {func(c *configuration) { c.TXTRecordName = "alias" }, "params:ok network:ok auth:ok zone:ok record:conflict"},
			"no secret":  {func(c *configuration) { c.AccessKeySecret = "" }, "params:field_empty network:skipped auth:skipped zone:skipped record:skipped"},
			"not base64": {func(c *configuration) { c.AccessKeySecret += "!" }, "params:invalid network:skipped auth:skipped zone:skipped record:skipped"},
			"bad name":   {func(c *configuration) { c.TXTRecordName = "a b" }, "params:invalid_name network:skipped auth:skipped zone:skipped record:skipped"},
			"provider":   {func(c *configuration) { c.Provider = "nobody" }, "params:unknown_provider network:skipped auth:skipped zone:skipped record:skipped"},
		} {
			c := dnsConfiguration(s)
			test.change(&c)
			for write, more := range map[bool]string{false: "", true: " write:skipped read:skipped authoritative:skipped cleanup:skipped"} {
				if write && strings.HasSuffix(test.want, "record:ok") {
					continue
				}
				items := h.sync.Test(t.Context(), c.target(), c, write)
				if got := dnsItemsText(items); got != test.want+more {
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

// TestSyncWriteTest writes a value at a name of its own, and takes it away.
func TestSyncWriteTest(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		c := dnsConfiguration(s)
		serial := s.Serial(t)
		want := "params:ok network:ok auth:ok zone:ok record:ok write:ok read:ok authoritative:ok cleanup:ok"
		if got := dnsItemsText(h.sync.Test(t.Context(), c.target(), c, true)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s.Serial(t) == serial {
			t.Error("nothing was written")
		}
		h.wantRow(dnsHost, "")
	})
}

// TestSyncWriteTestCleansUp makes the write fail once the server has made it,
// and has the client go before and after that.
func TestSyncWriteTestCleansUp(t *testing.T) {
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
			h := newSyncHost(t, gate.server(t, s))
			gate.skip.Store(1) // the change of nothing
			gate.shut(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := dnsConfiguration(servertest.Server{Name: s.Name, Addr: gate.addr})
			items := make(chan []testItem, 1)
			go func() { items <- h.sync.Test(ctx, c.target(), c, true) }()
			dnsWait(t, gate.arrived)
			if test.goes {
				cancel()
			}
			got := dnsUntil(items, time.Second) // a cleanup that does not wait for the write is over by then
			close(gate.open)
			if got == nil {
				got = dnsWait(t, items)
			}
			if text := dnsItemsText(got); !strings.HasSuffix(text, test.want) {
				t.Errorf("%s, want %s", text, test.want)
			}
			dnsWait(t, gate.passed)
			probe := gate.name()
			if !strings.HasPrefix(probe, "_mesh-test-") {
				t.Errorf("written at %s", probe)
			}
			wantTXT(t, s, probe)
		})
	}
}

// TestSyncWriteTestSees has the written value vanish, and a server whose
// answers to the public are not what its key holders see.
func TestSyncWriteTestSees(t *testing.T) {
	s := servertest.BIND(t)
	for name, test := range map[string]struct {
		handle dnsHandler
		want   string
	}{
		"vanished": {func(query []byte, forward func() []byte) []byte {
			answer := forward()
			if m, _ := dnswire.Parse(query); dnsIsUpdate(query) && strings.HasPrefix(m.Answers[0].Name.String(), "_mesh-test-") {
				s.Update(t, "delete "+m.Answers[0].Name.String())
			}
			return answer
		}, "write:ok read:value_missing authoritative:skipped cleanup:ok"},
		"not public": {func(query []byte, forward func() []byte) []byte {
			if m, _ := dnswire.Parse(query); len(m.Additional) == 0 {
				return dnsServFail(query, forward)
			}
			return forward()
		}, "write:ok read:ok authoritative:zone_not_found cleanup:ok"},
		"public silent": {func(query []byte, forward func() []byte) []byte {
			if m, _ := dnswire.Parse(query); len(m.Additional) == 0 {
				return nil
			}
			return forward()
		}, "write:ok read:ok authoritative:network cleanup:ok"},
	} {
		t.Run(name, func(t *testing.T) {
			place := servertest.Server{Name: s.Name, Addr: dnsRelay(t, s.Addr, test.handle)}
			h := newSyncHost(t, place)
			c := dnsConfiguration(place)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got := dnsItemsText(h.sync.Test(ctx, c.target(), c, true)); !strings.HasSuffix(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// syncHost is an appliance: its database, its synchroniser and its log.
type syncHost struct {
	t      testing.TB
	store  *store
	sync   *syncer
	owner  string
	log    *dnsLog
	look   func(ctx context.Context) meshtxt.Addresses
	looked atomic.Int64 // times the addresses were asked for: once a run
}

const dnsBuiltin = "builtin"

// dnsBuiltinServer is the built-in server without its sockets.
var dnsBuiltinServer = servertest.Server{Name: dnsBuiltin, Addr: "127.0.0.1:53"}

var dnsAddresses = meshtxt.Addresses{IPv4: netip.MustParseAddr("203.0.113.7")}

// newSyncHost makes an appliance that is configured to publish at a server.
func newSyncHost(t testing.TB, s servertest.Server) *syncHost {
	t.Helper()
	h := openSyncHost(t, filepath.Join(t.TempDir(), "meshddns.db"), s)
	h.configure(dnsConfiguration(s))
	return h
}

func openSyncHost(t testing.TB, path string, s servertest.Server) *syncHost {
	t.Helper()
	store, err := openStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	h := &syncHost{t: t, store: store, log: &dnsLog{}}
	h.look = func(context.Context) meshtxt.Addresses { return dnsAddresses }
	if h.owner, err = store.Owner(t.Context()); err != nil {
		t.Fatal(err)
	}
	address := ""
	if s.Name == dnsBuiltin {
		address = s.Addr
	}
	h.sync = newSyncer(store, slog.New(slog.NewTextHandler(h.log, nil)), func(ctx context.Context) meshtxt.Addresses {
		h.looked.Add(1)
		return h.look(ctx)
	}, address, 5*time.Minute)
	return h
}

// syncServing makes an appliance whose own DNS server answers.
func syncServing(t testing.TB) *syncHost {
	t.Helper()
	h := newSyncHost(t, servertest.Server{Name: dnsBuiltin})
	own := func() []netip.Addr { return []netip.Addr{dnsAddresses.IPv4} }
	server, err := nameserver.Listen("127.0.0.1:0", "", zones{h.store, own}, h.sync.log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	h.sync.dnsAddress = server.Addr()
	return h
}

// syncEverywhere runs a test with the built-in server and with each real one.
func syncEverywhere(t *testing.T, test func(t *testing.T, h *syncHost, s servertest.Server)) {
	t.Run(dnsBuiltin, func(t *testing.T) {
		h := syncServing(t)
		test(t, h, servertest.Server{Name: dnsBuiltin, Addr: h.sync.dnsAddress})
	})
	servertest.Each(t, func(t *testing.T, s servertest.Server) { test(t, newSyncHost(t, s), s) })
}

// dnsConfiguration publishes at a server, when told to, and does not retry.
func dnsConfiguration(s servertest.Server) configuration {
	c := configuration{
		Provider: "rfc2136", AccessKeyID: servertest.Key, AccessKeySecret: servertest.Secret, Endpoint: s.Addr,
		Domain: servertest.Zone, TXTRecordName: "_mesh-host", SyncMode: modeManual, MaxRetries: new(int64(0)), Enabled: true,
		Endpoints: textList{"tcp://{ipv4}:11010"},
	}
	if s.Name == dnsBuiltin || s.Name == "" {
		c.Provider, c.Endpoint = providerBuiltin, ""
	}
	return c
}

func (h *syncHost) configure(c configuration) {
	h.t.Helper()
	if err := h.store.PutConfiguration(context.Background(), c, false); err != nil {
		h.t.Fatal(err)
	}
}

func (h *syncHost) change(change func(c *configuration)) {
	h.t.Helper()
	c, err := h.store.Configuration(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	change(&c)
	h.configure(c)
}

// service registers a service with further entries, names and values in turn.
func (h *syncHost) service(domain string, entries ...string) (id string) {
	h.t.Helper()
	config := map[string]string{"domain": domain}
	for pair := range slices.Chunk(entries, 2) {
		config[pair[0]] = pair[1]
	}
	text, err := json.Marshal(config)
	if err != nil {
		h.t.Fatal(err)
	}
	if id, err = newUUID(); err != nil {
		h.t.Fatal(err)
	}
	v := service{ID: id, Name: domain, Config: string(text), Zone: foldName(domain), Provider: config["provider"]}
	if err := h.store.CreateService(context.Background(), v); err != nil {
		h.t.Fatal(err)
	}
	return id
}

func (h *syncHost) reserve(service, prefix string, network networkID) usage {
	h.t.Helper()
	u := usage{ServiceID: service, Mode: "custom", Prefix: prefix}
	if prefix == automaticPrefix(network) {
		u.Mode = "auto"
	}
	id, err := h.store.CreateUsage(context.Background(), u, network)
	if err != nil {
		h.t.Fatal(err)
	}
	if u, err = h.store.Usage(context.Background(), id); err != nil {
		h.t.Fatal(err)
	}
	return u
}

// publish sets what a usage publishes.
func (h *syncHost) publish(u usage, endpoints ...string) {
	h.t.Helper()
	if err := h.store.ChangeUsage(context.Background(), u.ID, endpoints, nil); err != nil {
		h.t.Fatal(err)
	}
}

// usage gives the one usage with a prefix.
func (h *syncHost) usage(prefix string) usage {
	h.t.Helper()
	all, err := h.store.Usages(context.Background(), usageFilter{}, 100)
	if err != nil {
		h.t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(u usage) bool { return u.Prefix == prefix })
	if at < 0 {
		h.t.Fatalf("no usage has the prefix %s", prefix)
	}
	return all[at]
}

// run synchronises.
func (h *syncHost) run() report {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dnsPatience)
	defer cancel()
	r, err := h.sync.Sync(ctx, triggerManual)
	if err != nil {
		h.t.Error(err)
	}
	return r
}

// begin synchronises in the background.
func (h *syncHost) begin(ctx context.Context) <-chan report {
	result := make(chan report, 1)
	go func() {
		r, err := h.sync.Sync(ctx, triggerManual)
		if err != nil {
			h.t.Error(err)
		}
		result <- r
	}()
	return result
}

func (h *syncHost) release(u usage, want bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dnsPatience)
	defer cancel()
	if freed, err := h.sync.Release(ctx, u); freed != want || err != nil {
		h.t.Errorf("release of %s: freed %t, %v; want %t", u.Prefix, freed, err, want)
	}
}

// hold stops the runs that begin from now on, with their plan's state read,
// until the channel is closed.
func (h *syncHost) hold() (open chan struct{}) {
	open = make(chan struct{})
	h.look = func(context.Context) meshtxt.Addresses {
		<-open
		return dnsAddresses
	}
	return open
}

// holdReaders keeps the database from being read.
func (h *syncHost) holdReaders() (open func()) {
	h.t.Helper()
	var held []*sql.Tx
	for range readers {
		tx, err := h.store.reader.Begin()
		if err != nil {
			h.t.Fatal(err)
		}
		held = append(held, tx)
	}
	return func() {
		for _, tx := range held {
			tx.Rollback()
		}
	}
}

// loop runs the synchroniser's loop and waits until it is idle.
func (h *syncHost) loop() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.sync.Loop(ctx)
	}()
	synctest.Wait()
	return func() { cancel(); <-ended }
}

// dnsPass lets time pass in a bubble, and what is due then happen.
func dnsPass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// copied opens a copy of the database as it is now, as a new process does.
func (h *syncHost) copied(t testing.TB) *syncHost {
	t.Helper()
	from, err := h.store.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "copy.db")
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return openSyncHost(t, path, servertest.Server{})
}

// version gives a function whose value changes with each write by another.
func (h *syncHost) version() func() int {
	h.t.Helper()
	db, err := sql.Open("sqlite3", dataSource(h.store.path, url.Values{}))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	return func() (version int) {
		if err := db.QueryRow(`PRAGMA data_version`).Scan(&version); err != nil {
			h.t.Fatal(err)
		}
		return version
	}
}

// exec changes the database as no function of the store does.
func (h *syncHost) exec(statement string) {
	h.t.Helper()
	if _, err := h.store.writer.Exec(statement); err != nil {
		h.t.Fatal(err)
	}
}

// value is what the appliance publishes for a network.
func (h *syncHost) value(network string, endpoints ...string) string {
	return meshtxt.Value(network, h.owner, endpoints)
}

// text is the value as dig prints it.
func (h *syncHost) text(network string, endpoints ...string) string {
	return dnsQuoted(provider.TXT{h.value(network, endpoints...)})
}

const dnsForeignTTL = 120

// foreign adds a value as another program would.
func (h *syncHost) foreign(s servertest.Server, name string, v provider.TXT) {
	h.t.Helper()
	if s.Name != dnsBuiltin {
		s.Update(h.t, fmt.Sprintf("add %s %d TXT %s", name, dnsForeignTTL, dnsQuoted(v)))
		return
	}
	key, err := zoneKey(name)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.store.writer.Exec(`INSERT INTO zone_records (name, data, ttl) VALUES (?, ?, ?)`, key, dnswire.TXTData(v), dnsForeignTTL); err != nil {
		h.t.Fatal(err)
	}
}

func (h *syncHost) rows(name string) []publication {
	h.t.Helper()
	rows, err := h.store.Publications(context.Background(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	return rows
}

// wantRow compares the publication of a name: its state, whether it may be
// written, its value and its code; "" for none.
func (h *syncHost) wantRow(name, want string) {
	h.t.Helper()
	var got []string
	for _, p := range h.rows(name) {
		words := []string{p.State, "not written", p.Value, p.Code}
		if p.Written {
			words[1] = "written"
		}
		got = append(got, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	if strings.Join(got, "\n") != want {
		h.t.Errorf("%s is stored as %q, want %q", name, got, want)
	}
}

// wantTaken compares how many usages have a prefix.
func (h *syncHost) wantTaken(prefix string, want int) {
	h.t.Helper()
	var got int
	err := h.store.reader.QueryRow(`SELECT count(*) FROM usages WHERE record_prefix = ? COLLATE NOCASE`, prefix).Scan(&got)
	if err != nil || got != want {
		h.t.Errorf("%d usages have %s, %v; want %d", got, prefix, err, want)
	}
}

// standing gives the values in the zones of the built-in server.
func (h *syncHost) standing(name string) (texts []string) {
	h.t.Helper()
	set, err := builtin{store: h.store, address: ""}.Read(context.Background(), "", name)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, v := range set.Values {
		texts = append(texts, dnsQuoted(v))
	}
	return texts
}

func (h *syncHost) wantStanding(name string, want ...string) {
	h.t.Helper()
	if got := h.standing(name); !slices.Equal(got, want) {
		h.t.Errorf("%s has %q, want %q", name, got, want)
	}
}

// wantReport compares a report's records: name, action, and code if any.
func wantReport(t testing.TB, r report, want ...string) {
	t.Helper()
	var got []string
	for _, o := range r.outcomes {
		line := o.name + " " + o.action
		if code := o.fault.code; code != "" && string(code) != o.action {
			line += " " + string(code)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("report:\n%s\nwant\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), r.outcomes)
	}
}

// wantTXT compares the values at a name of a server, as dig prints them.
func wantTXT(t testing.TB, s servertest.Server, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := s.TXT(t, name); !slices.Equal(got, want) {
		t.Errorf("%s of %s has %q, want %q", name, s.Name, got, want)
	}
}

// dnsQuoted writes a value as dig does.
func dnsQuoted(v provider.TXT) string {
	var quoted []string
	for _, s := range v {
		var text strings.Builder
		for _, octet := range []byte(s) {
			switch {
			case octet == '"' || octet == '\\':
				text.WriteString(`\` + string(rune(octet)))
			case octet < ' ' || octet > '~':
				fmt.Fprintf(&text, `\%03d`, octet)
			default:
				text.WriteByte(octet)
			}
		}
		quoted = append(quoted, `"`+text.String()+`"`)
	}
	return strings.Join(quoted, " ")
}

const dnsLeftOut = "left-out"

// dnsSnap is a state with usages in their order and a configuration, whose
// own record is not compared when no domain is given.
func dnsSnap(domain, name string, usages ...usage) snapshot {
	c := configuration{Provider: providerBuiltin, Domain: cmp.Or(domain, servertest.Zone), TXTRecordName: cmp.Or(name, dnsLeftOut)}
	c.Endpoints = textList{"tcp://{ipv4}:1"}
	return snapshot{owner: dnsOwner, configuration: &c, usages: usages}
}

func dnsStood(snap snapshot, p publication) snapshot {
	snap.publications = append(snap.publications, p)
	return snap
}

func dnsUse(network networkID, prefix, config string, endpoints ...string) usage {
	return usage{Network: &network, Status: statusActive, Prefix: prefix, ServiceConfig: &config, Endpoints: endpoints}
}

func dnsRecordText(r *record) string {
	words := []string{r.name, r.target.provider}
	if r.target.endpoint != "" {
		words[1] += "/" + r.target.endpoint + "/" + r.target.accessKeyID
	}
	words = append(words, fmt.Sprintf("%q", r.value))
	for word, holds := range map[string]bool{"withdraw": r.stored != nil && r.value == "", string(r.fault.code): r.fault.code != ""} {
		if holds {
			words = append(words, word)
		}
	}
	slices.Sort(words[3:])
	if r.moved {
		words = append(words, "moved")
	}
	if len(r.missing) > 0 {
		words = append(words, fmt.Sprint("missing ", r.missing))
	}
	return strings.Join(words, " ")
}

func dnsItemsText(items []testItem) string {
	var words []string
	for _, item := range items {
		word := string(item.fault.code)
		switch {
		case item.skipped:
			word = "skipped"
		case item.ok:
			word = "ok"
		}
		words = append(words, item.name+":"+word)
	}
	return strings.Join(words, " ")
}

// dnsAsk asks a server one question.
func dnsAsk(t testing.TB, server, name string, kind dnswire.Type) dnswire.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dnsPatience)
	defer cancel()
	owner, err := dnswire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	query := dnswire.Message{ID: 7, Questions: []dnswire.Question{{Name: owner, Type: kind, Class: dnswire.ClassIN}}}
	data, err := dnswire.Exchange(ctx, server, query.Pack())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := dnswire.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// dnsAnswerText gives the type and TTL of an answer, or whose lack it is.
func dnsAnswerText(m dnswire.Message) string {
	switch {
	case len(m.Answers) > 0 && m.Answers[0].Type == dnswire.TypeNS:
		return fmt.Sprintf("NS %d %s", m.Answers[0].TTL, dnswire.Name(m.Answers[0].Data))
	case len(m.Answers) > 0:
		kinds := map[dnswire.Type]string{dnswire.TypeTXT: "TXT", dnswire.TypeSOA: "SOA", dnswire.TypeA: "A"}
		return fmt.Sprintf("%s %d", kinds[m.Answers[0].Type], m.Answers[0].TTL)
	case len(m.Authority) > 0 && m.Authority[0].Type == dnswire.TypeSOA:
		return "no data of " + m.Authority[0].Name.String()
	}
	return "nothing"
}

// dnsWait takes what comes from a channel, or fails the test.
func dnsWait[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(dnsPatience):
		t.Fatal("nothing came in time")
	}
	return v
}

// dnsUntil takes what comes from a channel until a time is over.
func dnsUntil[T any](from <-chan T, limit time.Duration) (v T) {
	select {
	case v = <-from:
	case <-time.After(limit):
	}
	return v
}

// dnsLog is a log that may be read while it is written.
type dnsLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *dnsLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *dnsLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// dnsHandler gives the answer to a message, nil for none; forward gives that
// of the server behind.
type dnsHandler func(query []byte, forward func() []byte) []byte

func dnsSilent([]byte, func() []byte) []byte { return nil }

func dnsGarbage(query []byte, _ func() []byte) []byte {
	return append(slices.Clone(query[:2]), strings.Repeat("garbage!", 8)...)
}

// dnsUnsigned drops the signature of an answer.
func dnsUnsigned(_ []byte, forward func() []byte) []byte {
	m, err := dnswire.Parse(forward())
	if err != nil {
		return nil
	}
	m.Additional = nil
	return m.Pack()
}

func dnsServFail(query []byte, _ func() []byte) []byte {
	m, err := dnswire.Parse(query)
	if err != nil {
		return nil
	}
	m = dnswire.Message{ID: m.ID, Response: true, Opcode: m.Opcode, Rcode: dnswire.RcodeServFail, Questions: m.Questions}
	return m.Pack()
}

func dnsIsUpdate(query []byte) bool {
	header, err := dnswire.ParseHeader(query)
	return err == nil && header.Opcode == dnswire.OpcodeUpdate
}

// dnsRelay stands before a server and gives its own address.
func dnsRelay(t testing.TB, server string, handle dnsHandler) (addr string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	t.Cleanup(func() { tcp.Close(); udp.Close(); working.Wait() })
	answer := func(query []byte) []byte {
		return handle(query, func() []byte {
			answer, _ := dnswire.ExchangeTCP(context.Background(), server, query)
			return answer
		})
	}
	working.Go(func() {
		for conn, err := tcp.Accept(); err == nil; conn, err = tcp.Accept() {
			working.Go(func() {
				defer conn.Close()
				if query, err := dnswire.ReadTCP(conn); err == nil {
					if answer := answer(query); answer != nil {
						dnswire.WriteTCP(conn, answer)
					}
				}
			})
		}
	})
	working.Go(func() {
		buffer := make([]byte, dnswire.MaxMessage)
		for n, from, err := udp.ReadFrom(buffer); err == nil; n, from, err = udp.ReadFrom(buffer) {
			query := slices.Clone(buffer[:n])
			working.Go(func() {
				if answer := answer(query); answer != nil {
					udp.WriteTo(answer, from)
				}
			})
		}
	})
	return tcp.Addr().String()
}

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
	g.addr = dnsRelay(t, s.Addr, g.handle)
	return servertest.Server{Name: s.Name, Addr: g.addr}
}

// shut stops the next updates.
func (g *dnsGate) shut(count int64) { g.stop.Store(count) }

// name is that of the update that was stopped.
func (g *dnsGate) name() string { return *g.last.Load() }

func (g *dnsGate) handle(query []byte, forward func() []byte) (answer []byte) {
	if !dnsIsUpdate(query) || g.stop.Load() == 0 || g.skip.Add(-1) >= 0 || g.stop.Add(-1) < 0 {
		return forward()
	}
	m, _ := dnswire.Parse(query)
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

// dnsClosedPort gives an address at which nothing listens.
func dnsClosedPort(t testing.TB) string {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	return tcp.Addr().String()
}
