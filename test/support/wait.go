package support

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"
)

const (
	// Limit is how long a wait may take on an idle machine.
	Limit = time.Minute
	// Slowest is the highest pace, so that a wait ends on a machine that only swaps.
	Slowest = 8
	// idleWork is how long toil takes on an idle core of 2023.
	idleWork = 150 * time.Millisecond
)

// toil does a fixed piece of work. It takes longer than the time slice that the kernel gives
// to a process that has slept, so its duration tells which part of a core a process gets.
func toil() {
	block := make([]byte, 1<<20)
	for range 160 {
		sha256.Sum256(block)
	}
}

// Paced stretches a limit: by 1 on an idle machine, and up to Slowest when the machine takes
// longer for a fixed piece of work. It does that work, which takes 150 ms on an idle machine.
func Paced(limit time.Duration) time.Duration {
	began := time.Now()
	toil()
	pace := min(max(1, float64(time.Since(began))/float64(idleWork)), Slowest)
	return time.Duration(pace * float64(limit))
}

// Within waits until a condition holds and reports whether it does. When the limit is over,
// it measures the pace of the machine and waits as much longer as that pace demands. It looks every 10 ms
// at first, and ever less often up to twice a second, because each look may cost a process or a request.
func Within(limit time.Duration, holds func() bool) bool {
	began := time.Now()
	allowed, measured := limit, false
	for !holds() {
		waited := time.Since(began)
		<-time.After(min(max(10*time.Millisecond, waited/20), time.Second/2))
		if waited < allowed {
			continue
		}
		if measured {
			return holds() // once more: the machine may have slept since
		}
		allowed, measured = Paced(limit), true
	}
	return true
}

// Unlocked opens a database, or runs a program on it, once no other process has its lock. While another test starts a
// program, its child has all open files of this process, and so the locks of a database that this process has just closed.
func Unlocked(open func() error) (err error) {
	Within(Limit, func() bool {
		err = open()
		return err == nil || !strings.Contains(err.Error(), "in use by another meshddns")
	})
	return err
}

// Eventually waits for a condition as Within does, and ends the test if it never holds.
func Eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	if !Within(limit, holds) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}
