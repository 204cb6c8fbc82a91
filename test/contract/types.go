package contract

import (
	"slices"
	"strings"
	"testing"

	"meshddns/internal/provider"
	"meshddns/test/support"
)

// Typed is another user of a zone who writes records of any type. Data is in presentation form.
type Typed interface {
	Records(t testing.TB, name, kind string) []string
	AddRecord(t testing.TB, name, kind, text string)
	RemoveRecord(t testing.TB, name, kind, text string)
}

// typed has the samples of each type: five values in canonical form, and other spellings of the fifth.
var typed = map[provider.Type]struct{ values, spellings []string }{
	provider.A: {values: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"}},
	provider.AAAA: {
		[]string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8::a:5"},
		[]string{"2001:0DB8:0:0:0:0:000A:5"},
	},
	provider.SRV: {
		[]string{"0 0 1 a.example.net", "10 5 2 a.example.net", "0 0 3 b.example.net", "0 0 4 c.example.org", "1 2 65535 big.example.net"},
		[]string{"1 2 65535 big.example.net.", "1 2 65535 BIG.Example.NET."},
	},
}

// others are the types other than TXT, in a fixed order.
var others = []provider.Type{provider.A, provider.AAAA, provider.SRV}

// TestTypes holds a client that has all types of records to its promises about them. The outside user
// must be Typed.
func TestTypes(t *testing.T, b Backend) {
	for _, kind := range others {
		if !slices.Contains(b.Client.Types(), kind) {
			t.Fatalf("the client has no records of type %s", kind)
		}
	}
	for _, promise := range []struct {
		name string
		test func(t *testing.T, b Backend, kind provider.Type)
	}{
		{"values are added, replaced and removed", testTypeLife},
		{"a value of others stays", testTypeForeign},
		{"a change leaves the other types at the name alone", testTypeAlone},
		{"every spelling is read in canonical form", testTypeSpellings},
		{"what happens twice is no error", testTypeTwice},
		{"a change of what is no longer so is refused", testTypeChanged},
		{"beside an alias no value is added", testTypeAlias},
		{"a value that is not canonical is refused", testTypeInvalid},
	} {
		for _, kind := range others {
			t.Run(promise.name+"/"+string(kind), func(t *testing.T) { promise.test(t, b, kind) })
		}
	}
	t.Run("several types at a name change together", func(t *testing.T) { testTypesTogether(t, b) })
}

// samples returns the values of a type, the first being number from.
func samples(kind provider.Type, from, to int) []provider.Value {
	return values(typed[kind].values[from:to]...)
}

func (b Backend) outside(t *testing.T) Typed {
	t.Helper()
	user, ok := b.Outside.(Typed)
	if !ok {
		t.Fatal("the outside user writes TXT records only")
	}
	return user
}

func (b Backend) readType(t *testing.T, name string, kind provider.Type) provider.RRset {
	t.Helper()
	set, err := b.Client.Read(t.Context(), b.Zone, name, kind)
	support.Must(t, err)
	return set
}

// changeType reads a name and changes it.
func (b Backend) changeType(t *testing.T, name string, kind provider.Type, add, remove []provider.Value) {
	t.Helper()
	ctx, cancel := provider.WriteContext(t.Context())
	defer cancel()
	err := b.Client.Change(ctx, provider.Change{
		Zone: b.Zone, Name: name, Type: kind, Seen: b.readType(t, name, kind), Add: add, Remove: remove, TTL: ttl,
	})
	support.Must(t, err)
}

// wantType checks the values of a type at a name, as the client and as the public sees them.
func (b Backend) wantType(t *testing.T, name string, kind provider.Type, want ...provider.Value) {
	t.Helper()
	var public []provider.Value
	for _, text := range b.outside(t).Records(t, name, string(kind)) {
		value, err := kind.Parse(text)
		support.Must(t, err)
		public = append(public, value)
	}
	wantSame(t, "the client reads", b.readType(t, name, kind).Values, want)
	wantSame(t, "the public sees", public, want)
}

// clear removes all values of a type at a name, as the outside user.
func (b Backend) clear(t *testing.T, name string, kind provider.Type) {
	t.Helper()
	for _, text := range b.outside(t).Records(t, name, string(kind)) {
		b.outside(t).RemoveRecord(t, name, string(kind), text)
	}
}

// typeName is a name that a promise uses with a type.
func (b Backend) typeName(label string, kind provider.Type) string {
	return b.name(label + "-" + strings.ToLower(string(kind)) + ".types")
}

func testTypeLife(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("life", kind)
	b.wantType(t, name, kind)
	b.changeType(t, name, kind, samples(kind, 0, 3), nil)
	b.wantType(t, name, kind, samples(kind, 0, 3)...)
	if set := b.readType(t, name, kind); set.TTL < ttl {
		t.Errorf("TTL %d, want %d at least", set.TTL, ttl)
	}
	b.changeType(t, strings.ToUpper(name), kind, samples(kind, 3, 4), samples(kind, 0, 1))
	b.wantType(t, name, kind, samples(kind, 1, 4)...)
	b.changeType(t, name, kind, nil, samples(kind, 1, 2))
	b.wantType(t, name, kind, samples(kind, 2, 4)...)
	b.changeType(t, name, kind, samples(kind, 4, 5), samples(kind, 2, 4))
	b.wantType(t, name, kind, samples(kind, 4, 5)...)
	b.changeType(t, name, kind, nil, samples(kind, 4, 5))
	b.wantType(t, name, kind)
}

func testTypeForeign(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("foreign", kind)
	b.outside(t).AddRecord(t, name, string(kind), typed[kind].values[0])
	b.changeType(t, name, kind, samples(kind, 1, 2), nil)
	b.wantType(t, name, kind, samples(kind, 0, 2)...)
	b.changeType(t, name, kind, samples(kind, 2, 3), samples(kind, 1, 2))
	b.wantType(t, name, kind, samples(kind, 0, 1)[0], samples(kind, 2, 3)[0])
	b.changeType(t, name, kind, nil, samples(kind, 2, 3))
	b.wantType(t, name, kind, samples(kind, 0, 1)...)
	b.clear(t, name, kind)
}

func testTypeAlone(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("alone", kind)
	b.Outside.Add(t, name, provider.Value{"a text"})
	for _, other := range others {
		b.outside(t).AddRecord(t, name, string(other), typed[other].values[0])
	}
	b.changeType(t, name, kind, samples(kind, 1, 2), samples(kind, 0, 1))
	b.changeType(t, name, kind, nil, samples(kind, 1, 2))
	b.wantType(t, name, kind)
	b.change(t, name, values("another text"), values("a text"))
	b.want(t, name, values("another text")...)
	for _, other := range others {
		if other != kind {
			b.wantType(t, name, other, samples(other, 0, 1)...)
			b.clear(t, name, other)
		}
	}
	b.Outside.Remove(t, name, provider.Value{"another text"})
}

// testTypeSpellings adds a value beside one that another program has spelled, and removes that one.
func testTypeSpellings(t *testing.T, b Backend, kind provider.Type) {
	name, value := b.typeName("spelled", kind), samples(kind, 4, 5)
	for _, spelling := range typed[kind].spellings {
		b.outside(t).AddRecord(t, name, string(kind), spelling)
		b.wantType(t, name, kind, value...)
		b.changeType(t, name, kind, samples(kind, 0, 1), nil)
		b.wantType(t, name, kind, append(samples(kind, 0, 1), value...)...)
		b.changeType(t, name, kind, value, nil)
		b.wantType(t, name, kind, append(samples(kind, 0, 1), value...)...)
		if !b.Cased || kind != provider.SRV || strings.ToLower(spelling) == spelling {
			b.changeType(t, name, kind, nil, append(samples(kind, 0, 1), value...))
			b.wantType(t, name, kind)
		}
		b.clear(t, name, kind)
	}
}

func testTypeTwice(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("twice", kind)
	for range 2 {
		b.changeType(t, name, kind, samples(kind, 0, 1), samples(kind, 1, 2))
		b.wantType(t, name, kind, samples(kind, 0, 1)...)
	}
	b.changeType(t, name, kind, nil, nil)
	b.wantType(t, name, kind, samples(kind, 0, 1)...)
	for range 2 {
		b.changeType(t, name, kind, nil, samples(kind, 0, 1))
		b.wantType(t, name, kind)
	}
}

func testTypeChanged(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("moved", kind)
	b.outside(t).AddRecord(t, name, string(kind), typed[kind].values[0])
	seen := b.readType(t, name, kind)
	b.outside(t).AddRecord(t, name, string(kind), typed[kind].values[1])
	for _, add := range [][]provider.Value{nil, samples(kind, 2, 3)} {
		err := b.Client.Change(t.Context(), provider.Change{
			Zone: b.Zone, Name: name, Type: kind, Seen: seen, Add: add, Remove: samples(kind, 0, 1), TTL: ttl,
		})
		wantKind(t, err, provider.Changed)
		if !provider.Unmade(err) {
			t.Errorf("%v does not say that nothing was done", err)
		}
	}
	b.wantType(t, name, kind, samples(kind, 0, 2)...)
	b.clear(t, name, kind)
}

// testTypeAlias accepts Changed from a server that compares and does not say with what: there Read tells.
func testTypeAlias(t *testing.T, b Backend, kind provider.Type) {
	if b.Alias == "" {
		t.Skip("there is no alias")
	}
	err := b.Client.Change(t.Context(), provider.Change{Zone: b.Zone, Name: b.Alias, Type: kind, Add: samples(kind, 0, 1), TTL: ttl})
	if provider.KindOf(err) == provider.Changed {
		_, err = b.Client.Read(t.Context(), b.Zone, b.Alias, kind)
	}
	wantKind(t, err, provider.Conflict)
	if got := b.outside(t).Records(t, b.Alias, string(kind)); slices.Contains(got, typed[kind].values[0]) {
		t.Errorf("beside the alias stands %q", got)
	}
}

func testTypeInvalid(t *testing.T, b Backend, kind provider.Type) {
	name := b.typeName("invalid", kind)
	for _, text := range append([]string{"", "no data"}, typed[kind].spellings...) {
		err := b.Client.Change(t.Context(), provider.Change{Zone: b.Zone, Name: name, Type: kind, Add: values(text), TTL: ttl})
		wantKind(t, err, provider.Invalid)
		if !provider.Unmade(err) {
			t.Errorf("%v does not say that nothing was done", err)
		}
	}
	b.wantType(t, name, kind)
}

// testTypesTogether changes all types at two names in one call, with a stale change among them.
func testTypesTogether(t *testing.T, b Backend) {
	names, all := []string{b.name("one.together.types"), b.name("two.together.types")}, append([]provider.Type{provider.TXT}, others...)
	value := func(kind provider.Type, n int) []provider.Value {
		if kind == provider.TXT {
			return values("text " + string(rune('a'+n)))
		}
		return samples(kind, n, n+1)
	}
	for n := range 4 {
		var changes []provider.Change
		for _, name := range names {
			for _, kind := range all {
				change := provider.Change{Name: name, Type: kind, Add: value(kind, n)}
				if n > 0 {
					change.Seen.Values = value(kind, n-1)
					change.Remove = change.Seen.Values
				}
				if n == 3 {
					change.Add = nil
				}
				changes = append(changes, change)
			}
		}
		stale := provider.Change{Name: b.name("stale.together.types"), Type: provider.AAAA, Seen: provider.RRset{Values: value(provider.AAAA, 0)}, Add: value(provider.AAAA, 1)}
		for i, err := range b.changeAll(t, append(changes, stale)) {
			if i == len(changes) {
				wantKind(t, err, provider.Changed)
			} else if err != nil {
				t.Errorf("%s %s: %v", changes[i].Name, changes[i].Type, err)
			}
		}
		for _, change := range changes {
			b.wantAny(t, change.Name, change.Type, change.Add)
		}
	}
}

// wantAny is wantType for any type.
func (b Backend) wantAny(t *testing.T, name string, kind provider.Type, want []provider.Value) {
	t.Helper()
	if kind == provider.TXT {
		b.want(t, name, want...)
		return
	}
	b.wantType(t, name, kind, want...)
}
