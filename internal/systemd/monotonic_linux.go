package systemd

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1 // <linux/time.h>

// monotonic is the time of the clock by which the manager tells this reload from an earlier one.
func monotonic() (time.Duration, bool) {
	var now syscall.Timespec
	_, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano()), fault == 0
}
