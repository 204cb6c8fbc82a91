// Package support has what tests of several packages need: a log that is read while it is
// written, waits that end, and the rows of a query as text. Only tests import it.
package support

import (
	"bytes"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience bounds every wait.
const Patience = time.Minute

// Log keeps what is logged. Its zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Eventually waits until something holds, or ends the test.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(Patience); !holds(); <-ticker.C {
		if time.Now().After(limit) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// Receive takes what comes from a channel, or ends the test.
func Receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience):
		t.Fatal("nothing came in time")
	}
	return v
}

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
