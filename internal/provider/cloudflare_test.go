package provider

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

func TestCloudflareVectors(t *testing.T) {
	for _, v := range vectors(t, "cloudflare", "Authorization: Bearer") {
		r, _ := v.request(t)
		signBearer(r, v.key())
		v.check(t, "cloudflare", r.Header.Get("Authorization"), v.Expect["authorization"])
	}
}

// longText is the value of 400 octets in the exchanges.
func longText() string {
	var text strings.Builder
	for i := 0; text.Len() < 400; i++ {
		text.WriteString(string([]byte{'0', '0' + byte(i/10), '0' + byte(i%10)}) + ":ab+/= ~*&%")
	}
	return text.String()[:400]
}

func TestCloudflareExchanges(t *testing.T) {
	const value, other = "v=mesh1;id=1001;ep=203.0.113.7:51820", "v=mesh1;id=1001;ep=203.0.113.8:51820"
	const name = "_mesh.node-1.example.com"
	z := zone{id: "023e105f4ecef8ad9ca31a8372d0c353", name: "example.com"}
	old := record{id: "372e67954025e0ba6aaa6d586b9e0b59"}
	kinds := []Kind{BadCredentials, BadCredentials, exists, gone, Throttled} // of the refused calls, in order
	for _, e := range exchanges(t, "cloudflare", "") {
		address, got := e.replay(t)
		a, err := newAPI(cloudflareEndpoint, Credentials{AccessKeySecret: "FAKE-cloudflare-api-token-0123456789abcdef", Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v, headers := cloudflareOf(a), []string{"Authorization", "Content-Type"}
		switch e.Op {
		case "find zone":
			headers = headers[:1]
			var found zone
			if found, _, err = v.zone(t.Context(), "example.com"); found.id != z.id || !slices.Equal(found.servers, []string{"a.ns.cloudflare.com", "b.ns.cloudflare.com"}) {
				t.Errorf("zone %+v", found)
			}
		case "list TXT at name":
			headers = headers[:1]
			var set recordSet
			if set, err = v.list(t.Context(), z, setKey{name, TXT}); len(set.records) != 1 || set.records[0].id != old.id || set.records[0].value.Text() != value {
				t.Errorf("list %+v", set)
			}
		case "create TXT":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 300)
		case "create TXT odd characters":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 300)
		case "create TXT 400 bytes":
			err = v.create(t.Context(), z, setKey{name, TXT}, cutTXT(longText()), 300)
		case "edit TXT (PATCH)":
			err = v.update(t.Context(), z, setKey{name, TXT}, old, Value{other}, 300)
		case "delete TXT":
			headers = headers[:1]
			err = v.remove(t.Context(), z, setKey{name, TXT}, old)
		case "error":
			if err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 300); KindOf(err) != kinds[0] {
				t.Errorf("%v, want %s", err, kinds[0])
			}
			kinds, err = kinds[1:], nil
		case "overwrite TXT (PUT)":
			e.unused(t, "cloudflare", "it would take away comment and tags; PATCH leaves them")
			continue
		default:
			t.Errorf("nothing is said of %q", e.Op)
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		e.check(t, "cloudflare", got(), nil, headers...)
	}
}

