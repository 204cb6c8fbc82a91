// The connections. SQLite needs room on the disk for the index of the WAL. On a full disk without a
// WAL, the readers therefore read the bare file, which nothing can change meanwhile.

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"
)

// drainTime limits how long a write waits for queries that read the bare file.
const drainTime = 2 * time.Second

var errReads = errors.New("queries still read the file as it was on the full disk")

// Pools opens the connections of one database. While it is frozen, readers read the bare file and
// there is no writer.
type Pools struct {
	check        func() error // reports whether the file is still the one to be opened
	live, frozen string       // data sources of readers, with the WAL and without
	drop         func()       // closes idle readers

	thawing sync.Mutex // held while Thaw tries to open the WAL
	anchor  *sql.DB    // keeps the WAL open: SQLite deletes it with the last connection

	mu      sync.Mutex
	still   bool          // new readers read the bare file
	count   int           // connections that read the bare file
	drained chan struct{} // closed when the last of them is closed
}

// NewPools makes the pools of a database. live is the data source of readers, frozen the one that reads
// the bare file (immutable=1). Pools calls check before and after it opens a connection, and fails
// with its error.
func NewPools(check func() error, live, frozen string) *Pools {
	g := &Pools{check: check, live: live, frozen: frozen, drop: func() {}, drained: make(chan struct{})}
	close(g.drained)
	return g
}

// Readers makes the pool of the reading connections, at most size.
func (g *Pools) Readers(size int) *sql.DB {
	pool := g.Snapshots(size)
	pool.SetMaxIdleConns(size)
	g.drop = func() {
		pool.SetMaxIdleConns(-1)
		pool.SetMaxIdleConns(size)
	}
	return pool
}

// Snapshots makes a pool of further reading connections, at most size, for reads that last. It keeps
// no idle connection.
func (g *Pools) Snapshots(size int) *sql.DB {
	pool := sql.OpenDB(connector{func(context.Context) (driver.Conn, error) { return g.reader() }})
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(-1)
	return pool
}

// Writer makes the pool of the one writing connection. It cannot connect while readers read the bare
// file; the error is that of Thaw.
func (g *Pools) Writer(source string) *sql.DB {
	pool := sql.OpenDB(connector{func(ctx context.Context) (driver.Conn, error) {
		if err := g.Thaw(ctx); err != nil {
			return nil, err
		}
		return g.open(source)
	}})
	pool.SetMaxOpenConns(1)
	return pool
}

// Freeze makes new readers read the bare file. The database must have no WAL, and no connection may
// have written yet.
func (g *Pools) Freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.still = true
}

// Frozen reports whether readers read the bare file.
func (g *Pools) Frozen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.still || g.count > 0
}

// Thaw ends the freezing if the disk has room again; otherwise its error is the reason. It returns
// after all readers of the bare file have finished, so that the file may be written.
func (g *Pools) Thaw(ctx context.Context) error {
	if !g.Frozen() {
		return nil
	}
	g.thawing.Lock()
	defer g.thawing.Unlock()
	if !g.Frozen() {
		return nil
	}
	if err := g.try(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	g.still = false
	drained := g.drained
	g.mu.Unlock()
	g.drop()
	select {
	case <-drained:
		return nil
	case <-time.After(drainTime):
		return errReads
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try opens the database with its WAL, and keeps it open.
func (g *Pools) try(ctx context.Context) error {
	if g.anchor != nil {
		return nil
	}
	pool := sql.OpenDB(connector{func(context.Context) (driver.Conn, error) { return g.open(g.live) }})
	var tables int
	if err := pool.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return errors.Join(err, pool.Close())
	}
	g.anchor = pool
	return nil
}

// Close closes the connection that Thaw keeps open.
func (g *Pools) Close() error {
	g.thawing.Lock()
	defer g.thawing.Unlock()
	if g.anchor == nil {
		return nil
	}
	return g.anchor.Close()
}

func (g *Pools) reader() (driver.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.still {
		return g.open(g.live)
	}
	conn, err := g.open(g.frozen)
	if err != nil {
		return nil, err
	}
	if g.count++; g.count == 1 {
		g.drained = make(chan struct{})
	}
	return &frozenConn{SQLiteConn: conn, gate: g}, nil
}

// frozenConn is a connection that reads the bare file. It is valid as long as the pools are frozen.
type frozenConn struct {
	*sqlite3.SQLiteConn
	gate *Pools
	once sync.Once
}

// IsValid is false after the freezing, so that database/sql closes the connection after its query.
func (c *frozenConn) IsValid() bool {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	return c.gate.still
}

// ResetSession fails after the freezing, so that database/sql opens another connection for the query.
func (c *frozenConn) ResetSession(context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return nil
}

// Close closes the connection. After the last one, Thaw goes on.
func (c *frozenConn) Close() error {
	err := c.SQLiteConn.Close()
	c.once.Do(func() {
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		if c.gate.count--; c.gate.count == 0 {
			close(c.gate.drained)
		}
	})
	return err
}

// connector opens the connections of a pool.
type connector struct {
	open func(context.Context) (driver.Conn, error)
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) { return c.open(ctx) }

func (c connector) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

func (g *Pools) open(source string) (*sqlite3.SQLiteConn, error) {
	if err := g.check(); err != nil { // opening another file would spoil the WAL
		return nil, err
	}
	conn, err := (&sqlite3.SQLiteDriver{}).Open(source)
	if err != nil {
		return nil, err
	}
	opened, ok := conn.(*sqlite3.SQLiteConn)
	if !ok {
		return nil, fmt.Errorf("a connection of SQLite is a %T", conn)
	}
	if err := g.check(); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// FoldLog checkpoints the WAL of a database without creating an index of the WAL. No other
// connection may have the database open.
func FoldLog(ctx context.Context, uri string) error {
	db, err := sql.Open("sqlite3", uri+"?mode=rw&_locking_mode=EXCLUSIVE")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	var busy, pages, done int
	err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &done)
	if err == nil && busy != 0 {
		err = fmt.Errorf("%d of %d pages of the log are in the file", done, pages)
	}
	return errors.Join(err, db.Close())
}

// CopyInto copies the database of a data source to the file path, without its free pages.
func CopyInto(ctx context.Context, source, path string) error {
	db, err := sql.Open("sqlite3", source)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, path)
	return err
}
