package mesh

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

var testAddresses = Addresses{
	IPv4: netip.MustParseAddr("203.0.113.7"), IPv6: netip.MustParseAddr("2001:db8:1:2:ffff::1"),
	Named: map[string]Pair{"wan2": {IPv4: netip.MustParseAddr("198.51.100.9"), IPv6: netip.MustParseAddr("2001:db8:ab:cdef::1")}, "off": {}},
}

func TestExpandPlaceholders(t *testing.T) {
	for endpoint, want := range map[string]string{
		"tcp://{ipv4}:1":                         "tcp://203.0.113.7:1",
		"tcp://{wan2.ipv4}:1":                    "tcp://198.51.100.9:1",
		"tcp://[{wan2.ipv6}]:1":                  "tcp://[2001:db8:ab:cdef::1]:1",
		"tcp://[{ipv6/64:::1234}]:1":             "tcp://[2001:db8:1:2::1234]:1",
		"tcp://[{wan2.ipv6/56:::1234}]:1":        "tcp://[2001:db8:ab:cd00::1234]:1",
		"tcp://[{wan2.ipv6/56:0:0:0:12::34}]:1":  "tcp://[2001:db8:ab:cd12::34]:1",
		"tcp://[{ipv6/127:::1}]:1":               "tcp://[2001:db8:1:2:ffff::1]:1",
		"tcp://[{ipv6/1:::1}]:1":                 "tcp://[::1]:1",
		"tcp://{off.ipv4}:1":                     "", // a source without an address
		"tcp://{wan3.ipv4}:1":                    "", // no source
		"tcp://[{wan3.ipv6/64:::1}]:1":           "",
		"tcp://{ipv4}.{wan2.ipv4}.example.com:1": "tcp://203.0.113.7.198.51.100.9.example.com:1",
		"tcp://{ipv4}.{wan3.ipv4}.example.com:1": "",
		"tcp://{nonsense}.{ipv4}.example.com:1":  "tcp://{nonsense}.203.0.113.7.example.com:1",
		"tcp://unclosed{ipv4:1":                  "tcp://unclosed{ipv4:1",
	} {
		got, missing := Expand([]string{endpoint}, testAddresses)
		if want == "" {
			if len(got) != 0 || len(missing) != 1 {
				t.Errorf("%s: %q, missing %q, want it missing", endpoint, got, missing)
			}
			continue
		}
		if !reflect.DeepEqual(got, []string{want}) || missing != nil {
			t.Errorf("%s: %q, missing %q, want %q", endpoint, got, missing, want)
		}
	}
}

func TestCheckPlaceholders(t *testing.T) {
	for _, good := range []string{"tcp://{wan2.ipv4}:1", "tcp://[{a-1.ipv6}]:1", "tcp://[{ipv6/64:::1234}]:1", "tcp://[{wan2.ipv6/56:0:0:0:12::34}]:1", "tcp://[{ipv6/1:::1}]:1", "tcp://[{ipv6/127:::1}]:1"} {
		if err := Check("42", owner, []string{good}); err != nil {
			t.Errorf("Check(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{
		"{}", "{ipv5}", "{.ipv4}", "{Wan2.ipv4}", "{wan_2.ipv4}", "{ipv4.ipv4}", "{" + strings.Repeat("a", 33) + ".ipv4}", "{ipv4/24:::1}", "{ipv6/0:::1}", "{ipv6/128:::1}",
		"{ipv6/064:::1}", "{ipv6/64}", "{ipv6/64:}", "{ipv6/:::1}", "{ipv6/64:1.2.3.4}", "{ipv6/64:::1%eth0}", "{ipv6/64:1::1}", "{ipv6/65:0:0:0:0:8000::1}", "{ipv6 }", "{{ipv4}}",
	} {
		err := Check("42", owner, []string{"tcp://[" + bad + "]:1"})
		e, ok := errors.AsType[*EndpointError](err)
		if !ok || !strings.Contains(e.Error(), " is not a placeholder: want ") || e.After() == "" {
			t.Errorf("Check(%q) = %v, want an error about a placeholder", bad, err)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	var got []string
	for _, p := range Placeholders([]string{"tcp://{ipv4}:1", "udp://{ipv4}:1", "tcp://[{wan3.ipv6}]:1", "tcp://{off.ipv4}:1", "tcp://{bad}:1"}) {
		text := p.Text + " " + p.Of(testAddresses).String()
		if !p.Known(testAddresses) {
			text += " unknown"
		}
		got = append(got, text)
	}
	if want := []string{"{ipv4} 203.0.113.7", "{wan3.ipv6} invalid IP unknown", "{off.ipv4} invalid IP"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAddressesEqual(t *testing.T) {
	with := func(p Pair) Addresses { return Addresses{Named: map[string]Pair{"a": p}} }
	one, two := Pair{IPv4: netip.MustParseAddr("192.0.2.1")}, Pair{IPv4: netip.MustParseAddr("192.0.2.2")}
	for _, test := range []struct {
		a, b Addresses
		want bool
	}{{with(one), with(one), true}, {with(Pair{}), Addresses{}, true}, {with(one), Addresses{}, false}, {Addresses{}, with(one), false}, {with(one), with(two), false}, {Addresses{IPv6: testAddresses.IPv6}, Addresses{}, false}} {
		if got := test.a.Equal(test.b); got != test.want {
			t.Errorf("%v, %v: %t", test.a, test.b, got)
		}
	}
}

// No address is longer than the size check assumes, and no text makes the parser fail.
func FuzzExpand(f *testing.F) {
	f.Add("tcp://[{ipv6/64:::1234}]:1", []byte("0123456789abcdef"))
	f.Add("tcp://{wan2.ipv4}.{ipv6/7:0:0:1::1}:1", []byte{15: 1})
	f.Fuzz(func(t *testing.T, endpoint string, octets []byte) {
		if len(octets) < 16 {
			return
		}
		p := Pair{IPv4: netip.AddrFrom4([4]byte(octets)), IPv6: netip.AddrFrom16([16]byte(octets)).WithZone("")}
		if p.IPv6.Is4In6() {
			return
		}
		got, _ := expandAll([]string{endpoint}, func(string) Pair { return p })
		if long := stretch([]string{endpoint}); len(got) != 1 || len(got[0]) > len(long[0]) {
			t.Errorf("%q is longer than %q", got, long)
		}
	})
}
