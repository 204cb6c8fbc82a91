//go:build !quick

package check

import "time"

// quietTime is the least time between two changes of a name. The build tag quick makes it short.
const quietTime = time.Minute
