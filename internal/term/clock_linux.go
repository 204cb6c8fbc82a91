package term

import (
	"cmp"
	"math"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockBoottime  = 7                // <linux/time.h>
	tcpUserTimeout = 18               // TCP_USER_TIMEOUT, <linux/tcp.h>
	queueTime      = 10 * time.Second // see Dial
)

// boottime returns the time of CLOCK_BOOTTIME, as /proc/uptime has it. A clock that cannot be read has passed every end.
func boottime() float64 {
	var now syscall.Timespec
	if _, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0); fault != 0 {
		return math.Inf(1)
	}
	return time.Duration(now.Nano()).Seconds()
}

// limitQueue makes the kernel give up what the peer of a TCP connection has not acknowledged for queueTime.
func limitQueue(conn syscall.RawConn) (err error) {
	closed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(queueTime.Milliseconds()))
	})
	return cmp.Or(err, closed)
}
