package provider

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

// TestRoute53Path signs a path that needs escapes.
func TestRoute53Path(t *testing.T) {
	const text = "https://route53.amazonaws.com/2013-04-01/a%20b%2Fc:d/%C3%A9"
	r, err := http.NewRequest(http.MethodGet, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, key := time.Unix(1772600767, 0), Credentials{AccessKeyID: "AKIA", AccessKeySecret: "secret"}
	signRoute53(r, []string{"host", "x-amz-date"}, nil, key, at)
	want := route53Scope.authorization(r, "/2013-04-01/a%2520b%252Fc%3Ad/%25C3%25A9", []string{"host", "x-amz-date"}, nil, key, at)
	if got := r.Header.Get("Authorization"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// element is any element of a document.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// route53Document reads a document; comments and the order of elements with
// different names are left out, as they mean nothing to the vendor.
func route53Document(t *testing.T, text string) element {
	t.Helper()
	var root element
	if err := xml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	root.arrange()
	return root
}

func (e *element) arrange() {
	e.Children = slices.DeleteFunc(e.Children, func(c element) bool { return c.XMLName.Local == "Comment" })
	slices.SortStableFunc(e.Children, func(a, b element) int { return strings.Compare(a.XMLName.Local, b.XMLName.Local) })
	for i := range e.Children {
		e.Children[i].arrange()
	}
}

// find gives all elements with a name.
func (e element) find(name string) (found []element) {
	if e.XMLName.Local == name {
		found = append(found, e)
	}
	for _, c := range e.Children {
		found = append(found, c.find(name)...)
	}
	return found
}

var route53Zone = zone{id: "Z1D633PJN98FT9", name: "example.com"}

func route53Standing(values ...string) recordSet {
	set := recordSet{ttl: 300}
	for _, v := range values {
		set.records = append(set.records, record{value: Value{v}})
	}
	return set
}

func TestRoute53Exchanges(t *testing.T) {
	one := route53Standing(exchangeText)
	create := []route53Change{{"CREATE", one.route53(setKey{exchangeName, TXT})}}
	for _, e := range exchanges(t, "route53", "") {
		address, got := e.replay(t)
		a, err := newAPI(route53Endpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v := &route53{a, time.Millisecond, time.Second}
		var without []string
		switch e.Op {
		case "find zone":
			var zones []zone
			if zones, err = v.zonesFrom(t.Context(), "example.com", maxPages); len(zones) != 1 || zones[0].id != route53Zone.id {
				t.Error(e.Op, zones)
			}
		case "list TXT at name":
			var set recordSet
			if set, err = v.list(t.Context(), route53Zone, setKey{exchangeName, TXT}); !sameValues(set.values().Values, []Value{{exchangeText}}) || set.ttl != 300 {
				t.Error(e.Op, set)
			}
		case "delete TXT rrset":
			_, err = v.submit(t.Context(), route53Zone, []route53Change{{"DELETE", one.route53(setKey{exchangeName, TXT})}})
		case "replace TXT rrset, odd characters + second value":
			without = []string{"the action: CREATE after DELETE, to compare and swap"}
			_, err = v.submit(t.Context(), route53Zone, []route53Change{
				{"DELETE", one.route53(setKey{exchangeName, TXT})}, {"CREATE", route53Standing(oddText, exchangeText).route53(setKey{exchangeName, TXT})},
			})
		case "poll change":
			v.inSync(t.Context(), "C2682N5HXP0BZ4")
		default:
			var id string
			if id, err = v.submit(t.Context(), route53Zone, create); err == nil && id != "C2682N5HXP0BZ4" {
				t.Error(e.Op, id)
			}
		}
		checkRoute53Outcome(t, e, err)
		last := got()
		checkRoute53Body(t, e, last.body, without != nil)
		e.Request.Body, last.body = "", ""
		e.check(t, "route53", last, without)
	}
}

// checkRoute53Outcome checks the error for a recorded answer.
func checkRoute53Outcome(t *testing.T, e exchange, err error) {
	t.Helper()
	kind, failed := map[string]Kind{
		"error InvalidClientTokenId": BadCredentials, "error NoSuchHostedZone": ZoneNotFound,
		"error InvalidChangeBatch": Changed, "error Throttling": Throttled,
	}[e.Op]
	if failed != (err != nil) || failed && KindOf(err) != kind {
		t.Errorf("%s: %v, want %q", e.Op, err, kind)
	}
}

// checkRoute53Body compares documents, or only the set that is to be after the
// change.
func checkRoute53Body(t *testing.T, e exchange, body string, setOnly bool) {
	t.Helper()
	if body == "" || e.Request.Body == "" {
		if body != e.Request.Body {
			t.Errorf("%s: body %q, want %q", e.Op, body, e.Request.Body)
		}
		return
	}
	got, want := route53Document(t, body), route53Document(t, e.Request.Body)
	if setOnly {
		sets := got.find("ResourceRecordSet")
		if len(sets) != 2 {
			t.Fatalf("%s: %s", e.Op, body)
		}
		got, want = sets[1], want.find("ResourceRecordSet")[0]
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: body\n%s, want\n%s", e.Op, body, e.Request.Body)
	}
}

func TestRoute53Errors(t *testing.T) {
	document := func(status int, body string) cloudtest.Answer {
		return cloudtest.Answer{Status: status, Header: map[string]string{"X-Amzn-Requestid": "536E9CAD"}, Body: `<?xml version="1.0"?>` + "\n" + body}
	}
	failure := func(status int, code, words string) cloudtest.Answer {
		return document(status, "<ErrorResponse><Error><Type>Sender</Type><Code>"+code+"</Code><Message>words of the vendor "+words+
			"</Message></Error><RequestId>536E9CAD</RequestId></ErrorResponse>")
	}
	batch := func(messages ...string) cloudtest.Answer {
		return document(http.StatusBadRequest, "<InvalidChangeBatch><Messages><Message>words of the vendor</Message><Message>"+
			strings.Join(messages, "</Message><Message>")+"</Message></Messages></InvalidChangeBatch>")
	}
	const cname = "RRSet of type TXT is not permitted because a conflicting RRSet of type  CNAME already exists"
	refusals := []refusal{
		{failure(http.StatusForbidden, "InvalidClientTokenId", ""), BadCredentials},
		{failure(http.StatusForbidden, "SignatureDoesNotMatch", ""), BadCredentials},
		{failure(http.StatusForbidden, "ExpiredToken", ""), BadCredentials},
		{failure(http.StatusForbidden, "MissingAuthenticationToken", ""), BadCredentials},
		{document(http.StatusForbidden, "<InvalidSignatureException>\n  <Message>words of the vendor</Message>\n</InvalidSignatureException>"), BadCredentials},
		{document(http.StatusForbidden, "<InvalidSignatureException><Message>words of the vendor: Signature expired: a is now earlier than b</Message></InvalidSignatureException>"), ClockSkew},
		{failure(http.StatusForbidden, "SignatureDoesNotMatch", "Signature expired: a is now earlier than b"), ClockSkew},
		{failure(http.StatusForbidden, "SignatureDoesNotMatch", "Signature not yet current: a is still later than b"), ClockSkew},
		{failure(http.StatusForbidden, "RequestExpired", ""), ClockSkew},
		{failure(http.StatusForbidden, "AccessDenied", ""), Permission},
		{failure(http.StatusForbidden, "AccessDeniedException", ""), Permission},
		{failure(http.StatusNotFound, "NoSuchHostedZone", ""), ZoneNotFound},
		{failure(http.StatusBadRequest, "InvalidInput", ""), Invalid},
		{failure(http.StatusBadRequest, "LimitsExceeded", ""), Quota},
		{failure(http.StatusBadRequest, "Throttling", "Rate exceeded"), Throttled},
		{failure(http.StatusBadRequest, "ThrottlingException", "Rate exceeded"), Throttled},
		{failure(http.StatusBadRequest, "PriorRequestNotComplete", ""), Throttled},
		{failure(http.StatusNotFound, "NoSuchChange", ""), Temporary},
		{failure(http.StatusServiceUnavailable, "ServiceUnavailable", ""), Temporary},
		{failure(http.StatusInternalServerError, "InternalFailure", ""), Temporary},
		{failure(http.StatusBadGateway, "NeverHeardOf", ""), Temporary},
		{failure(http.StatusBadRequest, "NeverHeardOf", ""), Invalid},
		{failure(http.StatusBadRequest, "InvalidChangeBatch", "[Tried to delete resource record set [name='a.', type='TXT'] but it was not found]"), Changed},
		{batch("Tried to create resource record set [name='a.', type='TXT'] but it already exists"), Changed},
		{batch("Tried to delete it but the values provided do not match the current values"), Changed},
		{batch("Tried to delete it but it was not found", cname), Conflict},
		{batch(cname), Conflict},
		{batch("RRSet cannot be created as other RRSets exist with the same name and type."), Conflict},
		{batch("Number of records limit of 1000 exceeded."), Quota},
		{batch("Cannot have more than 100 records in a RRSet."), Quota},
		{batch("Invalid Resource Record"), Invalid},
	}
	testRefusals(t, "route53", refusals, "536E9CAD", "words of the vendor")
}

// route53Cloud is a stand-in and a client that waits little.
func route53Cloud(t *testing.T) (*cloudtest.Cloud, *Client) {
	t.Helper()
	c, client := openNamed(t, "route53")
	client.vendor.(*route53).poll = time.Millisecond
	c.Asked()
	return c, client
}

// asked gives method and body of the requests for a path.
func asked(requests []cloudtest.Request, path string) (bodies []string) {
	for _, r := range requests {
		if strings.Contains(r.Path, path) {
			bodies = append(bodies, r.Method+string(r.Body))
		}
	}
	return bodies
}

func TestRoute53NoID(t *testing.T) {
	c, client := route53Cloud(t)
	c.Fail(cloudtest.Pass, cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "<ChangeResourceRecordSetsResponse/>"}))
	wantKind(t, client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"a"}}}), BadAnswer, "no id")
}

