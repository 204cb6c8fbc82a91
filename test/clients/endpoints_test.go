// Random endpoints, and what each client has to read of them by the rules.

package clients

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
)

// endpoint is an endpoint of a usage. Its host is an address or a name.
type endpoint struct {
	scheme string
	addr   netip.Addr
	name   string
	port   uint16
}

func (e endpoint) host() string {
	if e.name != "" {
		return fmt.Sprintf("%s:%d", e.name, e.port)
	}
	return netip.AddrPortFrom(e.addr, e.port).String()
}

func (e endpoint) String() string { return e.scheme + "://" + e.host() }

// service is the label of the records of the format srv.
const service = "_nodes"

// formats are all formats.
var formats = []string{"mesh1", "urls", "hostport", "a", "srv:" + service + "._tcp", "srv:" + service + "._udp", "easytier-srv", "ip4p", "dnsaddr", "iroh"}

// Ids of a peer, as libp2p and iroh want them.
const (
	libp2pID = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
	irohID   = "i3cx9nburopcommx67otytzpc64oqmewftce4ydd7fbpuj4iyk5y"
)

// round is one change of the usage.
type round struct {
	endpoints []endpoint
	formats   []string
	peer      string
}

func (r round) has(format string) bool { return slices.Contains(r.formats, format) }

func (r round) texts() []string {
	texts := []string{}
	for _, e := range r.endpoints {
		texts = append(texts, e.String())
	}
	return texts
}

// room is the octets that endpoints may have in a value of mesh1, with a space before each.
const room = 255 - len("v=mesh1 n=42 o=000000000000")

// randomRound returns a change. One in ten has more endpoints than one TXT record can have, and not the
// format mesh1.
func randomRound(random *rand.Rand) round {
	var r round
	most, large := random.IntN(9), random.IntN(10) == 0
	if large {
		most = random.IntN(101) // a set in DNS has at most 100
	}
	for _, format := range formats {
		if random.IntN(20) > 0 && !(large && format == "mesh1") {
			r.formats = append(r.formats, format)
		}
	}
	if len(r.formats) == 0 {
		r.formats = []string{"urls"}
	}
	r.peer = []string{libp2pID, irohID}[random.IntN(2)]
	left := room
	for range most {
		e := randomEndpoint(random)
		if left -= 1 + len(e.String()); (left < 0 && !large) || slices.Contains(r.endpoints, e) {
			break
		}
		r.endpoints = append(r.endpoints, e)
	}
	return r
}

func randomEndpoint(random *rand.Rand) endpoint {
	schemes := []string{"tcp", "tcp", "udp", "udp", "quic", "quic", "ws", "wss", "wg", "faketcp", "nebula"}
	e := endpoint{scheme: schemes[random.IntN(len(schemes))], port: uint16(1 + random.IntN(65535))}
	switch random.IntN(8) {
	case 0:
		e.name = fmt.Sprintf("h%d.example.net", random.IntN(100))
	case 1, 2:
		e.addr = netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", random.IntN(3), 1+random.IntN(65535)))
	default:
		e.addr = netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(256))})
	}
	return e
}

// wanted returns the endpoints of a format, each in the words of its client.
func (r round) wanted(format string, words func(endpoint) string) []string {
	all := []string{}
	if !r.has(format) {
		return all
	}
	for _, e := range r.endpoints {
		if text := words(e); text != "" {
			all = append(all, text)
		}
	}
	return unique(all)
}

// unique returns texts without those that are there already, in their order.
func unique(texts []string) (all []string) {
	for _, text := range texts {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// literal returns host:port of an endpoint with an address.
func literal(e endpoint) string {
	if e.name != "" {
		return ""
	}
	return e.host()
}

// of returns words that are only for endpoints of some schemes.
func of(words func(endpoint) string, schemes ...string) func(endpoint) string {
	return func(e endpoint) string {
		if !slices.Contains(schemes, e.scheme) {
			return ""
		}
		return words(e)
	}
}

// hostPorts returns the first endpoints for which an answer of 512 octets has room.
func (r round) hostPorts(parent string) (all []string) {
	size := 12 + len(parent) + 2 + 4
	for _, text := range r.wanted("hostport", literal) {
		if size+13+len(text) <= 512 {
			size += 13 + len(text)
			all = append(all, text)
		}
	}
	return all
}

// nebulas returns the addresses with the port of the static_host_map.
func nebulas(e endpoint) string {
	if e.name != "" {
		return ""
	}
	return netip.AddrPortFrom(e.addr, nebulaPort).String()
}

func ip4p(e endpoint) string {
	if !e.addr.Is4() {
		return ""
	}
	return e.host()
}

// multiaddrs returns the multiaddrs of the first 100 endpoints that have one.
func (r round) multiaddrs() []string {
	if r.peer != libp2pID {
		return nil
	}
	all := r.wanted("dnsaddr", func(e endpoint) string {
		transport, ok := map[string]string{"tcp": "/tcp/%d", "udp": "/udp/%d", "quic": "/udp/%d/quic-v1", "ws": "/tcp/%d/ws", "wss": "/tcp/%d/wss"}[e.scheme]
		host := "/ip4/" + e.addr.String()
		if e.name != "" {
			host = "/dns/" + e.name
		} else if e.addr.Is6() {
			host = "/ip6/" + e.addr.String()
		}
		if !ok {
			return ""
		}
		return host + fmt.Sprintf(transport, e.port) + "/p2p/" + libp2pID
	})
	return all[:min(len(all), 100)]
}

func (r round) irohs() []string {
	if r.peer != irohID {
		return nil
	}
	return r.wanted("iroh", of(literal, "udp", "quic"))
}

// same reports whether two lists have the same texts.
func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// difference says what two lists do not share.
func difference(got, want []string) string {
	var all []string
	for _, text := range got {
		if !slices.Contains(want, text) {
			all = append(all, "+"+text)
		}
	}
	for _, text := range want {
		if !slices.Contains(got, text) {
			all = append(all, "-"+text)
		}
	}
	return strings.Join(all, " ")
}
