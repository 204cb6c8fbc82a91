package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// TestSpeed measures the program against what does less, or does it well: an empty
// server, SQLite by itself, Knot. Both take turns, and each turn has a ratio.
func TestSpeed(t *testing.T) {
	asked(t)
	measure(t, []group{
		{"post", postSpeed},
		{"before", beforeAndAfter},
		{"events", eventsCost},
		{"seal", sealCost},
		{"term", termCost},
		{"counters", counters},
		{"prefix", prefixSpeed},
		{"listing", listingSpeed},
		{"rows", rowsSpeed},
		{"start", startSpeed},
		{"dns-query", queryCost},
		{"dns-knot", knotSpeed},
		{"dns-flood", floodShare},
		{"transfer", transferSpeed},
	})
}

// TestPageOfFigures: docs/performance.md has few lines. After a run of all groups, which stand above, with
// all tools, each line of the page is one that was printed; so add has compared its bounds.
func TestPageOfFigures(t *testing.T) {
	lines := 0
	whole := len(printed.lines) > 0 && flag.Lookup("test.run").Value.String() == "" && os.Getenv("CI") == "true"
	for row, bounds := range documented(t) {
		lines += len(bounds)
		if whole && !slices.ContainsFunc(printed.lines, func(l line) bool { return l.row == row }) {
			t.Errorf("no benchmark prints %q", row)
		}
	}
	if lines < 15 || lines > 25 {
		t.Errorf("docs/performance.md has %d lines, want 15 to 25", lines)
	}
}

// scale is how much is measured.
type scale struct {
	rounds    int
	turn      time.Duration // of one of the two in a round
	names     int           // usages and records that are there
	most      int           // of a listing, of a zone
	rows      int           // that a thousand are compared with
	services  int
	counted   int // requests of a count
	questions int // that a DNS server hears before the first of them again
}

func speedScale() scale {
	if *large {
		return scale{
			rounds: 7, turn: 1500 * time.Millisecond, names: 10_000, most: 1_000_000, rows: 10_000_000, services: 10_000, counted: 5000, questions: 50_000,
		}
	}
	return scale{
		rounds: 5, turn: 60 * time.Millisecond, names: 1000, most: 5000, rows: 5000, services: 100, counted: 1000, questions: 5000,
	}
}

// steady is how far the figures of what is compared with may lie apart.
const steady = 1.6

// bound is what a figure must be, and what it should be; 0 is not given.
type bound struct {
	must, aim float64
	most      bool // it is the most that it may be, not the least
}

func least(must, aim float64) bound { return bound{must: must, aim: aim} }
func most(must, aim float64) bound  { return bound{must: must, aim: aim, most: true} }

func (b bound) holds(figure float64) bool {
	if b.most {
		return figure <= b.must
	}
	return figure >= b.must
}

// texts says both in a unit.
func (b bound) texts(unit string) (must, aim string) {
	if b.must != 0 {
		must = fmt.Sprintf("%.4g%s", b.must, unit)
	}
	if b.aim != 0 {
		aim = fmt.Sprintf("%.4g%s", b.aim, unit)
	}
	return must, aim
}

// contest is a row that compares figures of the same rounds.
type contest struct {
	row, measured string
	bound         bound
	show          func(figure float64) string
	divided       bool // the floor is what is divided
}

// compare adds a line with the ratio of each round: its median, and from where to
// where it goes.
func (b *table) compare(t *testing.T, c contest, over, below []float64) {
	t.Helper()
	var ratios []float64
	for i := range over {
		ratios = append(ratios, over[i]/below[i])
	}
	floor := below
	if c.divided {
		floor = over
	}
	apart := slices.Max(floor) / slices.Min(floor)
	must, aim := c.bound.texts("")
	b.add(t, line{
		row: c.row, measured: fmt.Sprintf("%s; %d rounds, floor within %.2f", c.measured, len(ratios), apart),
		figure: fmt.Sprintf("%s: %s / %s", spanned(ratios, decimals), c.show(median(over)), c.show(median(below))),
		must:   must, aim: aim, ok: c.bound.holds(median(ratios)), doubt: apart > steady,
	})
}

// absolute is a row whose figure is compared with nothing.
type absolute struct {
	row, measured string
	bound         bound
	unit          string
	show          func(figure float64) string // without the unit
	counts        bool
	doubt         bool
}

func (b *table) state(t *testing.T, a absolute, figures ...float64) {
	t.Helper()
	must, aim := a.bound.texts(a.unit)
	b.add(t, line{
		row: a.row, measured: a.measured, figure: spanned(figures, a.show) + a.unit,
		must: must, aim: aim, ok: a.bound.holds(median(figures)), counts: a.counts, doubt: a.doubt,
	})
}

// spanned shows the median of some figures, and the least and the most of them.
func spanned(figures []float64, show func(float64) string) string {
	if len(figures) == 1 {
		return show(figures[0])
	}
	return fmt.Sprintf("%s (%s to %s)", show(median(figures)), show(slices.Min(figures)), show(slices.Max(figures)))
}

func decimals(f float64) string { return fmt.Sprintf("%.3g", f) }

// perSecond shows a rate.
func perSecond(f float64) string {
	if f >= 1000 {
		return fmt.Sprintf("%.3gk/s", f/1000)
	}
	return fmt.Sprintf("%.3g/s", f)
}

// duration shows seconds.
func duration(f float64) string { return round(time.Duration(f * float64(time.Second))) }

// milliseconds gives figures for a row in that unit.
func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// microseconds gives figures for a row in that unit.
func microseconds(d time.Duration) float64 { return d.Seconds() * 1e6 }
