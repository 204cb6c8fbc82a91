package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"meshddns/test/support"
)

func (w *history) endpoints() []string {
	w.serial++
	list := []string{fmt.Sprintf("%s://203.0.113.%d:%d", pick(w.random, []string{"tcp", "tcp", "tcp", "udp", "ws", "quic"}), w.serial%250, 1000+w.serial)}
	if w.serial%3 == 0 {
		list = append(list, fmt.Sprintf("udp://[2001:db8::%x]:7", w.serial))
	}
	return list
}

// home is an account by one of its protocols; without an account the built-in server.
type home struct {
	account  *account
	provider string
}

// keyOf gives the newest key of a home that is accepted.
func (w *history) keyOf(at home) credentials {
	if at.account == nil {
		w.useDNS = true
		return credentials{provider: at.provider, keyID: "-", secret: "-"} // none that count
	}
	var newest *accessKey
	for _, key := range w.host.keys {
		if key.account == at.account && key.provider == at.provider && (newest == nil || newest.refused || !key.refused) {
			newest = key
		}
	}
	return credentials{provider: at.provider, keyID: newest.id, secret: newest.secret, endpoint: at.account.server}
}

// keyFor gives the key that credentials name, by its id alone where its secret has
// changed.
func (w *history) keyFor(c credentials) (found *accessKey) {
	for _, key := range w.host.keys {
		if key.provider == c.provider && key.id == c.keyID && (found == nil || key.secret == c.secret) {
			found = key
		}
	}
	return found
}

// current gives the newest key for the account that credentials are for, with its
// address as it is written.
func (w *history) current(c credentials) credentials {
	key := w.keyFor(c)
	if key == nil {
		return c
	}
	now := w.keyOf(home{key.account, key.provider})
	now.endpoint = c.endpoint
	return now
}

// home picks one of the first four homes, or of those that steps have added.
func (w *history) home() credentials {
	const first = 4
	at := w.homes[min(w.random.IntN(first+1), first-1)]
	if w.random.IntN(4) == 0 {
		at = w.homes[2]
	}
	if more := w.homes[first:]; len(more) > 0 && w.random.IntN(3) == 0 {
		at = pick(w.random, more)
	}
	return w.keyOf(at)
}

func (w *history) putConfig(c modelConfig) mutation {
	return mutation{
		method: "PUT", path: configPath, body: c.body(w.host.addrs), statuses: []int{200},
		apply: func(m *model, _ answer) { m.config = c },
		happened: func() (answer, bool) {
			var stored struct {
				AccessKeyID, Domain, SyncMode string
				Enabled                       bool
				Endpoints                     []string `json:"txt_endpoints"`
			}
			w.get(configPath, &stored)
			return answer{}, slices.Equal(stored.Endpoints, c.endpoints)
		},
	}
}

// putAnother puts the configuration with a change, and endpoints by which it
// is known again.
func (w *history) putAnother(change func(c *modelConfig)) func() {
	c := w.model.config
	c.endpoints = w.endpoints()
	change(&c)
	return func() { w.mutate(w.putConfig(c)) }
}

func (w *history) configureDomain() func() {
	return w.putAnother(func(c *modelConfig) {
		c.domain = pick(w.random, []string{"example.com", "example.com", "example.net", "mesh.example.com", "a.example.com"})
		c.record = pick(w.random, []string{"@", "_config", "_mesh.a", "a", "_dnsaddr.a"})
	})
}

func (w *history) configureAccount() func() {
	return w.putAnother(func(c *modelConfig) { c.credentials = w.home() })
}

func (w *history) configureEndpoints() func() {
	return w.putAnother(func(c *modelConfig) {})
}

func (w *history) configureMode() func() {
	return w.putAnother(func(c *modelConfig) {
		c.mode = pick(w.random, []string{"manual", "manual", "auto", "upsert-only", "?"})
	})
}

func (w *history) manual() bool {
	return w.model.config.mode != "auto" && w.model.config.mode != "upsert-only"
}

func (w *history) putService(v modelService) mutation {
	v.endpoints = w.endpoints()
	return mutation{
		method: "PUT", path: servicesPath + v.id, body: v.body(w.host.addrs), statuses: []int{200},
		apply: func(m *model, _ answer) { m.services[v.id] = v },
		happened: func() (answer, bool) {
			var stored struct{ Config string }
			status := w.get(servicesPath+v.id, &stored)
			return answer{}, status == 200 && strings.Contains(stored.Config, v.endpoints[0])
		},
	}
}

