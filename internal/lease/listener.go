package lease

import (
	"context"
	"net"
	"net/http"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// eighths is the share of the descriptors for connections of nodes, of which 512 are the most.
const eighths = 2

// Listener is a Server on its sockets. Without sockets it does nothing.
type Listener struct {
	server  *Nodes
	handler http.Handler
	front   *web.Server
}

// ListenConfig has the sockets of a Listener.
type ListenConfig struct {
	Addresses    []string         // host:port or tls:host:port
	Inherited    []net.Listener   // from the service manager
	Certificate  *web.Certificate // of listeners with TLS; nil if there are none
	Language     msg.Language     // of texts for requests without Accept-Language
	ShutdownTime time.Duration
}

// ListenNodes binds all addresses or none. It allows all of them, because each request needs a token.
func ListenNodes(c ListenConfig, s *Nodes) (*Listener, error) {
	listeners, err := web.Listen(web.ListenConfig{List: c.Addresses, Flag: "-node-listen", Token: true})
	if err != nil {
		return nil, err
	}
	return &Listener{server: s, handler: web.Speaking(c.Language, s.Handler()), front: web.NewServer(web.ServerConfig{
		Listeners: listeners, Inherited: c.Inherited, ShutdownTime: c.ShutdownTime, Eighths: eighths, Log: s.Log, TLS: c.Certificate.Nodes,
	})}, nil
}

// Addrs returns the addresses.
func (l *Listener) Addrs() []string { return l.front.Addrs() }

// Serve answers requests until ctx ends, as web.Server does.
func (l *Listener) Serve(ctx context.Context) error {
	return l.front.Serve(ctx, web.Handlers{TCP: l.handler, Unix: http.NotFoundHandler()})
}

// Close closes the sockets, when the program cannot start.
func (l *Listener) Close() error { return l.front.Close() }

// WriteMetrics writes the figures of the listener, none without sockets.
func (l *Listener) WriteMetrics(page *daemon.Page) {
	if len(l.Addrs()) > 0 {
		l.server.WriteMetrics(page)
		l.front.WriteMetrics(page, "meshddns_node")
	}
}
