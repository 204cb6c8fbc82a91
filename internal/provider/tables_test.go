package provider

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// TestFits: a client refuses TXT values that its vendor does not keep as they are, and takes others.
func TestFits(t *testing.T) {
	long := func(octets int) Value { return cutTXT(strings.Repeat("x", octets)) }
	ours := Value{`v=mesh1 n=1 o=a tcp://[2001:db8::1]:1?a=b&c=d+e~f*g%20'`}
	plain := []Value{{""}, {"a "}, {" a"}, {"é"}, {"a", "b"}}
	unquoted := slices.Clip(append(plain, Value{`a "b"`}, Value{`"a"`}, Value{`a\b`}))
	for name, test := range map[string]struct {
		vendor         vendor
		refused, taken []Value
	}{
		"alidns":       {aliRecords(nil), append(unquoted, long(513)), []Value{long(512)}},
		"tencentcloud": {tencentRecords(nil), append(unquoted, long(256)), []Value{long(255)}},
		"dnspod":       {dnspodRecords(&api{}), append(unquoted, long(256)), []Value{long(255)}},
		"volcengine":   {volcRecords(nil), append(unquoted, long(513)), []Value{long(512)}},
		"baiducloud":   {baiduRecords(nil), append(unquoted, long(513)), []Value{long(512)}},
		"jdcloud":      {jdRecords(nil), append(unquoted, long(256)), []Value{long(255)}},
		"godaddy":      {goDaddyOf(&api{}), append(unquoted, long(513)), []Value{long(512)}},
		"porkbun":      {porkbunOf(&api{}, nil), append(plain, long(765)), []Value{{`a "b" \`}, long(764)}},
		"cloudflare": {cloudflareOf(&api{}), []Value{{""}, {"", ""}, {"é"}, {"a\nb"}, {"\x00"}, {"\xff"}, long(4081)},
			[]Value{{`a "b" \`}, {"a", "b"}, {" a "}, long(4080)}},
		"huaweicloud": {&huaweiCloud{}, []Value{{}, {`a "b"`}, {`a\b`}, {"é"}, {"a\tb"}, {"a", `b"`}, {strings.Repeat("x", 256)}},
			[]Value{{""}, {" a "}, {"a", "b"}, long(600)}},
		"powerdns": {&powerDNS{}, []Value{nil, {strings.Repeat("x", 256)}, slices.Repeat(Value{strings.Repeat("x", 255)}, 256)},
			[]Value{{""}, {"a", "", "b"}, {"é\x00\xff"}, {strings.Repeat("x", 255), "y"}}},
		"route53": {&route53{}, []Value{nil, {strings.Repeat("x", 256)}, long(3955), cutTXT(strings.Repeat("é", 500))},
			[]Value{{oddText}, {""}, {"a", "", "b "}, {"\x00\xff\r\n<&>]]>\u2028"}, long(3953)}},
		"webhook": {&webhook{}, []Value{{"a", "b"}, {"\xff"}, {strings.Repeat("x", 100), strings.Repeat("x", 200)}},
			[]Value{{""}, {` "é" \ `}, long(600), cutTXT(strings.Repeat("é", 200))}},
	} {
		for _, value := range test.refused {
			if cmp.Or(TXT.Check(value), test.vendor.fits(TXT, value)) == nil {
				t.Errorf("%s takes %.300q", name, value)
			}
		}
		for _, value := range append(test.taken, ours) {
			if err := cmp.Or(TXT.Check(value), test.vendor.fits(TXT, value)); err != nil {
				t.Errorf("%s: %.300q: %v", name, value, err)
			}
		}
	}
}

// openNamed starts the stand-in of a provider, and makes a client that has found the zone.
func openNamed(t *testing.T, name string) (*cloudtest.Cloud, *Client) {
	t.Helper()
	c := cloudtest.Start(t, name)
	client := openCloud(t, c, openOf(name))
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	return c, client
}

// openOf returns the function that makes a provider's client.
func openOf(name string) func(Credentials) (*Client, error) {
	for _, v := range vendors {
		if v.name == name {
			return v.open
		}
	}
	return nil
}

// unreadable are answers in place of a list that are not the vendor's, beside those of TestCloudAnswers.
var unreadable = map[string][]string{
	"alidns": {`{"RequestId":"x"}`},
	"tencentcloud": {
		`{"Response":null}`, `{"Response":[]}`, `{"Response":"x"}`, `{"Response":{}}`, `{"Response":{"RequestId":"x"}}`, `{"Response":{"RequestId":"r","RecordList":{}}}`,
		`{"Response":{"RequestId":"r","RecordCountInfo":{"TotalCount":"many"}}}`, `{"Response":{"Error":"x","RequestId":"r"}}`,
	},
	"huaweicloud": {`{"recordsets":{}}`, `{"recordsets":[{"ttl":"x"}]}`, `{"recordsets":[{"records":[1]}]}`},
	"volcengine": {
		`{"ResponseMetadata":null}`, `{"ResponseMetadata":[]}`, `{"ResponseMetadata":{"Error":"text"}}`, `{"ResponseMetadata":{}}`,
		`{"ResponseMetadata":{},"Result":null}`, `{"ResponseMetadata":{"RequestId":"x"},"Result":{}}`, `{"ResponseMetadata":{},"Result":[]}`,
		`{"ResponseMetadata":{},"Result":{"Records":{}}}`, `{"ResponseMetadata":{},"Result":{"Records":[{"TTL":"600"}]}}`,
		`{"ResponseMetadata":{},"Result":{"Records":[{"Host":1}]}}`,
	},
	"baiducloud": {
		`{"isTruncated":"no"}`, `{"isTruncated":true}`, `{"isTruncated":true,"nextMarker":""}`, `{"records":{}}`, `{"records":[1]}`,
		`{"records":[{"id":5001}]}`, `{"records":[{"ttl":-1}]}`, `{"records":"text"}`,
	},
	"route53": {
		"<html><body>hello</body></html>", "<!DOCTYPE html><p>", "<ListResourceRecordSetsResponse>", "<ListHostedZonesByNameResponse/>",
		"<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>",
		"<ListResourceRecordSetsResponse><ResourceRecordSets><ResourceRecordSet><TTL>long</TTL></ResourceRecordSet></ResourceRecordSets></ListResourceRecordSetsResponse>",
		"<ListResourceRecordSetsResponse><ResourceRecordSets><ResourceRecordSet><TTL>-1</TTL></ResourceRecordSet></ResourceRecordSets></ListResourceRecordSetsResponse>",
	},
	"cloudflare": {
		`{"success":true}`, `{"success":true,"result":null}`, `{"success":true,"result":{}}`, `{"success":true,"result":[1]}`,
		`{"success":true,"result":[{"id":7}]}`, `{"success":true,"result":[],"result_info":7}`, `{"errors":"no list"}`,
	},
	"powerdns": {`{"rrsets":null}`, `{"rrsets":[{"name":"a.example.com.","type":"TXT","ttl":1,"records":["x"]}]}`},
	"dnspod": {
		`{"status":{"code":"1"}}`, `{"status":null}`, `{"status":{"code":"x"}}`, `{"status":{"code":"1"},"records":{}}`,
		`{"status":{"code":"1"},"info":{"record_total":"1"},"records":[{"id":"1","name":"a","type":"TXT","ttl":"-1","line_id":"0"}]}`,
		`{"status":{"code":"1"},"info":{"record_total":"1"},"records":[{"id":"1","name":"a","type":"TXT","ttl":"soon","line_id":"0"}]}`,
	},
	"jdcloud": {
		`{"requestId":"x","result":{}}`, `{"result":null}`, `{"result":[]}`, `{"result":{"dataList":"none"}}`, `{"result":{"dataList":[{"id":{},"ttl":-1}]}}`,
	},
	"godaddy": {`[1]`, `[{"data":1}]`},
	"porkbun": {
		`{"status":7}`, `{"status":"SUCCESS"}`, `{"status":"SUCCESS","records":null}`, `{"status":"SUCCESS","records":7}`, `{"status":"SUCCESS","records":[7]}`,
		`{"status":"SUCCESS","records":[{"id":{}}]}`, `{"status":"SUCCESS","records":[{"name":7}]}`,
	},
	"webhook": {
		`{"zone":"example.com"}`, `{"zone":"example.com","values":null}`, `{"zone":"example.com","values":[1]}`, `{"zone":"example.com","values":[],"ttl":-1}`,
		`{"zone":"example.com","values":"x"}`, `{"zone":5,"values":[]}`, `{"zone":"","values":[]}`, `{"zone":"ple.com","values":[]}`,
		`{"zone":"x.a.example.com","values":[]}`, `{"zone":"example.org","values":[]}`,
	},
}

// TestUnreadable: no answer that is not the vendor's counts as a list without values.
func TestUnreadable(t *testing.T) {
	for name, bodies := range unreadable {
		var refusals []refusal
		for _, body := range append(bodies, "{", `"text"`) {
			refusals = append(refusals, refusal{cloudtest.Answer{Status: http.StatusOK, Body: body}, BadAnswer})
		}
		testRefusals(t, name, refusals)
	}
}

// otherRecords are lists that have more than the TXT records at the name a: other names and types, and records that are
// disabled or for some resolvers only. The text of a record is "yes" if it is a value, and "no" if it is none.
var otherRecords = map[string]struct {
	list    string
	records []string
}{
	"tencentcloud": {`{"Response":{"RequestId":"r","RecordCountInfo":{"TotalCount":9},"RecordList":[%]}}`, []string{
		`{"RecordId":1,"Name":"A","Type":"TXT","Value":"yes 1","TTL":600,"Line":"默认","LineId":"0","Status":"ENABLE"}`,
		`{"RecordId":2,"Name":"a","Type":"TXT","Value":"yes 2","TTL":600,"Line":"Default","LineId":"0","Status":"ENABLE"}`,
		`{"RecordId":3,"Name":"a","Type":"TXT","Value":"yes 3","TTL":600,"Line":"默认","LineId":"","Status":""}`,
		`{"RecordId":4,"Name":"a","Type":"TXT","Value":"no","TTL":600,"Line":"默认","LineId":"0","Status":"DISABLE"}`,
		`{"RecordId":5,"Name":"a","Type":"TXT","Value":"no","TTL":600,"Line":"默认","LineId":"0","Status":"PAUSE"}`,
		`{"RecordId":6,"Name":"a","Type":"TXT","Value":"no","TTL":600,"Line":"联通","LineId":"10=1","Status":"ENABLE"}`,
		`{"RecordId":7,"Name":"a","Type":"CNAME","Value":"no.example.","TTL":600,"Line":"默认","LineId":"0","Status":"ENABLE"}`,
		`{"RecordId":8,"Name":"a.b","Type":"TXT","Value":"no","TTL":600,"Line":"默认","LineId":"0","Status":"ENABLE"}`,
		`{"RecordId":9,"Name":"@","Type":"TXT","Value":"no","TTL":600,"Line":"默认","LineId":"0","Status":"ENABLE"}`,
	}},
	"volcengine": {`{"ResponseMetadata":{},"Result":{"TotalCount":9,"Records":[%]}}`, []string{
		`{"RecordID":"1","Host":"A","Type":"TXT","Value":"yes 1","TTL":600,"Line":"default","Enable":true}`,
		`{"RecordID":"2","Host":"a","Type":"TXT","Value":"yes 2","TTL":600,"Line":"Default","Enable":true}`,
		`{"RecordID":"3","Host":"a","Type":"TXT","Value":"yes 3","TTL":600,"Line":"","Enable":null}`,
		`{"RecordID":"4","Host":"b.a","Type":"TXT","Value":"no","TTL":600,"Line":"default","Enable":true}`,
		`{"RecordID":"5","Host":"aa","Type":"TXT","Value":"no","TTL":600,"Line":"default","Enable":true}`,
		`{"RecordID":"6","Host":"@","Type":"TXT","Value":"no","TTL":600,"Line":"default","Enable":true}`,
		`{"RecordID":"7","Host":"a","Type":"A","Value":"no","TTL":600,"Line":"default","Enable":true}`,
		`{"RecordID":"8","Host":"a","Type":"TXT","Value":"no","TTL":600,"Line":"telecom","Enable":true}`,
		`{"RecordID":"9","Host":"a","Type":"TXT","Value":"no","TTL":600,"Line":"default","Enable":false}`,
	}},
	"baiducloud": {`{"isTruncated":false,"nextMarker":"","records":[%]}`, []string{
		`{"id":"1","rr":"A","type":"TXT","value":"yes 1","ttl":300,"line":"default","status":"running"}`,
		`{"id":"2","rr":"a","type":"TXT","value":"yes 2","ttl":300,"line":"","status":""}`,
		`{"id":"3","rr":"b.a","type":"TXT","value":"no","ttl":300,"line":"default","status":"running"}`,
		`{"id":"4","rr":"aa","type":"TXT","value":"no","ttl":300,"line":"default","status":"running"}`,
		`{"id":"5","rr":"a","type":"MX","value":"no","ttl":300,"line":"default","status":"running"}`,
		`{"id":"6","rr":"@","type":"TXT","value":"no","ttl":300,"line":"default","status":"running"}`,
		`{"id":"7","rr":"a","type":"TXT","value":"no","ttl":300,"line":"ct","status":"running"}`,
		`{"id":"8","rr":"a","type":"TXT","value":"no","ttl":300,"line":"default","status":"stopped"}`,
		`{"id":"9","rr":"a","type":"CNAME","value":"no","ttl":300,"line":"default","status":"running"}`, // beside values
	}},
	"huaweicloud": {`{"recordsets":[%]}`, []string{
		`{"id":"1","name":"xa.example.com.","type":"TXT","records":["\"no\""]}`, `{"id":"2","name":"x.a.example.com.","type":"TXT","records":["\"no\""]}`,
		`{"id":"3","name":"a.example.com.","type":"A","records":["\"no\""]}`, `{"id":"4","name":"A.Example.com.","type":"TXT","records":["\"yes 1\""]}`,
		`{"id":"5","name":"a.example.com.","type":"TXT","line":"Dianxin","weight":1,"records":["\"no\""]}`, `{"id":"6","name":"a.example.com.","type":"TXT","line":"default_view","status":"DISABLE","records":["\"no\""]}`,
	}},
	"route53": {`<ListResourceRecordSetsResponse><ResourceRecordSets>%</ResourceRecordSets></ListResourceRecordSetsResponse>`, []string{
		`<ResourceRecordSet><Name>a.example.com.</Name><Type>SPF</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>"no"</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>`,
	}},
	"cloudflare": {`{"success":true,"result":[%]}`, []string{
		`{"id":"1","type":"TXT","name":"A.Example.com","content":"yes 1","ttl":1}`, `{"type":"TXT","name":"b.example.com","content":"no"}`,
		`{"type":"CNAME","name":"a.example.com","content":"no"}`, `null`,
	}},
	"porkbun": {`{"status":"success","records":[%]}`, []string{
		`{"id":7,"name":"A.Example.com.","type":"TXT","content":"yes 1","ttl":900}`, `{"id":"8","name":"a.example.com","type":"TXT","content":"\"yes 2\"","ttl":""}`,
		`{"id":null,"name":"a.example.com","type":"A","content":"no","ttl":null}`, `{"id":"9","name":"b.example.com","type":"TXT","content":"no","ttl":"600"}`,
	}},
}

// TestOtherRecords: of a list with more than was asked for, only the values at the name count.
func TestOtherRecords(t *testing.T) {
	const name = "a." + cloudtest.Zone
	for vendor, test := range otherRecords {
		c, client := openNamed(t, vendor)
		if _, err := client.Read(t.Context(), cloudtest.Zone, name, TXT); err != nil {
			t.Fatal(err)
		}
		list := strings.Replace(test.list, "%", strings.Join(test.records, map[bool]string{true: ",", false: ""}[vendor != "route53"]), 1)
		c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: list}))
		set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
		if n := strings.Count(list, "yes"); err != nil || len(set.Values) != n || slices.ContainsFunc(set.Values, func(v Value) bool { return !strings.Contains(v.Text(), "yes") }) {
			t.Errorf("%s: %q, %v, want %d values", vendor, set.Values, err, n)
		}
	}
}

