package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

func TestHuaweiCloudExchanges(t *testing.T) {
	const name = exchangeName
	z := zone{id: "2c9eb155587194ec01587224c9f90149", name: "example.com"}
	one := record{value: Value{exchangeText}}
	there := recordSet{id: "2c9eb155587228570158722b6ac30007", ttl: 300, records: []record{one}}
	for _, e := range exchanges(t, "huaweicloud", "") {
		address, got := e.replay(t)
		a, err := newAPI(huaweiEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v := huaweiOf(a)
		switch e.Op {
		case "find zone":
			_, _, err = v.zone(t.Context(), "example.com")
		case "list TXT at name":
			e.Request.Target = strings.Replace(e.Request.Target, "/v2/", "/v2.1/", 1) // the recorded list does not tell lines
			_, err = v.list(t.Context(), z, setKey{name, TXT})
		case "create TXT":
			err = v.write(t.Context(), z, name, recordSet{}, recordSet{ttl: 300, records: []record{one}})
		case "create TXT odd characters":
			err = v.write(t.Context(), z, name, recordSet{}, recordSet{ttl: 300, records: []record{{value: Value{oddText}}}})
		case "replace TXT rrset":
			err = v.write(t.Context(), z, name, there, recordSet{id: there.id, ttl: 300, records: []record{one, {value: Value{"second"}}}})
		case "delete TXT rrset":
			err = v.write(t.Context(), z, name, there, recordSet{id: there.id, ttl: 300})
		default:
			t.Errorf("exchange %q is neither sent nor left out", e.Op)
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		if e.Request.Body == "" {
			e.check(t, "huaweicloud", got(), nil)
		} else {
			e.check(t, "huaweicloud", got(), nil, "Content-Type")
		}
	}
}

func TestHuaweiCloudErrors(t *testing.T) {
	const words, id = "words of the vendor", "81da7d08ae78ac80"
	gateway := func(status int, code, message string) cloudtest.Answer {
		return cloudtest.JSON(status, map[string]any{"error_code": code, "error_msg": message, "request_id": id})
	}
	service := func(status int, code, message string) cloudtest.Answer {
		a := cloudtest.JSON(status, map[string]any{"code": code, "message": message})
		a.Header["X-Request-Id"] = id
		return a
	}
	skewed := gateway(http.StatusUnauthorized, "APIGW.0303", words)
	skewed.Header["Date"] = time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat)
	testRefusals(t, "huaweicloud", []refusal{
		{gateway(http.StatusUnauthorized, "APIGW.0301", words), BadCredentials},
		{gateway(http.StatusUnauthorized, "APIGW.0303", words), BadCredentials},
		{skewed, ClockSkew},
		{gateway(http.StatusUnauthorized, "APIGW.0301", words+": X-Sdk-Date is too old"), ClockSkew},
		{gateway(http.StatusTooManyRequests, "APIGW.0308", words), Throttled},
		{gateway(http.StatusBadRequest, "APIGW.9999", words+": policy user over ratelimit,limit:100,time:1 minute"), Throttled},
		{gateway(http.StatusForbidden, "APIGW.9999", words), Permission},
		{service(http.StatusInternalServerError, "DNS.0000", words), Temporary},
		{service(http.StatusInternalServerError, "DNS.0001", words), Temporary},
		{service(http.StatusBadRequest, "DNS.0002", words), Invalid},
		{service(http.StatusInternalServerError, "DNS.0003", words), Temporary},
		{service(http.StatusUnauthorized, "DNS.0005", words), BadCredentials},
		{service(http.StatusForbidden, "DNS.0013", words), Permission},
		{service(http.StatusForbidden, "DNS.0014", words), Throttled},
		{service(http.StatusBadRequest, "DNS.0041", words), Invalid},
		{service(http.StatusBadRequest, "DNS.0202", words), Invalid},
		{service(http.StatusBadRequest, "DNS.0203", words), Invalid},
		{service(http.StatusNotFound, "DNS.0302", words), ZoneNotFound},
		{service(http.StatusBadRequest, "DNS.0312", words+": conflicts with Record Set 'a.' type 'CNAME'."), Conflict},
		{service(http.StatusBadRequest, "DNS.0314", words), Changed},
		{service(http.StatusBadRequest, "DNS.0319", words), Invalid},
		{service(http.StatusForbidden, "DNS.9999", words+": Insufficient record set quota."), Quota},
		{service(http.StatusBadGateway, "DNS.9999", words), Temporary},
		{service(http.StatusBadRequest, "DNS.9999", words), Invalid},
	}, id, words)
}

// huaweiClient gives a client that has found the zone, and its vendor, which
// looks every millisecond.
func huaweiClient(t *testing.T) (*cloudtest.Cloud, *Client, *huaweiCloud, zone) {
	t.Helper()
	c, client := openNamed(t, "huaweicloud")
	v := client.vendor.(*huaweiCloud)
	v.poll = time.Millisecond
	z, err := client.named(t.Context(), cloudtest.Zone)
	if err != nil {
		t.Fatal(err)
	}
	c.Asked()
	return c, client, v, z
}

const huaweiName = "_mesh.a." + cloudtest.Zone

// huaweiRecordSets is a list of one set at huaweiName.
func huaweiRecordSets(status, line string, values ...string) cloudtest.Fault {
	return cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"metadata": map[string]any{"total_count": 1}, "recordsets": []any{map[string]any{
		"id": "0a0b", "name": huaweiName + ".", "type": "TXT", "ttl": 300, "records": values, "status": status, "line": line,
	}}}))
}

