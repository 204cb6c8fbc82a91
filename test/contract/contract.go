// Package contract states what the client of a DNS provider promises, and
// holds any client to it. Only tests import it.
package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/test/support"
)

// Outside is another user of the same zone, who also sees what the public sees.
type Outside interface {
	Values(t testing.TB, name string) [][]string
	Add(t testing.TB, name string, value []string)
	Remove(t testing.TB, name string, value []string)
}

// Watched tells of each change at once. A provider that does not is looked at all the time.
type Watched interface {
	Watch(name string, look func(values [][]string)) (end func())
}

// Backend is a client and the provider that it talks to.
type Backend struct {
	Client  provider.DNS
	Outside Outside
	Zone    string
	Foreign []provider.Value // values of others that this provider can hold
	Alias   string           // a name that is a CNAME, if there is one
	Copies  bool             // a value can stand in several records
	Cased   bool             // the server removes a target of an SRV record only in its own letter case

	// Unread are ways in which the provider makes the next write, gives an answer to it that
	// may not be readable, and refuses the writes after it, until end is called.
	Unread []func() (end func())
}

const (
	ttl      = 60
	testTime = 5 * time.Minute
)

// Test holds a client to every promise. The names that it uses must be free.
func Test(t *testing.T, b Backend) {
	for _, promise := range []struct {
		name string
		test func(t *testing.T, b Backend)
	}{
		{"the longest zone that contains a name is found, and no look-alike", testZone},
		{"a name without values has none, and that is no error", testNothing},
		{"a value is added, replaced and removed", testLife},
		{"names are compared without letter case", testLetterCase},
		{"the zone's own name can hold values", testApex},
		{"values of others stay as they are, octet for octet", testForeign},
		{"a list of any length is read whole", testMany},
		{"what happens twice is no error and leaves one value", testTwice},
		{"a change of what is no longer so is refused, and nothing is done", testChanged},
		{"an empty change changes nothing", testEmpty},
		{"a new value is there before the old one goes", testNeverNone},
		{"calls may overlap, at one name and at many", testOverlap},
		{"a call ends with its context", testContext},
		{"a zone is read whole, and is what its names are", testReadAll},
		{"hundreds of names change together", testChangeAll},
		{"values of others stay as they are where names change together", testChangeAllForeign},
		{"a change that cannot be made keeps no other from being made", testChangeAllBad},
		{"of a value in several records one stays, or none", testCopies},
		{"changes of the same names together may overlap", testOverlapAll},
		{"a failure is Unmade only when nothing was made", testUnmade},
		{"a failure of changes together is Unmade only when nothing was made", testUnmadeAll},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.test(t, b) })
	}
}

func (b Backend) name(label string) string { return label + "." + b.Zone }

func (b Backend) read(t *testing.T, name string) provider.RRset {
	t.Helper()
	set, err := b.Client.Read(t.Context(), b.Zone, name, provider.TXT)
	support.Must(t, err)
	return set
}

// change reads a name and changes it.
func (b Backend) change(t *testing.T, name string, add, remove []provider.Value) {
	t.Helper()
	support.Must(t, b.tryChange(t.Context(), name, add, remove))
}

// tryChange does it again for as long as others are faster.
func (b Backend) tryChange(ctx context.Context, name string, add, remove []provider.Value) error {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	for {
		seen, err := b.Client.Read(ctx, b.Zone, name, provider.TXT)
		if err != nil {
			return err
		}
		err = b.Client.Change(ctx, provider.Change{Zone: b.Zone, Name: name, Type: provider.TXT, Seen: seen, Add: add, Remove: remove, TTL: ttl})
		if err == nil || provider.KindOf(err) != provider.Changed {
			return err
		}
	}
}

// want checks what stands at a name, as the client and as the public sees it.
func (b Backend) want(t *testing.T, name string, want ...provider.Value) {
	t.Helper()
	var public []provider.Value
	for _, v := range b.Outside.Values(t, name) {
		public = append(public, v)
	}
	wantSame(t, "the client reads", b.read(t, name).Values, want)
	wantSame(t, "the public sees", public, want)
}

