package check

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/mesh"
)

// TestProbe tries each kind of check at servers that live, and at such that do not.
func TestProbe(t *testing.T) {
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/broken":
			rw.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/moved":
			http.Redirect(rw, r, "/broken", http.StatusFound)
		case r.Header.Get("Upgrade") == "websocket" && r.URL.Path == "/mesh":
			rw.Header().Set("Upgrade", "websocket")
			rw.Header().Set("Connection", "Upgrade")
			rw.WriteHeader(http.StatusSwitchingProtocols)
		default:
			rw.WriteHeader(http.StatusNotFound)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { frozen.Close() })
	http1, https, silent := plain.Listener.Addr().String(), secure.Listener.Addr().String(), frozen.Addr().String()
	for _, c := range []struct {
		kind           mesh.CheckKind
		endpoint, path string
		alive          bool
	}{
		{mesh.CheckTCP, "tcp://" + http1, "", true},
		{mesh.CheckTCP, "tcp://127.0.0.1:1", "", false},
		{mesh.CheckTLS, "wss://" + https, "", true},
		{mesh.CheckTLS, "tcp://" + http1, "", false},
		{mesh.CheckTLS, "tcp://" + silent, "", false},
		{mesh.CheckWS, "ws://" + http1, "/mesh", true},
		{mesh.CheckWS, "wss://" + https, "/mesh", true},
		{mesh.CheckWS, "ws://" + http1, "", false},
		{mesh.CheckHTTP, "tcp://" + http1, "", true}, // 404 is an answer
		{mesh.CheckHTTP, "ws://" + http1, "/moved", true},
		{mesh.CheckHTTP, "ws://" + http1, "/broken", false},
		{mesh.CheckHTTP, "tcp://" + silent, "", false},
	} {
		t.Run(string(c.kind)+" "+strings.ReplaceAll(c.path, "/", ""), func(t *testing.T) {
			t.Parallel()
			err := probe(t.Context(), target{key: key{endpoint: c.endpoint}, check: mesh.Checking{Kind: c.kind, Interval: 1, Path: c.path}})
			if (err == nil) != c.alive {
				t.Errorf("%s %s%s: %v", c.kind, c.endpoint, c.path, err)
			}
		})
	}
}

// TestLongAnswer: a probe reads at most 16 KiB, over TLS 32 KiB. One that needs more fails.
func TestLongAnswer(t *testing.T) {
	answer := func(octets int) string { // a header of so many octets
		begin, end := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: ", "\r\n\r\n"
		return begin + strings.Repeat("x", octets-len(begin)-len(end)) + end
	}
	small := strings.Repeat("X:\r\n", 4000)
	endless := "HTTP/1.1 200 OK\r\n" + strings.Repeat(small, 100)
	early := strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10000)
	for _, c := range []struct {
		name         string
		kind         mesh.CheckKind
		scheme       string
		certificates int // of about 1 KiB
		answer       string
		alive        bool
	}{
		{"16 KiB", mesh.CheckWS, "ws", 0, answer(16 << 10), true},
		{"16 KiB and an octet", mesh.CheckWS, "ws", 0, answer(16<<10 + 1), false},
		{"an octet more for http", mesh.CheckHTTP, "tcp", 0, answer(16<<10 + 1), false},
		{"endless", mesh.CheckHTTP, "tcp", 0, endless, false},
		{"endless early answers", mesh.CheckHTTP, "tcp", 0, early, false},
		{"a long body", mesh.CheckHTTP, "tcp", 0, "HTTP/1.1 200 OK\r\n\r\n" + endless, true},
		{"a long body over TLS", mesh.CheckHTTP, "https", 10, "HTTP/1.1 200 OK\r\n\r\n" + endless, true},
		{"16 KiB over TLS", mesh.CheckWS, "wss", 1, answer(16 << 10), true},
		{"32 KiB over TLS", mesh.CheckWS, "wss", 1, answer(32 << 10), false},
		{"a long chain", mesh.CheckTLS, "tls", 20, "", true},
		{"a longer chain", mesh.CheckTLS, "tls", 40, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			if c.certificates > 0 {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{longChain(t, c.certificates)}})
			}
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, c.answer)
				io.Copy(io.Discard, conn) // until the probe ends
			}()
			err = probe(t.Context(), target{key: key{endpoint: c.scheme + "://" + l.Addr().String()}, check: mesh.Checking{Kind: c.kind, Interval: 10}})
			if (err == nil) != c.alive {
				t.Error(err)
			}
		})
	}
}

