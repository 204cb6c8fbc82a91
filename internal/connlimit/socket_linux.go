package connlimit

import (
	"net"
	"syscall"
)

// Peer returns the user and the process that connected to a unix socket, as they were at connect(2) (SO_PEERCRED, unix(7)).
func Peer(c *net.UnixConn) (user uint32, process int32, known bool) {
	control(c, func(fd int) {
		if cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			user, process, known = cred.Uid, cred.Pid, true
		}
	})
	return user, process, known
}

// unread reports whether the socket has input that the server has not read.
func unread(c net.Conn) (is bool) {
	control(c, func(fd int) {
		var octet [1]byte
		n, _, err := syscall.Recvfrom(fd, octet[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = err == nil && n > 0
	})
	return is
}

// control calls f with the descriptor of a connection that has one.
func control(c net.Conn, f func(fd int)) {
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}
