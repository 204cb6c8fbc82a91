// Which of several addresses of an interface is published.

package hostaddr

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// beyond is an address of each family behind the default route. Nothing is sent to it. No registry has handed
// 3000::/4 out, so it is equally far from all addresses, and the longest common prefix (RFC 6724, rule 8) decides
// nothing. 198.51.100.0/24 is for documentation.
var beyond = map[Family]netip.AddrPort{
	IPv4: netip.MustParseAddrPort("198.51.100.1:9"),
	IPv6: netip.MustParseAddrPort("[3000::1]:9"),
}

// preferred returns one of some addresses of an interface: the one that the kernel itself takes as the source of a
// packet to the internet, else the one that stays preferred the longest; the zero Addr if there are none. A prefix that
// the provider has replaced often has the shorter lifetime, and none is deprecated yet.
func preferred(f Family, addrs []netip.Addr) netip.Addr {
	if len(addrs) == 0 {
		return netip.Addr{}
	}
	if a := kernelChoice(f); slices.Contains(addrs, a) {
		return a
	}
	if f == IPv4 || len(addrs) == 1 {
		return addrs[0]
	}
	return longest(addrs, lifetimes())
}

// kernelChoice returns the source address of a packet to the internet, the zero Addr if there is no way to it.
func kernelChoice(f Family) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(beyond[f])) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// longest returns the first address with at least half of the longest lifetime. A router starts a lifetime again every
// few minutes, so a smaller difference says nothing, and the address would change with each announcement.
func longest(addrs []netip.Addr, lifetimes map[netip.Addr]uint32) netip.Addr {
	var most uint32
	for _, a := range addrs {
		most = max(most, lifetimes[a])
	}
	return addrs[slices.IndexFunc(addrs, func(a netip.Addr) bool { return lifetimes[a] >= most/2 })]
}

// ifaCacheInfo is IFA_CACHEINFO of rtnetlink(7): a struct ifa_cacheinfo, whose first member is the preferred lifetime.
const ifaCacheInfo = 6

// lifetimes returns for how many seconds each IPv6 address of this host is preferred, the largest number for no end. It
// returns nothing where netlink is forbidden.
func lifetimes() map[netip.Addr]uint32 {
	all := map[netip.Addr]uint32{}
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_INET6)
	if err != nil {
		return all
	}
	messages, _ := syscall.ParseNetlinkMessage(table)
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWADDR {
			continue
		}
		attributes, _ := syscall.ParseNetlinkRouteAttr(&m)
		var address netip.Addr
		var seconds uint32
		for _, a := range attributes {
			switch {
			case a.Attr.Type == syscall.IFA_ADDRESS:
				address, _ = netip.AddrFromSlice(a.Value)
			case a.Attr.Type == ifaCacheInfo && len(a.Value) >= 4:
				seconds = binary.NativeEndian.Uint32(a.Value)
			}
		}
		all[address] = seconds
	}
	return all
}
