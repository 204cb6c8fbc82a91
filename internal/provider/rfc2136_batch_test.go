package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
)

var _ interface {
	DNS
	ZoneReader
	BatchChanger
} = (*RFC2136)(nil)

// newNames are changes that each add a value at a name of its own.
func newNames(count int, below string) []Change {
	changes := make([]Change, count)
	for i := range changes {
		changes[i] = Change{
			Type: TXT, Zone: servertest.Zone, Name: fmt.Sprintf("_mesh.site-%05d.%s", i, below),
			Add: []Value{{fmt.Sprintf("v=mesh1 o=%012x tcp://192.0.2.1:11010", i)}}, TTL: testTTL,
		}
	}
	return changes
}

// failures are the errors of ChangeAll by the names of their changes.
func failures(changes []Change, errs []error) map[string]error {
	failed := map[string]error{}
	for i, err := range errs {
		if err != nil && err != ErrRepeated { // which means that it stands
			failed[changes[i].Name] = err
		}
	}
	return failed
}

// TestRFC2136Many writes and reads 10 000 names, and counts the messages.
func TestRFC2136Many(t *testing.T) {
	t.Parallel()
	const names, messages = 10_000, 30
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		address, count := counted(t, s.Addr)
		c := newClient(t, address, servertest.Key, servertest.Secret)
		changes := newNames(names, servertest.Zone)
		begin := time.Now()
		for name, err := range failures(changes, c.ChangeAll(t.Context(), changes)) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%d new names: %d messages, %v", names, count.Load(), time.Since(begin))
		if got := count.Load(); got < names/maxBatch || got > messages {
			t.Errorf("%d messages, want %d at most", got, messages)
		}
		count.Store(0)
		begin = time.Now()
		all, err := c.ReadAll(t.Context(), servertest.Zone, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d names read: %d exchanges, %v", len(all), count.Load(), time.Since(begin))
		if got := count.Load(); got != 1 {
			t.Errorf("%d exchanges, want 1", got)
		}
		for _, ch := range changes {
			if set := all[ch.Name]; set.TTL != testTTL || !slices.Equal(sorted(set.Values), sorted(ch.Add)) {
				t.Fatalf("%s has %v, want %q", ch.Name, set, ch.Add)
			}
		}
	})
}

// mixed are changes of all sorts, and the kinds of their failures by name.
func mixed(t *testing.T, s servertest.Server) ([]Change, map[string]Kind) {
	s.Update(t, `add one.example.com 60 TXT "one"`, `add two.example.com 60 TXT "one"`, `add two.example.com 60 TXT "two"`,
		`add gone.example.com 60 TXT "gone"`, `add same.example.com 60 TXT "same"`)
	seen := func(texts ...string) (set RRset) {
		for _, text := range texts {
			set.Values = append(set.Values, Value{text})
		}
		return set
	}
	ours := []Value{{"ours"}}
	changes := append([]Change{
		{Name: "one.example.com", Type: TXT, Seen: seen("one"), Add: ours, Remove: []Value{{"one"}}},
		{Name: "TWO.example.com", Type: TXT, Seen: seen("two", "one"), Add: ours},
		{Name: "gone.example.com", Type: TXT, Seen: seen("gone"), Remove: []Value{{"gone"}}},
		{Name: "same.example.com", Type: TXT, Seen: seen("same")},
		{Type: TXT, Name: "nothing.example.com"},
		{Name: servertest.Zone, Type: TXT, Add: ours},
		{Name: "keep.example.com", Type: TXT, Add: ours},
		{Name: "none.example.com", Type: TXT, Seen: seen("one"), Add: ours},
		{Name: "alias.example.com", Type: TXT, Add: ours},
		{Name: "a.example.org", Type: TXT, Add: ours},
		{Name: "a..example.com", Type: TXT, Add: ours},
		{Name: "long.example.com", Type: TXT, Add: []Value{{strings.Repeat("x", 256)}}},
	}, newNames(100, servertest.Zone)...)
	for i := range changes {
		changes[i].Zone, changes[i].TTL = servertest.Zone, testTTL
	}
	changes = append(changes, Change{Zone: "example.org", Name: "b.example.org", Type: TXT, Add: ours})
	return changes, map[string]Kind{
		"keep.example.com": Changed, "none.example.com": Changed, "alias.example.com": Changed, "a.example.org": Invalid,
		"a..example.com": Invalid, "long.example.com": Invalid, "b.example.org": Invalid,
	}
}

func TestRFC2136ChangeAll(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		changes, want := mixed(t, s)
		errs := c.ChangeAll(t.Context(), changes)
		failed := failures(changes, errs)
		for name, kind := range want {
			wantKind(t, failed[name], kind, "")
		}
		for name, err := range failed {
			if want[name] == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := failed["keep.example.com"]; err == nil || !strings.Contains(err.Error(), "update keep.example.com in zone") {
			t.Errorf("the error is not the name's own: %v", err)
		}
		wantValues(t, c, s, "one.example.com", Value{"ours"})
		wantValues(t, c, s, "two.example.com", Value{"one"}, Value{"two"}, Value{"ours"})
		wantValues(t, c, s, "gone.example.com")
		wantValues(t, c, s, "same.example.com", Value{"same"})
		wantValues(t, c, s, servertest.Zone, Value{"ours"})
		wantValues(t, c, s, "keep.example.com", Value{"existing value"})
		wantValues(t, c, s, "_mesh.site-00099.example.com", Value{"v=mesh1 o=000000000063 tcp://192.0.2.1:11010"})
		if errs := c.ChangeAll(t.Context(), nil); len(errs) > 0 {
			t.Errorf("errors of no change: %v", errs)
		}
	})
}

