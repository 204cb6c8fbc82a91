package promises

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// delay makes the next change fail by time and arrive 1.5 s later.
func (v *dnsVendor) delay() {
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
}

// TestLateWrite has a write fail by time and arrive 1.5 s later, when the
// usage was released already: it is seen, and withdrawn.
func (suite publishing) TestLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.run()
		service := h.service("example.com")
		u := h.reserve(service, "office", 42)
		v.delay()
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

// TestLateUpdate has an old value arrive after a newer one: it does not stay.
func (suite publishing) TestLateUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.run()
		u := h.reserve(h.service("example.com"), "office", 42)
		v.delay()
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

// TestStaleList releases while the provider shows what was before the value
// came: the second look sees it, in every mode, whoever has the prefix by then.
func (suite publishing) TestStaleList(t *testing.T) {
	for _, mode := range []string{modeManual, modeAuto} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reserved again %t", mode, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { suite.staleList(t, mode, again) })
			})
		}
	}
}

func (suite Suite) staleList(t *testing.T, mode string, again bool) {
	h, v := suite.newVendorHost(t)
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

// TestSecondLook lets a withdrawn value come back: the look after a minute
// withdraws it again, and only a place where it stays away is forgotten.
func (suite publishing) TestSecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.release(u, true)
		v.put(servertest.Zone, dnsOffice, provider.Value{h.value("42", dnsEndpoint)})
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

// TestLateOverNewer has a late write take the place of a newer value, in mode
// manual: the second look says so, and writes nothing.
func (suite publishing) TestLateOverNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.run()
		u := h.reserve(h.service("example.com"), "office", 42)
		v.fails(dnsFault(provider.Network, "change"))
		h.run()
		v.works()
		h.publish(u, "tcp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
		v.mu.Lock()
		v.values[[2]string{servertest.Zone, dnsOffice}] = []provider.Value{{h.value("42", dnsEndpoint)}}
		v.mu.Unlock()
		h.publish(u, "tcp://192.0.2.9:1") // a change of nothing does not drop the look
		dnsPass(2 * reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		if got, want := h.publishing(u), "pending "+h.value("42", dnsEndpoint)+" "+pausedText; got != want {
			t.Errorf("publish is %q, want %q", got, want)
		}
		wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
	})
}

// TestManualLookTakesNothingAway has looks in mode manual for writes that may arrive late: they take nothing
// away whose successor is not there.
func (suite publishing) TestManualLookTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		service := h.service("example.com")
		stands := map[string]string{}
		for i, prefix := range []string{"failed", "pending", "conflict", "held"} {
			h.reserve(service, prefix, uint64(i))
			stands[prefix] = h.value(fmt.Sprint(i), dnsEndpoint)
		}
		h.run()
		stands["held"] = h.value("4711", dnsEndpoint) // of a network that had the name before
		v.mu.Lock()
		v.values[[2]string{servertest.Zone, "_mesh.held.example.com"}] = []provider.Value{{stands["held"]}}
		v.mu.Unlock()
		h.exec(`
			UPDATE places SET standing = '', doubt = '*', look_at = 1;
			UPDATE places SET state = iif(name LIKE '%.held.%', 'failed', (SELECT record_prefix FROM usages WHERE usages.name = places.name)) WHERE name LIKE '_mesh.%';
			UPDATE names SET look = 1`)
		reads := v.called("read")
		h.change(members{"txt_endpoints": []string{"tcp://192.0.2.9:1"}})
		dnsPass(3 * reconcile.SecondLook)
		if looks := v.called("read") - reads; looks < len(stands) {
			t.Errorf("%d looks", looks)
		}
		for prefix, value := range stands {
			v.want(t, servertest.Zone, "_mesh."+prefix+".example.com", value)
		}
	})
}

// TestStateIsTrue changes what is wanted in mode manual: what answers show of it is
// true before anything is synchronised, in answers and figures.
func (suite publishing) TestStateIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := suite.newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		v := h.reserve(h.service("example.com"), "beside", 43)
		h.run()
		check := func(what string, u usage, want string, pending uint64) {
			t.Helper()
			dnsPass(5 * time.Second)
			if got := h.publishing(u); got != want {
				t.Errorf("%s: publish is %q, want %q", what, got, want)
			}
			if got := h.totals()["pending"]; got != pending {
				t.Errorf("%s: %d records are pending, want %d", what, got, pending)
			}
		}
		check("synchronised", u, "published "+h.value("42", dnsEndpoint), 0)
		h.publish(u, "tcp://192.0.2.9:1")
		check("other endpoints", u, "pending "+h.value("42", dnsEndpoint)+" "+pausedText, 1)
		h.publish(u, dnsEndpoint)
		check("as before", u, "published "+h.value("42", dnsEndpoint), 0)
		h.change(members{"txt_endpoints": []string{"tcp://192.0.2.9:2"}})
		check("another configuration", v, "pending "+h.value("43", dnsEndpoint)+" "+pausedText, 2)
		h.run()
		check("synchronised again", v, "published "+h.value("43", "tcp://192.0.2.9:2"), 0)
	})
}

