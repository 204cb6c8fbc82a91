// Package guard stands between the listener and the routes. It looks at the Host (DNS rebinding), at requests a browser sends
// for another site, at the bearer token and at the number of wrong ones, and it knows the caller.
//
// Addresses are those of the connection: forwarding headers are not believed, so behind a proxy all callers share one count of
// wrong tokens.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config has the settings of a guard. Deny is required.
type Config struct {
	// Tokens that are accepted; with nil, no token is asked for.
	Tokens *Tokens
	// AllowHosts are accepted as Host beside addresses and the loopback names. An entry with a port
	// is for that port only; as clients leave out 80 (http) and 443 (https), so must the entry. One
	// that is neither a name nor an address matches nothing.
	AllowHosts []string
	// Deny writes the answer to a request that was stopped; headers that belong to the refusal are already set.
	Deny func(w http.ResponseWriter, r *http.Request, refusal Denial)
	// Log gets a line about refusals, one a second at most; nil is none.
	Log *slog.Logger
	// Now is the clock of the limits; nil is time.Now.
	Now func() time.Time
}

// Denial says why a request was stopped.
type Denial struct {
	Status     int
	Code       string        // "host_not_allowed", "cross_site", "unauthorized" or "too_many_attempts"
	Host       string        // of the request, cut where it is long
	RetryAfter time.Duration // with too_many_attempts: when the next wrong token is answered 401 again
}

// healthPath is the path that probes ask.
const healthPath = "/healthz"

// TCP guards a handler that a network can reach: it checks Host, site and token, in this order. /healthz needs no token,
// because probes have none, and takes any Host, because its answer has nothing to protect.
func TCP(cfg Config, next http.Handler) http.Handler {
	g := newGuard(cfg)
	return g.checkHost(g.checkSite(g.checkToken(next)))
}

// Unix guards a unix socket. File permissions say who may connect, and DNS can't lead there, but a proxy may carry a browser's
// request to it.
func Unix(cfg Config, next http.Handler) http.Handler {
	return newGuard(cfg).checkSite(next)
}

// guard has the state of the checks.
type guard struct {
	Config
	attempts *wrongTokens
	refusals *refusals
}

func newGuard(cfg Config) *guard {
	return &guard{Config: cfg, attempts: newWrongTokens(cfg.Now), refusals: &refusals{log: cfg.Log}}
}

// checkHost stops DNS rebinding: a page at evil.example whose name suddenly resolves to 127.0.0.1 is same-origin to the browser,
// and only the Host tells. It is the page's own name then, never an address.
func (g *guard) checkHost(next http.Handler) http.Handler {
	allowed := allowedHosts(g.AllowHosts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := parseHost(r.Host); r.URL.Path != healthPath && (!ok || !h.address && !h.loopback() && !allowed(h)) {
			g.refuse(w, r, Denial{Status: http.StatusForbidden, Code: "host_not_allowed"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) checkSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if crossSite(r) {
			g.refuse(w, r, Denial{Status: http.StatusForbidden, Code: "cross_site"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossSite reports whether a browser sent r for another site, whatever the method. Browsers that know Sec-Fetch-Site always
// send it, old ones have only Origin; what has neither is no browser, or one on a page of ours.
func crossSite(r *http.Request) bool {
	if sites := r.Header.Values("Sec-Fetch-Site"); len(sites) > 0 {
		return sites[0] != "same-origin" && sites[0] != "none"
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	origin, err := url.Parse(origins[0])
	// "null" has no host: it must not equal the empty Host of an HTTP/1.0 request.
	return err != nil || origin.Host == "" || !strings.EqualFold(origin.Host, r.Host)
}

func (g *guard) checkToken(next http.Handler) http.Handler {
	if g.Tokens == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath {
			next.ServeHTTP(w, r)
			return
		}
		number, refusal := g.authenticate(r)
		if number == 0 {
			g.refuse(w, r, refusal)
			return
		}
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), fmt.Sprintf("token %d", number))))
	})
}

// authenticate gives the number of the request's token, from 1, or 0 and the refusal. A request
// without a token is no guess and is not counted. A right token passes however many wrong ones came
// before: a client behind the same address cannot lock the administrator out, and the shortest
// token is too long to be guessed at any rate.
func (g *guard) authenticate(r *http.Request) (int, Denial) {
	unauthorized := Denial{Status: http.StatusUnauthorized, Code: "unauthorized"}
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return 0, unauthorized
	}
	if number := findToken(g.Tokens.list(), bearer(authorization)); number > 0 {
		return number, Denial{}
	}
	if wait := g.attempts.wrongToken(network(r.RemoteAddr)); wait > 0 {
		return 0, Denial{Status: http.StatusTooManyRequests, Code: "too_many_attempts", RetryAfter: wait}
	}
	return 0, unauthorized
}

// bearer takes the token out of "Bearer TOKEN"; what has another form gives "", which is no token.
func bearer(authorization string) string {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, refusal Denial) {
	switch refusal.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		seconds := (refusal.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	refusal.Host = cut(r.Host)
	g.refusals.note(r, refusal)
	g.Deny(w, r, refusal)
}

type callerKey struct{}

func withCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// ConnContext is for http.Server.ConnContext: it remembers the user and process that connected to a unix socket.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if socket, ok := c.(*net.UnixConn); ok {
		return withCaller(ctx, peer(socket))
	}
	return ctx
}

// Caller gives the sender of the request, for audit lines: "token 1", "uid 1000 pid 4242", or the remote address ("127.0.0.1") when no
// token was asked for. A unix peer that can't be told is "unix socket".
func Caller(r *http.Request) string {
	if caller, ok := r.Context().Value(callerKey{}).(string); ok {
		return caller
	}
	if remote, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return remote.Addr().Unmap().String()
	}
	return r.RemoteAddr
}