func (w *history) putSomeService() func() {
	id := pick(w.random, []string{"s1", "s2", "s3"})
	v, there := w.model.services[id]
	v.id = id
	if !there || !w.inUse(id) {
		v.domain = pick(w.random, []string{"example.com", "example.com", "mesh.example.com", "example.net", "a.example.com"})
	}
	if v.formats = nil; w.random.IntN(3) > 0 {
		v.formats = w.formats()
	}
	v.credentials = credentials{}
	if w.random.IntN(2) == 0 {
		v.credentials = w.home()
	}
	if there && w.inUse(id) && w.random.IntN(5) == 0 {
		return func() {
			other := v
			other.domain = "other." + v.domain
			c := w.putService(other)
			c.statuses, c.apply = []int{409}, func(*model, answer) {}
			w.mutate(c)
		}
	}
	return func() { w.mutate(w.putService(v)) }
}

func (w *history) inUse(service string) bool {
	return slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.service == service })
}

func (w *history) deleteSomeService() func() {
	if len(w.model.services) < 2 {
		return nil
	}
	id := w.someService()
	c := w.deleteService(id)
	if w.inUse(id) {
		c.statuses, c.apply = []int{409}, func(*model, answer) {}
		if slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.releasing }) {
			return nil
		}
	}
	return func() { w.mutate(c) }
}

func (w *history) deleteService(id string) mutation {
	return mutation{
		method: "DELETE", path: servicesPath + id, statuses: []int{200},
		apply:    func(m *model, _ answer) { delete(m.services, id) },
		happened: func() (answer, bool) { return answer{}, w.get(servicesPath+id, &struct{}{}) == 404 },
	}
}

func (w *history) someService() string {
	return pick(w.random, slices.Sorted(maps.Keys(w.model.services)))
}

func (w *history) network() uint64 {
	return pick(w.random, []uint64{0, 1, 1, 2, 42, 1<<64 - 1})
}

const mostUsages = 6

func (w *history) reserveCustom() func() {
	if len(w.model.usages) >= mostUsages || len(w.model.services) == 0 {
		return nil
	}
	return w.reserve(modelUsage{service: w.someService(), prefix: pick(w.random, []string{"a", "b", "A", "c", "mesh"}), network: w.network()})
}

func (w *history) reserveAuto() func() {
	if len(w.model.usages) >= mostUsages || len(w.model.services) == 0 {
		return nil
	}
	u := modelUsage{service: w.someService(), network: w.network(), auto: true}
	u.prefix = automaticPrefix(u.network)
	return w.reserve(u)
}

// reserve asks for a prefix, which may be taken.
func (w *history) reserve(u modelUsage) func() {
	c := w.reservation(u)
	return func() {
		w.mutate(c)
		w.forget()
		if w.random.IntN(2) == 0 && !w.dead() {
			w.changeTo(u)
		}
	}
}

func (w *history) reservation(u modelUsage) mutation {
	body := map[string]any{"service_id": u.service, "prefix_mode": "auto", "network_id": u.network}
	statuses := []int{200}
	if !u.auto {
		body["prefix_mode"], body["custom_prefix"] = "custom", u.prefix
		for _, other := range w.model.usages {
			if other.service == u.service && strings.EqualFold(other.prefix, u.prefix) {
				statuses = []int{400}
				if other.releasing {
					statuses = []int{200, 400}
				}
			}
		}
	}
	c := mutation{
		method: "POST", path: usagesPath, body: jsonText(body), statuses: statuses,
		apply: func(m *model, a answer) {
			u.id = a.field("id")
			u.waits = m.findsTaken(u)
			m.usages = append(m.usages, u)
		},
		happened: func() (answer, bool) { return w.reserved(u) },
	}
	if statuses[0] == 400 {
		c.apply = func(*model, answer) {}
	}
	c, u.tenant = w.by(u.service, c)
	return c
}

// reserved looks for a reservation whose answer was lost.
func (w *history) reserved(u modelUsage) (answer, bool) {
	for _, l := range w.listed() {
		known := slices.ContainsFunc(w.model.usages, func(m modelUsage) bool { return m.id == l.ID })
		if !known && l.Service == u.service && l.Prefix == u.prefix && l.Network == u.network {
			return answer{body: jsonText(map[string]any{"data": map[string]any{"id": l.ID}})}, true
		}
	}
	return answer{}, false
}

