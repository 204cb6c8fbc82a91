package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// nodesAt finds in the log the address at which nodes renew their leases.
var nodesAt = regexp.MustCompile(`msg=started .*nodes=(\S+)`)

// startNodes starts the program with a listener for nodes, and returns that listener too.
func startNodes(t *testing.T, db string, more ...string) (p, nodes *program) {
	t.Helper()
	p = start(t, append([]string{"-db", db, "-node-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-sync-interval", "1h"}, more...)...)
	return p, nodesOf(p)
}

// nodesOf returns the listener for nodes of a program.
func nodesOf(p *program) (nodes *program) {
	nodes = &program{t: p.t, http: nodesAt.FindStringSubmatch(p.log.String())[1]}
	nodes.connect()
	nodes.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	return nodes
}

// reserve reserves a prefix below mesh.example.com.
func (p *program) reserve(prefix string) (usage string) {
	p.t.Helper()
	return p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)).field("id")
}

// lend makes a lease.
func (p *program) lend(usage, slot string) (token string) {
	p.t.Helper()
	return p.call(200, "POST", usagesPath+"/"+usage+"/leases", fmt.Sprintf(`{"slot":%q,"ttl":3600,"template":["tcp://{ip}:11010"]}`, slot)).field("token")
}

// settled waits until all that is due is in DNS.
func (p *program) settled() {
	p.t.Helper()
	p.eventually("what was under way is done", func() bool {
		a, err := p.try("POST", syncPath, "")
		return err == nil && a.status == 200
	})
}

// lastEvent returns the seq of the newest event.
func (p *program) lastEvent() (seq int64) {
	p.t.Helper()
	for {
		var page struct{ Data []struct{ Seq int64 } }
		a := p.call(200, "GET", fmt.Sprintf("/api/v1/ddns/events?limit=100&after=%d", seq), "")
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			p.t.Fatal(err)
		}
		if len(page.Data) == 0 {
			return seq
		}
		seq = page.Data[len(page.Data)-1].Seq
	}
}

// leased returns the published endpoints of a prefix that are in the network of these tests, sorted.
func (p *program) leased(prefix string) (endpoints []string) {
	p.t.Helper()
	return tenants(p.txt("_mesh." + prefix + ".mesh.example.com"))
}

// tenants returns the words of a text that are endpoints in the network of these tests, sorted.
func tenants(text string) (endpoints []string) {
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "tcp://192.31.195.") {
			endpoints = append(endpoints, word)
		}
	}
	slices.Sort(endpoints)
	return endpoints
}

// tenant is a node that remembers which endpoints were acknowledged. No other node has its slot.
type tenant struct {
	prefix, usage, slot, token string
	chance                     *rand.Rand
	endpoints                  []string // acknowledged
	doubt                      []string // asked for, and not answered
	doubted, lost              bool     // whether doubt is valid; whether the token is not known
	renewed, refused, open     int
}

// step makes a request, and reports whether it was answered.
func (n *tenant) step(p, nodes *program) bool {
	switch chance := n.chance.IntN(10); {
	case n.lost || chance == 0:
		return n.replace(p)
	case chance == 1:
		return n.renew(nodes, []string{})
	case chance < 5:
		return n.renew(nodes, n.endpoints)
	default:
		return n.renew(nodes, []string{fmt.Sprintf("tcp://192.31.195.%d:%d", n.chance.IntN(254)+1, n.chance.IntN(65535)+1)})
	}
}

// replace makes a new lease for the slot, which publishes nothing.
func (n *tenant) replace(p *program) bool {
	n.lost, n.doubted, n.doubt = true, true, []string{}
	a, err := p.try("POST", usagesPath+"/"+n.usage+"/leases?replace=1", fmt.Sprintf(`{"slot":%q,"ttl":3600,"cidrs":["0.0.0.0/0","::/0"]}`, n.slot))
	if err != nil {
		return false
	}
	if a.status != 200 {
		p.t.Errorf("slot %s is not replaced: %d %s", n.slot, a.status, a.body)
		return true
	}
	n.lost, n.doubted, n.token, n.endpoints = false, false, a.field("token"), []string{}
	return true
}

// renew renews the lease.
func (n *tenant) renew(nodes *program, endpoints []string) bool {
	body, err := json.Marshal(map[string][]string{"endpoints": endpoints})
	if err != nil {
		nodes.t.Error(err)
		return false
	}
	n.doubted, n.doubt = true, endpoints
	a, err := nodes.try("PUT", "/lease", string(body), "Authorization", "Bearer "+n.token)
	switch {
	case err != nil:
		return false
	case a.status == 200:
		n.endpoints = endpoints
		n.renewed++
	case a.status == 429:
		n.refused++
	default:
		nodes.t.Errorf("slot %s is not renewed: %d %s", n.slot, a.status, a.body)
	}
	n.doubted = false
	return true
}

