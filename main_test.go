package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/servertest"
)

// The names and the value that most tests here are about.
const (
	dnsHost     = "_mesh-host.example.com"   // the configuration's record
	dnsOffice   = "_mesh.office.example.com" // the record of the prefix "office"
	dnsEndpoint = "tcp://203.0.113.7:11010"  // the configuration's endpoint, as published
	dnsPatience = 30 * time.Second           // bounds every wait
	dnsStranger = "v=mesh1 n=7 o=ffffffffffff tcp://192.0.2.1:1"
)

// syncHost is an appliance: its database, its reconciler and its log. Its clock
// may be put forward.
type syncHost struct {
	t         testing.TB
	store     *store
	clients   clients
	engine    *reconcile.Engine
	vendors   map[string]*dnsVendor // stand-ins for providers, by name
	addresses atomic.Pointer[reconcile.Addresses]
	owner     string
	log       *dnsLog
	ahead     atomic.Int64
	rounds    atomic.Int64         // of the engine
	listed    func(names []string) // called, if it is there, when the engine has listed names
	stop      func()               // ends the engine, nil while it does not run
}

// dnsBuiltinServer is the built-in server without its sockets.
var dnsBuiltinServer = servertest.Server{Name: builtin.Name, Addr: "127.0.0.1:53"}

var dnsAddresses = mesh.Addresses{IPv4: netip.MustParseAddr("203.0.113.7")}

// newSyncHost makes an appliance that is configured to publish at a server.
func newSyncHost(t testing.TB, s servertest.Server) *syncHost {
	t.Helper()
	h := openSyncHost(t, filepath.Join(t.TempDir(), "meshddns.db"), s)
	h.configure(dnsConfiguration(s))
	return h
}

func openSyncHost(t testing.TB, path string, s servertest.Server) *syncHost {
	t.Helper()
	h := &syncHost{t: t, log: &dnsLog{}, vendors: map[string]*dnsVendor{}}
	var err error
	if h.store, err = openStore(context.Background(), path, h.logger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.store.Close() })
	h.owner = h.store.owner
	h.store.now = func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
	h.clients = clients{ledger: h.store.ledger, zones: h.store.zones}
	if s.Name == builtin.Name {
		h.clients.dnsAddress = s.Addr
	}
	h.knows(dnsAddresses, dnsAddresses)
	h.renew()
	return h
}

func (h *syncHost) logger() *slog.Logger { return slog.New(slog.NewTextHandler(h.log, nil)) }

// renew makes the engine, as a program that begins does.
func (h *syncHost) renew() {
	book := hostaddr.NewBook(hostaddr.Source{}, hostaddr.Source{}, mesh.Addresses{}, h.store.SaveAddresses, h.logger())
	c := engineConfig(h.store, h.clients, book, 5*time.Minute, h.logger())
	ready := make(chan struct{})
	close(ready)
	c.Ready = ready
	c.Database = dnsRounds{Database: c.Database, count: &h.rounds, listed: h.listed}
	c.Addresses = func() reconcile.Addresses { return *h.addresses.Load() }
	c.Open = func(a reconcile.Account) (provider.DNS, error) {
		if v := h.vendors[a.Provider]; v != nil {
			return v.open(a), nil
		}
		return h.clients.open(a)
	}
	h.engine = h.store.newEngine(c)
}

// dnsRounds counts how often an engine looks for work.
type dnsRounds struct {
	reconcile.Database
	count  *atomic.Int64
	listed func(names []string) // called, if it is there, when names were listed
}

func (r dnsRounds) NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error) {
	names, err := r.Database.NamesAfter(ctx, cursor, pass, limit)
	if r.listed != nil {
		r.listed(names)
	}
	return names, err
}

func (r dnsRounds) Due(ctx context.Context, lane reconcile.Lane, by time.Time, limit int) ([]string, error) {
	names, err := r.Database.Due(ctx, lane, by, limit)
	if r.listed != nil {
		r.listed(names)
	}
	return names, err
}

func (r dnsRounds) Settings(ctx context.Context) (reconcile.Settings, error) {
	r.count.Add(1)
	return r.Database.Settings(ctx)
}

// knows sets this host's last known addresses, and those that are known now.
func (h *syncHost) knows(last, now mesh.Addresses) {
	h.addresses.Store(&reconcile.Addresses{Last: last, Now: now})
}

// start runs the engine, if it does not run.
func (h *syncHost) start() {
	if h.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	engine := h.engine
	go func() {
		defer close(ended)
		if err := engine.Run(ctx); err != nil {
			h.t.Error(err)
		}
	}()
	h.stop = sync.OnceFunc(func() { cancel(); dnsWait(h.t, ended) })
	h.t.Cleanup(h.stop)
}

// restart ends the engine and runs a new one, as a program that is stopped and
// started does.
func (h *syncHost) restart() {
	h.stop()
	h.stop = nil
	h.renew()
	h.start()
}

// loop runs the engine in a bubble and waits until it is idle.
func (h *syncHost) loop() {
	h.start()
	synctest.Wait()
}

// later puts the clock forward.
func (h *syncHost) later(d time.Duration) {
	h.ahead.Add(int64(d))
	h.engine.Wake()
}

// dnsPass lets time pass in a bubble, and what is due then happen.
func dnsPass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// dnsLookAgain is time enough for a second look.
const dnsLookAgain = reconcile.SecondLook + time.Second

// syncServing makes an appliance whose own DNS server answers.
func syncServing(t testing.TB) *syncHost {
	t.Helper()
	h := newSyncHost(t, servertest.Server{Name: builtin.Name})
	own := func() []netip.Addr { return []netip.Addr{dnsAddresses.IPv4} }
	cache := builtin.NewCache(h.store.zones, h.logger())
	h.store.zones.Changed = cache.Changed
	server, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, builtin.Zones{Store: h.store.zones, Own: own, Cache: cache}, h.logger())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for _, task := range []func(context.Context) error{server.Serve, cache.Run} {
		serving.Go(func() {
			if err := task(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); serving.Wait() })
	h.clients.dnsAddress = server.Addr()
	return h
}

// syncEverywhere runs a test with the built-in server and with each real one.
func syncEverywhere(t *testing.T, test func(t *testing.T, h *syncHost, s servertest.Server)) {
	t.Run(builtin.Name, func(t *testing.T) {
		h := syncServing(t)
		test(t, h, servertest.Server{Name: builtin.Name, Addr: h.clients.dnsAddress})
	})
	servertest.Each(t, func(t *testing.T, s servertest.Server) { test(t, newSyncHost(t, s), s) })
}

// dnsConfiguration publishes at a server, when told to, and does not retry.
func dnsConfiguration(s servertest.Server) configuration {
	c := configuration{
		Provider: "rfc2136", AccessKeyID: servertest.Key, Secret: servertest.Secret, Endpoint: s.Addr,
		Domain: servertest.Zone, TXTRecordName: "_mesh-host", SyncMode: modeManual, MaxRetries: dnsNumber(0), Enabled: true,
		Endpoints: sqlite.TextList{"tcp://{ipv4}:11010"},
	}
	if s.Name == builtin.Name || s.Name == "" {
		c.Provider, c.Endpoint = builtin.Name, ""
	}
	return c
}

func dnsNumber(n int64) sql.Null[int64] { return sql.Null[int64]{V: n, Valid: true} }

func (h *syncHost) configure(c configuration) {
	h.t.Helper()
	if err := h.store.PutConfiguration(context.Background(), c, false); err != nil {
		h.t.Fatal(err)
	}
}