// changeTo gives the usage that was just reserved endpoints of its own.
func (w *history) changeTo(u modelUsage) {
	for _, m := range w.model.usages {
		if m.service == u.service && m.prefix == u.prefix && !m.releasing && len(m.endpoints) == 0 {
			w.mutate(w.patch(m.id))
			return
		}
	}
}

func (w *history) patch(id string) mutation {
	return w.change(id, w.endpoints(), nil, func(*modelUsage) {})
}

// change changes members of a usage, with endpoints by which it is known again.
func (w *history) change(id string, endpoints []string, members map[string]any, apply func(u *modelUsage)) mutation {
	body := map[string]any{"txt_endpoints": endpoints}
	maps.Copy(body, members)
	return mutation{
		method: "PATCH", path: usagesPath + "/" + id, body: jsonText(body), statuses: []int{200},
		apply: func(m *model, _ answer) {
			i := slices.IndexFunc(m.usages, func(u modelUsage) bool { return u.id == id })
			m.usages[i].endpoints = endpoints
			apply(&m.usages[i])
		},
		happened: func() (answer, bool) {
			var stored struct {
				Endpoints []string `json:"txt_endpoints"`
			}
			w.get(usagesPath+"/"+id, &stored)
			return answer{}, slices.Equal(stored.Endpoints, endpoints)
		},
	}
}

// someUsage picks one that is not on its way out.
func (w *history) someUsage() (modelUsage, bool) {
	active := slices.DeleteFunc(slices.Clone(w.model.usages), func(u modelUsage) bool { return u.releasing })
	if len(active) == 0 {
		return modelUsage{}, false
	}
	return pick(w.random, active), true
}

func (w *history) changeEndpoints() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	return func() { w.mutate(w.patch(u.id)) }
}

func (w *history) releaseOne() func() { return w.releaseSome(false) }
func (w *history) forceOne() func()   { return w.releaseSome(true) }

func (w *history) releaseSome(force bool) func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	return func() { w.mutate(w.release(u, force)) }
}

// release gives a prefix back. Answered 202 it is still occupied.
func (w *history) release(u modelUsage, force bool) mutation {
	path, statuses := usagesPath+"/"+u.id, []int{200, 202}
	if force {
		path, statuses = path+"?force=1", []int{200}
	}
	if u.releasing {
		statuses = []int{200, 202, 404}
	}
	name := w.model.name(u)
	var freed func()
	if !force && !u.releasing {
		freed = func() { w.freed(u, name) }
	}
	c, _ := w.by(u.service, mutation{
		method: "DELETE", path: path, statuses: statuses, freed: freed,
		apply: func(m *model, a answer) {
			i := slices.IndexFunc(m.usages, func(m modelUsage) bool { return m.id == u.id })
			if m.usages[i].releasing = true; a.status == 200 {
				m.usages = slices.Delete(m.usages, i, i+1)
			}
		},
		happened: func() (answer, bool) {
			var stored struct{ Status string }
			if w.get(usagesPath+"/"+u.id, &stored) == 404 {
				return answer{status: 200}, true
			}
			return answer{status: 202}, stored.Status == "releasing"
		},
	})
	return c
}

// rotateKey gives an account a second key and has it used; the first may be
// refused from then on.
func (w *history) rotateKey() func() {
	old := w.model.config.credentials
	key := w.keyFor(old)
	if key == nil || key.refused || old.provider == powerFront.provider { // which has one key a server
		return nil
	}
	id := fmt.Sprintf("%s-key%d", key.account.name, len(w.host.keys)+1)
	ends := w.random.IntN(3)
	next := credentials{old.provider, id, secretMark + id + ".", old.endpoint}
	put := w.putAnother(func(c *modelConfig) { c.credentials = next })
	return func() {
		w.host.addKey(key.account, old.provider, id, next.secret)
		w.host.mu.Lock()
		key.refused = ends == 0
		w.host.mu.Unlock()
		put()
		if ends == 1 {
			w.host.mu.Lock()
			key.refused = true
			w.host.mu.Unlock()
		}
	}
}