// TestHuaweiCloudPending sees each kind of change carried out late.
func TestHuaweiCloudPending(t *testing.T) {
	c, client, _, _ := huaweiClient(t)
	c.SetLag(3)
	var there []Value
	for _, step := range []struct{ add, remove []Value }{
		{add: []Value{{"one"}}},
		{add: []Value{{"two"}}},
		{add: []Value{{"three"}}, remove: []Value{{"one"}}},
		{remove: []Value{{"two"}, {"three"}}},
	} {
		change := Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Seen: RRset{Values: there}, Add: step.add, Remove: step.remove, TTL: 60}
		if err := client.Change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		there = slices.DeleteFunc(append(there, step.add...), func(v Value) bool { return slices.ContainsFunc(step.remove, v.Equal) })
		// One look before the write, four until it is done, one to confirm.
		if got := len(c.Asked()); got != 7 {
			t.Errorf("%d requests, want 7", got)
		}
	}
	if values := c.Values(t, huaweiName); len(values) != 0 {
		t.Errorf("%q are left", values)
	}
}

// TestHuaweiCloudUnderWay makes a change while another user's change is under way.
func TestHuaweiCloudUnderWay(t *testing.T) {
	c, client, v, z := huaweiClient(t)
	c.SetLag(3)
	if err := v.write(t.Context(), z, huaweiName, recordSet{}, recordSet{records: []record{{value: Value{"one"}}}}); err != nil {
		t.Fatal(err)
	}
	change := Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Seen: RRset{Values: []Value{{"one"}}}, Add: []Value{{"two"}}, TTL: 60}
	if err := client.Change(t.Context(), change); err == nil || KindOf(err) != Changed || !strings.Contains(err.Error(), "DNS.0314") {
		t.Errorf("%v, want %s with DNS.0314", err, Changed)
	}
	if err := client.Change(t.Context(), change); err != nil {
		t.Error(err)
	}
}

// TestHuaweiCloudRace makes a change from values that another user has replaced.
func TestHuaweiCloudRace(t *testing.T) {
	c, _, v, z := huaweiClient(t)
	to := recordSet{records: []record{{value: Value{"ours"}}}}
	c.Add(t, huaweiName, Value{"theirs"})
	if err := overtaken(huaweiName, v.replace(t.Context(), z, setKey{huaweiName, TXT}, recordSet{}, to)); KindOf(err) != Changed || err == nil {
		t.Errorf("created where a set is: %v, want %s", err, Changed)
	}
	if err := overtaken(huaweiName, v.replace(t.Context(), z, setKey{huaweiName, TXT}, recordSet{id: "0a0b"}, to)); KindOf(err) != Changed || err == nil {
		t.Errorf("updated what is gone: %v, want %s", err, Changed)
	}
	if err := v.replace(t.Context(), z, setKey{huaweiName, TXT}, recordSet{id: "0a0b"}, recordSet{}); err != nil {
		t.Errorf("deleted what is gone: %v", err)
	}
	c.AddAlias("alias."+cloudtest.Zone, "www."+cloudtest.Zone)
	if err := v.replace(t.Context(), z, setKey{"alias." + cloudtest.Zone, TXT}, recordSet{}, to); err == nil || KindOf(err) != Conflict {
		t.Errorf("beside a CNAME: %v, want %s", err, Conflict)
	}
}

