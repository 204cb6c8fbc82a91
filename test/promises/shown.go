package promises

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/support"
)

// TestShownIsTrue makes random histories of what clients, providers and the program do. The Shown
// of each usage is true when the engine is at rest, and lists, totals and
// answers about one usage agree.
func (suite publishing) TestShownIsTrue(t *testing.T) {
	seen := map[reconcile.PlaceState]int{}
	for seed := range uint64(support.Count(3, 12)) {
		synctest.Test(t, func(t *testing.T) {
			h := suite.newShownHost(t, seed)
			h.start()
			for n := range 25 {
				for range 1 + h.random.IntN(4) {
					h.step()
				}
				dnsPass(30 * time.Second)
				if h.random.IntN(4) == 0 {
					dnsPass(2 * dnsLookAgain)
				}
				h.check(fmt.Sprint("history ", seed, ", stop ", n), seen)
			}
		})
	}
	t.Log(seen)
	for _, state := range reconcile.UsageStates {
		if seen[state] == 0 {
			t.Errorf("no usage was %s: the test has come to little", state)
		}
	}
}

// shownHost is a host at which anything may happen.
type shownHost struct {
	*host
	vendor   *dnsVendor
	random   *rand.Rand
	services []string
}

func (suite Suite) newShownHost(t *testing.T, seed uint64) *shownHost {
	h, v := suite.newVendorHost(t)
	own := dnsAccount("vendor", "", "own", "x")
	v.zones["own"] = v.zones["key"]
	services := []string{h.service("example.com"), h.service("example.com"), h.service("example.com", own...), h.service("elsewhere.example")}
	h.mode(modeAuto)
	return &shownHost{host: h, vendor: v, random: rand.New(rand.NewPCG(seed, 1)), services: services}
}

// anyUsage gives any usage, which there may not be.
func (h *shownHost) anyUsage() (u usage, ok bool) {
	all := h.usages("")
	if len(all) == 0 {
		return u, false
	}
	return all[h.random.IntN(len(all))], true
}

func oneOf[T any](h *shownHost, of ...T) T { return of[h.random.IntN(len(of))] }

// step makes something happen.
func (h *shownHost) step() {
	u, ok := h.anyUsage()
	try := func(err error) {
		if err != nil && !errors.Is(err, refused(msg.UnknownUsage)) { // its release may have come to its end meanwhile
			h.t.Error(err)
		}
	}
	switch n := h.random.IntN(20); {
	case n < 6 || !ok:
		service, prefix, network := oneOf(h, h.services...), oneOf(h, "a", "b", "c"), oneOf[uint64](h, 1, 2)
		if h.random.IntN(2) == 0 {
			prefix = automatic(network)
		}
		h.tryReserve(service, prefix, network) // the prefix may be taken
	case n < 8:
		try(h.patch(u.ID, members{"txt_endpoints": []string{oneOf(h, "tcp://192.0.2.1:1", "tcp://192.0.2.1:2")}}))
	case n < 11:
		_, err := h.free(u.ID, h.random.IntN(4) == 0)
		try(err)
	case n < 12:
		try(h.Keep(context.Background(), u.ID))
	case n < 14:
		h.reconfigure(oneOf(h, h.services[:3]...), oneOf(h, dnsConfig("example.com"), dnsConfig("example.com", dnsAccount("vendor", "", "own", "x")...)))
	case n < 15:
		h.change(members{"domain": oneOf(h, "example.com", "example.com", "elsewhere.example")})
	case n < 16:
		h.change(members{"enabled": h.random.IntN(4) > 0})
	case n < 17:
		h.mode(oneOf(h, modeManual, modeAuto, modeAuto, modeAuto, modeUpsertOnly))
	case n < 18:
		h.vendor.fails(dnsFault(oneOf(h, provider.Network, provider.Permission, provider.Conflict), oneOf(h, "read", "change")))
	case n < 19:
		h.vendor.works()
	default:
		h.restart()
	}
}

// check compares the stored Shown with what is true.
func (h *shownHost) check(when string, seen map[reconcile.PlaceState]int) {
	h.t.Helper()
	ctx := context.Background()
	usages := h.usages("")
	var names []string
	counts := map[reconcile.PlaceState]uint64{}
	for _, u := range usages {
		names = append(names, u.Name)
		counts[u.Publish.State]++
		seen[u.Publish.State]++
	}
	slices.Sort(names)
	state, err := h.Ledger.State(ctx, slices.Compact(names))
	support.Must(h.t, err)
	for _, r := range reconcile.Outdated(state, h.engine.Addresses()) {
		stored, err := h.usage(r.Now.ID)
		h.t.Errorf("%s: %s shows %+v (%v), true is %+v", when, stored.Name, stored, err, r.Now.Shown)
	}
	totals := h.totals()
	own, err := h.Ledger.OwnState(ctx)
	support.Must(h.t, err)
	counts[own]++
	for _, state := range reconcile.UsageStates {
		if totals[string(state)] != counts[state] {
			h.t.Errorf("%s: the total of %s is %d, want %d", when, state, totals[string(state)], counts[state])
		}
		some := h.usages(state)
		want := slices.DeleteFunc(slices.Clone(usages), func(u usage) bool { return u.Publish.State != state })
		if fmt.Sprint(some) != fmt.Sprint(want) {
			h.t.Errorf("%s: the list of %s is %v, want %v", when, state, some, want)
		}
	}
}
