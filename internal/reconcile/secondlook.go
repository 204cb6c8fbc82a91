//go:build !quick

package reconcile

import "time"

// SecondLook is the time from a write, or from the look that saw a value gone, to the
// second look. The build tag quick makes it short.
const SecondLook = 60 * time.Second

// ProbeTime is the time after which the engine withdraws a stored probe. It is longer than
// any writer of a probe takes. The build tag quick makes it short.
const ProbeTime = 2 * time.Minute

// lookAgain is the pause after a second look that settled nothing, because the zone was down
// or the read failed. The build tag quick makes it short.
const lookAgain = 5 * time.Minute

// ChangeEvery is the least time between two changes of a name that nodes or checks cause, in the long run. The build tag
// quick makes it short.
const ChangeEvery = time.Minute
