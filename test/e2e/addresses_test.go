package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// soon is how long a changed address may take until it is in DNS: less than the 10 s for which a web service is waited for.
const soon = 8 * time.Second

// Addresses of named interfaces are in DNS soon after they change, though a web service hangs and the next look by the
// clock is an hour away. Addresses that end soon are never taken. Each source has its verdict.
func TestNamedSources(t *testing.T) {
	notShort(t)
	support.Need(t, "dig", "ip")
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	for _, wan := range []string{"wan1", "wan2", "wan3"} {
		ip(t, "link add "+wan+" type veth peer name isp-"+wan)
		for _, end := range []string{wan, "isp-" + wan} {
			ip(t, "link set "+end+" addrgenmode none")
			ip(t, "link set "+end+" up")
		}
	}
	ip(t, "address add 192.31.195.7/32 dev wan1")
	ip(t, "address add 100.64.3.4/32 dev wan2")
	ip(t, "address add 192.0.0.2/32 dev wan3")
	one, two := tells(t, "192.31.196.1"), tells(t, "192.31.196.2")
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hangs.Close)
	db := filepath.Join(t.TempDir(), "meshddns.db")
	args := []string{"-db", db, "-sync-interval", "1h", "-ipv4", "url:" + one + ",url:" + two, "-ipv6", "none",
		"-addr", "wan1=interface:wan1,wan2=interface:wan2,wan3=interface:wan3"}
	p := start(t, append(args, "-addr", "slow=url:"+hangs.URL)...)
	p.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com","txt_record_name":"@","enabled":true,
		"sync_mode":"auto","txt_endpoints":["tcp://{wan1.ipv4}:1","tcp://[{wan1.ipv6}]:2","tcp://[{wan1.ipv6/64:::1234}]:3","tcp://{nosuch.ipv4}:4"]}`)
	p.inDNS(limit, "tcp://192.31.195.7:1")

	for _, change := range []struct{ command, want string }{
		{"address replace 192.31.195.8/32 dev wan1", "tcp://192.31.195.7:1"}, // the older one stays while both are there
		{"address del 192.31.195.7/32 dev wan1", "tcp://192.31.195.8:1"},
		{"address add 2620:4f:8000:1::9/64 dev wan1 nodad preferred_lft 0", "tcp://192.31.195.8:1"}, // deprecated
		{"address add 2620:4f:8000:2::7/64 dev wan1 nodad", "tcp://192.31.195.8:1 tcp://[2620:4f:8000:2::7]:2 tcp://[2620:4f:8000:2::1234]:3"},
	} {
		ip(t, change.command)
		p.inDNS(soon, change.want)
	}

	got := string(p.call(200, "GET", "/api/v1/ddns/addresses", "").body)
	for _, want := range []string{
		`{"source":"ipv4","ipv4":"","ipv6":"","verdict":"differs",`, `{"source":"wan1","ipv4":"192.31.195.8","ipv6":"2620:4f:8000:2::7","verdict":"public",`,
		`{"source":"wan2","ipv4":"100.64.3.4","ipv6":"","verdict":"cgnat",`, `{"source":"wan3","ipv4":"192.0.0.2","ipv6":"","verdict":"ds-lite",`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if n := strings.Count(p.log.String(), "the sources differ"); n != 1 {
		t.Errorf("%d warnings that the services differ", n)
	}

	// A restart forgets nothing, though the interface is gone.
	p.stop()
	ip(t, "link del wan1")
	p = start(t, args...)
	p.inDNS(limit, "tcp://192.31.195.8:1 tcp://[2620:4f:8000:2::7]:2 tcp://[2620:4f:8000:2::1234]:3")
}

// tells runs a web service that tells an address.
func tells(t *testing.T, address string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, address) }))
	t.Cleanup(s.Close)
	return s.URL
}

// inDNS waits until the configuration's record has the endpoints.
func (p *program) inDNS(limit time.Duration, endpoints string) {
	p.t.Helper()
	support.Eventually(p.t, limit, endpoints+" is published", func() bool {
		return endpointsOf(p.txt("mesh.example.com")) == endpoints
	})
}
