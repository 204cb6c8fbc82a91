package provider

import (
	"net/http"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

func TestVolcengineVectors(t *testing.T) {
	for _, v := range vectors(t, "volcengine", "HMAC-SHA256") {
		r, body := v.request(t)
		signVolcengine(r, body, v.key(), v.time(t))
		v.check(t, "volcengine", r.Header.Get("Authorization"), v.Expect["authorization"])
	}
}

func TestVolcengineExchanges(t *testing.T) {
	const value, other = "v=mesh1;id=1001;ep=203.0.113.7:51820", "v=mesh1;id=1001;ep=203.0.113.8:51820"
	const name = "_mesh.node-1.example.com"
	z := zone{id: "12345", name: "example.com"}
	for _, e := range exchanges(t, "volcengine", "") {
		address, got := e.replay(t)
		a, err := newAPI(volcEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v := volcRecords(a)
		switch e.Op {
		case "find zone":
			var found zone
			found, _, err = v.listed(t.Context(), "example.com")
			if found.id != z.id || found.minTTL != 600 {
				t.Errorf("zone %+v", found)
			}
		case "list TXT at name":
			var set recordSet
			set, err = v.list(t.Context(), z, setKey{name, TXT})
			if want := (record{id: "1234567890", value: Value{value}, ttl: 600}); len(set.records) != 1 || !sameRecord(set.records[0], want) {
				t.Errorf("records %+v, want %+v", set.records, want)
			}
		case "create TXT":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 600)
		case "create TXT odd characters":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 600)
		case "update TXT":
			err = v.update(t.Context(), z, setKey{name, TXT}, record{id: "1234567890"}, Value{other}, 600)
		case "delete TXT":
			err = v.remove(t.Context(), z, setKey{name, TXT}, record{id: "1234567890"})
		default:
			t.Errorf("exchange %q is new", e.Op)
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		// The vendor's client sends an empty account, and may leave it out.
		e.check(t, "volcengine", got(), []string{"X-Account-Id"}, "Content-Type", "X-Content-Sha256")
	}
}

func sameRecord(a, b record) bool {
	return a.id == b.id && a.ttl == b.ttl && a.off == b.off && a.value.Equal(b.value)
}

// volcFailure is an answer that refuses a call.
func volcFailure(status int, code string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{"ResponseMetadata": map[string]any{
		"RequestId": "20230411150314CE", "Error": map[string]any{"Code": code, "CodeN": 400100, "Message": "words of the vendor"},
	}})
}

func TestVolcengineErrors(t *testing.T) {
	testRefusals(t, cloudtest.Volcengine(t), NewVolcengine, []refusal{
		{volcFailure(http.StatusUnauthorized, "InvalidAccessKey"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidCredential"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidAuthorization"), BadCredentials},
		{volcFailure(http.StatusUnauthorized, "SignatureDoesNotMatch"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidTimestamp"), ClockSkew},
		{volcFailure(http.StatusForbidden, "AccessDenied"), Permission},
		{volcFailure(http.StatusBadRequest, "LackPolicy"), Permission},
		{volcFailure(http.StatusBadRequest, "FlowLimitExceeded"), Throttled},
		{volcFailure(http.StatusTooManyRequests, "NeverHeardOf"), Throttled},
		{volcFailure(http.StatusInternalServerError, "ErrInternalServer"), Temporary},
		{volcFailure(http.StatusOK, "InternalServiceTimeout"), Temporary},
		{volcFailure(http.StatusBadGateway, "NeverHeardOf"), Temporary},
		{volcFailure(http.StatusBadRequest, "ErrParsingParams"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrParamInvalid"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrPageSizeNotValid"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrZoneNotFound"), ZoneNotFound},
		{volcFailure(http.StatusOK, "ErrZoneNotFound"), ZoneNotFound},
		{volcFailure(http.StatusBadRequest, "ErrDBNotFound"), ZoneNotFound},
		{volcFailure(http.StatusBadRequest, "ErrQuotaExceeded"), Quota},
		{volcFailure(http.StatusBadRequest, "ErrZoneRecordCountLimited"), Quota},
		{volcFailure(http.StatusOK, "NeverHeardOf"), Invalid},
	}, "20230411150314CE", "words of the vendor")
	for code, kind := range map[string]Kind{"ErrDBDuplicated": exists, "ErrDBNotFound": gone} {
		if got := volcErrors.of(code, ""); got != kind {
			t.Errorf("%s is %s, want %s", code, got, kind)
		}
	}
}

func TestVolcengineMalformed(t *testing.T) {
	answers := []string{
		``, `null`, `[]`, `"text"`, `{`, `<html>gateway</html>`, `{}`, `{"ResponseMetadata":null}`, `{"ResponseMetadata":[]}`,
		`{"ResponseMetadata":{"Error":"text"}}`, `{"ResponseMetadata":{}}`, `{"ResponseMetadata":{},"Result":null}`,
		`{"ResponseMetadata":{},"Result":[]}`, `{"ResponseMetadata":{},"Result":{"Records":{}}}`,
		`{"ResponseMetadata":{},"Result":{"Records":[{"TTL":"600"}]}}`, `{"ResponseMetadata":{},"Result":{"Records":[{"Host":1}]}}`,
	}
	var refusals []refusal
	for _, body := range answers {
		refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusOK, Body: body}, BadAnswer})
	}
	refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusBadGateway, Body: `<html>gateway</html>`}, Temporary})
	testRefusals(t, cloudtest.Volcengine(t), NewVolcengine, refusals)
}

