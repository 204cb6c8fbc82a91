//go:build !(amd64 || arm64 || arm || riscv64)

package nameserver

import "syscall"

// dropped returns 0: package syscall lacks the call on the other architectures.
func dropped(syscall.RawConn) uint32 { return 0 }
