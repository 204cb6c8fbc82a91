// Metrics count events and are written in the Prometheus text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).

package daemon

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
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
	sort.Slice(keys, func(i, j int) bool { return labelText(keys[i][:]) < labelText(keys[j][:]) })
	for _, key := range keys {
		p.Figure(c.counts[key], key[:]...)
	}
}
