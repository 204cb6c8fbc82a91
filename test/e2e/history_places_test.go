package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/cloudtest"
	"meshddns/test/contract"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// Visits of every kind of provider, at the end of each history: at real servers, at the stand-ins for the vendors, and
// at the built-in server. They have no late writes and no old views, which the providers of the history have.

const (
	visits     = 4 // by one history, so a few of them visit every place
	visitSteps = 8
	visitZone  = cloudtest.Zone
	visitor    = "visitor" // the service
)

// place is a provider to publish at.
type place struct {
	credentials
	outside contract.Outside
	cloud   *cloudtest.Cloud // nil for a real server
}

// placeNames are all places.
func placeNames() []string {
	return append(cloudtest.Names(), "builtin", "BIND", "Knot", "PowerDNS", "PowerDNS API")
}

// openPlace starts what is at a place, until the test ends.
func (w *history) openPlace(t *testing.T, name string) place {
	signed := func(s servertest.Server) place {
		return place{credentials: credentials{"rfc2136", servertest.Key, servertest.Secret, s.Addr}, outside: s}
	}
	switch name {
	case "builtin":
		return place{credentials: credentials{"builtin", "-", "-", ""}, outside: builtinOutside{w}}
	case "BIND":
		return signed(servertest.BIND(t))
	case "Knot":
		return signed(servertest.Knot(t))
	case "PowerDNS":
		return signed(servertest.PowerDNS(t))
	case "PowerDNS API":
		s := servertest.PowerDNS(t)
		return place{credentials: credentials{"powerdns", "localhost", s.APIKey, s.API}, outside: s}
	}
	c := cloudtest.Start(t, name)
	return place{credentials{c.Provider, c.AccessKeyID, c.AccessKeySecret, c.URL}, c, c}
}

// visit is a history at a place.
type visit struct {
	*history
	at      place
	foreign map[string][]string // values of another program by name
	held    map[string]*holding // by prefix
}

// holding is a reserved prefix.
type holding struct {
	id, endpoint string
	network      uint64
}

// visit reserves, changes and releases at random at a place, while another program adds and removes values at the same
// names, values of ours too, and a cloud fails now and then. After each step every name has the values of the other
// program, and of ours what is reserved.
func (w *history) visit(name string) {
	all := w.t
	defer func() { w.t = all }()
	all.Run(name, func(t *testing.T) {
		w.t = t
		w.say("-- visit of %s", name)
		v := &visit{history: w, at: w.openPlace(t, name), foreign: map[string][]string{}, held: map[string]*holding{}}
		v.ask(200, "PUT", servicesPath+visitor, modelService{id: visitor, domain: visitZone, credentials: v.at.credentials}.body(nil))
		for range visitSteps {
			w.keepTerm()
			v.check(v.step())
		}
		w.keepTerm()
		v.leave()
		w.tally.add("visits of "+name, 1)
	})
}

// ask makes a request that is answered with a status, without the secret.
func (v *visit) ask(status int, method, path, body string) answer {
	v.t.Helper()
	a, err := v.history.ask(method, path, body)
	if err != nil || a.status != status {
		v.fail("%s %s: %v %d %s, want %d", method, path, err, a.status, a.body, status)
	}
	if len(v.at.secret) > 3 && strings.Contains(a.body, v.at.secret) {
		v.fail("the secret is in an answer: %s", a.body)
	}
	return a
}

// step does one thing at random, and gives its name.
func (v *visit) step() string {
	v.t.Helper()
	broken := v.at.cloud != nil && v.random.IntN(4) == 0
	if broken {
		for range v.random.IntN(6) {
			v.at.cloud.Fail(cloudtest.Pass)
		}
		v.at.cloud.Fail(pick(v.random, []cloudtest.Fault{cloudtest.Throttle, cloudtest.Reset, cloudtest.Lost, cloudtest.Cut}))
	}
	name, do := v.choose()
	do()
	if broken {
		v.sync()
		v.checkForeign(name + " at a cloud that fails")
		v.at.cloud.FailNoMore()
		name += " after the cloud failed"
	}
	v.ask(200, "POST", syncPath, "")
	return name
}

