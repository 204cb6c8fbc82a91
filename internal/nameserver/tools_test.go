package nameserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/test/support"
)

// The tests here put other people's programs on the server. One that is not
// installed skips its test, but where CI=true all of them must be there.

// run gives what a tool writes, of its exit status only that it came.
func run(t *testing.T, tool string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
	if ctx.Err() != nil || err != nil && len(out) == 0 {
		t.Fatalf("%s %s: %v", tool, strings.Join(args, " "), err)
	}
	return string(out)
}

// at gives the arguments by which the tool asks the server, then the others.
func at(s *Server, args ...string) []string {
	address := netip.MustParseAddrPort(s.Addr())
	return append([]string{"@" + address.Addr().String(), "-p", fmt.Sprint(address.Port())}, args...)
}

// fields makes runs of blanks one space and drops comments of dig.
func fields(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, ";") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

const (
	digSOA = "example.com. 60 IN SOA ns.example.com. hostmaster.example.com. 7 3600 300 1209600 60"
	digTXT = "_mesh.office.example.com. 60 IN TXT \"v=mesh1 n=1\"\n_mesh.office.example.com. 60 IN TXT \"other\""
)

func TestDigAndKdigAnswers(t *testing.T) {
	s := start(t, "", testZones())
	for _, tool := range []string{"dig", "kdig"} {
		t.Run(tool, func(t *testing.T) {
			support.Need(t, tool)
			for args, want := range map[string]string{
				"TXT _mesh.office.example.com":              digTXT,
				"TXT _mesh.office.example.com +tcp":         digTXT,
				"TXT _mesh.office.example.com +nocookie":    digTXT,
				"TXT _mesh.office.example.com +cookie":      digTXT,
				"TXT _mesh.office.example.com +noedns":      digTXT,
				"TXT _mesh.office.example.com +bufsize=600": digTXT,
				"TXT _mesh.office.example.com +dnssec":      digTXT,
				"SOA example.com":                           digSOA,
				"NS example.com":                            "example.com. 300 IN NS ns.example.com.",
				"A ns.example.com":                          "ns.example.com. 60 IN A 192.0.2.1\nns.example.com. 60 IN A 192.0.2.2",
				"AAAA ns.example.com":                       "ns.example.com. 60 IN AAAA 2001:db8::1",
				"ANY example.com":                           `example.com. 3600 IN HINFO "RFC8482" ""`,
				"A example.com":                             "",
				"TXT none.example.com":                      "",
			} {
				if got := fields(run(t, tool, at(s, append(strings.Fields(args), "+noall", "+answer")...)...)); got != want {
					t.Errorf("%s:\n%s\nwant\n%s", args, got, want)
				}
			}
		})
	}
}

// What else dig says: parts of its text, for each way of asking.
func TestDigReports(t *testing.T) {
	support.Need(t, "dig")
	s := start(t, "", testZones())
	for args, wants := range map[string][]string{
		"TXT none.example.com":                                {"status: NXDOMAIN", "flags: qr aa rd;", "AUTHORITY: 1", digSOA, "recursion requested but not available"},
		"TXT office.example.com":                              {"status: NOERROR", "ANSWER: 0", digSOA},
		"TXT example.net":                                     {"status: REFUSED", "AUTHORITY: 0", "flags: qr rd;"},
		"TXT example.com +norecurse":                          {"status: NOERROR", "flags: qr aa;"},
		"TXT eXaMple.coM":                                     {";eXaMple.coM. IN TXT", "eXaMple.coM. 60 IN TXT"},
		"NS example.com":                                      {"ADDITIONAL: 4", "ns.example.com. 60 IN A 192.0.2.1"},
		"TXT big.example.com +noedns +ignore":                 {"flags: qr aa tc rd;", "ANSWER: 0", "ADDITIONAL: 0"},
		"TXT big.example.com +notcp":                          {"Truncated, retrying in TCP mode", "ANSWER: 30"},
		"TXT mid.example.com +bufsize=1232":                   {"ANSWER: 3", "udp: 1232"},
		"TXT mid.example.com +bufsize=800 +ignore":            {"flags: qr aa tc rd;"},
		"TXT example.com +ednsopt=65001:abcd":                 {"status: NOERROR", "EDNS: version: 0, flags:; udp: 1232"},
		"TXT example.com +dnssec":                             {"EDNS: version: 0, flags: do; udp: 1232"},
		"TXT example.com +edns=1 +noednsnegotiation":          {"status: BADVERS", "EDNS: version: 0"},
		"TXT example.com +edns=1 +ednsnegotiation":            {"status: NOERROR", "at the apex"},
		"TXT example.com +opcode=NOTIFY":                      {"status: NOTIMP", "opcode: NOTIFY"},
		"TXT example.com +opcode=UPDATE":                      {"status: NOTIMP", "opcode: UPDATE"},
		"TXT example.com -y hmac-sha256:mesh-key:c2VjcmV0":    {"status: NOTAUTH", "BADKEY"},
		"TXT example.com -c CH":                               {"status: REFUSED"},
		"TXT example.com +header-only +nocookie":              {"status: FORMERR", "QUERY: 0"},
		"TXT example.com +header-only +cookie":                {"status: NOERROR", "QUERY: 0", "(good)"},
		"TXT example.com +cookie=0011223344556677":            {"COOKIE: 0011223344556677010000", "(good)"},
		"AXFR example.com":                                    {"Transfer failed."},
		"IXFR=1 example.com":                                  {"Transfer failed."},
		"ANY example.com +notcp":                              {"HINFO"},
		"example.com SOA ns.example.com A +tcp +keepopen":     {digSOA, "192.0.2.2"},
		"+tcp SOA example.com +keepalive +padding=128 +nsid ": {digSOA},
	} {
		got := run(t, "dig", at(s, strings.Fields(args)...)...)
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
				t.Errorf("dig %s does not say %q:\n%s", args, want, got)
			}
		}
		if strings.Contains(got, "WARNING: Messag") || strings.Contains(got, "malformed") {
			t.Errorf("dig %s:\n%s", args, got)
		}
	}
}

