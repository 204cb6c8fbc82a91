package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

func TestTencentCloudVectors(t *testing.T) {
	for _, v := range vectors(t, "tencentcloud", "TC3") {
		r, body := v.request(t)
		signTC3(r, body, v.key(), v.time(t))
		v.check(t, "tencentcloud", r.Header.Get("Authorization"), v.Expect["authorization"])
	}
}

// TestTencentCloudDay signs on both sides of midnight in UTC, with a clock that
// shows another day: the day in the scope is that of the timestamp.
func TestTencentCloudDay(t *testing.T) {
	last := vectors(t, "tencentcloud", "TC3")[1]
	for _, at := range []time.Time{last.time(t), last.time(t).Add(time.Second)} {
		r, body := last.request(t)
		signTC3(r, body, last.key(), at.In(time.FixedZone("CST", 8*60*60)))
		if want := "/" + at.Format("2006-01-02") + "/dnspod/tc3_request,"; !strings.Contains(r.Header.Get("Authorization"), want) {
			t.Errorf("%s is not in %s", want, r.Header.Get("Authorization"))
		}
		if want := fmt.Sprint(at.Unix()); r.Header.Get("X-TC-Timestamp") != want {
			t.Errorf("timestamp %s, want %s", r.Header.Get("X-TC-Timestamp"), want)
		}
	}
}

func TestTencentCloudExchanges(t *testing.T) {
	const value, other = "v=mesh1;id=1001;ep=203.0.113.7:51820", "v=mesh1;id=1001;ep=203.0.113.8:51820"
	const name = "_mesh.node-1.example.com"
	z := zone{id: "example.com", name: "example.com"}
	for _, e := range exchanges(t, "tencentcloud", "") {
		address, got := e.replay(t)
		a, err := newAPI(tencentEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v, set, want := tencentRecords(a), recordSet{}, Kind("")
		switch e.Op {
		case "find zone":
			_, _, err = v.listed(t.Context(), "example.com")
		case "list TXT at name":
			set, err = v.list(t.Context(), z, setKey{name, TXT})
			if len(set.records) != 1 || set.records[0].id != "556507778" || set.records[0].value.Text() != value || set.records[0].off {
				t.Errorf("%s: %+v", e.Op, set)
			}
		case "create TXT":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 600)
		case "create TXT odd characters":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 600)
		case "update TXT":
			err = v.update(t.Context(), z, setKey{name, TXT}, record{id: "556507778"}, Value{other}, 600)
		case "delete TXT":
			err = v.remove(t.Context(), z, setKey{name, TXT}, record{id: "556507778"})
		case "error AuthFailure.SecretIdNotFound", "error AuthFailure.SignatureFailure":
			_, err = v.list(t.Context(), z, setKey{name, TXT})
			want = BadCredentials
		case "error ResourceNotFound.NoDataOfRecord":
			set, err = v.list(t.Context(), z, setKey{name, TXT})
		case "error RequestLimitExceeded":
			_, err = v.list(t.Context(), z, setKey{name, TXT})
			want = Throttled
		default:
			t.Errorf("%s: what is that?", e.Op)
			continue
		}
		if (err != nil || want != "") && KindOf(err) != want {
			t.Errorf("%s: %v, want kind %q", e.Op, err, want)
		}
		e.check(t, "tencentcloud", got(), nil, "X-Tc-Action", "X-Tc-Version", "X-Tc-Language", "Content-Type")
	}
}

func tencentFailure(code string) cloudtest.Answer {
	return tencentAnswer(map[string]any{"Error": map[string]any{"Code": code, "Message": "words of the vendor"}})
}

func tencentAnswer(response map[string]any) cloudtest.Answer {
	response["RequestId"] = "ed93f3cb-f35e"
	return cloudtest.JSON(http.StatusOK, map[string]any{"Response": response})
}

