// Package nameserver is an authoritative DNS server for zones that hold TXT
// records: it answers TXT, SOA and NS, and A and AAAA of its own name, over
// UDP and TCP. It does not recurse, transfer zones, take updates or sign.
package nameserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/dnswire"
)

// Server answers on one address, over UDP and TCP.
type Server struct {
	host     dnswire.Name // "": ns.<zone>
	backend  Backend
	log      *slog.Logger
	udp      *net.UDPConn
	tcp      net.Listener
	answered [dnswire.RcodeBadVers + 1]atomic.Uint64 // by rcode; no higher one is used
	requests sync.Pool                               // of *request, whose memory is used again
	failures failureLog
}

// Listen binds UDP and TCP of one address; with port 0 both get the same free
// port. host is the server's name in NS and SOA records; "" means ns.<zone>.
func Listen(address string, host dnswire.Name, backend Backend, log *slog.Logger) (*Server, error) {
	tcp, udp, err := listenBoth(address)
	if err != nil {
		return nil, fmt.Errorf("listen for DNS on %s: %w", address, err)
	}
	return &Server{host: host.Fold(), backend: backend, log: log, udp: udp, tcp: tcp}, nil
}

// portTries bounds the search for a port that is free for TCP and UDP alike.
const portTries = 20

func listenBoth(address string) (net.Listener, *net.UDPConn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	tries := 1
	if port == "0" || port == "" {
		tries = portTries
	}
	for range tries {
		var tcp net.Listener
		if tcp, err = net.Listen("tcp", address); err != nil {
			return nil, nil, err
		}
		var udp *net.UDPConn
		if udp, err = listenUDP(tcp.Addr().(*net.TCPAddr)); err == nil {
			return tcp, udp, nil
		}
		tcp.Close()
	}
	return nil, nil, err
}

func listenUDP(bound *net.TCPAddr) (*net.UDPConn, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(bound.AddrPort()))
	if err != nil {
		return nil, err
	}
	if err := receiveDestination(udp); err != nil {
		udp.Close()
		return nil, err
	}
	return udp, nil
}

// Addr gives the address that is listened on, host:port.
func (s *Server) Addr() string { return s.tcp.Addr().String() }

// Serve answers until ctx ends, then closes the sockets, lets answers in
// flight finish, and returns nil; an unexpected socket failure is its error.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.udp.Close()
	defer s.tcp.Close()
	// UDP stops by a deadline, not by closing: what was read is still answered.
	defer context.AfterFunc(ctx, func() {
		s.udp.SetReadDeadline(longAgo)
		s.tcp.Close()
	})()
	loops := []func(context.Context) error{s.serveTCP}
	for range runtime.GOMAXPROCS(0) {
		loops = append(loops, s.serveUDP)
	}
	ended := make(chan error)
	for _, loop := range loops {
		go func() {
			defer cancel() // one loop that fails ends the others
			ended <- loop(ctx)
		}()
	}
	var err error
	for range loops {
		err = errors.Join(err, <-ended)
	}
	return err
}

// longAgo is a deadline that ends a read that is waiting.
var longAgo = time.Unix(1, 0)

// Stats gives how many queries were answered, by rcode mnemonic.
func (s *Server) Stats() map[string]uint64 {
	stats := map[string]uint64{}
	for i := range s.answered {
		if n := s.answered[i].Load(); n > 0 {
			stats[mnemonic(dnswire.Rcode(i))] = n
		}
	}
	return stats
}

// mnemonic names an rcode; 16 is BADVERS here, and BADSIG only within TSIG.
func mnemonic(rcode dnswire.Rcode) string {
	if rcode == dnswire.RcodeBadVers {
		return "BADVERS"
	}
	return rcode.String()
}

// failureLog lets one line a failureInterval through: a broken database fails
// every query, and anybody can send those.
type failureLog struct {
	last   atomic.Int64 // when a line went through, Unix nanoseconds
	hushed atomic.Uint64
}

const failureInterval = time.Minute

// failed logs that a question could not be answered.
func (s *Server) failed(ctx context.Context, q dnswire.Question, err error) {
	now, last := time.Now().UnixNano(), s.failures.last.Load()
	if now-last < int64(failureInterval) || !s.failures.last.CompareAndSwap(last, now) {
		s.failures.hushed.Add(1)
		return
	}
	s.log.ErrorContext(ctx, "dns query not answered", "name", q.Name.String(), "type", uint16(q.Type),
		"error", err, "not_logged_before", s.failures.hushed.Swap(0))
}

// hostIn gives the server's own name in NS and SOA records of a zone. An apex
// so long that "ns" does not fit before it stands for itself.
func (s *Server) hostIn(apex dnswire.Name) dnswire.Name {
	return cmp.Or(s.host, below("ns", apex))
}

func below(label string, apex dnswire.Name) dnswire.Name {
	if child, ok := apex.Child(label); ok {
		return child
	}
	return apex
}
