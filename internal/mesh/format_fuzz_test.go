package mesh

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/internal/dns"
)

// FuzzSets: whatever the endpoints, each set is one that clients read, and each endpoint is published or
// told in each format.
func FuzzSets(f *testing.F) {
	f.Add("hostport a srv:_x._tcp srv:_y._udp easytier-srv ip4p dnsaddr iroh", parent, "tcp://192.0.2.1:1 udp://[2001:db8::1]:2 wss://h.example:3", ed25519ID)
	f.Add("iroh dnsaddr mesh1 urls", "a.b", "quic://192.0.2.1:1 udp://192.0.2.1:1 quic://[::ffff:1.2.3.4]:5", irohHex)
	f.Add("srv:_easytier._tcp easytier-srv", nameOf(230), "tcp://192.0.2.1:65535 tcp://H.example.:1 tcp://1.2.3:4", "")
	f.Add("srv:_easytier._udp easytier-srv a", "BÜCHER.example", "wg://192.0.2.1:1 faketcp://0.0.0.0:1 udp://[::1%25lo]:4", cidID)
	f.Fuzz(func(t *testing.T, formats, name, endpoints, peer string) {
		parsed, err := ParseFormats(strings.Fields(formats))
		if err != nil || dns.Parse(name) == "" { // the root is no <prefix>.<domain>
			return
		}
		var all []Endpoint
		for i, text := range strings.Fields(endpoints) {
			all = append(all, Endpoint{Text: text, PeerID: []string{peer, ""}[i%2]})
		}
		sets := FormatSets(parsed, name, all)
		checkSets(t, sets, dns.Parse(name))
		for _, format := range parsed {
			if format == Mesh1 || format == URLs {
				continue
			}
			for _, e := range all {
				checkTold(t, sets, format, name, e)
			}
		}
	})
}

// checkSets checks what holds for every set.
func checkSets(t *testing.T, sets []FormatSet, parent string) {
	seen := map[place]bool{}
	for _, set := range sets {
		at := place{set.Name, set.Type}
		if seen[at] || !dns.Within(set.Name, parent) {
			t.Errorf("%s %s is there twice, or not within %s", set.Name, set.Type, parent)
		}
		seen[at] = true
		if len(set.Values) > 0 && dns.NameFault(set.Name) != "" {
			t.Errorf("%q has values, and is no name", set.Name)
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(set.Values))); !slices.Equal(sorted, set.Values) {
			t.Errorf("%q are not sorted and different", set.Values)
		}
		for _, value := range set.Values {
			if !isData(sets, set.Type, value) {
				t.Errorf("%s %s has %q", set.Name, set.Type, value)
			}
		}
	}
}

// isData reports whether a value is data of a type, in its normal form. The target of an SRV record has
// an address among the sets unless the endpoint has a host name.
func isData(sets []FormatSet, typ, value string) bool {
	addr, err := netip.ParseAddr(value)
	switch typ {
	case typeA:
		return err == nil && addr.Is4() && addr.String() == value
	case typeAAAA:
		return err == nil && addr.Is6() && !addr.Is4In6() && addr.String() == value
	case typeTXT:
		return len(value) <= 255 && strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=:/.-_[]") == ""
	}
	parts := strings.Split(value, " ")
	if len(parts) != 4 || dns.NameFault(parts[3]) != "" || parts[3] != dns.Fold(parts[3]) {
		return false
	}
	priority, _ := strconv.ParseUint(parts[0], 10, 16)
	port, _ := strconv.ParseUint(parts[2], 10, 16)
	label, _, _ := strings.Cut(parts[3], ".")
	below := strings.Count(label, "-") == 3 && strings.Trim(label, "0123456789-") == ""
	hasAddress := slices.ContainsFunc(sets, func(s FormatSet) bool { return s.Name == parts[3] && len(s.Values) > 0 })
	return typ == typeSRV && priority >= 1 && port >= 1 && (hasAddress || !below || !dns.Within(parts[3], sets[0].Name))
}

// checkTold checks that what one endpoint alone has in a format is also in the sets of all, or is told.
func checkTold(t *testing.T, sets []FormatSet, format, name string, e Endpoint) {
	told, has := false, false
	for _, set := range sets {
		if slices.Contains(strings.Split(set.Format, ","), format) {
			has = true
			told = told || set.Fault != "" || slices.ContainsFunc(set.LeftOut, func(l LeftOut) bool { return l.Endpoint == e && l.Reason != "" })
		}
	}
	if !has {
		t.Errorf("%s has no set", format)
	}
	published := 0
	for _, single := range FormatSets([]string{format}, name, []Endpoint{e}) {
		for _, value := range single.Values {
			published++
			if !told && !slices.ContainsFunc(sets, func(s FormatSet) bool {
				return s.Name == single.Name && s.Type == single.Type && slices.Contains(s.Values, value)
			}) {
				t.Errorf("%s: %s of %+v is neither published nor told", format, value, e)
			}
		}
	}
	if published == 0 && !told {
		t.Errorf("%s: nothing is told of %+v", format, e)
	}
}
