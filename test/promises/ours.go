package promises

import (
	"cmp"
	"context"
	"testing"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
)

// TestSiblingComesBack has a value without our mark come back after it was seen to go, as a late write or an
// old view of the provider brings it: it is ours until a second look, also when the name is used again.
func (suite publishing) TestSiblingComesBack(t *testing.T) {
	for what, used := range map[string]bool{"withdrawn": false, "used again": true} {
		t.Run(what, func(t *testing.T) {
			h, v, u := suite.newSiblingHost(t)
			h.run()
			h.formatted(u, "mesh1")
			h.run()
			v.want(t, servertest.Zone, siblingTXT)
			v.put(servertest.Zone, siblingTXT, provider.Value{"203.0.113.1:1"})
			if used {
				h.publish(u, "tcp://203.0.113.9:9")
				h.formatted(u, "hostport")
			} else {
				h.later(dnsLookAgain)
			}
			if r := h.run(); !r.OK() {
				t.Errorf("%+v", r)
			}
			if used {
				v.want(t, servertest.Zone, siblingTXT, "203.0.113.9:9")
			} else {
				v.want(t, servertest.Zone, siblingTXT)
			}
		})
	}
}

// newTwoProviders makes an appliance with two services of one domain, each at a stand-in of its own, and a
// usage of a network at each.
func (suite Suite) newTwoProviders(t testing.TB, networks ...uint64) (h *host, one, two *dnsVendor, usages []usage) {
	h, one = suite.newVendorHost(t)
	two = h.vendor("next")
	for i, name := range []string{"vendor", "next"} {
		u := h.reserve(h.service(servertest.Zone, dnsAccount(name, "", "key", "secret")...), "office", networks[i])
		h.formatted(u, "mesh1", "hostport")
		h.publish(u, "tcp://203.0.113.1:1")
		usages = append(usages, u)
	}
	return h, one, two, usages
}

// TestEqualForeignValue has a value of others that equals a wanted one, at one of two providers of a name.
func (suite publishing) TestEqualForeignValue(t *testing.T) {
	h, one, two, usages := suite.newTwoProviders(t, 42, 42)
	two.put(servertest.Zone, siblingTXT, provider.Value{"203.0.113.1:1"})
	for _, endpoint := range []string{"tcp://203.0.113.1:1", "tcp://203.0.113.2:2"} {
		for _, u := range usages {
			h.publish(u, endpoint)
		}
		if r := h.run(); r.Counts[reconcile.ActionConflict] != 1 {
			t.Errorf("%+v", r)
		}
		one.want(t, servertest.Zone, siblingTXT, endpoint[len("tcp://"):])
		two.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1")
	}
	h.release(usages[0], true)
	h.release(usages[1], true)
	two.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1")
}

// TestTwoKeysOfSiblings has one name published with two keys of one zone: what one key has written is ours
// for the other.
func (suite publishing) TestTwoKeysOfSiblings(t *testing.T) {
	for _, ids := range []bool{true, false} {
		h, v, u := suite.newSiblingHost(t)
		v.noIDs = !ids
		v.zones["other"] = v.zones["key"]
		w := h.reserve(h.service(servertest.Zone, dnsAccount("vendor", "", "other", "secret")...), "office", 42)
		h.formatted(w, "mesh1", "hostport")
		for _, endpoint := range []string{"203.0.113.1:1", "203.0.113.2:2"} {
			h.publish(u, "tcp://"+endpoint)
			h.publish(w, "tcp://"+endpoint)
			if r := h.run(); !r.OK() {
				t.Errorf("ids %t: %+v", ids, r)
			}
			v.want(t, servertest.Zone, siblingTXT, endpoint)
		}
		h.release(u, true)
		h.release(w, true)
		h.later(dnsLookAgain)
		h.run()
		v.nothing(t)
	}
}