// TestRFC2136ChangeAllPart has a key that may change some names only: they
// are changed, and the server is not asked about each of thousands of others.
func TestRFC2136ChangeAllPart(t *testing.T) {
	t.Parallel()
	for _, s := range []servertest.Server{servertest.BIND(t), servertest.Knot(t)} {
		t.Run(s.Name, func(t *testing.T) {
			kind := map[string]Kind{"BIND": Permission, "Knot": BadCredentials}[s.Name]
			address, count := counted(t, s.Addr)
			c := newClient(t, address, servertest.PartKey, servertest.PartSecret)
			changes := newNames(400, servertest.Part)
			var others []string
			for i := 7; i < len(changes); i += 50 {
				changes[i].Name = fmt.Sprintf("other-%d.example.com", i)
				others = append(others, changes[i].Name)
			}
			failed := failures(changes, c.ChangeAll(t.Context(), changes))
			for _, name := range others {
				wantKind(t, failed[name], kind, "update "+name)
			}
			if len(failed) != len(others) {
				t.Errorf("%d names failed, want %d", len(failed), len(others))
			}
			count.Store(0)
			changes = newNames(2000, servertest.Zone)
			failed = failures(changes, c.ChangeAll(t.Context(), changes))
			for name, err := range failed {
				if KindOf(err) != kind {
					t.Errorf("%s: %v", name, err)
				}
			}
			if got := count.Load(); got != maxRefused || len(failed) != len(changes) {
				t.Errorf("%d messages, %d failed; want %d and %d", got, len(failed), maxRefused, len(changes))
			}
			if got := s.TXT(t, "_mesh.site-00399.part.example.com"); len(got) != 1 {
				t.Errorf("the last name that may be changed has %q", got)
			}
		})
	}
}

// TestRFC2136ChangeAllUnknown spoils the answers: no message is sent twice.
func TestRFC2136ChangeAllUnknown(t *testing.T) {
	t.Parallel()
	s := servertest.BIND(t)
	for n, test := range []struct {
		name     string
		spoil    func([]byte) []byte
		kind     Kind
		messages int64
		made     int
	}{
		{"lost", func([]byte) []byte { return nil }, Network, 1, maxBatch},
		{"unsigned", unsigned, BadAnswer, 3, 1000},
		{"a bit of the MAC", flip(lastOfMAC, 1), BadAnswer, 3, 1000},
		{"unsigned REFUSED", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 5)(answer)) }, Permission, 3, 1000},
		{"unsigned NXRRSET", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 8)(answer)) }, Changed, 3, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			address, count := relayCounted(t, s.Addr, test.spoil)
			c := newClient(t, address, servertest.Key, servertest.Secret)
			below := fmt.Sprintf("u%d.example.com", n)
			changes := newNames(1000, below)
			for i := range changes {
				changes[i].Add = []Value{{"ours"}} // so that the count bounds a message, not its size
			}
			failed := failures(changes, c.ChangeAll(t.Context(), changes))
			for name, err := range failed {
				if KindOf(err) != test.kind {
					t.Errorf("%s: %v, want %s", name, err, test.kind)
				}
			}
			if got := count.Load(); got != test.messages || len(failed) != len(changes) {
				t.Errorf("%d messages, %d failed; want %d and %d", got, len(failed), test.messages, len(changes))
			}
			all, err := rightClient(t, s).ReadAll(t.Context(), servertest.Zone, nil)
			made := 0
			for name := range all {
				if strings.HasSuffix(name, below) {
					made++
				}
			}
			if err != nil || made != test.made {
				t.Errorf("%d are made, %v; want %d", made, err, test.made)
			}
		})
	}
}

// TestRFC2136ChangeAllSizes has values so large that few fit into a message.
func TestRFC2136ChangeAllSizes(t *testing.T) {
	t.Parallel()
	s := servertest.Knot(t)
	address, count := counted(t, s.Addr)
	c := newClient(t, address, servertest.Key, servertest.Secret)
	changes := newNames(300, servertest.Zone)
	for i := range changes {
		changes[i].Add = []Value{slices.Repeat(Value{strings.Repeat("x", maxString)}, 8)}
	}
	huge := changes[150].Name
	changes[150].Add = []Value{slices.Repeat(Value{strings.Repeat("x", maxString)}, 257)}
	failed := failures(changes, c.ChangeAll(t.Context(), changes))
	wantKind(t, failed[huge], Invalid, "do not fit", huge)
	if len(failed) != 1 {
		t.Errorf("%d names failed, want 1", len(failed))
	}
	if got := count.Load(); got < 10 || got > 12 {
		t.Errorf("%d messages for 640 KiB, want 11", got)
	}
}

func TestRFC2136Cut(t *testing.T) {
	var all batch
	for _, ch := range newNames(1000, strings.Repeat("a-long-label-of-30-octets-1234.", 6)+servertest.Zone) {
		message, err := updateMessage(ch)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, update{at: len(all), change: ch, message: message})
	}
	next := 0
	for _, b := range all.cut() {
		var message dns.Message
		for _, u := range b {
			if u.at != next {
				t.Fatalf("change %d follows %d", u.at, next-1)
			}
			next++
			message.Answers = append(message.Answers, u.message.Answers...)
			message.Authority = append(message.Authority, u.message.Authority...)
		}
		if size := len(message.Pack()); size > maxUpdate || len(b) > maxBatch {
			t.Errorf("%d changes in %d octets", len(b), size)
		}
	}
	if next != len(all) {
		t.Errorf("%d changes of %d", next, len(all))
	}
}
