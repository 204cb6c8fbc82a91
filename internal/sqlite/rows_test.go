package sqlite

import (
	"context"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

// Number gives what QueryRowContext and Scan give, and its connection back whatever it finds.
func TestNumber(t *testing.T) {
	pool := support.OpenSQLite(t, t.TempDir()+"/a.db", "_stmt_cache_size=8")
	pool.SetMaxOpenConns(1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx   context.Context
		query string
		args  []string
		want  int64
		bad   bool
	}{
		{query: `SELECT 7`, want: 7},
		{query: `SELECT length(?1) * 100 + length(?2)`, args: []string{"four", ""}, want: 400},
		{query: `SELECT 1 WHERE ?1 = 'x'`, args: []string{"y"}, bad: true},
		{query: `SELECT 'text'`, bad: true},
		{query: `SELECT NULL`, bad: true},
		{query: `SELECT * FROM nowhere`, bad: true},
		{query: `SELECT ?1`, bad: true},
		{ctx: gone, query: `SELECT 7`, bad: true},
		{query: `SELECT length(?1)`, args: []string{"again"}, want: 5},
	} {
		if test.ctx == nil {
			test.ctx = t.Context()
		}
		n, err := Number(test.ctx, pool, test.query, test.args...)
		if n != test.want || (err != nil) != test.bad || pool.Stats().InUse != 0 {
			t.Errorf("%s, %q: %d, %v, %d connections in use", test.query, test.args, n, err, pool.Stats().InUse)
		}
	}
}
