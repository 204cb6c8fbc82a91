package soak

import (
	"fmt"
	"time"

	"meshddns/internal/sqlite"
)

// Check is one thing that must hold.
type Check struct {
	What, Is, Want string
	OK             bool
}

// Bounds that no machine's speed changes.
const (
	// mostGrowth is what the collector's own rhythm may look like. A leak of 400 octets a
	// request is more in 20 000 requests.
	mostGrowth = 8 << 20
	// mostLog is twice what a commit lets the log of the database grow to.
	mostLog = 2 * sqlite.LogPages * (4096 + 24)
	// spareFiles are two of each further reader and of a checkpoint, and the connections that
	// are kept for the next call: four at a provider, and some of resolvers.
	spareFiles = 20
	// spareThreads wait for calls of the system that are over.
	spareThreads = 16
	// mostGoroutines are those of a program at rest, with its connections.
	mostGoroutines = 80
	// fewSamples say nothing about a slope.
	fewSamples = 10
)

// Checks judges the run.
func (r *Result) Checks() []Check {
	none := func(what string, wrong []string) Check {
		return Check{what, fmt.Sprint(len(wrong)), "0", len(wrong) == 0}
	}
	checks := []Check{
		none("unexpected answers", r.Unexpected),
		none("acknowledged and lost, or not asked for and there", r.Lost),
		none("rows of testdata/invariants.sql", r.Unsound),
		none("names that DNS answers otherwise than is wanted", r.Astray),
		none("faults of backups", r.Copies),
		none("panics", r.Panics),
		{"backups that were opened", fmt.Sprint(r.Backups), "1 at least", r.Backups > 0},
		{"looks at all that is stored and published", fmt.Sprint(r.Looks), fmt.Sprintf("%d", len(r.Phases)), r.Looks >= len(r.Phases) && r.Looks > 0},
		r.phases(),
		r.memory(),
		r.files(),
		r.threads(),
		r.log(),
		r.database(),
		{"goroutines at the end", fmt.Sprint(r.Goroutines), fmt.Sprintf("1 to %d", mostGoroutines), r.Goroutines > 0 && r.Goroutines <= mostGoroutines},
	}
	return checks
}

// phases looks whether every kind of phase was there, and every fault has met a call.
func (r *Result) phases() Check {
	seen := map[Kind]bool{}
	for _, p := range r.Phases {
		seen[p.Kind] = true
		if p.Met == 0 && (p.Kind == Disk || p.Kind == Outage) {
			return Check{"faults that met somebody", fmt.Sprintf("none in %q at %v", p.Name, p.From.Round(time.Second)), "1 at least in each phase of faults", false}
		}
	}
	return Check{"kinds of phases", fmt.Sprint(len(seen)), fmt.Sprint(len(Kinds)), len(seen) == len(Kinds)}
}

// Slope is how memory grew in one life of the program, over the calm seconds behind its
// first third.
type Slope struct {
	Life       int
	Samples    int
	Requests   int64
	Took       time.Duration
	From       float64 // octets, on the line
	PerRequest float64
}

// Growth is what was added from the first to the last request that counts.
func (s Slope) Growth() float64 { return s.PerRequest * float64(s.Requests) }

// PerHour is the same at the pace of the run.
func (s Slope) PerHour() float64 { return s.Growth() / max(s.Took.Hours(), 1e-9) }

// Slopes gives one for each life that was long enough.
func (r *Result) Slopes() (slopes []Slope) {
	lives := map[int][]Sample{}
	last := 0
	for _, s := range r.Samples {
		if last = max(last, s.Life); s.Calm && s.Life > 0 && s.Private > 0 {
			lives[s.Life] = append(lives[s.Life], s)
		}
	}
	for life := 1; life <= last; life++ {
		samples := lives[life]
		samples = samples[len(samples)/3:]
		if len(samples) >= fewSamples {
			slopes = append(slopes, slopeOf(life, samples))
		}
	}
	return slopes
}

// slopeOf fits a line by least squares. It is over requests, not over time: a faster
// machine leaks faster.
func slopeOf(life int, samples []Sample) Slope {
	first, last := samples[0], samples[len(samples)-1]
	var x, y, xx, xy float64
	for _, s := range samples {
		at := float64(s.Requests - first.Requests)
		x, y, xx, xy = x+at, y+float64(s.Private), xx+at*at, xy+at*float64(s.Private)
	}
	n := float64(len(samples))
	slope := Slope{Life: life, Samples: len(samples), Requests: last.Requests - first.Requests, Took: last.At - first.At}
	if d := n*xx - x*x; d > 0 {
		slope.PerRequest = (n*xy - x*y) / d
	}
	slope.From = (y - slope.PerRequest*x) / n
	return slope
}

// memory judges the slopes.
func (r *Result) memory() Check {
	c := Check{What: "growth of memory over the calm seconds of a life, by least squares", Want: megabytes(mostGrowth) + " at most", OK: true}
	slopes := r.Slopes()
	if len(slopes) == 0 {
		c.Is, c.OK = "too few seconds to tell", r.Short
		return c
	}
	worst := slopes[0]
	for _, s := range slopes {
		if s.Growth() > worst.Growth() {
			worst = s
		}
	}
	c.OK = worst.Growth() <= mostGrowth
	c.Is = fmt.Sprintf("%s in %d requests (life %d, %s: %.0f octets a request, %s an hour)",
		megabytes(worst.Growth()), worst.Requests, worst.Life, worst.Took.Round(time.Second), worst.PerRequest, megabytes(worst.PerHour()))
	return c
}

// lives gives the rests of each life.
func (r *Result) lives() map[int][]Rest {
	lives := map[int][]Rest{}
	for _, rest := range r.Rests {
		lives[rest.Life] = append(lives[rest.Life], rest)
	}
	return lives
}

// most finds the greatest growth from the first rest of a life to a later one.
func (r *Result) most(of func(Rest) int64) (from, to int64) {
	for _, rests := range r.lives() {
		for _, rest := range rests {
			if first := of(rests[0]); of(rest)-first >= to-from {
				from, to = first, of(rest)
			}
		}
	}
	return from, to
}

func (r *Result) files() Check {
	from, to := r.most(func(rest Rest) int64 { return int64(rest.Files) })
	return Check{"descriptors at rest: the first time, and at most", fmt.Sprintf("%d, %d", from, to), fmt.Sprintf("%d more at most", spareFiles), to > 0 && to <= from+spareFiles}
}

func (r *Result) threads() Check {
	from, to := r.most(func(rest Rest) int64 { return int64(rest.Threads) })
	return Check{"threads at rest: the first time, and at most", fmt.Sprintf("%d, %d", from, to), fmt.Sprintf("%d more at most", spareThreads), to > 0 && to <= from+spareThreads}
}

func (r *Result) log() Check {
	var most int64
	for _, s := range r.Samples {
		most = max(most, s.Log)
	}
	return Check{"size of the WAL at most", megabytes(float64(most)), megabytes(mostLog) + " at most", most > 0 && most <= mostLog}
}

// database bounds the file, whose names come and go.
func (r *Result) database() Check {
	from, to := r.most(func(rest Rest) int64 { return rest.Database })
	return Check{"size of the database: the first time, and at most", megabytes(float64(from)) + ", " + megabytes(float64(to)), "twice as much and 1 MiB at most", to > 0 && to <= 2*from+1<<20}
}

func megabytes(octets float64) string { return fmt.Sprintf("%.1f MiB", octets/(1<<20)) }
