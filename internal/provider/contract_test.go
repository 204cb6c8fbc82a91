package provider_test

import (
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/dns"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
	"meshddns/test/contract"
	"meshddns/test/servertest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "16") // these tests mostly wait for servers
	os.Exit(m.Run())
}

// clients makes the client of each provider that speaks HTTP.
var clients = map[string]func(provider.Credentials) (*provider.Client, error){
	"alidns":       provider.NewAliDNS,
	"tencentcloud": provider.NewTencentCloud,
	"huaweicloud":  provider.NewHuaweiCloud,
	"volcengine":   provider.NewVolcengine,
	"baiducloud":   provider.NewBaiduCloud,
	"route53":      provider.NewRoute53,
	"cloudflare":   provider.NewCloudflare,
	"powerdns":     provider.NewPowerDNS,
	"dnspod":       provider.NewDNSPod,
	"jdcloud":      provider.NewJDCloud,
	"godaddy":      provider.NewGoDaddy,
	"porkbun":      provider.NewPorkbun,
	"webhook":      provider.NewWebhook,
}

// newClient makes a client of a stand-in, with the right key.
func newClient(t testing.TB, c *cloudtest.Cloud) *provider.Client {
	t.Helper()
	client, err := clients[c.Provider](credentials(c))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func credentials(c *cloudtest.Cloud) provider.Credentials {
	return provider.Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL}
}

// plainValues are values of others that every provider can hold.
func plainValues() []provider.Value {
	return []provider.Value{
		{"v=spf1 include:example.net -all"},
		{"v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQ+/="},
		{"google-site-verification=a_b-c~d*e%20f+g&h"},
		{"v=mesh2 o=000000000000"},
		{strings.Repeat("x", 255)},
		{strings.Repeat("k", 255), strings.Repeat("k", 100)},
	}
}

// oddValues are such that only providers with quoted values can hold.
func oddValues() []provider.Value {
	return append(plainValues(),
		provider.Value{`a "quote", a \ and a ; $ORIGIN ( @ )`},
		provider.Value{"a", "b"},
		provider.Value{"ab"},
		provider.Value{" led and trailed "},
	)
}

// oddestValues are such that only DNS servers can hold.
func oddestValues() []provider.Value {
	var all strings.Builder
	for octet := range 128 {
		all.WriteByte(byte(octet))
	}
	return append(oddValues(), provider.Value{all.String()}, provider.Value{"caf\xc3\xa9 \xff\x00"}, provider.Value{"", "ab"}, provider.Value{""})
}

// keepsOdd are the clouds that hold oddValues.
var keepsOdd = []string{"tencentcloud", "huaweicloud", "route53", "cloudflare", "powerdns", "dnspod"}

// onceOnly are the clouds in which a name has a value only once: those of sets, and one whose lists
// cannot tell a copy from a repeated item.
var onceOnly = []string{"huaweicloud", "route53", "powerdns", "godaddy", "webhook"}

func TestContractClouds(t *testing.T) {
	t.Parallel()
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		foreign := plainValues()
		if slices.Contains(keepsOdd, c.Provider) {
			foreign = oddValues()
		}
		const alias = "alias." + cloudtest.Zone
		c.AddAlias(alias, "elsewhere.example.net")
		contract.Test(t, contract.Backend{
			Client: newClient(t, c), Outside: c, Zone: cloudtest.Zone, Foreign: foreign, Alias: alias,
			Copies: !slices.Contains(onceOnly, c.Provider), Unread: unreadAtClouds(c),
		})
	})
}

// unreadAtClouds are answers to a write that is made, and to those after it.
func unreadAtClouds(c *cloudtest.Cloud) (all []func() (end func())) {
	gateway, nothing, unknown := page(http.StatusBadGateway), page(http.StatusOK), page(http.StatusBadRequest)
	for _, answers := range [][2]*cloudtest.Answer{{&gateway, nil}, {&nothing, nil}, {&gateway, &unknown}, {nil, nil}, {nil, &unknown}} {
		all = append(all, func() (end func()) {
			c.Fail(cloudtest.Unread(answers[0], answers[1]))
			return func() { c.FailNoMore() }
		})
	}
	return all
}

// unreadAtServers are answers to an update that is made; those after it are refused.
func unreadAtServers(f *front) (all []func() (end func())) {
	for _, spoil := range []spoil{
		func(dns.Message, []byte) []byte { return nil },
		func(_ dns.Message, answer []byte) []byte { return answer[:len(answer)-1] },
		servertest.Fails(dns.RcodeRefused, false),
		servertest.Fails(dns.RcodeServFail, false),
		servertest.Fails(dns.RcodeServFail, true),
	} {
		all = append(all, func() (end func()) { return f.unread(spoil) })
	}
	return all
}

func TestContractServers(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		front := newFront(t, s)
		client, err := provider.NewRFC2136(provider.Credentials{AccessKeyID: servertest.Key, AccessKeySecret: servertest.Secret, Endpoint: front.addr})
		if err != nil {
			t.Fatal(err)
		}
		contract.Test(t, contract.Backend{
			Client: client, Outside: s, Zone: servertest.Zone, Foreign: oddestValues(), Alias: "alias.example.com", Unread: unreadAtServers(front),
		})
	})
}

func TestTypesClouds(t *testing.T) {
	t.Parallel()
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		if c.Provider == "powerdns" || len(client.Types()) == 1 { // PowerDNS itself is tested
			t.Skip("the stand-in has TXT records only")
		}
		const alias = "alias." + cloudtest.Zone
		c.AddAlias(alias, "elsewhere.example.net")
		contract.TestTypes(t, contract.Backend{Client: client, Outside: c, Zone: cloudtest.Zone, Alias: alias})
	})
}

func TestTypesServers(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		client, err := provider.NewRFC2136(provider.Credentials{AccessKeyID: servertest.Key, AccessKeySecret: servertest.Secret, Endpoint: s.Addr})
		if err != nil {
			t.Fatal(err)
		}
		contract.TestTypes(t, contract.Backend{
			Client: client, Outside: s, Zone: servertest.Zone, Alias: "alias.example.com", Cased: s.Name == "PowerDNS",
		})
	})
}

// TestUnsupportedTypes has the types that a client does not have: no call is made.
func TestUnsupportedTypes(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		for _, kind := range []provider.Type{provider.A, provider.AAAA, provider.SRV, "MX", ""} {
			if slices.Contains(client.Types(), kind) {
				continue
			}
			change := provider.Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: kind, TTL: 600}
			_, read := client.Read(t.Context(), change.Zone, change.Name, kind)
			for what, err := range map[string]error{
				"read": read, "change": client.Change(t.Context(), change), "change all": client.ChangeAll(t.Context(), []provider.Change{change})[0],
			} {
				if provider.KindOf(err) != provider.UnsupportedType || !provider.Unmade(err) {
					t.Errorf("%s of type %q: %v, want %s, unmade", what, kind, err, provider.UnsupportedType)
				}
			}
		}
		if n := c.Requests(); n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}
