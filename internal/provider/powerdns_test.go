package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

// pdnsContents returns the records that an exchange writes, as if they were there before.
func pdnsContents(t *testing.T, e exchange) (raw, spelled recordSet) {
	t.Helper()
	var body struct{ RRsets []pdnsSet }
	if err := json.Unmarshal([]byte(e.Request.Body), &body); err != nil || len(body.RRsets) != 1 {
		t.Fatalf("%s: %v", e.Op, err)
	}
	raw.ttl, spelled.ttl = body.RRsets[0].TTL, body.RRsets[0].TTL
	for _, text := range body.RRsets[0].Records {
		r, err := pdnsRead(TXT, text)
		if err != nil {
			t.Fatal(e.Op, err)
		}
		raw.records = append(raw.records, r)
		spelled.records = append(spelled.records, record{value: r.value})
	}
	return raw, spelled
}

// TestPowerDNSExchanges sends the requests that were recorded with a real server, and reads the answers
// of that server.
func TestPowerDNSExchanges(t *testing.T) {
	unused := map[string]string{
		"error: not canonical": "names are written with the final dot",
		"error: no key":        "every request has the key",
		"error: bad JSON":      "the body is JSON",
	}
	for _, e := range exchanges(t, "powerdns", "") {
		if reason := unused[e.Op]; reason != "" {
			e.unused(t, "powerdns", reason)
			continue
		}
		address, got := e.replay(t)
		key := Credentials{AccessKeyID: "localhost", AccessKeySecret: "fake-pdns-api-key", Endpoint: address}
		if e.Op == "error: wrong key" {
			key.AccessKeySecret = "wrong"
		}
		a, err := newAPI(pdnsEndpoint, key, true)
		if err != nil {
			t.Fatal(err)
		}
		kind, err := pdnsSend(t, &powerDNS{a, make(chan struct{}, 1)}, e)
		if kind == "" && err != nil || kind != "" && (err == nil || KindOf(err) != kind) {
			t.Errorf("%s: %v, want %q", e.Op, err, kind)
		}
		e.check(t, "powerdns", got(), nil, "X-API-Key")
	}
}

// pdnsSend makes the call of an exchange, and returns the kind of failure of the recorded answer, if it
// is one.
func pdnsSend(t *testing.T, v *powerDNS, e exchange) (kind Kind, err error) {
	t.Helper()
	z := zone{id: "example.com.", name: "example.com"}
	write := func(z zone, kind Kind, spellAnew bool) (Kind, error) {
		raw, spelled := pdnsContents(t, e)
		if spellAnew {
			raw = spelled
		}
		return kind, v.write(t.Context(), z, pdnsChange(setKey{pdnsName(e), TXT}, raw, raw.ttl))
	}
	switch e.Op {
	case "find zone", "find zone, unknown":
		name := strings.TrimSuffix(e.Request.Target[strings.Index(e.Request.Target, "=")+1:], ".")
		zones, err := v.zonesWhere(t.Context(), url.Values{"zone": {name + "."}})
		found, ok := pick(zones, name)
		if ok != (name == "example.com") || ok && found.id != z.id {
			t.Errorf("zone %s: %+v, %v", name, found, ok)
		}
		return "", err
	case "error: wrong key":
		_, _, err := v.zone(t.Context(), "example.com")
		return BadCredentials, err
	case "list TXT at name", "list odd", "list odd raw", "list 400", "list missing name":
		return "", pdnsListed(t, v, z, e.Op)
	case "replace TXT rrset, two values", "replace, odd characters in \\DDD form", "replace 400 bytes in two strings":
		return write(z, "", true)
	case "replace, odd characters raw UTF-8", "delete TXT rrset", "delete missing rrset":
		return write(z, "", false)
	case "error: unquoted", "error: out of zone":
		return write(z, Invalid, false)
	case "error: duplicate":
		return write(z, Conflict, false)
	case "error: unknown zone":
		return write(zone{id: "none.example.", name: "none.example"}, ZoneNotFound, false)
	}
	t.Errorf("%s: nothing is sent", e.Op)
	return "", nil
}

