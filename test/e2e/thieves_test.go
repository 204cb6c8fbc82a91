package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// traffic is what tcpdump takes from the loopback interface.
type traffic struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  support.Log
	file string
}

// tap begins to take the traffic of some addresses.
func tap(t *testing.T, addresses ...string) *traffic {
	t.Helper()
	support.Need(t, "tcpdump")
	var ports []string
	for _, address := range addresses {
		ports = append(ports, "tcp port "+address[strings.LastIndexByte(address, ':')+1:])
	}
	x := &traffic{t: t, file: filepath.Join(t.TempDir(), "lo.pcap")}
	x.cmd = exec.Command("tcpdump", "-i", "lo", "-Z", "root", "-B", "16384", "-s", "0", "-U", "-w", x.file, strings.Join(ports, " or "))
	x.cmd.Stderr = &x.log
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.cmd.Process.Kill(); x.cmd.Wait() })
	support.Eventually(t, limit, "tcpdump listens", func() bool { return strings.Contains(x.log.String(), "listening on lo") })
	return x
}

// end returns the traffic until now. The last of it is a request without TLS to an address.
func (x *traffic) end(address string) []byte {
	x.t.Helper()
	const last = "/the-last-request"
	if out, err := exec.Command("curl", "-s", "http://"+address+last).CombinedOutput(); err != nil {
		x.t.Fatalf("%s, %v", out, err)
	}
	support.Eventually(x.t, limit, "the last request is in the traffic", func() bool {
		taken, err := os.ReadFile(x.file)
		return err == nil && bytes.Contains(taken, []byte(last))
	})
	x.cmd.Process.Signal(syscall.SIGINT)
	if err := x.cmd.Wait(); err != nil || !strings.Contains(x.log.String(), "\n0 packets dropped by kernel") {
		x.t.Fatalf("%v: %s", err, &x.log)
	}
	taken, err := os.ReadFile(x.file)
	if err != nil {
		x.t.Fatal(err)
	}
	return taken
}

// thief steals from a program with TLS beside addresses without it, with sealed secrets, and with a token of each role.
type thief struct {
	t            *testing.T
	f            *pairFiles
	dir          string
	ops, read    string   // tokens
	front        string   // the token of the service "s"
	api, nodes   string   // with the scheme
	stored, sent []string // secrets that the program keeps, and other ones that clients send
}

// ask makes a request with a token, by curl.
func (x *thief) ask(url, token string, args ...string) string {
	x.t.Helper()
	out, err := x.f.curl(x.t, append([]string{"-f", "-H", "Authorization: Bearer " + token, url}, args...)...)
	if err != nil {
		x.t.Fatalf("%s: %v: %s", url, err, out)
	}
	return out
}

// day sends a secret of each kind, reserves a prefix, renews the endpoints of a node, reads the page, and makes a backup.
func (x *thief) day(name string) {
	x.t.Helper()
	secret := func(kind string) string {
		x.stored = append(x.stored, kind+"-s3cret-"+name+"-0123456789")
		return x.stored[len(x.stored)-1]
	}
	put := func(path, body string) { x.ask(x.api+"/api/v1/ddns/"+path, x.ops, "-X", "PUT", "-d", body) }
	put("config", fmt.Sprintf(`{"provider":"builtin","access_key_id":"-","access_key_secret":%q,"domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto"}`, secret("config")))
	put("services/s", fmt.Sprintf(`{"name":"S","config":{"domain":"s.example.com","more":{"api_token":%q}}}`, secret("service")))
	put("notifications/hook", fmt.Sprintf(`{"kind":"generic","url":"http://127.0.0.1:1/%s","secret":%q,"enabled":false}`, secret("path"), secret("target")))
	tsig := base64.StdEncoding.EncodeToString([]byte(secret("tsig")))
	put("secondaries/ns", fmt.Sprintf(`{"address":"127.0.0.9:1","key_name":"k","key_secret":%q}`, tsig))
	usage := x.ask(x.api+usagesPath, x.front, "-d", fmt.Sprintf(`{"service_id":"s","prefix_mode":"custom","custom_prefix":%q,"network_id":7}`, strings.ToLower(name)))
	id := answer{body: usage}.field("id")
	node := answer{body: x.ask(x.api+usagesPath+"/"+id+"/leases", x.front, "-d", `{"slot":"one","ttl":3600}`)}.field("token")
	x.ask(x.nodes+"/lease", node, "-X", "PUT", "-d", `{"endpoints":["tcp://203.0.113.7:1"]}`)
	if out, err := x.f.curl(x.t, "-f", "-u", "any:"+x.read, "-H", "Accept: text/html", x.api+"/"); err != nil {
		x.t.Fatalf("%v: %s", err, out)
	}
	x.ask(x.api+"/api/v1/ddns/backup", x.ops, "-o", filepath.Join(x.dir, name+".db"))
	x.sent = []string{x.ops, x.read, x.front, node}
}

