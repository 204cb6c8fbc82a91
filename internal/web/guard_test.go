package web

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	firstToken  = "old-0123456789abcdef"
	secondToken = "new-0123456789abcdef"
	wrongToken  = "bad-0123456789abcdef"
)

// clock is a time that only tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// deny writes the refusal as the tests compare it.
func deny(w http.ResponseWriter, _ *http.Request, refusal Denial) {
	w.WriteHeader(refusal.Status)
	io.WriteString(w, refusal.Code)
}

// sayCaller is the route behind the guard.
func sayCaller(w http.ResponseWriter, r *http.Request) { io.WriteString(w, Caller(r)) }

func twoTokens() *Tokens {
	return tokensOf(firstToken + "\n" + secondToken + "\n")
}

// tokensOf returns the tokens of a file with these lines.
func tokensOf(lines string) *Tokens {
	tokens, err := parseTokens(strings.NewReader(lines))
	if err != nil {
		panic(err)
	}
	t := &Tokens{}
	t.current.Store(&tokens)
	return t
}

// listen serves a guarded route and returns where.
func listen(t *testing.T, ln net.Listener, handler http.Handler) net.Addr {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = ln
	s.Config.ConnContext = withPeer
	s.Start()
	t.Cleanup(s.Close)
	return ln.Addr()
}

func serveTCP(t *testing.T, cfg GuardConfig) net.Addr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Deny = deny
	return listen(t, ln, GuardTCP(cfg, http.HandlerFunc(sayCaller)))
}

func serveUnix(t *testing.T, cfg GuardConfig) net.Addr {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Deny = deny
	return listen(t, ln, GuardSite(cfg, http.HandlerFunc(sayCaller)))
}

// send writes a request as it stands, with \n for the line ends, and gives the answer as "403 cross_site". It
// is also called beside the test, where Fatal is not allowed.
func guardSend(t *testing.T, d net.Dialer, to net.Addr, request string) (string, http.Header) {
	t.Helper()
	c, err := d.DialContext(t.Context(), to.Network(), to.String())
	if err != nil {
		t.Error(err)
		return "", nil
	}
	defer c.Close()
	io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")+"\r\n\r\n")
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Error(err)
		return "", nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
		return "", nil
	}
	return fmt.Sprintf("%d %s", res.StatusCode, body), res.Header
}

// get is send for a GET of / with these header lines.
func get(t *testing.T, to net.Addr, headers ...string) string {
	t.Helper()
	answer, _ := guardSend(t, net.Dialer{}, to, "GET / HTTP/1.1\n"+strings.Join(headers, "\n"))
	return answer
}

