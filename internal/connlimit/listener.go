package connlimit

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"
)

const (
	acceptPause = 50 * time.Millisecond // while the process or the system lacks descriptors or memory
	drainTime   = 50 * time.Millisecond // for connections in the kernel's accept queue
)

// ErrStopped is the error of Accept after the listener's context has ended.
var ErrStopped = errors.New("the server stops")

// listener accepts connections for a Limiter.
type listener struct {
	net.Listener
	limiter *Limiter
	ctx     context.Context
}

// Listen returns a listener whose Accept returns a *Conn. Accept waits during a shortage of
// descriptors or memory, and fails with ErrStopped after ctx has ended. With drain it first
// accepts the connections in the kernel's accept queue, because closing the socket would
// reset them.
func (l *Limiter) Listen(ctx context.Context, inner net.Listener, drain bool) net.Listener {
	context.AfterFunc(ctx, func() {
		at := time.Now()
		if drain {
			at = at.Add(drainTime)
		}
		if timed, ok := inner.(interface{ SetDeadline(time.Time) error }); !ok || timed.SetDeadline(at) != nil {
			inner.Close()
		}
	})
	return &listener{inner, l, ctx}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			return l.limiter.Admit(c), nil
		case l.ctx.Err() != nil:
			return nil, ErrStopped
		case !Passes(err):
			return nil, err
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(acceptPause):
		}
	}
}

// Passes reports whether a socket still works after err: the error concerns one client (ICMP, or accept(2), "Error
// handling"), or a shortage.
func Passes(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ECONNABORTED, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPERM, syscall.EINTR, syscall.EMSGSIZE, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EPROTO, syscall.ENOPROTOOPT, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
	}, func(passing syscall.Errno) bool { return errors.Is(err, passing) })
}

// Times of a stop.
const (
	lookPause = 5 * time.Millisecond
	quietTime = 200 * time.Millisecond // silence of all clients
	stopTime  = time.Second            // for clients to notice the stop
)

// Drain ends all connections and returns when none is open. Call it after the last Accept. It waits
// at most a second until all clients are silent, then ends each connection as soon as it
// is idle. When ctx ends, it closes all connections without a request in work, and returns
// the error of ctx.
func (l *Limiter) Drain(ctx context.Context) error {
	tick := time.Tick(lookPause)
	for end := time.Now().Add(stopTime); l.endIdle(!time.Now().Before(end)) > 0; {
		select {
		case <-tick:
		case <-ctx.Done():
			l.closeUnlessWorking()
			return ctx.Err()
		}
	}
	return nil
}

// endIdle ends the idle connections if all are idle and silent, or if late. It returns the number of
// open connections.
func (l *Limiter) endIdle(late bool) (open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := true
	for c := range l.open {
		all = all && c.phase == idle
	}
	l.ending = l.ending || late || all && time.Since(l.last) >= quietTime
	for c := range l.open {
		if l.ending && c.phase == idle && !unread(c.Conn) {
			c.end()
		}
	}
	return len(l.open)
}

func (l *Limiter) closeUnlessWorking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.phase != working && c.phase != yielded {
			l.remove(c)
		}
	}
	l.giveTurns()
}