// pdnsName is the name that an exchange writes at.
func pdnsName(e exchange) string {
	_, rest, _ := strings.Cut(e.Request.Body, `"name": "`)
	name, _, _ := strings.Cut(rest, `."`)
	return name
}

// pdnsListed reads a recorded list and compares the records.
func pdnsListed(t *testing.T, v *powerDNS, z zone, op string) error {
	t.Helper()
	name, want := "", []string{oddText}
	switch op {
	case "list TXT at name":
		name, want = "_mesh.n1", []string{"second", "v=mesh1;id=1001;ep=203.0.113.7:51820"}
	case "list odd":
		name = "_mesh.odd"
	case "list odd raw":
		name = "_mesh.odd2"
	case "list 400":
		name, want = "_mesh.big", nil
	case "list missing name":
		name, want = "_mesh.none", []string{}
	}
	set, err := v.list(t.Context(), z, setKey{name + ".example.com", TXT})
	var texts []string
	for _, r := range set.records {
		texts = append(texts, r.value.Text())
		if op == "list 400" && (len(r.value) != 2 || len(r.value[0]) != 255 || len(r.value[1]) != 145) {
			t.Errorf("%s: %q", op, r.value)
		}
	}
	if want != nil && !slices.Equal(texts, want) || len(texts) > 0 && set.ttl != 60 {
		t.Errorf("%s: TTL %d, %q, want %q", op, set.ttl, texts, want)
	}
	return err
}

func TestPowerDNSErrors(t *testing.T) {
	plain := func(status int, text string) cloudtest.Answer {
		return cloudtest.Answer{Status: status, Header: map[string]string{"Content-Type": "text/plain; charset=utf-8"}, Body: text}
	}
	failure := func(text string) cloudtest.Answer {
		return cloudtest.JSON(http.StatusUnprocessableEntity, map[string]any{"error": text})
	}
	for words, refusals := range map[string][]refusal{
		"Unauthorized":          {{plain(401, "Unauthorized"), BadCredentials}},
		"Not Found":             {{plain(404, "Not Found"), ZoneNotFound}},
		`id is not "localhost"`: {{plain(404, "Not Found"), ZoneNotFound}},
		"example.com": {
			{failure("RRset a.example.com. IN TXT: Conflicts with pre-existing RRset"), Conflict},
			{failure(`Duplicate record in RRset a.example.com. IN TXT with content "x"`), Conflict},
			{failure("Could not find domain 'example.com.'"), ZoneNotFound},
			{failure("RRset a.example.com. IN TXT: Name is out of zone"), Invalid},
			{cloudtest.JSON(422, map[string]any{"error": "Multiple errors found in RRset", "errors": []string{
				`RRset a.example.com. IN TXT: duplicate record with content "x"`,
			}}), Conflict},
		},
		"editing":     {{failure("Hosting backend does not support editing records."), Permission}},
		"Conflict":    {{plain(409, "Conflict"), Conflict}},
		"Bad Request": {{plain(400, "Bad Request"), Invalid}},
		"500":         {{plain(500, "Internal Server Error"), Temporary}},
		"502":         {{cloudtest.Answer{Status: 502, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}, Temporary}},
		"429":         {{plain(429, "Too Many Requests"), Throttled}},
		"HTTP 418":    {{cloudtest.JSON(418, nil), Invalid}},
	} {
		testRefusals(t, "powerdns", refusals, words)
	}
}