func TestTencentCloudErrors(t *testing.T) {
	var refusals []refusal
	for kind, codes := range map[Kind]string{
		BadCredentials: "AuthFailure AuthFailure.SecretIdNotFound AuthFailure.SignatureFailure AuthFailure.InvalidSecretId AuthFailure.TokenFailure " +
			"FailedOperation.LoginFailed InvalidParameter.InvalidSignature InvalidParameter.InvalidSecretId InvalidParameter.LoginTokenIdError",
		ClockSkew: "AuthFailure.SignatureExpire",
		Permission: "AuthFailure.UnauthorizedOperation UnauthorizedOperation OperationDenied.AccessDenied FailedOperation.DomainIsLocked " +
			"FailedOperation.DomainIsSpam FailedOperation.NotRealNamedUser InvalidParameter.UnrealNameUser IpNotInWhitelist",
		ZoneNotFound: "InvalidParameterValue.DomainNotExists InvalidParameter.DomainInvalid InvalidParameter.DomainIdInvalid " +
			"FailedOperation.NotDomainOwner OperationDenied.NoPermissionToOperateDomain",
		Quota: "LimitExceeded LimitExceeded.SubdomainRollLimit",
		Invalid: "LimitExceeded.RecordTtlLimit InvalidParameter.RecordValueInvalid InvalidParameter.RecordValueLengthInvalid " +
			"InvalidParameter.SubdomainInvalid FailedOperation NeverHeardOf",
		Throttled: "RequestLimitExceeded RequestLimitExceeded.IPLimitExceeded RequestLimitExceeded.UinLimitExceeded " +
			"RequestLimitExceeded.GlobalRegionUinLimitExceeded FailedOperation.FrequencyLimit",
		Temporary: "InternalError InternalError.Panic FailedOperation.UnknowError InvalidParameter.OperateFailed",
	} {
		for code := range strings.FieldsSeq(codes) {
			refusals = append(refusals, refusal{tencentFailure(code), kind})
		}
	}
	testRefusals(t, cloudtest.TencentCloud(t), NewTencentCloud, refusals, "ed93f3cb-f35e", "words of the vendor")
}

func TestTencentCloudUnreadable(t *testing.T) {
	testUnreadable(t, cloudtest.TencentCloud(t), NewTencentCloud, []string{
		`{"Response":null}`, `{"Response":[]}`, `{"Response":"x"}`, `{"Response":{}}`, `{"Response":{"RequestId":"r","RecordList":{}}}`,
		`{"Response":{"RequestId":"r","RecordCountInfo":{"TotalCount":"many"}}}`, `{"Response":{"Error":"x","RequestId":"r"}}`,
	})
}

// testUnreadable has answers that no vendor sends: the given bodies, and some that no client can parse.
func testUnreadable(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error), bodies []string) {
	t.Helper()
	var refusals []refusal
	for _, body := range slices.Concat(bodies, []string{"", "null", "[]", `"x"`, "{", "{}", "<html>Welcome to the hotel</html>"}) {
		refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusOK, Body: body}, BadAnswer})
	}
	refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusBadGateway, Body: "<html>Bad Gateway</html>"}, Temporary})
	testRefusals(t, c, open, refusals)
}

func TestTencentCloudValues(t *testing.T) { testPlainValues(t, tencentRecords(nil)) }

