package cloudtest

import "testing"

// all are the stand-ins, by their names in the list of providers.
var all = []struct {
	name  string
	start func(testing.TB) *Cloud
}{
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

// Each runs a test against a stand-in of each kind, side by side.
func Each(t *testing.T, test func(t *testing.T, c *Cloud)) {
	for _, cloud := range all {
		t.Run(cloud.name, func(t *testing.T) {
			t.Parallel()
			test(t, cloud.start(t))
		})
	}
}