// longChain returns a certificate with a chain of some certificates of about 1 KiB.
func longChain(t *testing.T, certificates int) tls.Certificate {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: strings.Repeat("x", 400)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: slices.Repeat([][]byte{der}, certificates), PrivateKey: key}
}

// TestNear: a probe goes to this host, its networks or a group for a lease only if a range of the lease has the address,
// and for the usage's own endpoints always.
func TestNear(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	loopback, other := netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")
	const refused = "the lease does not permit this address"
	for _, c := range []struct {
		slot   string
		host   string
		ranges []netip.Prefix
		error  string
	}{
		{"", "127.0.0.1", nil, ""},
		{"a", "127.0.0.1", nil, refused},
		{"a", "127.0.0.1", []netip.Prefix{other}, refused},
		{"a", "127.0.0.1", []netip.Prefix{other, loopback}, ""},
		{"a", "localhost", nil, refused},
		{"a", "[::ffff:127.0.0.1]", nil, refused},
		{"a", "0.0.0.0", []netip.Prefix{loopback}, refused},
		{"a", "[::]", nil, refused},
		{"a", "[::1]", nil, refused},
		{"a", "169.254.169.254", nil, refused},
		{"a", "[fe80::1]", nil, refused},
		{"a", "224.0.0.1", nil, refused},
		{"a", "10.0.0.1", nil, refused},
		{"a", "192.168.1.1", nil, refused},
		{"a", "100.64.0.1", nil, refused},
		{"a", "[fd00::1]", nil, refused},
		{"a", "192.0.2.1", []netip.Prefix{loopback}, refused},
	} {
		for _, kind := range []mesh.CheckKind{mesh.CheckTCP, mesh.CheckHTTP, mesh.CheckTLS} {
			if kind == mesh.CheckTLS && c.error == "" {
				continue // the server does not speak it
			}
			of := target{key: key{endpoint: "tcp://" + c.host + ":" + port}, slot: c.slot, ranges: c.ranges, check: mesh.Checking{Kind: kind, Interval: 10}}
			err := probe(t.Context(), of)
			if c.error == "" && err != nil || c.error != "" && (err == nil || !strings.HasSuffix(err.Error(), c.error)) {
				t.Errorf("%s %q %s %v: %v", kind, c.slot, c.host, c.ranges, err)
			}
		}
	}
}

func TestTestable(t *testing.T) {
	for endpoint, want := range map[string]bool{"tcp://a:1": true, "wss://a:1": true, "udp://a:1": false, "quic://a:1": false, "wg://a:1": false} {
		if Testable(endpoint) != want {
			t.Errorf("Testable(%s) is %t", endpoint, !want)
		}
	}
}

// TestGateways: a gateway that refuses a connection has answered; one that never did is no control.
func TestGateways(t *testing.T) {
	route := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	control := Control{Gateways: func() []netip.Addr { return route }}
	if ok, known := control.Reachable(t.Context()); !ok || !known {
		t.Errorf("a gateway that refuses: %t, %t", ok, known)
	}
	route = nil
	if ok, known := control.Reachable(t.Context()); ok || !known {
		t.Errorf("a route that is gone: %t, %t", ok, known)
	}
	if ok, known := (&Control{Gateways: func() []netip.Addr { return nil }}).Reachable(t.Context()); ok || known {
		t.Errorf("without a control: %t, %t", ok, known)
	}
}
