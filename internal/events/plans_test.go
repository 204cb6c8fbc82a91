package events

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meshddns/test/support"
)

// Every query finds its events by an index. Those of a name are sorted afterwards, because an index
// leads to each of its usages.
func TestPlans(t *testing.T) {
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "")
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	queries := map[string][]any{
		selectEvents + ofName + ` AND kind IN (SELECT value FROM json_each(?)) ORDER BY seq DESC LIMIT 1`: {"", "", "", "[]"},
		nameOfUsage: {"", ""}, countEvents: {1, 1, 1, "[]"},
	}
	for _, f := range []Filter{{}, {Newest: true}, {Kind: "record.*"}, {UsageID: "u"}, {Name: "n"}, {Name: "n", Service: "s"}, {Name: "n", UsageID: "u", Kind: "usage.reserved", Newest: true}} {
		query, args := f.query(1, 10)
		queries[query] = args
	}
	for query, args := range queries {
		if plan := explain(t, db, query, args); strings.Contains(plan, "SCAN events") || !strings.Contains(plan, "SEARCH events") {
			t.Errorf("%s\n%s", query, plan)
		}
	}
}

// explain returns the plan of a query.
func explain(t *testing.T, db *sql.DB, query string, args []any) (plan string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var step string
		if err := rows.Scan(new(int), new(int), new(int), &step); err != nil {
			t.Fatal(err)
		}
		plan += step + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}
