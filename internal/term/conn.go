package term

import (
	"cmp"
	"context"
	"net"
	"syscall"
	"time"
)

const (
	tcpUserTimeout = 18               // TCP_USER_TIMEOUT, <linux/tcp.h>
	queueTime      = 10 * time.Second // see Dial
)

// Dial connects as a dialer does. If ctx has a term (Term.Context), the connection writes no octet after its end: each system
// call looks at the clock first. Then the connection is reset, which drops what the kernel has not sent. Over TCP the kernel
// gives up what the peer has not acknowledged for 10 s, also after the program has ended.
func Dial(ctx context.Context, dialer net.Dialer, network, address string) (net.Conn, error) {
	t, bound := ctx.Value(key{}).(*Term)
	if !bound {
		return dialer.DialContext(ctx, network, address)
	}
	if t.Over() {
		return nil, ErrOver
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if _, isTCP := conn.(*net.TCPConn); err == nil && isTCP {
		err = limitQueue(raw)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &bounded{Conn: conn, term: t, raw: raw}
	c.release = context.AfterFunc(t.ended, func() { c.drop() })
	return c, nil
}

// limitQueue makes the kernel give up what the peer of a TCP connection has not acknowledged for queueTime.
func limitQueue(conn syscall.RawConn) (err error) {
	closed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(queueTime.Milliseconds()))
	})
	return cmp.Or(err, closed)
}

// bounded is a connection that ends with a term.
type bounded struct {
	net.Conn
	term    *Term
	raw     syscall.RawConn
	release func() bool
}

func (c *bounded) Write(p []byte) (n int, err error) {
	closed := c.raw.Write(func(fd uintptr) (done bool) {
		for n < len(p) && err == nil {
			if c.term.Over() {
				err = ErrOver
				break
			}
			size, fault := syscall.Write(int(fd), p[n:])
			switch fault {
			case nil:
				n += size
			case syscall.EAGAIN:
				return false // until the socket has room
			case syscall.EINTR:
			default:
				err = fault
			}
		}
		return true
	})
	return n, cmp.Or(err, closed)
}

func (c *bounded) Close() error {
	c.release()
	return c.drop()
}

// drop closes the connection. After the end of the term it resets it.
func (c *bounded) drop() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.term.Over() {
		tcp.SetLinger(0)
	}
	return c.Conn.Close()
}
