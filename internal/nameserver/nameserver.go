// Package nameserver is an authoritative DNS server for zones that hold TXT records. It
// answers TXT, SOA and NS, and A and AAAA of its own name, over UDP and TCP. Peers transfer its
// zones, whole (RFC 5936) or their changes (RFC 1995). It does not recurse, accept updates or
// sign zones.
package nameserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

// Config has the sockets and the settings of a Server.
type Config struct {
	Addresses []string   // to listen on, host:port; port 0 means a free one
	Hosts     []dns.Name // the server's own name, for SOA and NS, then further names for NS; none: ns.<zone>
	NSID      string     // identifies this server among those of a zone (RFC 5001); "": none
	RateLimit int        // answers per second over UDP to one network; 0: no limit
	// Sockets of the service manager, which keeps them open: after this program stops, the
	// next one answers the queries.
	Listeners   []net.Listener
	PacketConns []net.PacketConn
	// Who may transfer what; nil: every transfer is refused.
	Peers    Peers
	Versions Versions
	Catalog  dns.Name // in lower case, of the catalog zone of Versions; "": none
	// Over reports that no transfer may be sent any more; nil: it never does.
	Over func() bool

	ends []endpoint // of Bind
}

// MaxNSID is the largest length of an NSID, in octets. Every answer has room for it.
const MaxNSID = 128

// Server is a DNS server on some addresses, over UDP and TCP.
type Server struct {
	host     dns.Name   // "": ns.<zone>
	others   []dns.Name // in NS records after host
	backend  Backend
	peers    Peers // nil: no query may be signed
	versions Versions
	catalog  dns.Name
	over     func() bool // see Config
	log      *slog.Logger
	ends     []endpoint
	limiter  *connlimit.Limiter // of TCP connections
	nsid     string
	secret   [16]byte // of cookies: clients notice a restart and take a new cookie
	rates    *rateLimiter
	answered [dns.RcodeBadCookie + 1]atomic.Uint64 // by rcode; no higher one is used
	udp, tcp figures
	requests sync.Pool // of *request, to reuse their memory
	failures failureLog

	transfers *transfers
}

// Listen binds UDP and TCP of each address, both to the same port, and returns a server
// that does not answer yet.
func Listen(c Config, backend Backend, log *slog.Logger) (*Server, error) {
	if len(c.NSID) > MaxNSID {
		return nil, fmt.Errorf("an NSID of %d octets: want %d at most", len(c.NSID), MaxNSID)
	}
	s := &Server{backend: backend, peers: c.Peers, versions: c.Versions, catalog: c.Catalog, over: c.Over, transfers: newTransfers(), log: log, nsid: c.NSID, rates: newRateLimiter(c.RateLimit), limiter: newLimiter(connlimit.Places(descriptorEighths))}
	rand.Read(s.secret[:]) // never fails
	for i, host := range c.Hosts {
		if i == 0 {
			s.host = host.Fold()
		} else {
			s.others = append(s.others, host.Fold())
		}
	}
	if c.ends == nil {
		if err := c.Bind(); err != nil {
			return nil, err
		}
	}
	s.ends = c.ends
	ends, err := inherit(c.Listeners, c.PacketConns)
	if err != nil {
		closeAll(s.ends)
		return nil, err
	}
	s.ends = append(s.ends, ends...)
	return s, nil
}

// Addrs returns the addresses that the server listens on, host:port.
func (s *Server) Addrs() (addresses []string) {
	for _, end := range s.ends {
		addresses = append(addresses, end.address())
	}
	return addresses
}

// Addr returns the first address that the server listens on, host:port.
func (s *Server) Addr() string { return s.ends[0].address() }

