package e2e

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Steps about accounts: one zone that is reached in several ways, and several that
// look like one.

const twoSpellings = "two spellings of one endpoint"

// reput puts the configuration or a service once more, with other credentials.
// change says what they are to be, and whether they can be changed.
func (w *history) reput(change func(c credentials) (credentials, bool)) func() {
	var puts []func()
	if c, ok := change(w.model.config.credentials); ok {
		puts = append(puts, func() { w.putAt("", c) })
	}
	for _, id := range slices.Sorted(maps.Keys(w.model.services)) {
		if c, ok := change(w.model.services[id].credentials); ok {
			puts = append(puts, func() { w.putAt(id, c) })
		}
	}
	if len(puts) == 0 {
		return nil
	}
	return pick(w.random, puts)
}

// putAt puts a service with credentials, or the configuration for "".
func (w *history) putAt(service string, c credentials) {
	w.remember()
	if service == "" {
		w.putAnother(func(m *modelConfig) { m.credentials = c })()
		return
	}
	v := w.model.services[service]
	if v.id == "" {
		v = modelService{id: service, domain: "example.com", formats: w.formats()}
	}
	v.credentials = c
	w.mutate(w.putService(v))
}

// holder picks what is put at an account: the configuration, or a service that has
// or gets a usage.
func (w *history) holder() string { return pick(w.random, []string{"", "s1", "s2", "s3"}) }

// furnish has a service hold a prefix, if there is room for one.
func (w *history) furnish(service string) {
	if service == "" || w.model.services[service].id == "" || w.inUse(service) || len(w.model.usages) >= mostUsages {
		return
	}
	w.reserve(modelUsage{service: service, prefix: pick(w.random, []string{"a", "b", "c"}), network: w.network()})()
}

// opened gives the account of a name, made when it is first asked for. Its homes are
// there for other steps from then on.
func (w *history) opened(name, provider string, made func(a *account)) *account {
	for _, a := range w.host.accounts {
		if a.name == name {
			return a
		}
	}
	a := w.host.open(provider, name, "example.com", "example.net")
	w.host.mu.Lock()
	a.lists = true
	w.host.mu.Unlock()
	made(a)
	for _, key := range w.host.keys {
		if at := (home{a, key.provider}); key.account == a && !slices.Contains(w.homes, at) {
			w.homes = append(w.homes, at)
		}
	}
	return a
}

// respell writes the address of an account in another way: it stays the same zone.
func (w *history) respell() func() {
	put := w.reput(func(c credentials) (credentials, bool) {
		at, err := url.Parse(c.address(w.host.addrs))
		key := w.keyFor(c)
		if err != nil || at.Host == "" || key == nil || key.changed {
			return c, false
		}
		key.respelled = true
		others := []string{
			"http://127.0.0.1:" + at.Port(), "http://127.0.0.1:" + at.Port() + "/", "http://localhost:" + at.Port(),
			"http://LocalHost:" + at.Port() + "/", "HTTP://127.0.0.1:" + at.Port(),
		}
		others = slices.DeleteFunc(others, func(o string) bool { return o == c.address(w.host.addrs) })
		c.endpoint = pick(w.random, others)
		return c, true
	})
	if put == nil {
		return nil
	}
	return func() {
		put()
		w.sweepTwice()
	}
}

// sweepTwice has rest asked for with a sweep, and once more after the second look:
// neither may find anything where only one way to a zone has changed.
func (w *history) sweepTwice() {
	w.sweep, w.strict = true, false
	w.checks = append(w.checks, w.noTraces)
	w.after = func() {
		w.looked()
		w.rest("the second look")
	}
}

// noTraces wants nothing listed as left, and nothing reported as an orphan, that is
// wanted where it stands.
func (w *history) noTraces(s *spotted, report syncReport) {
	wanted := func(name, zone, value string) bool {
		wish := s.wishes[strings.ToLower(name)]
		return wish != nil && slices.ContainsFunc(wish.options, func(o option) bool {
			at, reachable := w.locate(o, strings.ToLower(name))
			return reachable && o.value == value && at.zone == zone && !w.taken(at)
		})
	}
	for _, r := range report.Records {
		if r.Action == "orphan" && wanted(r.Name, r.Zone, r.Value) {
			s.say("%s is reported as an orphan, and is wanted: %q", r.Name, r.Value)
		}
	}
	for _, l := range s.leftovers {
		if a := w.accountOf(l); a != nil && w.open(a) && w.model.config.mode != "upsert-only" && wanted(l.Name, l.Zone, l.Value) {
			s.say("%s is a leftover, and is wanted: %q", l.Name, l.Value)
		}
	}
}

// looked waits until no place is to be looked at once more soon. Where that fails it is
// made again much later.
func (w *history) looked() {
	w.t.Helper()
	w.until("the second looks", func() string {
		now := time.Now()
		if n := w.count(`SELECT count(*) FROM places WHERE look_at BETWEEN ? AND ?`, now.Add(-restLimit/3).UnixMilli(), now.Add(time.Minute).UnixMilli()); n > 0 {
			return "places are to be looked at"
		}
		return ""
	})
}