func (h *syncHost) change(change func(c *configuration)) {
	h.t.Helper()
	c, err := h.store.Configuration(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	change(&c)
	h.configure(c)
}

// mode sets the mode of synchronisation.
func (h *syncHost) mode(mode string) {
	h.t.Helper()
	h.change(func(c *configuration) { c.SyncMode = mode })
}

// dnsConfig writes a service's config: its domain, and names and values in turn.
func dnsConfig(domain string, entries ...string) string {
	config := map[string]string{"domain": domain}
	for pair := range slices.Chunk(entries, 2) {
		config[pair[0]] = pair[1]
	}
	data, _ := json.Marshal(config) // texts only
	return string(data)
}

// dnsAccount are the entries of a config that publishes with a key of its own.
func dnsAccount(provider, endpoint, key, secret string) []string {
	return []string{"provider", provider, "endpoint", endpoint, "access_key_id", key, "access_key_secret", secret}
}

// service registers a service with further entries, names and values in turn.
func (h *syncHost) service(domain string, entries ...string) (id string) {
	h.t.Helper()
	return h.serviceOf(dnsConfig(domain, entries...))
}

func (h *syncHost) serviceOf(config string) (id string) {
	h.t.Helper()
	id, err := newUUID()
	if err == nil {
		err = h.store.CreateService(context.Background(), service{ID: id, Name: "service", Config: secrets.Secret(config)})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// reconfigure replaces a service's config.
func (h *syncHost) reconfigure(id, config string) {
	h.t.Helper()
	err := h.store.PutService(context.Background(), id, func(v service) (service, error) { v.Config = secrets.Secret(config); return v, nil })
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *syncHost) reserve(service, prefix string, network mesh.NetworkID) usage {
	h.t.Helper()
	u := usage{ServiceID: service, Mode: modeCustom, Prefix: prefix, Network: sql.Null[mesh.NetworkID]{V: network, Valid: true}}
	if prefix == automaticPrefix(network) {
		u.Mode = modeAutomatic
	}
	u, err := h.store.CreateUsage(context.Background(), u)
	if err != nil {
		h.t.Fatal(err)
	}
	return u
}

// publish sets what a usage publishes.
func (h *syncHost) publish(u usage, endpoints ...string) {
	h.t.Helper()
	if err := h.store.ChangeUsage(context.Background(), u.ID, endpoints, nil); err != nil {
		h.t.Fatal(err)
	}
}

// publishing is how far a usage's record is, as clients are told: its state, its
// value, and why it is not as it should be.
func (h *syncHost) publishing(u usage) string {
	h.t.Helper()
	u, err := h.store.Usage(context.Background(), u.ID)
	if err != nil {
		return err.Error()
	}
	p := u.Publish
	return dnsWords(string(p.State), p.Value, p.Fault.Code)
}

// isProbe reports whether a name is one at which the engine tries whether two keys
// reach one zone.
func isProbe(name string) bool { return strings.HasPrefix(name, "_mesh-test-") }

// dnsWords joins the words that are not empty.
func dnsWords(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// run synchronises.
func (h *syncHost) run() reconcile.Report {
	h.t.Helper()
	return h.runFor(dnsPatience, false)
}

// sweep synchronises, and withdraws the orphans.
func (h *syncHost) sweep() reconcile.Report {
	h.t.Helper()
	return h.runFor(dnsPatience, true)
}

func (h *syncHost) runFor(limit time.Duration, sweep bool) reconcile.Report {
	h.t.Helper()
	h.start()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := h.engine.Sync(ctx, sweep)
	if err != nil {
		h.t.Errorf("%v: %+v\n%s", err, r, h.log)
	}
	return r
}

// begin synchronises in the background.
func (h *syncHost) begin(ctx context.Context) <-chan reconcile.Report {
	h.start()
	result := make(chan reconcile.Report, 1)
	go func() {
		r, err := h.engine.Sync(ctx, false)
		if err != nil && ctx.Err() == nil {
			h.t.Error(err)
		}
		result <- r
	}()
	return result
}

// tryRelease releases a usage as a client's call does.
func (h *syncHost) tryRelease(ctx context.Context, u usage) (freed bool, err error) {
	h.start()
	ctx, cancel := context.WithTimeout(ctx, dnsPatience)
	defer cancel()
	return (&server{store: h.store, engine: h.engine}).release(ctx, u.ID, false)
}

func (h *syncHost) release(u usage, want bool) {
	h.t.Helper()
	if freed, err := h.tryRelease(context.Background(), u); freed != want || err != nil {
		h.t.Errorf("release of %s: freed %t, %v; want %t", u.Prefix, freed, err, want)
	}
}

// force frees a usage's prefix at once.
func (h *syncHost) force(u usage) {
	h.t.Helper()
	if r, err := h.store.ReleaseUsage(context.Background(), u.ID, true); err != nil || !r.freed {
		h.t.Errorf("release of %s by force: freed %t, %v", u.Prefix, r.freed, err)
	}
}

// until waits for a condition outside of bubbles.
func (h *syncHost) until(what string, holds func() bool) {
	h.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(dnsPatience); !holds(); <-ticker.C {
		if time.Now().After(limit) {
			h.t.Fatalf("in vain: %s\n%s", what, h.log)
		}
	}
}

// copied opens a copy of the database as it is now, as a new process does.
func (h *syncHost) copied(t testing.TB) *syncHost {
	t.Helper()
	return h.opened(t, h.backup(t))
}

// opened opens a file as a new process does that reaches the same providers.
func (h *syncHost) opened(t testing.TB, path string) *syncHost {
	t.Helper()
	c := openSyncHost(t, path, servertest.Server{Name: builtin.Name, Addr: h.clients.dnsAddress})
	c.vendors = h.vendors
	c.ahead.Store(h.ahead.Load())
	return c
}

// backup makes a copy of the live database.
func (h *syncHost) backup(t testing.TB) (path string) {
	t.Helper()
	from, err := h.store.db.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path = filepath.Join(t.TempDir(), "copy.db")
	to, err := os.Create(path)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// version gives a function whose value changes with each write by another.
func (h *syncHost) version() func() int {
	h.t.Helper()
	settle(h.store)
	db, err := sql.Open("sqlite3", dataSource(h.store.path, url.Values{}))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	return func() (version int) {
		if err := db.QueryRow(`PRAGMA data_version`).Scan(&version); err != nil {
			h.t.Fatal(err)
		}
		return version
	}
}

// exec changes the database as no function of the store does.
func (h *syncHost) exec(statement string) {
	h.t.Helper()
	if _, err := h.store.db.Writer.Exec(statement); err != nil {
		h.t.Fatal(err)
	}
}

// count is the number that a query gives.
func (h *syncHost) count(query string) (n int) {
	h.t.Helper()
	if err := h.store.db.Reader.QueryRow(query).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// rows are what the database has about names and places.
func (h *syncHost) rows() (all []string) {
	h.t.Helper()
	all, err := sqlite.Collect(context.Background(), h.store.db.Reader, sqlite.Text, `
		SELECT json_array(name, version, due, lane, pass) FROM names UNION ALL
		SELECT json_array(id, name, account, zone, state, standing, doubt, look_at, code, attempts, at, since) FROM places`)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// value is what the appliance publishes for a network.
func (h *syncHost) value(network string, endpoints ...string) string {
	return mesh.Value(network, h.owner, endpoints)
}

// text is the value as dig prints it.
func (h *syncHost) text(network string, endpoints ...string) string {
	return dnsQuoted(provider.TXT{h.value(network, endpoints...)})
}

const dnsForeignTTL = 120

// foreign adds a value as another program would.
func (h *syncHost) foreign(s servertest.Server, name string, v provider.TXT) {
	h.t.Helper()
	if s.Name != builtin.Name {
		s.Update(h.t, fmt.Sprintf("add %s %d TXT %s", name, dnsForeignTTL, dnsQuoted(v)))
		return
	}
	if _, err := h.store.db.Writer.Exec(`INSERT INTO zone_records (name, data, ttl) VALUES (?, ?, ?)`, dnsKey(name), dnswire.TXTData(v), dnsForeignTTL); err != nil {
		h.t.Fatal(err)
	}
	h.store.zones.Changed(context.Background(), []string{dnsKey(name)}, nil)
}

// dnsKey is a name as the built-in zones have it: folded, labels from the root.
func dnsKey(name string) string {
	labels := strings.Split(dnsname.Fold(name), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

func (h *syncHost) places(name string) (places []reconcile.Place) {
	h.t.Helper()
	state, err := h.store.ledger.State(context.Background(), []string{name})
	if err != nil {
		h.t.Fatal(err)
	}
	places = state.Names[0].Places
	slices.SortFunc(places, func(a, b reconcile.Place) int { return cmp.Compare(a.ID, b.ID) })
	return places
}

// wantPlaces compares the places of a name, the oldest first: the state, what
// stands there, what may stand there, and why it is not as it should be.
func (h *syncHost) wantPlaces(name string, want ...string) {
	h.t.Helper()
	var got []string
	for _, p := range h.places(name) {
		doubt := p.Doubt.String()
		if doubt != "" {
			doubt = "perhaps " + doubt
		}
		got = append(got, dnsWords(string(p.State), p.Standing, doubt, p.Fault.Code))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("%s has the places %q, want %q", name, got, want)
	}
}

// wantTaken compares how many usages have a prefix.
func (h *syncHost) wantTaken(prefix string, want int) {
	h.t.Helper()
	if got := h.taken(prefix); got != want {
		h.t.Errorf("%d usages have %s, want %d", got, prefix, want)
	}
}

func (h *syncHost) taken(prefix string) int {
	h.t.Helper()
	return h.count(`SELECT count(*) FROM usages WHERE record_prefix = '` + prefix + `' COLLATE NOCASE`)
}

// leftovers are the names of those that stand where nobody wants them.
func (h *syncHost) leftovers() (names []string) {
	h.t.Helper()
	all, err := h.store.ledger.Leftovers(context.Background(), 0, 100)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range all {
		names = append(names, p.Place.Name)
	}
	return names
}

// standing gives the values in the zones of the built-in server.
func (h *syncHost) standing(name string) (texts []string) {
	h.t.Helper()
	set, err := builtin.Client{Store: h.store.zones}.Read(context.Background(), "", name)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, v := range set.Values {
		texts = append(texts, dnsQuoted(v))
	}
	return texts
}

func (h *syncHost) wantStanding(name string, want ...string) {
	h.t.Helper()
	if got := h.standing(name); !slices.Equal(got, want) {
		h.t.Errorf("%s has %q, want %q", name, got, want)
	}
}

// dnsReportLines are a report's records (name, action, and code if any), and how
// many are unchanged.
func dnsReportLines(r reconcile.Report) (lines []string) {
	for _, o := range r.Records {
		code := o.Fault.Code
		if code == o.Action {
			code = ""
		}
		lines = append(lines, dnsWords(o.Name, o.Action, code))
	}
	if n := r.Counts[reconcile.ActionUnchanged]; n > 0 {
		lines = append(lines, fmt.Sprint(n, " unchanged"))
	}
	return lines
}

func wantReport(t testing.TB, r reconcile.Report, want ...string) {
	t.Helper()
	if got := dnsReportLines(r); !slices.Equal(got, want) {
		t.Errorf("report:\n%s\nwant\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), r)
	}
}

// wantTXT compares the values at a name of a server, as dig prints them.
func wantTXT(t testing.TB, s servertest.Server, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := s.TXT(t, name); !slices.Equal(got, want) {
		t.Errorf("%s of %s has %q, want %q", name, s.Name, got, want)
	}
}

// dnsVendor stands in for a provider that obeys the test: zones in memory, which
// keys reach, and calls that it may hold, fail, or answer with what is not true
// any more.
type dnsVendor struct {
	mu      sync.Mutex
	zones   map[string][]string // the zones that a key reaches; one of another id after a space
	values  map[[2]string][]provider.TXT
	history []string // of the changes that were made
	calls   []dnsCall
	before  func(ctx context.Context, c dnsCall) error // a failure is the call's
	stale   map[string]int                             // reads of a name that show nothing
	tokens  bool                                       // a key is its id, a colon and its secret
	noIDs   bool                                       // its zones have none
}

// dnsCall is a call of a provider.
type dnsCall struct {
	what, key, zone, name string
	change                provider.Change
}

// vendor registers a stand-in with a zone that the key "key" reaches.
func (h *syncHost) vendor(name string) *dnsVendor {
	v := &dnsVendor{
		zones: map[string][]string{"key": {servertest.Zone}}, values: map[[2]string][]provider.TXT{}, stale: map[string]int{},
		before: func(context.Context, dnsCall) error { return nil },
	}
	h.vendors[name] = v
	return v
}

// newVendorHost makes an appliance that publishes at a stand-in.
func newVendorHost(t testing.TB) (*syncHost, *dnsVendor) {
	t.Helper()
	h := openSyncHost(t, filepath.Join(t.TempDir(), "meshddns.db"), dnsBuiltinServer)
	v := h.vendor("vendor")
	h.configure(dnsVendorConfiguration("vendor"))
	return h, v
}

func dnsVendorConfiguration(name string) configuration {
	c := dnsConfiguration(servertest.Server{})
	c.Provider, c.AccessKeyID, c.Secret = name, "key", "secret"
	return c
}

// dnsVendorClient is the client of a key.
type dnsVendorClient struct {
	v   *dnsVendor
	key string
}

func (v *dnsVendor) open(a reconcile.Account) provider.DNS {
	if v.tokens {
		return dnsVendorClient{v, a.AccessKeyID + ":" + string(a.Secret)}
	}
	return dnsVendorClient{v, a.AccessKeyID}
}

func (c dnsVendorClient) call(ctx context.Context, call dnsCall) error {
	call.key = c.key
	c.v.mu.Lock()
	c.v.calls = append(c.v.calls, call)
	before := c.v.before
	c.v.mu.Unlock()
	return before(ctx, call)
}

// id tells a zone by, for the key.
func (c dnsVendorClient) id(zone string) string {
	for _, z := range c.v.zones[c.key] {
		if name, _, _ := strings.Cut(z, " "); name == zone {
			return z
		}
	}
	return ""
}

func (c dnsVendorClient) ZoneID(_ context.Context, zone string) (string, error) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	if c.v.noIDs {
		return "", nil
	}
	return c.id(zone), nil
}

func (c dnsVendorClient) Zone(ctx context.Context, name string) (zone string, err error) {
	if err := c.call(ctx, dnsCall{what: "zone", name: name}); err != nil {
		return "", err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	for _, z := range c.v.zones[c.key] {
		if z, _, _ := strings.Cut(z, " "); dnsname.Within(name, z) && len(z) > len(zone) {
			zone = z
		}
	}
	if zone == "" {
		return "", &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Say(name)}
	}
	return zone, nil
}

func (c dnsVendorClient) Read(ctx context.Context, zone, name string) (provider.RRset, error) {
	if err := c.call(ctx, dnsCall{what: "read", zone: zone, name: name}); err != nil {
		return provider.RRset{}, err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	id := c.id(zone)
	if id == "" {
		return provider.RRset{}, &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Say(zone)}
	}
	if c.v.stale[name]--; c.v.stale[name] >= 0 {
		return provider.RRset{}, nil
	}
	return dnsSet(c.v.values[[2]string{id, name}]), nil
}

// dnsSet is a set of values; the second of two equal ones is a copy.
func dnsSet(values []provider.TXT) (set provider.RRset) {
	set.TTL = 60
	for _, v := range values {
		if slices.ContainsFunc(set.Values, v.Equal) {
			set.Copies = append(set.Copies, v)
		} else {
			set.Values = append(set.Values, v)
		}
	}
	return set
}

// ReadAll lists a zone.
func (c dnsVendorClient) ReadAll(ctx context.Context, zone string, wanted provider.Wanted) (map[string]provider.RRset, error) {
	if err := c.call(ctx, dnsCall{what: "list", zone: zone}); err != nil {
		return nil, err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	all := map[string]provider.RRset{}
	for at, values := range c.v.values {
		is := func(v provider.TXT) bool { return wanted(at[1], v) }
		if at[0] == c.id(zone) && len(values) > 0 && (wanted(at[1], nil) || slices.ContainsFunc(values, is)) {
			all[at[1]] = dnsSet(values)
		}
	}
	return all, nil
}

func (c dnsVendorClient) Change(ctx context.Context, change provider.Change) error {
	if err := c.call(ctx, dnsCall{what: "change", zone: change.Zone, name: change.Name, change: change}); err != nil {
		return err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	return c.v.make(c.id(change.Zone), change)
}

// make makes a change in the zone with an id. The lock is held.
func (v *dnsVendor) make(id string, change provider.Change) error {
	if id == "" {
		return &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Say(change.Zone)}
	}
	at := [2]string{id, change.Name}
	values := slices.Clone(v.values[at])
	for _, value := range change.Copies {
		values = slices.DeleteFunc(values, value.Equal)
		values = append(values, value)
	}
	for _, value := range change.Add {
		if !slices.ContainsFunc(values, value.Equal) {
			values = append(values, value)
		}
		v.history = append(v.history, "+ "+id+" "+change.Name)
	}
	for _, value := range change.Remove {
		values = slices.DeleteFunc(values, value.Equal)
		v.history = append(v.history, "- "+id+" "+change.Name)
	}
	v.values[at] = values
	return nil
}

// Authority knows nobody to ask.
func (c dnsVendorClient) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{}, nil
}

// fails makes the calls fail from now on for which it gives a failure.
func (v *dnsVendor) fails(before func(ctx context.Context, c dnsCall) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = before
}

// works makes no call fail any more.
func (v *dnsVendor) works() { v.fails(func(context.Context, dnsCall) error { return nil }) }

// dnsFault is a failure of a kind for the calls of a kind, or for all.
func dnsFault(kind provider.Kind, calls ...string) func(context.Context, dnsCall) error {
	return func(_ context.Context, c dnsCall) error {
		if len(calls) > 0 && !slices.Contains(calls, c.what) {
			return nil
		}
		e := &provider.Error{Kind: kind, Detail: msg.Say(c.what)}
		e.Unmade = !e.Transient() // a refusal is certain
		return e
	}
}

// holds stops the calls of a kind for a name, until the channel is closed.
func (v *dnsVendor) holds(what, name string) (arrived <-chan struct{}, open func()) {
	came, opened := make(chan struct{}, 100), make(chan struct{})
	v.fails(func(_ context.Context, c dnsCall) error {
		if c.what == what && c.name == name {
			came <- struct{}{}
			<-opened
		}
		return nil
	})
	return came, sync.OnceFunc(func() { close(opened) })
}

// put lets a value appear that nobody here has written.
func (v *dnsVendor) put(zone, name string, value provider.TXT) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := [2]string{zone, name}
	v.values[at] = append(v.values[at], value)
}

// remove takes values of somebody else away.
func (v *dnsVendor) remove(zone, name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := [2]string{zone, name}
	v.values[at] = slices.DeleteFunc(v.values[at], func(stands provider.TXT) bool { return stands.Text() == value })
}

// at gives what stands at a name in a zone.
func (v *dnsVendor) at(zone, name string) (values []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, value := range v.values[[2]string{zone, name}] {
		values = append(values, value.Text())
	}
	return values
}

func (v *dnsVendor) want(t testing.TB, zone, name string, want ...string) {
	t.Helper()
	if got := v.at(zone, name); !slices.Equal(got, want) {
		t.Errorf("%s in %s has %q, want %q", name, zone, got, want)
	}
}

// called counts the calls of a kind.
func (v *dnsVendor) called(what string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.calls {
		if c.what == what {
			n++
		}
	}
	return n
}

// dnsQuoted writes a value as dig does.
func dnsQuoted(v provider.TXT) string {
	var quoted []string
	for _, s := range v {
		var text strings.Builder
		for _, octet := range []byte(s) {
			switch {
			case octet == '"' || octet == '\\':
				text.WriteString(`\` + string(rune(octet)))
			case octet < ' ' || octet > '~':
				fmt.Fprintf(&text, `\%03d`, octet)
			default:
				text.WriteByte(octet)
			}
		}
		quoted = append(quoted, `"`+text.String()+`"`)
	}
	return strings.Join(quoted, " ")
}

func dnsItemsText(items []answers.TestItem) string {
	var words []string
	for _, item := range items {
		word := item.Fault.Code
		switch {
		case item.Skipped:
			word = "skipped"
		case item.OK:
			word = "ok"
		}
		words = append(words, item.Name+":"+word)
	}
	return strings.Join(words, " ")
}

// dnsAsk asks a server one question.
func dnsAsk(t testing.TB, server, name string, kind dnswire.Type) dnswire.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dnsPatience)
	defer cancel()
	owner, err := dnswire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	query := dnswire.Message{ID: 7, Questions: []dnswire.Question{{Name: owner, Type: kind, Class: dnswire.ClassIN}}}
	data, err := dnswire.Exchange(ctx, server, query.Pack())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := dnswire.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// dnsAnswerText gives the type and TTL of an answer, or whose lack it is.
func dnsAnswerText(m dnswire.Message) string {
	switch {
	case len(m.Answers) > 0 && m.Answers[0].Type == dnswire.TypeNS:
		return fmt.Sprintf("NS %d %s", m.Answers[0].TTL, dnswire.Name(m.Answers[0].Data))
	case len(m.Answers) > 0:
		kinds := map[dnswire.Type]string{dnswire.TypeTXT: "TXT", dnswire.TypeSOA: "SOA", dnswire.TypeA: "A"}
		return fmt.Sprintf("%s %d", kinds[m.Answers[0].Type], m.Answers[0].TTL)
	case len(m.Authority) > 0 && m.Authority[0].Type == dnswire.TypeSOA:
		return "no data of " + m.Authority[0].Name.String()
	}
	return "nothing"
}

// dnsWait takes what comes from a channel, or fails the test.
func dnsWait[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(dnsPatience):
		t.Fatal("nothing came in time")
	}
	return v
}

// dnsUntil takes what comes from a channel until a time is over.
func dnsUntil[T any](from <-chan T, limit time.Duration) (v T) {
	select {
	case v = <-from:
	case <-time.After(limit):
	}
	return v
}

// dnsLog is a log that may be read while it is written.
type dnsLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *dnsLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *dnsLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// dnsHandler gives the answer to a message, nil for none; forward gives that
// of the server behind.
type dnsHandler func(query []byte, forward func() []byte) []byte

func dnsSilent([]byte, func() []byte) []byte { return nil }

func dnsGarbage(query []byte, _ func() []byte) []byte {
	return append(slices.Clone(query[:2]), strings.Repeat("garbage!", 8)...)
}

// dnsUnsigned drops the signature of an answer.
func dnsUnsigned(_ []byte, forward func() []byte) []byte {
	m, err := dnswire.Parse(forward())
	if err != nil {
		return nil
	}
	m.Additional = nil
	return m.Pack()
}

func dnsServFail(query []byte, _ func() []byte) []byte {
	m, err := dnswire.Parse(query)
	if err != nil {
		return nil
	}
	m = dnswire.Message{ID: m.ID, Response: true, Opcode: m.Opcode, Rcode: dnswire.RcodeServFail, Questions: m.Questions}
	return m.Pack()
}

func dnsIsUpdate(query []byte) bool {
	header, err := dnswire.ParseHeader(query)
	return err == nil && header.Opcode == dnswire.OpcodeUpdate
}

// dnsRelay stands before a server and gives its own address.
func dnsRelay(t testing.TB, server string, handle dnsHandler) (addr string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	t.Cleanup(func() { tcp.Close(); udp.Close(); working.Wait() })
	answer := func(query []byte) []byte {
		return handle(query, func() []byte {
			answer, _ := dnswire.ExchangeTCP(context.Background(), server, query)
			return answer
		})
	}
	working.Go(func() {
		for conn, err := tcp.Accept(); err == nil; conn, err = tcp.Accept() {
			working.Go(func() {
				defer conn.Close()
				if query, err := dnswire.ReadTCP(conn); err == nil {
					if answer := answer(query); answer != nil {
						dnswire.WriteTCP(conn, answer)
					}
				}
			})
		}
	})
	working.Go(func() {
		buffer := make([]byte, dnswire.MaxMessage)
		for n, from, err := udp.ReadFrom(buffer); err == nil; n, from, err = udp.ReadFrom(buffer) {
			query := slices.Clone(buffer[:n])
			working.Go(func() {
				if answer := answer(query); answer != nil {
					udp.WriteTo(answer, from)
				}
			})
		}
	})
	return tcp.Addr().String()
}

// dnsGate is a relay that stops updates on their way, before the server gets
// them or after it has made them, and may lose their answers.
type dnsGate struct {
	after, lose bool
	addr        string
	skip, stop  atomic.Int64  // updates to let pass first, and then to stop
	arrived     chan struct{} // gets one for each that is stopped
	passed      chan struct{} // gets one for each that was stopped and is through
	open        chan struct{} // closed to let them go
	last        atomic.Pointer[string]
}

func (g *dnsGate) server(t testing.TB, s servertest.Server) servertest.Server {
	g.arrived, g.passed, g.open = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	g.addr = dnsRelay(t, s.Addr, g.handle)
	return servertest.Server{Name: s.Name, Addr: g.addr}
}

// shut stops the next updates.
func (g *dnsGate) shut(count int64) { g.stop.Store(count) }

// name is that of the update that was stopped.
func (g *dnsGate) name() string { return *g.last.Load() }

func (g *dnsGate) handle(query []byte, forward func() []byte) (answer []byte) {
	if !dnsIsUpdate(query) || g.stop.Load() == 0 || g.skip.Add(-1) >= 0 || g.stop.Add(-1) < 0 {
		return forward()
	}
	m, _ := dnswire.Parse(query)
	name := strings.TrimSuffix(m.Answers[0].Name.String(), ".")
	g.last.Store(&name)
	if g.after {
		answer = forward()
	}
	g.arrived <- struct{}{}
	<-g.open
	if !g.after && !g.lose {
		answer = forward()
	}
	g.passed <- struct{}{}
	if g.lose {
		return nil
	}
	return answer
}

// dnsClosedPort gives an address at which nothing listens.
func dnsClosedPort(t testing.TB) string {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	return tcp.Addr().String()
}

// appProcess is the program, run inside the test on a port of its own choice.
type appProcess struct {
	t       testing.TB
	hangUps chan os.Signal
	log     *dnsLog
	url     string
}

func runProgram(t testing.TB, environ []string, args ...string) *appProcess {
	t.Helper()
	p := &appProcess{t: t, hangUps: make(chan os.Signal, 1), log: &dnsLog{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	args = append([]string{"-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-db", filepath.Join(t.TempDir(), "meshddns.db")}, args...)
	go func() {
		ended <- run(ctx, process{args: args, environ: environ, hangUps: p.hangUps, stdout: io.Discard, stderr: p.log})
	}()
	t.Cleanup(func() {
		cancel()
		if err := dnsWait(t, ended); err != nil {
			t.Error(err)
		}
	})
	p.logged("msg=started")
	_, listen, _ := strings.Cut(p.log.String(), "listen=")
	listen, _, _ = strings.Cut(listen, " ")
	p.url = "http://" + listen
	return p
}

// logged waits for a text in the log.
func (p *appProcess) logged(text string) {
	p.t.Helper()
	(&syncHost{t: p.t, log: p.log}).until(text, func() bool { return strings.Contains(p.log.String(), text) })
}

// status is that of the answer to a GET of the configuration with a token.
func (p *appProcess) status(token string) int {
	p.t.Helper()
	request, err := http.NewRequest("GET", p.url+"/api/v1/ddns/config", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Timeout: dnsPatience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// The API is at all addresses, with the guards of each: a unix socket needs no token.
func TestSeveralAddresses(t *testing.T) {
	socket, file := filepath.Join(t.TempDir(), "api"), filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("a-token-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runProgram(t, nil, "-listen", "unix:"+socket+",127.0.0.1:0", "-token-file", file, "-dns-nsid", "here")
	addresses := strings.Split(strings.TrimPrefix(p.url, "http://"), ",")
	if len(addresses) != 3 || addresses[1] != socket {
		t.Fatalf("listens on %q", addresses)
	}
	for i, want := range []int{401, 200, 401} {
		client := &http.Client{Timeout: dnsPatience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if i == 1 {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addresses[i])
		}}}
		response, err := client.Get("http://localhost/api/v1/ddns/config")
		client.CloseIdleConnections()
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", addresses[i], response.StatusCode, want)
		}
	}
	if log := p.log.String(); strings.Count(log, "a setting has no effect") != 1 || !strings.Contains(log, "setting=-dns-nsid") {
		t.Error(log)
	}
}

// A hang-up ends nothing: the token file is read again, and when it is broken
// the old tokens stay.
func TestHangUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, new = "old-token-0123456789", "new-token-0123456789"
	write(old)
	p := runProgram(t, nil, "-token-file", file)
	for _, step := range []struct {
		content, log string
		old, new     int
	}{
		{"too-short", `level=ERROR msg="reload: what was stays" step="read the token file again"`, 200, 401},
		{old + "\n" + new, `level=INFO msg=reload step="read the token file again"`, 200, 200},
		{new, `level=INFO msg=reload step="read the token file again"`, 401, 200},
	} {
		write(step.content)
		before := strings.Count(p.log.String(), step.log)
		p.hangUps <- syscall.SIGHUP
		(&syncHost{t: t, log: p.log}).until(step.log, func() bool { return strings.Count(p.log.String(), step.log) > before })
		if o, n := p.status(old), p.status(new); o != step.old || n != step.new {
			t.Errorf("after %s: old %d, new %d", step.log, o, n)
		}
	}
	if log := p.log.String(); strings.Contains(log, "-token-") || strings.Contains(log, "too-short") {
		t.Errorf("a token is in the log:\n%s", log)
	}
}

// A hang-up applies the provision file again: what differs is changed, and with a fault in
// the form of the file all stays as it is.
func TestHangUpProvisions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	write := func(name, more string) {
		writeFile(t, file, `{"services": [{"id": "a", "name": "`+name+`", "config": {"domain": "a.example"}}]`+more+`}`)
	}
	write("one", "")
	p := runProgram(t, nil, "-provision", file)
	if log := p.log.String(); strings.Index(log, "msg=provisioned") > strings.Index(log, "msg=started") {
		t.Errorf("started before it was provisioned:\n%s", log)
	}
	for _, step := range []struct{ name, more, log, want string }{
		{"two", "", `msg=reload step="apply the provision file again"`, "two"},
		{"two", "", `changes=0`, "two"},
		{"three", `, "usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]`, `usages[0].service_id: no such service`, "three"},
		{"four", `,`, `not JSON`, "three"},
		{"five", "", `changes=1`, "five"},
	} {
		write(step.name, step.more)
		before := strings.Count(p.log.String(), step.log)
		p.hangUps <- syscall.SIGHUP
		(&syncHost{t: t, log: p.log}).until(step.log, func() bool { return strings.Count(p.log.String(), step.log) > before })
		response, err := (&http.Client{Timeout: dnsPatience}).Get(p.url + "/api/v1/ddns/services/a")
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Data serviceAnswer }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Data.Name != step.want {
			t.Errorf("%s: the service's name is %q, %v, want %q", step.name, body.Data.Name, err, step.want)
		}
		response.Body.Close()
	}
}

// A program without anything to read again lives on.
func TestHangUpForNothing(t *testing.T) {
	p := runProgram(t, nil)
	p.hangUps <- syscall.SIGHUP
	p.logged("there is nothing to read again")
	if got := p.status("any"); got != 200 {
		t.Errorf("status %d", got)
	}
}

// The steps are done in order, all of them, whatever one says.
func TestReloadSteps(t *testing.T) {
	log := &dnsLog{}
	var done []string
	note := func(what string, err error) step {
		return step{what, func(context.Context) error { done = append(done, what); return err }}
	}
	reload(t.Context(), []step{note("a", nil), note("b", errors.New("broken")), note("c", nil)}, slog.New(slog.NewTextHandler(log, nil)))
	if got := strings.Join(done, ""); got != "abc" {
		t.Errorf("done %q", got)
	}
	if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "step=b error=broken") || strings.Count(got, "level=INFO") != 2 {
		t.Error(got)
	}
}

// TestProvisionMistakes finds what testdata/provision/mistakes.txt says of the files in
// it; "go test -update" writes it anew. "no credentials" is without a folder of them.
func TestProvisionMistakes(t *testing.T) {
	const golden = "testdata/provision/mistakes.txt"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	credentials := t.TempDir()
	for name, value := range map[string]string{
		"key": "sesame-sesame\n", "empty": "\n", "latin1": "caf\xe9", "large": strings.Repeat("x", 64<<10+1), "folder/x": "",
	} {
		writeFile(t, filepath.Join(credentials, name), value)
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n# ")
	for i, block := range blocks {
		given, want, _ := strings.Cut(block, "\n-> ")
		dir := t.TempDir()
		parts := strings.Split("\n"+strings.TrimRight(given, "\n"), "\nfile ")
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			body = manyLetters.ReplaceAllStringFunc(body, func(many string) string {
				n, _ := strconv.Atoi(strings.Trim(many, "< x>"))
				return strings.Repeat("x", n)
			})
			if quoted, ok := strings.CutPrefix(body, "bytes "); ok {
				if body, err = strconv.Unquote(quoted); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, filepath.Join(dir, name), body)
		}
		from := provision.CredentialFolder{Folder: credentials}
		if strings.Contains(parts[0], "\nno credentials") {
			from.Folder = ""
		}
		got := "ok"
		if err := provision.Read(dir, from).Check(checks{}); err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		if got = strings.ReplaceAll(got, "\n", "\n   "); got != strings.TrimRight(want, "\n") && !*update {
			t.Errorf("# %s\n-> %s\nwant\n-> %s", given, got, want)
		}
		if strings.Contains(got, "sesame") {
			t.Errorf("a secret is in\n%s", got)
		}
		blocks[i] = strings.TrimRight(given, "\n") + "\n-> " + got
	}
	if *update {
		writeFile(t, golden, strings.Join(blocks, "\n\n# ")+"\n")
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// applied applies documents to an appliance as SIGHUP does, and gives the audit lines and the
// faults.
func (a *appliance) applied(t testing.TB, documents ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range documents {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), text)
	}
	credentials := t.TempDir()
	writeFile(t, filepath.Join(credentials, "key"), "sesame\n")
	before := len(a.logs.String())
	err := a.provision(t.Context(), dir, provision.CredentialFolder{Folder: credentials}, false)
	if err != nil {
		return strings.ReplaceAll(err.Error(), dir+"/", "")
	}
	lines := a.audited(before)
	for _, m := range a.provisioned.faults {
		lines = append(lines, strings.ReplaceAll(m.String(), dir+"/", ""))
	}
	return strings.Join(lines, "\n")
}

var auditLine = regexp.MustCompile(`msg=change who=(.*)`)

// audited gives the audit lines from an octet of the log on, without what varies.
func (a *appliance) audited(from int) (lines []string) {
	for _, found := range auditLine.FindAllStringSubmatch(a.logs.String()[from:], -1) {
		line, _, _ := strings.Cut(uuidText.ReplaceAllString(found[1], "<id>"), ` code="" file=`)
		lines = append(lines, line)
	}
	return lines
}

const wholeDocument = `{
  "configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": {"credential": "key"}, "domain": "example.com", "txt_record_name": "@"},
  "services": [
    {"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": {"credential": "key"}, "n": 1.50}},
    {"id": "b", "name": "B", "config": {"domain": "b.example"}}
  ],
  "usages": [
    {"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "office"},
    {"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"}
  ]
}`

// A document is applied by the operations of requests, once: what is there stays as it
// is, byte for byte, and what differs is changed.
func TestProvision(t *testing.T) {
	a := newAppliance(t, stopClock)
	const (
		configured = `provision what="PUT /api/v1/ddns/config" id="" status=200`
		serviceA   = `provision what="PUT /api/v1/ddns/services/{id}" id=a status=200`
		serviceB   = `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`
		reserved   = `provision what="POST /api/v1/ddns/usages" id=<id> status=200`
		patched    = `provision what="PATCH /api/v1/ddns/usages/{id}" id=<id> status=200`
		released   = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=200`
		deletedB   = `provision what="DELETE /api/v1/ddns/services/{id}" id=b status=200`
		adopted    = `provision what="POST /api/v1/ddns/adopt" id=0123456789ab status=200`
	)
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(wholeDocument) }
	for _, step := range []struct{ name, document, want string }{
		{"all of it", wholeDocument, strings.Join([]string{configured, serviceA, serviceB, reserved, reserved}, "\n")},
		{"once more", wholeDocument, ""},
		{"masked", replace(`{"credential": "key"}`, `"********"`), ""},
		{"in another writing", replace("1.50", "1.5", `"Office"`, `"oFFICE"`, `"id": "b", "name": "B"`, `"name": "B",   "id": "b"`), ""},
		{"only parts of it", `{"services": [{"id": "b", "name": "B", "config": {"domain": "b.example"}}], "prune": false}`, ""},
		{"less said of a usage", replace(`, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"`, ""), ""},
		{"another name", replace(`"name": "B"`, `"name": "C"`), serviceB},
		{"another number", replace(`1.50`, `1.51`, `"name": "B"`, `"name": "C"`), serviceA},
		{"another secret", `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "other", "n": 1.51}}]}`, serviceA},
		{"a masked secret beside a change", `{"services": [{"id": "a", "name": "D", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "********"}}]}`, serviceA},
		{"endpoints and a description", replace(`"mine"`, `"yours"`, ":1\"", ":2\"", `"name": "B"`, `"name": "C"`), serviceA + "\n" + patched},
		{"a network's name", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "home"}]}`, patched},
		{"a usage twice", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, reserved + "\n" + reserved},
		{"a usage twice once more", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, ""},
		{"an owner", `{"owner": "0123456789ab"}`, adopted},
		{"an owner once more", `{"owner": "0123456789ab"}`, ""},
		{"its own owner", `{"owner": "` + a.store.owner + `"}`, ""},
		{"a prefix for another network", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 7},
				{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + serviceA + "\n" + reserved},
		{"usages that nobody manages keep their service", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}]}`, ""},
		{"pruned", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + deletedB},
	} {
		before := a.files(t)
		if got := a.applied(t, step.document); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
		if same := bytes.Equal(before, a.files(t)); same != (step.want == "") {
			t.Errorf("%s: the database is the same: %v", step.name, same)
		}
	}
	if strings.Contains(a.logs.String(), "sesame") {
		t.Error("the log has a secret")
	}
}

// A fault names the file, the line and the member. A fault of the form keeps all of the files from
// being applied, another one its entry; a prune that is refused removes nothing.
func TestProvisionFaults(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{}}`)
	for i := range 9 {
		a.must(t, "POST", "/api/v1/ddns/usages", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, i, i))
	}
	const fine = `{"owner": "0123456789ab", "services": [{"id": "new", "name": "N", "config": {"domain": "new.example"}}]}`
	usages := func(to int) (all []string) {
		for i := range to {
			all = append(all, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, i, i))
		}
		return all
	}
	a.applied(t, fine)
	before := a.rows(t)
	for _, step := range []struct{ name, document, want string }{
		{"masked on a new appliance", `{
"configuration": {"provider": "builtin", "access_key_id": "-", "domain": "example.com", "txt_record_name": "@",
  "access_key_secret": "********"},
"services": [{"id": "s", "name": "S", "config": {"provider": "x", "access_key_id": "y",
  "access_key_secret": "********", "more": {"token":
    "********"}}}]}`,
			`1.json:3: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:5: services[0].config.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:6: services[0].config.more.token: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here`},
		{"several", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}},
  {"id": "bad id", "name": "x", "config": {}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bad id", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "new", "prefix_mode": "custom", "network_id": 1,
   "custom_prefix": "a.b"}]}`,
			`1.json:5: services[1].id: the id is not valid: 1 to 128 characters of letters, digits and . _ ~ -
1.json:11: usages[3].custom_prefix: the prefix may hold only a-z A-Z 0-9 _ -`},
		{"several of what is stored", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "svc", "prefix_mode": "auto", "network_id": 1}]}`,
			`1.json:4: services[0].config.domain: the service has usages, its domain cannot change
1.json:6: usages[0].service_id: no such service
1.json:7: usages[1].service_id: the service's config has no domain`},
		{"a prefix of another network", `{"usages": [{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "P0", "network_id": 5}]}`,
			`1.json:1: usages[0].custom_prefix: the prefix is taken by network 0`},
		{"endpoints of a new usage", `{"usages": [{"service_id": "svc", "prefix_mode": "auto", "network_id": 5, "txt_endpoints": ["x"]}]}`,
			`1.json:1: usages[0].txt_endpoints: txt_endpoints: "x" is not scheme://host:port`},
		{"too many usages", `{"usages": [` + strings.Join(usages(5), ",") + `],
"prune": true}`, `1.json:2: prune: 4 of 9 usages are not in the document, more than a third: only "all" removes so many`},
	} {
		t.Run(step.name, func(t *testing.T) {
			if got := a.applied(t, fine, step.document); got != step.want {
				t.Errorf("\n%s\nwant\n%s", got, step.want)
			}
			if !slices.Equal(before, a.rows(t)) {
				t.Error("the database is another one")
			}
		})
	}
	few := `{"usages": [` + strings.Join(usages(6), ",") + `], "prune": true}`
	if got := len(strings.Split(a.applied(t, few), "\n")); got != 3 {
		t.Errorf("%d are pruned, want 3", got)
	}
	if got := len(strings.Split(a.applied(t, `{"usages": [], "services": [], "prune": "all"}`), "\n")); got != 9 {
		t.Errorf("%d are pruned, want 6 usages and 3 services", got)
	}
}

// randomDocument is a document of everything that clients can say, secrets as they are.
func randomDocument(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	endpoints := func() string {
		return pick(`[]`, `["tcp://192.0.2.1:1"]`, `["wg://[2001:db8::1]:51820","tcp://{ipv4}:11010"]`)
	}
	text := func() string {
		return strconv.Quote(pick("", "office", "a <b> & 'c'", "办公室", "mesh sync - x", "\\ 😀"))
	}
	document := map[string]json.RawMessage{"owner": json.RawMessage(fmt.Sprintf(`"%012x"`, random.Uint64()>>16))}
	if random.IntN(4) > 0 {
		document["configuration"] = json.RawMessage(fmt.Sprintf(`{"provider":%q,"access_key_id":"id","access_key_secret":"hidden-%d","endpoint":%q,
			"domain":"Example.com.","txt_record_name":%q,"txt_endpoints":%s,"sync_mode":%q,"retry_interval":%s,"max_retries":%s,"enabled":%s}`,
			pick("builtin", "webhook", "nobody's"), random.IntN(100), pick("", "https://dns.example"), pick("@", "_txt"), endpoints(), pick("", "manual", "odd"),
			pick("null", "-1", "9223372036854775807"), pick("null", "0"), pick("true", "false")))
	}
	var services, usages []json.RawMessage
	for i := range random.IntN(5) {
		services = append(services, json.RawMessage(fmt.Sprintf(`{"id":"s-%d","name":%s,"config":{"domain":"s%d.example","txt_endpoints":%s%s}}`, i, pick(`"x"`, `"办公室"`), i, endpoints(),
			pick("", `,"big":18446744073709551617,"rate":1.50,"list":[1,{"a_token":"hidden"}]`, `,"provider":"webhook","access_key_id":"k","access_key_secret":"hidden <&>"`))))
		for j := range random.IntN(6) {
			u := fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"custom","custom_prefix":"Prefix_%d","network_id":%d,"txt_endpoints":%s,"description":%s}`,
				i, j, random.Uint64()>>random.IntN(64), endpoints(), text())
			if random.IntN(2) == 0 {
				u = fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"auto","network_id":%s,"network_name":%s}`, i, pick("0", "42", "18446744073709551615"), text())
			}
			usages = append(usages, json.RawMessage(u))
		}
	}
	for name, list := range map[string][]json.RawMessage{"services": services, "usages": usages} {
		document[name], _ = json.Marshal(append([]json.RawMessage{}, list...))
	}
	whole, _ := json.Marshal(document)
	return string(whole)
}

