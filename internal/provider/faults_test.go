package provider_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// wantKind checks the kind and the text of a failure, which must not contain the secret.
func wantKind(t *testing.T, c *cloudtest.Cloud, err error, kinds ...provider.Kind) {
	t.Helper()
	t.Log(err)
	if err == nil || !slices.Contains(kinds, provider.KindOf(err)) {
		t.Errorf("%v, want one of %s", err, kinds)
	}
	wantNoSecret(t, c.AccessKeySecret, fmt.Sprintf("%v %+v %#v %q", err, err, err, err))
}

func wantNoSecret(t *testing.T, secret, text string) {
	t.Helper()
	for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret))} {
		if strings.Contains(text, form) {
			t.Errorf("the secret is in %s", text)
		}
	}
}

const faultyName = "_mesh.faulty." + cloudtest.Zone

func values(t *testing.T, c *cloudtest.Cloud, name string) (texts []string) {
	for _, v := range c.Values(t, name) {
		texts = append(texts, strings.Join(v, ""))
	}
	slices.Sort(texts)
	return texts
}

func wantValues(t *testing.T, c *cloudtest.Cloud, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := values(t, c, name); !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q", name, got, want)
	}
}

// replace reads and changes once.
func replace(ctx context.Context, client *provider.Client, add, remove []provider.Value) error {
	ctx, cancel := provider.WriteContext(ctx)
	defer cancel()
	seen, err := client.Read(ctx, cloudtest.Zone, faultyName, provider.TXT)
	if err != nil {
		return err
	}
	return client.Change(ctx, provider.Change{Zone: cloudtest.Zone, Name: faultyName, Type: provider.TXT, Seen: seen, Add: add, Remove: remove, TTL: 60})
}

// replaceAtLast repeats replace as long as a retry may help.
func replaceAtLast(ctx context.Context, client *provider.Client, add, remove []provider.Value) (err error) {
	for range 9 {
		err = replace(ctx, client, add, remove)
		if e, ok := errors.AsType[*provider.Error](err); !ok || !e.Transient() {
			break
		}
	}
	return err
}

// TestCloudZones asks for names in zones that lie in each other, that only
// look alike, and that the public does not see.
func TestCloudZones(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		c.AddPrivateZone("private." + cloudtest.Zone)
		client := newClient(t, c)
		for name, want := range map[string]string{
			cloudtest.Zone: cloudtest.Zone, "_mesh.a." + cloudtest.Zone: cloudtest.Zone,
			cloudtest.ChildZone: cloudtest.ChildZone, "_mesh.a." + cloudtest.ChildZone: cloudtest.ChildZone,
			"grandchild." + cloudtest.Zone: cloudtest.Zone, "A.Example.Com.": cloudtest.Zone,
			"a.example.com.cn": "example.com.cn", "notexample.com": "notexample.com", "x.a03-example.com": "a03-example.com",
			"_mesh.a.private." + cloudtest.Zone: cloudtest.Zone, "_mesh.xn--fiq228c.example": "xn--fiq228c.example",
		} {
			if zone, err := client.Zone(t.Context(), name); err != nil || zone != want {
				t.Errorf("zone of %s: %q, %v, want %q", name, zone, err, want)
			}
		}
		for _, name := range []string{"com", "example.net", "example.co", "ample.com", "example.com.example.org", "a99-example.com"} {
			_, err := client.Zone(t.Context(), name)
			wantKind(t, c, err, provider.ZoneNotFound)
		}
		for _, r := range c.Asked() {
			if r.Query("KeyWord") == "com" {
				t.Errorf("asked for a single label: %s", r.Target)
			}
		}
	})
}

// TestCloudIDN writes into a zone with an internationalised name.
func TestCloudIDN(t *testing.T) {
	const zone = "xn--fiq228c.example"
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		for _, name := range []string{zone, "_mesh.a." + zone} {
			err := client.Change(t.Context(), provider.Change{Zone: zone, Name: name, Type: provider.TXT, Add: []provider.Value{{"ours"}}, TTL: 60})
			if err != nil {
				t.Error(err)
			}
			wantValues(t, c, name, "ours")
			if seen, err := client.Read(t.Context(), zone, name, provider.TXT); err != nil || len(seen.Values) != 1 {
				t.Errorf("%s: %q, %v", name, seen.Values, err)
			}
		}
	})
}