// TestPowerDNSRead reads records as other programs have spelled them.
func TestPowerDNSRead(t *testing.T) {
	long := strings.Repeat("x", 400)
	for text, want := range map[string]record{
		`{"content":"\"a\" \"b\"","disabled":false}`:          {value: Value{"a", "b"}},
		`{"content":"\"a\"","disabled":true,"modified_at":1}`: {value: Value{"a"}, off: true},
		`{"content":"\"\\097\\\"\\\\\""}`:                     {value: Value{`a"\`}},
		`{"content":"\"é\""}`:                                 {value: Value{"é"}},
		"{\"content\":\"\\\"caf\xe9\\\"\"}":                   {value: Value{"caf\xe9"}},
		`{"content":"\"` + long + `\" \"b\""}`:                {value: Value{long[:255], long[:145], "b"}},
		`{"content":"no quotes","disabled":false}`:            {off: true},
		`{"content":"\"cut","disabled":false}`:                {off: true},
		`{"content":"\"\\300\"","disabled":false}`:            {off: true},
	} {
		r, err := pdnsRead(TXT, []byte(text))
		if err != nil || !r.value.Equal(want.value) || r.off != want.off || r.raw != text {
			t.Errorf("%s: %+v, %v, want %+v", text, r, err, want)
		}
	}
}

func TestPowerDNSEndpoint(t *testing.T) {
	key := Credentials{AccessKeyID: "localhost", AccessKeySecret: "key"}
	if _, err := NewPowerDNS(key); KindOf(err) != Invalid || !strings.Contains(err.Error(), "http://") {
		t.Errorf("without an endpoint: %v", err)
	}
	c := cloudtest.PowerDNS(t)
	for _, endpoint := range []string{c.URL, c.URL + "/", c.URL + "/api/v1", c.URL + "/api/v1/"} {
		client, err := NewPowerDNS(Credentials{c.AccessKeyID, secrets.Secret(c.AccessKeySecret), endpoint})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	c.Asked()
	other, err := NewPowerDNS(Credentials{"a/b?c%", secrets.Secret(c.AccessKeySecret), c.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Zone(t.Context(), cloudtest.Zone)
	if target := c.Asked()[0].Target; KindOf(err) != ZoneNotFound || target != "/api/v1/servers/a%2Fb%3Fc%25/zones?dnssec=false" {
		t.Errorf("%s: %v", target, err)
	}
	for _, endpoint := range []string{"http://192.0.2.1:8081", "https://dns.example"} {
		key.Endpoint = endpoint
		if _, err := NewPowerDNS(key); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	key.Endpoint = "ftp://192.0.2.1"
	if _, err := NewPowerDNS(key); KindOf(err) != Invalid {
		t.Errorf("%s: %v", key.Endpoint, err)
	}
}

// TestPowerDNSCopies refuses zones in which the next transfer would undo changes.
func TestPowerDNSCopies(t *testing.T) {
	c := cloudtest.PowerDNS(t)
	for _, kind := range []string{"Slave", "Consumer", "Secondary"} {
		client := openCloud(t, c, NewPowerDNS)
		c.Fail(cloudtest.Instead(cloudtest.JSON(200, []any{map[string]any{"id": "example.com.", "name": "example.com.", "kind": kind}})))
		if _, err := client.Zone(t.Context(), "example.com"); KindOf(err) != Permission || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestPowerDNSUnfiltered has a server that ignores filters: it lists all zones, and all records of a
// zone.
func TestPowerDNSUnfiltered(t *testing.T) {
	c := cloudtest.PowerDNS(t)
	client, err := NewPowerDNS(Credentials{c.AccessKeyID, secrets.Secret(c.AccessKeySecret), c.URL})
	if err != nil {
		t.Fatal(err)
	}
	var zones, sets []any
	for _, name := range []string{"notexample.com.", "Example.com.", "com."} {
		zones = append(zones, map[string]any{"id": name, "name": name, "kind": "Native"})
	}
	for _, name := range []string{"b.example.com.", "A.example.com."} {
		for _, kind := range []string{"SPF", "TXT"} {
			sets = append(sets, map[string]any{"name": name, "type": kind, "ttl": 5, "records": []any{
				map[string]any{"content": `"on ` + name + kind + `"`, "disabled": false}, map[string]any{"content": `"off"`, "disabled": true},
			}})
		}
	}
	all := cloudtest.Instead(cloudtest.JSON(200, map[string]any{"rrsets": sets}))
	c.Fail(cloudtest.Instead(cloudtest.JSON(200, nil)), cloudtest.Instead(cloudtest.JSON(200, zones)), cloudtest.Pass, all, cloudtest.Pass, all)
	if _, err := client.Zone(t.Context(), "example.com"); KindOf(err) != BadAnswer {
		t.Errorf("null for a list of zones: %v", err)
	}
	on := Value{"on A.example.com.TXT"}
	err = client.Change(t.Context(), Change{Zone: "example.com", Name: "a.example.com", Type: TXT, Seen: RRset{TTL: 5, Values: []Value{on}}, Add: []Value{{"new"}}, TTL: 60})
	if err != nil {
		t.Error(err)
	}
	want := `{"rrsets":[{"changetype":"REPLACE","name":"a.example.com.","records":[{"content":"\"on A.example.com.TXT\"","disabled":false},` +
		`{"content":"\"off\"","disabled":true},{"content":"\"new\"","disabled":false}],"ttl":5,"type":"TXT"}]}`
	for _, r := range c.Asked() {
		if r.Method == http.MethodPatch && (string(r.Body) != want || r.Path != "/api/v1/servers/localhost/zones/Example.com.") {
			t.Errorf("%s\n%s, want\n%s", r.Path, r.Body, want)
		}
	}
}

// TestPowerDNSVersions checks that a server which lists disabled records is
// not asked for its whole zone.
func TestPowerDNSVersions(t *testing.T) {
	for version, whole := range map[string]bool{"4.7.3": true, "4.9.5": true, "5.0.0-alpha1": false, "5.1.2": false, "10.0": false, "0.0.1.master": true, "": true} {
		c, client := openNamed(t, "powerdns")
		c.Asked()
		c.Fail(cloudtest.Pass, cloudtest.Instead(cloudtest.JSON(200, map[string]any{"version": version})))
		err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Add: []Value{{"one"}}, TTL: 60})
		asked := slices.ContainsFunc(c.Asked(), func(r cloudtest.Request) bool {
			return r.Method == http.MethodGet && r.Target == "/api/v1/servers/localhost/zones/example.com."
		})
		if err != nil || asked != whole {
			t.Errorf("version %q: %v, whole zone read: %v", version, err, asked)
		}
	}
}

// TestPowerDNSTurn: a write that waits for another ends with its context.
func TestPowerDNSTurn(t *testing.T) {
	a, err := newAPI(pdnsEndpoint, Credentials{Endpoint: "http://192.0.2.1"}, true)
	if err != nil {
		t.Fatal(err)
	}
	v := &powerDNS{a, make(chan struct{}, 1)}
	v.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.write(ctx, zone{}, pdnsChange(setKey{"a.example.com", TXT}, recordSet{}, 0)); !errors.Is(err, context.Canceled) || KindOf(err) != Network {
		t.Error(err)
	}
}

// TestPowerDNSDisabledTTL leaves the TTL of a disabled record, which is that of the whole set.
func TestPowerDNSDisabledTTL(t *testing.T) {
	c, client := openNamed(t, "powerdns")
	const name = "a." + cloudtest.Zone
	c.AddOff(name, []string{"theirs"})
	for _, change := range []Change{{Add: []Value{{"ours"}}}, {Seen: RRset{Values: []Value{{"ours"}}}, Remove: []Value{{"ours"}}}} {
		change.Zone, change.Name, change.Type, change.TTL = cloudtest.Zone, name, TXT, 60
		if err := client.Change(t.Context(), change); err != nil {
			t.Error(err)
		}
	}
	for _, r := range c.Asked() {
		if r.Method == http.MethodPatch && !strings.Contains(string(r.Body), `"ttl":1,`) {
			t.Errorf("sent %s", r.Body)
		}
	}
}

// TestPowerDNSOneTurn has all clients of a server wait for each other.
func TestPowerDNSOneTurn(t *testing.T) {
	turnOf := func(endpoint string) turn {
		client, err := NewPowerDNS(Credentials{AccessKeyID: "localhost", AccessKeySecret: "secret", Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		return client.vendor.(*powerDNS).turn
	}
	if turnOf("http://192.0.2.1:8081") != turnOf("http://192.0.2.1:8081/api/v1") || turnOf("http://192.0.2.1:8081") == turnOf("http://192.0.2.2:8081") {
		t.Error("turns are not those of servers")
	}
}
