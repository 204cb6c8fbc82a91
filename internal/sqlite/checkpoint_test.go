package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

// TestRun: Run copies committed pages into the file, although the WAL is too short for a commit to do so.
func TestRun(t *testing.T) {
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "_journal_mode=WAL")
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE t (b BLOB)`); err != nil {
		t.Fatal(err)
	}
	k := NewCheckpointer(db, db)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := k.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- k.Run(ctx, slog.New(slog.DiscardHandler)) }()
	for range lookEvery {
		if _, err := db.Exec(`INSERT INTO t VALUES (zeroblob(800000))`); err != nil {
			t.Fatal(err)
		}
		k.Committed()
	}
	for {
		var busy, pages, done int
		if err := db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &pages, &done); err != nil {
			t.Fatalf("the log is never brought into the file: %v", err)
		}
		if pages < worthIt || pages >= LogPages {
			t.Fatalf("the log has %d pages: want %d to %d", pages, worthIt, LogPages-1)
		}
		if done == pages {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestCommittedWaitsForNobody: Committed returns at once, even if Run is busy or not running.
func TestCommittedWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		k := NewCheckpointer(nil, nil)
		for range 10 * lookEvery {
			k.Committed()
		}
	})
}
