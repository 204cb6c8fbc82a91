package settings

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
)

// tokenFile makes a file with a token.
func tokenFile(t *testing.T, mode os.FileMode) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("secret-token-0123456789\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	s, err := Read(nil, []string{"HOME=/root", "MESHDDNS_LISTEN=", "MESHDDNS=1"})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(s.Listen, s.DB, s.DNS, s.Addresses.IPv4, s.Addresses.IPv6, s.Addresses.Named, s.AllowHosts, s.Tokens == nil, s.SyncInterval, s.Language == msg.Chinese, s.LogFormat, s.Version, s.Help)
	if want := "[127.0.0.1:8053] meshddns.db {[] []  1000 [] [] <nil> <nil>  <nil> []} auto auto [] [] true 5m0s true text false false\n"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Each setting can be given on the command line and in the environment; of both
// the command line counts.
func TestBothWays(t *testing.T) {
	token, sealing := tokenFile(t, 0o600), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(sealing, []byte("none\n"+strings.Repeat("A", 43)+"=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	given := [][2]string{
		{"seal-key", sealing}, {"listen", "unix:/run/x,127.0.0.1:0"}, {"socket-group", "adm"}, {"db", "x.db"}, {"term", "x.term"}, {"replica-socket", "x.sock"}, {"dns-listen", "127.0.0.1:5301, [::1]:5301"}, {"dns-host", "a.example.com,B.example.com."},
		{"dns-nsid", "ams-1"}, {"dns-catalog", "Catalog.invalid"}, {"dns-rate-limit", "0"}, {"ipv4", "none"}, {"ipv6", "2001:db8::1"}, {"addr", "a=interface:x,b=192.0.2.1"}, {"check-control", "192.0.2.1:53,a.example:80"}, {"allow-host", "a.example,b.example:80 c.example"},
		{"token-file", token}, {"node-writes", "webhook=12,cloudflare=0"}, {"node-listen", "0.0.0.0:8054,[::]:8054"}, {"tls-cert", cert}, {"tls-key", key}, {"tls-client-ca", cert}, {"trusted-proxy", "127.0.0.1,10.1.2.3/8,::ffff:192.0.2.1/120"}, {"sync-interval", "90s"}, {"language", "en"}, {"log-format", "json"}, {"provision", "/etc/x"}, {"check", "1"}, {"version", "true"}, {"help", "1"},
	}
	const want = "[unix:/run/x 127.0.0.1:0] adm x.db x.term x.sock [127.0.0.1:5301 [::1]:5301] [a.example.com. b.example.com.] ams-1 catalog.invalid. 0 none 2001:db8::1 [{a interface:x interface:x} {b 192.0.2.1 none}] [192.0.2.1:53 a.example:80] [a.example b.example:80 c.example] false map[cloudflare:0 webhook:12] [0.0.0.0:8054 [::]:8054] [127.0.0.1/32 10.0.0.0/8 192.0.2.0/24] 1m30s true json /etc/x  66687aad true true true\n"
	say := func(s Settings) string {
		if c := s.Certificate; c == nil || c.Chain != cert || c.Key != key || c.Authority != cert {
			t.Errorf("the certificate is of %+v", c)
		}
		return fmt.Sprintln(s.Listen, s.SocketGroup, s.DB, s.Term, s.Replica, s.DNS.Addresses, s.DNS.Hosts, s.DNS.NSID, s.DNS.Catalog, s.DNS.RateLimit, s.Addresses.IPv4, s.Addresses.IPv6, s.Addresses.Named, s.Controls, s.AllowHosts, s.Tokens == nil, s.NodeWrites, s.NodeListen, s.Proxies,
			s.SyncInterval, s.Language == msg.English, s.LogFormat, s.Provision, s.SealKeys.First.ID, s.SealKeys.Old.ID, s.Check, s.Version, s.Help)
	}
	var flags, inline, environ, named []string
	for _, g := range given {
		if options[slices.IndexFunc(options, func(o option) bool { return o.name == g[0] })].value != "" {
			flags = append(flags, "-"+g[0], g[1])
		} else {
			flags = append(flags, "--"+g[0])
		}
		inline = append(inline, "-"+g[0]+"="+g[1])
		if options[slices.IndexFunc(options, func(o option) bool { return o.name == g[0] })].value != "" {
			environ = append(environ, variable(g[0])+"="+g[1])
		}
		named = append(named, g[0])
	}
	for _, o := range options {
		if !slices.Contains(named, o.name) {
			t.Errorf("-%s is not in this test", o.name)
		}
	}
	other := []string{"MESHDDNS_LISTEN=bad", "MESHDDNS_DNS_HOST=bad host", "MESHDDNS_SYNC_INTERVAL=bad"}
	for name, c := range map[string]struct{ args, environ []string }{
		"flags": {flags, nil}, "inline": {inline, nil}, "environment": {nil, environ}, "both": {flags, other},
	} {
		want := want
		if name == "environment" {
			want = strings.Replace(want, "true true true\n", "false false false\n", 1)
		}
		if s, err := Read(c.args, c.environ); err != nil || say(s) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, say(s), want)
		}
	}
}

