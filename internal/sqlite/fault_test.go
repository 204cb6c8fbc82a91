package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want FaultKind
	}{
		{nil, OtherFault},
		{errors.New("database or disk is full"), OtherFault},
		{sqlite3.Error{Code: sqlite3.ErrConstraint}, OtherFault},
		{sqlite3.Error{Code: sqlite3.ErrIoErr}, Broken},
		{sqlite3.Error{Code: sqlite3.ErrFull}, Full},
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.ENOSPC}, Full},
		{sqlite3.Error{Code: sqlite3.ErrCantOpen, SystemErrno: syscall.EDQUOT}, Full},
		{syscall.ENOSPC, Full},
		{sqlite3.Error{Code: sqlite3.ErrBusy}, Locked},
		{sqlite3.Error{Code: sqlite3.ErrCorrupt}, Damaged},
		{sqlite3.Error{Code: sqlite3.ErrNotADB}, Damaged},
	} {
		if got := FaultOf(c.err); got != c.want {
			t.Errorf("%v is %d, want %d", c.err, got, c.want)
		}
		if c.err != nil && FaultOf(fmt.Errorf("commit: %w", c.err)) != c.want {
			t.Errorf("%v is another kind when it is wrapped", c.err)
		}
	}
}

// TestFindNothing: a FindDamage that cannot read reports no damage.
func TestFindNothing(t *testing.T) {
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "")
	if _, err := db.Exec(`CREATE TABLE a (x); CREATE TABLE b (y PRIMARY KEY) WITHOUT ROWID`); err != nil {
		t.Fatal(err)
	}
	if err := FindDamage(t.Context(), db); err != nil {
		t.Error(err)
	}
	db.Close()
	if err := FindDamage(t.Context(), db); err == nil || FaultOf(err) == Damaged {
		t.Errorf("a closed database: %v", err)
	}
}
