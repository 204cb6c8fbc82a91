package bench

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"meshddns/test/support"
)

// peer is a program that does a part of this one's work.
type peer struct {
	name    string
	path    string
	command func(dir, listen, dns string) []string // in an empty folder
	alive   string                                 // path of its first answer
	asks    string                                 // what a load asks for
	request func(to []byte, n int64) []byte
	prepare func(t testing.TB, listen string) // what a load needs
}

var (
	acmeDNSPath = flag.String("acme-dns", "", "the `program` acme-dns, for TestPeers")
	ddnsGoPath  = flag.String("ddns-go", "", "the `program` ddns-go, for TestPeers")
)

// TestPeers compares sizes with programs that a person might take instead:
//
//	go test ./test/bench -count=1 -v -run Peers -acme-dns /path/to/acme-dns -ddns-go /path/to/ddns-go
func TestPeers(t *testing.T) {
	if *acmeDNSPath == "" || *ddnsGoPath == "" {
		t.Skip("-acme-dns and -ddns-go do not say where they are")
	}
	peers := []peer{
		{name: "meshddns", path: built(t), alive: "/healthz", asks: "reservations", request: posts(64, nil).request,
			prepare: registerService,
			command: func(dir, listen, dns string) []string {
				return arguments(filepath.Join(dir, "meshddns.db"), listen, dns)
			}},
		{name: "acme-dns", path: *acmeDNSPath, alive: "/health", asks: "registrations", request: plain("POST /register"), command: acmeDNS},
		{name: "ddns-go", path: *ddnsGoPath, alive: "/", asks: "a style sheet", request: plain("GET /static/common.css"),
			command: func(dir, listen, _ string) []string {
				return []string{"-l", listen, "-c", filepath.Join(dir, "config.yaml")}
			}},
	}
	fmt.Println("| | binary | from exec to the first answer | memory idle | after 1 000 requests of 64 clients |\n|---|---|---|---|---|")
	for _, p := range peers {
		p.measure(t)
	}
}

func (p peer) measure(t *testing.T) {
	info, err := os.Stat(p.path)
	if err != nil {
		t.Fatal(err)
	}
	var began, idle []float64
	var busy float64
	for range 9 {
		listen := support.FreeAddress(t)
		process, took := startedAt(t, "http://"+listen+p.alive, append([]string{p.path}, p.command(t.TempDir(), listen, support.FreeAddress(t))...)...)
		began, idle = append(began, milliseconds(took)), append(idle, process.resident())
		if len(began) == 9 {
			if p.prepare != nil {
				p.prepare(t, listen)
			}
			load{clients: 64, request: p.request, numbers: numbered()}.times(t, listen, 1000)
			busy = float64(process.kilobytes("VmHWM")) / 1024
		}
		support.Kill(process.cmd)
	}
	fmt.Printf("| %s | %.1f MB | %.1f ms | %.1f MB | %.0f MB (%s) |\n", p.name, float64(info.Size())/(1<<20), median(began), median(idle), busy, p.asks)
}

func registerService(t testing.TB, listen string) {
	(&program{t: t, http: listen, client: http.DefaultClient}).call("PUT", "/services/svc", `{"name":"Site","config":{"domain":"example.com"}}`)
}

// plain is a request without a body.
func plain(line string) func(to []byte, n int64) []byte {
	return func(to []byte, _ int64) []byte {
		return append(to, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"...)
	}
}

func acmeDNS(dir, listen, dns string) []string {
	config := fmt.Sprintf(`
[general]
listen = %q
protocol = "both"
domain = "auth.example.com"
nsname = "auth.example.com"
nsadmin = "admin.example.com"
records = []
[database]
engine = "sqlite3"
connection = %q
[api]
ip = "127.0.0.1"
port = %q
tls = "none"
disable_registration = false
corsorigins = ["*"]
use_header = false
[logconfig]
loglevel = "info"
logtype = "stdout"
logformat = "text"
`, dns, filepath.Join(dir, "acme-dns.db"), listen[len("127.0.0.1:"):])
	path := filepath.Join(dir, "config.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		panic(err)
	}
	return []string{"-c", path}
}
