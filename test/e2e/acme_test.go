package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// Pebble, the authority that Let's Encrypt made for tests of clients, is built by
//
//	go -C test/e2e/acme build -o FOLDER-OF-YOUR-PATH github.com/letsencrypt/pebble/v2/cmd/pebble
//
// and any other that the PATH has is as good.

// pebble is a running authority that asks one DNS server.
type pebble struct {
	t         *testing.T
	directory string     // the URL that its clients begin with
	tls       *pairFiles // of its listeners
	trust     *tls.Config
	roots     *x509.CertPool
}

// startPebble starts an authority that asks a DNS server, and waits until its certificates can be verified.
func startPebble(t *testing.T, server string) *pebble {
	t.Helper()
	support.Need(t, "pebble")
	a := &pebble{t: t, tls: newPairFiles(t), trust: &tls.Config{RootCAs: x509.NewCertPool()}}
	a.tls.put(t, time.Now().Add(24*time.Hour))
	ca, err := os.ReadFile(a.tls.file)
	if err != nil || !a.trust.RootCAs.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	patient := servertest.Relay(t, server, func(_ []byte, forward func() []byte) (answer []byte) {
		support.Within(limit, func() bool { answer = forward(); return answer != nil }) // NSD ends connections when it loads a zone
		return answer
	})
	listen := a.start(patient)
	for ; listen == ""; listen = a.start(patient) { // another process has taken a port
	}
	a.directory = "https://" + a.front(listen) + "/dir"
	return a
}

// start starts the authority at free ports, and returns where it listens, "" if it does not.
func (a *pebble) start(server string) (listen string) {
	a.t.Helper()
	listen, management := support.FreeAddress(a.t), support.FreeAddress(a.t)
	file := filepath.Join(a.t.TempDir(), "pebble.json")
	support.WriteFile(a.t, file, fmt.Sprintf(`{"pebble":{"listenAddress":%q,"managementListenAddress":%q,"certificate":%q,"privateKey":%q,"keyAlgorithm":"ecdsa","retryAfter":{"authz":1,"order":1}}}`,
		listen, management, a.tls.cert, a.tls.key))
	cmd, log := exec.Command("pebble", "-config", file, "-dnsserver", server), &support.Log{}
	cmd.Env = append(support.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0")
	cmd.Stdout, cmd.Stderr = log, log
	a.t.Cleanup(func() {
		if a.t.Failed() {
			a.t.Logf("the authority says\n%s", log)
		}
	})
	support.Start(a.t, cmd)
	client := &http.Client{Timeout: limit, Transport: &http.Transport{TLSClientConfig: a.trust}}
	defer client.CloseIdleConnections()
	support.Eventually(a.t, limit, "the authority gives its root", func() bool {
		a.roots = x509.NewCertPool()
		return support.Ended(cmd) || fetched(client, "https://"+listen+"/dir") != nil && a.roots.AppendCertsFromPEM(fetched(client, "https://"+management+"/roots/0"))
	})
	if support.Ended(cmd) {
		return ""
	}
	return listen
}

// silent is the log of servers whose clients may go away.
var silent = log.New(io.Discard, "", 0)

// front stands before the authority, and lets clients look again after a second (RFC 8555, section 8.2): lego takes five
// without a word of the authority.
func (a *pebble) front(authority string) (listen string) {
	a.t.Helper()
	proxy := &httputil.ReverseProxy{
		ErrorLog:  silent,
		Transport: &http.Transport{TLSClientConfig: a.trust},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: authority})
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			if strings.HasPrefix(r.Request.URL.Path, "/chalZ/") {
				r.Header.Set("Retry-After", "1")
			}
			return nil
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	server := &http.Server{Handler: proxy, ErrorLog: silent}
	go server.ServeTLS(l, a.tls.cert, a.tls.key)
	a.t.Cleanup(func() { server.Close(); proxy.Transport.(*http.Transport).CloseIdleConnections() })
	return l.Addr().String()
}

