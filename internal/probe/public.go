package probe

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"meshddns/internal/dnswire"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/tasks"
)

// Public is how everybody else sees a zone: a resolver tells its name
// servers, and these are asked.
type Public struct {
	Resolver *net.Resolver
	Port     string        // of DNS servers
	Root     string        // a zone that every resolver of this DNS knows
	Patience time.Duration // until a provider's servers have a new value
}

// Internet is the DNS of the world, as this host's resolver sees it.
var Internet = Public{Resolver: net.DefaultResolver, Port: "53", Root: ".", Patience: 15 * time.Second}

// Kinds of what a look at the public DNS tells.
const (
	NotDelegated provider.Kind = "not_delegated" // the world asks other servers than the provider's
	NoResolver   provider.Kind = "no_resolver"   // this host cannot look
	ValueMissing provider.Kind = "value_missing" // a value that was written is not there
)

const (
	lookupTime    = 3 * time.Second        // bounds one look into the public DNS
	askAgainAfter = 500 * time.Millisecond // while they have not
)

// nameServers gives the servers that the world asks about a zone; none is no
// error, nor are servers that do not answer for it (SERVFAIL). But a resolver
// that does not know the root either, such as that of a closed network, sees
// nothing of the world.
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

// delegated compares the servers that the world asks with those of the
// provider. Its error is NotDelegated, or NoResolver.
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

// sees waits until an authoritative server shows a value: the one of the
// authority, else one that the zone is delegated to.
func (p Public) sees(ctx context.Context, authority provider.Authority, zone, name string, value provider.TXT) error {
	if authority.Server != "" {
		set, err := ask(ctx, authority.Server, name)
		return see(set, value, err)
	}
	servers, err := p.addresses(ctx, zone)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	again := time.NewTicker(askAgainAfter)
	defer again.Stop()
	for {
		now := anySees(ctx, servers, name, value)
		if err == nil || provider.KindOf(now) != provider.Network {
			err = now // an answer says more than none, such as the end of the time leaves
		}
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// anySees asks all servers at once: some may be silent.
func anySees(ctx context.Context, servers []string, name string, value provider.TXT) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	answers := make(chan error, len(servers))
	for _, server := range servers {
		go func() {
			answers <- tasks.Call(func() error {
				set, err := ask(ctx, server, name)
				return see(set, value, err)
			})
		}()
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

// addresses gives the zone's servers as host:port.
func (p Public) addresses(ctx context.Context, zone string) (servers []string, err error) {
	names, err := p.nameServers(ctx, zone)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	for _, name := range names {
		found, _ := p.Resolver.LookupHost(ctx, name) // one server that can be found is enough
		for _, address := range found {
			servers = append(servers, net.JoinHostPort(address, p.Port))
		}
	}
	if len(servers) == 0 {
		return nil, &provider.Error{Kind: NotDelegated, Detail: msg.Textf("public DNS has no name servers that answer for %s", zone)}
	}
	return servers, nil
}

func see(set provider.RRset, value provider.TXT, err error) error {
	if err == nil && !slices.ContainsFunc(set.Values, value.Equal) {
		return &provider.Error{Kind: ValueMissing}
	}
	return err
}

// ask asks an authoritative server for the TXT values at a name, as any
// resolver would.
func ask(ctx context.Context, server, name string) (set provider.RRset, err error) {
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return set, &provider.Error{Kind: provider.Invalid, Err: err}
	}
	query := dnswire.Message{ID: uint16(mathrand.Uint32()), Questions: []dnswire.Question{{Name: wire, Type: dnswire.TypeTXT, Class: dnswire.ClassIN}}}
	data, err := dnswire.Exchange(ctx, server, query.Pack())
	if err != nil {
		return set, &provider.Error{Kind: provider.Network, Detail: msg.Textf("query %s %s at %s", name, "TXT", server), Err: err}
	}
	answer, err := dnswire.Parse(data)
	switch {
	case err != nil:
		return set, &provider.Error{Kind: provider.BadAnswer, Err: err}
	case !answer.Authoritative:
		return set, &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Textf("%s answers %s without authority", server, answer.Rcode)}
	}
	for _, rr := range answer.Answers {
		if value, err := dnswire.ParseTXT(rr.Data); err == nil && rr.Type == dnswire.TypeTXT && rr.Name.Fold() == wire.Fold() {
			set.TTL, set.Values = rr.TTL, append(set.Values, value)
		}
	}
	return set, nil
}