var visitPrefixes = []string{"x", "y"}

func visitName(prefix string) string { return "_mesh." + prefix + "." + visitZone }

func (v *visit) choose() (name string, do func()) {
	prefix := pick(v.random, visitPrefixes)
	held, at := v.held[prefix], visitName(pick(v.random, visitPrefixes))
	switch choice := v.random.IntN(8); {
	case choice < 3 && held == nil:
		return "reserve", func() { v.reserve(prefix) }
	case choice < 2:
		return "change", func() { held.endpoint = v.changed(held.id) }
	case choice < 3:
		return "release", func() { v.release(prefix) }
	case choice < 6 || len(v.foreign[at]) == 0:
		return "a foreign value comes", func() { v.addForeign(at) }
	case choice == 6:
		return "a foreign value goes", func() { v.removeForeign(at) }
	}
	return "ours is tampered with", func() { v.tamper(prefix) }
}

// changed gives a usage another endpoint.
func (v *visit) changed(id string) (endpoint string) {
	endpoint = v.endpoints()[0]
	v.ask(200, "PATCH", usagesPath+"/"+id, jsonText(map[string]any{"txt_endpoints": []string{endpoint}}))
	return endpoint
}

// reserve waits until the prefix is free: after a release whose last write may have been made
// or not, that is when the program has looked once more.
func (v *visit) reserve(prefix string) {
	v.t.Helper()
	h := &holding{network: v.random.Uint64()}
	body := jsonText(map[string]any{"service_id": visitor, "prefix_mode": "custom", "custom_prefix": prefix, "network_id": h.network})
	v.until(prefix+" is free", func() string {
		a, err := v.history.ask("POST", usagesPath, body)
		if err != nil || a.status != 200 && a.header.Get("X-Error-Code") != "prefix_taken" {
			v.fail("POST %s: %d %s %v", usagesPath, a.status, a.body, err)
		}
		h.id = a.field("id")
		if a.status == 200 {
			return ""
		}
		return "it is taken"
	})
	h.endpoint = v.changed(h.id)
	v.held[prefix] = h
}

// release gives a prefix back; where the withdrawal fails, the next synchronisation makes it.
func (v *visit) release(prefix string) {
	a, err := v.history.ask("DELETE", usagesPath+"/"+v.held[prefix].id, "")
	if err != nil || a.status != 200 && a.status != 202 {
		v.fail("release: %d %s %v", a.status, a.body, err)
	}
	delete(v.held, prefix)
}

func (v *visit) addForeign(name string) {
	v.serial++
	value := fmt.Sprintf(pick(v.random, []string{
		"v=spf1 include:example.net -all %d", "v=DKIM1; k=rsa; p=MIGf+/=%d", "a~b*c%%20d&e=f %d", "v=mesh2 o=x %d", strings.Repeat("k", 240) + "%d",
	}), v.serial)
	v.say("  another program adds %q at %s", value, name)
	v.at.outside.Add(v.t, name, []string{value})
	v.foreign[name] = append(v.foreign[name], value)
}

func (v *visit) removeForeign(name string) {
	at := v.random.IntN(len(v.foreign[name]))
	v.say("  another program removes %q at %s", v.foreign[name][at], name)
	v.at.outside.Remove(v.t, name, []string{v.foreign[name][at]})
	v.foreign[name] = slices.Delete(v.foreign[name], at, at+1)
}

// tamper takes our value away, and leaves one that we are to have forgotten.
func (v *visit) tamper(prefix string) {
	if h := v.held[prefix]; h != nil {
		v.at.outside.Remove(v.t, visitName(prefix), []string{v.value(h)})
		v.at.outside.Add(v.t, visitName(prefix), []string{meshValue(fmt.Sprint(h.network), v.host.owner, []string{"tcp://192.0.2.1:1"})})
	}
}

func (v *visit) value(h *holding) string {
	return meshValue(fmt.Sprint(h.network), v.host.owner, []string{h.endpoint})
}

