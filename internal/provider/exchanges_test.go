package provider

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVectors: a signature of ours is to the octet that of the vendor's own client.
func TestVectors(t *testing.T) {
	for _, test := range []struct {
		vendor, scheme string
		sign           func(v vector, r *http.Request, body []byte)
	}{
		{"alidns", "ACS3", func(v vector, r *http.Request, body []byte) { signACS3(r, body, v.key()) }},
		{"tencentcloud", "TC3", func(v vector, r *http.Request, body []byte) { signTC3(r, body, v.key(), v.time(t)) }},
		{"huaweicloud", huaweiAlgorithm, func(v vector, r *http.Request, body []byte) {
			r.Header.Set("Authorization", huaweiAuthorization(r, v.signed(t), body, v.key()))
		}},
		{"volcengine", "HMAC-SHA256", func(v vector, r *http.Request, body []byte) { signVolcengine(r, body, v.key(), v.time(t)) }},
		{"baiducloud", "bce-auth-v1", func(v vector, r *http.Request, body []byte) {
			r.Header.Del("Content-Md5")
			r.Header.Del("X-Bce-Date")
			baiduCloud{&api{Key: v.key(), now: func() time.Time { return v.time(t) }}}.sign(r, body)
		}},
		{"route53", "AWS4", func(v vector, r *http.Request, body []byte) { signRoute53(r, v.signed(t), body, v.key(), v.time(t)) }},
		{"cloudflare", "Authorization: Bearer", func(v vector, r *http.Request, _ []byte) { signBearer(r, v.key()) }},
		{"jdcloud", "JDCLOUD2", func(v vector, r *http.Request, body []byte) { signJDCloud(r, body, v.key(), v.time(t)) }},
	} {
		for _, v := range vectors(t, test.vendor, test.scheme) {
			r, body := v.request(t)
			test.sign(v, r, body)
			v.check(t, test.vendor, r.Header.Get("Authorization"), v.Expect["authorization"])
		}
	}
}

const (
	exchangeName  = "_mesh.node-1.example.com"
	exchangeText  = "v=mesh1;id=1001;ep=203.0.113.7:51820"
	exchangeOther = "v=mesh1;id=1001;ep=203.0.113.8:51820"

	// oddText is the value by which the exchanges show how characters are encoded.
	oddText = `a b"c\d;e+f*g~h=i&j%k/l?m#n,o:p@qé中文😀`
)

// longText is the value of 400 octets in the exchanges.
func longText() string {
	var text strings.Builder
	for i := range 29 {
		fmt.Fprintf(&text, "%03d:ab+/= ~*&%%", i)
	}
	return text.String()[:400]
}

// recordExchanges are the exchanges of a vendor of single records.
type recordExchanges struct {
	vendor, part string
	endpoint     string // the vendor's own
	key          Credentials
	open         func(*api) recordVendor
	zone         zone // as its list shows it
	id           string
	ttl          uint32
	listed       string            // the value in the list, exchangeText if it is ""
	updated      string            // the value of the update
	headers      []string          // to be those of the vendor's client
	without      []string          // parameters that only the vendor's client sends
	kinds        []Kind            // of the refusals, in order; "" for an empty list
	unused       map[string]string // reasons, by the exchanges that our client has no use for
}

func recordTable(table func(*api) *records) func(*api) recordVendor {
	return func(a *api) recordVendor {
		a.nonce = func() string { return "" } // the vendors' clients were given no token
		return table(a)
	}
}

