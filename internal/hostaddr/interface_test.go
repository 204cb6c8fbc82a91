package hostaddr

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

const route4Head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"

func TestBestRoute4(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"empty file", "", ""},
		{"no routes", route4Head, ""},
		{"only a network", route4Head + "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", ""},
		{"with gateway", route4Head + "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0      \n", "eth0"},
		{"half of everything", "tun0\t00000000\t010200C0\t0003\t0\t0\t0\t00000080\t0\t0\t0\n", ""},
		{"lowest metric, decimal", "" +
			"eth0\t00000000\t010200C0\t0003\t0\t0\t1000\t00000000\t0\t0\t0\n" +
			"eth1\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
			"eth2\t00000000\t010200C0\t0003\t0\t0\t700\t00000000\t0\t0\t0\n", "eth1"},
		{"same metric", "" +
			"eth1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
			"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", "eth1"},
		{"reject", "" +
			"*\t00000000\t00000000\t0201\t0\t0\t5\t00000000\t0\t0\t0\n" +
			"eth0\t00000000\t010200C0\t0003\t0\t0\t9\t00000000\t0\t0\t0\n", "eth0"},
		{"not up", "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n", ""},
		{"short line", "eth0\t00000000\t010200C0\t0003\n", ""},
		{"bad metric", "eth0\t00000000\t010200C0\t0003\t0\t0\tx\t00000000\t0\t0\t0\n", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkBestRoute(t, test.text, parseRoute4, test.want)
		})
	}
}

func TestBestRoute6(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	line := func(dst, src, metric, flags, iface string) string {
		return fmt.Sprintf("%s %s %s %s 00000001 00000000 %s %8s\n", dst, src, zero, metric, flags, iface)
	}
	const all, lan = zero + " 00", "2620004f800000000000000000000000 30"
	const up, upGateway, reject = "00000001", "00450003", "00200200"
	tests := []struct {
		name, text, want string
	}{
		{"empty file", "", ""},
		{"only a network", line(lan, all, "00000100", up, "eth0"), ""},
		{"one zero host", line(zero+" 80", all, "00000100", up, "eth0"), ""},
		{"default", line(all, all, "00000400", upGateway, "eth0"), "eth0"},
		{"default of one source", line(all, lan, "00000400", upGateway, "eth0"), "eth0"},
		{"lowest metric, hexadecimal", line(all, all, "00000100", up, "eth0") + line(all, all, "000000ff", up, "eth1"), "eth1"},
		{"reject", line(all, all, "00000005", reject, "lo") + line(all, all, "00000400", up, "eth0"), "eth0"},
		{"loopback", line(all, all, "00000005", up, "lo"), ""},
		{"short line", all + "\n", ""},
		{"bad flags", line(all, all, "00000400", "x", "eth0"), ""},
		{"bad metric", line(all, all, "x", up, "eth0"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkBestRoute(t, test.text, parseRoute6, test.want)
		})
	}
}

func checkBestRoute(t *testing.T, text string, parse func([]string) (route, bool), want string) {
	t.Helper()
	routes, err := parseRoutes(strings.NewReader(text), parse)
	if got := bestRoute(routes); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestGatewayOfRoute reads gateways; the line of IPv4 is as a little-endian host has it.
func TestGatewayOfRoute(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	for line, want := range map[string]string{
		"eth0 00000000 0100007F 0003 0 0 0 00000000 0 0 0":                                                     "127.0.0.1",
		"eth0 00000000 00000000 0001 0 0 0 00000000 0 0 0":                                                     "0.0.0.0",
		zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003 eth0": "fe80::1%eth0",
		zero + " 00 " + zero + " 00 " + zero + " 00000400 00000001 00000000 00000001 eth0":                     "::",
	} {
		parse := parseRoute4
		if strings.HasPrefix(line, zero) {
			parse = parseRoute6
		}
		routes, err := parseRoutes(strings.NewReader(line), parse)
		if err != nil || len(routes) != 1 || routes[0].gateway.String() != want {
			t.Errorf("%s: %v, %v, want %s", line, routes, err, want)
		}
	}
}

func TestParseInet6(t *testing.T) {
	const text = "" +
		"00000000000000000000000000000001 01 80 10 80       lo\n" +
		"2620004f800000000000000000000003 02 40 00 01     eth0\n" + // temporary
		"2620004f800000000000000000000009 02 40 00 00     eth0\n" +
		"2620004f800000000000000000000008 02 40 00 82     eth0\n" +
		"2620004f800000000000000000000002 02 40 00 21     eth0\n" + // temporary, deprecated
		"2620004f800000000000000000000004 02 40 00 20     eth0\n" + // deprecated
		"2620004f800000000000000000000005 02 40 00 40     eth0\n" + // tentative
		"2620004f800000000000000000000006 02 40 00 c8     eth0\n" + // in use elsewhere
		"2620004f800000000000000000000007 03 40 00 80     eth1\n" +
		"2620004f8000000000000000000001   02 40 00 80     eth0\n" + // too short
		"2620004f80000000000000000000000g 02 40 00 80     eth0\n" +
		"2620004f80000000000000000000000a 02 40 00 xx     eth0\n" +
		"fe8000000000000000fc00fffe000001 02 40 20 80     eth0\n"
	tests := map[string]string{
		"eth0":  "[2620:4f:8000::8 2620:4f:8000::9 fe80::fc:ff:fe00:1]",
		"eth1":  "[2620:4f:8000::7]",
		"lo":    "[::1]",
		"eth":   "[]",
		"wlan0": "[]",
	}
	for name, want := range tests {
		got, err := parseInet6(strings.NewReader(text), name)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

func FuzzBestRoute(f *testing.F) {
	f.Add("eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	f.Add("00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00000001 eth0\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func([]string) (route, bool){parseRoute4, parseRoute6} {
			routes, _ := parseRoutes(strings.NewReader(text), parse)
			if name := bestRoute(routes); !strings.Contains(text, name) {
				t.Errorf("interface %q is not in the text", name)
			}
		}
	})
}

func FuzzParseInet6(f *testing.F) {
	f.Add("2620004f800000000000000000000001 02 40 00 80     eth0\n")
	f.Fuzz(func(t *testing.T, text string) {
		addrs, _ := parseInet6(strings.NewReader(text), "eth0")
		for _, a := range addrs {
			if !a.Is6() || a.Zone() != "" {
				t.Errorf("%s is not an IPv6 address", a)
			}
		}
	})
}

func mustParse(t *testing.T, f Family, text string) Source {
	t.Helper()
	s, err := ParseSource(f, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustAddr(t *testing.T, f Family, text string) netip.Addr {
	t.Helper()
	found, err := mustParse(t, f, text).look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found.addr
}
