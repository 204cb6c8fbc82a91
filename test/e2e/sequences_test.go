package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/cloudtest"
	"meshddns/test/contract"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

const (
	sequenceSteps = 6
	sequenceZone  = "example.com"
	sequenceSeed  = 20261121
)

// place is a provider to publish at.
type place struct {
	provider, keyID, secret, endpoint string
	outside                           contract.Outside
	cloud                             *cloudtest.Cloud // nil for a real server
}

// TestSequences reserves, changes and releases at random at every provider,
// while another program adds and removes values at the same names, values of
// ours too, and the clouds fail now and then. After each step every name has
// the values of the other program, and of ours what is reserved.
func TestSequences(t *testing.T) {
	notShort(t)
	t.Parallel()
	t.Run("builtin", func(t *testing.T) {
		t.Parallel()
		testSequences(t, place{provider: "builtin", keyID: "-", secret: "-"})
	})
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		testSequences(t, place{provider: "rfc2136", keyID: servertest.Key, secret: servertest.Secret, endpoint: s.Addr, outside: s})
	})
	t.Run("PowerDNS API", func(t *testing.T) {
		t.Parallel()
		s := servertest.PowerDNS(t)
		testSequences(t, place{provider: "powerdns", keyID: "localhost", secret: s.APIKey, endpoint: s.API, outside: s})
	})
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		testSequences(t, place{c.Provider, c.AccessKeyID, c.AccessKeySecret, c.URL, c, c})
	})
}

func testSequences(t *testing.T, at place) {
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := startAt(t, quickBinary(t), "-db", db, "-ipv4", "none", "-ipv6", "none")
	if at.outside == nil {
		at.outside = builtinOutside{t, db, p}
	}
	w := &world{t: t, p: p, at: at, foreign: map[string][]string{}, held: map[string]*holding{}, transcript: &strings.Builder{}}
	w.configure(1)
	w.call(200, "PUT", "/api/v1/ddns/services/svc", fmt.Sprintf(`{"name":"Service","config":{"domain":%q}}`, sequenceZone))
	w.sync()
	w.learnOwner()
	steps := 0
	count := number(t, "MESHDDNS_SEQUENCES", support.Count(2, 8))
	for n := range count {
		w.random = rand.New(rand.NewPCG(sequenceSeed, uint64(n)))
		for range sequenceSteps {
			name := w.step()
			steps++
			w.check(fmt.Sprintf("sequence %d, %s", n, name))
			if t.Failed() {
				return
			}
		}
		w.clear()
		w.check(fmt.Sprintf("sequence %d, cleared", n))
	}
	for _, form := range []string{at.secret, strconv.Quote(at.secret)} {
		if len(at.secret) > 3 && strings.Contains(w.transcript.String()+p.log.String(), form) {
			t.Error("the secret is in an answer or in the log")
		}
	}
	t.Logf("%d sequences, %d steps, each checked", count, steps)
}

// world is the program, the provider, and what must stand there.
type world struct {
	t          *testing.T
	p          *program
	at         place
	random     *rand.Rand
	owner      string
	config     string              // the endpoint of the configuration's record
	foreign    map[string][]string // values of the other program by name
	held       map[string]*holding // by prefix
	serial     int                 // makes every value another
	transcript *strings.Builder    // every answer
}

// holding is a reserved prefix.
type holding struct {
	id, endpoint string
	network      uint64
}

func (w *world) call(want int, method, path, body string) answer {
	w.t.Helper()
	a := w.p.call(want, method, path, body)
	fmt.Fprintln(w.transcript, a.header, a.body)
	return a
}

func (w *world) endpoint() string {
	w.serial++
	return fmt.Sprintf("tcp://203.0.113.%d:%d", w.serial%250, 1+w.serial%65000)
}