// state gives the document that GET state answers with, checked as JSON and in its order.
func (a *appliance) stateDocument(t testing.TB) string {
	t.Helper()
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/state", "")), &answer); err != nil {
		t.Fatal(err)
	}
	return string(answer.Data)
}

// What GET state gives, applied where it comes from, changes nothing; on a new appliance,
// with the secrets in place, it gives the same state, the owner included.
func TestStateIsADocument(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(9, seed))
		document := randomDocument(random)
		fresh := func() *appliance {
			a := newAppliance(t, stopClock)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "whole.json"), document)
			if err := a.provision(t.Context(), dir, provision.CredentialFolder{}, true); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, document)
			}
			return a
		}
		a := fresh()
		state := a.stateDocument(t)
		if strings.Contains(state, "hidden") {
			t.Errorf("seed %d: a secret is in %s", seed, state)
		}
		before, from := a.files(t), len(a.logs.String())
		if got := a.applied(t, state); got != "" || !bytes.Equal(before, a.files(t)) || !strings.Contains(a.logs.String()[from:], "changes=0") {
			t.Errorf("seed %d: the own state changes %s\n%s", seed, got, state)
		}
		pruned := strings.Replace(state, `{"owner"`, `{"prune":true,"owner"`, 1)
		if got := a.applied(t, pruned); got != "" || !bytes.Equal(before, a.files(t)) {
			t.Errorf("seed %d: the own state prunes %s\n%s", seed, got, state)
		}
		if again := fresh().stateDocument(t); again != state {
			t.Errorf("seed %d: a new appliance has\n%s\nwant\n%s", seed, again, state)
		}
	}
}