func TestVolcengineValues(t *testing.T) {
	v := volcRecords(nil)
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

// TestVolcengineOthers has a list with more than was asked for: records of other names and types, of
// some resolvers only, and disabled ones.
func TestVolcengineOthers(t *testing.T) {
	c := cloudtest.Volcengine(t)
	client := openCloud(t, c, NewVolcengine)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	one := func(id, host, kind, line string, enable any) map[string]any {
		return map[string]any{"RecordID": id, "Host": host, "Type": kind, "Value": id, "TTL": 600, "Line": line, "Enable": enable}
	}
	records := []any{
		one("plain", "A", "TXT", "default", true), one("spelt", "a", "TXT", "Default", true), one("silent", "a", "TXT", "", nil),
		one("below", "b.a", "TXT", "default", true), one("like", "aa", "TXT", "default", true), one("apex", "@", "TXT", "default", true),
		one("kind", "a", "A", "default", true), one("line", "a", "TXT", "telecom", true), one("off", "a", "TXT", "default", false),
	}
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{
		"ResponseMetadata": map[string]any{}, "Result": map[string]any{"TotalCount": len(records), "Records": records},
	})))
	set, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT)
	if want := []Value{{"plain"}, {"spelt"}, {"silent"}}; err != nil || !sameValues(set.Values, want) {
		t.Errorf("%v, %v, want %v", set.Values, err, want)
	}
}

// TestVolcengineZonePages has a search that gives look-alikes, and the zone on
// the second page.
func TestVolcengineZonePages(t *testing.T) {
	c := cloudtest.Volcengine(t)
	zones := func(names ...string) cloudtest.Fault {
		var shown []any
		for i, name := range names {
			shown = append(shown, map[string]any{"ZID": i + 1, "ZoneName": name, "TradeCode": "free_inner"})
		}
		return cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{
			"ResponseMetadata": map[string]any{}, "Result": map[string]any{"Total": 3, "Zones": shown},
		}))
	}
	c.Fail(zones("notexample.com", "example.com.cn"), zones("Example.Com"), zones())
	zone, err := openCloud(t, c, NewVolcengine).Zone(t.Context(), cloudtest.Zone)
	if err != nil || zone != cloudtest.Zone {
		t.Errorf("zone %q, %v", zone, err)
	}
	if requests := c.Asked(); len(requests) != 3 || requests[0].Query("PageNumber") != "" || requests[1].Query("PageNumber") != "2" || requests[2].Query("ZID") != "1" {
		t.Errorf("requests %v", requests)
	}
}

// TestVolcengineServers learns the name servers, and does without them.
func TestVolcengineServers(t *testing.T) {
	c := cloudtest.Volcengine(t)
	authority, err := openCloud(t, c, NewVolcengine).Authority(t.Context(), cloudtest.Zone)
	if err != nil || len(authority.Names) != 2 || authority.Names[0] != "ns1.volcdns.test" {
		t.Errorf("%v, %v", authority, err)
	}
	c.Fail(cloudtest.Pass, cloudtest.Instead(volcFailure(http.StatusForbidden, "AccessDenied")))
	if authority, err := openCloud(t, c, NewVolcengine).Authority(t.Context(), cloudtest.Zone); err != nil || len(authority.Names) != 0 {
		t.Errorf("without the right: %v, %v", authority, err)
	}
}

// TestVolcengineAlias writes beside an alias, which only the zone's own name
// allows, and with the least TTL.
func TestVolcengineAlias(t *testing.T) {
	c := cloudtest.Volcengine(t)
	client := openCloud(t, c, NewVolcengine)
	add := func(name, value string) error {
		return client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{value}}, TTL: 60})
	}
	c.AddAlias("alias."+cloudtest.Zone, "elsewhere.example")
	c.AddAlias(cloudtest.Zone, "elsewhere.example")
	if err := add("alias."+cloudtest.Zone, "v"); KindOf(err) != Conflict || !strings.Contains(err.Error(), "ErrParamInvalid") {
		t.Errorf("%v, want %s", err, Conflict)
	}
	if err := add(cloudtest.Zone, "v"); err != nil || c.TTL(cloudtest.Zone) != 600 {
		t.Errorf("%v, TTL %d", err, c.TTL(cloudtest.Zone))
	}
	c.Fail(cloudtest.Pass, cloudtest.Instead(volcFailure(http.StatusBadRequest, "ErrParamInvalid")))
	if err := add("plain."+cloudtest.Zone, "v"); KindOf(err) != Invalid {
		t.Errorf("refused without an alias: %v, want %s", err, Invalid)
	}
}

// TestVolcengineGone removes and replaces a record that another has removed,
// and makes one that is there.
func TestVolcengineGone(t *testing.T) {
	c := cloudtest.Volcengine(t)
	v := openCloud(t, c, NewVolcengine).vendor.(*records)
	z, _, err := v.zone(t.Context(), cloudtest.Zone)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.remove(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, record{id: "1"}); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	if err := v.update(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, record{id: "1"}, Value{"v"}, 600); KindOf(err) != gone {
		t.Errorf("%v, want %s", err, gone)
	}
	c.Add(t, "a."+cloudtest.Zone, []string{"v"})
	if err := v.create(t.Context(), z, setKey{"a." + cloudtest.Zone, TXT}, Value{"v"}, 600); KindOf(err) != exists {
		t.Errorf("%v, want %s", err, exists)
	}
}
