//go:build quick

package reconcile

import "time"

// SecondLook and ProbeTime are short, for tests of the built program.
const (
	SecondLook = 200 * time.Millisecond
	ProbeTime  = 3 * time.Second
)
