package nameserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// endpoint is one address and port, with its TCP and UDP sockets.
type endpoint struct {
	tcp       *net.TCPListener // nil: the service manager passed none
	udp       []*net.UDPConn   // all of one port: the kernel spreads the clients over them
	inherited bool
}

func (e endpoint) address() string {
	if e.tcp == nil {
		return e.udp[0].LocalAddr().String()
	}
	return e.tcp.Addr().String()
}

// drainTime is the time to answer queries in the kernel's buffers, which closing the
// sockets would lose.
const drainTime = 50 * time.Millisecond

// stop ends the reading of the UDP sockets: after drainTime, or at once if the service
// manager keeps them.
func (e endpoint) stop() {
	at := longAgo
	if !e.inherited {
		at = time.Now().Add(drainTime)
	}
	for _, udp := range e.udp {
		udp.SetReadDeadline(at)
	}
}

func (e endpoint) close() {
	if e.tcp != nil {
		e.tcp.Close()
	}
	for _, udp := range e.udp {
		udp.Close()
	}
}

// listenAll binds all addresses or none.
func listenAll(addresses []string) (all []endpoint, err error) {
	for _, address := range addresses {
		ends, err := listen(address)
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("listen for DNS on %s: %w", address, err)
		}
		all = append(all, ends...)
	}
	return all, nil
}

// Bind binds the addresses. Listen does it otherwise.
func (c *Config) Bind() (err error) {
	c.ends, err = listenAll(c.Addresses)
	return err
}

// Bind binds addresses as Listen does. The sockets are for Config.Listeners and Config.PacketConns.
func Bind(addresses []string) (listeners []net.Listener, conns []net.PacketConn, err error) {
	ends, err := listenAll(addresses)
	for _, end := range ends {
		listeners = append(listeners, end.tcp)
		for _, udp := range end.udp {
			conns = append(conns, udp)
		}
	}
	return listeners, conns, err
}

// portTries bounds the search for a port that is free for TCP and UDP alike.
const portTries = 20

// listen binds one address. An address without a host, such as ":53", means both families.
// "0.0.0.0" means IPv4 only, as the operator wrote it.
func listen(address string) ([]endpoint, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, err
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	wanted := []netip.AddrPort{resolved.AddrPort()}
	if resolved.IP == nil {
		port := uint16(resolved.Port)
		wanted = []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), port), netip.AddrPortFrom(netip.IPv6Unspecified(), port)}
	}
	for try := 1; ; try++ {
		ends, err := bind(wanted)
		if err == nil || try == portTries || resolved.Port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return ends, err
		}
	}
}

// bind binds all addresses to one port. It leaves out a family that this host lacks.
func bind(wanted []netip.AddrPort) (ends []endpoint, err error) {
	for _, address := range wanted {
		if len(ends) > 0 {
			address = netip.AddrPortFrom(address.Addr(), port(ends[0].tcp.Addr()))
		}
		var end endpoint
		end, err = bindOne(address)
		if errors.Is(err, syscall.EAFNOSUPPORT) && len(wanted) > 1 {
			continue
		}
		if err != nil {
			closeAll(ends)
			return nil, err
		}
		ends = append(ends, end)
	}
	if len(ends) == 0 {
		return nil, err
	}
	return ends, nil
}

func port(address net.Addr) uint16 { return address.(*net.TCPAddr).AddrPort().Port() }

func closeAll(ends []endpoint) {
	for _, end := range ends {
		end.close()
	}
}

// inherit makes endpoints of bound sockets. TCP and UDP of one address are one endpoint.
func inherit(listeners []net.Listener, conns []net.PacketConn) (ends []endpoint, err error) {
	for _, l := range listeners {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return nil, fmt.Errorf("inherited DNS socket %s is of %s, want TCP", l.Addr(), l.Addr().Network())
		}
		ends = append(ends, endpoint{tcp: tcp, inherited: true})
	}
	for _, c := range conns {
		udp, ok := c.(*net.UDPConn)
		if !ok {
			return nil, fmt.Errorf("inherited DNS socket %s is of %s, want UDP", c.LocalAddr(), c.LocalAddr().Network())
		}
		if err := prepareUDP(udp); err != nil {
			return nil, fmt.Errorf("inherited DNS socket %s: %w", c.LocalAddr(), err)
		}
		at := slices.IndexFunc(ends, func(e endpoint) bool { return e.address() == udp.LocalAddr().String() })
		if at < 0 {
			ends = append(ends, endpoint{inherited: true})
			at = len(ends) - 1
		}
		ends[at].udp = append(ends[at].udp, udp)
	}
	return ends, nil
}

// prepareUDP enlarges the socket's buffers, and on a wildcard address asks the kernel for
// each query's destination.
func prepareUDP(udp *net.UDPConn) error {
	udp.SetReadBuffer(udpBuffer) // as far as the system allows
	udp.SetWriteBuffer(udpBuffer)
	local, _ := udp.LocalAddr().(*net.UDPAddr)
	if local == nil || !local.IP.IsUnspecified() {
		return nil
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	return receiveDestination(raw)
}

// bindOne binds the sockets of one address and port: TCP, and UDP once per core if the
// system can share the port.
func bindOne(address netip.AddrPort) (e endpoint, err error) {
	family := "6" // Go's IPv6-only socket
	address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	if address.Addr().Is4() {
		family = "4"
	}
	// A connection lives for seconds, so keep-alive probes and MPTCP would only make
	// accepting it more expensive.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	listener, err := config.Listen(context.Background(), "tcp"+family, address.String())
	if err != nil {
		return endpoint{}, err
	}
	e.tcp = listener.(*net.TCPListener)
	address = netip.AddrPortFrom(address.Addr(), port(e.tcp.Addr()))
	for len(e.udp) < runtime.GOMAXPROCS(0) {
		udp, err := listenUDP("udp"+family, address, len(e.udp) > 0)
		if err != nil && len(e.udp) > 0 {
			break // the system cannot share the port: one socket is enough
		}
		if err != nil {
			e.close()
			return endpoint{}, err
		}
		e.udp = append(e.udp, udp)
	}
	return e, nil
}

// udpBuffer is the size of a socket's buffer, in octets. It holds some thousands of queries
// while the program does not run. The kernel drops further queries, which costs least.
const udpBuffer = 2 << 20

// listenUDP binds one socket. The first one must find the port free, and shares it only
// then: otherwise two programs could each get a part of the queries.
func listenUDP(network string, address netip.AddrPort, further bool) (*net.UDPConn, error) {
	var config net.ListenConfig
	if further {
		config.Control = func(_, _ string, conn syscall.RawConn) error { return sharePort(conn) }
	}
	conn, err := config.ListenPacket(context.Background(), network, address.String())
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	raw, err := udp.SyscallConn()
	if err == nil {
		err = prepareUDP(udp)
	}
	if err != nil {
		udp.Close()
		return nil, err
	}
	if !further {
		sharePort(raw) // if it cannot be shared, the second socket is refused
	}
	return udp, nil
}
