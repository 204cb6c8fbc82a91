// Package checkpoint brings the log of an SQLite database into its file beside the
// commits, so that the one that finds the log long has little of it left to do.
package checkpoint

import (
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
)

const (
	lookEvery = 8   // commits
	worthIt   = 750 // pages that are in the log only: each time is two syncs
)

// Keeper works when Run does. Without it SQLite does all the work in a commit.
type Keeper struct {
	db      *sql.DB
	commits atomic.Int64
	due     chan struct{}
}

// New makes a keeper, which uses a connection that writes nothing else.
func New(db *sql.DB) *Keeper { return &Keeper{db: db, due: make(chan struct{}, 1)} }

// Committed is called after each commit.
func (k *Keeper) Committed() {
	if k.commits.Add(1)%lookEvery == 0 {
		select {
		case k.due <- struct{}{}:
		default:
		}
	}
}

// Run works until ctx ends. What fails is tried again after the next commits, and
// what keeps failing fails the commits too, whose callers are told.
func (k *Keeper) Run(ctx context.Context, log *slog.Logger) error {
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
func (k *Keeper) work(ctx context.Context) error {
	var busy, pages, done int
	if err := k.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &pages, &done); err != nil || pages-done < worthIt {
		return err
	}
	return k.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &pages, &done)
}
