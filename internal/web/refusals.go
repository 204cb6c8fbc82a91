package web

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	linePause = time.Second
	maxShown  = 200 // octets of what a client chose in the log, such as its Host
)

// RefusalLines logs what clients can cause as often as they like: at most one line a second of each kind. The
// next line has the number of those without a line. A nil Lines logs nothing.
type RefusalLines struct {
	log    *slog.Logger
	mu     sync.Mutex
	missed map[string]int // of each kind with a line that is being written, or was written less than linePause ago
}

// NewRefusalLines returns Lines without a line; nil without a log.
func NewRefusalLines(log *slog.Logger) *RefusalLines {
	if log == nil {
		return nil
	}
	return &RefusalLines{log: log, missed: map[string]int{}}
}

// Refused logs a refused request. The code is its kind.
func (l *RefusalLines) Refused(r *http.Request, refusal Denial) {
	l.Log(slog.LevelWarn, "request refused", refusal.Code, "who", Caller(r), "status", refusal.Status, "code", refusal.Code, "host", cut(r.Host))
}

// Log writes a line, or counts it. Kinds must be few. It writes without the lock: when the log blocks, one
// request waits for it and all others are only counted.
func (l *RefusalLines) Log(level slog.Level, text, kind string, attrs ...any) {
	if l == nil || !l.begin(kind) {
		return
	}
	l.log.Log(context.Background(), level, text, attrs...)
	time.AfterFunc(linePause, func() { l.end(level, text, kind) })
}

// begin begins the pause of a kind and returns true. During the pause it counts and returns false.
func (l *RefusalLines) begin(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, paused := l.missed[kind]; paused {
		l.missed[kind]++
		return false
	}
	l.missed[kind] = 0
	return true
}

// end ends a pause. If lines were counted in it, end logs their number and pauses once more, so
// the last ones of a flood are logged too.
func (l *RefusalLines) end(level slog.Level, text, kind string) {
	l.mu.Lock()
	missed := l.missed[kind]
	if l.missed[kind] = 0; missed == 0 {
		delete(l.missed, kind)
	}
	l.mu.Unlock()
	if missed > 0 {
		l.log.Log(context.Background(), level, "more: "+text, "count", missed, "code", kind)
		time.AfterFunc(linePause, func() { l.end(level, text, kind) })
	}
}

func cut(text string) string { return text[:min(len(text), maxShown)] }