// testPlainValues checks the values that a vendor of plain values of one character-string accepts.
func testPlainValues(t *testing.T, v vendor) {
	t.Helper()
	for _, value := range []Value{{""}, {`a "b"`}, {`"a"`}, {`a\b`}, {"a "}, {" a"}, {"é"}, {"a", "b"}, cutTXT(strings.Repeat("x", 256))} {
		if v.fits(TXT, value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for _, value := range []Value{{"v=mesh1 n=1 o=a tcp://[2001:db8::1]:1?a=b&c=d+e~f*g%20'"}, cutTXT(strings.Repeat("x", 255))} {
		if err := v.fits(TXT, value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestTencentCloudSpellings(t *testing.T) {
	x, y := strings.Repeat("x", 255), strings.Repeat("y", 45)
	for text, want := range map[string]Value{
		"plain":             {"plain"},
		"":                  {""},
		x + y:               {x, y},
		`"quoted"`:          {"quoted"},
		`"a" "b"`:           {"a", "b"},
		`"a \"b\" \\ \195"`: {"a \"b\" \\ \xc3"},
		`""`:                {""},
		`"` + x + y + `"`:   {x, y},
		`"`:                 {`"`},
		`"a" b "c"`:         {`"a" b "c"`},
		`"a\"`:              {`"a\"`},
		`say "a"`:           {`say "a"`},
		` "a" `:             {` "a" `},
		`a\b`:               {`a\b`},
	} {
		if got := tencentTXT(text); !got.Equal(want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestTencentCloudQuoted removes and replaces values that another tool wrote
// with quotes, and adds none that is there so.
func TestTencentCloudQuoted(t *testing.T) { testQuoted(t, cloudtest.TencentCloud(t), NewTencentCloud) }

func testQuoted(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error)) {
	t.Helper()
	client := openCloud(t, c, open)
	const name = "a." + cloudtest.Zone
	c.Add(t, name, []string{"a", "b"})
	seen := readCloud(t, client, name)
	c.Asked()
	if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: seen, Add: []Value{{"new"}}, Remove: []Value{{"a", "b"}}, TTL: 600}); err != nil {
		t.Fatal(err)
	}
	if got := c.Values(t, name); len(got) != 1 || !slices.Equal(got[0], []string{"new"}) {
		t.Errorf("%q stands there", got)
	}
	if n := len(c.Asked()); n != 3 {
		t.Errorf("%d requests, want 3: list, change in place, list", n)
	}
}

func readCloud(t *testing.T, client *Client, name string) RRset {
	t.Helper()
	set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTencentCloudLag(t *testing.T) {
	testLag(t, cloudtest.TencentCloud(t), NewTencentCloud, func(r cloudtest.Request) bool { return r.Header.Get("X-TC-Action") == "CreateRecord" })
}

// testLag makes records that the list shows only at the fourth look: a change ends when they show, and a
// record is not created again after a lost answer.
func testLag(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error), creates func(cloudtest.Request) bool) {
	t.Helper()
	client := openCloud(t, c, open)
	c.SetLag(3)
	for name, lost := range map[string]bool{"late." + cloudtest.Zone: false, "lost." + cloudtest.Zone: true} {
		change := Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"v=mesh1"}}, TTL: 600}
		attempts := 1
		if lost {
			c.Fail(cloudtest.Lost)
			if err := client.Change(t.Context(), change); KindOf(err) != Network {
				t.Fatalf("%v, want a lost answer", err)
			}
			attempts = 2
		}
		if err := client.Change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if set := readCloud(t, client, name); len(set.Values) != 1 {
			t.Errorf("%s: the change is over and the list shows %q", name, set.Values)
		}
		if got := c.Values(t, name); len(got) != 1 {
			t.Errorf("%s: %q stands there", name, got)
		}
		if n := len(slices.DeleteFunc(c.Asked(), func(r cloudtest.Request) bool { return !creates(r) })); n != attempts {
			t.Errorf("%s: %d requests to create, want %d", name, n, attempts)
		}
	}
}

// TestTencentCloudLate ends a wait for a record that does not show in time.
func TestTencentCloudLate(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	client := openCloud(t, c, NewTencentCloud)
	c.SetLag(1 << 30)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := client.Change(ctx, Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"v=mesh1"}}, TTL: 600})
	if e, ok := err.(*Error); !ok || !e.Transient() {
		t.Errorf("%v, want an error that passes", err)
	}
}

func TestTencentCloudPlan(t *testing.T) {
	testPlan(t, cloudtest.TencentCloud, NewTencentCloud, tencentFailure("AuthFailure.UnauthorizedOperation"))
}

// testPlan checks that the least TTL is that of the zone's plan, and that of
// the free plan where the vendor does not say it. A list of zones is three pages.
func testPlan(t *testing.T, start func(testing.TB) *cloudtest.Cloud, open func(Credentials) (*Client, error), denied cloudtest.Answer) {
	t.Helper()
	const pages = 3
	for _, test := range []struct {
		name   string
		plan   uint32
		answer cloudtest.Fault
		want   uint32
	}{
		{"the plan's", 120, cloudtest.Pass, 120},
		{"not to be known", 120, cloudtest.Instead(denied), 600},
	} {
		c := start(t)
		c.MinTTL = test.plan
		client := openCloud(t, c, open)
		c.Fail(append(slices.Repeat([]cloudtest.Fault{cloudtest.Pass}, pages), test.answer)...)
		err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"v=mesh1"}}, TTL: 60})
		if got := c.TTL("a." + cloudtest.Zone); err != nil || got != test.want {
			t.Errorf("%s: TTL %d, %v, want %d", test.name, got, err, test.want)
		}
	}
}

// TestTencentCloudCrowd looks for a zone by a search with too many results.
func TestTencentCloudCrowd(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	for i := range 500 {
		c.AddZone(fmt.Sprintf("z%03d-example.com", i))
	}
	client := openCloud(t, c, NewTencentCloud)
	if zone, err := client.Zone(t.Context(), "a."+cloudtest.Zone); err != nil || zone != cloudtest.Zone {
		t.Errorf("zone %q, %v", zone, err)
	}
	if _, err := client.Zone(t.Context(), "ple.com"); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
	authority, err := client.Authority(t.Context(), cloudtest.Zone)
	if err != nil || !slices.Equal(authority.Names, []string{"f1g1ns1.dnspod.net", "f1g1ns2.dnspod.net"}) {
		t.Errorf("%v, %v", authority, err)
	}
}

