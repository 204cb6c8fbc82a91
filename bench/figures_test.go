// Package bench measures what the program's work costs: the built program, on
// real HTTP, with a database that has been filled as it fills it itself.
//
//	go test ./bench -count=1 -v            small sizes, under a minute
//	go test ./bench -count=1 -v -timeout 1h -large
//
// It prints a table. Times decide nothing; what can be counted does, at small
// sizes. -run Figures/memory measures one group of lines.
package bench

import (
	"cmp"
	"flag"
	"fmt"
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
	row, measured, figure, must string
	ok                          bool
	counts                      bool // it does not depend on time
}

// table is what is printed.
type table struct{ lines []line }

func (l line) String() string {
	verdict := "no"
	switch {
	case l.must == "":
		verdict = ""
	case l.ok:
		verdict = "yes"
	}
	return "| " + strings.Join([]string{l.row, l.measured, l.figure, l.must, verdict}, " | ") + " |"
}

// add notes a line, prints it, and at small sizes fails for a count that is too
// high.
func (b *table) add(t *testing.T, l line) {
	t.Helper()
	b.lines = append(b.lines, l)
	fmt.Println(l)
	if l.counts && !l.ok && l.must != "" && !*large {
		t.Errorf("%s: %s, must be %s", l.row, l.figure, l.must)
	}
}

func TestFigures(t *testing.T) {
	b := &table{}
	for _, group := range []struct {
		name    string
		measure func(t *testing.T, b *table)
	}{
		{"change", oneChange},
		{"reads", reads},
		{"memory", memory},
		{"idle", idle},
		{"new", newName},
		{"bulk", bulk},
		{"unchanged", unchangedAtAlibaba},
		{"far", farAway},
		{"beside", besidePass},
	} {
		t.Run(group.name, func(t *testing.T) { group.measure(t, b) })
	}
	fmt.Println("\n| figure | measured | is | must | ok |\n|---|---|---|---|---|")
	for _, l := range b.lines {
		fmt.Println(l)
	}
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