// fetched gives the body of a page, nil without one.
func fetched(client *http.Client, url string) []byte {
	response, err := client.Get(url)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		return nil
	}
	return body
}

// verified wants a chain of the authority that is valid for some names, and returns its first certificate.
func (a *pebble) verified(chain []byte, names ...string) *x509.Certificate {
	a.t.Helper()
	var all []*x509.Certificate
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			a.t.Fatal(err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		a.t.Fatalf("no certificates: %q", chain)
	}
	between := x509.NewCertPool()
	for _, cert := range all[1:] {
		between.AddCert(cert)
	}
	for _, name := range names {
		if _, err := all[0].Verify(x509.VerifyOptions{DNSName: strings.Replace(name, "*", "any", 1), Roots: a.roots, Intermediates: between}); err != nil {
			a.t.Errorf("%s: %v", name, err)
		}
	}
	if got, want := slices.Sorted(slices.Values(all[0].DNSNames)), slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		a.t.Errorf("the certificate has the names %q, want %q", got, want)
	}
	return all[0]
}

// holder is a node that may put challenges, and wants certificates of one authority.
type holder struct {
	*pebble
	nodes, token string // URL, and the token of its lease
	resolver     string // host:port
	folder       string // of the client
	name         string // that its lease is of
	env          []string
}

// acmeClients are those of other makers that get certificates: lego by the calls of httpreq, and certbot by those of acme-dns,
// which Debian's lego does not have.
var acmeClients = map[string]func(h holder, command string, names ...string) (chain []byte, said string, err error){"lego": holder.lego, "certbot": holder.certbot}

// lego runs lego's command run or renew.
func (h holder) lego(command string, names ...string) (chain []byte, said string, err error) {
	args := []string{"240", "lego", "--server", h.directory, "--accept-tos", "--email", "node@example.com", "--path", h.folder, "--dns", "httpreq", "--dns.disable-cp", "--dns.resolvers", h.resolver}
	for _, name := range names {
		args = append(args, "--domains", name)
	}
	if args = append(args, command); command == "renew" {
		args = append(args, "--days", "100000", "--no-random-sleep")
	}
	out, err := h.client(args, "LEGO_CA_CERTIFICATES="+h.tls.file, "LEGO_EXPERIMENTAL_CNAME_SUPPORT=true",
		"HTTPREQ_ENDPOINT="+h.nodes, "HTTPREQ_USERNAME=node", "HTTPREQ_PASSWORD="+h.token, "HTTPREQ_HTTP_TIMEOUT=45", "HTTPREQ_POLLING_INTERVAL=0")
	if err == nil {
		chain, err = os.ReadFile(filepath.Join(h.folder, "certificates", strings.Replace(names[0], "*", "_", 1)+".crt"))
	}
	return chain, out, err
}

// certbot runs certbot with a hook that calls as the clients of acme-dns do.
func (h holder) certbot(_ string, names ...string) (chain []byte, said string, err error) {
	hook := fmt.Sprintf(`curl -fsS -H "X-Api-User: $CERTBOT_DOMAIN" -H "X-Api-Key: %s" -d "{\"subdomain\":\"node\",\"txt\":\"$CERTBOT_VALIDATION\"}" %s/update`, h.token, h.nodes)
	at := func(folder string) string { return filepath.Join(h.folder, folder) }
	args := []string{"240", "certbot", "certonly", "--non-interactive", "--server", h.directory, "--agree-tos", "--email", "node@example.com", "--no-eff-email",
		"--config-dir", at("config"), "--work-dir", at("work"), "--logs-dir", at("logs"), "--manual", "--preferred-challenges", "dns", "--manual-auth-hook", hook, "--cert-name", "node"}
	for _, name := range names {
		args = append(args, "--domain", name)
	}
	out, err := h.client(args, "REQUESTS_CA_BUNDLE="+h.tls.file)
	if err == nil {
		chain, err = os.ReadFile(at("config/live/node/fullchain.pem"))
	}
	return chain, out, err
}

