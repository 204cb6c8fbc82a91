package reconcile

import (
	"fmt"
	"testing"
	"time"

	"meshddns/internal/mesh"
)

// TestStillWantedAtTheLimits: whether a few records of a name with the most leases and formats are still wanted is found out without
// working out the others; after a change of the endpoints it is worked out anew.
func TestStillWantedAtTheLimits(t *testing.T) {
	formats := []string{mesh.Mesh1, mesh.Address}
	for i := len(formats); i < mesh.MaxFormats; i++ {
		formats = append(formats, fmt.Sprintf("%s_s%d._tcp", mesh.SRV, i))
	}
	u := Usage{ID: "u", Network: "42", Account: &Account{ID: 1, Provider: "builtin"}, Domain: "example.com", Formats: formats}
	for i := range 256 * 9 {
		u.Leased = append(u.Leased, mesh.Endpoint{Text: fmt.Sprintf("tcp://192.0.%d.%d:1", i/256, i%256), Slot: fmt.Sprint("s", i/9)})
	}
	state := State{Owner: testOwner, Names: []Name{{Name: testName, Usages: []Usage{u}}}}
	b := &batch{now: time.Now}
	var items []*item
	all := testing.AllocsPerRun(1, func() {
		items = nil
		for _, r := range Desired(state, Addresses{})[0].Records {
			if len(items) < 20 {
				items = append(items, newItem(r, false))
			}
		}
	})
	for _, i := range items {
		state.Names[0].Owners = append(state.Names[0].Owners, i.record.Sibling.Owner)
	}
	if got := testing.AllocsPerRun(1, func() {
		if still := b.stillWanted(state, items); len(still) != len(items) {
			t.Errorf("%d of %d are still wanted", len(still), len(items))
		}
	}); got > all/50 {
		t.Errorf("%.0f allocations for %d records, %.0f for all", got, len(items), all)
	}
	u.Leased[0].Text = "tcp://192.0.255.255:1"
	state.Names[0].Usages = []Usage{u}
	if still := b.stillWanted(state, items); len(still) == len(items) {
		t.Error("all are still wanted after a change")
	}
}
