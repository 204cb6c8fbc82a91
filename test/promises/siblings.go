package promises

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// The names of the records of the prefix "office" in other formats, as the stand-in keeps them.
const (
	siblingTXT  = "office.example.com"
	siblingA    = "office.example.com A"
	siblingAAAA = "office.example.com AAAA"
	siblingSRV  = "_x._tcp.office.example.com SRV"
)

// formatted sets the formats of a usage.
func (h *host) formatted(u usage, formats ...string) {
	h.t.Helper()
	support.Must(h.t, h.patch(u.ID, members{"formats": formats}))
}

// newSiblingHost makes an appliance with the prefix "office" in several formats.
func (suite Suite) newSiblingHost(t testing.TB) (*host, *dnsVendor, usage) {
	h, v := suite.newVendorHost(t)
	u := h.reserve(h.service(servertest.Zone), "office", 42)
	h.formatted(u, "mesh1", "hostport", "a", "srv:_x._tcp")
	h.publish(u, "tcp://203.0.113.1:1", "tcp://203.0.113.2:2")
	return h, v, u
}

// TestSiblings has the records of a usage follow its endpoints, and go with it.
func (suite publishing) TestSiblings(t *testing.T) {
	h, v, u := suite.newSiblingHost(t)
	if r := h.run(); !r.OK() {
		t.Fatalf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1", "203.0.113.2:2")
	v.want(t, servertest.Zone, siblingA, "203.0.113.1", "203.0.113.2")
	v.want(t, servertest.Zone, siblingSRV, "1 1 1 203-0-113-1.office.example.com", "1 1 2 203-0-113-2.office.example.com")
	before := v.called("change")
	h.run()
	if n := v.called("change"); n != before {
		t.Errorf("%d changes of what is as it should be", n-before)
	}
	h.publish(u, "tcp://203.0.113.2:2", "tcp://[2001:db8::1]:3")
	h.run()
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.2:2", "[2001:db8::1]:3")
	v.want(t, servertest.Zone, siblingA, "203.0.113.2")
	v.want(t, servertest.Zone, siblingAAAA, "2001:db8::1")
	h.formatted(u, "mesh1", "a")
	h.run()
	v.want(t, servertest.Zone, siblingTXT)
	v.want(t, servertest.Zone, siblingSRV)
	v.want(t, servertest.Zone, siblingA, "203.0.113.2")
	h.release(u, true)
	h.later(dnsLookAgain)
	h.run()
	v.nothing(t)
}

// nothing wants no value except that of the configuration.
func (v *dnsVendor) nothing(t testing.TB) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for at, values := range v.values {
		if len(values) > 0 && at[1] != dnsHost {
			t.Errorf("%s still has %q", at[1], values)
		}
	}
}

// TestForeignSiblings never touches a value that no place knows, and begins nothing beside it. What stands
// of ours is replaced and withdrawn nevertheless.
func (suite publishing) TestForeignSiblings(t *testing.T) {
	h, v, u := suite.newSiblingHost(t)
	v.put(servertest.Zone, siblingA, provider.Value{"198.51.100.9"})
	if r := h.run(); r.Counts[reconcile.ActionConflict] != 1 {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingA, "198.51.100.9")
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.1:1", "203.0.113.2:2")
	v.remove(servertest.Zone, siblingA, "198.51.100.9")
	h.run()
	v.want(t, servertest.Zone, siblingA, "203.0.113.1", "203.0.113.2")
	v.put(servertest.Zone, siblingTXT, provider.Value{"v=spf1 -all"})
	h.publish(u, "tcp://203.0.113.3:3")
	h.run()
	v.want(t, servertest.Zone, siblingTXT, "v=spf1 -all", "203.0.113.3:3")
	h.release(u, true)
	h.later(dnsLookAgain)
	h.run()
	v.want(t, servertest.Zone, siblingTXT, "v=spf1 -all")
	v.remove(servertest.Zone, siblingTXT, "v=spf1 -all")
	v.nothing(t)
}

// TestSiblingsOfKeys: with a new secret, which is another account, the values stay ours.
func (suite publishing) TestSiblingsOfKeys(t *testing.T) {
	h, v, u := suite.newSiblingHost(t)
	h.run()
	h.change(members{"access_key_secret": "another"})
	h.publish(u, "tcp://203.0.113.2:2")
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	h.later(dnsLookAgain)
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.2:2")
	v.want(t, servertest.Zone, siblingA, "203.0.113.2")
	h.release(u, true)
	h.later(dnsLookAgain)
	h.run()
	v.nothing(t)
}

