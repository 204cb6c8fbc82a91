// The rules of each format: the records of one endpoint.

package mesh

import (
	"fmt"
	"net/netip"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Types of records.
const (
	typeTXT  = "TXT"
	typeA    = "A"
	typeAAAA = "AAAA"
	typeSRV  = "SRV"
)

// rule is how a format publishes endpoints.
type rule struct {
	home   string // where a set without values stands
	typ    string // of the records at home
	octets int    // greatest size of an answer; 0 any

	// records returns the records of one endpoint, or the reason why the format has none for it.
	records func(e endpoint) ([]record, msg.Text)
}

// record is one record: an owner name, a type, and the data as in Set.Values.
type record struct{ name, typ, value string }

const (
	// maxUDP is the greatest size of an answer over UDP without EDNS (RFC 1035, section 4.2.1). vnt
	// loses what is beyond it.
	maxUDP = 512

	// maxRecords is the greatest number of records of a set: BIND since 9.18.28 answers SERVFAIL for a name with more, and as
	// a secondary it refuses the whole zone (max-records-per-type). libp2p reads no more either. The records have at
	// most 28 000 octets, so one update message of 64 KiB has room for the old set and the new one.
	maxRecords = 100
)

// ruleOf returns the rule of a format that Parse returned. ok is false for a format without records of
// its own. parent is <prefix>.<domain>.
func ruleOf(format, parent string) (r rule, ok bool) {
	r = rule{home: parent, typ: typeTXT}
	switch format {
	case HostPort:
		r.octets = maxUDP
		r.records = func(e endpoint) ([]record, msg.Text) { return hostPort(parent, e) }
	case Address:
		r.typ = typeA
		r.records = func(e endpoint) ([]record, msg.Text) { return address(parent, e) }
	case EasyTierSRV:
		r.home, r.typ = "_easytier._tcp."+parent, typeSRV
		r.records = func(e endpoint) ([]record, msg.Text) { return easyTier(parent, e) }
	case IP4P:
		r.home, r.typ = "ip4p."+parent, typeAAAA
		r.records = func(e endpoint) ([]record, msg.Text) { return ip4p(r.home, e) }
	case DNSAddr:
		r.home = "_dnsaddr." + parent
		r.records = func(e endpoint) ([]record, msg.Text) { return dnsAddr(r.home, e) }
	case Iroh:
		r.home = "_iroh." + parent
		r.records = func(e endpoint) ([]record, msg.Text) { return iroh(parent, e) }
	default:
		labels, srv := strings.CutPrefix(format, SRV)
		r.home, r.typ = labels+"."+parent, typeSRV
		r.records = func(e endpoint) ([]record, msg.Text) { return service(labels, parent, e) }
		return r, srv
	}
	return r, true
}

var onlyAddresses = msg.Say("the host is a name, and this format has addresses only")

func noScheme(e endpoint) msg.Text {
	return msg.Textf("this format has no endpoints of scheme %q", e.scheme)
}

// hostPort: vnt refuses the whole name for one value that is no literal socket address.
func hostPort(parent string, e endpoint) ([]record, msg.Text) {
	if e.name != "" {
		return nil, onlyAddresses
	}
	return []record{{parent, typeTXT, netip.AddrPortFrom(e.addr, e.port).String()}}, ""
}

func address(parent string, e endpoint) ([]record, msg.Text) {
	if e.name != "" {
		return nil, onlyAddresses
	}
	return []record{addressAt(parent, e.addr)}, ""
}

func addressAt(name string, addr netip.Addr) record {
	if addr.Is4() {
		return record{name, typeA, addr.String()}
	}
	return record{name, typeAAAA, addr.String()}
}

// protocols maps the schemes of SRV records to the label of their transport.
var protocols = map[string]string{
	"tcp": overTCP, "ws": overTCP, "wss": overTCP,
	"udp": overUDP, "quic": overUDP, "wg": overUDP,
}

// service returns the records of the format SRV.
func service(labels, parent string, e endpoint) ([]record, msg.Text) {
	_, proto, _ := strings.Cut(labels, ".")
	if protocols[e.scheme] != proto {
		return nil, noScheme(e)
	}
	return srv(labels, parent, e)
}

func easyTier(parent string, e endpoint) ([]record, msg.Text) {
	switch e.scheme {
	case "tcp", "udp", "wg", "quic", "ws", "wss", "faketcp":
		return srv("_easytier._"+e.scheme, parent, e)
	}
	return nil, noScheme(e)
}

// srv returns an SRV record at labels below parent, and the address of its target if that is not a name
// already. Priority and weight are 1 in each record: EasyTier takes the priority as the weight and ends
// if the sum is 0, and other clients draw evenly.
func srv(labels, parent string, e endpoint) ([]record, msg.Text) {
	if e.noName != "" {
		return nil, e.noName
	}
	records := []record{{labels + "." + parent, typeSRV, fmt.Sprintf("1 1 %d %s", e.port, e.target)}}
	if e.name == "" {
		records = append(records, addressAt(e.target, e.addr))
	}
	return records, ""
}

// targetLabel returns the label of an address: 203-0-113-7, or all 32 hex digits in groups of four.
func targetLabel(addr netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, addr.StringExpanded())
}