// -check tells every mistake of flags and files, a line each, and neither opens nor binds
// anything.
func TestCheckFlag(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db, good, bad := filepath.Join(dir, "x.db"), filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	writeFile(t, good, `{"services": [{"id": "a", "name": "A", "config": {"access_key_secret": {"credential": "key"}}}]}`)
	writeFile(t, bad, "{\"owner\":\n 5, \"prune\": 1}")
	for _, test := range []struct {
		args    string
		environ []string
		out     string
		failed  bool
	}{
		{"-provision " + good, nil, "ok, but for 1 credentials, which are not looked at: $CREDENTIALS_DIRECTORY is not set\n", false},
		{"", nil, "ok\n", false},
		{"-provision " + good, []string{"CREDENTIALS_DIRECTORY=" + dir},
			good + ":1: services[0].config.access_key_secret.credential: the credential \"key\": no such file or directory\n", true},
		{"-provision " + bad + " -log-format x -dns-host 192.0.2.1", nil, "-dns-host: \"192.0.2.1\" is an address: want a name, such as ns1.example.com\n" +
			"-log-format: \"x\" is no format of a log: want text or json\n" +
			bad + ":2: owner: is 5, want a string\n" + bad + ":2: prune: want true, false or \"all\"\n", true},
		{"-provision " + filepath.Join(dir, "none"), nil, filepath.Join(dir, "none") + ": no such file or directory\n", true},
	} {
		var out, log bytes.Buffer
		args := append([]string{"-check", "-db", db, "-listen", taken.Addr().String()}, strings.Fields(test.args)...)
		err := run(t.Context(), process{args: args, environ: test.environ, stdout: &out, stderr: &log})
		if out.String() != test.out || (err != nil) != test.failed || log.Len() > 0 {
			t.Errorf("%s: %v, log %q\n%s\nwant\n%s", test.args, err, log.String(), out.String(), test.out)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// At a start a new database takes the owner of the file, and a database that has marked
// something adopts it; at SIGHUP, while values are being marked, it is adopted.
func TestProvisionOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	owned := func(owner string) string {
		writeFile(t, file, `{"owner": "`+owner+`", "services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`)
		return file
	}
	for _, test := range []struct {
		name   string
		start  bool
		before string // a request
		want   string
	}{
		{"new", true, "", "0123456789ab []"},
		{"at SIGHUP", false, "", "own [0123456789ab]"},
		{"with a service", true, `{"name":"x","config":{}}`, "own [0123456789ab]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meshddns.db")
			a := newApplianceOn(t, path, stopClock)
			own := a.store.owner
			if test.before != "" {
				a.must(t, "PUT", "/api/v1/ddns/services/b", test.before)
			}
			for range 2 {
				if err := a.provision(t.Context(), owned("0123456789ab"), provision.CredentialFolder{}, test.start); err != nil {
					t.Fatal(err)
				}
				state, err := a.store.ledger.State(t.Context(), nil)
				if got := strings.Replace(fmt.Sprint(a.store.owner, " ", state.Adopted), own, "own", 1); got != test.want || err != nil || state.Owner != a.store.owner {
					t.Errorf("%s, want %s; %v, %s", got, test.want, err, state.Owner)
				}
			}
			if stored := queryText(t, a.open(t), `SELECT owner FROM appliance`); stored[0] != a.store.owner {
				t.Errorf("%q is stored", stored)
			}
		})
	}
}

