package e2e

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"meshddns/internal/mesh"
)

// Steps about endpoints that are checked, about endpoints for which a value has no room, about tokens, and about changes
// without a rest.

// checkedHosts counts the addresses of endpoints, of which no other history has the same.
var checkedHosts atomic.Int64

// listener makes an endpoint that accepts connections.
func (w *history) listener() *served {
	n := checkedHosts.Add(1)
	return serve(w.t, fmt.Sprintf("127.%d.%d.%d:7001", 100+os.Getpid()%100, 1+n/250%250, 1+n%250))
}

// endpointDies has a checked endpoint of a usage die beside one that lives, perhaps with a kill of the program. It is in
// no record then. Without the check it is there again. The last endpoint stays.
func (w *history) endpointDies() func() {
	killed, last := w.random.IntN(3) == 0, w.random.IntN(3) == 0
	return func() {
		f, found := w.firmUsage(true, func(f firm) bool { return len(f.usage.leases) == 0 }) // whose endpoints nothing serves
		if !found {
			return
		}
		w.strict = false
		mortal := w.listener()
		endpoints := []string{"tcp://" + mortal.address}
		if !last {
			endpoints = append(endpoints, "tcp://"+w.listener().address)
		}
		check := map[string]any{"check": map[string]any{"kind": "tcp", "interval": 5, "fall": 1, "rise": 1}}
		w.mutate(w.change(f.usage.id, endpoints, check, func(*modelUsage) {}))
		w.until("the endpoints are checked", func() string { return w.unlessTold(f.usage.id, endpoints[0], true) })
		w.rest("endpoints are checked")
		mortal.close()
		w.say("  %s is closed", mortal.address)
		if killed {
			w.kill()
			w.revive()
		}
		if !last {
			w.until("a dead endpoint is known", func() string { return w.unlessTold(f.usage.id, endpoints[0], false) })
			i := slices.IndexFunc(w.model.usages, func(u modelUsage) bool { return u.id == f.usage.id })
			w.model.usages[i].dead = endpoints[:1]
		}
		w.rest("an endpoint is dead")
		w.mutate(w.change(f.usage.id, endpoints, map[string]any{"check": map[string]any{"kind": "none"}}, func(u *modelUsage) { u.dead = nil }))
		w.tally.add("endpoints that died", 1)
	}
}

// unlessTold says what is wrong with what the usage tells of an endpoint.
func (w *history) unlessTold(id, endpoint string, alive bool) string {
	var usage struct {
		Publish struct{ Endpoints []endpointState }
	}
	w.get(usagesPath+"/"+id, &usage)
	for _, e := range usage.Publish.Endpoints {
		if e.Endpoint == endpoint && e.Alive != nil && *e.Alive == alive {
			return ""
		}
	}
	return fmt.Sprintf("%s is not told to live: %t", endpoint, alive)
}

// crowd has all slots of a usage renew with several endpoints: the value has no room for some of them.
func (w *history) crowd() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	formats := append([]string{"mesh1"}, pick(w.random, []string{"hostport", "a", "srv:_x._tcp"}))
	return func() {
		w.strict = false
		w.mutate(w.format(u.id, formats, ""))
		for _, slot := range []string{"n1", "n2", "n3", "n4"} {
			if w.dead() {
				return
			}
			if at := slotOf(w.leases(u.id), slot); at < 0 {
				w.mutate(w.lend(u.id, modelLease{slot: slot}))
			}
			if at := slotOf(w.leases(u.id), slot); at >= 0 && w.leases(u.id)[at].token != "" && !w.dead() {
				w.mutate(w.renewTo(u.id, w.leases(u.id)[at], w.leasable(4)))
			}
		}
	}
}

// several makes several changes without a rest between them.
func (w *history) several() func() {
	return func() {
		w.strict = false
		for range 2 + w.random.IntN(4) {
			name := pick(w.random, []string{
				"change endpoints", "change formats", "a lease is made or renewed", "a lease ends", "a foreign value comes", "a foreign value goes", "reserve", "release",
			})
			if do := w.choiceNamed(name).prepare(w); do != nil && !w.dead() {
				do()
				w.remember()
			}
		}
	}
}

// leases gives those of a usage in the model.
func (w *history) leases(usage string) []modelLease {
	for _, u := range w.model.usages {
		if u.id == usage {
			return u.leases
		}
	}
	return nil
}

// replaceLease gives a slot a new lease. The token of the old one is refused.
func (w *history) replaceLease() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	return func() {
		if len(u.leases) == 0 {
			w.mutate(w.lend(u.id, modelLease{slot: "n1"}))
		}
		if w.dead() || len(w.leases(u.id)) == 0 {
			return
		}
		old := pick(w.random, w.leases(u.id))
		c := w.lend(u.id, modelLease{slot: old.slot})
		made := c.apply
		c.path += "?replace=1"
		c.apply = func(m *model, a answer) {
			m.lease(u.id, func(all []modelLease) []modelLease {
				return slices.DeleteFunc(all, func(l modelLease) bool { return l.slot == old.slot })
			})
			made(m, a)
		}
		c.happened = func() (answer, bool) {
			for _, l := range w.leasesOf(u.id) {
				if l.Slot == old.slot && l.ID != old.id {
					return answer{body: jsonText(map[string]any{"data": map[string]any{"id": l.ID}})}, true
				}
			}
			return answer{}, false
		}
		w.mutate(c)
		at := slotOf(w.leases(u.id), old.slot)
		if old.token == "" || w.dead() || at < 0 || w.leases(u.id)[at].id == old.id {
			return
		}
		if a, err := w.ask("PUT", leasePath, `{"endpoints":[]}`, "Authorization", "Bearer "+old.token); err == nil && a.status != 401 {
			w.fail("the token of a replaced lease renews: %d", a.status)
		}
	}
}

// leftOut says what is wrong with what a record of a usage leaves out: it is what has no room in it.
func (w *history) leftOut(u modelUsage, f publishedFormat) (wrong string) {
	own, leased := w.model.endpointsOf(u)
	var want []string
	if f.Format == mesh.ACME {
		return ""
	} else if f.Format == mesh.Mesh1 {
		if w.model.hasMesh1(u) {
			_, leftOut := mesh.Fit(fmt.Sprint(u.network), w.host.owner, own, leased)
			want = mesh.Texts(leftOut)
		}
	} else {
		for _, set := range mesh.FormatSets([]string{f.Format}, below(w.model.name(u)), slices.Concat(own, leased)) {
			for _, l := range set.LeftOut {
				if typed(set.Name, set.Type) == typed(f.Name, f.Type) {
					want = append(want, l.Endpoint.Text)
				}
			}
		}
	}
	var got []string
	for _, l := range f.LeftOut {
		got = append(got, l.Endpoint)
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("the record %s %s leaves %q out, want %q", f.Name, f.Type, got, want)
	}
	w.tally.add("endpoints without room", len(want))
	return ""
}
