package secondary

import (
	"container/heap"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

const (
	apart       = time.Second     // between two messages about one zone to one secondary
	longest     = 5 * time.Minute // until a message is repeated
	behindAfter = time.Minute     // the lag that is told as an event
	maxAhead    = 1 << 24         // a serial further ahead of ours, 194 days, is a mistake
	atOnce      = 16              // messages under way to a secondary that answers; one to others
	maxHosts    = 16              // whose versions of a zone are known
	loading     = 4               // questions, 1.5 s, until it is an error that a secondary does not serve what it has fetched
	livesFor    = time.Minute     // that a secondary counts as one that lives after it was heard
)

// pauses are those until a message is repeated, and asking those until a secondary is asked again whether it serves what it
// has fetched, which NSD loads up to a second later.
var (
	pauses = daemon.Backoff{First: time.Second, Longest: longest}
	asking = daemon.Backoff{First: 100 * time.Millisecond, Longest: longest}
)

// follower knows the versions of the zones at one secondary, and which messages to it are due. It has its
// own lock and its own messages under way, so one secondary never waits for another.
type follower struct {
	told bool // the event of its lag is the last one; only Run uses it

	mu       sync.Mutex
	news     chan struct{} // closed, and made anew, when something is heard, or a message ends without an answer
	zones    map[string]*state
	queue    queue
	underway int  // messages
	silent   bool // it did not answer the last message
	quiet    bool // it gets no message
}

func newFollower() *follower { return &follower{zones: map[string]*state{}, news: make(chan struct{})} }

// tell notes that a message about a zone has ended, or that the secondary was heard about it. The caller holds the lock.
func (f *follower) tell(s *state, heard bool) {
	if heard {
		s.heard = time.Now()
	}
	close(f.news)
	f.news = make(chan struct{})
}

// wants returns a channel that is closed when something is heard of a secondary that lacks a version of a zone and was heard
// about it within livesFor, or is still to be told of the version; nil if it has the version, or does not live.
func (f *follower) wants(zone string, serial uint32, now time.Time) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.zones[zone]
	switch {
	case f.quiet || s != nil && s.has(serial):
		return nil
	case s == nil && !f.silent, s != nil && (now.Sub(s.heard) < livesFor || !f.silent && s.vain == 0):
		return f.news
	}
	return nil
}

// state is what is known of a zone at a secondary.
type state struct {
	zone     string
	serial   uint32    // the newest version
	moved    time.Time // when the secondary fell behind
	fetched  uint32    // the last version that it was sent, or says to have
	known    bool      // fetched is known
	taken    *uint32   // the version that it serves, fetched at most; nil: not known
	heard    time.Time // when it acknowledged a message about the zone, asked, or got a version last
	sent     bool      // this process has sent fetched
	ahead    uint32    // a version that the secondary has from a lost database, not before ours; 0: none
	passed   bool      // the zone was moved past such a version
	hosts    []host
	notified time.Time
	due      time.Time // of the next message; zero: none
	vain     int       // messages about the newest version, or questions about fetched
	busy     bool      // a message is under way
	fault    error
	index    int // in the queue, from 1; 0: not in it
}

// host is an address of a secondary with the newest version of a zone that this process has sent there.
type host struct {
	address netip.Addr
	serial  uint32
}

// has reports whether the secondary serves a version or a later one.
func (s *state) has(serial uint32) bool { return s.taken != nil && int32(serial-*s.taken) <= 0 }

// behind reports whether the secondary does not serve the newest version.
func (s *state) behind() bool { return !s.has(s.serial) }

// lacks reports whether the secondary has not fetched a version.
func (s *state) lacks(serial uint32) bool { return !s.known || int32(serial-s.fetched) > 0 }

// queue is a heap of zones by the time when their message is due.
type queue []*state

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i+1, j+1
}

// Push adds a zone at the end, for package heap.
func (q *queue) Push(x any) {
	s := x.(*state)
	*q = append(*q, s)
	s.index = len(*q)
}

// Pop removes the last zone, for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	s.index = 0
	return s
}

// at returns the state of a zone, a new one with a serial if nothing is known of it. The caller holds the
// lock.
func (f *follower) at(zone string, serial uint32) *state {
	if f.zones[zone] == nil {
		f.zones[zone] = &state{zone: zone, serial: serial}
	}
	return f.zones[zone]
}

// state returns what is known of a zone.
func (f *follower) state(zone string) (known state) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.zones[zone]; s != nil {
		known = *s
	}
	return known
}

// plan makes the next message about a zone due at a time; zero is never. The caller holds the lock.
func (f *follower) plan(s *state, due time.Time) {
	if f.quiet {
		return
	}
	if s.index > 0 {
		heap.Remove(&f.queue, s.index-1)
	}
	if s.due = due; !due.IsZero() && !s.busy {
		heap.Push(&f.queue, s)
	}
}

