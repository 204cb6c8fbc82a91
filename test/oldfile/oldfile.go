// Package oldfile makes databases as earlier versions of the program left them. Only tests
// import it.
package oldfile

import (
	"database/sql"
	_ "embed"
	"log/slog"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/migrations"
	"meshddns/internal/sqlite"
)

//go:embed schema-1.sql
var schema1 string

// toVersion2 is what the program added in version 2.
const toVersion2 = `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 2`

// Owner is the owner of every old database.
const Owner = "0123456789ab"

// New makes a database of version 1 or 2 with the content that the statements make.
func New(t testing.TB, version int, content ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "meshddns.db")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_foreign_keys=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := []string{schema1, `INSERT INTO appliance (id, owner, dns_serial) VALUES (1, '` + Owner + `', 77)`, `PRAGMA user_version = 1`}
	if version == 2 {
		statements = append(statements, toVersion2)
	}
	for _, statement := range append(statements, content...) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	return path
}

// Both runs a test for both versions.
func Both(t *testing.T, test func(t *testing.T, version int)) {
	t.Run("version 1", func(t *testing.T) { test(t, 1) })
	t.Run("version 2", func(t *testing.T) { test(t, 2) })
}

// Bring brings a database to a version between its own and the program's.
func Bring(t testing.TB, path string, version int) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_foreign_keys=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err == nil {
		schema := sqlite.Schema{Steps: migrations.Steps()[:version-1]}
		err = schema.Migrate(t.Context(), tx, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}
