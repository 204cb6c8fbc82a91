package provider

import (
	"net"
	"net/url"
	"strings"
)

// defaultPorts are the ports that a URL can omit.
var defaultPorts = map[string]string{"https": "443", "http": "80"}

// NormalEndpoint returns the normal form of a provider's endpoint. Two endpoints are the same address
// if their normal forms are equal. A URL has its scheme and its host in lower case, no default port,
// and no slash at its end. An endpoint of rfc2136 is host:port. A text that the provider's client
// refuses stays unchanged.
func NormalEndpoint(name, endpoint string) string {
	if endpoint == "" {
		return ""
	}
	if name == "rfc2136" {
		server, err := serverAddress(endpoint)
		if err != nil {
			return endpoint
		}
		return strings.ToLower(server)
	}
	u, err := endpointURL(endpoint, "", true)
	if err != nil || strings.Contains(u.Host, "%") { // the zone of an IPv6 address is case-sensitive
		return endpoint
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	switch {
	case port != "" && port != defaultPorts[u.Scheme]:
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}).String()
}