func TestCloudflareErrors(t *testing.T) {
	ray := map[string]string{"cf-ray": "8f0000000000abcd-FRA"}
	failure := func(status int, failures string) cloudtest.Answer {
		return cloudtest.Answer{Status: status, Header: ray, Body: `{"success":false,"messages":[],"result":null,"errors":[` + failures + `]}`}
	}
	const words = `"message":"words of the vendor"`
	testRefusals(t, cloudtest.Cloudflare(t), NewCloudflare, []refusal{
		{failure(http.StatusForbidden, `{"code":9109,`+words+`}`), BadCredentials},
		{failure(http.StatusForbidden, `{"code":9109,"message":"Unauthorized to access requested resource: words of the vendor"}`), Permission},
		{failure(http.StatusForbidden, `{"code":10000,`+words+`}`), BadCredentials},
		{failure(http.StatusTooManyRequests, `{"code":10000,`+words+`}`), Throttled},
		{failure(http.StatusTooManyRequests, `{"code":971,`+words+`}`), Throttled},
		{failure(http.StatusBadRequest, `{"code":6003,`+words+`,"error_chain":[{"code":6103,"message":"chained"}]}`), BadCredentials},
		{failure(http.StatusBadRequest, `{"code":1004,`+words+`,"error_chain":[{"code":81058,"message":"chained"}]}`), exists},
		{failure(http.StatusBadRequest, `{"code":1,"message":"first"},{"code":81054,`+words+`}`), Conflict},
		{failure(http.StatusBadRequest, `{"code":81053,`+words+`}`), Conflict},
		{failure(http.StatusBadRequest, `{"code":81057,`+words+`}`), exists},
		{failure(http.StatusNotFound, `{"code":81044,`+words+`}`), gone},
		{failure(http.StatusBadRequest, `{"code":81045,`+words+`}`), Quota},
		{failure(http.StatusNotFound, `{"code":7003,`+words+`}`), ZoneNotFound},
		{failure(http.StatusConflict, `{"code":9999,`+words+`}`), Temporary},
		{failure(http.StatusBadGateway, `{"code":10000,`+words+`}`), Temporary},
		{failure(http.StatusBadRequest, `{"code":"9999",`+words+`}`), Invalid},
		{failure(http.StatusOK, `{"code":9999,`+words+`}`), Invalid},
	}, "8f0000000000abcd-FRA", "words of the vendor")
	var unreadable []refusal
	for _, body := range []string{
		"", "null", "[]", `{}`, `"text"`, "<html>", `{"success":true}`, `{"success":true,"result":null}`, `{"success":true,"result":{}}`,
		`{"success":true,"result":[1]}`, `{"success":true,"result":[{"id":7}]}`, `{"success":true,"result":[],"result_info":7}`, `{"errors":"no list"}`,
	} {
		unreadable = append(unreadable, refusal{cloudtest.Answer{Status: http.StatusOK, Body: body}, BadAnswer})
	}
	testRefusals(t, cloudtest.Cloudflare(t), NewCloudflare, append(unreadable,
		refusal{cloudtest.Answer{Status: http.StatusBadGateway, Body: "<html>"}, Temporary},
		refusal{failure(http.StatusForbidden, ""), Permission},
	))
}

// TestCloudflareWords has all codes and words of one answer in the error, and
// the pause that the vendor asks for.
func TestCloudflareWords(t *testing.T) {
	a, err := newAPI(cloudflareEndpoint, Credentials{}, false)
	if err != nil {
		t.Fatal(err)
	}
	said, kinds := cloudflareFailure{Chain: []cloudflareFailure{
		{Code: "1004", Message: "invalid", Chain: []cloudflareFailure{{Code: "81058", Message: "identical"}}}, {Code: "7", Message: "more"},
	}}.verdict(http.StatusTooManyRequests, "ray")
	header := http.Header{"Retry-After": {"7"}}
	refused, _ := errors.AsType[*Error](a.refused(call{name: "create record"}, answer{status: http.StatusTooManyRequests, header: header}, said, kinds))
	const want = "create record at api.cloudflare.com: HTTP 429: 1004: invalid; 81058 identical; 7 more (request ray)"
	if refused.Detail.String() != want || refused.RetryAfter != 7*time.Second {
		t.Errorf("%s, after %s; want\n%s", refused.Detail, refused.RetryAfter, want)
	}
	if said, _ = (cloudflareFailure{Chain: []cloudflareFailure{{Code: "1004", Message: "a", Chain: []cloudflareFailure{{Code: "81058", Message: "b"}}}}}).verdict(400, ""); said.code != "81058" || said.message != "1004 a; b" {
		t.Errorf("%+v", said)
	}
}

