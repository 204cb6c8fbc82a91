package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/internal/reconcile"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// cloudConfig is a configuration for a stand-in of a cloud.
func cloudConfig(c *cloudtest.Cloud, change func(map[string]any)) string {
	fields := map[string]any{
		"provider": c.Provider, "access_key_id": c.AccessKeyID, "access_key_secret": c.AccessKeySecret, "endpoint": c.URL,
		"domain": "mesh." + cloudtest.Zone, "txt_record_name": "_txt", "enabled": true, "max_retries": 0,
		"txt_endpoints": []string{"tcp://203.0.113.7:1"},
	}
	if change != nil {
		change(fields)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// noResolver is a public DNS that nobody can look into.
func noResolver(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no network")
}

// publicDNS makes one server all of the public DNS.
func publicDNS(t testing.TB, address string) reconcile.Public {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	support.Must(t, err)
	return reconcile.Public{Port: port, Root: servertest.Zone, Patience: time.Second, Resolver: servertest.Resolver(address)}
}

// The connection test says of every cloud which setting is wrong.
func (suite Suite) testCloudConnectionTest(t *testing.T) {
	const fine = "params ok; network ok; auth ok; zone ok; record ok"
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := suite.Start(t, Options{})
		a.Public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		set := func(name string, value any) func(map[string]any) {
			return func(fields map[string]any) { fields[name] = value }
		}
		for _, test := range []struct {
			what   string
			change func(map[string]any)
			want   string
		}{
			{"right", nil, fine},
			{"wrong secret", set("access_key_secret", "another-secret"), "params ok; network ok; auth credentials; zone skipped; record skipped"},
			{"no such server", set("endpoint", "http://127.0.0.1:1"), "params ok; network network; auth skipped; zone skipped; record skipped"},
			{"no endpoint", set("endpoint", "ftp://127.0.0.1"), "params invalid; network skipped; auth skipped; zone skipped; record skipped"},
			{"other zone", set("domain", "example.net"), "params ok; network ok; auth ok; zone zone_not_found; record skipped"},
			{"no domain name", set("domain", "exa mple.com"), "params invalid_name; network skipped; auth skipped; zone skipped; record skipped"},
			{"no letters", set("domain", "\U0001f600.example"), "params invalid_name; network skipped; auth skipped; zone skipped; record skipped"},
			{"another script", set("domain", "中文.example"), fine},
			{"with a write", set("write_test", true), fine + "; write ok; read ok; authoritative no_resolver; cleanup ok"},
		} {
			if got := a.items(t, cloudConfig(c, test.change)); got != test.want {
				t.Errorf("%s: %s, want %s", test.what, got, test.want)
			}
		}
		c.Fail(cloudtest.Throttle)
		if got := a.items(t, cloudConfig(c, nil)); !strings.HasPrefix(got, "params ok; network throttled;") {
			t.Errorf("throttled: %s", got)
		}
		c.SetClock(time.Hour)
		skewed := a.items(t, cloudConfig(c, nil))
		if want := "params ok; network ok; auth clock_skew; zone skipped; record skipped"; skewed != fine && skewed != want || c.Signed && skewed != want {
			t.Errorf("wrong clock: %s", skewed)
		}
	})
}

// The connection test warns when the world asks somebody else about the zone,
// and sees a written value with the world's eyes.
func (suite Suite) testPublicDNS(t *testing.T) {
	s := servertest.PowerDNS(t)
	cloud := cloudtest.AliDNS(t)
	a := suite.Start(t, Options{})
	*a.Public = publicDNS(t, s.Addr)
	at := func(c *cloudtest.Cloud, domain string) string {
		return cloudConfig(c, func(fields map[string]any) { fields["domain"], fields["write_test"] = domain, true })
	}
	server := &cloudtest.Cloud{Provider: "powerdns", AccessKeyID: "localhost", AccessKeySecret: s.APIKey, URL: s.API}
	for _, test := range []struct{ what, body, want string }{
		{"the provider's own servers", at(server, servertest.Zone), "zone ok; record ok; write ok; read ok; authoritative ok; cleanup ok"},
		{"other servers", at(cloud, cloudtest.Zone), "zone ok, not_delegated; record ok; write ok; read ok; authoritative value_missing; cleanup ok"},
		{"no servers", at(cloud, cloudtest.ChildZone), "zone ok, not_delegated; record ok; write ok; read ok; authoritative not_delegated; cleanup ok"},
	} {
		if got := a.items(t, test.body); got != "params ok; network ok; auth ok; "+test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
	still, err := http.NewRequestWithContext(t.Context(), "PUT", s.API+"/api/v1/servers/localhost/zones/example.com.", strings.NewReader(`{"soa_edit_api":"OFF"}`))
	support.Must(t, err)
	still.Header.Set("X-API-Key", s.APIKey)
	response, err := http.DefaultClient.Do(still)
	support.Must(t, err)
	response.Body.Close()
	if got := a.items(t, at(server, servertest.Zone)); !strings.HasPrefix(got, "params ok; network ok; auth ok; zone ok, serial_stands; record ok; write ok") {
		t.Errorf("no change moves the serial: %s", got)
	}
	a.Must(t, "PUT", "/api/v1/ddns/config", at(server, servertest.Zone))
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	if _, page := a.Do(t, "GET", "/zones", http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}}, ""); !strings.Contains(page, "pdnsutil set-meta example.com SOA-EDIT-API DEFAULT") {
		t.Errorf("no change moves the serial: %s", page)
	}
}

// Without -dns-listen the built-in provider says so, and publishes nothing.
func (suite Suite) testBuiltinWithoutServer(t *testing.T) {
	a := suite.Start(t, Options{NoServer: true})
	config := `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","enabled":true}`
	a.Must(t, "PUT", "/api/v1/ddns/config", config)
	if answer := a.Must(t, "POST", "/api/v1/ddns/test", config); !strings.Contains(answer, `"code":"not_listening"`) {
		t.Error(answer)
	}
	if status, code, answer := a.Call(t, "POST", "/api/v1/ddns/sync", ""); status != 500 || code != "sync_failed" || !strings.Contains(answer, "-dns-listen") {
		t.Error(status, code, answer)
	}
}
