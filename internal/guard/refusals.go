package guard

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	refusalPause = time.Second
	maxShown     = 200 // octets of a Host that a client sends
)

// refusals is the log of refused requests. A flood of refusals gets one line a second, and the next
// line says how many got none.
type refusals struct {
	log    *slog.Logger
	mu     sync.Mutex
	paused bool // a line is being written, or was less than a pause ago
	missed int
}

// note logs a refusal, or counts it. The line is written without the lock: while the log
// takes no line, one request waits for it and all others are counted.
func (l *refusals) note(r *http.Request, refusal Denial) {
	if l.log == nil || !l.begin() {
		return
	}
	l.log.Warn("request refused", "who", Caller(r), "status", refusal.Status, "code", refusal.Code, "host", cut(r.Host))
	time.AfterFunc(refusalPause, l.end)
}

// begin begins a pause, or counts a refusal that comes in one.
func (l *refusals) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		l.missed++
		return false
	}
	l.paused = true
	return true
}

// end ends a pause that begins when a line is written. When refusals were missed in it, end tells
// how many and pauses once more: the last ones of a flood are told too.
func (l *refusals) end() {
	l.mu.Lock()
	missed := l.missed
	l.missed, l.paused = 0, missed > 0
	l.mu.Unlock()
	if missed > 0 {
		l.log.Warn("more requests refused", "count", missed)
		time.AfterFunc(refusalPause, l.end)
	}
}

func cut(text string) string { return text[:min(len(text), maxShown)] }
