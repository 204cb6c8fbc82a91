package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"meshddns/test/e2e/soak"
	"meshddns/test/servertest"
)

// operator is the number of the client that configures, synchronises and tests, and has
// no usages.
const operator = 7

// soakClient is a client that remembers what was acknowledged. Only it changes what it
// changes.
type soakClient struct {
	s      *soaked
	domain string
	zone   soakZone

	mu      sync.Mutex
	w       *witness
	touched map[string]bool   // what a request was made about since a backup began
	names   map[string]string // by prefix; of all that may have been reserved since the last look, and before that still is
	anchors []string          // prefixes that are never released
	seen    map[string]bool   // those that were published at the last look
	gone    []string          // names whose values were withdrawn
	again   *soakRequest      // one that a fault has refused, and that must be made again
	stuck   bool              // an answer did not come: the next look tells what was done
	cursor  string            // of its list
	listed  map[string]bool   // on the pages so far; nil when there is none, or it has changed since
}

// soakZone is where a client's names are.
type soakZone int

const (
	ownZone soakZone = iota
	knotZone
	hookZone
)

// soakRequest is a request and what is expected of it when there are no faults.
type soakRequest struct {
	kind, method, path, body string
	class                    soak.Class
	change                   change
	repeated                 bool // a fault has refused it
	expect                   func(a answer) bool
	then                     func(a answer) // when it came as expected
}

// is expects a status.
func is(statuses ...int) func(answer) bool {
	return func(a answer) bool { return slices.Contains(statuses, a.status) }
}

// says expects 200 and a text.
func says(text string) func(answer) bool {
	return func(a answer) bool { return a.status == 200 && strings.Contains(a.body, text) }
}

// refuses expects a refusal with a code.
func refuses(status int, code string) func(answer) bool {
	return func(a answer) bool { return a.status == status && a.header.Get("X-Error-Code") == code }
}

func newSoakClient(s *soaked, number int) *soakClient {
	c := &soakClient{s: s, w: newWitness(s.t, number, 5), names: map[string]string{}, domain: fmt.Sprintf("w%d.mesh.example.com", number)}
	switch number {
	case 4, 5:
		c.zone, c.domain = knotZone, fmt.Sprintf("w%d.%s", number, badZone)
	case 6:
		c.zone, c.domain = hookZone, fmt.Sprintf("w%d.%s", number, goodZone)
	}
	return c
}

// work makes requests at a pace.
func (c *soakClient) work() {
	ticker := time.NewTicker(soakPace)
	defer ticker.Stop()
	for {
		select {
		case <-c.s.over:
			return
		case <-ticker.C:
		}
		c.s.rest.RLock()
		c.step()
		c.s.rest.RUnlock()
	}
}

// step makes a request, and learns what it has changed.
func (c *soakClient) step() {
	c.mu.Lock()
	if c.stuck {
		c.mu.Unlock()
		return
	}
	r := c.again
	if c.again = nil; r == nil {
		r = c.choose()
	}
	c.w.doubt = r.change
	if c.touched != nil && r.change.about != "" {
		c.touched[r.change.about] = true
	}
	c.mu.Unlock()
	a, how := c.s.ask(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case how == done:
		c.w.doubt = change{}
		c.w.learn(r.change)
		if r.then != nil {
			r.then(a)
		}
	case how == refused && r.method == "DELETE": // it may be half done: asked again until it is
		c.again, r.repeated = r, true
	case how == refused:
		c.w.doubt = change{}
	default:
		c.stuck = r.change.about != ""
	}
}

// outcome is what becomes of a request.
type outcome int

const (
	done    outcome = iota
	refused         // as the weather allows
	broken          // it may have been done
)

// ask makes a request, and looks whether the answer may be expected.
func (s *soaked) ask(r *soakRequest) (a answer, how outcome) {
	first := s.season()
	began := time.Now()
	a, err := s.p.Load().try(r.method, r.path, r.body, "Accept-Language", "en")
	took := time.Since(began)
	w := s.weatherSince(first)
	s.requests.Add(1)
	status := strings.TrimSpace(strconv.Itoa(a.status) + " " + a.header.Get("X-Error-Code"))
	if err != nil {
		status = "no answer"
	}
	s.mu.Lock()
	s.tally[[2]string{r.kind, status}]++
	if err == nil {
		s.times[r.class] = append(s.times[r.class], took)
	}
	s.mu.Unlock()
	switch {
	case err != nil && (w.down || w.disk && r.path == backupPath):
		return a, broken
	case err != nil:
		s.add(&s.result.Unexpected, "%s %s: %v", r.method, r.path, err)
		return a, broken
	case r.expect(a), r.repeated && a.status == 404:
		return a, done
	case w.allows(r, a):
		if w.disk && a.status >= 500 && r.class == soak.Write {
			s.refused.Add(1)
		}
		return a, refused
	}
	s.add(&s.result.Unexpected, "%s %s %s: %s %s", r.method, r.path, r.body, status, a.body[:min(len(a.body), 2000)])
	return a, broken
}

