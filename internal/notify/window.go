//go:build !quick

package notify

import "time"

// window is the time in which events become one message, from the first one that waits.
const window = 10 * time.Second
