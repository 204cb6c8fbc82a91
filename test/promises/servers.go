package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestWanted stores services and usages, and asks what is wanted for them.
func (suite publishing) TestWanted(t *testing.T) {
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
	} {
		t.Run(test.name, func(t *testing.T) {
			h := suite.newHost(t, dnsBuiltinServer)
			u := h.reserve(h.serviceOf(test.config), test.prefix, 1)
			state, err := h.Ledger.State(t.Context(), []string{u.Name})
			support.Must(t, err)
			var got []string
			target := reconcile.Desired(state, *h.addresses.Load())[0]
			for _, r := range target.Records {
				account := strings.TrimRight(strings.Join([]string{r.Account.Provider, r.Account.Endpoint, r.Account.AccessKeyID}, "/"), "/")
				line := fmt.Sprintf("%s %s %q %s", r.Name, account, r.Want, r.Fault.Code)
				got = append(got, strings.TrimSpace(strings.ReplaceAll(line, h.Owner, "OWNER")))
			}
			for _, r := range target.Refusals {
				got = append(got, fmt.Sprintf(`%s  "" %s`, r.Name, r.Fault.Code))
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestLifecycle reserves, publishes, changes and releases, at every server.
func (suite publishing) TestLifecycle(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
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
		if rcode := servertest.Ask(t, s.Addr, "office.example.com", dns.TypeTXT).Rcode; rcode != dns.RcodeNXDomain {
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
var dnsForeign = []provider.Value{
	{"v=spf1 include:example.net -all"},
	{"a \"quote\" and a \\"},
	{"caf\xc3\xa9 \xff\x00"},
	{strings.Repeat("k", 255), strings.Repeat("k", 100)},
	{"two", "strings"},
	{"", "led by an empty one"},
	{"V=mesh1 is another word"},
	{"v=mesh12 o=0"},
}

func (suite publishing) TestForeignValues(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		var foreign []string
		for _, v := range dnsForeign {
			h.foreign(s, dnsOffice, v)
			foreign = append(foreign, dnsQuoted(v))
		}
		wantTXT(t, s, dnsOffice, foreign...)
		u := h.reserve(h.service("example.com"), "office", 42)
		wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create shared_name")
		wantTXT(t, s, dnsOffice, append(foreign, h.text("42", dnsEndpoint))...)
		if ttl := servertest.Ask(t, s.Addr, dnsOffice, dns.TypeTXT).Answers[0].TTL; ttl != dnsForeignTTL {
			t.Errorf("TTL %d, want that of the values there, %d", ttl, dnsForeignTTL)
		}
		h.publish(u, "udp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" update shared_name", "1 unchanged")
		wantTXT(t, s, dnsOffice, append(foreign, h.text("42", "udp://192.0.2.9:1"))...)
		h.release(u, true)
		wantTXT(t, s, dnsOffice, foreign...)
	})
}

// TestApex publishes at the domain itself, beside what stands there.
func (suite publishing) TestApex(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		spf := provider.Value{"v=spf1 -all"}
		h.foreign(s, "example.com", spf)
		h.change(members{"txt_record_name": "@"})
		wantReport(t, h.run(), "example.com create shared_name")
		wantTXT(t, s, "example.com", h.text("", dnsEndpoint), dnsQuoted(spf))
		h.change(members{"txt_record_name": "_mesh-host"})
		wantReport(t, h.run(), dnsHost+" create", "example.com delete")
		wantTXT(t, s, "example.com", dnsQuoted(spf))
	})
}

// TestUnchanged repeats a synchronisation, later: nothing is written at the
// server, nor about the names in the database.
func (suite publishing) TestUnchanged(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
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

// TestPreview plans a create, an update and a delete, and does nothing.
func (suite publishing) TestPreview(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		service := h.service("example.com")
		u, gone := h.reserve(service, "office", 42), h.reserve(service, "gone", 43)
		h.run()
		h.publish(u, "udp://192.0.2.9:1")
		h.reserve(service, "new", 44)
		h.force(gone)
		last, _, _ := h.engine.Last(t.Context())
		h.until("what answers show is reviewed", func() bool {
			return h.count(`SELECT (SELECT count(*) FROM pass WHERE requested <> '') + (SELECT count(*) FROM names WHERE due IS NOT NULL AND lane = '')`) == 0
		})
		serial, version := s.Serial(t), h.version()
		before := version()
		r, err := h.engine.Preview(t.Context())
		support.Must(t, err)
		wantReport(t, r, "_mesh.gone.example.com delete", "_mesh.new.example.com create", dnsOffice+" update", "1 unchanged")
		if s.Serial(t) != serial || version() != before {
			t.Errorf("serial %s, was %s; data version %d, was %d", s.Serial(t), serial, version(), before)
		}
		if now, _, _ := h.engine.Last(t.Context()); !now.FinishedAt.Equal(last.FinishedAt) {
			t.Error("the last report is the preview's")
		}
	})
}

// TestConflicts has a value of another owner, and aliases, at our names.
func (suite publishing) TestConflicts(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := suite.newHost(t, s)
		service := h.service("example.com")
		h.reserve(service, "office", 42)
		h.reserve(service, "alias", 43)
		h.foreign(s, dnsOffice, provider.Value{dnsStranger})
		s.Update(t, "add _mesh.alias.example.com 60 CNAME keep.example.com")
		r := h.run()
		wantReport(t, r, dnsHost+" create", "_mesh.alias.example.com conflict", dnsOffice+" conflict")
		if first := r.FirstBad(); r.Bad != 2 || r.Names != 3 || first.Name != "_mesh.alias.example.com" || !strings.Contains(string(first.Fault.Detail), "keep.example.com") {
			t.Errorf("%d bad of %d, the first %+v", r.Bad, r.Names, first)
		}
		if detail := string(r.Records[2].Fault.Detail); !strings.Contains(detail, dnsStranger) {
			t.Errorf("%q does not show the other value", detail)
		}
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.Value{dnsStranger}))
		h.wantPlaces(dnsOffice, "conflict conflict")
		// Once the stranger has gone, the name is ours.
		s.Update(t, "delete "+dnsOffice+" TXT", "delete _mesh.alias.example.com CNAME")
		wantReport(t, h.run(), "_mesh.alias.example.com create", dnsOffice+" create", "1 unchanged")
		wantTXT(t, s, dnsOffice, h.text("42", dnsEndpoint))
	})
}

