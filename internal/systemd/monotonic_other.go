//go:build !linux

package systemd

import "time"

// monotonic returns false, because systemd runs on Linux only.
func monotonic() (time.Duration, bool) { return 0, false }
