package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// updater is a client of another maker that tells a dyndns2 server its address.
type updater struct {
	name, config, args, force string // config is of the listener, the token, the address and the host name
	good                      string // what it says of an update

	folder, server string
}

var updaters = []updater{
	{
		name:   "ddclient",
		config: "protocol=dyndns2\nuse=ip\nip=%[3]s\nserver=%[1]s\nssl=no\nlogin=node\npassword='%[2]s'\n%[4]s\n",
		args:   "-daemon=0 -foreground -noquiet -verbose -cache DIR/cache -file FILE", force: "-force", good: "address set to 192.31.195.",
	},
	{
		name: "inadyn",
		config: "verify-address = false\ncustom mesh {\n ssl = false\n username = node\n password = \"%[2]s\"\n checkip-command = \"echo %[3]s\"\n" +
			" ddns-server = \"%[1]s\"\n ddns-path = \"/nic/update?hostname=%%h&myip=%%i\"\n hostname = \"%[4]s\"\n}\n",
		args: "-1 -n --no-pidfile -l debug --cache-dir DIR -f FILE", force: "--force", good: "\ngood 192.31.195.",
	},
}

// run runs the client once, and returns what it says. MESHDDNS_DDCLIENT is the path of another ddclient than
// the installed one. inadyn that is sent away waits for ten minutes, so a client is ended after ten seconds.
func (u updater) run(t *testing.T, token, address, host string, more ...string) (said string, err error) {
	file := filepath.Join(u.folder, "client.conf")
	text := fmt.Sprintf(u.config, u.server, token, address, host)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	args := strings.Fields(strings.NewReplacer("DIR", u.folder, "FILE", file).Replace(u.args))
	program := u.name
	if other := os.Getenv("MESHDDNS_DDCLIENT"); other != "" && program == "ddclient" {
		program = other
	}
	out, err := exec.CommandContext(t.Context(), "timeout", slices.Concat([]string{"60", program}, args, more)...).CombinedOutput()
	return string(out), err
}

// until runs the client until it says something.
func (u updater) until(t *testing.T, p *program, said, token, address, host string) {
	t.Helper()
	p.eventually(u.name+" says "+said, func() bool {
		told, _ := u.run(t, token, address, host, u.force)
		return strings.Contains(told, said)
	})
}

// wants waits until exactly this address is in DNS for a prefix.
func (p *program) wants(prefix, address string) {
	p.t.Helper()
	p.eventually(address+" is in DNS for "+prefix, func() bool {
		return slices.Equal(p.leased(prefix), []string{"tcp://" + address + ":11010"})
	})
}

// ddclient and inadyn publish the address of their host, and the next one. What is refused changes nothing:
// a wrong password, an unknown host, a change too soon. A renewal without a change writes nothing.
func TestNodeClients(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "ddclient", "inadyn", "dig")
	for _, u := range updaters {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			u.updates(t)
		})
	}
}

// updates is a client's first update, none, those that are refused, and another address.
func (u updater) updates(t *testing.T) {
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("auto", "tcp://203.0.113.7:1")
	u.folder, u.server = t.TempDir(), nodes.http
	token := p.lend(p.reserve(u.name), "home")
	host := u.name + ".mesh.example.com"
	if said, err := u.run(t, token, "192.31.195.7", host); err != nil || !strings.Contains(said, u.good) {
		t.Errorf("%v, and no %q:\n%s", err, u.good, said)
	}
	p.wants(u.name, "192.31.195.7")
	p.settled()
	last := p.lastEvent()
	if said, err := u.run(t, token, "192.31.195.7", host); err != nil {
		t.Errorf("once more: %v\n%s", err, said)
	}
	if said, err := u.run(t, token, "192.31.195.7", host, u.force); err != nil || !strings.Contains(said, "nochg") {
		t.Errorf("forced: %v, and no nochg:\n%s", err, said)
	}
	stranger := u
	stranger.folder = t.TempDir()
	var refused sync.WaitGroup
	refused.Go(func() {
		if said, _ := stranger.run(t, token, "192.31.195.8", "other.mesh.example.com", u.force); !strings.Contains(said, "nohost") {
			t.Errorf("with an unknown host: no nohost:\n%s", said)
		}
	})
	if said, err := u.run(t, "wrong"+token, "192.31.195.8", host, u.force); err == nil || !strings.Contains(said, "badauth") {
		t.Errorf("with a wrong password: %v, and no badauth:\n%s", err, said)
	}
	refused.Wait()
	p.settled()
	if now := p.lastEvent(); now != last {
		t.Errorf("the runs without a change made the events after %d: %s", last, p.call(200, "GET", fmt.Sprintf("/api/v1/ddns/events?after=%d", last), "").body)
	}
	p.wants(u.name, "192.31.195.7")
	u.until(t, p, u.good, token, "192.31.195.8", host)
	p.wants(u.name, "192.31.195.8")
	u.tooSoon(t, p, nodes, token, host)
}

