package hostaddr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// groups are the rtnetlink multicast groups. Links belong to them because the kernel does not report the IPv4 routes
// that go when their link goes down.
const groups = 1<<(syscall.RTNLGRP_LINK-1) |
	1<<(syscall.RTNLGRP_IPV4_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV4_ROUTE-1) |
	1<<(syscall.RTNLGRP_IPV6_IFADDR-1) | 1<<(syscall.RTNLGRP_IPV6_ROUTE-1)

// watchKernel calls changed after the kernel reports that an address, a route or a link changed, until ctx ends; then it
// returns nil. It calls changed once at the start too, when it listens: what changed before is not missed.
// Calls do not overlap. One change may bring several, and not each changes an address.
func watchKernel(ctx context.Context, changed func()) error {
	socket, err := listen()
	if err != nil {
		return err
	}
	defer socket.Close()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()

	// That a message came is all that matters; the kernel drops what does not fit.
	var message [1]byte
	for ctx.Err() == nil {
		changed()
		_, err := socket.Read(message[:])
		// ENOBUFS: messages came faster than they were read, and some are lost. Something did change.
		if err != nil && !errors.Is(err, syscall.ENOBUFS) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// listen opens a socket that the runtime polls, so that Close ends a Read.
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
