// Package checkpoint brings the log of an SQLite database into its file beside the
// commits, so that the one that finds the log long has little of it left to do. While
// somebody reads for long, which makes the log grow, no commit has anything of it to do.
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
	// worthIt is how many pages are in the log only: each time is two syncs, and a page that
	// was changed twice since the last is copied once.
	worthIt = 750
)

// LogPages is the size of the log at which a commit empties it, of which the most has been
// done beside the commits by then.
const LogPages = 3000

// Checkpointer works when Run does. Without it SQLite does all the work in a commit.
type Checkpointer struct {
	writer, reader *sql.DB
	commits        atomic.Int64
	due            chan struct{}
}

// NewCheckpointer makes a keeper of the pool of the one connection that commits, and of a pool whose
// connections write nothing else.
func NewCheckpointer(writer, reader *sql.DB) *Checkpointer {
	return &Checkpointer{writer: writer, reader: reader, due: make(chan struct{}, 1)}
}

// Begin has the commits empty the log when it has LogPages.
func (k *Checkpointer) Begin(ctx context.Context) error { return k.emptyAt(ctx, LogPages) }

// emptyAt sets the size of the log at which a commit empties it; 0 is never.
func (k *Checkpointer) emptyAt(ctx context.Context, pages int) error {
	_, err := k.writer.ExecContext(ctx, fmt.Sprintf(`PRAGMA wal_autocheckpoint = %d`, pages))
	return err
}

// Hold runs something that reads for long, so that the log of the database grows
// meanwhile. No commit has to empty it: that is done here, beside the commits. What was
// read is good even if that fails, as on a full disk; later commits then do it.
func (k *Checkpointer) Hold(ctx context.Context, read func() error) (err error) {
	if err := k.emptyAt(ctx, 0); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	defer func() {
		_, _ = k.reader.ExecContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`)
		err = errors.Join(err, k.emptyAt(ctx, LogPages))
	}()
	return read()
}

// Committed is called after each commit.
func (k *Checkpointer) Committed() {
	if k.commits.Add(1)%lookEvery == 0 {
		select {
		case k.due <- struct{}{}:
		default:
		}
	}
}

// Run works until ctx ends. What fails is tried again after the next commits, and
// what keeps failing fails the commits too, whose callers are told.
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

// work does nothing while the log is short, and waits for nobody
// (https://sqlite.org/pragma.html#pragma_wal_checkpoint).
func (k *Checkpointer) work(ctx context.Context) error {
	var busy, pages, done int
	if err := k.reader.QueryRowContext(ctx, `PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &pages, &done); err != nil || pages-done < worthIt {
		return err
	}
	return k.reader.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &pages, &done)
}