// tooSoon has the client come right after another change: it is told to come again later. A client that is
// so slow that it is not too soon tries again.
func (u updater) tooSoon(t *testing.T, p, nodes *program, token, host string) {
	t.Helper()
	last := 100
	p.eventually(u.name+" is told to come later", func() bool {
		last++
		body := fmt.Sprintf(`{"endpoints":["tcp://192.31.195.%d:11010"]}`, last)
		if a, err := nodes.try("PUT", "/lease", body, "Authorization", "Bearer "+token); err != nil || a.status != 200 {
			return false
		}
		said, _ := u.run(t, token, "192.31.195.9", host, u.force)
		return strings.Contains(said, "911")
	})
	p.wants(u.name, fmt.Sprintf("192.31.195.%d", last))
}

// way leads to a cloud. While it is closed it refuses connections, and while it is held no request arrives.
type way struct {
	t       *testing.T
	address string
	proxy   http.Handler
	socket  *os.File
	server  *http.Server
	held    sync.RWMutex
}

// newWay takes a port, which refuses connections until the way is open.
func newWay(t *testing.T, proxy http.Handler) *way {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	support.Must(t, err)
	socket := os.NewFile(uintptr(fd), "way")
	t.Cleanup(func() { socket.Close() })
	support.Must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	taken, err := syscall.Getsockname(fd)
	support.Must(t, err)
	return &way{t: t, address: fmt.Sprint("127.0.0.1:", taken.(*syscall.SockaddrInet4).Port), proxy: proxy, socket: socket}
}

// serviceAt makes the service "cloud" at a cloud, to which the way is closed.
func (p *program) serviceAt(cloud *cloudtest.Cloud, provider string) *way {
	p.t.Helper()
	target, err := url.Parse(cloud.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	w := newWay(p.t, httputil.NewSingleHostReverseProxy(target))
	p.call(200, "PUT", servicesPath+"cloud", fmt.Sprintf(`{"name":"Cloud","config":{"domain":%q,"provider":%q,"endpoint":"http://%s","access_key_id":%q,"access_key_secret":%q}}`,
		cloudtest.Zone, provider, w.address, cloud.AccessKeyID, cloud.AccessKeySecret))
	return w
}

func (w *way) open() {
	w.t.Helper()
	support.Must(w.t, syscall.Listen(int(w.socket.Fd()), syscall.SOMAXCONN))
	l, err := net.FileListener(w.socket)
	support.Must(w.t, err)
	w.server = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.held.RLock()
		defer w.held.RUnlock()
		w.proxy.ServeHTTP(rw, r)
	})}
	go w.server.Serve(l)
	w.t.Cleanup(w.close)
}

func (w *way) close() { w.server.Close() }

// While a provider is down a change is acknowledged, and is published when the provider is back.
func TestNodeClientsProviderDown(t *testing.T) {
	t.Parallel()
	support.Need(t, "ddclient", "inadyn")
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("auto", "tcp://203.0.113.7:1")
	cloud := cloudtest.Webhook(t)
	way := p.serviceAt(cloud, "webhook")
	for _, u := range updaters {
		u.folder, u.server = t.TempDir(), nodes.http
		usage := p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"cloud","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, u.name)).field("id")
		if said, err := u.run(t, p.lend(usage, "home"), "192.31.195.7", u.name+"."+cloudtest.Zone); err != nil || !strings.Contains(said, u.good) {
			t.Errorf("%s: %v, and no %q:\n%s", u.name, err, u.good, said)
		}
		if a := p.call(200, "GET", usagesPath+"/"+usage, ""); strings.Contains(a.body, `"state":"published"`) {
			t.Errorf("%s: published at a provider that is down: %s", u.name, a.body)
		}
	}
	way.open()
	for _, u := range updaters {
		p.settled()
		if got := fmt.Sprint(cloud.Values(t, "_mesh."+u.name+"."+cloudtest.Zone)); !strings.Contains(got, "tcp://192.31.195.7:11010") {
			t.Errorf("%s: %s", u.name, got)
		}
	}
}

