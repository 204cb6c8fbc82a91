package rights

import (
	"context"
	"strings"
	"testing"
)

// The roles of the token file, and what is none.
func TestNamed(t *testing.T) {
	for role, want := range map[string]Caller{
		"admin": {Token: `token "a-1"`, Role: "admin"}, "read": {Token: `token "a-1"`, Role: "read"},
		"service:x":         {Token: `token "a-1"`, Role: "service:x", Service: "x"},
		"service:service:x": {Token: `token "a-1"`, Role: "service:service:x", Service: "service:x"},
		"service:":          {}, "service": {}, "": {}, "ADMIN": {}, "admins": {}, "read:x": {},
	} {
		if got, err := Named(role, "a-1"); got != want || (err == nil) != (want.Token != "") {
			t.Errorf("%q: %+v, %v", role, got, err)
		}
	}
	for name, good := range map[string]bool{"-": true, strings.Repeat("z", 32): true, strings.Repeat("z", 33): false, "": false, "A": false, "a_b": false, "ä": false, `a"`: false} {
		if _, err := Named("read", name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The rule of each kind of route for each role. What has no caller has all rights.
func TestRules(t *testing.T) {
	for role, want := range map[string]string{"": "admins readers tenants all", "admin": "admins readers tenants all", "read": "readers all", "service:x": "tenants all"} {
		ctx := t.Context()
		if role != "" {
			c, err := Named(role, "a")
			if err != nil {
				t.Fatal(err)
			}
			ctx = With(ctx, c)
		}
		var may []string
		for _, rule := range []struct {
			name string
			may  func(context.Context) bool
		}{{"admins", Admins}, {"readers", Readers}, {"tenants", Tenants}, {"all", All}} {
			if rule.may(ctx) {
				may = append(may, rule.name)
			}
		}
		if got := strings.Join(may, " "); got != want {
			t.Errorf("%q may use %q, want %q", role, got, want)
		}
	}
}

// The service of a request: its own one for the caller with one service.
func TestNarrow(t *testing.T) {
	own := With(t.Context(), Caller{Token: "token", Role: "service:own", Service: "own"})
	for _, test := range []struct {
		ctx           context.Context
		service, want string
		permitted     bool
	}{
		{own, "", "own", true}, {own, "own", "own", true}, {own, "other", "own", false}, {own, "OWN", "own", false},
		{t.Context(), "", "", true}, {t.Context(), "other", "other", true},
		{With(t.Context(), Caller{Token: "token", Role: "read"}), "other", "other", true},
	} {
		if got, permitted := Narrow(test.ctx, test.service); got != test.want || permitted != test.permitted {
			t.Errorf("%q: %q %v, want %q %v", test.service, got, permitted, test.want, test.permitted)
		}
	}
}