// allows tells whether a fault explains an answer: a reason in JSON, of a call that has to
// do with what fails.
func (w weather) allows(r *soakRequest, a answer) bool {
	var body struct{ Error string }
	reason := json.Unmarshal([]byte(a.body), &body) == nil && body.Error != "" && a.header.Get("X-Error-Code") != ""
	code := a.header.Get("X-Error-Code")
	switch {
	case r.path == testPath: // a report of what is wrong
		return (w.disk || w.provider) && a.status == 200
	case r.path == "/healthz":
		return w.disk && a.status == 503 && reason
	case strings.HasPrefix(r.path, syncPath) && r.method == "POST" && w.provider:
		return a.status == 500 && reason && (code == "sync_failed" || code == "sync_unfinished")
	}
	return w.disk && a.status == 500 && reason && r.class != soak.Read
}

// choose gives the next request. The caller holds mu.
func (c *soakClient) choose() *soakRequest {
	c.w.made++
	if c.w.number == operator {
		return c.operate()
	}
	service := fmt.Sprintf("svc-%d", c.w.number)
	if c.w.facts["service "+service] == "" {
		return c.saveService(service)
	}
	if len(c.anchors) < 3 {
		r := c.reserve(fmt.Sprintf("anchor-%d-%d", c.w.number, c.w.made), "custom")
		kept := r.then
		prefix := strings.TrimPrefix(r.change.about, "usage ")
		r.then = func(a answer) { kept(a); c.anchors = append(c.anchors, prefix) }
		return r
	}
	if c.cursor != "" {
		return c.page()
	}
	live := c.live()
	switch n := c.w.chance.IntN(100); {
	case n < 24 && len(live) < 30 || len(live) < 8:
		if c.w.chance.IntN(3) == 0 {
			network := c.network()
			return c.reserve("_mesh-"+base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, network, 10)), "auto")
		}
		return c.reserve(fmt.Sprintf("p-%d-%d", c.w.number, c.w.made), "custom")
	case n < 40 && len(live) > 8:
		return c.release(live[c.w.chance.IntN(len(live))])
	case n < 52:
		return c.patch(live[c.w.chance.IntN(len(live))])
	case n < 54:
		return c.saveService(service)
	case n < 57:
		return c.otherService()
	case n < 66:
		return c.check(live)
	case n < 74:
		prefix := live[c.w.chance.IntN(len(live))]
		return read("usage", usagesPath+"/"+c.w.ids[prefix], says(fmt.Sprintf(`"record_prefix":%q`, prefix)))
	case n < 84:
		return c.page()
	case n < 90:
		return c.wrong(live)
	default:
		return c.look(service)
	}
}

// read is a request that changes nothing.
func read(kind, path string, expect func(answer) bool) *soakRequest {
	return &soakRequest{kind: kind, method: "GET", path: path, class: soak.Read, expect: expect}
}

// live gives the prefixes that may be released, in order.
func (c *soakClient) live() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.w.ids)), func(prefix string) bool { return slices.Contains(c.anchors, prefix) })
}

// network gives one that no other usage has.
func (c *soakClient) network() int64 { return int64(c.w.number+1)*1e10 + int64(c.w.made) }

func (c *soakClient) reserve(prefix, mode string) *soakRequest {
	network := c.network()
	body := fmt.Sprintf(`{"service_id":"svc-%d","prefix_mode":%q,"network_id":%d,"network_name":"net"`, c.w.number, mode, network)
	if mode == "custom" {
		body += fmt.Sprintf(`,"custom_prefix":%q`, prefix)
	}
	c.names[prefix] = fmt.Sprintf("_mesh.%s.%s.", strings.ToLower(prefix), c.domain)
	return &soakRequest{
		kind: "reserve, " + mode, method: "POST", path: usagesPath, body: body + "}", class: soak.Write,
		change: change{"usage " + prefix, fmt.Sprintf("%d []", network)},
		expect: says(fmt.Sprintf(`"record_prefix":%q`, prefix)),
		then:   func(a answer) { c.w.ids[prefix] = a.field("id"); c.listed = nil },
	}
}

