package hostaddr

import (
	"strings"
	"testing"
)

func TestParseSource(t *testing.T) {
	tests := []struct {
		family Family
		text   string
		want   string
	}{
		{IPv4, "auto", "auto"},
		{IPv6, "none", "none"},
		{IPv4, "interface:eth0", "interface:eth0"},
		{IPv6, "interface:eth0.7:1", "interface:eth0.7:1"},
		{IPv4, "192.0.2.1", "192.0.2.1"},
		{IPv4, "10.0.0.1", "10.0.0.1"},
		{IPv6, "2001:DB8::0:1", "2001:db8::1"},
		{IPv4, "url:https://ip.example", "url:ip.example"},
		{IPv6, "url:http://user:secret@[::1]:8080/secret?token=secret#secret", "url:[::1]:8080"},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			s, err := ParseSource(test.family, test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.String(); got != test.want {
				t.Errorf("String() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseSourceRefuses(t *testing.T) {
	tests := []struct {
		family Family
		text   string
		want   string // part of the error
	}{
		{IPv4, "", "want auto, none, interface:NAME, url:URL, file:PATH or an IPv4 address"},
		{IPv4, "eth0", `"eth0" is not a source: want auto`},
		{IPv6, "Auto", "an IPv6 address"},
		{IPv4, "192.0.2.300", "an IPv4 address"},
		{IPv4, "https://user:secret@ip.example/?token=secret", "want auto"},
		{IPv4, "2001:db8::1", "2001:db8::1 is not an IPv4 address"},
		{IPv6, "192.0.2.1", "192.0.2.1 is not an IPv6 address"},
		{IPv4, "::ffff:192.0.2.1", "not an IPv4 address"},
		{IPv6, "::ffff:192.0.2.1", "not an IPv6 address"},
		{IPv4, "0.0.0.0", "unspecified"},
		{IPv6, "::", "unspecified"},
		{IPv4, "224.0.0.1", "multicast"},
		{IPv6, "ff02::1", "multicast"},
		{IPv6, "fe80::1%eth0", "zone"},
		{IPv4, "127.0.0.1", "127.0.0.1 is a loopback address"},
		{IPv6, "::1", "::1 is a loopback address"},
		{IPv4, "169.254.7.7", "169.254.7.7 is a link-local address"},
		{IPv6, "fe80::1", "fe80::1 is a link-local address"},
		{IPv4, "255.255.255.255", "255.255.255.255 is a broadcast address"},
		{IPv4, "interface:", "name of an interface"},
		{IPv4, "interface", "name of an interface"},
		{IPv4, "interface:a/b", `interface:"a/b": want the name of an interface`},
		{IPv4, "interface:sixteen-letters-", "name of an interface"},
		{IPv4, "url:", "http or https"},
		{IPv4, "url:ip.example", "http or https"},
		{IPv4, "url:ftp://user:secret@ip.example/?token=secret", "http or https"},
		{IPv4, "url:https://", "host"},
		{IPv4, "url:http://:8080/?token=secret", "host"},
		{IPv4, "url:http:ip.example", "host"},
		{IPv4, "url:https://user:secret@ip.example:port/?token=secret", "valid URL"},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			_, err := ParseSource(test.family, test.text)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); !strings.Contains(got, test.want) || strings.Contains(got, "secret") {
				t.Errorf("error %q, want one with %q and without the secret", got, test.want)
			}
		})
	}
}

func TestFixedAddresses(t *testing.T) {
	tests := []struct {
		family Family
		text   string
		want   string
	}{
		{IPv4, "none", "invalid IP"},
		{IPv4, "192.0.2.1", "192.0.2.1"},
		{IPv6, "fd00::1", "fd00::1"},
	}
	for _, test := range tests {
		if got := mustAddr(t, test.family, test.text); got.String() != test.want {
			t.Errorf("%s: found %s, want %s", test.text, got, test.want)
		}
	}
	if found, err := (Source{}).look(t.Context()); found.addr.IsValid() || err != nil {
		t.Errorf("zero Source: found %s, %v, want none", found.addr, err)
	}
}

func TestUnknownInterface(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		_, err := mustParse(t, f, "interface:nosuch0").look(t.Context())
		if err == nil || !strings.Contains(err.Error(), "nosuch0: ") || !strings.Contains(err.Error(), "no such network interface") {
			t.Errorf("IPv%d: error %v, want one that names the interface", f, err)
		}
	}
}
