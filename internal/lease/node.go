// The listener of nodes: they renew their leases there, each with a token of its own. There is no
// administration and no listing.

package lease

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// ListenerConfig has the parts of a Server.
type ListenerConfig struct {
	Leases  *Table
	Proxies []netip.Prefix     // the client of their requests is in X-Forwarded-For
	Listed  ListedFunc         // the endpoints of a name, for GET /d/<full name>
	Doors   map[string]Door    // more calls for the token of a lease, by the patterns of their routes
	Broken  func(error) msg.ID // as in web.Adapter
	Fence   web.Fence          // as there
	Log     *slog.Logger
}

// Door answers a call of a node, which may have its token as X-Api-Key, as acme-dns has it.
type Door func(*http.Request, Lease) (web.Reply, error)

// Nodes answers the requests of nodes.
type Nodes struct {
	ListenerConfig
	adapter  web.Adapter
	attempts *web.Attempts
	lines    *web.RefusalLines // about what nodes can cause as often as they like
	requests daemon.Counter
	listRate *connlimit.Rate
	lookups  chan struct{} // has an element for each lookup of a list that runs
}

// NewNodes returns a server.
func NewNodes(c ListenerConfig) *Nodes {
	lines := web.NewRefusalLines(c.Log)
	s := &Nodes{
		ListenerConfig: c, attempts: web.NewAttempts(lines), lines: lines,
		listRate: connlimit.NewRate(listRate, listClients), lookups: make(chan struct{}, maxLookups),
	}
	s.adapter = web.Adapter{Log: c.Log, Broken: c.Broken, Counted: s.count, Faults: lines, Fence: c.Fence, Refused: s.refused}
	return s
}

// Handler returns all routes, with the checks before them.
func (s *Nodes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /lease", s.renewing(s.put, ""))
	mux.Handle("GET /lease", s.renewing(s.hook, "", web.AnyMember))
	mux.HandleFunc("GET "+updatePath, s.dyndns)
	for pattern, door := range s.Doors {
		mux.Handle(pattern, s.renewing(door, "X-Api-Key"))
	}
	for at, allow := range map[string]string{"/lease": "GET, PUT", updatePath: "GET"} {
		mux.HandleFunc("HEAD "+at, s.only(allow)) // the pattern GET would match it, and renew
		mux.HandleFunc(at, s.only(allow))         // the mux would name HEAD
	}
	mux.HandleFunc("GET /d/{name}", s.list)
	routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.adapter.Route(mux, w, s.cleaned(r)) })
	checked := web.GuardSite(web.GuardConfig{Deny: s.deny, Log: s.Log}, routes)
	return s.adapter.Safe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checked.ServeHTTP(w, s.withClient(r))
	}))
}

// cleaned returns a request with the clean path of an update or of a door. Some routers put a slash of their own before or
// after it, as acme-dns's clients do where a base address ends with one, and they do not follow a redirect.
func (s *Nodes) cleaned(r *http.Request) *http.Request {
	at := path.Clean(r.URL.Path)
	if r.URL.Path == at || at != updatePath && s.Doors["POST "+at] == nil {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = at, ""
	return r
}

// only refuses other methods than those that it names.
func (s *Nodes) only(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		s.adapter.Refuse(w, r, web.Fail(msg.MethodNotAllowed, allow))
	}
}

// deny answers a request that a browser sends for another site.
func (s *Nodes) deny(w http.ResponseWriter, r *http.Request, refusal web.Denial) {
	s.adapter.Refuse(w, r, &web.Failure{Status: refusal.Status, ID: msg.ID(refusal.Code)})
	s.count("", refusal.Status, refusal.Code)
}

func (s *Nodes) count(route string, status int, _ string) {
	s.requests.Add(1, daemon.Label{Name: "route", Value: route}, daemon.Label{Name: "code", Value: strconv.Itoa(status)})
}

// WriteMetrics writes the figures of the requests.
func (s *Nodes) WriteMetrics(page *daemon.Page) {
	s.requests.Write(page, "meshddns_node_requests_total", "Answered requests of nodes.")
}

type clientKey struct{}

// withClient returns a request with the client's address, which it also puts into RemoteAddr.
func (s *Nodes) withClient(r *http.Request) *http.Request {
	address := s.client(r)
	r = r.WithContext(context.WithValue(r.Context(), clientKey{}, address))
	if address.IsValid() {
		r.RemoteAddr = netip.AddrPortFrom(address, 0).String()
	}
	return r
}

// clientOf returns the client's address, zero if a proxy does not tell it.
func clientOf(r *http.Request) netip.Addr {
	address, _ := r.Context().Value(clientKey{}).(netip.Addr)
	return address
}

// client returns the address at the other end of the connection. If that is a trusted proxy, it
// returns the last address of X-Forwarded-For that is not one; zero if that is not an address.
func (s *Nodes) client(r *http.Request) netip.Addr {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := remote.Addr().Unmap()
	if !s.trusts(address) {
		return address
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
		if address = forwardedAddr(strings.TrimSpace(text)); !address.IsValid() || !s.trusts(address) {
			return address
		}
	}
	return address
}

// forwardedAddr reads an address with or without a port: some proxies, such as Azure's, write the port. The
// zero Addr stands for anything else.
func forwardedAddr(text string) netip.Addr {
	address, err := netip.ParseAddr(text)
	if err != nil {
		pair, _ := netip.ParseAddrPort(text)
		address = pair.Addr()
	}
	if address.Zone() != "" {
		return netip.Addr{}
	}
	return address.Unmap()
}

func (s *Nodes) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(s.Proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// basic returns the user and the password of "Authorization: Basic".
func basic(r *http.Request) (user, password string) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", ""
	}
	pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", ""
	}
	user, password, _ = strings.Cut(string(pair), ":")
	return user, password
}

// tokenOf returns the token of "Authorization: Bearer", or the password of "Basic".
func tokenOf(r *http.Request) string {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(text)
	}
	_, password := basic(r)
	return password
}

// authenticate returns the lease of the first token that is right, because a proxy may have put a password of its own into
// Authorization; or a failure with the status 401 or 429. A request without a token does not count as a wrong one.
func (s *Nodes) authenticate(r *http.Request, tokens ...string) (l Lease, err error) {
	unauthorized := &web.Failure{Status: http.StatusUnauthorized, ID: msg.Unauthorized}
	if tokens = slices.DeleteFunc(tokens, func(token string) bool { return token == "" }); len(tokens) == 0 {
		return l, unauthorized
	}
	for _, token := range tokens {
		if l, err = s.Leases.Find(r.Context(), Token(token)); !errors.Is(err, ErrUnknown) {
			return l, err
		}
	}
	if wait := s.attempts.Wrong(r); wait > 0 {
		return l, &web.Failure{Status: http.StatusTooManyRequests, ID: msg.TooManyAttempts, RetryAfter: wait}
	}
	return l, unauthorized
}

// refused logs a renewal that is refused.
func (s *Nodes) refused(r *http.Request, err error) {
	f := web.FailureOf(err, s.Broken)
	s.lines.Refused(r, web.Denial{Status: f.Status, Code: string(f.ID)})
}

// as returns a request whose changes are a lease's, in events and audit lines.
func as(r *http.Request, l Lease) *http.Request {
	r = web.WithCaller(r, l.Caller())
	return r.WithContext(events.By(r.Context(), l.Caller()))
}