// release waits for a provider, where it is not our own.
func (c *soakClient) release(prefix string) *soakRequest {
	id := c.w.ids[prefix]
	delete(c.w.ids, prefix)
	r := &soakRequest{
		kind: "release", method: "DELETE", path: usagesPath + "/" + id, class: soak.Write, change: change{"usage " + prefix, ""},
		expect: is(200, 202),
	}
	if c.zone != ownZone {
		r.class = soak.Slow
	}
	forced := c.w.chance.IntN(8) == 0
	if forced {
		r.kind, r.path = "release, forced", r.path+"?force=1"
	}
	r.then = func(a answer) {
		delete(c.w.ids, prefix)
		c.listed = nil
		if a.status == 200 && !forced && !r.repeated {
			c.gone = append(c.gone[max(0, len(c.gone)-50):], c.names[prefix])
		}
	}
	return r
}

func (c *soakClient) patch(prefix string) *soakRequest {
	network, _, _ := strings.Cut(c.w.facts["usage "+prefix], " ")
	endpoints := fmt.Sprintf(`["tcp://203.0.113.%d:%d"]`, c.w.number+1, c.w.made%60000+1)
	return &soakRequest{
		kind: "patch", method: "PATCH", path: usagesPath + "/" + c.w.ids[prefix], body: fmt.Sprintf(`{"txt_endpoints":%s,"description":"at %d"}`, endpoints, c.w.made),
		class: soak.Write, change: change{"usage " + prefix, network + " " + endpoints}, expect: is(200),
	}
}

func (c *soakClient) saveService(id string) *soakRequest {
	name := fmt.Sprintf("Site %d", c.w.made)
	config := fmt.Sprintf(`"domain":%q`, c.domain)
	switch c.zone {
	case knotZone:
		config += fmt.Sprintf(`,"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q`, servertest.Key, servertest.Secret, c.s.knot.addr)
	case hookZone:
		config += fmt.Sprintf(`,"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":"https://%s"`, c.s.cloud.AccessKeyID, c.s.cloud.AccessKeySecret, c.s.hook.addr)
	}
	return &soakRequest{
		kind: "save service", method: "PUT", path: servicesPath + id, body: fmt.Sprintf(`{"name":%q,"config":{%s}}`, name, config),
		class: soak.Write, change: change{"service " + id, name}, expect: is(200),
	}
}

// otherService comes and goes, and has no usages.
func (c *soakClient) otherService() *soakRequest {
	id := fmt.Sprintf("svc-%d-other", c.w.number)
	if c.w.facts["service "+id] != "" {
		return &soakRequest{kind: "delete service", method: "DELETE", path: servicesPath + id, class: soak.Write, change: change{"service " + id, ""}, expect: is(200)}
	}
	name := fmt.Sprintf("Other %d", c.w.made)
	return &soakRequest{
		kind: "create service", method: "POST", path: strings.TrimSuffix(servicesPath, "/"), body: fmt.Sprintf(`{"id":%q,"name":%q,"config":{}}`, id, name),
		class: soak.Write, change: change{"service " + id, name}, expect: is(200),
	}
}

// check asks for a prefix that is taken, or one that no usage has had.
func (c *soakClient) check(live []string) *soakRequest {
	prefix, want := fmt.Sprintf("never-%d", c.w.made), `"occupied":false`
	if c.w.made%2 == 0 {
		prefix, want = live[c.w.chance.IntN(len(live))], `"occupied":true`
	}
	return read("check-prefix", fmt.Sprintf("/api/v1/ddns/check-prefix?service_id=svc-%d&prefix=%s", c.w.number, prefix), says(want))
}

// page asks for the next page of its list, and nothing else until the last. Then it looks
// whether all were there that are reserved.
func (c *soakClient) page() *soakRequest {
	if c.listed == nil {
		c.cursor, c.listed = "", map[string]bool{}
	}
	path := fmt.Sprintf("%s?service_id=svc-%d&limit=7", listPath, c.w.number)
	if c.cursor != "" {
		path += "&cursor=" + c.cursor
	}
	r := read("list, a page", path, is(200))
	r.then = func(a answer) {
		var page struct {
			Data []struct {
				RecordPrefix string `json:"record_prefix"`
			}
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Data) > 7 {
			c.s.add(&c.s.result.Unexpected, "GET %s: %v, %d entries", path, err, len(page.Data))
		}
		for _, u := range page.Data {
			c.listed[u.RecordPrefix] = true
		}
		if c.cursor = page.NextCursor; c.cursor != "" {
			return
		}
		for prefix := range c.w.ids {
			if !c.listed[prefix] {
				c.s.add(&c.s.result.Unexpected, "GET %s: %s is on no page", path, prefix)
			}
		}
		c.listed = nil
	}
	return r
}

