package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

func TestJDCloudVectors(t *testing.T) {
	for _, v := range vectors(t, "jdcloud", "JDCLOUD2") {
		r, body := v.request(t)
		signJDCloud(r, body, v.key(), v.time(t))
		v.check(t, "jdcloud", r.Header.Get("Authorization"), v.Expect["authorization"])
		if got := strings.Join(jdSigned, ";"); got != strings.Join(v.signed(t), ";") {
			t.Errorf("%s: signed are %s", v.Name, got)
		}
	}
}

func TestJDCloudExchanges(t *testing.T) {
	const value, name = "v=mesh1;id=1001;ep=203.0.113.7:51820", "_mesh.node-1.example.com"
	z := zone{id: "77", name: "example.com"}
	for _, e := range exchanges(t, "jdcloud", "") {
		address, got := e.replay(t)
		a, err := newAPI(jdEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v := jdRecords(a)
		switch e.Op {
		case "find-zone":
			var found zone
			if found, _, err = v.zone(t.Context(), "example.com"); found.id != "77" {
				t.Errorf("zone %+v", found)
			}
		case "list-odd-query":
			_, err = v.list(t.Context(), z, setKey{"_mesh.a+~*=&%é.example.com", TXT})
		case "create-plain":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 600)
		case "create-odd-chars":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 600)
		case "create-400-bytes":
			err = v.create(t.Context(), z, setKey{"example.com", TXT}, cutTXT(long400()), 600)
		case "update":
			err = v.update(t.Context(), z, setKey{name, TXT}, record{id: "991"}, Value{value}, 600)
		case "delete":
			err = v.remove(t.Context(), z, setKey{name, TXT}, record{id: "991"})
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		e.check(t, "jdcloud", got(), nil, "Content-Type")
	}
}

// long400 is the long value of the exchanges.
func long400() string {
	var text strings.Builder
	for i := range 29 {
		fmt.Fprintf(&text, "%03d:ab+/= ~*&%%", i)
	}
	return text.String()[:400]
}

func jdFailure(status int, code, message string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{
		"requestId": "bqt7be14", "error": map[string]any{"code": status, "status": code, "message": message},
	})
}

func TestJDCloudErrors(t *testing.T) {
	const words = "words of the vendor"
	inside := jdFailure(http.StatusForbidden, "NeverHeardOf", words)
	inside.Status = http.StatusOK
	testRefusals(t, cloudtest.JDCloud(t), NewJDCloud, []refusal{
		{jdFailure(http.StatusUnauthorized, "ACCESS_ERROR", words), BadCredentials},
		{jdFailure(http.StatusUnauthorized, "UNAUTHENTICATED", words), BadCredentials},
		{jdFailure(http.StatusBadRequest, "APIGW_KEY_DISABLED", words), BadCredentials},
		{jdFailure(http.StatusBadRequest, "APIGW_SIGN_RESULT_NOT_SAME", words), BadCredentials},
		{jdFailure(http.StatusForbidden, "HTTP_FORBIDDEN", words), Permission},
		{jdFailure(http.StatusForbidden, "APIGW_USER_BLACK_LIST", words), Permission},
		{jdFailure(http.StatusForbidden, "HTTP_FORBIDDEN", words+": please use different noncestr [gw]"), Temporary},
		{jdFailure(http.StatusForbidden, "APIGW_NONCE_CONFLICT", words), Temporary},
		{jdFailure(http.StatusNotFound, "RESOURCE_NOT_EXIST", words), ZoneNotFound},
		{jdFailure(http.StatusNotFound, "NOT_FOUND", words), ZoneNotFound},
		{jdFailure(http.StatusConflict, "ALREADY_EXISTS", words), exists},
		{jdFailure(http.StatusConflict, "CONFLICT", words), Conflict},
		{jdFailure(http.StatusConflict, "ABORTED", words), Temporary},
		{jdFailure(499, "CANCELLED", words), Temporary},
		{jdFailure(http.StatusTooManyRequests, "QUOTA_EXCEEDED", words), Quota},
		{jdFailure(http.StatusBadRequest, "RATE_LIMIT_EXCEEDED", words), Throttled},
		{jdFailure(http.StatusTooManyRequests, "NeverHeardOf", words), Throttled},
		{jdFailure(http.StatusBadGateway, "SOURCE_UNAVAILABLE", words), Temporary},
		{jdFailure(http.StatusBadRequest, "NeverHeardOf", words), Invalid},
		{inside, Permission},
	}, "bqt7be14", words)
}

