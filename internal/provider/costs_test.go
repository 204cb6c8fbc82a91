package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
)

// These tests count the requests that bring many names of a zone to their wanted values, because vendors
// limit requests.

const (
	crowd = 10_000 // names
	slice = 400    // of them that change together
)

func crowdName(i int) string { return fmt.Sprintf("_mesh.p%05d.%s", i, cloudtest.Zone) }

func crowdValue(i int) provider.Value {
	return provider.Value{fmt.Sprintf("v=mesh1 n=%d o=0123456789ab tcp://192.0.2.1:51820", i)}
}

// addCrowd makes all names in slices.
func addCrowd(t *testing.T, client *provider.Client) {
	t.Helper()
	begin := time.Now()
	for at := 0; at < crowd; at += slice {
		var changes []provider.Change
		for i := at; i < at+slice; i++ {
			changes = append(changes, provider.Change{Zone: cloudtest.Zone, Name: crowdName(i), Type: provider.TXT, Add: []provider.Value{crowdValue(i)}, TTL: 60})
		}
		for i, err := range client.ChangeAll(t.Context(), changes) {
			if err != nil {
				t.Fatal(changes[i].Name, err)
			}
		}
	}
	t.Logf("%d new names in %v", crowd, time.Since(begin).Round(time.Millisecond))
}

// wantCrowd reads all names with a client that has not seen them yet.
func wantCrowd(t *testing.T, client *provider.Client) {
	t.Helper()
	begin := time.Now()
	var sets map[string]provider.RRset
	for i := range crowd {
		zone, err := client.Zone(t.Context(), crowdName(i))
		if err == nil && sets == nil {
			sets, err = client.ReadAll(t.Context(), zone, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if set := sets[crowdName(i)]; len(set.Values) != 1 || !set.Values[0].Equal(crowdValue(i)) {
			t.Fatalf("%s: %+v", crowdName(i), set)
		}
	}
	t.Logf("%d unchanged names in %v", crowd, time.Since(begin).Round(time.Millisecond))
}

func wantRequests(t *testing.T, what string, got, most int) {
	t.Helper()
	t.Logf("%s: %d requests", what, got)
	if got > most {
		t.Errorf("%s: %d requests, want at most %d", what, got, most)
	}
}

func TestCostAliDNS(t *testing.T) {
	t.Parallel()
	c := cloudtest.AliDNS(t)
	c.SetPageLimit(0)
	for i := range crowd {
		c.Add(t, crowdName(i), crowdValue(i))
	}
	wantCrowd(t, newClient(t, c))
	wantRequests(t, "unchanged names", c.Requests(), 25)
}

func TestCostRoute53(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	c := cloudtest.Route53(t)
	c.SetPageLimit(0)
	addCrowd(t, newClient(t, c))
	// For each slice: two or three pages before the batch, one batch and one look at it, and two or
	// three pages after it.
	wantRequests(t, "new names", c.Requests(), crowd/slice*9+2)
	before := c.Requests()
	wantCrowd(t, newClient(t, c))
	wantRequests(t, "unchanged names", c.Requests()-before, crowd/300+4)
}

func TestCostPowerDNS(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	s := servertest.PowerDNS(t)
	var requests atomic.Int64
	target, err := url.Parse(s.API)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	open := func() *provider.Client {
		client, err := provider.NewPowerDNS(provider.Credentials{AccessKeyID: "localhost", AccessKeySecret: secrets.Secret(s.APIKey), Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	addCrowd(t, open())
	wantRequests(t, "new names", int(requests.Load()), crowd/slice*3+2)
	requests.Store(0)
	wantCrowd(t, open())
	wantRequests(t, "unchanged names", int(requests.Load()), 3)
}
