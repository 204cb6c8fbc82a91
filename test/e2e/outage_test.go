package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// outage is what becomes of a provider, and what must be seen of it.
type outage struct {
	name  string
	codes string // of which one is said, a pattern; "" where everything goes on
	held  bool   // calls stay open meanwhile
	hour  bool   // the provider asks for patience, and has an hour of it: a restart asks at once
	tls   bool   // there is no such thing without TLS
	bound bool   // POST /test is waited for while the fault lasts
	some  bool   // some vendors' clients go on, and others say what is wrong
	many  bool   // zones are down and well again more than once
	only  string // providers, a pattern
	env   string // more of the program's environment
}

const unreached = `^(network|temporary)$`

var outages = []outage{
	{name: "timeout", codes: unreached, held: true, bound: true},
	{name: blackHole, codes: unreached, bound: true},
	{name: "reset", codes: unreached},
	{name: "30 % loss", many: true},
	{name: "drip", codes: unreached, held: true, bound: true},
	{name: "truncated", codes: `^(network|temporary|bad_answer)$`},
	{name: "HTML", codes: `^(network|temporary|bad_answer)$`},
	{name: "1 GB", codes: `^(network|temporary|bad_answer)$`},
	{name: "gzip bomb", codes: `^bad_answer$`, tls: true},
	{name: "wrong name", codes: unreached, tls: true},
	{name: "expired", codes: unreached, tls: true},
	{name: "self-signed", codes: unreached, tls: true},
	{name: "plaintext", codes: unreached, tls: true},
	{name: "mute TLS", codes: unreached, tls: true, held: true, bound: true},
	{name: "redirect loop", codes: `^bad_answer$`, tls: true},
	{name: "5xx", codes: unreached, tls: true},
	{name: "429", codes: `^throttled$`, tls: true},
	{name: "429 2", codes: `^throttled$`, tls: true},
	{name: "429 date", codes: `^throttled$`, tls: true},
	{name: "429 0", codes: `^throttled$`, tls: true},
	{name: "429 -5", codes: `^throttled$`, tls: true},
	{name: "429 99999999999999999999", codes: `^throttled$`, tls: true},
	{name: "429 2147483647", codes: `^throttled$`, tls: true, hour: true},
	{name: "429 Fri, 31 Dec 9999 23:59:59 GMT", codes: `^throttled$`, tls: true, hour: true},
	{name: "wrong Date", tls: true},
	{name: clockSkew, codes: `^clock_skew$`, tls: true, only: `alidns|tencentcloud|huaweicloud|volcengine|baiducloud|route53|jdcloud`},
	{name: manyRecords, only: `alidns|powerdns|webhook|rfc2136`},
	{name: "stuck page", tls: true, many: true, some: true, only: `alidns|tencentcloud|huaweicloud|volcengine|baiducloud|route53|cloudflare|jdcloud`},
	{name: "total too high", tls: true, many: true, some: true},
	{name: partialPages, tls: true, many: true, some: true, only: `alidns|tencentcloud|huaweicloud|volcengine|cloudflare|jdcloud|dnspod`},
	{name: "one connection", many: true},
	{name: wrongID, codes: `^(network|temporary|bad_answer)$`, only: `rfc2136`},
	{name: wrongTSIG, codes: `^bad_answer$`, only: `rfc2136`},
	{name: endlessZone, only: `rfc2136`},
	{name: slowDNS, tls: true},
}

const (
	clockSkew = "the clock of the provider"
	slowDNS   = "slow DNS"
	// partialPages lack a record that their list counts.
	partialPages = "partial pages"
	// manyRecords are in the zone that a list is asked for: how many, largeZones says.
	manyRecords = "many records"
	// allOutages is the variable that has every fault meet every provider.
	allOutages = "MESHDDNS_PROVIDER_FAULTS"
)

