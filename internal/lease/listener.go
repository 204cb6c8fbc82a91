package lease

import (
	"context"
	"net/http"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// Eighths is the share of the descriptors for connections of nodes, of which 512 are the most.
const Eighths = 2

// Listener is a Server on its sockets. Without sockets it does nothing.
type Listener struct {
	server  *Nodes
	handler http.Handler
	front   *web.Server
}

// ListenNodes binds all addresses or none. It allows all of them, because each request needs a token. language is that of texts
// for requests without Accept-Language. Of c it sets what all listeners of nodes have.
func ListenNodes(addresses []string, language msg.Language, c web.ServerConfig, s *Nodes) (_ *Listener, err error) {
	if c.Listeners, err = web.Listen(web.ListenConfig{List: addresses, Flag: "-node-listen", Token: true}); err != nil {
		return nil, err
	}
	c.Eighths, c.Log = Eighths, s.Log
	return &Listener{server: s, handler: web.Speaking(language, s.Handler()), front: web.NewServer(c)}, nil
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
