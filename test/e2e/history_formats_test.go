package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Steps about records in other formats, which have no mark, and about leases.

const leasePath = "/lease"

var allFormats = []string{"mesh1", "hostport", "a", "srv:_x._tcp", "srv:_x._udp", "easytier-srv", "ip4p", "dnsaddr", "iroh", "urls"}

// Ids of peers: of libp2p and of iroh.
var peerIDs = []string{
	"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",
	"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
	"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
	"",
}

// formats gives some formats in any order, mostly with the marked value.
func (w *history) formats() (some []string) {
	for _, f := range allFormats {
		if w.random.IntN(3) == 0 || f == "mesh1" && w.random.IntN(4) > 0 {
			some = append(some, f)
		}
	}
	w.random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some
}

// changeFormats gives a usage other formats, endpoints and a peer.
func (w *history) changeFormats() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	formats, peer := w.formats(), pick(w.random, peerIDs)
	if w.random.IntN(5) == 0 {
		formats = []string{}
	}
	return func() { w.mutate(w.format(u.id, formats, peer)) }
}

func (w *history) format(id string, formats []string, peer string) mutation {
	members := map[string]any{"formats": append([]string{}, formats...), "peer_id": peer}
	return w.change(id, w.endpoints(), members, func(u *modelUsage) { u.formats, u.peer = formats, peer })
}

// lease changes a usage's leases in a model.
func (m *model) lease(usage string, change func(leases []modelLease) []modelLease) {
	i := slices.IndexFunc(m.usages, func(u modelUsage) bool { return u.id == usage })
	if i < 0 {
		return
	}
	m.usages[i].leases = change(slices.Clone(m.usages[i].leases))
	slices.SortFunc(m.usages[i].leases, func(a, b modelLease) int { return strings.Compare(a.slot, b.slot) })
}

func slotOf(leases []modelLease, slot string) int {
	return slices.IndexFunc(leases, func(l modelLease) bool { return l.slot == slot })
}

type listedLease struct {
	ID, Slot  string
	Endpoints []string
}

func (w *history) leasesOf(usage string) (all []listedLease) {
	w.t.Helper()
	w.get(usagesPath+"/"+usage+"/leases", &all)
	return all
}

// lendOrRenew makes a lease of a slot, or has its node renew it with other endpoints.
func (w *history) lendOrRenew() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	slot := pick(w.random, []string{"n1", "n2"})
	if at := slotOf(u.leases, slot); at >= 0 && u.leases[at].token != "" {
		return func() { w.mutate(w.renew(u.id, u.leases[at])) }
	} else if at >= 0 {
		return nil
	}
	l := modelLease{slot: slot, peer: pick(w.random, peerIDs)}
	return func() {
		w.mutate(w.lend(u.id, l))
		for _, m := range w.model.usages {
			if at := slotOf(m.leases, slot); m.id == u.id && at >= 0 && m.leases[at].token != "" && !w.dead() {
				w.mutate(w.renew(u.id, m.leases[at]))
			}
		}
	}
}

func (w *history) lend(usage string, l modelLease) mutation {
	l.acme = w.random.IntN(4) > 0
	body := map[string]any{"slot": l.slot, "ttl": 86400, "acme": l.acme}
	if l.peer != "" {
		body["peer_id"] = l.peer
	}
	return mutation{
		method: "POST", path: usagesPath + "/" + usage + "/leases", body: jsonText(body), statuses: []int{200},
		apply: func(m *model, a answer) {
			if l.id = a.field("id"); a.header != nil {
				l.token = a.field("token")
			}
			m.lease(usage, func(all []modelLease) []modelLease { return append(all, l) })
		},
		happened: func() (answer, bool) { // its token is lost
			all := w.leasesOf(usage)
			at := slices.IndexFunc(all, func(o listedLease) bool { return o.Slot == l.slot })
			if at < 0 {
				return answer{}, false
			}
			return answer{body: jsonText(map[string]any{"data": map[string]any{"id": all[at].ID}})}, true
		},
	}
}

func (w *history) renew(usage string, l modelLease) mutation {
	if w.random.IntN(6) == 0 {
		return w.renewTo(usage, l, []string{})
	}
	return w.renewTo(usage, l, w.leasable(1))
}

// leasable makes endpoints for a lease.
func (w *history) leasable(count int) (endpoints []string) {
	for range count {
		w.serial++
		endpoints = append(endpoints, fmt.Sprintf(pick(w.random, []string{"tcp", "udp"})+"://192.31.%d.%d:%d", w.serial/250, w.serial%250+1, 2000+w.serial))
	}
	return endpoints
}

