package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/answers"
	"meshddns/builtin"
	"meshddns/conntest"
	"meshddns/dnsname"
	"meshddns/dnswire"
	"meshddns/hostaddr"
	"meshddns/ledger"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/nameserver"
	"meshddns/provider"
	"meshddns/provider/cloudtest"
	"meshddns/provider/contract"
	"meshddns/provider/servertest"
	"meshddns/reconcile"
	"meshddns/sqlrow"
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
		if got := reconcile.RetryPolicy(sqlrow.Given(test.interval), sqlrow.Given(test.retries)); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestProvidersAreWhole has words and a client for each provider in the list.
func TestProvidersAreWhole(t *testing.T) {
	for _, p := range providers {
		endpoint := "https://192.0.2.1"
		if p.name == "rfc2136" {
			endpoint = "192.0.2.1"
		}
		if _, err := (clients{}).open(newAccount(p.name, endpoint, "key", "c2VjcmV0")); err != nil {
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
		if c, err := parseServiceConfig(provider.Secret(text)); err != nil || dnsConfigText(c) != want {
			t.Errorf("%s: %s, %v; want %s", text, dnsConfigText(c), err, want)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `"text"`, `7`, `{`, `{"domain":}`} {
		if c, err := parseServiceConfig(provider.Secret(text)); err == nil {
			t.Errorf("%q: %s, want an error", text, dnsConfigText(c))
		}
	}
}

func dnsConfigText(c serviceConfig) string {
	return fmt.Sprintf(`{%q %q %q %q %q %q}`, c.Domain, c.Provider, c.AccessKeyID, string(c.Secret), c.Endpoint, c.Endpoints)
}

// TestDNSWanted stores services and usages, and asks what is wanted for them.
func TestDNSWanted(t *testing.T) {
	const own = `,"provider":"rfc2136","endpoint":"ns:53","access_key_id":"k","access_key_secret":"s"}`
	for _, test := range []struct{ name, config, prefix, want string }{
		{"endpoints of the configuration", `{"domain":"EXAMPLE.com"}`, "Office", dnsOffice + ` builtin "v=mesh1 n=1 o=OWNER ` + dnsEndpoint + `"`},
		{"endpoints of the service", `{"domain":"example.com.","txt_endpoints":["ws://s:1"]}`, "office", dnsOffice + ` builtin "v=mesh1 n=1 o=OWNER ws://s:1"`},
		{"credentials of its own", `{"domain":"example.com","txt_endpoints":["a://b:1"]` + own, "a", `_mesh.a.example.com rfc2136/ns:53/k "v=mesh1 n=1 o=OWNER a://b:1"`},
		{"below the configuration's domain", `{"domain":"deep.sub.EXAMPLE.com"}`, "a", `_mesh.a.deep.sub.example.com builtin "v=mesh1 n=1 o=OWNER ` + dnsEndpoint + `"`},
		{"above it", `{"domain":"com"}`, "a", `_mesh.a.com  "" no_provider`},
		{"beside it", `{"domain":"notexample.com"}`, "a", `_mesh.a.notexample.com  "" no_provider`},
		{"beside it, longer", `{"domain":"example.com.net"}`, "a", `_mesh.a.example.com.net  "" no_provider`},
		{"A-labels", `{"domain":"bücher.example.com"}`, "a", `_mesh.a.xn--bcher-kva.example.com builtin "v=mesh1 n=1 o=OWNER ` + dnsEndpoint + `"`},
		{"a name that DNS does not have", `{"domain":"b..example.com"}`, "a", `_mesh.a.b..example.com builtin "v=mesh1 n=1 o=OWNER ` + dnsEndpoint + `" invalid_name`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newSyncHost(t, dnsBuiltinServer)
			u := h.reserve(h.serviceOf(test.config), test.prefix, 1)
			state, err := h.store.ledger.State(t.Context(), []string{u.Name})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range reconcile.Desired(state, *h.addresses.Load()) {
				account := strings.TrimRight(strings.Join([]string{r.Account.Provider, r.Account.Endpoint, r.Account.AccessKeyID}, "/"), "/")
				line := fmt.Sprintf("%s %s %q %s", r.Name, account, r.Want, r.Fault.Code)
				got = append(got, strings.TrimSpace(strings.ReplaceAll(line, h.owner, "OWNER")))
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestSyncLifecycle reserves, publishes, changes and releases, at every server.
func TestSyncLifecycle(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "Office", 42)
		wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
		wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
		wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		serial := s.Serial(t)
		h.publish(u, "udp://{ipv4}:1", "wss://mesh.example.net:443")
		wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
		wantTXT(t, s, dnsOffice, h.text("42", "udp://203.0.113.7:1", "wss://mesh.example.net:443"))
		if s.Serial(t) <= serial {
			t.Errorf("serial %s after %s", s.Serial(t), serial)
		}
		h.release(u, true)
		wantTXT(t, s, dnsOffice)
		if rcode := dnsAsk(t, s.Addr, "office.example.com", dnswire.TypeTXT).Rcode; rcode != dnswire.RcodeNXDomain {
			t.Errorf("rcode %v, want NXDOMAIN", rcode)
		}
		h.wantTaken("office", 0)
		h.wantPlaces(dnsOffice, "withdrawn")
		wantReport(t, h.run(), "1 unchanged")
		h.wantPlaces(dnsOffice, "withdrawn")
		h.later(dnsLookAgain)
		wantReport(t, h.run(), "1 unchanged")
		h.wantPlaces(dnsOffice)
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
		wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
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

// TestSyncUnchanged repeats a synchronisation, later: nothing is written at the
// server, nor about the names in the database.
func TestSyncUnchanged(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		h.reserve(h.service("example.com"), "office", 42)
		h.reserve(h.service("sub.example.com"), "b", 43)
		wantReport(t, h.run(), dnsHost+" create", "_mesh.b.sub.example.com create", dnsOffice+" create")
		serial, before := s.Serial(t), h.rows()
		h.later(time.Hour)
		for range 3 {
			wantReport(t, h.run(), "3 unchanged")
		}
		if s.Serial(t) != serial {
			t.Errorf("serial %s, was %s", s.Serial(t), serial)
		}
		if after := h.rows(); !slices.Equal(after, before) {
			t.Errorf("rows %q, were %q", after, before)
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
		h.force(gone)
		last, _, _ := h.engine.Last(t.Context())
		h.until("what is told is reviewed", func() bool {
			return h.count(`SELECT (SELECT count(*) FROM pass WHERE requested <> '') + (SELECT count(*) FROM names WHERE due IS NOT NULL AND lane = '')`) == 0
		})
		serial, version := s.Serial(t), h.version()
		before := version()
		r, err := h.engine.Preview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantReport(t, r, "_mesh.gone.example.com delete", "_mesh.new.example.com create", dnsOffice+" update", "1 unchanged")
		if s.Serial(t) != serial || version() != before {
			t.Errorf("serial %s, was %s; data version %d, was %d", s.Serial(t), serial, version(), before)
		}
		if now, _, _ := h.engine.Last(t.Context()); !now.FinishedAt.Equal(last.FinishedAt) {
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
		r := h.run()
		wantReport(t, r, dnsHost+" create", "_mesh.alias.example.com conflict", dnsOffice+" conflict")
		if first := r.FirstBad(); r.Bad != 2 || r.Names != 3 || first.Name != "_mesh.alias.example.com" || !strings.Contains(first.Fault.Detail, "keep.example.com") {
			t.Errorf("%d bad of %d, the first %+v", r.Bad, r.Names, first)
		}
		if detail := r.Records[2].Fault.Detail; !strings.Contains(detail, dnsStranger) {
			t.Errorf("%q does not show the other value", detail)
		}
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.TXT{dnsStranger}))
		h.wantPlaces(dnsOffice, "conflict conflict")
		// Once the stranger has gone, the name is ours.
		s.Update(t, "delete "+dnsOffice+" TXT", "delete _mesh.alias.example.com CNAME")
		wantReport(t, h.run(), "_mesh.alias.example.com create", dnsOffice+" create", "1 unchanged")
		wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
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
		wantReport(t, h.run(), dnsOffice+" conflict", "1 unchanged")
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
		wantReport(t, a.run(), "2 unchanged")
		u := a.reserve(a.service("example.com"), "office", 42)
		v := b.reserve(b.service("example.com"), "office", 42)
		wantReport(t, a.run(), dnsOffice+" create", "2 unchanged")
		wantReport(t, b.run(), dnsOffice+" conflict", "2 unchanged")
		b.release(v, true)
		wantTXT(t, s, dnsOffice, a.text("42", dnsEndpoint))
		b.reserve(b.service("example.com"), "office", 43)
		a.release(u, true)
		wantReport(t, b.run(), dnsOffice+" create", "2 unchanged")
		wantTXT(t, s, dnsOffice, b.text("43", dnsEndpoint))
		wantTXT(t, s, "_mesh.a.example.com", a.text("1", dnsEndpoint))
	})
}

// TestSyncManyWriters has two appliances and another program write to one
// name at once: no foreign value is lost, and no two owners stand there.
func TestSyncManyWriters(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	const rounds = 12
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		var writers sync.WaitGroup
		var hosts []*syncHost
		for n := range 2 {
			h := newSyncHost(t, s)
			hosts = append(hosts, h)
			h.change(func(c *configuration) { c.TXTRecordName = fmt.Sprint("_mesh-", n) })
			service := h.service("example.com")
			writers.Go(func() {
				for round := range rounds {
					u := h.reserve(service, "office", 42)
					h.publish(u, fmt.Sprintf("tcp://192.0.2.%d:%d", n, 1+round))
					h.run()
					if freed, _ := h.tryRelease(t.Context(), u); !freed {
						h.force(u) // the races were lost too often
					}
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
		answer := dnsAsk(t, h.clients.dnsAddress, test.name, test.kind)
		if got := dnsAnswerText(answer); answer.Rcode != test.rcode || got != test.want {
			t.Errorf("%s type %d: %v, %s; want %v, %s", test.name, test.kind, answer.Rcode, got, test.rcode, test.want)
		}
	}
}

// TestDNSBuiltinContract holds the built-in client to what every client promises.
func TestDNSBuiltinContract(t *testing.T) {
	h := syncServing(t)
	client, err := h.clients.open(newAccount(builtin.Name, "", "", ""))
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
	o.h.foreign(servertest.Server{Name: builtin.Name}, name, value)
}

func (o dnsOutside) Remove(t testing.TB, name string, value []string) {
	if _, err := o.h.store.writer.Exec(`DELETE FROM zone_records WHERE name = ? AND data = ?`, dnsKey(name), dnswire.TXTData(value)); err != nil {
		t.Fatal(err)
	}
	o.h.store.zones.Changed(context.Background(), []string{dnsKey(name)}, nil)
}

func (o dnsOutside) Values(t testing.TB, name string) [][]string {
	return servertest.Server{Addr: o.h.clients.dnsAddress}.Values(t, name)
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
			if answer := dnsAsk(t, h.clients.dnsAddress, "sub.example.com", dnswire.TypeTXT); answer.Rcode != dnswire.RcodeSuccess {
				t.Errorf("%v, want no data", answer.Rcode)
			}
		})
	}
}

// TestDNSBuiltinNotListening has a configuration for a server that is off.
func TestDNSBuiltinNotListening(t *testing.T) {
	h := newSyncHost(t, servertest.Server{Name: builtin.Name})
	h.configure(dnsConfiguration(servertest.Server{Name: builtin.Name}))
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}

// TestSyncFailures has providers that do not do what they should. Each makes
// a clear record, and the secret is nowhere.
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
		"not signed":   {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsUnsigned) }, dnsHost + " failed bad_answer"},
		"server fails": {func(c *configuration) { c.Endpoint = dnsRelay(t, s.Addr, dnsServFail) }, dnsHost + " failed temporary"},
		"wrong secret": {func(c *configuration) { c.Secret = servertest.Secret512 }, dnsHost + " failed credentials"},
		"unknown key":  {func(c *configuration) { c.AccessKeyID = "stranger" }, dnsHost + " failed credentials"},
		"key without rights": {func(c *configuration) {
			c.AccessKeyID, c.Secret = servertest.ReadOnlyKey, servertest.ReadOnly
		}, dnsHost + " failed permission"},
		"not base64":       {func(c *configuration) { c.Secret = "!" + servertest.Secret }, dnsHost + " failed invalid"},
		"endpoint":         {func(c *configuration) { c.Endpoint = "no host" }, dnsHost + " failed invalid"},
		"unknown provider": {func(c *configuration) { c.Provider = "nobody" }, dnsHost + " failed unknown_provider"},
		"no such zone":     {func(c *configuration) { c.Domain = "example.org" }, "_mesh-host.example.org failed zone_not_found"},
		"bad name":         {func(c *configuration) { c.Domain = "exam ple.com" }, "_mesh-host.exam ple.com failed invalid_name"},
		"echo":             {func(c *configuration) { c.TXTRecordName = "_mesh-echo" }, "_mesh-echo.example.com conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			c := right
			test.change(&c)
			h := newSyncHost(t, s)
			h.configure(c)
			wantFailure(t, h, h.run(), test.want)
		})
	}
	wantTXT(t, s, "_mesh-echo.example.com", dnsQuoted(echo))
}

func wantFailure(t *testing.T, h *syncHost, r reconcile.Report, want string) {
	t.Helper()
	wantReport(t, r, want)
	if r.OK() || r.Bad != 1 || r.Names != 1 {
		t.Errorf("ok %t, %d of %d bad", r.OK(), r.Bad, r.Names)
	}
	places := h.places(r.FirstBad().Name)
	if len(places) != 1 || string(places[0].State) != r.FirstBad().Action || places[0].Fault != r.FirstBad().Fault {
		t.Errorf("places %+v", places)
	}
	for _, secret := range []string{servertest.Secret, servertest.Secret512, servertest.ReadOnly} {
		if text := fmt.Sprintf("%+v %+v %s", r, places, h.log); strings.Contains(text, secret) {
			t.Errorf("the secret is in %s", text)
		}
	}
}

// TestSyncSilent has servers that do not answer, or nothing that can be read. Who
// asks has an end of waiting of their own.
func TestSyncSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	for name, handle := range map[string]dnsHandler{"silent": dnsSilent, "garbage": dnsGarbage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSyncHost(t, servertest.Server{Name: name, Addr: dnsRelay(t, "", handle)})
			h.start()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if r, err := h.engine.Sync(ctx, false); !errors.Is(err, reconcile.ErrUnfinished) || r.Bad > 0 {
				t.Errorf("before the server's time is over: %+v, %v", r, err)
			}
			wantFailure(t, h, h.run(), dnsHost+" failed network")
		})
	}
}

// TestSyncDownOnce has a server with many names that fails: it is asked for as
// many at a time as usual, and not again for each name. The clock stands still, because
// the zone is tried again after a pause, and a question that is sent twice counts once.
func TestSyncDownOnce(t *testing.T) {
	const atATime = 8
	var asked sync.Map
	s := servertest.Server{Name: "down", Addr: dnsRelay(t, "", func(query []byte, forward func() []byte) []byte {
		asked.Store(string(query), true)
		return dnsServFail(query, forward)
	})}
	h := newSyncHost(t, s)
	began := time.Now()
	h.store.now = func() time.Time { return began }
	h.renew()
	service := h.service("example.com")
	want := []string{dnsHost + " failed temporary"}
	for n := range 60 {
		h.reserve(service, fmt.Sprintf("p%02d", n), sqlrow.NetworkID(n))
		want = append(want, fmt.Sprintf("_mesh.p%02d.example.com failed temporary", n))
	}
	wantReport(t, h.run(), want...)
	n := 0
	asked.Range(func(any, any) bool { n++; return true })
	if n > 2*atATime {
		t.Errorf("asked %d times", n)
	}
}

// TestSyncLostAnswer has a server that makes a change and never answers: the
// place says that a value may stand there, and the next synchronisation knows.
func TestSyncLostAnswer(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{after: true, lose: true}
	h := newSyncHost(t, gate.server(t, s))
	gate.shut(1)
	close(gate.open)
	wantReport(t, h.run(), dnsHost+" failed network")
	h.wantPlaces(dnsHost, "failed perhaps "+h.value("", dnsEndpoint)+" network")
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	wantReport(t, h.run(), dnsHost+" create")
	h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint)+" perhaps "+h.value("", dnsEndpoint))
	h.later(dnsLookAgain)
	wantReport(t, h.run(), "1 unchanged")
	h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint))
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
						h.tryRelease(t.Context(), u)
					} else {
						h.engine.Sync(t.Context(), false)
					}
				}()
				dnsWait(t, gate.arrived)
				restarted := h.copied(t)
				close(gate.open)
				dnsWait(t, ended)
				h.stop()
				testRestarted(t, restarted, s, u, release)
			})
		}
	}
}

