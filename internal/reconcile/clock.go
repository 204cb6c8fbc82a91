package reconcile

import "time"

// longestZoneWait is the longest time until a zone is tried again: the longest pause of the
// configuration with its jitter, which is longer than what a provider may ask for.
const longestZoneWait = maxRetryInterval + maxRetryInterval/5

// LongestWait is the longest time that a name waits in a lane.
func (l Lane) LongestWait() time.Duration {
	switch {
	case l.OfZone():
		return longestZoneWait
	case l == LaneLook:
		return max(lookAgain, SecondLook)
	case l == LaneAsked:
		return ProbeTime
	}
	return Debounce
}

// waits reports whether a time is still to come. A time that is further ahead than the longest wait
// has come: the clock that gave it was ahead and has been set back since.
func waits(at, now time.Time, longest time.Duration) bool {
	return at.After(now) && at.Sub(now) <= longest
}