// A usage whose release is under way is kept when a document has it again.
func TestProvisionKeepsWhatIsReleased(t *testing.T) {
	a := newAppliance(t)
	const with = `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}],
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1}]}`
	a.applied(t, with)
	const name = "_mesh.office.b.example.com"
	eventually(t, "published", func() bool { return strings.Contains(a.ask(t, name), "n=1 ") })
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`UPDATE bindings SET status = 'releasing' WHERE network_id = 1`); err != nil {
		t.Fatal(err)
	}
	if state := a.stateDocument(t); strings.Contains(state, "Office") {
		t.Errorf("what is being released is in %s", state)
	}
	if got, want := a.applied(t, with), `provision what="POST /api/v1/ddns/usages" id=<id> status=200`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	if got := a.ask(t, name); !strings.Contains(got, "n=1 ") {
		t.Errorf("the name has %q", got)
	}
	if rows := queryText(t, db, `SELECT count(*) FROM bindings WHERE status = 'active' AND network_id = 1`); rows[0] != "1" {
		t.Errorf("%q usages", rows)
	}
}

// The state is sent as it is read, page by page: a state that breaks off does not look
// whole, and one that cannot be read is refused.
func TestStateIsStreamed(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.addUsages(t, 60*usagePage, 4000) // more than sockets hold
	whole := a.stateDocument(t)
	if got := strings.Count(whole, `"service_id":"svc"`); got != 40*usagePage {
		t.Errorf("%d usages, want those with a network: %d", got, 40*usagePage)
	}
	var largest, before, sum int
	for piece, err := range a.state(httptest.NewRequest("GET", "/", nil)) {
		if err != nil {
			t.Fatal(err)
		}
		before, sum, largest = sum, sum+len(piece), max(largest, len(piece))
	}
	if largest > 64<<10 || before < 10*largest {
		t.Errorf("a piece has %d of %d octets", largest, sum)
	}
	response, err := a.http.Get(a.url + "/api/v1/ddns/state")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`ALTER TABLE usages RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v", err)
	}
	if response, body := a.do(t, "GET", "/api/v1/ddns/state", nil, ""); response.StatusCode != 500 {
		t.Error(response.Status, body)
	}
}

// The service manager is told when the program serves, reads its files again and stops, and the
// watchdog for as long as the database answers.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	manager.SetReadDeadline(time.Now().Add(dnsPatience))
	told := func(want string) {
		t.Helper()
		buffer := make([]byte, 4096)
		var all []string
		for {
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatalf("%q is not told, but %q: %v", want, all, err)
			}
			if all = append(all, string(buffer[:n])); strings.HasPrefix(all[len(all)-1], want) {
				return
			}
		}
	}
	t.Cleanup(func() { told("STOPPING=1\n") }) // before the socket is closed, after the program
	p := runProgram(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=1000000"})
	told("READY=1\nSTATUS=HTTP on " + strings.TrimPrefix(p.url, "http://") + "; services 0, prefixes 0, names published 0")
	told("STATUS=HTTP on ")
	told("WATCHDOG=1")
	p.hangUps <- syscall.SIGHUP
	told("RELOADING=1\n")
	told("READY=1\n")
}

// A variable of another form is an error of start-up: systemd would wait for ever.
func TestServiceManagerThatCannotBeTold(t *testing.T) {
	db := filepath.Join(t.TempDir(), "meshddns.db")
	for variable, want := range map[string]string{
		"NOTIFY_SOCKET=notify": `NOTIFY_SOCKET: "notify": want a path or @name`,
		"WATCHDOG_USEC=30s":    `WATCHDOG_USEC: "30s": want microseconds`,
	} {
		err := run(t.Context(), process{args: []string{"-db", db}, environ: []string{variable}, stdout: io.Discard, stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

// A record whose work panics fails, and the others are published.
func TestCrashedRecord(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service(servertest.Zone)
	h.reserve(service, "office", 1)
	h.reserve(service, "home", 2)
	v.fails(func(_ context.Context, c dnsCall) error {
		if c.name == dnsOffice && c.what == "change" {
			panic("injected")
		}
		return nil
	})
	r := h.run()
	if r.Bad != 1 || r.FirstBad().Name != dnsOffice || !strings.Contains(r.FirstBad().Fault.Detail.String(), "panic: injected") {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(h.log.String(), "main_test.go"); n == 0 {
		t.Errorf("no stack in the log:\n%s", h.log)
	}
	v.works()
	if r := h.run(); r.Bad != 0 {
		t.Errorf("%+v", r)
	}
}

// movedPrefix gives a document whose prefix office is network's.
func movedPrefix(network string) string {
	return `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}], "prune": true,
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": ` + network + `},
			{"service_id": "b", "prefix_mode": "auto", "network_id": ` + network + `}]}`
}

// A prefix that is published for one network moves to another: its value is withdrawn, what
// else the file has is applied at once, and the prefix is reserved when it is free.
func TestProvisionMovesAPrefix(t *testing.T) {
	a := newAppliance(t)
	a.applied(t, movedPrefix("1"))
	const name = "_mesh.office.b.example.com"
	eventually(t, "published", func() bool {
		published, _ := a.page(t, "state=published")
		return len(published) == 2
	})
	const want = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:3: usages[0].custom_prefix: the prefix is taken by network 1`
	if got := a.applied(t, movedPrefix("7")); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if a.provisionPause() != provisionPause {
		t.Errorf("it is tried again after %v", a.provisionPause())
	}
	eventually(t, "withdrawn", func() bool { return !strings.Contains(a.ask(t, name), "n=1 ") })
	before := len(a.logs.String())
	eventually(t, "reserved", func() bool { a.provisionAgain(t.Context(), "x"); return a.provisionPause() == 0 })
	if got := strings.Join(a.audited(before), "\n"); got != `provision what="POST /api/v1/ddns/usages" id=<id> status=200` {
		t.Errorf("what waited has made\n%s", got)
	}
	eventually(t, "published", func() bool { return strings.Contains(a.ask(t, name), "n=7 ") })
	if n := a.provisioned.count.Load(); n != 0 {
		t.Errorf("%d faults are left", n)
	}
}

