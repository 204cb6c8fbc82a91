package provider

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// TestDNSPodRequests checks the forms against the vendor's documentation.
func TestDNSPodRequests(t *testing.T) {
	const name = "_mesh.node-1." + cloudtest.Zone
	z := zone{id: "2317346", name: cloudtest.Zone}
	for _, test := range []struct {
		path string
		call func(v *records) error
		form string
	}{
		{"/Record.List", func(v *records) error { _, err := v.list(t.Context(), z, setKey{name, TXT}); return err },
			"domain_id=2317346&sub_domain=_mesh.node-1&record_type=TXT&offset=0&length=3000"},
		{"/Record.List", func(v *records) error { _, err := v.list(t.Context(), z, setKey{z.name, TXT}); return err },
			"domain_id=2317346&sub_domain=@&record_type=TXT&offset=0&length=3000"},
		{"/Record.Create", func(v *records) error { return v.create(t.Context(), z, setKey{name, TXT}, Value{"a b+c&d=e"}, 600) },
			"domain_id=2317346&sub_domain=_mesh.node-1&record_type=TXT&record_line=默认&value=a+b%2Bc%26d%3De&ttl=600"},
		{"/Record.Modify", func(v *records) error {
			return v.update(t.Context(), z, setKey{name, TXT}, record{id: "16894439"}, Value{"x"}, 600)
		},
			"domain_id=2317346&record_id=16894439&sub_domain=_mesh.node-1&record_type=TXT&record_line=默认&value=x&ttl=600"},
		{"/Record.Remove", func(v *records) error { return v.remove(t.Context(), z, setKey{name, TXT}, record{id: "16894439"}) },
			"domain_id=2317346&record_id=16894439"},
	} {
		var e exchange
		e.Response.Status, e.Response.Body = http.StatusOK, `{"status":{"code":"1","message":"Action completed successful"},"info":{"record_total":"0"},"records":[]}`
		address, got := e.replay(t)
		a, err := newAPI(dnspodEndpoint, Credentials{AccessKeyID: "730060", AccessKeySecret: "e1a8", Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.call(dnspodRecords(a)); err != nil {
			t.Errorf("%s: %v", test.path, err)
		}
		want, err := url.ParseQuery(test.form + "&login_token=730060,e1a8&format=json&error_on_empty=no")
		if err != nil {
			t.Fatal(err)
		}
		s := got()
		if s.method != http.MethodPost || s.path != test.path || len(s.query) != 0 || s.body != want.Encode() {
			t.Errorf("%s %s %v\n%s, want\n%s", s.method, s.path, s.query, s.body, want.Encode())
		}
		if s.header.Get("Content-Type") != "application/x-www-form-urlencoded" || !strings.HasPrefix(s.header.Get("User-Agent"), "meshddns/") {
			t.Errorf("%s: headers %v", test.path, s.header)
		}
	}
}

func dnspodFailure(code string) cloudtest.Answer {
	return cloudtest.JSON(http.StatusOK, map[string]any{"status": map[string]any{"code": code, "message": "words of the vendor"}})
}

func TestDNSPodErrors(t *testing.T) {
	var refusals []refusal
	for kind, codes := range map[Kind]string{
		BadCredentials: "-1 -8 50 52",
		Throttled:      "-2",
		Permission:     "-7 -15 21 54 83 85",
		Temporary:      "-99 3",
		ZoneNotFound:   "6 9 13",
		Quota:          "25 500025",
		Conflict:       "31",
		Invalid:        "2 7 8 22 34 500 9999",
	} {
		for code := range strings.FieldsSeq(codes) {
			refusals = append(refusals, refusal{dnspodFailure(code), kind})
		}
	}
	number := cloudtest.JSON(http.StatusOK, map[string]any{"status": map[string]any{"code": -1, "message": "words of the vendor"}})
	testRefusals(t, "dnspod", append(refusals, refusal{number, BadCredentials}), "words of the vendor")
}

// TestDNSPodCodes checks codes whose meaning depends on the action.
func TestDNSPodCodes(t *testing.T) {
	z := zone{id: "1", name: cloudtest.Zone}
	write := func(v *records) error { return v.create(t.Context(), z, setKey{"a." + z.name, TXT}, Value{"x"}, 600) }
	change := func(v *records) error {
		return v.update(t.Context(), z, setKey{"a." + z.name, TXT}, record{id: "1"}, Value{"x"}, 600)
	}
	remove := func(v *records) error { return v.remove(t.Context(), z, setKey{"a." + z.name, TXT}, record{id: "1"}) }
	for _, test := range []struct {
		name string
		call func(v *records) error
		code string
		kind Kind
	}{
		{"create", write, "6", Invalid}, {"create", write, "7", Permission}, {"create", write, "31", Conflict}, {"create", write, "104", exists},
		{"modify", change, "6", ZoneNotFound}, {"modify", change, "7", Permission}, {"modify", change, "8", gone}, {"modify", change, "104", exists},
		{"remove", remove, "6", ZoneNotFound}, {"remove", remove, "7", Permission}, {"remove", remove, "8", gone},
	} {
		c := cloudtest.DNSPod(t)
		a, err := newAPI(dnspodEndpoint, Credentials{Endpoint: c.URL}, false)
		if err != nil {
			t.Fatal(err)
		}
		c.Fail(cloudtest.Instead(dnspodFailure(test.code)))
		if err := test.call(dnspodRecords(a)); KindOf(err) != test.kind {
			t.Errorf("%s %s: %v, want %s", test.name, test.code, err, test.kind)
		}
	}
}

// TestDNSPodNothing reads empty lists, which are an error if the vendor ignores error_on_empty.
func TestDNSPodNothing(t *testing.T) {
	c := cloudtest.DNSPod(t)
	c.Fail(cloudtest.Instead(dnspodFailure("9")))
	if _, err := openCloud(t, c, NewDNSPod).Zone(t.Context(), cloudtest.Zone); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
	client := openCloud(t, c, NewDNSPod)
	c.Fail(cloudtest.Pass, cloudtest.Pass, cloudtest.Pass, cloudtest.Pass, cloudtest.Instead(dnspodFailure("10")))
	if set := readCloud(t, client, "a."+cloudtest.Zone); len(set.Values) != 0 {
		t.Errorf("%q", set.Values)
	}
}

// TestDNSPodUnicode finds a zone among all that the account has, not by the
// search, by its A-labels.
func TestDNSPodUnicode(t *testing.T) {
	c := cloudtest.DNSPod(t)
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"status":{"code":"1"},"info":{"domain_total":1},"domains":[
		{"id":2238269,"status":"pause","grade":"D_Free","punycode":"xn--fiq228c.example","name":"中文.example"}]}`}))
	if zone, err := openCloud(t, c, NewDNSPod).Zone(t.Context(), "XN--fiq228c.example"); err != nil || zone != "xn--fiq228c.example" {
		t.Errorf("zone %q, %v", zone, err)
	}
	for _, r := range c.Asked() {
		if strings.Contains(string(r.Body), "keyword") {
			t.Errorf("a search: %s", r.Target)
		}
	}
}

// TestDNSPodList reads records as the documentation shows them: numbers as
// texts and as numbers, with and without the total.
func TestDNSPodList(t *testing.T) {
	c := cloudtest.DNSPod(t)
	client := openCloud(t, c, NewDNSPod)
	readCloud(t, client, "a."+cloudtest.Zone)
	const records = `[{"id":"1","name":"a","line":"默认","line_id":"0","type":"TXT","ttl":"600","value":"text","enabled":"1"},
		{"id":2,"name":"A","line":"Default","line_id":0,"type":"TXT","ttl":600,"value":"\"quoted\"","enabled":1},
		{"id":"3","name":"a","line":"默认","type":"TXT","ttl":"600","value":"no line id"},
		{"id":"4","name":"a","line":"默认","line_id":"0","type":"TXT","ttl":"600","value":"off","enabled":"0"},
		{"id":"5","name":"a","line":"联通","line_id":"10=1","type":"TXT","ttl":"600","value":"some","enabled":"1"},
		{"id":"6","name":"a","line":"联通","type":"TXT","ttl":"600","value":"some more","enabled":"1"},
		{"id":"7","name":"a","line":"默认","line_id":"0","type":"CNAME","ttl":"600","value":"alias.example.","enabled":"1"},
		{"id":"8","name":"b","line":"默认","line_id":"0","type":"TXT","ttl":"600","value":"neighbour","enabled":"1"}]`
	page := func(info, records string) cloudtest.Fault {
		return cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"status":{"code":"1"},` + info + `"records":` + records + `}`})
	}
	want := []Value{{"text"}, {"quoted"}, {"no line id"}}
	for _, info := range []string{`"info":{"record_total":"8"},`, `"info":{"record_total":8},`} {
		c.Fail(page(info, records))
		if set := readCloud(t, client, "a."+cloudtest.Zone); !sameValues(set.Values, want) || set.TTL != 600 {
			t.Errorf("%s%d %q", info, set.TTL, set.Values)
		}
	}
	c.Fail(page("", records), page("", `[{"id":"9","name":"a","line_id":"0","type":"TXT","ttl":"600","value":"second page"}]`), page("", "[]"))
	if set := readCloud(t, client, "a."+cloudtest.Zone); !sameValues(set.Values, append(want, Value{"second page"})) {
		t.Errorf("without a total: %q", set.Values)
	}
}

func TestDNSPodPlan(t *testing.T) {
	testPlan(t, cloudtest.DNSPod, NewDNSPod, dnspodFailure("-7"))
}