func (v *visit) standing(name string) (texts []string) {
	for _, value := range v.at.outside.Values(v.t, name) {
		texts = append(texts, strings.Join(value, ""))
	}
	slices.Sort(texts)
	return texts
}

func (v *visit) check(when string) {
	v.t.Helper()
	for _, prefix := range visitPrefixes {
		want := slices.Clone(v.foreign[visitName(prefix)])
		if h := v.held[prefix]; h != nil {
			want = append(want, v.value(h))
		}
		slices.Sort(want)
		if got := v.standing(visitName(prefix)); !slices.Equal(got, want) {
			v.fail("%s: %s has\n%q, want\n%q", when, visitName(prefix), got, want)
		}
	}
}

// checkForeign checks the values of the other program alone.
func (v *visit) checkForeign(when string) {
	v.t.Helper()
	for name, values := range v.foreign {
		standing := v.standing(name)
		for _, value := range values {
			if !slices.Contains(standing, value) {
				v.fail("%s: %q is lost at %s: %q", when, value, name, standing)
			}
		}
	}
}

// leave releases every prefix, takes the foreign values away and deletes the service: nothing stands any more.
func (v *visit) leave() {
	for _, prefix := range visitPrefixes {
		if v.held[prefix] != nil {
			v.release(prefix)
		}
		for len(v.foreign[visitName(prefix)]) > 0 {
			v.removeForeign(visitName(prefix))
		}
	}
	v.ask(200, "POST", syncPath, "")
	v.check("at the end")
	v.until("the service is free", func() string {
		a, err := v.history.ask("DELETE", servicesPath+visitor, "")
		if err != nil || a.status != 200 && a.status != 409 {
			v.fail("DELETE of the service: %v %d %s", err, a.status, a.body)
		}
		if a.status == 409 {
			return "it is in use"
		}
		return ""
	})
	if len(v.at.secret) > 3 && strings.Contains(v.p.log.String(), v.at.secret) {
		v.fail("the secret is in the log")
	}
}

// builtinOutside writes into the database of the built-in server, because nothing else can write
// there, and sees what the server answers.
type builtinOutside struct{ w *history }

func (b builtinOutside) exec(statement string, name string, args ...any) {
	b.w.t.Helper()
	db := support.OpenSQLite(b.w.t, b.w.db, "_busy_timeout=5000")
	defer db.Close()
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	if _, err := db.Exec(statement, append([]any{strings.Join(labels, ".")}, args...)...); err != nil {
		b.w.fail("%s: %v", statement, err)
	}
	if err := b.w.p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // it reads the zones again
		b.w.fail("SIGHUP: %v", err)
	}
}

// served waits until the server has read that a value came or went, and has one that came in memory: after the last one
// has gone, it has no name there.
func (b builtinOutside) served(name string, value []string, there bool) {
	b.w.t.Helper()
	b.w.until(fmt.Sprintf("%s: the server sees that %q is there: %t", name, value, there), func() string {
		is := func(v []string) bool { return slices.Equal(v, value) }
		if there == slices.ContainsFunc(b.Values(b.w.t, name), is) && (!there || b.inMemory()) {
			return ""
		}
		return "it does not"
	})
}

func (b builtinOutside) inMemory() bool {
	return !strings.Contains(b.w.read("/metrics").body, "\nmeshddns_dns_cached_names 0\n")
}

func (b builtinOutside) Add(_ testing.TB, name string, value []string) {
	defer b.served(name, value, true)
	b.exec(`INSERT INTO zone_records (name, type, data, ttl) VALUES (?, 16, ?, 60)`, name, dns.TXTData(value))
}

func (b builtinOutside) Remove(_ testing.TB, name string, value []string) {
	defer b.served(name, value, false)
	b.exec(`DELETE FROM zone_records WHERE name = ? AND data = ?`, name, dns.TXTData(value))
}

func (b builtinOutside) Values(t testing.TB, name string) [][]string {
	return servertest.Server{Addr: b.w.p.dns}.Values(t, name)
}