// TestTencentCloudUnicode finds a zone that the search shows in Unicode, and
// one that the search does not find by its A-labels.
func TestTencentCloudUnicode(t *testing.T) {
	names := map[string]any{"Name": "中文.example", "Punycode": "xn--fiq228c.example", "Status": "PAUSE", "Grade": "DP_FREE"}
	found := tencentAnswer(map[string]any{"DomainCountInfo": map[string]any{"DomainTotal": 1}, "DomainList": []any{names}})
	none := tencentAnswer(map[string]any{"DomainCountInfo": map[string]any{"DomainTotal": 0}, "DomainList": []any{}})
	for requests, answer := range map[int]cloudtest.Answer{2: found, 3: none} {
		c := cloudtest.TencentCloud(t)
		client := openCloud(t, c, NewTencentCloud)
		c.Fail(cloudtest.Instead(answer))
		if zone, err := client.named(t.Context(), "XN--fiq228c.example"); err != nil || zone.name != "xn--fiq228c.example" {
			t.Errorf("zone %+v, %v", zone, err)
		}
		if n := len(c.Asked()); n != requests {
			t.Errorf("%d requests, want %d", n, requests)
		}
	}
	c := cloudtest.TencentCloud(t)
	if _, err := openCloud(t, c, NewTencentCloud).Zone(t.Context(), "xn--nowhere.invalid"); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
}

// TestTencentCloudOff reads records that are disabled, for some resolvers
// only, of another type or at another name.
func TestTencentCloudOff(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	client := openCloud(t, c, NewTencentCloud)
	readCloud(t, client, "a."+cloudtest.Zone)
	entry := func(value, kind, name, line, lineID, status string) map[string]any {
		return map[string]any{"RecordId": json.Number("1"), "Name": name, "Type": kind, "Value": value, "TTL": 600, "Line": line, "LineId": lineID, "Status": status}
	}
	entries := []any{
		entry("on", "TXT", "A", "默认", "0", "ENABLE"),
		entry("translated", "TXT", "a", "Default", "0", "ENABLE"),
		entry("old", "TXT", "a", "默认", "", ""),
		entry("off", "TXT", "a", "默认", "0", "DISABLE"),
		entry("paused", "TXT", "a", "默认", "0", "PAUSE"),
		entry("some", "TXT", "a", "联通", "10=1", "ENABLE"),
		entry("alias.example.", "CNAME", "a", "默认", "0", "ENABLE"),
		entry("neighbour", "TXT", "a.b", "默认", "0", "ENABLE"),
		entry("apex", "TXT", "@", "默认", "0", "ENABLE"),
	}
	c.Fail(cloudtest.Instead(tencentAnswer(map[string]any{"RecordCountInfo": map[string]any{"TotalCount": len(entries)}, "RecordList": entries})))
	set := readCloud(t, client, "a."+cloudtest.Zone)
	if !sameValues(set.Values, []Value{{"on"}, {"translated"}, {"old"}}) {
		t.Errorf("%q", set.Values)
	}
}

func TestTencentCloudAlias(t *testing.T) { testAlias(t, cloudtest.TencentCloud(t), NewTencentCloud) }

// testAlias writes to a name that has a CNAME, and over a disabled record.
func testAlias(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error)) {
	t.Helper()
	client := openCloud(t, c, open)
	c.AddAlias("alias."+cloudtest.Zone, "elsewhere.example")
	c.AddOff("off."+cloudtest.Zone, []string{"v=mesh1"})
	for _, name := range []string{"alias." + cloudtest.Zone, "off." + cloudtest.Zone} {
		err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"v=mesh1"}}, TTL: 600})
		if KindOf(err) != Conflict {
			t.Errorf("%s: %v, want %s", name, err, Conflict)
		}
	}
}

// TestTencentCloudRefusedValue is no conflict when no CNAME is there.
func TestTencentCloudRefusedValue(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	client := openCloud(t, c, NewTencentCloud)
	readCloud(t, client, "a."+cloudtest.Zone)
	c.Fail(cloudtest.Pass, cloudtest.Instead(tencentFailure("InvalidParameter.RecordValueInvalid")))
	err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"v=mesh1"}}, TTL: 600})
	if KindOf(err) != Invalid {
		t.Errorf("%v, want %s", err, Invalid)
	}
}

// TestTencentCloudClock has the vendor's clock ahead by more than it allows.
func TestTencentCloudClock(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	c.SetClock(cloudtest.MaxSkew + time.Minute)
	_, err := openCloud(t, c, NewTencentCloud).Zone(t.Context(), cloudtest.Zone)
	if KindOf(err) != ClockSkew || !strings.Contains(err.Error(), "the provider's time minus ours is +") {
		t.Errorf("%v, want %s", err, ClockSkew)
	}
}
