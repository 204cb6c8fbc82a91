// Formats turn the endpoints of a usage into DNS records in the forms that clients read. A format is a name
// such as "hostport" or "srv:_minecraft._tcp"; it decides owner names, types and values.

package mesh

import (
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// The formats. SRV is the beginning of one: "_service._proto" follows.
const (
	Mesh1       = ValueFormat // the value of package mesh, at a name of its own; it has no Set
	URLs        = "urls"      // a list over HTTP; it has no record
	HostPort    = "hostport"
	Address     = "a"
	SRV         = "srv:"
	EasyTierSRV = "easytier-srv"
	IP4P        = "ip4p"
	DNSAddr     = "dnsaddr"
	Iroh        = "iroh"
)

// ACME is not among the formats that a usage can have: it names the challenges of nodes (RFC 8555, section 8.4).
const ACME = "acme"

// ChallengeName returns the owner name of the challenges for a name.
func ChallengeName(name string) string { return "_acme-challenge." + name }

// PlainFormats are the formats without parameters.
var PlainFormats = []string{Mesh1, URLs, HostPort, Address, EasyTierSRV, IP4P, DNSAddr, Iroh}

// MaxFormats is the greatest number of formats of one usage.
const MaxFormats = 16

// Protocols of SRV records, as labels.
const (
	overTCP = "_tcp"
	overUDP = "_udp"
)

// ParseFormats returns the formats in their normal form: the labels of SRV in lower case. It refuses an unknown
// format, one that is given twice, and more than MaxFormats, each with the code format_invalid.
func ParseFormats(names []string) ([]string, error) {
	if len(names) > MaxFormats {
		return nil, msg.Refuse(msg.FormatInvalid, names[MaxFormats], msg.Textf("%d formats, %d at most", len(names), MaxFormats))
	}
	var formats []string
	for _, name := range names {
		format, fault := parse(name)
		if fault == "" && slices.Contains(formats, format) {
			fault = msg.Say("it is given twice")
		}
		if fault != "" {
			return nil, msg.Refuse(msg.FormatInvalid, name, fault)
		}
		formats = append(formats, format)
	}
	return formats, nil
}

func parse(name string) (format string, fault msg.Text) {
	if slices.Contains(PlainFormats, name) {
		return name, ""
	}
	labels, ok := strings.CutPrefix(name, SRV)
	if !ok {
		return "", msg.Textf("there is no such format: want %s or srv:_service._tcp", strings.Join(PlainFormats, ", "))
	}
	labels = strings.ToLower(labels)
	service, proto, _ := strings.Cut(labels, ".")
	if len(service) < 2 || service[0] != '_' || dns.NameFault(service) != "" || proto != overTCP && proto != overUDP {
		return "", msg.Say("want srv:_service._tcp or srv:_service._udp")
	}
	return SRV + labels, ""
}
