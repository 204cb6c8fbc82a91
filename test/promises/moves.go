package promises

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestMovesWithoutGap moves a value to another provider that takes nothing
// yet: the old value stays until the new one is in place.
func (suite publishing) TestMovesWithoutGap(t *testing.T) {
	h, old := suite.newVendorHost(t)
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

// TestMovesToChildZone has a child zone come within the zone that has our
// value, which moves there; or stays while the child zone takes nothing.
func (suite publishing) TestMovesToChildZone(t *testing.T) {
	const name, child = "_mesh.office.sub.example.com", "sub.example.com"
	for what, refused := range map[string]bool{"at once": false, "refused at first": true} {
		t.Run(what, func(t *testing.T) {
			h, v := suite.newVendorHost(t)
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

// TestConfigurationReplacedDuringPass replaces the configuration while a
// write is at its provider: what that write has made goes with the old key.
func (suite publishing) TestConfigurationReplacedDuringPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, old := suite.newVendorHost(t)
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

// TestTwoProvidersOfOneDomain has two services of one domain at two providers:
// neither withdraws what the other has published.
func (suite publishing) TestTwoProvidersOfOneDomain(t *testing.T) {
	h, v := suite.newVendorHost(t)
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

// TestElder reserves a name for two networks while the clock goes back: the
// one that was reserved first has it.
func (suite publishing) TestElder(t *testing.T) {
	h, v := suite.newVendorHost(t)
	h.ahead.Store(int64(time.Hour))
	ids := 100
	h.IDs(func() (string, error) { ids--; return fmt.Sprintf("id-%03d", ids), nil })
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

// TestConfigurationTakesNoName gives the configuration's record the name of a
// usage: there it is the conflict, whoever came first.
func (suite publishing) TestConfigurationTakesNoName(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("published first %t", first), func(t *testing.T) {
			h, v := suite.newVendorHost(t)
			name := func() { h.change(members{"txt_record_name": "_mesh.office"}) }
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

// TestOneZoneTwoAddresses has one zone reached in two ways: by another spelling of
// the address, or by another provider of the same vendor. The value stands at every
// moment, and no sweep takes what is wanted for an orphan.
func (suite publishing) TestOneZoneTwoAddresses(t *testing.T) {
	for name, noIDs := range map[string]bool{"with ids": false, "without ids": true} {
		for _, other := range []string{"vendor", "sibling"} {
			t.Run(other+" "+name, func(t *testing.T) {
				h, v := suite.newVendorHost(t)
				v.noIDs, h.vendors["sibling"] = noIDs, v
				h.change(members{"endpoint": "http://127.0.0.1:1"})
				service := h.service("example.com")
				u := h.reserve(service, "office", 42)
				h.run()
				h.change(members{"provider": other, "endpoint": "http://localhost:1"})
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

// TestTwoZonesOfOneName moves a value between two zones of one name whose
// provider gives no ids: a probe tells, and the old value goes.
func (suite publishing) TestTwoZonesOfOneName(t *testing.T) {
	h, old := suite.newVendorHost(t)
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

// TestDoubtMovesAway has a first write of unknown outcome at one provider, a move
// to another, and that fail for longer than two looks: the first value is not
// forgotten, and goes when the second stands.
func (suite publishing) TestDoubtMovesAway(t *testing.T) {
	for name, stands := range map[string]bool{"it was made": true, "it was not made": false} {
		t.Run(name, func(t *testing.T) {
			h, old := suite.newVendorHost(t)
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

// TestPreviewOfMoves plans moves: the value comes at the new place, and goes at the
// old one.
func (suite publishing) TestPreviewOfMoves(t *testing.T) {
	preview := func(h *host, want ...string) {
		t.Helper()
		r, err := h.engine.Preview(t.Context())
		support.Must(t, err)
		wantReport(t, r, want...)
	}
	both := []string{dnsHost + " create", dnsHost + " delete", dnsOffice + " create", dnsOffice + " delete"}
	t.Run("another provider", func(t *testing.T) {
		h, _ := suite.newVendorHost(t)
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
		h, _ := suite.newVendorHost(t)
		h.vendor("next")
		h.run()
		c := dnsVendorConfiguration("next")
		c["sync_mode"] = modeUpsertOnly
		h.configure(c)
		want := []string{dnsHost + " create", dnsHost + " leftover deletes_forbidden"}
		preview(h, want...)
		wantReport(t, h.run(), want...)
	})
	t.Run("another key of the zone", func(t *testing.T) {
		s := servertest.BIND(t)
		h := suite.newHost(t, s)
		h.run()
		h.change(members{"access_key_id": "hmac-sha256:" + servertest.Key})
		preview(h, "1 unchanged")
	})
	t.Run("a zone within", func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.reserve(h.service("sub.example.com"), "office", 42)
		h.run()
		v.zones["key"] = append(v.zones["key"], "sub.example.com")
		preview(h, "_mesh.office.sub.example.com create", "_mesh.office.sub.example.com delete", "1 unchanged")
		wantReport(t, h.run(), "_mesh.office.sub.example.com create", "_mesh.office.sub.example.com delete", "1 unchanged")
	})
}

// TestPreviewOfSweep lists what a sweep would withdraw, and withdraws nothing.
func (suite publishing) TestPreviewOfSweep(t *testing.T) {
	h, v := suite.newVendorHost(t)
	v.put(servertest.Zone, dnsOffice, provider.Value{h.value("42", dnsEndpoint)})
	r, err := h.engine.PreviewSweep(t.Context())
	if wantReport(t, r, dnsHost+" create", dnsOffice+" orphan"); err != nil || !r.OK() || r.Counts[reconcile.ActionOrphan] != 1 || r.Names != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" orphan")
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
}
