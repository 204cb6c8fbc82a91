package provider

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// TestWebhookProtocol compares all messages of one change. The key pair and its header are the example
// of RFC 7617, section 2.
func TestWebhookProtocol(t *testing.T) {
	const read = "GET /dns?name=_mesh.a.b.example.com"
	steps := []struct{ request, answer string }{
		{read, `{"zone":"Example.com.","ttl":60,"values":["v=spf1 -all","é中文😀"],"min_ttl":300,"servers":["ns1.example.net"]}`},
		{read, `{"zone":"example.com","ttl":60,"values":["v=spf1 -all","é中文😀"]}`},
		{read, `{"zone":"example.com","ttl":60,"values":["v=spf1 -all","é中文😀"]}`},
		{`POST /dns {"add":["new"],"name":"_mesh.a.b.example.com","remove":[],"seen":["v=spf1 -all","é中文😀"],"ttl":300,"zone":"example.com"}`, ""},
		{read, `{"zone":"example.com","ttl":60,"values":["new","v=spf1 -all","é中文😀"]}`},
	}
	for i, step := range steps {
		var e exchange
		e.Op = fmt.Sprint("step ", i+1)
		method, target, _ := strings.Cut(step.request, " ")
		e.Request.Method = method
		e.Request.Target, e.Request.Body, _ = strings.Cut(target, " ")
		e.Request.Headers = [][2]string{{"Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}, {"Content-Type", ""}}
		if method == http.MethodPost {
			e.Request.Headers[1][1] = "application/json"
		}
		e.Response.Status, e.Response.Body = http.StatusOK, step.answer
		address, got := e.replay(t)
		client, err := NewWebhook(Credentials{AccessKeyID: "Aladdin", AccessKeySecret: "open sesame", Endpoint: address + "/dns"})
		if err != nil {
			t.Fatal(err)
		}
		hookStep(t, client.vendor.(*webhook), i)
		e.check(t, "webhook", got(), nil, "Authorization", "Content-Type")
	}
}

// hookStep makes the call of one step.
func hookStep(t *testing.T, v *webhook, step int) {
	const name = "_mesh.a.b.example.com"
	z := zone{name: "example.com", minTTL: 300, servers: []string{"ns1.example.net"}}
	seen := recordSet{records: []record{{value: Value{"v=spf1 -all"}}, {value: Value{"é中文😀"}}}}
	switch step {
	case 0:
		found, ok, err := v.zone(t.Context(), name)
		if err != nil || !ok || found.name != z.name || found.minTTL != z.minTTL || !slices.Equal(found.servers, z.servers) {
			t.Errorf("zone %+v, %v, %v", found, ok, err)
		}
	case 3:
		if err := v.change(t.Context(), plan{zone: z, at: setKey{name, TXT}, seen: seen, add: []Value{{"new"}}, ttl: 300}); err != nil {
			t.Error(err)
		}
	default:
		if set, err := v.list(t.Context(), z, setKey{name, TXT}); err != nil || len(set.records) < 2 || set.values().TTL != 60 {
			t.Errorf("%v, %v", set, err)
		}
	}
}

// TestWebhookCalls counts the calls: all zones take one, however deep the names
// and whether there is one or not, and a change one beside the looks.
func TestWebhookCalls(t *testing.T) {
	c := cloudtest.Webhook(t)
	client := openCloud(t, c, NewWebhook)
	deep := "_mesh.a.b.c.d." + cloudtest.ChildZone
	sent := func() (methods string) {
		for _, r := range c.Asked() {
			methods += r.Method + " "
		}
		return methods
	}
	if zone, err := client.Zone(t.Context(), deep); err != nil || zone != cloudtest.ChildZone {
		t.Errorf("zone %q, %v", zone, err)
	}
	if got := sent(); got != "GET " {
		t.Errorf("a zone takes %s", got)
	}
	if _, err := client.Zone(t.Context(), "_mesh.a.b.c.d.example.invalid"); KindOf(err) != ZoneNotFound {
		t.Errorf("%v, want %s", err, ZoneNotFound)
	}
	if got := sent(); got != "" {
		t.Errorf("no zone takes %s, where all are known", got)
	}
	change := Change{Zone: cloudtest.ChildZone, Name: deep, Type: TXT, Add: []Value{{"one"}, {"two"}}, TTL: 60}
	if err := client.Change(t.Context(), change); err != nil {
		t.Error(err)
	}
	if got := sent(); got != "GET POST GET " {
		t.Errorf("a change takes %s", got)
	}
	if ttl := c.TTL(deep); ttl != c.MinTTL {
		t.Errorf("TTL %d, want that of the bridge, %d", ttl, c.MinTTL)
	}
	if a, err := client.Authority(t.Context(), cloudtest.ChildZone); err != nil || !slices.Equal(a.Names, []string{"ns1.example.net", "ns2.example.net"}) {
		t.Errorf("%v, %v", a, err)
	}
}

// TestWebhookZones asks for names in zones that they are not in.
func TestWebhookZones(t *testing.T) {
	c := cloudtest.Webhook(t)
	client := openCloud(t, c, NewWebhook)
	_, absent := client.Read(t.Context(), "a.b."+cloudtest.Zone, "x.a.b."+cloudtest.Zone, TXT)
	_, below := client.Read(t.Context(), cloudtest.Zone, "x."+cloudtest.ChildZone, TXT)
	for _, err := range []error{absent, below} {
		if KindOf(err) != ZoneNotFound || err == nil {
			t.Errorf("%v, want %s", err, ZoneNotFound)
		}
	}
}

// TestWebhookChanged has another writer between the look and the change; only the bridge can see it.
func TestWebhookChanged(t *testing.T) {
	c := cloudtest.Webhook(t)
	v := openCloud(t, c, NewWebhook).vendor.(*webhook)
	name := "_mesh." + cloudtest.Zone
	z := zone{name: cloudtest.Zone}
	c.Add(t, name, []string{"one"})
	seen, err := v.list(t.Context(), z, setKey{name, TXT})
	if err != nil {
		t.Fatal(err)
	}
	p := plan{zone: z, at: setKey{name, TXT}, seen: seen, add: []Value{{"ours"}}, remove: []Value{{"one"}}, ttl: c.MinTTL}
	c.Add(t, name, []string{"two"})
	if err := v.change(t.Context(), p); KindOf(err) != Changed {
		t.Errorf("%v, want %s", err, Changed)
	}
	if got := fmt.Sprint(c.Values(t, name)); got != "[[one] [two]]" {
		t.Errorf("there are %s", got)
	}
}

func TestWebhookErrors(t *testing.T) {
	failure := func(status int, kind string) cloudtest.Answer {
		return cloudtest.JSON(status, map[string]any{"error": "words of the bridge", "kind": kind})
	}
	refusals := []refusal{
		{failure(http.StatusBadRequest, ""), Invalid},
		{failure(http.StatusUnauthorized, ""), BadCredentials},
		{failure(http.StatusForbidden, "never heard of"), Permission},
		{failure(http.StatusNotFound, ""), ZoneNotFound},
		{failure(http.StatusNotFound, "never heard of"), ZoneNotFound},
		{failure(http.StatusMethodNotAllowed, ""), Invalid},
		{failure(http.StatusRequestTimeout, ""), Temporary},
		{failure(http.StatusConflict, ""), Changed},
		{failure(http.StatusTooManyRequests, ""), Throttled},
		{failure(http.StatusInternalServerError, ""), Temporary},
	}
	for kind, want := range map[string]Kind{
		"credentials": BadCredentials, "permission": Permission, "clock_skew": ClockSkew, "zone_not_found": ZoneNotFound, "conflict": Conflict,
		"invalid": Invalid, "quota": Quota, "throttled": Throttled, "temporary": Temporary, "changed": Changed,
	} {
		for _, status := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError} {
			refusals = append(refusals, refusal{failure(status, kind), want})
		}
	}
	testRefusals(t, "webhook", refusals, "words of the bridge")
}

func TestWebhookUnreadable(t *testing.T) {
	const good = `{"zone":"example.com","values":[]}`
	testRefusals(t, "webhook", []refusal{
		{cloudtest.Answer{Status: http.StatusNoContent}, BadAnswer},
		{cloudtest.Answer{Status: http.StatusAccepted, Body: good}, BadAnswer},
		{cloudtest.Answer{Status: http.StatusFound, Body: good}, BadAnswer},
		{cloudtest.Answer{Status: http.StatusForbidden, Body: `{"error":["no"],"kind":7}`}, Permission},
	}, "read")
}

// TestWebhookDone has the answers which mean that a change is made.
func TestWebhookDone(t *testing.T) {
	c := cloudtest.Webhook(t)
	v := openCloud(t, c, NewWebhook).vendor.(*webhook)
	for answer, done := range map[cloudtest.Fault]bool{
		cloudtest.Pass: true,
		cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK}):                     true,
		cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "all's well"}): true,
		cloudtest.Instead(cloudtest.Answer{Status: http.StatusNoContent}):              true,
		cloudtest.Instead(cloudtest.Answer{Status: http.StatusAccepted}):               false,
	} {
		c.Fail(answer)
		err := v.change(t.Context(), plan{zone: zone{name: cloudtest.Zone}, at: setKey{cloudtest.Zone, TXT}, ttl: c.MinTTL})
		if done && err != nil || !done && KindOf(err) != BadAnswer {
			t.Errorf("%v, want done: %v", err, done)
		}
	}
}

func TestNewWebhook(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": false, "http://bridge.example.com": false, "ftp://bridge.example.com": false, "https://bridge.example.com/?a=b": false,
		"https://bridge.example.com/dns": true, "bridge.example.com": true, "http://127.0.0.1:8053": true, "http://localhost/dns": true,
	} {
		if _, err := NewWebhook(Credentials{AccessKeyID: "user", Endpoint: endpoint}); (err == nil) != ok || !ok && KindOf(err) != Invalid {
			t.Errorf("endpoint %q: %v, want ok: %v", endpoint, err, ok)
		}
	}
	if _, err := NewWebhook(Credentials{AccessKeyID: "us:er", Endpoint: "https://bridge.example.com"}); KindOf(err) != Invalid || err == nil {
		t.Errorf("a user with a colon: %v", err)
	}
}
