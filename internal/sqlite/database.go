// Package sqlite keeps one SQLite database file. It locks and opens the file, brings its schema
// to the program's version, seals secrets with another key, commits changes in groups, checkpoints
// the WAL, erases replaced secrets, makes backups, and reports damage of the file. It knows no table
// of the program, except that appliance has the id of the key and the term.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"meshddns/internal/seal"
)

// Database is an open database file. One connection writes, because SQLite has one writer;
// readers read the last committed state beside it (WAL).
type Database struct {
	Reader, Writer *sql.DB
	Key            seal.Key // of the secrets in the tables
	Snapshots      *sql.DB  // reads as Reader does, for transactions that last

	path        string
	schema      Schema
	log         *slog.Logger
	file        *File
	pools       *Pools
	queue       *Queue
	checkpoints *Checkpointer
	eraser      *Eraser
	commits     atomic.Int64
	full        atomic.Bool           // the last write found the disk full
	damage      atomic.Pointer[error] // the damage that Verify found

	mu          sync.Mutex
	subscribers []func(Notice)
}

// Replaced in a Notice says that a secret was replaced or deleted. It is then erased from the WAL.
type Replaced struct{}

const (
	readers   = 4
	snapshots = 9               // eight transfers of zones, and Answers
	busyTime  = 5 * time.Second // how long a connection waits for the lock of another program
)

// Open opens the database file at path, creates it when there is none, and brings its tables to
// the schema's version. It refuses a file that another program uses, the file of another
// program (ErrForeign), and one with a newer schema or with one that is too old (ErrOld), and
// leaves those as they are. On a full disk the database can be read only, until the disk has room.
func Open(ctx context.Context, path string, schema Schema, log *slog.Logger) (_ *Database, err error) {
	d := &Database{path: filepath.Clean(path), schema: schema, log: log}
	if d.file, err = takeFile(ctx, path, schema); err != nil {
		return nil, err
	}
	if err := d.file.RemoveTempFolders(); err != nil {
		log.Warn("what a backup has left beside the database stays there", "error", err)
	}
	// A cache of 1 MB for each reader holds the upper pages of every index.
	live := dataSource(d.path, url.Values{"_query_only": {"1"}, "_cache_size": {"-1000"}})
	d.pools = NewPools(d.file.Check, live, bareSource(d.path))
	d.Reader, d.Snapshots = d.pools.Readers(readers), d.pools.Snapshots(snapshots)
	// A cache of 4 MB holds the pages of many indexes that reservations change in random order.
	d.Writer = d.pools.Writer(dataSource(d.path, url.Values{"_txlock": {"immediate"}, "_cache_size": {"-4000"}, "_secure_delete": {"on"}}))
	d.checkpoints = NewCheckpointer(d.Writer, d.Reader)
	d.queue = NewQueue(d.Writer, d, d.committed)
	d.eraser = NewEraser(d.Writer, d.Reader, busyTime, log)
	if err = d.begin(ctx); err == nil && len(schema.Secrets) > 0 {
		err = d.unlock(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, onFileSystem(d.file.Target(), err)), d.Close())
	}
	return d, nil
}

// takeFile locks the file at path, and creates it when there is none. Before it writes anything it refuses a file of another
// program, and to create one in the place of another term's.
func takeFile(ctx context.Context, path string, schema Schema) (*File, error) {
	file, err := FindFile(path)
	if err != nil {
		return nil, err
	}
	source := bareSource(file.Target()) // reading it creates no file beside it
	if file.LogSize() > 0 {
		source = dataSource(file.Target(), url.Values{"mode": {"ro"}})
	}
	err = schema.Refuse(ctx, source)
	if err == nil && size(file.Target()) == 0 {
		err = schema.Term.takes(0)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Target(), err)
	}
	return file, file.Take()
}

// dataSource returns the data source name of a database with the settings of every connection: a
// PRAGMA would reach one connection of a pool only.
func dataSource(path string, settings url.Values) string {
	if !settings.Has("mode") {
		settings.Set("mode", "rw") // Take creates the file: a connection never creates another one
	}
	settings.Set("_journal_mode", "WAL")
	if !settings.Has("_synchronous") {
		settings.Set("_synchronous", "FULL")
	}
	settings.Set("_foreign_keys", "1")
	settings.Set("_busy_timeout", strconv.FormatInt(busyTime.Milliseconds(), 10))
	settings.Set("_mutex", "no") // database/sql uses a connection in one goroutine at a time
	settings.Set("_stmt_cache_size", "64")
	return fileURI(path) + "?" + settings.Encode()
}

// bareSource returns the data source name for reading the file alone, without its WAL. Nothing
// may change the file meanwhile.
func bareSource(path string) string {
	return fileURI(path) + "?mode=ro&immutable=1&_cache_size=-1000&_mutex=no&_stmt_cache_size=64"
}

