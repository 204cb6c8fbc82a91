// Package settings reads the command line and the environment into typed values
// and reports all mistakes in them at once.
package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"meshddns/internal/hostaddr"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/seal"
	"meshddns/internal/web"
)

// Settings has the values of the command line and the environment.
type Settings struct {
	Listen       []string       // at least one; each host:port, tls:host:port or unix:/path
	SocketGroup  string         // group of unix sockets, by name or number; "": the program's own
	NodeListen   []string       // of the nodes' listener; each host:port or tls:host:port
	Proxies      []netip.Prefix // in front of it, whose X-Forwarded-For counts
	DB           string         // path of the database file
	Term         string         // path of the file with the term of this machine; "": none; "none": a term is taken out of the database
	Replica      string         // path of Litestream's socket, "" for none
	DNS          nameserver.Config
	Addresses    hostaddr.Sources
	Controls     []string         // host:port, for checks of endpoints
	NodeWrites   map[string]int   // by provider: writes an hour that nodes and checks may cause at one account; 0: no limit
	AllowHosts   []string         // in the form of web.GuardConfig.AllowHosts
	SealKeys     seal.Keys        // of the secrets in the database
	Tokens       *web.Tokens      // nil: clients need no token
	Certificate  *web.Certificate // of listeners with TLS; nil: none
	SyncInterval time.Duration    // at least 1s
	Language     msg.Language     // of texts for requests without Accept-Language
	LogFormat    string           // "text" or "json"
	Provision    string           // a file or a folder, "" for none
	Check        bool             // only report mistakes
	Strict       bool             // with Check a warning is a mistake
	Version      bool             // only print the version
	Help         bool             // only print Usage

	// Unknown has the names of variables that begin with MESHDDNS_ and resemble no setting.
	Unknown []string

	// Credentials is the folder of systemd's credentials, "" for none.
	Credentials string

	given map[string]string // origin ("-db" or "MESHDDNS_DB") of each given option, by option name
}

// Read reads the command line, and the environment for flags that are not given. The error
// joins all mistakes. Each names the flag or the variable, the value, and the allowed values.
// With an error, the Settings still have all valid values.
func Read(args, environ []string) (Settings, error) {
	texts := collector{}
	unknown, faults := texts.environment(environ)
	faults = append(faults, texts.commandLine(args)...)
	s := Settings{Unknown: unknown, Credentials: Lookup(environ, "CREDENTIALS_DIRECTORY"), Certificate: &web.Certificate{}, given: map[string]string{}}
	for _, o := range options {
		values, origin := []string{o.preset}, "-"+o.name
		if said, ok := texts[o.name]; ok {
			values, origin = said.values, said.origin
			s.given[o.name] = origin
		} else if o.preset == "" {
			continue
		}
		if err := o.read(&s, values); err != nil {
			faults = append(faults, prefixed(origin, err))
		}
	}
	s.Certificate.Listen = slices.Concat(s.Listen, s.NodeListen)
	if c := s.Certificate; c.Chain+c.Key+c.Authority == "" {
		s.Certificate = nil
	} else if c.Chain == "" || c.Key == "" {
		faults = append(faults, fmt.Errorf("-tls-cert %q and -tls-key %q: want a file for both", c.Chain, c.Key))
	} else if err := c.Reload(nil); err != nil {
		faults = append(faults, fmt.Errorf("-tls-cert, -tls-key, -tls-client-ca: %w", err))
	}
	faults = append(faults, s.open())
	return s, errors.Join(faults...)
}

// CheckTLS returns an error if an address with TLS has no certificate, or if -tls-client-ca has no address of the API.
func (s *Settings) CheckTLS(listen, nodes []string) error {
	switch api := slices.ContainsFunc(listen, isTLS); {
	case s.Certificate == nil && (api || slices.ContainsFunc(nodes, isTLS)):
		return errors.New("a listener with TLS (tls:host:port, or a socket named http-tls or node-tls) needs -tls-cert and -tls-key")
	case s.given["tls-client-ca"] != "" && !api:
		return errors.New("-tls-client-ca: the API has no listener with TLS: want -listen tls:host:port, or a socket named http-tls")
	}
	return nil
}

// prefixed puts the origin before each of the joined errors.
func prefixed(origin string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, prefixed(origin, e))
		}
		return errors.Join(all...)
	}
	return fmt.Errorf("%s: %w", origin, err)
}

