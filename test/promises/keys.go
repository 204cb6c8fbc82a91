package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestTwoKeys has a service whose key is not the configuration's, at one
// server. What it wrote is withdrawn with its key, also after it got a new one.
func (suite publishing) TestTwoKeys(t *testing.T) {
	const name = "_mesh.a.sub.example.com"
	for _, rotated := range []bool{false, true} {
		t.Run(fmt.Sprintf("rotated %t", rotated), func(t *testing.T) {
			s := servertest.BIND(t)
			h := suite.newHost(t, s)
			h.change(members{"access_key_id": servertest.ReadOnlyKey, "access_key_secret": servertest.ReadOnly})
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

// TestKeyRotates gives the configuration another key of the same server: the
// value stays where it is, and the old key goes.
func (suite publishing) TestKeyRotates(t *testing.T) {
	s := servertest.BIND(t)
	h := suite.newHost(t, s)
	h.run()
	serial := s.Serial(t)
	h.change(members{"access_key_id": servertest.Key512, "access_key_secret": servertest.Secret512})
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

// TestKeepsWorkingKey tries a new value with a key that may not write: the
// old value stays, and the key that wrote it withdraws it later.
func (suite publishing) TestKeepsWorkingKey(t *testing.T) {
	s := servertest.BIND(t)
	h := suite.newHost(t, s)
	wantReport(t, h.run(), dnsHost+" create")
	h.change(members{"access_key_id": servertest.ReadOnlyKey, "access_key_secret": servertest.ReadOnly, "txt_endpoints": []string{"tcp://192.0.2.1:1"}})
	wantReport(t, h.run(), dnsHost+" failed permission")
	wantTXT(t, s, dnsHost, h.text("", dnsEndpoint))
	h.change(members{"txt_record_name": "_elsewhere"})
	h.run()
	wantTXT(t, s, dnsHost)
	h.run()
	if got := h.leftovers(); len(got) > 0 {
		t.Errorf("leftovers %q", got)
	}
}

// TestKeepsKeys takes a key away in three ways while a value stands that was
// published with it: the value is withdrawn with it, and then the key is erased.
func (suite publishing) TestKeepsKeys(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, h *host, service string, u usage){
		"the service is deleted": func(t *testing.T, h *host, service string, u usage) {
			h.force(u)
			support.Must(t, h.deleteService(service))
		},
		"the service gets another": func(_ *testing.T, h *host, service string, _ usage) {
			h.vendor("next")
			h.reconfigure(service, dnsConfig("example.com", dnsAccount("next", "", "key", "secret")...))
		},
		"the service has none any more": func(_ *testing.T, h *host, service string, _ usage) {
			h.reconfigure(service, dnsConfig("example.com"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := suite.newHost(t, dnsBuiltinServer)
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

// TestTwoAccountsOfOneVendor has two services of one domain at accounts with a
// zone each, of one name: each publishes its own, and withdraws its own.
func (suite publishing) TestTwoAccountsOfOneVendor(t *testing.T) {
	h, v := suite.newVendorHost(t)
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

// tokens makes an appliance that publishes at a stand-in whose keys all have the id
// "token", and differ in their secrets only.
func (suite Suite) tokens(t *testing.T, zones map[string]string) (*host, *dnsVendor) {
	h, v := suite.newVendorHost(t)
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
	h.change(members{"access_key_id": "token", "access_key_secret": "right"})
	return h, v
}

// TestTokensOfOneID has two services whose keys have one id and different secrets:
// each publishes with its own.
func (suite publishing) TestTokensOfOneID(t *testing.T) {
	h, v := suite.tokens(t, map[string]string{"right": "example.com", "one": "one.example", "two": "two.example"})
	h.reserve(h.service("one.example", dnsAccount("vendor", "", "token", "one")...), "a", 1)
	h.reserve(h.service("two.example", dnsAccount("vendor", "", "token", "two")...), "b", 2)
	wantReport(t, h.run(), dnsHost+" create", "_mesh.a.one.example create", "_mesh.b.two.example create")
	v.want(t, "one.example", "_mesh.a.one.example", h.value("1", dnsEndpoint))
	v.want(t, "two.example", "_mesh.b.two.example", h.value("2", dnsEndpoint))
	if n := h.count(`SELECT count(DISTINCT key_hash) FROM accounts WHERE access_key_id = 'token'`); n != 3 {
		t.Errorf("%d accounts, want 3", n)
	}
}

// TestWrongSecret has a service with a wrong secret for the key of the configuration, in
// the same zone: only its own record fails, and every place that tells of it says whose
// key it is.
func (suite publishing) TestWrongSecret(t *testing.T) {
	h, v := suite.tokens(t, map[string]string{"right": "example.com"})
	service := h.service("example.com", dnsAccount("vendor", "", "token", "wrong")...)
	u := h.reserve(service, "office", 42)
	h.reserve(h.service("example.com"), "good", 43)
	r := h.run()
	wantReport(t, r, dnsHost+" create", "_mesh.good.example.com create", dnsOffice+" failed credentials")
	english, chinese := ` (key of service "`+service+`")`, `（服务 "`+service+`" 的密钥）`
	check := func(where string, f reconcile.Fault, english, chinese string) {
		t.Helper()
		if e, c := f.In(msg.English), f.In(msg.Chinese); !strings.HasSuffix(e, english) || !strings.HasSuffix(c, chinese) {
			t.Errorf("%s: %q and %q, want %q and %q", where, e, c, english, chinese)
		}
	}
	check("the report", r.FirstBad().Fault, english, chinese)
	stored, err := h.Ledger.LastReport(t.Context())
	support.Must(t, err)
	check("the stored report", stored.FirstBad().Fault, english, chinese)
	if now, err := h.usage(u.ID); err != nil || !strings.HasSuffix(now.Publish.Error, english) {
		t.Errorf("the usage: %+v, %v", now, err)
	}
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
	if all, err := h.Ledger.Leftovers(t.Context(), 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	} else {
		check("the leftover", all[0].Place.Fault, english, chinese)
	}
	support.Must(t, h.deleteService(service))
	v.mu.Lock()
	v.zones = map[string][]string{"token:right": {"example.com other"}} // else this key would withdraw it
	v.mu.Unlock()
	h.run()
	if all, err := h.Ledger.Leftovers(t.Context(), 0, 10); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	} else {
		check("the leftover of a service that has gone", all[0].Place.Fault,
			" (a key that no configuration and no service has any more)", "（已无配置或服务使用的密钥）")
	}
}

// TestSecretRotates gives a key another secret, at a provider that tells its zones apart
// and at one that does not: the value stays where it is all the time, and the old secret goes.
func (suite publishing) TestSecretRotates(t *testing.T) {
	for _, noIDs := range []bool{false, true} {
		t.Run(fmt.Sprint("no ids ", noIDs), func(t *testing.T) {
			h, v := suite.tokens(t, map[string]string{"right": "example.com", "new": "example.com"})
			v.noIDs = noIDs
			h.reserve(h.service("example.com"), "office", 42)
			h.run()
			before := slices.Clone(v.history)
			h.change(members{"access_key_secret": "new"})
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

// TestSecretOfWithdrawal gives a key another secret while a value that was published with
// the old one is to be withdrawn: the provider refuses the old one, so the new one does it, or finds that
// the zone is gone with the value. Where it reaches another zone of the name, the value stays as a leftover.
func (suite publishing) TestSecretOfWithdrawal(t *testing.T) {
	for zone, withdrawn := range map[string]bool{"example.com": true, "com": true, "example.com other": false} {
		t.Run(zone, func(t *testing.T) {
			h, v := suite.tokens(t, map[string]string{"right": "example.com"})
			u := h.reserve(h.service("example.com"), "office", 42)
			h.run()
			v.mu.Lock()
			v.zones = map[string][]string{"token:new": {zone}}
			v.mu.Unlock()
			h.change(members{"access_key_secret": "new", "txt_record_name": "_else"})
			h.release(u, withdrawn)
			h.run()
			if withdrawn {
				v.want(t, zone, dnsOffice)
				v.want(t, zone, dnsHost)
			} else {
				v.want(t, "example.com", dnsOffice, h.value("42", dnsEndpoint))
				if got := h.leftovers(); len(got) != 2 || !strings.HasSuffix(h.publishing(u), " credentials") {
					t.Errorf("leftovers %q, the usage %s", got, h.publishing(u))
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

// TestConfigurationForgotten deletes the configuration. Its value goes, and those of the
// services that have used its key, over restarts and refusals. A service with a key of its own
// keeps its value, for which nothing is written any more.
func (suite publishing) TestConfigurationForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		own := h.vendor("own")
		service := h.service("example.com", dnsAccount("own", "", "key", "secret")...)
		kept := h.reserve(service, "kept", 41)
		h.reserve(h.service("example.com"), "office", 42)
		h.run()
		v.fails(dnsFault(provider.Temporary, "change"))
		if gone, err := h.forget(); gone || err != nil {
			t.Errorf("gone %t, %v", gone, err)
		}
		if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrNotConfigured) {
			t.Errorf("%v", err)
		}
		h.publish(kept, "udp://192.0.2.9:1")
		h.reserve(service, "new", 43)
		h.restart()
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
		if _, err := h.forget(); err != nil {
			t.Error(err)
		}
		if _, err := h.forget(); err != refused(msg.UnknownConfiguration) {
			t.Errorf("%v", err)
		}
	})
}

// TestProbe has a probe that its writer does not end: a pass leaves it alone until its
// time, then it is withdrawn in every mode, and its key goes.
func (suite publishing) TestProbe(t *testing.T) {
	for _, mode := range []string{modeManual, modeUpsertOnly} {
		t.Run(mode, func(t *testing.T) {
			h, v := suite.newVendorHost(t)
			h.mode(mode)
			other := h.vendor("other")
			probe := reconcile.NewProbeRecord(h.Owner, servertest.Zone)
			place := reconcile.Place{Name: probe.Name, Zone: servertest.Zone, ZoneID: servertest.Zone, Doubt: reconcile.Doubt{Value: probe.Value},
				Account: reconcile.Account{Provider: "other", AccessKeyID: "key", Secret: "secret of the probe"}}
			support.Must(t, h.Ledger.AddProbe(t.Context(), &place))
			other.put(servertest.Zone, probe.Name, provider.Value{probe.Value})
			other.put(servertest.Zone, probe.Name, provider.Value{"another's"})
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
func (suite publishing) TestProbeEnds(t *testing.T) {
	h, _ := suite.newVendorHost(t)
	h.run()
	rows := h.rows()
	for _, provider := range []string{"vendor", "other"} {
		place := reconcile.Place{Name: "_mesh-test-1.example.com", Zone: servertest.Zone, Doubt: reconcile.Doubt{Value: mesh.Probe(h.Owner, "1")},
			Account: reconcile.Account{Provider: provider, AccessKeyID: "key", Secret: "secret"}}
		if err := h.Ledger.AddProbe(t.Context(), &place); err != nil || place.ID == 0 || place.Account.ID == 0 {
			t.Fatalf("%+v, %v", place, err)
		}
		for range 2 {
			if err := h.Ledger.EndProbe(t.Context(), place); err != nil {
				t.Error(err)
			}
		}
		if left := h.rows(); !slices.Equal(left, rows) {
			t.Errorf("%q, want %q", left, rows)
		}
	}
}
