package provider_test

import (
	"fmt"
	"slices"
	"testing"

	"meshddns/test/cloudtest"
)

// unpaged are the providers that list no zones, or all of them in one answer.
var unpaged = append([]string{"powerdns", "webhook"}, byName...)

// TestPagesOfZones has accounts with 20 pages of zones, and with 21: then each zone is asked for by its name.
func TestPagesOfZones(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		if slices.Contains(unpaged, c.Provider) {
			return
		}
		const page, zones = 2, 25 // zones of a stand-in
		c.SetPageLimit(page)
		for n := range 20*page - zones {
			c.AddZone(fmt.Sprintf("more%02d.example.net", n))
		}
		ask := func(list int, all bool) {
			t.Helper()
			client := newClient(t, c)
			c.Asked()
			if known, err := client.ZonesKnown(t.Context()); known != all || err != nil || len(c.Asked()) != list {
				t.Errorf("all zones are known: %t, %v, want %t", known, err, all)
			}
			if zone, err := client.Zone(t.Context(), "_mesh.a."+cloudtest.ChildZone); zone != cloudtest.ChildZone || err != nil {
				t.Errorf("zone %q, %v", zone, err)
			}
		}
		ask(20, true)
		c.AddZone("beyond.example.net")
		ask(20, false)
	})
}
