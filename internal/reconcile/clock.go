package reconcile

import "time"

// longestZoneWait is the longest time until a zone is tried again: the configuration's
// longest back-off with its jitter. It is longer than any pause that a provider may ask
// for.
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
	case l == LaneLater:
		return 24 * time.Hour
	}
	return 0
}

// waits reports whether a time is still to come. A time that is further ahead than the
// longest wait counts as past: the clock was ahead when it was stored, and has been set
// back since.
func waits(at, now time.Time, longest time.Duration) bool {
	return at.After(now) && at.Sub(now) <= longest
}
