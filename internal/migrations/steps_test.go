package migrations

import (
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/sqlite"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// migrate brings a database to a version.
func migrate(t *testing.T, db *sql.DB, version int) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	schema := sqlite.Schema{Oldest: Oldest, Steps: Steps()[:version-Oldest]}
	if err := schema.Migrate(t.Context(), tx, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestTo11: all rows keep what they had, and ids that were given are not given again.
func TestTo11(t *testing.T) {
	db := support.OpenSQLite(t, oldfile.New(t, oldfile.Content), "_foreign_keys=1")
	db.SetMaxOpenConns(1)
	before := map[string][]string{}
	for _, table := range support.Rows(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table'`) {
		columns := support.Rows(t, db, `SELECT group_concat(name, ', ') FROM pragma_table_info('`+table+`')`)[0]
		query := `SELECT ` + columns + ` FROM ` + table + ` ORDER BY ` + columns
		before[query] = support.Rows(t, db, query)
	}
	if len(before) < 20 {
		t.Fatalf("%d tables", len(before))
	}
	migrate(t, db, 11)
	for query, want := range before {
		if got := support.Rows(t, db, query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string]string{
		`SELECT DISTINCT gone FROM places`:                                       "",
		`SELECT count(*) FROM names WHERE asked <> version`:                      "0",
		`SELECT zone_key FROM zone_serials ORDER BY zone`:                        "com.example.mesh\nexample.a.b.net",
		`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old\_%' ESCAPE '\'`: "0",
		`PRAGMA foreign_key_check`:                                               "",
		`PRAGMA integrity_check`:                                                 "ok",
	} {
		if got := strings.Join(support.Rows(t, db, query), "\n"); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