func TestHost(t *testing.T) {
	support.Need(t, "host")
	s := start(t, "", testZones())
	for args, want := range map[string]string{
		"-t TXT _mesh.office.example.com": `_mesh.office.example.com descriptive text "v=mesh1 n=1"`,
		"-t A ns.example.com":             "ns.example.com has address 192.0.2.2",
		"-t TXT office.example.com":       "office.example.com has no TXT record",
		"-t TXT none.example.com":         "not found: 3(NXDOMAIN)",
		"-t TXT example.net":              "not found: 5(REFUSED)",
		"-l example.com":                  "Transfer failed.",
		"-T -t SOA example.com":           "example.com has SOA record ns.example.com. hostmaster.example.com. 7",
	} {
		_, port, _ := net.SplitHostPort(s.Addr())
		got := run(t, "host", append([]string{"-p", port}, append(strings.Fields(args), "127.0.0.1")...)...)
		if !strings.Contains(got, want) {
			t.Errorf("host %s does not say %q:\n%s", args, want, got)
		}
	}
}

func TestDelv(t *testing.T) {
	support.Need(t, "delv")
	s := start(t, "", testZones())
	for args, want := range map[string]string{
		"-i TXT _mesh.office.example.com": digTXT[:strings.Index(digTXT, "\n")],
		"-i TXT none.example.com":         ";; resolution failed: ncache nxdomain",
		"-i TXT office.example.com":       ";; resolution failed: ncache nxrrset",
	} {
		got := run(t, "delv", at(s, strings.Fields(args)...)...)
		if !strings.Contains(fields(got)+got, want) {
			t.Errorf("delv %s does not say %q:\n%s", args, want, got)
		}
	}
}

// named runs BIND as a resolver that has the zone from the server, until the test ends.
func named(t *testing.T, address, port, zone string) {
	t.Helper()
	command := exec.Command("named", "-g", "-c", namedConfig(t, address, port, zone), "-n", "1")
	log, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan bool), make(chan string)
	go func() {
		var said bytes.Buffer
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if fmt.Fprintln(&said, lines.Text()); strings.HasSuffix(lines.Text(), " running") {
				close(ready)
			}
		}
		ended <- said.String()
	}()
	select {
	case <-ready:
		t.Cleanup(func() { command.Process.Kill(); <-ended; command.Wait() })
	case said := <-ended:
		command.Wait()
		t.Fatalf("named does not run:\n%s", said)
	}
}

