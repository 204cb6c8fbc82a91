package nameserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

func listenOn(address string) (*Server, error) {
	return Listen(Config{Addresses: []string{address}}, testZones(), slog.New(slog.DiscardHandler))
}

func TestListenBindsOnePort(t *testing.T) {
	s := start(t, "", testZones())
	end := s.ends[0]
	if len(end.udp) != runtime.GOMAXPROCS(0) {
		t.Errorf("%d sockets for %d cores", len(end.udp), runtime.GOMAXPROCS(0))
	}
	for _, udp := range end.udp {
		if tcp, udp := end.tcp.Addr().String(), udp.LocalAddr().String(); tcp != udp || s.Addr() != tcp {
			t.Errorf("TCP %s, UDP %s, Addr %s", tcp, udp, s.Addr())
		}
	}
	if _, err := listenOn(s.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:port", "192.0.2.1:0"} {
		if s, err := listenOn(address); err == nil {
			t.Errorf("%q is listened on as %s", address, s.Addr())
		}
	}
}

// UDP may be taken where TCP is free; the port is then refused as a whole, also
// when the other program would share it.
func TestListenWithUDPTaken(t *testing.T) {
	ends, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ends)
	ends[0].tcp.Close()
	for range 2 { // the second time shows that TCP was let go
		if _, err := listenOn(ends[0].udp[0].LocalAddr().String()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "udp") {
			t.Errorf("Listen: %v", err)
		}
	}
}

// When one address cannot be had, those before it are let go.
func TestListenOnSeveral(t *testing.T) {
	s := startWith(t, Config{Addresses: []string{"127.0.0.1:0", "127.0.0.2:0"}}, testZones())
	for _, address := range s.Addrs() {
		for _, network := range []string{"udp", "tcp"} {
			query := question("SOA example.com")
			if answer := exchange(t, network, address, query.Pack()); len(answer) < 50 {
				t.Errorf("%s %s: %x", network, address, answer)
			}
		}
	}
	_, port, _ := net.SplitHostPort(support.FreeAddress(t))
	free := net.JoinHostPort("127.0.0.3", port)
	if _, err := Listen(Config{Addresses: []string{free, s.Addr()}}, testZones(), nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("one of two addresses is taken: %v", err)
	}
	startOn(t, free, "", testZones())
}

// An address is of one family: 0.0.0.0 leaves [::] to others. Only no address
// at all is both, on one port.
func TestWildcardsAreOfOneFamily(t *testing.T) {
	needIPv6(t)
	v4 := startOn(t, "0.0.0.0:0", "", testZones())
	_, port, _ := net.SplitHostPort(v4.Addr())
	v6 := startOn(t, "[::]:"+port, "", testZones())
	if got, want := v4.Addr()+" "+v6.Addr(), "0.0.0.0:"+port+" [::]:"+port; got != want {
		t.Errorf("listening on %s, want %s", got, want)
	}
	both := startOn(t, ":0", "", testZones()).Addrs()
	if len(both) != 2 || both[1] != strings.Replace(both[0], "0.0.0.0", "[::]", 1) {
		t.Errorf("without an address: %v", both)
	}
}

func needIPv6(t *testing.T) {
	t.Helper()
	probe, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	probe.Close()
}

// Answers must leave from the address that was asked: the client's socket is
// connected to it and takes nothing else.
func TestWildcardAnswersFromWhereItWasAsked(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		s := startOn(t, address, "", testZones())
		checkAnswersFrom(t, s, "127.0.0.2", "127.0.0.1")
		checkAnswersFrom(t, s, "127.0.0.1", "127.0.0.3")
	}
	needIPv6(t)
	for _, address := range []string{"[::]:0", ":0"} {
		checkAnswersFrom(t, startOn(t, address, "", testZones()), "::1", "::1")
	}
}

