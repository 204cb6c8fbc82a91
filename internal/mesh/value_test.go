package mesh

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const owner = "5f0c2a91d3be"

func TestValue(t *testing.T) {
	for want, got := range map[string]string{
		"v=mesh1 n=42 o=5f0c2a91d3be tcp://a:1 udp://b:2": Value("42", owner, []string{"tcp://a:1", "udp://b:2"}),
		"v=mesh1 o=5f0c2a91d3be":                          Value("", owner, nil),
	} {
		if got != want {
			t.Errorf("Value = %q, want %q", got, want)
		}
		if o, mesh := Owner(got); o != owner || !mesh {
			t.Errorf("Owner(%q) = %q, %v", got, o, mesh)
		}
	}
}

func TestProbe(t *testing.T) {
	value := Probe(owner, "0123456789abcdef")
	if o, mesh := Owner(value); o != owner || !mesh || !IsProbe(value) || Network(value) != "" || len(value) > MaxValue {
		t.Errorf("%q: owner %q, %v", value, o, mesh)
	}
	for _, other := range []string{"", "v=spf1 probe=1", Value("42", owner, []string{"tcp://probe=1:1"}), Value("", owner, nil)} {
		if IsProbe(other) {
			t.Errorf("%q is a probe", other)
		}
	}
}

// TestNoURLBeforeEndpoints: a reader of URLs must skip all words before the endpoints.
func TestNoURLBeforeEndpoints(t *testing.T) {
	for word := range strings.FieldsSeq(Value("18446744073709551615", owner, nil) + " " + Probe(owner, "0123456789abcdef")) {
		if u, err := url.Parse(word); err == nil && u.Scheme != "" {
			t.Errorf("%q parses as a URL with scheme %q", word, u.Scheme)
		}
	}
}

func TestOwner(t *testing.T) {
	for value, want := range map[string]struct {
		owner string
		mesh  bool
	}{
		"":                     {"", false},
		"v=spf1 -all":          {"", false},
		"v=mesh10 o=x":         {"", false},
		"x v=mesh1 o=x":        {"", false},
		"v=mesh1":              {"", true},
		"v=mesh1 n=1 o=a tcp:": {"a", true},
	} {
		if owner, mesh := Owner(value); owner != want.owner || mesh != want.mesh {
			t.Errorf("Owner(%q) = %q, %v, want %v", value, owner, mesh, want)
		}
	}
}