// check compares what is stored with what was acknowledged, and takes what is stored as known from now
// on. It returns what is wrong.
func (n *tenant) check(stored map[string][]string) (wrong string) {
	is, found := stored[n.slot]
	switch {
	case !found:
		wrong = fmt.Sprintf("slot %s has no lease", n.slot)
	case n.doubted && slices.Equal(is, n.doubt):
		n.open++
	case !slices.Equal(is, n.endpoints):
		wrong = fmt.Sprintf("slot %s has %q, want %q as acknowledged, or %q if asked for: %v", n.slot, is, n.endpoints, n.doubt, n.doubted)
	}
	n.endpoints, n.doubted = is, false
	return wrong
}

// leasesOf returns the stored endpoints of a usage by slot.
func (p *program) leasesOf(usage string) map[string][]string {
	p.t.Helper()
	var list struct {
		Data []struct {
			Slot      string
			Endpoints []string
		}
	}
	if err := json.Unmarshal([]byte(p.call(200, "GET", usagesPath+"/"+usage+"/leases", "").body), &list); err != nil {
		p.t.Fatal(err)
	}
	stored := map[string][]string{}
	for _, l := range list.Data {
		stored[l.Slot] = l.Endpoints
	}
	return stored
}

// A renewal that was answered is stored and in DNS after SIGKILL at a random moment.
// MESHDDNS_LEASE_KILLS says how often it comes, MESHDDNS_LEASE_NODES how many nodes there are in each of
// four usages, MESHDDNS_KILL_SEED what they do.
func TestLeaseKills(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	kills, nodesEach, seed := number(t, "MESHDDNS_LEASE_KILLS", support.Count(6, 15)), number(t, "MESHDDNS_LEASE_NODES", 2), uint64(number(t, "MESHDDNS_KILL_SEED", 1))
	t.Logf("seed %d", seed)
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p, nodes := startNodes(t, db)
	p.configure("auto", "tcp://203.0.113.7:1")
	var all []*tenant
	for _, prefix := range []string{"a", "b", "c", "d"} {
		usage := p.reserve(prefix)
		p.call(200, "PATCH", usagesPath+"/"+usage, `{"formats":["mesh1","urls"]}`)
		for i := range nodesEach {
			n := &tenant{prefix: prefix, usage: usage, slot: fmt.Sprint("node-", i), chance: rand.New(rand.NewPCG(seed, uint64(len(all)))), endpoints: []string{}}
			n.token = p.lend(usage, n.slot)
			all = append(all, n)
		}
	}
	chance := rand.New(rand.NewPCG(seed, 1<<32))
	for range kills {
		killTenants(p, nodes, all, chance)
		p, nodes = startNodes(t, db)
		for n := range slices.Chunk(all, nodesEach) {
			checkTenants(p, nodes, n)
		}
		if t.Failed() {
			return
		}
	}
	var renewed, refused, open int
	for _, n := range all {
		renewed, refused, open = renewed+n.renewed, refused+n.refused, open+n.open
	}
	t.Logf("%d kills, %d nodes, %d acknowledged renewals, none lost; %d were too soon, %d were done without an answer", kills, len(all), renewed, refused, open)
	if renewed < 2*kills {
		t.Errorf("only %d renewals in %d kills", renewed, kills)
	}
}

// The comparison finds a lease that is lost, and one with endpoints that were neither acknowledged nor
// asked for. It takes a renewal without an answer as done or as not done.
func TestLeaseKillsFindsLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored  map[string][]string
		doubted bool
		sound   bool
	}{
		{map[string][]string{"home": {"tcp://192.31.195.7:1"}}, false, true},
		{map[string][]string{"home": {"tcp://192.31.195.7:1"}}, true, true},
		{map[string][]string{"home": {"tcp://192.31.195.8:1"}}, true, true},
		{map[string][]string{"home": {"tcp://192.31.195.8:1"}}, false, false},
		{map[string][]string{"home": {"tcp://192.31.195.9:1"}}, true, false},
		{map[string][]string{"home": {}}, true, false},
		{map[string][]string{"other": {"tcp://192.31.195.7:1"}}, false, false},
	} {
		n := &tenant{slot: "home", endpoints: []string{"tcp://192.31.195.7:1"}, doubt: []string{"tcp://192.31.195.8:1"}, doubted: c.doubted}
		if wrong := n.check(c.stored); (wrong == "") != c.sound {
			t.Errorf("stored %q, doubted %v: %q", c.stored, c.doubted, wrong)
		}
	}
}

// killTenants lets the nodes work, 64 at a time, and kills the program after a random number of answers.
func killTenants(p, nodes *program, all []*tenant, chance *rand.Rand) {
	workers := min(len(all), 64)
	answers := chance.Int64N(6*int64(workers)) + 1
	var given atomic.Int64
	var working sync.WaitGroup
	for worker := range workers {
		own := all[worker*len(all)/workers : (worker+1)*len(all)/workers]
		working.Go(func() {
			for i := 0; own[i%len(own)].step(p, nodes); i++ {
				if given.Add(1) == answers {
					p.cmd.Process.Kill()
				}
			}
		})
	}
	working.Wait()
	p.cmd.Wait()
}

