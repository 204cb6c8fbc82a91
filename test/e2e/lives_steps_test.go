package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// lifeChoice is a step that a life may take.
type lifeChoice struct {
	name   string
	weight int
	usage  bool // it needs a usage
	do     func(l *life)
}

// lifeChoices are all steps.
var lifeChoices = []lifeChoice{
	{"formats", 3, true, (*life).setFormats},
	{"endpoints", 3, true, (*life).setEndpoints},
	{"make or replace a lease", 3, true, (*life).lend},
	{"delete a lease", 1, true, (*life).deleteLease},
	{"renew a lease", 6, true, (*life).renewLease},
	{"withdraw a lease", 1, true, (*life).withdrawLease},
	{"check", 2, true, (*life).setCheck},
	{"open or close an endpoint", 4, false, (*life).turnEndpoint},
	{"wait for probes", 3, true, (*life).awaitProbes},
	{"put a foreign value", 4, false, (*life).putForeign},
	{"remove a foreign value", 3, false, (*life).removeForeign},
	{"the provider fails", 3, false, (*life).failProvider},
	{"kill", 2, false, (*life).killed},
	{"release", 2, true, (*life).release},
	{"synchronise", 4, false, func(l *life) { l.synchronise("") }},
	{"sweep", 2, false, func(l *life) { l.synchronise("?sweep=1") }},
}

// step makes one random step. Without a usage it may reserve one.
func (l *life) step() {
	l.t.Helper()
	if l.usage == "" && l.random.IntN(3) > 0 {
		l.reserve()
		return
	}
	choices := slices.DeleteFunc(slices.Clone(lifeChoices), func(c lifeChoice) bool { return c.usage && l.usage == "" })
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	at := l.random.IntN(total)
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			l.did("%s", c.name)
			l.tally.add(c.name, 1)
			c.do(l)
			return
		}
	}
}

// patch changes members of the usage.
func (l *life) patch(members map[string]any) {
	l.t.Helper()
	body, err := json.Marshal(members)
	if err != nil {
		l.t.Fatal(err)
	}
	l.did("  %s", body)
	l.p.call(200, "PATCH", usagesPath+"/"+l.usage, string(body))
}

// reserve makes the usage, unless the released one still has the prefix.
func (l *life) reserve() {
	l.t.Helper()
	formats := l.someFormats()
	body, err := json.Marshal(map[string]any{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 42, "formats": formats})
	if err != nil {
		l.t.Fatal(err)
	}
	a, err := l.p.try("POST", usagesPath, string(body))
	l.did("reserve %q: %d %s", formats, a.status, a.header.Get("X-Error-Code"))
	switch {
	case err != nil:
		l.fail("POST: %v", err)
	case a.status == 200:
		l.usage, l.leaving, l.formats, l.endpoints, l.check, l.tenants = a.field("id"), "", formats, nil, false, nil
	case l.leaving == "" || a.header.Get("X-Error-Code") != "prefix_taken":
		l.fail("the prefix is not reserved: %d %s", a.status, a.body)
	}
}

func (l *life) someFormats() []string {
	all := []string{"hostport", "a", "srv:_x._tcp", "easytier-srv", "ip4p"}
	l.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:l.random.IntN(len(all)+1)]
	if len(all) > 0 && l.random.IntN(6) == 0 {
		return all
	}
	return append([]string{"mesh1"}, all...)
}

func (l *life) setFormats() {
	l.t.Helper()
	l.formats = l.someFormats()
	l.patch(map[string]any{"formats": l.formats})
}

func (l *life) setEndpoints() {
	l.t.Helper()
	l.endpoints = l.someEndpoints(l.random, 4)
	if l.random.IntN(2) == 0 { // leases with ranges, which probes on loopback need, take no host name
		l.endpoints = append(l.endpoints[:min(3, len(l.endpoints))], lifeNamed)
	}
	l.patch(map[string]any{"txt_endpoints": l.endpoints})
}

func (l *life) setCheck() {
	l.t.Helper()
	if l.check = l.random.IntN(4) > 0; l.check {
		l.patch(l.someCheck())
		return
	}
	l.patch(map[string]any{"check": pick(l.random, []map[string]any{{}, {"kind": "none"}})})
}

func (l *life) someCheck() map[string]any {
	return map[string]any{"check": map[string]any{"kind": "tcp", "interval": 5, "fall": 1 + l.random.IntN(2), "rise": 1 + l.random.IntN(2)}}
}

// lend makes the lease of a slot, and ends the one that the slot has.
func (l *life) lend() {
	l.t.Helper()
	slot := fmt.Sprint("node-", l.random.IntN(4))
	l.did("  %s", slot)
	at := slices.IndexFunc(l.tenants, func(n *tenant) bool { return n.slot == slot })
	if at < 0 {
		at = len(l.tenants)
		l.tenants = append(l.tenants, &tenant{usage: l.usage, slot: slot, chance: rand.New(rand.NewPCG(l.random.Uint64(), 1))})
	}
	n := l.tenants[at]
	old := n.token
	if !n.replace(l.p) {
		l.fail("slot %s: no answer", slot)
	}
	if old == "" {
		return
	}
	if a, err := l.nodes.try("PUT", "/lease", `{"endpoints":[]}`, "Authorization", "Bearer "+old); err != nil || a.status != 401 {
		l.fail("the token of a replaced lease renews: %v %d %s", err, a.status, a.body)
	}
}

