package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mattn/go-sqlite3"
)

// things is a schema of one table.
var things = Schema{
	Tables: `CREATE TABLE things (id INTEGER PRIMARY KEY, text TEXT NOT NULL, of INTEGER REFERENCES things (id)) STRICT`,
	Own:    []string{"things"},
	First:  func(context.Context, *sql.Tx) error { return nil },
	Probe:  `SELECT count(*) FROM things`,
	Oldest: 1,
}

func openThings(t *testing.T, path string) *Database {
	t.Helper()
	d, err := Open(t.Context(), path, things, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// newThing stores a row with a text of 4 KiB.
func (d *Database) newThing(ctx context.Context) error {
	return d.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO things (text) VALUES (printf('%4096s', 'x'))`)
		return err
	})
}

// TestVerifyRemovesCopiesElsewhere: Verify deletes a folder that a killed program left in the system's
// temporary folder.
func TestVerifyRemovesCopiesElsewhere(t *testing.T) {
	path, elsewhere := filepath.Join(t.TempDir(), "x.db"), t.TempDir()
	t.Setenv("TMPDIR", elsewhere)
	hash := fnv.New64a()
	io.WriteString(hash, path)
	left := filepath.Join(elsewhere, fmt.Sprintf(".meshddns-backup-%016x-1", hash.Sum64()))
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	openThings(t, path).Verify(t.Context())
	if _, err := os.Stat(left); err == nil {
		t.Error(left, "is still there")
	}
}

// TestConnections: readers cannot write, and every connection has the settings of the data source.
func TestConnections(t *testing.T) {
	d := openThings(t, filepath.Join(t.TempDir(), "x.db"))
	for range 2 * readers {
		conn, err := d.Reader.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), `DELETE FROM things`); err == nil {
			t.Error("a reader deletes")
		}
		for pragma, want := range map[string]string{"foreign_keys": "1", "journal_mode": "wal", "busy_timeout": "5000", "synchronous": "2"} {
			var got string
			if err := conn.QueryRowContext(t.Context(), `PRAGMA `+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %s, %v, want %s", pragma, got, err, want)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Writer.Exec(`INSERT INTO things (text, of) VALUES ('x', 99)`); err == nil {
		t.Error("a row that refers to none is stored")
	}
}

// TestWALIsKeptForACopy: no commit checkpoints the WAL during Hold; Hold does so afterwards.
func TestWALIsKeptForACopy(t *testing.T) {
	d := openThings(t, filepath.Join(t.TempDir(), "x.db"))
	setting := func() (pages int) {
		t.Helper()
		if err := d.Writer.QueryRow(`PRAGMA wal_autocheckpoint`).Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	state := func() (log, emptied int) {
		t.Helper()
		if err := d.Reader.QueryRow(`PRAGMA wal_checkpoint(NOOP)`).Scan(new(int), &log, &emptied); err != nil {
			t.Fatal(err)
		}
		return log, emptied
	}
	before := setting()
	gone, cancel := context.WithCancel(t.Context())
	err := d.checkpoints.Hold(gone, func() error {
		for range LogPages {
			if err := d.newThing(t.Context()); err != nil {
				return err
			}
		}
		cancel()
		if log, emptied := state(); log < LogPages || emptied > 0 {
			t.Errorf("commits have emptied %d of %d pages", emptied, log)
		}
		return gone.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if log, emptied := state(); emptied < log {
		t.Errorf("only %d of %d pages are emptied", emptied, log)
	}
	if after := setting(); before != LogPages || after != LogPages {
		t.Errorf("a commit empties the WAL at %d pages, and then at %d", before, after)
	}
}

// TestSQLiteVersion: before 3.51.3 two connections that write and checkpoint at the same time could
// corrupt the database (https://sqlite.org/wal.html#walresetbug).
func TestSQLiteVersion(t *testing.T) {
	if version, number, _ := sqlite3.Version(); number < 3_051_003 {
		t.Errorf("SQLite %s: want 3.51.3 at least", version)
	}
}

// TestOpenAfterClose: Open finds the stored rows again, and refuses a database that is open.
func TestOpenAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	d := openThings(t, path)
	committed := 0
	d.Subscribe(func(Notice) { committed++ })
	if err := d.newThing(t.Context()); err != nil || committed != 1 {
		t.Fatalf("%v, %d commits", err, committed)
	}
	if _, err := Open(t.Context(), path, things, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
	if err := d.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var count int
	if err := openThings(t, path).Reader.QueryRow(`SELECT count(*) FROM things`).Scan(&count); err != nil || count != 1 {
		t.Errorf("%d rows, %v", count, err)
	}
}
