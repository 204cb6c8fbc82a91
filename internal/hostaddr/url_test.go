package hostaddr

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// service answers a status and a text, and gives its URL with a password and a token in it.
func service(t *testing.T, status int, text string) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	})
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return "http://user:secret@" + server.Listener.Addr().String() + "/ip?token=secret"
}

func TestURL(t *testing.T) {
	tests := []struct {
		name, text string
		want       string
	}{
		{"plain", "192.0.2.1", "192.0.2.1"},
		{"newline", "192.0.2.1\r\n", "192.0.2.1"},
		{"private", "10.0.0.1\n", "10.0.0.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustAddr(t, IPv4, "url:"+service(t, 200, test.text)); got.String() != test.want {
				t.Errorf("found %s, want %s", got, test.want)
			}
		})
	}
}

func TestURLAsksAsTheURLSays(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "user" || password != "secret" || r.URL.String() != "/ip?token=secret" || r.Method != "GET" {
			t.Errorf("asked %s %s as %s:%s", r.Method, r.URL, user, password)
		}
		if !r.Close {
			t.Error("the connection would stay open between questions")
		}
		io.WriteString(w, "192.0.2.1")
	})
	mustAddr(t, IPv4, "url:"+url)
}

func TestURLOverIPv6(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 loopback on this host: %v", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "2001:db8::1\n")
	})}}
	server.Start()
	t.Cleanup(server.Close)
	if got := mustAddr(t, IPv6, "url:"+server.URL); got.String() != "2001:db8::1" {
		t.Errorf("found %s, want 2001:db8::1", got)
	}
}

func TestURLRefuses(t *testing.T) {
	tests := []struct {
		name   string
		status int
		text   string
		want   string // part of the error
	}{
		{"wrong status", 404, "192.0.2.1", "status 404"},
		{"other success", 203, "192.0.2.1", "status 203"},
		{"empty", 200, "", "not one address"},
		{"page", 200, "<html>token=secret</html>", "not one address"},
		{"two addresses", 200, "192.0.2.1\n192.0.2.2\n", "not one address"},
		{"too long", 200, "192.0.2.1" + strings.Repeat("\n", 300), "too long"},
		{"wrong family", 200, "2001:db8::1", "2001:db8::1 is not an IPv4 address"},
		{"mapped", 200, "::ffff:192.0.2.1", "not an IPv4 address"},
		{"unspecified", 200, "0.0.0.0", "unspecified"},
		{"multicast", 200, "224.0.0.1", "multicast"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkRefusal(t, IPv4, service(t, test.status, test.text), test.want)
		})
	}
}

func TestURLDialsOnlyItsFamily(t *testing.T) {
	checkRefusal(t, IPv6, service(t, 200, "2001:db8::1"), "dial tcp6")
}

func TestURLUnreachable(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	host := server.Listener.Addr().String()
	checkRefusal(t, IPv4, "http://user:secret@"+host+"/?token=secret", host+": dial tcp4")
}

func TestURLBrokenAnswers(t *testing.T) {
	tests := map[string]string{
		"not HTTP":           "secret\r\n\r\n",
		"malformed location": "HTTP/1.1 302 Found\r\nLocation: http://secret:%zz/?token=secret\r\n\r\n",
		"cut body":           "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n192.0.2.1",
		"hang-up":            "",
		"long header":        "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n192.0.2.1",
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(conn, answer)
				conn.Close()
			})
			checkRefusal(t, IPv4, url, "no valid HTTP answer")
		})
	}
}

func TestURLUntrustedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	checkRefusal(t, IPv4, server.URL+"/?token=secret", "failed to verify certificate")
}

func TestURLFollowsRedirect(t *testing.T) {
	final := service(t, 200, "192.0.2.1")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, final, http.StatusFound) })
	if got := mustAddr(t, IPv4, "url:"+url); got.String() != "192.0.2.1" {
		t.Errorf("found %s, want 192.0.2.1", got)
	}
}

func TestURLRefusesRedirect(t *testing.T) {
	for _, to := range []string{"ftp://user:secret@127.0.0.1/", "file:///etc/hostname", "/again?token=secret"} {
		t.Run(to, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
			checkRefusal(t, IPv4, url, "redirected")
		})
	}
}

func TestCheckRedirect(t *testing.T) {
	tests := []struct {
		from, to string
		follow   bool
	}{
		{"http://a.example", "http://b.example", true},
		{"http://a.example", "https://a.example", true},
		{"https://a.example", "https://b.example", true},
		{"https://a.example", "http://a.example", false},
		{"https://a.example", "ftp://a.example", false},
	}
	for _, test := range tests {
		via, next := httptest.NewRequest("GET", test.from, nil), httptest.NewRequest("GET", test.to, nil)
		if err := checkRedirect(next, []*http.Request{via}); (err == nil) != test.follow {
			t.Errorf("%s to %s: %v, want follow %t", test.from, test.to, err, test.follow)
		}
	}
}

func TestURLSlow(t *testing.T) {
	asked := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := mustParse(t, IPv4, "url:"+url).look(ctx)
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want context canceled without the secret", err)
	}
}

func checkRefusal(t *testing.T, f Family, url, want string) {
	t.Helper()
	found, err := mustParse(t, f, "url:"+url).look(t.Context())
	if err == nil || found.addr.IsValid() {
		t.Fatalf("found %s, %v, want an error", found.addr, err)
	}
	if got := err.Error(); !strings.Contains(got, want) || strings.Contains(got, "secret") {
		t.Errorf("error %q, want one with %q and without the secret", got, want)
	}
}
