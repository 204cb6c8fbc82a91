// Package metrics counts and writes figures in the Prometheus text format,
// version 0.0.4.
package metrics

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ContentType is the media type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Label is one label of a figure.
type Label struct{ Name, Value string }

// Page writes families of figures, one after the other.
type Page struct {
	w    io.Writer
	name string
}

// NewPage begins a page.
func NewPage(w io.Writer) *Page { return &Page{w: w} }

// Family begins a family; kind is "counter", "gauge" or "histogram".
func (p *Page) Family(name, kind, help string) {
	p.name = name
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Figure writes one figure of the family.
func (p *Page) Figure(value uint64, labels ...Label) {
	fmt.Fprintf(p.w, "%s%s %d\n", p.name, labelText(labels), value)
}

// Float is Figure for a number with a fraction.
func (p *Page) Float(value float64, labels ...Label) {
	fmt.Fprintf(p.w, "%s%s %s\n", p.name, labelText(labels), strconv.FormatFloat(value, 'f', -1, 64))
}

// Time writes a time in seconds since the epoch, 0 for one that never was.
func (p *Page) Time(at time.Time, labels ...Label) {
	seconds := 0.0
	if !at.IsZero() {
		seconds = float64(at.UnixMilli()) / 1000
	}
	p.Float(seconds, labels...)
}

// Histogram writes one histogram of times, in seconds: how many there were up to
// each bound, and of those above the last.
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

// escape replaces the characters that a label value must escape.
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

// maxLabels bounds the labels of a Counter.
const maxLabels = 3

// Counter counts by labels, three at most. The zero value is ready; calls may overlap.
type Counter struct {
	mu     sync.Mutex
	counts map[[maxLabels]Label]uint64
}

// Add counts n more. With 0 the counter shows a 0 until something is counted: the first
// event is an increase only where a figure stood before it.
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
	byText := func(a, b [maxLabels]Label) int { return strings.Compare(labelText(a[:]), labelText(b[:])) }
	for _, key := range slices.SortedFunc(maps.Keys(c.counts), byText) {
		p.Figure(c.counts[key], key[:]...)
	}
}
