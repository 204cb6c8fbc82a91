//go:build !linux

package connlimit

import "net"

// Peer knows no user, because only Linux has SO_PEERCRED. So all users share one origin.
func Peer(*net.UnixConn) (user uint32, process int32, known bool) { return 0, 0, false }

// unread returns false: unread input is not detected on this system.
func unread(net.Conn) bool { return false }
