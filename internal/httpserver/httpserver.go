// Package httpserver is the front of the HTTP API: its sockets, the limits of its clients,
// and a stop that loses no request. It knows nothing about the answers.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/metrics"
	"meshddns/internal/tasks"
)

const (
	headerTime = 5 * time.Second  // for a request's header
	bodyTime   = 15 * time.Second // for header and body
	idleTime   = 2 * time.Minute
	lingerTime = time.Second    // for the rest of a body, after an answer that did not need it
	maxHeader  = 16<<10 - 4<<10 // net/http adds 4 KiB of its own: 16 KiB in all

	silentTime   = 100 * time.Millisecond // for which a client keeps its connection at least, before its request and in it
	writeTime    = 15 * time.Second       // for a client to take 32 KiB of an answer
	patienceTime = 5 * time.Second        // for requests that wait for others, from the stop on

	// descriptorEighths is the part of the descriptors that connections may have: the DNS
	// server has a quarter, and the database and the providers need some.
	descriptorEighths = 3
)

// Config has the sockets and the handlers of a Server.
type Config struct {
	Listeners []net.Listener // bound by this program: connections that wait in them are served before they are closed
	Inherited []net.Listener // from the service manager, which keeps them: connections that wait in them are for the next program
	TCP, Unix http.Handler   // of requests over TCP, and over unix sockets
	// ConnContext does the work of ConnContext of http.Server, with the connection as it was accepted.
	ConnContext  func(context.Context, net.Conn) context.Context
	ShutdownTime time.Duration // for the answers in flight, from the stop on
	Log          *slog.Logger
}

// Server serves on some sockets.
type Server struct {
	config   Config
	limiter  *connlimit.Limiter
	stopping atomic.Bool
	patience context.Context // ends when requests must not wait for others any more
	hurry    context.CancelFunc
}

// New makes a server.
func New(c Config) *Server {
	s := &Server{config: c, limiter: newLimiter(connlimit.Places(descriptorEighths))}
	s.patience, s.hurry = context.WithCancel(context.Background())
	return s
}

// newLimiter returns the limits of so many connections: one client may have three quarters.
func newLimiter(places int) *connlimit.Limiter {
	return connlimit.New(connlimit.Config{
		Connections: places, PerClient: places * 3 / 4, Requests: places / 2, Grace: silentTime, WriteTime: writeTime,
	})
}

// Addrs returns the addresses that are listened on: host:port, or the path.
func (s *Server) Addrs() (addresses []string) {
	for _, l := range s.listeners() {
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// TCP reports whether the server is reached over TCP.
func (s *Server) TCP() bool {
	return slices.ContainsFunc(s.listeners(), func(l net.Listener) bool { return l.Addr().Network() == "tcp" })
}

// listeners returns all sockets, those that this program bound first.
func (s *Server) listeners() []net.Listener {
	return append(append([]net.Listener(nil), s.config.Listeners...), s.config.Inherited...)
}

// WriteMetrics writes the figures of the connections.
func (s *Server) WriteMetrics(page *metrics.Page) {
	open, working, crowdedOut := s.limiter.Counts()
	page.Family("meshddns_http_connections", "gauge", "Open HTTP connections.")
	page.Figure(uint64(open))
	page.Family("meshddns_http_requests_in_flight", "gauge", "HTTP requests that are worked on.")
	page.Figure(uint64(working))
	page.Family("meshddns_http_connections_crowded_out_total", "counter", "HTTP connections that were closed to make room.")
	page.Figure(crowdedOut)
}

// Close returns the sockets back when the program cannot start.
func (s *Server) Close() (err error) {
	s.hurry()
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Serve answers until ctx ends. Then it accepts nothing more, answers all requests that have
// come or come over open connections with "Connection: close", waits until that is over,
// and returns nil. The failure of a socket is its error.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	server := s.server()
	var accepting sync.WaitGroup
	failed := make(chan error, len(s.listeners()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, l := range s.listeners() {
		bound := i < len(s.config.Listeners)
		accepting.Go(func() {
			// Serve of http.Server closes the socket at its end.
			err := tasks.Call(func() error { return server.Serve(s.limiter.Listen(ctx, l, bound)) })
			if !errors.Is(err, connlimit.ErrStopped) {
				failed <- err
				cancel()
			}
		})
	}
	<-ctx.Done()
	s.stopping.Store(true)
	accepting.Wait()
	limit, done := context.WithTimeout(context.Background(), s.config.ShutdownTime)
	defer done()
	defer time.AfterFunc(patienceTime, s.hurry).Stop()
	// Shutdown of http.Server would cut a request that has come with the one before it: to
	// net/http its connection is idle (https://go.dev/src/net/http/server.go, StateActive).
	err := errors.Join(s.limiter.Drain(limit), server.Close())
	select {
	case lost := <-failed:
		return errors.Join(lost, err)
	default:
		return err
	}
}

func (s *Server) server() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// "OPTIONS *" is answered like every other unknown path.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn),
		// A request that has come is answered, also when the program is being stopped.
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), patienceKey{}, s.patience)
		},
		ConnContext: s.connContext,
	}
}

type connKey struct{}

func (s *Server) connContext(ctx context.Context, accepted net.Conn) context.Context {
	c := accepted.(*connlimit.Conn)
	if s.config.ConnContext != nil {
		ctx = s.config.ConnContext(ctx, c.Conn)
	}
	return context.WithValue(ctx, connKey{}, c)
}

type patienceKey struct{}

// Patience bounds the wait of a request for others: by a time, and by the stop of the
// program, which goes on for some seconds until then.
func Patience(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	patience, ok := ctx.Value(patienceKey{}).(context.Context)
	ctx, cancel := context.WithTimeout(ctx, limit)
	if !ok {
		return ctx, cancel
	}
	release := context.AfterFunc(patience, cancel)
	return ctx, func() { release(); cancel() }
}