// requests are what routers and storage boxes send, word for word. A FRITZ!Box fills in the template of
// docs/nodes.md and escapes nothing; a Synology has the credentials in the header or in the query.
var requests = map[string]string{
	"fritz": "GET /nic/update?hostname=fritz.mesh.example.com&myip=192.31.195.7&myipv6=2001:db8::7&password=TOKEN HTTP/1.1\r\n" +
		"Host: HOST\r\nAuthorization: Basic BASIC\r\nUser-Agent: Fritz!Box DDNS/1.0.1\r\nConnection: close\r\n\r\n",
	"fritz10": "GET /nic/update?hostname=fritz10.mesh.example.com&myip=192.31.195.7&password=TOKEN HTTP/1.0\r\nUser-Agent: Fritz!Box DDNS/1.0.1\r\n\r\n",
	"synology": "GET /nic/update?hostname=synology.mesh.example.com&myip=192.31.195.7&system=dyndns&wildcard=NOCHG&mx=NOCHG&backmx=NOCHG&username=node&password=TOKEN HTTP/1.1\r\n" +
		"Host: HOST\r\nUser-Agent: DDNS Client\r\nAccept: */*\r\nConnection: close\r\n\r\n",
	"dsm": "GET /nic/update?hostname=dsm.mesh.example.com&myip=192.31.195.7&system=dyndns&wildcard=NOCHG&mx=NOCHG&backmx=NOCHG HTTP/1.1\r\n" +
		"Host: HOST\r\nAuthorization: Basic BASIC\r\nUser-Agent: DDNS Client\r\nConnection: close\r\n\r\n",
}

// accepted is a whole answer that they understand.
var accepted = regexp.MustCompile(`^HTTP/1\.[01] 200 OK\r\n(?s:.*)\r\n\r\n(good|nochg) 192\.31\.195\.7[^\n]*\n?$`)

// The requests of a FRITZ!Box and of a Synology publish their address.
func TestRecordedUpdates(t *testing.T) {
	t.Parallel()
	support.Need(t, "dig")
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("auto", "tcp://203.0.113.7:1")
	for name, text := range requests {
		token := p.lend(p.reserve(name), "home")
		said := send(t, nodes.http, text, "wrong")
		if !strings.HasPrefix(said, "HTTP/1.1 401") && !strings.HasPrefix(said, "HTTP/1.0 401") || !strings.HasSuffix(strings.TrimSpace(said), "badauth") {
			t.Errorf("%s with a wrong token: %s", name, said)
		}
		for _, want := range []string{"good", "nochg"} {
			said := send(t, nodes.http, text, token)
			if m := accepted.FindStringSubmatch(said); m == nil || m[1] != want || !strings.Contains(said, "Content-Type: text/plain") || !strings.Contains(said, "Content-Length: ") {
				t.Errorf("%s, want %s: %s", name, want, said)
			}
		}
		p.wants(name, "192.31.195.7")
	}
}

// send sends a request as it is written, and returns the whole answer.
func send(t *testing.T, address, text, token string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	basic := base64.StdEncoding.EncodeToString([]byte("node:" + token))
	if _, err := io.WriteString(conn, strings.NewReplacer("TOKEN", token, "HOST", address, "BASIC", basic).Replace(text)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// The script of docs/nodes.md publishes what natmap calls it with: public address, public port, IP4P
// address, inner port, protocol, inner address; so do those of two processes at once. Its exit status tells natmap of a failure.
func TestNatmapHook(t *testing.T) {
	t.Parallel()
	support.Need(t, "curl", "dig")
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"))
	p.configure("auto", "tcp://203.0.113.7:1")
	token := p.lend(p.reserve("home"), "natmap")
	page, err := os.ReadFile("../../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sh\n#!/bin/sh\n")
	script, _, found := strings.Cut(script, "```")
	if !found || !strings.Contains(script, "TOKEN") || !strings.Contains(script, "node.example.com:8054") {
		t.Fatalf("docs/nodes.md has no script for natmap: %s", script)
	}
	hook := func(token, port, protocol string) error {
		file := filepath.Join(t.TempDir(), "hook")
		support.WriteFile(t, file, strings.NewReplacer("TOKEN", token, "node.example.com:8054", nodes.http).Replace("#!/bin/sh\n"+script))
		out, err := exec.Command("sh", file, "192.31.195.7", port, "2001::9c41:c01f:c307", "11010", protocol, "192.168.1.2").CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	var hooks sync.WaitGroup
	for protocol, port := range map[string]string{"tcp": "40001", "udp": "40002"} {
		hooks.Go(func() {
			if err := hook(token, port, protocol); err != nil {
				t.Error(err)
			}
		})
	}
	hooks.Wait()
	p.eventually("the endpoints are in DNS", func() bool {
		value := p.dig("+short", "_mesh.home.mesh.example.com", "TXT")
		return strings.Contains(value, "tcp://192.31.195.7:40001") && strings.Contains(value, "udp://192.31.195.7:40002")
	})
	if err := hook("wrong", "40001", "tcp"); err == nil {
		t.Error("a wrong token is no failure")
	}
}