func testRestarted(t *testing.T, h *syncHost, s servertest.Server, u usage, release bool) {
	if !release {
		h.wantPlaces(dnsOffice, "pending perhaps "+h.value("42", dnsEndpoint))
		if r := h.run(); !r.OK() {
			t.Errorf("%+v", r)
		}
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint)+" perhaps "+h.value("42", dnsEndpoint))
		wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
		h.later(dnsLookAgain)
		h.run()
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		return
	}
	h.wantPlaces(dnsOffice, "withdrawing "+h.value("42", dnsEndpoint))
	if u, err := h.store.Usage(t.Context(), u.ID); err != nil || u.Status != statusReleasing {
		t.Errorf("status %s, %v", u.Status, err)
	}
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	h.wantPlaces(dnsOffice, "withdrawn")
	h.wantTaken("office", 0)
	wantTXT(t, s, dnsOffice)
}

// TestSyncStopDuringWrite ends the program while a write is at the server: the
// write is finished and its outcome stored, the pass is not reported as one that
// failed, and the next run takes it up.
func TestSyncStopDuringWrite(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{}
	h := newSyncHost(t, gate.server(t, s))
	gate.shut(1)
	h.begin(t.Context())
	dnsWait(t, gate.arrived)
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop() }()
	close(gate.open)
	dnsWait(t, stopped)
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint))
	if last, _, err := h.engine.Last(t.Context()); last != nil || err != nil {
		t.Errorf("the last report is %+v, %v", last, err)
	}
	h.restart()
	h.until("the pass is taken up", func() bool { last, _, _ := h.engine.Last(t.Context()); return last != nil && last.OK() })
}

// TestSyncStopBeforeWrite ends the program while a name is read: nothing is
// written, what is known of the name stays known, and the last report too.
func TestSyncStopBeforeWrite(t *testing.T) {
	s := servertest.BIND(t)
	var held atomic.Pointer[chan struct{}]
	arrived := make(chan struct{}, 100)
	h := newSyncHost(t, servertest.Server{Name: s.Name, Addr: dnsRelay(t, s.Addr, func(_ []byte, forward func() []byte) []byte {
		if open := held.Load(); open != nil {
			arrived <- struct{}{}
			<-*open
		}
		return forward()
	})})
	h.run()
	h.change(func(c *configuration) { c.Endpoints = sqlrow.TextList{"tcp://192.0.2.1:1"} })
	before, _, _ := h.engine.Last(t.Context())
	serial := s.Serial(t)
	open := make(chan struct{})
	held.Store(&open)
	h.begin(t.Context())
	dnsWait(t, arrived)
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop() }()
	dnsWait(t, stopped) // the answer is not waited for
	close(open)
	if s.Serial(t) != serial {
		t.Error("the zone was written")
	}
	h.wantPlaces(dnsHost, "pending "+h.value("", dnsEndpoint))
	if last, _, err := h.engine.Last(t.Context()); err != nil || !last.FinishedAt.Equal(before.FinishedAt) || !last.OK() {
		t.Errorf("the last report is %+v, %v", last, err)
	}
}

// TestDNSBuiltinChanged changes values that another writer has changed since
// they were seen.
func TestDNSBuiltinChanged(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	client := builtin.Client{Store: h.store.zones}
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
	if u, err := h.store.Usage(t.Context(), u.ID); err != nil || u.Status != statusReleasing {
		t.Errorf("status %s, %v", u.Status, err)
	}
	h.wantPlaces(dnsOffice, "withdrawing "+h.value("42", dnsEndpoint)+" temporary")
	if got, want := h.publishing(u), "withdrawing "+h.value("42", dnsEndpoint)+" temporary"; got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	other := usage{ServiceID: service, Mode: modeCustom, Prefix: "office", Network: u.Network}
	if _, err := h.store.CreateUsage(t.Context(), other); !errors.Is(err, errPrefixTaken) {
		t.Errorf("the prefix is given to another: %v", err)
	}
	wantReport(t, h.run(), dnsHost+" failed temporary", dnsOffice+" failed temporary")
	h.wantTaken("office", 1)
	wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
	down.Store(false)
	wantReport(t, h.run(), dnsOffice+" delete", "1 unchanged")
	wantTXT(t, s, dnsOffice)
	h.wantTaken("office", 0)
}

// TestSyncReleaseShared has several usages of one network at one name: the
// newest decides the endpoints, and the value goes with the last.
func TestSyncReleaseShared(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automaticPrefix(42)
	var usages []usage
	for n := range 3 {
		u := h.reserve(service, prefix, 42)
		h.publish(u, fmt.Sprintf("tcp://192.0.2.%d:1", n))
		usages = append(usages, u)
	}
	name := usages[0].Name
	wantReport(t, h.run(), dnsHost+" create", name+" create")
	h.wantStanding(name, h.text("42", "tcp://192.0.2.2:1"))
	h.release(usages[0], true)
	h.wantStanding(name, h.text("42", "tcp://192.0.2.2:1"))
	h.release(usages[2], true)
	h.wantStanding(name, h.text("42", "tcp://192.0.2.1:1"))
	wantReport(t, h.run(), "2 unchanged")
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
				waiting = append(waiting, h.reserve(h.service("example.com"), "office", sqlrow.NetworkID(n)))
			}
			wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" conflict network_conflict", dnsOffice+" create")
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
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" create")
	down.Store(true)
	h.release(elder, false)
	for range 2 {
		wantReport(t, h.run(), dnsOffice+" failed temporary", "1 unchanged")
		h.wantTaken("office", 2)
	}
	h.release(elder, false)
	wantTXT(t, s, dnsOffice, h.text("1", dnsEndpoint))
	down.Store(false)
	wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
	wantTXT(t, s, dnsOffice, h.text("2", dnsEndpoint))
	h.wantTaken("office", 1)
}

// TestSyncReleaseToOtherProvider has the younger of two networks publish
// elsewhere, in vain: the elder waits for the withdrawal of its own value only.
func TestSyncReleaseToOtherProvider(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	elder := h.reserve(h.service("example.com"), "office", 1)
	h.reserve(h.service("example.com", dnsAccount("rfc2136", dnsClosedPort(t), servertest.Key, servertest.Secret)...), "office", 2)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" create", "example.com skipped not_searched")
	h.release(elder, true)
	h.wantStanding(dnsOffice)
	h.wantTaken("office", 1)
}

// TestSyncReleaseSharedConflict releases one of two usages of a network while
// a stranger's value stands beside ours: there is nothing to withdraw for it.
func TestSyncReleaseSharedConflict(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automaticPrefix(42)
	u := h.reserve(service, prefix, 42)
	h.reserve(service, prefix, 42)
	h.run()
	h.foreign(dnsBuiltinServer, u.Name, provider.TXT{dnsStranger})
	wantReport(t, h.run(), u.Name+" conflict", "1 unchanged")
	h.release(u, true)
	h.wantTaken(prefix, 1)
}

// TestSyncReleaseTwice has several callers release one usage at once: some may
// find it gone.
func TestSyncReleaseTwice(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if freed, err := h.tryRelease(t.Context(), u); !freed && !errors.Is(err, errNoUsage) {
				t.Errorf("freed %t, %v", freed, err)
			}
		})
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
		h.tryRelease(ctx, u)
	}()
	dnsWait(t, gate.arrived)
	cancel()
	dnsWait(t, ended)
	h.wantTaken("office", 1)
	close(gate.open)
	h.until("the prefix is free", func() bool { return h.taken("office") == 0 })
	wantTXT(t, s, dnsOffice)
	h.wantPlaces(dnsOffice, "withdrawn")
}

// TestSyncForceFreed frees a prefix while its value stands, which is a leftover
// then: the next synchronisation withdraws it.
func TestSyncForceFreed(t *testing.T) {
	syncEverywhere(t, func(t *testing.T, h *syncHost, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.force(u)
		h.wantTaken("office", 0)
		if got := h.leftovers(); !slices.Equal(got, []string{dnsOffice}) {
			t.Errorf("leftovers %q", got)
		}
		wantReport(t, h.run(), dnsOffice+" delete", "1 unchanged")
		wantTXT(t, s, dnsOffice)
		if got := h.leftovers(); len(got) > 0 {
			t.Errorf("leftovers %q", got)
		}
		wantReport(t, h.run(), "1 unchanged")
	})
}

// cloudService registers a service that publishes at a cloud.
func (h *syncHost) cloudService(c *cloudtest.Cloud, domain string) (id string) {
	h.t.Helper()
	return h.service(domain, dnsAccount(c.Provider, c.URL, c.AccessKeyID, c.AccessKeySecret)...)
}

// TestSyncReleaseBesideCloudAlias releases a name that somebody has given a CNAME.
func TestSyncReleaseBesideCloudAlias(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *cloudtest.Cloud{
		"jdcloud": cloudtest.JDCloud, "porkbun": cloudtest.Porkbun, "baiducloud": cloudtest.BaiduCloud,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			h := newSyncHost(t, dnsBuiltinServer)
			u := h.reserve(h.cloudService(c, "example.com"), "office", 42)
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
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	c := cloudtest.AliDNS(t)
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.cloudService(c, "example.com"), "office", 42)
	h.run()
	for calls := range 3 { // the list is one of the next calls
		c.Fail(append(slices.Repeat([]cloudtest.Fault{cloudtest.Pass}, calls), cloudtest.Instead(cloudtest.Answer{Status: 200, Body: `{"RequestId":"x"}`}))...)
		freed, _ := h.tryRelease(t.Context(), u)
		if left := c.Values(t, dnsOffice); freed && len(left) != 0 {
			t.Errorf("freed, and %q is left", left)
		}
		c.FailNoMore()
	}
}

// TestSyncCloudOff has values of ours and of another appliance in records that
// are switched off, or for some resolvers only.
func TestSyncCloudOff(t *testing.T) {
	c := cloudtest.AliDNS(t)
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.cloudService(c, "example.com"), "office", 42)
	c.AddOff(dnsOffice, []string{dnsStranger})
	c.AddOff(dnsHost, []string{"v=spf1 -all"})
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict")
	c.RemoveOff(dnsOffice)
	h.run()
	c.AddOff(dnsOffice, []string{h.value("42", "tcp://192.0.2.1:1")})
	h.publish(u, "tcp://203.0.113.9:1")
	wantReport(t, h.run(), dnsOffice+" conflict", "1 unchanged")
	h.release(u, false)
	c.RemoveOff(dnsOffice)
	h.run()
	if left := c.Values(t, dnsOffice); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

// TestSyncTwoZonesOfOneAccount publishes in each zone what belongs there, also
// when an answer is lost: the pass waits for the second try.
func TestSyncTwoZonesOfOneAccount(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.change(func(conf *configuration) { conf.RetryInterval, conf.MaxRetries = dnsNumber(1), dnsNumber(1) })
		names := []string{"_mesh.office.mesh.example.com", "_mesh.office.notexample.com"}
		for _, domain := range []string{"mesh.example.com", "notexample.com"} {
			h.reserve(h.cloudService(c, domain), "office", 42)
		}
		c.Fail(cloudtest.Lost)
		if r := h.run(); !r.OK() || r.Names != 3 {
			t.Errorf("%+v", r)
		}
		for _, name := range names {
			if got := c.Values(t, name); len(got) != 1 {
				t.Errorf("%s has %q", name, got)
			}
		}
		h.later(dnsLookAgain)
		if r := h.run(); !r.OK() || r.Counts[reconcile.ActionUnchanged] != 3 {
			t.Errorf("%+v", r)
		}
		for _, name := range names {
			h.wantPlaces(name, "published "+h.value("42", dnsEndpoint))
		}
	})
}

// TestSyncNestedZones has a zone within a zone in one account: what belongs into
// the inner one is published there, and withdrawn from there.
func TestSyncNestedZones(t *testing.T) {
	const name = "_mesh.office.child.example.com"
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.configure(dnsCloudConfiguration(c))
		u := h.reserve(h.service(cloudtest.ChildZone), "office", 42)
		wantReport(t, h.run(), dnsHost+" create", name+" create")
		if place := h.places(name)[0]; place.Zone != cloudtest.ChildZone || len(c.Values(t, name)) != 1 {
			t.Errorf("%+v, values %q", place, c.Values(t, name))
		}
		h.release(u, true)
		if left := c.Values(t, name); len(left) != 0 {
			t.Errorf("released, and %q is left", left)
		}
	})
}

// TestSyncNestedBuiltinZones has a zone within a zone of the built-in server: what
// stands in the inner one is no orphan of the outer one, and a sweep leaves it.
func TestSyncNestedBuiltinZones(t *testing.T) {
	const name = "_mesh.office.sub.example.com"
	h := newSyncHost(t, dnsBuiltinServer)
	h.reserve(h.service("sub.example.com", "provider", builtin.Name), "office", 42)
	h.run()
	wantReport(t, h.run(), "2 unchanged")
	wantReport(t, h.sweep(), "2 unchanged")
	h.wantStanding(name, h.text("42", dnsEndpoint))
	h.wantPlaces(name, "published "+h.value("42", dnsEndpoint))
}

func dnsCloudConfiguration(c *cloudtest.Cloud) configuration {
	conf := dnsConfiguration(servertest.Server{})
	conf.Provider, conf.Endpoint, conf.AccessKeyID, conf.Secret = c.Provider, c.URL, c.AccessKeyID, provider.Secret(c.AccessKeySecret)
	return conf
}

// TestSyncReleaseBesideAlias releases a name that somebody has made an alias:
// nothing of ours can stand there, so there is nothing to wait for.
func TestSyncReleaseBesideAlias(t *testing.T) {
	s := servertest.BIND(t)
	h := newSyncHost(t, s)
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	s.Update(t, "delete "+dnsOffice+" TXT", "add "+dnsOffice+" 60 CNAME keep.example.com.")
	wantReport(t, h.run(), dnsOffice+" conflict", "1 unchanged")
	h.release(u, true)
	wantReport(t, h.run(), "1 unchanged")
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
		wantReport(t, h.run(), "_renamed.example.com delete", "_renamed.sub.example.com create")
		wantTXT(t, s, "_renamed.example.com")
		wantTXT(t, s, "_renamed.sub.example.com", h.text("", dnsEndpoint))
		wantReport(t, h.run(), "1 unchanged")
	})
}

// TestSyncServiceGone deletes a service of the built-in server after its usage
// was freed by force: the zone is no longer served, and its records go.
func TestSyncServiceGone(t *testing.T) {
	const name = "_mesh.office.own.example.net"
	h := newSyncHost(t, dnsBuiltinServer)
	service := h.service("own.example.net", "provider", "builtin")
	u := h.reserve(service, "office", 42)
	h.run()
	h.force(u)
	if err := h.store.DeleteService(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	wantReport(t, h.run(), name+" delete", "1 unchanged")
	h.wantStanding(name)
	wantReport(t, h.run(), "1 unchanged")
}

// TestSyncProviderMoves changes the provider of a record: it comes at the new
// one, and goes at the old one with the key that is kept until then.
func TestSyncProviderMoves(t *testing.T) {
	old, next := servertest.BIND(t), servertest.Knot(t)
	h := newSyncHost(t, old)
	h.run()
	h.configure(dnsConfiguration(next))
	wantReport(t, h.run(), dnsHost+" create", dnsHost+" delete")
	wantTXT(t, next, dnsHost, h.text("", dnsEndpoint))
	wantTXT(t, old, dnsHost)
	wantReport(t, h.run(), "1 unchanged")
	h.later(dnsLookAgain)
	h.run()
	if n := h.count(`SELECT count(*) FROM accounts`); n != 1 {
		t.Errorf("%d accounts are kept, nothing needs the old one", n)
	}
}

// TestSyncTwoKeys has a service whose key is not the configuration's, at one
// server. What it wrote is withdrawn with its key, also after it got a new one.
func TestSyncTwoKeys(t *testing.T) {
	const name = "_mesh.a.sub.example.com"
	for _, rotated := range []bool{false, true} {
		t.Run(fmt.Sprintf("rotated %t", rotated), func(t *testing.T) {
			s := servertest.BIND(t)
			h := newSyncHost(t, s)
			h.change(func(c *configuration) { c.AccessKeyID, c.Secret = servertest.ReadOnlyKey, servertest.ReadOnly })
			service := h.service("sub.example.com", dnsAccount("rfc2136", s.Addr, servertest.Key, servertest.Secret)...)
			u := h.reserve(service, "a", 42)
			wantReport(t, h.run(), dnsHost+" failed permission", name+" create")
			if rotated {
				h.reconfigure(service, dnsConfig("sub.example.com", dnsAccount("rfc2136", s.Addr, servertest.Key512, servertest.Secret512)...))
			}
			h.release(u, true)
			wantTXT(t, s, name)
		})
	}
}

// TestSyncKeyRotates gives the configuration another key of the same server: the
// value stays where it is, and the old key goes.
func TestSyncKeyRotates(t *testing.T) {
	s := servertest.BIND(t)
	h := newSyncHost(t, s)
	h.run()
	serial := s.Serial(t)
	h.change(func(c *configuration) { c.AccessKeyID, c.Secret = servertest.Key512, servertest.Secret512 })
	for range 2 {
		if r := h.run(); !r.OK() {
			t.Errorf("%+v", r)
		}
	}
	if wantTXT(t, s, dnsHost, h.text("", dnsEndpoint)); s.Serial(t) != serial {
		t.Error("the zone was written")
	}
	h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint))
	if n := h.count(`SELECT count(*) FROM accounts`); n != 1 {
		t.Errorf("%d accounts are kept, nothing needs the old one", n)
	}
}

