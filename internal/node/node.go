// Package node is the listener of nodes: they renew their leases there, each with a token of its own.
// There is no administration and no listing.
package node

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

	"meshddns/internal/envelope"
	"meshddns/internal/events"
	"meshddns/internal/guard"
	"meshddns/internal/lease"
	"meshddns/internal/metrics"
	"meshddns/internal/msg"
)

// Config has the parts of a Server.
type Config struct {
	Leases  *lease.Table
	Proxies []netip.Prefix     // the client of their requests is in X-Forwarded-For
	Listed  ListedFunc         // the endpoints of a name, for GET /d/<full name>
	Broken  func(error) msg.ID // as in envelope.Adapter
	Log     *slog.Logger
}

// Server answers the requests of nodes.
type Server struct {
	Config
	adapter  envelope.Adapter
	attempts *guard.Attempts
	lines    *guard.Lines // about what nodes can cause as often as they like
	requests metrics.Counter
}

// New returns a server.
func New(c Config) *Server {
	lines := guard.NewLines(c.Log)
	s := &Server{Config: c, attempts: guard.NewAttempts(lines), lines: lines}
	s.adapter = envelope.Adapter{Log: c.Log, Broken: c.Broken, Counted: s.count, Faults: lines, Refused: s.refused}
	return s
}

// Handler returns all routes, with the checks before them.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /lease", s.renewing(s.put))
	mux.Handle("GET /lease", s.renewing(s.hook))
	mux.HandleFunc("GET "+updatePath, s.dyndns)
	mux.HandleFunc("HEAD /lease", s.noHead("GET, PUT")) // the pattern GET would match it, and renew
	mux.HandleFunc("HEAD "+updatePath, s.noHead("GET"))
	mux.Handle("GET /d/{name}", newURLs(s.Listed, clientOf, s.adapter))
	routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.adapter.Route(mux, w, cleaned(r)) })
	checked := guard.Site(guard.Config{Deny: s.deny, Log: s.Log}, routes)
	return s.adapter.Safe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checked.ServeHTTP(w, s.withClient(r))
	}))
}

// cleaned returns a request with the clean path of an update. Some routers put a slash of their own before or after
// it, and their clients do not follow a redirect.
func cleaned(r *http.Request) *http.Request {
	if r.URL.Path == updatePath || path.Clean(r.URL.Path) != updatePath {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = updatePath, ""
	return r
}

// noHead refuses HEAD.
func (s *Server) noHead(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		s.adapter.Refuse(w, r, envelope.Fail(msg.MethodNotAllowed, allow))
	}
}

// deny answers a request that a browser sends for another site.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, refusal guard.Denial) {
	s.adapter.Refuse(w, r, &envelope.Failure{Status: refusal.Status, ID: msg.ID(refusal.Code)})
	s.count("", refusal.Status, refusal.Code)
}

func (s *Server) count(route string, status int, _ string) {
	s.requests.Add(1, metrics.Label{Name: "route", Value: route}, metrics.Label{Name: "code", Value: strconv.Itoa(status)})
}

// WriteMetrics writes the figures of the requests.
func (s *Server) WriteMetrics(page *metrics.Page) {
	s.requests.Write(page, "meshddns_node_requests_total", "Answered requests of nodes.")
}

type clientKey struct{}

// withClient returns a request with the client's address, which it also puts into RemoteAddr.
func (s *Server) withClient(r *http.Request) *http.Request {
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
func (s *Server) client(r *http.Request) netip.Addr {
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

func (s *Server) trusts(a netip.Addr) bool {
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

// authenticate returns the lease of a token, or a failure with the status 401 or 429. A request
// without a token does not count as a wrong one, and a right token always passes.
func (s *Server) authenticate(r *http.Request, token string) (lease.Lease, error) {
	unauthorized := &envelope.Failure{Status: http.StatusUnauthorized, ID: msg.Unauthorized}
	if token == "" {
		return lease.Lease{}, unauthorized
	}
	l, err := s.Leases.Find(r.Context(), lease.Token(token))
	if !errors.Is(err, lease.ErrUnknown) {
		return l, err
	}
	if wait := s.attempts.Wrong(r); wait > 0 {
		return l, &envelope.Failure{Status: http.StatusTooManyRequests, ID: msg.TooManyAttempts, RetryAfter: wait}
	}
	return l, unauthorized
}

// refused logs a renewal that is refused.
func (s *Server) refused(r *http.Request, err error) {
	f := envelope.FailureOf(err, s.Broken)
	s.lines.Refused(r, guard.Denial{Status: f.Status, Code: string(f.ID)})
}

// as returns a request whose changes are a lease's, in events and audit lines.
func as(r *http.Request, l lease.Lease) *http.Request {
	r = guard.WithCaller(r, l.Caller())
	return r.WithContext(events.By(r.Context(), l.Caller()))
}
