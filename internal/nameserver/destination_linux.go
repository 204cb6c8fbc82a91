package nameserver

import (
	"encoding/binary"
	"syscall"
)

// destinationSize holds the control message with either packet info.
var destinationSize = syscall.CmsgSpace(syscall.SizeofInet6Pktinfo)

// receiveDestination makes the socket report the destination address of each query. On a
// wildcard address the kernel would choose the source of the answer by its route, and a
// client drops an answer from another address than the one it asked.
func receiveDestination(conn syscall.RawConn) error {
	if setOption(conn, syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO) == nil {
		return nil
	}
	return setOption(conn, syscall.IPPROTO_IP, syscall.IP_PKTINFO)
}

// soReusePort is SO_REUSEPORT, which package syscall lacks on some
// architectures; where it has another number, the option is refused.
const soReusePort = 15

// sharePort lets several sockets of this user share one port.
func sharePort(conn syscall.RawConn) error { return setOption(conn, syscall.SOL_SOCKET, soReusePort) }

func setOption(conn syscall.RawConn, level, option int) (err error) {
	controlErr := conn.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, 1) })
	if controlErr != nil {
		return controlErr
	}
	return err
}

// fromDestination turns the control message of a query into that of its answer. It clears
// the interface, because the route of the answer may use another one.
func fromDestination(control []byte) []byte {
	if len(control) == 0 {
		return nil
	}
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil
	}
	index := 0 // in_pktinfo begins with the interface
	if messages[0].Header.Level == syscall.IPPROTO_IPV6 {
		index = 16 // in6_pktinfo has it after the address
	}
	if len(messages[0].Data) < index+4 {
		return nil
	}
	binary.NativeEndian.PutUint32(messages[0].Data[index:], 0)
	return control
}
