// Package soak has what a long run of the program has shown, second by second, what is
// wrong with it, and a page that shows it to a person.
package soak

import (
	"slices"
	"time"
)

// Result is a whole run.
type Result struct {
	Program  string // its version
	Load     string // in words
	Began    time.Time
	Took     time.Duration
	Short    bool // a slope of memory is not asked for
	Phases   []Phase
	Samples  []Sample
	Rests    []Rest
	Answers  []Answers
	Restarts int // with SIGTERM
	Kills    int // with SIGKILL
	Backups  int // that came whole, and were opened
	Cut      int // backups that a fault or a kill has ended
	Looks    int // at everything that is stored and published

	Unexpected []string // answers
	Lost       []string // differences between what was acknowledged and what is stored
	Unsound    []string // rows of testdata/invariants.sql
	Astray     []string // differences between what is wanted and what DNS answers
	Copies     []string // what is wrong with backups
	Panics     []string // lines of the log
	Goroutines int      // when it ended
}

// Kind is what a phase is of, and how it is shaded.
type Kind string

// The kinds of phases.
const (
	Calm    Kind = "calm"
	Backup  Kind = "backups"
	Restart Kind = "restarts"
	Kill    Kind = "kills"
	Disk    Kind = "disk faults"
	Outage  Kind = "provider outages"
)

// Kinds are all of them, in the order of the legend.
var Kinds = []Kind{Calm, Backup, Restart, Kill, Disk, Outage}

// Phase is a part of the run. Its end is followed by a rest, in which all that is stored
// and published is looked at.
type Phase struct {
	Name     string
	Kind     Kind
	From, To time.Duration
	Answers  int
	Met      int64 // requests and calls that the fault has met
}

// Sample is one second.
type Sample struct {
	At       time.Duration
	Life     int  // of the program, from 1; 0 while none runs
	Calm     bool // the phase is one without faults, backups and restarts
	Requests int64
	Resident int64 // octets
	Private  int64 // of these, those of no file: the heap and the stacks
	Log      int64 // size of the WAL
	Database int64
	Files    int // descriptors
	Threads  int
	Latency  [Classes]Latency
	States   map[string]int // records by state, as /metrics says
}

// Class is of requests whose latencies belong together.
type Class int

// What is waited for: the memory, a commit, a provider.
const (
	Read Class = iota
	Write
	DNS
	Slow
	Classes
)

func (c Class) String() string {
	return [...]string{"reads", "writes", "DNS", "calls that wait for a provider"}[c]
}

// Latency is of the answers of one second.
type Latency struct {
	Answers  int
	P50, P99 time.Duration
}

// LatencyOf sorts the times.
func LatencyOf(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[(len(times)-1)*percent/100] }
	return Latency{Answers: len(times), P50: at(50), P99: at(99)}
}

// Rest is what the program holds while it gets no requests.
type Rest struct {
	At       time.Duration
	Life     int
	Files    int
	Threads  int
	Database int64
}

// Answers counts the answers to one kind of request.
type Answers struct {
	Kind   string
	Status string // or what became of it without one
	Count  int
}
