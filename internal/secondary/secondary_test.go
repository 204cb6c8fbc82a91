package secondary

import (
	"testing"

	"meshddns/internal/msg"
)

// TestAddresses: an address is that of one host, with or without a port. "" is a refusal.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":               "192.0.2.1:53",
		"192.0.2.1:5300":          "192.0.2.1:5300",
		"2001:db8::1":             "[2001:db8::1]:53",
		"[2001:db8::1]":           "[2001:db8::1]:53",
		"[2001:db8::1]:5300":      "[2001:db8::1]:5300",
		"fe80::1%eth0":            "[fe80::1%eth0]:53",
		"::ffff:192.0.2.1":        "192.0.2.1:53",
		"[::ffff:192.0.2.1]:5300": "192.0.2.1:5300",
		"":                        "",
		"host.example":            "",
		"192.0.2.1:0":             "",
		"192.0.2.1:65536":         "",
		"192.0.2.1:":              "",
		"[192.0.2.1]":             "",
		"]]192.0.2.1[[":           "",
		"]]192.0.2.1[[:53":        "",
		"[2001:db8::1":            "",
		"2001:db8::1]":            "",
		"[[2001:db8::1]]":         "",
		"0.0.0.0":                 "",
		"0.0.0.0:53":              "",
		"::":                      "",
		"[::]":                    "",
		"[::]:53":                 "",
		"::ffff:0.0.0.0":          "",
		"224.0.0.1":               "",
		"239.1.2.3:53":            "",
		"ff02::1":                 "",
		"[ff02::1%eth0]:53":       "",
		"255.255.255.255":         "",
	} {
		s, err := Secondary{ID: "a", Address: text}.Check(msg.English)
		if err == nil && s.Address != want || err != nil && want != "" {
			t.Errorf("%q: %s, %v, want %q", text, s.Address, err, want)
		}
	}
}
