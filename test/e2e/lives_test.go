package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

const (
	lifeSteps   = 60
	manyLives   = 100 // in which everything has to happen
	lifeWorkers = 12  // they mostly wait

	lifePrefix   = "office." + cloudtest.Zone
	lifeName     = "_mesh." + lifePrefix
	lifeOwn      = "_own." + cloudtest.Zone
	lifeFallback = "udp://203.0.113.7:1" // of the configuration
	lifeNamed    = "udp://node.example.net:5"
)

// TestLives runs the lives of a usage: formats, leases, checks and values of others change at random, while the provider
// fails and the program is killed. After each step every value of others stands, no request has named one to be removed
// or has added values beside it, and every acknowledged renewal is stored. In the end the zone has exactly what the
// usage wants, and nothing after its release.
//
// MESHDDNS_LIVES says how many there are, MESHDDNS_LIVES_SEED the seed of the first.
func TestLives(t *testing.T) {
	count, first := number(t, "MESHDDNS_LIVES", support.Count(0, 8)), number(t, "MESHDDNS_LIVES_SEED", 1)
	if count == 0 {
		t.Skip("long")
	}
	t.Parallel()
	quickBinary(t)
	tally := &tally{counts: map[string]int{}}
	runSeeds(t, first, count, lifeWorkers, func(t *testing.T, seed int) { runLife(t, seed, tally) })
	for _, c := range lifeChoices {
		tally.add(c.name, 0)
	}
	for _, kind := range []string{"lease.renewed", "endpoint.dead", "endpoint.alive", "record.failed", "record.conflict", "record.recovered", "usage.releasing"} {
		tally.add(kind, 0)
	}
	tally.report(t, count >= manyLives)
}

// life is a usage with all that may happen to it.
type life struct {
	t      *testing.T
	random *rand.Rand
	tally  *tally
	cloud  *cloudtest.Cloud
	db     string

	p, nodes *program
	pool     []string           // endpoints that a client can use
	places   map[string]*served // of those that a check asks
	open     map[string]bool    // which of these answer
	waits    int                // for probes, which are slow

	usage     string // "" while the prefix is not reserved
	leaving   string // a usage that may still be withdrawn, "" for none
	endpoints []string
	formats   []string
	check     bool
	tenants   []*tenant
	foreign   []foreignRecord
	steps     []string
}

func runLife(t *testing.T, seed int, tally *tally) {
	l := &life{
		t: t, random: rand.New(rand.NewPCG(uint64(seed), 20261124)), tally: tally, cloud: cloudtest.Webhook(t),
		db: filepath.Join(scratch(t), "meshddns.db"), places: map[string]*served{}, open: map[string]bool{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s\nThe zone has\n%s", seed, strings.Join(l.steps, "\n"), strings.Join(l.cloud.AllRecords(cloudtest.Zone), "\n"))
		}
	})
	l.fillPool(seed)
	l.start()
	l.configure()
	l.reserve()
	for range lifeSteps {
		l.step()
		l.stands()
	}
	l.end()
	tally.add("lives", 1)
	l.tell()
}

// tell counts the events of the life.
func (l *life) tell() {
	l.t.Helper()
	for after := int64(-1); after != 0; {
		var page struct {
			Data []struct {
				Seq  int64
				Kind string
			}
		}
		if err := json.Unmarshal([]byte(l.p.call(200, "GET", fmt.Sprintf("/api/v1/ddns/events?limit=1000&after=%d", max(after, 0)), "").body), &page); err != nil {
			l.t.Fatal(err)
		}
		after = 0
		for _, e := range page.Data {
			l.tally.add(e.Kind, 1)
			after = e.Seq
		}
	}
}

// fillPool chooses endpoints. Those with a listener have addresses of this process and this life.
func (l *life) fillPool(seed int) {
	l.pool = []string{"udp://203.0.113.1:1", "udp://[2001:db8::1]:1", "quic://203.0.113.2:443", "wg://203.0.113.3:51820"}
	for i, scheme := range []string{"tcp", "tcp", "tcp", "wss", "wss"} {
		s := serve(l.t, fmt.Sprintf("127.%d.%d.%d:%d", 100+os.Getpid()%100, 100+seed%100, i+1, 7001+i))
		endpoint := scheme + "://" + s.address
		l.pool = append(l.pool, endpoint)
		l.places[endpoint], l.open[endpoint] = s, true
	}
	l.t.Cleanup(func() {
		for _, s := range l.places {
			s.close()
		}
	})
}

func (l *life) start() {
	l.t.Helper()
	l.p = startAt(l.t, quickBinary(l.t), "-db", l.db, "-node-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-sync-interval", "1h",
		"-check-control", strings.TrimPrefix(l.cloud.URL, "http://"))
	l.nodes = nodesOf(l.p)
}

func (l *life) configure() {
	l.t.Helper()
	l.p.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"_own",
		"enabled":true,"sync_mode":"auto","max_retries":%d,"retry_interval":1,"txt_endpoints":[%q]}`,
		l.cloud.AccessKeyID, l.cloud.AccessKeySecret, l.cloud.URL, cloudtest.Zone, l.random.IntN(3), lifeFallback))
	l.p.call(200, "PUT", servicesPath+"svc", fmt.Sprintf(`{"name":"Service","config":{"domain":%q}}`, cloudtest.Zone))
}

// did writes a step down.
func (l *life) did(format string, args ...any) {
	l.steps = append(l.steps, fmt.Sprintf(format, args...))
}

// fail ends the life.
func (l *life) fail(format string, args ...any) {
	l.t.Helper()
	l.did(format, args...)
	l.t.Fatalf(format, args...)
}

// someEndpoints chooses at most so many endpoints.
func (l *life) someEndpoints(random *rand.Rand, most int) []string {
	all := slices.Clone(l.pool)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:random.IntN(most+1)]
}

// killed lets all nodes renew until some answers have come, and then kills the program.
func (l *life) killed() {
	l.t.Helper()
	if len(l.tenants) == 0 {
		support.Kill(l.p.cmd)
		l.start()
		return
	}
	answers := 1 + l.random.Int64N(8)
	var given atomic.Int64
	var working sync.WaitGroup
	for _, n := range l.tenants {
		working.Go(func() {
			for n.renew(l.nodes, l.someEndpoints(n.chance, 4)) {
				if given.Add(1) == answers {
					l.p.cmd.Process.Kill()
				}
			}
		})
	}
	working.Wait()
	l.p.cmd.Wait()
	l.start()
}
