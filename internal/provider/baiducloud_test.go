package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

func TestBaiduCloudVectors(t *testing.T) {
	for _, v := range vectors(t, "baiducloud", "bce-auth-v1") {
		r, body := v.request(t)
		parts := strings.Split(v.Expect["authorization"], "/")
		signed := strings.Split(parts[4], ";")
		v.check(t, "baiducloud", bceAuthorization(r, signed, v.key(), v.time(t)), v.Expect["authorization"])
		a := baiduCloud{&api{Key: v.key(), now: func() time.Time { return v.time(t) }}}
		for _, name := range []string{"Content-Md5", "X-Bce-Date"} {
			r.Header.Del(name)
		}
		a.sign(r, body)
		v.check(t, "baiducloud", r.Header.Get("Authorization"), v.Expect["authorization"])
	}
}

func TestBaiduCloudExchanges(t *testing.T) {
	const value, other = "v=mesh1;id=1001;ep=203.0.113.7:51820", "v=mesh1;id=1001;ep=203.0.113.8:51820"
	const name = "_mesh.node-1.example.com"
	z := zone{id: "example.com", name: "example.com"}
	for _, e := range exchanges(t, "baiducloud", "") {
		address, got := e.replay(t)
		a, err := newAPI(baiduEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		a.nonce = func() string { return "" } // the vendor's client was given no token
		v := baiduRecords(a)
		switch e.Op {
		case "find zone":
			var found zone
			found, _, err = v.zone(t.Context(), "example.com")
			if found.id != z.id || found.minTTL != 300 {
				t.Errorf("zone %+v", found)
			}
			e.Request.Body = "" // the vendor's client sends the parameters of this GET a second time
		case "list TXT at name":
			var set recordSet
			set, err = v.list(t.Context(), z, setKey{name, TXT})
			if r := set.records; len(r) != 1 || r[0].id != "5001" || r[0].ttl != 300 || r[0].off || !r[0].value.Equal(Value{value}) {
				t.Errorf("records %+v", r)
			}
		case "create TXT":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 300)
		case "create TXT odd characters":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 300)
		case "update TXT":
			err = v.update(t.Context(), z, setKey{name, TXT}, record{id: "5001"}, Value{other}, 300)
		case "delete TXT":
			err = v.remove(t.Context(), z, setKey{name, TXT}, record{id: "5001"})
		default:
			t.Errorf("exchange %q is new", e.Op)
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		e.check(t, "baiducloud", got(), nil, "Content-Type")
	}
}

// baiduFailure is an answer that refuses a call.
func baiduFailure(status int, code string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{"requestId": "c4abab14-ebc4", "code": code, "message": "words of the vendor"})
}

func TestBaiduCloudErrors(t *testing.T) {
	testRefusals(t, cloudtest.BaiduCloud(t), NewBaiduCloud, []refusal{
		{baiduFailure(http.StatusForbidden, "InvalidAccessKeyId"), BadCredentials},
		{baiduFailure(http.StatusBadRequest, "InvalidHTTPAuthHeader"), BadCredentials},
		{baiduFailure(http.StatusBadRequest, "SignatureDoesNotMatch"), BadCredentials},
		{baiduFailure(http.StatusForbidden, "AccessDenied"), Permission},
		{baiduFailure(http.StatusForbidden, "QualifyNotPass"), Permission},
		{baiduFailure(http.StatusBadRequest, "OptInRequired"), Permission},
		{baiduFailure(http.StatusBadRequest, "RequestExpired"), ClockSkew},
		{baiduFailure(http.StatusInternalServerError, "InternalError"), Temporary},
		{baiduFailure(http.StatusBadRequest, "InternalError"), Temporary},
		{baiduFailure(http.StatusServiceUnavailable, "NeverHeardOf"), Temporary},
		{baiduFailure(http.StatusTooManyRequests, "NeverHeardOf"), Throttled},
		{baiduFailure(http.StatusBadRequest, "MalformedJSON"), Invalid},
		{baiduFailure(http.StatusPreconditionFailed, "PreconditionFailed"), Invalid},
		{baiduFailure(http.StatusNotFound, "InvalidVersion"), Invalid},
		{baiduFailure(http.StatusBadRequest, "NeverHeardOf"), Invalid},
		{baiduFailure(http.StatusNotFound, "NeverHeardOf"), ZoneNotFound},
		{baiduFailure(http.StatusBadRequest, "NoSuchObject"), ZoneNotFound},
		{baiduFailure(http.StatusBadRequest, "RecordQuotaExceeded"), Quota},
		{baiduFailure(http.StatusBadRequest, "RecordConflict"), Conflict},
	}, "c4abab14-ebc4", "words of the vendor")
	for code, kind := range map[string]Kind{"RecordDuplicated": exists, "RecordAlreadyExists": exists, "NoSuchObject": ""} {
		if got := baiduErrors.of(code, ""); got != kind {
			t.Errorf("%s is %s, want %s", code, got, kind)
		}
	}
}