// changeSecret gives a key another secret; a client with the old one is refused.
func (w *history) changeSecret() func() {
	c := w.model.config.credentials
	key := w.keyFor(c)
	shared := slices.ContainsFunc(slices.Collect(maps.Values(w.model.services)), func(v modelService) bool { return v.keyID == c.keyID })
	if key == nil || key.refused || key.respelled || key.account.nameless || c.provider != bridgeFront.provider || shared {
		return nil
	}
	c.secret = fmt.Sprintf("%s%s-%d.", secretMark, c.keyID, w.serial)
	put := w.putAnother(func(m *modelConfig) { m.credentials = c })
	set := func(secret string) {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		key.secret = secret
	}
	return func() {
		old := key.secret
		set(c.secret)
		key.changed = true
		if put(); w.model.config.secret != c.secret { // a kill was faster: its owner takes it back
			set(old)
		}
	}
}

func (w *history) refuseKey() func() {
	key := pick(w.random, w.host.keys)
	return func() {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		key.refused = !key.refused
		w.say("  %s refused: %t", key.id, key.refused)
	}
}

// changeZone makes a zone in an account, or removes one with all in it.
func (w *history) changeZone() func() {
	a := pick(w.random, w.host.accounts)
	zone := pick(w.random, []string{"mesh.example.com", "mesh.example.com", "a.example.com", "b.mesh.example.com", "example.net", "example.com"})
	return func() {
		if a.zones[zone] != nil {
			w.removeZone(a, zone)
			return
		}
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		w.say("  %s has %s", a.name, zone)
		a.zones[zone] = map[string][]standing{}
	}
}

// removeZone removes a zone with all that is in it.
func (w *history) removeZone(a *account, zone string) {
	hidden := slices.DeleteFunc(slices.Concat(w.scan(w.mine), w.siblings()), func(f found) bool { return f.account != a || f.zone == zone || !w.shadowed(a, f.zone, f.name) })
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.say("  %s has %s no more", a.name, zone)
	delete(a.zones, zone)
	for _, f := range hidden { // which the program could not see, and has forgotten
		w.host.remove(spot{a, f.zone, f.name}, f.text)
		w.tampered[f.name] = true
		w.say("  the operator removes %s", f)
	}
	w.host.late = slices.DeleteFunc(w.host.late, func(l *lateWrite) bool { return l.spots[0].account == a && l.spots[0].zone == zone })
	for at := range w.foreign {
		if at.account == a && at.zone == zone {
			delete(w.foreign, at)
		}
	}
	clear(w.host.guards) // a value may have gone with its zone
}

// tamper takes a value of ours away, changes it, or puts another beside it.
func (w *history) tamper() func() {
	if w.random.IntN(3) == 0 {
		if take := w.tamperUnmarked(); take != nil {
			return take
		}
	}
	all := slices.DeleteFunc(w.scan(w.mine), func(f found) bool {
		return !slices.Contains(w.before, f) || f.account == nil || f.account.zones[f.zone] == nil
	})
	if len(all) == 0 {
		return nil
	}
	f, choice := pick(w.random, all), w.random.IntN(3)
	return func() {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		at := spot{f.account, f.zone, f.name}
		w.tampered[f.name] = true
		clear(w.host.guards)
		if choice < 2 {
			w.host.remove(at, f.text)
		}
		if wish := w.model.wishes(w.host.owner)[f.name]; choice > 0 && wish != nil && len(wish.options) > 0 {
			w.serial++
			text := meshValue(f.network, w.host.owner, nil) + tampering + fmt.Sprint(w.serial)
			w.planted[text] = true
			w.host.add(at, text)
		}
		w.say("  %s tampered with, now %q", at, texts(w.host.values(at)))
	}
}

// tamperUnmarked takes a value of ours without a mark away.
func (w *history) tamperUnmarked() func() {
	all := slices.DeleteFunc(w.siblings(), func(f found) bool { return f.account == nil })
	if len(all) == 0 {
		return nil
	}
	f := pick(w.random, all)
	return func() {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		w.tampered[f.name] = true
		clear(w.host.guards)
		w.host.remove(spot{f.account, f.zone, f.name}, f.text)
		w.say("  %s is taken away", f)
	}
}

