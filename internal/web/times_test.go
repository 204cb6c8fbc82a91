package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a socket of pipes.
type pipes struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestShares: of 512 connections one client has 384, and 256 requests have a turn.
func TestShares(t *testing.T) {
	if l := newLimiter(512); l.Connections != 512 || l.PerClient != 384 || l.Requests != 256 {
		t.Errorf("%+v", l.Config)
	}
}

// TestTimesOfRequests: a header has 5 s, a whole request 15 s, and a client has 15 s to take 32 KiB of an answer. What comes a
// nanosecond before that is in time.
func TestTimesOfRequests(t *testing.T) {
	large := strings.Repeat("x", 32<<10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, large)
	})
	for _, test := range []struct {
		what, begin, rest string
		limit             time.Duration
	}{
		{"header", "GET / HTTP/1.1\r\nHost: a\r\n", "\r\n", 5 * time.Second},
		{"request", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1", "2", 15 * time.Second},
		{"answer", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 15 * time.Second},
	} {
		for _, after := range []time.Duration{test.limit - 1, test.limit} {
			synctest.Test(t, func(t *testing.T) {
				socket := newPipes()
				s := NewServer(ServerConfig{Listeners: []net.Listener{socket}, ShutdownTime: time.Second, Log: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error)
				go func() { served <- s.Serve(ctx, Handlers{handler, handler}) }()
				client, server := net.Pipe()
				socket.conns <- server
				io.WriteString(client, test.begin)
				<-time.After(after)
				synctest.Wait()
				_, err := io.WriteString(client, test.rest)
				client.SetReadDeadline(time.Now().Add(time.Second))
				answer, _ := io.ReadAll(client)
				client.Close()
				if whole := strings.Contains(string(answer), large); whole != (after < test.limit) || whole && err != nil {
					t.Errorf("%s of %v: %d octets, %v", test.what, after, len(answer), err)
				}
				cancel()
				if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
}
