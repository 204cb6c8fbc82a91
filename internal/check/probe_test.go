package check

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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
			err := probe(t.Context(), mesh.Checking{Kind: c.kind, Interval: 1, Path: c.path}, c.endpoint)
			if (err == nil) != c.alive {
				t.Errorf("%s %s%s: %v", c.kind, c.endpoint, c.path, err)
			}
		})
	}
}

func TestTestable(t *testing.T) {
	for endpoint, want := range map[string]bool{"tcp://a:1": true, "wss://a:1": true, "udp://a:1": false, "quic://a:1": false, "wg://a:1": false} {
		if Testable(endpoint) != want {
			t.Errorf("Testable(%s) is %t", endpoint, !want)
		}
	}
}

// TestGateways reads lines of the kernel's tables. A gateway that refuses a connection has answered; one
// that never did is no control.
func TestGateways(t *testing.T) {
	for _, c := range []struct {
		lines string
		parse func([]string) netip.Addr
		want  string
	}{
		{"Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth0 00000000 0100007F 0003 0 0 0 00000000 0 0 0\neth0 0000FEA9 00000000 0001 0 0 0 0000FFFF 0 0 0\n", gateway4, "[127.0.0.1]"},
		{strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 fe800000000000000000000000000001 00000400 1 0 00450003 eth0\n", gateway6, "[fe80::1%eth0]"},
		{strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " ffffffff 1 0 00200200 lo\n", gateway6, "[]"},
	} {
		if got := parseGateways(strings.NewReader(c.lines), c.parse); shownAddresses(got) != c.want {
			t.Errorf("gateways %s, want %s", shownAddresses(got), c.want)
		}
	}
	route := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	control := Control{gateways: func() []netip.Addr { return route }}
	if ok, known := control.Reachable(t.Context()); !ok || !known {
		t.Errorf("a gateway that refuses: %t, %t", ok, known)
	}
	route = nil
	if ok, known := control.Reachable(t.Context()); ok || !known {
		t.Errorf("a route that is gone: %t, %t", ok, known)
	}
	if ok, known := (&Control{gateways: func() []netip.Addr { return nil }}).Reachable(t.Context()); ok || known {
		t.Errorf("without a control: %t, %t", ok, known)
	}
}

func shownAddresses(all []netip.Addr) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return "[" + strings.Join(texts, " ") + "]"
}
