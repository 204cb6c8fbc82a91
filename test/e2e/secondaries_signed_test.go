package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/test/support"
)

// signers sign the zones on the way. ds gives the DS record of the zone, after what turns signing on. A command
// is tried again: pdnsutil fails while the server it writes beside stores a zone ("database is locked").
var signers = []struct {
	maker
	ds []string
}{
	{maker{"signer", "knotd", "127.0.0.1:5305", nil, []string{"knotd", "-c", "knot-signing.conf"}, true},
		[]string{"keymgr -c knot-signing.conf mesh.example.com ds"}},
	{makers[3], []string{
		"pdnsutil --config-dir=. secure-zone mesh.example.com", "pdns_control --config-dir=. purge",
		"pdnsutil --config-dir=. export-zone-ds mesh.example.com | sed -n 's/ ; (.*//p'",
	}},
}

// TestSigned: Unbound and delv trust what a secondary has signed: values, changes, and that a name or type
// is not there. A zone within the zone is insecure, not bogus.
func TestSigned(t *testing.T) {
	notShort(t)
	support.Need(t, "unbound", "delv", "keymgr")
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	for _, signer := range signers {
		t.Run(signer.name, func(t *testing.T) {
			s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"), signer.maker)
			defer support.Kill(s.cmd)
			s.call(200, "POST", "/api/v1/ddns/services", `{"id":"inner","name":"inner","config":{"domain":"inner.mesh.example.com","provider":"builtin"}}`)
			s.call(200, "POST", usagesPath+"?wait=20", `{"service_id":"inner","prefix_mode":"custom","custom_prefix":"x","network_id":9}`)
			s.reserve()
			p := s.peers[0]
			defer p.kill()
			s.eventually("the zone is at the signer", func() bool {
				return serialOf(p.address, "inner.mesh.example.com") != "" && serialOf(p.address, meshZone) != ""
			})
			ds := ""
			for _, command := range signer.ds {
				s.eventually(command, func() bool {
					cmd := exec.Command("bash", "-o", "pipefail", "-c", command)
					cmd.Dir, cmd.Stderr = p.folder, &p.log
					out, err := cmd.Output()
					ds = string(out)
					return err == nil
				})
			}
			validator := startUnbound(t, p, ds)
			for _, test := range []struct{ name, kind, want string }{
				{"_mesh.n1." + meshZone, "TXT", "NOERROR ad"}, {"nobody." + meshZone, "TXT", "NXDOMAIN ad"}, {meshZone, "AAAA", "NOERROR ad"},
				{"_mesh.x.inner." + meshZone, "TXT", "NOERROR"}, {"nobody.inner." + meshZone, "TXT", "NXDOMAIN"},
			} {
				s.eventually(fmt.Sprint(test), func() bool { return validated(t, validator, test.name, test.kind) == test.want })
			}
			s.reserve()
			s.eventually("a change is signed", func() bool { return validated(t, validator, "_mesh.n2."+meshZone, "TXT") == "NOERROR ad" })
			anchor := filepath.Join(p.folder, "anchor")
			words := strings.Fields(strings.Split(ds, "\n")[0])
			at := slices.Index(words, "DS")
			support.WriteFile(t, anchor, fmt.Sprintf("trust-anchors { mesh.example.com. static-ds %s %s %s %q; };\n", words[at+1], words[at+2], words[at+3], words[at+4]))
			host, port, _ := net.SplitHostPort(p.address)
			for name, want := range map[string]string{"_mesh.n2.": "; fully validated", "nobody.": "; negative response, fully validated", "_mesh.x.inner.": "; unsigned answer"} {
				said, err := exec.Command("delv", "@"+host, "-p", port, "-a", anchor, "+root="+meshZone, name+meshZone, "TXT").CombinedOutput()
				if err != nil || !strings.Contains(string(said), want) {
					t.Errorf("%s: %v\n%s", name, err, said)
				}
			}
		})
	}
}

// startUnbound starts a validating resolver that trusts a DS record, and gives its address.
func startUnbound(t *testing.T, p *peer, ds string) string {
	t.Helper()
	const address = "127.0.0.1:5306"
	support.WriteFile(t, filepath.Join(p.folder, "ds"), ds)
	path := filepath.Join(p.folder, "unbound.conf")
	support.WriteFile(t, path, fmt.Sprintf(`
server:
    interface: 127.0.0.1@5306
    username: ""
    chroot: ""
    directory: %[1]s
    pidfile: %[1]s/unbound.pid
    use-syslog: no
    do-daemonize: no
    do-not-query-localhost: no
    cache-max-ttl: 0
    cache-max-negative-ttl: 0
    trust-anchor-file: %[1]s/ds
remote-control:
    control-enable: no
stub-zone:
    name: mesh.example.com
    stub-addr: %[2]s
`, p.folder, strings.Replace(p.address, ":", "@", 1)))
	cmd := exec.Command("unbound", "-d", "-c", path)
	cmd.Stderr = &p.log
	support.Start(t, cmd)
	t.Cleanup(func() { support.Kill(cmd) })
	return address
}

// validated gives the status of a validating resolver's answer, with "ad" if it is proven.
func validated(t *testing.T, at, name, kind string) string {
	host, port, _ := net.SplitHostPort(at)
	out, _ := exec.Command("kdig", "@"+host, "-p", port, "+dnssec", name, kind).Output()
	_, rest, _ := strings.Cut(string(out), "status: ")
	status, rest, _ := strings.Cut(rest, ";")
	if _, flags, _ := strings.Cut(rest, "Flags: "); slices.Contains(strings.Fields(strings.SplitN(flags, ";", 2)[0]), "ad") {
		status += " ad"
	}
	return status
}
