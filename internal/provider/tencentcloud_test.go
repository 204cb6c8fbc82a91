package provider

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

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
	testRefusals(t, "tencentcloud", refusals, "ed93f3cb-f35e", "words of the vendor")
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

func readCloud(t *testing.T, client *Client, name string) RRset {
	t.Helper()
	set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
	if err != nil {
		t.Fatal(err)
	}
	return set
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
