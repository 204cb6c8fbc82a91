package check

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// probeTime bounds one probe. An interval may be shorter only in tests.
const probeTime = 3 * time.Second

// probeOctets bounds what one probe reads, because the server of an endpoint may never end its answer. Over TLS a
// probe reads twice as much: the handshake, and a whole record of 16 KiB for the beginning of the answer.
const probeOctets = 16 << 10

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
func probe(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, min(probeTime, t.check.Every()))
	defer cancel()
	u, err := url.Parse(t.endpoint)
	if err != nil {
		return err
	}
	switch t.check.Kind {
	case mesh.CheckTCP:
		return connect(ctx, t.dialer(), u.Host)
	case mesh.CheckTLS:
		return shakeHands(ctx, t.dialer(), u)
	}
	return ask(ctx, t, u)
}

// dialer returns the dialer for a target. For an endpoint of a lease it goes only to addresses that the lease permits: what
// a node learns from DNS must not be what listens in this host's networks. It looks at the address that a host
// name has at that moment.
func (t target) dialer() *net.Dialer {
	if t.slot == "" {
		return &net.Dialer{}
	}
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err == nil && !mesh.Permits(t.ranges, to.Addr()) {
			err = msg.Errorf("the lease does not permit this address")
		}
		return err
	}}
}

// connect opens a connection and closes it.
func connect(ctx context.Context, d *net.Dialer, address string) error {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

// shakeHands completes a TLS handshake.
func shakeHands(ctx context.Context, d *net.Dialer, endpoint *url.URL) error {
	conn, err := bounded(d, 2*probeOctets)(ctx, "tcp", endpoint.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	config := anyCertificate.Clone()
	config.ServerName = endpoint.Hostname()
	return tls.Client(conn, config).HandshakeContext(ctx)
}

// bounded returns a function that opens connections. Each fails when more than some octets are read.
func bounded(d *net.Dialer, octets int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: conn, left: octets}, nil
	}
}

type boundedConn struct {
	net.Conn
	left int // octets
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, msg.Errorf("the answer is too long for a probe")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// ask sends a GET, with a WebSocket handshake (RFC 6455, section 4.1) for the kind ws.
func ask(ctx context.Context, t target, endpoint *url.URL) error {
	scheme, octets := "http", probeOctets
	if slices.Contains([]string{"tls", "wss", "https"}, endpoint.Scheme) {
		scheme, octets = "https", 2*probeOctets
	}
	path := t.check.Path
	if path == "" {
		path = "/"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+endpoint.Host+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "meshddns")
	if t.check.Kind == mesh.CheckWS {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "bWVzaGRkbnMtY2hlY2stMQ==") // any 16 octets
	}
	transport := &http.Transport{DialContext: bounded(t.dialer(), octets), DisableKeepAlives: true, TLSClientConfig: anyCertificate}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		return err
	}
	answer.Body.Close()
	if t.check.Kind == mesh.CheckWS && answer.StatusCode != http.StatusSwitchingProtocols || answer.StatusCode >= http.StatusInternalServerError {
		return msg.Errorf("HTTP status %d", answer.StatusCode)
	}
	return nil
}