// TestSyncKeepsWorkingKey tries a new value with a key that may not write: the
// old value stays, and the key that wrote it withdraws it later.
func TestSyncKeepsWorkingKey(t *testing.T) {
	s := servertest.BIND(t)
	h := newSyncHost(t, s)
	wantReport(t, h.run(), dnsHost+" create")
	h.change(func(c *configuration) {
		c.AccessKeyID, c.Secret = servertest.ReadOnlyKey, servertest.ReadOnly
		c.Endpoints = sqlrow.TextList{"tcp://192.0.2.1:1"}
	})
	wantReport(t, h.run(), dnsHost+" failed permission")
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	h.change(func(c *configuration) { c.TXTRecordName = "_elsewhere" })
	h.run()
	wantTXT(t, s, dnsHost)
	h.run()
	if got := h.leftovers(); len(got) > 0 {
		t.Errorf("leftovers %q", got)
	}
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
			"wrong secret": {func(c *configuration) { c.Secret = servertest.Secret512 }, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"unknown key":  {func(c *configuration) { c.AccessKeyID = "stranger" }, "params:ok network:ok auth:credentials zone:skipped record:skipped"},
			"read only": {func(c *configuration) {
				c.AccessKeyID, c.Secret = servertest.ReadOnlyKey, servertest.ReadOnly
			}, "params:ok network:ok auth:" + readOnly + " zone:skipped record:skipped"},
			"refused":    {func(c *configuration) { c.Endpoint = dnsClosedPort(t) }, "params:ok network:network auth:skipped zone:skipped record:skipped"},
			"other zone": {func(c *configuration) { c.Domain = "example.org" }, "params:ok network:ok auth:ok zone:zone_not_found record:skipped"},
			"alias":      {func(c *configuration) { c.TXTRecordName = "alias" }, "params:ok network:ok auth:ok zone:ok record:conflict"},
			"no secret":  {func(c *configuration) { c.Secret = "" }, "params:field_empty network:skipped auth:skipped zone:skipped record:skipped"},
			"not base64": {func(c *configuration) { c.Secret += "!" }, "params:invalid network:skipped auth:skipped zone:skipped record:skipped"},
			"bad name":   {func(c *configuration) { c.TXTRecordName = "a b" }, "params:invalid_name network:skipped auth:skipped zone:skipped record:skipped"},
			"provider":   {func(c *configuration) { c.Provider = "nobody" }, "params:unknown_provider network:skipped auth:skipped zone:skipped record:skipped"},
		} {
			c := dnsConfiguration(s)
			test.change(&c)
			for write, more := range map[bool]string{false: "", true: " write:skipped read:skipped authoritative:skipped cleanup:skipped"} {
				if write && strings.HasSuffix(test.want, "record:ok") {
					continue
				}
				items := h.clients.test(t.Context(), conntest.Internet, c, write)
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
		if got := dnsItemsText(h.clients.test(t.Context(), conntest.Internet, c, true)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s.Serial(t) == serial {
			t.Error("nothing was written")
		}
		h.wantPlaces(dnsHost)
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
			items := make(chan []answers.TestItem, 1)
			go func() { items <- h.clients.test(ctx, conntest.Internet, c, true) }()
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
			if got := dnsItemsText(h.clients.test(ctx, conntest.Internet, c, true)); !strings.HasSuffix(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// bubbles runs tests, each in a bubble with a clock of its own.
func bubbles(t *testing.T, tests map[string]func(t *testing.T)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestSyncLoop runs the engine in each mode, by a clock that the test turns.
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
				h.loop()
				stands := func(what, name string, want bool) {
					if t.Helper(); len(h.standing(name)) > 0 != want {
						t.Errorf("%s: %s has %q, want some: %t", what, name, h.standing(name), want)
					}
				}
				dnsPass(2 * time.Second)
				stands("start", dnsHost, test.start)
				u := h.reserve(h.service("example.com"), "office", 42)
				dnsPass(2 * time.Second)
				stands("change", dnsOffice, test.change)
				h.force(u)
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

// TestSyncDebounce makes changes one after the other: they are waited for, but
// not for ever.
func TestSyncDebounce(t *testing.T) {
	for name, test := range map[string]struct {
		changes int
		every   time.Duration
		writes  []time.Duration // since the first change
	}{
		"one":    {1, 0, []time.Duration{time.Second}},
		"burst":  {50, time.Millisecond, []time.Duration{time.Second}},
		"steady": {5, 600 * time.Millisecond, []time.Duration{time.Second, 2200 * time.Millisecond, 3400 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := newVendorHost(t)
				h.mode(modeAuto)
				u := h.reserve(h.service("example.com"), "office", 42)
				h.loop()
				dnsPass(10 * time.Second)
				started := time.Now()
				var writes []time.Duration
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "change" {
						writes = append(writes, time.Since(started).Round(100*time.Millisecond))
					}
					return nil
				})
				for n := range test.changes {
					if n > 0 {
						dnsPass(test.every)
					}
					h.publish(u, fmt.Sprintf("tcp://192.0.2.1:%d", 1+n))
				}
				dnsPass(30 * time.Second)
				if !slices.Equal(writes, test.writes) {
					t.Errorf("wrote at %v, want %v", writes, test.writes)
				}
				v.want(t, servertest.Zone, dnsOffice, h.value("42", fmt.Sprintf("tcp://192.0.2.1:%d", test.changes)))
			})
		})
	}
}

// TestSyncNewAddress gives the host another address: it is published.
func TestSyncNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.change(func(c *configuration) {
			c.SyncMode, c.Endpoints = modeAuto, sqlrow.TextList{"tcp://{ipv4}:1", "tcp://[{ipv6}]:1"}
		})
		h.knows(meshtxt.Addresses{}, meshtxt.Addresses{})
		h.loop()
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text(""))
		last, next, err := h.engine.Last(t.Context())
		if err != nil || !last.OK() || last.Counts["warning"] == 0 || !next.After(time.Now()) {
			t.Fatalf("%+v, next %v, %v", last, next, err)
		}
		if detail := last.Records[0].Fault.Detail; !strings.Contains(detail, "tcp://{ipv4}:1") || !strings.Contains(detail, "tcp://[{ipv6}]:1") {
			t.Errorf("%q does not say which", detail)
		}
		both := meshtxt.Addresses{IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8::1")}
		h.knows(both, both)
		if err := h.store.SaveAddresses(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.1:1", "tcp://[2001:db8::1]:1"))
		if last, _, _ = h.engine.Last(t.Context()); last.Trigger != reconcile.TriggerAddress || last.Counts["warning"] > 0 {
			t.Errorf("%+v", last)
		}
	})
}

// TestSyncAddressSourceIsDown starts a program whose source of addresses does not
// answer: the record keeps the last known address, and the report warns.
func TestSyncAddressSourceIsDown(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	h := newSyncHost(t, dnsBuiltinServer)
	var last meshtxt.Addresses
	for _, test := range []struct {
		down     bool
		warnings int
	}{{false, 0}, {true, 1}} {
		down.Store(test.down)
		book := hostaddr.NewBook(source, hostaddr.Source{}, last, h.store.SaveAddresses, h.logger())
		h.engine = h.store.newEngine(engineConfig(h.store, h.clients, book, time.Hour, h.logger()))
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- book.Watch(ctx, time.Hour) }()
		h.stop = nil
		if r := h.run(); !r.OK() || r.Counts["warning"] != test.warnings || test.down && r.Records[0].Fault.Code != reconcile.CodeAddressUnknown {
			t.Errorf("down %t: %+v", test.down, r)
		}
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.7:11010"))
		h.stop()
		cancel()
		if err := dnsWait(t, watched); err != nil {
			t.Error(err)
		}
		last, _ = book.Known()
	}
}

// A zone of the built-in server that nobody can reach is said aloud: in the test of
// the connection, in the report, and in the log once, and it fails neither of them.
func TestZoneThatNobodyReaches(t *testing.T) {
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
			h := newSyncHost(t, dnsBuiltinServer)
			c := dnsConfiguration(dnsBuiltinServer)
			book := hostaddr.NewBook(source(t, hostaddr.IPv4, "auto"), hostaddr.Source{}, meshtxt.Addresses{IPv4: test.address}, h.store.SaveAddresses, h.logger())
			h.clients.reachable = reachability(test.named, book, h.logger())
			config := engineConfig(h.store, h.clients, book, time.Hour, h.logger())
			config.Ready = ready
			h.engine = h.store.newEngine(config)
			h.reserve(h.service("example.com", "provider", builtin.Name, "txt_endpoints", "tcp://a:1"), "office", 42)
			h.change(func(c *configuration) { c.Endpoints = []string{"tcp://a:1"} })
			want, warnings, lines := "", 0, 0
			if test.hidden {
				want, warnings, lines = "zone_unreachable", 2, 1
			}
			for range 2 {
				r := h.run()
				if !r.OK() || r.Counts["warning"] != warnings || test.hidden && r.Records[0].Fault != (reconcile.Fault{Code: want, Detail: "ns.example.com"}) {
					t.Errorf("%+v", r)
				}
				zone := h.clients.test(t.Context(), conntest.Internet, c, false)[3]
				if zone.Name != "zone" || !zone.OK || zone.Skipped || zone.Fault.Code != want {
					t.Errorf("%+v", zone)
				}
			}
			if told := strings.Count(h.log.String(), "no resolver finds the zones"); told != lines {
				t.Errorf("told %d times:\n%s", told, h.log)
			}
			if told := strings.Count(h.log.String(), "msg=record"); told != 2 { // when they were made
				t.Errorf("%d lines of records:\n%s", told, h.log)
			}
			h.stop()
		})
	}
}

// TestSyncModeChanges turns automatic work on and off while the engine runs.
func TestSyncModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.exec(`DELETE FROM configuration`)
		h.loop()
		for _, mode := range []string{modeAuto, modeManual, modeAuto} {
			c := dnsConfiguration(dnsBuiltinServer)
			c.SyncMode = mode
			h.exec(`DELETE FROM zone_records`)
			h.configure(c)
			dnsPass(2 * time.Second)
			if got, want := len(h.standing(dnsHost)) > 0, mode == modeAuto; got != want {
				t.Errorf("%s: published %t", mode, got)
			}
			if _, next, _ := h.engine.Last(t.Context()); next.IsZero() != (mode == modeManual) {
				t.Errorf("%s: next at %v", mode, next)
			}
		}
		if strings.Contains(h.log.String(), "level=ERROR") {
			t.Error(h.log)
		}
	})
}

// TestSyncLoopGoesOn has the database fail for a while: the engine says so, works again
// after, and says that when it has lasted.
func TestSyncLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.mode(modeAuto)
		h.exec(`ALTER TABLE configuration RENAME TO hidden`)
		h.loop()
		if text := h.log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "configuration") {
			t.Errorf("log: %s", text)
		}
		h.exec(`ALTER TABLE hidden RENAME TO configuration`)
		for after, told := range []int{0, 1} {
			dnsPass(25 * time.Second)
			h.wantStanding(dnsHost, h.text("", dnsEndpoint))
			if got := strings.Count(h.log.String(), "the database is well again"); got != told {
				t.Errorf("after %d s the log tells %d times that the database is well again, want %d", 25*(after+1), got, told)
			}
		}
	})
}

// TestSyncDatabaseFails has the database refuse a statement: without the intent
// nothing is written to DNS, and without the outcome it is not believed.
func TestSyncDatabaseFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for name, test := range map[string]struct {
		trigger string
		delete  bool
		before  bool // whether the value stands while the database fails
	}{
		"intent":            {"INSERT ON places", false, false},
		"outcome":           {"UPDATE ON places WHEN NEW.state = 'published'", false, true},
		"intent to delete":  {"UPDATE ON places WHEN NEW.state = 'withdrawing'", true, true},
		"outcome of delete": {"UPDATE ON places WHEN NEW.state = 'withdrawn'", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				h.run()
				u := h.reserve(h.service("example.com"), "office", 42)
				if test.delete {
					h.run()
				}
				h.exec(`CREATE TRIGGER broken BEFORE ` + test.trigger + ` BEGIN SELECT RAISE(FAIL, 'disk is full'); END`)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if test.delete {
					if freed, _ := h.tryRelease(ctx, u); freed {
						t.Error("freed")
					}
				} else if r, err := h.engine.Sync(ctx, false); err == nil && r.OK() {
					t.Errorf("%+v", r)
				}
				if stands := len(h.standing(dnsOffice)) > 0; stands != test.before {
					t.Errorf("the value stands: %t, want %t", stands, test.before)
				}
				h.wantTaken("office", 1)
				if text := h.log.String(); !strings.Contains(text, "disk is full") {
					t.Errorf("log: %s", text)
				}
				h.exec(`DROP TRIGGER broken`)
				dnsPass(10 * time.Second)
				if r := h.run(); !r.OK() {
					t.Errorf("%+v", r)
				}
				if stands := len(h.standing(dnsOffice)) > 0; stands != (h.taken("office") == 1) || stands == test.delete {
					t.Errorf("the value stands: %t, taken %d", stands, h.taken("office"))
				}
			})
		})
	}
}

func TestSyncNotBegun(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	h.change(func(c *configuration) { c.Enabled = false })
	h.start()
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	if r, err := h.engine.Preview(t.Context()); err != nil || r.Counts[reconcile.ActionCreate] != 1 {
		t.Errorf("a preview while disabled: %+v, %v", r, err)
	}
	h.exec(`DELETE FROM configuration`)
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrNotConfigured) {
		t.Errorf("not configured: %v", err)
	}
	if last, next, err := h.engine.Last(t.Context()); last != nil || !next.IsZero() || err != nil {
		t.Errorf("last %+v, next %v, %v", last, next, err)
	}
}

// TestSyncJoin has many callers at once: they share one pass, and one that goes
// leaves the others their report of the whole.
func TestSyncJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		arrived, open := v.holds("change", dnsHost)
		starter, cancel := context.WithCancel(t.Context())
		h.begin(starter)
		<-arrived
		var calls []<-chan reconcile.Report
		for range 5 {
			calls = append(calls, h.begin(t.Context()))
		}
		joiner, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := h.engine.Sync(joiner, false); !errors.Is(err, reconcile.ErrUnfinished) {
			t.Errorf("a joiner whose time is over: %v", err)
		}
		cancel()
		synctest.Wait()
		open()
		for _, call := range calls {
			wantReport(t, <-call, dnsHost+" create")
		}
		if n := h.count(`SELECT number FROM pass`); n != 1 {
			t.Errorf("%d passes", n)
		}
	})
}

// TestSyncJoinChange joins a pass that a change has begun, and is told of orphans
// as by any pass that a person waits for.
func TestSyncJoinChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.mode(modeAuto)
		arrived, open := v.holds("change", dnsHost)
		h.loop()
		<-arrived
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("9")})
		call := h.begin(t.Context())
		synctest.Wait()
		open()
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" orphan")
	})
}

// TestSyncJoinSearch calls while a pass has searched a zone already: what came to
// stand there before the call is in its answer.
func TestSyncJoinSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		v.zones["key"] = append(v.zones["key"], "example.net")
		h.service("example.net", "provider", "vendor", "access_key_id", "key", "access_key_secret", "secret")
		arrived, opened := make(chan struct{}, 2), make(chan struct{})
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what == "list" && c.zone == "example.net" {
				arrived <- struct{}{}
				<-opened
			}
			return nil
		})
		h.begin(t.Context())
		<-arrived
		for _, zone := range v.zones["key"] {
			v.put(zone, "_mesh.office."+zone, provider.TXT{h.value("9")})
		}
		call := h.begin(t.Context())
		synctest.Wait()
		close(opened)
		if r := <-call; r.Counts[reconcile.ActionOrphan] != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// TestSyncJoinAfterChange calls after a change, while a pass from before the