// LocalAddr returns the address at which this host reaches the server, host:port: the first
// one, or the loopback address if the first one is a wildcard.
func (s *Server) LocalAddr() string {
	address, err := netip.ParseAddrPort(s.Addr())
	if err != nil || !address.Addr().IsUnspecified() {
		return s.Addr()
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if address.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(loopback, address.Port()).String()
}

// OwnAddress returns the address that the server listens on, not a valid one if there are several or it
// is a wildcard.
func (s *Server) OwnAddress() (own netip.Addr) {
	for _, text := range s.Addrs() {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Addr().IsUnspecified() || own.IsValid() && own != at.Addr() {
			return netip.Addr{}
		}
		own = at.Addr()
	}
	return own
}

// Serve answers queries until ctx ends. Then it answers the queries that have arrived, also
// over open connections, closes the sockets, and returns nil. It returns the error of a
// socket that fails.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer closeAll(s.ends)
	// UDP sockets stop by a deadline, not by closing, so the server answers the queries in
	// the kernel's buffers.
	defer context.AfterFunc(ctx, func() {
		for _, end := range s.ends {
			end.stop()
		}
	})()
	loops := s.loops()
	ended := make(chan error)
	for _, loop := range loops {
		go func() {
			defer cancel() // one loop that fails ends the others
			ended <- daemon.Call(func() error { return loop(ctx) })
		}()
	}
	var err error
	for range loops {
		err = errors.Join(err, <-ended)
	}
	return err
}

// loops returns the functions that read the sockets: one for each TCP socket, and for UDP
// one for each socket or each core, whichever are more.
func (s *Server) loops() (loops []func(context.Context) error) {
	for _, end := range s.ends {
		if end.tcp != nil {
			loops = append(loops, func(ctx context.Context) error {
				return s.serveTCP(ctx, s.limiter.Listen(ctx, end.tcp, !end.inherited))
			})
		}
		if len(end.udp) == 0 {
			continue
		}
		for i := range max(len(end.udp), runtime.GOMAXPROCS(0)) {
			udp := end.udp[i%len(end.udp)]
			loops = append(loops, func(ctx context.Context) error { return s.serveUDP(ctx, udp) })
		}
	}
	return loops
}

// longAgo is a deadline that ends a read that is waiting.
var longAgo = time.Unix(1, 0)

// failureLog limits the log to one line in failureInterval, because a broken database fails
// every query.
type failureLog struct {
	last   atomic.Int64  // time of the last line, in Unix nanoseconds
	hushed atomic.Uint64 // failures without a line since then
}

const failureInterval = time.Minute

// allow reports whether a failure may be logged at a time, and the number of those before it that were not. A last
// line that is later by more than failureInterval was logged before the clock was set back.
func (l *failureLog) allow(at time.Time) (hushed uint64, ok bool) {
	now, last := at.UnixNano(), l.last.Load()
	if time.Duration(now-last).Abs() < failureInterval || !l.last.CompareAndSwap(last, now) {
		l.hushed.Add(1)
		return 0, false
	}
	return l.hushed.Swap(0), true
}

// failed logs that the server could not answer a question.
func (s *Server) failed(ctx context.Context, q dns.Question, err error) {
	s.logFailure(ctx, err, "name", q.Name.String(), "type", uint16(q.Type))
}

// logFailure logs an error, if failureLog lets it.
func (s *Server) logFailure(ctx context.Context, err error, about ...any) {
	if hushed, ok := s.failures.allow(time.Now()); ok {
		s.log.ErrorContext(ctx, "dns query not answered", append(about, "error", err, "not_logged_before", hushed)...)
	}
}

// hostIn returns the server's own name in the NS and SOA records of a zone. It is the apex
// itself if that is too long for "ns." before it.
func (s *Server) hostIn(apex dns.Name) dns.Name {
	return cmp.Or(s.host, below("ns", apex))
}

// below returns the name label.apex, or the apex if that is too long.
func below(label string, apex dns.Name) dns.Name {
	if child, ok := apex.Child(label); ok {
		return child
	}
	return apex
}

// AnswerTime bounds a backend's work for one query. By then resolvers have asked again.
const AnswerTime = 2 * time.Second

// Found is the data at a name. The zone that contains the name is given by the length of
// its apex, which is the end of the name.
type Found struct {
	Apex        int // octets of the apex of the longest zone that contains the name; 0: no zone does
	Serial      uint32
	Above       int // octets of the apex of the next zone around that one; 0: none
	AboveSerial uint32
	Exists      bool // the name has data, or others lie below it (RFC 8020)
	TTL         uint32
	Records     []byte // RDATA of each record, after its type and its length in two octets each
}

// Backend is the source of the answers. Concurrent calls must be safe.
type Backend interface {
	// Look returns the data at a name, which is in wire form with letters in lower case. It
	// appends to buffer for the result's Records. It takes at most AnswerTime.
	Look(ctx context.Context, name []byte, buffer []byte) (Found, error)
	// Addresses returns this host's addresses, the answer for the server's name.
	Addresses(ctx context.Context) []netip.Addr
}
