package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

const (
	owner = "0123456789ab"
	host  = "_host.example.com"
)

// began is the time at which a book's clock begins.
var began = time.UnixMilli(1_800_000_000_000)

// book is a ledger on a database file with today's tables and a clock of its own.
type book struct {
	*ledger.Ledger
	t       *testing.T
	events  *events.Log
	db      *sql.DB
	now     time.Time
	erased  int // how often the ledger has told that a key was erased
	commits int
	last    int // usage
}

func newBook(t *testing.T) *book {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_foreign_keys=1&_txlock=immediate&_synchronous=OFF")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	b := &book{t: t, db: db, now: began}
	b.exec(string(schema))
	b.exec(`INSERT INTO appliance (id, owner) VALUES (1, ?);
		INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '')`, owner)
	b.reopen()
	return b
}

// reopen makes the ledger anew, as a program that begins does.
func (b *book) reopen() {
	tx, now := sqlite.NewQueue(b.db, nil, b.committed).Do, func() time.Time { return b.now }
	b.events = events.New(b.db, tx, now, func(int64) {})
	b.Ledger = ledger.New(ledger.Config{
		Reader: b.db, Tx: tx, Zones: builtin.NewTable(nil, "", func() bool { return true }, now), Events: b.events, Addresses: noAddresses, Now: now,
	}, owner)
}

func (b *book) committed(n sqlite.Notice) {
	b.commits++
	if slices.Contains(n, any(sqlite.Replaced{})) {
		b.erased++
	}
}

func noAddresses() reconcile.Addresses { return reconcile.Addresses{} }

// must ends the test after an error.
func (b *book) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) exec(statements string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(statements, args...)
	b.must(err)
}

// texts gives the rows of a query of one column.
func (b *book) texts(query string, args ...any) []string {
	b.t.Helper()
	all, err := sqlite.Collect(b.t.Context(), b.db, sqlite.Text, query, args...)
	b.must(err)
	return all
}

func (b *book) tx(f func(ctx context.Context, tx *sql.Tx) error) {
	b.t.Helper()
	tx, err := b.db.Begin()
	b.must(err)
	defer tx.Rollback()
	b.must(f(b.t.Context(), tx))
	b.must(tx.Commit())
}

// account gives the id of an account that is about to get a user.
func (b *book) account(key, secret string) (id int64) {
	b.t.Helper()
	b.tx(func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = b.UseAccount(ctx, tx, reconcile.Account{Provider: "cloudflare", AccessKeyID: key, Secret: secrets.Secret(secret)})
		return err
	})
	return id
}

// leave reports whether a key goes with an account that has lost a user.
func (b *book) leave(account int64) (deleted bool) {
	b.t.Helper()
	b.tx(func(ctx context.Context, tx *sql.Tx) (err error) {
		deleted, err = ledger.LeaveAccount(ctx, tx, account)
		return err
	})
	return deleted
}

// configure stores a configuration for example.com with an account.
func (b *book) configure(mode string, account int64) {
	b.t.Helper()
	b.exec(`DELETE FROM configuration`)
	b.exec(`INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		    retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, name, account)
		VALUES (1, 'cloudflare', '', '', '', 'example.com', '_host', ?, 7, NULL, 1, '["a://host:1"]', '', 'example.com', ?, ?)`, mode, host, account)
}

// service registers a service of a domain, which is its id. Account 0 is none of its own.
func (b *book) service(domain string, account int64, endpoints ...string) {
	b.t.Helper()
	b.exec(`INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
		VALUES (?1, '', '{}', ?1, ?1, ?2, '', ?3, nullif(?4, 0), '', '')`, domain, dns.Reverse(domain), sqlite.TextList(endpoints), account)
}

// reserve reserves a prefix of a service for a network, and gives the name.
func (b *book) reserve(service, prefix string, network int64, status string) (name string) {
	b.t.Helper()
	b.last++
	name = "_mesh." + prefix + "." + service
	b.exec(`INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		VALUES (?1, 'u' || ?1, ?2, '', 'auto', '_mesh-' || ?3, 'TXT', '', 1, '[]', ?4, '')`, b.last, service, prefix, name)
	b.exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?1, ?1, ?2, 'u' || ?1, ?3, ?4)`, b.last, network, service, status)
	return name
}

// due makes a name due.
func (b *book) due(name string, lane reconcile.Lane) {
	b.t.Helper()
	b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.MarkDue(ctx, tx, name, lane) })
}

// settle stores when to come back to a name.
func (b *book) settle(d reconcile.Due) {
	b.t.Helper()
	b.must(b.Settle(b.t.Context(), reconcile.Settlement{Names: []reconcile.Due{d}}))
}

// name is all that is stored of a name.
func (b *book) name(name string) reconcile.Name {
	b.t.Helper()
	return b.state(name).Names[0]
}

func (b *book) state(names ...string) reconcile.State {
	b.t.Helper()
	state, err := b.State(b.t.Context(), names)
	b.must(err)
	return state
}

// put stores a place with a network's value, and gives it with its id.
func (b *book) put(p reconcile.Place) reconcile.Place {
	b.t.Helper()
	if p.Zone == "" {
		p.Zone = "example.com"
	}
	b.must(b.Intend(b.t.Context(), []string{p.Name}, nil, func(reconcile.State) []*reconcile.Place { return []*reconcile.Place{&p} }))
	return p
}

// shown is what answers show of the usages at a name: their ids, states and rivals.
func (b *book) shown(name string) string {
	b.t.Helper()
	return strings.Join(b.texts(`SELECT concat_ws(' ', id, state, nullif(rival, '')) FROM usages WHERE name = ? ORDER BY seq`, name), ", ")
}

// want compares texts.
func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// value is a network's value as this database writes it.
func value(network int) string {
	return mesh.Value(fmt.Sprint(network), owner, []string{"a://host:1"})
}