// change is under way: the report says what became of the change.
func TestSyncJoinAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		arrived, open := v.holds("change", dnsHost)
		h.begin(t.Context())
		<-arrived
		h.reserve(h.service("example.com"), "office", 42)
		h.change(func(c *configuration) { c.Endpoints = sqlrow.TextList{"tcp://192.0.2.1:1"} })
		var after []<-chan reconcile.Report
		for range 3 {
			after = append(after, h.begin(t.Context()))
		}
		synctest.Wait()
		open()
		for _, call := range after {
			if r := <-call; !r.OK() || r.Names != 2 {
				t.Errorf("%+v", r)
			}
		}
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.1:1"))
		v.want(t, servertest.Zone, dnsHost, h.value("", "tcp://192.0.2.1:1"))
	})
}

// TestSyncReleaseWaits releases while the name is written: it waits for that
// write and no longer, and the value does not come back.
func TestSyncReleaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		arrived, open := v.holds("change", dnsOffice)
		call := h.begin(t.Context())
		<-arrived
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if freed, err := h.tryRelease(ctx, u); freed || err != nil {
			t.Errorf("while it is written: freed %t, %v", freed, err)
		}
		released := make(chan bool, 1)
		go func() {
			freed, err := h.tryRelease(t.Context(), u)
			released <- freed && err == nil
		}()
		synctest.Wait()
		open()
		<-call
		if !<-released {
			t.Error("not released")
		}
		v.want(t, servertest.Zone, dnsOffice)
		h.wantTaken("office", 0)
	})
}

// TestSyncRetries has a provider that fails: its zone is tried again after the
// configuration's pauses, and what is tried in vain is tried at the next pass.
func TestSyncRetries(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		want     []time.Duration // of the tries, in seconds with the jitter off
		report   string
	}{
		"twice":      {2, []time.Duration{0, 2, 6}, dnsHost + " create"},
		"once more":  {3, []time.Duration{0, 2, 6, 14}, dnsHost + " create"},
		"for longer": {9, []time.Duration{0, 2, 6, 14}, dnsHost + " failed temporary"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := newVendorHost(t)
				h.change(func(c *configuration) { c.RetryInterval, c.MaxRetries = dnsNumber(2), dnsNumber(3) })
				var tries []time.Duration
				began := time.Now()
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what != "change" {
						return nil
					}
					if tries = append(tries, time.Since(began)); len(tries) > test.failures {
						return nil
					}
					return &provider.Error{Kind: provider.Temporary}
				})
				r := h.runFor(time.Minute, false)
				wantReport(t, r, test.report)
				if attempts := r.Records[0].Attempts; attempts != len(test.want) || len(tries) != len(test.want) {
					t.Fatalf("%d attempts at %v", attempts, tries)
				}
				for i, least := range test.want {
					if least *= time.Second; tries[i] < least || tries[i] > least+least/5+time.Second {
						t.Errorf("try %d after %v, want %v and a fifth at most", i, tries[i], least)
					}
				}
			})
		})
	}
}

// TestSyncListedBeforeFault has a try fail after the name was listed once more, and
// before it is looked at again: what waits for its zone now is not tried at once.
func TestSyncListedBeforeFault(t *testing.T) {
	for _, nth := range []int{2, 3} { // the list of names that are due, and that of the pass
		synctest.Test(t, func(t *testing.T) {
			h, v := newVendorHost(t)
			h.change(func(c *configuration) { c.RetryInterval, c.MaxRetries = dnsNumber(2), dnsNumber(1) })
			listed, settled := make(chan struct{}), make(chan struct{})
			count, tries := 0, 0
			h.listed = func(names []string) {
				if !slices.Contains(names, dnsHost) {
					return
				}
				if count++; count == nth {
					close(listed)
					<-settled
				}
			}
			h.renew()
			var began, second time.Time
			v.fails(func(_ context.Context, c dnsCall) error {
				if c.what != "change" {
					return nil
				}
				if tries++; tries > 1 {
					second = time.Now()
					return nil
				}
				h.engine.Wake()
				<-listed
				began = time.Now()
				h.store.committed = func() { // of what came of the try
					h.store.committed = func() {}
					close(settled)
				}
				return &provider.Error{Kind: provider.Temporary}
			})
			wantReport(t, h.run(), dnsHost+" create")
			if second.Sub(began) < 2*time.Second || tries != 2 {
				t.Errorf("list %d: %d tries, the second after %v", nth, tries, second.Sub(began))
			}
		})
	}
}

// TestSyncRetryIsRemembered has the database busy when a try that failed is
// stored: the next try is made all the same, and the pass waits for it.
func TestSyncRetryIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(3) })
		busy := false
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || busy {
				return nil
			}
			busy = true
			tx, err := h.store.writer.Begin()
			if err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Second, func() { tx.Rollback() })
			h.engine.Wake()
			return &provider.Error{Kind: provider.Temporary}
		})
		r := h.begin(t.Context())
		dnsPass(500 * time.Millisecond)
		h.engine.Wake()
		dnsPass(100 * time.Millisecond)
		wantReport(t, <-r, dnsHost+" create")
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncReportWaits has a name fail for good while the pass has nothing else to
// do: the report knows it.
func TestSyncReportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(1) })
		v.fails(dnsFault(provider.Temporary, "change"))
		committed := h.store.committed
		h.store.committed = func() {
			if committed(); v.called("change") == 2 {
				<-time.After(time.Second) // the outcome is stored, and the engine does not know it yet
			}
		}
		wantReport(t, h.run(), dnsHost+" failed temporary")
	})
}

// TestSyncSweepJoins asks for a sweep while a pass without one runs.
func TestSyncSweepJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
		arrived, open := v.holds("change", dnsHost)
		call := h.begin(t.Context())
		<-arrived
		time.AfterFunc(time.Second, open)
		if r := h.sweep(); !r.OK() {
			t.Errorf("%+v", r)
		}
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" orphan")
		v.want(t, servertest.Zone, dnsOffice)
	})
}

// TestSyncZoneMadeAnew has the provider's zone deleted and made again, with
// another id: our values come back, and are no orphans.
func TestSyncZoneMadeAnew(t *testing.T) {
	h, v := newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.zones["key"] = []string{"example.com anew"}
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	wantReport(t, h.sweep(), "2 unchanged")
	v.want(t, "example.com anew", dnsOffice, h.value("42", dnsEndpoint))
	h.release(u, true)
	v.want(t, "example.com anew", dnsOffice)
}

// TestSyncRepairs has somebody take a value away: it is put back, and known to
// stand there.
func TestSyncRepairs(t *testing.T) {
	h, v := newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.make(servertest.Zone, provider.Change{Name: dnsOffice, Remove: []provider.TXT{{h.value("42", dnsEndpoint)}}})
	wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
	if got, want := h.publishing(u), "published "+h.value("42", dnsEndpoint); got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
}

// TestSyncOrphansWait has a value of ours stand at a name that is being looked at
// for the first time when all other names are through: it is no orphan.
func TestSyncOrphansWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.reserve(h.service("example.com"), "office", 42)
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
		arrived, open := v.holds("read", dnsOffice)
		call := h.begin(t.Context())
		<-arrived
		dnsPass(time.Second)
		open()
		wantReport(t, <-call, dnsHost+" create", "1 unchanged")
	})
}

// TestRunIdle has nothing to do, in each mode: nobody looks for work again and again.
func TestRunIdle(t *testing.T) {
	for _, mode := range []string{modeManual, modeAuto} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newVendorHost(t)
				h.mode(mode)
				h.run()
				dnsPass(2 * dnsLookAgain)
				before := h.rounds.Load()
				dnsPass(time.Minute)
				if n := h.rounds.Load() - before; n > 3 {
					t.Errorf("%d rounds in a minute", n)
				}
			})
		})
	}
}

// TestRunStopped stops the engine before it has begun: that is no fault.
func TestRunStopped(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // which of its reasons to go on it sees first is chance
		if err := h.engine.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSyncThrottled has a provider that asks for a pause of an hour: it gets it,
// and all other zones go on.
func TestSyncThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.mode(modeAuto)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(3) })
		v.fails(func(context.Context, dnsCall) error {
			return &provider.Error{Kind: provider.Throttled, RetryAfter: 50 * time.Minute}
		})
		h.loop()
		dnsPass(2 * time.Second)
		asked := len(v.calls)
		other := h.service("example.net", "provider", "builtin")
		h.reserve(other, "a", 1)
		dnsPass(2 * time.Second)
		h.wantStanding("_mesh.a.example.net", h.text("1", dnsEndpoint))
		h.release(h.reserve(other, "b", 2), true)
		h.exec(`DELETE FROM zone_records`)
		dnsPass(6 * time.Minute)
		h.wantStanding("_mesh.a.example.net", h.text("1", dnsEndpoint)) // by the next interval
		if n := len(v.calls) - asked; n > 0 {
			t.Errorf("%d calls within the pause", n)
		}
		v.works()
		dnsPass(50 * time.Minute)
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncAudit looks at many unchanged names at the interval: no faster than its
// rate, while a change is made at once.
func TestSyncAudit(t *testing.T) {
	const names = 3500
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.mode(modeAuto)
		h.many(h.service("example.com"), names)
		h.loop()
		dnsPass(time.Minute)
		if n := h.count(`SELECT count(*) FROM places WHERE state = 'published'`); n != names+1 {
			t.Fatalf("%d published", n)
		}
		_, next, _ := h.engine.Last(t.Context())
		dnsPass(time.Until(next) + 1500*time.Millisecond)
		h.reserve(h.service("example.com"), "office", 42)
		dnsPass(1100 * time.Millisecond)
		h.wantStanding(dnsOffice, h.text("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); last.Trigger == reconcile.TriggerInterval {
			t.Errorf("%d names in %v", last.Names, last.FinishedAt.Sub(last.StartedAt))
		}
		dnsPass(10 * time.Second)
		last, _, _ := h.engine.Last(t.Context())
		if took := last.FinishedAt.Sub(last.StartedAt); last.Trigger != reconcile.TriggerInterval || last.Names != names+2 || took < names/reconcile.AuditRate*time.Second {
			t.Errorf("by %s, %d names in %v", last.Trigger, last.Names, took)
		}
	})
}

// many reserves many prefixes at once.
func (h *syncHost) many(service string, count int) {
	h.t.Helper()
	h.exec(fmt.Sprintf(`
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT 'many-' || i, '%s', 'mesh_sync', 'custom', 'many' || i, 'TXT', '', 1, '[]', '_mesh.many' || i || '.example.com', '' FROM n;
		INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status)
		SELECT seq, id, seq, id, provider_id, 'active' FROM usages WHERE id LIKE 'many-%%';
		INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, 1, '', 0 FROM usages WHERE id LIKE 'many-%%'`, count, service))
}

// TestSyncPassGoesOn stops the program in a pass over many names: the next one
// goes on where it was, and the report counts each name once.
func TestSyncPassGoesOn(t *testing.T) {
	const names, page = 3500, 1000
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.many(h.service("example.com"), names)
		if r := h.run(); !r.OK() || r.Names != names+1 {
			t.Errorf("%d names, want %d", r.Names, names+1)
		}
		v.fails(func(_ context.Context, c dnsCall) error {
			switch c.what {
			case "list":
				return &provider.Error{Kind: provider.Permission, Err: provider.ErrNotListed}
			case "read":
				<-time.After(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.begin(ctx)
		before, reads := reconcile.Progress{}, v.called("read")
		for range 100 {
			if dnsPass(100 * time.Millisecond); before.Cursor != "" {
				break
			}
			var err error
			if before, err = h.store.ledger.Pass(t.Context()); err != nil {
				t.Fatalf("pass %+v, %v", before, err)
			}
		}
		h.restart()
		r := h.run()
		if !r.OK() || r.Names != names+1 || !r.StartedAt.Equal(before.Report.StartedAt) {
			t.Errorf("%d names, want %d, begun %v after the first", r.Names, names+1, r.StartedAt.Sub(before.Report.StartedAt))
		}
		if n := v.called("read") - reads; n > names+2*page {
			t.Errorf("%d reads", n)
		}
		if n := h.count(`SELECT number FROM pass`); n != 2 {
			t.Errorf("%d passes", n)
		}
	})
}

// TestSyncReleaseUnpublished frees a prefix whose value never stood anywhere,
// without a call to the provider.
func TestSyncReleaseUnpublished(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T){
		"never tried":   func(t *testing.T) { testUnpublished(t, func(*syncHost) {}) },
		"tried in vain": func(t *testing.T) { testUnpublished(t, func(h *syncHost) { h.run() }) },
		"disabled": func(t *testing.T) {
			testUnpublished(t, func(h *syncHost) { h.change(func(c *configuration) { c.Enabled = false }) })
		},
	})
}

func testUnpublished(t *testing.T, before func(h *syncHost)) {
	h, v := newVendorHost(t)
	v.fails(dnsFault(provider.Network, "zone"))
	u := h.reserve(h.service("example.com"), "office", 42)
	before(h)
	calls := len(v.calls)
	h.release(u, true)
	h.wantTaken("office", 0)
	if len(v.calls) != calls {
		t.Errorf("calls %+v", v.calls[calls:])
	}
}

// TestSyncForgets has a place of a value that never came to stand, for a usage
// that is gone: the next synchronisation drops it and has nothing to say.
func TestSyncForgets(t *testing.T) {
	h, v := newVendorHost(t)
	v.fails(dnsFault(provider.Network))
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" failed network", dnsOffice+" failed network")
	h.release(u, true)
	h.wantPlaces(dnsOffice)
	wantReport(t, h.run(), dnsHost+" failed network")
}

// TestSyncUpsertOnly never deletes, not even on release, nor what it has not put
// there; another mode does it later.
func TestSyncUpsertOnly(t *testing.T) {
	h, v := newVendorHost(t)
	h.mode(modeUpsertOnly)
	u := h.reserve(h.service("example.com"), "office", 42)
	r := h.run()
	wantReport(t, r, dnsHost+" create", dnsOffice+" create")
	stale := h.value("42", "tcp://192.0.2.66:1")
	v.put(servertest.Zone, dnsOffice, provider.TXT{stale})
	wantReport(t, h.run(), "2 unchanged")
	h.publish(u, "udp://192.0.2.9:1")
	wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
	v.want(t, servertest.Zone, dnsOffice, stale, h.value("42", "udp://192.0.2.9:1"))
	h.release(u, true)
	r = h.run()
	wantReport(t, r, dnsOffice+" leftover deletes_forbidden", "1 unchanged")
	if !r.OK() {
		t.Error("a leftover makes the report fail")
	}
	v.want(t, servertest.Zone, dnsOffice, stale, h.value("42", "udp://192.0.2.9:1"))
	h.mode(modeManual)
	wantReport(t, h.run(), dnsOffice+" delete", "1 unchanged")
	v.want(t, servertest.Zone, dnsOffice)
}

// TestSyncLateWrite has a write fail by time and arrive 1.5 s later, when the
// usage was released already: it is seen, and withdrawn.
func TestSyncLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.run()
		service := h.service("example.com")
		u := h.reserve(service, "office", 42)
		late := atomic.Bool{}
		late.Store(true)
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || !late.Swap(false) {
				return nil
			}
			time.AfterFunc(1500*time.Millisecond, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.make(servertest.Zone, c.change)
			})
			return &provider.Error{Kind: provider.Network, Detail: "no answer in time"}
		})
		wantReport(t, h.run(), dnsOffice+" failed network", "1 unchanged")
		h.release(u, false)
		v.want(t, servertest.Zone, dnsOffice)
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		h.wantTaken("office", 1)
		dnsPass(reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice)
		dnsPass(reconcile.SecondLook)
		h.wantTaken("office", 0)
		dnsPass(2 * reconcile.SecondLook)
		h.wantPlaces(dnsOffice)
	})
}

// TestSyncLateUpdate has an old value arrive after a newer one: it does not stay.
func TestSyncLateUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.run()
		u := h.reserve(h.service("example.com"), "office", 42)
		late := atomic.Bool{}
		late.Store(true)
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || !late.Swap(false) {
				return nil
			}
			time.AfterFunc(1500*time.Millisecond, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.make(servertest.Zone, c.change)
			})
			return &provider.Error{Kind: provider.Network}
		})
		h.run()
		h.publish(u, "tcp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.9:1"), h.value("42", dnsEndpoint))
		dnsPass(reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.9:1"))
		h.wantPlaces(dnsOffice, "published "+h.value("42", "tcp://192.0.2.9:1"))
	})
}

// TestSyncStaleList releases while the provider shows what was before the value
// came: the second look sees it, in every mode, whoever has the prefix by then.
func TestSyncStaleList(t *testing.T) {
	for _, mode := range []string{modeManual, modeAuto} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reserved again %t", mode, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testStaleList(t, mode, again) })
			})
		}
	}
}

