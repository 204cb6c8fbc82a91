package settings

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"meshddns/internal/hostaddr"
	"meshddns/internal/nameserver"
	"meshddns/internal/web"
)

// option is a flag and the environment variable for it.
type option struct {
	name    string
	value   string // placeholder of the value in the help; "": a switch
	preset  string // default value, "" for none
	usage   string
	several bool // repeatable, or one value with commas
	tcp     bool // has an effect on HTTP over TCP only
	dns     bool // has an effect on the DNS server only
	node    bool // has an effect on the listener of nodes only
	tls     bool // has an effect on listeners with TLS only
	read    func(s *Settings, values []string) error
}

// one adapts a reader of one value to option.read.
func one(read func(s *Settings, text string) error) func(*Settings, []string) error {
	return func(s *Settings, values []string) error { return read(s, values[0]) }
}

// toggle reads a switch.
func toggle(at func(*Settings) *bool) func(*Settings, []string) error {
	return one(func(s *Settings, text string) (err error) {
		if *at(s), err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is not a switch value: want true or false", text)
		}
		return nil
	})
}

// source reads a source of addresses of a family.
func source(family hostaddr.Family, at func(*Settings) *hostaddr.Source) func(*Settings, []string) error {
	return one(func(s *Settings, text string) (err error) {
		*at(s), err = hostaddr.ParseSource(family, text)
		return err
	})
}

// file reads the path of a file, which is checked later.
func file(at func(*Settings) *string) func(*Settings, []string) error {
	return one(func(s *Settings, text string) error {
		if *at(s) = text; text == "" {
			return errors.New(`"" is not a file: want a path, or omit the flag`)
		}
		return nil
	})
}

// addresses reads addresses to listen on, host:port, which may have a prefix.
func addresses(form, prefix string, at func(*Settings) *[]string) func(*Settings, []string) error {
	return func(s *Settings, texts []string) error {
		err := eachOnce(texts, func(text string) error { return checkHostPort(text, prefix, form) })
		if err == nil {
			*at(s) = texts
		}
		return err
	}
}

