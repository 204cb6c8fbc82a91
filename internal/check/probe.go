package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"meshddns/internal/mesh"
)

// probeTime bounds one probe. An interval may be shorter only in tests.
const probeTime = 3 * time.Second

// streamed are the schemes over TCP. Endpoints of other schemes (udp, quic, wg) are never checked:
// they live by their lease.
var streamed = []string{"tcp", "tls", "ws", "wss", "http", "https"}

// Testable reports whether an endpoint can be checked: its scheme is over TCP.
func Testable(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && slices.Contains(streamed, u.Scheme)
}

// anyCertificate completes a handshake with any certificate, because an endpoint is checked for life
// and not for identity: clients of a mesh verify each other by other means.
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

// probe returns why an endpoint does not live, or nil.
func probe(ctx context.Context, c mesh.Checking, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, min(probeTime, c.Every()))
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	switch c.Kind {
	case mesh.CheckTCP:
		return connect(ctx, &net.Dialer{}, u.Host)
	case mesh.CheckTLS:
		return connect(ctx, &tls.Dialer{Config: anyCertificate}, u.Host)
	}
	return ask(ctx, c, u)
}

type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// connect opens a connection and closes it.
func connect(ctx context.Context, d dialer, address string) error {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

// ask sends a GET, with a WebSocket handshake (RFC 6455, section 4.1) for the kind ws.
func ask(ctx context.Context, c mesh.Checking, endpoint *url.URL) error {
	scheme := "http"
	if slices.Contains([]string{"tls", "wss", "https"}, endpoint.Scheme) {
		scheme = "https"
	}
	path := c.Path
	if path == "" {
		path = "/"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+endpoint.Host+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "meshddns")
	if c.Kind == mesh.CheckWS {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "bWVzaGRkbnMtY2hlY2stMQ==") // any 16 octets
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: anyCertificate}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		return err
	}
	answer.Body.Close()
	if c.Kind == mesh.CheckWS && answer.StatusCode != http.StatusSwitchingProtocols || answer.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("HTTP status %d", answer.StatusCode)
	}
	return nil
}
