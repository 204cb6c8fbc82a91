package provider

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

// refusal is an error answer of a vendor, and its expected kind.
type refusal struct {
	answer cloudtest.Answer
	kind   Kind
}

// testRefusals reads a name with each answer in place of the list. Every error that the vendor sends must
// contain the words.
func testRefusals(t *testing.T, vendor string, refusals []refusal, words ...string) {
	t.Helper()
	c, client := openNamed(t, vendor)
	for _, r := range refusals {
		c.Fail(cloudtest.Instead(r.answer))
		_, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT)
		t.Log(err)
		if KindOf(err) != r.kind || err == nil {
			t.Errorf("HTTP %d %s: %v, want %s", r.answer.Status, r.answer.Body, err, r.kind)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%v is a %T", err, err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not say %q", err, word)
			}
			r.answer.Body = strings.ReplaceAll(r.answer.Body, word, c.AccessKeySecret)
		}
		c.Fail(cloudtest.Instead(r.answer))
		_, err = client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT)
		t.Log(err)
		if err == nil || strings.Contains(err.Error(), c.AccessKeySecret) {
			t.Errorf("%v, want an error without the secret that the vendor repeats", err)
		}
	}
}

// openCloud makes a client that looks again at once.
func openCloud(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error)) *Client {
	t.Helper()
	client, err := open(Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	client.poll = time.Millisecond
	return client
}

// TestRequestID has a request id that is no id.
func TestRequestID(t *testing.T) {
	c := cloudtest.AliDNS(t)
	client := openCloud(t, c, NewAliDNS)
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusBadRequest, map[string]any{"Code": "X", "Message": "m", "RequestId": strings.Repeat("x\n", 1<<20)})))
	_, err := client.Zone(t.Context(), cloudtest.Zone)
	if n := len(err.Error()); n > 2000 || strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of %d octets", n)
	}
}

// TestKeysStayHidden has a vendor repeat parts of a key that echoes of the secret alone do not show: the id that is as
// secret as the rest, the secret where package json expects a number and repeats the text in its error, and the header
// that the password is in.
func TestKeysStayHidden(t *testing.T) {
	type object = map[string]any
	basic := func(id, secret string) string { return base64.StdEncoding.EncodeToString([]byte(id + ":" + secret)) }
	for _, test := range []struct {
		vendor string
		status int
		answer func(id, secret string) object
	}{
		{"dnspod", 200, func(id, secret string) object {
			return object{"status": object{"code": "2", "message": "bad login_token=" + id + "," + secret}}
		}},
		{"dnspod", 200, func(_, secret string) object { return object{"status": object{"code": secret}} }},
		{"cloudflare", 200, func(_, secret string) object { return object{"errors": []any{object{"code": secret}}} }},
		{"webhook", 401, func(id, secret string) object { return object{"error": "Authorization: Basic " + basic(id, secret)} }},
	} {
		c := cloudtest.Start(t, test.vendor)
		c.Fail(cloudtest.Instead(cloudtest.JSON(test.status, test.answer(c.AccessKeyID, c.AccessKeySecret))))
		_, err := openCloud(t, c, openOf(test.vendor)).Zone(t.Context(), cloudtest.Zone)
		for _, part := range []string{c.AccessKeyID, c.AccessKeySecret, basic(c.AccessKeyID, c.AccessKeySecret)} {
			if err == nil || part != "" && strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v shows %s", test.vendor, err, part)
			}
		}
	}
}

// TestKeyCharacters has a key that no header can hold.
func TestKeyCharacters(t *testing.T) {
	for name, open := range map[string]func(Credentials) (*Client, error){
		"powerdns": NewPowerDNS, "godaddy": NewGoDaddy, "alidns": NewAliDNS, "route53": NewRoute53, "tencent": NewTencentCloud,
		"huawei": NewHuaweiCloud, "baidu": NewBaiduCloud, "jd": NewJDCloud, "volc": NewVolcengine,
	} {
		client, err := open(Credentials{AccessKeyID: "id\n", AccessKeySecret: "the secret\n", Endpoint: "http://127.0.0.1:1"})
		if err == nil {
			_, err = client.Zone(t.Context(), "example.com")
		}
		if KindOf(err) != BadCredentials {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCodeKinds(t *testing.T) {
	kinds := codeKinds{{"A*|?z", Quota}, {"*b", Conflict}, {"*", Temporary}}
	for code, want := range map[string]Kind{"Ab": Quota, "cz": Quota, "cb": Conflict, "a/b": Conflict, "x/y.Z": Temporary, "": Temporary} {
		if got := kinds.of(code, "any words"); got != want {
			t.Errorf("%q: %s, want %s", code, got, want)
		}
	}
	words := codeKinds{{"X: *full of that*|X: *a limit*", Quota}, {": *a limit*", Throttled}, {"X", Invalid}}
	for said, want := range map[[2]string]Kind{
		{"X", "it has\n a  limit/s"}: Quota, {"", "a limit"}: Throttled, {"X", "a code: no limit"}: Invalid, {"Y", "a limit"}: "",
	} {
		if got := words.of(said[0], said[1]); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}