// TestRecordsMoveAlone moves a name to another provider, where one of its records cannot stand.
func (suite publishing) TestRecordsMoveAlone(t *testing.T) {
	h, old, _ := suite.newSiblingHost(t)
	h.run()
	next := h.vendor("next")
	next.put(servertest.Zone, siblingA, provider.Value{"198.51.100.9"})
	h.configure(dnsVendorConfiguration("next"))
	h.run()
	next.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1", "203.0.113.2:2")
	old.want(t, servertest.Zone, siblingTXT)
	old.want(t, servertest.Zone, siblingSRV)
	old.want(t, servertest.Zone, siblingA, "203.0.113.1", "203.0.113.2")
}

// TestYoungerWaitsForZone releases the elder of two usages, while the zone of the younger one, which wants
// the same value, is not found.
func (suite publishing) TestYoungerWaitsForZone(t *testing.T) {
	h, one, two, usages := suite.newTwoProviders(t, 1, 2)
	h.run()
	two.fails(dnsFault(provider.Network, "zone"))
	h.release(usages[0], true)
	one.want(t, servertest.Zone, siblingTXT)
}

// TestBuiltinIsLeft changes the provider of names in a built-in zone: they stand there until they stand
// elsewhere, whatever happens meanwhile.
func (suite publishing) TestBuiltinIsLeft(t *testing.T) {
	h := suite.serving(t)
	s := servertest.Server{Name: msg.Builtin, Addr: h.dnsAddress}
	h.reserve(h.service("example.com"), "office", 42)
	h.run()
	want := h.text("42", dnsEndpoint)
	next := h.vendor("next")
	for what, c := range map[string]members{"a typo": dnsVendorConfiguration("bultin"), "a provider that does not answer": dnsVendorConfiguration("next")} {
		next.fails(dnsFault(provider.Network, "zone"))
		h.configure(c)
		wantTXT(t, s, dnsOffice, want)
		h.run()
		t.Log(what)
		wantTXT(t, s, dnsOffice, want)
	}
	next.works()
	c := dnsVendorConfiguration("next")
	c["sync_mode"] = modeUpsertOnly
	h.configure(c)
	h.later(dnsLookAgain)
	h.run()
	next.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	wantTXT(t, s, dnsOffice, want)
	h.mode(modeManual)
	h.run()
	wantTXT(t, s, dnsOffice)
	h.later(dnsLookAgain)
	h.run()
	if zones, err := h.Zones.BuiltinZones(t.Context(), []string{"example.com"}); err != nil || len(zones) > 0 {
		t.Errorf("zones that hold nothing are served: %v, %v", zones, err)
	}
}

// TestOwnRecordBeside gives the configuration's own record the owner name of a usage's record in another
// format: the usage has it, whoever came first.
func (suite publishing) TestOwnRecordBeside(t *testing.T) {
	h, v := suite.newVendorHost(t)
	h.change(members{"txt_record_name": "office"})
	h.run()
	v.want(t, servertest.Zone, siblingTXT, h.value("", dnsEndpoint))
	u := h.reserve(h.service(servertest.Zone), "office", 42)
	h.publish(u, "tcp://203.0.113.1:1")
	h.formatted(u, "hostport")
	if r := h.run(); r.Counts[reconcile.ActionConflict] != 1 || r.FirstBad().Network != "" {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1")
	h.release(u, true)
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingTXT, h.value("", dnsEndpoint))
}

// TestRaceOfSiblings loses a race after the change was made: what the first try has written is ours.
func (suite publishing) TestRaceOfSiblings(t *testing.T) {
	h, v, _ := suite.newSiblingHost(t)
	lost := false
	v.fails(func(_ context.Context, c dnsCall) error {
		if c.what != "change" || c.name != siblingTXT || lost {
			return nil
		}
		lost = true
		v.mu.Lock()
		defer v.mu.Unlock()
		return cmp.Or(v.make(dnsVendorClient{v, c.key}.id(c.zone), c.change), error(&provider.Error{Kind: provider.Changed, Detail: "lost"}))
	})
	if r := h.run(); !r.OK() || !lost {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1", "203.0.113.2:2")
}
