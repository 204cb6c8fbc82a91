package daemon

import (
	"sync"
	"time"
)

// Runs counts the successes and failures of a job, and keeps the time of the last
// success. The zero value is ready. It is safe for concurrent use.
type Runs struct {
	mu         sync.Mutex
	ok, failed uint64
	good       time.Time
}

// Ended counts a run that ended at the time.
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

// Remember sets the time of the last success before the program started.
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