func (w *history) renewTo(usage string, l modelLease, endpoints []string) mutation {
	return mutation{
		method: "PUT", path: leasePath, body: jsonText(map[string]any{"endpoints": endpoints}), statuses: []int{200, 429},
		header: []string{"Authorization", "Bearer " + l.token},
		apply: func(m *model, _ answer) {
			m.lease(usage, func(all []modelLease) []modelLease {
				if at := slotOf(all, l.slot); at >= 0 {
					all[at].endpoints = endpoints
				}
				return all
			})
		},
		happened: func() (answer, bool) {
			return answer{}, slices.ContainsFunc(w.leasesOf(usage), func(o listedLease) bool { return o.Slot == l.slot && slices.Equal(o.Endpoints, endpoints) })
		},
	}
}

// endLease ends a lease, with its endpoints.
func (w *history) endLease() func() {
	leased := slices.DeleteFunc(slices.Clone(w.model.usages), func(u modelUsage) bool { return u.releasing || len(u.leases) == 0 })
	if len(leased) == 0 {
		return nil
	}
	u := pick(w.random, leased)
	l := pick(w.random, u.leases)
	return func() {
		w.mutate(mutation{
			method: "DELETE", path: usagesPath + "/" + u.id + "/leases/" + l.id, statuses: []int{200},
			apply: func(m *model, _ answer) {
				m.lease(u.id, func(all []modelLease) []modelLease {
					return slices.DeleteFunc(all, func(o modelLease) bool { return o.slot == l.slot })
				})
			},
			happened: func() (answer, bool) {
				return answer{}, !slices.ContainsFunc(w.leasesOf(u.id), func(o listedLease) bool { return o.Slot == l.slot })
			},
		})
	}
}

// foreignData gives a value of others for the type of a spot.
func (w *history) foreignData(name string) string {
	w.serial++
	switch kindOf(name) {
	case "A":
		return netip.AddrFrom4([4]byte{198, 51, byte(w.serial >> 8), byte(w.serial)}).String()
	case "AAAA":
		return fmt.Sprintf("2001:db8:f::%x", w.serial)
	case "SRV":
		return fmt.Sprintf("5 5 %d foreign.example.net", w.serial)
	}
	return fmt.Sprintf(pick(w.random, []string{
		"v=spf1 include:example.net -all %d", "v=DKIM1; k=rsa; p=MIGf+/=%d", "v=mesh10 o=x %d", "a~b*c%%20d&e=f %d", strings.Repeat("k", 240) + "%d", "198.51.100.9:%d",
	}), w.serial)
}

