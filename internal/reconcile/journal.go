package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"meshddns/internal/secrets"
)

const (
	// journalPatience bounds the time that a caller waits until its lines are written.
	// While the log is stalled, only the first caller waits.
	journalPatience = time.Second
	// journalRoom bounds the lines that wait for a stalled log.
	journalRoom = 1000
)

// journal writes lines to the log in order. Its own goroutine writes them, so a stalled log
// does not delay other work.
type journal struct {
	log *slog.Logger

	mu      sync.Mutex
	lines   []slog.Record
	lost    int           // number of dropped lines
	written chan struct{} // closed once no line waits; nil while none waits
	stalled bool          // a caller has waited for journalPatience in vain
}

// add adds a line, whose texts may come from a provider. It never waits.
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

// wait waits until every line is written, except if the log has stalled. The caller must
// hold no lock.
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

// write writes the waiting lines until there is none.
func (j *journal) write() {
	for {
		lines, lost := j.take()
		if lines == nil {
			return
		}
		for _, line := range lines {
			j.log.Handler().Handle(context.Background(), line) // an error could be reported only to this log
		}
		if lost > 0 {
			j.log.Warn("the log took no lines for a while, and some are lost", "lines", lost)
		}
	}
}

// take returns the waiting lines, nil if there are none.
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