// What the stored state does not allow waits, and the rest is applied. It is logged once, is in
// the metrics and the health, and is applied when the state allows it.
func TestProvisionWaits(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/services/b", `{"name":"B","config":{"domain":"b.example"}}`)
	id := a.reserve(t, "b", "office", 1)
	const document = `{"configuration": {"provider": "x", "access_key_id": "-", "access_key_secret": "********", "domain": "example.com", "txt_record_name": "@"},
"services": [{"id": "b", "name": "Moved", "config": {"domain": "moved.example"}}, {"id": "c", "name": "C", "config": {"domain": "c.example"}}],
"usages": [{"service_id": "b", "prefix_mode": "auto", "network_id": 2},
  {"service_id": "c", "prefix_mode": "auto", "network_id": 3},
  {"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`
	const want = `provision what="PUT /api/v1/ddns/services/{id}" id=c status=200
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:1: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
0.json:2: services[0].config.domain: the service has usages, its domain cannot change
0.json:5: usages[2].service_id: no such service`
	if got := a.applied(t, document); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	tells := func(faults, health string) {
		t.Helper()
		if page := a.must(t, "GET", "/metrics", ""); !strings.Contains(page, "\nmeshddns_provision_faults "+faults+"\n") {
			t.Errorf("the metrics have no %s faults:\n%s", faults, page)
		}
		if got := a.must(t, "GET", "/healthz", ""); !strings.Contains(got, health) {
			t.Errorf("healthz: %s, want %s", got, health)
		}
	}
	tells("3", "预置文件未完全应用")
	again := func(waits int, want ...string) {
		t.Helper()
		before := len(a.logs.String())
		a.provisionAgain(t.Context(), "x")
		if got := a.audited(before); !slices.Equal(got, want) || len(a.provisioned.faults) != waits {
			t.Errorf("%q, %d faults, want %q, %d", got, len(a.provisioned.faults), want, waits)
		}
		if log := a.logs.String()[before:]; strings.Contains(log, "not applied") {
			t.Errorf("what was told is told once more: %s", log)
		}
	}
	again(3)
	a.must(t, "DELETE", "/api/v1/ddns/usages/"+id+"?force=1", "")
	again(2, `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	a.must(t, "PUT", "/api/v1/ddns/services/none", `{"name":"N","config":{"domain":"none.example"}}`)
	a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"x","access_key_id":"-","access_key_secret":"sesame","domain":"other.example","txt_record_name":"@"}`)
	again(0, `provision what="PUT /api/v1/ddns/config" id="" status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	tells("0", `"正常"`)
}

// A form that is wrong changes nothing, not even what is right beside it; what waited of the file
// before waits on.
func TestProvisionForm(t *testing.T) {
	a := newAppliance(t, stopClock)
	const waiting = `0.json:1: usages[0].service_id: no such service`
	if got := a.applied(t, `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`); got != waiting {
		t.Fatal(got)
	}
	before := a.rows(t)
	const want = `0.json:1: services[1].name: name must not be empty`
	got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}, {"id": "x", "name": "", "config": {}}]}`)
	if got != want || !slices.Equal(before, a.rows(t)) {
		t.Errorf("%s, and the database is another one: %v", got, !slices.Equal(before, a.rows(t)))
	}
	if n := a.provisioned.count.Load(); n != 2 || a.provisionPause() == 0 {
		t.Errorf("%d faults, again after %v", n, a.provisionPause())
	}
	if got := a.applied(t, `{"services": []}`); got != "" || a.provisioned.count.Load() != 0 {
		t.Errorf("a file without mistakes: %s, %d faults", got, a.provisioned.count.Load())
	}
}

