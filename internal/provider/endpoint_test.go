package provider

import "testing"

func TestNormalEndpoint(t *testing.T) {
	for _, test := range []struct{ name, endpoint, want string }{
		{"cloudflare", "", ""},
		{"cloudflare", "https://api.example", "https://api.example"},
		{"cloudflare", "https://api.example/", "https://api.example"},
		{"cloudflare", "https://api.example///", "https://api.example"},
		{"cloudflare", "HTTPS://API.Example:443/Client/v4/", "https://api.example/Client/v4"},
		{"cloudflare", "api.example", "https://api.example"},
		{"cloudflare", "API.example:8443/", "https://api.example:8443"},
		{"cloudflare", "https://api.example:", "https://api.example"},
		{"cloudflare", "https://api.example:80", "https://api.example:80"},
		{"cloudflare", "https://api.example/a%25b%20c/", "https://api.example/a%25b%20c"},
		{"powerdns", "http://127.0.0.1:80", "http://127.0.0.1"},
		{"powerdns", "http://127.0.0.1:443/", "http://127.0.0.1:443"},
		{"powerdns", "http://localhost:8081/", "http://localhost:8081"},
		{"powerdns", "http://[2001:DB8::1]:80/", "http://[2001:db8::1]"},
		{"powerdns", "http://[2001:DB8::1]:8081/", "http://[2001:db8::1]:8081"},
		{"powerdns", "http://[fe80::1%25Eth0]:80/", "http://[fe80::1%25Eth0]:80/"},
		{"webhook", "https://u:p@api.example/", "https://u:p@api.example/"},
		{"webhook", "https://api.example/?q=1", "https://api.example/?q=1"},
		{"webhook", "FTP://api.example/", "FTP://api.example/"},
		{"webhook", "://", "://"},
		{"webhook", "http://a b/", "http://a b/"},
		{"rfc2136", "192.0.2.53", "192.0.2.53:53"},
		{"rfc2136", "192.0.2.53:53", "192.0.2.53:53"},
		{"rfc2136", "NS.Example:5353", "ns.example:5353"},
		{"rfc2136", "2001:DB8::53", "[2001:db8::53]:53"},
		{"rfc2136", "[2001:db8::53]", "[2001:db8::53]:53"},
		{"rfc2136", "[2001:db8::53]:5353", "[2001:db8::53]:5353"},
		{"rfc2136", "udp://NS.example", "udp://NS.example"}, // the client refuses it
		{"rfc2136", "NS.example:0", "NS.example:0"},
	} {
		got := NormalEndpoint(test.name, test.endpoint)
		if got != test.want {
			t.Errorf("%s %q: %q, want %q", test.name, test.endpoint, got, test.want)
		}
		if again := NormalEndpoint(test.name, got); again != got {
			t.Errorf("%s %q becomes %q, and then %q", test.name, test.endpoint, got, again)
		}
	}
}
