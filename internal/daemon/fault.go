// Faults that last, as states.

package daemon

import (
	"log/slog"
	"sync"
)

// Fault is the state of work that is tried again and again. Its zero value is "no fault".
type Fault struct {
	mu     sync.Mutex
	reason string
}

// Note logs a fault when it begins, when its reason changes and when it ends, not while it lasts. err is
// the result of the last try; text says what does not work.
func (f *Fault) Note(log *slog.Logger, text string, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	f.mu.Lock()
	before := f.reason
	f.reason = reason
	f.mu.Unlock()
	switch {
	case reason == before:
	case reason != "":
		log.Error(text, "error", err)
	default:
		log.Info("a fault is over", "fault", text)
	}
}
