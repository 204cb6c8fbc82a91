//go:build !linux

package nameserver

import (
	"errors"
	"syscall"
)

// On other systems the kernel chooses the source of answers on a wildcard address, and the
// server has one socket for each port.
const destinationSize = 0

func receiveDestination(syscall.RawConn) error { return nil }

func fromDestination([]byte) []byte { return nil }

func sharePort(syscall.RawConn) error { return errors.ErrUnsupported }