func checkAnswersFrom(t *testing.T, s *Server, server, client string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr())
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}
	conn, err := dialer.Dial("udp", net.JoinHostPort(server, port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	query := question("SOA example.com")
	send(t, conn, query.Pack())
	if _, err := receive(conn); err != nil {
		t.Errorf("%s asked from %s: %v", server, client, err)
	}
}

// Clients that are gone make the kernel report errors; the server goes on.
func TestClientsThatVanish(t *testing.T) {
	s := start(t, "", testZones())
	query := question("SOA example.com")
	for range 200 {
		conn := dial(t, "udp", s.Addr())
		send(t, conn, query.Pack())
		conn.Close()
	}
	if got := ask(t, "udp", s, query); !strings.HasPrefix(got, "NOERROR aa") {
		t.Error(got)
	}
}

func TestPipelining(t *testing.T) {
	s := start(t, "", testZones())
	conn := dial(t, "tcp", s.Addr())
	for id := range 50 {
		query := question("SOA example.com")
		query.ID = uint16(id)
		send(t, conn, query.Pack())
	}
	conn.(*net.TCPConn).CloseWrite()
	for id := range 50 {
		answer, err := receive(conn)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := dns.ParseMessage(answer); err != nil || m.ID != uint16(id) {
			t.Errorf("answer %d has ID %d, %v", id, m.ID, err)
		}
	}
	if _, err := receive(conn); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
}

// dialFrom connects from an address of its own.
func dialFrom(address string, s *Server) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	conn, err := dialer.Dial("tcp", s.Addr())
	if err == nil {
		conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

func askOn(conn net.Conn) error {
	query := question("SOA example.com")
	if err := dns.WriteTCP(conn, query.Pack()); err != nil {
		return err
	}
	_, err := receive(conn)
	return err
}

// idle opens connections from an address that have asked once.
func idle(t *testing.T, s *Server, address string, count int) (open []net.Conn) {
	t.Helper()
	for range count {
		conn, err := dialFrom(address, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := askOn(conn); err != nil {
			t.Fatalf("a new connection from %s: %v", address, err)
		}
		support.Eventually(t, patience, "the server has seen the end of its answer", func() bool {
			_, working, _ := s.limiter.Counts()
			return working == 0
		})
		open = append(open, conn)
	}
	return open
}

// A client that has more connections than there is room for and opens a new one for each that
// is closed keeps nobody out.
func TestOneAddressKeepsNobodyOut(t *testing.T) {
	s := start(t, "", testZones())
	over, stop := context.WithCancel(t.Context())
	var attackers, ready sync.WaitGroup
	defer attackers.Wait()
	defer stop()
	for range s.limiter.Connections + 100 {
		ready.Add(1)
		attackers.Go(func() {
			began := sync.OnceFunc(ready.Done)
			for over.Err() == nil {
				conn, err := dialFrom("127.0.0.2", s)
				began()
				if err != nil {
					continue
				}
				closing := context.AfterFunc(over, func() { conn.Close() })
				conn.Read(make([]byte, 1)) // until the server closes
				closing()
				conn.Close()
			}
		})
	}
	ready.Wait()
	var others sync.WaitGroup
	for i := range 82 {
		others.Go(func() {
			conn, err := dialFrom(fmt.Sprintf("127.0.0.%d", 3+i), s)
			if err == nil {
				defer conn.Close()
				err = cmp.Or(askOn(conn), askOn(conn))
			}
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	others.Wait()
}

// A client's own longest idle connection makes room for one above its share.
func TestOneAddressHasAShare(t *testing.T) {
	if l := newLimiter(512); l.Connections != 512 || l.PerClient != 64 {
		t.Errorf("%+v", l.Config)
	}
	s := start(t, "", testZones())
	open := idle(t, s, "127.0.0.2", s.limiter.PerClient)
	if err := askOn(open[0]); err != nil {
		t.Fatal(err)
	}
	open = append(open, idle(t, s, "127.0.0.2", 1)...)
	if _, err := receive(open[1]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the longest idle connection: %v", err)
	}
	for i, conn := range open {
		if err := askOn(conn); i != 1 && err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
}

// When all places are taken, clients with few connections keep theirs.
// They are few here, because in a crowd a silent connection is closed soon.
func TestWhoHasMostMakesRoom(t *testing.T) {
	s := startWith(t, Config{Addresses: []string{"127.0.0.1:0"}}, testZones(), func(s *Server) {
		s.limiter.PerClient = 2
		s.limiter.Connections = 2 * sharers
	})
	modest := idle(t, s, "127.0.0.100", 1)
	var first []net.Conn
	for i := range sharers {
		open := idle(t, s, fmt.Sprintf("127.0.0.%d", 2+i), s.limiter.PerClient)
		first = append(first, open[0])
	}
	// One more than there is room for came with the last client, and now another.
	modest = append(modest, idle(t, s, "127.0.0.101", 1)...)
	for i, conn := range first[:2] {
		if _, err := receive(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the longest idle connection of client %d: %v", i, err)
		}
	}
	for _, conn := range append(modest, first[2]) {
		if err := askOn(conn); err != nil {
			t.Error(err)
		}
	}
	if n, _, _ := s.limiter.Counts(); n != s.limiter.Connections {
		t.Errorf("%d connections are open", n)
	}
}

// Where half of the places are taken, new connections may be idle for less long.
func TestIdleTimeIsShorterInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{backend: testZones(), log: slog.New(slog.DiscardHandler), limiter: newLimiter(16)}
		s.limiter.PerClient = 16 // all pipes come from one client
		for range 8 {
			client, server := net.Pipe()
			defer client.Close()
			s.limiter.Admit(server)
		}
		client, server := net.Pipe()
		defer client.Close()
		begun := time.Now()
		s.serveConn(t.Context(), s.limiter.Admit(server))
		if kept := time.Since(begun); kept != crowdedTimeout {
			t.Errorf("closed after %v", kept)
		}
	})
}

// stream runs serveConn over a pipe in a bubble of synctest and gives the
// client's end and a function that tells how long the server kept its end.
func stream(t *testing.T, backend Backend) (client net.Conn, kept func() time.Duration) {
	s := &Server{backend: backend, log: slog.New(slog.DiscardHandler), limiter: newLimiter(16)}
	client, server := net.Pipe()
	begun, done := time.Now(), make(chan time.Duration)
	go func() {
		s.serveConn(t.Context(), s.limiter.Admit(server))
		done <- time.Since(begun)
	}()
	t.Cleanup(func() { client.Close() })
	return client, func() time.Duration { return <-done }
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, kept := stream(t, testZones())
		if got := kept(); got != idleTimeout {
			t.Errorf("closed after %v", got)
		}
	})
}

func TestEachMessageStartsTheIdleTimeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, kept := stream(t, testZones())
		query := question("SOA example.com")
		for range 3 {
			<-time.After(idleTimeout - time.Second)
			send(t, client, query.Pack())
			if _, err := receive(client); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := kept(), 3*(idleTimeout-time.Second)+idleTimeout; got != want {
			t.Errorf("closed after %v, want %v", got, want)
		}
	})
}