// client runs a client, which timeout ends.
func (h holder) client(args []string, env ...string) (said string, err error) {
	cmd := exec.CommandContext(h.t.Context(), "timeout", args...)
	cmd.Env = slices.Concat(support.Environ(), env, h.env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// certified has a client get a certificate, which is verified.
func (h holder) certified(client, command string, names ...string) *x509.Certificate {
	h.t.Helper()
	chain, said, err := acmeClients[client](h, command, names...)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", client, err, said)
	}
	return h.verified(chain, names...)
}

// challenges gives the challenges that a DNS server has for the name of the node.
func (h holder) challenges(server string) (values []string) {
	h.t.Helper()
	for _, record := range servertest.Ask(h.t, server, "_acme-challenge."+h.name, dns.TypeTXT).Answers {
		if texts, err := dns.ParseTXT(record.Data); err == nil && record.Type == dns.TypeTXT {
			values = append(values, strings.Join(texts, ""))
		}
	}
	return values
}

// acmePlace is where the program publishes, and the servers that authorities ask there.
type acmePlace struct {
	p, nodes        *program
	service, domain string
	servers         []string
}

// holds makes a node with a lease that has the right, for an authority that asks the server.
func (at acmePlace) holds(t *testing.T, a *pebble, prefix, server string) holder {
	t.Helper()
	h, _ := at.lends(t, a, prefix, server)
	return h
}

// lends is holds, and returns the usage too.
func (at acmePlace) lends(t *testing.T, a *pebble, prefix, server string) (h holder, usage string) {
	t.Helper()
	usage = at.p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, at.service, prefix)).field("id")
	token := at.p.call(200, "POST", usagesPath+"/"+usage+"/leases", `{"slot":"home","ttl":3600,"acme":true}`).field("token")
	return holder{pebble: a, nodes: "http://" + at.nodes.http, token: token, resolver: server, folder: t.TempDir(), name: prefix + "." + at.domain}, usage
}

// in is the place for a subtest.
func (at acmePlace) in(t *testing.T) acmePlace {
	p, nodes := *at.p, *at.nodes
	p.t, nodes.t = t, t
	at.p, at.nodes = &p, &nodes
	return at
}

// acmePlaces begin a program with a place.
var acmePlaces = map[string]func(t *testing.T) acmePlace{
	"builtin": atBuiltin,
	"secondaries": func(t *testing.T) acmePlace {
		at := atBuiltin(t)
		at.servers = nil
		for _, m := range makers[:2] {
			address, old := support.FreeAddress(t), m.address
			m.address = address
			registerSecondary(at.p, m.name, m.address)
			newPeer(t, m, written(primaryDNS), written(at.p.dns), written(old), written(address))
			at.servers = append(at.servers, address)
		}
		for _, server := range at.servers {
			at.p.eventually(server+" has the zone", func() bool { return serialOf(server, meshZone) != "" })
		}
		return at
	},
	"Knot": func(t *testing.T) acmePlace {
		s := servertest.Knot(t)
		return atBuiltin(t).elsewhere(s.Addr, accountAt(s))
	},
	"PowerDNS": func(t *testing.T) acmePlace {
		s := servertest.PowerDNS(t)
		return atBuiltin(t).elsewhere(s.Addr, fmt.Sprintf(`"provider":"powerdns","access_key_id":"localhost","access_key_secret":%q,"endpoint":%q`, s.APIKey, s.API))
	},
}

func atBuiltin(t *testing.T) acmePlace {
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"), "-dns-catalog", "catalog.invalid")
	p.configure("auto", "tcp://203.0.113.7:1")
	return acmePlace{p, nodes, "svc", meshZone, []string{p.dns}}
}