// TestCloudflareZones asks for a zone that is there twice, and for one that
// only a private network sees.
func TestCloudflareZones(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	c.AddPrivateZone("private.example.com")
	v := newCloudflare(t, c)
	if _, found, err := v.zone(t.Context(), "private.example.com"); found || err != nil {
		t.Error("private zone:", found, err)
	}
	const two = `{"id":"aa","name":"Example.com","status":"moved"},{"id":"bb","name":"example.com","status":"active"},{"id":"cc","name":"example.com","status":"pending"},{"id":"dd","name":"example.com.cn","status":"active"}`
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"success":true,"result":[` + two + `]}`}))
	if z, _, err := v.zone(t.Context(), "example.com"); z.id != "bb" || err != nil {
		t.Error("zone that is there several times:", z, err)
	}
}

// TestCloudflareList reads records of other types and names, and a TTL that stands for another.
func TestCloudflareList(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	v := newCloudflare(t, c)
	const entry = `{"id":"aa","type":"TXT","name":"A.Example.com","content":"a","ttl":1},`
	const others = `{"type":"TXT","name":"b.example.com","content":"b"},{"type":"CNAME","name":"a.example.com","content":"c"},null`
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"success":true,"result":[` + entry + others + `]}`}))
	set, err := v.list(t.Context(), zone{id: "zz", name: "example.com"}, setKey{"a.example.com", TXT})
	if err != nil || len(set.records) != 1 || set.records[0].id != "aa" || set.records[0].ttl != cloudflareAutoTTL {
		t.Errorf("%+v, %v", set, err)
	}
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{}`}))
	if err := v.create(t.Context(), zone{id: "zz"}, setKey{"a.example.com", TXT}, Value{"a"}, 60); KindOf(err) != BadAnswer || err == nil {
		t.Error("a write without success:", err)
	}
}

// newCloudflare makes a client of a stand-in.
func newCloudflare(t *testing.T, c *cloudtest.Cloud) *cloudflare {
	t.Helper()
	a, err := newAPI(cloudflareEndpoint, Credentials{AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL}, false)
	if err != nil {
		t.Fatal(err)
	}
	return cloudflareOf(a)
}

func TestCloudflareCNAME(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	client, err := NewCloudflare(Credentials{AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	name := "alias." + cloudtest.Zone
	c.AddAlias(name, "target.example.net")
	if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"value"}}}); KindOf(err) != Conflict {
		t.Error(err)
	}
}

func TestCloudflareToken(t *testing.T) {
	for _, token := range []secrets.Secret{"token\n", "to ken", "tok\x7fn", "tökén"} {
		if _, err := NewCloudflare(Credentials{AccessKeyID: "token", AccessKeySecret: token}); KindOf(err) != BadCredentials {
			t.Errorf("%q: %v", string(token), err)
		}
	}
}

func TestCloudflareValue(t *testing.T) {
	for content, want := range map[string]Value{
		`"a" "b"`:                                {"a", "b"},
		`"a \"b\" \\ c"`:                         {`a "b" \ c`},
		`"\195\169 é"`:                           {"é é"},
		`a "b" \ c`:                              {`a "b" \ c`},
		`"a"b"`:                                  {`"a"b"`},
		`"`:                                      {`"`},
		``:                                       {""},
		strings.Repeat("x", 300):                 {strings.Repeat("x", 255), strings.Repeat("x", 45)},
		`"` + strings.Repeat("x", 300) + `" "y"`: {strings.Repeat("x", 255), strings.Repeat("x", 45), "y"},
	} {
		if v := looseTXT(content); !v.Equal(want) {
			t.Errorf("%s: %q, want %q", content, v, want)
		}
	}
	for _, v := range []Value{{`a "b" \ c`}, {"a", "b"}, {" a "}, {`\065`}} {
		if again := looseTXT(quoteTXT(v, "")); !again.Equal(v) {
			t.Errorf("%q comes back as %q", v, again)
		}
	}
}

func TestCloudflareValues(t *testing.T) {
	v := cloudflareOf(&api{})
	for _, value := range []Value{{""}, {"", ""}, {"é"}, {"a\nb"}, {"\x00"}, {"\xff"}, cutTXT(strings.Repeat("x", 4081))} {
		if v.fits(TXT, value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for _, value := range []Value{
		{"v=mesh1 n=1 o=a tcp://[2001:db8::1]:1?a=b&c=d+e~f*g%20'"}, {`a "b" \`}, {"a", "b"}, {" a "}, cutTXT(strings.Repeat("x", 4080)),
	} {
		if err := v.fits(TXT, value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