// TestWeights: a record with the weight 0 is in no answer of DNS, and is no value; any other weight leaves it one.
func TestWeights(t *testing.T) {
	for name, list := range map[string]string{
		"alidns":       `{"RequestId":"r","TotalCount":1,"DomainRecords":{"Record":[{"RecordId":"1","RR":"a","Type":"TXT","Value":"v","TTL":600,"Line":"default","Status":"ENABLE","Weight":%}]}}`,
		"tencentcloud": `{"Response":{"RequestId":"r","RecordCountInfo":{"TotalCount":1},"RecordList":[{"RecordId":1,"Name":"a","Type":"TXT","Value":"v","TTL":600,"LineId":"0","Weight":%}]}}`,
		"huaweicloud":  `{"metadata":{"total_count":1},"recordsets":[{"id":"1","name":"a.example.com.","type":"TXT","line":"default_view","status":"ACTIVE","records":["\"v\""],"weight":%}]}`,
	} {
		c, client := openNamed(t, name)
		for weight, values := range map[string]int{"0": 0, "1": 1, "20": 1, "null": 1, `"1"`: 1} {
			c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: strings.Replace(list, "%", weight, 1)}))
			if set, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT); err != nil || len(set.Values) != values || len(set.Off) != 1-values {
				t.Errorf("%s: weight %s: %+v, %v", name, weight, set, err)
			}
		}
	}
}

