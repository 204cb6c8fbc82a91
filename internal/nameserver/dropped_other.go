//go:build !linux || !(amd64 || arm64 || arm || riscv64)

package nameserver

import "syscall"

// dropped returns 0: other systems do not report the number this way.
func dropped(syscall.RawConn) uint32 { return 0 }
