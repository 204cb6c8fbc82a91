package hostaddr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"meshddns/internal/msg"
)

// origin is one place that tells an address. Exactly one of the fields after text is set.
type origin struct {
	text string // as it was given; "" of a URL, which may have a secret

	auto  bool
	iface string
	url   *url.URL
	file  string
	addr  netip.Addr
}

func parseOrigin(f Family, text string) (origin, error) {
	o := origin{text: text}
	word, value, _ := strings.Cut(text, ":")
	var err error
	switch {
	case text == "none":
		err = errors.New("none stands alone")
	case text == "auto":
		o.auto = true
	case word == "interface":
		o.iface, err = value, checkName(value)
	case word == "url":
		o.text = ""
		o.url, err = parseURL(value)
	case word == "file":
		o.file, err = value, checkPath(value)
	default:
		o.addr, err = parseAddr(f, text)
	}
	return o, err
}

// maxInterface is the most octets of an interface name (IFNAMSIZ, without the final NUL).
const maxInterface = 15

func checkName(name string) error {
	if name == "" || len(name) > maxInterface || strings.ContainsAny(name, "/ \t\n") {
		return fmt.Errorf("interface:%.40q: want the name of an interface, such as eth0", name)
	}
	return nil
}

func checkPath(path string) error {
	if path == "" || strings.HasSuffix(path, "/") {
		return fmt.Errorf("file:%.40q: want the path of a file with an address", path)
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
		return netip.Addr{}, fmt.Errorf("%swant auto, none, interface:NAME, url:URL, file:PATH or an IPv%d address", shown(text), f)
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
		return msg.Errorf("%s is not an IPv%d address", a, f)
	case a.Zone() != "":
		return msg.Errorf("%s has a zone, which DNS cannot hold", a)
	case a.IsUnspecified():
		return msg.Errorf("%s is the unspecified address", a)
	case a.IsMulticast():
		return msg.Errorf("%s is a multicast address", a)
	case a.IsLoopback():
		return msg.Errorf("%s is a loopback address, which no other host can reach", a)
	case a.IsLinkLocalUnicast():
		return msg.Errorf("%s is a link-local address, which only hosts on its link can reach", a)
	case !a.IsGlobalUnicast():
		return msg.Errorf("%s is a broadcast address", a)
	}
	return nil
}

// same reports whether both ask at the same place.
func (o origin) same(other origin) bool {
	if o.url != nil && other.url != nil {
		return o.url.String() == other.url.String()
	}
	return o.text == other.text && o.url == other.url
}

func (o origin) look(ctx context.Context, f Family) (found finding, err error) {
	switch {
	case o.auto:
		found, err = autoAddr(f)
	case o.iface != "":
		found, err = interfaceAddr(f, o.iface)
	case o.url != nil:
		found.addr, err = ask(ctx, f, o.url)
	case o.file != "":
		found, err = fileAddr(f, o.file)
	default:
		found.addr = o.addr
	}
	if err != nil {
		return finding{}, msg.Errorf("%s: %w", o, err)
	}
	return found, nil
}

// String returns the text of the flag. Of a URL it returns only the host, because the rest may be a secret.
func (o origin) String() string {
	if o.url != nil {
		return "url:" + o.url.Host
	}
	if o.addr.IsValid() {
		return o.addr.String()
	}
	return o.text
}

// fileAddr reads the address of a family from a file.
func fileAddr(f Family, path string) (finding, error) {
	file, err := os.Open(path)
	if err != nil {
		return finding{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxAnswer))
	if err != nil {
		return finding{}, err
	}
	if len(text) == maxAnswer {
		return finding{}, msg.Errorf("the file is too long for addresses")
	}
	a, err := parseFile(f, text)
	if err == nil && !a.IsValid() {
		return finding{note: msg.Textf("%s has no IPv%d address", path, f)}, nil
	}
	return finding{addr: a}, err
}

// parseFile reads a file of one address, or of one address of each family, a line for each. Blank lines count as none. It
// returns the zero Addr if there is none of the family.
func parseFile(f Family, text []byte) (found netip.Addr, err error) {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return found, msg.Errorf("the file begins with a byte order mark (BOM): save it as UTF-8 without one")
	}
	var seen [2]bool
	for line := range bytes.Lines(text) {
		word := string(bytes.TrimSpace(line))
		if word == "" {
			continue
		}
		a, err := netip.ParseAddr(word)
		if err != nil {
			return netip.Addr{}, msg.Errorf("the file has a line that is not one address")
		}
		own, number := IPv4, 0
		if !a.Is4() {
			own, number = IPv6, 1
		}
		if err := checkAddr(own, a); err != nil {
			return netip.Addr{}, err
		}
		if seen[number] {
			return netip.Addr{}, msg.Errorf("the file has two IPv%d addresses", own)
		}
		if seen[number] = true; own == f {
			found = a
		}
	}
	return found, nil
}