// Octets that trickle in do not keep a connection open.
func TestSlowMessageIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, kept := stream(t, testZones())
		var trickle sync.WaitGroup
		trickle.Go(func() {
			octet := []byte{1} // two of them announce a message of 257
			for err := error(nil); err == nil; _, err = client.Write(octet) {
				<-time.After(time.Second)
			}
		})
		if got := kept(); got != idleTimeout {
			t.Errorf("closed after %v", got)
		}
		trickle.Wait()
	})
}

func TestClientThatDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, kept := stream(t, testZones())
		query := question("TXT big.example.com")
		send(t, client, query.Pack())
		if got := kept(); got != writeTimeout {
			t.Errorf("closed after %v", got)
		}
	})
}

// heldZones are zones and a catalog whose data is read from hold on, as long as the context of the query allows.
type heldZones struct {
	*zones
	longZone
}

func (z heldZones) Look(ctx context.Context, name, buffer []byte) (Found, error) {
	found, err := z.zones.Look(ctx, name, buffer)
	return found, cmp.Or(err, ctx.Err())
}

func (z heldZones) Version(ctx context.Context, apex dns.Name, read func(Version) error) error {
	z.hold <- struct{}{}
	<-z.hold
	return cmp.Or(ctx.Err(), z.longZone.Version(ctx, apex, read))
}

