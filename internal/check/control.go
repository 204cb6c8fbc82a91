package check

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Control tells whether this host is cut off. With Addresses one of them has to accept a connection.
// Without, a default gateway has to answer: it accepts or refuses a connection. A gateway that never
// answered since the start is no control, because some drop what they do not want.
type Control struct {
	Addresses []string            // host:port
	gateways  func() []netip.Addr // nil: those of the kernel

	mu      sync.Mutex
	answers map[netip.Addr]bool // gateways that have answered
}

// Reachable reports whether a control answers, within three seconds. It is not known without one.
func (c *Control) Reachable(ctx context.Context) (ok, known bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if len(c.Addresses) > 0 {
		return anyOf(c.Addresses, func(address string) bool { return connect(ctx, &net.Dialer{}, address) == nil }), true
	}
	gateways := c.gateways
	if gateways == nil {
		gateways = defaultGateways
	}
	all := gateways()
	ok = anyOf(all, func(a netip.Addr) bool { return c.answered(ctx, a) })
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok, len(c.answers) > 0 // also when the route is gone
}

// anyOf asks all at once, and reports whether one says yes.
func anyOf[T any](all []T, ask func(T) bool) bool {
	yes := make(chan bool, len(all))
	for _, one := range all {
		go func() { yes <- ask(one) }()
	}
	for range all {
		if <-yes {
			return true
		}
	}
	return false
}

// gatewayPort is one that hardly any gateway serves: a refusal is as good an answer.
const gatewayPort = 9

// answered reports whether a gateway accepts or refuses a connection.
func (c *Control) answered(ctx context.Context, gateway netip.Addr) bool {
	err := connect(ctx, &net.Dialer{}, netip.AddrPortFrom(gateway, gatewayPort).String())
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[netip.Addr]bool{}
	}
	c.answers[gateway] = true
	return true
}

// defaultGateways reads the gateways of the default routes of the kernel.
func defaultGateways() (all []netip.Addr) {
	for name, parse := range map[string]func([]string) netip.Addr{"route": gateway4, "ipv6_route": gateway6} {
		if file, err := os.Open("/proc/self/net/" + name); err == nil {
			all = append(all, parseGateways(file, parse)...)
			file.Close()
		}
	}
	return all
}

func parseGateways(r io.Reader, parse func(fields []string) netip.Addr) (all []netip.Addr) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if a := parse(strings.Fields(lines.Text())); a.IsValid() && !a.IsUnspecified() {
			all = append(all, a)
		}
	}
	return all
}

// gateway4 reads a line of /proc/net/route: Iface Destination Gateway ... Mask; hexadecimal in the
// order of octets of this host.
func gateway4(fields []string) netip.Addr {
	if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" {
		return netip.Addr{}
	}
	octets, err := hex.DecodeString(fields[2])
	if err != nil || len(octets) != 4 {
		return netip.Addr{}
	}
	var address [4]byte
	binary.NativeEndian.PutUint32(address[:], binary.BigEndian.Uint32(octets))
	return netip.AddrFrom4(address)
}

// gateway6 reads a line of /proc/net/ipv6_route: Destination Length Source Length Gateway Metric ...
// Iface.
func gateway6(fields []string) netip.Addr {
	if len(fields) < 10 || strings.Trim(fields[0], "0") != "" || fields[1] != "00" {
		return netip.Addr{}
	}
	octets, err := hex.DecodeString(fields[4])
	address, ok := netip.AddrFromSlice(octets)
	if err != nil || !ok {
		return netip.Addr{}
	}
	if address.IsLinkLocalUnicast() {
		address = address.WithZone(fields[9])
	}
	return address
}
