package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// challenges measures the time from POST /present to its answer, by which an authority may look: at the built-in server, and
// with Knot and NSD as its secondaries. Each lease puts one challenge, because a lease waits a second between two.
func challenges(t *testing.T, b *table) {
	support.Need(t, "knotd", "nsd")
	db := published(t, builtin.automatic(), size().few)
	p := startAs(t, db, way{env: []string{"MESHDDNS_NODE_LISTEN=127.0.0.1:0"}})
	nodes := regexp.MustCompile(`msg=started .*nodes=(\S+)`).FindStringSubmatch(string(p.process.said()))[1]
	var leases []challenger
	for n := range 12 * size().changes {
		answer, _ := p.call("POST", "/usages/"+p.reserve(first+size().most+n)+"/leases", `{"slot":"home","ttl":3600,"acme":true}`)
		var body struct{ Data struct{ Token string } }
		if err := json.Unmarshal([]byte(answer), &body); err != nil {
			t.Fatal(err)
		}
		leases = append(leases, challenger{p, nodes, body.Data.Token, fmt.Sprintf("_acme-challenge.n%d.%s", first+size().most+n, zone)})
	}
	p.process.rest()
	alone, beside := leases[:10*size().changes], leases[10*size().changes:]
	var took []time.Duration
	for _, c := range alone {
		took = append(took, c.present(t))
	}
	commits := time.Duration(float64(time.Second) / startCommits(t, reserved(t, account{}, size().few)).rate(t, size().idle/3))
	addChallenges(t, b, "builtin", took, 20*time.Millisecond, "a commit of SQLite by itself", commits)

	servers := []string{startKnot(t, p, 1).server, startNSD(t, p, 1)}
	p.process.rest()
	floor := median(took)
	took = nil
	var served []time.Duration
	for _, c := range beside {
		took = append(took, c.present(t))
		began := time.Now()
		for _, server := range servers {
			awaitAnswer(t, server, c.name)
		}
		served = append(served, time.Since(began))
	}
	addChallenges(t, b, "with Knot and NSD", took, 1500*time.Millisecond, "the same without them", floor)
	b.add(t, line{
		row: "the answer to POST /present to that of Knot and NSD", measured: fmt.Sprintf("%d challenges; the slowest %s", len(served), round(slowest(served))), figure: round(median(served)),
	})
}

// challenger is a node that puts a challenge.
type challenger struct {
	p           *program
	nodes       string
	token, name string
}

func (c challenger) present(t *testing.T) time.Duration {
	t.Helper()
	request, err := http.NewRequest("POST", "http://"+c.nodes+"/present", strings.NewReader(fmt.Sprintf(`{"fqdn":%q,"value":%q}`, c.name+".", strings.Repeat("v", 43))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	began := time.Now()
	response, err := c.p.client.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, response)
	}
	response.Body.Close()
	return time.Since(began)
}

func addChallenges(t *testing.T, b *table, where string, took []time.Duration, must time.Duration, under string, floor time.Duration) {
	sorted := slices.Sorted(slices.Values(took))
	b.add(t, line{
		row:      "POST /present to its answer, " + where,
		measured: fmt.Sprintf("%d leases, one after the other; p99 %s; %.1f times %s (%s)", len(took), round(sorted[len(sorted)*99/100]), float64(median(took))/float64(floor), under, round(floor)),
		figure:   round(median(took)), must: must.String(), ok: median(took) <= must,
	})
}

// startNSD runs NSD, which has a key so that its transfers do not count as those of Knot, with the zone that it transfers from a program.
func startNSD(t *testing.T, p *program, names int) (server string) {
	t.Helper()
	folder := t.TempDir()
	server = support.FreeAddress(t)
	const secret = "c2VjcmV0IG9mIHRoZSBwZWVyLCAzMiBvY3RldHMgbG9uZw=="
	p.call("PUT", "/secondaries/nsd", fmt.Sprintf(`{"address":%q,"key_name":"nsd.example","key_secret":%q}`, server, secret))
	file := filepath.Join(folder, "nsd.conf")
	configuration := fmt.Sprintf(`
server:
    ip-address: %[2]s
    database: ""
    username: ""
    zonesdir: %[1]s
    xfrdir: %[1]s
    xfrdfile: %[1]s/xfrd.state
    zonelistfile: %[1]s/zone.list
    pidfile: %[1]s/nsd.pid
remote-control:
    control-enable: no
key:
    name: nsd.example
    algorithm: hmac-sha256
    secret: %[5]s
zone:
    name: %[3]s
    zonefile: zone
    request-xfr: %[4]s nsd.example
    allow-notify: 127.0.0.1 nsd.example
`, folder, strings.Replace(server, ":", "@", 1), zone, strings.Replace(p.dns, ":", "@", 1), secret)
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	process := launch(t, filepath.Join(folder, "log"), nil, "nsd", "-d", "-c", file)
	t.Cleanup(func() { support.Stop(process.cmd) }) // it is several processes
	awaitAnswer(t, server, nameOf(first+names-1))
	return server
}
