package nameserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
)

// TestMain lets eight tests run at once, because those that are parallel mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// manager keeps sockets open over restarts, as a service manager does.
type manager struct {
	tcp *net.TCPListener
	udp *net.UDPConn
}

func manage(t *testing.T) (m manager) {
	t.Helper()
	ends, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(ends) })
	for _, further := range ends[0].udp[1:] {
		further.Close()
	}
	return manager{ends[0].tcp, ends[0].udp[0]}
}

// config gives the sockets as another process has them.
func (m manager) config(t *testing.T) (c Config) {
	t.Helper()
	tcp, err := m.tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := m.udp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	listener, err := net.FileListener(tcp)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FilePacketConn(udp)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Listeners: []net.Listener{listener}, PacketConns: []net.PacketConn{conn}}
}

func (m manager) address() string { return m.tcp.Addr().String() }

// begin serves until it is told to stop, which waits for the end.
func (m manager) begin(t *testing.T) (stop func()) {
	t.Helper()
	s, err := Listen(m.config(t), testZones(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Addrs(); len(got) != 1 || got[0] != m.address() {
		t.Fatalf("listens on %v, want %s", got, m.address())
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Where the sockets stay open, no query is lost in twenty restarts: over UDP, over new
// connections, and over kept ones, which end between two queries and in good order.
func TestRestarts(t *testing.T) {
	for n := range 4 { // at once, because each stop waits a second for a client that never pauses
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			restart(t, 5)
		})
	}
}

// restart starts and stops servers in turn, while clients ask.
func restart(t *testing.T, times int) {
	m := manage(t)
	ctx, cancel := context.WithCancel(t.Context())
	var answered [3]atomic.Int64
	var failed atomic.Bool
	var load sync.WaitGroup
	for kind, ask := range []func() error{m.udpAsker(), m.newTCPAsker(), m.keptTCPAsker(t)} {
		load.Go(func() {
			for ctx.Err() == nil {
				if err := ask(); err != nil {
					t.Errorf("kind %d, after %d answers: %v", kind, answered[kind].Load(), err)
					failed.Store(true)
					return
				}
				answered[kind].Add(1)
			}
		})
	}
	for range times {
		stop := m.begin(t)
		for kind := range answered {
			for before := answered[kind].Load(); answered[kind].Load() < before+50 && !failed.Load(); {
				<-time.After(time.Millisecond)
			}
		}
		stop()
	}
	stop := m.begin(t)
	cancel()
	load.Wait()
	stop()
	t.Logf("answered: %d over UDP, %d over new connections, %d over kept ones", answered[0].Load(), answered[1].Load(), answered[2].Load())
}

func soaQuery() []byte {
	m := question("SOA example.com")
	return m.Pack()
}

// answerTo reads the answer to the query of the askers.
func answerTo(conn net.Conn) error {
	answer, err := receive(conn)
	if err == nil && len(answer) < 50 {
		err = fmt.Errorf("answer %x", answer)
	}
	return err
}

// udpAsker asks once a call, without a second try.
func (m manager) udpAsker() func() error {
	query := soaQuery()
	return func() error {
		conn, err := net.Dial("udp", m.address())
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(query); err != nil {
			return err
		}
		return answerTo(conn)
	}
}

// newTCPAsker asks over a new connection.
func (m manager) newTCPAsker() func() error {
	query := soaQuery()
	return func() error {
		conn, err := net.DialTimeout("tcp", m.address(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		if err := dns.WriteTCP(conn, query); err != nil {
			return err
		}
		return answerTo(conn)
	}
}

// keptTCPAsker keeps its connection until the server ends it, which must not be a reset;
// then it asks once more over another one, as RFC 7766, section 6.2.4, says.
func (m manager) keptTCPAsker(t *testing.T) func() error {
	query := soaQuery()
	var conn net.Conn
	t.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
	})
	return func() error {
		for {
			kept := conn != nil
			if !kept {
				var err error
				if conn, err = net.DialTimeout("tcp", m.address(), patience); err != nil {
					return err
				}
			}
			conn.SetDeadline(time.Now().Add(patience))
			err := dns.WriteTCP(conn, query)
			if err == nil {
				err = answerTo(conn)
			}
			if !kept || !errors.Is(err, io.EOF) {
				return err
			}
			conn.Close()
			conn = nil
		}
	}
}

// What has come before the stop is answered, all of it, and the connection ends after
// that in good order.
func TestStopAnswersWhatHasCome(t *testing.T) {
	backend := testZones()
	backend.hold = make(chan struct{})
	s, err := listenOn("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.backend = backend
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	conn := dial(t, "tcp", s.Addr())
	const queries = 40
	for range queries {
		send(t, conn, soaQuery())
	}
	<-backend.hold
	cancel()
	backend.hold <- struct{}{}
	for range queries - 1 {
		<-backend.hold
		backend.hold <- struct{}{}
	}
	for i := range queries {
		if err := answerTo(conn); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	if _, err := receive(conn); err != io.EOF {
		t.Errorf("the connection ends with %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A query whose answer makes the server panic is answered with a failure, and the next
// as ever.
func TestPanic(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		backend := &panicking{zones: testZones()}
		s := start(t, "", backend)
		conn := dial(t, network, s.Addr())
		for _, want := range []byte{2, 0} {
			send(t, conn, soaQuery())
			answer, err := receive(conn)
			if err != nil || answer[3]&15 != want || answer[2]&0x80 == 0 {
				t.Errorf("%s: %x, %v; want rcode %d", network, answer, err, want)
			}
		}
	}
}

// panicking is a backend that panics once.
type panicking struct {
	*zones
	done atomic.Bool
}

func (p *panicking) Look(ctx context.Context, name, txt []byte) (Found, error) {
	if p.done.CompareAndSwap(false, true) {
		panic("injected")
	}
	return p.zones.Look(ctx, name, txt)
}