// someSpot gives a name in a zone of some account.
func (w *history) someSpot() spot {
	wishes := w.model.wishes(w.host.owner)
	names := append(slices.Sorted(maps.Keys(wishes)), "_mesh.a.example.com", "example.com")
	for name := range w.wantedSiblings(wishes) {
		names = append(names, name)
	}
	slices.Sort(names)
	for {
		a, name := pick(w.random, w.host.accounts), pick(w.random, names)
		if zone := a.zoneOf(name); zone != "" {
			return spot{a, zone, name}
		}
		if w.random.IntN(20) == 0 {
			return spot{}
		}
	}
}

func (w *history) addForeign(at spot, text string) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.add(at, text)
	delete(w.host.stale, at) // no client could see it
	w.foreign[at] = append(w.foreign[at], text)
	w.say("  another program adds %q at %s", text, at)
}

func (w *history) removeForeign(at spot, text string) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.remove(at, text)
	w.foreign[at] = slices.DeleteFunc(w.foreign[at], func(v string) bool { return v == text })
	w.say("  another program removes %q at %s", text, at)
}

func (w *history) foreignComes() func() {
	at := w.someSpot()
	if at.account == nil {
		return nil
	}
	text := w.foreignData(at.name)
	return func() { w.addForeign(at, text) }
}

func (w *history) someForeign() (at spot, text string, found bool) {
	for at, values := range w.foreign {
		if len(values) > 0 && (!found || at.String() < text) {
			text, found = at.String(), true
		}
	}
	for at, values := range w.foreign {
		if found && at.String() == text {
			return at, values[0], true
		}
	}
	return at, "", false
}

func (w *history) foreignGoes() func() {
	at, text, found := w.someForeign()
	if !found {
		return nil
	}
	return func() { w.removeForeign(at, text) }
}

const otherOwner = "0123456789ab"

// otherMesh puts a value of another appliance at a name.
func (w *history) otherMesh() func() {
	at := w.someSpot()
	if w.random.IntN(2) == 0 {
		at = w.someWanted()
	}
	if at.account == nil || kindOf(at.name) != "TXT" {
		return nil
	}
	w.serial++
	return func() { w.addForeign(at, fmt.Sprintf("v=mesh1 n=7 o=%s tcp://192.0.2.7:%d", otherOwner, w.serial)) }
}

// adopt takes the values of the other appliance over, of which one may have a
// name that is wanted.
func (w *history) adopt() func() {
	if w.model.adopted[otherOwner] || w.equal { // then values of others that are wanted count as ours
		return nil
	}
	at := w.someWanted()
	w.serial++
	text := fmt.Sprintf("v=mesh1 n=7 o=%s tcp://192.0.2.7:%d", otherOwner, w.serial)
	return func() {
		if at.account != nil {
			w.addForeign(at, text)
		}
		w.mutate(mutation{
			method: "POST", path: "/api/v1/ddns/adopt", body: jsonText(map[string]string{"owner": otherOwner}), statuses: []int{200},
			apply:    func(m *model, _ answer) { m.adopted[otherOwner] = true },
			happened: func() (answer, bool) { return w.adoptAgain() },
		})
	}
}

// someWanted gives a place in an account where a value is wanted.
func (w *history) someWanted() spot {
	wishes := w.model.wishes(w.host.owner)
	names := slices.Sorted(maps.Keys(wishes))
	w.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		for _, o := range wishes[name].options {
			if f, reachable := w.locate(o, name); reachable && f.account != nil {
				return spot{f.account, f.zone, name}
			}
		}
	}
	return spot{}
}

// adoptAgain asks once more: adoption can be repeated.
func (w *history) adoptAgain() (answer, bool) {
	a, err := w.ask("POST", "/api/v1/ddns/adopt", jsonText(map[string]string{"owner": otherOwner}))
	return a, err == nil && a.status == 200
}

func (w *history) backup() func() {
	return func() {
		a, err := w.p.try("GET", "/api/v1/ddns/backup", "")
		if err != nil { // killed
			return
		}
		file := filepath.Join(w.dir, "backup.db")
		if a.status != 200 || os.WriteFile(file, []byte(a.body), 0o600) != nil {
			w.fail("backup: %d", a.status)
		}
		w.saved = &snapshot{file: file, model: w.model.clone(), standing: map[string]bool{}, crowd: w.many.clone()}
		for _, f := range w.before {
			w.saved.standing[f.String()] = true
		}
	}
}

