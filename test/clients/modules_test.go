// Readers that are the clients' own code.

package clients

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/go-discover/provider/srv"
	"github.com/multiformats/go-multiaddr"
	madns "github.com/multiformats/go-multiaddr-dns"
	"github.com/slackhq/nebula"
	xlog "github.com/xtls/xray-core/common/log"
	xnet "github.com/xtls/xray-core/common/net"
	"github.com/xtls/xray-core/transport/internet"
)

// useServer makes every reader of this process ask one DNS server: xray-core has its own variable.
func useServer(server string) *net.Resolver {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: patience}).DialContext(ctx, network, server)
	}}
	net.DefaultResolver, xnet.DefaultResolver = resolver, resolver
	return resolver
}

// nothing turns the error for a name without records into no error.
func nothing(err error) error {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok && lookup.IsNotFound {
		return nil
	}
	return err
}

// silent drops Xray's log, which goes to the standard output.
type silent struct{}

func (silent) Handle(xlog.Message) {}

func init() { xlog.RegisterHandler(silent{}) }

// dialled is a dialer of Xray that only tells where it would connect to.
type dialled struct{ to xnet.Destination }

var errDialled = errors.New("the destination is known")

func (d *dialled) Dial(_ context.Context, _ xnet.Address, to xnet.Destination, _ *internet.SocketConfig) (xnet.Conn, error) {
	d.to = to
	return nil, errDialled
}

func (d *dialled) DestIpAddress() net.IP { return nil }

// xray returns where Xray connects to instead of name:1, if the strategy finds records.
func (w *world) xray(strategy internet.AddressPortStrategy, name string) ([]string, error) {
	var seen dialled
	internet.UseAlternativeSystemDialer(&seen)
	defer internet.UseAlternativeSystemDialer(nil)
	_, err := internet.DialSystem(context.Background(), xnet.TCPDestination(xnet.DomainAddress(name), 1), &internet.SocketConfig{AddressPortStrategy: strategy})
	if !errors.Is(err, errDialled) {
		return nil, err
	}
	host := strings.Trim(seen.to.Address.String(), "[]")
	if seen.to.Port == 1 && host == name {
		return nil, nil
	}
	return w.resolved(host, seen.to.Port.Value())
}

func (w *world) xrayTXT() ([]string, error) {
	return w.xray(internet.AddressPortStrategy_TxtPortAndAddress, w.parent+".")
}

func (w *world) xraySRV() ([]string, error) {
	return w.xray(internet.AddressPortStrategy_SrvPortAndAddress, service+"._tcp."+w.parent+".")
}

// resolved returns host:port for each address of a target below our name, and for any other target itself.
func (w *world) resolved(target string, port uint16) ([]string, error) {
	target = strings.TrimSuffix(target, ".")
	if addr, err := netip.ParseAddr(target); err == nil {
		return []string{netip.AddrPortFrom(addr, port).String()}, nil
	}
	if !strings.HasSuffix(target, "."+w.parent) {
		return []string{fmt.Sprintf("%s:%d", target, port)}, nil
	}
	addrs, err := w.resolver.LookupNetIP(context.Background(), "ip", target+".")
	var all []string
	for _, addr := range addrs {
		all = append(all, netip.AddrPortFrom(addr.Unmap(), port).String())
	}
	return all, err
}

// discover returns what Consul, Nomad, Vault and OpenBao find with provider=srv.
func (w *world) discover(proto string) ([]string, error) {
	found, err := (&srv.Provider{}).Addrs(map[string]string{"provider": "srv", "service": service[1:], "proto": proto, "domain": w.parent + "."}, nil)
	var all []string
	for _, at := range found {
		target, port, errSplit := net.SplitHostPort(at)
		number, errPort := net.LookupPort("tcp", port)
		addrs, errResolve := w.resolved(target, uint16(number))
		if err := errors.Join(errSplit, errPort, errResolve); err != nil {
			return nil, err
		}
		all = append(all, addrs...)
	}
	return all, nothing(err)
}

// libp2p returns what libp2p dials for /dnsaddr/<name>.
func (w *world) libp2p() ([]string, error) {
	name, errName := multiaddr.NewMultiaddr("/dnsaddr/" + w.parent + ".")
	resolver, errResolver := madns.NewResolver(madns.WithDefaultResolver(w.resolver))
	if err := errors.Join(errName, errResolver); err != nil {
		return nil, err
	}
	found, err := resolver.Resolve(context.Background(), name)
	var all []string
	for _, addr := range found {
		all = append(all, addr.String())
	}
	return all, nothing(err)
}

// lighthouse is the static_host_map of a running Nebula with our name and a port.
type lighthouse struct {
	addrs   func() []netip.AddrPort
	changed chan struct{}
	before  []string // what was wanted at the last reading

	patience time.Duration // for a change to arrive
}

// nebulaPort is of the static_host_map, because Nebula takes no port from DNS.
const nebulaPort = 4242

// startNebula makes Nebula look its lighthouse up every 20 ms.
func (w *world) startNebula(ctx context.Context) (*lighthouse, error) {
	l := &lighthouse{changed: make(chan struct{}, 1), patience: patience}
	at := fmt.Sprintf("%s.:%d", w.parent, nebulaPort)
	host, err := nebula.NewHostnameResults(ctx, slog.New(slog.DiscardHandler), 20*time.Millisecond, "ip", patience, []string{at}, func() {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	l.addrs = host.GetAddrs
	return l, nil
}

// read waits until Nebula has the wanted list, and returns what it has in the end. The list must not be
// empty on the way from one that is not to another that is not.
func (l *lighthouse) read(want []string) ([]string, error) {
	gapless := len(l.before) > 0 && len(want) > 0
	l.before = want
	deadline := time.After(l.patience)
	for {
		var all []string
		for _, addr := range l.addrs() {
			all = append(all, addr.String())
		}
		switch {
		case same(all, want):
			return all, nil
		case len(all) == 0 && gapless:
			return nil, errors.New("Nebula's list is empty between two lists")
		}
		select {
		case <-l.changed:
		case <-deadline:
			return all, nil
		}
	}
}