func TestBaiduCloudMalformed(t *testing.T) {
	answers := []string{
		``, `null`, `[]`, `"text"`, `{`, `<html>gateway</html>`, `{"isTruncated":"no"}`, `{"isTruncated":true}`, `{"isTruncated":true,"nextMarker":""}`,
		`{"records":{}}`, `{"records":[1]}`, `{"records":[{"id":5001}]}`, `{"records":[{"ttl":-1}]}`, `{"records":"text"}`,
	}
	var refusals []refusal
	for _, body := range answers {
		refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusOK, Body: body}, BadAnswer})
	}
	refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusBadGateway, Body: `<html>gateway</html>`}, Temporary},
		refusal{cloudtest.Answer{Status: http.StatusForbidden}, Permission})
	testRefusals(t, cloudtest.BaiduCloud(t), NewBaiduCloud, refusals)
}

func TestBaiduCloudValues(t *testing.T) {
	v := baiduRecords(nil)
	for _, value := range []Value{{""}, {`a "b"`}, {`a\b`}, {"a "}, {" a"}, {"é"}, {"a", "b"}, cutTXT(strings.Repeat("x", 513))} {
		if v.fits(TXT, value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for _, value := range []Value{{`v=mesh1 n=1 o=a tcp://[2001:db8::1]:1?a=b&c=d+e~f*g%20'`}, cutTXT(strings.Repeat("x", 512))} {
		if err := v.fits(TXT, value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestBaiduCloudMinTTL(t *testing.T) {
	for version, want := range map[string]uint32{"basic": 300, "free": 300, "": 300, "discount": 120, "puhui": 120, "Enterprise": 1} {
		if got := baiduMinTTL(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

// TestBaiduCloudPages has a list that goes on without saying where, or that
// comes back to where it was.
func TestBaiduCloudPages(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	truncated := func(next string) cloudtest.Fault {
		return cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"isTruncated": true, "nextMarker": next, "zones": []any{}}))
	}
	for _, next := range []string{"", "one"} {
		c.Fail(truncated("one"), truncated(next))
		if _, err := openCloud(t, c, NewBaiduCloud).Zone(t.Context(), cloudtest.Zone); err == nil || KindOf(err) != BadAnswer {
			t.Errorf("then %q: %v, want %s", next, err, BadAnswer)
		}
	}
}

// baiduRecordList is the answer to a list, of records in the vendor's form.
func baiduRecordList(records ...any) cloudtest.Fault {
	return cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"isTruncated": false, "nextMarker": "", "records": records}))
}

func baiduShown(id, rr, kind, line, status string) map[string]any {
	return map[string]any{"id": id, "rr": rr, "type": kind, "value": id, "ttl": 300, "line": line, "status": status}
}

// TestBaiduCloudOthers has a list of all types at all names that look alike,
// of some resolvers only, and switched off.
func TestBaiduCloudOthers(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	client := openCloud(t, c, NewBaiduCloud)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	c.Fail(baiduRecordList(
		baiduShown("plain", "A", "TXT", "default", "running"), baiduShown("silent", "a", "TXT", "", ""),
		baiduShown("below", "b.a", "TXT", "default", "running"), baiduShown("like", "aa", "TXT", "default", "running"),
		baiduShown("kind", "a", "MX", "default", "running"), baiduShown("apex", "@", "TXT", "default", "running"),
		baiduShown("line", "a", "TXT", "ct", "running"), baiduShown("off", "a", "TXT", "default", "stopped"),
		baiduShown("other alias", "aa", "CNAME", "default", "running"), baiduShown("alias", "a", "CNAME", "default", "running"),
	))
	set, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT)
	if want := []Value{{"plain"}, {"silent"}}; err != nil || !sameValues(set.Values, want) {
		t.Errorf("%v, %v, want %v", set.Values, err, want)
	}
}

// TestBaiduCloudAlias reads where an alias stands: one that counts excludes
// values, one that is off or for some resolvers only may not.
func TestBaiduCloudAlias(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	client := openCloud(t, c, NewBaiduCloud)
	c.AddAlias("alias."+cloudtest.Zone, "elsewhere.example")
	if _, err := client.Read(t.Context(), cloudtest.Zone, "alias."+cloudtest.Zone, TXT); KindOf(err) != Conflict {
		t.Errorf("%v, want %s", err, Conflict)
	}
	if _, err := client.Read(t.Context(), cloudtest.Zone, "ias."+cloudtest.Zone, TXT); err != nil {
		t.Errorf("beside an alias of a longer name: %v", err)
	}
	c.Fail(baiduRecordList(baiduShown("one", "a", "CNAME", "default", "running"), baiduShown("two", "a", "TXT", "default", "stopped")))
	if _, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT); KindOf(err) != Conflict {
		t.Errorf("beside a value that is off: %v, want %s", err, Conflict)
	}
	c.Fail(baiduRecordList(baiduShown("one", "a", "CNAME", "ct", "running"), baiduShown("two", "a", "CNAME", "default", "stopped")))
	if _, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT); err != nil {
		t.Errorf("aliases that do not count: %v", err)
	}
}

