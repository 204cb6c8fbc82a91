//go:build quick

package reconcile

import "time"

// These times are short, for tests of the built program.
const (
	SecondLook  = 200 * time.Millisecond
	ProbeTime   = 3 * time.Second
	lookAgain   = 2 * time.Second
	ChangeEvery = time.Second
)