// TestIntentIsCompared releases a usage between the look at its name and the
// write: nothing is written.
func (suite publishing) TestIntentIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
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

// TestRepairs loses a value to another program: it is put back, and known to
// stand there.
func (suite publishing) TestRepairs(t *testing.T) {
	h, v := suite.newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.make(servertest.Zone, provider.Change{Type: provider.TXT, Name: dnsOffice, Remove: []provider.Value{{h.value("42", dnsEndpoint)}}})
	wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
	if got, want := h.publishing(u), "published "+h.value("42", dnsEndpoint); got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
}

// TestCopies has our value stand in several records: one stays.
func (suite publishing) TestCopies(t *testing.T) {
	h, v := suite.newVendorHost(t)
	h.run()
	v.put(servertest.Zone, dnsHost, provider.Value{h.value("", dnsEndpoint)})
	wantReport(t, h.run(), dnsHost+" update")
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	wantReport(t, h.run(), "1 unchanged")
}

// TestRestoredBackup goes back to an older database: what was published since
// is reported as orphans, which make nothing fail, and a sweep withdraws them.
func (suite publishing) TestRestoredBackup(t *testing.T) {
	h, v := suite.newVendorHost(t)
	service := h.service("example.com")
	u := h.reserve(service, "office", 42) // unpublished as yet
	h.start()
	backup := h.backup(t)
	h.reserve(service, "newer", 43)
	h.run()
	restored := h.opened(t, backup)
	restored.release(u, true)
	v.put(servertest.Zone, "_mesh.other.example.com", provider.Value{dnsStranger})
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

// TestAdopts takes up what a lost database has published: its values at names
// that are wanted here are replaced, and no others.
func (suite publishing) TestAdopts(t *testing.T) {
	h, v := suite.newVendorHost(t)
	service := h.service("example.com")
	lost := func(network string) string { return mesh.Value(network, "aaaaaaaaaaaa", []string{dnsEndpoint}) }
	v.put(servertest.Zone, dnsOffice, provider.Value{lost("42")})
	v.put(servertest.Zone, "_mesh.later.example.com", provider.Value{lost("43")})
	v.put(servertest.Zone, "_mesh.not.example.com", provider.Value{lost("44")})
	h.reserve(service, "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict")
	if held, err := h.engine.Held(t.Context(), "aaaaaaaaaaaa"); err != nil || !slices.Equal(held, []string{dnsOffice}) {
		t.Errorf("held %q, %v", held, err)
	}
	if err := h.Ledger.Adopt(t.Context(), h.Owner); !errors.Is(err, ledger.ErrOwnOwner) {
		t.Errorf("one's own owner: %v", err)
	}
	support.Must(t, h.Ledger.Adopt(t.Context(), "aaaaaaaaaaaa"))
	const elsewhere = " skipped of_adopted_owner" // told, because after a reset that forgot it nothing else would find it
	wantReport(t, h.run(), "_mesh.later.example.com"+elsewhere, "_mesh.not.example.com"+elsewhere, dnsOffice+" update", "1 unchanged")
	u := h.reserve(service, "later", 43)
	wantReport(t, h.run(), "_mesh.later.example.com update", "_mesh.not.example.com"+elsewhere, "2 unchanged")
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.later.example.com", h.value("43", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
	h.release(u, true)
	v.put(servertest.Zone, "_mesh.orphan.example.com", provider.Value{h.value("45", dnsEndpoint)})
	v.put(servertest.Zone, "_mesh.orphan.example.com", provider.Value{lost("45")})
	wantReport(t, h.sweep(), "_mesh.not.example.com"+elsewhere, "_mesh.orphan.example.com orphan", "_mesh.orphan.example.com"+elsewhere, "_mesh.orphan.example.com delete", "2 unchanged")
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
	v.want(t, servertest.Zone, "_mesh.orphan.example.com", lost("45"))
}

// TestCopiedDatabase runs a copy of the database on a second host: each sees
// its values changed by somebody with its mark, and says so.
func (suite publishing) TestCopiedDatabase(t *testing.T) {
	h, _ := suite.newVendorHost(t)
	h.run()
	copied := h.copied(t)
	there := mesh.Addresses{IPv4: netip.MustParseAddr("198.51.100.99")}
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

// TestZoneMadeAnew has the provider's zone deleted and made again, with
// another id: our values come back, and are no orphans.
func (suite publishing) TestZoneMadeAnew(t *testing.T) {
	h, v := suite.newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.zones["key"] = []string{"example.com anew"}
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	wantReport(t, h.sweep(), "2 unchanged")
	v.want(t, "example.com anew", dnsOffice, h.value("42", dnsEndpoint))
	h.release(u, true)
	v.want(t, "example.com anew", dnsOffice)
}