// open returns an error for an address that a network can reach without a token. It skips
// host names: httpserver.Listen checks them, because their addresses are known only then.
func (s *Settings) open() error {
	_, withToken := s.given["token-file"]
	for _, address := range s.Listen {
		if !withToken && !isUnix(address) && !web.Loopback(bare(address)) && !isName(address) {
			return fmt.Errorf("-listen: %q is not a loopback address: -token-file is required", address)
		}
	}
	return nil
}

// Unused returns the origins of given settings that have no effect without HTTP over TCP, without
// DNS, without the listener of nodes, or without TLS.
func (s *Settings) Unused(listen []string, dns bool, nodes []string) (origins []string) {
	noTCP, noTLS := !slices.ContainsFunc(listen, web.IsTCP), !slices.ContainsFunc(slices.Concat(listen, nodes), isTLS)
	for _, o := range options {
		if origin, ok := s.given[o.name]; ok && (o.tcp && noTCP || o.dns && !dns || o.node && len(nodes) == 0 || o.tls && noTLS) {
			origins = append(origins, origin)
		}
	}
	return origins
}

// Refused returns errors for what a start refuses only when it binds the addresses.
func (s *Settings) Refused() error {
	var faults []error
	if slices.ContainsFunc(s.Listen, isUnix) {
		_, err := web.GroupID(s.SocketGroup)
		faults = append(faults, err)
	}
	if s.given["listen"] != "" || s.given["tls-client-ca"] == "" { // else a socket may be the listener
		faults = append(faults, s.CheckTLS(s.Listen, s.NodeListen))
	}
	all := slices.Concat(s.Listen, s.DNS.Addresses, s.NodeListen)
	if err := eachOnce(all, func(string) error { return nil }); err != nil {
		faults = append(faults, prefixed("-listen, -dns-listen, -node-listen", err))
	}
	return errors.Join(faults...)
}

// said has the values of an option and their origin.
type said struct {
	values []string
	origin string // "-listen" or "MESHDDNS_LISTEN"
}

// collector has the values of each option by its name.
type collector map[string]said

// set stores a value. A value from another origin replaces the earlier values. Of an option
// with one value the last value counts.
func (c collector) set(o option, origin, text string) {
	was := c[o.name]
	if was.origin != origin || !o.several {
		was = said{origin: origin}
	}
	if !o.several {
		c[o.name] = said{[]string{text}, origin}
		return
	}
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			was.values = append(was.values, entry)
		}
	}
	c[o.name] = was
}

// bindAPI binds the addresses of the API.
func (s *Settings) bindAPI() ([]net.Listener, error) {
	return web.Listen(web.ListenConfig{List: s.Listen, Flag: "-listen", Group: s.SocketGroup, Token: s.Tokens != nil})
}

// bindNodes binds the addresses of the nodes' listener. It allows all of them, because each request needs a token.
func (s *Settings) bindNodes() ([]net.Listener, error) {
	return web.Listen(web.ListenConfig{List: s.NodeListen, Flag: "-node-listen", Token: true})
}

// ListenAPI listens on all addresses of the API or on none, and on the service manager's sockets.
func (s *Settings) ListenAPI(inherited []net.Listener, stopTime time.Duration, log *slog.Logger) (*web.Server, error) {
	for _, l := range inherited {
		if err := web.Guarded(l, s.Tokens != nil); err != nil {
			return nil, fmt.Errorf("the service manager's socket %s %w", l.Addr(), err)
		}
	}
	listeners, err := s.bindAPI()
	if err != nil {
		return nil, err
	}
	return web.NewServer(web.ServerConfig{Listeners: listeners, Inherited: inherited, ShutdownTime: stopTime, Log: log, TLS: s.Certificate.API}), nil
}

// nodeEighths is the share of the descriptors for connections of nodes, of which 512 are the most.
const nodeEighths = 2

// ListenNodes listens on all addresses of the nodes' listener or on none, and on the service manager's sockets.
func (s *Settings) ListenNodes(inherited []net.Listener, stopTime time.Duration, log *slog.Logger) (*web.Server, error) {
	listeners, err := s.bindNodes()
	if err != nil {
		return nil, err
	}
	return web.NewServer(web.ServerConfig{Listeners: listeners, Inherited: inherited, Eighths: nodeEighths, ShutdownTime: stopTime, Log: log, TLS: s.Certificate.Nodes}), nil
}