func (w *world) configure(seed int) {
	w.serial += seed
	w.config = w.endpoint()
	w.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":%q,"access_key_id":%q,"access_key_secret":%q,"endpoint":%q,
		"domain":%q,"txt_record_name":"_config","enabled":true,"sync_mode":"manual","max_retries":0,"txt_endpoints":[%q]}`,
		w.at.provider, w.at.keyID, w.at.secret, w.at.endpoint, sequenceZone, w.config))
}

func (w *world) sync() { w.t.Helper(); w.call(200, "POST", syncPath, "") }

// learnOwner reads the mark of this database's values.
func (w *world) learnOwner() {
	w.t.Helper()
	var body struct {
		Data struct{ Records []struct{ Value string } }
	}
	a := w.call(200, "GET", syncPath, "")
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body.Data.Records) == 0 {
		w.t.Fatalf("%v: %s", err, a.body)
	}
	_, w.owner, _ = strings.Cut(strings.Fields(body.Data.Records[0].Value)[1], "o=")
}

var sequencePrefixes = []string{"a", "b"}

// names are those that values may stand at.
func (w *world) names() []string {
	names := []string{"_config." + sequenceZone}
	for _, prefix := range sequencePrefixes {
		names = append(names, "_mesh."+prefix+"."+sequenceZone)
	}
	return names
}

func pick[T any](random *rand.Rand, items []T) T { return items[random.IntN(len(items))] }

// step does one thing at random and gives its name.
func (w *world) step() string {
	w.t.Helper()
	broken := w.at.cloud != nil && w.random.IntN(4) == 0
	if broken {
		w.breakCloud()
	}
	name, do := w.choose()
	do()
	if broken {
		a, err := w.p.try("POST", syncPath, "")
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintln(w.transcript, a.header, a.body)
		w.checkForeign(name + " at a cloud that fails")
		w.at.cloud.FailNoMore()
		name += " after the cloud failed"
	}
	w.sync()
	return name
}

func (w *world) breakCloud() {
	faults := []cloudtest.Fault{cloudtest.Throttle, cloudtest.Reset, cloudtest.Lost, cloudtest.Cut}
	for range w.random.IntN(6) {
		w.at.cloud.Fail(cloudtest.Pass)
	}
	w.at.cloud.Fail(pick(w.random, faults))
}

func (w *world) choose() (name string, do func()) {
	prefix, at := pick(w.random, sequencePrefixes), pick(w.random, w.names())
	held := w.held[prefix]
	switch choice := w.random.IntN(8); {
	case choice < 3 && held == nil:
		return "reserve", func() { w.reserve(prefix) }
	case choice == 0:
		return "change", func() {
			held.endpoint = w.endpoint()
			w.call(200, "PATCH", usagesPath+"/"+held.id, fmt.Sprintf(`{"txt_endpoints":[%q]}`, held.endpoint))
		}
	case choice < 3:
		return "release", func() { w.release(prefix) }
	case choice == 3:
		return "configure", func() { w.configure(1) }
	case choice < 6 || len(w.foreign[at]) == 0:
		return "a foreign value comes", func() { w.addForeign(at) }
	case choice == 6:
		return "a foreign value goes", func() { w.removeForeign(at) }
	}
	return "ours is tampered with", func() { w.tamper(prefix) }
}

// reserve waits until the prefix is free: after a release whose last write may have been made
// or not, that is when the program has looked once more.
func (w *world) reserve(prefix string) {
	w.t.Helper()
	h := &holding{network: w.random.Uint64(), endpoint: w.endpoint()}
	body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, prefix, h.network)
	w.p.eventually(prefix+" is free", func() bool {
		a, err := w.p.try("POST", usagesPath, body)
		fmt.Fprintln(w.transcript, a.header, a.body)
		if err != nil || a.status != 200 && a.header.Get("X-Error-Code") != "prefix_taken" {
			w.t.Fatalf("POST %s: %d %s %v", usagesPath, a.status, a.body, err)
		}
		h.id = a.field("id")
		return a.status == 200
	})
	w.call(200, "PATCH", usagesPath+"/"+h.id, fmt.Sprintf(`{"txt_endpoints":[%q]}`, h.endpoint))
	w.held[prefix] = h
}

// release gives a prefix back; where the withdrawal fails, the next
// synchronisation makes it.
func (w *world) release(prefix string) {
	a, err := w.p.try("DELETE", usagesPath+"/"+w.held[prefix].id, "")
	if err != nil || a.status != 200 && a.status != 202 {
		w.t.Fatalf("release: %d %s %v", a.status, a.body, err)
	}
	fmt.Fprintln(w.transcript, a.header, a.body)
	delete(w.held, prefix)
}

func (w *world) addForeign(name string) {
	w.serial++
	value := pick(w.random, []string{
		"v=spf1 include:example.net -all %d", "v=DKIM1; k=rsa; p=MIGf+/=%d", "a~b*c%%20d&e=f %d", "v=mesh2 o=x %d", strings.Repeat("k", 240) + "%d",
	})
	value = fmt.Sprintf(value, w.serial)
	w.at.outside.Add(w.t, name, []string{value})
	w.foreign[name] = append(w.foreign[name], value)
}

func (w *world) removeForeign(name string) {
	at := w.random.IntN(len(w.foreign[name]))
	w.at.outside.Remove(w.t, name, []string{w.foreign[name][at]})
	w.foreign[name] = slices.Delete(w.foreign[name], at, at+1)
}

// tamper takes our value away, and leaves one that we are to have forgotten.
func (w *world) tamper(prefix string) {
	name := "_mesh." + prefix + "." + sequenceZone
	if h := w.held[prefix]; h != nil {
		w.at.outside.Remove(w.t, name, []string{w.value(h)})
		w.at.outside.Add(w.t, name, []string{fmt.Sprintf("v=mesh1 n=%d o=%s tcp://192.0.2.1:1", h.network, w.owner)})
	}
}

func (w *world) value(h *holding) string {
	return fmt.Sprintf("v=mesh1 n=%d o=%s %s", h.network, w.owner, h.endpoint)
}

// want is what must stand at every name.
func (w *world) want() map[string][]string {
	want := map[string][]string{"_config." + sequenceZone: {"v=mesh1 o=" + w.owner + " " + w.config}}
	for prefix, h := range w.held {
		want["_mesh."+prefix+"."+sequenceZone] = []string{w.value(h)}
	}
	for name, values := range w.foreign {
		want[name] = append(want[name], values...)
	}
	return want
}

func (w *world) standing(name string) (texts []string) {
	for _, value := range w.at.outside.Values(w.t, name) {
		texts = append(texts, strings.Join(value, ""))
	}
	slices.Sort(texts)
	return texts
}

func (w *world) check(when string) {
	w.t.Helper()
	want := w.want()
	for _, name := range w.names() {
		slices.Sort(want[name])
		if got := w.standing(name); !slices.Equal(got, want[name]) {
			w.t.Errorf("%s: %s has\n%q, want\n%q", when, name, got, want[name])
		}
	}
}

// checkForeign checks the values of the other program alone.
func (w *world) checkForeign(when string) {
	w.t.Helper()
	for name, values := range w.foreign {
		standing := w.standing(name)
		for _, value := range values {
			if !slices.Contains(standing, value) {
				w.t.Errorf("%s: %q is lost at %s: %q", when, value, name, standing)
			}
		}
	}
}

// clear releases every prefix and takes the foreign values away.
func (w *world) clear() {
	for _, prefix := range sequencePrefixes {
		if w.held[prefix] != nil {
			w.release(prefix)
		}
	}
	for name := range w.foreign {
		for len(w.foreign[name]) > 0 {
			w.removeForeign(name)
		}
	}
}

// builtinOutside writes into the database of the built-in server, because nothing else can write
// there, and sees what the server answers.
type builtinOutside struct {
	t  *testing.T
	db string
	p  *program
}

func (b builtinOutside) exec(statement string, name string, args ...any) {
	b.t.Helper()
	db := support.OpenSQLite(b.t, b.db, "_busy_timeout=5000")
	defer db.Close()
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	if _, err := db.Exec(statement, append([]any{strings.Join(labels, ".")}, args...)...); err != nil {
		b.t.Fatal(err)
	}
	if err := b.p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // it reads the zones again
		b.t.Fatal(err)
	}
}

// served waits until the server has read that a value came or went, and has it in memory.
func (b builtinOutside) served(name string, value []string, there bool) {
	b.t.Helper()
	is := func(v []string) bool { return slices.Equal(v, value) }
	b.p.eventually(fmt.Sprintf("%s: the server sees that %q is there: %t", name, value, there), func() bool {
		return b.inMemory() && there == slices.ContainsFunc(b.Values(b.t, name), is) && b.inMemory()
	})
}

func (b builtinOutside) inMemory() bool {
	return !strings.Contains(b.p.call(200, "GET", "/metrics", "").body, "\nmeshddns_dns_cached_names 0\n")
}

func (b builtinOutside) Add(_ testing.TB, name string, value []string) {
	b.t.Helper()
	defer b.served(name, value, true)
	b.exec(`INSERT INTO zone_records (name, type, data, ttl) VALUES (?, 16, ?, 60)`, name, dns.TXTData(value))
}

func (b builtinOutside) Remove(_ testing.TB, name string, value []string) {
	b.t.Helper()
	defer b.served(name, value, false)
	b.exec(`DELETE FROM zone_records WHERE name = ? AND data = ?`, name, dns.TXTData(value))
}

func (b builtinOutside) Values(t testing.TB, name string) [][]string {
	return servertest.Server{Addr: b.p.dns}.Values(t, name)
}