func testStaleList(t *testing.T, mode string, again bool) {
	h, v := newVendorHost(t)
	h.mode(mode)
	service := h.service("example.com")
	u := h.reserve(service, "office", 42)
	h.run()
	v.stale[dnsOffice] = 1
	h.release(u, true)
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	if names := h.leftovers(); len(names) > 0 {
		t.Errorf("leftovers %q", names)
	}
	if !again {
		dnsPass(3 * reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice)
		h.wantPlaces(dnsOffice)
		return
	}
	h.reserve(service, "office", 43)
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("43", dnsEndpoint))
	dnsPass(3 * reconcile.SecondLook)
	v.want(t, servertest.Zone, dnsOffice, h.value("43", dnsEndpoint))
	h.wantPlaces(dnsOffice, "published "+h.value("43", dnsEndpoint))
}

// TestSyncSecondLook lets a withdrawn value come back: the look after a minute
// withdraws it again, and only a place where it stays away is forgotten.
func TestSyncSecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.release(u, true)
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
		reads := v.called("read")
		dnsPass(reconcile.SecondLook - time.Second)
		if n := v.called("read") - reads; n > 0 {
			t.Errorf("%d reads within the minute", n)
		}
		h.wantPlaces(dnsOffice, "withdrawn")
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice)
		h.wantPlaces(dnsOffice, "withdrawn")
		dnsPass(reconcile.SecondLook)
		h.wantPlaces(dnsOffice)
		if n := h.count(`SELECT count(*) FROM names WHERE name = '` + dnsOffice + `'`); n > 0 {
			t.Error("the name is kept")
		}
	})
}

// TestSyncRestoredBackup goes back to an older database: what was published since
// is reported as orphans, which make nothing fail, and a sweep withdraws them.
func TestSyncRestoredBackup(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service("example.com")
	u := h.reserve(service, "office", 42) // unpublished as yet
	h.start()
	backup := h.backup(t)
	h.reserve(service, "newer", 43)
	h.run()
	restored := h.opened(t, backup)
	restored.release(u, true)
	v.put(servertest.Zone, "_mesh.other.example.com", provider.TXT{dnsStranger})
	orphans := []string{"_mesh.newer.example.com orphan", dnsOffice + " orphan", "1 unchanged"}
	for range 2 {
		r := restored.run()
		if wantReport(t, r, orphans...); !r.OK() || r.Counts[reconcile.ActionOrphan] != 2 {
			t.Errorf("%+v", r)
		}
	}
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	if r := restored.sweep(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, dnsOffice)
	v.want(t, servertest.Zone, "_mesh.newer.example.com")
	v.want(t, servertest.Zone, "_mesh.other.example.com", dnsStranger)
	wantReport(t, restored.run(), "1 unchanged")
}

// TestSyncAdopts takes up what a lost database has published: its values at names
// that are wanted here are replaced, and no others.
func TestSyncAdopts(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service("example.com")
	lost := func(network string) string { return meshtxt.Value(network, "aaaaaaaaaaaa", []string{dnsEndpoint}) }
	v.put(servertest.Zone, dnsOffice, provider.TXT{lost("42")})
	v.put(servertest.Zone, "_mesh.later.example.com", provider.TXT{lost("43")})
	v.put(servertest.Zone, "_mesh.not.example.com", provider.TXT{lost("44")})
	h.reserve(service, "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict")
	if held, err := h.engine.Held(t.Context(), "aaaaaaaaaaaa"); err != nil || !slices.Equal(held, []string{dnsOffice}) {
		t.Errorf("held %q, %v", held, err)
	}
	if err := h.store.ledger.Adopt(t.Context(), h.owner); !errors.Is(err, ledger.ErrOwnOwner) {
		t.Errorf("one's own owner: %v", err)
	}
	if err := h.store.ledger.Adopt(t.Context(), "aaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	u := h.reserve(service, "later", 43)
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.later.example.com", h.value("43", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
	h.release(u, true)
	h.sweep()
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
}

// TestSyncMovesWithoutGap moves a value to another provider that takes nothing
// yet: the old value stays until the new one is in place.
func TestSyncMovesWithoutGap(t *testing.T) {
	h, old := newVendorHost(t)
	next := h.vendor("next")
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.configure(dnsVendorConfiguration("next"))
	next.fails(dnsFault(provider.Permission, "change"))
	for range 2 {
		wantReport(t, h.run(), dnsHost+" failed permission", dnsOffice+" failed permission")
		old.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	}
	if got, want := h.publishing(u), "failed "+h.value("42", dnsEndpoint)+" permission"; got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	next.fails(func(_ context.Context, c dnsCall) error {
		if c.what == "change" && !isProbe(c.name) && len(old.at(servertest.Zone, c.name)) == 0 {
			t.Errorf("%s stands nowhere", c.name)
		}
		return nil
	})
	wantReport(t, h.run(), dnsHost+" create", dnsHost+" delete", dnsOffice+" create", dnsOffice+" delete")
	old.want(t, servertest.Zone, dnsOffice)
	next.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	next.works()
	h.release(u, true)
	next.want(t, servertest.Zone, dnsOffice)
}

// TestSyncMovesToChildZone has a child zone come within the zone that has our
// value, which moves there; or stays while the child zone takes nothing.
func TestSyncMovesToChildZone(t *testing.T) {
	const name, child = "_mesh.office.sub.example.com", "sub.example.com"
	for what, refused := range map[string]bool{"at once": false, "refused at first": true} {
		t.Run(what, func(t *testing.T) {
			h, v := newVendorHost(t)
			u := h.reserve(h.service(child), "office", 42)
			h.run()
			v.zones["key"] = append(v.zones["key"], child)
			if refused {
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "change" && c.zone == child {
						return &provider.Error{Kind: provider.Permission, Unmade: true}
					}
					return nil
				})
				wantReport(t, h.run(), name+" failed permission", "1 unchanged")
				v.want(t, servertest.Zone, name, h.value("42", dnsEndpoint))
				v.works()
			}
			wantReport(t, h.run(), name+" create", name+" delete", "1 unchanged")
			v.want(t, servertest.Zone, name)
			v.want(t, child, name, h.value("42", dnsEndpoint))
			h.release(u, true)
			v.want(t, child, name)
		})
	}
}

// TestSyncLeftovers has values that cannot be withdrawn: they are leftovers, which
// make no report fail, are tried again, and can be forgotten.
func TestSyncLeftovers(t *testing.T) {
	h, v := newVendorHost(t)
	gone := h.vendor("gone")
	service := h.service("example.com", dnsAccount("gone", "", "key", "secret")...)
	u, other := h.reserve(service, "office", 42), h.reserve(service, "other", 43)
	h.run()
	gone.fails(dnsFault(provider.BadCredentials))
	h.release(u, false)
	h.force(other)
	r := h.run()
	wantReport(t, r, dnsOffice+" leftover credentials", other.Name+" leftover credentials", "1 unchanged")
	if !r.OK() || r.Counts[reconcile.ActionLeftover] != 2 {
		t.Errorf("%+v", r)
	}
	all, err := h.store.ledger.Leftovers(t.Context(), 0, 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].Place.Standing != h.value("42", dnsEndpoint) || all[0].Place.Account.Provider != "gone" || all[0].Place.Zone != servertest.Zone || all[0].Since == "" {
		t.Errorf("%+v", all[0])
	}
	for _, p := range all {
		if p.Place.Name == dnsOffice {
			err = h.store.ledger.ForgetLeftover(t.Context(), p.Place.ID)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	h.wantTaken("office", 0)
	gone.works()
	wantReport(t, h.run(), dnsOffice+" orphan", other.Name+" delete", "1 unchanged") // for nobody has removed it
	gone.want(t, servertest.Zone, other.Name)
	gone.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	if err := h.store.ledger.ForgetLeftover(t.Context(), 12345); !errors.Is(err, ledger.ErrNoLeftover) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestSyncZoneGivenUp releases what stood in a zone that the account has no more:
// it counts as withdrawn.
func TestSyncZoneGivenUp(t *testing.T) {
	h, v := newVendorHost(t)
	other := h.vendor("other")
	u := h.reserve(h.service("example.com", dnsAccount("other", "", "key", "secret")...), "office", 42)
	h.run()
	other.mu.Lock()
	other.zones["key"] = nil
	other.mu.Unlock()
	h.release(u, true)
	if r := h.run(); !r.OK() || len(h.leftovers()) > 0 {
		t.Errorf("%+v, leftovers %q", r, h.leftovers())
	}
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
}

// TestSyncBuiltinSwitchedOff releases what stands in the built-in zones of a
// program that was started without its server.
func TestSyncBuiltinSwitchedOff(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.clients.dnsAddress = ""
	h.restart()
	h.release(u, true)
	h.wantStanding(dnsOffice)
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}

// TestSyncKeepsKeys takes a key away in three ways while a value stands that was
// published with it: the value is withdrawn with it, and then the key is erased.
func TestSyncKeepsKeys(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, h *syncHost, service string, u usage){
		"the service is deleted": func(t *testing.T, h *syncHost, service string, u usage) {
			h.force(u)
			if err := h.store.DeleteService(t.Context(), service); err != nil {
				t.Fatal(err)
			}
		},
		"the service gets another": func(_ *testing.T, h *syncHost, service string, _ usage) {
			h.vendor("next")
			h.reconfigure(service, dnsConfig("example.com", dnsAccount("next", "", "key", "secret")...))
		},
		"the service has none any more": func(_ *testing.T, h *syncHost, service string, _ usage) {
			h.reconfigure(service, dnsConfig("example.com"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSyncHost(t, dnsBuiltinServer)
			v := h.vendor("vendor")
			service := h.service("example.com", dnsAccount("vendor", "", "key", "the-old-secret")...)
			u := h.reserve(service, "office", 42)
			h.run()
			take(t, h, service, u)
			if r := h.run(); !r.OK() {
				t.Errorf("%+v", r)
			}
			v.want(t, servertest.Zone, dnsOffice)
			h.later(dnsLookAgain)
			h.run()
			if n := h.count(`SELECT count(*) FROM accounts WHERE provider = 'vendor'`); n > 0 {
				t.Error("the key is kept for good")
			}
		})
	}
}

// TestSyncConfigurationReplacedDuringPass replaces the configuration while a
// write is at its provider: what that write has made goes with the old key.
func TestSyncConfigurationReplacedDuringPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, old := newVendorHost(t)
		next := h.vendor("next")
		_, open := old.holds("change", dnsHost)
		call := h.begin(t.Context())
		synctest.Wait()
		h.configure(dnsVendorConfiguration("next"))
		open()
		<-call
		h.run()
		old.want(t, servertest.Zone, dnsHost)
		next.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncIntentIsCompared releases a usage between the look at its name and the
// write: nothing is written.
func TestSyncIntentIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		arrived, open := v.holds("read", dnsOffice)
		call := h.begin(t.Context())
		<-arrived
		h.force(u)
		open()
		<-call
		if v.want(t, servertest.Zone, dnsOffice); slices.Contains(v.history, "+ "+servertest.Zone+" "+dnsOffice) {
			t.Errorf("it was written: %q", v.history)
		}
	})
}

// TestSyncTwoAccountsOfOneVendor has two services of one domain at accounts with a
// zone each, of one name: each publishes its own, and withdraws its own.
func TestSyncTwoAccountsOfOneVendor(t *testing.T) {
	h, v := newVendorHost(t)
	v.zones["a"], v.zones["b"] = []string{"example.com a"}, []string{"example.com b"}
	one := h.reserve(h.service("example.com", dnsAccount("vendor", "", "a", "s")...), "office", 42)
	two := h.reserve(h.service("example.com", dnsAccount("vendor", "", "b", "s")...), "office", 42)
	h.run()
	v.want(t, "example.com a", dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, "example.com b", dnsOffice, h.value("42", dnsEndpoint))
	h.release(one, true)
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, "example.com a", dnsOffice)
	v.want(t, "example.com b", dnsOffice, h.value("42", dnsEndpoint))
	if got, want := h.publishing(two), "published "+h.value("42", dnsEndpoint); got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
}

// TestSyncTwoProvidersOfOneDomain has two services of one domain at two providers:
// neither withdraws what the other has published.
func TestSyncTwoProvidersOfOneDomain(t *testing.T) {
	h, v := newVendorHost(t)
	other := h.vendor("other")
	h.reserve(h.service("example.com"), "office", 42)
	two := h.reserve(h.service("example.com", dnsAccount("other", "", "key", "s")...), "office", 42)
	for range 2 {
		if r := h.run(); !r.OK() {
			t.Errorf("%+v", r)
		}
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		other.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	}
	other.fails(dnsFault(provider.Temporary))
	h.publish(two, "tcp://192.0.2.1:1")
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.1:1"))
}

// TestSyncElder reserves a name for two networks while the clock goes back: the
// one that was reserved first has it.
func TestSyncElder(t *testing.T) {
	h, v := newVendorHost(t)
	h.ahead.Store(int64(time.Hour))
	ids := 100
	h.store.newID = func() (string, error) { ids--; return fmt.Sprintf("id-%03d", ids), nil }
	elder := h.reserve(h.service("example.com"), "office", 99)
	h.ahead.Store(0)
	younger := h.reserve(h.service("example.com"), "office", 1)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" create")
	v.want(t, servertest.Zone, dnsOffice, h.value("99", dnsEndpoint))
	for u, want := range map[string]string{
		h.publishing(elder): "published " + h.value("99", dnsEndpoint), h.publishing(younger): "conflict network_conflict",
	} {
		if u != want {
			t.Errorf("publish is %q, want %q", u, want)
		}
	}
}

// TestSyncConfigurationTakesNoName gives the configuration's record the name of a
// usage: there it is the conflict, whoever came first.
func TestSyncConfigurationTakesNoName(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("published first %t", first), func(t *testing.T) {
			h, v := newVendorHost(t)
			name := func() { h.change(func(c *configuration) { c.TXTRecordName = "_mesh.office" }) }
			if first {
				name()
				h.run()
				v.want(t, servertest.Zone, dnsOffice, h.value("", dnsEndpoint))
			}
			u := h.reserve(h.service("example.com"), "office", 42)
			name()
			if r := h.run(); r.Bad != 1 || r.FirstBad().Network != "" || r.FirstBad().Fault.Code != reconcile.CodeNetworkConflict {
				t.Errorf("%+v", r)
			}
			v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
			h.release(u, true)
			h.run()
			v.want(t, servertest.Zone, dnsOffice, h.value("", dnsEndpoint))
		})
	}
}

// TestSyncCopies has our value stand in several records: one stays.
func TestSyncCopies(t *testing.T) {
	h, v := newVendorHost(t)
	h.run()
	v.put(servertest.Zone, dnsHost, provider.TXT{h.value("", dnsEndpoint)})
	wantReport(t, h.run(), dnsHost+" update")
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	wantReport(t, h.run(), "1 unchanged")
}

// TestSyncDeadlineIsNoFailure ends the waiting for a pass, and then the program:
// no record counts as failed by that, and the last whole report stays.
func TestSyncDeadlineIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.reserve(h.service("example.com"), "office", 42)
		h.run()
		before, _, _ := h.engine.Last(t.Context())
		_, open := v.holds("read", dnsOffice)
		defer open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.engine.Sync(ctx, false); !errors.Is(err, reconcile.ErrUnfinished) {
			t.Errorf("%v", err)
		}
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); !last.OK() || !last.FinishedAt.Equal(before.FinishedAt) {
			t.Errorf("the last report is %+v", last)
		}
		time.AfterFunc(time.Second, open)
		h.stop()
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); !last.OK() || !last.FinishedAt.Equal(before.FinishedAt) {
			t.Errorf("after the end the last report is %+v", last)
		}
	})
}

// TestSyncCopiedDatabase runs a copy of the database on a second host: each sees
// its values changed by somebody with its mark, and says so.
func TestSyncCopiedDatabase(t *testing.T) {
	h, _ := newVendorHost(t)
	h.run()
	copied := h.copied(t)
	there := meshtxt.Addresses{IPv4: netip.MustParseAddr("198.51.100.99")}
	copied.knows(there, there)
	var r reconcile.Report
	for range 4 {
		copied.run()
		r = h.run()
	}
	if !r.OK() || r.Counts["warning"] != 1 || !slices.Equal(dnsReportLines(r), []string{dnsHost + " update same_owner_elsewhere"}) {
		t.Errorf("%+v", r)
	}
	if text := h.log.String(); !strings.Contains(text, reconcile.CodeSameOwner) {
		t.Errorf("log: %s", text)
	}
	copied.stop()
	for range 2 {
		r = h.run()
	}
	wantReport(t, r, "1 unchanged")
}

