package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"meshddns/internal/term"
	"meshddns/test/support"
)

// tallied counts the connections of a listener, and the octets that arrive.
type tallied struct {
	net.Listener
	opened, octets, closed atomic.Int64
}

func (l *tallied) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.opened.Add(1)
		c = tallyConn{c, l}
	}
	return c, err
}

type tallyConn struct {
	net.Conn
	l *tallied
}

func (c tallyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.l.octets.Add(int64(n)); err != nil {
		c.l.closed.Add(1)
	}
	return n, err
}

// inTerm returns a context of a term, and a function that ends the term by its file.
func inTerm(t *testing.T) (ctx context.Context, end func()) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	support.Must(t, err)
	uptime, err := os.ReadFile("/proc/uptime")
	support.Must(t, err)
	var now float64
	fmt.Sscan(string(uptime), &now)
	path := filepath.Join(t.TempDir(), "term")
	support.WriteFile(t, path, fmt.Sprintf(`{"term": 7, "asked": %f, "until": %f, "boot_id": %q}`, now, now+100, strings.TrimSpace(string(boot))))
	held, err := term.Await(t.Context(), path, slog.New(slog.DiscardHandler))
	support.Must(t, err)
	t.Cleanup(func() { held.Run(t.Context(), func(context.Context) error { return nil }) }) // which ends its looks
	ctx, cancel := held.Context(t.Context())
	t.Cleanup(cancel)
	return ctx, func() {
		support.Must(t, os.Remove(path))
		support.Receive(t, ctx.Done())
	}
}

// TestCallsAtTheEnd: a connection of the pool carries not an octet after the end of the term, and no other is opened, with the context
// of the call still alive. The server gets a reset.
func TestCallsAtTheEnd(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			var spoke atomic.Value
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoke.Store(r.Proto) }))
			counted := &tallied{Listener: server.Listener}
			server.Listener, server.EnableHTTP2 = counted, version == "HTTP/2.0"
			if version == "HTTP/1.1" {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			transport := newTransport()
			defer transport.CloseIdleConnections()
			if version != "HTTP/1.1" {
				transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
				transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
			}
			call := func(ctx context.Context) error {
				request, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
				support.Must(t, err)
				response, err := transport.RoundTrip(request)
				if err == nil {
					err = response.Body.Close()
				}
				return err
			}
			ctx, end := inTerm(t)
			lasting := context.WithoutCancel(ctx)
			for range 2 {
				support.Must(t, call(lasting))
			}
			if proto := spoke.Load(); !strings.HasPrefix(version, proto.(string)) || counted.opened.Load() != 1 {
				t.Fatalf("%v over %d connections", proto, counted.opened.Load())
			}
			octets := counted.octets.Load()
			end()
			for range 3 {
				if err := call(lasting); !errors.Is(err, term.ErrOver) && !errors.Is(err, net.ErrClosed) {
					t.Errorf("after the end: %v", err)
				}
			}
			if err := call(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, term.ErrOver) {
				t.Errorf("in a context of the term: %v", err)
			}
			support.Eventually(t, support.Limit, "the server's side ends", func() bool { return counted.closed.Load() > 0 })
			if opened := counted.opened.Load(); opened != 1 || counted.octets.Load() != octets {
				t.Errorf("%d connections; %d octets after the end", opened, counted.octets.Load()-octets)
			}
		})
	}
}
