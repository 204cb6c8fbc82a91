package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meshddns/test/support"
)

const administrator = "0123456789abcdef-the-administrator"

// bearer sends a token with every request.
type bearer struct {
	token string
	http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// strangers are the clients of a listener: each one makes eight requests from an address of its own, because
// a wrong token is counted for its address.
func strangers(t *testing.T, address string) *program {
	p := &program{t: t, http: address}
	p.connect()
	requests := 0
	p.client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		requests++
		from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(requests/8/250), byte(requests/8%250+1))}
		return (&net.Dialer{LocalAddr: from}).DialContext(ctx, network, address)
	}}
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p
}

// rightsWorld has two usages. The lease of one slot of "own" is the one whose token is tried.
type rightsWorld struct {
	admin, outside, nodes *program
	own, other            string            // usages
	leases                map[string]string // usage and slot to the id of a lease
	token, replaced       string
}

func newRightsWorld(t *testing.T) *rightsWorld {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(administrator+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &rightsWorld{leases: map[string]string{}}
	w.admin, w.nodes = startNodes(t, filepath.Join(t.TempDir(), "meshddns.db"), "-token-file", file)
	w.admin.client.Transport = bearer{administrator, w.admin.client.Transport}
	w.outside, w.nodes = strangers(t, w.admin.http), strangers(t, w.nodes.http)
	w.admin.configure("auto", "tcp://203.0.113.7:1")
	w.own, w.other = w.admin.reserve("own"), w.admin.reserve("other")
	w.replaced = w.lend(w.own, "node-1")
	w.token = w.lend(w.own, "node-1")
	for usage, slot := range map[string]string{w.own: "node-2", w.other: "node-1"} {
		w.renew(w.lend(usage, slot), "tcp://192.31.195.2:1")
	}
	w.renew(w.token, "tcp://192.31.195.1:1")
	w.admin.settled()
	return w
}

// lend makes a lease with narrow rules, in place of the one that the slot has.
func (w *rightsWorld) lend(usage, slot string) (token string) {
	a := w.admin.call(200, "POST", usagesPath+"/"+usage+"/leases?replace=1", fmt.Sprintf(`{"slot":%q,"ttl":3600,"schemes":["tcp"],"cidrs":["192.31.195.0/28"],"template":["tcp://{ip}:1"]}`, slot))
	w.leases[usage+slot] = a.field("id")
	return a.field("token")
}

func (w *rightsWorld) renew(token, endpoint string) {
	w.admin.t.Helper()
	w.nodes.call(200, "PUT", "/lease", fmt.Sprintf(`{"endpoints":[%q]}`, endpoint), "Authorization", "Bearer "+token)
}

// lastRefused is what an administrator sees of refusals of the lease.
var lastRefused = regexp.MustCompile(`,"last_refused":{"at":"[^"]*","reason":"[a-z_]*","address":"[^"]*"}`)

// shown is all that an administrator and a client of DNS can see, except of refusals of the first lease.
func (w *rightsWorld) shown() string {
	p := w.admin
	all := []string{p.call(200, "GET", "/api/v1/ddns/state", "").body, p.call(200, "GET", "/api/v1/ddns/events?limit=1000", "").body}
	for _, usage := range []string{w.own, w.other} {
		all = append(all, p.call(200, "GET", usagesPath+"/"+usage+"/leases", "").body)
	}
	all[2] = strings.Replace(all[2], lastRefused.FindString(all[2]), "", 1)
	for _, prefix := range []string{"own", "other"} {
		all = append(all, p.dig("+short", "_mesh."+prefix+".mesh.example.com", "TXT"))
	}
	return strings.Join(all, "\n")
}

// try makes a request with a token in each place that a token can have, and returns those that were allowed.
func (w *rightsWorld) try(to *program, token, method, path, body string) (allowed []string, tried int) {
	w.admin.t.Helper()
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	for _, way := range [][3]string{
		{path, "Authorization", "Bearer " + token},
		{path, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("node:"+token))},
		{path + mark + "username=node&password=" + url.QueryEscape(token), "Accept", "*/*"},
	} {
		a, err := to.try(method, way[0], body, way[1], way[2])
		tried++
		refused := strings.HasPrefix(path, "/nic/update") && !strings.Contains(a.body, "good") && !strings.Contains(a.body, "nochg")
		switch {
		case err != nil:
			w.admin.t.Errorf("%s %s: %v", method, way[0], err)
		case (a.status < 400 || a.status == http.StatusTooManyRequests) && !refused: // too soon is not forbidden
			allowed = append(allowed, fmt.Sprintf("%s %s %s: %d %.200s", method, way[0], way[1], a.status, a.body))
		}
	}
	return allowed, tried
}

