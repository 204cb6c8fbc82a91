package metrics

import (
	"sync"
	"time"
)

// Runs counts how often something has ended well or badly, and when it last ended
// well. The zero value is ready; calls may overlap.
type Runs struct {
	mu         sync.Mutex
	ok, failed uint64
	good       time.Time
}

// Ended counts one.
func (r *Runs) Ended(at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.failed++
		return
	}
	r.ok++
	r.good = at
}

// Remember sets when it ended well before the program started.
func (r *Runs) Remember(good time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.good = good
}

// Write writes <name>_runs_total and <name>_last_success_timestamp_seconds.
func (r *Runs) Write(p *Page, name, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Family(name+"_runs_total", "counter", what+", by result.")
	p.Figure(r.ok, Label{"result", "ok"})
	p.Figure(r.failed, Label{"result", "failed"})
	p.Family(name+"_last_success_timestamp_seconds", "gauge", what+": when the last one ended well; 0 when none is known of.")
	p.Time(r.good)
}
