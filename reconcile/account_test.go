package reconcile

import (
	"testing"

	"meshddns/provider"
)

// Each account has lanes of its own: another secret may fare better.
func TestLanesOfAccounts(t *testing.T) {
	one := Account{ID: 1, Provider: "cloudflare", AccessKeyID: "token", Secret: "one"}
	two := one
	two.ID, two.Secret = 2, "two"
	lanes := map[string]bool{}
	for _, r := range []Record{{Domain: "a", Account: one}, {Domain: "b", Account: one}, {Domain: "a", Account: two}} {
		lanes[r.lane()] = true
		if l := r.lane(); !isZone(l) || l <= LaneLook {
			t.Errorf("lane %q is none of a zone", l)
		}
	}
	if len(lanes) != 3 {
		t.Errorf("lanes %v, want 3", lanes)
	}
}

func TestInZoneOf(t *testing.T) {
	place := func(name, key string, secret provider.Secret, zone, id string) Place {
		return Place{Account: Account{Provider: name, Endpoint: "e", AccessKeyID: key, Secret: secret}, Zone: zone, ZoneID: id}
	}
	for _, test := range []struct {
		what string
		p, q Place
		want bool
	}{
		{"another secret", place("webhook", "k", "old", "z", ""), place("webhook", "k", "new", "z", ""), true},
		{"another secret, and one id is known", place("webhook", "k", "old", "z", "1"), place("webhook", "k", "new", "z", ""), true},
		{"another key", place("webhook", "k", "s", "z", ""), place("webhook", "l", "s", "z", ""), false},
		{"another key, and the same id", place("alidns", "k", "s", "z", "1"), place("alidns", "l", "s", "z", "1"), true},
		{"the ids contradict", place("cloudflare", "token", "one", "z", "1"), place("cloudflare", "token", "two", "z", "2"), false},
		{"another zone", place("webhook", "k", "old", "z", ""), place("webhook", "k", "new", "y", ""), false},
		{"no zone is found yet", place("webhook", "k", "old", "", ""), place("webhook", "k", "new", "", ""), false},
		{"another provider", place("webhook", "k", "s", "z", "1"), place("powerdns", "k", "s", "z", "1"), false},
	} {
		if test.p.inZoneOf(test.q) != test.want || test.q.inZoneOf(test.p) != test.want {
			t.Errorf("%s: want %t", test.what, test.want)
		}
	}
}