// TestSyncTwoPrograms opens one database a second time.
func TestSyncTwoPrograms(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	for _, path := range []string{h.store.path, filepath.Join(filepath.Dir(h.store.path), ".", "x", "..", filepath.Base(h.store.path))} {
		if s, err := openStore(t.Context(), path, h.logger()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
}

// TestDNSUsageAsStored tells the name that is stored, also when the service is
// changed meanwhile.
func TestDNSUsageAsStored(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service := h.service("example.com", "provider", builtin.Name)
	stored, wait := make(chan struct{}), make(chan struct{})
	first := true
	h.store.newID = func() (string, error) {
		if first {
			first = false
			close(stored)
			<-wait
		}
		return newUUID()
	}
	made := make(chan usage, 1)
	go func() {
		u := usage{ServiceID: service, Mode: modeCustom, Prefix: "office"}
		u.Network.Valid = true
		u, err := h.store.CreateUsage(context.Background(), u)
		if err != nil {
			t.Error(err)
		}
		made <- u
	}()
	dnsWait(t, stored)
	h.reconfigure(service, dnsConfig("example.net", "provider", builtin.Name))
	close(wait)
	u := dnsWait(t, made)
	if again, err := h.store.Usage(t.Context(), u.ID); err != nil || u.Name != "_mesh.office.example.net" || again.Name != u.Name || again.Domain != u.Domain {
		t.Errorf("told %q in %q, stored %q in %q, %v", u.Name, u.Domain.V, again.Name, again.Domain.V, err)
	}
}

// serial gives what the server answers as the serial of a zone.
func (h *syncHost) serial(zone string) uint32 {
	h.t.Helper()
	answer := dnsAsk(h.t, h.clients.dnsAddress, zone, dnswire.TypeSOA)
	if len(answer.Answers) != 1 || answer.Rcode != dnswire.RcodeSuccess {
		h.t.Fatalf("SOA of %s: %+v", zone, answer)
	}
	data := answer.Answers[0].Data
	return binary.BigEndian.Uint32(data[len(data)-20:])
}

// TestSerials makes changes of all kinds: the serials of the zones that a change
// concerns grow, and no other.
func TestSerials(t *testing.T) {
	h := syncServing(t)
	builtinZone := func(name string) service {
		return service{ID: name, Name: "x", Config: provider.Secret(`{"domain":"` + name + `","provider":"builtin"}`)}
	}
	put := func(v service) func() error {
		return func() error {
			return h.store.PutService(h.t.Context(), v.ID, func(service) (service, error) { return v, nil })
		}
	}
	remove := func(id string) func() error { return func() error { return h.store.DeleteService(h.t.Context(), id) } }
	publish := func(name string) func() error {
		return func() error {
			client := builtin.Client{Store: h.store.zones}
			return client.Change(h.t.Context(), provider.Change{Name: name, Add: []provider.TXT{{"v"}}, TTL: 60})
		}
	}
	configure := func(name, domain string) func() error {
		return func() error {
			return h.store.PutConfiguration(h.t.Context(), configuration{Provider: name, Domain: domain, TXTRecordName: "_t"}, false)
		}
	}
	for _, zone := range []string{"example.com", "a.b.example.com", "example.net"} {
		if err := put(builtinZone(zone))(); err != nil {
			t.Fatal(err)
		}
	}
	other := builtinZone("b.example.com")
	other.ID = "other"
	for _, test := range []struct {
		what   string
		change func() error
		grow   []string
	}{
		{"a record", publish("x.example.com"), []string{"example.com"}},
		{"a record below the zone within", publish("x.a.b.example.com"), []string{"a.b.example.com"}},
		{"a record of no zone", publish("x.example.org"), nil},
		{"the same again", put(builtinZone("example.com")), nil},
		{"a zone between", put(builtinZone("b.example.com")), []string{"example.com"}},
		{"the same zone of another service", put(other), nil},
		{"a record in it", publish("x.b.example.com"), []string{"b.example.com"}},
		{"one of the two goes", remove("other"), nil},
		{"the zone within goes", remove("a.b.example.com"), []string{"b.example.com"}},
		{"and comes back", put(builtinZone("a.b.example.com")), []string{"a.b.example.com", "b.example.com"}},
		{"the zone between goes", remove("b.example.com"), []string{"example.com"}},
		{"a configuration", configure("builtin", "c.example.net"), []string{"example.net"}},
		{"it moves", configure("builtin", "d.example.net"), []string{"example.net"}},
		{"it moves elsewhere", configure("builtin", "d.example.com"), []string{"example.net", "example.com"}},
		{"it goes to another provider", configure("rfc2136", "d.example.com"), []string{"example.com"}},
	} {
		zones, err := h.store.zones.BuiltinZones(t.Context(), []string{"example.com", "a.b.example.com", "b.example.com", "example.net"})
		if err != nil {
			t.Fatal(err)
		}
		if err := test.change(); err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		served, err := h.store.zones.BuiltinZones(t.Context(), []string{"example.com", "a.b.example.com", "b.example.com", "example.net"})
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range zones {
			if !slices.ContainsFunc(served, func(s builtin.Zone) bool { return s.Name == z.Name }) {
				continue
			}
			grown := int32(h.serial(z.Name)-z.Serial) > 0
			if grown != slices.Contains(test.grow, z.Name) || !grown && h.serial(z.Name) != z.Serial {
				t.Errorf("%s: the serial of %s goes from %d to %d", test.what, z.Name, z.Serial, h.serial(z.Name))
			}
		}
	}
}

// TestSerialAfterTheLast has a serial that cannot be counted up, and one ahead of
// the clock, whose zone goes and comes back.
func TestSerialAfterTheLast(t *testing.T) {
	h := syncServing(t)
	id := h.service("example.org", "provider", "builtin")
	for _, test := range []struct {
		serial uint32
		change func() error
	}{
		{1<<32 - 1, func() error {
			return builtin.Client{Store: h.store.zones}.Change(t.Context(), provider.Change{Name: "x.example.org", Add: []provider.TXT{{"v"}}})
		}},
		{uint32(time.Now().Unix()) + 1_000_000, func() error {
			if err := h.store.DeleteService(t.Context(), id); err != nil {
				return err
			}
			h.service("example.org", "provider", "builtin")
			return nil
		}},
	} {
		if _, err := h.store.writer.Exec(`UPDATE zone_serials SET serial = ? WHERE zone = 'example.org'`, test.serial); err != nil {
			t.Fatal(err)
		}
		h.store.zones.Changed(t.Context(), nil, []string{"example.org"})
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		if got := h.serial("example.org"); int32(got-test.serial) <= 0 {
			t.Errorf("after %d comes %d", test.serial, got)
		}
	}
}

// TestNoWildcard: a name at * would be a wildcard elsewhere. It is refused, and what
// stands there from earlier can be withdrawn; a query for it is as any other.
func TestNoWildcard(t *testing.T) {
	h := syncServing(t)
	h.service("example.com", "provider", "builtin")
	client := builtin.Client{Store: h.store.zones, Address: h.clients.dnsAddress}
	for _, name := range []string{"*.example.com", `\042.example.com`, "*.a.example.com", "*"} {
		err := client.Change(t.Context(), provider.Change{Name: name, Add: []provider.TXT{{"v"}}})
		if provider.KindOf(err) != provider.Invalid || !strings.Contains(err.Error(), "wildcard") {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.foreign(servertest.Server{Name: builtin.Name}, "*.example.com", provider.TXT{"old"})
	if answer := dnsAsk(t, h.clients.dnsAddress, "*.example.com", dnswire.TypeTXT); dnsAnswerText(answer) != "TXT 120" {
		t.Errorf("the name itself: %+v", answer)
	}
	if answer := dnsAsk(t, h.clients.dnsAddress, "x.example.com", dnswire.TypeTXT); answer.Rcode != dnswire.RcodeNXDomain {
		t.Errorf("a name beside it: %+v", answer)
	}
	remove := provider.Change{Name: "*.example.com", Seen: provider.RRset{Values: []provider.TXT{{"old"}}}, Remove: []provider.TXT{{"old"}}}
	if err := client.Change(t.Context(), remove); err != nil {
		t.Errorf("withdrawing it: %v", err)
	}
	for _, name := range []string{"a*.example.com", "*a.example.com", "x.*.example.com"} {
		if err := client.Change(t.Context(), provider.Change{Name: name, Add: []provider.TXT{{"v"}}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// twoBackends are two servers of one store: one answers from memory, the other
// from the database.
type twoBackends struct {
	h                *syncHost
	cache            *builtin.Cache
	memory, database string // addresses
}

// startTwo starts them; the cache is read when run is true.
func startTwo(t testing.TB, run bool) *twoBackends {
	t.Helper()
	h := newSyncHost(t, servertest.Server{Name: builtin.Name})
	b := &twoBackends{h: h, cache: builtin.NewCache(h.store.zones, h.logger())}
	h.store.zones.Changed = b.cache.Changed
	own := func() []netip.Addr { return []netip.Addr{dnsAddresses.IPv4} }
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	listen := func(zones builtin.Zones) string {
		server, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, zones, h.logger())
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { server.Serve(ctx) })
		return server.Addr()
	}
	b.memory = listen(builtin.Zones{Store: h.store.zones, Own: own, Cache: b.cache})
	b.database = listen(builtin.Zones{Store: h.store.zones, Own: own})
	t.Cleanup(func() { cancel(); serving.Wait() })
	if run {
		serving.Go(func() { b.cache.Run(ctx) })
		b.waitComplete(true)
	}
	return b
}

func (b *twoBackends) waitComplete(want bool) {
	b.h.t.Helper()
	eventually(b.h.t, fmt.Sprint("the cache is complete: ", want), func() bool {
		_, _, complete := b.cache.Size()
		return complete == want
	})
}

// same asks both and gives the answer, which has to be one and the same.
func (b *twoBackends) same(name string, kind dnswire.Type) dnswire.Message {
	b.h.t.Helper()
	memory, database := dnsAsk(b.h.t, b.memory, name, kind), dnsAsk(b.h.t, b.database, name, kind)
	if !reflect.DeepEqual(memory, database) {
		b.h.t.Fatalf("%s type %d: from memory %+v\nfrom the database %+v", name, kind, memory, database)
	}
	return memory
}

var dnsKinds = []dnswire.Type{dnswire.TypeTXT, dnswire.TypeSOA, dnswire.TypeNS, dnswire.TypeA, dnswire.TypeDS, dnswire.TypeANY}

// TestTwoBackendsCases asks for every kind of name: the answers are the same ones,
// and those that are right.
func TestTwoBackendsCases(t *testing.T) {
	b := startTwo(t, true)
	for _, zone := range []string{"example.net", "in.deep.example.net", "ns.example.net", "lone.example.org"} {
		b.h.service(zone, "provider", "builtin")
	}
	long := strings.Repeat("a.", 110) + "example.net"
	for _, name := range []string{
		"example.net", "_mesh.office.example.net", "x.in.deep.example.net", `a\.b.example.net`, `\000\255.example.net`, long, "left.example.edu",
	} {
		change := provider.Change{Name: name, Add: []provider.TXT{{"one \x00\xff", strings.Repeat("v", 255)}}, TTL: 120}
		if err := (builtin.Client{Store: b.h.store.zones}).Change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	b.h.foreign(servertest.Server{Name: builtin.Name}, "*.example.net", provider.TXT{"old"})
	b.h.foreign(servertest.Server{Name: builtin.Name}, "example.net", provider.TXT{"two"})
	for _, test := range []struct {
		name  string
		rcode dnswire.Rcode
		want  string // of TXT
	}{
		{"example.net", dnswire.RcodeSuccess, "TXT 120"},
		{"_MESH.office.example.net", dnswire.RcodeSuccess, "TXT 120"},
		{"office.example.net", dnswire.RcodeSuccess, "no data of example.net."},
		{"ffice.example.net", dnswire.RcodeNXDomain, "no data of example.net."},
		{"x._mesh.office.example.net", dnswire.RcodeNXDomain, "no data of example.net."},
		{"deep.example.net", dnswire.RcodeSuccess, "no data of example.net."},
		{"in.deep.example.net", dnswire.RcodeSuccess, "no data of in.deep.example.net."},
		{"x.in.deep.example.net", dnswire.RcodeSuccess, "TXT 120"},
		{"ns.example.net", dnswire.RcodeSuccess, "no data of ns.example.net."},
		{"*.example.net", dnswire.RcodeSuccess, "TXT 120"},
		{"z.example.net", dnswire.RcodeNXDomain, "no data of example.net."},
		{`a\.b.example.net`, dnswire.RcodeSuccess, "TXT 120"},
		{"b.example.net", dnswire.RcodeNXDomain, "no data of example.net."},
		{`\000\255.example.net`, dnswire.RcodeSuccess, "TXT 120"},
		{long, dnswire.RcodeSuccess, "TXT 120"},
		{dnsname.Parent(long), dnswire.RcodeSuccess, "no data of example.net."},
		{"b." + long, dnswire.RcodeNXDomain, "no data of example.net."},
		{"ns.lone.example.org", dnswire.RcodeSuccess, "no data of lone.example.org."},
		{"example.org", dnswire.RcodeRefused, "nothing"},
		{"net", dnswire.RcodeRefused, "nothing"},
		{"left.example.edu", dnswire.RcodeRefused, "nothing"},
	} {
		for _, kind := range dnsKinds {
			answer := b.same(test.name, kind)
			if got := dnsAnswerText(answer); kind == dnswire.TypeTXT && (got != test.want || answer.Rcode != test.rcode) {
				t.Errorf("%s: %v, %s, want %v, %s", test.name, answer.Rcode, got, test.rcode, test.want)
			}
		}
	}
	if _, _, complete := b.cache.Size(); !complete {
		t.Error("the database answered for both")
	}
}

// TestTwoBackendsRandom makes random changes, and asks at once for random names.
func TestTwoBackendsRandom(t *testing.T) {
	b := startTwo(t, true)
	random := rand.New(rand.NewPCG(5, 7))
	name := func() string {
		labels := make([]string, 1+random.IntN(4))
		for i := range labels {
			labels[i] = []string{"a", "b", "ns", "_mesh"}[random.IntN(4)]
		}
		return strings.Join(append(labels, "example.com"), ".")
	}
	kinds := map[string]int{}
	for range 600 {
		if err := b.randomChange(random, name()); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			answer := b.same(name(), dnsKinds[random.IntN(len(dnsKinds))])
			kinds[answer.Rcode.String()]++
		}
		b.same("example.com", dnswire.TypeSOA)
	}
	if _, _, complete := b.cache.Size(); !complete || kinds["NOERROR"] < 100 || kinds["NXDOMAIN"] < 100 || kinds["REFUSED"] < 10 {
		t.Errorf("complete: %t, answers: %v", complete, kinds)
	}
}

// randomChange changes records at a name, a service or the configuration.
func (b *twoBackends) randomChange(random *rand.Rand, name string) error {
	ctx, s := b.h.t.Context(), b.h.store
	id := fmt.Sprint("s", random.IntN(4))
	switch random.IntN(8) {
	case 0, 1:
		config := `{"domain":"` + name + `","provider":"` + []string{"builtin", "rfc2136"}[random.IntN(2)] + `"}`
		return s.PutService(ctx, id, func(service) (service, error) {
			return service{ID: id, Name: "x", Config: provider.Secret(config)}, nil
		})
	case 2:
		if err := s.DeleteService(ctx, id); !errors.Is(err, errNoService) {
			return err
		}
		return nil
	case 3:
		c := configuration{Provider: []string{"builtin", "rfc2136"}[random.IntN(2)], Domain: name, TXTRecordName: "_t"}
		return s.PutConfiguration(ctx, c, false)
	}
	names := []string{dnsKey(name), dnsKey("x." + name)}
	return s.zones.ChangeZoneRecords(ctx, names, func(now []builtin.Record) (add, remove []builtin.Record) {
		for i := range random.IntN(3) {
			add = append(add, builtin.Record{Name: names[random.IntN(2)], Data: dnswire.TXTData([]string{fmt.Sprint(i)}), TTL: uint32(random.IntN(3))})
		}
		for _, r := range now {
			if random.IntN(2) == 0 {
				remove = append(remove, r)
			}
		}
		return add, remove
	})
}

// TestCacheBuiltDuringChanges changes the zones while they are read at start.
func TestCacheBuiltDuringChanges(t *testing.T) {
	b := startTwo(t, false)
	const names = 10_000
	b.h.service("example.net", "provider", "builtin")
	b.h.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
		INSERT INTO zone_records SELECT 'net.example.n' || i, X'0178', 60 FROM n`)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { b.cache.Run(ctx) })
	random := rand.New(rand.NewPCG(8, 9))
	client := builtin.Client{Store: b.h.store.zones, Address: b.memory}
	var asked []string
	for complete := false; !complete || len(asked) < 50; {
		name := fmt.Sprintf("n%d.example.net", random.IntN(names))
		set, err := client.Read(ctx, "", name)
		if err != nil {
			t.Fatal(err)
		}
		change := provider.Change{Name: name, Seen: set, Remove: set.Values, TTL: 60}
		if random.IntN(2) == 0 {
			change.Add = []provider.TXT{{"changed"}}
		}
		if err := client.Change(ctx, change); err != nil {
			t.Fatal(err)
		}
		b.same(name, dnswire.TypeTXT)
		asked = append(asked, name)
		_, _, complete = b.cache.Size()
	}
	for i := range 300 {
		asked = append(asked, fmt.Sprintf("n%d.example.net", i*33))
	}
	for _, name := range asked {
		b.same(name, dnswire.TypeTXT)
	}
}

// TestCacheIsGivenUp has a database that cannot be read after a change, one that
// another program writes into, and one that is too large: it answers itself.
func TestCacheIsGivenUp(t *testing.T) {
	b := startTwo(t, true)
	b.h.service("example.net", "provider", "builtin")
	b.h.foreign(servertest.Server{Name: builtin.Name}, "a.example.net", provider.TXT{"v"})
	b.h.exec(`ALTER TABLE zone_records RENAME TO away`)
	b.cache.Changed(t.Context(), []string{"net.example.a"}, nil)
	b.h.exec(`ALTER TABLE away RENAME TO zone_records`)
	if _, _, complete := b.cache.Size(); complete {
		t.Error("what could not be read is thought to be known")
	}
	b.same("a.example.net", dnswire.TypeTXT)

	b = startTwo(t, true)
	b.h.service("example.net", "provider", "builtin")
	other, err := sql.Open("sqlite3", "file:"+b.h.store.path+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec(`INSERT INTO zone_records VALUES ('net.example.b', X'0178', 60)`); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first query after it sees it, and what is read anew has it
		if answer := b.same("b.example.net", dnswire.TypeTXT); len(answer.Answers) != 1 {
			t.Errorf("what another program writes is not answered: %+v", answer)
		}
		b.waitComplete(true)
	}

	b.cache.MaxNames = 1
	b.h.foreign(servertest.Server{Name: builtin.Name}, "c.example.net", provider.TXT{"v"})
	if _, _, complete := b.cache.Size(); complete {
		t.Error("too much is kept")
	}
	b.same("c.example.net", dnswire.TypeTXT)
}

// TestLogTellsOfChanges has a provider fail, and a stranger hold a name, for many
// intervals: each is told when it begins, when the reason is another, and when it ends.
func TestLogTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		service := h.service("example.com")
		for n := range 50 {
			h.reserve(service, fmt.Sprintf("name%d", n), sqlrow.NetworkID(n+1))
		}
		h.mode(modeAuto)
		h.loop()
		dnsPass(time.Minute)
		for _, step := range []struct {
			what      string
			change    func()
			intervals int
			want      []string // the lines, each by its beginning
		}{
			{"all is well", func() {}, 20, nil},
			{"down", func() { v.fails(dnsFault(provider.Network)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com provider=vendor code=network detail=zone names=51", "WARN synchronised trigger=interval names=51 failed=51"}},
			{"slow by turns", func() { v.fails(dnsFault(provider.Temporary)) }, 3, nil},
			{"another reason", func() { v.fails(dnsFault(provider.BadCredentials)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com provider=vendor code=credentials detail=zone names=51"}},
			{"well again", v.works, 20, []string{
				"INFO \"zone is well again\" zone=example.com provider=vendor code=credentials after=", "INFO synchronised trigger=interval names=51 failed=0"}},
			{"a stranger", func() { v.put("example.com", "_mesh.name7.example.com", provider.TXT{dnsStranger}) }, 20, []string{
				"WARN record name=_mesh.name7.example.com provider=vendor action=conflict code=conflict", "WARN synchronised trigger=interval names=51 failed=1"}},
			{"no quota", func() {
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "read" || c.what == "list" {
						return &provider.Error{Kind: provider.Quota, Detail: "month \u202e\x1b[2J"}
					}
					return nil
				})
			}, 20, []string{
				"WARN records names=", "WARN records names=", "WARN synchronised trigger=interval names=51 failed=51"}},
			{"well at last", func() { v.works(); v.remove("example.com", "_mesh.name7.example.com", dnsStranger) }, 20, []string{
				"INFO records names=", "INFO records names=", "INFO synchronised trigger=interval names=51 failed=0"}},
			{"down again", func() { v.fails(dnsFault(provider.Network)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com", "WARN synchronised trigger=interval names=51 failed=51"}},
			{"another run of the program", h.restart, 20, []string{
				"WARN \"zone is down\" zone=example.com", "WARN synchronised trigger=start names=51 failed=51"}},
		} {
			before := len(h.log.String())
			step.change()
			dnsPass(time.Duration(step.intervals) * 6 * time.Minute)
			var got []string
			for line := range strings.Lines(h.log.String()[before:]) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), " level=")
				got = append(got, strings.Replace(line, "msg=", "", 1))
			}
			if strings.ContainsAny(strings.Join(got, ""), "\u202e\x1b") {
				t.Errorf("%s: %q", step.what, got)
			}
			ok := len(got) == len(step.want)
			for i := 0; ok && i < len(got); i++ {
				ok = strings.HasPrefix(got[i], step.want[i])
			}
			if !ok {
				t.Errorf("%s: %d lines\n%.3000s\nwant\n%s", step.what, len(got), strings.Join(got, "\n"), strings.Join(step.want, "\n"))
			}
		}
	})
}

// TestCodesHaveTexts has words for each reason that a record or a test may have.
func TestCodesHaveTexts(t *testing.T) {
	for _, code := range []string{
		string(provider.Network), string(provider.Temporary), string(provider.Throttled), string(provider.BadCredentials), string(provider.Permission),
		string(provider.ClockSkew), string(provider.ZoneNotFound), string(provider.Conflict), string(provider.Changed), string(provider.Invalid),
		string(provider.Quota), string(provider.BadAnswer), string(conntest.NoResolver), reconcile.CodeUnknownProvider, reconcile.CodeNotListening,
		reconcile.CodeNoProvider, reconcile.CodeInvalid, reconcile.CodeInvalidName, reconcile.CodeNetworkConflict, reconcile.CodeCredentialsGone,
		reconcile.CodeDeletesForbidden, reconcile.CodeAddressUnknown, reconcile.CodeSameOwner, reconcile.CodeZoneUnreachable, reconcile.CodeDatabase,
		reconcile.CodeInterrupted, reconcile.CodeOrphan, reconcile.CodeNotSearched,
	} {
		for _, language := range []msg.Language{msg.Chinese, msg.English} {
			if text := msg.ID(code).In(language); text == code || text == "" {
				t.Errorf("%s has no text", code)
			}
		}
	}
}

// dnsTokens makes an appliance that publishes at a stand-in whose keys all have the id
// "token", and differ in their secrets only.
func dnsTokens(t *testing.T, zones map[string]string) (*syncHost, *dnsVendor) {
	h, v := newVendorHost(t)
	v.tokens, v.zones = true, map[string][]string{}
	for secret, zone := range zones {
		v.zones["token:"+secret] = []string{zone}
	}
	v.fails(func(_ context.Context, c dnsCall) error {
		if v.zones[c.key] == nil {
			return &provider.Error{Kind: provider.BadCredentials, Detail: "Invalid access token"}
		}
		return nil
	})
	h.change(func(c *configuration) { c.AccessKeyID, c.Secret = "token", "right" })
	return h, v
}

// TestSyncTokensOfOneID has two services whose keys have one id and different secrets:
// each publishes with its own.
func TestSyncTokensOfOneID(t *testing.T) {
	h, v := dnsTokens(t, map[string]string{"right": "example.com", "one": "one.example", "two": "two.example"})
	h.reserve(h.service("one.example", dnsAccount("vendor", "", "token", "one")...), "a", 1)
	h.reserve(h.service("two.example", dnsAccount("vendor", "", "token", "two")...), "b", 2)
	wantReport(t, h.run(), dnsHost+" create", "_mesh.a.one.example create", "_mesh.b.two.example create")
	v.want(t, "one.example", "_mesh.a.one.example", h.value("1", dnsEndpoint))
	v.want(t, "two.example", "_mesh.b.two.example", h.value("2", dnsEndpoint))
	if n := h.count(`SELECT count(DISTINCT key_hash) FROM accounts WHERE access_key_id = 'token'`); n != 3 {
		t.Errorf("%d accounts, want 3", n)
	}
}

// TestSyncWrongSecret has a service with a wrong secret for the key of the configuration, in
// the same zone: only its own record fails, and every place that tells of it says whose
// key it is.
func TestSyncWrongSecret(t *testing.T) {
	h, v := dnsTokens(t, map[string]string{"right": "example.com"})
	service := h.service("example.com", dnsAccount("vendor", "", "token", "wrong")...)
	u := h.reserve(service, "office", 42)
	h.reserve(h.service("example.com"), "good", 43)
	r := h.run()
	wantReport(t, r, dnsHost+" create", "_mesh.good.example.com create", dnsOffice+" failed credentials")
	english, chinese := ` (key of service "`+service+`")`, `（服务 "`+service+`" 的密钥）`
	check := func(where string, f reconcile.Fault, english, chinese string) {
		t.Helper()
		if e, c := answers.FaultText(f, msg.English), answers.FaultText(f, msg.Chinese); !strings.HasSuffix(e, english) || !strings.HasSuffix(c, chinese) {
			t.Errorf("%s: %q and %q, want %q and %q", where, e, c, english, chinese)
		}
	}
	check("the report", r.FirstBad().Fault, english, chinese)
	stored, err := h.store.ledger.LastReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check("the stored report", stored.FirstBad().Fault, english, chinese)
	check("the usage", h.fault(u), english, chinese)
	if want := `key="service ` + service + `"`; !strings.Contains(h.log.String(), `msg="zone is down" zone=example.com provider=vendor code=credentials`) ||
		!strings.Contains(h.log.String(), want) {
		t.Errorf("no %s in the log: %s", want, h.log.String())
	}

	v.mu.Lock()
	v.zones = map[string][]string{"token:wrong": {"example.com"}}
	v.mu.Unlock()
	h.exec(`UPDATE places SET look_at = 0`)
	r = h.run()
	check("the configuration's", r.FirstBad().Fault, " (key of the configuration)", "（配置中的密钥）")
	v.want(t, "example.com", dnsOffice, h.value("42", dnsEndpoint))

	v.mu.Lock()
	v.zones = map[string][]string{"token:right": {"example.com"}}
	v.mu.Unlock()
	h.force(u)
	h.run()
	if all, err := h.store.ledger.Leftovers(t.Context(), 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	} else {
		check("the leftover", all[0].Place.Fault, english, chinese)
	}
	if err := h.store.DeleteService(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	v.zones = map[string][]string{"token:right": {"example.com other"}} // else this key would withdraw it
	v.mu.Unlock()
	h.run()
	if all, err := h.store.ledger.Leftovers(t.Context(), 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	} else {
		check("the leftover of a service that has gone", all[0].Place.Fault,
			" (a key that no configuration and no service has any more)", "（已无配置或服务使用的密钥）")
	}
}

// fault is why a usage's record is not as it should be, as clients are told.
func (h *syncHost) fault(u usage) reconcile.Fault {
	h.t.Helper()
	u, err := h.store.Usage(context.Background(), u.ID)
	if err != nil {
		h.t.Fatal(err)
	}
	return u.Publish.Fault
}

// TestSyncSecretRotates gives a key another secret, at a provider that tells its zones apart
// and at one that does not: the value stays where it is all the time, and the old secret goes.
func TestSyncSecretRotates(t *testing.T) {
	for _, noIDs := range []bool{false, true} {
		t.Run(fmt.Sprint("no ids ", noIDs), func(t *testing.T) {
			h, v := dnsTokens(t, map[string]string{"right": "example.com", "new": "example.com"})
			v.noIDs = noIDs
			h.reserve(h.service("example.com"), "office", 42)
			h.run()
			before := slices.Clone(v.history)
			h.change(func(c *configuration) { c.Secret = "new" })
			for range 2 {
				if r := h.run(); !r.OK() {
					t.Errorf("%+v", r)
				}
			}
			if !slices.Equal(v.history, before) {
				t.Errorf("changes %q, and before the new secret %q", v.history, before)
			}
			h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
			h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint))
			if n := h.count(`SELECT count(*) FROM accounts WHERE provider = 'vendor'`); n != 1 {
				t.Errorf("%d accounts are kept, nothing needs the old secret", n)
			}
		})
	}
}

// TestEndpointSpellings writes one endpoint in several ways: it is one account, a mask
// keeps its secret, and the answers have each as it was typed.
func TestEndpointSpellings(t *testing.T) {
	a := newAppliance(t)
	const config = `{"provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q,"domain":"example.com","txt_record_name":"_txt"}`
	const service = `{"name":"x","config":{"domain":"example.com","provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q}}`
	secret := "the secret"
	for n, endpoint := range []string{"https://bridge.example/x", "HTTPS://Bridge.Example:443/x/", "bridge.example/x//"} {
		path := fmt.Sprint("/api/v1/ddns/services/s", n)
		a.must(t, "PUT", path, fmt.Sprintf(service, "the secret", "https://bridge.example/x"))
		a.must(t, "PUT", path, fmt.Sprintf(service, "********", endpoint))
		a.must(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, secret, endpoint))
		for _, path := range []string{path, "/api/v1/ddns/config"} {
			if answer := a.must(t, "GET", path, ""); !strings.Contains(answer, endpoint) {
				t.Errorf("%s: %s, want the endpoint %s as it was typed", path, answer, endpoint)
			}
		}
		secret = "********"
	}
	got := queryText(t, a.store.reader, `SELECT endpoint, access_key_secret FROM accounts`)
	if want := []string{"https://bridge.example/x | the secret"}; !slices.Equal(got, want) {
		t.Errorf("accounts %q, want %q", got, want)
	}
	if status, code, answer := a.call(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, "********", "https://bridge.example/y")); status != 400 || code != "secret_not_stored" {
		t.Errorf("another address: %d %s %s", status, code, answer)
	}
}

// TestSyncUnreadBatch has a provider make a batch, and give an answer that cannot be
// read; the halves are refused. The values may stand, so no prefix is free before they
// were seen to go.
func TestSyncUnreadBatch(t *testing.T) {
	page := cloudtest.Answer{Status: http.StatusBadGateway, Body: "<html>"}
	exists := cloudtest.JSON(http.StatusBadRequest, map[string]any{
		"success": false, "errors": []any{map[string]any{"code": 99999, "message": "it is there"}},
	})
	c := cloudtest.Cloudflare(t)
	h := newSyncHost(t, dnsBuiltinServer)
	service := h.cloudService(c, "example.com")
	var usages []usage
	for n := range 4 {
		usages = append(usages, h.reserve(service, fmt.Sprintf("n%d", n), 42))
	}
	c.Fail(cloudtest.Unread(&page, &exists))
	h.run()
	for n, u := range usages {
		name := fmt.Sprintf("_mesh.n%d.example.com", n)
		freed, err := h.tryRelease(t.Context(), u)
		if left := c.Values(t, name); freed && len(left) > 0 {
			t.Errorf("%s is free (%v), and %q is left", name, err, left)
		}
	}
	c.FailNoMore()
	h.run()
	for n := range usages {
		if left := c.Values(t, fmt.Sprintf("_mesh.n%d.example.com", n)); len(left) > 0 {
			t.Errorf("%q is left for ever", left)
		}
	}
}

// TestSyncOneZoneTwoAddresses has one zone reached in two ways: by another spelling of
// the address, or by another provider of the same vendor. The value stands at every
// moment, and no sweep takes what is wanted for an orphan.
func TestSyncOneZoneTwoAddresses(t *testing.T) {
	for name, noIDs := range map[string]bool{"with ids": false, "without ids": true} {
		for _, other := range []string{"vendor", "sibling"} {
			t.Run(other+" "+name, func(t *testing.T) {
				h, v := newVendorHost(t)
				v.noIDs, h.vendors["sibling"] = noIDs, v
				h.change(func(c *configuration) { c.Endpoint = "http://127.0.0.1:1" })
				service := h.service("example.com")
				u := h.reserve(service, "office", 42)
				h.run()
				h.change(func(c *configuration) { c.Provider, c.Endpoint = other, "http://localhost:1" })
				h.reserve(h.service("example.com", dnsAccount("vendor", "http://127.1:1", "key", "secret")...), "beside", 43)
				for range 3 {
					if r := h.run(); !r.OK() || r.Counts[reconcile.ActionOrphan] > 0 {
						t.Errorf("%+v", r)
					}
					h.sweep()
					v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
					v.want(t, servertest.Zone, "_mesh.beside.example.com", h.value("43", dnsEndpoint))
					h.later(dnsLookAgain)
				}
				if got, want := h.publishing(u), "published "+h.value("42", dnsEndpoint); got != want {
					t.Errorf("publish is %q, want %q", got, want)
				}
				if left := h.leftovers(); len(left) > 0 {
					t.Errorf("leftovers %q", left)
				}
			})
		}
	}
}

// TestSyncTwoZonesOfOneName moves a value between two zones of one name whose
// provider gives no ids: a probe tells, and the old value goes.
func TestSyncTwoZonesOfOneName(t *testing.T) {
	h, old := newVendorHost(t)
	next := h.vendor("next")
	old.noIDs, next.noIDs = true, true
	h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.configure(dnsVendorConfiguration("next"))
	wantReport(t, h.run(), dnsHost+" create", dnsHost+" delete", dnsOffice+" create", dnsOffice+" delete")
	old.want(t, servertest.Zone, dnsOffice)
	next.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	if n := h.count(`SELECT count(*) FROM places WHERE name LIKE '_mesh-test-%'`); n > 0 {
		t.Errorf("%d places of probes are left", n)
	}
}

// TestSyncReservedAgain reserves anew what was never published, because its provider
// was down: it is published as soon as that answers.
func TestSyncReservedAgain(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service("example.com")
	v.fails(dnsFault(provider.Network))
	u := h.reserve(service, "office", 42)
	h.run()
	h.release(u, true)
	h.reserve(service, "office", 42)
	h.run()
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("leftovers %q of what was never written", left)
	}
	v.works()
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
}

// TestSyncDoubtMovesAway has a first write of unknown outcome at one provider, a move
// to another, and that fail for longer than two looks: the first value is not
// forgotten, and goes when the second stands.
func TestSyncDoubtMovesAway(t *testing.T) {
	for name, stands := range map[string]bool{"it was made": true, "it was not made": false} {
		t.Run(name, func(t *testing.T) {
			h, old := newVendorHost(t)
			next := h.vendor("next")
			h.run()
			u := h.reserve(h.service("example.com"), "office", 42)
			old.fails(func(_ context.Context, c dnsCall) error {
				if c.what == "change" && stands {
					old.mu.Lock()
					defer old.mu.Unlock()
					old.make(servertest.Zone, c.change)
				}
				return dnsFault(provider.Network, "change")(nil, c)
			})
			h.run()
			old.works()
			h.configure(dnsVendorConfiguration("next"))
			next.fails(dnsFault(provider.Network))
			for range 4 {
				h.run()
				h.later(dnsLookAgain)
			}
			if len(old.at(servertest.Zone, dnsOffice)) > 0 != stands {
				t.Errorf("at the old provider: %q", old.at(servertest.Zone, dnsOffice))
			}
			next.works()
			for range 3 {
				if r := h.run(); !r.OK() {
					t.Errorf("%+v", r)
				}
				h.later(dnsLookAgain)
			}
			old.want(t, servertest.Zone, dnsOffice)
			next.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
			h.release(u, true)
		})
	}
}

// TestSyncLateOverNewer has a late write take the place of a newer value, in mode
// manual: the second look says so, and writes nothing.
func TestSyncLateOverNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.run()
		u := h.reserve(h.service("example.com"), "office", 42)
		v.fails(dnsFault(provider.Network, "change"))
		h.run()
		v.works()
		h.publish(u, "tcp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
		v.mu.Lock()
		v.values[[2]string{servertest.Zone, dnsOffice}] = []provider.TXT{{h.value("42", dnsEndpoint)}}
		v.mu.Unlock()
		h.publish(u, "tcp://192.0.2.9:1") // a change of nothing does not drop the look
		dnsPass(2 * reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		if got, want := h.publishing(u), "pending "+h.value("42", dnsEndpoint); got != want {
			t.Errorf("publish is %q, want %q", got, want)
		}
		wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
	})
}

// TestSyncStateIsTrue changes what is wanted in mode manual: what is told of it is
// true before anything is synchronised, in answers and figures.
func TestSyncStateIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		v := h.reserve(h.service("example.com"), "beside", 43)
		h.run()
		check := func(what string, u usage, want string, pending uint64) {
			t.Helper()
			dnsPass(5 * time.Second)
			if got := h.publishing(u); got != want {
				t.Errorf("%s: publish is %q, want %q", what, got, want)
			}
			totals, err := h.store.Totals(t.Context())
			if err != nil || totals["pending"] != pending {
				t.Errorf("%s: %d records are pending, want %d (%v)", what, totals["pending"], pending, err)
			}
		}
		check("synchronised", u, "published "+h.value("42", dnsEndpoint), 0)
		h.publish(u, "tcp://192.0.2.9:1")
		check("other endpoints", u, "pending "+h.value("42", dnsEndpoint), 1)
		h.publish(u, dnsEndpoint)
		check("as before", u, "published "+h.value("42", dnsEndpoint), 0)
		h.change(func(c *configuration) { c.Endpoints = sqlrow.TextList{"tcp://192.0.2.9:2"} })
		check("another configuration", v, "pending "+h.value("43", dnsEndpoint), 2)
		h.run()
		check("synchronised again", v, "published "+h.value("43", "tcp://192.0.2.9:2"), 0)
	})
}

