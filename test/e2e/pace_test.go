package e2e

import (
	"crypto/sha256"
	"time"
)

const (
	// limit is how long a wait may take on an idle machine.
	limit = 30 * time.Second
	// slowest is the ceiling of pace: a wait ends even on a machine that does nothing else
	// than to swap.
	slowest = 8
	// idleWork is how long toil takes a core of 2023 that has nothing else to do.
	idleWork = 150 * time.Millisecond
)

// toil is a fixed piece of work, longer than the turns that the kernel gives a process
// that has slept: its length tells which part of a core is left for a process.
func toil() {
	block := make([]byte, 1<<20)
	for range 160 {
		sha256.Sum256(block)
	}
}

// pace measures how many times longer than on an idle machine the same work takes now,
// from 1 to slowest.
func pace() float64 {
	began := time.Now()
	toil()
	return min(max(1, float64(time.Since(began))/float64(idleWork)), slowest)
}

// paced stretches a limit as the machine's pace demands.
func paced(limit time.Duration) time.Duration {
	return time.Duration(pace() * float64(limit))
}

// within waits until a condition holds, and reports whether it does in the end. It gives up
// when the limit is over, and more: how much more, the pace of the machine at that time tells.
func (p *program) within(limit time.Duration, holds func() bool) bool {
	began := time.Now()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	allowed, measured := limit, false
	for !holds() {
		<-ticker.C
		if time.Since(began) < allowed {
			continue
		}
		if measured {
			return holds() // once more: the machine may have slept since
		}
		allowed, measured = paced(limit), true
	}
	return true
}
