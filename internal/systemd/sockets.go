package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// wanted says which sockets each name (FileDescriptorName= in a socket unit) allows.
var wanted = map[string]string{
	"http": "TCP, or a unix stream socket with a path (ListenStream=)", "http-tls": "TCP (ListenStream=)",
	"dns": "TCP or UDP (ListenStream=, ListenDatagram=)", "node": "TCP (ListenStream=)", "node-tls": "TCP (ListenStream=)",
}

// tlsListener marks a socket whose clients speak TLS to package web.
type tlsListener struct{ *net.TCPListener }

func (tlsListener) TLS() {}

const (
	firstSocket = 3   // SD_LISTEN_FDS_START
	maxSockets  = 128 // more than a unit needs
)

// Sockets has the sockets that the manager opened. The manager keeps descriptors of its own, so
// connections and packets that arrive while the program is stopped wait for the next start.
type Sockets struct {
	HTTP   []net.Listener   // *net.TCPListener, one with the method TLS, or *net.UnixListener
	Node   []net.Listener   // *net.TCPListener, or one with the method TLS
	DNSTCP []net.Listener   // *net.TCPListener
	DNSUDP []net.PacketConn // *net.UDPConn
}

// Close closes all sockets of this process.
func (s Sockets) Close() (err error) {
	for _, socket := range slices.Concat(s.HTTP, s.Node, s.DNSTCP) {
		err = errors.Join(err, socket.Close())
	}
	for _, socket := range s.DNSUDP {
		err = errors.Join(err, socket.Close())
	}
	return err
}

// Duplicate returns descriptors of their own for the same sockets. Call it before the sockets are used.
func (s Sockets) Duplicate() (all Sockets, err error) {
	add := func(socket any, name string) {
		if _, secure := socket.(interface{ TLS() }); secure {
			name += "-tls"
		}
		file, fault := socket.(interface{ File() (*os.File, error) }).File()
		if fault == nil {
			fault = errors.Join(all.add(file, name), file.Close())
		}
		err = errors.Join(err, fault)
	}
	for name, listeners := range map[string][]net.Listener{"http": s.HTTP, "node": s.Node, "dns": s.DNSTCP} {
		for _, l := range listeners {
			add(l, name)
		}
	}
	for _, c := range s.DNSUDP {
		add(c, "dns")
	}
	if err != nil {
		return Sockets{}, errors.Join(err, all.Close())
	}
	return all, nil
}

// inherit takes one descriptor for each name, from first on. The sockets are closed on exec.
// If one is unusable, inherit closes all.
func inherit(first int, names []string) (s Sockets, err error) {
	for i, name := range names {
		file := os.NewFile(uintptr(first+i), name)
		if fault := s.add(file, name); fault != nil {
			err = errors.Join(err, fmt.Errorf("socket %d (%q): %w", first+i, name, fault))
		}
		file.Close() // add has a duplicate, which is closed on exec
	}
	if err != nil {
		return Sockets{}, errors.Join(err, s.Close())
	}
	return s, nil
}

// add adds a socket to the list for its name and kind.
func (s *Sockets) add(file *os.File, name string) error {
	if wanted[name] == "" {
		return errors.New("unknown name: want http, http-tls, dns, node or node-tls (FileDescriptorName= in the socket unit)")
	}
	kind, err := syscall.GetsockoptInt(int(file.Fd()), syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil {
		return fmt.Errorf("it is no socket: %w", err)
	}
	if kind == syscall.SOCK_DGRAM {
		return s.addPackets(file, name)
	}
	listens, err := syscall.GetsockoptInt(int(file.Fd()), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	if listens == 0 {
		return errors.New("it does not listen: want Accept=no in the socket unit")
	}
	return s.addListener(file, name)
}

func (s *Sockets) addPackets(file *os.File, name string) error {
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return err
	}
	if _, ok := conn.(*net.UDPConn); !ok || name != "dns" {
		return errors.Join(wrongKind(name, conn.LocalAddr()), conn.Close())
	}
	s.DNSUDP = append(s.DNSUDP, conn)
	return nil
}

func (s *Sockets) addListener(file *os.File, name string) error {
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	tcp, isTCP := listener.(*net.TCPListener)
	if plain, ok := strings.CutSuffix(name, "-tls"); ok && isTCP {
		listener, name = tlsListener{tcp}, plain
	}
	switch address := listener.Addr(); {
	case isTCP && name == "dns":
		s.DNSTCP = append(s.DNSTCP, listener)
	case isTCP && name == "node":
		s.Node = append(s.Node, listener)
	case isTCP, name == "http" && address.Network() == "unix" && !strings.HasPrefix(address.String(), "@"):
		s.HTTP = append(s.HTTP, listener)
	default: // also an abstract socket, because every user could open it
		return errors.Join(wrongKind(name, address), listener.Close())
	}
	return nil
}

// wrongKind returns an error with the kind of the socket and the kinds that its name allows.
func wrongKind(name string, address net.Addr) error {
	return fmt.Errorf("it is %s %s: want %s", address.Network(), address, wanted[name])
}
