package term

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// held is a term without looks at its file, whose clock a test sets. It ends at 1010 s.
type held struct {
	*Term
	now atomic.Int64
}

func hold(t *testing.T) (h *held, ctx context.Context) {
	h = &held{}
	h.now.Store(1000)
	h.Term = &Term{Number: 7, granted: grant{Until: 1012}, file: &file{now: func() float64 { return float64(h.now.Load()) }}}
	h.ended, h.end = context.WithCancel(context.Background())
	t.Cleanup(h.end)
	return h, context.WithValue(t.Context(), key{}, h.Term)
}

// peer is a connection of Dial and its other side.
func peer(t *testing.T, ctx context.Context) (c, other net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	support.Must(t, err)
	defer l.Close()
	c, err = Dial(ctx, net.Dialer{}, "tcp", l.Addr().String())
	support.Must(t, err)
	t.Cleanup(func() { c.Close() })
	other, err = l.Accept()
	support.Must(t, err)
	t.Cleanup(func() { other.Close() })
	other.SetDeadline(time.Now().Add(support.Patience))
	return c, other
}

// stuck starts a write that is larger than all buffers, to a peer that does not read, and returns when it waits.
func stuck(t *testing.T, c net.Conn, well func(error) bool) <-chan int {
	t.Helper()
	written := make(chan int, 1)
	go func() {
		n, err := c.Write(make([]byte, 64<<20))
		if !well(err) {
			t.Errorf("the write that waited: %v", err)
		}
		written <- n
	}()
	support.Eventually(t, support.Limit, "the write waits", func() bool {
		text := make([]byte, 1<<20)
		for goroutine := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
			if strings.Contains(goroutine, " [IO wait") && strings.Contains(goroutine, "bounded).Write(") {
				return true
			}
		}
		return false
	})
	return written
}

// TestDialWithoutTerm: such a connection is one of package net.
func TestDialWithoutTerm(t *testing.T) {
	c, _ := peer(t, t.Context())
	if _, plain := c.(*net.TCPConn); !plain {
		t.Errorf("a %T", c)
	}
	u, err := Dial(t.Context(), net.Dialer{}, "udp", "127.0.0.1:9")
	support.Must(t, err)
	defer u.Close()
	if _, plain := u.(*net.UDPConn); !plain {
		t.Errorf("a %T", u)
	}
}

// TestWriteAtTheEnd: a write that waits for room ends with the term, although nothing has looked at the clock; its peer
// gets no octet that was not in the buffers.
func TestWriteAtTheEnd(t *testing.T) {
	h, ctx := hold(t)
	c, other := peer(t, ctx)
	written := stuck(t, c, isOver)
	h.now.Store(1010)
	got := make(chan int64, 1)
	go func() {
		n, err := io.Copy(io.Discard, other)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer gets %v, want a reset", err)
		}
		got <- n
	}()
	n := support.Receive(t, written)
	c.Write([]byte("more"))
	if read := support.Receive(t, got); read > int64(n) {
		t.Errorf("the peer gets %d octets, before the end were %d", read, n)
	}
}

// TestEndDropsTheQueue: at the end of the term the peer gets a reset in place of what it has not received, also while a write waits.
func TestEndDropsTheQueue(t *testing.T) {
	for _, close := range []bool{false, true} { // by the program, after the end
		h, ctx := hold(t)
		c, other := peer(t, ctx)
		support.Must(t, other.(*net.TCPConn).SetReadBuffer(8<<10)) // a buffer that grows may take the whole queue
		written := stuck(t, c, isOver)
		if h.now.Store(1010); close {
			c.Close()
		} else if !h.Over() {
			t.Error("not over")
		}
		n := support.Receive(t, written)
		support.Eventually(t, support.Limit, "the connection is closed", func() bool { return c.SetDeadline(time.Time{}) != nil })
		if read, err := io.Copy(io.Discard, other); !errors.Is(err, syscall.ECONNRESET) || read >= int64(n) || n >= 64<<20 {
			t.Errorf("of %d octets before the end the peer gets %d and %v", n, read, err)
		}
	}
}

// TestCloseBeforeTheEnd: the peer gets all, and then the end of the connection.
func TestCloseBeforeTheEnd(t *testing.T) {
	h, ctx := hold(t)
	c, other := peer(t, ctx)
	n, err := c.Write(make([]byte, 100_000))
	support.Must(t, err)
	support.Must(t, c.Close())
	h.now.Store(1010)
	h.Over() // the connection is not its own any more
	if read, err := io.Copy(io.Discard, other); err != nil || read != int64(n) || n != 100_000 {
		t.Errorf("of %d octets the peer gets %d and %v", n, read, err)
	}
}

