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

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/support"
)

// testToldIsTrue makes random histories of what clients, providers and the program do. What
// the database tells of a usage is true when the engine is at rest, and lists, totals and
// answers about one usage agree.
func (suite Suite) testToldIsTrue(t *testing.T) {
	seen := map[reconcile.PlaceState]int{}
	for seed := range uint64(support.Count(6, 12)) {
		synctest.Test(t, func(t *testing.T) {
			h := suite.newToldHost(t, seed)
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

// toldHost is a host at which anything may happen.
type toldHost struct {
	*host
	vendor   *dnsVendor
	random   *rand.Rand
	services []string
}

func (suite Suite) newToldHost(t *testing.T, seed uint64) *toldHost {
	h, v := suite.newVendorHost(t)
	own := dnsAccount("vendor", "", "own", "x")
	v.zones["own"] = v.zones["key"]
	services := []string{h.service("example.com"), h.service("example.com"), h.service("example.com", own...), h.service("elsewhere.example")}
	h.mode(modeAuto)
	return &toldHost{host: h, vendor: v, random: rand.New(rand.NewPCG(seed, 1)), services: services}
}

// usage gives any usage, which there may not be.
func (h *toldHost) usage() (u Usage, ok bool) {
	all, err := h.program.Usages(context.Background(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	if len(all) == 0 {
		return u, false
	}
	return all[h.random.IntN(len(all))], true
}

func oneOf[T any](h *toldHost, of ...T) T { return of[h.random.IntN(len(of))] }

// step makes something happen.
func (h *toldHost) step() {
	ctx := context.Background()
	u, ok := h.usage()
	try := func(err error) {
		if err != nil && !errors.Is(err, h.suite.NoUsage) { // its release may have come to its end meanwhile
			h.t.Error(err)
		}
	}
	switch n := h.random.IntN(20); {
	case n < 6 || !ok:
		w := Usage{ServiceID: oneOf(h, h.services...), Prefix: oneOf(h, "a", "b", "c"), Network: oneOf[uint64](h, 1, 2)}
		if h.random.IntN(2) == 0 {
			w.Prefix = automatic(w.Network)
		}
		h.program.Reserve(ctx, w) // the prefix may be taken
	case n < 8:
		try(h.program.Publish(ctx, u.ID, []string{oneOf(h, "tcp://192.0.2.1:1", "tcp://192.0.2.1:2")}))
	case n < 11:
		_, err := h.program.Free(ctx, u.ID, h.random.IntN(4) == 0)
		try(err)
	case n < 12:
		try(h.program.Keep(ctx, u.ID))
	case n < 14:
		h.reconfigure(oneOf(h, h.services[:3]...), oneOf(h, dnsConfig("example.com"), dnsConfig("example.com", dnsAccount("vendor", "", "own", "x")...)))
	case n < 15:
		h.change(func(c *Configuration) { c.Domain = oneOf(h, "example.com", "example.com", "elsewhere.example") })
	case n < 16:
		h.change(func(c *Configuration) { c.Enabled = h.random.IntN(4) > 0 })
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

// check compares what is told with what is true.
func (h *toldHost) check(when string, seen map[reconcile.PlaceState]int) {
	h.t.Helper()
	ctx := context.Background()
	usages, err := h.program.Usages(ctx, "")
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	counts := map[reconcile.PlaceState]uint64{}
	for _, u := range usages {
		names = append(names, u.Name)
		counts[u.State]++
		seen[u.State]++
	}
	slices.Sort(names)
	state, err := h.Ledger.State(ctx, slices.Compact(names))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range reconcile.Retold(state, h.engine.Addresses()) {
		stored, err := h.program.Usage(ctx, r.Now.ID)
		h.t.Errorf("%s: %s is told %+v (%v), true is %+v", when, stored.Name, stored, err, r.Now.Told)
	}
	totals, err := h.program.Totals(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	own, err := h.Ledger.OwnState(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	counts[own]++
	for _, state := range reconcile.UsageStates {
		if totals[string(state)] != counts[state] {
			h.t.Errorf("%s: the total of %s is %d, want %d", when, state, totals[string(state)], counts[state])
		}
		some, err := h.program.Usages(ctx, state)
		if err != nil {
			h.t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(usages), func(u Usage) bool { return u.State != state })
		if fmt.Sprint(some) != fmt.Sprint(want) {
			h.t.Errorf("%s: the list of %s is %v, want %v", when, state, some, want)
		}
	}
}