// options has all options in the order of the help.
var options = []option{
	{name: "listen", value: "address", preset: "127.0.0.1:8053", several: true, read: (*Settings).readListen,
		usage: "address of the HTTP API: host:port, tls:host:port for HTTPS, or unix:/path (mode 0660)"},
	{name: "socket-group", value: "group", read: one(func(s *Settings, text string) error { s.SocketGroup = text; return nil }),
		usage: "group of the unix sockets, by name or number; without it: the program's own group"},
	{name: "db", value: "file", preset: "meshddns.db", read: one((*Settings).readDB),
		usage: "database file"},
	{name: "seal-key", value: "file", read: one((*Settings).readSealKey),
		usage: "file with one or two keys, one a line: 32 octets in base64; the first seals all secrets in the database, both open; a first line none unseals"},
	{name: "term", value: "file", read: file(func(s *Settings) *string { return &s.Term }),
		usage: "file with the term in which this one of two machines writes: until there is one it is a standby; none takes the term out of the database"},
	{name: "replica-socket", value: "file", read: file(func(s *Settings) *string { return &s.Replica }),
		usage: "control socket of the Litestream that copies the database; changes with ?durable=1 wait for the copy"},
	{name: "dns-listen", value: "address", several: true, read: addresses(dnsForm, "", func(s *Settings) *[]string { return &s.DNS.Addresses }),
		usage: "address of the DNS server, UDP and TCP: host:port; without it there is no DNS server"},
	{name: "dns-host", value: "name", several: true, dns: true, read: (*Settings).readDNSHosts,
		usage: "name of the DNS server in NS and SOA records, then further names for NS records; without it: ns.<zone>"},
	{name: "dns-nsid", value: "text", dns: true, read: one((*Settings).readNSID),
		usage: "name that distinguishes the servers of one zone, for queries with the NSID option (RFC 5001)"},
	{name: "dns-catalog", value: "name", dns: true, read: one((*Settings).readCatalog),
		usage: "name of a catalog zone, which tells secondaries of all zones (RFC 9432); without it there is none"},
	{name: "dns-rate-limit", value: "n", preset: strconv.Itoa(nameserver.DefaultRateLimit), dns: true, read: one((*Settings).readRateLimit),
		usage: "limit of answers a second over UDP to one network (/24, /56) without a cookie; 0: no limit"},
	{name: "ipv4", value: "source", preset: "auto", read: source(hostaddr.IPv4, func(s *Settings) *hostaddr.Source { return &s.Addresses.IPv4 }),
		usage: "public IPv4 address: auto, interface:NAME, url:URL, file:PATH, none, or an address; of several with commas two must agree"},
	{name: "ipv6", value: "source", preset: "auto", read: source(hostaddr.IPv6, func(s *Settings) *hostaddr.Source { return &s.Addresses.IPv6 }),
		usage: "public IPv6 address: auto, interface:NAME, url:URL, file:PATH, none, or an address; of several with commas two must agree"},
	{name: "addr", value: "name=source", several: true, read: (*Settings).readAddr,
		usage: "source of addresses with a name, for the placeholders {name.ipv4} and {name.ipv6}; of several with one name two must agree"},
	{name: "check-control", value: "host:port", several: true, read: (*Settings).readCheckControls,
		usage: "address that accepts a connection while this host is not cut off, for the checks of endpoints; without it: the default gateway"},
	{name: "allow-host", value: "name", several: true, tcp: true, read: (*Settings).readAllowHosts,
		usage: "Host name to accept, with or without a port; addresses and loopback names are always accepted"},
	{name: "token-file", value: "file", tcp: true, read: one((*Settings).readTokenFile),
		usage: "file with lines <token> or <role> <name> <token>, where a role is admin, read or service:<id>; required on an address that is not loopback"},
	{name: "node-listen", value: "address", several: true, read: addresses(nodeForm, web.TLSPrefix, func(s *Settings) *[]string { return &s.NodeListen }),
		usage: "address at which nodes renew their leases, over HTTP: host:port, or tls:host:port for HTTPS; without it there is no such listener"},
	{name: "node-writes", value: "provider=n", several: true, read: (*Settings).readNodeWrites,
		usage: "writes an hour that nodes and checks may cause at one account of a provider; 0: no limit; without it: 100 at a cloud, no limit at builtin, rfc2136, powerdns and webhook"},
	{name: "trusted-proxy", value: "range", several: true, node: true, read: (*Settings).readProxies,
		usage: "addresses of proxies in front of -node-listen: the client of their requests is in X-Forwarded-For"},
	{name: "tls-cert", value: "file", tls: true, read: file(func(s *Settings) *string { return &s.Certificate.Chain }),
		usage: "certificate of the addresses tls:..., and the certificates up to its authority (PEM); read again when it changes"},
	{name: "tls-key", value: "file", tls: true, read: file(func(s *Settings) *string { return &s.Certificate.Key }),
		usage: "private key of the certificate (PEM), which only its owner and this program, by a group or an ACL, may read"},
	{name: "tls-client-ca", value: "file", tls: true, read: file(func(s *Settings) *string { return &s.Certificate.Authority }),
		usage: "authority (PEM) of certificates that clients of -listen tls:... must have besides the token; without it they need none"},
	{name: "sync-interval", value: "time", preset: "5m", read: one((*Settings).readSyncInterval),
		usage: "time between synchronisations in the modes auto and upsert-only"},
	{name: "provision", value: "file", read: file(func(s *Settings) *string { return &s.Provision }),
		usage: "file with configuration, services and usages, applied at start and at SIGHUP; or a folder: its files *.json in the order of their names"},
	{name: "language", value: "language", preset: "zh", read: one((*Settings).readLanguage),
		usage: "language of texts for requests without Accept-Language: zh or en"},
	{name: "log-format", value: "format", preset: "text", read: one((*Settings).readLogFormat),
		usage: "format of the log: text or json"},
	{name: "check", read: one((*Settings).readCheck),
		usage: "report every mistake in the flags and in the provisioning file, and what the program would warn of, and exit; open and change nothing; with -check=strict a warning is a mistake"},
	{name: "version", read: toggle(func(s *Settings) *bool { return &s.Version }),
		usage: "print the version and exit"},
	{name: "help", read: toggle(func(s *Settings) *bool { return &s.Help }),
		usage: "print this text and exit; also -h"},
}

// WriteHelp writes the help text to w.
func WriteHelp(w io.Writer) {
	fmt.Fprint(w, "Usage: meshddns [flags]\n\n")
	for _, o := range options {
		fmt.Fprintf(w, "  -%s", o.name)
		if o.value != "" {
			fmt.Fprintf(w, " %s", o.value)
		}
		fmt.Fprintf(w, "\n        %s", o.usage)
		if o.several {
			fmt.Fprint(w, "; repeatable")
		}
		if o.preset != "" {
			fmt.Fprintf(w, " (default %s)", o.preset)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, `
Each flag with a value can also be set in the environment: -dns-listen is `+variable("dns-listen")+`.
A flag overrides the environment. An empty variable counts as not set. A repeatable flag also takes several
values separated by commas. Of any other flag that is given twice, the last value counts.
`)
}