// TestSiblingsAdopted: after a lost database a value counts as ours exactly if it is wanted and
// the owner was adopted.
func (suite publishing) TestSiblingsAdopted(t *testing.T) {
	lost, v, _ := suite.newSiblingHost(t)
	lost.run()
	h := suite.openHost(t, t.TempDir()+"/meshddns.db", dnsBuiltinServer)
	h.vendors["vendor"] = v
	h.configure(dnsVendorConfiguration("vendor"))
	u := h.reserve(h.service(servertest.Zone), "office", 42)
	h.formatted(u, "mesh1", "hostport", "a", "srv:_x._tcp")
	h.publish(u, "tcp://203.0.113.1:1", "tcp://203.0.113.2:2")
	if r := h.run(); r.Counts[reconcile.ActionConflict] != 7 { // two with marks, five without
		t.Errorf("%+v", r)
	}
	support.Must(t, h.Ledger.Adopt(t.Context(), lost.Owner))
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	h.publish(u, "tcp://203.0.113.5:5")
	h.run()
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.5:5")
	v.want(t, servertest.Zone, siblingA, "203.0.113.5")
}

// TestSiblingsReplicated: before the provider is asked for a value without a mark, the replica knows it, with one wait for all
// values of a batch. While the replica is silent, only values with a mark are written.
func (suite publishing) TestSiblingsReplicated(t *testing.T) {
	h, v, _ := suite.newSiblingHost(t)
	silent, waits, replica := true, 0, ""
	h.synced = func(context.Context) error {
		if waits++; silent {
			return context.DeadlineExceeded
		}
		replica = strings.Join(support.Rows(t, h.Reader, `SELECT doubt FROM places WHERE owner <> ''`), "\n")
		return nil
	}
	h.renew()
	v.fails(func(_ context.Context, c dnsCall) error {
		for _, value := range c.change.Add {
			if text := value.Text(); !strings.HasPrefix(text, "v=mesh1") && !strings.Contains(replica, text) {
				t.Errorf("%q is written, and the replica has %q", text, replica)
			}
		}
		return nil
	})
	if r := h.run(); r.Counts[reconcile.ActionCreate] != 2 || r.Counts[reconcile.ActionFailed] != 5 || !strings.Contains(fmt.Sprint(r.Records), reconcile.CodeNotInReplica) {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, siblingA)
	silent, waits = false, 0
	if r := h.run(); !r.OK() || r.Counts[reconcile.ActionCreate] != 5 || waits != 1 {
		t.Errorf("%d waits, %+v", waits, r)
	}
	h.run()
	if v.want(t, servertest.Zone, siblingA, "203.0.113.1", "203.0.113.2"); waits != 1 {
		t.Errorf("%d waits, want none for what stands", waits)
	}
}

