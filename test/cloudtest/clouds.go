package cloudtest

import (
	"slices"
	"strings"
	"testing"
)

type cloud struct {
	name  string
	start func(testing.TB) *Cloud
}

// all are the stand-ins, by their names in the list of providers.
var all = []cloud{
	{"alidns", AliDNS},
	{"tencentcloud", TencentCloud},
	{"huaweicloud", HuaweiCloud},
	{"volcengine", Volcengine},
	{"baiducloud", BaiduCloud},
	{"route53", Route53},
	{"cloudflare", Cloudflare},
	{"powerdns", PowerDNS},
	{"dnspod", DNSPod},
	{"jdcloud", JDCloud},
	{"godaddy", GoDaddy},
	{"porkbun", Porkbun},
	{"webhook", Webhook},
}

// few are different from each other: signed queries, sets of records, XML, JSON, and two without a vendor.
var few = []string{"alidns", "huaweicloud", "route53", "cloudflare", "powerdns", "webhook"}

// Each runs a test against a stand-in of each kind, side by side; in the short run against few.
func Each(t *testing.T, test func(t *testing.T, c *Cloud)) {
	for _, cloud := range all {
		if testing.Short() && !slices.Contains(few, cloud.name) {
			continue
		}
		t.Run(cloud.name, func(t *testing.T) {
			t.Parallel()
			test(t, cloud.start(t))
		})
	}
}

// Second gives another account at the same address, with a key pair and zones
// of its own.
func (c *Cloud) Second(t testing.TB, zones ...string) *Cloud {
	at := slices.IndexFunc(all, func(one cloud) bool { return one.name == c.Provider })
	second := all[at].start(t)
	second.zones, second.lastID, second.URL = nil, 500_000, c.URL
	second.AccessKeySecret += "2"
	if !slices.Contains([]string{"powerdns", "cloudflare", "webhook"}, c.Provider) { // whose ids are no secrets
		second.AccessKeyID += "2"
	}
	for _, name := range zones {
		second.AddZone(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.second = second
	return second
}

// Names are the stand-ins' names in the list of providers.
func Names() (names []string) {
	for _, one := range all {
		names = append(names, one.name)
	}
	return names
}

// Start runs the stand-in with a name of Names.
func Start(t testing.TB, name string) *Cloud {
	t.Helper()
	at := slices.IndexFunc(all, func(one cloud) bool { return one.name == name })
	if at < 0 {
		t.Fatalf("there is no stand-in %q", name)
	}
	return all[at].start(t)
}

// All gives every TXT record of a zone, as name and value with a space between,
// sorted; what stands twice is there twice.
func (c *Cloud) All(zone string) (records []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.zone == zone && r.kind == "TXT" {
			records = append(records, r.name+" "+strings.Join(c.v.read(r.content), ""))
		}
	}
	slices.Sort(records)
	return records
}