// TestCloudKeys has wrong keys and wrong clocks, which are different failures.
func TestCloudKeys(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		try := func(change func(*provider.Credentials)) error {
			key := credentials(c)
			change(&key)
			client, err := clients[c.Provider](key)
			if err != nil {
				return err
			}
			_, err = client.Zone(t.Context(), cloudtest.Zone)
			return err
		}
		if err := try(func(*provider.Credentials) {}); err != nil {
			t.Fatal(err)
		}
		wantKind(t, c, try(func(k *provider.Credentials) { k.AccessKeySecret = "another secret of this length" }), provider.BadCredentials)
		if !slices.Contains(keyIDUnused, c.Provider) {
			wantKind(t, c, try(func(k *provider.Credentials) { k.AccessKeyID += "x" }), provider.BadCredentials, provider.ZoneNotFound)
		}
		for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
			c.SetClock(ahead)
			if !c.Signed {
				if err := try(func(*provider.Credentials) {}); err != nil {
					t.Error(err)
				}
			} else {
				wantKind(t, c, try(func(*provider.Credentials) {}), provider.ClockSkew)
			}
		}
	})
}

// keyIDUnused are the providers that do not look at the key's id.
var keyIDUnused = []string{"cloudflare"}

// page is an answer that the vendor did not make.
func page(status int, header ...string) cloudtest.Answer {
	a := cloudtest.Answer{Status: status, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html><body>no JSON, no XML</html>"}
	for i := 0; i < len(header); i += 2 {
		a.Header[header[i]] = header[i+1]
	}
	return a
}

// wrongAnswer is a fault in place of an answer, and its expected kind.
type wrongAnswer struct {
	name  string
	fault cloudtest.Fault
	kinds []provider.Kind
}

func wrongAnswers(c *cloudtest.Cloud) []wrongAnswer {
	one := func(name string, a cloudtest.Answer, kinds ...provider.Kind) wrongAnswer {
		return wrongAnswer{name, cloudtest.Instead(a), kinds}
	}
	ok := func(name, body string) wrongAnswer {
		return one(name, cloudtest.Answer{Status: http.StatusOK, Body: body}, provider.BadAnswer)
	}
	echo := page(http.StatusBadRequest)
	echo.Body = "you said " + c.AccessKeySecret
	return []wrongAnswer{
		{"throttled", cloudtest.Throttle, []provider.Kind{provider.Throttled}},
		one("429", page(http.StatusTooManyRequests, "Retry-After", "7"), provider.Throttled),
		one("500", page(http.StatusInternalServerError), provider.Temporary),
		one("502", page(http.StatusBadGateway), provider.Temporary),
		one("503", page(http.StatusServiceUnavailable, "Retry-After", "7"), provider.Temporary),
		one("401", page(http.StatusUnauthorized), provider.BadCredentials),
		one("403", page(http.StatusForbidden), provider.Permission),
		one("echo of the secret", echo, provider.Invalid),
		one("redirect", page(http.StatusFound, "Location", c.URL+"/elsewhere"), provider.BadAnswer),
		one("HTML", page(http.StatusOK), provider.BadAnswer),
		ok("nothing", ""),
		ok("null", "null"),
		ok("an empty object", "{}"),
		ok("an array", "[[]]"),
		ok("wrong types", `{"Response":7,"result":"x","ResponseMetadata":[],"records":7,"recordsets":7,"rrsets":7,"DomainRecords":[],"values":7,"status":[]}`),
		ok("too much", strings.Repeat(" ", 5<<20)),
		{"broken off", cloudtest.Cut, []provider.Kind{provider.Network}},
		{"reset", cloudtest.Reset, []provider.Kind{provider.Network}},
		{"none", cloudtest.Slow, []provider.Kind{provider.Network}},
	}
}

// TestCloudAnswers has the network and the provider fail in every way that leaves no answer or a wrong
// one.
func TestCloudAnswers(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		for _, wrong := range wrongAnswers(c) {
			t.Run(wrong.name, func(t *testing.T) { testWrongAnswer(t, c, wrong) })
		}
	})
}