// administer tries every method of every path of the contract, and of the paths of nodes, at a listener.
func (w *rightsWorld) administer(to *program, token string) (allowed []string, tried int) {
	w.admin.t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(w.admin.call(200, "GET", "/api/v1/ddns/openapi.json", "").body), &document); err != nil {
		w.admin.t.Fatal(err)
	}
	paths := append(slices.Sorted(maps.Keys(document.Paths)), "/lease", "/nic/update", "/api/v1/ddns/usages/{id}/leases/")
	for _, path := range paths {
		for _, usage := range []string{w.own, w.other} {
			id := usage
			if !strings.Contains(path, "/usages/") {
				id = "svc"
			}
			at := strings.NewReplacer("{id}", id, "{lease}", w.leases[w.other+"node-1"]).Replace(path)
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
				if path == "/healthz" && (method == "GET" || method == "HEAD") || path == "/" && method == "OPTIONS" {
					continue // needs no token
				}
				var operation struct {
					RequestBody struct {
						Content map[string]struct{ Example json.RawMessage }
					}
				}
				json.Unmarshal(document.Paths[path][strings.ToLower(method)], &operation) // absent: without a body
				more, n := w.try(to, token, method, at, string(operation.RequestBody.Content["application/json"].Example))
				allowed, tried = append(allowed, more...), tried+n
			}
			if id == "svc" {
				break
			}
		}
	}
	return allowed, tried
}

// trespasses are renewals that the rules of the lease do not allow, or that are not for its slot.
func (w *rightsWorld) trespasses(token string) (allowed []string, tried int) {
	w.admin.t.Helper()
	try := func(method, path, body string) {
		more, n := w.try(w.nodes, token, method, path, body)
		allowed, tried = append(allowed, more...), tried+n
	}
	for _, endpoints := range []string{
		"udp://192.31.195.1:1", "wss://192.31.195.1:1", "http://192.31.195.1:1", "tcp4://192.31.195.1:1",
		"tcp://192.31.195.16:1", "tcp://192.31.196.1:1", "tcp://10.0.0.1:1", "tcp://[2001:db8::7]:1", "tcp://[::ffff:192.31.196.1]:1",
		"tcp://host.example.com:1", "tcp://{ipv4}:1", "tcp://{ip}:1", "tcp://192.31.195.001:1", "tcp://0xc01fc301:1",
		"tcp://192.31.195.1@192.31.196.1:1", "tcp://192.31.195.1:1 tcp://192.31.196.1:1", `tcp://192.31.195.1:1","tcp://192.31.196.1:1`,
	} {
		try("PUT", "/lease", `{"endpoints":["`+endpoints+`"]}`)
	}
	for _, query := range []string{
		"addr=192.31.196.1&port=1&proto=tcp", "addr=192.31.195.1&port=1&proto=udp", "addr=::ffff:192.31.196.1&port=1&proto=tcp", "port=1&proto=tcp",
		"addr=192.31.195.1&port=1&proto=tcp&slot=node-2", "addr=192.31.195.1&port=1&proto=tcp&usage=" + w.other,
		"addr=192.31.195.1&addr=192.31.196.1&port=1&proto=tcp",
	} {
		try("GET", "/lease?"+query, "")
	}
	for _, query := range []string{
		"hostname=other.mesh.example.com&myip=192.31.195.1", "hostname=_mesh.other.mesh.example.com&myip=192.31.195.1", "hostname=mesh.example.com&myip=192.31.195.1",
		"hostname=own.mesh.example.com.other.mesh.example.com&myip=192.31.195.1", "hostname=&myip=192.31.195.1",
		"hostname=own.mesh.example.com&myip=192.31.196.1", "hostname=own.mesh.example.com&myip=192.31.195.1,192.31.196.1",
		"hostname=own.mesh.example.com&myip=2001:db8::7", "hostname=own.mesh.example.com",
	} {
		try("GET", "/nic/update?"+query, "")
	}
	return allowed, tried
}

