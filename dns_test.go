package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/promises"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestPublishing runs the tests of what stands in DNS with the program's own operations.
func TestPublishing(t *testing.T) {
	t.Parallel()
	suite.Publishing(t)
}

var suite = promises.Suite{Open: openProgram}

// openProgram makes a program without sockets on a database.
func openProgram(ctx context.Context, path string, o promises.Options) (*promises.Program, error) {
	db, owner, last, err := openDatabase(ctx, path, schema, o.Log)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db, owner, mesh.Program{}, o.Addresses, o.Log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.now = o.Now
	server := newServer(operations{store: s, clients: clients{ledger: s.ledger, zones: s.zones, hidden: never}}, "", o.Log)
	ops := &server.ops
	return &promises.Program{
		Routes: server.routes(), Path: s.path(), Owner: s.ledger.Owner(), Addresses: last,
		Reader: s.db.Reader, Writer: s.db.Writer, Ledger: s.ledger, Zones: s.zones, Subscribe: s.db.Subscribe,
		NewEngine: func(book *hostaddr.Book, interval time.Duration, change func(*reconcile.Config)) *reconcile.Engine {
			c := testEngine(s, ops.clients, book, interval, o.Log)
			c.Open = func(a reconcile.Account) (provider.DNS, error) { return ops.clients.open(a) }
			change(&c)
			engine := reconcile.New(c)
			ops.engine = engine
			s.db.Subscribe(func(sqlite.Notice) { o.Committed(engine.Wake) })
			return engine
		},
		Serve: func(address string) { ops.clients.dnsAddress = address },
		Reach: func(named bool, book *hostaddr.Book) {
			c := nameserver.Config{Addresses: []string{"x"}}
			if named {
				c.Hosts = []dns.Name{dns.Root}
			}
			ops.clients.hidden = builtin.Hidden(c, book.Reachable, o.Log)
		},
		IDs:  func(newID func() (string, error)) { s.newID = newID },
		Keep: s.KeepUsage, SaveAddresses: s.SaveAddresses, Settle: func() { settle(s) }, Close: s.Close,
	}, nil
}

// TestProvidersAreWhole has words and a client for each provider in the list.
func TestProvidersAreWhole(t *testing.T) {
	for _, p := range providers {
		endpoint := "https://192.0.2.1"
		if p.name == "rfc2136" {
			endpoint = "192.0.2.1"
		}
		if _, err := (clients{hidden: never}).open(reconcile.NewAccount(p.name, endpoint, "key", "c2VjcmV0")); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		for _, language := range []msg.Language{msg.Chinese, msg.English} {
			if in := msg.ProviderIn(language, p.name); in.Title == "" || in.AccessKeyID == "" || in.AccessKeySecret == "" || in.Endpoint == "" {
				t.Errorf("%s: %+v", p.name, in)
			}
		}
	}
}

func TestDNSServiceConfig(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                         `{"" "" "" "" "" []}`,
		`{"domain":"a.example"}`:                     `{"a.example" "" "" "" "" []}`,
		`{"Domain":"a.example","DOMAIN":"b"}`:        `{"" "" "" "" "" []}`,
		`{"domain":7,"provider":["x"]}`:              `{"" "" "" "" "" []}`,
		`{"domain":null,"txt_endpoints":null}`:       `{"" "" "" "" "" []}`,
		`{"txt_endpoints":"tcp://a:1"}`:              `{"" "" "" "" "" []}`,
		`{"txt_endpoints":["tcp://a:1",1]}`:          `{"" "" "" "" "" []}`,
		`{"txt_endpoints":["tcp://a:1","ws://b:2"]}`: `{"" "" "" "" "" ["tcp://a:1" "ws://b:2"]}`,
		`{"domain":"d","provider":"p","access_key_id":"i","access_key_secret":"s","endpoint":"e","x":1}`: `{"d" "p" "i" "s" "e" []}`,
	} {
		if c, err := mesh.ParseServiceConfig(secrets.Secret(text)); err != nil || dnsConfigText(c) != want {
			t.Errorf("%s: %s, %v; want %s", text, dnsConfigText(c), err, want)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `"text"`, `7`, `{`, `{"domain":}`} {
		if c, err := mesh.ParseServiceConfig(secrets.Secret(text)); err == nil {
			t.Errorf("%q: %s, want an error", text, dnsConfigText(c))
		}
	}
}

