package web

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Loopback reports whether a listen address ("127.0.0.1:8053", "localhost:80", "[::1]:1") is a loopback address. It does not look up
// names: names other than localhost, and addresses without a host (":8053"), are not loopback.
func Loopback(address string) bool {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback() || strings.ToLower(name) == "localhost"
}

// host is a Host header in a normal form, so that == compares two of them.
type host struct {
	name    string // lower case without the final dot, or an address as netip writes it
	port    uint16 // 0: none
	address bool   // not a name
}

// parseHost reads "name", "name:port", "192.0.2.1:port", "[2001:db8::1]:port" and the like (RFC 9110, section 7.2).
func parseHost(s string) (host, bool) {
	name, port := s, ""
	if strings.Contains(s, ":") { // without a colon SplitHostPort would allocate an error
		var err error
		if name, port, err = net.SplitHostPort(s); err != nil {
			name, port, err = net.SplitHostPort(s + ":")
		}
		if err != nil {
			return host{}, false
		}
	}
	number, ok := parsePort(port)
	if !ok {
		return host{}, false
	}
	name = strings.TrimSuffix(name, ".")
	bracketed := strings.HasPrefix(s, "[")
	if addr, err := netip.ParseAddr(name); err == nil {
		return host{name: addr.Unmap().String(), port: number, address: true}, addr.Is6() == bracketed && addr.Zone() == ""
	}
	return host{name: strings.ToLower(name), port: number}, !bracketed && isName(name)
}

// parsePort reads a port; "" is 0, no port (RFC 3986, section 3.2.3: "name:" equals "name").
func parsePort(s string) (uint16, bool) {
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0
}

// isName reports whether s is dotted labels of letters, digits, hyphens and underscores. Call it before folding case:
// Unicode has letters outside ASCII whose lower case is ASCII.
func isName(s string) bool {
	foreign := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.ContainsFunc(label, foreign) {
			return false
		}
	}
	return true
}

// loopback reports whether every resolver maps h to this machine: localhost and the names
// below it (RFC 6761, section 6.3).
func (h host) loopback() bool {
	return h.name == "localhost" || strings.HasSuffix(h.name, ".localhost")
}

// CheckHost returns an error for an entry of Config.AllowHosts that no Host can match.
func CheckHost(entry string) error {
	if _, ok := parseHost(entry); !ok {
		return fmt.Errorf("%q is not a Host: want a name with or without a port, such as ddns.example.com or ddns.example.com:8053", entry)
	}
	return nil
}

func allowedHosts(entries []string) func(host) bool {
	allowed := map[host]bool{}
	for _, entry := range entries {
		if h, ok := parseHost(entry); ok {
			allowed[h] = true
		}
	}
	return func(h host) bool { return allowed[h] || allowed[host{name: h.name, address: h.address}] }
}