// The token of a lease renews the endpoints of its slot, within its rules, and nothing else: no method of any
// path at the listener of administrators or of nodes, no other scheme, address, slot or usage. A token that
// was replaced does nothing.
func TestLeaseRights(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	w := newRightsWorld(t)
	before, tried := w.shown(), 0
	for what, attempt := range map[string]func() ([]string, int){
		"at the listener of administrators":      func() ([]string, int) { return w.administer(w.outside, w.token) },
		"at the listener of nodes":               func() ([]string, int) { return w.administer(w.nodes, w.token) },
		"beyond the rules":                       func() ([]string, int) { return w.trespasses(w.token) },
		"with the administrator's token":         func() ([]string, int) { return w.administer(w.nodes, administrator) },
		"with the hash that the database stores": func() ([]string, int) { return w.trespasses(fmt.Sprintf("%x", sha256.Sum256([]byte(w.token)))) },
	} {
		allowed, n := attempt()
		for _, a := range allowed {
			t.Errorf("%s: %s", what, a)
		}
		tried += n
	}
	if allowed, _ := w.try(w.nodes, w.replaced, "PUT", "/lease", `{"endpoints":["tcp://192.31.195.1:1"]}`); len(allowed) > 0 {
		t.Errorf("a replaced token: %q", allowed)
	}
	if after := w.shown(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	t.Logf("%d attempts, 0 allowed", tried)

	// What is allowed has no effect on others, whatever else the request names.
	others := w.others()
	for method, request := range map[string][2]string{
		"PUT": {"/lease", fmt.Sprintf(`{"endpoints":["tcp://192.31.195.3:1"],"slot":"node-2","usage":%q,"id":%q}`, w.other, w.leases[w.other+"node-1"])},
		"GET": {"/nic/update?hostname=other.mesh.example.com,own.mesh.example.com&myip=192.31.195.3", ""},
	} {
		w.nodes.eventually(method+" is granted, 5 seconds after the last change", func() bool {
			a, err := w.nodes.try(method, request[0], request[1], "Authorization", "Bearer "+w.token)
			return err == nil && a.status == 200
		})
	}
	w.admin.settled()
	if got := w.admin.leased("own"); !slices.Equal(got, []string{"tcp://192.31.195.2:1", "tcp://192.31.195.3:1"}) {
		t.Errorf("own has %q", got)
	}
	if now := w.others(); now != others {
		t.Errorf("others: %s, then %s", others, now)
	}
}

// others is what the other leases have.
func (w *rightsWorld) others() string {
	neighbours := w.admin.leasesOf(w.own)
	delete(neighbours, "node-1")
	return fmt.Sprint(neighbours, w.admin.leasesOf(w.other), w.admin.leased("other"))
}

// The same attempts are allowed with the token of an administrator, and with that of a lease without rules.
func TestLeaseRightsControl(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	w := newRightsWorld(t)
	wide := w.admin.call(200, "POST", usagesPath+"/"+w.own+"/leases", `{"slot":"wide","ttl":3600,"template":["tcp://{ip}:1"]}`).field("token")
	if allowed, tried := w.trespasses(wide); len(allowed) < 10 {
		t.Errorf("without rules only %d of %d attempts are allowed: %q", len(allowed), tried, allowed)
	}
	before := w.admin.lastEvent()
	if allowed, tried := w.administer(w.outside, administrator); len(allowed) < 20 || w.admin.lastEvent() == before {
		t.Errorf("to an administrator only %d of %d attempts are allowed: %q", len(allowed), tried, allowed)
	}
}
