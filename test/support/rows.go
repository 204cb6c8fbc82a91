package support

import (
	"database/sql"
	"strings"
	"testing"
)

// Rows gives the rows of a query, a line each, the cells with " | " between them.
func Rows(t testing.TB, db *sql.DB, query string) (lines []string) {
	t.Helper()
	for _, cells := range Cells(t, db, query) {
		lines = append(lines, strings.Join(cells, " | "))
	}
	return lines
}

// Cells gives the cells of each row of a query as texts, "" for NULL.
func Cells(t testing.TB, db *sql.DB, query string) (all [][]string) {
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
		var row []string
		for _, cell := range cells {
			row = append(row, cell.String)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