// move makes a message about a new version due. The caller holds the lock.
func (f *follower) move(zone string, serial uint32, now time.Time) {
	if f.quiet {
		return
	}
	s := f.at(zone, serial)
	if s.moved.IsZero() {
		s.moved = now
	}
	s.serial, s.vain = serial, 0
	due := now
	if next := s.notified.Add(apart); next.After(now) {
		due = next
	}
	f.plan(s, due)
}

// begin makes a message due about each zone that the secondary lacks, and forgets zones that it does not
// take any more; all of one that gets no message.
func (s Secondary) begin(zones map[string]uint32, now time.Time) {
	f := s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	for zone, known := range f.zones {
		if !s.takes(zone) || !*s.Notify {
			f.plan(known, time.Time{})
			delete(f.zones, zone)
		}
	}
	f.quiet = !*s.Notify
	for zone, serial := range zones {
		if known := f.zones[zone]; s.takes(zone) && (known == nil || known.behind()) {
			f.move(zone, serial, now)
		}
	}
}

// hear notes that a zone has a new serial. An older one than is known is that of an earlier commit, whose
// notice came later.
func (f *follower) hear(zone string, serial uint32, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.zones[zone]; known == nil || int32(serial-known.serial) > 0 {
		f.move(zone, serial, now)
	}
}

// fetch notes that the secondary has got a version of a zone at an address, and makes the question due whether it serves it: BIND
// refuses a version with too many records after it has read all. One before the last such version is that of
// an earlier transfer, which ended later.
func (f *follower) fetch(zone string, from netip.Addr, serial uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at(zone, serial)
	if int32(serial-s.serial) > 0 {
		s.serial = serial
	}
	if at := slices.IndexFunc(s.hosts, func(h host) bool { return h.address == from }); at < 0 {
		s.hosts = append(s.hosts[max(0, len(s.hosts)-maxHosts+1):], host{from, serial})
	} else if int32(serial-s.hosts[at].serial) > 0 {
		s.hosts[at].serial = serial
	}
	if !s.sent || int32(serial-s.fetched) > 0 {
		s.fetched, s.known, s.sent, s.vain, s.fault = serial, true, true, 0, nil
		if s.moved.IsZero() && !f.quiet {
			s.moved = time.Now()
		}
		if !s.lacks(s.serial) {
			f.plan(s, time.Now())
		}
	}
	f.tell(s, true)
}

// serves notes the version that the secondary serves. The caller holds the lock.
func (f *follower) serves(s *state, serial uint32) {
	if s.taken = &serial; !s.behind() {
		s.moved, s.fault = time.Time{}, nil
		f.plan(s, time.Time{})
	}
}

// answered notes the answer to the question about the version that the secondary serves. One that gives no SOA record does not
// tell, and counts as serving what it has fetched, except with SERVFAIL: it has no zone. The caller holds the lock.
func (f *follower) answered(s *state, answer dns.Message) {
	named, told := serialIn(answer)
	if !told || int32(named-s.fetched) > 0 {
		named = s.fetched // a server that signs has later serials of its own
	}
	if s.fault = nil; s.vain >= loading && (named != s.fetched || answer.Rcode == dns.RcodeServFail) {
		s.fault = errOlder
	}
	if told || answer.Rcode != dns.RcodeServFail {
		f.serves(s, named)
	}
}

// names notes the version that the secondary says at an address to have, and reports whether this process has sent it there.
// If not, the present serial or a later one is from a database that is lost, because Renew gave each zone
// a new one. A server that signs may have any serial, so the zone is moved only once. The caller holds the
// lock.
func (f *follower) names(s *state, from netip.Addr, serial uint32) (sent bool) {
	later := serial - s.serial
	switch {
	case slices.Contains(s.hosts, host{from, serial}):
		return true
	case later <= maxAhead && !s.passed:
		s.ahead = serial
		f.plan(s, time.Now())
	case int32(later) <= 0:
		s.fetched, s.known, s.sent = serial, true, false
		f.serves(s, serial)
	}
	return false
}

// next takes the zone of a message that is due; nil is none. pause is the time until the next one is due,
// if the end of a message does not come first.
func (f *follower) next(now time.Time) (s *state, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	places := atOnce
	if f.silent {
		places = 1
	}
	if len(f.queue) == 0 || f.underway >= places {
		return nil, longest
	}
	if wait := f.queue[0].due.Sub(now); wait > 0 {
		return nil, min(wait, longest)
	}
	s = heap.Pop(&f.queue).(*state)
	s.busy, s.due = true, time.Time{}
	f.underway++
	return s, 0
}

// lag returns the time since the oldest change that the secondary does not serve, and the number of
// zones that it has been late with for behindAfter.
func (f *follower) lag(now time.Time) (oldest time.Duration, late int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.zones {
		if !s.behind() || s.moved.IsZero() {
			continue
		}
		since := now.Sub(s.moved)
		if oldest = max(oldest, since); since >= behindAfter {
			late++
		}
	}
	return oldest, late
}