// ip4p returns an IPv4 address and a port as the IPv6 address 2001::<port>:<high 16 bits>:<low 16 bits>.
func ip4p(name string, e endpoint) ([]record, msg.Text) {
	if e.name != "" {
		return nil, onlyAddresses
	}
	if !e.addr.Is4() {
		return nil, msg.Say("the host is an IPv6 address, and this format has IPv4 only")
	}
	four := e.addr.As4()
	octets := [16]byte{0: 0x20, 1: 0x01, 10: byte(e.port >> 8), 11: byte(e.port)}
	copy(octets[12:], four[:])
	return []record{{name, typeAAAA, netip.AddrFrom16(octets).String()}}, ""
}

// multiaddrs maps schemes to what is before and after the port in a multiaddr.
var multiaddrs = map[string]struct{ before, after string }{
	"tcp": {"/tcp/", ""}, "ws": {"/tcp/", "/ws"}, "wss": {"/tcp/", "/wss"},
	"udp": {"/udp/", ""}, "quic": {"/udp/", "/quic-v1"},
}

// dnsAddr returns the multiaddr of an endpoint (multiformats/multiaddr) in the form of libp2p's DNSADDR.
func dnsAddr(name string, e endpoint) ([]record, msg.Text) {
	parts, ok := multiaddrs[e.scheme]
	switch {
	case !ok:
		return nil, noScheme(e)
	case e.PeerID == "":
		return nil, NoPeerID
	case !isLibp2pID(e.PeerID):
		return nil, msg.Textf("%q is no peer id of libp2p", e.PeerID)
	}
	host := "/dns/" + e.name
	switch {
	case e.addr.Is4():
		host = "/ip4/" + e.addr.String()
	case e.addr.Is6():
		host = "/ip6/" + e.addr.String()
	}
	value := fmt.Sprintf("dnsaddr=%s%s%d%s/p2p/%s", host, parts.before, e.port, parts.after, e.PeerID)
	if len(value) > MaxValue {
		return nil, (&TooLongError{Octets: len(value), Most: MaxValue}).Message()
	}
	return []record{{name, typeTXT, value}}, ""
}

// Reasons to leave an endpoint out.
var (
	NoPeerID = msg.Say("the endpoint has no peer_id")
	TooMany  = msg.Say("too_many") // maxRecords have their turns before it
)

// iroh returns the address of an endpoint: one address a record, because iroh drops a list without a
// word. Relays are not published: the scheme does not tell a relay from another web server.
func iroh(parent string, e endpoint) ([]record, msg.Text) {
	if e.scheme != "udp" && e.scheme != "quic" {
		return nil, noScheme(e)
	}
	if e.name != "" {
		return nil, onlyAddresses
	}
	if e.PeerID == "" {
		return nil, NoPeerID
	}
	label, ok := irohLabel(e.PeerID)
	if !ok {
		return nil, msg.Textf("%q is no endpoint id of iroh: want 64 hex digits or 52 characters of z-base-32", e.PeerID)
	}
	value := "addr=" + netip.AddrPortFrom(e.addr, e.port).String()
	return []record{{"_iroh." + label + "." + parent, typeTXT, value}}, ""
}

// nameFault returns the reason why a name cannot have records.
func nameFault(name string) msg.Text {
	return msg.Textf("%q is no DNS name: a label has 1 to %d letters, digits, hyphens or underscores, a name at most %d octets",
		name, dns.MaxLabel, dns.MaxName)
}