// TestRoute53Values has values that XML and their quotes spell in an odd way.
func TestRoute53Values(t *testing.T) {
	_, client := route53Cloud(t)
	for i, value := range []Value{
		{oddText}, {""}, {"a", "", "b "}, {"\x00\xff\r\n<&>]]>\u2028"},
		{`"\101"`, `\`}, cutTXT(strings.Repeat("x", 3953)),
	} {
		name := fmt.Sprintf("value%d.%s", i, cloudtest.Zone)
		if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{value}, TTL: 60}); err != nil {
			t.Errorf("%q: %v", value, err)
		}
		if set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT); err != nil || !sameValues(set.Values, []Value{value}) || set.TTL != 60 {
			t.Errorf("%v: %q, want %q", err, set.Values, value)
		}
	}
}

// TestRoute53Raw reads values of others and writes them back in their spelling.
func TestRoute53Raw(t *testing.T) {
	c, client := route53Cloud(t)
	const name = "raw." + cloudtest.Zone
	const spelled = "<Value>&#34;a\\075b\\073&#34; &#34;c&#34;</Value>" // not as we spell it
	c.Add(t, name, []string{"a=b;", "c"})
	set, err := client.Read(t.Context(), cloudtest.Zone, name, TXT)
	if err != nil || !sameValues(set.Values, []Value{{"a=b;", "c"}}) || set.TTL != 1 {
		t.Fatal(set, err)
	}
	c.Asked()
	if err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: set, Add: []Value{{"n=1"}}, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	var sent string
	for _, body := range asked(c.Asked(), "/rrset") {
		if body, posted := strings.CutPrefix(body, http.MethodPost); posted {
			sent += body
		}
	}
	del, create, _ := strings.Cut(sent, "<Action>CREATE</Action>")
	if !strings.Contains(del, spelled) || !strings.Contains(create, spelled) || !strings.Contains(create, "n=1") {
		t.Error(sent)
	}
	if got := strings.Count(sent, "<TTL>1</TTL>"); got != 2 || c.TTL(name) != 1 {
		t.Errorf("the TTL of others is %d: %s", c.TTL(name), sent)
	}
}

func TestRoute53Names(t *testing.T) {
	for text, want := range map[string]string{
		`\052.Example.com.`: "*.example.com", `_mesh.a.example.com.`: "_mesh.a.example.com", `a\100b.example.com.`: "a@b.example.com",
		`a\056b.example.com.`: `a\.b.example.com`, `a\134b.example.com`: `a\\b.example.com`, `a\999.`: `a\999`, `a\`: `a\`, "": "",
	} {
		if got := route53Name(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	c, client := route53Cloud(t)
	const name = "*." + cloudtest.Zone
	change := Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"a"}}, TTL: 60}
	if err := client.Change(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	change = Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Seen: RRset{TTL: 60, Values: []Value{{"a"}}}, Add: []Value{{"b"}}, Remove: []Value{{"a"}}}
	if err := client.Change(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if got := c.Values(t, name); !reflect.DeepEqual(got, [][]string{{"b"}}) {
		t.Error(got)
	}
}

// TestRoute53Swap makes a change from a set that another user has replaced.
func TestRoute53Swap(t *testing.T) {
	c, client := route53Cloud(t)
	v := client.vendor.(*route53)
	z, err := client.named(t.Context(), cloudtest.Zone)
	if err != nil {
		t.Fatal(err)
	}
	const name = "swap." + cloudtest.Zone
	none, ours := recordSet{}, route53Standing("ours")
	ours.ttl = 60
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, ours, none), Changed, "not found")
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, ours, route53Standing("new")), Changed, "not found")
	c.Add(t, name, []string{"another's"})
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, none, ours), Changed, "already exists")
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, ours, none), Changed, "do not match")
	seen, err := v.list(t.Context(), z, setKey{name, TXT})
	if err != nil {
		t.Fatal(err)
	}
	late := seen
	late.ttl++
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, late, ours), Changed, "do not match")
	c.Add(t, name, []string{"a third's"})
	wantKind(t, v.replace(t.Context(), z, setKey{name, TXT}, seen, ours), Changed, "do not match")
	if got := c.Values(t, name); !reflect.DeepEqual(got, [][]string{{"another's"}, {"a third's"}}) {
		t.Error(got)
	}
}

// TestRoute53Conflicts has sets at the name that are not of plain values.
func TestRoute53Conflicts(t *testing.T) {
	c, client := route53Cloud(t)
	add := func(name string) error {
		return client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"ours"}}, TTL: 60})
	}
	for _, special := range []string{
		"<AliasTarget><HostedZoneId>Z</HostedZoneId><DNSName>b.example.com.</DNSName><EvaluateTargetHealth>false</EvaluateTargetHealth></AliasTarget>",
		"<TTL>60</TTL><ResourceRecords><ResourceRecord><Value>&quot;a&quot;</Value></ResourceRecord></ResourceRecords><TrafficPolicyInstanceId>1</TrafficPolicyInstanceId>",
	} {
		c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "<ListResourceRecordSetsResponse><ResourceRecordSets><ResourceRecordSet><Name>special.example.com.</Name><Type>TXT</Type>" +
			special + "</ResourceRecordSet></ResourceRecordSets></ListResourceRecordSetsResponse>"}))
		wantKind(t, add("special."+cloudtest.Zone), Conflict, "an alias")
	}
	for _, body := range asked(c.Asked(), "/rrset") {
		if strings.HasPrefix(body, http.MethodPost) {
			t.Errorf("written nevertheless: %s", body)
		}
	}
}

func TestRoute53Pending(t *testing.T) {
	c, client := route53Cloud(t)
	change := Change{Zone: cloudtest.Zone, Name: "pending." + cloudtest.Zone, Type: TXT, Add: []Value{{"a"}}, TTL: 60}
	c.SetLag(2)
	// list and batch go well, and a look that fails is not the end
	c.Fail(cloudtest.Pass, cloudtest.Pass, cloudtest.Throttle, cloudtest.Reset)
	if err := client.Change(t.Context(), change); err != nil {
		t.Error(err)
	}
	if looks := asked(c.Asked(), "/change/C"); len(looks) != 5 {
		t.Errorf("%d looks, want 5: throttled, reset, two pending, and the last", len(looks))
	}
	refused := cloudtest.Instead(cloudtest.Answer{Status: http.StatusForbidden, Body: "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"})
	c.Fail(cloudtest.Pass, cloudtest.Pass, refused)
	change.Name = "refused." + cloudtest.Zone
	if err := client.Change(t.Context(), change); err != nil {
		t.Errorf("%v, want that it is made, though nobody may look", err)
	}

	c.SetLag(1 << 30)
	client.vendor.(*route53).patience = 20 * time.Millisecond
	change.Name = "for-ever." + cloudtest.Zone
	if err := client.Change(t.Context(), change); err != nil {
		t.Errorf("%v, want that it is made, though not all servers have it", err)
	}
}

func TestRoute53Zones(t *testing.T) {
	c := cloudtest.Route53(t)
	const name = "vpc.example.net"
	c.AddPrivateZone("private.example.net")
	client := openCloud(t, c, NewRoute53)
	if zone, err := client.Zone(t.Context(), "a.private.example.net"); KindOf(err) != ZoneNotFound {
		t.Error(zone, err)
	}
	for range cloudtest.PageLimit + 1 {
		c.AddPrivateZone(name)
	}
	c.AddZone(name)
	client = openCloud(t, c, NewRoute53)
	for _, path := range []string{cloudtest.Zone, cloudtest.ChildZone, name} {
		if zone, err := client.Zone(t.Context(), "a.b."+path); err != nil || zone != path {
			t.Error(zone, err)
		}
	}
	if err := client.Change(t.Context(), Change{Zone: name, Name: "a." + name, Type: TXT, Add: []Value{{"a"}}, TTL: 60}); err != nil {
		t.Error(err)
	}
	authority, err := client.Authority(t.Context(), name)
	if want := []string{"ns-2048.awsdns-64.com", "ns-2049.awsdns-65.net"}; err != nil || !slices.Equal(authority.Names, want) {
		t.Error(authority, err)
	}
	c.AddZone("twice.example.net")
	c.AddZone("twice.example.net")
	_, err = openCloud(t, c, NewRoute53).Zone(t.Context(), "a.twice.example.net")
	wantKind(t, err, Conflict, "2 public hosted zones named twice.example.net")
}

// TestRoute53NameServers has the request for them fail.
func TestRoute53NameServers(t *testing.T) {
	c := cloudtest.Route53(t)
	client := openCloud(t, c, NewRoute53)
	c.Fail(cloudtest.Pass, cloudtest.Instead(cloudtest.Answer{Status: http.StatusForbidden, Body: "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"}))
	authority, err := client.Authority(t.Context(), cloudtest.Zone)
	if err != nil || authority.Names != nil {
		t.Error(authority, err)
	}
}