func (l *life) deleteLease() {
	l.t.Helper()
	if len(l.tenants) == 0 {
		return
	}
	at := l.random.IntN(len(l.tenants))
	var list struct{ Data []struct{ ID, Slot string } }
	if err := json.Unmarshal([]byte(l.p.call(200, "GET", usagesPath+"/"+l.usage+"/leases", "").body), &list); err != nil {
		l.t.Fatal(err)
	}
	for _, one := range list.Data {
		if one.Slot == l.tenants[at].slot {
			l.did("  %s", one.Slot)
			l.p.call(200, "DELETE", usagesPath+"/"+l.usage+"/leases/"+one.ID, "")
		}
	}
	l.tenants = slices.Delete(l.tenants, at, at+1)
}

func (l *life) renewLease() { l.renew(l.someEndpoints(l.random, 4)) }

func (l *life) withdrawLease() { l.renew([]string{}) }

func (l *life) renew(endpoints []string) {
	l.t.Helper()
	if len(l.tenants) == 0 {
		l.lend()
	}
	n := pick(l.random, l.tenants)
	before := n.refused
	if !n.renew(l.nodes, endpoints) {
		l.fail("slot %s: no answer", n.slot)
	}
	l.did("  %s: %q, too soon: %v", n.slot, endpoints, n.refused > before)
	l.tally.add("renewals that were acknowledged", 1-(n.refused-before))
}

// turnEndpoint lets an endpoint answer, or not answer any more.
func (l *life) turnEndpoint() {
	l.t.Helper()
	l.turn(pick(l.random, l.pool[len(l.pool)-len(l.places):]))
}

func (l *life) turn(endpoint string) {
	l.t.Helper()
	l.open[endpoint] = !l.open[endpoint]
	l.did("  %s: %v", endpoint, l.open[endpoint])
	if !l.open[endpoint] {
		l.places[endpoint].close()
	} else if err := l.places[endpoint].listen(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) openAll() {
	l.t.Helper()
	for endpoint, open := range maps.Clone(l.open) {
		if !open {
			l.turn(endpoint)
		}
	}
}

// awaitProbes waits until an endpoint that answers was probed twice. It is slow, so a life has few of it.
func (l *life) awaitProbes() {
	l.t.Helper()
	own, leased := l.wanted()
	for _, e := range slices.Concat(own, leased) {
		if l.open[e.Text] && l.waits < 3 {
			l.waits++
			l.tally.add("probes awaited", 1)
			if !l.check {
				l.check = true
				l.patch(l.someCheck())
			}
			before := l.places[e.Text].accepted.Load()
			support.Eventually(l.t, 6*checkEvery, e.Text+" is probed", func() bool { return l.places[e.Text].accepted.Load() >= before+2 })
			return
		}
	}
}

// lifeFaults are faults of the provider.
var lifeFaults = []cloudtest.Fault{
	cloudtest.Throttle, cloudtest.Reset, cloudtest.Lost, cloudtest.Lost, cloudtest.Cut,
	cloudtest.Instead(cloudtest.Answer{Status: 500, Body: "broken"}), cloudtest.Instead(cloudtest.Answer{Status: 403, Body: "no"}),
}

// failProvider has some of the next calls fail.
func (l *life) failProvider() {
	for range 1 + l.random.IntN(5) {
		for range l.random.IntN(4) {
			l.cloud.Fail(cloudtest.Pass)
		}
		l.cloud.Fail(pick(l.random, lifeFaults))
	}
}

// release releases the usage, sometimes by force.
func (l *life) release() {
	l.t.Helper()
	query := pick(l.random, []string{"?wait=1", "?wait=1", "?wait=1", "?force=1"})
	a, err := l.p.try("DELETE", usagesPath+"/"+l.usage+query, "")
	l.did("  %s: %d", query, a.status)
	if err != nil || a.status != 200 && a.status != 202 {
		l.fail("the usage is not released: %v %d %s", err, a.status, a.body)
	}
	if a.status == 202 {
		l.leaving = l.usage
	}
	l.usage, l.tenants, l.endpoints, l.check = "", nil, nil, false
}

// synchronise asks for a pass, which fails while the provider does, or while a name is in conflict.
func (l *life) synchronise(query string) {
	l.t.Helper()
	a, err := l.p.try("POST", syncPath+query, "")
	if err != nil || a.status != 200 && a.status != 500 {
		l.fail("POST %s: %v %d %s", syncPath+query, err, a.status, a.body)
	}
	l.did("  %d %s", a.status, shortened(a.body))
}
