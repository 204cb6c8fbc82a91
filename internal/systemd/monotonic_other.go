//go:build !linux

package systemd

import "time"

// monotonic has nobody to tell it to: systemd runs on Linux only.
func monotonic() (time.Duration, bool) { return 0, false }
