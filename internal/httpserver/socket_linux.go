package httpserver

import (
	"fmt"
	"net"
	"syscall"
)

// What package syscall lacks.
const (
	openPath    = 0x200000 // O_PATH
	atEmptyPath = 0x1000   // AT_EMPTY_PATH
)

// giveToGroup gives a socket's file to a group and lets the group in. Who can write
// into the folder could put another file there: what was opened is changed, if it
// is a socket, and no link is followed.
func giveToGroup(path string, group int) error {
	fd, err := syscall.Open(path, openPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("%s is not a socket", path)
	}
	if err := syscall.Fchownat(fd, "", -1, group, atEmptyPath); err != nil {
		return err
	}
	return syscall.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), socketMode)
}

// peerUser tells the user who connected to a unix socket.
func peerUser(c *net.UnixConn) (user uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			user = cred.Uid
		}
	})
	return user
}

// unreadInput reports whether something has come that is not read yet.
func unreadInput(c net.Conn) (unread bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		var octet [1]byte
		n, _, err := syscall.Recvfrom(int(fd), octet[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		unread = err == nil && n > 0
	})
	return unread
}
