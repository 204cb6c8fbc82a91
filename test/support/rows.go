package support

import (
	"database/sql"
	"strings"
	"testing"
)

// Exec runs statements, which must succeed, in a database or a transaction.
func Exec(t testing.TB, db interface {
	Exec(query string, args ...any) (sql.Result, error)
}, statements string, args ...any) {
	t.Helper()
	_, err := db.Exec(statements, args...)
	Must(t, err)
}

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
	Must(t, err)
	cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		Must(t, rows.Scan(into...))
		var row []string
		for _, cell := range cells {
			row = append(row, cell.String)
		}
		all = append(all, row)
	}
	Must(t, rows.Err())
	return all
}
