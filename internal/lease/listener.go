package lease

import (
	"context"
	"net"
	"net/http"
	"strings"
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
	front   *web.Server // nil without sockets
}

// ListenConfig has the sockets of a Listener.
type ListenConfig struct {
	Addresses    []string       // host:port
	Inherited    []net.Listener // from the service manager
	Language     msg.Language   // of texts for requests without Accept-Language
	ShutdownTime time.Duration
}

// ListenNodes binds all addresses or none. It allows all of them, because each request needs a token.
func ListenNodes(c ListenConfig, s *Nodes) (*Listener, error) {
	listeners, err := web.Listen(web.ListenConfig{List: c.Addresses, Flag: "-node-listen", Token: true})
	if err != nil || len(listeners)+len(c.Inherited) == 0 {
		return &Listener{}, err
	}
	handler := web.Speaking(c.Language, s.Handler())
	return &Listener{server: s, handler: handler, front: web.NewServer(web.ServerConfig{
		Listeners: listeners, Inherited: c.Inherited, ShutdownTime: c.ShutdownTime, Eighths: eighths, Log: s.Log,
	})}, nil
}

// Listening returns the addresses, "" without sockets.
func (l *Listener) Listening() string {
	if l.front == nil {
		return ""
	}
	return strings.Join(l.front.Addrs(), ",")
}

// Serve answers requests until ctx ends, as web.Server does.
func (l *Listener) Serve(ctx context.Context) error {
	if l.front == nil {
		return nil
	}
	return l.front.Serve(ctx, web.Handlers{TCP: l.handler, Unix: http.NotFoundHandler()})
}

// Close closes the sockets, when the program cannot start.
func (l *Listener) Close() error {
	if l.front == nil {
		return nil
	}
	return l.front.Close()
}

// WriteMetrics writes the figures of the listener.
func (l *Listener) WriteMetrics(page *daemon.Page) {
	if l.front != nil {
		l.server.WriteMetrics(page)
		l.front.WriteMetrics(page, "meshddns_node")
	}
}
