package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

type leaseKey struct{}

// renewing makes a handler of a renewal, for a request with the token of a lease, which may also be in the header key ("" for none).
func (s *Nodes) renewing(renew Door, key string, members ...string) http.Handler {
	answer := s.adapter.Handle(func(r *http.Request) (web.Reply, error) {
		l := r.Context().Value(leaseKey{}).(Lease)
		reply, err := renew(r, l)
		return reply, s.judged(r, l, err)
	}, members...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, err := s.authenticate(r, r.Header.Get(key), tokenOf(r))
		if err != nil {
			if web.FailureOf(err, s.Broken).Status == http.StatusUnauthorized {
				web.OfferSchemes(w.Header(), true)
			}
			s.adapter.Refuse(w, r, err)
			return
		}
		r = as(r, l)
		answer.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaseKey{}, l)))
	})
}

// judged returns the answer for the error of a renewal. It counts a refusal, and keeps it for the administrator, unless the
// fault is ours.
func (s *Nodes) judged(r *http.Request, l Lease, err error) error {
	if err == nil {
		return nil
	}
	f := web.FailureOf(err, s.Broken)
	if soon, early := errors.AsType[*TooSoonError](err); early {
		f = web.Fail(msg.LeaseTooSoon)
		f.RetryAfter = soon.Wait
	} else if errors.Is(err, ErrUnknown) { // it has ended since the token was checked
		f = &web.Failure{Status: http.StatusUnauthorized, ID: msg.Unauthorized}
	}
	s.Leases.refused.Add(1, daemon.Label{Name: "reason", Value: string(f.ID)})
	if f.Status < http.StatusInternalServerError {
		last := &refusal{Shown(s.Leases.config.Now()), f.ID, shownAddr(clientOf(r))}
		if f.ID == msg.LeaseAddress {
			last.Address = fmt.Sprintf("%.255s", f.Args[0])
		}
		s.Leases.clocks.refuse(l.Seq, last)
	}
	return f
}

// put renews a lease with the endpoints of the body.
func (s *Nodes) put(r *http.Request, l Lease) (web.Reply, error) {
	var body struct {
		Endpoints []string `json:"endpoints"`
	}
	if err := web.Decode(r, &body); err != nil {
		return web.Reply{}, err
	}
	if body.Endpoints == nil {
		return web.Reply{}, web.Fail(msg.LeaseEndpointsMissing)
	}
	return s.renew(r, l, body.Endpoints, Keep{})
}

// hookMembers are the members of the query of a hook. Another one is refused, because a misspelled
// member must not publish the client's address.
var hookMembers = []string{"addr", "port", "proto"}

// hook renews a lease with the address, the port and the protocol of the query: what natmap gives its
// hook, once for each protocol. Without an address the client's counts, without a protocol it is about all endpoints.
func (s *Nodes) hook(r *http.Request, l Lease) (web.Reply, error) {
	query, err := web.ParseQuery(r)
	if err != nil {
		return web.Reply{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(hookMembers, name) || len(query[name]) > 1 {
			return web.Reply{}, web.Fail(msg.QueryInvalid, strconv.Quote(name[:min(len(name), 64)]), "addr, port, proto")
		}
	}
	address, err := s.addressOr(r, query.Get("addr"))
	if err != nil {
		return web.Reply{}, err
	}
	port, err := strconv.ParseUint(query.Get("port"), 10, 16)
	if err != nil {
		return web.Reply{}, web.Fail(msg.QueryInvalid, "port", "1..65535")
	}
	if query.Has("proto") && query.Get("proto") == "" { // of a script whose variable is empty, which means one scheme
		return web.Reply{}, web.Fail(msg.QueryInvalid, "proto", "tcp, udp")
	}
	endpoint := cmp.Or(query.Get("proto"), "tcp") + "://" + netip.AddrPortFrom(address, uint16(port)).String()
	return s.renew(r, l, []string{endpoint}, Keep{Scheme: query.Get("proto")})
}

// addressOr reads an address. "" stands for the client's address, which must be public, because the
// address of a private network is of no use to others.
func (s *Nodes) addressOr(r *http.Request, text string) (netip.Addr, error) {
	if text == "" {
		address := clientOf(r)
		if !mesh.IsPublic(address) {
			return address, web.Fail(msg.LeaseNoAddress, address.String())
		}
		return address, nil
	}
	address, err := netip.ParseAddr(text)
	if address = address.Unmap(); err != nil || !usable(address) {
		return address, web.Fail(msg.QueryInvalid, "addr", "203.0.113.7 | 2001:db8::7")
	}
	return address, nil
}

// usable reports whether a node can have an address: some clients send 0.0.0.0 while they have none.
func usable(a netip.Addr) bool {
	return a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast()
}

// leftOut is an endpoint of the node that a format leaves out.
type leftOut struct {
	Format   string `json:"format"`
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`
}

// renew renews a lease. Only a change gets an audit line.
func (s *Nodes) renew(r *http.Request, l Lease, endpoints []string, keep Keep) (web.Reply, error) {
	renewal, err := s.Leases.Renew(r.Context(), l, endpoints, keep, clientOf(r))
	if err != nil {
		return web.Reply{}, err
	}
	all, err := s.Leases.LeftOut(r.Context(), l, renewal)
	shown := []leftOut{}
	for _, e := range all {
		shown = append(shown, leftOut{e.Format, e.Endpoint, e.Reason.In(web.Language(r))})
	}
	reply := web.Reply{ID: l.ID, Audit: web.NotAudited, Data: struct {
		Endpoints []string  `json:"endpoints"`
		ExpiresAt string    `json:"expires_at"`
		Changed   bool      `json:"changed"`
		LeftOut   []leftOut `json:"left_out"`
	}{renewal.Endpoints, Shown(renewal.ExpiresAt), renewal.Changed, shown}}
	if renewal.Changed {
		reply.Audit = web.Audited
	}
	return reply, err
}
