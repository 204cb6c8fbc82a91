package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// newGate makes Pools for a closed database of one row.
func newGate(t *testing.T, check func() error) (g *Pools, live string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.db")
	live = "file:" + path + "?_journal_mode=WAL"
	db, err := sql.Open("sqlite3", live)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE rows (id); INSERT INTO rows VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return NewPools(check, live, "file:"+path+"?mode=ro&immutable=1"), live
}

func count(t *testing.T, q interface {
	QueryRow(string, ...any) *sql.Row
}) (n int) {
	t.Helper()
	if err := q.QueryRow(`SELECT count(*) FROM rows`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestThaw: the first write ends the freezing, but only after all readers of the bare file have finished.
func TestThaw(t *testing.T) {
	g, live := newGate(t, func() error { return nil })
	g.Freeze()
	reader, writer := g.Readers(2), g.Writer(live)
	defer func() {
		if err := errors.Join(reader.Close(), writer.Close(), g.Close()); err != nil {
			t.Error(err)
		}
	}()
	reading, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, reading); n != 1 || count(t, reader) != 1 || !g.Frozen() {
		t.Fatalf("%d rows, frozen %v", n, g.Frozen())
	}
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := writer.ExecContext(soon, `INSERT INTO rows VALUES (2)`); err == nil || !g.Frozen() {
		t.Errorf("written while the bare file is read: %v", err)
	}
	if _, err := writer.Exec(`INSERT INTO rows VALUES (2)`); !errors.Is(err, errReads) {
		t.Errorf("written while the bare file is read: %v", err)
	}
	if _, err := writer.Exec(`INSERT INTO rows VALUES (2)`); !errors.Is(err, errReads) {
		t.Errorf("written by the second try while the bare file is read: %v", err)
	}
	if n := count(t, reading); n != 1 {
		t.Errorf("%d rows", n)
	}
	if err := reading.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Exec(`INSERT INTO rows VALUES (2)`); err != nil || g.Frozen() {
		t.Errorf("%v, frozen %v", err, g.Frozen())
	}
	if n := count(t, reader); n != 2 {
		t.Errorf("%d rows are read after the write", n)
	}
}

// TestCheckedFile: no connection is opened if check fails before.
func TestCheckedFile(t *testing.T) {
	gone := errors.New("gone")
	var fault error
	g, _ := newGate(t, func() error { return fault })
	other := filepath.Join(t.TempDir(), "other.db")
	reader, writer := g.Readers(2), g.Writer("file:"+other+"?_journal_mode=WAL")
	defer reader.Close()
	defer writer.Close()
	if n := count(t, reader); n != 1 {
		t.Errorf("%d rows", n)
	}
	fault = gone
	if n := count(t, reader); n != 1 {
		t.Errorf("%d rows by the connection that is open", n)
	}
	if _, err := writer.Exec(`INSERT INTO rows VALUES (2)`); !errors.Is(err, gone) {
		t.Errorf("the writer: %v", err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("another file was opened all the same")
	}
}

// TestFileChangesWhileOpened: no connection is kept if check fails after it was opened.
func TestFileChangesWhileOpened(t *testing.T) {
	gone := errors.New("gone")
	asked := 0
	g, _ := newGate(t, func() error {
		if asked++; asked%2 == 0 {
			return gone
		}
		return nil
	})
	reader := g.Readers(2)
	defer reader.Close()
	if err := reader.Ping(); !errors.Is(err, gone) {
		t.Error(err)
	}
}