// TestSyncLeftoverInDoubt releases by force what may have been written: the leftover
// says which value that is.
func TestSyncLeftoverInDoubt(t *testing.T) {
	h, v := newVendorHost(t)
	h.run()
	u := h.reserve(h.service("example.com"), "office", 42)
	v.fails(dnsFault(provider.Network, "change"))
	h.run()
	v.fails(dnsFault(provider.Network))
	h.force(u)
	h.run()
	places := h.places(dnsOffice)
	if len(places) != 1 || places[0].State != reconcile.Leftover {
		t.Fatalf("places %+v", places)
	}
	if l := answers.NewLeftover(places[0], "", time.Time{}, msg.English); l.Value != h.value("42", dnsEndpoint) {
		t.Errorf("its value is %q", l.Value)
	}
}

// TestSyncZoneRemoved releases what stood in a zone that a DNS server has given up: it
// counts as withdrawn.
func TestSyncZoneRemoved(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := newSyncHost(t, s)
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		s.RemoveZone(t)
		h.release(u, true)
		if wantReport(t, h.run(), dnsHost+" failed zone_not_found"); len(h.leftovers()) > 0 {
			t.Errorf("leftovers %q", h.leftovers())
		}
	})
}

// TestSyncProbe has a probe that its writer does not end: a pass leaves it alone until its
// time, then it is withdrawn in every mode, and its key goes.
func TestSyncProbe(t *testing.T) {
	for _, mode := range []string{modeManual, modeUpsertOnly} {
		t.Run(mode, func(t *testing.T) {
			h, v := newVendorHost(t)
			h.mode(mode)
			other := h.vendor("other")
			probe := conntest.NewProbe(h.owner, servertest.Zone)
			place := reconcile.Place{Name: probe.Name, Zone: servertest.Zone, ZoneID: servertest.Zone, Doubt: reconcile.Doubt{Value: probe.Value},
				Account: reconcile.Account{Provider: "other", AccessKeyID: "key", Secret: "secret of the probe"}}
			if err := h.store.ledger.AddProbe(t.Context(), &place); err != nil {
				t.Fatal(err)
			}
			other.put(servertest.Zone, probe.Name, provider.TXT{probe.Value})
			other.put(servertest.Zone, probe.Name, provider.TXT{"another's"})
			h.run()
			other.want(t, servertest.Zone, probe.Name, probe.Value, "another's")
			h.later(reconcile.ProbeTime)
			h.until("the probe is withdrawn", func() bool { return h.count(`SELECT count(*) FROM places WHERE state = 'withdrawn'`) == 1 })
			other.want(t, servertest.Zone, probe.Name, "another's")
			h.later(dnsLookAgain)
			h.until("the probe is forgotten", func() bool {
				return h.count(`SELECT count(*) FROM accounts`)+h.count(`SELECT count(*) FROM names`)+h.count(`SELECT count(*) FROM places`) == 3
			})
			v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
		})
	}
}

