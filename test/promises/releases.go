package promises

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/ledger"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestReleaseWhileDown releases while the provider fails: the prefix stays
// taken until a later synchronisation has withdrawn the value.
func (suite publishing) TestReleaseWhileDown(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	h := suite.newHost(t, servertest.Server{Name: s.Name, Addr: servertest.Relay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() {
			return servertest.ServFail(query, forward)
		}
		return forward()
	})})
	service := h.service("example.com")
	u := h.reserve(service, "Office", 42)
	h.run()
	down.Store(true)
	h.release(u, false)
	h.release(u, false) // and once more, as a client does that got no answer
	if u, err := h.usage(u.ID); err != nil || u.Status != "releasing" {
		t.Errorf("status %s, %v", u.Status, err)
	}
	h.wantPlaces(dnsOffice, "withdrawing "+h.value("42", dnsEndpoint)+" temporary")
	if got, want := h.publishing(u), "withdrawing "+h.value("42", dnsEndpoint)+" temporary"; got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	if _, err := h.tryReserve(service, "office", 42); err != refused(msg.PrefixTaken) {
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

// TestReleaseShared has several usages of one network at one name: the
// newest decides the endpoints, and the value goes with the last.
func (suite publishing) TestReleaseShared(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automatic(42)
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

// TestReleaseHandsOver has three networks want one name of a domain that
// services share. Each release gives it to the next elder one, and no network
// is kept from its release by one that waits.
func (suite publishing) TestReleaseHandsOver(t *testing.T) {
	for name, order := range map[string][]int{"elder first": {0, 1, 2}, "younger first": {2, 1, 0}, "middle first": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			h := suite.newHost(t, dnsBuiltinServer)
			var waiting []usage
			for n := range 3 {
				waiting = append(waiting, h.reserve(h.service("example.com"), "office", uint64(n)))
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

// TestHandOverFails releases the elder of two networks while the server
// takes no change: the elder's value stands, so its prefix stays taken, however
// often the younger one's is tried in its place.
func (suite publishing) TestHandOverFails(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	h := suite.newHost(t, servertest.Server{Name: s.Name, Addr: servertest.Relay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() && servertest.IsUpdate(query) {
			return servertest.ServFail(query, forward)
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

// TestReleaseToOtherProvider has the younger of two networks publish
// elsewhere, in vain: the elder waits for the withdrawal of its own value only.
func (suite publishing) TestReleaseToOtherProvider(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	elder := h.reserve(h.service("example.com"), "office", 1)
	h.reserve(h.service("example.com", dnsAccount("rfc2136", support.FreeAddress(t), servertest.Key, servertest.Secret)...), "office", 2)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" create", "example.com skipped not_searched")
	h.release(elder, true)
	h.wantStanding(dnsOffice)
	h.wantTaken("office", 1)
}

// TestReleaseSharedConflict releases one of two usages of a network while
// a stranger's value stands beside ours: there is nothing to withdraw for it.
func (suite publishing) TestReleaseSharedConflict(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	service, prefix := h.service("example.com"), automatic(42)
	u := h.reserve(service, prefix, 42)
	h.reserve(service, prefix, 42)
	h.run()
	h.foreign(dnsBuiltinServer, u.Name, provider.Value{dnsStranger})
	wantReport(t, h.run(), u.Name+" conflict", "1 unchanged")
	h.release(u, true)
	h.wantTaken(prefix, 1)
}

// TestReleaseTwice has several callers release one usage at once: some may
// find it gone.
func (suite publishing) TestReleaseTwice(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if freed, err := h.tryRelease(t.Context(), u); !freed && err != refused(msg.UnknownUsage) {
				t.Errorf("freed %t, %v", freed, err)
			}
		})
	}
	callers.Wait()
	h.wantStanding(dnsOffice)
	h.wantTaken("office", 0)
}

// TestReleaserGoes has the client go while the value is withdrawn: the
// release is finished all the same.
func (suite publishing) TestReleaserGoes(t *testing.T) {
	s := servertest.BIND(t)
	gate := &dnsGate{}
	h := suite.newHost(t, gate.server(t, s))
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	gate.shut(1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.tryRelease(ctx, u)
	}()
	support.Receive(t, gate.arrived)
	cancel()
	support.Receive(t, ended)
	h.wantTaken("office", 1)
	close(gate.open)
	h.until("the prefix is free", func() bool { return h.taken("office") == 0 })
	wantTXT(t, s, dnsOffice)
	h.wantPlaces(dnsOffice, "withdrawn")
}

// TestForceFreed frees a prefix while its value stands, which is a leftover
// then: the next synchronisation withdraws it.
func (suite publishing) TestForceFreed(t *testing.T) {
	suite.everywhere(t, func(t *testing.T, h *host, s servertest.Server) {
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

// TestReleaseBesideAlias releases a name that has become an alias:
// nothing of ours can stand there, so there is nothing to wait for.
func (suite publishing) TestReleaseBesideAlias(t *testing.T) {
	s := servertest.BIND(t)
	h := suite.newHost(t, s)
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	s.Update(t, "delete "+dnsOffice+" TXT", "add "+dnsOffice+" 60 CNAME keep.example.com.")
	wantReport(t, h.run(), dnsOffice+" conflict", "1 unchanged")
	h.release(u, true)
	wantReport(t, h.run(), "1 unchanged")
}

// cloudService registers a service that publishes at a cloud.
func (h *host) cloudService(c *cloudtest.Cloud, domain string) (id string) {
	h.t.Helper()
	return h.service(domain, dnsAccount(c.Provider, c.URL, c.AccessKeyID, c.AccessKeySecret)...)
}

// TestReleaseBesideCloudAlias releases a name that has got a CNAME.
func (suite publishing) TestReleaseBesideCloudAlias(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *cloudtest.Cloud{
		"jdcloud": cloudtest.JDCloud, "porkbun": cloudtest.Porkbun, "baiducloud": cloudtest.BaiduCloud,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			h := suite.newHost(t, dnsBuiltinServer)
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

// TestCloudWithoutList has a release meet a success that lists nothing.
func (suite publishing) TestCloudWithoutList(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	c := cloudtest.AliDNS(t)
	h := suite.newHost(t, dnsBuiltinServer)
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

// TestCloudOff has values of ours and of another appliance in records that
// are switched off, or for some resolvers only.
func (suite publishing) TestCloudOff(t *testing.T) {
	c := cloudtest.AliDNS(t)
	h := suite.newHost(t, dnsBuiltinServer)
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

// TestCloudProxied has an address of a usage switched to Cloudflare's proxy, and back: DNS does not have it meanwhile.
func (suite publishing) TestCloudProxied(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	h := suite.newHost(t, dnsBuiltinServer)
	u := h.reserve(h.cloudService(c, "example.com"), "office", 42)
	h.formatted(u, "mesh1", "a")
	h.publish(u, "tcp://203.0.113.1:1", "tcp://[2001:db8::1]:1")
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create", dnsOffice+" create", dnsOffice+" create")
	c.SwitchOff("office.example.com", "AAAA", true)
	wantReport(t, h.run(), dnsOffice+" conflict", dnsOffice+" conflict", "2 unchanged")
	c.SwitchOff("office.example.com", "AAAA", false)
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
}

// TestTwoZonesOfOneAccount publishes in each zone what belongs there, also
// when an answer is lost: the pass waits for the second try.
func (suite publishing) TestTwoZonesOfOneAccount(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		h := suite.newHost(t, dnsBuiltinServer)
		h.change(members{"retry_interval": 1, "max_retries": 1})
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

// TestNestedZones has a zone within a zone in one account: what belongs into
// the inner one is published there, and withdrawn from there.
func (suite publishing) TestNestedZones(t *testing.T) {
	const name = "_mesh.office.child.example.com"
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		h := suite.newHost(t, dnsBuiltinServer)
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

func dnsCloudConfiguration(c *cloudtest.Cloud) members {
	conf := dnsConfiguration(servertest.Server{})
	conf["provider"], conf["endpoint"], conf["access_key_id"], conf["access_key_secret"] = c.Provider, c.URL, c.AccessKeyID, c.AccessKeySecret
	return conf
}

// TestUnreadBatch has a provider make a batch, and give an answer that cannot be
// read; the halves are refused. The values may stand, so no prefix is free before they
// were seen to go.
func (suite publishing) TestUnreadBatch(t *testing.T) {
	page := cloudtest.Answer{Status: http.StatusBadGateway, Body: "<html>"}
	exists := cloudtest.JSON(http.StatusBadRequest, map[string]any{
		"success": false, "errors": []any{map[string]any{"code": 99999, "message": "it is there"}},
	})
	c := cloudtest.Cloudflare(t)
	h := suite.newHost(t, dnsBuiltinServer)
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

// TestReleaseWaits releases while the name is written: it waits for that
// write and no longer, and the value does not come back.
func (suite publishing) TestReleaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
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

// TestReleaseUnpublished frees a prefix whose value never stood anywhere,
// without a call to the provider.
func (suite publishing) TestReleaseUnpublished(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T){
		"never tried":   func(t *testing.T) { suite.testUnpublished(t, func(*host) {}) },
		"tried in vain": func(t *testing.T) { suite.testUnpublished(t, func(h *host) { h.run() }) },
		"disabled": func(t *testing.T) {
			suite.testUnpublished(t, func(h *host) { h.change(members{"enabled": false}) })
		},
	})
}

func (suite Suite) testUnpublished(t *testing.T, before func(h *host)) {
	h, v := suite.newVendorHost(t)
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

// TestForgets has a place of a value that never came to stand, for a usage
// that is gone: the next synchronisation drops it and has nothing to say.
func (suite publishing) TestForgets(t *testing.T) {
	h, v := suite.newVendorHost(t)
	v.fails(dnsFault(provider.Network))
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" failed network", dnsOffice+" failed network")
	h.release(u, true)
	h.wantPlaces(dnsOffice)
	wantReport(t, h.run(), dnsHost+" failed network")
}

// TestUpsertOnly never deletes, not even on release, nor what it has not put
// there; another mode does it later.
func (suite publishing) TestUpsertOnly(t *testing.T) {
	h, v := suite.newVendorHost(t)
	h.mode(modeUpsertOnly)
	u := h.reserve(h.service("example.com"), "office", 42)
	r := h.run()
	wantReport(t, r, dnsHost+" create", dnsOffice+" create")
	stale := h.value("42", "tcp://192.0.2.66:1")
	v.put(servertest.Zone, dnsOffice, provider.Value{stale})
	wantReport(t, h.run(), "2 unchanged")
	h.publish(u, "udp://192.0.2.9:1")
	h.run() // the change may have been made before
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

// TestReservedAgain reserves anew what was never published, because its provider
// was down: it is published as soon as that answers.
func (suite publishing) TestReservedAgain(t *testing.T) {
	h, v := suite.newVendorHost(t)
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

// TestLeftoverInDoubt releases by force what may have been written: the leftover
// says which value that is.
func (suite publishing) TestLeftoverInDoubt(t *testing.T) {
	h, v := suite.newVendorHost(t)
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

// TestLeftovers has values that cannot be withdrawn: they are leftovers, which
// make no report fail, are tried again, and can be forgotten.
func (suite publishing) TestLeftovers(t *testing.T) {
	h, v := suite.newVendorHost(t)
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
	all, err := h.Ledger.Leftovers(t.Context(), 0, 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].Place.Standing != h.value("42", dnsEndpoint) || all[0].Place.Account.Provider != "gone" || all[0].Place.Zone != servertest.Zone || all[0].Since == "" {
		t.Errorf("%+v", all[0])
	}
	for _, p := range all {
		if p.Place.Name == dnsOffice {
			err = h.Ledger.ForgetLeftover(t.Context(), p.Place.ID)
		}
	}
	support.Must(t, err)
	h.run()
	h.wantTaken("office", 0)
	gone.works()
	wantReport(t, h.run(), dnsOffice+" orphan", other.Name+" delete", "1 unchanged") // for nobody has removed it
	gone.want(t, servertest.Zone, other.Name)
	gone.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	if err := h.Ledger.ForgetLeftover(t.Context(), 12345); !errors.Is(err, ledger.ErrNoLeftover) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestZoneGivenUp releases what stood in a zone that the account has no more:
// it counts as withdrawn.
func (suite publishing) TestZoneGivenUp(t *testing.T) {
	h, v := suite.newVendorHost(t)
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