func TestJDCloudUnreadable(t *testing.T) {
	text := func(status int, body string) cloudtest.Answer { return cloudtest.Answer{Status: status, Body: body} }
	testRefusals(t, cloudtest.JDCloud(t), NewJDCloud, []refusal{
		{text(http.StatusOK, ""), BadAnswer},
		{text(http.StatusOK, "null"), BadAnswer},
		{text(http.StatusOK, "{}"), BadAnswer},
		{text(http.StatusOK, "[]"), BadAnswer},
		{text(http.StatusOK, `{"result":null}`), BadAnswer},
		{text(http.StatusOK, `{"result":[]}`), BadAnswer},
		{text(http.StatusOK, `{"result":{"dataList":"none"}}`), BadAnswer},
		{text(http.StatusOK, `{"result":{"dataList":[{"id":{},"ttl":-1}]}}`), BadAnswer},
		{text(http.StatusOK, "<html>a proxy</html>"), BadAnswer},
		{text(http.StatusBadGateway, "<html>a proxy</html>"), Temporary},
		{text(http.StatusForbidden, `{"error":"no"}`), Permission},
	}, "DescribeResourceRecord")
}

// TestJDCloudAccess has wrong keys, a wrong clock and a nonce used twice.
func TestJDCloudAccess(t *testing.T) {
	c := cloudtest.JDCloud(t)
	key := Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL}
	wrongID, wrongSecret := key, key
	wrongID.AccessKeyID, wrongSecret.AccessKeySecret = "JDC_OTHER", "another secret"
	for _, key := range []Credentials{wrongID, wrongSecret} {
		client, err := NewJDCloud(key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Zone(t.Context(), cloudtest.Zone); KindOf(err) != BadCredentials || strings.Contains(err.Error(), "another secret") {
			t.Errorf("%v, want %s", err, BadCredentials)
		}
	}
	a, err := newAPI(jdEndpoint, key, false)
	if err != nil {
		t.Fatal(err)
	}
	a.nonce = func() string { return "always the same" }
	v := jdRecords(a)
	if _, found, err := v.zone(t.Context(), "no-such-zone.test"); found || err != nil {
		t.Fatal(found, err)
	}
	if _, _, err := v.zone(t.Context(), "no-such-zone.test"); KindOf(err) != Temporary {
		t.Errorf("a nonce used twice: %v, want %s", err, Temporary)
	}
	c.SetClock(time.Hour)
	if _, err := openCloud(t, c, NewJDCloud).Zone(t.Context(), cloudtest.Zone); KindOf(err) != ClockSkew {
		t.Errorf("%v, want %s", err, ClockSkew)
	}
}

// TestJDCloudExactly has zones and hosts that only look alike, on every page.
func TestJDCloudExactly(t *testing.T) {
	c := cloudtest.JDCloud(t)
	client := openCloud(t, c, NewJDCloud)
	if zone, err := client.Zone(t.Context(), "_mesh.a."+cloudtest.ChildZone); err != nil || zone != cloudtest.ChildZone {
		t.Errorf("zone %q, %v", zone, err)
	}
	for _, label := range []string{"mesh", "_mesh.x", "x_mesh", "xmesh.y"} {
		for i := range cloudtest.PageLimit {
			c.Add(t, label+"."+cloudtest.Zone, []string{fmt.Sprintf("of %s %d", label, i)})
		}
	}
	c.Add(t, "_mesh."+cloudtest.Zone, []string{"ours"})
	set, err := client.Read(t.Context(), cloudtest.Zone, "_mesh."+cloudtest.Zone, TXT)
	if err != nil || len(set.Values) != 1 || set.Values[0].Text() != "ours" {
		t.Errorf("%v, %v", set, err)
	}
}

