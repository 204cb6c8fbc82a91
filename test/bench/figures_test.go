// Package bench measures what the program's work costs: the built program, on
// real HTTP, with a database that has been filled as it fills it itself.
//
//	go test ./test/bench -count=1 -v            small sizes
//	go test ./test/bench -count=1 -v -timeout 1h -large
//
// It prints one table. Times decide nothing; what can be counted does, at small
// sizes. -run Figures/memory or Speed/post measures one group of lines.
package bench

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var large = flag.Bool("large", false, "measure at full size: a million names")

// sizes are numbers of names, and of repetitions.
type sizes struct {
	few     int // that a greater number is compared with
	many    int // for one change, and for a release beside a pass
	most    int // for all that must not grow
	bulk    int // published or read together
	far     int // at a provider far away
	changes int // one after the other, each with its moment of waiting
	reads   int
	idle    time.Duration
}

func size() sizes {
	if *large {
		return sizes{few: 1000, many: 100_000, most: 1_000_000, bulk: 10_000, far: 5500, changes: 50, reads: 500, idle: 60 * time.Second}
	}
	return sizes{few: 100, many: 5000, most: 10_000, bulk: 1000, far: 200, changes: 5, reads: 50, idle: 3 * time.Second}
}

// line is one line of the table.
type line struct {
	row, measured, figure, must, aim string
	ok                               bool
	doubt                            bool // what it is compared with was not steady
	counts                           bool // it does not depend on time
	grows                            bool // its bound grows with the number of names
}

// table is what is printed.
type table struct{ lines []line }

// printed is the one table that every test adds to.
var printed table

func (l line) String() string {
	verdict := "no"
	switch {
	case l.must == "":
		verdict = ""
	case l.doubt:
		verdict = "INCONCLUSIVE"
	case l.ok:
		verdict = "yes"
	}
	return "| " + strings.Join([]string{l.row, l.measured, l.figure, l.must, l.aim, verdict}, " | ") + " |"
}

// print prints all lines once more, together.
func (b *table) print() {
	if len(b.lines) == 0 {
		return
	}
	fmt.Println("\n| figure | measured | is | must | aim | ok |\n|---|---|---|---|---|---|")
	for _, l := range b.lines {
		fmt.Println(l)
	}
}

// add notes a line, prints it, and fails if docs/performance.md has the line with other bounds and, at
// small sizes, for a count that is too high.
func (b *table) add(t *testing.T, l line) {
	t.Helper()
	b.lines = append(b.lines, l)
	fmt.Println(l)
	if page := documented(t)[l.row]; len(page) > 0 && !slices.Contains(page, [2]string{l.must, l.aim}) && !l.grows {
		t.Errorf("%s: the bounds are %q and %q, and in docs/performance.md %q", l.row, l.must, l.aim, page)
	}
	if l.counts && !l.ok && l.must != "" && !*large {
		t.Errorf("%s: %s, must be %s", l.row, l.figure, l.must)
	}
}

// documented returns "must" and "aim" of each line of docs/performance.md, by its row.
func documented(t *testing.T) map[string][][2]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string][][2]string{}
	for text := range strings.Lines(string(page)) {
		if cells := strings.Split(strings.TrimPrefix(text, "| "), " | "); len(cells) == 6 && cells[0] != "figure" {
			bounds[cells[0]] = append(bounds[cells[0]], [2]string{cells[3], cells[4]})
		}
	}
	return bounds
}

// group is some lines that are measured together.
type group struct {
	name    string
	measure func(t *testing.T, b *table)
}

// asked skips what measures. A machine with other work has other figures, so they are asked for.
func asked(t *testing.T) {
	if os.Getenv("MESHDDNS_BENCH") == "" && !*large {
		t.Skip("MESHDDNS_BENCH=1 and -large measure, on a machine without other work")
	}
}

func measure(t *testing.T, groups []group) {
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) { g.measure(t, &printed) })
	}
}

// TestFigures measures what names cost: publishing, looking, changing.
func TestFigures(t *testing.T) {
	asked(t)
	measure(t, []group{
		{"change", oneChange},
		{"reads", reads},
		{"memory", memory},
		{"idle", idle},
		{"new", newName},
		{"bulk", bulk},
		{"unchanged", unchangedAtAlibaba},
		{"far", farAway},
		{"beside", besidePass},
		{"once", atOnce},
		{"challenges", challenges},
		{"burst", burst},
		{"reserve", reserveBeside},
	})
}

// median gives the one in the middle.
func median[T cmp.Ordered](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func slowest(all []time.Duration) time.Duration { return slices.Max(all) }

func total(all []time.Duration) (sum time.Duration) {
	for _, d := range all {
		sum += d
	}
	return sum
}

// ratio compares the medians of two lists of times.
func ratio(large, small []time.Duration) float64 {
	return float64(median(large)) / float64(median(small))
}

// round shows a time with three digits.
func round(d time.Duration) string {
	unit := time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