// TestExchanges has each client of single records send what the vendor's own client sent, and read the
// recorded answer.
func TestExchanges(t *testing.T) {
	for _, x := range []recordExchanges{
		{
			vendor: "alidns", part: "acs3", endpoint: aliEndpoint, open: recordTable(aliRecords), zone: zone{id: "example.com", minTTL: 600, servers: []string{"dns1.hichina.com", "dns2.hichina.com"}}, id: "9999985", ttl: 600,
			updated: exchangeOther, headers: []string{"X-Acs-Action", "X-Acs-Version", "X-Acs-Content-Sha256"}, unused: map[string]string{
				"list TXT at name (alternative)": "one way to list is enough", "delete all TXT at name": "it would delete values of others",
			},
		},
		{
			vendor: "tencentcloud", endpoint: tencentEndpoint, open: recordTable(tencentRecords), zone: zone{id: "example.com", minTTL: 600}, id: "556507778", ttl: 600, updated: exchangeOther,
			headers: []string{"X-Tc-Action", "X-Tc-Version", "X-Tc-Language", "Content-Type"}, kinds: []Kind{BadCredentials, BadCredentials, "", Throttled},
		},
		{ // the vendor's client sends an empty account, and may leave it out
			vendor: "volcengine", endpoint: volcEndpoint, open: recordTable(volcRecords), zone: zone{id: "12345", minTTL: 600}, id: "1234567890", ttl: 600, updated: exchangeOther,
			headers: []string{"Content-Type", "X-Content-Sha256"}, without: []string{"X-Account-Id"},
		},
		{
			vendor: "baiducloud", endpoint: baiduEndpoint, open: recordTable(baiduRecords), zone: zone{id: "example.com", minTTL: 300}, id: "5001", ttl: 300, updated: exchangeOther,
			headers: []string{"Content-Type"},
		},
		{
			vendor: "jdcloud", endpoint: jdEndpoint, open: recordTable(jdRecords), zone: zone{id: "77", minTTL: jdMinTTL}, id: "991", ttl: 600, updated: exchangeText,
			headers: []string{"Content-Type"},
		},
		{
			vendor: "cloudflare", endpoint: cloudflareEndpoint, open: func(a *api) recordVendor { return cloudflareOf(a) }, key: Credentials{AccessKeySecret: "FAKE-cloudflare-api-token-0123456789abcdef"},
			zone: zone{id: "023e105f4ecef8ad9ca31a8372d0c353", minTTL: 60, servers: []string{"a.ns.cloudflare.com", "b.ns.cloudflare.com"}},
			id:   "372e67954025e0ba6aaa6d586b9e0b59", ttl: 300, updated: exchangeOther, headers: []string{"Authorization", "Content-Type"},
			kinds:  []Kind{BadCredentials, BadCredentials, exists, gone, Throttled},
			unused: map[string]string{"overwrite TXT (PUT)": "it would take away comment and tags; PATCH leaves them"},
		},
		{
			vendor: "porkbun", endpoint: porkbunEndpoint, open: func(a *api) recordVendor { return porkbunOf(a, newTurns(0)) }, key: Credentials{AccessKeyID: "pk1_FAKEKEY", AccessKeySecret: "sk1_FAKESECRET"},
			zone: zone{id: "example.com"}, id: "106926659", ttl: 600, listed: "v=mesh1", updated: exchangeText,
		},
	} {
		x.zone.name = "example.com"
		for _, e := range exchanges(t, x.vendor, x.part) {
			if reason := x.unused[e.Op]; reason != "" {
				e.unused(t, x.vendor, reason)
				continue
			}
			address, got := e.replay(t)
			x.key.Endpoint = address
			a, err := newAPI(x.endpoint, x.key, false)
			if err != nil {
				t.Fatal(err)
			}
			want := Kind("")
			if strings.HasPrefix(e.Op, "error") {
				want, x.kinds = x.kinds[0], x.kinds[1:]
			}
			if err := x.send(t, x.open(a), e); KindOf(err) != want || want == "" && err != nil {
				t.Errorf("%s, %s: %v, want kind %q", x.vendor, e.Op, err, want)
			}
			if x.vendor == "baiducloud" && e.Request.Method == http.MethodGet {
				e.Request.Body = "" // the vendor's client sends the parameters a second time
			}
			e.check(t, x.vendor, got(), x.without, x.headers...)
		}
	}
	for _, e := range exchanges(t, "alidns", "rpc_v1") {
		e.unused(t, "alidns", "the older signature; requests are signed with ACS3")
	}
}

// send makes the call of an exchange.
func (x recordExchanges) send(t *testing.T, v recordVendor, e exchange) (err error) {
	t.Helper()
	at, old := setKey{exchangeName, TXT}, record{id: x.id}
	op := strings.NewReplacer(" TXT", "", " characters", "", "-chars", "", "-", " ").Replace(e.Op)
	switch op {
	case "find zone":
		var found zone
		if table, ok := v.(*records); ok { // without the details
			found, _, err = table.listed(t.Context(), x.zone.name)
		} else {
			found, _, err = v.zone(t.Context(), x.zone.name)
		}
		if found.id != x.zone.id || found.name != x.zone.name || found.minTTL != x.zone.minTTL || !slices.Equal(found.servers, x.zone.servers) {
			t.Errorf("%s: zone %+v, want %+v", x.vendor, found, x.zone)
		}
	case "list at name", "list records of the zone":
		var set recordSet
		set, err = v.list(t.Context(), x.zone, at)
		if len(set.records) != 1 || set.records[0].id != x.id || set.records[0].ttl != x.ttl || set.records[0].off || set.records[0].value.Text() != cmp.Or(x.listed, exchangeText) {
			t.Errorf("%s: list %+v", x.vendor, set)
		}
	case "list odd query":
		_, err = v.list(t.Context(), x.zone, setKey{"_mesh.a+~*=&%é.example.com", TXT})
	case "create", "create plain":
		err = v.create(t.Context(), x.zone, at, Value{exchangeText}, x.ttl)
	case "create odd":
		err = v.create(t.Context(), x.zone, at, Value{oddText}, x.ttl)
	case "create 400 bytes":
		if x.vendor == "jdcloud" {
			at.name = x.zone.name
		}
		err = v.create(t.Context(), x.zone, at, cutTXT(longText()), x.ttl)
	case "update", "edit (PATCH)":
		err = v.update(t.Context(), x.zone, at, old, Value{x.updated}, x.ttl)
	case "delete":
		err = v.remove(t.Context(), x.zone, at, old)
	case "error": // of Cloudflare
		err = v.create(t.Context(), x.zone, at, Value{exchangeText}, x.ttl)
	default:
		if !strings.HasPrefix(op, "error ") {
			t.Errorf("%s: exchange %q is neither sent nor left out", x.vendor, e.Op)
		}
		_, err = v.list(t.Context(), x.zone, at)
	}
	return err
}
