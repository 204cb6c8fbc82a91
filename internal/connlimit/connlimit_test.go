package connlimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// small are the limits of a server that waits with new connections.
var small = Config{Connections: 16, PerClient: 12, Requests: 8, Grace: 100 * time.Millisecond, WriteTime: 15 * time.Second}

// addressed is a connection whose other end has an address.
type addressed struct {
	net.Conn
	remote net.IP
}

func (a addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: a.remote} }

// pipe gives the two ends of a connection of client 192.0.2.n.
func pipe(t *testing.T, n byte) (server, client net.Conn) {
	client, inner := net.Pipe()
	t.Cleanup(func() { client.Close(); inner.Close() })
	return addressed{inner, net.IPv4(192, 0, 2, n)}, client
}

// peer is an admitted connection and its client's end.
type peer struct {
	*Conn
	client net.Conn
}

func admit(t *testing.T, l *Limiter, n byte) peer {
	server, client := pipe(t, n)
	p := peer{l.Admit(server), client}
	t.Cleanup(func() { p.Close() })
	return p
}

// admitIdle admits connections of a client, a second apart, whose server reads.
func admitIdle(t *testing.T, l *Limiter, n byte, count int) (all []peer) {
	for range count {
		p := admit(t, l, n)
		go io.Copy(io.Discard, p)
		all = append(all, p)
		after(time.Second)
	}
	return all
}

// admitWorking admits a connection with a request in work.
func admitWorking(t *testing.T, l *Limiter, n byte, changes bool) peer {
	p := admit(t, l, n)
	if !p.Work(changes) {
		t.Fatal("no turn")
	}
	return p
}

// after lets time go by, and others run.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *Conn) is(s phase) bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	return c.phase == s
}

// closedOf tells which connections are closed.
func closedOf(all []peer) (numbers []int) {
	for i, p := range all {
		if p.is(closed) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func expect(t *testing.T, what string, all []peer, want ...int) {
	t.Helper()
	if got := closedOf(all); !slices.Equal(got, want) {
		t.Errorf("%s: closed are %v, want %v", what, got, want)
	}
}

// A client that has its share makes room itself, with the connection that has been silent
// for longest.
func TestOneClientHasAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		other := admitIdle(t, l, 2, 1)
		all := admitIdle(t, l, 1, l.PerClient)
		all[0].client.Write([]byte{1})
		after(time.Second)
		all = append(all, admitIdle(t, l, 1, 1)...)
		expect(t, "greedy client", all, 1)
		expect(t, "other client", other)
		if open, _, crowdedOut := l.Counts(); open != l.PerClient+1 || crowdedOut != 1 {
			t.Errorf("%d are open, %d were closed", open, crowdedOut)
		}
	})
}

// When all places are taken, the client with the most connections makes room.
func TestGreediestClientMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		modest := admitIdle(t, l, 1, 3)
		greedy := admitIdle(t, l, 2, 9)
		medium := admitIdle(t, l, 3, 4)
		admitIdle(t, l, 4, 3)
		expect(t, "modest client", modest)
		expect(t, "greedy client", greedy, 0, 1, 2)
		expect(t, "medium client", medium)
	})
}

// Requests in work stay, and so do connections whose server has yet to look at what came;
// idle connections and parts of requests make room.
func TestWorkStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		at := []peer{admitWorking(t, l, 1, false), admitWorking(t, l, 1, true), admit(t, l, 1)}
		after(time.Hour)
		idle := admitIdle(t, l, 1, 9)
		idle[8].client.Write([]byte{1}) // a part of a request
		after(time.Hour)
		admitIdle(t, l, 1, 9)
		expect(t, "in work", at)
		expect(t, "idle", idle, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	})
}

// A client that does not read makes room after the clients that have asked nothing.
func TestUnreadAnswerMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		unread := admitWorking(t, l, 1, false)
		go unread.Write(make([]byte, 10))
		after(time.Second)
		idle := admitIdle(t, l, 1, l.PerClient)
		if expect(t, "idle", idle, 0); unread.is(closed) {
			t.Error("the client that does not read went first")
		}
	})
}

// Where the number of requests has no limit, idle connections go first, and a new
// connection never waits.
func TestWithoutLimitOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Connections: 4, PerClient: 2})
		first := admitWorking(t, l, 1, false)
		after(time.Second)
		all := append([]peer{first}, admitIdle(t, l, 1, 1)...)
		all = append(all, admitWorking(t, l, 1, false))
		expect(t, "one is idle", all, 1)
		begun := time.Now()
		all = append(all, admitWorking(t, l, 1, false))
		if expect(t, "all work", all, 0, 1); time.Since(begun) > 0 {
			t.Errorf("waited for %v", time.Since(begun))
		}
	})
}

// A new connection waits until the grace of another one is over.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		var all []peer
		for range l.PerClient {
			all = append(all, admit(t, l, 1))
			go all[len(all)-1].Read(make([]byte, 1))
			<-time.After(time.Millisecond)
		}
		begun := time.Now()
		all = append(all, admit(t, l, 1))
		if waited := time.Since(begun); waited != l.Grace-time.Duration(l.PerClient)*time.Millisecond {
			t.Errorf("waited for %v", waited)
		}
		expect(t, "after the grace", all, 0)
		go func() { <-time.After(time.Millisecond / 2); all[5].Close() }()
		begun = time.Now()
		admit(t, l, 1)
		if waited := time.Since(begun); waited != time.Millisecond/2 {
			t.Errorf("one has left, and waited for %v", waited)
		}
	})
}