// TestDeadline: a write that waits obeys the deadline of the connection.
func TestDeadline(t *testing.T) {
	_, ctx := hold(t)
	c, _ := peer(t, ctx)
	written := stuck(t, c, isTimeout)
	c.SetWriteDeadline(time.Now())
	if n := support.Receive(t, written); n == 0 {
		t.Error("no octet")
	}
}

func isOver(err error) bool { return errors.Is(err, ErrOver) || errors.Is(err, net.ErrClosed) }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestWholeWrite: a large write to a peer that reads is whole.
func TestWholeWrite(t *testing.T) {
	_, ctx := hold(t)
	c, other := peer(t, ctx)
	go func() {
		if n, err := c.Write(make([]byte, 20<<20)); n != 20<<20 || err != nil {
			t.Errorf("%d octets, %v", n, err)
		}
		c.Close()
	}()
	if n, err := io.Copy(io.Discard, other); n != 20<<20 || err != nil {
		t.Errorf("the peer gets %d octets, %v", n, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestQueueTime: the kernel gives up after 10 s what the peer has not acknowledged.
func TestQueueTime(t *testing.T) {
	_, ctx := hold(t)
	c, _ := peer(t, ctx)
	c.(*bounded).raw.Control(func(fd uintptr) {
		if ms, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout); ms != 10_000 || err != nil {
			t.Errorf("TCP_USER_TIMEOUT %d ms, %v", ms, err)
		}
	})
}

// TestDialAfterTheEnd: no connection begins.
func TestDialAfterTheEnd(t *testing.T) {
	h, ctx := hold(t)
	h.now.Store(1010)
	begun := false
	dialer := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error { begun = true; return nil }}
	if _, err := Dial(ctx, dialer, "tcp", "127.0.0.1:9"); err != ErrOver || begun {
		t.Errorf("%v, begun %v", err, begun)
	}
}

// TestDialAtTheEnd: a connection whose dial waits while the term ends is closed, and carries nothing.
func TestDialAtTheEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	support.Must(t, err)
	defer l.Close()
	for range 100 {
		h, ctx := hold(t)
		dialer := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
			h.now.Store(1010)
			h.Over()
			return nil
		}}
		c, err := Dial(ctx, dialer, "tcp", l.Addr().String())
		if err == nil {
			if n, err := c.Write([]byte("x")); n > 0 || err == nil {
				t.Errorf("%d octets, %v", n, err)
			}
			support.Eventually(t, support.Limit, "the connection is closed", func() bool { return c.SetDeadline(time.Time{}) != nil })
			c.Close()
		}
		other, err := l.Accept()
		support.Must(t, err)
		if text, _ := io.ReadAll(other); len(text) > 0 {
			t.Errorf("the peer gets %q", text)
		}
		other.Close()
	}
}

// TestUDP: a datagram after the end does not leave.
func TestUDP(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	support.Must(t, err)
	defer l.Close()
	l.SetDeadline(time.Now().Add(support.Patience))
	h, ctx := hold(t)
	c, err := Dial(ctx, net.Dialer{}, "udp", l.LocalAddr().String())
	support.Must(t, err)
	defer c.Close()
	marker, err := net.Dial("udp", l.LocalAddr().String())
	support.Must(t, err)
	defer marker.Close()
	_, err = c.Write([]byte("before"))
	support.Must(t, err)
	h.now.Store(1010)
	if n, err := c.Write([]byte("after")); n > 0 || err != ErrOver {
		t.Errorf("%d octets, %v", n, err)
	}
	_, err = marker.Write([]byte("marker"))
	support.Must(t, err)
	for _, want := range []string{"before", "marker"} {
		text := make([]byte, 100)
		n, _, err := l.ReadFrom(text)
		if support.Must(t, err); string(text[:n]) != want {
			t.Errorf("%q, want %q", text[:n], want)
		}
	}
}

// TestTLS: TLS writes through the connection of Dial, also its last alert.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	h, ctx := hold(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	support.Must(t, err)
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		text, _ := io.ReadAll(tls.Server(conn, server.TLS))
		got <- string(text)
	}()
	conn, err := Dial(ctx, net.Dialer{}, "tcp", l.Addr().String())
	support.Must(t, err)
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	_, err = c.Write([]byte("before"))
	support.Must(t, err)
	h.now.Store(1010)
	if n, err := c.Write([]byte("after")); n > 0 || err == nil {
		t.Errorf("%d octets, %v", n, err)
	}
	c.Close()
	if text := support.Receive(t, got); text != "before" && text != "" {
		t.Errorf("the peer gets %q", text)
	}
}
