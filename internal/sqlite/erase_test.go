package sqlite

import (
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

// TestLogOfLitestream: the WAL is emptied when Ask is called, except while Litestream copies it.
func TestLogOfLitestream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	open := func() *sql.DB {
		db := support.OpenSQLite(t, path, "_journal_mode=WAL&_secure_delete=on")
		t.Cleanup(func() { db.Close() })
		return db
	}
	var log strings.Builder
	writer, reader := open(), open()
	s := NewEraser(writer, reader, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range []struct {
		statement string
		kept      bool
	}{
		{`CREATE TABLE t (x)`, false},
		{`CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)`, true},
		{`INSERT INTO t VALUES ('secret')`, true},
		{`DROP TABLE _litestream_seq`, false},
	} {
		if _, err := writer.Exec(c.statement); err != nil {
			t.Fatal(err)
		}
		s.Ask()
		s.Wait()
		info, err := os.Stat(path + "-wal")
		if err != nil || info.Size() > 0 != c.kept {
			t.Errorf("after %s the log has %d octets, %v", c.statement, info.Size(), err)
		}
	}
	if n := strings.Count(log.String(), "Litestream"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &log)
	}
}
