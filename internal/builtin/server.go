// The built-in DNS server: the name server with our zones behind it.

package builtin

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"meshddns/internal/daemon"
	"meshddns/internal/nameserver"
)

// Server is the built-in DNS server. Without a socket it is off, and its methods do nothing.
type Server struct {
	names *nameserver.Server // nil: off
	cache *Cache
	table *Table
}

// on reports whether a configuration asks for a server.
func on(c nameserver.Config) bool { return len(c.Addresses)+len(c.Listeners)+len(c.PacketConns) > 0 }

// Listen binds the sockets of a configuration. own gives this host's addresses. The server answers once it serves.
func Listen(ctx context.Context, c nameserver.Config, t *Table, own func() []netip.Addr, log *slog.Logger) (*Server, error) {
	s := &Server{table: t}
	if !on(c) {
		return s, nil
	}
	s.cache = NewCache(t, log)
	t.db.Subscribe(s.cache.Committed)
	if err := t.CheckCatalog(ctx); err != nil {
		return s, err
	}
	if err := t.Renew(ctx, c.Hosts); err != nil {
		return s, err
	}
	c.Versions = t
	var err error
	s.names, err = nameserver.Listen(c, Zones{Store: t, Own: own, Cache: s.cache}, log)
	return s, err
}

// Refusing returns a server without zones, which refuses each query at some sockets.
func Refusing(c nameserver.Config, tcp []net.Listener, udp []net.PacketConn, log *slog.Logger) (*Server, error) {
	names, err := nameserver.Listen(nameserver.Config{Listeners: tcp, PacketConns: udp, RateLimit: c.RateLimit}, nothing{}, log)
	return &Server{names: names}, err
}

// nothing is a backend without zones.
type nothing struct{}

func (nothing) Look(context.Context, []byte, []byte) (nameserver.Found, error) {
	return nameserver.Found{}, nil
}

func (nothing) Addresses(context.Context) []netip.Addr { return nil }

// On reports whether the server runs.
func (s *Server) On() bool { return s.names != nil }

// Addrs returns the addresses of the server, "" when it is off.
func (s *Server) Addrs() string {
	if !s.On() {
		return ""
	}
	return strings.Join(s.names.Addrs(), ",")
}

// LocalAddr returns an address at which this host reaches the server, "" when it is off.
func (s *Server) LocalAddr() string {
	if !s.On() {
		return ""
	}
	return s.names.LocalAddr()
}

// Announced returns the zones as secondaries hear of them, and the address from which they do. The server is on.
func (s *Server) Announced() (Announced, netip.Addr) {
	return Announced{Table: s.table, SOARecord: s.names.SOA}, s.names.OwnAddress()
}

// WriteMetrics writes the metrics of the server and of its memory.
func (s *Server) WriteMetrics(page *daemon.Page) {
	if s.On() {
		s.names.WriteMetrics(page)
		s.cache.WriteMetrics(page)
	}
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	if !s.On() {
		return nil
	}
	return s.names.Serve(ctx)
}

// Keep keeps the zones in memory until ctx ends.
func (s *Server) Keep(ctx context.Context) error {
	if !s.On() {
		return nil
	}
	return s.cache.Run(ctx)
}

// Reload reads the zones again.
func (s *Server) Reload() { s.cache.Reload() }

// Close closes the sockets of a server that does not serve.
func (s *Server) Close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.Serve(ended)
}

// Hidden returns a function that reports whether the server is on and resolvers do not find it: neither by its own
// name, nor at an address of this host, which reachable reports. It logs when they no longer do, and when they do again.
func Hidden(c nameserver.Config, reachable func() bool, log *slog.Logger) func() bool {
	if !on(c) || len(c.Hosts) > 0 {
		return func() bool { return false }
	}
	var lost atomic.Bool
	return func() bool {
		found := reachable()
		switch was := lost.Swap(!found); {
		case !found && !was:
			log.Warn("no resolver finds the built-in zones: this host has no public address, and -dns-host is not set")
		case found && was:
			log.Info("resolvers find the built-in zones again")
		}
		return !found
	}
}
