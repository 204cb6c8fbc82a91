// Package mesh is what the program is about, as types and pure functions: the configuration, the
// services, the usages with the rules of their prefixes and names, and the value that a network
// publishes in a TXT record:
//
//	v=mesh1 n=42 o=5f0c2a91d3be tcp://203.0.113.7:11010 udp://203.0.113.7:11010
//
// The value is one character-string. A reader that takes a TXT record for a
// list of URLs separated by spaces may use it as it is: no word before the
// endpoints parses as a URL.
package mesh

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// MaxValue is the size of a value in octets: that of one character-string
// (RFC 1035, section 3.3).
const MaxValue = 255

// Label is the first label of every name that is reserved.
const Label = "_mesh"

const version = "v=mesh1"

// AnyOwner stands for every owner: all have one length.
const AnyOwner = "000000000000"

// Value gives the text to publish. Network is the network's id in decimal,
// empty for a record that belongs to none.
func Value(network, owner string, endpoints []string) string {
	words := []string{version}
	if network != "" {
		words = append(words, "n="+network)
	}
	words = append(words, "o="+owner)
	return strings.Join(append(words, endpoints...), " ")
}

const probe = "probe="

// Probe gives a value that has an owner's mark, and belongs to no network: it is written
// only to see what becomes of it. mark tells it from others.
func Probe(owner, mark string) string { return Value("", owner, []string{probe + mark}) }

// IsProbe reports whether a value is one of Probe.
func IsProbe(value string) bool {
	_, mesh := Owner(value)
	return mesh && member(strings.Fields(value), probe) != ""
}

// Owner gives the owner of a value. Mesh is false when the value is not one
// of this format: the program then leaves it alone.
func Owner(value string) (owner string, mesh bool) {
	words := strings.Fields(value)
	if len(words) == 0 || words[0] != version {
		return "", false
	}
	return member(words, "o="), true
}

// Network gives the network of a value, "" for one that belongs to none.
func Network(value string) string { return member(strings.Fields(value), "n=") }

// member gives what follows a word's beginning, in the first such word.
func member(words []string, beginning string) string {
	for _, word := range words {
		if text, ok := strings.CutPrefix(word, beginning); ok {
			return text
		}
	}
	return ""
}

// Placeholders for this host's public addresses.
const (
	placeholderIPv4 = "{ipv4}"
	placeholderIPv6 = "{ipv6}"
)

// Addresses are what the placeholders stand for; a zero one is not known.
type Addresses struct{ IPv4, IPv6 netip.Addr }

// longest are addresses of the greatest length in text.
var longest = Addresses{
	IPv4: netip.MustParseAddr("255.255.255.255"),
	IPv6: netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
}

// Expand puts the addresses in place of the placeholders. An endpoint whose
// address is not known is left out and returned in missing.
func Expand(endpoints []string, a Addresses) (expanded, missing []string) {
	for _, endpoint := range endpoints {
		text, ok := expand(endpoint, a)
		if ok {
			expanded = append(expanded, text)
		} else {
			missing = append(missing, endpoint)
		}
	}
	return expanded, missing
}

func expand(endpoint string, a Addresses) (text string, ok bool) {
	for placeholder, address := range map[string]netip.Addr{placeholderIPv4: a.IPv4, placeholderIPv6: a.IPv6} {
		if !strings.Contains(endpoint, placeholder) {
			continue
		}
		if !address.IsValid() {
			return "", false
		}
		endpoint = strings.ReplaceAll(endpoint, placeholder, address.String())
	}
	return endpoint, true
}

// TooLongError is the error for a value of more than MaxValue octets.
type TooLongError struct{ Octets int }

func (e *TooLongError) Error() string { return e.Message().String() }

// Message gives the error in both languages.
func (e *TooLongError) Message() msg.Text {
	return msg.Textf("the value has %d octets, %d at most", e.Octets, MaxValue)
}

// EndpointError is the error for a text that is not scheme://host:port.
type EndpointError struct{ Text string }

func (e *EndpointError) Error() string { return e.Message().String() }

// Message gives the error in both languages.
func (e *EndpointError) Message() msg.Text {
	return msg.Textf("%q is not scheme://host:port", e.Text)
}

// Check reports whether the endpoints can be published for a network: each
// is scheme://host:port, and the value fits whatever the addresses are.
func Check(network, owner string, endpoints []string) error {
	expanded, _ := Expand(endpoints, longest)
	for i, text := range expanded {
		if !isEndpoint(text) {
			return &EndpointError{endpoints[i]}
		}
	}
	if size := len(Value(network, owner, expanded)); size > MaxValue {
		return &TooLongError{size}
	}
	return nil
}

func isEndpoint(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Hostname() == "" {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0 && text == u.Scheme+"://"+u.Host && hostOK(u)
}

// hostOK wants a name or an IPv4 address without colons, or an IPv6 address in
// brackets (RFC 3986, section 3.2.2).
func hostOK(u *url.URL) bool {
	if strings.HasPrefix(u.Host, "[") {
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is6() && address.Zone() == ""
	}
	return !strings.ContainsAny(u.Hostname(), ":[]{}%")
}
