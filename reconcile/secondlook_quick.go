//go:build quick

package reconcile

import "time"

// SecondLook is short, for tests of the built program.
const SecondLook = 200 * time.Millisecond
