package reconcile_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

const owner = "0123456789ab"

// world is an engine with a database of its own and a vendor that keeps zones in memory.
type world struct {
	t       *testing.T
	db      *sql.DB
	ledger  *ledger.Ledger
	events  *events.Log
	vendor  *vendor
	others  map[string]*vendor // by the key id or provider of the accounts whose zones are not those of vendor
	engine  *reconcile.Engine
	log     support.Log
	lines   io.Writer    // takes the log's lines
	clock   atomic.Int64 // how far the clock is ahead
	failing atomic.Pointer[func(what string) error]
	stop    func()
	open    func(client) provider.DNS

	settles func(reconcile.Settlement) // called before a settlement is stored; nil: nothing is
	last    int                        // usage
	writes  int                        // an hour that nodes may cause at an account
}

// newWorld makes a world whose configuration publishes at example.com.
func newWorld(t *testing.T, mode string) *world {
	t.Helper()
	w := &world{t: t, open: func(c client) provider.DNS { return c }}
	w.fail(func(string) error { return nil })
	w.lines = &w.log
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.db")
	open := func(connections int) *sql.DB {
		db := support.OpenSQLite(t, path, "_journal_mode=WAL&_synchronous=OFF&_foreign_keys=1&_busy_timeout=5000&_txlock=immediate")
		db.SetMaxOpenConns(connections)
		return db
	}
	w.db = open(1)
	w.exec(string(schema))
	w.exec(`INSERT INTO appliance (id, owner) VALUES (1, ?);
		INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '')`, owner)
	queue := sqlite.NewQueue(w.db, nil, func(sqlite.Notice) { w.engine.Wake() })
	readers := open(4)
	w.events = events.New(readers, queue.Do, w.now, func(int64) {})
	w.ledger = ledger.New(ledger.Config{
		Reader: readers, Tx: queue.Do, Zones: builtin.NewTable(nil, "", func() bool { return true }, w.now), Events: w.events,
		Addresses: func() reconcile.Addresses { return reconcile.Addresses{} }, Now: w.now,
	}, owner)
	w.vendor, w.others = newVendor(), map[string]*vendor{}
	w.renew()
	account := w.account("key")
	w.exec(`INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		    retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, name, account)
		VALUES (1, 'vendor', 'key', 'secret', '', 'example.com', '_host', ?, 5, 0, 1, '["tcp://203.0.113.7:1"]', '', 'example.com', '_host.example.com', ?)`, mode, account)
	w.due("_host.example.com", reconcile.LaneChanged)
	return w
}

// now has no monotonic reading, so what is kept in memory meets a clock that is set too.
func (w *world) now() time.Time { return time.Now().Round(0).Add(time.Duration(w.clock.Load())) }

// at returns the vendor that has the zones of an account.
func (w *world) at(a reconcile.Account) *vendor {
	return cmp.Or(w.others[cmp.Or(a.AccessKeyID, a.Provider)], w.vendor)
}

// renew makes the engine, as a program that begins does.
func (w *world) renew() {
	ready := make(chan struct{})
	close(ready)
	w.engine = reconcile.New(reconcile.Config{
		Database: faulty{w.ledger, w}, Open: func(a reconcile.Account) (provider.DNS, error) { return w.open(client{w.at(a), a.Endpoint}), nil },
		Addresses: func() reconcile.Addresses { return reconcile.Addresses{} },
		Ready:     ready, Interval: 5 * time.Minute, Warning: reconcile.Internet.Warning, Writes: func(string) int { return w.writes }, Log: slog.New(slog.NewTextHandler(w.lines, nil)), Now: w.now,
	})
}

// fail says which calls of the database fail from now on. The engine may be running.
func (w *world) fail(faults func(what string) error) { w.failing.Store(&faults) }

func (w *world) fault(what string) error { return (*w.failing.Load())(what) }

// faulty fails where the test says so.
type faulty struct {
	reconcile.Database
	w *world
}

func (f faulty) Settings(ctx context.Context) (reconcile.Settings, error) {
	s, err := f.Database.Settings(ctx)
	return s, cmp.Or(err, f.w.fault("settings read"))
}

func (f faulty) BeginPass(ctx context.Context, p reconcile.Progress, known reconcile.Settings) (int64, error) {
	if err := f.w.fault("begin pass"); err != nil {
		return 0, err
	}
	return f.Database.BeginPass(ctx, p, known)
}

func (f faulty) EndPass(ctx context.Context, r reconcile.Report) error {
	if err := f.w.fault("end pass"); err != nil {
		return err
	}
	return f.Database.EndPass(ctx, r)
}

func (f faulty) SpreadMarks(ctx context.Context, limit int) error {
	if err := f.w.fault("spread"); err != nil {
		return err
	}
	return f.Database.SpreadMarks(ctx, limit)
}

func (f faulty) Marked(ctx context.Context) (bool, error) {
	if err := f.w.fault("marked"); err != nil {
		return false, err
	}
	return f.Database.Marked(ctx)
}

