package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/seal"
	"meshddns/internal/web"
)

const (
	unixScheme   = "unix:"
	maxUnixPath  = 107 // octets, the limit of the kernel (unix(7))
	minInterval  = time.Second
	listenForm   = "want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path"
	nodeForm     = "want host:port, such as 0.0.0.0:8054 or [::]:8054, or tls:host:port"
	dnsForm      = "want host:port, such as 192.0.2.53:53 or [2001:db8::53]:53"
	intervalForm = "such as 5m"
)

// bare returns an address without tls:.
func bare(address string) string { return strings.TrimPrefix(address, web.TLSPrefix) }

func isTLS(address string) bool { return strings.HasPrefix(address, web.TLSPrefix) }

func isUnix(address string) bool { return !web.IsTCP(address) }

// isName reports whether the host of an address is a name, not an IP address.
func isName(address string) bool {
	host, _, err := net.SplitHostPort(bare(address))
	_, notAddress := netip.ParseAddr(host)
	return err == nil && host != "" && notAddress != nil
}

func (s *Settings) readListen(texts []string) error {
	if len(texts) == 0 {
		return errors.New("no address: " + listenForm)
	}
	err := eachOnce(texts, checkListen)
	if err == nil {
		s.Listen = texts
	}
	return err
}

func (s *Settings) readCheckControls(texts []string) error {
	s.Controls = texts
	return eachOnce(texts, func(text string) error {
		host, port, err := net.SplitHostPort(text)
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || number == 0 {
			return fmt.Errorf("%q is not host:port, with a port from 1 to 65535, such as 192.0.2.1:443 or [2001:db8::1]:443", text)
		}
		return nil
	})
}