// elsewhere has a service at the account of another server.
func (at acmePlace) elsewhere(server, account string) acmePlace {
	at.p.call(200, "PUT", servicesPath+"cloud", fmt.Sprintf(`{"name":"Cloud","config":{"domain":%q,%s}}`, servertest.Zone, account))
	at.service, at.domain, at.servers = "cloud", servertest.Zone, []string{server}
	return at
}

// written writes an address as Knot and NSD do.
func written(address string) string { return strings.Replace(address, ":", "@", 1) }

// lego and certbot get certificates of a name and of all below it, wherever the program publishes. What lego has put goes,
// and of what certbot's hook has put the two newest values stay.
func TestCertificates(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "pebble", "lego", "certbot", "curl", "kdig")
	for name, begin := range acmePlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := begin(t)
			for i, server := range at.servers {
				for client := range acmeClients {
					if client == "lego" || support.Count(0, 1) > 0 || name == "builtin" {
						t.Run(fmt.Sprint(client, i), func(t *testing.T) {
							t.Parallel()
							at.in(t).certify(t, client, server, fmt.Sprint(client, i))
						})
					}
				}
			}
		})
	}
}

func (at acmePlace) certify(t *testing.T, client, server, prefix string) {
	h := at.holds(t, startPebble(t, server), prefix, server)
	first := h.certified(client, "run", h.name, "*."+h.name)
	if client == "certbot" {
		if values := h.challenges(server); len(values) != 2 {
			t.Errorf("after certbot: %q", values)
		}
		return
	}
	gone := func() bool { return len(h.challenges(server)) == 0 }
	if at.domain != meshZone { // the changes of the name at once may be used up, so the last one would wait for a minute
		at.p.settled()
		at.p.eventually("the challenges are gone", gone)
		return
	}
	at.p.eventually("the challenges are gone", gone)
	if second := h.certified("lego", "renew", h.name, "*."+h.name); second.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Error("the renewal gave the same certificate")
	}
	at.p.eventually("the challenges of the renewal are gone", gone)
}

// Ten nodes get their certificates at once.
func TestCertificatesAtOnce(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "pebble", "lego")
	at := acmePlaces["secondaries"](t)
	server := at.servers[1]
	a := startPebble(t, server)
	var working sync.WaitGroup
	type result struct {
		h     holder
		chain []byte
		said  string
		err   error
	}
	results := make([]result, 10)
	for i := range results {
		h := at.holds(t, a, fmt.Sprint("n", i), server)
		working.Go(func() {
			chain, said, err := h.lego("run", h.name)
			results[i] = result{h, chain, said, err}
		})
	}
	working.Wait()
	for _, r := range results {
		if r.err != nil {
			t.Errorf("%s: %v\n%s", r.h.name, r.err, r.said)
			continue
		}
		r.h.verified(r.chain, r.h.name)
		at.p.eventually("the challenge of "+r.h.name+" is gone", func() bool { return len(r.h.challenges(server)) == 0 })
	}
}

// Names of another zone get a certificate through a CNAME to the challenge of a node. One order has five names whose proofs stand
// there together: that of the lease, one of another zone, and their wildcards and a further name. So does the zone at a provider.
func TestCertificateAlias(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "pebble", "lego", "certbot", "unbound")
	for name, begin := range map[string]func(t *testing.T) (at acmePlace, other servertest.Server){
		"builtin": func(t *testing.T) (acmePlace, servertest.Server) { return atBuiltin(t), servertest.Knot(t) },
		"provider": func(t *testing.T) (acmePlace, servertest.Server) {
			s := servertest.Knot(t)
			return atBuiltin(t).elsewhere(s.Addr, accountAt(s)), s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, other := begin(t)
			server := startResolver(t, map[string]string{meshZone: at.p.dns, servertest.Zone: other.Addr})
			for client := range acmeClients {
				h := at.holds(t, startPebble(t, server), "alias-"+client, server)
				www, mail := client+"-www."+servertest.Zone, client+"-mail."+servertest.Zone
				if _, said, err := h.lego("run", www); err == nil || !strings.Contains(said, "httpreq: 403") {
					t.Errorf("without a CNAME: %v\n%s", err, said)
				}
				for _, alias := range []string{www, mail} {
					other.Update(t, "add _acme-challenge."+alias+" 60 CNAME _acme-challenge."+h.name+".")
				}
				h.certified(client, "run", h.name, "*."+h.name, www, "*."+www, mail)
			}
		})
	}
}

