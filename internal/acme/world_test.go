package acme

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/events"
	"meshddns/internal/lease"
	"meshddns/internal/ledger"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/test/tables"
)

const (
	name  = "_mesh.a.example.com"
	place = "_acme-challenge.a.example.com"
)

// value makes a challenge.
func value(n int) string { return fmt.Sprintf("%043d", n) }

// world is a database with a usage, an engine that publishes at a vendor, and the routes of nodes.
type world struct {
	t      *testing.T
	db     *tables.Database
	vendor *vendor
	engine *reconcile.Engine
	leases *lease.Table
	routes http.Handler
	taken  func(ctx context.Context, zone string) bool
}

func newWorld(t *testing.T, provided string) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	w := &world{t: t, vendor: &vendor{values: map[string][]string{}, alias: map[string]string{}}, taken: func(context.Context, string) bool { return true }}
	w.db = tables.Open(t, filepath.Join(t.TempDir(), "x.db"), log)
	w.db.Fill(provided, "{}")
	w.db.Exec(`UPDATE accounts SET access_key_secret = 'secret'`)
	w.db.Exec(`INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '')`)
	w.db.Exec(`INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		    retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, name, account)
		SELECT 1, provider, 'key', 'secret', '', 'example.com', '_host', 'auto', 5, 0, 1, '["tcp://203.0.113.7:1"]', '', 'example.com', '_host.example.com', id FROM accounts`)
	w.db.Usage(1, name, "tcp://192.0.2.1:11010")
	now := func() time.Time { return time.Now().Round(0) }
	history := events.New(w.db.Reader, w.db.Tx, now, func(int64) {})
	zones := builtin.NewTable(w.db.Database, "", func() bool { return true }, now)
	addresses := func() reconcile.Addresses { return reconcile.Addresses{} }
	book := ledger.New(ledger.Config{Reader: w.db.Reader, Tx: w.db.Tx, Zones: zones, Events: history, Addresses: addresses, Now: now}, tables.Owner)
	made := 0
	w.leases = lease.NewTable(lease.Config{
		Database: w.db.Database, Events: history, Now: now, Log: log, Ledger: book,
		NewID: func() (string, error) { made++; return fmt.Sprint("l", made), nil },
	})
	ready := make(chan struct{})
	close(ready)
	w.engine = reconcile.New(reconcile.Config{
		Database: book, Addresses: addresses, Ready: ready, Interval: 5 * time.Minute, Writes: func(string) int { return 3600 }, Log: log, Now: now,
		Open: func(a reconcile.Account) (provider.DNS, error) {
			if a.Provider == msg.Builtin {
				return builtin.Client{Store: zones, Address: "127.0.0.1:53"}, nil
			}
			return w.vendor, nil
		},
	})
	w.db.Subscribe(history.Committed)
	w.db.Subscribe(w.leases.Committed)
	w.db.Subscribe(func(sqlite.Notice) { w.engine.Wake() })
	w.must(w.leases.Load(t.Context()))
	doors := Calls(Config{Leases: w.leases, Expect: w.engine.Expect, Taken: func(ctx context.Context, zone string) bool { return w.taken(ctx, zone) }})
	w.routes = lease.NewNodes(lease.ListenerConfig{Leases: w.leases, Listed: book.Listed, Doors: doors, Log: log}).Handler()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.must(<-ended)
		w.must(w.db.Close())
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// lease makes a lease of usage u1, and returns its token.
func (w *world) lease(slot string, may bool) string {
	w.t.Helper()
	return w.leaseOf("u1", slot, may)
}

func (w *world) leaseOf(usage, slot string, may bool) string {
	w.t.Helper()
	_, token, _, err := w.leases.Create(w.t.Context(), lease.Creation{Usage: usage, Rules: lease.Rules{Slot: slot, TTL: time.Hour, ACME: may}})
	w.must(err)
	return string(token)
}

