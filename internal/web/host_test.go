package web

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8053":       true,
		"127.9.9.9:0":          true,
		"localhost:80":         true,
		"LOCALHOST:http":       true,
		"[::1]:1":              true,
		"[::ffff:127.0.0.1]:1": true,
		":8053":                false,
		"0.0.0.0:1":            false,
		"[::]:1":               false,
		"192.168.1.5:8053":     false,
		"host:8053":            false,
		"mesh.localhost:8053":  false,
		"localhost.example:80": false,
		"127.0.0.1.example:80": false,
		"localhost":            false,
		"unix:/run/localhost":  false,
		"":                     false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%q: got %v, want %v", address, got, want)
		}
	}
}

// FuzzParseHost: a host that parses is in the one form names are compared in, and reading that form again gives the same.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{
		"", ":", "localhost", "LOCALHOST.:80", "127.0.0.1:1", "[::1]", "[::1]:80", "[fe80::1%eth0]", "[::ffff:127.0.0.1]:1", "[localhost]",
		"[127.0.0.1]", "::1", "a..b", ".", "a:b:c", "a:+1", "a:0", "a:65536", "a b", "a@b", "a/b", "\u212aube", "loca\u017fhost", "xn--bcher-kva.example",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, ok := parseHost(s)
		if !ok {
			return
		}
		if h.name == "" || h.name != strings.ToLower(h.name) || strings.ContainsAny(h.name, " /@[]%\\") || strings.HasSuffix(h.name, ".") {
			t.Errorf("%q: name %q", s, h.name)
		}
		again := h.name
		if strings.Contains(h.name, ":") {
			again = "[" + h.name + "]"
		}
		if h.port != 0 {
			again = net.JoinHostPort(h.name, strconv.Itoa(int(h.port)))
		}
		if h2, ok := parseHost(again); !ok || h2 != h {
			t.Errorf("%q: %+v, read again %+v", s, h, h2)
		}
	})
}