// startResolver starts a resolver that asks the servers of some zones, and keeps no answer.
func startResolver(t *testing.T, servers map[string]string) (address string) {
	t.Helper()
	folder := t.TempDir()
	address = support.FreeAddress(t)
	text := fmt.Sprintf(`
server:
    interface: %[2]s
    username: ""
    chroot: ""
    directory: %[1]s
    pidfile: %[1]s/unbound.pid
    use-syslog: no
    do-daemonize: no
    do-not-query-localhost: no
    module-config: iterator
    cache-max-ttl: 0
    cache-max-negative-ttl: 0
remote-control:
    control-enable: no
`, folder, written(address))
	for zone, server := range servers {
		text += fmt.Sprintf("stub-zone:\n    name: %s\n    stub-addr: %s\n", zone, written(server))
	}
	path := filepath.Join(folder, "unbound.conf")
	support.WriteFile(t, path, text)
	support.Start(t, exec.Command("unbound", "-d", "-c", path))
	support.Eventually(t, limit, "the resolver answers", func() bool { return serialOf(address, meshZone) != "" })
	return address
}

// The program gets its own certificate by its own door, and serves it after SIGHUP.
func TestApplianceCertificate(t *testing.T) {
	t.Parallel()
	support.Need(t, "pebble", "lego")
	f := newPairFiles(t)
	f.put(t, time.Now().Add(24*time.Hour))
	p, secure := startTLS(t, f, []string{binary(t)}, "-db", filepath.Join(t.TempDir(), "meshddns.db"), "-node-listen", "tls:127.0.0.1:0")
	p.configure("auto", "tcp://203.0.113.7:1")
	at := acmePlace{p, &program{}, "svc", meshZone, nil}
	h := at.holds(t, startPebble(t, p.dns), "appliance", p.dns)
	h.nodes, h.env = strings.Replace(nodesAt.FindStringSubmatch(p.log.String())[1], "tls:", "https://", 1), []string{"SSL_CERT_FILE=" + f.file}
	served := func() error {
		conn, err := tls.Dial("tcp", secure, &tls.Config{RootCAs: h.roots, ServerName: h.name})
		if err == nil {
			conn.Close()
		}
		return err
	}
	h.certified("lego", "run", h.name)
	if served() == nil {
		t.Error("the certificate is served before it is there")
	}
	for from, to := range map[string]string{".crt": f.cert, ".key": f.key} {
		content, err := os.ReadFile(filepath.Join(h.folder, "certificates", h.name+from))
		if err := errors.Join(err, os.WriteFile(to+".new", content, 0o600), os.Rename(to+".new", to)); err != nil {
			t.Fatal(err)
		}
	}
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.logged(`msg=reload step="read the certificate again"`)
	if err := served(); err != nil {
		t.Error(err)
	}
}

