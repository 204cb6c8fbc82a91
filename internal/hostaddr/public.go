package hostaddr

import (
	"net/netip"
	"slices"
)

var ipv6Unicast = netip.MustParsePrefix("2000::/3")

// notPublic has the networks that are not globally reachable by the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890,
// RFC 8190), and IPv4 multicast. Of IPv6 it has only networks inside 2000::/3. It has 192.0.0.0/24 and 2001::/23 whole,
// because their few globally reachable blocks (anycast, identifiers) contain no address of a host.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("10.0.0.0/8"),      // private use
	netip.MustParsePrefix("100.64.0.0/10"),   // shared with a carrier's NAT
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local
	netip.MustParsePrefix("172.16.0.0/12"),   // private use
	netip.MustParsePrefix("192.0.0.0/24"),    // IETF protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relay anycast
	netip.MustParsePrefix("192.168.0.0/16"),  // private use
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarking
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, limited broadcast
	netip.MustParsePrefix("2001::/23"),       // IETF protocol assignments: Teredo, benchmarking, ORCHID
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// isPublic reports whether the address is unicast and globally reachable.
func isPublic(a netip.Addr) bool {
	if !a.Is4() && !ipv6Unicast.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// shared is the network that carriers share among their customers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether an address is reachable only inside one network (RFC 1918, RFC 4193,
// RFC 6598).
func isPrivate(a netip.Addr) bool { return a.IsPrivate() || shared.Contains(a) }

// kind describes an address that is not public.
func kind(a netip.Addr) string {
	switch {
	case shared.Contains(a):
		return "shared with others behind a carrier's NAT (RFC 6598)"
	case a.IsPrivate():
		return "private"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsLoopback():
		return "loopback"
	}
	return "not reachable from everywhere"
}
