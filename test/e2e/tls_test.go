package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// pairFiles are the files of a certificate and its key.
type pairFiles struct {
	*authority
	cert, key string
}

func newPairFiles(t *testing.T) *pairFiles {
	t.Helper()
	dir := t.TempDir()
	return &pairFiles{newAuthority(t, filepath.Join(dir, "ca.pem")), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// put puts a certificate that ends at a time into the files, as certbot does, by rename.
func (f *pairFiles) put(t *testing.T, until time.Time) *x509.Certificate {
	t.Helper()
	pair := f.leaf(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = until.Add(-90*24*time.Hour), until }, false)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{f.cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, f.key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := errors.Join(os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// curl asks with the real program, which checks the certificate.
func (f *pairFiles) curl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), support.Slowest*limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--cacert", f.file}, args...)...).CombinedOutput()
	return string(out), err
}

// startTLS runs the program with an address without TLS, which the methods of program use, and one with it.
func startTLS(t *testing.T, f *pairFiles, words []string, args ...string) (p *program, secure string) {
	t.Helper()
	p = startWith(t, nil, words, append([]string{"-listen", "127.0.0.1:0,tls:127.0.0.1:0", "-tls-cert", f.cert, "-tls-key", f.key, "-ipv4", "none", "-ipv6", "none"}, args...)...)
	plain, secure, ok := strings.Cut(p.http, ",tls:")
	if !ok {
		t.Fatalf("it listens at %s", p.http)
	}
	p.http = plain
	return p, secure
}

// expiring gives the events of certificates, without seq and time.
func (p *program) expiring() (all []string) {
	p.t.Helper()
	var list struct {
		Data []struct{ Detail json.RawMessage }
	}
	if err := json.Unmarshal([]byte(p.call(200, "GET", "/api/v1/ddns/events?kind=certificate.*", "").body), &list); err != nil {
		p.t.Fatal(err)
	}
	for _, e := range list.Data {
		all = append(all, string(e.Detail))
	}
	return all
}

// The API and the nodes' listener serve HTTPS. The end of the certificate is in the metrics, and from 14 days before it an event
// and a line of the page tell of it, once for each certificate. A pair that does not fit changes nothing.
func TestTLS(t *testing.T) {
	t.Parallel()
	support.Need(t, "curl")
	f, db := newPairFiles(t), filepath.Join(t.TempDir(), "meshddns.db")
	first := f.put(t, time.Now().Add(10*24*time.Hour))
	p, secure := startTLS(t, f, []string{binary(t)}, "-db", db, "-node-listen", "tls:127.0.0.1:0")
	nodes := nodesAt.FindStringSubmatch(p.log.String())[1]
	if out, err := f.curl(t, "https://"+secure+"/healthz"); err != nil || !strings.HasPrefix(out, `{"message":`) {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := f.curl(t, "-o", "/dev/null", "-w", "%{http_code}", strings.Replace(nodes, "tls:", "https://", 1)+"/d/_mesh.none.example"); err != nil || out != "404" {
		t.Errorf("%s: %s, %v", nodes, out, err)
	}
	told := func(c *x509.Certificate, events int, metric bool) {
		t.Helper()
		if metric != strings.Contains(p.call(200, "GET", "/metrics", "").body, fmt.Sprintf("\nmeshddns_tls_certificate_expiry_timestamp_seconds %d\n", c.NotAfter.Unix())) {
			t.Errorf("the metric of the certificate is there: %t", !metric)
		}
		page := p.call(200, "GET", "/", "", "Accept", "text/html", "Accept-Language", "en").body
		if soon := time.Until(c.NotAfter) < 14*24*time.Hour; soon != strings.Contains(page, "TLS certificate ends soon or has ended.</span>") {
			t.Errorf("soon %t, but the page is\n%s", soon, page)
		}
		p.eventually("the event is stored", func() bool { return len(p.expiring()) >= events })
		if got := p.expiring(); len(got) != events {
			t.Errorf("events: %v", got)
		}
	}
	told(first, 1, true)
	if got := p.expiring()[0]; !strings.Contains(got, `"not_after":"`+first.NotAfter.UTC().Format(time.RFC3339)+`"`) {
		t.Error(got)
	}
	p.stop()
	p, secure = startTLS(t, f, []string{binary(t)}, "-db", db)
	p.logged("msg=started")
	told(first, 1, true)

	hangUp := func(text string) {
		t.Helper()
		before := strings.Count(p.log.String(), text)
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.eventually("the log has "+text, func() bool { return strings.Count(p.log.String(), text) > before })
	}
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		t.Fatal(err)
	}
	second := f.put(t, time.Now().Add(60*24*time.Hour))
	support.WriteFile(t, f.cert, string(cert))
	hangUp("private key does not match public key")
	told(first, 1, true)
	if out, err := f.curl(t, "https://"+secure+"/healthz"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := command(t, "-check", "-listen", "tls:127.0.0.1:0", "-tls-cert", f.cert, "-tls-key", f.key).Output(); err == nil || !strings.Contains(string(out), "private key does not match public key") {
		t.Errorf("-check: %s, %v", out, err)
	}
	second = f.put(t, second.NotAfter)
	hangUp(`msg=reload step="read the certificate again"`)
	told(second, 1, true)
	whole, err := os.ReadFile(f.cert)
	other, fault := os.ReadFile(newPairFiles(t).file)
	support.Must(t, errors.Join(err, fault))
	support.WriteFile(t, f.cert, string(whole)+string(other)) // which has not signed it
	hangUp(`error="x509: certificate signed by unknown authority`)
	expired := f.put(t, time.Now().Add(-time.Minute))
	hangUp(`msg=reload step="read the certificate again"`)
	if out, err := f.curl(t, "-k", "https://"+secure+"/healthz"); err != nil {
		t.Errorf("an expired certificate is not served: %s, %v", out, err)
	}
	p.stop()
	p, _ = startTLS(t, f, []string{binary(t)}, "-db", db)
	told(expired, 2, true)
}

// Listeners beyond loopback without TLS make one warning, which -check has too, as it has one of an expired certificate.
func TestInClear(t *testing.T) {
	t.Parallel()
	f := newPairFiles(t)
	f.put(t, time.Now().Add(60*24*time.Hour))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-token-file", token, "-tls-cert", f.cert, "-tls-key", f.key, "-listen", "127.0.0.1:0,tls:0.0.0.0:0,0.0.0.0:0", "-node-listen", "0.0.0.0:0", "-ipv4", "none", "-ipv6", "none"}
	p := start(t, append(args, "-db", filepath.Join(t.TempDir(), "meshddns.db"))...)
	const text = "clients send tokens in clear to listeners beyond loopback without TLS: want tls:host:port, or a proxy on this host"
	if found := regexp.MustCompile(`level=WARN msg="`+text+`" listen=0.0.0.0:\d+,0.0.0.0:\d+\n`).FindAllString(p.log.String(), -1); len(found) != 1 {
		t.Errorf("%d warnings", len(found))
	}
	out, err := command(t, append(args, "-check")...).Output()
	if want := "warning: 0.0.0.0:0, 0.0.0.0:0: " + text + "\nok\n"; string(out) != want || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	out, err = command(t, append(args, "-check", "-listen", "tls:other.example:1")...).Output()
	if want := ", not other.example\nok\n"; !strings.HasSuffix(string(out), want) || !strings.Contains(string(out), "\nwarning: -tls-cert: clients may refuse the TLS certificate: ") || err != nil {
		t.Errorf("%s, %v, want %q", out, err, want)
	}
	f.put(t, time.Now().Add(-time.Hour))
	out, err = command(t, append(args, "-check")...).Output()
	if want := "\nwarning: -tls-cert: the certificate ends soon or has ended: "; !strings.Contains(string(out), want) || err != nil {
		t.Errorf("%s, %v, want %q", out, err, want)
	}
	out, err = command(t, append(args, "-check", "-tls-key", token)...).Output()
	if want := "\n-tls-cert, -tls-key, -tls-client-ca: " + f.cert + " and " + token + ": "; !strings.Contains(string(out), want) || err == nil {
		t.Errorf("%s, %v, want %q", out, err, want)
	}
}

// Sockets of a service manager have TLS by their names. Without a certificate the program does not start.
func TestInheritedTLS(t *testing.T) {
	t.Parallel()
	support.Need(t, "curl")
	f := newPairFiles(t)
	f.put(t, time.Now().Add(60*24*time.Hour))
	var sockets []any
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		sockets, addresses = append(sockets, l), append(addresses, l.Addr().String())
	}
	without := inheriting(t, "http-tls:node-tls", sockets...)
	if err := without.cmd.Run(); err == nil || !strings.Contains(without.log.String(), "(tls:host:port, or a socket named http-tls or node-tls) needs -tls-cert and -tls-key") {
		t.Errorf("%v\n%s", err, without.log)
	}
	p := inheriting(t, "http-tls:node-tls", sockets...)
	p.cmd.Env = append(p.cmd.Env, "MESHDDNS_TLS_CERT="+f.cert, "MESHDDNS_TLS_KEY="+f.key)
	support.Start(t, p.cmd)
	for i, path := range []string{"/healthz", "/d/none.example"} {
		if out, err := f.curl(t, "https://"+addresses[i]+path); err != nil || !strings.HasPrefix(out, "{") {
			t.Errorf("%s: %s, %v\n%s", path, out, err, p.log)
		}
	}
}

// The deploy hook of the page copies what certbot has made, for the owner of the service's folder alone, and no other
// certificate of the host; with the line for lego it copies what lego has made.
func TestDeployHook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tls.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sh\n")
	script, _, _ = strings.Cut(script, "```")
	live, state := t.TempDir(), t.TempDir()
	cert, key := filepath.Join(state, "tls-cert.pem"), filepath.Join(state, "tls-key.pem")
	lines := strings.SplitN(script, "\n", 6)
	_, instead, _ := strings.Cut(lines[1], "FILE, with ")
	instead, _, _ = strings.Cut(instead, " in place")
	forLego := strings.Join([]string{lines[0], lines[2], instead, lines[5]}, "\n")
	renew := func(name, script string) (chain []byte) {
		t.Helper()
		f, folder := newPairFiles(t), filepath.Join(live, name)
		f.cert, f.key = filepath.Join(folder, "fullchain.pem"), filepath.Join(folder, "privkey.pem")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		f.put(t, time.Now().Add(60*24*time.Hour))
		hook := exec.Command("sh", "-c", strings.Replace(script, "/var/lib/meshddns/", state, 1))
		if hook.Env = append(support.Environ(), "RENEWED_LINEAGE="+folder); script == forLego {
			hook.Env = append(support.Environ(), "LEGO_CERT_PATH="+f.cert, "LEGO_CERT_KEY_PATH="+f.key)
		}
		if out, err := hook.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		chain, err := os.ReadFile(f.cert)
		if err != nil {
			t.Fatal(err)
		}
		return chain
	}
	for _, step := range []struct {
		name, script string
		installs     bool
	}{{"ddns.example.com", script, true}, {"www.example.org", script, false}, {"ddns.example.com", script, true}, {"www.example.org", forLego, true}} {
		chain := renew(step.name, step.script)
		if now, err := os.ReadFile(cert); err != nil || bytes.Equal(now, chain) != step.installs {
			t.Errorf("%s: installed %t, %v", step.name, !step.installs, err)
		}
	}
	if out, err := command(t, "-check", "-listen", "tls:127.0.0.1:0", "-tls-cert", cert, "-tls-key", key).CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%s, %v", out, err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A client without a certificate of the authority has no answer, whatever its token; one with both has.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	support.Need(t, "curl", "openssl")
	f := newPairFiles(t)
	f.put(t, time.Now().Add(60*24*time.Hour))
	dir := t.TempDir()
	own := func(name string) string { return filepath.Join(dir, name) }
	for _, line := range []string{
		"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=clients -keyout " + own("ca.key") + " -out " + own("ca.pem"),
		"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=admin -keyout " + own("admin.key") + " -out " + own("admin.csr"),
		"openssl x509 -req -in " + own("admin.csr") + " -CA " + own("ca.pem") + " -CAkey " + own("ca.key") + " -CAcreateserial -days 30 -out " + own("admin.pem"),
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", line, out)
		}
	}
	_, secure := startTLS(t, f, []string{binary(t)}, "-db", filepath.Join(dir, "meshddns.db"), "-tls-client-ca", own("ca.pem"))
	if out, err := f.curl(t, "https://"+secure+"/healthz"); err == nil {
		t.Errorf("without a certificate: %s", out)
	}
	if out, err := f.curl(t, "--cert", own("admin.pem"), "--key", own("admin.key"), "https://"+secure+"/healthz"); err != nil || !strings.HasPrefix(out, `{"message":`) {
		t.Errorf("%s, %v", out, err)
	}
}

