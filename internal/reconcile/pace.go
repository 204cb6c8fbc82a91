//go:build !quick

package reconcile

import "time"

// ChangeEvery is the least time between two changes of a name that nodes or checks cause, in the long run. The build tag
// quick makes it short.
const ChangeEvery = time.Minute