func (f faulty) AddLeftovers(ctx context.Context, places []reconcile.Place) error {
	if err := f.w.fault("leftovers"); err != nil {
		return err
	}
	return f.Database.AddLeftovers(ctx, places)
}

func (f faulty) Settle(ctx context.Context, s reconcile.Settlement) error {
	if f.w.settles != nil {
		f.w.settles(s)
	}
	if len(s.Places) > 0 {
		if err := f.w.fault("settle places"); err != nil {
			return err
		}
	}
	return cmp.Or(f.Database.Settle(ctx, s), f.w.fault("settled"))
}

func (f faulty) ZoneLanes(ctx context.Context) ([]reconcile.Lane, error) {
	if err := f.w.fault("lanes"); err != nil {
		return nil, err
	}
	return f.Database.ZoneLanes(ctx)
}

func (f faulty) State(ctx context.Context, names []string) (reconcile.State, error) {
	if err := f.w.fault("state " + strings.Join(names, " ")); err != nil {
		return reconcile.State{}, err
	}
	return f.Database.State(ctx, names)
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(statement, args...); err != nil {
		w.t.Fatalf("%v in %s", err, statement)
	}
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) tx(f func(ctx context.Context, tx *sql.Tx) error) {
	w.t.Helper()
	tx, err := w.db.Begin()
	if err == nil {
		err = f(w.t.Context(), tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.engine.Wake()
}

// account makes an account of the vendor at an endpoint.
func (w *world) account(key string, endpoint ...string) (id int64) {
	return w.use(reconcile.Account{Provider: "vendor", Endpoint: strings.Join(endpoint, ""), AccessKeyID: key, Secret: "secret"})
}

func (w *world) use(a reconcile.Account) (id int64) {
	w.tx(func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = w.ledger.UseAccount(ctx, tx, a)
		return err
	})
	return id
}

func (w *world) due(name string, lane reconcile.Lane) {
	w.tx(func(ctx context.Context, tx *sql.Tx) error { return w.ledger.MarkDue(ctx, tx, name, lane) })
}

// look makes a name be looked at now.
func (w *world) look(name string) {
	w.exec(`UPDATE names SET look = ? WHERE name = ?`, w.now().UnixMilli(), name)
	w.engine.Wake()
}

// service registers a service of a domain.
func (w *world) service(domain string, account int64) {
	w.exec(`INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
		VALUES (?1, '', '{}', ?1, ?1, ?2, 'vendor', '[]', ?3, '', '')`, domain, dns.Reverse(domain), account)
}

// reserve reserves a prefix of a service, and gives the name. It is not due yet.
func (w *world) reserve(service, prefix string) (name string) {
	w.last++
	name = "_mesh." + prefix + "." + service
	w.exec(`INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		VALUES (?1, ?1, ?2, '', 'custom', ?3, 'TXT', '', 1, '[]', ?4, '')`, w.last, service, prefix, name)
	w.exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?1, ?1, ?1, ?1, ?2, 'active')`, w.last, service)
	w.exec(`INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, NULL, '', 0)`, name)
	return name
}

// start runs the engine.
func (w *world) start() {
	if w.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	engine := w.engine
	go func() {
		defer close(ended)
		if err := engine.Run(ctx); err != nil {
			w.t.Errorf("the engine ends: %v", err)
		}
	}()
	w.stop = sync.OnceFunc(func() { cancel(); <-ended })
	w.t.Cleanup(w.stop)
}

// restart ends the engine and runs a new one.
func (w *world) restart() {
	w.stop()
	w.stop = nil
	w.renew()
	w.start()
}

// sync synchronises within a time.
func (w *world) sync(limit time.Duration) reconcile.Report {
	w.t.Helper()
	return w.synchronise(limit, false)
}

func (w *world) synchronise(limit time.Duration, sweep bool) reconcile.Report {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return <-w.ask(ctx, sweep)
}

// begin synchronises in the background.
func (w *world) begin(sweep bool) <-chan reconcile.Report { return w.ask(context.Background(), sweep) }

// ask asks for a synchronisation, and then starts the engine if it does not run yet: else the pass
// of the start could come first.
func (w *world) ask(ctx context.Context, sweep bool) <-chan reconcile.Report {
	result := make(chan reconcile.Report, 1)
	go func() {
		r, err := w.engine.Sync(ctx, sweep)
		if err != nil {
			w.t.Errorf("sync: %v: %+v\n%s", err, r, w.log.String())
		}
		result <- r
	}()
	synctest.Wait()
	w.start()
	synctest.Wait()
	return result
}

// after lets time pass, and what is due then happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// outcomes are the records of a report as words.
func outcomes(r reconcile.Report) (all []string) {
	for _, o := range r.Records {
		all = append(all, strings.TrimSpace(o.Name+" "+o.Action+" "+o.Fault.Code))
	}
	return all
}

func wantOutcomes(t *testing.T, r reconcile.Report, want ...string) {
	t.Helper()
	if got := outcomes(r); !slices.Equal(got, want) {
		t.Errorf("report %q, want %q; %+v", got, want, r)
	}
}

// vendor keeps zones in memory: every domain of two labels is one.
type vendor struct {
	mu     sync.Mutex
	values map[string][]string
	calls  []string
	before func(ctx context.Context, what, name string) error

	nameless bool   // it gives its zones no ids
	user     string // makes the ids of its zones others
}

func newVendor() *vendor {
	return &vendor{values: map[string][]string{}, before: func(context.Context, string, string) error { return nil }}
}

func (v *vendor) on(before func(ctx context.Context, what, name string) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = before
}

func (v *vendor) call(ctx context.Context, what, name string) error {
	v.mu.Lock()
	v.calls = append(v.calls, what+" "+name)
	before := v.before
	v.mu.Unlock()
	return before(ctx, what, name)
}

// called counts the calls that begin so.
func (v *vendor) called(what string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.calls {
		if strings.HasPrefix(c, what) {
			n++
		}
	}
	return n
}

// changed reports whether a name was written. The caller holds the lock.
func (v *vendor) changed(name string) bool { return slices.Contains(v.calls, "change "+name) }

func (v *vendor) stands(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.values[name]) > 0
}

func (v *vendor) put(name string, values ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[name] = values
}

// hangs lets the calls of a kind about a name hang until their context ends.
func hangs(what, name string) func(context.Context, string, string) error {
	return func(ctx context.Context, w, n string) error {
		if w == what && n == name {
			<-ctx.Done()
			return &provider.Error{Kind: provider.Network, Err: ctx.Err()}
		}
		return nil
	}
}

// holdReads lets reads wait until open is closed. Each of the first nine is told on arrived.
func (v *vendor) holdReads() (arrived, open chan struct{}) {
	arrived, open = make(chan struct{}, 9), make(chan struct{})
	v.on(func(_ context.Context, what, _ string) error {
		if what == "read" {
			arrived <- struct{}{}
			<-open
		}
		return nil
	})
	return arrived, open
}

// client is a client of the vendor.
type client struct {
	v        *vendor
	endpoint string
}

func zoneOf(name string) string {
	labels := strings.Split(name, ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}

func (c client) Zone(ctx context.Context, name string) (string, error) {
	return zoneOf(name), c.v.call(ctx, "zone", zoneOf(name))
}

func (c client) ZoneID(_ context.Context, zone string) (string, error) {
	if c.v.nameless {
		return "", nil
	}
	return zone + c.endpoint + c.v.user, nil
}

// at returns the name at which the vendor keeps the values of a type.
func at(name string, t provider.Type) string {
	if t == provider.TXT {
		return name
	}
	return name + " " + string(t)
}

func (c client) set(name string) (set provider.RRset) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	for _, v := range c.v.values[name] {
		set.Values = append(set.Values, provider.Value{v})
	}
	return set
}

func (c client) Types() []provider.Type {
	return []provider.Type{provider.TXT, provider.A, provider.AAAA, provider.SRV}
}

func (c client) Read(ctx context.Context, zone, name string, t provider.Type) (provider.RRset, error) {
	err := c.v.call(ctx, "read", name)
	return c.set(at(name, t)), err
}

func (c client) ReadAll(ctx context.Context, zone string, wanted provider.Wanted) (map[string]provider.RRset, error) {
	if err := c.v.call(ctx, "list", zone); err != nil {
		return nil, err
	}
	c.v.mu.Lock()
	var names []string
	for name, values := range c.v.values {
		if zoneOf(name) == zone && len(values) > 0 {
			names = append(names, name)
		}
	}
	c.v.mu.Unlock()
	slices.Sort(names)
	all := map[string]provider.RRset{}
	for _, name := range names {
		if err := c.v.call(ctx, "item", name); err != nil {
			return nil, err
		}
		wanted(name, nil)
		all[name] = c.set(name)
	}
	return all, nil
}

func (c client) Change(ctx context.Context, change provider.Change) error {
	if err := c.v.call(ctx, "change", change.Name); err != nil {
		return err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	name := at(change.Name, change.Type)
	values := c.v.values[name]
	for _, add := range change.Add {
		values = append(values, add.Text())
	}
	for _, remove := range change.Remove {
		values = slices.DeleteFunc(values, func(v string) bool { return v == remove.Text() })
	}
	c.v.values[name] = values
	return nil
}

func (c client) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{}, nil
}

// orphan is a value with our mark.
func orphan(network int) string {
	return fmt.Sprintf("v=mesh1 n=%d o=%s tcp://203.0.113.9:1", network, owner)
}

// Delegated finds NS records where a test has put some.
func (c client) Delegated(_ context.Context, zone, domain string) (string, error) {
	if c.v.stands(at(domain, provider.NS)) {
		return domain, nil
	}
	return "", nil
}
