package mesh

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// Pair has the addresses of one source; a zero address is unknown.
type Pair struct{ IPv4, IPv6 netip.Addr }

// Addresses are this host's public addresses, which replace placeholders. A zero address is unknown. Named has
// an entry for each source that has a name, also for one without an address. It is not changed after it is made.
type Addresses struct {
	IPv4, IPv6 netip.Addr
	Named      map[string]Pair
}

// Equal reports whether both have the same addresses. A named source without an address counts as none.
func (a Addresses) Equal(b Addresses) bool {
	if a.IPv4 != b.IPv4 || a.IPv6 != b.IPv6 {
		return false
	}
	for _, named := range []map[string]Pair{a.Named, b.Named} {
		for name := range named {
			if a.Named[name] != b.Named[name] {
				return false
			}
		}
	}
	return true
}

// of returns the addresses of a source: of the host itself without a name.
func (a Addresses) of(source string) Pair {
	if source == "" {
		return Pair{a.IPv4, a.IPv6}
	}
	return a.Named[source]
}

// maxSource is the most octets of a source's name.
const maxSource = 32

// IsSource reports whether a text can be the name of a source: 1 to 32 of a-z, 0-9 and "-". The names ipv4 and
// ipv6 are taken, because they are those of the host's own sources.
func IsSource(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return name != "" && len(name) <= maxSource && strings.Trim(name, letters) == "" && name != "ipv4" && name != "ipv6"
}

// Placeholder stands for an address of this host in an endpoint:
//
//	{ipv4}  {ipv6}  {wan2.ipv4}  {wan2.ipv6}  {ipv6/64:::1234}  {wan2.ipv6/56:::1234}
//
// The last two stand for an address of another host: the first Bits bits are those of this host's
// address, the others those of Host.
type Placeholder struct {
	Text   string // with its braces
	Source string // "" for the host's own addresses
	IPv6   bool
	Bits   int // of the prefix, 1 to 127; 0 for the whole address
	Host   netip.Addr
}

// parsePlaceholder reads a placeholder with its braces.
func parsePlaceholder(text string) (p Placeholder, ok bool) {
	p.Text = text
	family, prefix, joined := strings.Cut(text[1:len(text)-1], "/")
	if source, rest, named := strings.Cut(family, "."); named {
		if !IsSource(source) {
			return p, false
		}
		p.Source, family = source, rest
	}
	p.IPv6 = family == "ipv6"
	if joined {
		return p, p.IPv6 && p.parseHost(prefix)
	}
	return p, p.IPv6 || family == "ipv4"
}

// parseHost reads "64:::1234": the length of the prefix and the host part, whose bits in the prefix are 0.
func (p *Placeholder) parseHost(text string) bool {
	length, host, _ := strings.Cut(text, ":")
	bits, err := strconv.ParseUint(length, 10, 8)
	if err != nil || bits < 1 || bits > 127 || length[0] == '0' {
		return false
	}
	p.Bits = int(bits)
	p.Host, err = netip.ParseAddr(host)
	return err == nil && p.Host.Is6() && p.Host.Zone() == "" && netip.PrefixFrom(p.Host, p.Bits).Masked().Addr() == netip.IPv6Unspecified()
}

// address returns what the placeholder stands for, given the addresses of its source; the zero Addr if that is unknown.
func (p Placeholder) address(source Pair) netip.Addr {
	switch {
	case !p.IPv6:
		return source.IPv4
	case p.Bits == 0 || !source.IPv6.IsValid():
		return source.IPv6
	}
	octets, host := netip.PrefixFrom(source.IPv6, p.Bits).Masked().Addr().As16(), p.Host.As16()
	for i := range octets {
		octets[i] |= host[i]
	}
	return netip.AddrFrom16(octets)
}

// Of returns the address that the placeholder stands for, the zero Addr if it is unknown.
func (p Placeholder) Of(a Addresses) netip.Addr { return p.address(a.of(p.Source)) }

// Known reports whether there is a source of the placeholder's name.
func (p Placeholder) Known(a Addresses) bool {
	_, named := a.Named[p.Source]
	return named || p.Source == ""
}

// cutPlaceholder cuts a text around the first pair of braces. found is false without one.
func cutPlaceholder(text string) (before, placeholder, after string, found bool) {
	begin := strings.IndexByte(text, '{')
	if begin < 0 {
		return text, "", "", false
	}
	end := strings.IndexByte(text[begin:], '}')
	if end < 0 {
		return text, "", "", false
	}
	end += begin + 1
	return text[:begin], text[begin:end], text[end:], true
}

// Placeholders returns the different placeholders of endpoints, in their order.
func Placeholders(endpoints []string) (all []Placeholder) {
	for _, endpoint := range endpoints {
		for _, text, rest, found := cutPlaceholder(endpoint); found; _, text, rest, found = cutPlaceholder(rest) {
			if p, ok := parsePlaceholder(text); ok && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Expand replaces the placeholders by addresses, and returns each endpoint once. It returns an endpoint whose address is unknown in
// missing. A text in braces that is not a placeholder stays as it is.
func Expand(endpoints []string, a Addresses) (expanded, missing []string) {
	expanded, missing = expandAll(endpoints, a.of)
	return Once(expanded), missing
}

func expandAll(endpoints []string, of func(source string) Pair) (expanded, missing []string) {
	for _, endpoint := range endpoints {
		text, ok := expand(endpoint, of)
		if ok {
			expanded = append(expanded, text)
		} else {
			missing = append(missing, endpoint)
		}
	}
	return expanded, missing
}

func expand(endpoint string, of func(source string) Pair) (text string, ok bool) {
	before, placeholder, after, found := cutPlaceholder(endpoint)
	if !found {
		return endpoint, true
	}
	if p, valid := parsePlaceholder(placeholder); valid {
		address := p.address(of(p.Source))
		if !address.IsValid() {
			return "", false
		}
		placeholder = address.String()
	}
	rest, ok := expand(after, of)
	return before + placeholder + rest, ok
}

// longest has the longest text of each kind of address. No prefix makes a joined address longer than the one of
// ones does, because it leaves no zeros to compress but those of the host part.
var longest = Pair{
	IPv4: netip.MustParseAddr("255.255.255.255"),
	IPv6: netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
}

// stretch replaces each placeholder by the longest address that it can stand for.
func stretch(endpoints []string) []string {
	expanded, _ := expandAll(endpoints, func(string) Pair { return longest })
	return expanded
}

// badPlaceholder describes the first text in braces that is not a placeholder, "" without one.
func badPlaceholder(endpoint string) msg.Text {
	for _, text, rest, found := cutPlaceholder(endpoint); found; _, text, rest, found = cutPlaceholder(rest) {
		if _, ok := parsePlaceholder(text); !ok {
			return msg.Textf("%s is not a placeholder: want {ipv4}, {ipv6}, {wan2.ipv4} or {ipv6/64:::1234}, a length from 1 to 127 and a host part without a bit inside the prefix", text)
		}
	}
	return ""
}
