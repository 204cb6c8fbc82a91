package systemd

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1 // <linux/time.h>

// monotonic returns the time of CLOCK_MONOTONIC, by which the manager distinguishes two reloads
// (sd_notify(3)).
func monotonic() (time.Duration, bool) {
	var now syscall.Timespec
	_, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano()), fault == 0
}