func testWrongAnswer(t *testing.T, c *cloudtest.Cloud, wrong wrongAnswer) {
	client := newClient(t, c)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	c.Asked()
	ctx, cancel := t.Context(), func() {}
	if wrong.name == "none" {
		ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	}
	defer cancel()
	// A connection that breaks may be tried again by net/http: Reset as often.
	c.Fail(slices.Repeat([]cloudtest.Fault{wrong.fault}, 3)...)
	_, err := client.Read(ctx, cloudtest.Zone, faultyName, provider.TXT)
	c.FailNoMore()
	wantKind(t, c, err, wrong.kinds...)
	e, ok := errors.AsType[*provider.Error](err)
	if strings.Contains(err.Error(), "://") {
		t.Errorf("%v shows a URL, which may have what is secret", err)
	}
	if tooMuch := wrong.name == "too much"; tooMuch != strings.Contains(err.Error(), "octets") {
		t.Errorf("%s: %v", wrong.name, err)
	}
	if patient := wrong.name == "429" || wrong.name == "503"; patient && (!ok || e.RetryAfter != 7*time.Second) {
		t.Errorf("%v does not say when to come again", err)
	}
	testWrongZone(t, c, wrong)
	for _, r := range c.Asked() {
		if strings.HasSuffix(r.Path, "/elsewhere") {
			t.Error("the redirect was followed")
		}
	}
}

