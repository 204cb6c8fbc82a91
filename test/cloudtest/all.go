package cloudtest

import (
	"slices"
	"strings"
	"testing"
)

// Names are the stand-ins' names in the list of providers.
func Names() (names []string) {
	for _, one := range all {
		names = append(names, one.name)
	}
	return names
}

// Start runs the stand-in with a name of Names.
func Start(t testing.TB, name string) *Cloud {
	t.Helper()
	at := slices.IndexFunc(all, func(one cloud) bool { return one.name == name })
	if at < 0 {
		t.Fatalf("there is no stand-in %q", name)
	}
	return all[at].start(t)
}

// All gives every TXT record of a zone, as name and value with a space between,
// sorted; what stands twice is there twice.
func (c *Cloud) All(zone string) (records []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.zone == zone && r.kind == "TXT" {
			records = append(records, r.name+" "+strings.Join(c.v.read(r.content), ""))
		}
	}
	slices.Sort(records)
	return records
}
