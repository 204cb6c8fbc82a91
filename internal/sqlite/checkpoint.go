// Background checkpoints, so that no commit waits for a long one.

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

const (
	lookEvery = 8 // commits
	// worthIt is the least number of pages to checkpoint: each checkpoint takes two fsyncs, and copies
	// a page once that was changed several times.
	worthIt = 1000
)

// LogPages is the size of the WAL in pages at which a commit checkpoints it. A background checkpoint
// has done most of that by then.
const LogPages = 3000

// CopiedPages takes the place of LogPages while Litestream copies the WAL, and the background checkpoints nothing.
const CopiedPages = 10 * LogPages

// Checkpointer checkpoints while Run runs. Without Run, SQLite checkpoints in a commit.
type Checkpointer struct {
	writer, reader *sql.DB
	commits        atomic.Int64
	due            chan struct{}
	copied         atomic.Bool
}

// NewCheckpointer makes a Checkpointer. The writer's only connection commits; the reader's
// connections only read and checkpoint.
func NewCheckpointer(writer, reader *sql.DB) *Checkpointer {
	return &Checkpointer{writer: writer, reader: reader, due: make(chan struct{}, 1)}
}

// copied reports whether Litestream, which has a table in the database, copies the WAL. Litestream releases the WAL for a moment
// when it checkpoints, and holds nothing while it does not run. If this program checkpointed meanwhile, the next commit could begin
// the WAL anew, and the copy would lack frames for ever, without an error. So Litestream checkpoints alone.
func copied(ctx context.Context, db *sql.DB) (bool, error) {
	return One[bool](ctx, db, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_litestream_seq')`)
}

// Begin makes the commits checkpoint the WAL when it has LogPages pages, or CopiedPages.
func (k *Checkpointer) Begin(ctx context.Context) error {
	is, err := copied(ctx, k.writer)
	if k.copied.Store(is); err != nil {
		return err
	}
	return k.restore(ctx)
}

// restore sets the size of the WAL for commits after emptyAt has set another one.
func (k *Checkpointer) restore(ctx context.Context) error {
	if k.copied.Load() {
		return k.emptyAt(ctx, CopiedPages)
	}
	return k.emptyAt(ctx, LogPages)
}

// emptyAt sets the size of the WAL in pages at which a commit checkpoints it; 0 means never.
func (k *Checkpointer) emptyAt(ctx context.Context, pages int) error {
	_, err := k.writer.ExecContext(ctx, fmt.Sprintf(`PRAGMA wal_autocheckpoint = %d`, pages))
	return err
}

// Hold runs read, a long read during which the WAL grows. No commit checkpoints during read; Hold
// does so afterwards. If that checkpoint fails, as on a full disk, later commits do it.
func (k *Checkpointer) Hold(ctx context.Context, read func() error) (err error) {
	if err := k.emptyAt(ctx, 0); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	defer func() {
		if !k.copied.Load() {
			_, _ = k.reader.ExecContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`)
		}
		err = errors.Join(err, k.restore(ctx))
	}()
	return read()
}

// Committed must be called after each commit.
func (k *Checkpointer) Committed() {
	if k.commits.Add(1)%lookEvery == 0 {
		select {
		case k.due <- struct{}{}:
		default:
		}
	}
}

// Run checkpoints until ctx ends. After a failure it tries again after the next commits. A failure
// that lasts fails the commits too, and their callers get the error.
func (k *Checkpointer) Run(ctx context.Context, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.due:
			if err := k.work(ctx); err != nil && ctx.Err() == nil {
				log.Debug("the log of the database stays as it is", "error", err)
			}
		}
	}
}

// work checkpoints the WAL if it is long enough. It never waits for a reader or a writer
// (https://sqlite.org/pragma.html#pragma_wal_checkpoint).
func (k *Checkpointer) work(ctx context.Context) error {
	var busy, pages, done int
	if err := k.reader.QueryRowContext(ctx, `PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &pages, &done); err != nil || pages-done < worthIt {
		return err
	}
	if is, err := copied(ctx, k.reader); err != nil || is != k.copied.Swap(is) {
		return errors.Join(err, k.restore(ctx))
	} else if is {
		return nil
	}
	return k.reader.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &pages, &done)
}