// few are the faults of the short form, which differ most, by provider; a page of HTML
// meets all of them.
var few = map[string][]string{
	"alidns":   {"timeout", "30 % loss", "1 GB", "gzip bomb", "wrong name", "429 2", clockSkew, manyRecords, "stuck page", partialPages, "one connection"},
	"route53":  {blackHole, "truncated", "redirect loop", "429 Fri, 31 Dec 9999 23:59:59 GMT", "mute TLS", "wrong Date"},
	"webhook":  {"drip", manyRecords, "reset", "plaintext", "429", slowDNS},
	"rfc2136":  {"timeout", blackHole, "reset", "30 % loss", "truncated", "1 GB", "one connection", wrongID, wrongTSIG, endlessZone, manyRecords},
	"powerdns": {manyRecords},
}

// TestProviderFaults has every fault of the network and of a provider meet a zone
// beside a healthy one.
func TestProviderFaults(t *testing.T) {
	if buildFlag == "-race" {
		t.Skip("the memory that is bounded here is not the race detector's; what runs at a time is raced by the histories")
	}
	t.Parallel()
	names := append(cloudtest.Names(), "rfc2136")
	short := os.Getenv(allOutages) == "" && zoneRecords(t) < largeZone
	for _, name := range names {
		for _, o := range outages {
			switch {
			case o.only != "" && !regexp.MustCompile(`^(`+o.only+`)$`).MatchString(name), o.tls && name == "rfc2136":
				continue
			case short && (o.name == endlessZone || o.name == manyRecords): // they take a minute
				continue
			case os.Getenv(allOutages) != "all" && (o.name != "HTML" || name == "rfc2136") && !slices.Contains(few[name], o.name):
				continue
			}
			t.Run(name+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				h := newOutageHouse(t, name, o)
				if err := h.run(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// door is the way to the provider that has faults.
type door interface {
	open() map[int64]bool
	times() int64 // that a fault was made
}

// outageHouse is a program with a zone at a provider that is to have a fault, one at
// a healthy bridge, and one of its own.
type outageHouse struct {
	t        *testing.T
	outage   outage
	p        *program
	db       string
	words    []string // that run the program
	trusted  string   // the file of the certificate that the program trusts
	provider string
	door     door
	set      func(fault string)
	service  string          // the config of the faulty zone's service
	all      func() []string // every TXT record of the zone that has the fault
	healthy  *cloudtest.Cloud
	patience time.Duration // until all is well again
	hopeless string        // what a plant keeps from coming true
	names    int           // that stand before the fault
	foreign  []string      // what others have in the zone
	plain    time.Duration // the longest answer of those that ask no provider
	peak     int64         // KiB
	ids      map[string]string
	before   resources
	resolver *resolver // its own, where DNS is slow
}

const (
	badZone  = cloudtest.Zone
	goodZone = "notexample.com"
	listPath = usagesPath + "/available"

	changedEndpoint = "tcp://203.0.113.9:2"
)

func newOutageHouse(t *testing.T, name string, o outage) *outageHouse {
	t.Helper()
	h := &outageHouse{t: t, outage: o, provider: name, patience: limit, names: 18, ids: map[string]string{}}
	folder := t.TempDir()
	key, secret, endpoint := h.provide(folder, name)
	h.healthy = cloudtest.Webhook(t)
	h.db = filepath.Join(folder, "meshddns.db")
	h.words = h.program(folder)
	if o.name == "gzip bomb" {
		bomb() // it takes its time to make
	}
	if o.name == manyRecords || o.name == endlessZone { // a list that is at hand already is not asked for
		h.set(o.name)
		h.patience = 5 * time.Minute // each list takes seconds, on a busy machine half a minute
	}
	if o.bound { // calls that take their whole time come one after the other
		h.patience = 2 * time.Minute
	}
	if o.many { // a client waits twice for 20 s until the provider shows what it has taken; lost calls take luck
		h.patience = 2 * time.Minute
	}
	h.start()
	h.service = fmt.Sprintf(`"provider":%q,"access_key_id":%q,"access_key_secret":%q,"endpoint":%q`, name, key, secret, endpoint)
	return h
}

// start runs the program.
func (h *outageHouse) start() {
	h.p = startWith(h.t, append(strings.Fields(h.outage.env), "SSL_CERT_FILE="+h.trusted), h.words, "-db", h.db, "-sync-interval", "1s", "-dns-host", "ns.example.net", "-ipv4", "none", "-ipv6", "none")
	h.p.client.Timeout = support.Slowest * 70 * time.Second
}

// provide starts the provider, with a gate before it.
func (h *outageHouse) provide(folder, name string) (key, secret, endpoint string) {
	if name == "rfc2136" {
		s := servertest.Knot(h.t)
		g := newDNSGate(h.t, s.Addr)
		h.door, h.set, h.all = g, g.set, func() []string { return transfer(h.t, s) }
		h.patience = 2 * time.Minute // a page of HTML begins with the length of a long message
		s.Add(h.t, "_mesh.n0."+badZone, []string{"beside ours"})
		return servertest.Key, servertest.Secret, g.addr
	}
	if name == "porkbun" { // which wants a second between two calls
		h.names, h.patience = 1, 2*time.Minute
	}
	c := cloudtest.Start(h.t, name)
	h.trusted = filepath.Join(folder, "authority.pem")
	a := newAuthority(h.t, h.trusted)
	g := newGate(h.t, strings.TrimPrefix(c.URL, "http://"), a.certificates(h.t))
	h.door, h.set, h.all = g, g.set, func() []string { return c.All(badZone) }
	if h.outage.name == clockSkew {
		h.set = func(fault string) {
			c.SetClock(map[bool]time.Duration{true: time.Hour}[fault != ""])
		}
	}
	c.Add(h.t, "_mesh.n0."+badZone, []string{"beside ours"})
	c.Add(h.t, "www."+badZone, []string{"foreign"})
	host, port, _ := net.SplitHostPort(g.addr)
	if h.outage.name == slowDNS {
		host = slowName
		h.resolver = newSlowResolver(h.t)
		h.set = h.resolver.set
	}
	return c.AccessKeyID, c.AccessKeySecret, "https://" + net.JoinHostPort(host, port)
}

// program gives the words that run the program, with the test's resolver where there is one.
func (h *outageHouse) program(folder string) []string {
	words := []string{quickBinary(h.t)}
	if h.resolver == nil {
		return words
	}
	path := filepath.Join(folder, "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver "+h.resolver.host+"\noptions timeout:30 attempts:1\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return append([]string{"unshare", "-m"}, after("mount --bind "+path+" /etc/resolv.conf", words...)...)
}

// transfer gives all TXT records of the server's zone.
func transfer(t *testing.T, s servertest.Server) (records []string) {
	host, port, _ := net.SplitHostPort(s.Addr)
	out, err := exec.Command("dig", "@"+host, "-p", port, "+noall", "+answer", "-y", "hmac-sha256:"+servertest.Key+":"+servertest.Secret, badZone, "AXFR").Output()
	if err != nil {
		t.Errorf("the zone at %s: %v", s.Addr, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[3] != "TXT" {
			continue
		}
		value := strings.TrimSpace(line)[strings.Index(strings.TrimSpace(line), `"`):]
		records = append(records, strings.TrimSuffix(f[0], ".")+" "+strings.Trim(value, `"`))
	}
	slices.Sort(records)
	return records
}

// run is one fault from before its beginning to after its end.
func (h *outageHouse) run() error {
	for _, step := range []func() error{h.begin, h.during, h.after} {
		if err := step(); err != nil {
			return err
		}
	}
	h.t.Logf("%s, %s: the slowest answer without a provider took %v, peak of memory %d MiB", h.provider, h.outage.name, h.plain.Round(time.Millisecond), h.peak>>10)
	return nil
}

// ask makes a request that must have one of some statuses.
func (h *outageHouse) ask(method, path, body string, statuses ...int) (answer, error) {
	began := time.Now()
	a, err := h.p.ask(method, path, body, "Accept-Language", "en")
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if !slices.Contains(statuses, a.status) {
		return a, fmt.Errorf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if path != syncPath || method == "GET" {
		h.plain = max(h.plain, time.Since(began))
	}
	return a, nil
}

// wait waits for a condition.
func (h *outageHouse) wait(what string, holds func() bool) error {
	patience := h.patience
	if what == h.hopeless {
		patience = plantPatience
	}
	if !support.Within(patience, holds) {
		return fmt.Errorf("not within %v: %s", patience, what)
	}
	return nil
}

func (h *outageHouse) reserve(service, prefix string, network int) error {
	a, err := h.ask("POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, service, prefix, network), 200)
	if service == "bad" {
		h.ids[prefix] = a.field("id")
	}
	return err
}

// begin has names stand in both zones.
func (h *outageHouse) begin() error {
	h.foreign = h.all()
	h.p.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"own.example","txt_record_name":"@",
		"enabled":true,"sync_mode":"auto","retry_interval":1,"max_retries":1,"txt_endpoints":["tcp://203.0.113.7:1"]}`)
	h.p.call(200, "PUT", "/api/v1/ddns/services/good", fmt.Sprintf(`{"name":"Good","config":{"domain":%q,"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q}}`,
		goodZone, h.healthy.AccessKeyID, h.healthy.AccessKeySecret, h.healthy.URL))
	h.p.call(200, "PUT", "/api/v1/ddns/services/bad", fmt.Sprintf(`{"name":"Bad","config":{"domain":%q,%s}}`, badZone, h.service))
	for n := range h.names {
		if err := h.reserve("bad", fmt.Sprintf("n%d", n), n); err != nil {
			return err
		}
	}
	for _, prefix := range []string{"changed", "released"} {
		if err := h.reserve("bad", prefix, 100); err != nil {
			return err
		}
	}
	if err := h.reserve("good", "first", 200); err != nil {
		return err
	}
	err := h.wait("everything is published", func() bool { return h.states()["published"] == h.names+4 })
	if err != nil {
		return fmt.Errorf("before the fault: %w", err)
	}
	if err := h.whole("before the fault"); err != nil {
		return err
	}
	h.before = resourcesOf(h.p.cmd.Process.Pid)
	return nil
}

var stateFigure = regexp.MustCompile(`(?m)^meshddns_records\{state="(\w+)"\} (\d+)$`)

// states counts places by state, as /metrics tells them.
func (h *outageHouse) states() map[string]int {
	a, err := h.ask("GET", "/metrics", "", 200)
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, m := range stateFigure.FindAllStringSubmatch(a.body, -1) {
		counts[m[1]], _ = strconv.Atoi(m[2])
	}
	return counts
}

// publication is what a usage says of its value.
type publication struct{ State, Value, Error string }

func (h *outageHouse) published(id string) (publication, error) {
	var u struct{ Data struct{ Publish publication } }
	a, err := h.ask("GET", usagesPath+"/"+id, "", 200)
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &u)
	}
	return u.Data.Publish, err
}

// whole compares the zone, record by record, with what was acknowledged.
func (h *outageHouse) whole(when string) error {
	want := slices.Clone(h.foreign)
	a, err := h.ask("GET", listPath+"?service_id=bad", "", 200)
	if err != nil {
		return err
	}
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list.Data) != len(h.ids) {
		return fmt.Errorf("%s %d prefixes are listed, and %d were acknowledged: %v", when, len(list.Data), len(h.ids), err)
	}
	for prefix, id := range h.ids {
		p, err := h.published(id)
		if err != nil || p.State != "published" {
			return fmt.Errorf("%s %s is %s: %w", when, prefix, p.State, errors.Join(err, errors.New(p.Error)))
		}
		if prefix == "changed" && h.ids["new"] != "" && !strings.HasSuffix(p.Value, changedEndpoint) {
			return fmt.Errorf("%s %s has %q, and another endpoint was acknowledged", when, prefix, p.Value)
		}
		want = append(want, "_mesh."+prefix+"."+badZone+" "+p.Value)
	}
	slices.Sort(want)
	if got := h.all(); !slices.Equal(got, want) {
		return fmt.Errorf("%s the whole zone has\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// late are the requests that ask the provider, and are answered when they are.
type late struct {
	wait sync.WaitGroup
	mu   sync.Mutex
	errs []error
	test string
}

// begin makes a request that must be answered in its time.
func (l *late) begin(h *outageHouse, method, path, body string, bound time.Duration, statuses ...int) {
	l.wait.Go(func() {
		began := time.Now()
		a, err := h.p.try(method, path, body, "Accept-Language", "en")
		took := time.Since(began)
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case err != nil:
			l.errs = append(l.errs, fmt.Errorf("%s %s: %w", method, path, err))
		case !slices.Contains(statuses, a.status):
			l.errs = append(l.errs, fmt.Errorf("%s %s: %d %s", method, path, a.status, a.body))
		case took > bound && took > support.Paced(bound):
			l.errs = append(l.errs, fmt.Errorf("%s %s took %v, want %v at most", method, path, took, bound))
		}
		if path == testPath && !strings.Contains(body, "write_test") {
			l.test = a.body
		}
	})
}

const (
	testPath = "/api/v1/ddns/test"
	grace    = 3 * time.Second // of a busy machine, on top of a bound
)

// during is the fault, and all that must go on beside it.
func (h *outageHouse) during() error {
	h.set(h.outage.name)
	ended := false
	end := func() {
		if !ended {
			h.set("")
		}
		ended = true
	}
	defer end()
	calls := &late{}
	defer calls.wait.Wait()
	if err := h.reserve("bad", "new", 101); err != nil {
		return err
	}
	if _, err := h.ask("PATCH", usagesPath+"/"+h.ids["changed"], `{"txt_endpoints":["`+changedEndpoint+`"]}`, 200); err != nil {
		return err
	}
	calls.begin(h, "DELETE", usagesPath+"/"+h.ids["released"], "", 30*time.Second+grace, 200, 202)
	delete(h.ids, "released")
	calls.begin(h, "POST", syncPath, "", 60*time.Second+grace, 200, 500)
	trial := fmt.Sprintf(`%s,"domain":%q,"txt_record_name":"@"`, h.service, badZone)
	var tested sync.WaitGroup
	tested.Go(func() {
		one := &late{}
		one.begin(h, "POST", testPath, "{"+trial+"}", 30*time.Second+grace, 200)
		one.wait.Wait()
		calls.mu.Lock()
		defer calls.mu.Unlock()
		calls.errs, calls.test = append(calls.errs, one.errs...), one.test
	})
	defer tested.Wait()
	calls.begin(h, "POST", testPath, "{"+trial+`,"write_test":true}`, 60*time.Second+grace, 200)
	if err := h.beside(); err != nil {
		return err
	}
	if err := h.says(); err != nil {
		return err
	}
	if h.outage.bound {
		tested.Wait()
	}
	if err := h.meets("{" + trial + "}"); err != nil {
		return err
	}
	end()
	tested.Wait()
	calls.wait.Wait()
	if h.outage.bound && !strings.Contains(calls.test, `"ok":false`) {
		return fmt.Errorf("the test of the connection says %s", calls.test)
	}
	return errors.Join(calls.errs...)
}

// meets waits until the fault has met a call, and makes calls until it has, two at a time.
func (h *outageHouse) meets(trial string) error {
	if h.resolver != nil || h.outage.name == clockSkew { // which count nothing
		return nil
	}
	if h.outage.some && h.door.times() == 0 {
		h.t.Logf("%s has no call that %s meets", h.provider, h.outage.name)
		return nil
	}
	return h.wait("the fault has met a call", func() bool {
		if h.door.times() > 0 {
			return true
		}
		calls := &late{}
		for range 2 {
			calls.begin(h, "POST", testPath, trial, 30*time.Second+grace, 200)
		}
		calls.wait.Wait()
		return h.door.times() > 0
	})
}

// beside has a name of the healthy zone published, and every other endpoint answer,
// while calls of the faulty zone are open.
func (h *outageHouse) beside() error {
	if h.outage.held {
		if err := h.wait("a call is kept open", func() bool { return len(h.door.open()) > 0 }); err != nil {
			return err
		}
	}
	for try := range 3 { // the calls have a bound of their own, and may end on a busy machine
		open := h.door.open()
		prefix := fmt.Sprintf("beside-%d", try)
		if err := h.publishBeside(prefix, 300+try); err != nil {
			return err
		}
		for _, path := range []string{"/healthz", "/metrics", configPath, syncPath, listPath, "/api/v1/ddns/services", "/api/v1/ddns/state",
			"/api/v1/ddns/leftovers", "/api/v1/ddns/providers", "/api/v1/ddns/check-prefix?service_id=bad&prefix=new", usagesPath + "/" + h.ids["new"]} {
			if _, err := h.ask("GET", path, "", 200); err != nil {
				return err
			}
		}
		still := 0
		for number := range h.door.open() {
			if open[number] {
				still++
			}
		}
		if !h.outage.held || still > 0 {
			return nil
		}
	}
	return errors.New("no call of the faulty zone is open still, when the healthy name is published")
}

// publishBeside reserves a name in the healthy zone, and waits until it stands.
func (h *outageHouse) publishBeside(prefix string, network int) error {
	if err := h.reserve("good", prefix, network); err != nil {
		return err
	}
	return h.wait("the name of the healthy zone stands", func() bool { return len(h.healthy.Values(h.t, "_mesh."+prefix+"."+goodZone)) == 1 })
}

// says waits until every place where an operator may look tells what is wrong.
func (h *outageHouse) says() error {
	codes := regexp.MustCompile(h.outage.codes)
	if h.outage.codes == "" {
		return h.goesOn()
	}
	var p publication
	err := h.wait("the usage says what is wrong", func() (says bool) {
		var err error
		p, err = h.published(h.ids["new"])
		return err == nil && (p.State == "failed" || p.State == "pending") && p.Error != ""
	})
	if err != nil {
		return fmt.Errorf("%w: %v", err, p)
	}
	err = h.wait("/metrics counts it", func() bool {
		s := h.states()
		return s["failed"]+s["pending"] > 0
	})
	if err != nil {
		return err
	}
	var said [][]string
	err = h.wait("the log says it", func() bool {
		said = troubles.FindAllStringSubmatch(h.p.log.String(), -1)
		said = slices.DeleteFunc(said, func(line []string) bool { return line[1] == "shared_name" }) // of the foreign value
		return len(said) > 0
	})
	if err != nil {
		return err
	}
	for _, line := range said {
		if !codes.MatchString(line[1]) {
			return fmt.Errorf("the log says %q, want code %s", line[0], h.outage.codes)
		}
	}
	if h.outage.bound { // the report waits for the zone
		return nil
	}
	return h.wait("the report counts it", func() bool {
		a, err := h.ask("GET", syncPath, "", 200)
		return err == nil && strings.Contains(a.body, `"action":"failed"`) && strings.Contains(a.body, `"ok":false`)
	})
}

// troubles are the lines of the log that say what is wrong with a zone or its names.
var troubles = regexp.MustCompile(`(?m)^.*level=WARN msg=(?:"zone is down"|records?) .*\bcode=(\w+).*$`)

// goesOn waits until each name has been published although the fault lasts: where calls are lost at
// random, some names fail for a while whenever they are looked at.
func (h *outageHouse) goesOn() error {
	published := map[string]bool{}
	err := h.wait("what is new is published in spite of the fault", func() bool {
		if s := h.states(); h.outage.some && s["failed"]+s["pending"] > 0 && troubles.MatchString(h.p.log.String()) {
			return true
		}
		for prefix, id := range h.ids {
			p, err := h.published(id)
			if err == nil && p.State == "published" && (prefix != "changed" || strings.HasSuffix(p.Value, changedEndpoint)) {
				published[prefix] = true
			}
		}
		return len(published) == len(h.ids)
	})
	if err != nil {
		a, _ := h.ask("GET", syncPath, "", 200)
		return fmt.Errorf("%w: %v, %s", err, h.states(), a.body)
	}
	return nil
}

// after waits until all is as it was acknowledged, without a request where that is
// promised.
func (h *outageHouse) after() error {
	if h.outage.hour {
		h.p.stop()
		h.start()
	}
	var err error
	waited := h.wait("all is as wanted again", func() bool {
		s := h.states()
		bad := s["failed"] + s["pending"] + s["conflict"] + s["withdrawing"] + s["withdrawn"] + s["leftover"]
		if bad > 0 {
			err = fmt.Errorf("places: %v", s)
			return false
		}
		err = h.whole("after the fault")
		return err == nil
	})
	if waited != nil {
		return errors.Join(waited, err)
	}
	if _, err := h.ask("POST", syncPath, "", 200); err != nil {
		return err
	}
	if err := h.told(); err != nil {
		return err
	}
	return h.leaves()
}

// told counts the lines of the log: the zone goes down once, and is well again once.
func (h *outageHouse) told() error {
	text := h.p.log.String()
	down, well := strings.Count(text, `msg="zone is down"`), strings.Count(text, `msg="zone is well again"`)
	if down != well || down > 1 && !h.outage.many {
		return fmt.Errorf("the log says %d times that a zone is down, and %d times that it is well again", down, well)
	}
	for _, prefix := range []string{"new", "changed"} {
		lines := regexp.MustCompile(`level=WARN msg=record name=_mesh.`+prefix+`\.`).FindAllString(text, -1)
		if len(lines) > 2 && !h.outage.many {
			return fmt.Errorf("the log says %d times that %s fails", len(lines), prefix)
		}
	}
	if strings.Contains(text, "panic") {
		return errors.New("the program has panicked")
	}
	return nil
}

// resources are what a process holds.
type resources struct {
	files          int
	resident, peak int64 // KiB
}

func resourcesOf(pid int) (r resources) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	r.files = len(entries)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch n, _ := strconv.ParseInt(f[1], 10, 64); f[0] {
		case "VmRSS:":
			r.resident = n
		case "VmHWM:":
			r.peak = n
		}
	}
	return r
}

const (
	// spareFiles are the connections that are kept for the next call: four to each of
	// the two providers, and those of the test itself to the program.
	spareFiles = 12
	// spareHeap is what the collector keeps of eight answers of four megabytes that
	// were read at a time, in KiB.
	spareHeap = 32 << 10
	// appliance is the memory of the smallest machine, in KiB: whatever a provider
	// answers, the program never holds more.
	appliance = 64 << 10
	// spareRoutines are those of a program at rest, with its connections.
	spareRoutines = 80
)

// leaves looks that nothing is left over but what the program began with.
func (h *outageHouse) leaves() error {
	h.p.client.CloseIdleConnections()
	pid := h.p.cmd.Process.Pid
	var now resources
	err := h.wait("descriptors and memory are as before", func() bool {
		now = resourcesOf(pid)
		h.peak = now.peak
		return now.peak > appliance || now.files <= h.before.files+spareFiles && now.resident <= h.before.resident+spareHeap
	})
	if err != nil {
		return fmt.Errorf("%w: %+v, before %+v", err, now, h.before)
	}
	if now.peak > appliance {
		return fmt.Errorf("the program took %d KiB at most, before %d", now.peak, h.before.peak)
	}
	return h.quit()
}

// quit switches the synchronisation off, counts the goroutines that are left, and
// looks at the database.
func (h *outageHouse) quit() error {
	h.p.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"own.example","txt_record_name":"@","enabled":false}`)
	h.p.client.CloseIdleConnections()
	n := h.p.goroutines()
	text := h.p.log.String()
	if n == 0 || n > spareRoutines {
		return fmt.Errorf("%d goroutines are left", n)
	}
	if found := regexp.MustCompile(`goroutine \d+ \[[^]]*\b\d+ minutes[^]]*\]:\n(?:.+\n)*?.*meshddns/provider`).FindString(text); found != "" {
		return fmt.Errorf("a call is left: %s", found)
	}
	mustBeSound(h.t, openDatabase(h.t, h.db))
	return nil
}
