//go:build !linux

package web

import "net"

// peer does not know the other end, because only Linux has SO_PEERCRED.
func peer(*net.UnixConn) string { return "unix socket" }
