package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meshddns/test/support"
)

// openDatabase opens the database of a program, which may be running.
func openDatabase(t *testing.T, path string) *sql.DB {
	t.Helper()
	return support.OpenSQLite(t, path, "_busy_timeout=10000")
}

// invariants are the queries of testdata/invariants.sql, of which none gives a row.
func invariants(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/invariants.sql")
	if err != nil {
		t.Fatal(err)
	}
	for query := range strings.SplitSeq(string(text), ";\n") {
		if query = strings.TrimSpace(query); query != "" {
			queries = append(queries, query)
		}
	}
	return queries
}

// unsound says what is wrong with a database.
func unsound(t *testing.T, db *sql.DB) (wrong []string) {
	t.Helper()
	for _, query := range invariants(t) {
		rows, err := db.Query(query)
		if err != nil {
			wrong = append(wrong, err.Error()+" in "+query)
			continue
		}
		for rows.Next() {
			var text sql.NullString
			if err := rows.Scan(&text); err != nil {
				text.String = err.Error()
			}
			wrong = append(wrong, text.String)
		}
		if err := rows.Err(); err != nil {
			wrong = append(wrong, err.Error())
		}
		rows.Close()
	}
	return wrong
}

// mustBeSound fails when something is wrong with a database.
func mustBeSound(t *testing.T, db *sql.DB) {
	t.Helper()
	if wrong := unsound(t, db); len(wrong) > 0 {
		t.Errorf("the database:\n%s", strings.Join(wrong, "\n"))
	}
}

// Each of the invariants finds what it is there for.
func TestInvariants(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "meshddns.db")
	p := start(t, "-db", path)
	p.configure("manual", "tcp://203.0.113.7:1")
	for i, mode := range []string{"custom", "custom", "auto", "auto"} {
		p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":%q,"custom_prefix":"site-%d","network_id":%d}`, mode, i, i))
	}
	p.call(200, "POST", syncPath, "")
	p.stop()
	mustBeSound(t, openDatabase(t, path))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, fault := range [][2]string{
		{"a reference of", `UPDATE usages SET provider_id = 'gone'`},
		{"a usage without a binding", `DELETE FROM bindings WHERE seq = 1`},
		{"a binding that is not of its usage", `UPDATE bindings SET usage_id = 'x' WHERE seq = 1`},
		{"a prefix given twice", `DROP INDEX usages_by_name; UPDATE usages SET record_prefix = 'SITE-0' WHERE seq = 2`},
		{"an automatic name of two networks", `UPDATE usages SET name = 'x' WHERE prefix_mode = 'auto'`},
		{"a prefix of the other mode", `UPDATE usages SET prefix_mode = 'auto' WHERE seq = 1`},
		{"a usage at another name", `UPDATE services SET zone = 'x'`},
		{"a usage whose name nobody works on", `DELETE FROM names WHERE name LIKE '_mesh.site-0.%'`},
		{"a place whose name nobody works on", `UPDATE places SET name = 'x' WHERE id = 1`},
		{"a configuration whose name nobody works on", `UPDATE configuration SET name = 'x'`},
		{"a key that nothing needs", `INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES ('x', '', '', '', '')`},
		{"a count of usages that is wrong", `UPDATE services SET usage_count = 1`},
		{"a total that is wrong: services", `UPDATE totals SET count = 30 WHERE what = 'services'`},
		{"a total that is wrong: failed", `INSERT INTO totals VALUES ('failed', 1)`},
		{"a usage that tells of a place", `UPDATE usages SET place = 99`},
		{"rows of what there is one of", `DELETE FROM pass`},
		{"no owner", `UPDATE appliance SET owner = 'nobody there'`},
	} {
		broken := filepath.Join(dir, fmt.Sprintf("%d.db", i))
		if err := os.WriteFile(broken, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		db := openDatabase(t, broken)
		if _, err := db.Exec(fault[1]); err != nil {
			t.Fatal(err)
		}
		if wrong := strings.Join(unsound(t, db), "\n"); !strings.Contains(wrong, fault[0]) {
			t.Errorf("%s: %q is not found, but %q", fault[1], fault[0], wrong)
		}
	}
	torn := filepath.Join(dir, "torn.db")
	for i := 40; i < 60; i++ {
		copy(whole[i*len(whole)/64:], "this is not what was written here")
	}
	if err := os.WriteFile(torn, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if wrong := unsound(t, openDatabase(t, torn)); len(wrong) == 0 {
		t.Error("a torn file is sound")
	}
}
