// The server runs the sockets of HTTP: it limits the clients, and stops without losing a request.

package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
)

const (
	headerTime = 5 * time.Second  // for a request's header
	bodyTime   = 15 * time.Second // for header and body
	idleTime   = 2 * time.Minute
	lingerTime = time.Second    // for the rest of a body that the handler did not read
	maxHeader  = 16<<10 - 4<<10 // net/http adds 4 KiB of its own: 16 KiB in all

	silentTime   = 100 * time.Millisecond // a silent client keeps its connection at least this long, before and in its request
	writeTime    = 15 * time.Second       // for a client to take 32 KiB of an answer
	patienceTime = 5 * time.Second        // from the stop on, for requests that wait for other work

	// DescriptorEighths is the share of the descriptors for connections of the API. The DNS server and
	// the listener of nodes have a quarter each; the database and the providers need the rest.
	DescriptorEighths = 3
)

// ServerConfig has the sockets of a Server.
type ServerConfig struct {
	Listeners    []net.Listener     // bound by this program: Serve accepts all queued connections before it closes them
	Inherited    []net.Listener     // from the service manager, which keeps them open: queued connections wait for the next start
	ShutdownTime time.Duration      // from the stop on, for requests in flight
	Eighths      uint64             // of the descriptors, for connections; 0: DescriptorEighths
	TLS          func() *tls.Config // of the next connection at a listener with TLS
	Log          *slog.Logger
}

// Handlers answer requests over TCP, and over unix sockets.
type Handlers struct{ TCP, Unix http.Handler }

// Server serves HTTP on several sockets.
type Server struct {
	config   ServerConfig
	limiter  *connlimit.Limiter
	stopping atomic.Bool
	patience context.Context // ends when requests must stop waiting for other work
	hurry    context.CancelFunc
	running  context.Context // ends when the server begins to stop
	halt     context.CancelFunc
}

// NewServer returns a server that is not started.
func NewServer(c ServerConfig) *Server {
	s := &Server{config: c, limiter: newLimiter(connlimit.Places(cmp.Or(c.Eighths, DescriptorEighths)))}
	s.patience, s.hurry = context.WithCancel(context.Background())
	s.running, s.halt = context.WithCancel(context.Background())
	return s
}

// newLimiter returns a limiter of places connections. One client may have three quarters of them.
func newLimiter(places int) *connlimit.Limiter {
	return connlimit.New(connlimit.Config{
		Connections: places, PerClient: places * 3 / 4, Requests: places / 2, Grace: silentTime, WriteTime: writeTime,
	})
}

// Addrs returns the addresses of all sockets: host:port, tls:host:port, or the path.
func (s *Server) Addrs() (addresses []string) {
	for _, l := range s.listeners() {
		addresses = append(addresses, prefixOf(l)+l.Addr().String())
	}
	return addresses
}

// listeners returns all sockets, those that this program bound first.
func (s *Server) listeners() []net.Listener {
	return append(append([]net.Listener(nil), s.config.Listeners...), s.config.Inherited...)
}

// WriteMetrics writes the metrics of the connections. Their names begin with a prefix.
func (s *Server) WriteMetrics(page *daemon.Page, prefix string) {
	open, working, crowdedOut := s.limiter.Counts()
	page.Single(prefix+"_connections", "gauge", "Open HTTP connections.", uint64(open))
	page.Single(prefix+"_requests_in_flight", "gauge", "HTTP requests that are worked on.", uint64(working))
	page.Single(prefix+"_connections_crowded_out_total", "counter", "HTTP connections that were closed to make room.", crowdedOut)
}

// Close closes all sockets, when the program cannot start.
func (s *Server) Close() (err error) {
	s.hurry()
	s.halt()
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Serve answers requests until ctx ends. Then it accepts no more connections and answers the requests on
// open connections with "Connection: close". It returns nil when all connections are closed, and
// the error of a socket that failed.
func (s *Server) Serve(ctx context.Context, h Handlers) error {
	defer s.Close()
	server := s.server(h)
	var accepting sync.WaitGroup
	failed, lines := make(chan error, len(s.listeners())), NewRefusalLines(s.config.Log)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, l := range s.listeners() {
		bound := i < len(s.config.Listeners)
		accepting.Go(func() {
			limited := s.limiter.Listen(ctx, l, bound)
			if prefixOf(l) != "" {
				limited = handshakes{limited, s.config.TLS, lines}
			}
			// http.Server.Serve closes the socket when it returns.
			err := daemon.Call(func() error { return server.Serve(limited) })
			if !errors.Is(err, connlimit.ErrStopped) {
				failed <- err
				cancel()
			}
		})
	}
	<-ctx.Done()
	s.stopping.Store(true)
	s.halt()
	accepting.Wait()
	limit, done := context.WithTimeout(context.Background(), s.config.ShutdownTime)
	defer done()
	defer time.AfterFunc(patienceTime, s.hurry).Stop()
	// http.Server.Shutdown would drop a pipelined request, because its connection is
	// idle to net/http (https://go.dev/src/net/http/server.go, StateActive).
	err := errors.Join(s.limiter.Drain(limit), server.Close())
	select {
	case lost := <-failed:
		return errors.Join(lost, err)
	default:
		return err
	}
}

func (s *Server) server(h Handlers) *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(h, w, r) }),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// "OPTIONS *" gets the answer of every other unknown path.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn),
		// A stop does not cancel a request that has arrived.
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), serverKey{}, s)
		},
		ConnContext: s.connContext,
	}
}

type connKey struct{}

func (s *Server) connContext(ctx context.Context, accepted net.Conn) context.Context {
	c, ok := accepted.(*connlimit.Conn)
	if !ok {
		c = accepted.(*secured).limited
	}
	return context.WithValue(withPeer(ctx, c.Conn), connKey{}, c)
}

type serverKey struct{}

// ErrCrowded is the cause of a context that has ended at once, because too many requests wait.
var ErrCrowded = errors.New("too many requests wait")

// WithPatience begins the wait of a request for other work, such as a provider's: from now on the request
// has no turn. The context that Patience returns ends at a time, 5 s after the server begins to stop, or
// at once with the cause ErrCrowded.
func WithPatience(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, end)
	return yield(ctx, cancel, func(s *Server) context.Context { return s.patience })
}

// Running is Patience for an answer without an end. The context ends when the server begins to stop.
func Running(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return yield(ctx, cancel, func(s *Server) context.Context { return s.running })
}

// yield ends the turn of a request, and cancels ctx when a context of its server ends.
func yield(ctx context.Context, cancel context.CancelFunc, end func(*Server) context.Context) (context.Context, context.CancelFunc) {
	server, ok := ctx.Value(serverKey{}).(*Server)
	if !ok {
		return ctx, cancel
	}
	if !ctx.Value(connKey{}).(*connlimit.Conn).Yield() {
		ended, end := context.WithCancelCause(ctx)
		end(ErrCrowded)
		return ended, cancel
	}
	release := context.AfterFunc(end(server), cancel)
	return ctx, func() { release(); cancel() }
}