// TestUnmarked goes back to an older database. What was published after it without a mark stays, and is told once as what may be ours:
// also where a new name is an orphan. A person makes it ours. A value that no format makes is never offered, nor is any after the sweep.
func (suite publishing) TestUnmarked(t *testing.T) {
	h, v, u := suite.newSiblingHost(t)
	service := h.service(servertest.Zone)
	h.run()
	backup := h.backup(t)
	h.publish(u, "tcp://203.0.113.2:2", "tcp://203.0.113.3:3", "tcp://[2001:db8::1]:1")
	h.formatted(h.reserve(service, "newer", 43), "mesh1", "a", "srv:_x._tcp")
	h.run()
	h.later(dnsLookAgain)
	h.run()
	h.stop()
	const newerA, newerTXT = "newer.example.com A", "newer.example.com"
	v.put(servertest.Zone, newerTXT, provider.Value{"v=spf1 -all"})
	restored := h.opened(t, backup)
	adopt := func(path string) (records []string) {
		t.Helper()
		var data struct{ Records []string }
		status, err := restored.ask(t.Context(), "POST", path, members{"owner": h.Owner, "unmarked": true}, &data)
		if err != nil || status != 200 {
			t.Errorf("%s: %d %v", path, status, err)
		}
		return data.Records
	}
	before := len(v.history)
	offers := []string{
		siblingTXT + " TXT", siblingA, siblingAAAA, siblingSRV, "203-0-113-3." + siblingA, "2001-0db8-0000-0000-0000-0000-0000-0001." + siblingAAAA,
		newerA, "_x._tcp.newer.example.com SRV", "203-0-113-7." + newerA,
	}
	slices.Sort(offers)
	if r := restored.run(); r.Counts[reconcile.ActionLeftover] != len(offers) || r.Counts[reconcile.ActionOrphan] != 1 {
		t.Errorf("%+v", r)
	}
	if r := restored.run(); r.Counts[reconcile.ActionLeftover] != 0 {
		t.Errorf("told again: %+v", r)
	}
	restored.sweep()
	v.want(t, servertest.Zone, "_mesh.newer.example.com")
	for _, change := range v.history[before:] {
		if strings.HasPrefix(change, "-") && !strings.HasSuffix(change, "_mesh.newer.example.com") && !strings.HasSuffix(change, " "+dnsOffice) {
			t.Errorf("%q before a person says so", change)
		}
	}
	v.put(servertest.Zone, "ip4p.newer.example.com AAAA", provider.Value{"2001::1:cb00:7109"})
	if restored.sweep(); restored.count(`SELECT count(*) FROM events WHERE kind = 'leftover.appeared' AND detail LIKE '%maybe_ours%'`) != len(offers) || int(restored.totals()["leftover"]) != len(offers) {
		t.Errorf("%d leftovers", restored.totals()["leftover"])
	}
	got := adopt("/api/v1/ddns/adopt?dry_run=1")
	if slices.Sort(got); !slices.Equal(got, offers) {
		t.Errorf("a dry run has %q, want %q", got, offers)
	}
	v.want(t, servertest.Zone, newerA, "203.0.113.7")
	if got = adopt("/api/v1/ddns/adopt"); len(got) != len(offers) || restored.totals()["leftover"] != 0 {
		t.Errorf("adopted %q", got)
	}
	for range 2 {
		if r := restored.run(); !r.OK() {
			t.Errorf("%+v", r)
		}
		restored.later(dnsLookAgain)
	}
	v.want(t, servertest.Zone, siblingTXT, "203.0.113.2:2", "203.0.113.1:1")
	v.want(t, servertest.Zone, siblingA, "203.0.113.2", "203.0.113.1")
	v.want(t, servertest.Zone, newerTXT, "v=spf1 -all")
	for _, name := range []string{siblingAAAA, newerA, "_x._tcp.newer.example.com SRV", "203-0-113-7." + newerA, "203-0-113-3." + siblingA} {
		v.want(t, servertest.Zone, name)
	}
}

// TestSiblingHistories makes random changes of endpoints, formats, keys and foreign values while calls
// fail before or after they are made. No foreign value is ever touched, and in the end exactly what is
// wanted stands.
func (suite publishing) TestSiblingHistories(t *testing.T) {
	for seed := range uint64(support.Count(4, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { suite.siblingHistory(t, rand.New(rand.NewPCG(seed, 20))) })
		})
	}
}

// siblings is a random history.
type siblings struct {
	*host
	t         *testing.T
	v         *dnsVendor
	random    *rand.Rand
	service   string
	usage     *usage // nil while it is released
	endpoints []string
	formats   []string
	foreign   map[string]string // a value by the name where it stands
	keys      int
}

func (suite Suite) siblingHistory(t *testing.T, random *rand.Rand) {
	h, v := suite.newVendorHost(t)
	s := &siblings{host: h, t: t, v: v, random: random, service: h.service(servertest.Zone), foreign: map[string]string{}}
	h.mode(modeAuto)
	h.loop()
	s.reserveAgain()
	for range 25 {
		s.step()
		dnsPass(time.Duration(random.IntN(40)) * time.Second)
		s.foreignStands("during the history")
	}
	s.v.works()
	for name, value := range s.foreign {
		v.remove(servertest.Zone, name, value)
	}
	s.foreign = map[string]string{}
	for range 3 {
		dnsPass(6 * time.Minute)
	}
	s.wantsExactly()
	h.stop()
}

