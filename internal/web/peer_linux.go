package web

import (
	"cmp"
	"fmt"
	"net"
	"syscall"
)

// peer returns the user and process that connected to a unix socket, as they were at connect(2) (SO_PEERCRED, unix(7)).
func peer(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return "unix socket"
	}
	var cred *syscall.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if cmp.Or(err, sockErr) != nil {
		return "unix socket"
	}
	return fmt.Sprintf("uid %d pid %d", cred.Uid, cred.Pid)
}
