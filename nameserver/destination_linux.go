package nameserver

import (
	"encoding/binary"
	"net"
	"syscall"
)

// destinationSize holds the control message with either packet info.
var destinationSize = syscall.CmsgSpace(syscall.SizeofInet6Pktinfo)

// receiveDestination makes the socket tell to which address each query came.
// On a wildcard address the kernel would choose the source of the answer by
// its route back, and a client drops what comes from an address it did not ask.
func receiveDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		// A socket of IPv6 that also takes IPv4 tells IPv4 addresses mapped.
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO, 1)
		if failed != nil {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// fromDestination turns the control message of a query into that of its
// answer. The interface is left to the routes: the way back may be another.
func fromDestination(control []byte) []byte {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil
	}
	index := 0 // in_pktinfo begins with the interface
	if messages[0].Header.Level == syscall.IPPROTO_IPV6 {
		index = 16 // in6_pktinfo has it behind the address
	}
	if len(messages[0].Data) < index+4 {
		return nil
	}
	binary.NativeEndian.PutUint32(messages[0].Data[index:], 0)
	return control
}
