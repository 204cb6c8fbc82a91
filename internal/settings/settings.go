// Package settings reads the command line and the environment into typed values,
// and tells every mistake in them at once.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/guard"
	"meshddns/internal/hostaddr"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/systemd"
)

// Settings are the values of the command line and the environment.
type Settings struct {
	Listen       []string // each host:port, or unix:/path; one at least
	SocketGroup  string   // of unix sockets, by name or number; "": the program's own
	DB           string   // a file
	DNS          nameserver.Config
	IPv4, IPv6   hostaddr.Source
	AllowHosts   []string      // as guard.Config has them
	Tokens       *guard.Tokens // nil: clients need none
	SyncInterval time.Duration // 1s at least
	Language     msg.Language  // of the texts for requests without Accept-Language
	LogFormat    string        // "text" or "json"
	Provision    string        // a file or a folder, "" for none
	Check        bool          // tell the mistakes, nothing else
	Version      bool          // print the version, nothing else
	Help         bool          // print Usage, nothing else

	// Credentials is the folder of systemd's credentials, "" without one.
	Credentials string

	given map[string]string // from the name of each option that was given to where
}

// Read reads the command line, and the environment for flags that are not given. The error
// joins all mistakes: each names the flag or the variable, its value, and the values that
// are allowed. The Settings have all values that are right nevertheless.
func Read(args, environ []string) (Settings, error) {
	texts := collector{}
	faults := append(texts.environment(environ), texts.commandLine(args)...)
	s := Settings{Credentials: Lookup(environ, "CREDENTIALS_DIRECTORY"), given: map[string]string{}}
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
	faults = append(faults, s.open())
	return s, errors.Join(faults...)
}

// prefixed says of each of the joined errors where it comes from.
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

// open refuses to let a network in without a token. A name is judged when it is
// listened on: only then is its address known.
func (s *Settings) open() error {
	_, withToken := s.given["token-file"]
	for _, address := range s.Listen {
		if !withToken && !isUnix(address) && !guard.Loopback(address) && !isName(address) {
			return fmt.Errorf("-listen: %q is not a loopback address: -token-file is required", address)
		}
	}
	return nil
}

// Unused names the given settings that have no effect on a program without HTTP over TCP, or
// without DNS.
func (s *Settings) Unused(tcp, dns bool) (origins []string) {
	for _, o := range options {
		if origin, ok := s.given[o.name]; ok && (o.tcp && !tcp || o.dns && !dns) {
			origins = append(origins, origin)
		}
	}
	return origins
}

// said has the values of an option, and their origin.
type said struct {
	values []string
	origin string // "-listen" or "MESHDDNS_LISTEN"
}

// collector has the values of each option by its name.
type collector map[string]said

// set notes a value. Another origin begins anew, and so does an option of one value: of two the
// last one counts.
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

const envPrefix = "MESHDDNS_"

// TakeSockets puts a service manager's sockets in the place of addresses, and names the
// settings that have no effect for that reason.
func (s *Settings) TakeSockets(sockets systemd.Sockets) (unused []string) {
	if len(sockets.HTTP) > 0 {
		s.Listen = nil
		unused = append(unused, s.given["listen"], s.given["socket-group"])
	}
	if len(sockets.DNSTCP)+len(sockets.DNSUDP) > 0 {
		s.DNS.Addresses, s.DNS.Listeners, s.DNS.PacketConns = nil, sockets.DNSTCP, sockets.DNSUDP
		unused = append(unused, s.given["dns-listen"])
	}
	return slices.DeleteFunc(unused, func(origin string) bool { return origin == "" })
}

// flag is an option's name on the command line.
func flag(name string) string { return "-" + name }

// variable is an option's name in the environment.
func variable(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Lookup gives the value of a variable, "" without one.
func Lookup(environ []string, name string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// environment reads the variables; an empty one says nothing. An unknown one is a
// mistyped one, which must not be passed over.
func (c collector) environment(environ []string) (faults []error) {
	known := map[string]bool{}
	for _, o := range options {
		name := variable(o.name)
		known[name] = true
		if value := Lookup(environ, name); value != "" {
			c.set(o, name, value)
		}
	}
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, envPrefix) && !known[name] {
			faults = append(faults, fmt.Errorf("%s: there is no such setting%s", name, suggestion(name[len(envPrefix):], variable)))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// commandLine reads flags as package flag does: -name value, -name=value, with
// one hyphen or two. It goes on after a mistake.
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
			faults = append(faults, fmt.Errorf("-%s: there is no such flag%s", name, suggestion(name, flag)))
			if !inline && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:] // probably its value
			}
			continue
		case inline:
		case options[at].value == "":
			value = "true"
		case len(args) == 0:
			faults = append(faults, fmt.Errorf("-%s: there is no %s behind it", name, options[at].value))
			continue
		default:
			value, args = args[0], args[1:]
		}
		c.set(options[at], "-"+options[at].name, value)
	}
	return faults
}

// suggestion ends the error about an unknown name: with the known name that is closest, or
// with the place where all are listed.
func suggestion(name string, written func(name string) string) string {
	var known []string
	for _, o := range options {
		known = append(known, o.name)
	}
	if meant, ok := msg.Closest(name, known); ok {
		return ", the nearest is " + written(meant)
	}
	return ": -help lists all"
}

func readSwitch(text string) (on bool, err error) {
	if on, err = strconv.ParseBool(text); err != nil {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return on, nil
}
