package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"meshddns/internal/seal"
)

// Schema is the tables of a program, and the steps that migrate older tables to them.
type Schema struct {
	Tables string   // the SQL that creates today's tables in an empty file
	Own    []string // tables of this program; every version has at least one of them
	First  Step     // inserts the first rows of a new file
	Probe  string   // a query that returns one row if the database works
	Oldest int      // the oldest version that opens, at least 1
	Steps  []Step   // Steps[0] leads from version Oldest to the next

	Secrets [][4]string // table with a column id, SQL of what a secret is bound to, column with secrets, column with their hashes or ""; the key's id is in appliance.seal
	Keys    seal.Keys   // of the secrets
	Term    Term        // in which the file is written; its number is in appliance.term
	Over    func() bool // the term has ended: no transaction begins; nil: it never does
}

// Term is a term of the machine that alone may write.
type Term struct {
	Number int64 // 0: none
	After  int64 // of the database that was restored for it
	None   bool  // a term in the file is taken out
}

// takes returns an error if a term does not follow the one in a file.
func (t Term) takes(stored int64) error {
	switch {
	case t.None || stored == t.Number || stored == t.After && t.Number > 0:
		return nil
	case t.Number == 0:
		return fmt.Errorf("it is the database of term %d, which one of two machines writes: start with -term FILE, or take the term out with -term none", stored)
	}
	return fmt.Errorf("it is the database of term %d: want that of term %d, which was restored for term %d, or of term %d itself", stored, t.After, t.Number, t.Number)
}

// ApplicationID is the application id of the program's files (https://sqlite.org/pragma.html#pragma_application_id).
const ApplicationID = 0x6d657368

// Step migrates the tables from one version to the next. A step never changes later: it reads and
// writes the tables as they were in its version.
type Step func(context.Context, *sql.Tx) error

// Version returns the version of today's tables. A file stores its version in user_version, which
// is 0 while the file is empty.
func (s Schema) Version() int { return s.Oldest + len(s.Steps) }

// These are the errors when the file belongs to another program, and when its version is older than Oldest.
var (
	ErrForeign = errors.New("the database of another program, which stays as it is: name another file by -db")
	ErrOld     = errors.New("the file stays as it is: save GET /api/v1/ddns/state of the program that made it, put the secrets in, " +
		"and start this program with that document as -provision and a new file as -db")
)

// VersionOf reads the version of a file, 0 if it is empty. It returns ErrForeign for a file with
// tables of which none is in Own, with the id of another application, or with a negative version.
func (s Schema) VersionOf(ctx context.Context, q Queryer) (version int, err error) {
	var application, tables, ours int
	err = q.QueryRowContext(ctx, `
		SELECT user_version, application_id,
			(SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE '\_litestream\_%' ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'),
			(SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN (SELECT value FROM json_each(?)))
		FROM pragma_user_version, pragma_application_id`, TextList(s.Own)).Scan(&version, &application, &tables, &ours)
	if err != nil {
		return 0, err
	}
	if version < 0 || application != 0 && application != ApplicationID || tables > 0 && (version == 0 || ours == 0) {
		return 0, fmt.Errorf("%w (application_id %d, user_version %d, tables and indexes %d)", ErrForeign, application, version, tables)
	}
	if 0 < version && version < s.Oldest {
		return 0, fmt.Errorf("schema version %d is older than %d, the oldest that this program opens; %w", version, s.Oldest, ErrOld)
	}
	return version, nil
}

// Refuse returns ErrForeign or ErrOld as VersionOf does. It hides all other errors of the read,
// because they come again when the file is opened for writing. The data source must be read-only.
func (s Schema) Refuse(ctx context.Context, source string) error {
	db, err := sql.Open("sqlite3", source)
	if err != nil {
		return err
	}
	_, err = s.VersionOf(ctx, db)
	if fault := db.Close(); fault != nil || errors.Is(err, ErrForeign) || errors.Is(err, ErrOld) {
		return cmp.Or(fault, err)
	}
	return nil
}

// Newer returns the error for a file of a newer program. It names the command that restores the
// copy from before the upgrade, if that copy is still beside the file.
func (s Schema) Newer(version int, file *File) error {
	kept := file.Kept(s.Version())
	if kept == "" {
		return fmt.Errorf("schema version %d is newer than this program's %d, and no copy of version %d was kept beside it: "+
			"start the newer program, or restore a backup", version, s.Version(), s.Version())
	}
	return fmt.Errorf("schema version %d is newer than this program's %d; to go back to what was stored before the upgrade, "+
		"and lose what came after it: %s", version, s.Version(), file.WayBack(kept))
}

// KeepCopy keeps a copy of a database of an older version beside it, and logs the command that
// restores it. After an error there is no copy, and the caller must not migrate.
func (s Schema) KeepCopy(ctx context.Context, db *sql.DB, file *File, version int, log *slog.Logger) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep a copy before the upgrade from version %d to %d, which is not made without: %w",
				version, s.Version(), err)
		}
	}()
	dir, err := file.TempFolder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "copy.db")
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, path); err != nil {
		return err
	}
	kept, err := file.Keep(path, version)
	if err == nil {
		log.Info("the database is kept as it was before the upgrade", "copy", kept, "back", file.WayBack(kept))
	}
	return err
}

// Migrate brings the tables to today's version, in the caller's transaction. If it fails and the
// caller rolls back, the file is unchanged. The file's version must be one that opens.
func (s Schema) Migrate(ctx context.Context, tx *sql.Tx, log *slog.Logger) error {
	var version int
	if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil || version == s.Version() {
		return err
	}
	if version == 0 {
		if err := s.create(ctx, tx); err != nil {
			return err
		}
	} else {
		log.Info("the database is brought to this program's version", "from", version, "to", s.Version())
		for ; version < s.Version(); version++ {
			if err := s.Steps[version-s.Oldest](ctx, tx); err != nil {
				return fmt.Errorf("migrate to version %d: %w", version+1, err)
			}
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, s.Version()))
	return err
}

// create creates the tables of a new file, and inserts its first rows.
func (s Schema) create(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, s.Tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, ApplicationID)); err != nil {
		return err
	}
	return s.First(ctx, tx)
}
