package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

// TestMigrate: the steps from a file's version on run once, in order, and then the version is today's.
func TestMigrate(t *testing.T) {
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "")
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`PRAGMA user_version = 5`); err != nil {
		t.Fatal(err)
	}
	var ran []int
	step := func(to int, err error) Step {
		return func(context.Context, *sql.Tx) error { ran = append(ran, to); return err }
	}
	migrate := func(last error) (version int, err error) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		s := Schema{Oldest: 4, Steps: []Step{step(5, nil), step(6, nil), step(7, last)}}
		if err := s.Migrate(t.Context(), tx, slog.New(slog.DiscardHandler)); err != nil {
			return 0, err
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		err = db.QueryRow(`PRAGMA user_version`).Scan(&version)
		return version, err
	}
	fault := errors.New("no step")
	if _, err := migrate(fault); !errors.Is(err, fault) {
		t.Errorf("the last step fails: %v", err)
	}
	for range 2 {
		if version, err := migrate(nil); version != 7 || err != nil {
			t.Errorf("version %d, %v", version, err)
		}
	}
	if want := []int{6, 7, 6, 7}; !slices.Equal(ran, want) {
		t.Errorf("the steps to %v, want %v", ran, want)
	}
}