// TestGone removes and replaces a record that another user has removed.
func TestGone(t *testing.T) {
	at := setKey{"a." + cloudtest.Zone, TXT}
	for _, v := range vendors {
		_, client := openNamed(t, v.name)
		vendor, ok := client.vendor.(recordVendor)
		if _, sets := client.vendor.(setVendor); sets || !ok {
			continue
		}
		z, err := client.named(t.Context(), cloudtest.Zone)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"removed": vendor.remove(t.Context(), z, at, record{id: "1"}), "replaced": vendor.update(t.Context(), z, at, record{id: "1"}, Value{"v"}, 600),
		} {
			if KindOf(err) != gone {
				t.Errorf("%s: %s: %v, want %s", v.name, what, err, gone)
			}
		}
	}
}

// TestNewBeforeOld: one value takes the place of one in a single write. Of others the new ones are there before the old
// one goes.
func TestNewBeforeOld(t *testing.T) {
	const name = "a." + cloudtest.Zone
	for _, v := range vendors {
		c, client := openNamed(t, v.name)
		c.Add(t, name, []string{"theirs"})
		for _, add := range [][]Value{{{"ours"}}, {{"one"}, {"two"}}} {
			seen, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
			if err != nil {
				t.Fatal(err)
			}
			writes := 0
			end := c.Watch(name, func(values [][]string) {
				if writes++; len(values) == 0 {
					t.Errorf("%s: %q after write %d", v.name, values, writes)
				}
			})
			err = client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: seen, Add: add, Remove: seen.Values, TTL: 600})
			if end(); err != nil || len(add) == 1 && writes != 1 {
				t.Errorf("%s: %d writes, %v", v.name, writes, err)
			}
		}
	}
}
