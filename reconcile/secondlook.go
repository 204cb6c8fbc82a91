//go:build !quick

package reconcile

import "time"

// SecondLook is how long after a write a value that is gone, or whose write may
// have been made or not, is looked for once more. The tag quick makes it short.
const SecondLook = 60 * time.Second
