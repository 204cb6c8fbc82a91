// Package oldfile makes databases as the oldest version that opens left them. Only tests
// import it.
package oldfile

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// Version is the version of every old database, and Owner its owner.
const (
	Version = 10
	Owner   = "0123456789ab"
)

var (
	//go:embed schema-10.sql
	tables string
	// Content makes the rows that a program of that version stored.
	//go:embed content-10.sql
	Content string
)

// New makes a database in a folder of its own, with the content that the statements make.
func New(t testing.TB, content ...string) (path string) {
	path = filepath.Join(t.TempDir(), "meshddns.db")
	Make(t, path, content...)
	return path
}

// Make makes a database at a path.
func Make(t testing.TB, path string, content ...string) {
	t.Helper()
	db := support.OpenSQLite(t, path, "_journal_mode=WAL&_foreign_keys=1")
	defer db.Close()
	db.SetMaxOpenConns(1)
	first := fmt.Sprintf(`
		INSERT INTO appliance (id, owner) VALUES (1, '%s');
		INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '');
		PRAGMA user_version = %d;
		PRAGMA application_id = %d`, Owner, Version, sqlite.ApplicationID)
	for _, statements := range append([]string{tables, first}, content...) {
		if _, err := db.Exec(statements); err != nil {
			t.Fatalf("%v in %s", err, statements)
		}
	}
}
