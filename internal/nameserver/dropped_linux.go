//go:build amd64 || arm64 || arm || riscv64

package nameserver

import (
	"syscall"
	"unsafe"
)

// soMemInfo is SO_MEMINFO, which package syscall lacks: nine numbers, the last of which
// counts the dropped messages (linux/sock_diag.h).
const soMemInfo = 55

// dropped returns the number of messages for which a socket's buffer had no room.
func dropped(conn syscall.RawConn) (count uint32) {
	conn.Control(func(fd uintptr) {
		var info [9]uint32
		size := uint32(unsafe.Sizeof(info))
		syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soMemInfo,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		count = info[8]
	})
	return count
}
