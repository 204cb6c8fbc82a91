// Metrics count events and are written in the Prometheus text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ContentType is the media type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Label is one label of a sample.
type Label struct{ Name, Value string }

// Page writes metric families, one after the other. It ignores write errors.
type Page struct {
	w    io.Writer
	name string
}

// NewPage returns a page that writes to w.
func NewPage(w io.Writer) *Page { return &Page{w: w} }

// Family begins a family; kind is "counter", "gauge" or "histogram".
func (p *Page) Family(name, kind, help string) {
	p.name = name
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Figure writes one sample of the family.
func (p *Page) Figure(value uint64, labels ...Label) {
	fmt.Fprintf(p.w, "%s%s %d\n", p.name, labelText(labels), value)
}

// Single writes a family of one sample without labels.
func (p *Page) Single(name, kind, help string, value uint64) {
	p.Family(name, kind, help)
	p.Figure(value)
}

// Float is Figure for a number with a fraction.
func (p *Page) Float(value float64, labels ...Label) {
	fmt.Fprintf(p.w, "%s%s %s\n", p.name, labelText(labels), strconv.FormatFloat(value, 'f', -1, 64))
}

// Time writes a time in seconds since the epoch, 0 for the zero time.
func (p *Page) Time(at time.Time, labels ...Label) {
	seconds := 0.0
	if !at.IsZero() {
		seconds = float64(at.UnixMilli()) / 1000
	}
	p.Float(seconds, labels...)
}

// Histogram writes one histogram of durations, in seconds. counts has the number of durations up to
// each bound and above the previous one, then the number above the last bound.
func (p *Page) Histogram(bounds []time.Duration, counts []uint64, sum time.Duration, labels ...Label) {
	var total uint64
	for i, n := range counts {
		bound := "+Inf"
		if i < len(bounds) {
			bound = fmt.Sprint(bounds[i].Seconds())
		}
		total += n
		fmt.Fprintf(p.w, "%s_bucket%s %d\n", p.name, labelText(append(labels[:len(labels):len(labels)], Label{"le", bound})), total)
	}
	fmt.Fprintf(p.w, "%s_sum%s %g\n", p.name, labelText(labels), sum.Seconds())
	fmt.Fprintf(p.w, "%s_count%s %d\n", p.name, labelText(labels), total)
}

// escape escapes a label value.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelText(labels []Label) string {
	if len(labels) == 0 {
		return ""
	}
	var parts []string
	for _, l := range labels {
		if l.Name != "" {
			parts = append(parts, l.Name+`="`+escape.Replace(l.Value)+`"`)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// maxLabels is the greatest number of labels of a Counter.
const maxLabels = 3

// Counter counts by at most three labels. The zero value is ready. It is safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts map[[maxLabels]Label]uint64
}

// Add adds n. Add with 0 makes the counter appear with the value 0, because Prometheus sees the first
// event as an increase only after an earlier sample.
func (c *Counter) Add(n uint64, labels ...Label) {
	var key [maxLabels]Label
	copy(key[:], labels)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[[maxLabels]Label]uint64{}
	}
	c.counts[key] += n
}

// Write writes the family of the counter, in the order of the labels.
func (c *Counter) Write(p *Page, name, help string) {
	p.Family(name, "counter", help)
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.Collect(maps.Keys(c.counts))
	slices.SortFunc(keys, func(a, b [maxLabels]Label) int { return strings.Compare(labelText(a[:]), labelText(b[:])) })
	for _, key := range keys {
		p.Figure(c.counts[key], key[:]...)
	}
}

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

// started is the start of the program, a few milliseconds after its exec. The exact time
// needs /proc/stat, which is hidden from a unit with ProcSubset=pid.
var started = time.Now()

// WriteProcess writes the resources that the process uses, under the names of the Prometheus clients.
// It omits a metric that the system does not provide.
func WriteProcess(p *Page) {
	p.Family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	p.Time(started)
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		p.Family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
		p.Float(time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds())
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.Single("process_open_fds", "gauge", "Number of open file descriptors.", uint64(len(open)))
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		p.Single("process_max_fds", "gauge", "Maximum number of open file descriptors.", limit.Cur)
	}
	if virtual, resident, ok := memory(); ok {
		p.Single("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", virtual)
		p.Single("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident)
	}
}

// memory returns the memory of the process in octets (proc(5), statm).
func memory() (virtual, resident uint64, ok bool) {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0, 0, false
	}
	virtual, errVirtual := strconv.ParseUint(string(fields[0]), 10, 64)
	resident, errResident := strconv.ParseUint(string(fields[1]), 10, 64)
	page := uint64(os.Getpagesize())
	return virtual * page, resident * page, errVirtual == nil && errResident == nil
}

// Requests counts answered HTTP requests by route (never by path) and status, and answers from 500 up
// also by error code. The zero value is ready. It is safe for concurrent use.
type Requests struct{ answered Counter }

// refusals has the statuses of requests that reach no route.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
}

// Count counts an answer. The route is "" for a request that reached none. The reason is the
// error code, "" for none; it distinguishes a failed pass from a fault of the program.
func (r *Requests) Count(route string, status int, reason string) {
	if status < http.StatusInternalServerError || reason == "" {
		r.add(1, route, status)
		return
	}
	r.answered.Add(1, Label{"route", route}, Label{"code", strconv.Itoa(status)}, Label{"error", reason})
}

// add counts without reason. It runs for every request; labels returned by a function would
// escape to the heap.
func (r *Requests) add(n uint64, route string, status int) {
	r.answered.Add(n, Label{"route", route}, Label{"code", strconv.Itoa(status)})
}

// Write writes the family.
func (r *Requests) Write(p *Page) {
	r.answered.Write(p, "meshddns_http_requests_total", "Answered HTTP requests.")
}

// Mux is a mux whose routes are in the metrics before their first request.
type Mux struct {
	Routes   *http.ServeMux
	requests *Requests
	refuse   http.HandlerFunc
}

// Mux returns an empty mux, and makes the refusals of requests without a route appear with 0. refuse answers the requests
// that the rule of a route does not permit.
func (r *Requests) Mux(refuse http.HandlerFunc) Mux {
	for _, status := range refusals {
		r.add(0, "", status)
	}
	return Mux{Routes: http.NewServeMux(), requests: r, refuse: refuse}
}

// Handle registers a handler, as http.ServeMux does, for the requests that a rule of the route permits.
func (m Mux) Handle(route string, may func(context.Context) bool, handler http.Handler) {
	m.requests.add(0, route, http.StatusOK)
	m.Routes.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
		if !may(r.Context()) {
			m.refuse(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
