package soak

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"
)

// line is one figure over time; a gap is NaN.
type line struct {
	name, color string
	values      []float64
	dotted      bool // a bound, not a figure
}

// chart draws lines over the same seconds.
type chart struct {
	title, unit string
	lines       []line
	logarithmic bool
}

// Sizes of a chart in its own units, which a page scales.
const (
	width, height      = 1000.0, 250.0
	left, right        = 64.0, 12.0
	top, bottom        = 30.0, 34.0
	plotWide, plotTall = width - left - right, height - top - bottom
	letter             = 6.3 // of the legend, on average
)

var shades = map[Kind]string{
	Calm: "#ffffff", Backup: "#e3effb", Restart: "#e4f4e4", Kill: "#fde2e2", Disk: "#fdeccd", Outage: "#ece4f6",
}

// axis maps values to heights.
type axis struct {
	low, high   float64
	logarithmic bool
	ticks       []float64
}

func (a axis) y(v float64) float64 {
	low, high := a.low, a.high
	if a.logarithmic {
		v, low, high = math.Log10(max(v, a.low)), math.Log10(low), math.Log10(high)
	}
	return top + plotTall*(1-(v-low)/(high-low))
}

// lowest is the least that a logarithmic axis begins with.
const lowest = 0.1

// axisOf spans all values with round ticks: decades, or 1, 2 or 5 times one.
func (c chart) axisOf() axis {
	low, high := math.Inf(1), 0.0
	for _, l := range c.lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				high = max(high, v)
				if v > 0 {
					low = min(low, v)
				}
			}
		}
	}
	if c.logarithmic {
		decade := func(round func(float64) float64, v float64) float64 { return math.Pow(10, round(math.Log10(v))) }
		a := axis{logarithmic: true, low: decade(math.Floor, max(min(low, high), lowest)), high: decade(math.Ceil, max(high, lowest))}
		a.high = max(a.high, 10*a.low)
		for tick := a.low; tick <= a.high*1.001; tick *= 10 {
			a.ticks = append(a.ticks, tick)
		}
		return a
	}
	step := roundStep(max(high, 1) / 4)
	a := axis{high: max(math.Ceil(high/step)*step, step)}
	for n := 0; float64(n)*step <= a.high*1.001; n++ {
		a.ticks = append(a.ticks, float64(n)*step)
	}
	return a
}

// roundStep gives 1, 2 or 5 times a power of ten, at least as large as asked for.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if factor*power >= least*0.999 {
			return factor * power
		}
	}
	return 10 * power
}

// draw gives the SVG.
func (c chart) draw(r *Result) string {
	var b strings.Builder
	end := max(r.Took, time.Second).Seconds()
	x := func(at time.Duration) float64 { return left + plotWide*at.Seconds()/end }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11" role="img" aria-label="%s">`, width, height, html.EscapeString(c.title))
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" fill="#fff"/>`, left, top, plotWide, plotTall)
	for _, p := range r.Phases {
		if p.Kind != Calm {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="%s"><title>%s</title></rect>`,
				x(p.From), top, max(x(p.To)-x(p.From), 0.5), plotTall, shades[p.Kind], html.EscapeString(p.Name))
		}
	}
	a := c.axisOf()
	for _, tick := range a.ticks {
		fmt.Fprintf(&b, `<path d="M%g %.1fh%g" stroke="#bbb" stroke-width=".5"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
			left, a.y(tick), plotWide, left-6, a.y(tick)+4, strconv.FormatFloat(tick, 'g', 6, 64))
	}
	drawTimes(&b, end)
	fmt.Fprintf(&b, `<text x="%g" y="16" font-size="13" font-weight="bold">%s</text><text x="%g" y="%g" transform="rotate(-90 12 %g)" text-anchor="middle">%s</text>`,
		left, html.EscapeString(c.title), 12.0, top+plotTall/2, top+plotTall/2, html.EscapeString(c.unit))
	at := width - right
	for i := len(c.lines) - 1; i >= 0; i-- {
		l := c.lines[i]
		at -= letter*float64(len(l.name)) + 26
		fmt.Fprintf(&b, `<path d="M%.1f 12h14" stroke="%s" stroke-width="2"%s/><text x="%.1f" y="16">%s</text>`, at, l.color, l.dashes(), at+18, html.EscapeString(l.name))
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.2" stroke-linejoin="round"%s/>`, l.path(r, x, a), l.color, l.dashes())
	}
	fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" fill="none" stroke="#555"/></svg>`, left, top, plotWide, plotTall)
	return b.String()
}

func (l line) dashes() string {
	if l.dotted {
		return ` stroke-dasharray="5 4"`
	}
	return ""
}

// path moves over gaps.
func (l line) path(r *Result, x func(time.Duration) float64, a axis) string {
	var b strings.Builder
	pen := "M"
	for i, v := range l.values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, x(r.Samples[i].At), a.y(v))
		pen = "L"
	}
	return b.String()
}

// drawTimes labels the axis of time, in minutes, or in seconds where there are few.
func drawTimes(b *strings.Builder, end float64) {
	unit, name := 60.0, "minutes"
	if end < 180 {
		unit, name = 1, "seconds"
	}
	step := roundStep(end / unit / 12)
	for n := 0; float64(n)*step*unit <= end; n++ {
		at := left + plotWide*float64(n)*step*unit/end
		fmt.Fprintf(b, `<path d="M%.1f %gv4" stroke="#555"/><text x="%.1f" y="%g" text-anchor="middle">%g</text>`, at, top+plotTall, at, top+plotTall+16, float64(n)*step)
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end" fill="#555">%s since the start</text>`, width-right, height-3, name)
}
