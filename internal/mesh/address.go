// Which addresses a host outside can reach, and the ranges of addresses that a lease names.

package mesh

import (
	"net/netip"
	"slices"
)

var ipv6Unicast = netip.MustParsePrefix("2000::/3")

// documentation has the networks of examples (RFC 5737, RFC 3849, RFC 9637), in which no host is.
var documentation = []netip.Prefix{
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"),
}

// notPublic has the networks, besides documentation, that are not globally reachable by the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890,
// RFC 8190), and IPv4 multicast. Of IPv6 it has only networks inside 2000::/3. It has 192.0.0.0/24 and 2001::/23 whole,
// because their few globally reachable blocks (anycast, identifiers) contain no address of a host.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),      // this network
	netip.MustParsePrefix("10.0.0.0/8"),     // private use
	netip.MustParsePrefix("100.64.0.0/10"),  // shared with a carrier's NAT
	netip.MustParsePrefix("127.0.0.0/8"),    // loopback
	netip.MustParsePrefix("169.254.0.0/16"), // link-local
	netip.MustParsePrefix("172.16.0.0/12"),  // private use
	netip.MustParsePrefix("192.0.0.0/24"),   // IETF protocol assignments
	netip.MustParsePrefix("192.88.99.0/24"), // 6to4 relay anycast
	netip.MustParsePrefix("192.168.0.0/16"), // private use
	netip.MustParsePrefix("198.18.0.0/15"),  // benchmarking
	netip.MustParsePrefix("224.0.0.0/4"),    // multicast
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved, limited broadcast
	netip.MustParsePrefix("2001::/23"),      // IETF protocol assignments: Teredo, benchmarking, ORCHID
	netip.MustParsePrefix("2002::/16"),      // 6to4
}

// IsPublic reports whether the address is unicast and globally reachable.
func IsPublic(a netip.Addr) bool { return leadsOut(a) && !within(documentation, a) }

// leadsOut reports whether the address leads to no host of a network that is not public: it is public or of documentation.
func leadsOut(a netip.Addr) bool {
	return (a.Is4() || ipv6Unicast.Contains(a)) && !within(notPublic, a)
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Permits reports whether the ranges of a lease permit an address. Without ranges they permit public addresses and those of
// documentation: a node must not learn what this host's networks have.
func Permits(ranges []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if len(ranges) == 0 {
		return leadsOut(a)
	}
	return within(ranges, a)
}

// ParseRange reads a range of addresses, or an address, which is a range of its own. A range of IPv4
// addresses in IPv6 form becomes one of IPv4, because addresses are compared in that form.
func ParseRange(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if address := prefix.Addr(); address.Is4In6() {
		prefix, err = address.Unmap().Prefix(prefix.Bits() - (128 - 32)) // an error if it is wider than all of IPv4
	}
	return prefix.Masked(), err
}

// Networks behind which a carrier's NAT is.
var (
	CarrierNAT = netip.MustParsePrefix("100.64.0.0/10") // shared address space (RFC 6598)
	DSLite     = netip.MustParsePrefix("192.0.0.0/29")  // the host's end of a tunnel (RFC 6333)
)

// IsPrivate reports whether an address is reachable only inside one network (RFC 1918, RFC 4193,
// RFC 6333, RFC 6598).
func IsPrivate(a netip.Addr) bool {
	return a.IsPrivate() || CarrierNAT.Contains(a) || DSLite.Contains(a)
}

// Hidden reports whether no host outside can reach an address.
func Hidden(a netip.Addr) bool { return IsPrivate(a) || a.IsLoopback() || a.IsLinkLocalUnicast() }