// outdateKeys notes the keys of which the restored database has an older secret: with it the program withdraws nothing.
func (w *history) outdateKeys() {
	known := []credentials{w.model.config.credentials}
	for _, v := range w.model.services {
		known = append(known, v.credentials)
	}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, key := range w.host.keys {
		for _, c := range known {
			key.outdated = key.outdated || c.provider == key.provider && c.keyID == key.id && c.secret != key.secret
		}
	}
}

// restore puts the backup in the place of the database, and has the orphans
// swept. Those at places that the backup does not know, or that no list
// shows, are removed by the operator.
func (w *history) restore() func() {
	if w.saved == nil {
		return nil
	}
	return func() {
		w.goBack(w.removeUnmarked)
	}
}

// removeUnmarked removes the values without a mark that the backup does not know.
func (w *history) removeUnmarked() {
	for _, f := range w.siblings() {
		if f.account != nil && !w.saved.standing[f.String()] {
			w.host.mu.Lock()
			w.host.remove(spot{f.account, f.zone, f.name}, f.text)
			w.host.mu.Unlock()
			w.say("  the operator removes %s", f)
		}
	}
}

// goBack has the program go on from the backup. What no sweep can find the operator removes, values without a mark as the step says.
func (w *history) goBack(unmarked func()) {
	w.kill()
	w.host.mu.Lock()
	for len(w.host.late) > 0 {
		l := w.host.late[0]
		w.host.late = w.host.late[1:]
		l.apply()
	}
	clear(w.host.guards)
	w.host.mu.Unlock()
	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(w.db + suffix)
	}
	if err := copyFile(w.saved.file, w.db); err != nil {
		w.fail("restore: %v", err)
	}
	w.model, w.many = w.saved.model.clone(), w.saved.crowd.clone()
	w.outdateKeys()
	unmarked()
	w.removeUnknown()
	w.before = slices.Concat(w.scan(w.mine), w.siblings())
	w.strict, w.sweep = false, true
	w.start()
}

// removeUnknown removes the values with a mark that no sweep can find after a backup was restored.
func (w *history) removeUnknown() {
	seen := map[string]bool{}     // zones that are listed, names that are read
	places := map[spot]*account{} // by zone and name
	for name, wish := range w.model.wishes(w.host.owner) {
		for _, o := range wish.options {
			at, reachable := w.locate(o, name)
			if !reachable || at.account == nil {
				continue
			}
			seen[at.account.name+"/"+at.zone+"/"+name] = true
			places[spot{nil, at.zone, name}] = at.account
			if at.account.lists {
				seen[at.account.name+"/"+at.zone] = true
			}
		}
	}
	for _, f := range w.scan(w.mine) {
		elsewhere := places[spot{nil, f.zone, f.name}] // in what may be the same zone, for all that their providers say
		unsure := elsewhere != nil && f.account != nil && elsewhere != f.account && elsewhere.provider != f.account.provider
		if f.account == nil || w.saved.standing[f.String()] || !unsure && (seen[f.account.name+"/"+f.zone] || seen[f.account.name+"/"+f.zone+"/"+f.name]) {
			continue
		}
		w.host.mu.Lock()
		w.host.remove(spot{f.account, f.zone, f.name}, f.text)
		w.host.mu.Unlock()
		w.say("  the operator removes %s", f)
	}
}

// accountOf gives the account of a leftover, nil where its words leave that open.
func (w *history) accountOf(l leftover) (a *account) {
	for _, key := range w.host.keys {
		switch {
		case key.provider != l.Provider || key.id != l.AccessKeyID:
		case a != nil && a != key.account:
			return nil
		default:
			a = key.account
		}
	}
	return a
}

// forgetLeftover removes a leftover by hand, and has it forgotten.
func (w *history) forgetLeftover() func() {
	var all []leftover
	w.get(leftoversPath, &all)
	all = slices.DeleteFunc(all, func(l leftover) bool { return w.accountOf(l) == nil || inCrowd(l.Name) }) // the built-in server is the program itself
	if len(all) == 0 {
		return nil
	}
	l := pick(w.random, all)
	return func() {
		account := w.accountOf(l)
		for _, f := range slices.Concat(w.scan(w.mine), w.siblings()) {
			old := f.text == l.Value || w.planted[f.text] || strings.Contains(l.Name, " ")
			if old && f.account == account && f.name == spotName(l.Name) && strings.Contains(l.Name, " ") == (f.network == "" && !w.mine(f.text)) && (l.Zone == "" || f.zone == l.Zone) {
				w.host.mu.Lock()
				w.host.remove(spot{f.account, f.zone, f.name}, f.text)
				clear(w.host.guards)
				w.host.mu.Unlock()
				w.tampered[f.name] = true
			}
		}
		a, err := w.ask("DELETE", leftoversPath+"/"+l.ID, "")
		if err != nil {
			w.revive()
			a, err = w.ask("DELETE", leftoversPath+"/"+l.ID, "")
		}
		if err != nil || a.status != 200 && a.status != 404 {
			w.fail("forget a leftover: %d %v", a.status, err)
		}
	}
}

