package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/answers"
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
	"meshddns/internal/web"
	"meshddns/test/promises"
)

// TestPublishing runs the tests of what stands in DNS with the program's own operations.
func TestPublishing(t *testing.T) {
	t.Parallel()
	suite.Publishing(t)
}

var suite = promises.Suite{
	Open: openDriven, NoConfiguration: errNoConfiguration, NoService: errNoService, NoUsage: errNoUsage, PrefixTaken: errPrefixTaken,
}

// driven is what the suite drives.
type driven struct {
	*server
	last   mesh.Addresses    // that were known when the database was opened
	commit func(wake func()) // is called after each commit
}

func openDriven(ctx context.Context, path string, addresses func() reconcile.Addresses, log *slog.Logger) (promises.Program, error) {
	db, owner, last, err := openDatabase(ctx, path, log)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db, owner, "", addresses, log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	o := operations{store: s, clients: clients{ledger: s.ledger, zones: s.zones, hidden: never}}
	return &driven{newServer(o, "", log), last, func(wake func()) { wake() }}, nil
}

func (p *driven) Database() promises.Database {
	s := p.ops.store
	return promises.Database{Path: s.path(), Owner: s.owner, Addresses: p.last, Reader: s.db.Reader, Writer: s.db.Writer, Ledger: s.ledger, Zones: s.zones, Subscribe: s.db.Subscribe}
}

func (p *driven) NewEngine(book *hostaddr.Book, interval time.Duration, change func(*reconcile.Config)) *reconcile.Engine {
	c := testEngine(p.ops.store, p.ops.clients, book, interval, p.log)
	change(&c)
	p.ops.engine = reconcile.New(c)
	wake := p.ops.engine.Wake
	p.ops.store.db.Subscribe(func(sqlite.Notice) { p.commit(wake) })
	return p.ops.engine
}

func (p *driven) Serve(address string) { p.ops.clients.dnsAddress = address }

func (p *driven) Reach(named bool, book *hostaddr.Book) {
	c := nameserver.Config{Addresses: []string{"x"}}
	if named {
		c.Hosts = []dns.Name{dns.Root}
	}
	p.ops.clients.hidden = hidden(c, book, p.log)
}

func (p *driven) Clock(now func() time.Time)       { p.ops.store.now = now }
func (p *driven) IDs(newID func() (string, error)) { p.ops.store.newID = newID }
func (p *driven) Settle()                          { settle(p.ops.store) }
func (p *driven) Close() error                     { return p.ops.store.Close() }

func (p *driven) LookThrough(ctx context.Context) { p.ops.store.db.Verify(ctx) }

func (p *driven) OnCommit(f func(wake func())) { p.commit = f }

// suiteConfiguration is a configuration as the suite has it.
func suiteConfiguration(c mesh.Configuration) promises.Configuration {
	number := func(n sql.Null[int64]) *int64 {
		if !n.Valid {
			return nil
		}
		return &n.V
	}
	return promises.Configuration{
		Provider: c.Provider, AccessKeyID: c.AccessKeyID, Secret: c.Secret, Endpoint: c.Endpoint, Domain: c.Domain, TXTRecordName: c.TXTRecordName,
		SyncMode: string(c.SyncMode), RetryInterval: number(c.RetryInterval), MaxRetries: number(c.MaxRetries), Enabled: c.Enabled, Endpoints: c.Endpoints,
	}
}

// storedConfiguration is a configuration of the suite as the program has it.
func storedConfiguration(c promises.Configuration) mesh.Configuration {
	return configurationBody{
		Provider: c.Provider, AccessKeyID: c.AccessKeyID, AccessKeySecret: c.Secret, Endpoint: c.Endpoint, Domain: c.Domain, TXTRecordName: c.TXTRecordName,
		SyncMode: c.SyncMode, RetryInterval: c.RetryInterval, MaxRetries: c.MaxRetries, Enabled: c.Enabled, TXTEndpoints: c.Endpoints,
	}.configuration()
}

func (p *driven) Configuration(ctx context.Context) (promises.Configuration, error) {
	c, err := p.ops.store.Configuration(ctx)
	return suiteConfiguration(c), err
}

