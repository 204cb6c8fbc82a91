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
	drainTime   = 50 * time.Millisecond // for connections that the kernel has taken already
)

// ErrStopped is the error of Accept after the end of the listener's context.
var ErrStopped = errors.New("the server stops")

// listener accepts connections for a Limiter.
type listener struct {
	net.Listener
	limiter *Limiter
	ctx     context.Context
}

// Listen returns a listener of *Conn, whose Accept waits while a shortage lasts, and fails with
// ErrStopped after the end of ctx. A listener that drains first accepts the connections
// that the kernel has taken already, which closing the socket would reset.
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
		case !passes(err):
			return nil, err
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(acceptPause):
		}
	}
}

// passes reports whether a listener still works after an error: the error is about one
// connection, or about a shortage (accept(2), "Error handling").
func passes(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.EPROTO, syscall.ENOPROTOOPT, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
	}, func(passing syscall.Errno) bool { return errors.Is(err, passing) })
}

// Times of a stop.
const (
	lookPause = 5 * time.Millisecond
	quietTime = 200 * time.Millisecond // without a sign of any client
	stopTime  = time.Second            // for clients to notice the stop
)

// Drain ends all connections, after the last Accept, and returns when none is open. It waits
// until all clients are silent, a second at most, then ends each connection as soon as it
// is idle. At the end of ctx it closes all but those with a request in work, and returns
// the error of ctx.
func (l *Limiter) Drain(ctx context.Context) error {
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	for end := time.Now().Add(stopTime); l.endIdle(!time.Now().Before(end)) > 0; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			l.closeUnlessWorking()
			return ctx.Err()
		}
	}
	return nil
}

// endIdle ends the connections that are idle if all are, or if it is late, and tells how many
// connections are open.
func (l *Limiter) endIdle(late bool) (open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := true
	for c := range l.open {
		all = all && c.state == idle
	}
	l.ending = l.ending || late || all && time.Since(l.last) >= quietTime
	for c := range l.open {
		if l.ending && c.state == idle && !unread(c.Conn) {
			c.end()
		}
	}
	return len(l.open)
}

func (l *Limiter) closeUnlessWorking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.state != working {
			l.remove(c)
		}
	}
	l.giveTurns()
}
