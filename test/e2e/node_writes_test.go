package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// Nodes have caused the writes of an hour at an account: the next change is stored, and waits. The page, the metrics and
// the state of the usage say so. A second look does not write it, and no change of another account waits. A restart and
// POST /sync write it at once.
func TestNodeWrites(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p, nodes := startNodes(t, db, "-node-writes", "webhook=2")
	p.configure("auto", "tcp://203.0.113.7:1")
	cloud := cloudtest.Webhook(t)
	p.serviceAt(cloud, "webhook").open()
	var usage string
	var tokens []string
	for i := range 3 {
		usage = p.call(200, "POST", usagesPath+"?wait=30", fmt.Sprintf(`{"service_id":"cloud","prefix_mode":"custom","custom_prefix":"n%d","network_id":1}`, i)).field("id")
		tokens = append(tokens, p.lend(usage, "home"))
	}
	port := 1
	renew := func() {
		for i, token := range tokens {
			nodes.call(200, "PUT", "/lease", fmt.Sprintf(`{"endpoints":["tcp://192.31.195.%d:%d"]}`, i, port), "Authorization", "Bearer "+token)
		}
	}
	has := func(i int) bool {
		return strings.Contains(fmt.Sprint(cloud.Values(t, fmt.Sprintf("_mesh.n%d.%s", i, cloudtest.Zone))), fmt.Sprintf("tcp://192.31.195.%d:%d", i, port))
	}
	renew()
	p.eventually("the first two changes are at the provider, also after the second look", func() bool {
		return has(0) && has(1) && strings.Count(p.call(200, "GET", usagesPath+"/available?state=published", "").body, `"state":"published"`) == 2
	})
	p.idle()
	waits := func() {
		t.Helper()
		if a := p.call(200, "GET", usagesPath+"/"+usage, "", "Accept-Language", "en").body; has(2) || !strings.Contains(a, `"state":"pending"`) || !strings.Contains(a, "only so many writes") {
			t.Errorf("the third change is at the provider: %t; %s", has(2), a)
		}
	}
	waits()
	p.saysThatOneWaits()
	p.logged("used up")

	nodes.call(200, "PUT", "/lease", `{"endpoints":["tcp://192.31.195.9:11010"]}`, "Authorization", "Bearer "+p.lend(p.reserve("other"), "home"))
	p.wants("other", "192.31.195.9")

	p.stop()
	p, nodes = startNodes(t, db, "-node-writes", "webhook=2")
	p.eventually("the start writes the change", func() bool { return has(2) })
	p.idle()
	port++
	renew()
	p.eventually("the next two changes are at the provider", func() bool { return has(0) && has(1) })
	p.idle()
	waits()
	if p.call(200, "POST", syncPath, ""); !has(2) {
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
