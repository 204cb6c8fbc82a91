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

// migrated returns the oldest file at a version, and checks that its rows have what they had.
func migrated(t *testing.T, version int, content ...string) *sql.DB {
	t.Helper()
	db := support.OpenSQLite(t, oldfile.New(t, append([]string{oldfile.Content}, content...)...), "_foreign_keys=1")
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
	migrate(t, db, version)
	for query, want := range before {
		if got := support.Rows(t, db, query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	return db
}

// TestTo11: all rows keep what they had, and ids that were given are not given again.
func TestTo11(t *testing.T) {
	db := migrated(t, 11)
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

// TestTo12: what SQL read in the config of a service is in columns, whatever the config is.
func TestTo12(t *testing.T) {
	db := migrated(t, 12, `
		INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, created_at, updated_at)
		SELECT 'odd' || key, '', value, '', '', '', '', '[]', '', '' FROM json_each('[
		    "{\"formats\":[\"wireguard\"],\"check\":{\"kind\":\"tcp\"}}", "{\"formats\":\"x\",\"check\":\"tcp\"}", "{\"formats\":null,\"check\":null}", "[]", "no JSON"]');
		INSERT INTO replays (key, body, answer, at) VALUES ('k', x'00', '{}', 5)`)
	for query, want := range map[string]string{
		`SELECT id || formats || checking FROM services WHERE id LIKE 'odd%' ORDER BY id`: "odd0[\"wireguard\"]{\"kind\":\"tcp\"}\nodd1[]\nodd2[]\nodd3[]\nodd4[]",
		`SELECT DISTINCT ranges FROM secondaries`:                                         "[]",
		`SELECT key || caller || at FROM replays`:                                         "k*5",
		`SELECT owner || seal FROM appliance`:                                             oldfile.Owner,
		`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old\_%' ESCAPE '\'`:          "0",
		`PRAGMA foreign_key_check`:                                                        "",
		`PRAGMA integrity_check`:                                                          "ok",
	} {
		if got := strings.Join(support.Rows(t, db, query), "\n"); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