func wantSame(t *testing.T, who string, got, want []provider.Value) {
	t.Helper()
	texts := func(values []provider.Value) (texts []string) {
		for _, v := range values {
			texts = append(texts, fmt.Sprintf("%q", []string(v)))
		}
		slices.Sort(texts)
		return texts
	}
	if g, w := texts(got), texts(want); !slices.Equal(g, w) {
		t.Errorf("%s\n%s\nwant\n%s", who, strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
}

func wantKind(t *testing.T, err error, kind provider.Kind) {
	t.Helper()
	if err == nil || provider.KindOf(err) != kind {
		t.Errorf("%v, want an error of kind %s", err, kind)
	}
}

func testZone(t *testing.T, b Backend) {
	for _, name := range []string{b.Zone, b.name("a"), b.name("_mesh.a.b.c"), strings.ToUpper(b.name("a")), b.Zone + "."} {
		if zone, err := b.Client.Zone(t.Context(), name); err != nil || zone != b.Zone {
			t.Errorf("zone of %s: %q, %v", name, zone, err)
		}
	}
	for _, name := range []string{"not" + b.Zone + ".invalid", "x" + b.Zone, b.Zone + ".invalid", "invalid"} {
		_, err := b.Client.Zone(t.Context(), name)
		wantKind(t, err, provider.ZoneNotFound)
	}
}

func testNothing(t *testing.T, b Backend) { b.want(t, b.name("nothing")) }

func testLife(t *testing.T, b Backend) {
	name := b.name("_mesh.life")
	b.change(t, name, []provider.Value{{"one two"}}, nil)
	b.want(t, name, provider.Value{"one two"})
	if set := b.read(t, name); set.TTL < ttl {
		t.Errorf("TTL %d, want %d at least", set.TTL, ttl)
	}
	b.change(t, name, []provider.Value{{"v=mesh1 n=1 o=a tcp://192.0.2.1:1 a+b~c*d%/=&'"}}, []provider.Value{{"one two"}})
	b.want(t, name, provider.Value{"v=mesh1 n=1 o=a tcp://192.0.2.1:1 a+b~c*d%/=&'"})
	b.change(t, name, []provider.Value{{"three"}, {"four"}}, nil)
	b.change(t, name, nil, []provider.Value{{"v=mesh1 n=1 o=a tcp://192.0.2.1:1 a+b~c*d%/=&'"}, {"three"}})
	b.want(t, name, provider.Value{"four"})
	b.change(t, name, nil, []provider.Value{{"four"}})
	b.want(t, name)
}

func testLetterCase(t *testing.T, b Backend) {
	b.change(t, b.name("_Mesh.Case"), []provider.Value{{"Value"}}, nil)
	b.change(t, strings.ToUpper(b.name("_mesh.case")), []provider.Value{{"new"}}, []provider.Value{{"Value"}})
	b.want(t, b.name("_mesh.case"), provider.Value{"new"})
	b.change(t, b.name("_mesh.case"), nil, []provider.Value{{"new"}})
}

func testApex(t *testing.T, b Backend) {
	before := b.read(t, b.Zone).Values
	b.Outside.Add(t, b.Zone, provider.Value{"v=spf1 -all"})
	b.change(t, b.Zone, []provider.Value{{"ours"}}, nil)
	b.want(t, b.Zone, append(slices.Clone(before), provider.Value{"v=spf1 -all"}, provider.Value{"ours"})...)
	b.change(t, b.Zone, nil, []provider.Value{{"ours"}})
	b.want(t, b.Zone, append(slices.Clone(before), provider.Value{"v=spf1 -all"})...)
	b.Outside.Remove(t, b.Zone, provider.Value{"v=spf1 -all"})
}

func testForeign(t *testing.T, b Backend) {
	name := b.name("foreign")
	for _, v := range b.Foreign {
		b.Outside.Add(t, name, v)
	}
	b.Outside.Add(t, b.name("neighbour"), provider.Value{"neighbour"})
	b.Outside.Add(t, b.name("below.foreign"), provider.Value{"below"})
	b.want(t, name, b.Foreign...)
	b.change(t, name, []provider.Value{{"ours 1"}}, nil)
	b.want(t, name, append(slices.Clone(b.Foreign), provider.Value{"ours 1"})...)
	b.change(t, name, []provider.Value{{"ours 2"}}, []provider.Value{{"ours 1"}})
	b.want(t, name, append(slices.Clone(b.Foreign), provider.Value{"ours 2"})...)
	b.change(t, name, nil, []provider.Value{{"ours 2"}})
	b.want(t, name, b.Foreign...)
	b.want(t, b.name("neighbour"), provider.Value{"neighbour"})
	b.want(t, b.name("below.foreign"), provider.Value{"below"})
	for _, v := range b.Foreign {
		b.Outside.Remove(t, name, v)
	}
}

func testMany(t *testing.T, b Backend) {
	name := b.name("many")
	var values []provider.Value
	for i := range 25 {
		values = append(values, provider.Value{fmt.Sprintf("value %d", i)})
		b.Outside.Add(t, name, values[i])
	}
	b.want(t, name, values...)
	b.change(t, name, []provider.Value{{"ours"}}, []provider.Value{values[24]})
	b.want(t, name, append(slices.Clone(values[:24]), provider.Value{"ours"})...)
	for _, v := range append(values[:24], provider.Value{"ours"}) {
		b.Outside.Remove(t, name, v)
	}
}

func testTwice(t *testing.T, b Backend) {
	name := b.name("twice")
	for range 2 {
		b.change(t, name, []provider.Value{{"one"}}, []provider.Value{{"never there"}})
		b.want(t, name, provider.Value{"one"})
	}
	for range 2 {
		b.change(t, name, nil, []provider.Value{{"one"}})
		b.want(t, name)
	}
}

func testChanged(t *testing.T, b Backend) {
	name := b.name("moved")
	b.Outside.Add(t, name, provider.Value{"one"})
	seen := b.read(t, name)
	b.Outside.Add(t, name, provider.Value{"two"})
	for _, add := range [][]provider.Value{nil, {{"ours"}}} {
		err := b.Client.Change(t.Context(), provider.Change{Zone: b.Zone, Name: name, Type: provider.TXT, Seen: seen, Add: add, Remove: []provider.Value{{"one"}}, TTL: ttl})
		wantKind(t, err, provider.Changed)
		if !provider.Unmade(err) {
			t.Errorf("%v does not say that nothing was done", err)
		}
	}
	b.want(t, name, provider.Value{"one"}, provider.Value{"two"})
	b.Outside.Remove(t, name, provider.Value{"one"})
	b.Outside.Remove(t, name, provider.Value{"two"})
}

func testEmpty(t *testing.T, b Backend) {
	b.change(t, b.name("empty"), nil, nil)
	b.want(t, b.name("empty"))
	b.Outside.Add(t, b.name("empty"), provider.Value{"one"})
	b.change(t, b.name("empty"), nil, nil)
	b.want(t, b.name("empty"), provider.Value{"one"})
	b.Outside.Remove(t, b.name("empty"), provider.Value{"one"})
}

// testNeverNone looks at the name while its value is replaced.
func testNeverNone(t *testing.T, b Backend) {
	const changes = 20
	name := b.name("never-none")
	b.change(t, name, []provider.Value{{"value 0"}}, nil)
	looks := 0
	look := func(values [][]string) {
		if looks++; len(values) == 0 {
			t.Errorf("look %d found nothing", looks)
		}
	}
	replace := func() {
		for n := range changes {
			old, next := provider.Value{fmt.Sprintf("value %d", n)}, provider.Value{fmt.Sprintf("value %d", n+1)}
			if err := b.tryChange(t.Context(), name, []provider.Value{next}, []provider.Value{old}); err != nil {
				t.Error(err)
				return
			}
		}
	}
	if cloud, ok := b.Outside.(Watched); ok {
		end := cloud.Watch(name, look)
		replace()
		end()
	} else {
		done := make(chan struct{})
		go func() { defer close(done); replace() }()
		for ended := false; !ended; {
			look(b.Outside.Values(t, name))
			select {
			case <-done:
				ended = true
			default:
			}
		}
	}
	if looks == 0 {
		t.Error("nothing is seen of the changes")
	}
	b.change(t, name, nil, []provider.Value{{fmt.Sprintf("value %d", changes)}})
}

func testOverlap(t *testing.T, b Backend) {
	const writers, changes = 4, 5
	b.Outside.Add(t, b.name("busy"), provider.Value{"foreign"})
	var group sync.WaitGroup
	for w := range writers {
		for _, name := range []string{b.name("busy"), b.name(fmt.Sprintf("quiet%d", w))} {
			group.Go(func() {
				var mine []provider.Value
				for n := range changes {
					next := []provider.Value{{fmt.Sprintf("writer %d change %d", w, n)}}
					if err := b.tryChange(t.Context(), name, next, mine); err != nil {
						t.Error(err)
						return
					}
					mine = next
				}
			})
		}
	}
	group.Wait()
	all := []provider.Value{{"foreign"}}
	for w := range writers {
		last := provider.Value{fmt.Sprintf("writer %d change %d", w, changes-1)}
		all = append(all, last)
		b.want(t, b.name(fmt.Sprintf("quiet%d", w)), last)
		b.change(t, b.name(fmt.Sprintf("quiet%d", w)), nil, []provider.Value{last})
	}
	b.want(t, b.name("busy"), all...)
	b.change(t, b.name("busy"), nil, all)
}

func testContext(t *testing.T, b Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, zoneErr := b.Client.Zone(ctx, "nowhere."+b.Zone+".invalid")
	_, readErr := b.Client.Read(ctx, b.Zone, b.name("ended"), provider.TXT)
	changeErr := b.Client.Change(ctx, provider.Change{Zone: b.Zone, Name: b.name("ended"), Type: provider.TXT, Add: []provider.Value{{"ours"}}, TTL: ttl})
	for _, err := range []error{zoneErr, readErr, changeErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	}
	b.want(t, b.name("ended"))
}
