// Endpoints, taken apart.

package mesh

import (
	"net/netip"
	"strconv"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// endpoint is an endpoint of a usage in its parts. Its host is an address or a name.
type endpoint struct {
	Endpoint
	scheme string
	addr   netip.Addr // invalid if the host is a name
	name   string     // the host's, folded; "" if it is an address
	port   uint16

	target string   // of SRV records: the host's name, or a name below the usage's that has the address
	noName msg.Text // why the target cannot be a name; "" it can
}

// reading is an endpoint, or the reason why it cannot be taken apart.
type reading struct {
	endpoint endpoint
	fault    msg.Text
}

// readAll takes endpoints apart. parent is <prefix>.<domain>.
func readAll(endpoints []Endpoint, parent string) (all []reading) {
	for _, e := range endpoints {
		parsed, fault := parseEndpoint(e)
		if parsed.target = parsed.name; parsed.addr.IsValid() {
			parsed.target = targetLabel(parsed.addr) + "." + parent
			if dns.NameFault(parsed.target) != "" {
				parsed.noName = nameFault(parsed.target)
			}
		}
		all = append(all, reading{parsed, fault})
	}
	return all
}

// parseEndpoint takes an endpoint apart, and returns the reason why that cannot be done. An IPv4 address
// in IPv6 form becomes an IPv4 address.
func parseEndpoint(e Endpoint) (endpoint, msg.Text) {
	fault := (&EndpointError{Text: e.Text}).Message()
	scheme, rest, ok := strings.Cut(e.Text, "://")
	if !ok || scheme == "" {
		return endpoint{Endpoint: e}, fault
	}
	parsed := endpoint{Endpoint: e, scheme: strings.ToLower(scheme)}
	if at, err := netip.ParseAddrPort(rest); err == nil && at.Port() > 0 && at.Addr().Zone() == "" {
		parsed.addr, parsed.port = at.Addr().Unmap(), at.Port()
		return parsed, ""
	}
	host, digits, _ := strings.Cut(rest, ":")
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || host == "" {
		return parsed, fault
	}
	parsed.name, parsed.port = dns.Fold(host), uint16(port)
	if dns.NameFault(parsed.name) != "" || isNumber(parsed.name[strings.LastIndexByte(parsed.name, '.')+1:]) {
		return parsed, msg.Textf("the host %q is neither an address nor a name", host)
	}
	return parsed, ""
}

// isNumber reports whether readers of URLs take a host that ends in this label for an IPv4 address
// (WHATWG URL, "ends in a number").
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