// While the database fails, all of the file waits.
func TestProvisionWaitsForTheDatabase(t *testing.T) {
	a := newAppliance(t, stopClock)
	db := a.open(t)
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON services BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`); !strings.Contains(got, "no") {
		t.Errorf("the fault is %q", got)
	}
	before := len(a.logs.String())
	a.provisionAgain(t.Context(), "x")
	if log := a.logs.String()[before:]; log != "" || a.provisioned.count.Load() != 1 {
		t.Errorf("the same fault again: %s, %d faults", log, a.provisioned.count.Load())
	}
	if _, err := db.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	a.provisionAgain(t.Context(), "x")
	if log := a.logs.String()[before:]; !strings.Contains(log, "msg=provisioned") || a.provisioned.count.Load() != 0 || a.provisionPause() != 0 {
		t.Errorf("the database works: %s, %d faults", log, a.provisioned.count.Load())
	}
}

// No fault of the file keeps the program from starting: it serves what is stored, and takes the
// file at the next hang-up. Each mistake is a line of the log.
func TestProvisionFaultsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	file, db := filepath.Join(dir, "x.json"), filepath.Join(dir, "x.db")
	for _, test := range []struct {
		name, document string
		log            []string
	}{
		{"no JSON", `{`, []string{`level=ERROR msg="the provision file is not applied: what was stays" error=` + file + `:1: not JSON`}},
		{"two mistakes", `{"owner": 1, "more": 2}`, []string{file + `:1: owner: is 1, want a string`, file + `:1: more: no such member`}},
		{"no credential", `{"services": [{"id": "a", "name": "A", "config": {"access_key_secret": {"credential": "key"}}}]}`, []string{`$CREDENTIALS_DIRECTORY is not set`}},
		{"no such service", `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]}`,
			[]string{`level=WARN msg="a part of the provision file is not applied" error="` + file + `:1: usages[0].service_id: no such service"`}},
		{"no file", "", []string{`no such file or directory`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(file)
			if test.document != "" {
				writeFile(t, file, test.document)
			}
			p := runProgram(t, nil, "-db", db, "-provision", file)
			for _, want := range test.log {
				if log := strings.ReplaceAll(p.log.String(), `error="`+file, `error=`+file); !strings.Contains(log, strings.ReplaceAll(want, `error="`+file, `error=`+file)) {
					t.Errorf("the log has no %s\n%s", want, log)
				}
			}
			if got := p.health(); !strings.Contains(got, "not fully applied") {
				t.Errorf("healthz says %s", got)
			}
			writeFile(t, file, `{}`)
			p.hangUps <- syscall.SIGHUP
			(&syncHost{t: t, log: p.log}).until("healthy", func() bool { return p.health() == "ok" })
		})
	}
}

// health is what healthz says.
func (p *appProcess) health() string {
	p.t.Helper()
	request, err := http.NewRequest("GET", p.url+"/healthz", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept-Language", "en")
	response, err := (&http.Client{Timeout: dnsPatience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct{ Message string }
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil || response.StatusCode != 200 {
		p.t.Fatalf("healthz: %d %s, %v", response.StatusCode, text, err)
	}
	return body.Message
}

// What waits is tried again after its pause, beside hang-ups, and never when nothing waits.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pauses := []time.Duration{time.Second, time.Minute, 0}
		begin, done := time.Now(), []time.Duration(nil)
		again := repeated{
			after: func() time.Duration { return pauses[0] },
			do:    func(context.Context) { done, pauses = append(done, time.Since(begin)), pauses[1:] },
		}
		ended := make(chan error)
		go func() { ended <- onHangUp(ctx, nil, nil, again) }()
		time.Sleep(time.Hour) // of a clock that does not wait
		cancel()
		if err := <-ended; err != nil || !slices.Equal(done, []time.Duration{time.Second, 61 * time.Second}) {
			t.Errorf("done at %v, %v", done, err)
		}
	})
}

// An error of many lines is as many lines of the log, up to a bound.
func TestLogLines(t *testing.T) {
	a := newAppliance(t, stopClock)
	var all provision.Mistakes
	for range 2 * maxFaultLines {
		all = append(all, provision.Mistake{File: "f", Line: 1, Reason: "bad"})
	}
	before := len(a.logs.String())
	logLines(a.log, 0, "m", all)
	if log := a.logs.String()[before:]; strings.Count(log, `error="f:1: bad"`) != maxFaultLines || !strings.Contains(log, "more=100") {
		t.Error(log)
	}
}

// The journal has the time of each line already, so a line of text has none there. JSON keeps its
// time, and so does text that goes elsewhere.
func TestLogTime(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	info, err := write.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	journal := []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino)}
	lines := bufio.NewReader(read)
	for _, test := range []struct {
		environ      []string
		format, want string
	}{
		{journal, "text", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "json", `<4>{"time":"`},
		{nil, "text", "time="},
		{nil, "json", `{"time":"`},
	} {
		process{environ: test.environ, stderr: write}.newLog(test.format).Warn("m", slog.Group("g", "time", 1))
		if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, test.want) {
			t.Errorf("%v, %s: %q, %v, want %q", test.environ, test.format, got, err, test.want)
		}
	}
}
