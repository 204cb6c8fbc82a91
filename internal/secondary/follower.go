package secondary

import (
	"container/heap"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meshddns/internal/daemon"
)

const (
	apart       = time.Second     // between two messages about one zone to one secondary
	longest     = 5 * time.Minute // until a message is repeated
	behindAfter = time.Minute     // the lag that is told as an event
	maxAhead    = 1 << 24         // a serial further ahead of ours, 194 days, is a mistake
	atOnce      = 16              // messages under way to a secondary that answers; one to others
	maxHosts    = 16              // whose versions of a zone are known
	livesFor    = time.Minute     // that a secondary counts as one that lives after it was heard
)

// pauses are those until a message is repeated.
var pauses = daemon.Backoff{First: time.Second, Longest: longest}

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
	case s != nil && s.known && int32(serial-s.fetched) <= 0:
		return nil
	case s == nil && !f.silent, s != nil && (now.Sub(s.heard) < livesFor || !f.silent && s.vain == 0):
		return f.news
	}
	return nil
}

// asks reports whether a caller asks now for the version that the secondary serves, as one of all callers in serveEvery.
func (f *follower) asks(zone string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.zones[zone]
	if s == nil || now.Sub(s.asked) < serveEvery {
		return false
	}
	s.asked = now
	return true
}

// noteServes notes the version that the secondary serves.
func (f *follower) noteServes(zone string, serial uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.zones[zone]; s != nil {
		s.serves = &serial
	}
}

// state is what is known of a zone at a secondary.
type state struct {
	zone     string
	serial   uint32    // the newest version
	moved    time.Time // when the secondary fell behind
	fetched  uint32
	known    bool      // fetched is known
	heard    time.Time // when it acknowledged a message about the zone, asked, or got a version last
	asked    time.Time // when it was asked for the version that it serves
	serves   *uint32   // the answer; nil: none yet
	sent     bool      // this process has sent fetched
	ahead    uint32    // a version that the secondary has from a lost database, not before ours; 0: none
	passed   bool      // the zone was moved past such a version
	hosts    []host
	notified time.Time
	due      time.Time // of the next message; zero: none
	vain     int       // messages about the newest version
	busy     bool      // a message is under way
	fault    error
	index    int // in the queue, from 1; 0: not in it
}

// host is an address of a secondary with the newest version of a zone that this process has sent there.
type host struct {
	address netip.Addr
	serial  uint32
}

// behind reports whether the secondary has not fetched the newest version.
func (s *state) behind() bool { return !s.known || int32(s.serial-s.fetched) > 0 }

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
	if s.index > 0 {
		heap.Remove(&f.queue, s.index-1)
	}
	if s.due = due; !due.IsZero() && !s.busy {
		heap.Push(&f.queue, s)
	}
}

// move makes a message about a new version due. The caller holds the lock.
func (f *follower) move(zone string, serial uint32, now time.Time) {
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
// take any more.
func (s Secondary) begin(zones map[string]uint32, now time.Time) {
	f := s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	for zone, known := range f.zones {
		if !s.takes(zone) {
			f.plan(known, time.Time{})
			delete(f.zones, zone)
		}
	}
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

// fetch notes that the secondary has got a version of a zone at an address. One before the last such version is that of
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
		f.has(s, serial, true)
	}
	f.tell(s, true)
}

// has notes the version that the secondary has. The caller holds the lock.
func (f *follower) has(s *state, serial uint32, sent bool) {
	s.fetched, s.known, s.sent = serial, true, sent
	if !s.behind() {
		s.moved, s.fault = time.Time{}, nil
		f.plan(s, time.Time{})
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
		f.has(s, serial, false)
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

// lag returns the time since the oldest change that the secondary has not fetched, and the number of
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