// TestJDCloudLines has records that are paused or of a special line: they are not values, and the client
// does not touch them.
func TestJDCloudLines(t *testing.T) {
	for viewValue, all := range map[string]bool{
		`[-1]`: true, `-1`: true, `"-1"`: true, `[]`: true, `null`: true, `[3]`: false, `[-1,3]`: false, `3`: false, `{}`: false,
	} {
		var decoded any
		if err := json.Unmarshal([]byte(viewValue), &decoded); err != nil {
			t.Fatal(err)
		}
		if jdForAll(decoded) != all {
			t.Errorf("viewValue %s: %v, want %v", viewValue, !all, all)
		}
	}
	c := cloudtest.JDCloud(t)
	client := openCloud(t, c, NewJDCloud)
	name := "off." + cloudtest.Zone
	c.AddOff(name, []string{"paused"})
	if set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT); err != nil || len(set.Values) != 0 {
		t.Errorf("%v, %v", set, err)
	}
	if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"paused"}}, TTL: 60}); KindOf(err) != Conflict {
		t.Errorf("%v, want %s", err, Conflict)
	}
}

func TestJDCloudAlias(t *testing.T) {
	c := cloudtest.JDCloud(t)
	client := openCloud(t, c, NewJDCloud)
	c.AddAlias("www."+cloudtest.Zone, "target.example.net")
	err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "www." + cloudtest.Zone, Type: TXT, Add: []Value{{"ours"}}, TTL: 60})
	if KindOf(err) != Conflict || !strings.Contains(err.Error(), "target.example.net") {
		t.Errorf("%v, want %s", err, Conflict)
	}
	if _, err := client.Read(t.Context(), cloudtest.Zone, "x.www."+cloudtest.Zone, TXT); err != nil {
		t.Error(err)
	}
}

// TestJDCloudOnce loses the answer to each kind of write. The retry leaves one record, although the
// vendor would accept two.
func TestJDCloudOnce(t *testing.T) {
	c := cloudtest.JDCloud(t)
	client := openCloud(t, c, NewJDCloud)
	name := "once." + cloudtest.Zone
	for _, step := range []struct {
		add, remove []Value
		want        int
	}{
		{[]Value{{"one"}}, nil, 1},
		{[]Value{{"two"}}, []Value{{"one"}}, 1},
		{[]Value{{"three"}, {"four"}}, nil, 3},
		{nil, []Value{{"two"}}, 2},
	} {
		change := func() error {
			seen, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
			if err != nil {
				t.Fatal(err)
			}
			return client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: seen, Add: step.add, Remove: step.remove, TTL: 60})
		}
		c.Fail(cloudtest.Lost)
		if err := change(); KindOf(err) != Network {
			t.Errorf("%v: %v, want %s", step, err, Network)
		}
		if err := change(); err != nil {
			t.Error(step, err)
		}
		if got := c.Values(t, name); len(got) != step.want {
			t.Errorf("%v leaves %q", step, got)
		}
	}
	if ttl := c.TTL(name); ttl != jdMinTTL {
		t.Errorf("TTL %d, want %d", ttl, jdMinTTL)
	}
}

// TestJDCloudGone writes records that another user has deleted meanwhile.
func TestJDCloudGone(t *testing.T) {
	c := cloudtest.JDCloud(t)
	v := openCloud(t, c, NewJDCloud).vendor.(*records)
	z, _, err := v.zone(t.Context(), cloudtest.Zone)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.remove(t.Context(), z, setKey{cloudtest.Zone, TXT}, record{id: "1"}); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	if err := v.update(t.Context(), z, setKey{cloudtest.Zone, TXT}, record{id: "1"}, Value{"x"}, jdMinTTL); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	z.id = "1"
	if err := v.create(t.Context(), z, setKey{cloudtest.Zone, TXT}, Value{"x"}, jdMinTTL); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
}

func TestJDCloudValues(t *testing.T) {
	v := jdRecords(nil)
	for _, value := range []Value{{""}, {`a "b"`}, {`a\b`}, {"a "}, {" a"}, {"é"}, {"a", "b"}, cutTXT(strings.Repeat("x", 256))} {
		if v.fits(TXT, value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for _, value := range []Value{{`v=mesh1 n=1 o=a tcp://[2001:db8::1]:1?a=b&c=d+e~f*g%20'`}, {strings.Repeat("x", 255)}} {
		if err := v.fits(TXT, value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
	for text, want := range map[string]Value{
		`plain`: {"plain"}, `"quoted"`: {"quoted"}, `"a" "b\"c"`: {"a", `b"c`}, `"open`: {`"open`}, `a "b"`: {`a "b"`}, ``: {""},
	} {
		if got := looseTXT(text); !got.Equal(want) {
			t.Errorf("%s is read as %q, want %q", text, got, want)
		}
	}
}
