//go:build !linux

package httpserver

import (
	"net"
	"os"
)

// giveToGroup gives a socket's file to a group and lets the group in.
func giveToGroup(path string, group int) error {
	if err := os.Lchown(path, -1, group); err != nil {
		return err
	}
	return os.Chmod(path, socketMode)
}

// peerUser is nobody in particular: all share.
func peerUser(*net.UnixConn) uint32 { return 0 }

// unreadInput is not known here.
func unreadInput(net.Conn) bool { return false }