// checkTenants compares the leases of a usage, its list of URLs and its value in DNS with what was
// acknowledged. Few endpoints fit in one TXT string.
func checkTenants(p, nodes *program, all []*tenant) {
	p.t.Helper()
	stored, prefix := p.leasesOf(all[0].usage), all[0].prefix
	var want []string
	for _, n := range all {
		if wrong := n.check(stored); wrong != "" {
			p.t.Error(wrong)
		}
		want = append(want, n.endpoints...)
	}
	slices.Sort(want)
	p.eventually(fmt.Sprintf("%s has %q in its list, and those that fit in DNS", prefix, want), func() bool {
		list := tenants(nodes.call(200, "GET", "/d/_mesh."+prefix+".mesh.example.com", "").body)
		published := p.leased(prefix)
		foreign := slices.DeleteFunc(slices.Clone(published), func(endpoint string) bool { return slices.Contains(want, endpoint) })
		return slices.Equal(list, want) && len(foreign) == 0 && len(published) >= min(len(want), 4)
	})
}

// A thousand nodes, in the long form, that renew without a change write nothing.
func TestThousandNodes(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	usages, leases := 4, support.Count(50, 250)
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("auto", "tcp://203.0.113.7:1")
	var all []*tenant
	for u := range usages {
		prefix := fmt.Sprint("u", u)
		usage := p.reserve(prefix)
		for l := range leases {
			all = append(all, &tenant{prefix: prefix, usage: usage, slot: fmt.Sprint("node-", l)})
		}
	}
	inParallel(all, func(n *tenant) { n.replace(p) })
	renew := func(changed bool) {
		began := time.Now()
		inParallel(all, func(n *tenant) {
			body := fmt.Sprintf(`{"endpoints":["tcp://192.31.195.%s:11010"]}`, strings.TrimPrefix(n.slot, "node-"))
			a, err := nodes.try("PUT", "/lease", body, "Authorization", "Bearer "+n.token)
			if err != nil || a.status != 200 || a.field("changed") != fmt.Sprint(changed) {
				t.Errorf("%s of %s: %v %d %s, want changed %v", n.slot, n.prefix, err, a.status, a.body, changed)
			}
		})
		t.Logf("%d renewals, changed %v: %.0f/s", len(all), changed, float64(len(all))/time.Since(began).Seconds())
	}
	if t.Failed() {
		return
	}
	renew(true)
	p.settled()
	last, serial := p.lastEvent(), p.dig("+short", "mesh.example.com", "SOA")
	for range 2 {
		renew(false)
	}
	p.settled()
	if now := p.lastEvent(); now != last {
		t.Errorf("renewals without a change made %d events", now-last)
	}
	if now := p.dig("+short", "mesh.example.com", "SOA"); now != serial {
		t.Errorf("renewals without a change made the zone %s of %s", now, serial)
	}
	for u := range usages {
		if n := len(p.leased(fmt.Sprint("u", u))); n < 5 {
			t.Errorf("only %d endpoints of u%d are published", n, u)
		}
	}
}

// A thousand renewals with a change while a provider is slow cost it a change a batch of 400 names, or two
// where the text of one is too long for Route 53 (32 000 characters). The short form has 450.
func TestThousandChanges(t *testing.T) {
	notShort(t)
	t.Parallel()
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"), "-node-writes", "route53=0")
	p.configure("auto", "tcp://203.0.113.7:1")
	cloud := cloudtest.Route53(t)
	way := p.serviceAt(cloud, "route53")
	way.open()
	all := make([]*tenant, support.Count(450, 1000))
	for i := range all {
		prefix := fmt.Sprint("node-", i)
		usage := p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"cloud","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)).field("id")
		all[i] = &tenant{prefix: prefix, usage: usage, slot: "home", token: p.lend(usage, "home")}
	}
	p.settled()
	cloud.Asked()
	way.held.Lock()
	inParallel(all, func(n *tenant) {
		if n.renew(nodes, []string{"tcp://192.31.195.7:11010"}); n.renewed != 1 {
			t.Errorf("%s is not renewed", n.prefix)
		}
	})
	way.held.Unlock()
	p.settled()
	asked := cloud.Asked()
	changes := 0
	for _, r := range asked {
		if r.Method == "POST" {
			changes++
		}
	}
	for _, n := range all {
		if got := fmt.Sprint(cloud.Values(t, "_mesh."+n.prefix+"."+cloudtest.Zone)); strings.Count(got, "v=mesh1") != 1 || !strings.Contains(got, "tcp://192.31.195.7:11010") {
			t.Fatalf("%s: %s", n.prefix, got)
		}
	}
	t.Logf("%d changed names: %d calls at the provider, of which %d are changes", len(all), len(asked), changes)
	if changes < (len(all)+399)/400 || changes > 50 { // on a slow machine the calls that are held time out, and their names go alone
		t.Errorf("%d changes at the provider", changes)
	}
}

// inParallel runs a function for each node, 16 at a time.
func inParallel(all []*tenant, do func(*tenant)) {
	var working sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				do(all[i])
			}
		})
	}
	working.Wait()
}
