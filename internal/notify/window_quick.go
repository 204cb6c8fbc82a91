//go:build quick

package notify

import "time"

// window is short, for tests of the built program.
const window = 300 * time.Millisecond
