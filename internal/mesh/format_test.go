package mesh

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meshddns/internal/msg"
)

// manySRV returns so many formats.
func manySRV(count int) (many string) {
	for i := range count {
		many += fmt.Sprintf("srv:_s%d._tcp ", i)
	}
	return many
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"", ""},
		{"mesh1 urls hostport a easytier-srv ip4p dnsaddr iroh", "mesh1 urls hostport a easytier-srv ip4p dnsaddr iroh"},
		{strings.TrimSpace(manySRV(16)), strings.TrimSpace(manySRV(16))},
		{"srv:_MineCraft._TCP srv:_matrix-fed._tcp srv:_sip._udp", "srv:_minecraft._tcp srv:_matrix-fed._tcp srv:_sip._udp"},
	} {
		got, err := ParseFormats(strings.Fields(test.given))
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("Parse(%q) = %q, %v", test.given, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	many := manySRV(17)
	for given, reason := range map[string]string{
		"mesh2":                        `"mesh2": there is no such format: want mesh1, urls, hostport, a, easytier-srv, ip4p, dnsaddr, iroh or srv:_service._tcp`,
		"A":                            `"A": there is no such format`,
		"a a":                          `"a": it is given twice`,
		"srv:_x._tcp srv:_X._tcp":      `"srv:_X._tcp": it is given twice`,
		"srv:":                         `"srv:": want srv:_service._tcp or srv:_service._udp`,
		"srv:_x":                       "want srv",
		"srv:x._tcp":                   "want srv",
		"srv:ab._tcp":                  "want srv",
		"srv:_._tcp":                   "want srv",
		"srv:_x._sctp":                 "want srv",
		"srv:_x.tcp":                   "want srv",
		"srv:_x._tcp.example":          "want srv",
		"srv:_x.y._tcp":                "want srv",
		"srv:_x*._tcp":                 "want srv",
		"srv:_ü._tcp":                  "want srv",
		"srv:_x._tcp.":                 "want srv",
		"srv:_" + long(63) + "._tcp":   "want srv",
		many:                           `"srv:_s16._tcp": 17 formats, 16 at most`,
		"mesh1 hostport iroh easytier": `"easytier": there is no such format`,
	} {
		got, err := ParseFormats(strings.Fields(given))
		refusal, ok := errors.AsType[*msg.Refusal](err)
		if !ok || refusal.ID != msg.FormatInvalid || !strings.Contains(err.Error(), reason) || got != nil {
			t.Errorf("Parse(%q) = %q, %v; want %s", given, got, err, reason)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// Ids of peers, as libp2p and iroh show them.
const (
	ed25519ID = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
	sha256ID  = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
	cidID     = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe"
	irohHex   = "ae58ff8833241ac82d6ff7611046ed67b5072d142c588d0063e942d9a75502b6"
	irohID    = "i3cx9nburopcommx67otytzpc64oqmewftce4ydd7fbpuj4iyk5y"
)

// show writes sets one to a line: format, name, type, values; then what was left out, and the fault.
func show(sets []FormatSet) (all string) {
	for _, set := range sets {
		all += fmt.Sprintf("%s: %s %s %s\n", set.Format, set.Name, set.Type, strings.Join(set.Values, ", "))
		for _, l := range set.LeftOut {
			all += fmt.Sprintf("  - %s: %s\n", l.Endpoint.Text, l.Reason)
		}
		if set.Fault != "" {
			all += fmt.Sprintf("  ! %s\n", set.Fault)
		}
	}
	return all
}

// endpointsOf makes endpoints of words "scheme://host:port" or "scheme://host:port=<peer id>".
func endpointsOf(words string) (all []Endpoint) {
	for word := range strings.FieldsSeq(words) {
		text, id, _ := strings.Cut(word, "=")
		all = append(all, Endpoint{Text: text, PeerID: id})
	}
	return all
}

const parent = "berlin.example.com"

func TestSets(t *testing.T) {
	for _, test := range []struct{ formats, endpoints, want string }{
		{"mesh1 urls", "tcp://192.0.2.1:1", ""},
		{"hostport", "", "hostport: berlin.example.com TXT \n"},
		{"hostport", "udp://192.0.2.1:2 tcp://[2001:DB8:0::1]:1 tcp://192.0.2.1:2 tcp://h.example:3 tcp://[::ffff:192.0.2.9]:4",
			`hostport: berlin.example.com TXT 192.0.2.1:2, 192.0.2.9:4, [2001:db8::1]:1
  - tcp://h.example:3: the host is a name, and this format has addresses only
`},
		{"a", "tcp://192.0.2.1:1 wg://192.0.2.1:2 udp://[2001:db8::1]:3 tcp://h.example:4",
			`a: berlin.example.com A 192.0.2.1
  - tcp://h.example:4: the host is a name, and this format has addresses only
a: berlin.example.com AAAA 2001:db8::1
`},
		{"ip4p", "wg://203.0.113.7:51820 tcp://[2001:db8::1]:3 tcp://h.example:4 wg://0.0.0.1:1",
			`ip4p: ip4p.berlin.example.com AAAA 2001::1:0:1, 2001::ca6c:cb00:7107
  - tcp://[2001:db8::1]:3: the host is an IPv6 address, and this format has IPv4 only
  - tcp://h.example:4: the host is a name, and this format has addresses only
`},
		{"srv:_x._tcp", "tcp://192.0.2.1:1 ws://H.Example:2 wss://[2001:db8::1]:3 udp://192.0.2.1:4 nebula://192.0.2.1:5",
			`srv:_x._tcp: _x._tcp.berlin.example.com SRV 1 1 1 192-0-2-1.berlin.example.com, 1 1 2 h.example, 1 1 3 2001-0db8-0000-0000-0000-0000-0000-0001.berlin.example.com
  - udp://192.0.2.1:4: this format has no endpoints of scheme "udp"
  - nebula://192.0.2.1:5: this format has no endpoints of scheme "nebula"
srv:_x._tcp: 192-0-2-1.berlin.example.com A 192.0.2.1
srv:_x._tcp: 2001-0db8-0000-0000-0000-0000-0000-0001.berlin.example.com AAAA 2001:db8::1
`},
		{"srv:_x._udp", "udp://h.example:1 quic://h.example:2 wg://h.example:3 tcp://h.example:4",
			`srv:_x._udp: _x._udp.berlin.example.com SRV 1 1 1 h.example, 1 1 2 h.example, 1 1 3 h.example
  - tcp://h.example:4: this format has no endpoints of scheme "tcp"
`},
		{"easytier-srv", "tcp://h.example:1 udp://h.example:1 wg://h.example:1 quic://h.example:1 ws://h.example:1 wss://h.example:1 faketcp://h.example:1 http://h.example:1",
			`easytier-srv: _easytier._tcp.berlin.example.com SRV 1 1 1 h.example
  - http://h.example:1: this format has no endpoints of scheme "http"
easytier-srv: _easytier._udp.berlin.example.com SRV 1 1 1 h.example
easytier-srv: _easytier._wg.berlin.example.com SRV 1 1 1 h.example
easytier-srv: _easytier._quic.berlin.example.com SRV 1 1 1 h.example
easytier-srv: _easytier._ws.berlin.example.com SRV 1 1 1 h.example
easytier-srv: _easytier._wss.berlin.example.com SRV 1 1 1 h.example
easytier-srv: _easytier._faketcp.berlin.example.com SRV 1 1 1 h.example
`},
		{"dnsaddr", fmt.Sprintf("tcp://192.0.2.1:1=%[1]s udp://[2001:db8::1]:2=%[1]s quic://192.0.2.1:3=%[2]s ws://h.example:4=%[3]s wss://h.example:5=%[1]s wg://192.0.2.1:6=%[1]s tcp://192.0.2.1:7 tcp://192.0.2.1:8=nobody tcp://%[4]s:9=%[1]s",
			ed25519ID, sha256ID, cidID, nameOf(210)),
			fmt.Sprintf(`dnsaddr: _dnsaddr.berlin.example.com TXT dnsaddr=/dns/h.example/tcp/4/ws/p2p/%[3]s, dnsaddr=/dns/h.example/tcp/5/wss/p2p/%[1]s, dnsaddr=/ip4/192.0.2.1/tcp/1/p2p/%[1]s, dnsaddr=/ip4/192.0.2.1/udp/3/quic-v1/p2p/%[2]s, dnsaddr=/ip6/2001:db8::1/udp/2/p2p/%[1]s
  - wg://192.0.2.1:6: this format has no endpoints of scheme "wg"
  - tcp://192.0.2.1:7: the endpoint has no peer_id
  - tcp://192.0.2.1:8: "nobody" is no peer id of libp2p
  - tcp://%[4]s:9: the value has 286 octets, 255 at most
`, ed25519ID, sha256ID, cidID, nameOf(210))},
		{"iroh", fmt.Sprintf("udp://192.0.2.1:1=%[1]s quic://[2001:db8::1]:2=%[2]s udp://192.0.2.3:3=%[3]s udp://h.example:4=%[1]s tcp://192.0.2.1:5=%[1]s udp://192.0.2.1:6 udp://192.0.2.1:7=%[4]s",
			irohHex, irohID, "y"+irohID[1:], ed25519ID),
			fmt.Sprintf(`iroh: _iroh.%[1]s.berlin.example.com TXT addr=192.0.2.1:1, addr=[2001:db8::1]:2
  - udp://h.example:4: the host is a name, and this format has addresses only
  - tcp://192.0.2.1:5: this format has no endpoints of scheme "tcp"
  - udp://192.0.2.1:6: the endpoint has no peer_id
  - udp://192.0.2.1:7: %[3]q is no endpoint id of iroh: want 64 hex digits or 52 characters of z-base-32
iroh: _iroh.%[2]s.berlin.example.com TXT addr=192.0.2.3:3
`, irohID, "y"+irohID[1:], ed25519ID)},
		{"iroh", "", "iroh: _iroh.berlin.example.com TXT \n"},
	} {
		if got := show(FormatSets(strings.Fields(test.formats), parent, endpointsOf(test.endpoints))); got != test.want {
			t.Errorf("%s of %s:\n%s\nwant\n%s", test.formats, test.endpoints, got, test.want)
		}
	}
}

// nameOf returns a host name of n characters.
func nameOf(n int) string {
	return strings.Repeat(long(49)+".", 10)[:n-1] + "x"
}

// TestShared: formats with the same name and type share a set, and so do the names of targets.
func TestShared(t *testing.T) {
	got := show(FormatSets([]string{"srv:_easytier._udp", "easytier-srv", "a"}, "Berlin.Example.COM.", endpointsOf("udp://192.0.2.1:2 quic://192.0.2.1:1 http://h.example:3")))
	want := `srv:_easytier._udp,easytier-srv: _easytier._udp.berlin.example.com SRV 1 1 1 192-0-2-1.berlin.example.com, 1 1 2 192-0-2-1.berlin.example.com
  - http://h.example:3: this format has no endpoints of scheme "http"
srv:_easytier._udp,easytier-srv: 192-0-2-1.berlin.example.com A 192.0.2.1
easytier-srv: _easytier._quic.berlin.example.com SRV 1 1 1 192-0-2-1.berlin.example.com
a: berlin.example.com A 192.0.2.1
  - http://h.example:3: the host is a name, and this format has addresses only
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEndpointFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `"" is not scheme://host:port`,
		"192.0.2.1:1":              "is not scheme",
		"://192.0.2.1:1":           "is not scheme",
		"tcp://192.0.2.1":          "is not scheme",
		"tcp://192.0.2.1:0":        "is not scheme",
		"tcp://h.example:0":        "is not scheme",
		"tcp://h.example:65536":    "is not scheme",
		"tcp://:1":                 "is not scheme",
		"tcp://[fe80::1%eth0]:1":   "is not scheme",
		"tcp://2001:db8::1:1":      "is not scheme",
		"tcp://h.example:1:2":      "is not scheme",
		"tcp://1.2.3:1":            `the host "1.2.3" is neither an address nor a name`,
		"tcp://1.2.3.256:1":        "neither",
		"tcp://0x7F000001:1":       "neither",
		"tcp://a..b:1":             "neither",
		"tcp://" + long(64) + ":1": "neither",
		"tcp://{ipv4}:1":           "neither",
	} {
		for _, set := range FormatSets([]string{"hostport", "a", "srv:_x._tcp", "easytier-srv", "ip4p", "dnsaddr", "iroh"}, parent, []Endpoint{{Text: text, PeerID: ed25519ID}}) {
			if len(set.Values) > 0 || len(set.LeftOut) != 1 || !strings.Contains(set.LeftOut[0].Reason.String(), want) {
				t.Errorf("%q gives %s", text, show([]FormatSet{set}))
			}
		}
	}
}

// TestNames: a name that DNS cannot have is a fault of its set, and such a target is left out.
func TestNames(t *testing.T) {
	at := nameOf(240) // with "_easytier._tcp." it is too long, without it it fits
	for _, test := range []struct{ format, parent, endpoint, want string }{
		{"a", "a..b", "tcp://192.0.2.1:1", `a: a..b A 
  ! "a..b" is no DNS name: a label has 1 to 63 letters, digits, hyphens or underscores, a name at most 253 octets
`},
		{"a", at, "tcp://192.0.2.1:1", "a: " + at + " A 192.0.2.1\n"},
		{"easytier-srv", at, "tcp://h.example:1", `easytier-srv: _easytier._tcp.` + at + ` SRV 
  ! "_easytier._tcp.` + at + `" is no DNS name: a label has 1 to 63 letters, digits, hyphens or underscores, a name at most 253 octets
`},
		{"srv:_x._tcp", at, "tcp://203.0.113.255:1", `srv:_x._tcp: _x._tcp.` + at + ` SRV 
  - tcp://203.0.113.255:1: "203-0-113-255.` + at + `" is no DNS name: a label has 1 to 63 letters, digits, hyphens or underscores, a name at most 253 octets
`},
		{"easytier-srv", at, "tcp://1.1.1.1:1", `easytier-srv: _easytier._tcp.` + at + ` SRV 
  ! "_easytier._tcp.` + at + `" is no DNS name: a label has 1 to 63 letters, digits, hyphens or underscores, a name at most 253 octets
`},
		{"a", "büro.example", "tcp://192.0.2.1:1", "a: xn--bro-hoa.example A 192.0.2.1\n"},
	} {
		if got := show(FormatSets([]string{test.format}, test.parent, endpointsOf(test.endpoint))); got != test.want {
			t.Errorf("got\n%s\nwant\n%s", got, test.want)
		}
	}
}

func TestPeerIDs(t *testing.T) {
	for id, want := range map[string]bool{
		ed25519ID: true, sha256ID: true, cidID: true,
		"": false, "1": false, "Qm": false, "b": false, "nobody": false, "12D3Koo": false,
		sha256ID[:45]:          false, // cut short
		sha256ID[:45] + "0":    false, // no digit of base58
		"z" + sha256ID:         false,
		cidID[1:]:              false,
		strings.ToUpper(cidID): false,
		"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy":                   false, // of a file
		"bafzbeidlnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnm":                   true,
		"bajzbeidlnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnm":                   false, // version 2
		"bafzbeidlnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23l":                     false, // an octet is missing
		"bafzbeh3lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23l":                     false, // a hash of 31 octets
		"bafzaaktlnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnm":   true,
		"bafzaak3lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvww23lnnvq": false, // a key of 43 octets
		"1" + long(200): false,
	} {
		if isLibp2pID(id) != want {
			t.Errorf("isLibp2pID(%q) is not %t", id, want)
		}
	}
	for id, want := range map[string]string{
		irohHex: irohID, strings.ToUpper(irohHex): irohID, irohID: irohID, strings.ToUpper(irohID): irohID,
		"": "", irohHex[2:]: "", irohID[1:]: "", irohID[:51] + "b": "", strings.Replace(irohID, "x", "l", 1): "",
	} {
		if got, ok := irohLabel(id); ok != (want != "") || ok && got != want {
			t.Errorf("irohLabel(%q) = %q, %t", id, got, ok)
		}
	}
}
