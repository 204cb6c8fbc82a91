package promises

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// The names and the value that most tests here are about.
const (
	dnsHost     = "_mesh-host.example.com"   // the configuration's record
	dnsOffice   = "_mesh.office.example.com" // the record of the prefix "office"
	dnsEndpoint = "tcp://203.0.113.7:11010"  // the configuration's endpoint, as published
	dnsPatience = 30 * time.Second           // bounds every wait
	dnsStranger = "v=mesh1 n=7 o=ffffffffffff tcp://192.0.2.1:1"
)

// Modes of synchronisation.
const (
	modeManual     = "manual"
	modeAuto       = "auto"
	modeUpsertOnly = "upsert-only"

	pausedText = "paused: POST /api/v1/ddns/sync publishes" // in mode manual
)

// host is an appliance: its program, its reconciler and its log. Its clock may be put forward.
type host struct {
	*Program
	t          testing.TB
	suite      Suite
	configured members // the configuration, with its secret
	dnsAddress string  // of the built-in server
	engine     *reconcile.Engine
	vendors    map[string]*dnsVendor // stand-ins for providers, by name
	addresses  atomic.Pointer[reconcile.Addresses]
	log        *support.Log
	ahead      atomic.Int64
	stands     atomic.Pointer[time.Time]   // the time of a clock that stands still
	committed  func(wake func())           // is called after each commit
	rounds     atomic.Int64                // of the engine
	listed     func(names []string)        // called, if it is there, when the engine has listed names
	synced     func(context.Context) error // of the engine, nil: there is no replica
	cache      *builtin.Cache              // of the built-in server, nil without one
	stop       func()                      // ends the engine, nil while it does not run
}

// newHost makes an appliance that is configured to publish at a server.
func (suite Suite) newHost(t testing.TB, s servertest.Server) *host {
	t.Helper()
	h := suite.openHost(t, filepath.Join(t.TempDir(), "meshddns.db"), s)
	h.configure(dnsConfiguration(s))
	return h
}

// open opens a database file that no other program has open.
func (suite Suite) open(t testing.TB, path string) (h *host, err error) {
	err = support.Unlocked(func() error {
		h, err = suite.tryOpen(t, path)
		return err
	})
	return h, err
}

// tryOpen opens a database file, or tells that another program has it open.
func (suite Suite) tryOpen(t testing.TB, path string) (*host, error) {
	h := &host{t: t, suite: suite, log: &support.Log{}, vendors: map[string]*dnsVendor{}, committed: func(wake func()) { wake() }}
	h.knows(dnsAddresses, dnsAddresses)
	var err error
	if h.Program, err = suite.Open(context.Background(), path, Options{
		Addresses: func() reconcile.Addresses { return *h.addresses.Load() }, Now: h.now,
		Committed: func(wake func()) { h.committed(wake) }, Log: h.logger(),
	}); err != nil {
		return nil, err
	}
	h.renew()
	return h, nil
}

