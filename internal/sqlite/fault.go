// The meaning of SQLite's errors for the operator, and the search for damage.

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

// FaultKind sorts errors by their remedy.
type FaultKind int

const (
	OtherFault FaultKind = iota // no error of SQLite, or a violated constraint
	Broken                      // another error of SQLite
	Full                        // the disk or its quota is full
	Locked                      // another program holds the database
	Damaged                     // the file is no database, or a part of it is damaged
)

// FaultOf returns the kind of an error, which may be wrapped.
func FaultOf(err error) FaultKind {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return Full
	}
	if errors.Is(err, errFound) {
		return Damaged
	}
	fault, ok := errors.AsType[sqlite3.Error](err)
	if !ok {
		return OtherFault
	}
	switch {
	case fault.Code == sqlite3.ErrFull, fault.SystemErrno == syscall.ENOSPC, fault.SystemErrno == syscall.EDQUOT:
		return Full
	case fault.Code == sqlite3.ErrBusy, fault.Code == sqlite3.ErrLocked:
		return Locked
	case fault.Code == sqlite3.ErrCorrupt, fault.Code == sqlite3.ErrNotADB:
		return Damaged
	case fault.Code == sqlite3.ErrConstraint:
		return OtherFault
	}
	return Broken
}

// errFound is the error when a part of the file cannot be read.
var errFound = errors.New("the database is damaged")

// maxFound limits the description of a damage, in octets.
const maxFound = 300

// FindDamage reads a whole database. It returns an error of kind Damaged when a part cannot be read, and
// another error when it cannot look. It goes table by table, so that the WAL can be emptied in
// between, and closes its connection afterwards, because that connection has cached every page.
func FindDamage(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Raw(func(any) error { return driver.ErrBadConn })
	tables, err := Collect(ctx, conn, Text, `SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0`)
	if err != nil {
		return err
	}
	for _, table := range tables {
		found, err := Collect(ctx, conn, Text, `SELECT * FROM pragma_quick_check(?)`, table)
		if kind := FaultOf(err); kind == Damaged || kind == Broken {
			return fmt.Errorf("%w: table %s: %w", errFound, table, err)
		}
		if err != nil {
			return err
		}
		if text := strings.Join(found, "; "); text != "ok" {
			return fmt.Errorf("%w: table %s: %s", errFound, table, text[:min(len(text), maxFound)])
		}
	}
	return nil
}