func dnsConfigText(c mesh.ServiceConfig) string {
	return fmt.Sprintf(`{%q %q %q %q %q %q}`, c.Domain, c.Provider, c.AccessKeyID, string(c.Secret), c.Endpoint, c.Endpoints)
}

// The table in docs/providers.md says of each provider what its client does.
func TestProvidersPage(t *testing.T) {
	page, err := os.ReadFile("docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, members := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			members[strings.Trim(cells[0], "| `")] = strings.Contains(cells[2], "](")
		}
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| `") {
			rows[strings.Trim(cells[0], "| `")] = cells
		}
	}
	for _, p := range providers {
		cells := rows[p.name]
		if cells == nil {
			t.Errorf("%s has no row", p.name)
			continue
		}
		if !members[p.name] {
			t.Errorf("%s has no row of what its records may have, with the vendor's page", p.name)
		}
		endpoint := map[string]string{"rfc2136": "192.0.2.1:53", "powerdns": "http://192.0.2.1:8081", "webhook": "https://192.0.2.1/"}[p.name]
		client, err := (clients{hidden: never}).open(reconcile.NewAccount(p.name, endpoint, "key", "c2VjcmV0"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		source := sourceOfProvider(t, p.name)
		if lists := yesNo(listing.MatchString(source)); p.name != "webhook" && cells[1] != lists {
			t.Errorf("%s: lists zones %q on the page, %q in the program", p.name, cells[1], lists)
		}
		if batches := batchesOf(client, source); !strings.HasPrefix(cells[2]+" ", batches+" ") {
			t.Errorf("%s: writes in batches %q on the page, %q in the program", p.name, cells[2], batches)
		}
		if p.name != "webhook" && !strings.Contains(cells[3], strconv.Itoa(int(p.minTTL))) {
			t.Errorf("%s: least TTL %q on the page, %d in the program", p.name, cells[3], p.minTTL)
		}
		if _, ok := client.(provider.ZoneReader); !ok && p.name != "builtin" {
			t.Errorf("%s lists no zone", p.name)
		}
	}
}

// listing is the function of a client that lists all zones, or searches them.
var listing = regexp.MustCompile(`\) (zones|search)\(ctx context\.Context`)

// sourceOfProvider returns the source of the provider's client, without tests.
func sourceOfProvider(t *testing.T, name string) string {
	t.Helper()
	folder := "internal/provider/"
	if name == msg.Builtin {
		folder = "internal/builtin/"
	}
	files, err := filepath.Glob(folder + name + "*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: files %q, %v", name, files, err)
	}
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}

// batchLimit is the constant that limits what one call of a vendor changes.
var batchLimit = regexp.MustCompile(`\b\w+(?:Batch|Elements) += (\d+)`)

