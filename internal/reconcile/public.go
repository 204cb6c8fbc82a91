package reconcile

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Public is the view of a zone from the public DNS: a resolver finds its name servers, and
// the test asks these.
type Public struct {
	Resolver *net.Resolver
	Port     string        // of DNS servers
	Root     string        // a zone that every resolver of this DNS knows
	Patience time.Duration // the longest wait until a provider's servers have a new value
}

// Internet is the public DNS, seen through this host's resolver.
var Internet = Public{Resolver: net.DefaultResolver, Port: "53", Root: ".", Patience: 15 * time.Second}

// Kinds of failures of a look at the public DNS.
const (
	NotDelegated provider.Kind = "not_delegated" // the zone is delegated to other servers than the provider's
	NoResolver   provider.Kind = "no_resolver"   // this host has no working resolver
	ValueMissing provider.Kind = "value_missing" // a value that was written does not stand
	CAARefuses   provider.Kind = "caa_refuses"   // no authority may issue a certificate
)

const (
	lookupTime    = 3 * time.Second        // bounds one look at the public DNS
	askAgainAfter = 500 * time.Millisecond // between two tries
	caaServers    = 8                      // are asked for CAA records, of those that a zone has
)

// nameServers returns the servers that a zone is delegated to. A zone without servers, or
// whose servers do not answer (SERVFAIL), is no error. But a resolver that does not know
// the root either, such as one of a closed network, is NoResolver.
func (p Public) nameServers(ctx context.Context, zone string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := p.Resolver.LookupNS(ctx, zone+".")
	if e, ok := errors.AsType[*net.DNSError](err); ok && !e.IsTimeout && ctx.Err() == nil {
		_, err = p.Resolver.LookupNS(ctx, p.Root)
	}
	if err != nil {
		return nil, &provider.Error{Kind: NoResolver, Err: err}
	}
	for _, ns := range found {
		names = append(names, strings.ToLower(strings.TrimSuffix(ns.Host, ".")))
	}
	return names, nil
}

// delegated compares the servers that a zone is delegated to with the provider's servers.
// Its error is NotDelegated or NoResolver.
func (p Public) delegated(ctx context.Context, zone string, servers []string) error {
	public, err := p.nameServers(ctx, zone)
	if err != nil {
		return err
	}
	if len(public) == 0 {
		return &provider.Error{Kind: NotDelegated, Detail: msg.Textf("public DNS has no name servers that answer for %s", zone)}
	}
	if len(servers) == 0 || slices.ContainsFunc(servers, func(name string) bool {
		return slices.Contains(public, strings.ToLower(strings.TrimSuffix(name, ".")))
	}) {
		return nil
	}
	detail := msg.Textf("public DNS asks %s about %s, the provider's servers are %s", strings.Join(public, ", "), zone, strings.Join(servers, ", "))
	return &provider.Error{Kind: NotDelegated, Detail: detail}
}

// reacher is a DNS client that knows whether resolvers can reach its servers.
type reacher interface {
	// Reachable returns a warning if no resolver can reach the zone.
	Reachable(zone string) error
}

// Warning returns a warning if the zone is not delegated to the provider, or resolvers cannot
// reach it, or no authority may issue a certificate for a name, else the provider's own warning, which needs no resolver.
func (p Public) Warning(ctx context.Context, client provider.DNS, zone, name string) error {
	if own, ok := client.(reacher); ok {
		return own.Reachable(zone)
	}
	authority, err := client.Authority(ctx, zone)
	if err == nil && authority.Server == "" {
		err = p.delegated(ctx, zone, authority.Names)
	}
	if err == nil {
		err = p.refuses(ctx, authority, zone, name)
	}
	if kind := provider.KindOf(err); kind != NotDelegated && kind != CAARefuses {
		return authority.Warning
	}
	return err
}

// sees checks that an authoritative server shows a value: the authority's server, else one
// that the zone is delegated to. For the latter it waits up to Patience.
func (p Public) sees(ctx context.Context, authority provider.Authority, zone, name string, value provider.Value) error {
	look := func(ctx context.Context, server string) error {
		set, _, err := ask(ctx, server, name, dns.TypeTXT, dns.ParseTXT)
		return see(set, value, err)
	}
	if authority.Server != "" {
		return look(ctx, authority.Server)
	}
	servers, err := p.addresses(ctx, zone)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	again := time.Tick(askAgainAfter)
	for {
		now := anyOf(ctx, servers, look)
		if err == nil || provider.KindOf(now) != provider.Network {
			err = now // an answer tells more than a time-out at the end
		}
		if err == nil {
			return nil
		}
		select {
		case <-again:
		case <-ctx.Done():
			return err
		}
	}
}