func TestNetwork(t *testing.T) {
	for value, want := range map[string]string{
		"":                                   "",
		"v=mesh1 o=a":                        "",
		"v=mesh1 n=0 o=a tcp://b:1":          "0",
		"v=mesh1 n=18446744073709551615 o=a": "18446744073709551615",
		"v=mesh1 o=a tcp://b:1 n=1":          "1",
		Value("7", owner, []string{"tcp://n=8:1"}): "7",
	} {
		if got := Network(value); got != want {
			t.Errorf("Network(%q) = %q, want %q", value, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	endpoints := []string{"tcp://{ipv4}:1", "tcp://[{ipv6}]:2", "tcp://name:3"}
	got, missing := Expand(endpoints, Addresses{IPv4: netip.MustParseAddr("203.0.113.7")})
	if want := []string{"tcp://203.0.113.7:1", "tcp://name:3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Expand = %q, want %q", got, want)
	}
	if want := endpoints[1:2]; !reflect.DeepEqual(missing, want) {
		t.Errorf("missing = %q, want %q", missing, want)
	}
}

func TestCheck(t *testing.T) {
	for _, good := range []string{"tcp://203.0.113.7:11010", "wss://mesh.example.com:443", "tcp://[2001:db8::1]:1", "udp://{ipv4}:1", "quic://[{ipv6}]:65535", "wg://a_b:1"} {
		if err := Check("42", owner, []string{good}); err != nil {
			t.Errorf("Check(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "tcp", "tcp://", "tcp://host", "tcp://:1", "tcp://host:0", "tcp://host:65536", "tcp://host:x", "tcp://host:1/", "tcp://host:1/path",
		"tcp://host:1?q", "tcp://user@host:1", "tcp://user:secret@host:1", "tcp://ho st:1", "tcp://host:1 tcp://b:2", "tcp://host:1\n", "//host:1", "1tcp://host:1",
		"tcp://{ipv6}:1", "tcp://{ipv5}:1", "tcp://2001:db8::1:1", "tcp://[203.0.113.7]:1", "tcp://[fe80::1%25eth0]:1", "tcp://主机:1", `tcp://a"b:1`,
	} {
		if err := Check("42", owner, []string{bad}); !isA[*EndpointError](err) {
			t.Errorf("Check(%q) = %v, want an EndpointError", bad, err)
		}
	}
	room := MaxValue - len(Value("42", owner, []string{"tcp://:1"}))
	if err := Check("42", owner, []string{"tcp://" + strings.Repeat("a", room) + ":1"}); err != nil {
		t.Errorf("a value of %d octets: %v", MaxValue, err)
	}
	if err := Check("42", owner, []string{"tcp://" + strings.Repeat("a", room+1) + ":1"}); !isA[*TooLongError](err) {
		t.Errorf("a value of %d octets: %v, want a TooLongError", MaxValue+1, err)
	}
}

// TestRoomIsShared: no slot is left out of the value while it asks for no more than an equal share, or while another has two
// endpoints in its place. The value has the endpoints in their order.
func TestRoomIsShared(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	crowded := 0
	for range 2000 {
		var leased []Endpoint
		slots := 1 + random.IntN(12)
		for slot := range slots {
			for range 1 + random.IntN(3) {
				leased = append(leased, Endpoint{Text: "tcp://" + strings.Repeat("x", 1+random.IntN(1<<random.IntN(8))) + fmt.Sprint(":", 10+len(leased)), Slot: fmt.Sprint(slot)})
			}
		}
		value, leftOut := Fit("42", owner, []Endpoint{{Text: "tcp://own:1"}}, leased)
		if len(value) > MaxValue || len(strings.Fields(value))+len(leftOut) != 4+len(leased) {
			t.Fatalf("%q and %v of %v", value, leftOut, leased)
		}
		kept := slices.DeleteFunc(slices.Clone(leased), func(e Endpoint) bool { return slices.Contains(leftOut, e) })
		if !strings.HasPrefix(value, Value("42", owner, append([]string{"tcp://own:1"}, Texts(kept)...))) {
			t.Fatalf("%q is not in the order of %v", value, leased)
		}
		room := MaxValue - len(Value("42", owner, []string{"tcp://own:1"}))
		first, has := 0, map[string]bool{} // octets of the shortest endpoint of each slot that has one
		for _, e := range kept {
			if !has[e.Slot] {
				has[e.Slot] = true
				first += 1 + shortest(leased, e.Slot)
			}
		}
		for _, e := range leftOut {
			size := 1 + shortest(leased, e.Slot)
			if !has[e.Slot] && (size <= room/slots || first+size <= room) {
				t.Fatalf("slot %s has no endpoint in %q of %v", e.Slot, value, leased)
			}
			crowded++
		}
	}
	if crowded == 0 {
		t.Error("all have room")
	}
}

// TestTwiceCountsOnce: an endpoint that is there twice has room and stands once, in the endpoints of a usage, after its
// placeholders are replaced, and in those of several slots. A slot loses no turn by that.
func TestTwiceCountsOnce(t *testing.T) {
	long := "tcp://" + strings.Repeat("a", 120) + ":1"
	for _, check := range []func([]string) error{func(all []string) error { return Check("42", owner, all) }, CheckOthers} {
		if err := check(slices.Repeat([]string{long}, 100)); err != nil {
			t.Error(err)
		}
	}
	if err := Check("42", owner, slices.Repeat([]string{"tcp://{ipv4}:1", "tcp://{wan2.ipv4}:1"}, 6)); err != nil {
		t.Error(err)
	}
	change := UsageChange{Endpoints: []string{long, "b://b:1", long}}
	if err := change.Normalize(); err != nil || !slices.Equal(change.Endpoints, []string{long, "b://b:1"}) {
		t.Errorf("%q, %v", change.Endpoints, err)
	}
	for _, same := range []UsageChange{{}, {Endpoints: []string{}}} {
		if c := same; c.Normalize() != nil || (c.Endpoints == nil) != (same.Endpoints == nil) {
			t.Errorf("%#v becomes %#v", same.Endpoints, c.Endpoints)
		}
	}
	host := netip.MustParseAddr("192.0.2.1")
	own, _ := Expand([]string{"tcp://{ipv4}:1", "tcp://192.0.2.1:1", "tcp://{ipv4}:1"}, Addresses{IPv4: host})
	if !slices.Equal(own, []string{"tcp://192.0.2.1:1"}) {
		t.Errorf("expanded: %q", own)
	}
	all := []Endpoint{{Text: own[0], Slot: "a"}, {Text: "b://b:1", Slot: "a"}, {Text: long, Slot: "a"}, {Text: long, Slot: "b"}, {Text: "b://b:1", Slot: "c"}}
	value, leftOut := Fit("42", owner, []Endpoint{{Text: own[0]}}, all)
	if want := Value("42", owner, []string{own[0], "b://b:1", long}); value != want || leftOut != nil {
		t.Errorf("%q without %v, want %q", value, leftOut, want)
	}
}

// shortest returns the size of the shortest endpoint of a slot.
func shortest(all []Endpoint, slot string) int {
	size := MaxValue
	for _, e := range all {
		if e.Slot == slot {
			size = min(size, len(e.Text))
		}
	}
	return size
}

// TestRoomAtTheLimit: an endpoint that fills the value to its last octet is in it, and one that is an octet longer is not.
func TestRoomAtTheLimit(t *testing.T) {
	room := MaxValue - len(Value("42", owner, []string{"tcp://:1"}))
	for octets, want := range map[int]int{room: MaxValue, room + 1: len(Value("42", owner, nil))} {
		if value, _ := Fit("42", owner, nil, []Endpoint{{Text: "tcp://" + strings.Repeat("a", octets) + ":1", Slot: "a"}}); len(value) != want {
			t.Errorf("a host of %d octets: the value has %d, want %d", octets, len(value), want)
		}
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestLimitsOfEndpoints: a value has 255 octets, and the endpoints of a usage without it 7 000.
func TestLimitsOfEndpoints(t *testing.T) {
	const room = len("v=mesh1 n=42 o=5f0c2a91d3be ")
	for name, test := range map[string]struct {
		check func(endpoints []string) error
		most  int // octets of one endpoint
	}{
		"value":   {func(endpoints []string) error { return Check("42", owner, endpoints) }, 255 - room},
		"without": {CheckOthers, 7000 - len(" ")},
	} {
		endpoint := func(size int) []string {
			return []string{"tcp://" + strings.Repeat("a", size-len("tcp://:1")) + ":1"}
		}
		if err := test.check(endpoint(test.most)); err != nil {
			t.Errorf("%s, %d octets: %v", name, test.most, err)
		}
		if err := test.check(endpoint(test.most + 1)); err == nil {
			t.Errorf("%s, %d octets: no error", name, test.most+1)
		}
	}
}
