package reconcile

import (
	"slices"
	"strings"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

func texts(values ...string) (set provider.RRset) {
	if set.TTL = 3600; len(values) == 0 {
		set.TTL = 0
	}
	for _, v := range values {
		set.Values = append(set.Values, provider.Value{v})
	}
	return set
}

func joined(values []provider.Value) string {
	var all []string
	for _, v := range values {
		all = append(all, v.Text())
	}
	return strings.Join(all, ", ")
}

const (
	ours1    = "v=mesh1 n=1 o=" + testOwner + " a://b:1"
	ours2    = "v=mesh1 n=1 o=" + testOwner + " a://b:2"
	stranger = "v=mesh1 n=1 o=ffffffffffff a://b:1"
	lost     = "v=mesh1 n=1 o=aaaaaaaaaaaa a://b:1"
	foreign  = "v=spf1 -all"
)

func TestPlan(t *testing.T) {
	want := func(value string) goal { return goal{owner: testOwner, adopted: []string{"aaaaaaaaaaaa"}, want: value} }
	upsert := func(value, standing string) goal {
		g := want(value)
		g.mode, g.standing = UpsertOnly, standing
		return g
	}
	look := want(ours1)
	look.mode = LookOnly
	copied := texts(ours1, foreign)
	copied.Copies = []provider.Value{{ours1}, {foreign}}
	for _, test := range []struct {
		what                        string
		goal                        goal
		seen                        provider.RRset
		action, add, remove, copies string
		ttl                         uint32
	}{
		{"nothing is there", want(ours1), texts(), ActionCreate, ours1, "", "", recordTTL},
		{"it is there", want(ours1), texts(ours1), ActionUnchanged, "", "", "", 3600},
		{"another of ours is there", want(ours1), texts(ours2), ActionUpdate, ours1, ours2, "", recordTTL},
		{"both are", want(ours1), texts(ours2, ours1), ActionUpdate, "", ours2, "", 3600},
		{"beside a foreign one", want(ours1), texts(foreign), ActionCreate, ours1, "", "", 3600},
		{"in place of an adopted one", want(ours1), texts(lost), ActionUpdate, ours1, lost, "", recordTTL},
		{"copies", want(ours1), copied, ActionUpdate, "", "", ours1, 3600},
		{"a cut of its own", want(ours1), provider.RRset{TTL: 3600, Values: []provider.Value{{ours1[:9], ours1[9:]}}}, ActionUnchanged, "", "", "", 3600},
		{"to withdraw", want(""), texts(ours1, foreign, ours2), ActionDelete, "", ours1 + ", " + ours2, "", 3600},
		{"to withdraw nothing", want(""), texts(foreign), ActionUnchanged, "", "", "", 3600},
		{"to withdraw beside a stranger's", want(""), texts(stranger, ours1), ActionDelete, "", ours1, "", 3600},
		{"what is adopted is withdrawn only where ours is wanted", want(""), texts(lost), ActionUnchanged, "", "", "", 3600},
		{"upsert-only, the first", upsert(ours1, ""), texts(), ActionCreate, ours1, "", "", recordTTL},
		{"upsert-only, the one that it replaces", upsert(ours1, ours2), texts(ours2), ActionUpdate, ours1, ours2, "", recordTTL},
		{"upsert-only, a stale copy", upsert(ours1, ours1), texts(ours1, ours2), ActionUnchanged, "", "", "", 3600},
		{"upsert-only, copies", upsert(ours1, ours1), copied, ActionUnchanged, "", "", "", 3600},
		{"only to look, and it is not there", look, texts(), ActionUnchanged, "", "", "", recordTTL},
		{"only to look, and another is there too", look, texts(ours1, ours2), ActionUpdate, "", ours2, "", 3600},
	} {
		change, err := test.goal.plan(test.seen)
		action := test.goal.action(change)
		if err != nil || action != test.action || joined(change.Add) != test.add || joined(change.Remove) != test.remove || joined(change.Copies) != test.copies {
			t.Errorf("%s: %s, %+v, %v", test.what, action, change, err)
		}
		if change.TTL != test.ttl && len(change.Add) > 0 {
			t.Errorf("%s: TTL %d, want %d", test.what, change.TTL, test.ttl)
		}
	}
}

func TestPlanConflicts(t *testing.T) {
	for what, test := range map[string]struct {
		want string
		seen provider.RRset
		says string // "" for no conflict
	}{
		"a stranger's":                    {ours1, texts(stranger), stranger},
		"a stranger's beside ours":        {ours1, texts(ours1, stranger), stranger},
		"an alias":                        {ours1, provider.RRset{Alias: "elsewhere.example.net"}, "elsewhere.example.net"},
		"an alias, to withdraw":           {"", provider.RRset{Alias: "elsewhere.example.net"}, ""},
		"ours, switched off":              {ours1, provider.RRset{Off: []provider.Value{{ours2}}}, ours2},
		"ours, switched off, to withdraw": {"", provider.RRset{Off: []provider.Value{{ours2}}}, ours2},
		"a stranger's, switched off":      {ours1, provider.RRset{Off: []provider.Value{{stranger}}}, stranger},
		"a stranger's off, to withdraw":   {"", provider.RRset{Off: []provider.Value{{stranger}}}, ""},
		"a foreign one, switched off":     {ours1, provider.RRset{Off: []provider.Value{{foreign}}}, ""},
		"another version":                 {ours1, texts("v=mesh2 o=ffffffffffff"), ""},
	} {
		_, err := goal{owner: testOwner, want: test.want}.plan(test.seen)
		if (err != nil) != (test.says != "") || err != nil && (provider.KindOf(err) != provider.Conflict || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzPlan has any values at a name: what is not ours is in no change, and after
// the change the wanted value is the only one of ours.
func FuzzPlan(f *testing.F) {
	f.Add(ours1, ours2, foreign, true, false)
	f.Add(stranger, lost, "", false, true)
	f.Add("v=mesh1", "v=mesh1 o=", "V=MESH1 o="+testOwner, true, true)
	f.Fuzz(func(t *testing.T, a, b, c string, wanted, upsertOnly bool) {
		g := goal{owner: testOwner}
		if upsertOnly {
			g.mode = UpsertOnly
		}
		if wanted {
			g.want = ours1
		}
		seen := texts(a, b, c)
		change, err := g.plan(seen)
		if err != nil {
			return
		}
		isOurs := func(v provider.Value) bool { owner, mesh := mesh.Owner(v.Text()); return mesh && owner == testOwner }
		for _, v := range slices.Concat(change.Remove, change.Add, change.Copies) {
			if !isOurs(v) {
				t.Errorf("%q is not ours, and in %+v", v, change)
			}
		}
		left := slices.DeleteFunc(slices.Concat(seen.Values, change.Add), func(v provider.Value) bool {
			return slices.ContainsFunc(change.Remove, v.Equal) || !isOurs(v)
		})
		if wanted != slices.ContainsFunc(left, func(v provider.Value) bool { return v.Text() == ours1 }) && !upsertOnly {
			t.Errorf("wanted %t, and %q is left", wanted, left)
		}
		if !upsertOnly && slices.ContainsFunc(left, func(v provider.Value) bool { return v.Text() != ours1 }) {
			t.Errorf("%q is left", left)
		}
		if nothing := len(change.Add)+len(change.Remove)+len(change.Copies) == 0; nothing != (g.action(change) == ActionUnchanged) {
			t.Errorf("%s: %+v", g.action(change), change)
		}
	})
}

func TestDisturbed(t *testing.T) {
	published := Place{State: Published, Standing: ours1}
	for what, test := range map[string]struct {
		place Place
		seen  provider.RRset
		want  bool
	}{
		"as it was":                 {published, texts(ours1), false},
		"gone":                      {published, texts(), false},
		"another of our mark":       {published, texts(ours2), true},
		"a stranger's":              {published, texts(stranger), false},
		"a new value is wanted":     {Place{State: Published, Standing: ours2}, texts(ours2), false},
		"not published as yet":      {Place{State: Failed, Standing: ours1}, texts(ours2), false},
		"a write may be on its way": {Place{State: Published, Standing: ours1, Doubt: Doubt{Value: ours2}}, texts(ours2), false},
		"of another network":        {published, texts("v=mesh1 n=2 o=" + testOwner), false},
	} {
		if got := (goal{owner: testOwner, want: ours1}).disturbed(test.seen, test.place); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
