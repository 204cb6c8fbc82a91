package connlimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A shortage is waited for, other errors are not; at the end of its context Accept stops.
func TestAcceptDuringShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := newSocket()
		ctx, cancel := context.WithCancel(t.Context())
		listener := New(small).Listen(ctx, socket, false)
		server, _ := pipe(t, 1)
		go func() {
			for _, next := range []any{syscall.EMFILE, &net.OpError{Err: fmt.Errorf("accept: %w", syscall.ENFILE)}, syscall.ECONNABORTED, server, syscall.EBADF, syscall.EMFILE} {
				socket.accepted <- next
			}
		}()
		begun := time.Now()
		if c, err := listener.Accept(); err != nil || time.Since(begun) != 3*acceptPause {
			t.Errorf("%v, %v after %v", c, err, time.Since(begun))
		}
		if _, err := listener.Accept(); err != syscall.EBADF {
			t.Errorf("a lost socket: %v", err)
		}
		begun = time.Now()
		go func() { <-time.After(acceptPause / 2); cancel() }()
		if _, err := listener.Accept(); err != ErrStopped || time.Since(begun) != acceptPause/2 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// timed is a listener that notes the deadline of Accept.
type timed struct {
	*socket
	deadline time.Time
}

func (l *timed) SetDeadline(at time.Time) error {
	l.deadline = at
	return nil
}

// A listener that drains has time for the connections that the kernel has taken.
func TestListenerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for drain, want := range map[bool]time.Duration{true: drainTime, false: 0} {
			inner := &timed{socket: newSocket()}
			ctx, cancel := context.WithCancel(t.Context())
			listener := New(small).Listen(ctx, inner, drain)
			cancel()
			synctest.Wait()
			if got := time.Until(inner.deadline); got != want {
				t.Errorf("stops after %v, want %v", got, want)
			}
			go inner.dial(t, 1)
			if _, err := listener.Accept(); err != nil {
				t.Errorf("until then: %v", err)
			}
			inner.Close()
			if _, err := listener.Accept(); err != ErrStopped {
				t.Errorf("after that: %v", err)
			}
		}
	})
}

// A request that has come is answered, also if its server has not read it yet.
func TestDrainAfterUnreadRequest(t *testing.T) {
	server, client := tcpPair(t)
	l := New(small)
	c := l.Admit(server)
	c.listens() // as a server that reads and is not run
	client.Write([]byte{1})
	for !unread(server) {
	}
	if open := l.endIdle(true); open != 1 || c.phase != idle {
		t.Errorf("%d are open, phase %d", open, c.phase)
	}
	c.Conn.Read(make([]byte, 1))
	if l.endIdle(true); c.phase != ending {
		t.Errorf("phase %d", c.phase)
	}
}

// drain ends the connections within a time, and gives the time that it took.
func drain(l *Limiter, limit time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begun := time.Now()
	err = l.Drain(ctx)
	took = time.Since(begun)
	synctest.Wait()
	return took, err
}

// serve reads a request of one octet after the other, and works on each for a time.
func (p peer) serve(work time.Duration) {
	defer p.Close()
	for octet := make([]byte, 1); ; p.Rest() {
		if _, err := p.Read(octet); err != nil || !p.Work(false) {
			return
		}
		<-time.After(work)
		p.Write(octet)
	}
}

// Idle connections end once all clients have been silent for a moment.
func TestDrainOfSilentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		for n := range byte(3) {
			p := admit(t, l, n)
			go p.serve(0)
			if n == 0 {
				go io.Copy(io.Discard, p.client)
				go func() {
					for range 5 {
						<-time.After(quietTime / 2)
						p.client.Write([]byte{1})
					}
				}()
			}
		}
		if took, err := drain(l, time.Minute); err != nil || took < 5*quietTime/2+quietTime || took > 5*quietTime/2+quietTime+2*lookPause {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A request in work is answered, and so are those that come until stopTime is over.
func TestDrainWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		busy, idle, chatty := admit(t, l, 1), admit(t, l, 2), admit(t, l, 3)
		go busy.serve(10 * time.Second)
		go idle.serve(0)
		go chatty.serve(0)
		busy.client.Write([]byte{1})
		lasted := make(chan time.Duration, 1)
		begun := time.Now()
		go func() {
			for err := error(nil); err == nil; _, err = chatty.client.Read(make([]byte, 1)) {
				<-time.After(quietTime / 2)
				chatty.client.Write([]byte{1})
			}
			lasted <- time.Since(begun)
		}()
		answered := make(chan error, 1)
		go func() { _, err := busy.client.Read(make([]byte, 1)); answered <- err }()
		if took, err := drain(l, time.Minute); err != nil || took < 10*time.Second || took > 10*time.Second+2*lookPause {
			t.Errorf("%v after %v", err, took)
		}
		if err := <-answered; err != nil {
			t.Errorf("the request in work: %v", err)
		}
		if kept := <-lasted; kept < stopTime || kept > stopTime+quietTime {
			t.Errorf("a client that goes on asking is served for %v", kept)
		}
	})
}

// At the end of its time Drain closes the connections whose clients have to act.
func TestDrainHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		all := []peer{admitWorking(t, l, 1, false), admit(t, l, 1)}
		go all[1].Read(make([]byte, 2))
		all[1].client.Write([]byte{1}) // a part of a request
		go func() {
			if after(2 * time.Second); !all[1].is(reading) {
				t.Error("ended before its time")
			}
		}()
		if took, err := drain(l, 3*time.Second); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if expect(t, "in the end", all, 1); all[0].Rest() {
			t.Error("a connection goes on after its answer")
		}
	})
}

// A request that came with the one before it is answered before its connection ends.
func TestDrainAfterPipelinedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		p := admitWorking(t, l, 1, false)
		answered := 0
		go func() {
			defer p.Close()
			for range 3 {
				<-time.After(time.Second)
				answered++
				p.Rest()
				<-time.After(lookPause * 10) // the server is slow to look at the next one
				p.Work(false)
			}
			p.Rest()
			p.Read(make([]byte, 1))
		}()
		if _, err := drain(l, time.Minute); err != nil || answered != 3 {
			t.Errorf("%v, %d answers", err, answered)
		}
	})
}

func TestPasses(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "read", Err: fmt.Errorf("recvmsg: %w", syscall.ECONNREFUSED)}: true,
		syscall.ENOMEM: true, syscall.EBADF: false, net.ErrClosed: false, io.EOF: false,
	} {
		if Passes(err) != want {
			t.Errorf("Passes(%v) = %t", err, !want)
		}
	}
}
