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
)

// Schema is the tables of a program, and the steps that bring older tables to them.
type Schema struct {
	Tables string   // the SQL that creates today's tables in an empty file
	Own    []string // tables of which every version has at least one; a file without any is foreign
	First  Step     // inserts the first rows of a new file
	Probe  string   // a query that gives a row as long as the database answers
	Steps  []Step   // Steps[0] leads from version 1 to version 2
}

// Step leads from one version to the next. It must not change when the program does: it reads
// and writes the tables as they were in its time.
type Step func(context.Context, *sql.Tx) error

// Version is that of the tables as they are today. A file says its own in user_version,
// which is 0 while it is empty.
func (s Schema) Version() int { return len(s.Steps) + 1 }

// ErrForeign is the error of a file of another program.
var ErrForeign = errors.New("the database of another program, which stays as it is: name another file by -db")

// VersionOf reads the version of a file, 0 while it is empty. A file with tables and none
// of ours, with the id of another application, or with a version below 0 is foreign.
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
	return version, nil
}

// Refuse gives ErrForeign for a file of another program, by a data source that changes
// nothing. Any other error comes again when the file is opened to be written.
func (s Schema) Refuse(ctx context.Context, source string) error {
	db, err := sql.Open("sqlite3", source)
	if err != nil {
		return err
	}
	_, err = s.VersionOf(ctx, db)
	if fault := db.Close(); fault != nil || errors.Is(err, ErrForeign) {
		return cmp.Or(fault, err)
	}
	return nil
}

// Newer is the refusal of a file of a newer program, with what a person can do: the
// command that brings back the copy of before the upgrade, if it is still beside the file.
func (s Schema) Newer(version int, file *File) error {
	kept := file.Kept(s.Version())
	if kept == "" {
		return fmt.Errorf("schema version %d is newer than this program's %d, and no copy of version %d was kept beside it: "+
			"start the newer program, or restore a backup", version, s.Version(), s.Version())
	}
	return fmt.Errorf("schema version %d is newer than this program's %d; to go back to what was stored before the upgrade, "+
		"and lose what came after it: %s", version, s.Version(), file.WayBack(kept))
}

// KeepCopy keeps a copy of a database of an older version beside it, and logs the command
// that brings it back. With an error there is no copy, and nothing may be migrated.
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

// Migrate brings the tables to today's version, and leaves them alone if they are of it.
// All of it, the version too, is the transaction's: an error leaves the file as it was
// when that is rolled back. The version must not be a newer one.
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
			if err := s.Steps[version-1](ctx, tx); err != nil {
				return fmt.Errorf("migrate to version %d: %w", version+1, err)
			}
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, s.Version()))
	return err
}

// create makes the tables of a new file, and its first rows.
func (s Schema) create(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, s.Tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if _, err := tx.ExecContext(ctx, MarkClean); err != nil {
		return err
	}
	return s.First(ctx, tx)
}
