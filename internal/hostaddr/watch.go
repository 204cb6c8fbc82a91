package hostaddr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// groups has the rtnetlink multicast groups (rtnetlink(7)). It includes links because the kernel does not report the IPv4 routes
// that it removes when their link goes down.
const groups = 1<<(syscall.RTNLGRP_LINK-1) |
	1<<(syscall.RTNLGRP_IPV4_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV4_ROUTE-1) |
	1<<(syscall.RTNLGRP_IPV6_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV6_ROUTE-1)

// watchKernel calls changed after each kernel report of a changed address, route or link. It returns nil when ctx ends.
// It also calls changed once when it begins to listen, so that no earlier change is missed.
// Calls do not overlap. One change may cause several calls, and a call may find no changed address.
func watchKernel(ctx context.Context, changed func()) error {
	socket, err := listen()
	if err != nil {
		return err
	}
	defer socket.Close()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()

	// Only the arrival of a message matters; the kernel drops the part that does not fit.
	var message [1]byte
	for ctx.Err() == nil {
		changed()
		_, err := socket.Read(message[:])
		// ENOBUFS: the kernel dropped messages because the reader was slow. Something did change.
		if err != nil && !errors.Is(err, syscall.ENOBUFS) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// listen opens a non-blocking netlink socket, so that Close ends a Read.
func listen() (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", hinted(err))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: groups}); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
