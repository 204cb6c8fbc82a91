package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Control tells whether this host is cut off. With Addresses one of them has to accept a connection.
// Without, a default gateway has to answer: it accepts or refuses a connection. A gateway that never
// answered since the start is no control, because some drop what they do not want.
type Control struct {
	Addresses []string            // host:port
	Gateways  func() []netip.Addr // of this host

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
	all := c.Gateways()
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