// another reserves the name once more: usage u2 of service "more".
func (w *world) another() {
	w.t.Helper()
	w.db.Exec(`INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, formats, created_at, updated_at)
		SELECT 'more', name, config, domain, zone, zone_key, provider, txt_endpoints, account, formats, '', '' FROM services`)
	w.db.Usage(2, "_mesh.x.example.com", "tcp://192.0.2.2:11010")
	w.db.Exec(`UPDATE usages SET provider_id = 'more', name = ? WHERE seq = 2`, name)
	w.db.Exec(`UPDATE bindings SET provider_id = 'more' WHERE seq = 2`)
}

// answer is an answer, with the time that it took.
type answer struct {
	status int
	code   msg.ID
	body   string
	after  string // Retry-After
	took   time.Duration
}

// post sends a request with a token.
func (w *world) post(token, path, body string) answer {
	begin := time.Now()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(w.t.Context(), "POST", path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+token)
	w.routes.ServeHTTP(recorder, request)
	h := recorder.Header()
	return answer{recorder.Code, msg.ID(h.Get("X-Error-Code")), recorder.Body.String(), h.Get("Retry-After"), time.Since(begin)}
}

// update puts a challenge as acme-dns does.
func (w *world) update(token, text string) answer {
	return w.post(token, "/update", text2json(map[string]string{"subdomain": "any", "txt": text}))
}

// lego is the body of a call of lego.
func lego(fqdn, text string) string { return text2json(map[string]string{"fqdn": fqdn, "value": text}) }

func text2json(body map[string]string) string {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// want compares an answer.
func (w *world) want(what string, a answer, status int, code msg.ID) {
	w.t.Helper()
	if a.status != status || a.code != code {
		w.t.Errorf("%s: %d %s after %v: %s", what, a.status, a.code, a.took, a.body)
	}
}

// stored wants the numbers of the stored challenges, the elder first.
func (w *world) stored(want ...string) {
	w.t.Helper()
	if got := w.db.Texts(`SELECT ltrim(value, '0') FROM challenges ORDER BY seq`); !slices.Equal(got, want) {
		w.t.Errorf("the challenges are %q, want %q", got, want)
	}
}

// stands wants the values at the vendor, in any order.
func (w *world) stands(want ...string) {
	w.t.Helper()
	w.vendor.mu.Lock()
	defer w.vendor.mu.Unlock()
	if got := slices.Sorted(slices.Values(w.vendor.values[place])); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("there stand %q, want %q", got, want)
	}
}

// vendor keeps a zone in memory, for other writers too.
type vendor struct {
	mu     sync.Mutex
	values map[string][]string
	alias  map[string]string
	late   time.Time // until then reads of challenges show nothing
	down   bool
	kind   provider.Kind // of the failure while it is down; "": of the network
}

func (v *vendor) put(name string, values ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[name] = append(v.values[name], values...)
}

func (v *vendor) lock() (unlock func(), err error) {
	v.mu.Lock()
	if v.down {
		err = &provider.Error{Kind: cmp.Or(v.kind, provider.Network)}
	}
	return v.mu.Unlock, err
}

// Zone has one zone.
func (v *vendor) Zone(context.Context, string) (string, error) {
	unlock, err := v.lock()
	defer unlock()
	return "example.com", err
}

// Types has the one type of challenges.
func (v *vendor) Types() []provider.Type { return []provider.Type{provider.TXT} }

func (v *vendor) Read(_ context.Context, _, name string, _ provider.Type) (set provider.RRset, err error) {
	unlock, err := v.lock()
	defer unlock()
	if name == place && time.Now().Before(v.late) {
		return set, err
	}
	set.Alias = msg.Text(v.alias[name])
	for _, text := range v.values[name] {
		set.Values = append(set.Values, provider.Value{text})
	}
	return set, err
}

func (v *vendor) Change(_ context.Context, change provider.Change) error {
	unlock, err := v.lock()
	defer unlock()
	if err != nil {
		return err
	}
	values := v.values[change.Name]
	for _, add := range change.Add {
		if !slices.Contains(values, add.Text()) {
			values = append(values, add.Text())
		}
	}
	for _, remove := range change.Remove {
		values = slices.DeleteFunc(values, func(text string) bool { return text == remove.Text() })
	}
	v.values[change.Name] = values
	return nil
}

func (v *vendor) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{}, nil
}