func TestHost(t *testing.T) {
	const accepted, refused = "200 127.0.0.1", "403 host_not_allowed"
	addr := serveTCP(t, GuardConfig{AllowHosts: []string{"Ddns.Example.", "nas.example:8053", "not a host"}})
	for host, want := range map[string]string{
		"localhost":              accepted,
		"localhost:8053":         accepted,
		"LocalHost.:8053":        accepted,
		"mesh.localhost":         accepted,
		"127.0.0.1:8053":         accepted,
		"127.8.9.10":             accepted,
		"[::1]":                  accepted,
		"[::1]:8053":             accepted,
		"[0:0::1]:8053":          accepted,
		"[::ffff:127.0.0.1]":     accepted,
		"ddns.example":           accepted,
		"DDNS.example.:443":      accepted,
		"nas.example:8053":       accepted,
		"192.168.1.5:8053":       accepted,
		"[fd00::1]:8053":         accepted,
		"evil.example":           refused,
		"evil.example:8053":      refused,
		"localhost.evil.example": refused,
		"evillocalhost":          refused,
		"nas.example":            refused,
		"nas.example:80":         refused,
		"sub.ddns.example":       refused,
		"0.0.0.0":                accepted,
		"[::]":                   accepted,
		"127.1":                  refused,
		"2130706433":             refused,
		"192.168.1.6":            accepted,
		"[fd00::2]":              accepted,
		"localhost:http":         refused,
		"localhost:99999":        refused,
		"localhost..":            refused,
		"[127.0.0.1]":            refused,
		"[localhost]":            refused,
		"::1":                    refused,
		"":                       refused,
	} {
		t.Run(cmp.Or(host, "empty"), func(t *testing.T) {
			if got := get(t, addr, "Host: "+host); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		if got, _ := guardSend(t, net.Dialer{}, addr, "GET / HTTP/1.0"); got != refused {
			t.Errorf("got %q, want %q", got, refused)
		}
	})
}

func TestSite(t *testing.T) {
	tests := []struct {
		name    string
		headers string
		refused bool
	}{
		{"no browser", "Host: localhost:1", false},
		{"same origin", "Host: localhost:1\nSec-Fetch-Site: same-origin", false},
		{"address bar", "Host: localhost:1\nSec-Fetch-Site: none", false},
		{"cross site", "Host: localhost:1\nSec-Fetch-Site: cross-site", true},
		{"same site, another port or name", "Host: localhost:1\nSec-Fetch-Site: same-site", true},
		{"empty Sec-Fetch-Site", "Host: localhost:1\nSec-Fetch-Site:", true},
		{"Sec-Fetch-Site outweighs Origin", "Host: localhost:1\nSec-Fetch-Site: cross-site\nOrigin: http://localhost:1", true},
		{"own Origin", "Host: localhost:1\nOrigin: http://LOCALHOST:1", false},
		{"Origin of another port", "Host: localhost:1\nOrigin: http://localhost:2", true},
		{"Origin of another host", "Host: localhost:1\nOrigin: https://evil.example", true},
		{"opaque Origin", "Host: localhost:1\nOrigin: null", true},
		{"broken Origin", "Host: localhost:1\nOrigin: http://[", true},
	}
	listeners := map[string]net.Addr{"tcp": serveTCP(t, GuardConfig{}), "unix": serveUnix(t, GuardConfig{})}
	for network, addr := range listeners {
		for _, tt := range tests {
			t.Run(network+"/"+tt.name, func(t *testing.T) {
				for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
					got, _ := guardSend(t, net.Dialer{}, addr, method+" / HTTP/1.1\n"+tt.headers)
					if refused := got == "403 cross_site"; refused != tt.refused {
						t.Errorf("%s: got %q, want refused %v", method, got, tt.refused)
					}
				}
			})
		}
	}
	// On TCP an empty Host does not come this far.
	if got := get(t, listeners["unix"], "Host:", "Origin: null"); got != "403 cross_site" {
		t.Errorf("opaque Origin, empty Host: got %q", got)
	}
}

