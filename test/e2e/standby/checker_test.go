package standby

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is what a writer knows of a change.
type outcome int

const (
	unknown outcome = iota // no answer, or one that says that the change may have been stored
	kept                   // acknowledged
	refused                // not stored, as the answer says
)

// operation is a change that a writer asked for. Times are those of CLOCK_BOOTTIME.
type operation struct {
	machine        string
	term           uint64 // of the program, as it said at the beginning of the connection
	key            string // the prefix of the usage
	value          int    // what is there after it; 0: nothing
	durable        bool
	sent, answered time.Duration // answered is 0 without an answer
	given          time.Duration // the end of the second in its Date; 0 without one
	outcome        outcome
}

// ended is the latest time at which the answer was given: a machine can be paused between its last look at the clock and
// the system call that sends the answer.
func (o operation) ended() time.Duration { return min(o.answered, cmp.Or(o.given, o.answered)) }

// call is an update that arrived at the provider.
type call struct {
	machine string
	at      time.Duration
}

// tenure is a term of a machine. It begins when the agent asked for it.
type tenure struct {
	machine string
	term    uint64
	asked   time.Duration
}

// diary is what happened. Its methods may run at the same time.
type diary struct {
	mu         sync.Mutex
	operations []operation // those of a key in their order
	calls      []call
	tenures    []tenure
	serials    []uint32 // of the zone at the secondary, in the order in which they were seen
}

func (d *diary) operation(o operation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.operations = append(d.operations, o)
}

func (d *diary) call(c call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
}

func (d *diary) tenure(n tenure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenures = append(d.tenures, n)
}

func (d *diary) serial(n uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.serials) == 0 || d.serials[len(d.serials)-1] != n {
		d.serials = append(d.serials, n)
	}
}

// acknowledged counts the changes that a machine has acknowledged since a time, "" for any machine.
func (d *diary) acknowledged(machine string, since time.Duration) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.operations {
		if o.outcome == kept && o.sent >= since && (machine == "" || o.machine == machine) {
			n++
		}
	}
	return n
}

// durable reports whether a durable change that was sent since a time is acknowledged.
func (d *diary) durable(since time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.operations, func(o operation) bool { return o.outcome == kept && o.durable && o.sent >= since })
}

// end is what is there at the end: the value of each key in the database, and the records that stand and are wanted.
type end struct {
	values map[string]int
	// The records by their place, such as "provider _mesh.x.far.example.com".
	wanted, standing map[string]string
	foreign          []string // values of others that are lost or changed
}

// faults says what is wrong, a line each.
func (d *diary) faults(e end) (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.overlaps(), d.lateCalls(), d.losses(e.values), d.fallen(), different(e))
}

// span is the time in which a term acknowledged.
type span struct {
	machine     string
	first, last time.Duration
}

// spans gives those of all terms.
func (d *diary) spans() map[uint64]span {
	all := map[uint64]span{}
	for _, o := range d.operations {
		if o.outcome != kept {
			continue
		}
		s, there := all[o.term]
		if !there {
			s = span{o.machine, o.answered, o.ended()}
		}
		s.first, s.last = min(s.first, o.answered), max(s.last, o.ended())
		all[o.term] = s
	}
	return all
}

// overlaps wants each term to acknowledge after all smaller ones, on one machine.
func (d *diary) overlaps() (all []string) {
	spans := d.spans()
	terms := slices.Sorted(maps.Keys(spans))
	for i, older := range terms {
		for _, newer := range terms[i+1:] {
			if last, first := spans[older].last, spans[newer].first; last > first {
				all = append(all, fmt.Sprintf("two writers: term %d of %s acknowledged at %.2f, %.2f s after term %d of %s began to",
					older, spans[older].machine, last.Seconds(), (last-first).Seconds(), newer, spans[newer].machine))
			}
		}
	}
	for _, o := range d.operations {
		if s := spans[o.term]; o.outcome == kept && o.machine != s.machine {
			all = append(all, fmt.Sprintf("two writers: term %d has two machines", o.term))
			break
		}
	}
	return all
}

// termOf gives the term in which a machine made a call: its last one before that.
func (d *diary) termOf(c call) (term uint64) {
	for _, n := range d.tenures {
		if n.machine == c.machine && n.asked <= c.at {
			term = max(term, n.term)
		}
	}
	return term
}

// lateCalls wants no call of a term after the first one of a greater term.
func (d *diary) lateCalls() (all []string) {
	calls := slices.SortedFunc(slices.Values(d.calls), func(x, y call) int { return cmp.Compare(x.at, y.at) })
	newest := uint64(0)
	for _, c := range calls {
		term := d.termOf(c)
		if term < newest {
			all = append(all, fmt.Sprintf("a late call: %s called the provider at %.2f in term %d, after the first call of term %d", c.machine, c.at.Seconds(), term, newest))
		}
		newest = max(newest, term)
	}
	return all
}

// firm gives for each operation whether it may not be lost: a durable one, one of the last term, and one that was
// acknowledged before a durable one of its term was sent, because commits are replicated in their order.
func (d *diary) firm() []bool {
	covered, last := map[uint64]time.Duration{}, uint64(0)
	for _, o := range d.operations {
		if o.outcome == kept {
			last = max(last, o.term)
			if o.durable {
				covered[o.term] = max(covered[o.term], o.sent)
			}
		}
	}
	firm := make([]bool, len(d.operations))
	for i, o := range d.operations {
		firm[i] = o.outcome == kept && (o.durable || o.term == last || o.answered <= covered[o.term])
	}
	return firm
}

// losses wants each key to have the value of its last firm operation, or of a later one. No later one was refused for sure.
func (d *diary) losses(values map[string]int) (all []string) {
	firm := d.firm()
	may, why := map[string][]int{}, map[string]string{}
	for i, o := range d.operations {
		if _, there := may[o.key]; !there {
			may[o.key] = []int{0}
		}
		switch {
		case firm[i]:
			may[o.key] = []int{o.value}
			why[o.key] = fmt.Sprintf("%d of term %d, acknowledged at %.2f, durable: %t", o.value, o.term, o.answered.Seconds(), o.durable)
		case o.outcome != refused:
			may[o.key] = append(may[o.key], o.value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(may)) {
		if !slices.Contains(may[key], values[key]) {
			all = append(all, fmt.Sprintf("a lost write: %s has %d at the end, may have %d; last firm: %s", key, values[key], may[key], why[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, asked := may[key]; !asked {
			all = append(all, "a usage that no writer asked for: "+key)
		}
	}
	return all
}

// fallen wants no serial at the secondary to be before the one that was seen before it (RFC 1982).
func (d *diary) fallen() (all []string) {
	for i := 1; i < len(d.serials); i++ {
		if before, after := d.serials[i-1], d.serials[i]; int32(after-before) < 0 {
			all = append(all, fmt.Sprintf("a fallen serial: %d after %d", after, before))
		}
	}
	return all
}

// different compares DNS with the database.
func different(e end) (all []string) {
	places := map[string]bool{}
	for _, records := range []map[string]string{e.wanted, e.standing} {
		for place := range records {
			places[place] = true
		}
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if want, is := e.wanted[place], e.standing[place]; want != is {
			all = append(all, fmt.Sprintf("DNS is not the database: %s has %q, want %q", place, is, want))
		}
	}
	if len(e.foreign) > 0 {
		all = append(all, "a foreign value is touched: "+strings.Join(e.foreign, "; "))
	}
	return all
}