// mustOpen opens a database file until the test ends.
func (suite Suite) mustOpen(t testing.TB, path string) *host {
	t.Helper()
	h, err := suite.open(t, path)
	support.Must(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

func (suite Suite) openHost(t testing.TB, path string, s servertest.Server) *host {
	t.Helper()
	h := suite.mustOpen(t, path)
	if s.Name == msg.Builtin {
		h.serve(s.Addr)
	}
	return h
}

func (h *host) now() time.Time {
	if at := h.stands.Load(); at != nil {
		return *at
	}
	return time.Now().Add(time.Duration(h.ahead.Load()))
}

func (h *host) logger() *slog.Logger { return slog.New(slog.NewTextHandler(h.log, nil)) }

// renew makes the engine, as a program that begins does.
func (h *host) renew() {
	book := hostaddr.NewBook(hostaddr.Sources{}, mesh.Addresses{}, h.logger())
	ready := make(chan struct{})
	close(ready)
	h.engine = h.NewEngine(book, 5*time.Minute, func(c *reconcile.Config) {
		open := c.Open
		c.Ready, c.Synced = ready, h.synced
		c.Database = dnsRounds{Database: c.Database, count: &h.rounds, listed: h.listed}
		c.Addresses = func() reconcile.Addresses { return *h.addresses.Load() }
		c.Open = func(a reconcile.Account) (provider.DNS, error) {
			if v := h.vendors[a.Provider]; v != nil {
				return v.open(a), nil
			}
			return open(a)
		}
	})
}

// serve says where the built-in server listens.
func (h *host) serve(address string) {
	h.dnsAddress = address
	h.Serve(address)
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

// dnsBuiltinServer is the built-in server without its sockets.
var dnsBuiltinServer = servertest.Server{Name: msg.Builtin, Addr: "127.0.0.1:53"}

var dnsAddresses = mesh.Addresses{IPv4: netip.MustParseAddr("203.0.113.7")}

// dnsLookAgain is time enough for a second look.
const dnsLookAgain = reconcile.SecondLook + time.Second

// knows sets this host's last known addresses, and those that are known now.
func (h *host) knows(last, now mesh.Addresses) {
	h.addresses.Store(&reconcile.Addresses{Last: last, Now: now})
}

// start runs the engine, if it does not run.
func (h *host) start() {
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
	h.stop = sync.OnceFunc(func() { cancel(); support.Receive(h.t, ended) })
	h.t.Cleanup(h.stop)
}

// restart ends the engine and runs a new one, as a program that is stopped and
// started does.
func (h *host) restart() {
	h.stop()
	h.stop = nil
	h.renew()
	h.start()
}

// loop runs the engine in a bubble and waits until it is idle.
func (h *host) loop() {
	h.start()
	synctest.Wait()
}

// later puts the clock forward.
func (h *host) later(d time.Duration) {
	h.ahead.Add(int64(d))
	h.engine.Wake()
}

// dnsPass lets time pass in a bubble, and what is due then happen.
func dnsPass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// serving makes an appliance whose own DNS server answers.
func (suite Suite) serving(t testing.TB) *host {
	t.Helper()
	h := suite.newHost(t, servertest.Server{Name: msg.Builtin})
	own := func() []netip.Addr { return []netip.Addr{dnsAddresses.IPv4} }
	cache := builtin.NewCache(h.Zones, h.logger())
	h.cache = cache
	h.Subscribe(cache.Committed)
	server, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, builtin.Zones{Store: h.Zones, Own: own, Cache: cache}, h.logger())
	support.Must(t, err)
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
	h.serve(server.Addr())
	return h
}

// outside tells the built-in server of what the test itself has stored.
func (h *host) outside(c builtin.Changed) {
	if h.cache != nil {
		h.cache.Committed(sqlite.Notice{c})
	}
}

// everywhere runs a test with the built-in server and with each real one.
func (suite Suite) everywhere(t *testing.T, test func(t *testing.T, h *host, s servertest.Server)) {
	t.Run(msg.Builtin, func(t *testing.T) {
		h := suite.serving(t)
		test(t, h, servertest.Server{Name: msg.Builtin, Addr: h.dnsAddress})
	})
	servertest.Each(t, func(t *testing.T, s servertest.Server) { test(t, suite.newHost(t, s), s) })
}

// dnsConfiguration publishes at a server, when told to, and does not retry.
func dnsConfiguration(s servertest.Server) members {
	c := members{
		"provider": "rfc2136", "access_key_id": servertest.Key, "access_key_secret": servertest.Secret, "endpoint": s.Addr,
		"domain": servertest.Zone, "txt_record_name": "_mesh-host", "sync_mode": modeManual, "max_retries": 0, "enabled": true,
		"txt_endpoints": []string{"tcp://{ipv4}:11010"},
	}
	if s.Name == msg.Builtin || s.Name == "" {
		c["provider"], c["endpoint"] = msg.Builtin, ""
	}
	return c
}

// automatic is the automatic prefix of a network.
func automatic(network uint64) string {
	return "_mesh-" + base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(network, 10)))
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
func (h *host) service(domain string, entries ...string) (id string) {
	h.t.Helper()
	return h.serviceOf(dnsConfig(domain, entries...))
}

func (h *host) serviceOf(config string) (id string) {
	h.t.Helper()
	id = "service-" + rand.Text()
	h.reconfigure(id, config)
	return id
}

// reconfigure replaces a service's config.
func (h *host) reconfigure(id, config string) {
	h.t.Helper()
	support.Must(h.t, h.putService(id, config))
}

// isProbe reports whether a name is one at which the engine tries whether two keys
// reach one zone.
func isProbe(name string) bool { return strings.HasPrefix(name, "_mesh-test-") }

// dnsWords joins the words that are not empty.
func dnsWords(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// run synchronises.
func (h *host) run() reconcile.Report {
	h.t.Helper()
	return h.runFor(dnsPatience, false)
}

// sweep synchronises, and withdraws the orphans.
func (h *host) sweep() reconcile.Report {
	h.t.Helper()
	return h.runFor(dnsPatience, true)
}

func (h *host) runFor(limit time.Duration, sweep bool) reconcile.Report {
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
func (h *host) begin(ctx context.Context) <-chan reconcile.Report {
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

// until waits for a condition outside of bubbles.
func (h *host) until(what string, holds func() bool) {
	h.t.Helper()
	if !support.Within(dnsPatience, holds) {
		h.t.Fatalf("in vain: %s\n%s", what, h.log)
	}
}

// copied opens a copy of the database as it is now, as a new process does.
func (h *host) copied(t testing.TB) *host {
	t.Helper()
	return h.opened(t, h.backup(t))
}

// opened opens a file as a new process does that reaches the same providers.
func (h *host) opened(t testing.TB, path string) *host {
	t.Helper()
	c := h.suite.openHost(t, path, servertest.Server{Name: msg.Builtin, Addr: h.dnsAddress})
	c.vendors, c.configured = h.vendors, h.configured
	c.ahead.Store(h.ahead.Load())
	return c
}

// backup makes a copy of the live database.
func (h *host) backup(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "copy.db")
	support.WriteFile(t, path, string(h.copy()))
	return path
}
