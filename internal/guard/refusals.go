package guard

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	refusalPause = time.Second
	maxShown     = 200 // octets of a client's Host in the log
)

// refusals logs refused requests. A flood of refusals gets one line a second; the next
// line has the number of refusals without a line.
type refusals struct {
	log    *slog.Logger
	mu     sync.Mutex
	paused bool // a line is being written, or was written less than refusalPause ago
	missed int
}

// note logs a refusal, or counts it. It writes the line without the lock: when the log
// blocks, one request waits for it and all others are only counted.
func (l *refusals) note(r *http.Request, refusal Denial) {
	if l.log == nil || !l.begin() {
		return
	}
	l.log.Warn("request refused", "who", Caller(r), "status", refusal.Status, "code", refusal.Code, "host", cut(r.Host))
	time.AfterFunc(refusalPause, l.end)
}

// begin begins a pause and returns true. During a pause it counts the refusal and returns false.
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

// end ends a pause. If refusals were counted in it, end logs their number and pauses once more, so
// the last refusals of a flood are logged too.
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