func TestRepeated(t *testing.T) {
	environ := []string{"MESHDDNS_DNS_LISTEN=127.0.0.1:5301", "MESHDDNS_DB=env.db"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "[127.0.0.1:5301] [] env.db"},
		{[]string{"-dns-listen", "127.0.0.2:1", "-dns-listen", "127.0.0.3:1", "-db", "a", "-db", "b"}, "[127.0.0.2:1 127.0.0.3:1] [] b"},
		{[]string{"-dns-listen", "", "-allow-host=a", "-allow-host=b,c"}, "[] [a b c] env.db"},
		{[]string{"-dns-listen", "127.0.0.1:0", "-dns-listen", "127.0.0.1:0"}, "[127.0.0.1:0 127.0.0.1:0] [] env.db"},
	} {
		s, err := Read(c.args, environ)
		if got := fmt.Sprint(s.DNS.Addresses, s.AllowHosts, " ", s.DB); err != nil || got != c.want {
			t.Errorf("%q: %s, %v; want %s", c.args, got, err, c.want)
		}
	}
}

// What makes no sense is refused, with where it stands, what it says and what is
// wanted. Each line is one flag, its value, and the whole error after "-flag: ".
func TestNoListener(t *testing.T) {
	long := strings.Repeat("n", 200)
	wantFaults(t, [][3]string{
		{"listen", "", `no address: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "127.0.0.1", `"127.0.0.1" is not an address to listen on: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "::1:8053", `"::1:8053" is not an address to listen on: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "localhost:", `"localhost:" has no port from 0 to 65535: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "localhost:65536", `"localhost:65536" has no port from 0 to 65535: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "localhost:-1", `"localhost:-1" has no port from 0 to 65535: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "http://localhost:80", `"http://localhost:80" is not an address to listen on: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "a b:80", `"a b:80" has a host that is neither an address nor a name: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "127.0.0.256:80", `"127.0.0.256:80" has a host that is neither an address nor a name: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"listen", "unix:", `"unix:" has no path: want unix:/path`},
		{"listen", "unix:@meshddns", `"unix:@meshddns" is abstract and has no file whose mode would guard it: want unix:/path`},
		{"listen", "unix:/" + long, fmt.Sprintf(`"unix:/%s" has a path of 201 octets: want at most 107`, long)},
		{"listen", ":8053", `":8053" is not a loopback address: -token-file is required`},
		{"listen", "192.0.2.1:0", `"192.0.2.1:0" is not a loopback address: -token-file is required`},
		{"listen", "127.0.0.1:8053,unix:/run/x,127.0.0.1:8053", `"127.0.0.1:8053" is given twice`},
		{"listen", "unix:/run/x,unix:", `"unix:" has no path: want unix:/path`},
		{"listen", "unix:/run/x,0.0.0.0:80", `"0.0.0.0:80" is not a loopback address: -token-file is required`},
		{"dns-listen", "53", `"53" is not an address to listen on: want host:port, such as 192.0.2.53:53 or [2001:db8::53]:53`},
		{"dns-listen", "127.0.0.1:99999", `"127.0.0.1:99999" has no port from 0 to 65535: want host:port, such as 192.0.2.53:53 or [2001:db8::53]:53`},
		{"dns-listen", "127.0.0.1:53,127.0.0.1:53", `"127.0.0.1:53" is given twice`},
	})
}

func TestNonsense(t *testing.T) {
	long := strings.Repeat("n", 200)
	const noFile = `"" is not a file: want a path, or omit the flag`
	shared, private := tokenFile(t, 0o604), tokenFile(t, 0o600)
	wantFaults(t, [][3]string{
		{"addr", "wan", `"wan" is not a source: want NAME=SOURCE, such as wan2=interface:ppp1; NAME has 1 to 32 of a-z, 0-9 and -, and is not ipv4 or ipv6`},
		{"addr", "https://u:s3cret@a.example/", `want NAME=SOURCE, such as wan2=interface:ppp1; NAME has 1 to 32 of a-z, 0-9 and -, and is not ipv4 or ipv6`},
		{"check-control", "2001:db8::1:443", `"2001:db8::1:443" is not host:port, with a port from 1 to 65535, such as 192.0.2.1:443 or [2001:db8::1]:443`},
		{"db", "", `"" is not a file: want a path such as meshddns.db`},
		{"db", "/var/lib/", `"/var/lib/" is not a file: want a path such as meshddns.db`},
		{"ipv4", "127.0.0.1", `127.0.0.1 is a loopback address, which no other host can reach`},
		{"ipv6", "fe80::1", `fe80::1 is a link-local address, which only hosts on its link can reach`},
		{"ipv4", "eth0", `"eth0" is not a source: want auto, none, interface:NAME, url:URL, file:PATH or an IPv4 address`},
		{"ipv6", "", `"" is not a source: want auto, none, interface:NAME, url:URL, file:PATH or an IPv6 address`},
		{"ipv4", "interface:a/b", `interface:"a/b": want the name of an interface, such as eth0`},
		{"dns-host", "bad host", `"bad host" is not a host name: want one such as ns1.example.com`},
		{"dns-host", "a..b", `"a..b" is not a host name: want one such as ns1.example.com`},
		{"dns-host", ".", `"." is not a host name: want one such as ns1.example.com`},
		{"dns-host", "_ns.example.com", `"_ns.example.com" is not a host name: want one such as ns1.example.com`},
		{"dns-host", "-ns.example.com", `"-ns.example.com" is not a host name: want one such as ns1.example.com`},
		{"dns-host", "ns.example.com:53", `"ns.example.com:53" is not a host name: want one such as ns1.example.com`},
		{"dns-host", "192.0.2.300", `"192.0.2.300" is not a host name: want one such as ns1.example.com`},
		{"dns-host", "192.0.2.1", `"192.0.2.1" is an address: want a name, such as ns1.example.com`},
		{"dns-host", "2001:db8::1", `"2001:db8::1" is an address: want a name, such as ns1.example.com`},
		{"dns-host", long + ".example", fmt.Sprintf(`"%s.example" is not a host name: want one such as ns1.example.com`, long)},
		{"dns-host", "a.example,A.example.", `"A.example." is given twice`},
		{"dns-catalog", ".", `"." is not a zone: want a name under which nothing else is, such as catalog.invalid`},
		{"dns-catalog", "a b", `"a b" is not a zone: want a name under which nothing else is, such as catalog.invalid`},
		{"dns-catalog", "a..b", `"a..b" is not a zone: want a name under which nothing else is, such as catalog.invalid`},
		{"dns-nsid", long, `the text has 200 octets: want at most 128`},
		{"dns-rate-limit", "-1", `"-1" is not a number from 0 to 1000000`},
		{"dns-rate-limit", "1000001", `"1000001" is not a number from 0 to 1000000`},
		{"dns-rate-limit", "", `"" is not a number from 0 to 1000000`},
		{"dns-rate-limit", "1e3", `"1e3" is not a number from 0 to 1000000`},
		{"allow-host", "http://x.y/", `"http://x.y/" is not a Host: want a name with or without a port, such as ddns.example.com or ddns.example.com:8053`},
		{"allow-host", "*.example.com", `"*.example.com" is not a Host: want a name with or without a port, such as ddns.example.com or ddns.example.com:8053`},
		{"allow-host", "x.y:0", `"x.y:0" is not a Host: want a name with or without a port, such as ddns.example.com or ddns.example.com:8053`},
		{"node-writes", "300", `"300": "300" is not a provider: want PROVIDER=N, such as cloudflare=600`},
		{"node-writes", "builtin=1", `"builtin=1": the built-in server has no such limit`},
		{"node-writes", "webhook", `"webhook" has no number from 0 to 100000: want PROVIDER=N, such as cloudflare=600`},
		{"node-writes", "webhook=-1", `"webhook=-1" has no number from 0 to 100000: want PROVIDER=N, such as cloudflare=600`},
		{"node-writes", "webhook=100001", `"webhook=100001" has no number from 0 to 100000: want PROVIDER=N, such as cloudflare=600`},
		{"node-writes", "webhook=1,webhook=2", `"webhook=2": the provider is given twice`},
		{"node-listen", "8054", `"8054" is not an address to listen on: want host:port, such as 0.0.0.0:8054 or [::]:8054, or tls:host:port`},
		{"trusted-proxy", "proxy", `"proxy" is not a range of addresses: want one such as 192.0.2.1 or 10.0.0.0/8`},
		{"token-file", "", `"" is not a file: omit the flag to require no token`},
		{"seal-key", "", `open : no such file or directory`},
		{"term", "", noFile}, {"replica-socket", "", noFile}, {"tls-cert", "", noFile}, {"tls-key", "", noFile}, {"tls-client-ca", "", noFile},
		{"seal-key", "/nonexistent/key", `open /nonexistent/key: no such file or directory`},
		{"seal-key", "/dev/null", `/dev/null is not a regular file`},
		{"seal-key", shared, shared + ` has mode 0604: only its owner, and a group or a user of its ACL that this program runs as, may read it (0600)`},
		{"seal-key", private, private + `: want one or two lines, each of 32 octets in base64, as openssl rand -base64 32 writes them; or none as the first`},
		{"token-file", "/nonexistent/token", `token file: open /nonexistent/token: no such file or directory`},
		{"sync-interval", "bogus", `"bogus" is not a duration: want one such as 5m`},
		{"sync-interval", "5", `"5" is not a duration: want one such as 5m`},
		{"sync-interval", "999ms", `"999ms" is too short: want at least 1s, such as 5m`},
		{"sync-interval", "-5m", `"-5m" is too short: want at least 1s, such as 5m`},
		{"language", "de", `"de" is not a language: want zh or en`},
		{"language", "", `"" is not a language: want zh or en`},
		{"log-format", "xml", `"xml" is not a log format: want text or json`},
		{"version", "maybe", `"maybe" is not a switch value: want true or false`},
	})
}

// wantFaults sets options, on the command line and in the environment, and compares the errors. A
// case has the name of the option, its value and the error.
func wantFaults(t *testing.T, cases [][3]string) {
	t.Helper()
	for _, c := range cases {
		_, err := Read([]string{"-" + c[0] + "=" + c[1]}, nil)
		if want := "-" + c[0] + ": " + c[2]; err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
		if c[1] == "" || c[0] == "version" || strings.HasSuffix(c[2], "-token-file is required") {
			continue
		}
		_, err = Read(nil, []string{variable(c[0]) + "=" + c[1]})
		if want := variable(c[0]) + ": " + c[2]; err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestNotAFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"extra"}, `unexpected argument "extra": want flags, which begin with -`},
		{[]string{"-"}, `unexpected argument "-": want flags, which begin with -`},
		{[]string{"--", "-db=x"}, `unexpected argument "--": want flags, which begin with -`},
		{[]string{"-token=x"}, "-token: unknown flag: the nearest is -token-file"},
		{[]string{"-dnslisten", "127.0.0.1:53", "-db=x"}, "-dnslisten: unknown flag: the nearest is -dns-listen"},
		{[]string{"--allow-hosts=x"}, "-allow-hosts: unknown flag: the nearest is -allow-host"},
		{[]string{"-nope=x"}, "-nope: unknown flag: -help lists all flags"},
		{[]string{"-token-file"}, "-token-file: no value: want -token-file file"},
	} {
		if _, err := Read(c.args, nil); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.args, err, c.want)
		}
	}
}

// An unknown variable near a setting is a mistake; any other may be another program's.
func TestUnknownVariable(t *testing.T) {
	s, err := Read(nil, []string{"MESHDDNS_DNSLISTEN=127.0.0.1:53", "PATH=/bin", "MESHDDNS_TOKENS=secret", "MESHDDNS_UNLIKE_ANY=1"})
	const want = "MESHDDNS_DNSLISTEN: unknown setting: the nearest is MESHDDNS_DNS_LISTEN\n" +
		"MESHDDNS_TOKENS: unknown setting: the nearest is MESHDDNS_TOKEN_FILE"
	if err == nil || err.Error() != want || !slices.Equal(s.Unknown, []string{"MESHDDNS_UNLIKE_ANY"}) {
		t.Errorf("got %v, %q\nwant %s", err, s.Unknown, want)
	}
}

// A container engine sets these variables for a service whose name begins with meshddns, also where that resembles a setting.
// None is a mistake, and none is a setting.
func TestServiceLinks(t *testing.T) {
	for _, service := range []string{"", "_DNS", "_NODE", "_API", "_DB", "_LISTEN", "_ALLOW", "_TOKEN", "_CHECK", "_DNS_HOST", "_1"} {
		for _, name := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "SERVICE_PORT_DNS", "SERVICE_PORT_NODE", "PORT", "PORT_53_UDP", "PORT_8053_TCP",
			"PORT_8053_TCP_PROTO", "PORT_8053_TCP_PORT", "PORT_8053_TCP_ADDR", "PORT_5432_TCP_ADDR", "NAME", "ENV_PATH", "ENV_TOKEN_FIL"} {
			name = "MESHDDNS" + service + "_" + name
			if s, err := Read(nil, []string{name + "=tcp://10.96.0.7:8053"}); err != nil || !slices.Equal(s.Unknown, []string{name}) {
				t.Errorf("%v, unknown %q", err, s.Unknown)
			}
		}
	}
}

// A variable near a setting ends the start; one that only shares a word does not. The switches are flags only.
func TestNearVariables(t *testing.T) {
	for name, meant := range map[string]string{
		"LISTENN": "LISTEN", "DNSLISTEN": "DNS_LISTEN", "TOKENFILE": "TOKEN_FILE", "TOKENS": "TOKEN_FILE", "SYNC_INTERVL": "SYNC_INTERVAL", "DNS_HOSTS": "DNS_HOST",
		"NODE_PORT": "", "DB_PORT": "", "PORT": "", "HOST": "", "DB_HOST": "", "IMAGE": "", "TAG": "", "UID": "", "DATA": "", "LOG": "", "VERSIONS": "",
		"CHECK": "", "VERSION": "", "HELP": "", "ALLOW_PORT": "", "SERVICE_HOST": "",
	} {
		name = envPrefix + name
		s, err := Read(nil, []string{name + "=1"})
		if s.Check || s.Version || s.Help || (err == nil) != (meant == "") || err == nil && !slices.Equal(s.Unknown, []string{name}) {
			t.Errorf("%s: %v, unknown %q", name, err, s.Unknown)
		}
		if err != nil && err.Error() != name+": unknown setting: the nearest is "+envPrefix+meant {
			t.Error(err)
		}
	}
}

// All mistakes are told at once, one a line, and what is right is read.
func TestEveryMistake(t *testing.T) {
	s, err := Read([]string{"-db", "", "-nope", "x", "-dns-host", "a b,good.example,c..d", "-log-format", "xml", "-dns-nsid", "here"},
		[]string{"MESHDDNS_IPV4=127.0.0.1", "MESHDDNS_SYNC_INTERVL=1", "MESHDDNS_SYNC_INTERVAL=bogus"})
	if err == nil {
		t.Fatal("no error")
	}
	var got []string
	for line := range strings.Lines(err.Error()) {
		origin, _, _ := strings.Cut(line, ": ")
		got = append(got, origin)
	}
	if want := "MESHDDNS_SYNC_INTERVL -nope -db -dns-host -dns-host MESHDDNS_IPV4 MESHDDNS_SYNC_INTERVAL -log-format"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s\n%v", got, want, err)
	}
	if s.DNS.NSID != "here" || len(s.Listen) != 1 || fmt.Sprint(s.DNS.Hosts) != "[good.example.]" {
		t.Errorf("%+v", s)
	}
}

// A network is let in with a token only; on loopback and a unix socket none is
// needed, and a name is judged by the address it stands for.
func TestOpenToTheNetwork(t *testing.T) {
	token := tokenFile(t, 0o600)
	for _, c := range []struct {
		listen string
		token  string
		ok     bool
	}{
		{"127.0.0.1:0", "", true}, {"[::1]:0", "", true}, {"localhost:0", "", true}, {"unix:/run/x", "", true}, {"host.example:0", "", true},
		{"0.0.0.0:0", "", false}, {"[::]:0", "", false}, {":0", "", false}, {"192.168.1.1:0", "", false},
		{"0.0.0.0:0", token, true},
	} {
		args := []string{"-listen", c.listen}
		if c.token != "" {
			args = append(args, "-token-file", c.token)
		}
		if _, err := Read(args, nil); (err == nil) != c.ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// certificate writes a certificate and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// The certificate is read with the settings: both files or none. Addresses with TLS need it, and -tls-client-ca needs such an
// address of the API.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	_, other := certificate(t)
	const needs = "a listener with TLS (tls:host:port, or a socket named http-tls or node-tls) needs -tls-cert and -tls-key"
	const noAPI = "-tls-client-ca: the API has no listener with TLS: want -listen tls:host:port, or a socket named http-tls"
	for _, c := range []struct{ args, want string }{
		{"-listen=tls:127.0.0.1:1 -tls-cert=" + cert + " -tls-key=" + key, ""},
		{"-node-listen=tls:0.0.0.0:1 -tls-cert=" + cert + " -tls-key=" + key, ""},
		{"-listen=tls:127.0.0.1:1 -tls-client-ca=" + cert + " -tls-cert=" + cert + " -tls-key=" + key, ""},
		{"-listen=tls:127.0.0.1:1", needs},
		{"-node-listen=tls:127.0.0.1:1", needs},
		{"-tls-cert=" + cert, `-tls-cert "` + cert + `" and -tls-key "": want a file for both`},
		{"-tls-key=" + key, `-tls-cert "" and -tls-key "` + key + `": want a file for both`},
		{"-listen=tls:127.0.0.1:1 -tls-client-ca=" + cert, `-tls-cert "" and -tls-key "": want a file for both`},
		{"-tls-cert=" + cert + " -tls-key=" + other, "-tls-cert, -tls-key, -tls-client-ca: " + cert + " and " + other + ": tls: private key does not match public key"},
		{"-listen=127.0.0.1:1 -node-listen=tls:127.0.0.1:2 -tls-client-ca=" + cert + " -tls-cert=" + cert + " -tls-key=" + key, noAPI},
		{"-listen=tls:127.0.0.1:1 -tls-client-ca=" + key + " -tls-cert=" + cert + " -tls-key=" + key, "-tls-cert, -tls-key, -tls-client-ca: " + key + ": no certificate in PEM"},
		{"-listen=127.0.0.1:1,tls:127.0.0.1:1 -tls-cert=" + cert + " -tls-key=" + key, `-listen: "tls:127.0.0.1:1" is given twice`},
		{"-node-listen=tls:127.0.0.1:1,127.0.0.1:1 -tls-cert=" + cert + " -tls-key=" + key, `-node-listen: "127.0.0.1:1" is given twice`},
		{"-listen=tls:127.0.0.1:1 -node-listen=127.0.0.1:1 -tls-cert=" + cert + " -tls-key=" + key, `-listen, -dns-listen, -node-listen: "127.0.0.1:1" is given twice`},
		{"-listen=tls:0.0.0.0:1 -tls-cert=" + cert + " -tls-key=" + key, `-listen: "tls:0.0.0.0:1" is not a loopback address: -token-file is required`},
		{"-listen=tls:8443", `-listen: "tls:8443" is not an address to listen on: want host:port, such as 127.0.0.1:8053 or [::1]:8053, tls:host:port, or unix:/path`},
		{"-dns-listen=tls:127.0.0.1:1", `-dns-listen: "tls:127.0.0.1:1" is not an address to listen on: want host:port, such as 192.0.2.53:53 or [2001:db8::53]:53`},
	} {
		s, err := Read(strings.Fields(c.args), nil)
		if err == nil {
			err = s.Refused()
		}
		if got := fmt.Sprint(err); got != cmp.Or(c.want, "<nil>") {
			t.Errorf("%s: %s\nwant %s", c.args, got, c.want)
		}
	}
	// A socket of the service manager may be the listener, which only a start knows.
	s, err := Read([]string{"-tls-client-ca", cert, "-tls-cert", cert, "-tls-key", key}, nil)
	if err != nil || s.Refused() != nil || fmt.Sprint(s.Unused(s.Listen, false, s.NodeListen)) != "[-tls-cert -tls-key -tls-client-ca]" {
		t.Errorf("%v, %v, %v", err, s.Refused(), s.Unused(s.Listen, false, s.NodeListen))
	}
	if err := s.CheckTLS([]string{"tls:192.0.2.1:443", "/run/x"}, nil); err != nil {
		t.Error(err)
	}
	if err := s.CheckTLS([]string{"/run/x"}, nil); err == nil || err.Error() != noAPI {
		t.Error(err)
	}
}

func TestUnused(t *testing.T) {
	cert, key := certificate(t)
	s, err := Read([]string{"-token-file", tokenFile(t, 0o600), "-dns-host", "ns.example", "-db", "x", "-tls-key", key},
		[]string{"MESHDDNS_DNS_NSID=x", "MESHDDNS_ALLOW_HOST=x", "MESHDDNS_TLS_CERT=" + cert})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listen string
		dns    bool
		nodes  []string
		want   string
	}{
		{"tls:127.0.0.1:1", true, nil, "[]"}, {"127.0.0.1:1", true, []string{"tls:127.0.0.1:2"}, "[]"}, {"127.0.0.1:1", true, []string{"127.0.0.1:2"}, "[MESHDDNS_TLS_CERT -tls-key]"},
		{"unix:/x", true, nil, "[MESHDDNS_ALLOW_HOST -token-file MESHDDNS_TLS_CERT -tls-key]"}, {"x.sock", true, nil, "[MESHDDNS_ALLOW_HOST -token-file MESHDDNS_TLS_CERT -tls-key]"},
		{"tls:127.0.0.1:1", false, nil, "[-dns-host MESHDDNS_DNS_NSID]"},
	} {
		if got := fmt.Sprint(s.Unused([]string{c.listen}, c.dns, c.nodes)); got != c.want {
			t.Errorf("%s, DNS %t, nodes %v: %s, want %s", c.listen, c.dns, c.nodes, got, c.want)
		}
	}
}

// Secrets that the command line names are in no writing of the settings, and in no error.
func TestSecretsAreHidden(t *testing.T) {
	s, err := Read([]string{"-token-file", tokenFile(t, 0o600), "-ipv4", "url:https://user:secret@example.com/?token=secret", "-ipv6", "https://user:secret@example.com/"}, nil)
	if err == nil {
		t.Error("no error")
	}
	text := fmt.Sprintf("%v %+v %#v %v", s, s, s, err)
	if strings.Contains(text, "secret") {
		t.Error(text)
	}
}

// The help has every flag and says how the environment is read.
func TestUsage(t *testing.T) {
	var help bytes.Buffer
	WriteHelp(&help)
	for _, o := range options {
		if !strings.Contains(help.String(), "\n  -"+o.name+" "+o.value) && !strings.Contains(help.String(), "\n  -"+o.name+"\n") {
			t.Errorf("-%s is not in the help", o.name)
		}
	}
	for _, text := range []string{"MESHDDNS_DNS_LISTEN", "(default 5m)", "; repeatable\n"} {
		if !strings.Contains(help.String(), text) {
			t.Errorf("%q is not in the help", text)
		}
	}
	for _, arg := range []string{"-h", "--help"} {
		if s, err := Read([]string{arg}, nil); err != nil || !s.Help {
			t.Errorf("%s: %+v, %v", arg, s, err)
		}
	}
}

// FuzzRead: Read accepts or refuses every input, and accepts only valid values.
func FuzzRead(f *testing.F) {
	f.Add("-sync-interval=1s", "MESHDDNS_DNS_HOST=a,b")
	f.Add("-listen=unix:", "MESHDDNS_")
	f.Add("--=", "MESHDDNS_IPV4=url:http://[")
	f.Fuzz(func(t *testing.T, arg, entry string) {
		if strings.Contains(arg+entry, "token") {
			t.Skip("reads files")
		}
		s, err := Read([]string{arg}, []string{entry})
		switch {
		case err != nil && err.Error() == "":
			t.Error("an error without a text")
		case err == nil && (s.SyncInterval < time.Second || len(s.Listen) == 0 || s.DB == "" || slices.Contains(s.Listen, unixScheme)):
			t.Errorf("%+v", s)
		}
	})
}

// Sockets of a service manager stand in the place of addresses; what was given for nothing is named.
func TestTakeSockets(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	one := []net.Listener{tcp}
	for _, test := range []struct {
		http, dnsTCP        []net.Listener
		args                []string
		listen, dns, unused string
	}{
		{nil, nil, []string{"-dns-listen", "127.0.0.1:0"}, "[127.0.0.1:8053]", "[127.0.0.1:0]", "[]"},
		{one, nil, []string{"-dns-listen", "127.0.0.1:0"}, "[]", "[127.0.0.1:0]", "[]"},
		{one, nil, []string{"-listen", "127.0.0.1:0"}, "[]", "[]", "[-listen]"},
		{nil, one, []string{"-dns-listen", "127.0.0.1:0"}, "[127.0.0.1:8053]", "[]", "[-dns-listen]"},
	} {
		s, err := Read(test.args, nil)
		if err != nil {
			t.Fatal(err)
		}
		unused := s.TakeSockets(test.http, nil, test.dnsTCP, nil)
		got := fmt.Sprint(s.Listen, s.DNS.Addresses, len(s.DNS.Listeners), unused)
		if want := fmt.Sprint(test.listen, " ", test.dns, " ", len(test.dnsTCP), " ", test.unused); got != want {
			t.Errorf("%v: %s, want %s", test.args, got, want)
		}
	}
}

// TestGreatestNumbers has the greatest numbers, and the shortest interval. TestNonsense has those beyond.
func TestGreatestNumbers(t *testing.T) {
	s, err := Read([]string{"-dns-rate-limit=1000000", "-node-writes=webhook=100000", "-sync-interval=1s"}, nil)
	if err != nil || s.DNS.RateLimit != 1_000_000 || s.NodeWrites["webhook"] != 100_000 || s.SyncInterval != time.Second {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLimits has values of the greatest length, and refuses one octet more.
func TestLimits(t *testing.T) {
	for begin, c := range map[string]struct {
		end  string
		most int // octets between begin and end
	}{
		"-listen=unix:/": {"", 106}, "-dns-nsid=": {"", 128}, "-addr=": {"=192.31.195.7", 32},
	} {
		for _, over := range []int{0, 1} {
			if _, err := Read([]string{begin + strings.Repeat("a", c.most+over) + c.end}, nil); (err == nil) != (over == 0) {
				t.Errorf("%s: %d octets more than %d: %v", begin, over, c.most, err)
			}
		}
	}
}