// A thousand clients, in the long form, that begin a handshake and do not go on keep no other client out.
func TestHalfOpenHandshakes(t *testing.T) {
	notShort(t)
	t.Parallel()
	f := newPairFiles(t)
	f.put(t, time.Now().Add(60*24*time.Hour))
	p, secure := startTLS(t, f, withDescriptors(fewDescriptors, binary(t)), "-db", filepath.Join(t.TempDir(), "meshddns.db"))
	end := crowd(secure, func(c net.Conn, tick <-chan time.Time) error {
		return drip(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "x", tick) // a ClientHello of 512 octets
	})
	defer end()
	pool := x509.NewCertPool()
	if authority, err := os.ReadFile(f.file); err != nil || !pool.AppendCertsFromPEM(authority) {
		t.Fatal(err)
	}
	p.http = secure
	p.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}}).DialContext(ctx, "tcp", secure)
	}
	crowdedOut := regexp.MustCompile(`meshddns_http_connections_crowded_out_total (\d+)`)
	p.eventually("as many handshakes have made room", func() bool {
		found := crowdedOut.FindStringSubmatch(p.probe("/metrics"))
		n, err := strconv.Atoi(append(found, "", "")[1])
		return err == nil && n >= slowClients
	})
	for range 5 {
		p.probe("/healthz")
		p.probe(usagesPath + "/available?limit=1")
	}
	if peak := peakMemory(t, p.cmd.Process.Pid); peak > maxMemory {
		t.Errorf("%d KiB of memory, want %d at most", peak, maxMemory)
	}
	if n := strings.Count(p.log.String(), "TLS handshake failed"); n > 0 {
		t.Errorf("%d lines about clients that only went away", n)
	}
	end()
	p.rest()
}
