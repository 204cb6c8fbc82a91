package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"meshddns/internal/secrets"
)

const (
	// journalPatience is how long a caller waits until its lines are written. While the log takes
	// none, only the first caller waits.
	journalPatience = time.Second
	// journalRoom bounds the lines that wait for a log that takes none.
	journalRoom = 1000
)

// journal writes lines of the log in their order. A goroutine of its own writes them, so a log that
// takes no lines holds no other work up.
type journal struct {
	log *slog.Logger

	mu      sync.Mutex
	lines   []slog.Record
	lost    int           // lines for which there was no room
	written chan struct{} // closed when no line waits any more; nil while none does
	stalled bool          // a caller has waited in vain
}

// add takes a line whose words may come from a provider. It never waits.
func (j *journal) add(level slog.Level, message string, attributes ...any) {
	for i, value := range attributes {
		if text, ok := value.(string); ok {
			attributes[i] = secrets.Printable(text)
		}
	}
	if !j.log.Enabled(context.Background(), level) {
		return
	}
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.Add(attributes...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) >= journalRoom {
		j.lost++
		return
	}
	j.lines = append(j.lines, line)
	if j.written == nil {
		j.written = make(chan struct{})
		go j.write()
	}
}

// wait waits until every line is written, but not for a log that has stalled. The caller holds
// no lock.
func (j *journal) wait() {
	j.mu.Lock()
	written, stalled := j.written, j.stalled
	j.mu.Unlock()
	if written == nil || stalled {
		return
	}
	patience := time.NewTimer(journalPatience)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stalled = j.written != nil
	}
}

// write writes what waits, until nothing does.
func (j *journal) write() {
	for {
		lines, lost := j.take()
		if lines == nil {
			return
		}
		for _, line := range lines {
			j.log.Handler().Handle(context.Background(), line) // there is no other place to tell that it fails
		}
		if lost > 0 {
			j.log.Warn("the log took no lines for a while, and some are lost", "lines", lost)
		}
	}
}

// take gives the lines that wait, nil when there is none.
func (j *journal) take() (lines []slog.Record, lost int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines, lost = j.lines, j.lost
	if j.lines, j.lost = nil, 0; lines == nil {
		close(j.written)
		j.written, j.stalled = nil, false
	}
	return lines, lost
}