// anyOf looks at all servers at once, because some may not answer. One look without an error is enough.
func anyOf(ctx context.Context, servers []string, look func(ctx context.Context, server string) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	answers := make(chan error, len(servers))
	for _, server := range servers {
		go func() { answers <- daemon.Call(func() error { return look(ctx, server) }) }()
	}
	var last error
	for range servers {
		err := <-answers
		if err == nil {
			return nil
		}
		if last == nil || provider.KindOf(err) != provider.Network {
			last = err
		}
	}
	return last
}

// addresses returns the addresses of the zone's servers, host:port.
func (p Public) addresses(ctx context.Context, zone string) (servers []string, err error) {
	names, err := p.nameServers(ctx, zone)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	for _, name := range names {
		found, _ := p.Resolver.LookupHost(ctx, name) // one server with an address is enough
		for _, address := range found {
			servers = append(servers, net.JoinHostPort(address, p.Port))
		}
	}
	if len(servers) == 0 {
		return nil, &provider.Error{Kind: NotDelegated, Detail: msg.Textf("public DNS has no name servers that answer for %s", zone)}
	}
	return servers, nil
}

// see returns ValueMissing if a set, which was read without an error, lacks a value.
func see(set provider.RRset, value provider.Value, err error) error {
	if err == nil && !slices.ContainsFunc(set.Values, value.Equal) {
		return &provider.Error{Kind: ValueMissing}
	}
	return err
}

// ask asks an authoritative server (host:port) for the values of a type at a name, as a resolver does. more means that the
// answer has other records too, such as an alias.
func ask(ctx context.Context, server, name string, t dns.Type, parse func([]byte) ([]string, error)) (set provider.RRset, more bool, err error) {
	wire, err := dns.ParseName(name)
	if err != nil {
		return set, false, &provider.Error{Kind: provider.Invalid, Err: err}
	}
	query := dns.Message{ID: uint16(mathrand.Uint32()), Questions: []dns.Question{{Name: wire, Type: t, Class: dns.ClassIN}}}
	data, err := dns.Exchange(ctx, server, query.Pack())
	if err != nil {
		detail := msg.Textf("query %s %s at %s", name, map[dns.Type]string{dns.TypeTXT: "TXT", dns.TypeCAA: "CAA"}[t], server)
		return set, false, &provider.Error{Kind: provider.Network, Detail: detail, Err: err}
	}
	answer, err := dns.ParseMessage(data)
	switch {
	case err != nil:
		return set, false, &provider.Error{Kind: provider.BadAnswer, Err: err}
	case !answer.Authoritative || answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNXDomain:
		return set, false, &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Textf("%s answers %s without authority", server, answer.Rcode)}
	}
	for _, rr := range answer.Answers {
		if value, err := parse(rr.Data); err == nil && rr.Type == t && rr.Name.Fold() == wire.Fold() {
			set.TTL, set.Values = rr.TTL, append(set.Values, value)
		}
	}
	return set, len(set.Values) < len(answer.Answers), nil
}

// refuses returns CAARefuses if the CAA RRset that counts for a name, the closest one from the name up to the apex (RFC 8659,
// section 3), lets no authority issue a certificate. An alias, a failure, and what takes over lookupTime tell nothing.
func (p Public) refuses(ctx context.Context, authority provider.Authority, zone, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	servers := []string{authority.Server}
	if authority.Server == "" {
		servers, _ = p.addresses(ctx, zone)
	}
	return anyOf(ctx, servers[:min(len(servers), caaServers)], func(ctx context.Context, server string) error {
		for at := range dns.Ancestors(name) {
			set, more, err := ask(ctx, server, at, dns.TypeCAA, dns.ParseCAA)
			switch {
			case err != nil: // the answer of another server tells more
				return &provider.Error{Kind: provider.Network, Err: err}
			case refusesAll(set.Values) && !more:
				return &provider.Error{Kind: CAARefuses, Detail: msg.Say(at)}
			case len(set.Values) > 0 || more || at == dns.Fold(zone):
				return nil
			}
		}
		return nil
	})
}

// refusesAll reports whether a CAA RRset has an "issue" property, and none of "issue" and "issuewild" names an authority. Other
// tags do not count, not even critical ones, because an authority that knows such a tag may issue.
func refusesAll(set []provider.Value) (refuses bool) {
	for _, v := range set {
		authority, _, _ := strings.Cut(v[2], ";")
		if strings.Trim(authority, " \t") != "" && (v[1] == "issue" || v[1] == "issuewild") {
			return false
		}
		refuses = refuses || v[1] == "issue"
	}
	return refuses
}
