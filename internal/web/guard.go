// The guard checks requests before the routes: the Host (against DNS rebinding), requests that a browser sends
// for another site, the bearer token, and the rate of wrong tokens. It also names the caller.
//
// Addresses are those of the connection. The guard ignores forwarding headers, so all callers behind a proxy share one count
// of wrong tokens.

package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/rights"
)

// GuardConfig has the settings of a guard. Deny is required.
type GuardConfig struct {
	// Tokens are the accepted tokens; nil: clients need no token.
	Tokens *Tokens
	// AllowHosts are accepted as Host, as are addresses and the loopback names. An entry with a port
	// matches that port only. Clients omit the ports 80 (http) and 443 (https), so the entry must too.
	// An entry that is neither a name nor an address matches nothing.
	AllowHosts []string
	// Deny writes the answer to a refused request; the headers of the refusal are already set.
	Deny func(w http.ResponseWriter, r *http.Request, refusal Denial)
	// Log gets at most one line a second and code about refusals; nil: none.
	Log *slog.Logger
	// Now is the clock of the limits; nil: time.Now.
	Now func() time.Time
}

// Denial is the reason for refusing a request.
type Denial struct {
	Status     int
	Code       string        // "host_not_allowed", "cross_site", "own_notification", "unauthorized", "basic_reads_only", "too_many_attempts" or "not_permitted"
	Host       string        // of the request, at most 200 octets
	RetryAfter time.Duration // with too_many_attempts: the time until a wrong token is answered with 401 again
}

// isProbe reports whether a request asks for the health of the program. Load balancers ask for /healthz, or
// "OPTIONS /" with HTTP/1.0 and no Host, as HAProxy does by default.
func isProbe(r *http.Request) bool {
	return r.URL.Path == "/healthz" || r.URL.Path == "/" && r.Method == http.MethodOptions
}

// NotificationHeader is in every request that the program sends as a notification. Listeners refuse it, because
// a notification that causes another one would never end.
const NotificationHeader = "X-Meshddns-Notification"

// GuardTCP guards a handler that a network can reach. It checks Host, site and token, in this order. A health probe needs no
// token, because probes have none, and may have any Host, because its answer is not confidential.
func GuardTCP(cfg GuardConfig, next http.Handler) http.Handler {
	g := newGuard(cfg)
	return g.checkHost(g.checkSite(g.checkToken(next)))
}

// GuardSite refuses the requests that a browser sends for another site, and notifications of this program. It guards a unix
// socket, because a proxy may forward a browser's request. File permissions limit the clients, and DNS rebinding cannot reach it.
func GuardSite(cfg GuardConfig, next http.Handler) http.Handler { return newGuard(cfg).checkSite(next) }

// guard has the state of the checks.
type guard struct {
	GuardConfig
	attempts *wrongTokens
	refusals *RefusalLines
}

func newGuard(cfg GuardConfig) *guard {
	return &guard{GuardConfig: cfg, attempts: newWrongTokens(cfg.Now), refusals: NewRefusalLines(cfg.Log)}
}