// orphan puts a value of ours where nothing is known of it. A pass reports it
// and leaves it, a sweep withdraws it.
func (w *history) orphan() func() {
	config := w.model.config
	at, reachable := w.locate(option{credentials: config.credentials}, config.name())
	if !reachable || at.account == nil || !at.account.lists || w.taken(at) || !w.manual() {
		return nil
	}
	return func() {
		w.strict, w.sweep = false, true
		w.serial++ // at a name that no earlier orphan has made known
		name := spot{at.account, at.zone, fmt.Sprintf("_mesh.orphan%d.%s", w.serial, at.zone)}
		w.host.mu.Lock()
		w.host.add(name, meshValue("9", w.host.owner, nil))
		w.host.plan = nil
		w.host.mu.Unlock()
		a, err := w.ask("POST", syncPath, "")
		if err != nil {
			return
		}
		var report syncReport
		w.get(syncPath, &report)
		there := slices.ContainsFunc(w.scan(w.mine), func(f found) bool { return f.account == at.account && f.name == name.name })
		if report.Counts["orphan"] != 1 || !there {
			w.fail("an orphan at %s: answer %d, counts %v, there %t", name, a.status, report.Counts, there)
		}
	}
}

// disable stops everything: POST /sync fails, and nothing is written.
func (w *history) disable() func() {
	if !w.manual() {
		return nil
	}
	off := w.putAnother(func(c *modelConfig) { c.enabled = false })
	change := w.changeEndpoints()
	return func() {
		off()
		if w.model.config.enabled { // killed before it was stored
			return
		}
		if change != nil {
			change()
		}
		writes := w.writes()
		if a, err := w.ask("POST", syncPath, ""); err != nil {
			w.revive()
		} else if a.status != 500 || w.writes() != writes {
			w.fail("POST /sync while disabled: %d, %d writes", a.status, w.writes()-writes)
		}
		w.mutate(w.putConfig(w.enabled()))
		for !w.model.config.enabled {
			w.mutate(w.putConfig(w.enabled()))
		}
	}
}

func (w *history) enabled() modelConfig {
	c := w.model.config
	c.enabled, c.endpoints = true, w.endpoints()
	return c
}

func (w *history) writes() int {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.writes
}

// dryRun changes something, and asks what a pass would do.
func (w *history) dryRun() func() {
	choice := w.choiceNamed(pick(w.random, []string{"change endpoints", "configure another account", "reserve", "ours is tampered with"}))
	change := choice.prepare(w)
	if !w.manual() || change == nil {
		return nil
	}
	return func() {
		w.elapse(secondLook + 50*time.Millisecond)
		idle := w.isIdle()
		change()
		if w.dead() {
			return
		}
		writes := w.writes()
		if _, err := w.ask("POST", syncPath+"?dry_run=1", ""); err == nil && idle && w.writes() != writes {
			w.fail("a dry run has written")
		}
		if idle {
			w.tally.add("dry runs while nothing else works", 1)
		}
	}
}

// isIdle reports whether no name is due: a second look may withdraw a value, and the end of a pass may leave work.
func (w *history) isIdle() bool {
	db := support.OpenSQLite(w.t, w.db, "mode=ro&_busy_timeout=5000")
	defer db.Close()
	var due int
	if err := db.QueryRow(`SELECT count(*) FROM names WHERE due IS NOT NULL OR look IS NOT NULL`).Scan(&due); err != nil {
		w.t.Error(err)
	}
	return due == 0
}

func (w *history) choiceNamed(name string) historyChoice {
	i := slices.IndexFunc(historyChoices, func(c historyChoice) bool { return c.name == name })
	return historyChoices[max(i, 0)]
}

// restart ends the program in good order.
func (w *history) restart() func() {
	return func() {
		w.stop()
		w.start()
	}
}
