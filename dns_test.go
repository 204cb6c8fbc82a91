package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
)

// TestPublishing runs the tests of what stands in DNS with the program's own operations.
func TestPublishing(t *testing.T) {
	t.Parallel()
	suite.Publishing(t)
}

var suite = promises.Suite{Open: openProgram}

// openProgram makes a program without sockets on a database.
func openProgram(ctx context.Context, path string, o promises.Options) (*promises.Program, error) {
	db, owner, last, err := openDatabase(ctx, path, o.Log)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db, owner, "", o.Addresses, o.Log)
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
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
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
	if name == builtin.Name {
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
