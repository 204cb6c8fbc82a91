//go:build !quick

package reconcile

import "time"

// SecondLook is how long after a write a value that is gone, or whose write may
// have been made or not, is looked for once more. The tag quick makes it short.
const SecondLook = 60 * time.Second

// ProbeTime is how long after it was stored a probe is withdrawn that nothing has ended:
// longer than any of its writers takes. The tag quick makes it short.
const ProbeTime = 2 * time.Minute
