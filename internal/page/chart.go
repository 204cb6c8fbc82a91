package page

import (
	"fmt"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// The chart's coordinates are a minute and a two-hundredth of the highest number. The browser
// stretches them, so all text stands beside the drawing.
const (
	chartTime   = 24 * time.Hour
	chartWidth  = int(chartTime / time.Minute)
	chartHeight = 200
	// chartGap is the longest time between two samples of a program that ran.
	chartGap = 2 * sampleEvery
	// markSpan is the time that one mark stands for.
	markSpan = 15 * time.Minute
)

// bands are the areas of the chart from the bottom up: the states that each one adds up.
var bands = []struct {
	level  string
	states []reconcile.PlaceState
}{
	{"good", []reconcile.PlaceState{reconcile.Published}},
	{"busy", []reconcile.PlaceState{reconcile.Pending, reconcile.Withdrawing}},
	{"bad", []reconcile.PlaceState{reconcile.Failed, reconcile.Conflict, reconcile.None}},
}

// markKinds are the events on the chart, from the left of their legend.
var markKinds = []events.Kind{events.RecordFailed, events.RecordConflict, events.ZoneDown}

// chart is the drawing of the names by state.
type chart struct {
	Title, Text     string
	From, Upper, To string // texts at the axes
	Empty           string // why nothing is drawn, "" if something is
	Width, Height   int
	Top             uint64 // the number at the upper edge
	Areas           []area
	Marks           []drawnMark
}

// area is an SVG path and its legend.
type area struct {
	Level, Path, Text string
	Now               uint64
}

// drawnMark is the path of all marks of a kind, and their legend.
type drawnMark struct {
	Class, Path, Text string
	Number            int
}

// newChart draws samples since a time; the last one is the present.
func newChart(samples []sample, marks []events.Count, since time.Time, in msg.Language) *chart {
	c := &chart{Title: say(in, "chart title"), From: say(in, "day ago"), To: say(in, "now"), Width: chartWidth, Height: chartHeight}
	highest := uint64(0)
	for _, s := range samples {
		highest = max(highest, stacked(s, len(bands)))
	}
	switch c.Top = max(highest, 1); {
	case highest == 0:
		c.Empty = say(in, "chart none")
	case len(samples) < 2 || samples[len(samples)-1].at.Sub(samples[0].at) < sampleEvery:
		c.Empty = say(in, "chart new")
	default:
		c.Upper = say(in, "top", highest)
	}
	last := samples[len(samples)-1]
	told := []string{}
	for i, band := range bands {
		now := stacked(last, i+1) - stacked(last, i)
		text := say(in, "band "+band.level)
		c.Areas = append(c.Areas, area{Level: band.level, Path: c.area(samples, i, since), Text: text, Now: now})
		told = append(told, fmt.Sprintf("%s %d", text, now))
	}
	for _, kind := range markKinds {
		d := drawMarks(marks, kind, since)
		d.Text = msg.ID(kind).In(in)
		c.Marks = append(c.Marks, d)
		told = append(told, fmt.Sprintf("%s %d", d.Text, d.Number))
	}
	c.Text = say(in, "chart text", strings.Join(told, say(in, "comma")))
	return c
}

// stacked adds up the lowest bands of a sample.
func stacked(s sample, count int) (sum uint64) {
	for _, band := range bands[:count] {
		for _, state := range band.states {
			sum += s.counts[string(state)]
		}
	}
	return sum
}

// area returns the path of a band. Its edge has steps, because a number stays until the next sample.
// It has a gap where the program did not run.
func (c *chart) area(samples []sample, band int, since time.Time) string {
	var path strings.Builder
	for i := 0; i+1 < len(samples); i++ {
		s := samples[i]
		low, high := stacked(s, band), stacked(s, band+1)
		begin, end := minute(s.at, since), minute(samples[i+1].at, since)
		if samples[i+1].at.Sub(s.at) > chartGap {
			end = min(end, minute(s.at.Add(sampleEvery), since))
		}
		if high > low && end > begin {
			fmt.Fprintf(&path, "M%d %dH%dV%dH%dz", begin, c.level(low), end, c.level(high), begin)
		}
	}
	return path.String()
}

// level returns the height of a number in the drawing, whose upper edge is 0.
func (c *chart) level(n uint64) int {
	return chartHeight - int(float64(n)/float64(c.Top)*float64(chartHeight))
}

// minute returns the place of a time in the drawing.
func minute(at, since time.Time) int {
	return min(max(0, int(at.Sub(since)/time.Minute)), chartWidth)
}

// drawMarks draws a line for each span of time with events of a kind.
func drawMarks(marks []events.Count, kind events.Kind, since time.Time) (d drawnMark) {
	d.Class = strings.ReplaceAll(string(kind), ".", "-")
	var path strings.Builder
	for _, m := range marks {
		if m.Kind == kind {
			d.Number += m.Number
			fmt.Fprintf(&path, "M%d 0v%d", minute(m.Begin, since), chartHeight)
		}
	}
	d.Path = path.String()
	return d
}
