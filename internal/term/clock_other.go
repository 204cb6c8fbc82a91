//go:build !linux

package term

import (
	"math"
	"syscall"
)

// boottime has passed every end, because only Linux has the clock.
func boottime() float64 { return math.Inf(1) }

func limitQueue(syscall.RawConn) error { return nil }