// moveWithinVendor moves something from one protocol of an account to the other: the
// zones are the same.
func (w *history) moveWithinVendor() func() {
	a := w.opened("pod", tencentFront.provider, func(a *account) {
		w.host.addKey(a, tencentFront.provider, "AKIDpod", secretMark+"pod-tc.")
		w.host.addKey(a, podFront.provider, "730060", secretMark+"pod-dp.")
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		w.host.listen(podFront, true)
	})
	first, second := home{a, tencentFront.provider}, home{a, podFront.provider}
	if w.random.IntN(2) == 0 {
		first, second = second, first
	}
	return w.moveBetween(w.holder(), first, second, w.sweepTwice)
}

// moveBetween puts something at one home, comes to rest, and moves it to another.
func (w *history) moveBetween(holder string, first, second home, then func()) func() {
	return func() {
		w.putAt(holder, w.keyOf(first))
		w.furnish(holder)
		w.strict = false
		w.rest("the first home")
		w.putAt(holder, w.keyOf(second))
		then()
	}
}

// shareID has two services publish at two accounts whose keys have one id.
func (w *history) shareID() func() {
	one, two := w.token("tok-one"), w.token("tok-two")
	return func() {
		w.putAt("s2", w.keyOf(one))
		w.furnish("s2")
		w.putAt("s3", w.keyOf(two))
		w.furnish("s3")
	}
}

// token gives a home whose key's id is the same word for all accounts.
func (w *history) token(name string) home {
	a := w.opened(name, bridgeFront.provider, func(a *account) {
		w.host.addKey(a, bridgeFront.provider, "token", secretMark+name+".")
	})
	return home{a, a.provider}
}

// wrongSecret gives a service a secret that nothing accepts, and perhaps the right one
// again. What else has a key of that id is not concerned.
func (w *history) wrongSecret() func() {
	share := w.shareID()
	id, own := "s2", w.token("tok-one")
	if w.random.IntN(2) == 0 {
		id, own = "s3", w.token("tok-two")
	}
	again := w.random.IntN(3) == 0
	return func() {
		if w.model.services["s2"].keyID != "token" || w.model.services["s3"].keyID != "token" {
			share()
			w.rest("two keys with one id")
		}
		w.serial++
		w.strict = false
		w.putAt(id, credentials{provider: bridgeFront.provider, keyID: "token", secret: secretMark + fmt.Sprintf("wrong-%d.", w.serial)})
		if again {
			w.rest("a wrong secret")
			w.putAt(id, w.keyOf(own))
		}
	}
}

// nameless gives a home at an account that tells no ids of its zones.
func (w *history) namelessHome(name string) *account {
	return w.opened(name, bridgeFront.provider, func(a *account) {
		w.host.addKey(a, a.provider, name+"-key1", secretMark+name+"-key1.")
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		a.nameless = true
	})
}

// sameNamelessZones moves something between two keys of one account, which tells
// nothing of its zones but what is in them.
func (w *history) sameNamelessZones() func() {
	a := w.namelessHome("blind")
	var ids []string
	for _, key := range w.host.keys {
		if key.account == a {
			ids = append(ids, key.id)
		}
	}
	if len(ids) < 2 {
		w.host.addKey(a, a.provider, "blind-key2", secretMark+"blind-key2.")
		ids = append(ids, "blind-key2")
	}
	from, to, holder := ids[0], ids[1], w.holder()
	if w.random.IntN(2) == 0 {
		from, to = to, from
	}
	return func() {
		w.putAt(holder, w.pair(a.provider, from))
		w.furnish(holder)
		w.strict = false
		w.rest("the first key")
		w.putAt(holder, w.pair(a.provider, to))
	}
}

// pair gives the credentials of a key id.
func (w *history) pair(provider, id string) credentials {
	c := credentials{provider: provider, keyID: id}
	c.secret = w.keyFor(c).secret
	return c
}

// otherNamelessZones moves something between two accounts that have zones of one name,
// and tell nothing of them but what is in them.
func (w *history) otherNamelessZones() func() {
	first, second := w.namelessHome("dim-one"), w.namelessHome("dim-two")
	if w.random.IntN(2) == 0 {
		first, second = second, first
	}
	return w.moveBetween(w.holder(), home{first, first.provider}, home{second, second.provider}, func() {})
}

// moveBetweenServers moves something between two servers of one program, which have
// zones of one name and keys of one id.
func (w *history) moveBetweenServers() func() {
	first, second := w.powerHome("pdns-one"), w.powerHome("pdns-two")
	if w.random.IntN(2) == 0 {
		first, second = second, first
	}
	return w.moveBetween(w.holder(), first, second, func() {})
}

// powerHome gives a PowerDNS server: the first at the common address.
func (w *history) powerHome(name string) home {
	a := w.opened(name, powerFront.provider, func(a *account) {
		w.host.addKey(a, a.provider, "localhost", secretMark+name+".")
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		if name != "pdns-one" {
			a.server = w.host.listen(powerFront, false)
		}
	})
	return home{a, a.provider}
}