// TestStrangerComes has another owner's value come beside ours: ours changes
// and goes with the usage, and the other stays.
func (suite publishing) TestStrangerComes(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.foreign(s, dnsOffice, provider.Value{dnsStranger})
		h.publish(u, "udp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" conflict", "1 unchanged")
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.Value{dnsStranger}), h.text("42", "udp://192.0.2.9:1"))
		h.release(u, true)
		wantTXT(t, s, dnsOffice, dnsQuoted(provider.Value{dnsStranger}))
	})
}

// TestTwoAppliances has two databases share a zone, and then a name.
func (suite publishing) TestTwoAppliances(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		a, b := suite.newHost(t, s), suite.newHost(t, s)
		c := dnsConfiguration(s)
		c["txt_record_name"] = "_mesh-other"
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

// TestManyWriters has two appliances and another program write to one
// name at once: no foreign value is lost, and no two owners stand there.
func (suite publishing) TestManyWriters(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	const rounds = 12
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		var writers sync.WaitGroup
		var hosts []*host
		for n := range 2 {
			h := suite.newHost(t, s)
			hosts = append(hosts, h)
			h.change(members{"txt_record_name": fmt.Sprint("_mesh-", n)})
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
			v := provider.Value{fmt.Sprint("foreign ", round)}
			h := hosts[0]
			h.foreign(s, dnsOffice, v)
			want = append(want, dnsQuoted(v))
			if found := s.TXT(t, dnsOffice); strings.Contains(fmt.Sprint(found), hosts[0].Owner) && strings.Contains(fmt.Sprint(found), hosts[1].Owner) {
				t.Errorf("two owners at one name: %q", found)
			}
		}
		writers.Wait()
		wantTXT(t, s, dnsOffice, want...)
	})
}

// TestBuiltinNotListening has a configuration for a server that is off.
func (suite publishing) TestBuiltinNotListening(t *testing.T) {
	h := suite.newHost(t, servertest.Server{Name: msg.Builtin})
	h.configure(dnsConfiguration(servertest.Server{Name: msg.Builtin}))
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}

