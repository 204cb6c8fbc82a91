// The erasing of secrets that were replaced or deleted.

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	firstPause = 50 * time.Millisecond // changes within this time share one emptying of the WAL
	maxPause   = 10 * time.Second
	warnPause  = 5 * time.Second // a reader has kept the WAL for about this long

	// waitTime limits the wait of one try for each lock, in milliseconds. Writers wait for as long.
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
	told    bool // the log says that Litestream keeps the WAL
}

// NewEraser makes an Eraser. writer is the pool of the one writing connection, busyTime its
// busy_timeout, reader the pool of the readers.
func NewEraser(writer, reader *sql.DB, busyTime time.Duration, log *slog.Logger) *Eraser {
	s := &Eraser{writer: writer, reader: reader, busyTime: int(busyTime.Milliseconds()), log: log}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// Ask asks for the WAL to be emptied soon. The Eraser tries until it succeeds, with growing pauses,
// because a reader that began before the change may keep the WAL.
func (s *Eraser) Ask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.running || s.closed {
		return
	}
	s.running = true
	s.work.Go(s.run)
}

// Wait waits until the WAL was emptied after the last call of Ask.
func (s *Eraser) Wait() { s.work.Wait() }

// Close ends the tries. If the WAL is still to be emptied, it makes a last try.
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

// kept reports whether Litestream keeps the WAL, see copied.
func (s *Eraser) kept(ctx context.Context) (kept bool, err error) {
	if kept, err = copied(ctx, s.reader); kept && !s.told {
		s.told = true
		s.log.Info("replaced secrets stay in the log of the database until Litestream empties it, and in its copies")
	}
	return kept, err
}

// empty checkpoints and truncates the WAL. Most of the checkpoint runs beside the commits; commits
// wait for the rest. It does not wait for readers.
func (s *Eraser) empty() (err error) {
	ctx := context.Background()
	if kept, err := s.kept(ctx); err != nil || kept {
		return err
	}
	if _, err := s.reader.ExecContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`); err != nil {
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