// step makes one random change.
func (s *siblings) step() {
	switch s.random.IntN(8) {
	case 0, 1:
		s.endpoints = s.someEndpoints()
		if s.usage != nil {
			s.publish(*s.usage, s.endpoints...)
		}
	case 2:
		s.formats = s.someFormats()
		if s.usage != nil {
			s.formatted(*s.usage, s.formats...)
		}
	case 3:
		s.putForeign()
	case 4:
		for name, value := range s.foreign {
			s.v.remove(servertest.Zone, name, value)
			delete(s.foreign, name)
			break
		}
	case 5:
		s.keys++
		s.change(members{"access_key_secret": fmt.Sprint("secret-", s.keys)})
	case 6:
		if s.usage == nil {
			s.reserveAgain()
			return
		}
		if freed, err := s.free(s.usage.ID, s.random.IntN(3) == 0); err != nil || freed || s.Keep(s.t.Context(), s.usage.ID) != nil {
			s.usage = nil // a pass may free it before it is kept
		}
	case 7:
		s.fail()
	}
}

func (s *siblings) reserveAgain() {
	u, err := s.tryReserve(s.service, "office", 42)
	if err != nil {
		return // the value of the released one may still stand
	}
	s.usage, s.endpoints, s.formats = &u, s.someEndpoints(), s.someFormats()
	s.formatted(u, s.formats...)
	s.publish(u, s.endpoints...)
}

func (s *siblings) someEndpoints() (all []string) {
	for range 1 + s.random.IntN(3) {
		all = append(all, fmt.Sprintf("%s://203.0.113.%d:%d", []string{"tcp", "udp", "wss"}[s.random.IntN(3)], 1+s.random.IntN(4), 1+s.random.IntN(3)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s *siblings) someFormats() []string {
	all := []string{"hostport", "a", "srv:_x._tcp", "easytier-srv", "ip4p"}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return append([]string{"mesh1"}, all[:s.random.IntN(len(all)+1)]...)
}

// putForeign lets a value of another program appear at a name of ours.
func (s *siblings) putForeign() {
	name := []string{siblingTXT, siblingA, siblingSRV, "ip4p.office.example.com AAAA"}[s.random.IntN(4)]
	if s.foreign[name] == "" {
		value := map[string]string{siblingTXT: "192.0.2.9:9", siblingA: "192.0.2.9", siblingSRV: "9 9 9 foreign.example.net"}[name]
		if value == "" {
			value = "2001:db8::9"
		}
		s.foreign[name] = value
		s.v.put(servertest.Zone, name, provider.Value{value})
	}
}

// foreignStands wants every foreign value to stand.
func (s *siblings) foreignStands(when string) {
	s.t.Helper()
	for name, value := range s.foreign {
		if !slices.Contains(s.v.at(servertest.Zone, name), value) {
			s.t.Fatalf("%s: the foreign value at %s is gone: %q", when, name, s.v.at(servertest.Zone, name))
		}
	}
}

// fail lets some calls fail from now on: before they are made, or after.
func (s *siblings) fail() {
	share, seed := s.random.IntN(3), rand.New(rand.NewPCG(s.random.Uint64(), 1))
	s.v.fails(func(_ context.Context, c dnsCall) error {
		s.v.mu.Lock()
		defer s.v.mu.Unlock()
		if c.what != "change" || seed.IntN(4) >= share {
			return nil
		}
		if seed.IntN(2) == 0 {
			s.v.make(dnsVendorClient{s.v, c.key}.id(c.zone), c.change)
		}
		return &provider.Error{Kind: []provider.Kind{provider.Network, provider.Changed}[seed.IntN(2)], Detail: "lost"}
	})
}

// wantsExactly compares what stands with what the formats of the endpoints are.
func (s *siblings) wantsExactly() {
	want := map[string][]string{}
	if s.usage != nil {
		var endpoints []mesh.Endpoint
		for _, text := range s.endpoints {
			endpoints = append(endpoints, mesh.Endpoint{Text: text})
		}
		for _, set := range mesh.FormatSets(s.formats, siblingTXT, endpoints) {
			name := set.Name
			if set.Type != "TXT" {
				name += " " + set.Type
			}
			want[name] = set.Values
		}
	}
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	for at, values := range s.v.values {
		var got []string
		for _, v := range values {
			got = append(got, v.Text())
		}
		slices.Sort(got)
		if !strings.HasPrefix(at[1], "_mesh") && !slices.Equal(got, want[at[1]]) {
			s.t.Errorf("%s has %q, want %q", at[1], got, want[at[1]])
		}
		delete(want, at[1])
	}
	for name, values := range want {
		if len(values) > 0 {
			s.t.Errorf("%s has nothing, want %q", name, values)
		}
	}
	if s.t.Failed() {
		s.t.Log(s.log)
	}
}
