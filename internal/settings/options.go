package settings

import (
	"fmt"
	"io"
	"strconv"

	"meshddns/internal/nameserver"
)

// option is a flag, and a variable of the environment.
type option struct {
	name    string
	value   string // what is to be given; "": a switch
	preset  string // "": it need not be given
	usage   string
	several bool // can be given several times, or once with commas
	tcp     bool // about HTTP over TCP only
	dns     bool // about the DNS server only
	read    func(s *Settings, values []string) error
}

// one is for an option of one value.
func one(read func(s *Settings, text string) error) func(*Settings, []string) error {
	return func(s *Settings, values []string) error { return read(s, values[0]) }
}

// options are all, in the order of the help.
var options = []option{
	{name: "listen", value: "address", preset: "127.0.0.1:8053", several: true, read: (*Settings).readListen,
		usage: "HTTP API: host:port, or unix:/path (mode 0660)"},
	{name: "socket-group", value: "group", read: one((*Settings).readSocketGroup),
		usage: "of the unix sockets, by name or number; none: the program's own"},
	{name: "db", value: "file", preset: "meshddns.db", read: one((*Settings).readDB),
		usage: "the database"},
	{name: "dns-listen", value: "address", several: true, read: (*Settings).readDNSListen,
		usage: "answer DNS queries here, UDP and TCP: host:port; none: not at all"},
	{name: "dns-host", value: "name", several: true, dns: true, read: (*Settings).readDNSHosts,
		usage: "own name in NS and SOA records, then further ones for NS; none: ns.<zone>"},
	{name: "dns-nsid", value: "text", dns: true, read: one((*Settings).readNSID),
		usage: "tells servers of one zone apart: answered to who asks for it (RFC 5001)"},
	{name: "dns-rate-limit", value: "n", preset: strconv.Itoa(nameserver.DefaultRateLimit), dns: true, read: one((*Settings).readRateLimit),
		usage: "answers a second over UDP to one network (/24, /56) without a cookie; 0: no limit"},
	{name: "ipv4", value: "source", preset: "auto", read: one((*Settings).readIPv4),
		usage: "public IPv4 address: auto, interface:NAME, url:URL, none, or an address"},
	{name: "ipv6", value: "source", preset: "auto", read: one((*Settings).readIPv6),
		usage: "public IPv6 address: auto, interface:NAME, url:URL, none, or an address"},
	{name: "allow-host", value: "name", several: true, tcp: true, read: (*Settings).readAllowHosts,
		usage: "Host name to accept beside addresses and the loopback names, with a port or without"},
	{name: "token-file", value: "file", tcp: true, read: one((*Settings).readTokenFile),
		usage: "one or two tokens, a line each; required on an address that is not loopback"},
	{name: "sync-interval", value: "time", preset: "5m", read: one((*Settings).readSyncInterval),
		usage: "between synchronisations in the modes auto and upsert-only"},
	{name: "provision", value: "file", read: one((*Settings).readProvision),
		usage: "configuration, services and usages, applied at the start and at SIGHUP; or a folder: its *.json in the order of their names"},
	{name: "language", value: "language", preset: "zh", read: one((*Settings).readLanguage),
		usage: "zh or en: of the texts for requests without Accept-Language"},
	{name: "log-format", value: "format", preset: "text", read: one((*Settings).readLogFormat),
		usage: "text or json"},
	{name: "check", read: one((*Settings).readCheck),
		usage: "tell every mistake of the flags and of the provision file, and exit: nothing is opened or changed"},
	{name: "version", read: one((*Settings).readVersion),
		usage: "print the version and exit"},
	{name: "help", read: one((*Settings).readHelp),
		usage: "print this and exit; also -h"},
}

// Usage writes the help.
func Usage(w io.Writer) {
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
Each flag can be given in the environment too: -dns-listen is `+variable("dns-listen")+`.
A flag wins over the environment, where an empty value is none. What is repeatable
can also be given separated by commas; of all else the last one counts.
`)
}
