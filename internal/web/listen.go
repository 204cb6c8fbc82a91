package web

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ListenConfig has the addresses for Listen.
type ListenConfig struct {
	List  []string // host:port, tls:host:port or unix:/path
	Group string   // group of unix sockets, by name or number; "": the program's own
	Flag  string   // that gave the list, for errors; "": -listen
	Token bool     // clients need a token, so addresses that are not loopback are allowed
}

// unixPrefix is the prefix of a unix socket's address, and TLSPrefix that of an address with TLS.
const (
	unixPrefix = "unix:"
	TLSPrefix  = "tls:"
)

// InClear returns the addresses at which a network can read what clients send.
func InClear(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(address string) bool {
		return strings.HasPrefix(address, TLSPrefix) || strings.Contains(address, "/") || Loopback(address)
	})
}

// socketMode is the mode of a socket's file, which alone limits the clients: its user and
// group may connect.
const socketMode = 0o660

// CheckAddress returns an error for a unix socket without a file, because no file mode limits its clients.
func CheckAddress(address string) error {
	path, ok := strings.CutPrefix(address, unixPrefix)
	switch {
	case !ok:
		return nil
	case path == "":
		return fmt.Errorf("%q has no path: want unix:/path", address)
	case path[0] == '@' || path[0] == 0:
		return fmt.Errorf("%q is abstract and has no file whose mode would guard it: want unix:/path", address)
	}
	return nil
}

// Listen binds all addresses. On an error it binds none.
func Listen(c ListenConfig) (listeners []net.Listener, err error) {
	for _, address := range c.List {
		listener, err := c.listen(address)
		if err == nil {
			listeners = append(listeners, listener)
			if err = Guarded(listener, c.Token); err != nil {
				err = fmt.Errorf("%s: %q %w", c.flag(), address, err)
			}
		}
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
	}
	return listeners, nil
}

// Guarded returns an error for an abstract unix socket, and without a token for a TCP address
// that is not loopback.
func Guarded(listener net.Listener, token bool) error {
	if address, ok := listener.Addr().(*net.UnixAddr); ok {
		return CheckAddress(unixPrefix + address.Name)
	}
	if !token && !Loopback(listener.Addr().String()) {
		return errors.New("is not a loopback address: -token-file is required")
	}
	return nil
}

// networkOf limits 0.0.0.0 to IPv4, because package net would listen on [::], which accepts both families.
func networkOf(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}

func (c ListenConfig) flag() string { return cmp.Or(c.Flag, "-listen") }

func (c ListenConfig) listen(address string) (net.Listener, error) {
	if err := CheckAddress(address); err != nil {
		return nil, fmt.Errorf("%s: %w", c.flag(), err)
	}
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		address, secure := strings.CutPrefix(address, TLSPrefix)
		listener, err := net.Listen(networkOf(address), address)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c.flag(), err)
		case secure:
			return tlsListener{listener.(*net.TCPListener)}, nil
		}
		return listener, nil
	}
	group, err := GroupID(c.Group)
	if err != nil {
		return nil, err
	}
	return listenUnix(path, group)
}

// GroupID returns the number of a group given by number or name, -1 for "".
func GroupID(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(text, 10, 31); err == nil {
		return int(id), nil
	}
	group, err := user.LookupGroup(text)
	if err != nil {
		return 0, fmt.Errorf("-socket-group %q: want the name or number of a group of this host: %w", text, err)
	}
	return strconv.Atoi(group.Gid)
}

// listenUnix binds a unix socket. It replaces a socket file that refuses connections, the rest
// of a killed program. Until the group is set, only the owner can connect.
func listenUnix(path string, group int) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		conn, err := net.Dial("unix", path)
		switch {
		case err == nil:
			return nil, errors.Join(fmt.Errorf("%s: another program listens there", path), conn.Close())
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("%s may be in use by another program: stop that, or remove the file: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	mode := socketMode
	if group >= 0 {
		mode = 0o600
	}
	old := syscall.Umask(0o777 &^ mode)
	listener, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err == nil && group >= 0 {
		if err := giveToGroup(path, group); err != nil {
			return nil, errors.Join(fmt.Errorf("give %s to group %d: %w", path, group, err), listener.Close())
		}
	}
	return listener, err
}