// TestServeFinishesWhatIsInFlight: a query that reads the database when the server stops is answered, whatever it reads.
func TestServeFinishesWhatIsInFlight(t *testing.T) {
	for _, test := range []struct{ network, question string }{
		{"udp", "SOA example.com"}, {"tcp", "SOA example.com"}, {"udp", "SOA catalog.invalid"}, {"tcp", "SOA catalog.invalid"}, {"tcp", "AXFR example.com"},
	} {
		network := test.network
		backend := heldZones{testZones(), longZone(1)}
		backend.hold = make(chan struct{})
		log := &support.Log{}
		config := Config{Addresses: []string{"127.0.0.1:0"}, Peers: backend, Versions: backend, Catalog: name("catalog.invalid")}
		s, err := Listen(config, backend, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- s.Serve(ctx) }()
		idle := dial(t, "tcp", s.Addr())
		conn := dial(t, network, s.Addr())
		query := question(test.question)
		send(t, conn, query.Pack())
		<-backend.hold // the query is being answered
		cancel()
		if _, err := receive(idle); err == nil {
			t.Error("an idle connection got an answer")
		}
		backend.hold <- struct{}{}
		if answer, err := receive(conn); err != nil || len(answer) < 50 || answer[3]&15 != 0 || log.String() != "" {
			t.Errorf("%v: %x, %v, the log %s", test, answer, err, log.String())
		}
		if err := <-served; err != nil {
			t.Errorf("%s: Serve: %v", network, err)
		}
		if _, err := s.ends[0].tcp.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the TCP socket: %v", network, err)
		}
		if err := s.ends[0].udp[0].SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the UDP socket: %v", network, err)
		}
	}
}

func TestServeAfterItsContext(t *testing.T) {
	s, err := listenOn("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}

func TestServeReportsALostSocket(t *testing.T) {
	for name, lose := range map[string]func(*Server) error{
		"UDP": func(s *Server) error { return s.ends[0].udp[0].Close() },
		"TCP": func(s *Server) error { return s.ends[0].tcp.Close() },
	} {
		s, err := listenOn("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error)
		go func() { served <- s.Serve(context.Background()) }()
		query := question("SOA example.com")
		idle := dial(t, "tcp", s.Addr())
		send(t, idle, query.Pack())
		if _, err := receive(idle); err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		lose(s)
		if err := <-served; !errors.Is(err, net.ErrClosed) || time.Since(lost) > idleTimeout/2 {
			t.Errorf("%s: Serve: %v after %v", name, err, time.Since(lost))
		}
	}
}

// TestPlacesOfTransfers: eight transfers run at once, four of them to one peer. A further one waits for four
// seconds, and gets the first place that is free meanwhile. 64 requests of one peer run or wait; one more is refused at once.
func TestPlacesOfTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transfers := newTransfers()
		one, other, third := peer{key: "one"}, peer{key: "other"}, peer{key: "third"}
		if end, ok := transfers.begin(t.Context(), one); ok {
			end()
		}
		if len(transfers.peers) > 0 {
			t.Error("a peer without a transfer is kept")
		}
		begun := time.Now()
		var ends []func()
		for _, to := range slices.Concat(slices.Repeat([]peer{one}, 4), slices.Repeat([]peer{other}, 4)) {
			end, ok := transfers.begin(t.Context(), to)
			if !ok || time.Since(begun) > 0 {
				t.Fatalf("%v: transfer %d has no place after %v", to, len(ends)+1, time.Since(begun))
			}
			ends = append(ends, end)
		}
		refused := func(to peer) {
			t.Helper()
			begun := time.Now()
			if _, ok := transfers.begin(t.Context(), to); ok || time.Since(begun) != 4*time.Second {
				t.Errorf("%v: a place %v, after %v", to, ok, time.Since(begun))
			}
		}
		refused(third) // the ninth
		ends[4]()      // one place is free, but not for the peer that has four
		refused(one)
		time.AfterFunc(3*time.Second, ends[0])
		if _, ok := transfers.begin(t.Context(), one); !ok {
			t.Error("a place that gets free is not given")
		}
		var waiting sync.WaitGroup
		for range 60 { // and four run
			waiting.Go(func() { refused(one) })
		}
		synctest.Wait()
		begun = time.Now()
		if _, ok := transfers.begin(t.Context(), one); ok || time.Since(begun) > 0 {
			t.Errorf("request 65 of a peer: a place %v, after %v", ok, time.Since(begun))
		}
		if _, ok := transfers.begin(t.Context(), third); !ok {
			t.Error("requests that wait take the place of another peer")
		}
		waiting.Wait()
		refused(one)
	})
}