// TestBaiduCloudToken makes a record twice: the service takes both, unless the
// second call is the first one again.
func TestBaiduCloudToken(t *testing.T) {
	for _, test := range []struct {
		name  string
		nonce func() string
		want  int
	}{{"new tokens", newNonce, 2}, {"one token", func() string { return "token" }, 1}} {
		c := cloudtest.BaiduCloud(t)
		client := openCloud(t, c, NewBaiduCloud)
		v := client.vendor.(*records)
		v.api.nonce = test.nonce
		z, _, err := v.zone(t.Context(), cloudtest.Zone)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := v.create(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, Value{"v"}, 300); err != nil {
				t.Error(err)
			}
		}
		if got := c.Values(t, "a."+cloudtest.Zone); len(got) != test.want {
			t.Errorf("%s: %v, want %d", test.name, got, test.want)
		}
	}
}

// TestBaiduCloudLostAnswer loses the answer to a new record; the change made
// again finds it there, and makes no second one.
func TestBaiduCloudLostAnswer(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	client := openCloud(t, c, NewBaiduCloud)
	change := Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"v"}}, TTL: 60}
	c.Fail(cloudtest.Lost)
	if err := client.Change(t.Context(), change); KindOf(err) != Network {
		t.Errorf("%v, want %s", err, Network)
	}
	if err := client.Change(t.Context(), change); KindOf(err) != Changed {
		t.Errorf("made again unseen: %v, want %s", err, Changed)
	}
	var err error
	if change.Seen, err = client.Read(t.Context(), change.Zone, change.Name, TXT); err != nil {
		t.Fatal(err)
	}
	if err := client.Change(t.Context(), change); err != nil {
		t.Error(err)
	}
	if got := c.Values(t, change.Name); len(got) != 1 || c.TTL(change.Name) != 300 {
		t.Errorf("%v with TTL %d, want one with 300", got, c.TTL(change.Name))
	}
}

// TestBaiduCloudDoubles takes away a value that is there twice, and replaces
// one that is.
func TestBaiduCloudDoubles(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	client := openCloud(t, c, NewBaiduCloud)
	name := "a." + cloudtest.Zone
	for range 2 {
		c.Add(t, name, []string{"v"})
	}
	for _, add := range [][]Value{{{"w"}}, nil} {
		seen, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
		if err != nil || len(seen.Values) != 1 {
			t.Fatal(seen, err)
		}
		if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: seen, Add: add, Remove: seen.Values, TTL: 300}); err != nil {
			t.Error(err)
		}
		if got := c.Values(t, name); len(got) != len(add) {
			t.Errorf("%v, want %v", got, add)
		}
	}
}

// TestBaiduCloudGone removes and replaces a record that another has removed.
func TestBaiduCloudGone(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	v := openCloud(t, c, NewBaiduCloud).vendor.(*records)
	z, _, err := v.zone(t.Context(), cloudtest.Zone)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.remove(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, record{id: "1"}); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	if err := v.update(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, record{id: "1"}, Value{"v"}, 300); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	z.id = "elsewhere.example"
	if err := v.create(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, Value{"v"}, 300); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
}