// batchesOf returns "no", or "yes: " and the most that one call changes.
func batchesOf(client provider.DNS, source string) string {
	many, ok := client.(provider.BatchChanger)
	if _, shared := client.(*provider.Client); !ok || shared && !strings.Contains(source, "inBatches(") {
		return "no"
	}
	size := many.BatchSize()
	if limit := batchLimit.FindStringSubmatch(source); limit != nil {
		if n, err := strconv.Atoi(limit[1]); err == nil {
			size = min(size, n)
		}
	}
	return fmt.Sprintf("yes: %d", size)
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// TestCures: an error at the start says what to do.
func TestCures(t *testing.T) {
	taken := httptest.NewServer(nil)
	defer taken.Close()
	for address, cure := range map[string]string{taken.Listener.Addr().String(): "stop the other program there", "192.0.2.1:53": "choose an address that this host has"} {
		var out bytes.Buffer
		process{stderr: &out}.print(run(t.Context(), process{args: []string{"-db", t.TempDir() + "/db", "-listen", "127.0.0.1:0", "-dns-listen", address}, stderr: io.Discard}))
		if !strings.Contains(out.String(), cure) {
			t.Errorf("%s: %s", address, &out)
		}
	}
	var out bytes.Buffer
	process{stderr: &out}.print(fmt.Errorf("listen tcp4 192.0.2.1:53: bind: %w", syscall.EACCES)) // root may bind any port
	if !strings.Contains(out.String(), "CAP_NET_BIND_SERVICE") {
		t.Error(&out)
	}
}

// -check tells what the program would warn of, and every mistake of an entry; with -check=strict a warning is a mistake. It
// tells what a start refuses when it binds, too.
func TestCheckWarnings(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "a.json")
	const warned = `{"configuration": {"provider": "cloudflar", "access_key_id": "x ", "access_key_secret": "********", "domain": "example.com", "txt_record_name": "@",
  "sync_mode": "autom", "max_retries": -1, "txt_endpoints": ["tcp://{wan3.ipv4}:1", "tcp://{wan2.ipv4}:1", "tcp://{ipv4}:1"]},
"services": [
  {"id": "a", "name": "A", "config": {"domain": "a.example.com", "txt_endpoint": []}},
  {"id": "b", "name": "B", "config": {"domain": "a.example.com", "provider": "rfc2136", "access_key_id": "k", "access_key_secret": {"credential": "key"}, "endpoint": "192.0.2.1:53"}},
  {"id": "c", "name": "C", "config": {"domain": "other.example", "provider": "nobody's"}},
  {"id": "d", "name": "D", "config": {"domain": "elsewhere.example"}},
  {"id": "e", "name": "E", "config": {}}]}`
	const mistaken = `{"configuration": {"provider": "", "access_key_id": "", "domain": "", "txt_record_name": "", "txt_endpoints": ["x"], "sync_mode": "autom"},
"services": [{"id": "/", "name": "", "config": {"domain": "a..b", "formats": ["x"], "check": {"kind": "x"}, "txt_endpoints": ["y"]}}],
"usages": [{"custom_prefix": "a.b", "prefix_mode": "custom", "peer_id": "x", "formats": ["x"]},
  {"service_id": "a", "prefix_mode": "auto", "network_id": 1, "leases": [{"slot": "A", "ttl": 1, "token": "short"}]}],
"notifications": [{"id": "/", "kind": "x", "url": "y", "secret": "z", "events": ["?"], "language": "de"}],
"secondaries": [{"id": "/", "address": "a", "key_name": "b", "key_algorithm": "x", "from": [""], "zones": [""]}]}`
	for _, test := range []struct {
		name, document, args string
		want                 []string // what begins the lines
		mistakes             string
	}{
		{"warnings", warned, "-addr wan2=192.0.2.1", []string{
			`warning: a.json:1: configuration: provider "cloudflar" is not in the list`,
			`warning: a.json:1: configuration: sync_mode "autom"`, `warning: a.json:1: configuration: max_retries`, `warning: a.json:1: configuration: nothing is written by itself`, `warning: a.json:1: configuration: there is no source of addresses named "wan3"`,
			`warning: a.json:4: services[0]: member "txt_endpoint" is unknown`,
			`warning: a.json:5: services[1]: the domain a.example.com`,
			`warning: a.json:6: services[2]: provider "nobody's" is not in the list`,
			`warning: a.json:7: services[3]: nothing is published`,
			`warning: a.json:8: services[4]: config has no domain`,
			`ok, but for 1 credentials`}, ""},
		{"strict", `{"configuration": {"provider": "cloudflare", "access_key_id": "token", "access_key_secret": "s", "domain": "example.com", "txt_record_name": "@", "enabled": true, "sync_mode": "auto"}}`, "-check=strict",
			[]string{`warning: a.json:1: configuration: there are no txt_endpoints`}, "-check=strict: warnings: 1"},
		{"strict, and fine", `{"configuration": {"provider": "cloudflare", "access_key_id": "token", "access_key_secret": "s", "domain": "example.com", "txt_record_name": "@", "enabled": true, "sync_mode": "auto", "txt_endpoints": ["tcp://{ipv4}:1"]}}`, "-check=strict",
			[]string{"ok"}, ""},
		{"mistakes", mistaken, "", []string{
			"a.json:1: configuration.provider:", "a.json:1: configuration.access_key_secret:", "a.json:1: configuration.domain:", "a.json:1: configuration.txt_record_name:", "a.json:1: configuration.txt_endpoints:",
			"a.json:2: services[0].id:", "a.json:2: services[0].name:", "a.json:2: services[0].config.domain:", "a.json:2: services[0].config.check:", "a.json:2: services[0].config.formats:", "a.json:2: services[0].config.txt_endpoints:",
			"a.json:3: usages[0].service_id:", "a.json:3: usages[0].network_id:", "a.json:3: usages[0].custom_prefix:", "a.json:3: usages[0].peer_id:", "a.json:3: usages[0].formats:",
			"a.json:4: usages[1].leases[0].slot:", "a.json:4: usages[1].leases[0].ttl:", "a.json:4: usages[1].leases[0].token:",
			"a.json:5: notifications[0].id:", "a.json:5: notifications[0].kind:", "a.json:5: notifications[0].url:", "a.json:5: notifications[0].secret:", "a.json:5: notifications[0].events:", "a.json:5: notifications[0].language:",
			"a.json:6: secondaries[0].id:", "a.json:6: secondaries[0].address:", "a.json:6: secondaries[0].key_algorithm:", "a.json:6: secondaries[0].key_name:", "a.json:6: secondaries[0].from:", "a.json:6: secondaries[0].zones:"}, "-check: mistakes: 31"},
		{"addresses and a group", `{}`, "-listen unix:/run/x,127.0.0.1:8053 -socket-group no-such-group -node-listen 127.0.0.1:8053,127.0.0.1:0 -dns-listen 127.0.0.1:0,127.0.0.1:8053", []string{
			`-socket-group "no-such-group": want the name or number of a group`, `-listen, -dns-listen, -node-listen: "127.0.0.1:8053" is given twice`, `-listen, -dns-listen, -node-listen: "127.0.0.1:8053" is given twice`}, "-check: mistakes: 3"},
		{"the preset", `{}`, "-node-listen 127.0.0.1:8053 -token-file /nonexistent", []string{`-token-file: token file: open /nonexistent`, `-listen, -dns-listen, -node-listen: "127.0.0.1:8053" is given twice`}, "-check: mistakes: 2"},
		{"no listener", `{}`, "-trusted-proxy 10.0.0.0/8 -dns-nsid x -listen unix:/run/x -allow-host a", []string{`warning: -dns-nsid: has no effect`, `warning: -allow-host: has no effect`, `warning: -trusted-proxy: has no effect`, "ok"}, ""},
	} {
		support.WriteFile(t, file, test.document)
		var out, log bytes.Buffer
		args := append([]string{"-check", "-db", filepath.Join(dir, "x.db"), "-provision", file}, strings.Fields(test.args)...)
		err := run(t.Context(), process{args: args, stdout: &out, stderr: &log})
		lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(out.String(), filepath.Dir(file)+"/", ""), "\n"), "\n")
		same := slices.EqualFunc(lines, test.want, strings.HasPrefix) && log.Len() == 0
		if !same || (err != nil) != (test.mistakes != "") || err != nil && err.Error() != test.mistakes {
			t.Errorf("%s: %v, log %q\n%s\nwant\n%s", test.name, err, log.String(), strings.Join(lines, "\n"), strings.Join(test.want, "\n"))
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestHiddenZones: that no resolver finds the built-in zones is told while there is one.
func TestHiddenZones(t *testing.T) {
	a := newAppliance(t)
	a.ops.engine = reconcile.New(reconcile.Config{Addresses: func() reconcile.Addresses { return reconcile.Addresses{Hidden: true} }})
	hidden := func(want bool) {
		t.Helper()
		if got, err := a.ops.shown().Hidden(t.Context()); err != nil || got != want {
			t.Errorf("%t, %v, want %t", got, err, want)
		}
	}
	hidden(false)
	a.Must(t, "PUT", "/api/v1/ddns/services/a", `{"name":"a","config":{"domain":"a.example","provider":"builtin"}}`)
	hidden(true)
	a.Must(t, "DELETE", "/api/v1/ddns/services/a", "")
	hidden(false)
}

// TestCAA: the test of a connection, and the answer with a lease for certificates, warn of CAA records that refuse every authority.
func TestCAA(t *testing.T) {
	t.Parallel()
	s, a := servertest.Knot(t), newAppliance(t)
	var asked, fails atomic.Int32
	server := servertest.Relay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		m, err := dns.ParseMessage(query)
		if err != nil || len(m.Questions) != 1 || m.Questions[0].Type != dns.TypeCAA {
			return forward()
		}
		if fails.Load() > 0 {
			return servertest.ServFail(query, forward)
		}
		id := fmt.Sprintf("s%d", asked.Add(1))
		response, answer, err := a.Exchange("PUT", "/api/v1/ddns/services/"+id, nil, strings.NewReader(`{"name":"written during the look","config":{"domain":"`+id+`.example","provider":"builtin"}}`))
		if err != nil || response.StatusCode != 200 {
			t.Error(err, answer)
		}
		return forward()
	})
	english := http.Header{"Accept-Language": {"en"}}
	account := fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":"example.com"`, servertest.Key, servertest.Secret, server)
	own := `"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"own.example"`
	test := func(what, account, want string) {
		t.Helper()
		_, answer := a.Do(t, "POST", "/api/v1/ddns/test", english, `{`+account+`,"txt_record_name":"_txt"}`)
		if zone := regexp.MustCompile(`\{"name":"zone","ok":true,"skipped":false,"code":"(\w+)","message":"([^"]*)"`).FindStringSubmatch(answer); len(zone) == 0 || zone[1]+" "+zone[2] != want {
			t.Errorf("%s: %s, want %s", what, answer, want)
		}
	}
	lease := func(what, usage, body, key, want string) (lastKey string) {
		t.Helper()
		headers, before := maps.Clone(english), asked.Load()
		post := func() (*http.Response, string) {
			if key != "" {
				headers["Idempotency-Key"] = []string{key}
			}
			return a.Do(t, "POST", "/api/v1/ddns/usages/"+usage+"/leases?replace=1", headers, body)
		}
		response, answer := post()
		for try := 1; want != "" && try < 9 && !strings.Contains(answer, `"warnings"`); try++ { // a busy machine takes longer than the look
			if key != "" {
				key += "k"
			}
			response, answer = post()
		}
		var made struct{ Data struct{ Warnings []string } }
		if err := json.Unmarshal([]byte(answer), &made); err != nil || response.StatusCode != 200 || strings.Join(made.Data.Warnings, "; ") != want {
			t.Errorf("%s: %v, %d %s, want %q", what, err, response.StatusCode, answer, want)
		}
		if silent := !strings.HasPrefix(what, "asks"); silent && asked.Load() != before {
			t.Errorf("%s: the zone's server was asked", what)
		}
		return key
	}
	test("no CAA records", account, "ok ok")
	s.AddRecord(t, "example.com", "CAA", `0 issue ";"`)
	test("a refusal", account, "caa_refuses CAA records let no authority issue certificates: example.com")
	before := asked.Load()
	a.Must(t, "PUT", "/api/v1/ddns/config", `{`+own+`,"txt_record_name":"_txt","enabled":true}`)
	test("builtin", own, "ok ok")
	if asked.Load() != before {
		t.Error("a server was asked for a built-in zone")
	}
	usage := func(service, account, prefix string) (id string) {
		t.Helper()
		a.Must(t, "PUT", "/api/v1/ddns/services/"+service, `{"name":"x","config":{`+account+`}}`)
		answer := a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"`+service+`","prefix_mode":"custom","custom_prefix":"`+prefix+`","network_id":42}`)
		return regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(answer)[1]
	}
	office, home := usage("other", account, "office"), usage("mine", own, "home")
	const refused, acme = "CAA records let no authority issue a certificate for office.example.com", `{"slot":"a","ttl":60,"acme":true}`
	lease("asks for a certificate", office, acme, "", refused)
	key := lease("asks once more", office, `{"slot":"b","ttl":60,"acme":true}`, "k", refused)
	lease("the same again", office, `{"slot":"b","ttl":60,"acme":true}`, key, "")
	lease("without certificates", office, `{"slot":"c","ttl":60}`, "", "")
	lease("builtin", home, acme, "", "")
	fails.Store(1)
	lease("asks, and the server fails", office, acme, "", "")
	test("a server that fails", account, "ok ok")
	fails.Store(0)
	s.AddRecord(t, "office.example.com", "CAA", `0 issue "ca.example.net"`)
	lease("asks, and a closer record permits", office, acme, "", "")
	a.Must(t, "PUT", "/api/v1/ddns/services/other", `{"name":"x","config":{`+strings.Replace(account, server, support.FreeAddress(t), 1)+`}}`)
	lease("no server", office, acme, "", "")
}