// testWrongZone has a wrong answer to the search for the zone: the zone must not seem to be missing,
// because the client would then take another one.
func testWrongZone(t *testing.T, c *cloudtest.Cloud, wrong wrongAnswer) {
	t.Helper()
	limit := support.Limit
	if wrong.name == "none" {
		limit = 50 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client := newClient(t, c)
	c.Fail(slices.Repeat([]cloudtest.Fault{wrong.fault}, 3)...)
	zone, err := client.Zone(ctx, "a."+cloudtest.ChildZone)
	c.FailNoMore()
	if c.Provider == "porkbun" && wrong.name == "echo of the secret" {
		return // a refusal there means that the domain is not in the account
	}
	wantKind(t, c, err, wrong.kinds...)
	if zone != "" {
		t.Errorf("the zone is %q", zone)
	}
}

// TestCloudTLS has a server with an untrusted certificate.
func TestCloudTLS(t *testing.T) {
	for name, open := range clients {
		asked := false
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		client, err := open(provider.Credentials{AccessKeyID: "id", AccessKeySecret: "the-secret", Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Zone(t.Context(), cloudtest.Zone)
		server.Close()
		if provider.KindOf(err) != provider.Network || !strings.Contains(err.Error(), "certificate") || asked {
			t.Errorf("%s: %v, and the server was asked: %v", name, err, asked)
		}
	}
}

// TestCloudConnections makes many calls over few connections.
func TestCloudConnections(t *testing.T) {
	c := cloudtest.AliDNS(t)
	for range 5 {
		client := newClient(t, c)
		for n := range 10 {
			if _, err := client.Read(t.Context(), cloudtest.Zone, fmt.Sprintf("n%d.%s", n, cloudtest.Zone), provider.TXT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if made := c.Connections(); made >= 5 { // net/http keeps no connection whose request took 50 ms to be written
		t.Errorf("%d connections for the calls of five clients, one after the other", made)
	}
}

// TestCloudInterrupted breaks a change at each of its requests in turn, in every way, and repeats it: no
// value is lost or doubled.
func TestCloudInterrupted(t *testing.T) {
	t.Parallel()
	faults := map[string]cloudtest.Fault{
		"throttled": cloudtest.Throttle, "reset": cloudtest.Reset, "lost": cloudtest.Lost, "cut": cloudtest.Cut,
		"503": cloudtest.Instead(cloudtest.Answer{Status: http.StatusServiceUnavailable}),
	}
	type step struct{ add, remove []provider.Value }
	steps := map[string]struct {
		step
		want []string
	}{
		"add":     {step{[]provider.Value{{"new"}}, nil}, []string{"foreign", "new", "old"}},
		"replace": {step{[]provider.Value{{"new"}}, []provider.Value{{"old"}}}, []string{"foreign", "new"}},
		"remove":  {step{nil, []provider.Value{{"old"}}}, []string{"foreign"}},
		"all":     {step{[]provider.Value{{"new"}, {"newer"}}, []provider.Value{{"old"}, {"foreign"}}}, []string{"new", "newer"}},
	}
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		for name, change := range steps {
			for how, fault := range faults {
				for at := range 8 {
					client := newClient(t, c)
					for _, v := range []string{"new", "newer", "old", "foreign"} {
						c.Remove(t, faultyName, []string{v})
					}
					c.Add(t, faultyName, []string{"old"})
					c.Add(t, faultyName, []string{"foreign"})
					if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
						t.Fatal(err)
					}
					c.Fail(slices.Concat(slices.Repeat([]cloudtest.Fault{cloudtest.Pass}, at), []cloudtest.Fault{fault})...)
					err := replaceAtLast(t.Context(), client, change.add, change.remove)
					left := c.FailNoMore()
					if err != nil {
						t.Errorf("%s, %s at request %d: %v", name, how, at, err)
					}
					wantValues(t, c, faultyName, change.want...)
					if left > 0 {
						break // the change is over before
					}
				}
			}
		}
	})
}

// TestCloudLag has changes show late.
func TestCloudLag(t *testing.T) {
	t.Parallel()
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		c.SetLag(2)
		for _, change := range [][2][]provider.Value{{{{"one"}}, nil}, {{{"two"}}, {{"one"}}}, {nil, {{"two"}}}} {
			if err := replace(t.Context(), client, change[0], change[1]); err != nil {
				t.Fatal(err)
			}
			seen, err := client.Read(t.Context(), cloudtest.Zone, faultyName, provider.TXT)
			if err != nil || len(seen.Values) != len(change[0]) {
				t.Errorf("after the change to %q: %q, %v", change[0], seen.Values, err)
			}
		}
		if c.Provider == "route53" {
			return // its lists show a change at once: TestInSyncLeavesTime
		}
		c.SetLag(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wantKind(t, c, replace(ctx, client, []provider.Value{{"never shown"}}, nil), provider.Temporary, provider.Network)
	})
}

// TestCloudConflicts has a CNAME at the name.
func TestCloudConflicts(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		c.AddAlias(faultyName, "elsewhere.example.net")
		wantKind(t, c, replace(t.Context(), client, []provider.Value{{"ours"}}, nil), provider.Conflict)
		wantValues(t, c, faultyName)
	})
}

// TestCloudBesideAlias has our value beside a CNAME: the client sees it and can remove it.
func TestCloudBesideAlias(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		if c.Provider == "webhook" {
			t.Skip("the stand-in's bridge refuses to read beside a CNAME")
		}
		client := newClient(t, c)
		c.Add(t, faultyName, []string{"ours"})
		c.AddAlias(faultyName, "elsewhere.example.net")
		seen, err := client.Read(t.Context(), cloudtest.Zone, faultyName, provider.TXT)
		if err != nil || len(seen.Values) != 1 {
			t.Errorf("read %q, %v", seen.Values, err)
		}
		if err := replace(t.Context(), client, nil, []provider.Value{{"ours"}}); err != nil {
			t.Error("remove:", err)
		}
		wantValues(t, c, faultyName)
	})
}

// neverOff are the providers that have no disabled records and no lines.
var neverOff = []string{"cloudflare", "godaddy", "porkbun", "webhook"}

