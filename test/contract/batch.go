package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/provider"
	"meshddns/test/support"
)

// many is how many names change together: more than any page of a stand-in
// has, and more than one batch of some providers.
const many = 230

// all reads the whole zone.
func (b Backend) all(t *testing.T) map[string]provider.RRset {
	t.Helper()
	return b.some(t, nil)
}

// some reads what is wanted of the zone.
func (b Backend) some(t *testing.T, wanted provider.Wanted) map[string]provider.RRset {
	t.Helper()
	reader, ok := b.Client.(provider.ZoneReader)
	if !ok {
		t.Skip("this client does not read whole zones")
	}
	sets, err := reader.ReadAll(t.Context(), b.Zone, wanted)
	if errors.Is(err, provider.ErrNotListed) {
		t.Skip(err)
	}
	support.Must(t, err)
	return sets
}

// changeAll makes changes together.
func (b Backend) changeAll(t *testing.T, changes []provider.Change) []error {
	t.Helper()
	changer, ok := b.Client.(provider.BatchChanger)
	if !ok {
		t.Skip("this client does not change names together")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	for i := range changes {
		changes[i].Zone, changes[i].TTL = b.Zone, ttl
	}
	errs := changer.ChangeAll(ctx, changes)
	if len(errs) != len(changes) {
		t.Fatalf("%d errors for %d changes", len(errs), len(changes))
	}
	return errs
}

func (b Backend) mustChangeAll(t *testing.T, changes []provider.Change) {
	t.Helper()
	for i, err := range b.changeAll(t, changes) {
		if err != nil {
			t.Fatalf("%s: %v", changes[i].Name, err)
		}
	}
}

func values(texts ...string) (values []provider.Value) {
	for _, text := range texts {
		values = append(values, provider.Value{text})
	}
	return values
}

func testReadAll(t *testing.T, b Backend) {
	b.all(t)
	names := []string{b.Zone, b.name("_whole.a"), b.name("b.whole")}
	before := b.read(t, b.Zone).Values
	for _, name := range names {
		for _, v := range b.Foreign {
			b.Outside.Add(t, name, v)
		}
	}
	sets := b.all(t)
	for _, name := range []string{b.name("_whole.a"), b.name("b.whole")} {
		wantSame(t, name+" in the zone", sets[name].Values, b.Foreign)
	}
	wantSame(t, "the zone's own name", sets[b.Zone].Values, append(slices.Clone(before), b.Foreign...))
	if sets[b.name("_whole.a")].TTL == 0 {
		t.Error("no TTL")
	}
	for name, set := range sets {
		wildcard := strings.HasPrefix(name, "*.") // which a server answers from, and is not asked for
		if len(set.Values)+len(set.Off) > 0 && !wildcard {
			wantSame(t, name, set.Values, b.read(t, name).Values)
		}
	}
	testWanted(t, b, b.name("_whole.a"))
	if _, there := sets[b.name("nothing")]; there {
		t.Error("a name without values is in the zone")
	}
	if b.Alias != "" && (sets[b.Alias].Alias == "" || len(sets[b.Alias].Values) > 0) {
		t.Errorf("%s is an alias, and is %+v in the zone", b.Alias, sets[b.Alias])
	}
	for _, name := range names {
		for _, v := range b.Foreign {
			b.Outside.Remove(t, name, v)
		}
	}
}

// testWanted asks for all at a name, and for a value wherever it is.
func testWanted(t *testing.T, b Backend, name string) {
	t.Helper()
	one := b.some(t, func(at string, _ provider.Value) bool { return at == name })
	wantSame(t, name+" alone", one[name].Values, b.Foreign)
	value := b.Foreign[0]
	found := b.some(t, func(_ string, v provider.Value) bool { return v.Equal(value) })
	for at, set := range found {
		if len(set.Values) > 0 && !slices.ContainsFunc(set.Values, value.Equal) {
			t.Errorf("%s has %q, of which nobody wants any", at, set.Values)
		}
		if _, there := one[at]; there && at != name && len(set.Values) > 0 {
			t.Errorf("%s is listed with %s alone", at, name)
		}
	}
	for _, at := range []string{name, b.Zone} {
		if !slices.ContainsFunc(found[at].Values, value.Equal) {
			t.Errorf("%s has %q, want also %q", at, found[at].Values, value)
		}
	}
}

func testChangeAll(t *testing.T, b Backend) {
	var adds, replaces, removes []provider.Change
	for i := range many {
		name := b.name(fmt.Sprintf("_Mesh.many%d", i))
		one, two := values(fmt.Sprintf("one %d", i)), values(fmt.Sprintf("two %d", i), "both")
		adds = append(adds, provider.Change{Name: name, Type: provider.TXT, Add: one})
		replaces = append(replaces, provider.Change{Name: name, Type: provider.TXT, Seen: provider.RRset{Values: one}, Add: two, Remove: one})
		removes = append(removes, provider.Change{Name: name, Type: provider.TXT, Seen: provider.RRset{Values: two}, Remove: two})
	}
	for _, step := range [][]provider.Change{adds, replaces, removes} {
		b.mustChangeAll(t, step)
		sets := b.all(t)
		for i, change := range step {
			wantSame(t, change.Name, sets[b.name(fmt.Sprintf("_mesh.many%d", i))].Values, change.Add)
		}
		for _, i := range []int{0, many - 1} {
			b.want(t, step[i].Name, step[i].Add...)
		}
	}
	b.mustChangeAll(t, nil)
}

// testChangeAllForeign changes names together where others have values.
func testChangeAllForeign(t *testing.T, b Backend) {
	names := []string{b.name("foreign1.together"), b.name("foreign2.together")}
	var add, remove []provider.Change
	for _, name := range names {
		for _, v := range b.Foreign {
			b.Outside.Add(t, name, v)
		}
		add = append(add, provider.Change{Name: name, Type: provider.TXT, Seen: b.read(t, name), Add: values("ours")})
	}
	b.mustChangeAll(t, add)
	for _, name := range names {
		b.want(t, name, append(slices.Clone(b.Foreign), provider.Value{"ours"})...)
		remove = append(remove, provider.Change{Name: name, Type: provider.TXT, Seen: b.read(t, name), Remove: values("ours")})
	}
	b.mustChangeAll(t, remove)
	for _, name := range names {
		b.want(t, name, b.Foreign...)
		for _, v := range b.Foreign {
			b.Outside.Remove(t, name, v)
		}
	}
}

// testChangeAllBad has changes that cannot be made among others that can.
func testChangeAllBad(t *testing.T, b Backend) {
	b.Outside.Add(t, b.name("moved.together"), provider.Value{"new"})
	b.Outside.Add(t, b.name("same.together"), provider.Value{"same"})
	changes := []provider.Change{
		{Name: b.name("first.together"), Type: provider.TXT, Add: values("ours")},
		{Name: b.name("moved.together"), Type: provider.TXT, Seen: provider.RRset{Values: values("old")}, Add: values("ours"), Remove: values("old")},
		{Name: b.name("same.together"), Type: provider.TXT, Seen: provider.RRset{Values: values("same")}, Add: values("same")},
		{Name: b.name("long.together"), Type: provider.TXT, Add: values(string(make([]byte, 5000)))},
		{Name: b.name("last.together"), Type: provider.TXT, Add: values("ours")},
		{Name: b.name("Last.together"), Type: provider.TXT, Add: values("a second change")},
	}
	kinds := []provider.Kind{"", provider.Changed, "", provider.Invalid, "", provider.Changed}
	if b.Alias != "" {
		changes = append(changes, provider.Change{Name: b.Alias, Type: provider.TXT, Add: values("ours")})
		kinds = append(kinds, provider.Conflict)
	}
	for i, err := range b.changeAll(t, changes) {
		refused := provider.KindOf(err)
		if kinds[i] == provider.Conflict && refused == provider.Changed {
			continue // where the server compares it does not say with what; a look tells
		}
		if refused != kinds[i] {
			t.Errorf("%s: %v, want %q", changes[i].Name, err, kinds[i])
		}
	}
	b.want(t, b.name("moved.together"), provider.Value{"new"})
	b.want(t, b.name("long.together"))
	for _, name := range []string{b.name("first.together"), b.name("last.together")} {
		b.want(t, name, provider.Value{"ours"})
		b.change(t, name, nil, values("ours"))
	}
	b.Outside.Remove(t, b.name("moved.together"), provider.Value{"new"})
	b.Outside.Remove(t, b.name("same.together"), provider.Value{"same"})
}

// testCopies has a value in several records, where the provider has such.
func testCopies(t *testing.T, b Backend) {
	if !b.Copies {
		t.Skip("a value stands once there")
	}
	names := []string{b.name("copy1"), b.name("copy2"), b.name("copy3")}
	for _, name := range names {
		for _, text := range []string{"thrice", "once", "thrice", "thrice"} {
			b.Outside.Add(t, name, provider.Value{text})
		}
		set := b.read(t, name)
		wantSame(t, "values", set.Values, values("thrice", "once"))
		wantSame(t, "copies", set.Copies, values("thrice"))
	}
	wantSame(t, "copies in the zone", b.all(t)[names[0]].Copies, values("thrice"))
	seen := b.read(t, names[0])
	one := provider.Change{Zone: b.Zone, Name: names[0], Type: provider.TXT, Seen: seen, Copies: values("thrice", "once"), TTL: ttl}
	if err := b.Client.Change(t.Context(), one); err != nil {
		t.Error(err)
	}
	b.want(t, names[0], values("thrice", "once")...)
	b.mustChangeAll(t, []provider.Change{
		{Name: names[1], Type: provider.TXT, Seen: seen, Copies: values("thrice"), Add: values("new"), Remove: values("once")},
		{Name: names[2], Type: provider.TXT, Seen: seen, Remove: values("thrice")},
	})
	b.want(t, names[1], values("thrice", "new")...)
	b.want(t, names[2], values("once")...)
	for _, name := range names {
		for _, text := range []string{"thrice", "once", "new"} {
			b.Outside.Remove(t, name, provider.Value{text})
		}
	}
}

// testOverlapAll has two clients' worth of batches at the same names, in
// other orders: none waits for another for ever.
func testOverlapAll(t *testing.T, b Backend) {
	b.mustChangeAll(t, nil)
	var changes []provider.Change
	for i := range 20 {
		changes = append(changes, provider.Change{Name: b.name(fmt.Sprintf("overlap%d", i)), Type: provider.TXT, Add: values("ours")})
	}
	backward := slices.Clone(changes)
	slices.Reverse(backward)
	done := make(chan []error)
	for _, batch := range [][]provider.Change{changes, backward} {
		go func() { done <- b.changeAll(t, batch) }()
	}
	for range 2 {
		for _, err := range <-done {
			if err != nil && provider.KindOf(err) != provider.Changed {
				t.Error(err)
			}
		}
	}
	for i := range changes {
		b.want(t, changes[i].Name, provider.Value{"ours"})
		changes[i].Seen, changes[i].Add, changes[i].Remove = provider.RRset{Values: values("ours")}, nil, values("ours")
	}
	b.mustChangeAll(t, changes)
}
