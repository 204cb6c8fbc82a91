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
	p.client.Transport = &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: limit, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
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
	proving               string // the token of a lease of "own" that may put challenges
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
	w.proving = w.lend(w.own, "node-0", `"acme":true`)
	w.admin.settled()
	return w
}

// lend makes a lease with narrow rules, in place of the one that the slot has.
func (w *rightsWorld) lend(usage, slot string, more ...string) (token string) {
	members := append(more, fmt.Sprintf(`"slot":%q,"ttl":3600,"schemes":["tcp"],"cidrs":["192.31.195.0/28"],"template":["tcp://{ip}:1"]`, slot))
	a := w.admin.call(200, "POST", usagesPath+"/"+usage+"/leases?replace=1", "{"+strings.Join(members, ",")+"}")
	w.leases[usage+slot] = a.field("id")
	return a.field("token")
}

func (w *rightsWorld) renew(token, endpoint string) {
	w.admin.t.Helper()
	w.nodes.call(200, "PUT", "/lease", fmt.Sprintf(`{"endpoints":[%q]}`, endpoint), "Authorization", "Bearer "+token)
}

// lastRefused is what an administrator sees of refusals of the lease.
var lastRefused = regexp.MustCompile(`,"last_refused":{"at":"[^"]*","reason":"[a-z_]*","address":"[^"]*"}`)

