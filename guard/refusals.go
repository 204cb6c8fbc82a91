package guard

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	refusalPause = time.Second
	maxShown     = 200 // octets of what a stranger sends
)

// refusals is the log of what was refused. A flood of refusals gets one line a second, and the next
// line says how many got none.
type refusals struct {
	log    *slog.Logger
	mu     sync.Mutex
	paused bool // a line was written less than a pause ago
	missed int
}

// note logs a refusal, or counts it.
func (l *refusals) note(r *http.Request, refusal Refusal) {
	if l.log == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		l.missed++
		return
	}
	l.log.Warn("request refused", "who", Caller(r), "status", refusal.Status, "code", refusal.Code, "host", cut(r.Host))
	l.pause()
}

// pause ends by itself, with a line about what was missed in it: the last ones of a flood are told
// too.
func (l *refusals) pause() {
	l.paused = true
	time.AfterFunc(refusalPause, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.paused = false
		if l.missed > 0 {
			l.log.Warn("more requests refused", "count", l.missed)
			l.missed = 0
			l.pause()
		}
	})
}

func cut(text string) string { return text[:min(len(text), maxShown)] }