func (p *driven) Configure(ctx context.Context, c promises.Configuration) error {
	return p.ops.store.PutConfiguration(ctx, storedConfiguration(c), false)
}

func (p *driven) Forget(ctx context.Context) (gone bool, err error) {
	return p.ops.forgetConfiguration(ctx, web.Until(time.Now().Add(releaseTime)))
}

func (p *driven) PutService(ctx context.Context, id, config string) error {
	return p.ops.store.PutService(ctx, mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: id, Name: "service"}, Config: secrets.Secret(config)})
}

func (p *driven) DeleteService(ctx context.Context, id string) error {
	return p.ops.store.DeleteService(ctx, id)
}

// suiteUsage is a usage as the suite has it.
func suiteUsage(u mesh.Usage) promises.Usage {
	return promises.Usage{
		Seq: u.Seq, ID: u.ID, ServiceID: u.ServiceID, Prefix: u.Prefix, Network: uint64(u.Network.V), Name: u.Name, Status: string(u.Status),
		State: reconcile.PlaceState(u.Publish.State), Value: u.Publish.Value, Fault: reconcile.Fault(u.Publish.Fault),
	}
}

func (p *driven) Reserve(ctx context.Context, u promises.Usage) (promises.Usage, error) {
	network := mesh.NetworkID(u.Network)
	reserved := mesh.Usage{ServiceID: u.ServiceID, Mode: mesh.CustomMode, Prefix: u.Prefix, Network: sqlite.Given(&network)}
	if u.Prefix == mesh.AutomaticPrefix(network) {
		reserved.Mode = mesh.AutomaticMode
	}
	reserved, err := p.ops.store.CreateUsage(ctx, reserved)
	return suiteUsage(reserved), err
}

func (p *driven) Usage(ctx context.Context, id string) (promises.Usage, error) {
	u, err := p.ops.store.Usage(ctx, id)
	return suiteUsage(u), err
}

func (p *driven) Usages(ctx context.Context, state reconcile.PlaceState) (all []promises.Usage, err error) {
	stored, err := p.ops.store.Usages(ctx, usageFilter{state: state}, 1000)
	for _, u := range stored {
		all = append(all, suiteUsage(u))
	}
	return all, err
}

func (p *driven) Publish(ctx context.Context, id string, endpoints []string) error {
	return p.ops.store.ChangeUsage(ctx, id, mesh.UsageChange{Endpoints: endpoints})
}

func (p *driven) Format(ctx context.Context, id string, formats []string) error {
	return p.ops.store.ChangeUsage(ctx, id, mesh.UsageChange{Options: mesh.OptionsChange{Formats: formats}})
}

func (p *driven) Keep(ctx context.Context, id string) error {
	return p.ops.store.KeepUsage(ctx, id)
}

func (p *driven) Release(ctx context.Context, id string) (freed bool, err error) {
	return p.ops.releaseAndWait(ctx, id, false, web.Until(time.Now().Add(releaseTime)))
}

func (p *driven) Free(ctx context.Context, id string, force bool) (freed bool, err error) {
	r, err := p.ops.store.ReleaseUsage(ctx, id, force)
	return r.freed, err
}

func (p *driven) Totals(ctx context.Context) (map[string]uint64, error) {
	return p.ops.store.ledger.Totals(ctx)
}

func (p *driven) SaveAddresses(ctx context.Context, a mesh.Addresses) error {
	return p.ops.store.SaveAddresses(ctx, a)
}

func (p *driven) Backup(ctx context.Context) (*os.File, error) { return p.ops.store.db.Backup(ctx) }

func (p *driven) Client(a reconcile.Account) (provider.DNS, error) { return p.ops.clients.open(a) }

func (p *driven) Test(ctx context.Context, c promises.Configuration, write bool) []answers.TestItem {
	return p.ops.clients.test(ctx, p.public, storedConfiguration(c), write)
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
		if cells := strings.Split(line, " | "); len(cells) == 8 && strings.HasPrefix(line, "| `") {
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
		if p.name != "webhook" && !strings.Contains(cells[6], strconv.Itoa(int(p.minTTL))) {
			t.Errorf("%s: least TTL %q on the page, %d in the program", p.name, cells[6], p.minTTL)
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
