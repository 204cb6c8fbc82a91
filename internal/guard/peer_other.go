//go:build !linux

package guard

import "net"

// peer can't tell who connected: SO_PEERCRED is Linux's.
func peer(*net.UnixConn) string { return "unix socket" }