// TestProbeEnds has probes that their writers end: what they needed goes with them, and
// what others need stays.
func TestProbeEnds(t *testing.T) {
	h, _ := newVendorHost(t)
	h.run()
	rows := h.rows()
	for _, provider := range []string{"vendor", "other"} {
		place := reconcile.Place{Name: "_mesh-test-1.example.com", Zone: servertest.Zone, Doubt: reconcile.Doubt{Value: meshtxt.Probe(h.owner, "1")},
			Account: reconcile.Account{Provider: provider, AccessKeyID: "key", Secret: "secret"}}
		if err := h.store.ledger.AddProbe(t.Context(), &place); err != nil || place.ID == 0 || place.Account.ID == 0 {
			t.Fatalf("%+v, %v", place, err)
		}
		for range 2 {
			if err := h.store.ledger.EndProbe(t.Context(), place); err != nil {
				t.Error(err)
			}
		}
		if left := h.rows(); !slices.Equal(left, rows) {
			t.Errorf("%q, want %q", left, rows)
		}
	}
}

// TestSyncSecretOfWithdrawal gives a key another secret while a value that was published with
// the old one is to be withdrawn: the provider refuses the old one, so the new one does it. Where
// that reaches another zone of the name, the value stays as a leftover.
func TestSyncSecretOfWithdrawal(t *testing.T) {
	for zone, withdrawn := range map[string]bool{"example.com": true, "example.com other": false} {
		t.Run(zone, func(t *testing.T) {
			h, v := dnsTokens(t, map[string]string{"right": "example.com"})
			u := h.reserve(h.service("example.com"), "office", 42)
			h.run()
			v.mu.Lock()
			v.zones = map[string][]string{"token:new": {zone}}
			v.mu.Unlock()
			h.change(func(c *configuration) { c.Secret, c.TXTRecordName = "new", "_else" })
			h.release(u, withdrawn)
			h.run()
			if withdrawn {
				v.want(t, "example.com", dnsOffice)
				v.want(t, "example.com", dnsHost)
			} else {
				v.want(t, "example.com", dnsOffice, h.value("42", dnsEndpoint))
				if got := h.leftovers(); len(got) != 2 || h.fault(u).Code != string(provider.BadCredentials) {
					t.Errorf("leftovers %q, the usage's fault %+v", got, h.fault(u))
				}
			}
			h.later(dnsLookAgain)
			h.run()
			if n := h.count(`SELECT count(*) FROM accounts WHERE provider = 'vendor'`); withdrawn != (n == 1) {
				t.Errorf("%d accounts are kept", n)
			}
		})
	}
}

// TestSyncPreviewOfMoves plans moves: the value comes at the new place, and goes at the
// old one.
func TestSyncPreviewOfMoves(t *testing.T) {
	preview := func(h *syncHost, want ...string) {
		t.Helper()
		r, err := h.engine.Preview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantReport(t, r, want...)
	}
	both := []string{dnsHost + " create", dnsHost + " delete", dnsOffice + " create", dnsOffice + " delete"}
	t.Run("another provider", func(t *testing.T) {
		h, _ := newVendorHost(t)
		next := h.vendor("next")
		h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.configure(dnsVendorConfiguration("next"))
		next.fails(dnsFault(provider.Permission))
		preview(h, dnsHost+" failed permission", dnsOffice+" failed permission")
		next.works()
		preview(h, both...)
		wantReport(t, h.run(), both...)
		preview(h, "2 unchanged")
	})
	t.Run("upsert-only", func(t *testing.T) {
		h, _ := newVendorHost(t)
		h.vendor("next")
		h.run()
		c := dnsVendorConfiguration("next")
		c.SyncMode = modeUpsertOnly
		h.configure(c)
		want := []string{dnsHost + " create", dnsHost + " leftover deletes_forbidden"}
		preview(h, want...)
		wantReport(t, h.run(), want...)
	})
	t.Run("another key of the zone", func(t *testing.T) {
		s := servertest.BIND(t)
		h := newSyncHost(t, s)
		h.run()
		h.change(func(c *configuration) { c.AccessKeyID = "hmac-sha256:" + c.AccessKeyID })
		preview(h, "1 unchanged")
	})
	t.Run("a zone within", func(t *testing.T) {
		h, v := newVendorHost(t)
		h.reserve(h.service("sub.example.com"), "office", 42)
		h.run()
		v.zones["key"] = append(v.zones["key"], "sub.example.com")
		preview(h, "_mesh.office.sub.example.com create", "_mesh.office.sub.example.com delete", "1 unchanged")
		wantReport(t, h.run(), "_mesh.office.sub.example.com create", "_mesh.office.sub.example.com delete", "1 unchanged")
	})
}

// TestSyncPreviewOfSweep lists what a sweep would withdraw, and withdraws nothing.
func TestSyncPreviewOfSweep(t *testing.T) {
	h, v := newVendorHost(t)
	v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
	r, err := h.engine.PreviewSweep(t.Context())
	if wantReport(t, r, dnsHost+" create", dnsOffice+" orphan"); err != nil || !r.OK() || r.Counts[reconcile.ActionOrphan] != 1 || r.Names != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" orphan")
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
}

// TestSyncConfigurationForgotten deletes the configuration. Its value goes, and those of the
// services that have used its key, over restarts and refusals. A service with a key of its own
// keeps its value, for which nothing is written any more.
func TestSyncConfigurationForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		own := h.vendor("own")
		service := h.service("example.com", dnsAccount("own", "", "key", "secret")...)
		kept := h.reserve(service, "kept", 41)
		h.reserve(h.service("example.com"), "office", 42)
		h.run()
		v.fails(dnsFault(provider.Temporary, "change"))
		api := &server{store: h.store, engine: h.engine}
		if gone, err := api.forgetConfiguration(t.Context()); gone || err != nil {
			t.Errorf("gone %t, %v", gone, err)
		}
		if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrNotConfigured) {
			t.Errorf("%v", err)
		}
		h.publish(kept, "udp://192.0.2.9:1")
		h.reserve(service, "new", 43)
		h.restart()
		api.engine = h.engine
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
		v.works()
		dnsPass(time.Hour)
		v.want(t, servertest.Zone, dnsHost)
		v.want(t, servertest.Zone, dnsOffice)
		own.want(t, servertest.Zone, kept.Name, h.value("41", dnsEndpoint))
		own.want(t, servertest.Zone, "_mesh.new.example.com")
		if n := h.count(`SELECT count(*) FROM accounts`); n != 1 {
			t.Errorf("%d accounts are kept, want the service's alone", n)
		}
		rounds := h.rounds.Load()
		dnsPass(24 * time.Hour)
		if n := h.rounds.Load() - rounds; n > 60 {
			t.Errorf("%d rounds in a day in which there is nothing to do", n)
		}
		h.configure(dnsVendorConfiguration("vendor"))
		h.run()
		own.want(t, servertest.Zone, kept.Name, h.value("41", "udp://192.0.2.9:1"))
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
		if _, err := api.forgetConfiguration(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := api.forgetConfiguration(t.Context()); !errors.Is(err, errNoConfiguration) {
			t.Errorf("%v", err)
		}
	})
}

// What docs/providers.md says that each provider can is what its client can.
func TestProvidersPage(t *testing.T) {
	page, err := os.ReadFile("docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 7 && strings.HasPrefix(line, "| `") {
			rows[strings.Trim(cells[0], "| `")] = cells
		}
	}
	for _, p := range providers {
		cells := rows[p.name]
		if cells == nil {
			t.Errorf("%s has no row", p.name)
			continue
		}
		endpoint := map[string]string{"rfc2136": "192.0.2.1:53", "powerdns": "http://192.0.2.1:8081", "webhook": "https://192.0.2.1/"}[p.name]
		client, err := (clients{}).open(newAccount(p.name, endpoint, "key", "c2VjcmV0"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		names := "one"
		if many, ok := client.(provider.BatchChanger); ok && many.BatchSize() > 64 {
			names = "many"
		}
		if cells[2] != names {
			t.Errorf("%s: %q names in a call on the page, %q in the program", p.name, cells[2], names)
		}
		if p.name != "webhook" && !strings.Contains(cells[5], strconv.Itoa(int(p.minTTL))) {
			t.Errorf("%s: least TTL %q on the page, %d in the program", p.name, cells[5], p.minTTL)
		}
		if _, ok := client.(provider.ZoneReader); !ok && p.name != "builtin" {
			t.Errorf("%s lists no zone", p.name)
		}
	}
}
