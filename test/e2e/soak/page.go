package soak

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Write makes the page: one file of HTML that needs nothing else.
func (r *Result) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString(head)
	verdict := `<b class="good">all held</b>`
	if n := r.failed(); n > 0 {
		verdict = fmt.Sprintf(`<b class="bad">%d did not hold</b>`, n)
	}
	fmt.Fprintf(&b, "<h1>Soak of meshddns: %s, %s</h1>\n<p>%s, begun %s. %s</p>\n", r.Took.Round(time.Second), verdict,
		html.EscapeString(r.Program), r.Began.UTC().Format("2006-01-02 15:04:05 UTC"), html.EscapeString(r.Load))
	fmt.Fprintf(&b, `<table><tr><th>what must hold</th><th>was</th><th>wanted</th><th></th></tr>`)
	for _, c := range r.Checks() {
		mark := `<td class="good">ok`
		if !c.OK {
			mark = `<td class="bad">no`
		}
		fmt.Fprintf(&b, "<tr><td>%s<td>%s<td>%s%s\n", html.EscapeString(c.What), html.EscapeString(c.Is), html.EscapeString(c.Want), mark)
	}
	b.WriteString("</table>\n<p class=legend>")
	for _, k := range Kinds {
		fmt.Fprintf(&b, `<span style="background:%s">%s</span> `, shades[k], k)
	}
	b.WriteString("</p>\n")
	for _, c := range r.charts() {
		fmt.Fprintf(&b, "<figure>%s</figure>\n", c.draw(r))
	}
	r.writeFigures(&b)
	r.writePhases(&b)
	r.writeWrong(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

const head = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Soak of meshddns</title><style>
body{font:14px/1.45 sans-serif;max-width:1060px;margin:1.5em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.1em;margin-top:1.6em}
table{border-collapse:collapse;margin:.6em 0}td,th{border:1px solid #ccc;padding:.15em .6em;text-align:left;vertical-align:top}
td.n{text-align:right}.good{color:#137313}.bad{color:#b3141c}figure{margin:.9em 0}
.legend span{border:1px solid #999;padding:.1em .6em;margin-right:.3em}.sides{display:flex;gap:2.5em;flex-wrap:wrap}pre{white-space:pre-wrap}
</style>
`

func (r *Result) failed() (n int) {
	for _, c := range r.Checks() {
		if !c.OK {
			n++
		}
	}
	return n
}

// over gives a figure for each second; those without a program have none.
func (r *Result) over(figure func(s Sample) float64) []float64 {
	values := make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		if values[i] = figure(s); s.Life == 0 {
			values[i] = math.NaN()
		}
	}
	return values
}

const mebi = 1 << 20

func (r *Result) charts() []chart {
	latency := func(class Class, of func(Latency) time.Duration) []float64 {
		return r.over(func(s Sample) float64 {
			if s.Latency[class].Answers == 0 {
				return math.NaN()
			}
			return of(s.Latency[class]).Seconds() * 1000
		})
	}
	p50, p99 := func(l Latency) time.Duration { return l.P50 }, func(l Latency) time.Duration { return l.P99 }
	return []chart{
		{title: "Latency", unit: "milliseconds", logarithmic: true, lines: []line{
			{name: "writes, p99", color: "#c0392b", values: latency(Write, p99)}, {name: "writes, p50", color: "#e8968d", values: latency(Write, p50)},
			{name: "reads, p99", color: "#1f5fa8", values: latency(Read, p99)}, {name: "reads, p50", color: "#8db8e8", values: latency(Read, p50)},
			{name: "DNS, p99", color: "#2e7d32", values: latency(DNS, p99)},
		}},
		{title: "Memory", unit: "MiB", lines: append([]line{
			{name: "resident", color: "#1f5fa8", values: r.over(func(s Sample) float64 { return float64(s.Resident) / mebi })},
			{name: "of no file", color: "#e67e22", values: r.over(func(s Sample) float64 { return float64(s.Private) / mebi })},
		}, r.slopeLines()...)},
		{title: "Database and its log (WAL)", unit: "MiB", lines: []line{
			{name: "WAL", color: "#c0392b", values: r.over(func(s Sample) float64 { return float64(s.Log) / mebi })},
			{name: "database", color: "#1f5fa8", values: r.over(func(s Sample) float64 { return float64(s.Database) / mebi })},
		}},
		{title: "Records by state", unit: "records", lines: r.stateLines()},
		{title: "Descriptors and threads", unit: "number", lines: []line{
			{name: "descriptors", color: "#1f5fa8", values: r.over(func(s Sample) float64 { return float64(s.Files) })},
			{name: "threads", color: "#e67e22", values: r.over(func(s Sample) float64 { return float64(s.Threads) })},
		}},
		{title: "Answers", unit: "a second", lines: []line{{name: "HTTP and DNS", color: "#444", values: r.over(func(s Sample) (n float64) {
			for _, l := range s.Latency {
				n += float64(l.Answers)
			}
			return n
		})}}},
	}
}

// slopeLines draw what the verdict on memory is made of.
func (r *Result) slopeLines() []line {
	slopes := map[int]Slope{}
	for _, s := range r.Slopes() {
		slopes[s.Life] = s
	}
	first := map[int]int64{}
	seen := map[int]int{}
	for life := range slopes {
		var calm []Sample
		for _, s := range r.Samples {
			if s.Life == life && s.Calm && s.Private > 0 {
				calm = append(calm, s)
			}
		}
		first[life] = calm[len(calm)/3].Requests
		seen[life] = len(calm)
	}
	if len(slopes) == 0 {
		return nil
	}
	return []line{{name: "fitted", color: "#000", dotted: true, values: r.over(func(s Sample) float64 {
		slope, ok := slopes[s.Life]
		if !ok || s.Requests < first[s.Life] || s.Requests > first[s.Life]+slope.Requests {
			return math.NaN()
		}
		return (slope.From + slope.PerRequest*float64(s.Requests-first[s.Life])) / mebi
	})}}
}

var stateColors = []struct{ state, color string }{
	{"published", "#2e7d32"}, {"pending", "#1f5fa8"}, {"failed", "#c0392b"}, {"conflict", "#8e44ad"},
	{"withdrawing", "#e67e22"}, {"withdrawn", "#999999"}, {"leftover", "#6d4c41"},
}

func (r *Result) stateLines() (lines []line) {
	for _, c := range stateColors {
		lines = append(lines, line{name: c.state, color: c.color, values: r.over(func(s Sample) float64 {
			if s.States == nil {
				return math.NaN()
			}
			return float64(s.States[c.state])
		})})
	}
	return lines
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// writeFigures has latencies by class and kind of phase, and answers by kind.
func (r *Result) writeFigures(b *strings.Builder) {
	b.WriteString("<div class=sides><div><h2>Latency</h2><table><tr><th><th>answers<th>p50, the median second<th>p99, the median second<th>p99, the worst second\n")
	for class := range Classes {
		var p50, p99 []time.Duration
		answers := 0
		for _, s := range r.Samples {
			if l := s.Latency[class]; l.Answers > 0 {
				answers += l.Answers
				p50, p99 = append(p50, l.P50), append(p99, l.P99)
			}
		}
		middle, far := LatencyOf(p50), LatencyOf(p99)
		worst := time.Duration(0)
		if len(p99) > 0 {
			worst = slices.Max(p99)
		}
		fmt.Fprintf(b, "<tr><td>%s<td class=n>%d<td class=n>%s<td class=n>%s<td class=n>%s\n", class, answers, milliseconds(middle.P50), milliseconds(far.P50), milliseconds(worst))
	}
	b.WriteString("</table><h2>Memory by life</h2><table><tr><th>life<th>calm seconds<th>requests<th>at first<th>growth<th>octets a request<th>an hour\n")
	for _, s := range r.Slopes() {
		fmt.Fprintf(b, "<tr><td>%d<td class=n>%d<td class=n>%d<td class=n>%s<td class=n>%s<td class=n>%.0f<td class=n>%s\n",
			s.Life, s.Samples, s.Requests, megabytes(s.From), megabytes(s.Growth()), s.PerRequest, megabytes(s.PerHour()))
	}
	fmt.Fprintf(b, "</table><p>%d restarts, %d kills, %d backups, %d more that a kill or a fault cut short, %d looks at everything.</p></div>", r.Restarts, r.Kills, r.Backups, r.Cut, r.Looks)
	b.WriteString("<div><h2>Answers</h2><table><tr><th>request<th>answers, by status\n")
	byKind := map[string][]string{}
	for _, a := range r.Answers {
		byKind[a.Kind] = append(byKind[a.Kind], fmt.Sprintf("%s: %d", a.Status, a.Count))
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(b, "<tr><td>%s<td>%s\n", html.EscapeString(kind), html.EscapeString(strings.Join(byKind[kind], ", ")))
	}
	b.WriteString("</table></div></div>\n")
}

// writePhases adds up phases of one name.
func (r *Result) writePhases(b *strings.Builder) {
	type sum struct {
		kind         Kind
		times        int
		took         time.Duration
		answers, met int64
	}
	sums := map[string]*sum{}
	for _, p := range r.Phases {
		s := sums[p.Name]
		if s == nil {
			s = &sum{kind: p.Kind}
			sums[p.Name] = s
		}
		s.times++
		s.took += p.To - p.From
		s.answers += int64(p.Answers)
		s.met += p.Met
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(slices.Index(Kinds, sums[a].kind)-slices.Index(Kinds, sums[b].kind), strings.Compare(a, b))
	})
	b.WriteString("<h2>Phases</h2><table><tr><th>phase<th>times<th>together<th>answers<th>faults that met somebody\n")
	for _, name := range names {
		s := sums[name]
		met := "-"
		if s.kind == Disk || s.kind == Outage {
			met = fmt.Sprint(s.met)
		}
		fmt.Fprintf(b, "<tr><td style=\"background:%s\">%s<td class=n>%d<td class=n>%s<td class=n>%d<td class=n>%s\n", shades[s.kind], html.EscapeString(name), s.times, s.took.Round(time.Second), s.answers, met)
	}
	b.WriteString("</table>\n")
}

// most is how many faults of one sort a page shows.
const most = 50

// writeWrong shows what did not hold.
func (r *Result) writeWrong(b *strings.Builder) {
	for _, w := range []struct {
		title string
		lines []string
	}{
		{"Unexpected answers", r.Unexpected}, {"Lost", r.Lost}, {"Invariants", r.Unsound},
		{"DNS", r.Astray}, {"Backups", r.Copies}, {"Panics", r.Panics},
	} {
		if len(w.lines) > 0 {
			fmt.Fprintf(b, "<h2 class=bad>%s</h2><pre>%s</pre>\n", w.title, html.EscapeString(strings.Join(w.lines[:min(most, len(w.lines))], "\n")))
		}
	}
}
