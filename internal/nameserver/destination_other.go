//go:build !linux

package nameserver

import (
	"errors"
	"syscall"
)

// Elsewhere the system chooses the source of answers on a wildcard address,
// and does not spread queries over the sockets of a port.
const destinationSize = 0

func receiveDestination(syscall.RawConn) error { return nil }

func fromDestination([]byte) []byte { return nil }

func sharePort(syscall.RawConn) error { return errors.ErrUnsupported }