func fileURI(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// begin reads the version of the file, and brings the tables to today's.
func (d *Database) begin(ctx context.Context) error {
	version, stored, err := d.look(ctx, d.Writer)
	switch {
	case FaultOf(err) == Full:
		return d.beginFrozen(ctx, err)
	case err != nil:
		return err
	case 0 < version && version < d.schema.Version():
		if err := d.schema.KeepCopy(ctx, d.Writer, d.file, version, d.log); err != nil {
			return err
		}
	}
	err = d.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := d.schema.Migrate(ctx, tx, d.log.With("file", d.path))
		if err == nil && stored != d.schema.Term.Number {
			_, err = tx.ExecContext(ctx, `UPDATE appliance SET term = ?`, d.schema.Term.Number)
		}
		return err
	})
	if err := errors.Join(err, d.checkpoints.Begin(ctx)); err != nil {
		return err
	}
	if version == 0 {
		path, _ := filepath.Abs(d.path)
		d.log.Warn("a new database is made", "file", path) // the path may be a mistake
	}
	return d.file.CheckLogged()
}

// look reads version and term of the file, 0 for none. It refuses a newer version, and a term that ours does not follow.
func (d *Database) look(ctx context.Context, q Queryer) (version int, term int64, err error) {
	if version, err = d.schema.VersionOf(ctx, q); err == nil && version > d.schema.Version() {
		err = d.schema.Newer(version, d.file)
	}
	var has bool
	if err == nil {
		err = q.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info('appliance') WHERE name = 'term'`).Scan(&has)
	}
	if err == nil && has {
		err = q.QueryRowContext(ctx, `SELECT term FROM appliance`).Scan(&term)
	}
	return version, term, cmp.Or(err, d.schema.Term.takes(term))
}

// beginFrozen makes the database readable on a disk without room for the index of the WAL. A
// WAL that is left can be read without an index, because no other program has the file open.
func (d *Database) beginFrozen(ctx context.Context, full error) error {
	if d.file.LogSize() > 0 {
		if err := FoldLog(ctx, fileURI(d.path)); err != nil {
			return fmt.Errorf("%w; its log cannot be read without room: make some", errors.Join(full, err))
		}
	}
	d.pools.Freeze()
	version, stored, err := d.look(ctx, d.Reader)
	switch {
	case err != nil:
		return err
	case stored != d.schema.Term.Number:
		return fmt.Errorf("store the term: %w", full)
	case version < d.schema.Version():
		return fmt.Errorf("bring the schema from version %d to %d: %w", version, d.schema.Version(), full)
	}
	d.log.Error("the disk is full: nothing can be stored until it has room", "file", d.path, "error", full)
	d.full.Store(true)
	return nil
}

// Noted and Note are those of the file.
func (d *Database) Noted() (number int64, known bool) { return d.file.Noted() }

// Note is called after commits. It logs nothing, because the next number makes up for a fault.
func (d *Database) Note(number int64) { d.file.Note(number) }

// Close closes the database. SQLite copies the WAL into the file when the last connection closes.
func (d *Database) Close() error {
	d.eraser.Close()
	return errors.Join(d.Reader.Close(), d.Snapshots.Close(), d.Writer.Close(), d.pools.Close(), d.file.Close())
}

// Tx runs f in a transaction and commits it if f returns nil. Queue.Do may group it with the
// transactions of other callers, and may run f twice. The end of ctx does not cancel it.
func (d *Database) Tx(ctx context.Context, f TxFunc) error {
	err := d.queue.Do(ctx, f)
	if err != nil && FaultOf(err) == Full {
		d.full.Store(true)
	}
	return err
}

// Subscribe calls f after each commit, in the order of the commits and before a caller of Tx gets its result.
// f must not change the database.
func (d *Database) Subscribe(f func(Notice)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers = append(slices.Clone(d.subscribers), f)
}

func (d *Database) committed(n Notice) {
	d.commits.Add(1)
	d.checkpoints.Committed()
	if slices.Contains(n, any(Replaced{})) {
		d.Erase()
	}
	d.mu.Lock()
	subscribers := d.subscribers
	d.mu.Unlock()
	for _, f := range subscribers {
		f(n)
	}
}

// Commits returns the number of commits since the opening. If it has not changed, neither has anything stored.
func (d *Database) Commits() int64 { return d.commits.Load() }

// Reading returns the transaction that ctx belongs to, which sees its own changes. Outside a
// transaction it returns the pool of readers, which see the last committed state.
func (d *Database) Reading(ctx context.Context) Queryer {
	if tx := Tx(ctx); tx != nil {
		return tx
	}
	return d.Reader
}

// Erase asks the eraser to empty the WAL soon, so that replaced and deleted secrets cannot be read
// from it.
func (d *Database) Erase() { d.eraser.Ask() }

// WaitErased waits until the WAL is emptied, as Erase asked.
func (d *Database) WaitErased() { d.eraser.Wait() }

// Lost returns why no transaction may begin: the term is over, or the file is lost. With CheckLogged the Database is the
// Guard of its queue.
func (d *Database) Lost() error {
	if d.schema.Over != nil && d.schema.Over() {
		return Refusal("term_over")
	}
	return d.file.Lost()
}

// CheckLogged is that of the file.
func (d *Database) CheckLogged() error { return d.file.CheckLogged() }

// Checkpoint runs background checkpoints until ctx ends.
func (d *Database) Checkpoint(ctx context.Context) error { return d.checkpoints.Run(ctx, d.log) }

const (
	minRoom    = 4 << 10  // octets of a page
	enoughRoom = 64 << 10 // octets of a change and the index of the WAL
)

// Answers returns an error if the database does not answer. It waits for no reader, because the requests of one client
// can keep them all at work.
func (d *Database) Answers(ctx context.Context) error {
	return d.Snapshots.QueryRowContext(ctx, d.schema.Probe).Scan(new(int))
}

// Health returns nil if the database works. Otherwise it returns the reason: the database does not
// answer, its file was moved or replaced, it is damaged, or it cannot be written.
func (d *Database) Health(ctx context.Context) error {
	if err := d.Reader.QueryRowContext(ctx, d.schema.Probe).Scan(new(int)); err != nil {
		return err
	}
	if err := d.file.Check(); err != nil {
		return err
	}
	if damage := d.damage.Load(); damage != nil {
		return *damage
	}
	return d.room(ctx)
}

// room returns the reason why the database cannot be written. After a write that found the disk
// full, it tries another write when there is room again. That write changes one page only, and
// may fit into the last page of the WAL.
func (d *Database) room(ctx context.Context) error {
	free, folder := d.file.Free()
	full := d.full.Load()
	switch {
	case free < minRoom, full && free < enoughRoom:
		return fmt.Errorf("%d octets are free in %s: %w", free, folder, syscall.ENOSPC)
	case !full:
		return nil
	}
	err := d.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, d.schema.Version()))
		return err
	})
	if err == nil {
		d.full.Store(false)
	}
	return err
}

// verifyAfter delays Verify, so that the start of the program has the disk to itself.
const verifyAfter = 300 * time.Millisecond

// Verify reads the whole file once, a moment after the start, and erases secrets that a killed run
// left in its WAL. It reads one table at a time, so that the WAL can be emptied meanwhile. Health
// reports the damage that it finds.
func (d *Database) Verify(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(verifyAfter):
		d.verify(ctx)
	}
}

func (d *Database) verify(ctx context.Context) {
	d.file.RemoveFoldersElsewhere()
	if !d.pools.Frozen() && d.file.LogSize() > 0 {
		d.Erase() // the program may have been killed before it could
	}
	begun := time.Now()
	err := FindDamage(ctx, d.Reader)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		d.log.Info("the database is sound", "time", time.Since(begun))
	case FaultOf(err) == Damaged:
		d.damage.Store(&err)
		d.log.Error("restore a backup", "file", d.path, "error", err)
	default:
		d.log.Warn("the database is not looked through", "error", err)
	}
}

// keptTime is how long a copy from before an upgrade, which has the secrets of its time, is kept.
const keptTime = 30 * 24 * time.Hour

// RemoveKept deletes the copies from before an upgrade that are older than 30 days, now and each day
// until ctx ends.
func (d *Database) RemoveKept(ctx context.Context) error {
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		removed, err := d.file.RemoveKept(d.schema.Version(), time.Now().Add(-keptTime))
		for _, path := range removed {
			d.log.Info("a copy from before an upgrade, with the secrets of its time, is deleted after 30 days", "file", path)
		}
		if err != nil {
			d.log.Warn("a copy from before an upgrade stays, with the secrets of its time", "error", err)
		}
		select {
		case <-daily.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Backup makes a consistent copy of the live database and opens the copy. The copy has no name, so
// that it is deleted when the caller closes it.
func (d *Database) Backup(ctx context.Context) (*os.File, error) {
	return d.file.Copied(func(path string) error {
		if d.pools.Frozen() {
			return CopyInto(ctx, bareSource(d.path), path)
		}
		return d.checkpoints.Hold(ctx, func() error {
			// Only the copy is written, and an fsync of it would delay every commit.
			return CopyInto(ctx, dataSource(d.path, url.Values{"_synchronous": {"OFF"}}), path)
		})
	})
}