// find returns the secrets that stand in octets, in any writing.
func find(in []byte, secrets ...string) (found []string) {
	for _, secret := range secrets {
		if slices.ContainsFunc(spellings(secret), func(text string) bool { return bytes.Contains(in, []byte(text)) }) {
			found = append(found, secret)
		}
	}
	return found
}

// What is stolen gives only what security.md says: the traffic of a day with TLS and without it, the files, and the token of a
// dashboard. The day without TLS shows that the search finds.
func TestThieves(t *testing.T) {
	t.Parallel()
	support.Need(t, "curl", "tcpdump")
	// No other test sends these tokens: its clients may have a port of this program.
	x := &thief{t: t, f: newPairFiles(t), dir: t.TempDir(), ops: "thief-of-ops-0123456789", read: "thief-of-wall-0123456789", front: "thief-of-front-0123456789"}
	x.f.put(t, time.Now().Add(60*24*time.Hour))
	tokens := filepath.Join(x.dir, "tokens")
	support.WriteFile(t, tokens, fmt.Sprintf("admin ops %s\nread wall %s\nservice:s front %s\n", x.ops, x.read, x.front))
	if err := os.Chmod(tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(x.dir, "meshddns.db")
	p, secure := startTLS(t, x.f, []string{binary(t)}, "-db", db, "-token-file", tokens, "-seal-key", sealFile(t, filepath.Join(x.dir, "key"), 1), "-node-listen", "127.0.0.1:0,tls:127.0.0.1:0")
	nodes, secureNodes, _ := strings.Cut(nodesAt.FindStringSubmatch(p.log.String())[1], ",tls:")
	for _, day := range []struct{ name, api, nodes string }{{"TLS", "https://" + secure, "https://" + secureNodes}, {"clear", "http://" + p.http, nodes}} {
		taken := tap(t, p.http, secure, nodes, secureNodes)
		x.api, x.nodes, x.stored = day.api, day.nodes, nil
		x.day(day.name)
		all := append(x.sent, x.stored...)
		found := find(taken.end(p.http), all...)
		if day.name == "TLS" && len(found) > 0 || day.name == "clear" && len(found) != len(all) {
			t.Errorf("%s: the traffic gives %q of %q", day.name, found, all)
		}
		for _, files := range [][]string{{db, db + "-wal"}, {filepath.Join(x.dir, day.name+".db")}} {
			var content []byte
			for _, file := range files {
				part, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				content = append(content, part...)
			}
			if found := find(content, all...); len(found) > 0 || !bytes.Contains(content, []byte("s.example.com")) {
				t.Errorf("%v gives %q", files, found)
			}
		}
		for _, path := range []string{"config", "services", "notifications", "secondaries", "state", "events", "usages/available"} {
			if found := find([]byte(x.ask(x.api+"/api/v1/ddns/"+path, x.read)), all...); len(found) > 0 {
				t.Errorf("%s gives the dashboard %q", path, found)
			}
		}
	}
}
