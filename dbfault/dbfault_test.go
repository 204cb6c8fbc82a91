package dbfault

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{nil, Other},
		{errors.New("database or disk is full"), Other},
		{sqlite3.Error{Code: sqlite3.ErrConstraint}, Other},
		{sqlite3.Error{Code: sqlite3.ErrIoErr}, Broken},
		{sqlite3.Error{Code: sqlite3.ErrFull}, Full},
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.ENOSPC}, Full},
		{sqlite3.Error{Code: sqlite3.ErrCantOpen, SystemErrno: syscall.EDQUOT}, Full},
		{syscall.ENOSPC, Full},
		{sqlite3.Error{Code: sqlite3.ErrBusy}, Locked},
		{sqlite3.Error{Code: sqlite3.ErrCorrupt}, Damaged},
		{sqlite3.Error{Code: sqlite3.ErrNotADB}, Damaged},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%v is %d, want %d", c.err, got, c.want)
		}
		if c.err != nil && Of(fmt.Errorf("commit: %w", c.err)) != c.want {
			t.Errorf("%v is another kind when it is wrapped", c.err)
		}
	}
}

// Who cannot look has found no damage.
func TestFindNothing(t *testing.T) {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE a (x); CREATE TABLE b (y PRIMARY KEY) WITHOUT ROWID`); err != nil {
		t.Fatal(err)
	}
	if err := Find(t.Context(), db); err != nil {
		t.Error(err)
	}
	db.Close()
	if err := Find(t.Context(), db); err == nil || Of(err) == Damaged {
		t.Errorf("a closed database: %v", err)
	}
}