func namedConfig(t *testing.T, address, port, zone string) (file string) {
	t.Helper()
	directory := t.TempDir()
	file = filepath.Join(directory, "named.conf")
	err := os.WriteFile(file, fmt.Appendf(nil, `
		options {
			directory %q; pid-file none; lock-file none; session-keyfile "session.key"; managed-keys-directory %q;
			listen-on port %s { %s; }; listen-on-v6 { none; };
			recursion yes; dnssec-validation no; empty-zones-enable no; notify no;
		};
		controls { };
		zone "example.com" { %s };
	`, directory, directory, port, address, zone), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// checkResolver asks a resolver that reads our zone.
func checkResolver(t *testing.T, address, port string) {
	t.Helper()
	for args, want := range map[string]string{
		"TXT _mesh.office.example.com +short": "\"other\"\n\"v=mesh1 n=1\"",
		"TXT _MESH.Office.example.COM +short": "\"other\"\n\"v=mesh1 n=1\"",
		"A ns.example.com +short":             "192.0.2.1\n192.0.2.2",
		"NS example.com +short":               "ns.example.com.",
	} {
		lines := strings.Split(fields(run(t, "dig", append([]string{"@" + address, "-p", port}, strings.Fields(args)...)...)), "\n")
		slices.Sort(lines) // a resolver may turn the order
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	for args, status := range map[string]string{
		"TXT none.example.com": "status: NXDOMAIN", "TXT office.example.com": "status: NOERROR", "MX ns.example.com": "status: NOERROR",
		"TXT big.example.com": "ANSWER: 30",
	} {
		got := run(t, "dig", append([]string{"@" + address, "-p", port}, strings.Fields(args)...)...)
		if !strings.Contains(got, status) || !strings.Contains(got, "ANSWER: 30") && !strings.Contains(fields(got), "hostmaster.example.com. 7 3600") {
			t.Errorf("%s:\n%s", args, got)
		}
	}
}

func TestBINDForwards(t *testing.T) {
	support.Need(t, "named", "dig")
	s := start(t, "", testZones())
	_, port, _ := net.SplitHostPort(s.Addr())
	_, listen, _ := net.SplitHostPort(support.FreeAddress(t))
	named(t, "127.0.0.1", listen, fmt.Sprintf("type forward; forward only; forwarders { 127.0.0.1 port %s; };", port))
	checkResolver(t, "127.0.0.1", listen)
	if strings.Contains(page(s), `answers_total{rcode="NXDOMAIN"} 0`+"\n") {
		t.Error("the server was not asked")
	}
}

// inNamespace runs the calling test again in a network namespace of its own,
// where port 53 is free, with a resolver configuration of its own. It reports
// whether this is that second run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const marker = "NAMESERVER_TEST_NAMESPACE"
	if os.Getenv(marker) != "" {
		return true
	}
	support.Need(t, "unshare", "ip", "mount")
	if out, err := exec.Command("unshare", "-nm", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces for this user: %v: %s", err, out)
	}
	directory := t.TempDir()
	for file, text := range map[string]string{"resolv.conf": "nameserver 127.0.0.1\n", "hosts": "127.0.0.1 localhost\n"} {
		if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `ip link set lo up && ip address add 127.0.0.2/8 dev lo && ip address add 127.0.0.3/8 dev lo && mount --bind "$1/resolv.conf" /etc/resolv.conf && mount --bind "$1/hosts" /etc/hosts && exec "$2" -test.v -test.run "^$3\$"`
	command := exec.CommandContext(t.Context(), "unshare", "-nm", "sh", "-c", script, "sh", directory, os.Args[0], t.Name())
	command.Env = append(os.Environ(), marker+"=1")
	out, err := command.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
	return false
}

// Here the zone is found as resolvers find it: by NS, A of the server's name, port 53.
func TestOnPort53(t *testing.T) {
	support.Need(t, "dig", "named")
	if !inNamespace(t) {
		return
	}
	backend := testZones()
	backend.addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	startOn(t, "127.0.0.1:53", "", backend)
	startOn(t, "127.0.0.2:53", "", backend)
	// Two addresses, for dig 9.18 gives up on a zone with one, whoever serves it.
	got := run(t, "dig", "+nssearch", "example.com")
	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		if !strings.Contains(got, "SOA ns.example.com. hostmaster.example.com. 7 3600 300 1209600 60 from server "+address+" in ") {
			t.Errorf("dig +nssearch:\n%s", got)
		}
	}
	startOn(t, "127.0.0.4:53", "", testZones())
	named(t, "127.0.0.3", "53", "type static-stub; server-addresses { 127.0.0.4; };")
	checkResolver(t, "127.0.0.3", "53")
	// A resolver asks the zone around for the DS, and takes no other zone's word.
	got = run(t, "dig", "@127.0.0.3", "DS", "sub.example.com")
	if !strings.Contains(got, "status: NOERROR") || !strings.Contains(fields(got), "hostmaster.example.com. 7 3600") {
		t.Errorf("DS of a zone within the zone:\n%s", got)
	}
}

// A zone file made of the server's own answers satisfies the checkers.
func TestZoneCheckers(t *testing.T) {
	support.Need(t, "dig")
	backend := testZones()
	backend.values = map[string][]string{"example.com.": {"at the apex"}, "_mesh.office.example.com.": {"v=mesh1 n=1 tcp://192.0.2.1:1"}}
	s := start(t, "", backend)
	var zone strings.Builder
	for _, asked := range []string{
		"SOA example.com", "NS example.com", "TXT example.com", "A ns.example.com", "AAAA ns.example.com", "TXT _mesh.office.example.com",
	} {
		answer := fields(run(t, "dig", at(s, append(strings.Fields(asked), "+noall", "+answer")...)...))
		if answer == "" {
			t.Fatalf("no answer to %s", asked)
		}
		fmt.Fprintln(&zone, answer)
	}
	file := filepath.Join(t.TempDir(), "example.com.zone")
	if err := os.WriteFile(file, []byte(zone.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("named-checkzone", func(t *testing.T) {
		support.Need(t, "named-checkzone")
		got := run(t, "named-checkzone", "-i", "full", "-k", "fail", "-n", "fail", "-m", "fail", "-r", "fail", "example.com", file)
		if got != "zone example.com/IN: loaded serial 7\nOK\n" {
			t.Errorf("%s\n%s", got, &zone)
		}
	})
	t.Run("kzonecheck", func(t *testing.T) {
		support.Need(t, "kzonecheck")
		if got := run(t, "kzonecheck", "-v", "-o", "example.com", file); strings.TrimSpace(got) != "No semantic error found" {
			t.Errorf("%s\n%s", got, &zone)
		}
	})
}
