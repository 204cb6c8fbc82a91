package hostaddr

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// autoAddr returns the preferred public address of the default route's interface.
func autoAddr(f Family) (finding, error) {
	name, err := defaultInterface(f)
	if err != nil {
		return finding{}, err
	}
	if name == "" {
		return finding{note: msg.Textf("there is no default route for IPv%d", f)}, nil
	}
	addrs, err := interfaceAddrs(f, name)
	if a := preferred(f, filtered(addrs, mesh.IsPublic)); err != nil || a.IsValid() {
		return finding{addr: a}, err
	}
	if len(addrs) == 0 {
		return finding{note: msg.Textf("%s, the interface of the default route, has no IPv%d address", name, f)}, nil
	}
	note := msg.Textf("%s, the interface of the default route, has only %s: url:URL asks a service outside for the public one", name, unfit(addrs))
	return finding{note: note, verdict: verdictOf(addrs[0])}, nil
}

// interfaceAddr returns the preferred public address of an interface. Without one it returns a private address, because the
// operator named the interface.
func interfaceAddr(f Family, name string) (finding, error) {
	addrs, err := interfaceAddrs(f, name)
	if err != nil {
		return finding{}, err
	}
	for _, eligible := range []func(netip.Addr) bool{mesh.IsPublic, netip.Addr.IsGlobalUnicast} {
		if a := preferred(f, filtered(addrs, eligible)); a.IsValid() {
			return finding{addr: a}, nil
		}
	}
	if len(addrs) == 0 {
		return finding{note: msg.Textf("%s has no IPv%d address", name, f)}, nil
	}
	return finding{note: msg.Textf("%s has only %s", name, unfit(addrs)), verdict: verdictOf(addrs[0])}, nil
}

// unfit describes the unsuitable addresses of an interface.
func unfit(addrs []netip.Addr) (all msg.Text) {
	for i, a := range addrs {
		found := msg.Textf("%s, which is %s", a, kind(a))
		if i == 0 {
			all = found
			continue
		}
		all = msg.Textf("%s, and %s", all, found)
	}
	return all
}

func filtered(addrs []netip.Addr, eligible func(netip.Addr) bool) (found []netip.Addr) {
	for _, a := range addrs {
		if eligible(a) {
			found = append(found, a)
		}
	}
	return found
}

// interfaceAddrs returns the stable addresses of an interface. It reads IPv6 addresses from
// a file; for IPv4 addresses, and to see whether the interface exists, it needs netlink.
func interfaceAddrs(f Family, name string) (addrs []netip.Addr, err error) {
	if f == IPv6 {
		addrs, err = readNet(f, "if_inet6", func(r io.Reader) ([]netip.Addr, error) { return parseInet6(r, name) })
		if err != nil || len(addrs) > 0 {
			return addrs, err
		}
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, msg.Errorf("%q: %w", name, hinted(err))
	}
	if f == IPv6 {
		return nil, nil
	}
	all, err := ifi.Addrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs, hinted(err)
}

// hinted adds the systemd setting to an error that means that netlink sockets are forbidden.
func hinted(err error) error {
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		return msg.Errorf("%w: RestrictAddressFamilies= has to have AF_NETLINK", err)
	}
	return err
}

// defaultInterface returns the interface of the default route with the lowest metric, "" if there is none.
func defaultInterface(f Family) (string, error) {
	routes, err := defaultRoutes(f)
	return bestRoute(routes), err
}

// Gateways returns the gateways of the default routes.
func Gateways() (all []netip.Addr) {
	for _, f := range []Family{IPv4, IPv6} {
		routes, _ := defaultRoutes(f)
		for _, r := range routes {
			if r.gateway.IsValid() && !r.gateway.IsUnspecified() {
				all = append(all, r.gateway)
			}
		}
	}
	return all
}

func defaultRoutes(f Family) ([]route, error) {
	name, parse := "route", parseRoute4
	if f == IPv6 {
		name, parse = "ipv6_route", parseRoute6
	}
	return readNet(f, name, func(r io.Reader) ([]route, error) { return parseRoutes(r, parse) })
}

// readNet parses a file of /proc/self/net, because /proc/net is hidden when proc is mounted with subset=pid.
// A kernel without IPv6 has no files for it; readNet then returns the zero value without an error.
func readNet[T any](f Family, name string, parse func(io.Reader) (T, error)) (T, error) {
	var none T
	file, err := os.Open("/proc/self/net/" + name)
	if f == IPv6 && errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	defer file.Close()
	return parse(file)
}

// route is a default route.
type route struct {
	iface   string
	metric  uint64
	gateway netip.Addr
}

func parseRoutes(r io.Reader, parse func(fields []string) (route, bool)) (all []route, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if found, ok := parse(strings.Fields(lines.Text())); ok {
			all = append(all, found)
		}
	}
	return all, lines.Err()
}

