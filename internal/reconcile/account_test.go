package reconcile

import "testing"

// Each account has lanes of its own: another secret may fare better.
func TestLanesOfAccounts(t *testing.T) {
	one := Account{ID: 1, Provider: "cloudflare", AccessKeyID: "token", Secret: "one"}
	two := one
	two.ID, two.Secret = 2, "two"
	lanes := map[Lane]bool{}
	for _, r := range []Record{{Domain: "a", Account: one}, {Domain: "b", Account: one}, {Domain: "a", Account: two}} {
		lanes[r.lane()] = true
		if l := r.lane(); !l.OfZone() || l <= LaneLook {
			t.Errorf("lane %q is none of a zone", l)
		}
	}
	if len(lanes) != 3 {
		t.Errorf("lanes %v, want 3", lanes)
	}
}