// TestCloudOff has a disabled record at the name: it is no value, changes leave it alone, and the client
// does not create the same value again.
func TestCloudOff(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		if slices.Contains(neverOff, c.Provider) {
			t.Skip("no record can be switched off there")
		}
		client := newClient(t, c)
		c.AddOff(faultyName, []string{"switched off"})
		if !slices.Contains([]string{"route53", "huaweicloud", "powerdns"}, c.Provider) { // their sets have a value only once
			c.Add(t, "both."+faultyName, []string{"twice"})
			c.AddOff("both."+faultyName, []string{"twice"})
			change := provider.Change{Zone: cloudtest.Zone, Name: "both." + faultyName, Type: provider.TXT, Seen: provider.RRset{Values: []provider.Value{{"twice"}}}, Remove: []provider.Value{{"twice"}}}
			if err := client.Change(t.Context(), change); err != nil || len(c.Off("both."+faultyName)) != 1 || len(c.Values(t, "both."+faultyName)) != 0 {
				t.Errorf("%v, and %q is left in the record that is switched off", err, c.Off("both."+faultyName))
			}
		}
		if seen, err := client.Read(t.Context(), cloudtest.Zone, faultyName, provider.TXT); err != nil || len(seen.Values) != 0 {
			t.Errorf("%q, %v", seen.Values, err)
		}
		wantKind(t, c, replace(t.Context(), client, []provider.Value{{"switched off"}}, nil), provider.Conflict)
		if c.Provider == "route53" { // the nearest is a weighted set, which excludes a plain one
			wantKind(t, c, replace(t.Context(), client, []provider.Value{{"ours"}}, nil), provider.Conflict)
			return
		}
		for _, change := range [][2][]provider.Value{{{{"one"}}, nil}, {{{"two"}}, {{"one"}}}, {nil, {{"two"}, {"switched off"}}}} {
			if err := replace(t.Context(), client, change[0], change[1]); err != nil {
				t.Error(err)
			}
			if off := c.Off(faultyName); len(off) != 1 || off[0][0] != "switched off" {
				t.Errorf("after %q the record that is switched off is %q", change, off)
			}
		}
		wantValues(t, c, faultyName)
	})
}

// TestCloudWaits has a change wait for another of the same name, until its
// context ends.
func TestCloudWaits(t *testing.T) {
	c := cloudtest.AliDNS(t)
	client := newClient(t, c)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	<-c.Arrived()
	c.Fail(cloudtest.Slow)
	slow, end := context.WithCancel(t.Context())
	first := make(chan error)
	change := provider.Change{Zone: cloudtest.Zone, Name: faultyName, Type: provider.TXT, Add: []provider.Value{{"ours"}}, TTL: 60}
	go func() { first <- client.Change(slow, change) }()
	<-c.Arrived()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantKind(t, c, client.Change(ctx, change), provider.Network)
	end()
	wantKind(t, c, <-first, provider.Network)
	if err := client.Change(t.Context(), change); err != nil {
		t.Error(err)
	}
}

// TestCloudTTL asks for a TTL below the provider's minimum.
func TestCloudTTL(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		for _, change := range [][2][]provider.Value{{{{"one"}}, nil}, {{{"two"}}, {{"one"}}}} {
			if err := replace(t.Context(), client, change[0], change[1]); err != nil {
				t.Fatal(err)
			}
			if ttl := c.TTL(faultyName); ttl != max(60, c.MinTTL) {
				t.Errorf("TTL %d, want %d", ttl, max(60, c.MinTTL))
			}
		}
	})
}

// TestCloudEndpoints has endpoints to which no key may be sent.
func TestCloudEndpoints(t *testing.T) {
	for name, open := range clients {
		for _, endpoint := range []string{
			"ftp://127.0.0.1", "https://", "https://user@host", "https://host?query", "https://host#fragment", "http://[", "https://ho st",
		} {
			_, err := open(provider.Credentials{AccessKeyID: "id", AccessKeySecret: "the secret", Endpoint: endpoint})
			if provider.KindOf(err) != provider.Invalid || err == nil {
				t.Errorf("%s, endpoint %q: %v", name, endpoint, err)
			}
		}
		_, err := open(provider.Credentials{AccessKeyID: "id", AccessKeySecret: "the secret", Endpoint: "http://192.0.2.1"})
		if plain := name == "powerdns"; (err == nil) != plain {
			t.Errorf("%s over http: %v", name, err)
		}
	}
}