// bestRoute returns the interface of the route with the lowest metric; of several, of the first in the kernel's list.
func bestRoute(all []route) string {
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b route) int { return cmp.Compare(a.metric, b.metric) }).iface
}

// parseRoute4 reads a line of /proc/net/route: Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT.
// The metric is decimal, the rest hexadecimal, with addresses in the order of octets of this host. It returns false except for a default route in use.
func parseRoute4(fields []string) (route, bool) {
	if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" || !inUse(fields[3]) {
		return route{}, false
	}
	metric, err := strconv.ParseUint(fields[6], 10, 32)
	number, _ := strconv.ParseUint(fields[2], 16, 32) // 0, no gateway, if it is none
	var gateway [4]byte
	binary.NativeEndian.PutUint32(gateway[:], uint32(number))
	return route{fields[0], metric, netip.AddrFrom4(gateway)}, err == nil
}

// parseRoute6 reads a line of /proc/net/ipv6_route: destination and its length, source and its length, next hop, metric,
// reference count, use, flags, all hexadecimal, and the interface. It returns false except for a default route in use. The
// source may be any, because with several internet providers each default route is for its own prefix (RFC 8678).
func parseRoute6(fields []string) (route, bool) {
	if len(fields) < 10 || strings.Trim(fields[0], "0") != "" || fields[1] != "00" || !inUse(fields[8]) || fields[9] == "lo" {
		return route{}, false
	}
	metric, err := strconv.ParseUint(fields[5], 16, 32)
	octets, _ := hex.DecodeString(fields[4])
	gateway, _ := netip.AddrFromSlice(octets)
	if gateway.IsLinkLocalUnicast() {
		gateway = gateway.WithZone(fields[9])
	}
	return route{fields[9], metric, gateway}, err == nil
}

func inUse(flags string) bool {
	bits, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && bits&(syscall.RTF_UP|syscall.RTF_REJECT) == syscall.RTF_UP
}

// parseInet6 reads the addresses of one interface from /proc/net/if_inet6, in ascending order, because the kernel
// lists them in the order of a hash. It omits addresses that are temporary (RFC 8981), deprecated, tentative, or
// duplicates of another host's.
func parseInet6(r io.Reader, name string) (addrs []netip.Addr, err error) {
	const unusable = syscall.IFA_F_TEMPORARY | syscall.IFA_F_DEPRECATED | syscall.IFA_F_TENTATIVE | syscall.IFA_F_DADFAILED
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		a, flags, ok := parseInet6Line(strings.Fields(lines.Text()), name)
		if ok && flags&unusable == 0 {
			addrs = append(addrs, a)
		}
	}
	sort.SliceStable(addrs, func(i, j int) bool { return addrs[i].Less(addrs[j]) })
	return addrs, lines.Err()
}

// parseInet6Line reads address, interface index, prefix length, scope, flags, all hexadecimal, and interface name.
func parseInet6Line(fields []string, name string) (a netip.Addr, flags uint64, ok bool) {
	if len(fields) != 6 || len(fields[0]) != 32 || fields[5] != name {
		return netip.Addr{}, 0, false
	}
	octets, err := hex.DecodeString(fields[0])
	if err != nil {
		return netip.Addr{}, 0, false
	}
	flags, err = strconv.ParseUint(fields[4], 16, 32)
	a, _ = netip.AddrFromSlice(octets)
	return a, flags, err == nil
}

// groups has the rtnetlink multicast groups (rtnetlink(7)). It includes links because the kernel does not report the IPv4 routes
// that it removes when their link goes down.
const groups = 1<<(syscall.RTNLGRP_LINK-1) |
	1<<(syscall.RTNLGRP_IPV4_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV4_ROUTE-1) |
	1<<(syscall.RTNLGRP_IPV6_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV6_ROUTE-1)

// watchKernel calls changed after each kernel report of a changed address, route or link. It returns nil when ctx ends.
// It also calls changed once when it begins to listen, so that no earlier change is missed.
// Calls do not overlap. One change may cause several calls, and a call may find no changed address.
func watchKernel(ctx context.Context, changed func()) error {
	socket, err := listen()
	if err != nil {
		return err
	}
	defer socket.Close()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()

	// Only the arrival of a message matters; the kernel drops the part that does not fit.
	var message [1]byte
	for ctx.Err() == nil {
		changed()
		_, err := socket.Read(message[:])
		// ENOBUFS: the kernel dropped messages because the reader was slow. Something did change.
		if err != nil && !errors.Is(err, syscall.ENOBUFS) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// listen opens a non-blocking netlink socket, so that Close ends a Read.
func listen() (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", hinted(err))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: groups}); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