// A client whose request the server has not read yet is not the one to go.
func TestUnreadRequestStays(t *testing.T) {
	l := New(small)
	var all []peer
	for range 3 {
		server, client := tcpPair(t)
		p := peer{l.Admit(server), client}
		p.listens() // as a server that reads and is not run
		p.since = time.Now().Add(-time.Hour).Add(time.Duration(len(all)) * time.Second)
		all = append(all, p)
	}
	io.WriteString(all[0].client, "x")
	for !unread(all[0].Conn.Conn) {
	}
	l.PerClient = 3
	server, _ := tcpPair(t)
	l.Admit(server)
	expect(t, "with unread input", all, 1)
}

// A client that does not read its answer makes room, even if it sends more.
func TestUnreadRequestBehindUnreadAnswer(t *testing.T) {
	l := New(small)
	l.PerClient = 1
	server, client := tcpPair(t)
	p := peer{l.Admit(server), client}
	p.Rest()
	p.writes(time.Now().Add(-time.Hour)) // the last part of an answer
	io.WriteString(client, "x")
	for !unread(server) {
	}
	next, _ := tcpPair(t)
	l.Admit(next)
	expect(t, "with an unread answer", []peer{p}, 0)
}

// tcpPair gives the two ends of a TCP connection.
func tcpPair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return server, client
}

// While half of the places are taken, silent connections are closed earlier.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Connections: 8, PerClient: 8, CrowdedIdle: 10 * time.Second})
		all := admitIdle(t, l, 1, 3)
		after(time.Hour)
		all = append(all, admitIdle(t, l, 1, 1)...)
		if expect(t, "before the crowd", all); !l.Crowded() {
			t.Error("half of the places are taken")
		}
		all = append(all, admitIdle(t, l, 1, 1)...)
		expect(t, "until it is none", all, 0)
		all = append(all, admitIdle(t, l, 1, 3)...)
		expect(t, "those that are silent for too long", all, 0, 1, 2)
	})
}

// A thousand slow clients and one good client come from one address: the good client is
// served.
func TestSlowClientsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		ctx, cancel := context.WithCancel(t.Context())
		socket := newSocket()
		listener := l.Listen(ctx, socket, false)
		var all sync.WaitGroup
		all.Go(func() {
			for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
				all.Go(func() { serveLines(c.(*Conn)) })
			}
		})
		for i := range 1000 {
			all.Go(func() {
				for ctx.Err() == nil {
					beSlow(ctx, t, socket, i%3)
				}
			})
		}
		for range 10 {
			begun := time.Now()
			client := socket.dial(t, 1)
			io.WriteString(client, "good\n")
			if answer, err := bufio.NewReader(client).ReadString('\n'); answer != "good\n" || err != nil {
				t.Errorf("%q, %v", answer, err)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("served after %v", took)
			}
			client.Close()
		}
		cancel()
		all.Wait()
	})
}

// serveLines answers each line of a connection with itself, many times if it asks for much.
func serveLines(c *Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil || !c.Work(false) {
			return
		}
		if line == "much\n" {
			line = strings.Repeat(line, 10_000)
		}
		if _, err := io.WriteString(c, line); err != nil || !c.Rest() {
			return
		}
	}
}

// beSlow connects, and until the server closes the connection asks nothing, or octet by
// octet, or does not read.
func beSlow(ctx context.Context, t *testing.T, socket *socket, kind int) {
	client := socket.dial(t, 1)
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	switch kind {
	case 0:
		io.Copy(io.Discard, client)
		return
	case 1:
		io.WriteString(client, "much\n")
	}
	for err := error(nil); err == nil; _, err = io.WriteString(client, "x") {
		<-time.After(time.Second)
	}
}

// socket is a listener without a network.
type socket struct {
	accepted chan any // a connection or an error
	closed   chan struct{}
	close    func()
}

func newSocket() *socket {
	s := &socket{accepted: make(chan any), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// dial connects from 192.0.2.n, and closes the connection if nothing accepts any more.
func (s *socket) dial(t *testing.T, n byte) (client net.Conn) {
	server, client := pipe(t, n)
	select {
	case s.accepted <- server:
	case <-s.closed:
		client.Close()
	}
	return client
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case next := <-s.accepted:
		err, _ := next.(error)
		c, _ := next.(net.Conn)
		return c, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *socket) Close() error { s.close(); return nil }

func (s *socket) Addr() net.Addr { return nil }

// An IPv6 client cannot vary the first half of its address, and is one with its IPv4
// address in IPv6 form.
func TestOrigin(t *testing.T) {
	from := func(address string) origin {
		return originOf(addressed{nil, net.ParseIP(address)})
	}
	if from("2001:db8::1") != from("2001:db8::ffff:1") || from("2001:db8::1") == from("2001:db8:0:1::1") || from("192.0.2.1") == from("192.0.2.2") {
		t.Error("IPv6 clients are told apart by /64, IPv4 clients by address")
	}
	if got := Network(netip.MustParseAddr("192.0.2.1"), 24, 56).String(); got != "192.0.2.0/24" {
		t.Error(got)
	}
}

// Places follows the limit of descriptors.
func TestPlaces(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	for limit, want := range map[uint64]int{32: 16, 64: 24, 512: 192, 1 << 16: 512} {
		if before.Max < limit {
			continue
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		if got := Places(3); got != want {
			t.Errorf("of %d descriptors: %d, want %d", limit, got, want)
		}
	}
}
