package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// tollgate stands before a provider and counts what arrives. While it is shut it passes nothing on.
type tollgate struct {
	addr             string
	arrived          atomic.Int64 // octets, and datagrams
	opened, finished atomic.Int64 // connections
	shut             atomic.Bool
	open             chan struct{} // is closed when the test ends
}

func newTollgate(t *testing.T, target string, udp bool) *tollgate {
	g := &tollgate{open: make(chan struct{})}
	var datagrams func([]byte) []byte
	if udp {
		datagrams = func(query []byte) (answer []byte) {
			if g.arrived.Add(1); !g.shut.Load() {
				answer, _ = dns.ExchangeTCP(context.Background(), target, query)
			}
			return answer
		}
	}
	g.addr = servertest.Listen(t, func(conn net.Conn) {
		g.opened.Add(1)
		defer g.finished.Add(1)
		behind, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer behind.Close()
		go io.Copy(conn, behind)
		for text := make([]byte, 4096); ; {
			n, err := conn.Read(text)
			if g.arrived.Add(int64(n)); err != nil {
				return
			}
			if !g.shut.Load() {
				behind.Write(text[:n])
			}
		}
	}, datagrams)
	return g
}

// putTerm writes the term file of term 1.
func putTerm(t *testing.T, path string) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	support.Must(t, err)
	uptime, err := os.ReadFile("/proc/uptime")
	support.Must(t, err)
	var now float64
	fmt.Sscan(string(uptime), &now)
	support.WriteFile(t, path+".new", fmt.Sprintf(`{"term": 1, "asked": %f, "until": %f, "boot_id": %q}`, now, now+115, strings.TrimSpace(string(boot))))
	support.Must(t, os.Rename(path+".new", path))
}

// TestProviderAtTheEnd: after the end of the term nothing arrives at a provider, although work is due and calls wait, and the program is
// kept alive by a request. Those who wait for a call get term_over, and the program ends with status 0.
func TestProviderAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rfc2136", "webhook", "powerdns", "route53", "cloudflare"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account, gate := behindTollgate(t, name)
			path := filepath.Join(t.TempDir(), "term")
			putTerm(t, path)
			p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"), "-term", path)
			configuration := `{` + account + `,"domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://203.0.113.7:1"]}`
			p.call(200, "PUT", configPath, configuration)
			p.call(200, "PUT", "/api/v1/ddns/services/svc", `{"name":"S","config":{"domain":"example.com"}}`)
			usage := func(prefix string) string {
				return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)
			}
			first := p.call(200, "POST", usagesPath+"?wait=30", usage("a"))
			if !strings.Contains(first.body, `"published"`) || gate.arrived.Load() == 0 {
				t.Fatalf("%s; at the provider %d octets", first.body, gate.arrived.Load())
			}
			p.idle()
			before := gate.arrived.Load()
			gate.shut.Store(true)
			var asking sync.WaitGroup
			ask := func(method, path, body string) {
				asking.Go(func() {
					if a, err := p.try(method, path, body); err != nil || a.status != 503 || a.header.Get("X-Error-Code") != "term_over" {
						t.Errorf("%s %s: %d %s %v", method, path, a.status, a.body, err)
					}
				})
			}
			for i := range 20 {
				p.call(200, "POST", usagesPath, usage(fmt.Sprint("b", i)))
			}
			ask("POST", syncPath, "")
			ask("POST", "/api/v1/ddns/test", configuration)
			ask("POST", usagesPath+"?wait=30", usage("c"))
			ask("DELETE", usagesPath+"/"+first.field("id"), "")
			p.eventually("calls wait", func() bool {
				return gate.arrived.Load() > before && strings.Contains(p.call(200, "GET", "/metrics", "").body, "meshddns_http_requests_in_flight 5\n")
			})
			late, err := net.Dial("tcp", p.http) // it keeps the program for a while
			support.Must(t, err)
			defer late.Close()
			_, err = fmt.Fprintf(late, "POST /api/v1/ddns/usages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
			support.Must(t, err)
			support.Must(t, os.Remove(path))
			asking.Wait()
			p.logged("stopping")
			p.eventually("all connections end", func() bool { return gate.opened.Load() == gate.finished.Load() })
			opened, arrived := gate.opened.Load(), gate.arrived.Load()
			gate.shut.Store(false)
			p.eventually("the program has tried the work, or has ended", func() bool { return strings.Contains(p.log.String(), "zone is down") || support.Ended(p.cmd) })
			late.Close()
			if err := p.cmd.Wait(); err != nil {
				t.Error(err)
			}
			if more := gate.arrived.Load() - arrived; more > 0 || gate.opened.Load() != opened {
				t.Errorf("after the end %d octets arrive, and %d connections", more, gate.opened.Load()-opened)
			}
		})
	}
}

// behindTollgate returns the members of the configuration for a provider behind a gate.
func behindTollgate(t *testing.T, name string) (account string, g *tollgate) {
	t.Helper()
	if name == "rfc2136" {
		s := servertest.Knot(t)
		g = newTollgate(t, s.Addr, true)
		return fmt.Sprintf(`"provider":%q,"endpoint":%q,"access_key_id":%q,"access_key_secret":%q`, name, g.addr, servertest.Key, servertest.Secret), g
	}
	c := cloudtest.Start(t, name)
	g = newTollgate(t, strings.TrimPrefix(c.URL, "http://"), false)
	return fmt.Sprintf(`"provider":%q,"endpoint":%q,"access_key_id":%q,"access_key_secret":%q`, name, "http://"+g.addr, c.AccessKeyID, c.AccessKeySecret), g
}