func TestHuaweiCloudFails(t *testing.T) {
	c, client, _, _ := huaweiClient(t)
	c.Fail(cloudtest.Pass, cloudtest.Pass, huaweiRecordSets("ERROR", "default_view", `"one"`))
	err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Add: []Value{{"one"}}, TTL: 60})
	if err == nil || KindOf(err) != Temporary || !strings.Contains(err.Error(), "ERROR") {
		t.Errorf("%v, want %s", err, Temporary)
	}
}

// TestHuaweiCloudDisabled leaves alone a set that is switched off as a whole.
func TestHuaweiCloudDisabled(t *testing.T) {
	for _, status := range []string{"DISABLE", "FREEZE", "ILLEGAL"} {
		c, client, _, _ := huaweiClient(t)
		disabled := huaweiRecordSets(status, "", `"there"`)
		c.Fail(disabled, disabled)
		if set, err := client.Read(t.Context(), cloudtest.Zone, huaweiName, TXT); err != nil || len(set.Values) != 0 {
			t.Errorf("%s: %v, %v", status, set, err)
		}
		err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Add: []Value{{"one"}}, TTL: 60})
		if err == nil || KindOf(err) != Conflict {
			t.Errorf("%s: %v, want %s", status, err, Conflict)
		}
		if got := len(c.Asked()); got != 2 {
			t.Errorf("%s: %d requests, want 2", status, got)
		}
	}
}

// TestHuaweiCloudRaw sends values of others back in their own spelling.
func TestHuaweiCloudRaw(t *testing.T) {
	c, client, _, _ := huaweiClient(t)
	raw := []string{`"a"  "b"`, `no quotes`, `"\097\"\;"`, `"ab"`, `""`, `"é"`}
	c.Fail(huaweiRecordSets("ACTIVE", "default_view", raw...), huaweiRecordSets("ACTIVE", "default_view", raw...))
	set, err := client.Read(t.Context(), cloudtest.Zone, huaweiName, TXT)
	want := []Value{{"a", "b"}, {"no quotes"}, {`a";`}, {"ab"}, {""}, {"é"}}
	if err != nil || !slices.EqualFunc(set.Values, want, Value.Equal) {
		t.Errorf("%q, %v, want %q", set.Values, err, want)
	}
	long := cutTXT(strings.Repeat("x", 300))
	change := Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Seen: set, Add: []Value{long}, Remove: []Value{{"ab"}}, TTL: 60}
	if err := client.Change(t.Context(), change); KindOf(err) != Changed || err == nil {
		t.Errorf("%v, want %s: the service does not have the set", err, Changed)
	}
	var body huaweiBody
	if requests := c.Asked(); len(requests) < 3 || json.Unmarshal(requests[2].Body, &body) != nil {
		t.Fatalf("%d requests", len(requests))
	}
	sent := []string{raw[0], raw[1], raw[2], raw[4], raw[5], `"` + strings.Repeat("x", 255) + `" "` + strings.Repeat("x", 45) + `"`}
	if !slices.Equal(body.Records, sent) || body.TTL != 300 {
		t.Errorf("%q, TTL %d, want %q, TTL 300", body.Records, body.TTL, sent)
	}
}

// TestHuaweiCloudPolls looks at a pending set ever more rarely, because the vendor takes a hundred calls a minute, and
// gives up in time.
func TestHuaweiCloudPolls(t *testing.T) {
	t.Parallel() // it mostly waits
	c, client, v, _ := huaweiClient(t)
	v.poll = 20 * time.Millisecond // so short that a slow machine makes the change long before the context ends
	c.SetLag(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 250*v.poll)
	defer cancel()
	err := client.Change(ctx, Change{Zone: cloudtest.Zone, Name: huaweiName, Type: TXT, Add: []Value{{"one"}}, TTL: 60})
	if n := len(c.Asked()); n > 15 || KindOf(err) != Temporary && KindOf(err) != Network { // the context ends between two requests or in one
		t.Errorf("%v after %d requests in 250 times the first pause", err, n)
	}
}
