package provider

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

func TestCloudflareErrors(t *testing.T) {
	ray := map[string]string{"cf-ray": "8f0000000000abcd-FRA"}
	failure := func(status int, failures string) cloudtest.Answer {
		return cloudtest.Answer{Status: status, Header: ray, Body: `{"success":false,"messages":[],"result":null,"errors":[` + failures + `]}`}
	}
	const words = `"message":"words of the vendor"`
	testRefusals(t, "cloudflare", []refusal{
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
	testRefusals(t, "cloudflare", []refusal{{failure(http.StatusForbidden, ""), Permission}})
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

// TestCloudflareZones asks for a zone that is there twice.
func TestCloudflareZones(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	v := newCloudflare(t, c)
	const two = `{"id":"aa","name":"Example.com","status":"moved"},{"id":"bb","name":"example.com","status":"active"},{"id":"cc","name":"example.com","status":"pending"},{"id":"dd","name":"example.com.cn","status":"active"}`
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"success":true,"result":[` + two + `]}`}))
	if z, _, err := v.zone(t.Context(), "example.com"); z.id != "bb" || err != nil {
		t.Error("zone that is there several times:", z, err)
	}
}

// TestCloudflareList reads a TTL that stands for another, and an answer to a write that does not tell of success.
func TestCloudflareList(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	v := newCloudflare(t, c)
	const entry = `{"id":"aa","type":"TXT","name":"A.Example.com","content":"a","ttl":1}`
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"success":true,"result":[` + entry + `]}`}))
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

func TestCloudflareToken(t *testing.T) {
	for _, token := range []secrets.Secret{"token\n", "to ken", "tok\x7fn", "tökén"} {
		if _, err := NewCloudflare(Credentials{AccessKeyID: "token", AccessKeySecret: token}); KindOf(err) != BadCredentials {
			t.Errorf("%q: %v", string(token), err)
		}
	}
}

func TestLooseTXT(t *testing.T) {
	for content, want := range map[string]Value{
		`"a" "b"`:                                {"a", "b"},
		`"a \"b\" \\ c"`:                         {`a "b" \ c`},
		`"\195\169 é"`:                           {"é é"},
		`a "b" \ c`:                              {`a "b" \ c`},
		`"a"b"`:                                  {`"a"b"`},
		`"`:                                      {`"`},
		`"quoted"`:                               {"quoted"},
		`a "b"`:                                  {`a "b"`},
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

// TestCloudflareProxied: addresses at a name of which one is proxied, of either family, are in no answer of DNS. A TXT value there is.
func TestCloudflareProxied(t *testing.T) {
	const name, v4, v6 = "a." + cloudtest.Zone, "192.0.2.1", "2001:db8::1"
	c, client := openNamed(t, "cloudflare")
	change := func(at string, kind Type, value string) Change {
		return Change{Zone: cloudtest.Zone, Name: at, Type: kind, Add: []Value{{value}}, TTL: 60}
	}
	want := func(what string, kind Type, values, off int, refusal Kind) {
		t.Helper()
		set, err := client.Read(t.Context(), cloudtest.Zone, name, kind)
		if err != nil || len(set.Values) != values || len(set.Off) != off {
			t.Errorf("%s: %+v, %v, want %d and %d off", what, set, err, values, off)
		}
		one := change(name, kind, map[Type]string{A: "192.0.2.2", AAAA: "2001:db8::2", TXT: what}[kind])
		one.Seen = set
		if err := client.Change(t.Context(), one); KindOf(err) != refusal || refusal != "" && !Unmade(err) {
			t.Errorf("%s: %v, want %q", what, err, refusal)
		}
		c.RemoveRecord(t, name, string(kind), one.Add[0].Text())
		c.Remove(t, name, one.Add[0])
	}
	c.AddRecord(t, name, "A", v4)
	c.AddRecord(t, name, "AAAA", v6)
	want("no proxy", A, 1, 0, "")
	c.SwitchOff(name, "A", true)
	want("its own proxy", A, 0, 1, Conflict)
	want("the other family's proxy", AAAA, 0, 2, Conflict)
	want("another type", TXT, 0, 0, "")
	many := []Change{change(name, AAAA, "2001:db8::3"), change("b."+cloudtest.Zone, AAAA, v6), change("c."+cloudtest.Zone, A, v4), change("d."+cloudtest.Zone, A, v4), change(name, TXT, "x")}
	for i, err := range client.ChangeAll(t.Context(), many) {
		if want := map[bool]Kind{true: Conflict}[i == 0]; KindOf(err) != want {
			t.Errorf("change %d of many: %v, want %q", i, err, want)
		}
	}
	c.SwitchOff(name, "A", false)
	want("no proxy any more", AAAA, 1, 0, "")
}