// wrong is a request that must be refused.
func (c *soakClient) wrong(live []string) *soakRequest {
	prefix := c.anchors[c.w.chance.IntN(len(c.anchors))]
	all := []*soakRequest{
		{kind: "wrong: taken", method: "POST", path: usagesPath, expect: refuses(400, "prefix_taken"),
			body: fmt.Sprintf(`{"service_id":"svc-%d","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, c.w.number, strings.ToUpper(prefix))},
		{kind: "wrong: service", method: "DELETE", path: fmt.Sprintf("%ssvc-%d", servicesPath, c.w.number), expect: refuses(409, "service_in_use")},
		{kind: "wrong: body", method: "POST", path: usagesPath, body: `{"service_id":7}`, expect: refuses(400, "parameter_error")},
		{kind: "wrong: id", method: "GET", path: usagesPath + "/nobody", expect: refuses(404, "unknown_usage")},
		{kind: "wrong: path", method: "GET", path: "/api/v1/ddns/nothing", expect: refuses(404, "not_found")},
		{kind: "wrong: method", method: "PATCH", path: configPath, expect: refuses(405, "method_not_allowed")},
	}
	r := all[c.w.chance.IntN(len(all))]
	if r.class = soak.Write; r.method == "GET" || r.kind == "wrong: method" || r.kind == "wrong: body" {
		r.class = soak.Read
	}
	return r
}

// look is a read of what belongs to no client.
func (c *soakClient) look(service string) *soakRequest {
	all := []*soakRequest{
		read("services", "/api/v1/ddns/services", says(fmt.Sprintf("%q", service))),
		read("service", servicesPath+service, says(fmt.Sprintf("%q", c.w.facts["service "+service]))),
		read("config", configPath, is(200)),
		read("report", syncPath, is(200)),
		read("leftovers", leftoversPath, is(200)),
		read("providers", "/api/v1/ddns/providers", says(`"rfc2136"`)),
		read("state", "/api/v1/ddns/state", says(fmt.Sprintf("%q", service))),
		read("contract", "/api/v1/ddns/openapi.json", says(`"openapi"`)),
		read("healthz", "/healthz", is(200)),
		read("metrics", "/metrics", says("meshddns_usages ")),
		read("list, of a state", listPath+"?state=published&limit=5", is(200)),
		read("list, of a network", fmt.Sprintf("%s?network_id=%d", listPath, c.network()), says(`"data":[`)),
	}
	return all[c.w.chance.IntN(len(all))]
}

// operate is what one person does for all.
func (c *soakClient) operate() *soakRequest {
	switch n := c.w.chance.IntN(200); {
	case c.w.facts["configuration"] == "" || n < 4:
		interval := strconv.Itoa(c.w.made%3 + 1)
		return &soakRequest{
			kind: "configure", method: "PUT", path: configPath, class: soak.Write, change: change{"configuration", interval}, expect: is(200),
			body: fmt.Sprintf(`{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com","txt_record_name":"@",`+
				`"enabled":true,"sync_mode":"auto","retry_interval":%s,"txt_endpoints":[%q]}`, interval, soakEndpoint),
		}
	case n < 5:
		owner := fmt.Sprintf("%012x", c.w.made)
		return &soakRequest{kind: "adopt", method: "POST", path: "/api/v1/ddns/adopt", body: fmt.Sprintf(`{"owner":%q}`, owner), class: soak.Write, change: change{"adopted " + owner, "yes"}, expect: is(200)}
	case n < 15:
		query := []string{"", "?dry_run=1", "?sweep=1"}[c.w.chance.IntN(3)]
		return &soakRequest{kind: "sync" + query, method: "POST", path: syncPath + query, class: soak.Slow, expect: is(200)}
	case n < 25:
		key := []string{
			`"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com"`,
			fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q`, servertest.Key, servertest.Secret, c.s.knot.addr, badZone),
		}[c.w.chance.IntN(2)]
		return &soakRequest{kind: "test", method: "POST", path: testPath, body: fmt.Sprintf(`{%s,"txt_record_name":"soak","write_test":%t}`, key, n%2 == 0), class: soak.Slow,
			expect: func(a answer) bool { return a.status == 200 && !strings.Contains(a.body, `"ok":false`) }}
	case n < 80:
		return read("list, all", listPath, is(200))
	default:
		return read("list, first page", listPath+"?limit=100", is(200))
	}
}

const soakEndpoint = "tcp://203.0.113.7:1"
