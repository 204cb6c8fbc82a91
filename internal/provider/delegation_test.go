package provider_test

import (
	"testing"

	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
)

// TestDelegated: every client whose provider lists records of any type finds the NS records between a domain and the
// apex, and not those of the apex or below the domain.
func TestDelegated(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		if c.Provider == "webhook" {
			t.Skip("a bridge lists TXT records only")
		}
		c.Delegate("cut."+cloudtest.Zone, "ns.elsewhere.example")
		wantDelegated(t, newClient(t, c), "cut."+cloudtest.Zone)
	})
}

func wantDelegated(t *testing.T, client *provider.Client, cut string) {
	t.Helper()
	const zone = cloudtest.Zone
	for range 2 {
		for domain, want := range map[string]string{zone: "", "a." + zone: "", "b.a." + zone: "", "x" + cut: "", cut: cut, "B.A." + cut: cut} {
			if got, err := client.Delegated(t.Context(), zone, domain); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", domain, got, err, want)
			}
		}
	}
}

// TestPowerDNSDelegated asks a real server, whose zone has a delegation.
func TestPowerDNSDelegated(t *testing.T) {
	t.Parallel()
	s := servertest.PowerDNS(t)
	client, err := provider.NewPowerDNS(provider.Credentials{AccessKeyID: "localhost", AccessKeySecret: secrets.Secret(s.APIKey), Endpoint: s.API})
	if err != nil {
		t.Fatal(err)
	}
	wantDelegated(t, client, "child."+servertest.Zone)
}
