package support

import (
	"database/sql"
	"strings"
	"testing"
)

// Rows gives the rows of a query, a line each, the cells with " | " between them.
func Rows(t testing.TB, db *sql.DB, query string) (lines []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, cell := range cells {
			words = append(words, cell.String)
		}
		lines = append(lines, strings.Join(words, " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
