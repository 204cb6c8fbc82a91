package builtin_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/internal/sqlite"
)

// world is a database of built-in zones, and servers that answer from it.
type world struct {
	t       testing.TB
	path    string
	db      *sql.DB
	open    *sqlite.Database
	table   *builtin.Table
	catalog string
	changed func(sqlite.Notice) // is told of what the test itself stores
	ctx     context.Context     // ends with the test
	ending  sync.WaitGroup
}

func newWorld(t testing.TB) *world {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, path: filepath.Join(t.TempDir(), "x.db"), changed: func(sqlite.Notice) {}}
	db, err := sqlite.Open(t.Context(), w.path, sqlite.Schema{
		Tables: string(schema), First: func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w.db = db.Writer
	w.exec(`INSERT INTO appliance (id, owner) VALUES (1, '0123456789ab')`)
	w.open = db
	w.name("")
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	t.Cleanup(func() { cancel(); w.ending.Wait() })
	return w
}

// name gives the catalog a name.
func (w *world) name(catalog string) {
	w.catalog = catalog
	w.table = builtin.NewTable(w.open, catalog, func() bool { return true }, time.Now)
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(statement, args...); err != nil {
		w.t.Fatalf("%v in %s", err, statement)
	}
}

// task runs until the test ends.
func (w *world) task(run func(context.Context) error) {
	w.ending.Go(func() {
		if err := run(w.ctx); err != nil && w.ctx.Err() == nil {
			w.t.Error(err)
		}
	})
}

// listen starts a server and gives its address. Peers may transfer its zones.
func (w *world) listen(zones builtin.Zones, peers ...nameserver.Peers) string {
	w.t.Helper()
	c := nameserver.Config{Addresses: []string{"127.0.0.1:0"}}
	if len(peers) > 0 {
		c.Peers, c.Versions = peers[0], w.table
		c.Catalog, _ = dns.ParseName(w.catalog)
	}
	server, err := nameserver.Listen(c, zones, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.task(server.Serve)
	return server.Addr()
}

// put publishes a value at a name without values.
func (w *world) put(name, value string) {
	w.t.Helper()
	client := builtin.Client{Store: w.table, Address: "x"}
	err := client.Change(w.t.Context(), provider.Change{Type: provider.TXT, Name: name, Add: []provider.Value{{value}}, TTL: 60})
	if err != nil {
		w.t.Fatal(err)
	}
}

// serial gives the stored serial of a zone.
func (w *world) serial(zone string) (serial uint32) {
	w.t.Helper()
	if err := w.db.QueryRow(`SELECT serial FROM zone_serials WHERE zone = ?`, zone).Scan(&serial); err != nil {
		w.t.Fatal(err)
	}
	return serial
}

// change replaces a row that may name a zone, "" for none.
func (w *world) change(zone, find string, replace func(tx *sql.Tx) error) error {
	return w.table.ChangeZones(w.t.Context(), func(ctx context.Context, tx *sql.Tx, change *builtin.ZoneChange) error {
		var before string
		if err := tx.QueryRow(find).Scan(&before); err != nil {
			return err
		}
		if err := change.Begin(ctx, tx, before, zone); err != nil {
			return err
		}
		return replace(tx)
	})
}

// putService registers a service of a zone and a provider, or removes it without a zone.
func (w *world) putService(id, zone, provider string) error {
	return w.change(zone, `SELECT coalesce((SELECT zone FROM services WHERE id = '`+id+`'), '')`, func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM services WHERE id = ?`, id)
		if err == nil && zone != "" {
			_, err = tx.Exec(`
				INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, created_at, updated_at)
				VALUES (?1, '', '{}', ?2, ?2, ?3, ?4, '[]', '', '')`, id, zone, dns.Reverse(zone), provider)
		}
		return err
	})
}

// configure gives the configuration a zone and a provider.
func (w *world) configure(zone, provider string) error {
	return w.change(zone, `SELECT coalesce((SELECT zone FROM configuration), '')`, func(tx *sql.Tx) error {
		_, err := tx.Exec(`
			INSERT OR IGNORE INTO accounts (id, provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (1, '', '', '', '', '');
			REPLACE INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
			    enabled, txt_endpoints, updated_at, zone, name, account)
			VALUES (1, ?1, '', '', '', ?2, '_t', '', 0, '[]', '', ?2, '_t.' || ?2, 1)`, provider, zone)
		return err
	})
}

// zone makes a name a zone.
func (w *world) zone(name string) {
	w.t.Helper()
	if err := w.putService(name, name, msg.Builtin); err != nil {
		w.t.Fatal(err)
	}
}

// foreign adds a value that no client has added.
func (w *world) foreign(name string, value provider.Value) {
	w.t.Helper()
	w.exec(`INSERT INTO zone_records (name, type, data, ttl) VALUES (?, 16, ?, 120)`, key(name), dns.TXTData(value))
	w.changed(sqlite.Notice{builtin.Changed{Records: []string{key(name)}}})
}

// key is a name as the zones have it: folded, labels from the root.
func key(name string) string { return dns.Reverse(dns.Fold(name)) }