// TestFailures has providers that do not do what they should. Each makes
// a clear record, and the secret is nowhere.
func (suite publishing) TestFailures(t *testing.T) {
	s := servertest.BIND(t)
	echo := provider.Value{"v=mesh1 o=ffffffffffff " + servertest.Secret}
	s.Update(t, `add _mesh-echo.example.com 60 TXT `+dnsQuoted(echo))
	for name, test := range map[string]struct {
		change members
		want   string
	}{
		"refused":            {members{"endpoint": support.FreeAddress(t)}, dnsHost + " failed network"},
		"not signed":         {members{"endpoint": servertest.Relay(t, s.Addr, servertest.Unsigned)}, dnsHost + " failed bad_answer"},
		"server fails":       {members{"endpoint": servertest.Relay(t, s.Addr, servertest.ServFail)}, dnsHost + " failed temporary"},
		"wrong secret":       {members{"access_key_secret": servertest.Secret512}, dnsHost + " failed credentials"},
		"unknown key":        {members{"access_key_id": "stranger"}, dnsHost + " failed credentials"},
		"key without rights": {members{"access_key_id": servertest.ReadOnlyKey, "access_key_secret": servertest.ReadOnly}, dnsHost + " failed permission"},
		"not base64":         {members{"access_key_secret": "!" + servertest.Secret}, dnsHost + " failed invalid"},
		"endpoint":           {members{"endpoint": "no host"}, dnsHost + " failed invalid"},
		"unknown provider":   {members{"provider": "nobody"}, dnsHost + " failed unknown_provider"},
		"no such zone":       {members{"domain": "example.org"}, "_mesh-host.example.org failed zone_not_found"},
		"bad name":           {members{"domain": "exam ple.com"}, "_mesh-host.exam ple.com failed invalid_name"},
		"echo":               {members{"txt_record_name": "_mesh-echo"}, "_mesh-echo.example.com conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			h := suite.newHost(t, s)
			h.change(test.change)
			wantFailure(t, h, h.run(), test.want)
		})
	}
	wantTXT(t, s, "_mesh-echo.example.com", dnsQuoted(echo))
}

func wantFailure(t *testing.T, h *host, r reconcile.Report, want string) {
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

// TestSilent has servers that do not answer, or nothing that can be read. Who
// asks has an end of waiting of their own.
func (suite publishing) TestSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for name, handle := range map[string]servertest.Handler{"silent": servertest.Silent, "garbage": servertest.Garbage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := suite.newHost(t, servertest.Server{Name: name, Addr: servertest.Relay(t, "", handle)})
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

// TestDownOnce has a server with many names that fails: it is asked for as
// many at a time as usual, and not again for each name. The clock stands still, because
// the zone is tried again after a pause, and a question that is sent twice counts once.
func (suite publishing) TestDownOnce(t *testing.T) {
	const atATime = 8
	var asked sync.Map
	s := servertest.Server{Name: "down", Addr: servertest.Relay(t, "", func(query []byte, forward func() []byte) []byte {
		asked.Store(string(query), true)
		return servertest.ServFail(query, forward)
	})}
	h := suite.newHost(t, s)
	began := time.Now()
	h.stands.Store(&began)
	h.renew()
	service := h.service("example.com")
	want := []string{dnsHost + " failed temporary"}
	for n := range 60 {
		h.reserve(service, fmt.Sprintf("p%02d", n), uint64(n))
		want = append(want, fmt.Sprintf("_mesh.p%02d.example.com failed temporary", n))
	}
	wantReport(t, h.run(), want...)
	n := 0
	asked.Range(func(any, any) bool { n++; return true })
	if n > 2*atATime {
		t.Errorf("asked %d times", n)
	}
}

// TestLostAnswer has a server that makes a change and never answers: the
// place says that a value may stand there, and the next synchronisation knows.
func (suite publishing) TestLostAnswer(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{after: true, lose: true}
	h := suite.newHost(t, gate.server(t, s))
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

// TestRestart ends a process in the middle of a provider call, before or
// after the server has made the change. A new process on a copy of the
// database, taken at that moment, brings the name to its wanted state.
func (suite publishing) TestRestart(t *testing.T) {
	for _, release := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("release %t, made %t", release, after), func(t *testing.T) {
				s := servertest.BIND(t)
				gate := &dnsGate{after: after, lose: true}
				h := suite.newHost(t, gate.server(t, s))
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
				support.Receive(t, gate.arrived)
				restarted := h.copied(t)
				close(gate.open)
				support.Receive(t, ended)
				h.stop()
				testRestarted(t, restarted, s, u, release)
			})
		}
	}
}

func testRestarted(t *testing.T, h *host, s servertest.Server, u usage, release bool) {
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
	if u, err := h.usage(u.ID); err != nil || u.Status != "releasing" {
		t.Errorf("status %s, %v", u.Status, err)
	}
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	h.wantPlaces(dnsOffice, "withdrawn")
	h.wantTaken("office", 0)
	wantTXT(t, s, dnsOffice)
}

// TestStopDuringWrite ends the program while a write is at the server: the
// write is finished and its outcome stored, the pass is not reported as one that
// failed, and the next run takes it up.
func (suite publishing) TestStopDuringWrite(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{}
	h := suite.newHost(t, gate.server(t, s))
	gate.shut(1)
	h.begin(t.Context())
	support.Receive(t, gate.arrived)
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop() }()
	close(gate.open)
	support.Receive(t, stopped)
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	h.wantPlaces(dnsHost, "published "+h.value("", dnsEndpoint))
	if last, _, err := h.engine.Last(t.Context()); last != nil || err != nil {
		t.Errorf("the last report is %+v, %v", last, err)
	}
	h.restart()
	h.until("the pass is taken up", func() bool { last, _, _ := h.engine.Last(t.Context()); return last != nil && last.OK() })
}