// TestLinkFromAnotherSite: a browser may follow a link to a status page, and nothing else.
func TestLinkFromAnotherSite(t *testing.T) {
	const link = "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document"
	addr := serveTCP(t, GuardConfig{})
	for _, tt := range []struct {
		request, headers string
		refused          bool
	}{
		{"GET /", link, false},
		{"GET /?q=berlin", link, false},
		{"GET /", strings.ReplaceAll(link, "cross-site", "same-site"), false},
		{"GET /names?state=failed", link, false},
		{"GET /names/0190", link, false},
		{"GET /nodes", link, false},
		{"GET /zones", link, false},
		{"GET /events?kind=record.*", link, false},
		{"GET /names/a/b", link, true},
		{"GET /names/", link, true},
		{"GET /metrics", link, true},
		{"GET /healthz", link, true},
		{"GET /api/v1/ddns/backup", link, true},
		{"GET //", link, true},
		{"HEAD /", link, true},
		{"POST /", link, true},
		{"OPTIONS /", link, true},
		{"GET /", strings.ReplaceAll(link, "document", "iframe"), true},
		{"GET /", strings.ReplaceAll(link, "document", "embed"), true},
		{"GET /", strings.ReplaceAll(link, "navigate", "no-cors"), true},
		{"GET /", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate", true},
		{"GET /", "Sec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\nOrigin: https://evil.example", true},
	} {
		got, _ := guardSend(t, net.Dialer{}, addr, tt.request+" HTTP/1.1\nHost: localhost\n"+tt.headers)
		if refused := strings.HasPrefix(got, "403"); refused != tt.refused {
			t.Errorf("%s %q: %s", tt.request, tt.headers, got)
		}
	}
}

func TestAccepts(t *testing.T) {
	for accept, want := range map[string]bool{
		"text/html": true, "text/html,application/xhtml+xml,*/*;q=0.8": true, "a/b, Text/HTML;q=0.1": true,
		"*/*": false, "text/*": false, "text/html;q=0, */*": false, "text/html; q=0.000": false, "application/json": false, "text/htmlx": false,
	} {
		if got := Accepts(&http.Request{Header: http.Header{"Accept": {accept}}}, "text/html"); got != want {
			t.Errorf("%s: %t, want %t", accept, got, want)
		}
	}
}

// basic is the value of Authorization with a user and a password.
func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// TestBasic: a password is for reading only, counts as a wrong token where it is none, and is asked for in answers to reading.
func TestBasic(t *testing.T) {
	addr := serveTCP(t, GuardConfig{Tokens: twoTokens()})
	ask := func(method, headers string) (string, string) {
		answer, header := guardSend(t, net.Dialer{}, addr, method+" / HTTP/1.1\nHost: localhost\nAuthorization: "+headers)
		return answer, fmt.Sprint(header.Values("WWW-Authenticate"))
	}
	for method, want := range map[string]string{
		"GET": "200 token 1", "HEAD": "200 ", "POST": "401 basic_reads_only", "PUT": "401 basic_reads_only", "DELETE": "401 basic_reads_only", "OPTIONS": "200 127.0.0.1",
	} {
		if got, _ := ask(method, basic("u", firstToken)+"\nContent-Length: 0"); got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
	if got, _ := ask("GET", basic("u", firstToken)+"\nSec-Fetch-Site: cross-site"); got != "403 cross_site" {
		t.Errorf("cross-site: got %q", got)
	}
	const both = `[Basic realm="meshddns" Bearer]`
	for method, want := range map[string]string{"GET": both, "HEAD": both, "POST": "[Bearer]", "PUT": "[Bearer]", "DELETE": "[Bearer]"} {
		if _, got := ask(method, "\nContent-Length: 0"); got != want {
			t.Errorf("%s offers %s, want %s", method, got, want)
		}
	}
	for {
		if got, _ := ask("GET", basic("u", wrongToken)); got == "429 too_many_attempts" {
			break
		} else if got != "401 unauthorized" {
			t.Fatal(got)
		}
	}
	if got, _ := ask("GET", basic("u", firstToken)); got != "200 token 1" {
		t.Errorf("a right password after wrong ones: %q", got)
	}
}

func TestToken(t *testing.T) {
	const unauthorized = "401 unauthorized"
	for _, tt := range []struct {
		name, path, authorization, want string
	}{
		{"first", "/", "Bearer " + firstToken, "200 token 1"},
		{"second", "/", "Bearer " + secondToken, "200 token 2"},
		{"scheme in lower case", "/", "bearer " + firstToken, "200 token 1"},
		{"more spaces", "/", "Bearer   " + firstToken, "200 token 1"},
		{"none", "/", "", unauthorized},
		{"wrong", "/", "Bearer " + wrongToken, unauthorized},
		{"part", "/", "Bearer " + firstToken[:16], unauthorized},
		{"password", "/", basic("any", secondToken), "200 token 2"},
		{"password without a user", "/", basic("", firstToken), "200 token 1"},
		{"password, scheme in lower case", "/", "basic" + strings.TrimPrefix(basic("a", firstToken), "Basic"), "200 token 1"},
		{"wrong password", "/", basic("any", wrongToken), unauthorized},
		{"token as user", "/", basic(firstToken, ""), unauthorized},
		{"no pair", "/", "Basic " + base64.StdEncoding.EncodeToString([]byte(firstToken)), unauthorized},
		{"password that is not base64", "/", basic("any", firstToken) + "!", unauthorized},
		{"other scheme", "/", "Basic " + firstToken, unauthorized},
		{"no scheme", "/", firstToken, unauthorized},
		{"scheme only", "/", "Bearer", unauthorized},
		{"health without", "/healthz", "", "200 127.0.0.1"},
		{"health with a wrong one", "/healthz", "Bearer " + wrongToken, "200 127.0.0.1"},
		{"below health", "/healthz/", "", unauthorized},
		{"like health", "/healthzz", "", unauthorized},
		{"metrics", "/metrics", "", unauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request := "GET " + tt.path + " HTTP/1.1\nHost: localhost"
			if tt.authorization != "" {
				request += "\nAuthorization: " + tt.authorization
			}
			got, header := guardSend(t, net.Dialer{}, serveTCP(t, GuardConfig{Tokens: twoTokens()}), request)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if challenged := header.Get("WWW-Authenticate") != ""; challenged != (tt.want == unauthorized) {
				t.Errorf("WWW-Authenticate: %q", header.Get("WWW-Authenticate"))
			}
		})
	}
}

// TestOwnNotification: no listener takes what the program sends as a notification, whatever token it has.
func TestOwnNotification(t *testing.T) {
	listeners := map[string]net.Addr{"tcp": serveTCP(t, GuardConfig{}), "token": serveTCP(t, GuardConfig{Tokens: twoTokens()}), "unix": serveUnix(t, GuardConfig{})}
	for name, addr := range listeners {
		if got := get(t, addr, "Host: localhost", "Authorization: Bearer "+firstToken, NotificationHeader+": 1"); got != "403 own_notification" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestOrder: what a browser was made to send must not use up the attempts of its address, and /healthz is free of the token and of the Host.
func TestOrder(t *testing.T) {
	addr := serveTCP(t, GuardConfig{Tokens: twoTokens()})
	const bearerWrong, bearerRight = "Authorization: Bearer " + wrongToken, "Authorization: Bearer " + firstToken
	for range maxWrong + 1 {
		if got := get(t, addr, "Host: evil.example", "Sec-Fetch-Site: cross-site", bearerWrong); got != "403 host_not_allowed" {
			t.Fatal(got)
		}
		if got := get(t, addr, "Host: localhost", "Sec-Fetch-Site: cross-site", bearerWrong); got != "403 cross_site" {
			t.Fatal(got)
		}
	}
	if got := get(t, addr, "Host: localhost", bearerRight); got != "200 token 1" {
		t.Error(got)
	}
	for _, probe := range []string{"GET /healthz HTTP/1.1\nHost: evil.example", "GET /healthz HTTP/1.0", "OPTIONS / HTTP/1.0", "OPTIONS / HTTP/1.1\nHost: evil.example"} {
		if got, _ := guardSend(t, net.Dialer{}, addr, probe); got != "200 127.0.0.1" {
			t.Errorf("%s: %s", probe, got)
		}
	}
	if got, _ := guardSend(t, net.Dialer{}, addr, "OPTIONS /metrics HTTP/1.0"); got != "403 host_not_allowed" {
		t.Error(got)
	}
	if got, _ := guardSend(t, net.Dialer{}, addr, "GET /healthz HTTP/1.1\nHost: localhost\nSec-Fetch-Site: cross-site"); got != "403 cross_site" {
		t.Error(got)
	}
}

func TestCaller(t *testing.T) {
	t.Run("unix", func(t *testing.T) {
		want := fmt.Sprintf("200 uid %d pid %d", os.Getuid(), os.Getpid())
		addr := serveUnix(t, GuardConfig{Tokens: twoTokens()}) // no token is asked for here
		if got := get(t, addr, "Host: anything.example"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("without a guard", func(t *testing.T) {
		for remote, want := range map[string]string{
			"192.0.2.1:1234": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::1", "[::ffff:192.0.2.1]:1": "192.0.2.1", "@": "@",
		} {
			if got := Caller(&http.Request{RemoteAddr: remote}); got != want {
				t.Errorf("%s: got %q, want %q", remote, got, want)
			}
		}
	})
	t.Run("closed socket", func(t *testing.T) {
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		r := httptest.NewRequestWithContext(withPeer(t.Context(), c), "GET", "/", nil)
		if got := Caller(r); got != "unix socket" {
			t.Errorf("got %q", got)
		}
	})
}
