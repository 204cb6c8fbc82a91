package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"meshddns/provider"
)

// What docs/providers.md says that each provider can is what its client can.
func TestProvidersPage(t *testing.T) {
	page, err := os.ReadFile("docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 7 && strings.HasPrefix(line, "| `") {
			rows[strings.Trim(cells[0], "| `")] = cells
		}
	}
	for _, p := range providers {
		cells := rows[p.name]
		if cells == nil {
			t.Errorf("%s has no row", p.name)
			continue
		}
		endpoint := map[string]string{"rfc2136": "192.0.2.1:53", "powerdns": "http://192.0.2.1:8081", "webhook": "https://192.0.2.1/"}[p.name]
		client, err := (clients{}).open(newAccount(p.name, endpoint, "key", "c2VjcmV0"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		names := "one"
		if many, ok := client.(provider.BatchChanger); ok && many.BatchSize() > 64 {
			names = "many"
		}
		if cells[2] != names {
			t.Errorf("%s: %q names in a call on the page, %q in the program", p.name, cells[2], names)
		}
		if p.name != "webhook" && !strings.Contains(cells[5], strconv.Itoa(int(p.minTTL))) {
			t.Errorf("%s: least TTL %q on the page, %d in the program", p.name, cells[5], p.minTTL)
		}
		if _, ok := client.(provider.ZoneReader); !ok && p.name != "builtin" {
			t.Errorf("%s lists no zone", p.name)
		}
	}
}
