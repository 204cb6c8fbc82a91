package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// Nodes have caused the writes of an hour at an account: the change beyond them is stored, and waits. The page, the metrics and
// the state of the usage say so. A second look does not write it, and no change of another account waits. A restart and
// POST /sync write it at once.
func TestNodeWrites(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p, nodes := startNodes(t, db, "-node-writes", "webhook=2")
	p.configure("auto", "tcp://203.0.113.7:1")
	cloud := cloudtest.Webhook(t)
	p.serviceAt(cloud, "webhook").open()
	var tokens []string
	for i := range 3 {
		usage := p.call(200, "POST", usagesPath+"?wait=30", fmt.Sprintf(`{"service_id":"cloud","prefix_mode":"custom","custom_prefix":"n%d","network_id":1}`, i)).field("id")
		tokens = append(tokens, p.lend(usage, "home"))
	}
	port := 0
	renew := func() {
		port++
		for _, token := range tokens {
			nodes.call(200, "PUT", "/lease", fmt.Sprintf(`{"endpoints":["tcp://192.31.195.7:%d"]}`, port), "Authorization", "Bearer "+token)
		}
	}
	written := func() (n int) {
		for i := range tokens {
			n += strings.Count(fmt.Sprint(cloud.Values(t, fmt.Sprintf("_mesh.n%d.%s", i, cloudtest.Zone))), fmt.Sprintf("tcp://192.31.195.7:%d", port))
		}
		return n
	}
	oneWaits := func() {
		t.Helper()
		p.eventually("two of the three changes are at the provider", func() bool { return written() == 2 })
		p.idle()
		if n := written(); n != 2 {
			t.Errorf("%d of three changes are at the provider, want two", n)
		}
		p.saysThatOneWaits()
	}
	renew()
	oneWaits()
	p.logged("used up")

	nodes.call(200, "PUT", "/lease", `{"endpoints":["tcp://192.31.195.9:11010"]}`, "Authorization", "Bearer "+p.lend(p.reserve("other"), "home"))
	p.wants("other", "192.31.195.9")

	p.stop()
	p, nodes = startNodes(t, db, "-node-writes", "webhook=2")
	p.eventually("the start writes the change", func() bool { return written() == 3 })
	p.logged("trigger=start") // the pass of the start writes what it meets, so it ends before the next change
	renew()
	oneWaits()
	if p.call(200, "POST", syncPath, ""); written() != 3 {
		t.Error("POST /sync has not written the change")
	}
}

// saysThatOneWaits wants the list, the page and the metrics to say that one change waits.
func (p *program) saysThatOneWaits() {
	p.t.Helper()
	if listed := p.call(200, "GET", usagesPath+"/available?state=pending", "", "Accept-Language", "en").body; strings.Count(listed, "only so many writes") != 1 {
		p.t.Errorf("the list has %s", listed)
	}
	if page := p.call(200, "GET", "/", "", "Accept", "text/html", "Accept-Language", "en").body; !strings.Contains(page, "only so many writes") || !strings.Contains(page, "POST /api/v1/ddns/sync writes at once") {
		p.t.Errorf("the page does not say that a change waits: %s", page)
	}
	figures := p.call(200, "GET", "/metrics", "").body
	for _, line := range []string{`meshddns_node_writes_left{provider="webhook"} 0`, "meshddns_node_changes_waiting 1"} {
		if !strings.Contains(figures, line) {
			p.t.Errorf("%s is not in the metrics", line)
		}
	}
}

// A write by a client that knows nothing of its zone yet takes at most 12 calls at each provider, with the looks around it:
// by that the writes of nodes are bounded.
func TestCallsOfAWrite(t *testing.T) {
	t.Parallel()
	cloudtest.Each(t, func(t *testing.T, cloud *cloudtest.Cloud) {
		p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"))
		p.configure("auto", "tcp://203.0.113.7:1")
		p.call(200, "PUT", servicesPath+"cloud", fmt.Sprintf(`{"name":"Cloud","config":{"domain":%q,"provider":%q,"endpoint":%q,"access_key_id":%q,"access_key_secret":%q}}`,
			cloudtest.Zone, filepath.Base(t.Name()), cloud.URL, cloud.AccessKeyID, cloud.AccessKeySecret))
		p.idle()
		cloud.Asked()
		a := p.call(200, "POST", usagesPath+"?wait=30", `{"service_id":"cloud","prefix_mode":"custom","custom_prefix":"a","network_id":1}`)
		p.idle()
		calls := len(cloud.Asked())
		t.Logf("%d calls", calls)
		if calls < 4 || calls > 12 || !strings.Contains(a.body, `"published"`) {
			t.Errorf("%d calls, want at most 12; %s", calls, a.body)
		}
	})
}
