// The queue of a log writes without a wait: a reader that stops or goes stops nothing but the log.

package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxWaiting bounds the octets of the lines that wait to be written. As many more are being written.
	maxWaiting = 256 << 10
	// closeTime is the time for the last lines.
	closeTime = time.Second
)

// LogQueue passes lines to a writer from one goroutine. When maxWaiting octets wait, it drops further
// lines. A line that says how many were dropped stands in their place, as soon as the writer takes lines again.
type LogQueue struct {
	output io.Writer
	format func(io.Writer) slog.Handler // of the line about dropped lines
	ended  chan struct{}                // closed when all is written after Close

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	closed  bool
	missed  uint64 // lines that were dropped, and that no line of the log tells yet
	dropped uint64 // since the start
}

// NewLogQueue returns a queue. format makes a handler of the log's form.
func NewLogQueue(output io.Writer, format func(io.Writer) slog.Handler) *LogQueue {
	q := &LogQueue{output: output, format: format, ended: make(chan struct{})}
	q.changed.L = &q.mu
	go q.run()
	return q
}

// Write takes one line. It neither waits nor fails.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	told := q.told()
	if q.closed || len(q.waiting)+len(told)+len(line) > maxWaiting {
		q.drop()
		return len(line), nil
	}
	q.waiting = append(append(q.waiting, told...), line...)
	q.missed = 0
	q.changed.Signal()
	return len(line), nil
}

// drop counts a dropped line. The caller holds the lock.
func (q *LogQueue) drop() { q.missed, q.dropped = q.missed+1, q.dropped+1 }

// told returns the line about dropped lines, nil if there are none. The caller holds the lock.
func (q *LogQueue) told() []byte {
	if q.missed == 0 {
		return nil
	}
	var line bytes.Buffer
	slog.New(q.format(&line)).Warn("lines of the log are missing here, because nothing took them", "count", q.missed)
	return line.Bytes()
}

// run writes the lines, one call of Write each, until Close.
func (q *LogQueue) run() {
	defer close(q.ended)
	for {
		lines, last := q.take()
		for line := range bytes.Lines(lines) {
			if _, err := q.output.Write(line); err != nil {
				q.lost()
			}
		}
		if last {
			return
		}
	}
}

// take waits for lines and returns all of them with the one about those dropped behind them, and whether they are the last ones.
func (q *LogQueue) take() (lines []byte, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.changed.Wait()
	}
	lines, q.waiting, q.missed = append(q.waiting, q.told()...), nil, 0
	return lines, q.closed
}

// lost counts a line that the writer refused.
func (q *LogQueue) lost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop()
}

// WriteMetrics writes the number of lines that were dropped since the start.
func (q *LogQueue) WriteMetrics(page *Page) {
	q.mu.Lock()
	dropped := q.dropped
	q.mu.Unlock()
	page.Single("meshddns_log_dropped_lines_total", "counter", "Lines of the log that were dropped, because nothing took them.", dropped)
}

// Close returns when all lines are written, or after a second.
func (q *LogQueue) Close() {
	q.mu.Lock()
	q.closed = true
	q.changed.Signal()
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-time.After(closeTime):
	}
}