// eachOnce checks addresses to listen on. It refuses duplicates, also one with tls: and one without.
func eachOnce(texts []string, check func(string) error) error {
	var faults []error
	for i, text := range texts {
		err := check(text)
		if err == nil && slices.ContainsFunc(texts[:i], func(other string) bool { return bare(other) == bare(text) }) && !strings.HasSuffix(text, ":0") {
			err = fmt.Errorf("%q is given twice", text)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// checkListen refuses abstract sockets (an empty path, or "@"), because no file mode
// guards them.
func checkListen(text string) error {
	path, ok := strings.CutPrefix(text, unixScheme)
	switch err := web.CheckAddress(text); {
	case !ok:
		return checkHostPort(text, web.TLSPrefix, listenForm)
	case err != nil:
		return err
	case len(path) > maxUnixPath:
		return fmt.Errorf("%q has a path of %d octets: want at most %d", text, len(path), maxUnixPath)
	}
	return nil
}

func checkHostPort(text, prefix, form string) error {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(text, prefix))
	if err != nil {
		return fmt.Errorf("%q is not an address to listen on: %s", text, form)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q has no port from 0 to 65535: %s", text, form)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && hostFault(host) {
		return fmt.Errorf("%q has a host that is neither an address nor a name: %s", text, form)
	}
	return nil
}

func (s *Settings) readProxies(texts []string) error {
	var faults []error
	for _, text := range texts {
		prefix, err := mesh.ParseRange(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%q is not a range of addresses: want one such as 192.0.2.1 or 10.0.0.0/8", text))
			continue
		}
		s.Proxies = append(s.Proxies, prefix)
	}
	return errors.Join(faults...)
}

func (s *Settings) readDB(text string) error {
	if text == "" || strings.HasSuffix(text, "/") {
		return fmt.Errorf("%q is not a file: want a path such as meshddns.db", text)
	}
	s.DB = text
	return nil
}

// hostFault reports whether text is not a host name (RFC 1123, section 2.1). An
// address or any other text in an NS record would make zones unreachable.
func hostFault(text string) bool {
	host := dns.Parse(text)
	for label := range strings.SplitSeq(host, ".") {
		if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") || strings.Contains(label, "_") {
			return true
		}
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return dns.NameFault(host) != "" || strings.Trim(last, "0123456789") == ""
}

func (s *Settings) readDNSHosts(texts []string) error {
	var faults []error
	for _, text := range texts {
		name, err := hostName(text)
		if err == nil && slices.Contains(s.DNS.Hosts, name) {
			err = fmt.Errorf("%q is given twice", text)
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.DNS.Hosts = append(s.DNS.Hosts, name)
	}
	return errors.Join(faults...)
}

func hostName(text string) (dns.Name, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return "", fmt.Errorf("%q is an address: want a name, such as ns1.example.com", text)
	}
	if hostFault(text) {
		return "", fmt.Errorf("%q is not a host name: want one such as ns1.example.com", text)
	}
	return dns.ParseName(dns.Parse(text))
}

func (s *Settings) readNSID(text string) error {
	if len(text) > nameserver.MaxNSID {
		return fmt.Errorf("the text has %d octets: want at most %d", len(text), nameserver.MaxNSID)
	}
	s.DNS.NSID = text
	return nil
}

func (s *Settings) readCatalog(text string) (err error) {
	name := dns.Parse(text)
	if s.DNS.Catalog, err = dns.ParseName(name); err != nil || name == "" || dns.NameFault(name) != "" {
		return fmt.Errorf("%q is not a zone: want a name under which nothing else is, such as catalog.invalid", text)
	}
	return nil
}

func (s *Settings) readRateLimit(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > nameserver.MaxRateLimit {
		return fmt.Errorf("%q is not a number from 0 to %d", text, nameserver.MaxRateLimit)
	}
	s.DNS.RateLimit = n
	return nil
}

func (s *Settings) readAddr(texts []string) (err error) {
	s.Addresses.Named, err = hostaddr.ParseNamed(texts)
	return err
}

// maxNodeWrites is the most writes an hour that can be set.
const maxNodeWrites = 100_000

func (s *Settings) readNodeWrites(texts []string) error {
	s.NodeWrites = map[string]int{}
	var faults []error
	for _, text := range texts {
		provider, number, _ := strings.Cut(text, "=")
		writes, err := strconv.Atoi(number)
		_, twice := s.NodeWrites[provider]
		switch {
		case msg.ProviderIn(msg.English, provider).Title == "":
			faults = append(faults, fmt.Errorf("%q: %q is not a provider: want PROVIDER=N, such as cloudflare=600", text, provider))
		case provider == msg.Builtin:
			faults = append(faults, fmt.Errorf("%q: the built-in server has no such limit", text))
		case err != nil || writes < 0 || writes > maxNodeWrites:
			faults = append(faults, fmt.Errorf("%q has no number from 0 to %d: want PROVIDER=N, such as cloudflare=600", text, maxNodeWrites))
		case twice:
			faults = append(faults, fmt.Errorf("%q: the provider is given twice", text))
		default:
			s.NodeWrites[provider] = writes
		}
	}
	return errors.Join(faults...)
}

func (s *Settings) readAllowHosts(texts []string) error {
	var faults []error
	for _, text := range texts {
		for _, entry := range strings.Fields(text) {
			faults = append(faults, web.CheckHost(entry))
			s.AllowHosts = append(s.AllowHosts, entry)
		}
	}
	return errors.Join(faults...)
}

func (s *Settings) readTokenFile(text string) (err error) {
	if text == "" {
		return errors.New(`"" is not a file: omit the flag to require no token`)
	}
	s.Tokens, err = web.OpenTokens(text)
	return err
}

func (s *Settings) readSealKey(text string) (err error) {
	f, err := web.OpenPrivate(text)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.SealKeys, err = seal.Read(f); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

func (s *Settings) readSyncInterval(text string) error {
	interval, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration: want one %s", text, intervalForm)
	case interval < minInterval:
		return fmt.Errorf("%q is too short: want at least %v, %s", text, minInterval, intervalForm)
	}
	s.SyncInterval = interval
	return nil
}

func (s *Settings) readLanguage(text string) error {
	var ok bool
	if s.Language, ok = map[string]msg.Language{"zh": msg.Chinese, "en": msg.English}[text]; !ok {
		return fmt.Errorf("%q is not a language: want zh or en", text)
	}
	return nil
}

func (s *Settings) readLogFormat(text string) error {
	if text != "text" && text != "json" {
		return fmt.Errorf("%q is not a log format: want text or json", text)
	}
	s.LogFormat = text
	return nil
}

func (s *Settings) readCheck(text string) error {
	if s.Strict = text == "strict"; s.Strict {
		text = "true"
	}
	if toggle(func(s *Settings) *bool { return &s.Check })(s, []string{text}) != nil {
		return fmt.Errorf("%q: want true, false or strict", text)
	}
	return nil
}
