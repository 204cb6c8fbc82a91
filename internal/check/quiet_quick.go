//go:build quick

package check

import "time"

// quietTime is short, for tests of the built program.
const quietTime = time.Second