// Bind binds all addresses. The sockets are for TakeSockets; after an error the caller closes them.
func (s *Settings) Bind() (http, node, dnsTCP []net.Listener, dnsUDP []net.PacketConn, err error) {
	http, err = s.bindAPI()
	node, unbound := s.bindNodes()
	dnsTCP, dnsUDP, unheard := nameserver.Bind(s.DNS.Addresses)
	return http, node, dnsTCP, dnsUDP, errors.Join(err, unbound, unheard)
}

const envPrefix = "MESHDDNS_"

// TakeSockets replaces addresses by the service manager's sockets. It returns the origins of
// the settings that have no effect for that reason.
func (s *Settings) TakeSockets(http, node, dnsTCP []net.Listener, dnsUDP []net.PacketConn) (unused []string) {
	if len(http) > 0 {
		s.Listen = nil
		unused = append(unused, s.given["listen"], s.given["socket-group"])
	}
	if len(node) > 0 {
		s.NodeListen = nil
		unused = append(unused, s.given["node-listen"])
	}
	if len(dnsTCP)+len(dnsUDP) > 0 {
		s.DNS.Addresses, s.DNS.Listeners, s.DNS.PacketConns = nil, dnsTCP, dnsUDP
		unused = append(unused, s.given["dns-listen"])
	}
	return slices.DeleteFunc(unused, func(origin string) bool { return origin == "" })
}

// variable returns an option's name in the environment.
func variable(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Lookup returns the value of an environment variable, "" if it is not set.
func Lookup(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// engineWords are words in the names of the variables that a container engine sets for a service, such as
// MESHDDNS_DB_PORT_5432_TCP for meshddns-db. No setting has one.
var engineWords = []string{"PORT", "SERVICE", "NAME", "ENV"}

// environment reads the variables of the flags that have a value. An empty variable counts as not set. An unknown one that
// resembles a setting is an error, because it is probably misspelled, unless a container engine may have set it. It returns
// the names of the others.
func (c collector) environment(environ []string) (unknown []string, faults []error) {
	known := map[string]bool{}
	for _, o := range options {
		if name := variable(o.name); o.value != "" {
			known[name] = true
			if value := Lookup(environ, name); value != "" {
				c.set(o, name, value)
			}
		}
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		suffix, ours := strings.CutPrefix(name, envPrefix)
		if !ours || known[name] {
			continue
		}
		engines := slices.ContainsFunc(strings.Split(suffix, "_"), func(word string) bool { return slices.Contains(engineWords, word) })
		if meant, ok := nearest(suffix); ok && known[variable(meant)] && !engines {
			faults = append(faults, fmt.Errorf("%s: unknown setting: the nearest is %s", name, variable(meant)))
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	sort.SliceStable(faults, func(i, j int) bool { return faults[i].Error() < faults[j].Error() })
	return unknown, faults
}

// commandLine reads flags in the forms of package flag: -name value, -name=value, with
// one hyphen or two. It continues after a mistake.
func (c collector) commandLine(args []string) (faults []error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, value, inline := strings.Cut(arg, "=")
		name, isFlag := strings.CutPrefix(name, "-")
		name = strings.TrimPrefix(name, "-")
		at := slices.IndexFunc(options, func(o option) bool { return o.name == name || o.name == "help" && name == "h" })
		switch {
		case !isFlag || name == "":
			faults = append(faults, fmt.Errorf("unexpected argument %q: want flags, which begin with -", arg))
			continue
		case at < 0:
			hint := "-help lists all flags"
			if meant, ok := nearest(name); ok {
				hint = "the nearest is -" + meant
			}
			faults = append(faults, fmt.Errorf("-%s: unknown flag: %s", name, hint))
			if !inline && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:] // probably its value
			}
			continue
		case inline:
		case options[at].value == "":
			value = "true"
		case len(args) == 0:
			faults = append(faults, fmt.Errorf("-%s: no value: want -%s %s", name, name, options[at].value))
			continue
		default:
			value, args = args[0], args[1:]
		}
		c.set(options[at], "-"+options[at].name, value)
	}
	return faults
}

// nearest returns the option that resembles an unknown name most. ok is false if none does.
func nearest(name string) (meant string, ok bool) {
	var known []string
	for _, o := range options {
		known = append(known, o.name)
	}
	return msg.Closest(name, known)
}