// TestStopBeforeWrite ends the program while a name is read: nothing is
// written, what is known of the name stays known, and the last report too.
func (suite publishing) TestStopBeforeWrite(t *testing.T) {
	s := servertest.BIND(t)
	var held atomic.Pointer[chan struct{}]
	arrived := make(chan struct{}, 100)
	h := suite.newHost(t, servertest.Server{Name: s.Name, Addr: servertest.Relay(t, s.Addr, func(_ []byte, forward func() []byte) []byte {
		if open := held.Load(); open != nil {
			arrived <- struct{}{}
			<-*open
		}
		return forward()
	})})
	h.run()
	h.change(members{"txt_endpoints": []string{"tcp://192.0.2.1:1"}})
	before, _, _ := h.engine.Last(t.Context())
	serial := s.Serial(t)
	open := make(chan struct{})
	held.Store(&open)
	h.begin(t.Context())
	support.Receive(t, arrived)
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop() }()
	support.Receive(t, stopped) // the answer is not waited for
	close(open)
	if s.Serial(t) != serial {
		t.Error("the zone was written")
	}
	h.wantPlaces(dnsHost, "pending "+h.value("", dnsEndpoint))
	if last, _, err := h.engine.Last(t.Context()); err != nil || !last.FinishedAt.Equal(before.FinishedAt) || !last.OK() {
		t.Errorf("the last report is %+v, %v", last, err)
	}
}

// TestRecordMoves renames the configuration's record, and then its domain:
// what stands at the old name goes.
func (suite publishing) TestRecordMoves(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
		h.run()
		h.change(members{"txt_record_name": "_renamed"})
		wantReport(t, h.run(), dnsHost+" delete", "_renamed.example.com create")
		wantTXT(t, s, dnsHost)
		h.change(members{"domain": "sub.example.com"})
		wantReport(t, h.run(), "_renamed.example.com delete", "_renamed.sub.example.com create")
		wantTXT(t, s, "_renamed.example.com")
		wantTXT(t, s, "_renamed.sub.example.com", h.text("", dnsEndpoint))
		wantReport(t, h.run(), "1 unchanged")
	})
}

// TestServiceGone deletes a service of the built-in server after its usage
// was freed by force: the zone is no longer served, and its records go.
func (suite publishing) TestServiceGone(t *testing.T) {
	const name = "_mesh.office.own.example.net"
	h := suite.newHost(t, dnsBuiltinServer)
	service := h.service("own.example.net", "provider", "builtin")
	u := h.reserve(service, "office", 42)
	h.run()
	h.force(u)
	support.Must(t, h.deleteService(service))
	wantReport(t, h.run(), name+" delete", "1 unchanged")
	h.wantStanding(name)
	wantReport(t, h.run(), "1 unchanged")
}

// TestProviderMoves changes the provider of a record: it comes at the new
// one, and goes at the old one with the key that is kept until then.
func (suite publishing) TestProviderMoves(t *testing.T) {
	old, next := servertest.BIND(t), servertest.Knot(t)
	h := suite.newHost(t, old)
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

// TestZoneRemoved releases what stood in a zone that a DNS server has given up: it
// counts as withdrawn.
func (suite publishing) TestZoneRemoved(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		h := suite.newHost(t, s)
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		s.RemoveZone(t)
		h.release(u, true)
		if wantReport(t, h.run(), dnsHost+" failed zone_not_found"); len(h.leftovers()) > 0 {
			t.Errorf("leftovers %q", h.leftovers())
		}
	})
}

// TestNestedBuiltinZones has a zone within a zone of the built-in server: what
// stands in the inner one is no orphan of the outer one, and a sweep leaves it.
func (suite publishing) TestNestedBuiltinZones(t *testing.T) {
	const name = "_mesh.office.sub.example.com"
	h := suite.newHost(t, dnsBuiltinServer)
	h.reserve(h.service("sub.example.com", "provider", msg.Builtin), "office", 42)
	h.run()
	wantReport(t, h.run(), "2 unchanged")
	wantReport(t, h.sweep(), "2 unchanged")
	h.wantStanding(name, h.text("42", dnsEndpoint))
	h.wantPlaces(name, "published "+h.value("42", dnsEndpoint))
}

// TestBuiltinSwitchedOff releases what stands in the built-in zones of a
// program that was started without its server.
func (suite publishing) TestBuiltinSwitchedOff(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.serve("")
	h.restart()
	h.release(u, true)
	h.wantStanding(dnsOffice)
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}
