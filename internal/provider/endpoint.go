package provider

import (
	"net"
	"net/url"
	"strings"
)

// defaultPorts are those that a URL need not say.
var defaultPorts = map[string]string{"https": "443", "http": "80"}

// NormalEndpoint gives the one spelling of a provider's endpoint: two endpoints with the
// same normal form are one address. A URL has its scheme, and its host in lower case; it has
// no default port, and no slash at its end. An endpoint of rfc2136 is host:port. Text
// that the provider's client refuses stays as it is.
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
	if err != nil || strings.Contains(u.Host, "%") { // the zone of an IPv6 address has letter case
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