// shown is all that an administrator and a client of DNS can see, except of refusals of the first two leases, which are tried.
func (w *rightsWorld) shown() string {
	p := w.admin
	all := []string{p.call(200, "GET", "/api/v1/ddns/state", "").body, p.call(200, "GET", "/api/v1/ddns/events?limit=1000", "").body}
	for _, usage := range []string{w.own, w.other} {
		all = append(all, p.call(200, "GET", usagesPath+"/"+usage+"/leases", "").body)
	}
	for range 2 {
		all[2] = strings.Replace(all[2], lastRefused.FindString(all[2]), "", 1)
	}
	for _, prefix := range []string{"own", "other"} {
		all = append(all, p.dig("+short", "_mesh."+prefix+".mesh.example.com", "TXT"), w.challenges(prefix))
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
		{path, "X-Api-Key", token},
		{path + mark + "username=node&password=" + url.QueryEscape(token), "Accept", "*/*"},
	} {
		a, err := to.ask(method, way[0], body, way[1], way[2])
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
	paths := append(slices.Sorted(maps.Keys(document.Paths)), "/lease", "/nic/update", "/update", "/present", "/cleanup", "/register", "/api/v1/ddns/usages/{id}/leases/")
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
	attempts := map[string]func() ([]string, int){
		"beyond the rules":                       func() ([]string, int) { return w.trespasses(w.token) },
		"challenges at the API":                  func() ([]string, int) { return w.administer(w.outside, w.proving) },
		"challenges at the listener of nodes":    func() ([]string, int) { return w.administer(w.nodes, w.proving) },
		"challenges beyond the rules":            func() ([]string, int) { return w.challengesBeyond(w.proving) },
		"challenges without the right":           func() ([]string, int) { return w.challengesOf(w.token) },
		"challenges by the administrator":        func() ([]string, int) { return w.challengesOf(administrator) },
		"with the administrator's token":         func() ([]string, int) { return w.administer(w.nodes, administrator) },
		"with the hash that the database stores": func() ([]string, int) { return w.trespasses(fmt.Sprintf("%x", sha256.Sum256([]byte(w.token)))) },
	}
	if support.Count(0, 1) > 0 { // a token with the right to challenges may do what one without it may
		attempts["at the listener of administrators"] = func() ([]string, int) { return w.administer(w.outside, w.token) }
		attempts["at the listener of nodes"] = func() ([]string, int) { return w.administer(w.nodes, w.token) }
	}
	for what, attempt := range attempts {
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
			a, err := w.nodes.ask(method, request[0], request[1], "Authorization", "Bearer "+w.token)
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

// challenges is what an authority sees for a prefix.
func (w *rightsWorld) challenges(prefix string) string {
	w.admin.t.Helper()
	values := strings.Fields(w.admin.dig("+short", "_acme-challenge."+prefix+".mesh.example.com", "TXT"))
	slices.Sort(values)
	return strings.ReplaceAll(strings.Join(values, " "), `"`, "")
}

// proof makes the value of a challenge.
func proof(text string) string {
	hash := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

const ownChallenge = "_acme-challenge.own.mesh.example.com"

// challengesOf tries the calls that a lease may use which has the right.
func (w *rightsWorld) challengesOf(token string) (allowed []string, tried int) {
	w.admin.t.Helper()
	for path, body := range map[string]string{
		"/update": fmt.Sprintf(`{"subdomain":"own","txt":%q}`, proof("")), "/present": fmt.Sprintf(`{"fqdn":"%s.","value":%q}`, ownChallenge, proof("")),
		"/cleanup": fmt.Sprintf(`{"fqdn":"%s.","value":%q}`, ownChallenge, proof("")),
	} {
		more, n := w.try(w.nodes, token, "POST", path, body)
		allowed, tried = append(allowed, more...), tried+n
	}
	return allowed, tried
}

// challengesBeyond are challenges at names that are not the lease's, of values that are none, and of forms that the calls do not have.
func (w *rightsWorld) challengesBeyond(token string) (allowed []string, tried int) {
	w.admin.t.Helper()
	value, other := proof(""), "_acme-challenge.other.mesh.example.com"
	bodies := []string{
		"", "null", "[]", "{}", `{"fqdn":null,"value":null,"txt":null}`, `{"TXT":"` + value + `","FQDN":"` + ownChallenge + `","value":"` + value + `"}`,
		`{"domain":"own.mesh.example.com","token":"t","keyAuth":"k"}`, `{"domain":"own.mesh.example.com","keyAuth":"k","value":"` + value + `"}`,
		`{"fqdn":["` + ownChallenge + `","` + other + `"],"value":"` + value + `","txt":["` + value + `"]}`,
		`{"fqdn":"` + ownChallenge + `","fqdn":"` + other + `","value":"` + value + `","txt":"` + value + `","txt":"` + value + `"}`,
		`{"fqdn":"` + ownChallenge + `","value":"` + value + `","txt":"` + value + `"}{"fqdn":"` + other + `"}`,
	}
	add := func(members map[string]string) {
		text, err := json.Marshal(members)
		if err != nil {
			w.admin.t.Fatal(err)
		}
		bodies = append(bodies, string(text))
	}
	for _, name := range []string{
		other, "_acme-challenge.mesh.example.com", "_acme-challenge.example.com", "_acme-challenge", ".", "_mesh.own.mesh.example.com", "own.mesh.example.com", "_acme-challenge._mesh.own.mesh.example.com",
		"_acme-challenge.*.own.mesh.example.com", "*." + ownChallenge, "a." + ownChallenge, "_acme-challenge.a.own.mesh.example.com", ownChallenge + ".other.mesh.example.com", ownChallenge + ".com", ownChallenge + ".",
		"." + ownChallenge, " " + ownChallenge, ownChallenge + " ", ownChallenge + "\x00", ownChallenge + "\n", ownChallenge + "," + other, `_acme-challenge\.own.mesh.example.com`, `_acme-challenge.ow\110.mesh.example.com`,
		"_acme-challenge.xn--own-.mesh.example.com", "_acme-challenge.ｏｗｎ.mesh.example.com", "_acme-challenge.own。mesh.example.com", "_acme-challenge.\u043ewn.mesh.example.com", strings.Repeat("a.", 1000),
	} {
		add(map[string]string{"fqdn": name + ".", "value": value})
		if name != ownChallenge+"." {
			add(map[string]string{"fqdn": name, "value": value, "domain": "own.mesh.example.com"})
		}
	}
	for _, text := range []string{
		"", "x", value[:42], value + "A", value + "=", value[:42] + "=", value[:42] + "+", value[:42] + "/", value[:42] + "\n", value[:42] + "\x00", value[:42] + " ", value[:41] + "é", value[:42] + "é",
		strings.Repeat("中", 43), `"` + value[:41] + `"`, "v=mesh1 n=7 o=0123456789ab tcp://192.0.2.1:1", strings.Repeat("A", 255), strings.Repeat("A", 1000),
	} {
		add(map[string]string{"fqdn": ownChallenge, "value": text, "txt": text, "subdomain": "own"})
	}
	try := func(path, body string) {
		more, n := w.try(w.nodes, token, "POST", path, body)
		allowed, tried = append(allowed, more...), tried+n
	}
	for _, body := range bodies {
		try("/present", body)
		try("/cleanup", body)
		try("/update", body)
	}
	for _, path := range []string{"/update?name=other", "/present?wait=30", "/cleanup?fqdn=" + other, "/update/other", "/Update", "/lease/update"} {
		try(path, `{"fqdn":"`+ownChallenge+`","value":"`+value+`","txt":"`+value+`"}`)
	}
	return allowed, tried
}

// others is what the other leases have.
func (w *rightsWorld) others() string {
	neighbours := w.admin.leasesOf(w.own)
	delete(neighbours, "node-1")
	return fmt.Sprint(neighbours, w.admin.leasesOf(w.other), w.admin.leased("other"))
}

// What a lease with the right to challenges may do reaches its own name and its own values only, whatever else the request names. Its
// neighbours have the same name by another usage, and by another service with another network, which the name is not.
func TestChallengeRights(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	w := newRightsWorld(t)
	p := w.admin
	before := w.others()
	ask := func(status int, code, path, token, body string, header ...string) {
		t.Helper()
		if a := w.nodes.call(status, "POST", path, body, append(header, "Authorization", "Bearer "+token)...); a.header.Get("X-Error-Code") != code {
			t.Errorf("%s %.100s: %s %s", path, body, a.header.Get("X-Error-Code"), a.body)
		}
	}
	at := func(name, value string) string { return fmt.Sprintf(`{"fqdn":%q,"value":%q`, name, value) }
	wants := func(prefix string, values ...string) {
		t.Helper()
		slices.Sort(values)
		p.eventually("the values "+strings.Join(values, " "), func() bool { return w.challenges(prefix) == strings.Join(values, " ") })
	}

	// Each form of its own name, the names of others in other members, and the largest body.
	one, two, three := proof("1"), proof("2"), proof("3")
	ask(200, "", "/present", w.proving, at("_ACME-Challenge.OWN.mesh.Example.com", one)+`,"domain":"other.mesh.example.com","Fqdn":"_acme-challenge.other.mesh.example.com","usage":"`+w.other+`"}`)
	ask(200, "", "/update", w.proving, `{"subdomain":"_acme-challenge.other.mesh.example.com","txt":"`+two+`","fqdn":"_acme-challenge.other.mesh.example.com"}`)
	wants("own", one, two)
	full := at(ownChallenge+".", two) + "}"
	full += strings.Repeat(" ", 64<<10-len(full))
	ask(200, "", "/present", w.proving, full)
	ask(413, "body_too_large", "/present", w.proving, full+" ", "Expect", "100-continue")
	ask(200, "", "/cleanup", w.proving, at(ownChallenge, one)+"}")
	wants("own", two)

	// The refusal that an administrator sees stays when lego cleans up after it.
	ask(403, "acme_name", "/present", w.proving, at("_acme-challenge.other.mesh.example.com", one)+"}")
	ask(200, "", "/cleanup", w.proving, at(ownChallenge, one)+"}")
	refused := func() bool {
		return strings.Contains(p.call(200, "GET", usagesPath+"/"+w.own+"/leases", "").body, `"reason":"acme_name"`)
	}
	if !refused() {
		t.Error("the refusal is not shown")
	}
	ask(200, "", "/update", w.proving, `{"txt":"`+two+`"}`)
	if refused() {
		t.Error("the refusal is shown after a challenge that was granted")
	}

	// What a proxy put into Authorization does not hide a right key.
	w.nodes.call(200, "POST", "/update", `{"txt":"`+two+`"}`, "Authorization", "Basic eDp4", "X-Api-Key", w.proving)

	// Another lease of the usage, which may not take the value away.
	neighbour := w.lend(w.own, "node-3", `"acme":true`)
	ask(200, "", "/cleanup", neighbour, at(ownChallenge, two)+"}")
	ask(200, "", "/update", neighbour, `{"txt":"`+three+`"}`)
	wants("own", two, three)

	// Another service with the name, by another network.
	p.call(200, "POST", "/api/v1/ddns/services", `{"id":"second","name":"second","config":{"domain":"mesh.example.com"}}`)
	second := p.call(200, "POST", usagesPath, `{"service_id":"second","prefix_mode":"custom","custom_prefix":"own","network_id":2}`).field("id")
	foreign := w.lend(second, "node-0", `"acme":true`)
	ask(409, "conflict", "/update", foreign, `{"txt":"`+one+`"}`)
	ask(409, "conflict", "/present", foreign, at(ownChallenge, one)+"}")
	ask(200, "", "/cleanup", foreign, at(ownChallenge, two)+"}")

	// Two usages of one network with one name: each lease has its own values.
	var twins, tokens []string
	for range 2 {
		twins = append(twins, p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"auto","network_id":1}`).field("id"))
		tokens = append(tokens, w.lend(twins[len(twins)-1], "node-0", `"acme":true`))
	}
	name := strings.TrimSuffix(strings.TrimPrefix(p.call(200, "GET", usagesPath+"/"+twins[0], "").field("full_domain"), "_mesh."), ".mesh.example.com")
	ask(200, "", "/update", tokens[0], `{"txt":"`+one+`"}`)
	ask(200, "", "/cleanup", tokens[1], at("_acme-challenge."+name+".mesh.example.com", one)+"}")
	ask(200, "", "/update", tokens[1], `{"txt":"`+two+`"}`)
	wants(name, one, two)

	// The end of a lease, by each way, is the end of its token and its values.
	p.call(200, "DELETE", usagesPath+"/"+twins[0]+"/leases/"+w.leases[twins[0]+"node-0"], "")
	wants(name, two)
	p.call(200, "DELETE", usagesPath+"/"+twins[1], "")
	wants(name)
	w.lend(w.own, "node-3", `"acme":true`)
	wants("own", two)
	for _, ended := range append(tokens, neighbour) {
		if allowed, _ := w.challengesOf(ended); len(allowed) > 0 {
			t.Errorf("an ended lease: %q", allowed)
		}
	}
	p.call(200, "DELETE", usagesPath+"/"+w.own+"/leases/"+w.leases[w.own+"node-3"], "")
	if now := w.others(); now != before || w.challenges("other") != "" {
		t.Errorf("others: %s, then %s and %q", before, now, w.challenges("other"))
	}

	// A usage that is being released.
	p.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com","txt_record_name":"@","enabled":false,"sync_mode":"auto","txt_endpoints":[]}`)
	p.call(202, "DELETE", usagesPath+"/"+w.own+"?wait=1", "")
	ask(409, "lease_usage_released", "/update", w.proving, `{"txt":"`+one+`"}`)
	ask(409, "lease_usage_released", "/present", w.proving, at(ownChallenge, one)+"}")
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
	if allowed, tried := w.challengesOf(w.proving); len(allowed) != 9 {
		t.Errorf("with the right only %d of %d challenges are allowed: %q", len(allowed), tried, allowed)
	}
	before := w.admin.lastEvent()
	if allowed, tried := w.administer(w.outside, administrator); len(allowed) < 20 || w.admin.lastEvent() == before {
		t.Errorf("to an administrator only %d of %d attempts are allowed: %q", len(allowed), tried, allowed)
	}
}
