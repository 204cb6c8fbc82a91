// Package httpserver is the front of the HTTP API: its sockets, the bounds on what
// clients may hold, and a stop that loses no request. It knows nothing of what is
// answered.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"meshddns/internal/metrics"
	"meshddns/internal/tasks"
)

const (
	headerTime = 5 * time.Second  // for a request's header
	bodyTime   = 15 * time.Second // for header and body
	idleTime   = 2 * time.Minute
	lingerTime = time.Second    // for a body that nobody reads, after the answer
	maxHeader  = 16<<10 - 4<<10 // net/http adds 4 KiB of its own: 16 KiB in all

	quietTime    = 200 * time.Millisecond // without a sign of any client
	stopTime     = time.Second            // for clients to notice the stop
	patienceTime = 5 * time.Second        // for requests that wait for others, from the stop on
	drainTime    = 50 * time.Millisecond  // for connections that the kernel has taken already
)

// Config is what a server is told.
type Config struct {
	Listeners []net.Listener // bound by this program: what waits in them is answered before they are closed
	Inherited []net.Listener // from the service manager, who keeps them: what waits in them is for the next program
	TCP, Unix http.Handler   // by what the request came over
	// ConnContext is that of http.Server, for the connection as it was accepted.
	ConnContext    func(context.Context, net.Conn) context.Context
	ShutdownTime   time.Duration // for the answers in flight, from the stop on
	MaxConnections int           // 0: as MaxConnections says
	Log            *slog.Logger
}

// Server serves on some sockets.
type Server struct {
	config   Config
	gate     *gate
	patience context.Context // ends when requests must not wait for others any more
	hurry    context.CancelFunc
}

// New makes a server.
func New(c Config) *Server {
	if c.MaxConnections == 0 {
		c.MaxConnections = MaxConnections()
	}
	s := &Server{config: c, gate: newGate(c.MaxConnections)}
	s.patience, s.hurry = context.WithCancel(context.Background())
	return s
}

// Addrs gives the addresses that are listened on: host:port, or the path.
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

// listeners are all, those of this program first.
func (s *Server) listeners() []net.Listener {
	return append(append([]net.Listener(nil), s.config.Listeners...), s.config.Inherited...)
}

// WriteMetrics writes the figures of the connections.
func (s *Server) WriteMetrics(page *metrics.Page) {
	s.gate.mu.Lock()
	open, working, crowdedOut := len(s.gate.open), s.gate.total.working, s.gate.crowdedOut
	s.gate.mu.Unlock()
	page.Family("meshddns_http_connections", "gauge", "Open HTTP connections.")
	page.Figure(uint64(open))
	page.Family("meshddns_http_requests_in_flight", "gauge", "HTTP requests that are worked on.")
	page.Figure(uint64(working))
	page.Family("meshddns_http_connections_crowded_out_total", "counter", "HTTP connections that were closed to make room.")
	page.Figure(crowdedOut)
}

// Close gives the sockets back when the program cannot start.
func (s *Server) Close() error {
	s.hurry()
	return s.closeSockets()
}

func (s *Server) closeSockets() (err error) {
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Serve answers until ctx ends. Then it accepts nothing more, answers whatever has
// come or comes over open connections with "Connection: close", waits until that
// is over, and returns nil. The failure of a socket is its error.
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
			err := tasks.Call(func() error { return server.Serve(&listener{Listener: l, gate: s.gate}) })
			if !errors.Is(err, errStopped) {
				failed <- err
				cancel()
			}
		})
		defer context.AfterFunc(ctx, func() { s.gate.stopping.Store(true); stopAccepting(l, bound) })()
	}
	<-ctx.Done()
	s.gate.stopping.Store(true)
	accepting.Wait()
	s.closeSockets() // who comes now is refused, or waits for the next program
	limit, done := context.WithTimeout(context.Background(), s.config.ShutdownTime)
	defer done()
	defer time.AfterFunc(patienceTime, s.hurry).Stop()
	s.awaitQuiet()
	err := errors.Join(s.drain(limit), server.Close())
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
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				s.gate.rest(c.(*conn))
			}
		},
	}
}

type connKey struct{}

func (s *Server) connContext(ctx context.Context, accepted net.Conn) context.Context {
	c := accepted.(*conn)
	if s.config.ConnContext != nil {
		ctx = s.config.ConnContext(ctx, c.Conn)
	}
	return context.WithValue(ctx, connKey{}, c)
}

// awaitQuiet waits until no client is left, or none gives a sign any more.
func (s *Server) awaitQuiet() {
	ticker := time.NewTicker(quietTime / 20)
	defer ticker.Stop()
	for end := time.Now().Add(stopTime); time.Now().Before(end); <-ticker.C {
		if open, quiet := s.gate.quiet(); open == 0 || quiet >= quietTime {
			return
		}
	}
}

// drain closes each connection that is idle, until none is left or ctx ends. Shutdown of
// http.Server would cut a request that had come with the one before it: to net/http its
// connection is idle (https://go.dev/src/net/http/server.go, StateActive).
func (s *Server) drain(ctx context.Context) error {
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for s.gate.dismiss() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

var errStopped = errors.New("the server is being stopped")

// listener takes connections in.
type listener struct {
	net.Listener
	gate *gate
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if l.gate.stopping.Load() {
			return nil, errStopped
		}
		return nil, err
	}
	return l.gate.admit(c), nil
}

// Close leaves the socket to Serve.
func (l *listener) Close() error { return nil }

// stopAccepting ends Accept: at once, or when the connections that a socket has taken
// already, which closing it would reset, have been accepted.
func stopAccepting(l net.Listener, drain bool) {
	at := time.Unix(1, 0)
	if drain {
		at = time.Now().Add(drainTime)
	}
	if timed, ok := l.(interface{ SetDeadline(time.Time) error }); ok && timed.SetDeadline(at) == nil {
		return
	}
	l.Close()
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
