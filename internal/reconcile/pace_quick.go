//go:build quick

package reconcile

import "time"

// ChangeEvery is short, for tests of the built program.
const ChangeEvery = time.Second
