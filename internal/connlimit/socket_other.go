//go:build !linux

package connlimit

import "net"

// peerUser returns 0, so all users share one origin.
func peerUser(*net.UnixConn) uint32 { return 0 }

// unread returns false: unread input is not detected on this system.
func unread(net.Conn) bool { return false }
