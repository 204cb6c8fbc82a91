// Package tables is a database with a service and usages, for tests of the packages that read and write them.
package tables

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// Owner is the identifier in the values of the database.
const Owner = "0123456789ab"

// Database is the open database of a test.
type Database struct {
	*sqlite.Database
	t testing.TB
}

// Open opens the database at a path. The working folder is that of a package in internal.
func Open(t testing.TB, path string, log *slog.Logger) *Database {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	support.Must(t, err)
	db, err := sqlite.Open(t.Context(), path, sqlite.Schema{
		Tables: string(schema), Own: []string{"appliance"}, First: func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, log)
	support.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return &Database{db, t}
}

// Fill writes the first rows: a service "s" of example.com at a provider, with a config.
func (d *Database) Fill(provider, config string) {
	d.t.Helper()
	d.Exec(`INSERT INTO appliance (id, owner) VALUES (1, ?)`, Owner)
	err := d.Tx(d.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		account, err := ledger.New(ledger.Config{}, "").UseAccount(ctx, tx, reconcile.Account{Provider: provider})
		if err != nil {
			return err
		}
		v := mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "s"}, Config: secrets.Secret(config)}
		read, err := mesh.ParseServiceConfig(v.Config)
		if err != nil {
			return err
		}
		read.Domain, read.Provider = "example.com", provider
		return ledger.New(ledger.Config{}, "").SaveService(ctx, tx, v, read, sql.Null[int64]{V: account, Valid: true}, "")
	})
	support.Must(d.t, err)
}

// Usage reserves a name for network 7. Its id is "u" and the number.
func (d *Database) Usage(seq int64, name string, endpoints ...string) {
	d.t.Helper()
	d.Exec(`INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		VALUES (?1, 'u' || ?1, 's', '', 'auto', 'p' || ?1, 'TXT', '', 1, ?2, ?3, '')`, seq, sqlite.TextList(endpoints), name)
	d.Exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?1, ?1, 7, 'u' || ?1, 's', 'active')`, seq)
}

// Exec executes a statement in a transaction.
func (d *Database) Exec(statement string, args ...any) {
	d.t.Helper()
	err := d.Tx(d.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if err != nil {
		d.t.Fatalf("%v in %s", err, statement)
	}
}

// Texts returns the rows of a query of one column.
func (d *Database) Texts(query string) []string {
	d.t.Helper()
	all, err := sqlite.Collect(d.t.Context(), d.Reader, sqlite.Text, query)
	if err != nil {
		d.t.Fatalf("%v in %s", err, query)
	}
	return all
}