// lego that may not put a challenge fails, and nothing is published.
func TestCertificatesRefused(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "pebble", "lego")
	at := atBuiltin(t)
	other := at.holds(t, startPebble(t, at.p.dns), "other", at.p.dns)
	for _, c := range []struct {
		name, want string
		change     func(h *holder, usage string) (asked string)
	}{
		{"token", "httpreq: 401", func(h *holder, _ string) string { h.token = "wrong" + h.token; return h.name }},
		{"neighbour", "httpreq: 403", func(h *holder, _ string) string { return other.name }},
		{"deeper", "httpreq: 403", func(h *holder, _ string) string { return "www." + h.name }},
		{"right", "httpreq: 403", func(h *holder, usage string) string { h.token = at.p.lend(usage, "plain"); return h.name }},
		{"raw", "httpreq: 400", func(h *holder, _ string) string { h.env = []string{"HTTPREQ_MODE=RAW"}; return h.name }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := at.in(t)
			h, usage := at.lends(t, other.pebble, c.name, at.p.dns)
			asked := c.change(&h, usage)
			if _, said, err := h.lego("run", asked); err == nil || !strings.Contains(said, c.want) {
				t.Errorf("%v, and no %q:\n%s", err, c.want, said)
			}
			at.p.settled()
			for _, name := range []string{h.name, other.name, asked} {
				if values := at.p.txt("_acme-challenge." + name); values != "" {
					t.Errorf("%s has %s", name, values)
				}
			}
		})
	}
}

// put asks the node's listener to put a challenge, as lego does.
func (at acmePlace) put(status int, h holder, value string) answer {
	at.nodes.t.Helper()
	return at.nodes.call(status, "POST", "/present", fmt.Sprintf(`{"fqdn":"_acme-challenge.%s.","value":%q}`, h.name, value), "Authorization", "Bearer "+h.token)
}

// While a provider is down a challenge is kept, and its client is told after half a minute that it does not stand. When the
// provider is back it stands.
func TestChallengeProviderDown(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "pebble", "lego")
	s := servertest.PowerDNS(t)
	api, err := url.Parse(s.API)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(api)
	proxy.ErrorLog = silent
	w := newWay(t, proxy)
	at := atBuiltin(t).elsewhere(s.Addr, fmt.Sprintf(`"provider":"powerdns","access_key_id":"localhost","access_key_secret":%q,"endpoint":"http://%s"`, s.APIKey, w.address))
	h := at.holds(t, startPebble(t, s.Addr), "down", s.Addr)
	value := strings.Repeat("v", 43)
	began := time.Now()
	a := at.put(504, h, value)
	if took := time.Since(began); took < 30*time.Second {
		t.Errorf("the answer came after %v: %s", took, a.body)
	}
	w.open()
	at.p.settled() // the change would be tried again within a minute
	at.put(200, h, value)
	if values := h.challenges(s.Addr); !slices.Equal(values, []string{value}) {
		t.Errorf("the answer is 200, and the server has %q", values)
	}
	h.certified("lego", "run", h.name)
}

// A challenge that was put before SIGKILL stands after the start, and goes when its hour is over.
func TestChallengeKilled(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	begin := func() (at acmePlace) {
		p, nodes := startNodes(t, db)
		return acmePlace{p, nodes, "svc", meshZone, []string{p.dns}}
	}
	at := begin()
	at.p.configure("auto", "tcp://203.0.113.7:1")
	h := at.holds(t, &pebble{t: t}, "killed", at.p.dns)
	at.nodes.call(200, "PUT", "/lease", `{"endpoints":["tcp://192.31.195.7:11010"]}`, "Authorization", "Bearer "+at.p.lend(at.p.reserve("short"), "short"))
	value := strings.Repeat("v", 43)
	at.put(200, h, value)
	support.Kill(at.p.cmd)

	at = begin()
	if values := h.challenges(at.p.dns); !slices.Equal(values, []string{value}) {
		t.Errorf("after the start the server has %q", values)
	}
	at.put(200, h, value)
	support.Kill(at.p.cmd)

	execute(t, db, `UPDATE challenges SET put_at = put_at - ?`, time.Hour.Milliseconds())
	execute(t, db, `UPDATE leases SET ttl = 1 WHERE slot = 'short'`) // the program looks for what is over when a lease ends
	at = begin()
	at.p.eventually("the challenge is gone", func() bool { return len(h.challenges(at.p.dns)) == 0 })
}