// checkHost prevents DNS rebinding. When the name of a page at evil.example begins to resolve to 127.0.0.1, its requests are
// same-origin to the browser. Only the Host shows it: it is the page's name, never an address.
func (g *guard) checkHost(next http.Handler) http.Handler {
	allowed := allowedHosts(g.AllowHosts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := parseHost(r.Host); !isProbe(r) && (!ok || !h.address && !h.loopback() && !allowed(h)) {
			g.refuse(w, r, Denial{Status: http.StatusForbidden, Code: "host_not_allowed"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) checkSite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(NotificationHeader) != "" {
			g.refuse(w, r, Denial{Status: http.StatusForbidden, Code: "own_notification"})
			return
		}
		if crossSite(r) {
			g.refuse(w, r, Denial{Status: http.StatusForbidden, Code: "cross_site"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossSite reports whether a browser sent r for another site, with any method. Browsers that know Sec-Fetch-Site always
// send it; old ones send only Origin. A request with neither is not from a browser, or is same-origin. A link to the
// status page does no harm: the other site sees nothing of the answer.
func crossSite(r *http.Request) bool {
	if sites := r.Header.Values("Sec-Fetch-Site"); len(sites) > 0 {
		return sites[0] != "same-origin" && sites[0] != "none" && !followsLink(r)
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	origin, err := url.Parse(origins[0])
	// "null" has no host: it must not equal the empty Host of an HTTP/1.0 request.
	return err != nil || origin.Host == "" || !strings.EqualFold(origin.Host, r.Host)
}

// pages are the paths of the pages for browsers. Each entry of the second one has a page, too.
var pages = []string{"/", "/names", "/nodes", "/zones", "/events"}

// IsPage reports whether a path is that of a page for browsers, and none of the API.
func IsPage(path string) bool {
	id, named := strings.CutPrefix(path, pages[1]+"/")
	return slices.Contains(pages, path) || named && id != "" && !strings.Contains(id, "/")
}

// followsLink reports whether a browser opens a page in a tab of its own, because the user followed a link.
func followsLink(r *http.Request) bool {
	return r.Method == http.MethodGet && IsPage(r.URL.Path) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

func (g *guard) checkToken(next http.Handler) http.Handler {
	if g.Tokens == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) {
			next.ServeHTTP(w, r)
			return
		}
		caller, refusal := g.authenticate(r)
		if refusal.Status != 0 {
			g.refuse(w, r, refusal)
			return
		}
		next.ServeHTTP(w, r.WithContext(rights.With(r.Context(), caller)))
	})
}

// authenticate returns the caller with the request's token, or the refusal. It does not
// count a request without a token. A correct token passes after any number of wrong ones, so
// a client behind the same address cannot lock the administrator out; the shortest
// token is too long to be guessed at any rate.
func (g *guard) authenticate(r *http.Request) (caller rights.Caller, refusal Denial) {
	unauthorized := Denial{Status: http.StatusUnauthorized, Code: "unauthorized"}
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return caller, unauthorized
	}
	if changes(r) && strings.EqualFold(strings.Split(authorization, " ")[0], "Basic") { // a browser could be made to send its stored password
		return caller, Denial{Status: http.StatusUnauthorized, Code: "basic_reads_only"}
	}
	tokens := g.Tokens.list()
	if at := findToken(tokens, credential(authorization)); at >= 0 {
		return tokens[at].caller, Denial{}
	}
	if wait := g.attempts.wrongToken(network(r.RemoteAddr)); wait > 0 {
		return caller, Denial{Status: http.StatusTooManyRequests, Code: "too_many_attempts", RetryAfter: wait}
	}
	return caller, unauthorized
}

// credential returns the token of "Bearer TOKEN", the password of "Basic", because browsers send no Bearer, or "", which is
// never a token, for another form.
func credential(authorization string) string {
	scheme, token, _ := strings.Cut(authorization, " ")
	token = strings.TrimLeft(token, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return token
	case strings.EqualFold(scheme, "Basic"):
		pair, err := base64.StdEncoding.DecodeString(token)
		if _, password, _ := strings.Cut(string(pair), ":"); err == nil {
			return password
		}
	}
	return ""
}

// Accepts reports whether a request names a media type among the accepted ones (RFC 9110, section
// 12.5.1). Wildcards are not enough, because programs send them.
func Accepts(r *http.Request, mediaType string) bool {
	for entry := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		name, parameters, _ := strings.Cut(entry, ";")
		if strings.EqualFold(strings.TrimSpace(name), mediaType) && !refusing(parameters) {
			return true
		}
	}
	return false
}

// refusing reports whether the parameters of an accepted type have the weight 0.
func refusing(parameters string) bool {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if weight, err := strconv.ParseFloat(value, 64); strings.EqualFold(name, "q") && err == nil && weight == 0 {
			return true
		}
	}
	return false
}

// OfferSchemes tells the client of an answer 401 how it can send its token. Browsers, wget and others send a password only
// where Basic is offered. It is the first, because uclient-fetch of OpenWrt reads the first only.
func OfferSchemes(h http.Header, basic bool) {
	if basic {
		h.Set("WWW-Authenticate", `Basic realm="meshddns"`)
	}
	h.Add("WWW-Authenticate", "Bearer")
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, refusal Denial) {
	switch refusal.Status {
	case http.StatusUnauthorized:
		OfferSchemes(w.Header(), !changes(r))
	case http.StatusTooManyRequests:
		seconds := (refusal.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	refusal.Host = cut(r.Host)
	g.refusals.Refused(r, refusal)
	g.Deny(w, r, refusal)
}

type callerKey struct{}

func withCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// WithCaller returns a request whose Caller is the given one.
func WithCaller(r *http.Request, caller string) *http.Request {
	return r.WithContext(withCaller(r.Context(), caller))
}

// withPeer stores the user and process at the other end of a unix socket, for Caller.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if socket, ok := c.(*net.UnixConn); ok {
		user, process, known := connlimit.Peer(socket)
		if !known {
			return withCaller(ctx, "unix socket")
		}
		return withCaller(ctx, fmt.Sprintf("uid %d pid %d", user, process))
	}
	return ctx
}

// Rights returns the sender of the request with its rights.
func Rights(r *http.Request) rights.Caller { return rights.Of(r.Context()) }

// Caller returns the sender of the request, for audit lines: "token 1", `token "dashboard"`, "uid 1000 pid 4242", or the remote address
// ("127.0.0.1") when the guard requires no token. An unknown unix peer is "unix socket".
func Caller(r *http.Request) string {
	if token := Rights(r).Token; token != "" {
		return token
	}
	if caller, ok := r.Context().Value(callerKey{}).(string); ok {
		return caller
	}
	if remote, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return remote.Addr().Unmap().String()
	}
	return r.RemoteAddr
}
