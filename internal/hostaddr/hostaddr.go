// Package hostaddr finds this host's public addresses, for the {ipv4} and {ipv6} placeholders of endpoints.
// It asks the Linux kernel (rtnetlink, /proc/self/net) or a web service.
package hostaddr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Family is an IP address family, 4 or 6.
type Family int

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Source is where the address of one family comes from. The zero Source has no address.
type Source struct {
	family Family

	// At most one of these is set.
	auto  bool
	iface string
	url   *url.URL
	addr  netip.Addr
}

// ParseSource reads the text of the -ipv4 or -ipv6 flag: auto, none, interface:NAME, url:URL or an address.
// Its errors do not contain a URL, because it may have a password or a token.
func ParseSource(f Family, text string) (Source, error) {
	s := Source{family: f}
	word, value, _ := strings.Cut(text, ":")
	var err error
	switch {
	case text == "none":
	case text == "auto":
		s.auto = true
	case word == "interface":
		s.iface, err = value, checkName(value)
	case word == "url":
		s.url, err = parseURL(value)
	default:
		s.addr, err = parseAddr(f, text)
	}
	if err != nil {
		return Source{}, err
	}
	return s, nil
}

// maxInterface is the most octets of an interface name (IFNAMSIZ, without the final NUL).
const maxInterface = 15

func checkName(name string) error {
	if name == "" || len(name) > maxInterface || strings.ContainsAny(name, "/ \t\n") {
		return fmt.Errorf("interface:%.40q: want the name of an interface, such as eth0", name)
	}
	return nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("url: want a valid URL") // err quotes the URL
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url: want an http or https URL")
	case u.Hostname() == "":
		return nil, errors.New("url: want a URL with a host")
	}
	return u, nil
}

func parseAddr(f Family, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%swant auto, none, interface:NAME, url:URL or an IPv%d address", shown(text), f)
	}
	return a, checkAddr(f, a)
}

// shown begins an error with the text, except when the text may be a URL without its "url:".
func shown(text string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_"
	if strings.Trim(text, letters) != "" {
		return ""
	}
	return fmt.Sprintf("%q is not a source: ", text)
}

// checkAddr returns an error for an address that an A or AAAA record cannot hold, or that is useless in one. It accepts a
// private address, because the operator may want it.
func checkAddr(f Family, a netip.Addr) error {
	switch {
	case a.Is4() != (f == IPv4), a.Is4In6():
		return fmt.Errorf("%s is not an IPv%d address", a, f)
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone, which DNS cannot hold", a)
	case a.IsUnspecified():
		return fmt.Errorf("%s is the unspecified address", a)
	case a.IsMulticast():
		return fmt.Errorf("%s is a multicast address", a)
	case a.IsLoopback():
		return fmt.Errorf("%s is a loopback address, which no other host can reach", a)
	case a.IsLinkLocalUnicast():
		return fmt.Errorf("%s is a link-local address, which only hosts on its link can reach", a)
	case !a.IsGlobalUnicast():
		return fmt.Errorf("%s is a broadcast address", a)
	}
	return nil
}

// finding is the result of one look at a source.
type finding struct {
	addr netip.Addr // the zero Addr: none
	note string     // why there is none, or a remark for the log; "": nothing
	seen bool       // there is an address, and it is not public
}

// look finds the current address. It is not an error if the host has none (without a default route, or with only private
// addresses under auto).
func (s Source) look(ctx context.Context) (finding, error) {
	f, err := s.find(ctx)
	if err != nil {
		return finding{}, fmt.Errorf("%s: %w", s, err)
	}
	if isPrivate(f.addr) {
		f.note, f.seen = fmt.Sprintf("%s is %s: it is published, and reached from its own network only", f.addr, kind(f.addr)), true
	}
	return f, nil
}

func (s Source) find(ctx context.Context) (f finding, err error) {
	switch {
	case s.auto:
		return autoAddr(s.family)
	case s.iface != "":
		return interfaceAddr(s.family, s.iface)
	case s.url != nil:
		f.addr, err = ask(ctx, s.family, s.url)
		return f, err
	}
	return finding{addr: s.addr}, nil
}

// String returns the text of the flag. Of a URL it returns only the host, because the rest may be a secret.
func (s Source) String() string {
	switch {
	case s.auto:
		return "auto"
	case s.iface != "":
		return "interface:" + s.iface
	case s.url != nil:
		return "url:" + s.url.Host
	case s.addr.IsValid():
		return s.addr.String()
	}
	return "none"
}
