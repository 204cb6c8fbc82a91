package connlimit

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// Rate bounds how often each network may cause something. Each entry is the time at which the next
// one would be due if all so far had come at the allowed rate.
type Rate struct {
	interval time.Duration // between two at the allowed rate; 0: no limit
	seed     maphash.Seed
	begun    time.Time
	due      []atomic.Int64 // since begun
}

// NewRate returns a Rate of so many a second for one network; 0: no limit. The number of entries
// bounds the memory. More networks share entries, chosen by a hash whose seed clients do not know.
func NewRate(perSecond, entries int) *Rate {
	l := &Rate{seed: maphash.MakeSeed(), begun: time.Now(), due: make([]atomic.Int64, entries)}
	if perSecond > 0 {
		l.interval = time.Second / time.Duration(perSecond)
	}
	return l
}

// Allow counts one of a network, or reports false if it is above the limit. A network may have those
// of one second in a burst.
func (l *Rate) Allow(network netip.Prefix, at time.Time) bool {
	if l.interval == 0 {
		return true
	}
	due := &l.due[maphash.Comparable(l.seed, network)%uint64(len(l.due))]
	now := int64(at.Sub(l.begun))
	for {
		old := due.Load()
		if old-now > int64(time.Second-l.interval) {
			return false
		}
		if due.CompareAndSwap(old, max(old, now)+int64(l.interval)) {
			return true
		}
	}
}
