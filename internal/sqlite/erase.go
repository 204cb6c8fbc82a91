// Erasing of secrets that were replaced or deleted.

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	firstPause = 50 * time.Millisecond // changes that come together share one emptying
	maxPause   = 10 * time.Second
	warnPause  = 5 * time.Second // a reader has kept the WAL for about this long

	// waitTime bounds, in milliseconds, what a try waits for each lock, and so how long
	// writers wait for it.
	waitTime = 20
)

// Eraser empties the WAL in the background. With secure_delete SQLite overwrites deleted secrets in the
// file, but the WAL keeps them until it is emptied.
type Eraser struct {
	writer, reader *sql.DB
	busyTime       int // of the writer, in milliseconds
	log            *slog.Logger
	stop           context.CancelFunc
	stopped        context.Context
	work           sync.WaitGroup

	mu      sync.Mutex
	asked   int
	running bool
	closed  bool
	told    bool // that another program keeps the log
}

// NewEraser makes an eraser of the pool of the one connection that writes, which waits so
// long for locks (busy_timeout), and of that of the readers.
func NewEraser(writer, reader *sql.DB, busyTime time.Duration, log *slog.Logger) *Eraser {
	s := &Eraser{writer: writer, reader: reader, busyTime: int(busyTime.Milliseconds()), log: log}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// Ask has the WAL emptied soon. The Eraser tries until it succeeds, after longer and longer pauses: a
// reader that began before the change may keep the WAL.
func (s *Eraser) Ask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.running || s.closed {
		return
	}
	s.running = true
	s.work.Go(s.run)
}

// Wait waits until the WAL is emptied as often as Ask was called.
func (s *Eraser) Wait() { s.work.Wait() }

// Close stops the tries, after a last one when one is due.
func (s *Eraser) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

func (s *Eraser) run() {
	for pause, last := firstPause, false; !last; pause = min(2*pause, maxPause) {
		select {
		case <-time.After(pause):
		case <-s.stopped.Done():
			last = true
		}
		s.mu.Lock()
		asked := s.asked
		s.mu.Unlock()
		err := s.empty()
		if err != nil && pause < warnPause && 2*pause >= warnPause {
			s.log.Warn("replaced secrets stay in the log of the database for now", "error", err)
		}
		s.mu.Lock()
		done := err == nil && s.asked == asked
		s.running = !done
		s.mu.Unlock()
		if done {
			return
		}
		if err == nil {
			pause = firstPause / 2
		}
	}
}

// ApplicationID is the application id (https://sqlite.org/pragma.html#pragma_application_id) of
// a database that has never been written without secure_delete, or is clean of that.
const ApplicationID = 0x6d657368

// MarkClean is the statement that marks a new database as clean.
var MarkClean = fmt.Sprintf(`PRAGMA application_id = %d`, ApplicationID)

// Clean rewrites a database once that was used without secure_delete. No change is made meanwhile. room
// reports whether the disk has enough room.
func (s *Eraser) Clean(ctx context.Context, room func() bool) error {
	var id int64
	if err := s.reader.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id); err != nil || id == ApplicationID {
		return err
	}
	if !room() {
		return errors.New("write the database anew: that takes more room than is free")
	}
	begun := time.Now()
	defer s.Ask() // the log is as long as the file now
	if _, err := s.writer.ExecContext(ctx, `VACUUM`); err != nil {
		return fmt.Errorf("write the database anew: %w", err)
	}
	if _, err := s.writer.ExecContext(ctx, MarkClean); err != nil {
		return fmt.Errorf("mark the database as clean: %w", err)
	}
	s.log.Info("the database is clean of secrets that were replaced or deleted earlier", "time", time.Since(begun))
	return nil
}

// kept reports whether Litestream, which has a table in the database, copies the WAL. Litestream
// releases the WAL for a moment when it checkpoints. If this program emptied the WAL then, Litestream's
// copy would lack frames for ever, without an error.
func (s *Eraser) kept(ctx context.Context) (kept bool, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_litestream_seq')`).Scan(&kept)
	if kept && !s.told {
		s.told = true
		s.log.Info("replaced secrets stay in the log of the database until Litestream empties it, and in its copies")
	}
	return kept, err
}

// empty checkpoints the WAL and truncates it. It does most of the checkpoint beside the commits, and
// the rest while no commit is made. It does not wait for a reader.
func (s *Eraser) empty() (err error) {
	ctx := context.Background()
	if _, err := s.reader.ExecContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`); err != nil {
		return err
	}
	if kept, err := s.kept(ctx); err != nil || kept {
		return err
	}
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, s.busyTime))
	if _, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, waitTime)); err != nil {
		return err
	}
	var busy, pages, done int
	if err := conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &done); err != nil {
		return err
	}
	if busy != 0 {
		return fmt.Errorf("a reader keeps the log: %d of %d pages are in the file", done, pages)
	}
	return nil
}
