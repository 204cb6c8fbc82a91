// Package meshtxt is the value that a mesh network publishes in a TXT record,
// and the rule for bringing the values at one name to the wanted one.
//
//	v=mesh1 n=42 o=5f0c2a91d3be tcp://203.0.113.7:11010 udp://203.0.113.7:11010
//
// The value is one character-string. A reader that takes a TXT record for a
// list of URLs separated by spaces may use it as it is: no word before the
// endpoints parses as a URL.
package meshtxt

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxValue is the size of a value in octets: that of one character-string
// (RFC 1035, section 3.3).
const MaxValue = 255

const version = "v=mesh1"

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

// Owner gives the owner of a value. Mesh is false when the value is not one
// of this format, and so nobody's business here.
func Owner(value string) (owner string, mesh bool) {
	words := strings.Fields(value)
	if len(words) == 0 || words[0] != version {
		return "", false
	}
	for _, word := range words[1:] {
		if owner, ok := strings.CutPrefix(word, "o="); ok {
			return owner, true
		}
	}
	return "", true
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

// ErrTooLong is the error for a value of more than MaxValue octets.
var ErrTooLong = errors.New("value longer than one character-string")

// ErrEndpoint is the error for a text that is not scheme://host:port.
var ErrEndpoint = errors.New("not an endpoint of the form scheme://host:port")

// Check reports whether the endpoints can be published for a network: each
// is scheme://host:port, and the value fits whatever the addresses are.
func Check(network, owner string, endpoints []string) error {
	expanded, _ := Expand(endpoints, longest)
	for i, text := range expanded {
		if !isEndpoint(text) {
			return fmt.Errorf("%w: %q", ErrEndpoint, endpoints[i])
		}
	}
	if size := len(Value(network, owner, expanded)); size > MaxValue {
		return fmt.Errorf("%w: %d octets, %d at most", ErrTooLong, size, MaxValue)
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

// Plan is what has to be done at one name: values to add and to remove, by
// their index among those seen.
type Plan struct {
	Add      bool  // the wanted value is not there
	Remove   []int // own values other than the wanted one, and its copies
	Conflict int   // index of another owner's value, -1 for none
}

// Reconcile compares the values at a name with the wanted one ("" to have
// none of ours). Values of other kinds are never named in the plan.
func Reconcile(seen []string, owner, want string) Plan {
	plan := Plan{Add: want != "", Conflict: -1}
	for i, value := range seen {
		valueOwner, mesh := Owner(value)
		switch {
		case !mesh:
		case valueOwner != owner:
			plan.Conflict = i
		case value == want && plan.Add:
			plan.Add = false
		default:
			plan.Remove = append(plan.Remove, i)
		}
	}
	if want == "" {
		plan.Conflict = -1 // withdrawing leaves another owner's value alone
	}
	return plan
}
