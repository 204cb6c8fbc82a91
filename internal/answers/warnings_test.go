package answers

import (
	"net/netip"
	"slices"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

func TestProviderAndMode(t *testing.T) {
	known := []string{"builtin", "alidns", "rfc2136"}
	for name, want := range map[string]msg.ID{
		"alidns": "", "AliDNS": msg.WarnProviderLike, "rfc-2136": msg.WarnProviderLike, "bultin": msg.WarnProviderLike, "example": msg.WarnProvider, "": msg.WarnProvider,
	} {
		if all := WarnProvider(name, known); want == "" && len(all) > 0 || want != "" && (len(all) != 1 || all[0].ID != want) {
			t.Errorf("%q: %v", name, all)
		}
	}
	for mode, want := range map[mesh.SyncMode]int{"": 0, "auto": 0, "Auto": 1, "automatic": 1} {
		if all := WarnMode(mode); len(all) != want {
			t.Errorf("%q: %v", mode, all)
		}
	}
}

func TestAddresses(t *testing.T) {
	both := []string{"tcp://{ipv4}:1", "tcp://[{ipv6}]:1"}
	for _, test := range []struct {
		ipv4, ipv6 string
		endpoints  []string
		want       []string
	}{
		{"203.0.113.7", "2001:db8::1", both, nil},
		{"192.168.1.2", "fd00::1", both, []string{"{ipv4} 192.168.1.2", "{ipv6} fd00::1"}},
		{"100.64.0.1", "", both, []string{"{ipv4} 100.64.0.1"}},
		{"169.254.0.1", "fe80::1", both, []string{"{ipv4} 169.254.0.1", "{ipv6} fe80::1"}},
		{"10.0.0.1", "fd00::1", []string{"tcp://a:1"}, nil},
		{"", "", both, nil},
	} {
		var last mesh.Addresses
		last.IPv4, _ = netip.ParseAddr(test.ipv4)
		last.IPv6, _ = netip.ParseAddr(test.ipv6)
		var got []string
		for _, w := range WarnAddresses(test.endpoints, last) {
			got = append(got, w.Args[0].(string)+" "+w.Args[1].(string))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