// unmarkedSpots gives where records without a mark are wanted, at accounts.
func (w *history) unmarkedSpots() (all []spot) {
	for name, x := range w.wantedSiblings(w.model.wishes(w.host.owner)) {
		for _, at := range x.at {
			if at.account != nil && at.reachable && (at.account.provider != tencentFront.provider || kindOf(name) == "TXT") {
				all = append(all, spot{at.account, at.zone, name})
			}
		}
	}
	slices.SortFunc(all, func(a, b spot) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// foreignBeside puts a value of others where records without a mark are, and changes or releases what is
// ours there.
func (w *history) foreignBeside() func() {
	all := w.unmarkedSpots()
	if len(all) == 0 {
		return nil
	}
	at, text := pick(w.random, all), ""
	text = w.foreignData(at.name)
	change := pick(w.random, []func() func(){w.changeEndpoints, w.changeFormats, w.releaseOne, func() func() { return nil }})()
	return func() {
		w.addForeign(at, text)
		w.strict = false
		if change != nil {
			change()
		}
	}
}

// foreignEqual has a value of others be the one that a usage wants next, at one of the providers of its
// name. It is never ours.
func (w *history) foreignEqual() func() {
	if len(w.model.adopted) > 0 {
		return nil
	}
	service, prefix, network := pick(w.random, []string{"s2", "s3"}), pick(w.random, []string{"a", "b"}), w.network()
	homes := []home{w.homes[0], w.homes[2]}
	if w.random.IntN(2) == 0 {
		slices.Reverse(homes)
	}
	after := w.random.IntN(3)
	return func() {
		w.strict = false
		w.putAt(service, w.keyOf(homes[1]))
		if w.dead() || w.model.services[service].domain != w.model.services["s1"].domain {
			return
		}
		w.putAt("s1", w.keyOf(homes[0]))
		for _, id := range []string{"s1", service} {
			if w.model.services[id].id != "" && len(w.model.usages) < mostUsages {
				w.reserve(modelUsage{service: id, prefix: prefix, network: network})()
			}
		}
		w.rest("one name at two providers")
		all := slices.DeleteFunc(slices.Clone(w.model.usages), func(u modelUsage) bool {
			return u.releasing || u.service != service || u.prefix != prefix || u.network != network
		})
		if len(all) == 0 {
			return
		}
		c := w.format(all[0].id, []string{"mesh1", "hostport", "a", "srv:_x._tcp"}, "")
		next := w.model.clone()
		c.apply(&next, answer{status: 200})
		w.plantEqual(next, w.host.accounts[0], w.host.accounts[2])
		w.mutate(c)
		w.rest("values of others are as wanted")
		switch after {
		case 0:
			w.mutate(w.patch(all[0].id))
		case 1:
			w.mutate(w.release(all[0], false))
		case 2:
			w.putAt(service, credentials{})
		}
		w.tally.add("values of others that are wanted", 1)
	}
}

// plantEqual adds wanted values without a mark as those of others, at one of some accounts.
func (w *history) plantEqual(next model, accounts ...*account) {
	a := pick(w.random, accounts)
	for name, x := range w.wantedSiblings(next.wishes(w.host.owner)) {
		for _, at := range x.at {
			s := spot{at.account, at.zone, name}
			if at.account != a || !at.reachable || w.random.IntN(2) == 0 || w.host.book[s][at.values[0]] || w.foreignAt(s, at.values[0]) {
				continue
			}
			w.equal = true
			w.addForeign(s, at.values[0])
		}
	}
}

// showOld has a provider show changes late, and perhaps has what it shows late change again.
func (w *history) showOld() func() {
	formats, after, kind := w.formats(), w.random.IntN(4), pick(w.random, []faultKind{staleOnce, staleOnce, staleLater})
	return func() {
		f, found := w.firmUsage(true, func(f firm) bool { return f.at.account.provider != tencentFront.provider })
		if !found {
			return
		}
		w.strict = false
		w.mutate(w.format(f.usage.id, []string{"mesh1", "hostport", "a", "srv:_x._tcp"}, ""))
		w.rest("records without a mark")
		var all []fault
		for range 6 {
			all = append(all, fault{kind: kind, write: true, at: f.at.account})
		}
		w.planned(all...)
		w.mutate(w.patch(f.usage.id))
		w.sync()
		w.sync()
		switch after {
		case 0:
			w.mutate(w.format(f.usage.id, formats, ""))
		case 1:
			w.mutate(w.release(f.usage, false))
		case 2:
			w.mutate(w.patch(f.usage.id))
		}
		w.tally.add("old views of records without a mark", 1)
	}
}

// wrongKey puts the configuration with a key that nothing accepts, asks for a pass, and puts the right one
// again.
func (w *history) wrongKey() func() {
	right := w.model.config.credentials
	key := w.keyFor(right)
	if key == nil || key.refused {
		return nil
	}
	times := 1 + w.random.IntN(2)
	return func() {
		w.strict = false
		for range times {
			w.serial++
			wrong := right
			if right.provider == bridgeFront.provider {
				wrong.secret = fmt.Sprintf("%swrong-%d.", secretMark, w.serial)
			} else {
				wrong.keyID = fmt.Sprintf("wrong-%d", w.serial)
			}
			w.putAt("", wrong)
			if a := w.sync(); a.status == 200 && w.model.config.credentials == wrong {
				w.fail("POST /sync with a wrong key: %d", a.status)
			}
			w.putAt("", right)
		}
	}
}

// leaveBuiltin moves something away from the built-in server: to where it cannot stand for a while or for
// good. It is answered until it stands elsewhere.
func (w *history) leaveBuiltin() func() {
	holder, to := w.holder(), w.random.IntN(5)
	there := w.keyOf(home{provider: "builtin"})
	later := w.random.IntN(2) == 0
	return func() {
		w.strict = false
		w.putAt(holder, there)
		w.furnish(holder)
		w.rest("names at the built-in server")
		next := w.keyOf(pick(w.random, w.homes[:3]))
		down := w.keyFor(next).account
		manual := func(c *modelConfig) { c.mode = "manual" }
		switch to {
		case 0: // a typo: the API may refuse it
			next = credentials{provider: "rfc2163", keyID: "-", secret: "-"}
		case 1: // nothing is there
			next = credentials{provider: "rfc2136", keyID: "key.", secret: "c2VjcmV0LXNlY3JldA==", endpoint: "127.0.0.1:1"}
		case 2:
			w.host.mu.Lock()
			down.down = unavailable
			w.host.mu.Unlock()
		case 3:
			w.putAnother(manual)()
		case 4: // it goes well
		}
		w.putAt(holder, next)
		if to != 3 {
			w.sync()
		}
		w.elapse(2 * secondLook)
		w.tally.add("moves away from the built-in server", 1)
		if later {
			w.rest("away from the built-in server")
			w.putAt(holder, w.home())
		}
	}
}

// nestBuiltin has built-in zones come and go above and below names of a built-in zone.
func (w *history) nestBuiltin() func() {
	there := w.keyOf(home{provider: "builtin"})
	inner := pick(w.random, []string{"a.example.com", "mesh.example.com", "b.example.com"})
	which := w.random.IntN(3)
	return func() {
		w.strict = false
		w.putAt("s1", there)
		w.furnish("s1")
		w.rest("names of a built-in zone")
		if id := "s4"; which < 2 {
			w.mutate(w.putService(modelService{id: id, domain: inner, credentials: there}))
			w.pauseOrSync()
			w.mutate(w.deleteService(id))
		} else {
			old := w.model.config
			w.putAnother(func(c *modelConfig) { c.domain, c.credentials = inner, there })()
			w.left[old.name()] = true
			w.pauseOrSync()
			w.putAnother(func(c *modelConfig) { c.domain, c.credentials = old.domain, old.credentials })()
		}
		w.pauseOrSync()
		w.elapse(2 * secondLook)
		w.tally.add("built-in zones that come and go", 1)
	}
}

func (w *history) pauseOrSync() {
	if w.dead() {
		w.revive()
	}
	if w.random.IntN(2) == 0 {
		w.sync()
	}
	if w.random.IntN(2) == 0 {
		w.elapse(secondLook + 50*time.Millisecond)
	}
}

// batchLate has a batch time out whose halves then succeed. It is made nevertheless, after a newer value
// stands: the newer one comes back by itself, or is not said to be published.
func (w *history) batchLate() func() {
	at := w.powerHome("pdns-one")
	mode, released := pick(w.random, []string{"manual", "auto"}), w.random.IntN(2) == 0
	return func() {
		w.strict = false
		w.putAnother(func(c *modelConfig) { c.credentials, c.mode, c.domain, c.retries = w.keyOf(at), mode, "example.com", 0 })()
		w.putAt("s1", credentials{})
		for _, prefix := range []string{"a", "b", "c"} {
			if len(w.model.usages) < mostUsages {
				w.reserve(modelUsage{service: "s1", prefix: prefix, network: w.network()})()
			}
		}
		w.rest("several names in one zone")
		all := w.firmUsages(func(f firm) bool {
			return f.at.account == at.account && len(f.usage.endpoints) == 0 && f.usage.service == "s1"
		})
		if len(all) == 0 {
			return
		}
		w.planned(fault{kind: lateBatch, write: true, batch: true, at: at.account})
		w.putAt("s1", credentials{})
		older := w.model.wishes(w.host.owner)
		w.sync()
		w.putAt("s1", credentials{})
		newer := w.model.wishes(w.host.owner)
		first, any := w.awaitNewer(newer)
		if !any {
			return
		}
		w.host.mu.Lock()
		clear(w.host.guards)
		w.host.mu.Unlock()
		began := time.Now()
		if released {
			w.releaseOfBatch(all)
			return
		}
		w.sync()
		if w.late(first) || time.Since(began) >= secondLook {
			return
		}
		w.tally.add("batches that are made after newer values", 1)
		for _, f := range all {
			if f.at.name == first.name {
				f.value = newer[f.name].options[0].value
				w.until("a late batch over a newer value is seen", func() string {
					return w.overwritten(f, older[f.name].options[0].value, f.value)
				})
			}
		}
	}
}

// awaitNewer has the late batch wait until the newest value of its first marked name stands.
func (w *history) awaitNewer(newer map[string]*wish) (first spot, any bool) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, l := range w.host.late {
		i := slices.IndexFunc(l.spots, func(s spot) bool {
			return newer[s.name] != nil && len(newer[s.name].options) > 0 && newer[s.name].name != ""
		})
		if l.once && i >= 0 {
			l.spots[0], l.spots[i] = l.spots[i], l.spots[0]
			first, any = l.spots[0], true
			l.afterNew = newer[first.name].options[0].value
		}
	}
	return first, any
}

// releaseOfBatch releases usages while a batch may still be made: their prefixes are not free before.
func (w *history) releaseOfBatch(all []firm) {
	for _, f := range all {
		if !w.dead() {
			w.mutate(w.release(f.usage, false))
		}
	}
	w.tally.add("releases while a batch may be made", 1)
}
