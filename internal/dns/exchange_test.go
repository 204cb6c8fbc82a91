package dns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func query(t testing.TB) Message {
	return Message{ID: 4711, RecursionDesired: true, Questions: []Question{{parseName(t, "_mesh.example.com"), TypeTXT, ClassIN}}}
}

// answerTo gives an answer that Exchange must take.
func answerTo(q Message) Message {
	q.Response = true
	q.Answers = []RR{{q.Questions[0].Name, TypeTXT, ClassIN, 60, TXTData([]string{"v"})}}
	return q
}

// sockets gives one port for UDP and TCP, which close with the test.
func sockets(t *testing.T) (udp net.PacketConn, tcp net.Listener) {
	t.Helper()
	for range 100 { // a port that is free for the one may be taken for the other
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			t.Cleanup(func() { udp.Close(); tcp.Close() })
			return udp, tcp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

// serveUDP runs a server that sends, for each message that comes, the
// datagrams that reply gives. reply is told how many came before.
func serveUDP(t *testing.T, conn net.PacketConn, reply func(count int, message []byte) [][]byte) (address string) {
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, MaxMessage)
		for count := 0; ; count++ {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, datagram := range reply(count, bytes.Clone(buffer[:n])) {
				conn.WriteTo(datagram, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// serveTCP runs a server that hands each connection to serve, then closes it.
func serveTCP(t *testing.T, listener net.Listener, serve func(net.Conn)) (address string) {
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func wantAnswer(t *testing.T, want Message, got []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(got, want.Pack()) {
		t.Errorf("answer %x, %v\nwant %x", got, err, want.Pack())
	}
}

func TestExchangePassesOverWhatIsNoAnswer(t *testing.T) {
	q := query(t)
	good := answerTo(q)
	udp, _ := sockets(t)
	address := serveUDP(t, udp, func(int, []byte) [][]byte {
		foreignID, otherName, otherType, noAnswer, otherOpcode, noQuestion := good, good, good, q, good, good
		foreignID.ID++
		otherName.Questions = []Question{{parseName(t, "_mesh.example.net"), TypeTXT, ClassIN}}
		otherType.Questions = []Question{{q.Questions[0].Name, TypeA, ClassIN}}
		otherOpcode.Opcode = OpcodeUpdate
		noQuestion.Questions = nil
		datagrams := [][]byte{{}, []byte("short")}
		for _, m := range []Message{foreignID, otherName, otherType, noAnswer, otherOpcode, noQuestion, good} {
			datagrams = append(datagrams, m.Pack())
		}
		return datagrams
	})
	got, err := Exchange(testContext(t), address, q.Pack())
	wantAnswer(t, good, got, err)
}

func TestExchangeTakes(t *testing.T) {
	q := query(t)
	otherCase, refused := answerTo(q), Message{ID: q.ID, Response: true, Rcode: RcodeFormErr}
	otherCase.Questions = []Question{{parseName(t, "_MESH.Example.com"), TypeTXT, ClassIN}}
	for name, answer := range map[string]Message{"another letter case": otherCase, "an error without question": refused} {
		t.Run(name, func(t *testing.T) {
			udp, _ := sockets(t)
			address := serveUDP(t, udp, func(int, []byte) [][]byte { return [][]byte{answer.Pack()} })
			got, err := Exchange(testContext(t), address, q.Pack())
			wantAnswer(t, answer, got, err)
		})
	}
}

func TestExchangeAsksAgainAfterLoss(t *testing.T) {
	t.Parallel() // it waits for udpTry
	q := query(t)
	udp, _ := sockets(t)
	address := serveUDP(t, udp, func(count int, message []byte) [][]byte {
		if count == 0 || !bytes.Equal(message, q.Pack()) {
			return nil
		}
		good := answerTo(q)
		return [][]byte{good.Pack()}
	})
	got, err := Exchange(testContext(t), address, q.Pack())
	wantAnswer(t, answerTo(q), got, err)
}

func TestExchangeGivesUp(t *testing.T) {
	t.Parallel() // it waits for every try
	count := make(chan int, udpTries+1)
	udp, _ := sockets(t)
	address := serveUDP(t, udp, func(n int, _ []byte) [][]byte { count <- n; return nil })
	_, err := Exchange(testContext(t), address, []byte(header()))
	if !errors.Is(err, context.DeadlineExceeded) || len(count) != udpTries {
		t.Errorf("%v after %d tries", err, len(count))
	}
}

// TestExchangeSendsNothingAfterTheEnd: no message is sent when the context ends with the wait for an answer.
func TestExchangeSendsNothingAfterTheEnd(t *testing.T) {
	t.Parallel() // it waits for udpTry
	const exchanges = 50
	count := make(chan int, exchanges*udpTries)
	udp, _ := sockets(t)
	address := serveUDP(t, udp, func(n int, _ []byte) [][]byte { count <- n; return nil })
	var work sync.WaitGroup
	for range exchanges {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), udpTry)
			defer cancel()
			if _, err := Exchange(ctx, address, []byte(header())); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if len(count) > exchanges {
		t.Errorf("%d messages in %d exchanges", len(count), exchanges)
	}
}

func TestExchangeTruncatedGoesToTCP(t *testing.T) {
	q := query(t)
	udp, tcp := sockets(t)
	address := serveUDP(t, udp, func(int, []byte) [][]byte {
		cut := answerTo(q)
		cut.Truncated, cut.Answers = true, nil
		return [][]byte{cut.Pack()}
	})
	serveTCP(t, tcp, func(conn net.Conn) {
		if message, err := ReadTCP(conn); err == nil && bytes.Equal(message, q.Pack()) {
			good := answerTo(q)
			WriteTCP(conn, good.Pack())
		}
	})
	got, err := Exchange(testContext(t), address, q.Pack())
	wantAnswer(t, answerTo(q), got, err)
}

func TestExchangeLargeMessageGoesToTCP(t *testing.T) {
	q := query(t)
	for range 3 {
		q.Additional = append(q.Additional, RR{Root, TypeTXT, ClassIN, 0, TXTData([]string{strings.Repeat("x", 255)})})
	}
	_, tcp := sockets(t)
	address := serveTCP(t, tcp, func(conn net.Conn) {
		if message, err := ReadTCP(conn); err == nil && bytes.Equal(message, q.Pack()) {
			good := answerTo(q)
			WriteTCP(conn, good.Pack())
		}
	})
	got, err := Exchange(testContext(t), address, q.Pack())
	wantAnswer(t, answerTo(q), got, err)
}

func TestExchangeTCPFaults(t *testing.T) {
	q := query(t)
	foreign := answerTo(q)
	foreign.ID++
	for name, test := range map[string]struct {
		serve func(net.Conn)
		want  error
	}{
		"closed at once":     {func(c net.Conn) { ReadTCP(c) }, io.EOF},
		"closed in a length": {func(c net.Conn) { ReadTCP(c); c.Write([]byte{0}) }, io.ErrUnexpectedEOF},
		"closed behind it":   {func(c net.Conn) { ReadTCP(c); c.Write([]byte{0, 12}) }, io.ErrUnexpectedEOF},
		"a foreign answer":   {func(c net.Conn) { ReadTCP(c); WriteTCP(c, foreign.Pack()) }, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			_, tcp := sockets(t)
			address := serveTCP(t, tcp, test.serve)
			if got, err := ExchangeTCP(testContext(t), address, q.Pack()); !errors.Is(err, test.want) {
				t.Errorf("%x, %v, want %v", got, err, test.want)
			}
		})
	}
}

// A server that keeps silent holds nobody beyond the end of the context, and
// the error is the reason that was given for the end.
func TestExchangeEndsWithItsContext(t *testing.T) {
	reason := errors.New("no longer wanted")
	for name, exchange := range map[string]func(context.Context, string, []byte) ([]byte, error){"UDP": Exchange, "TCP": ExchangeTCP} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(testContext(t))
			asked := func() { cancel(reason) }
			udp, tcp := sockets(t)
			address := serveUDP(t, udp, func(int, []byte) [][]byte { asked(); return nil })
			serveTCP(t, tcp, func(conn net.Conn) {
				ReadTCP(conn)
				asked()
				io.Copy(io.Discard, conn) // until the client closes
			})
			q := query(t)
			if got, err := exchange(ctx, address, q.Pack()); !errors.Is(err, reason) {
				t.Errorf("%x, %v", got, err)
			}
		})
	}
}

func TestExchangeWithNobodyThere(t *testing.T) {
	udp, tcp := sockets(t)
	udp.Close()
	tcp.Close()
	q := query(t)
	for name, exchange := range map[string]func(context.Context, string, []byte) ([]byte, error){"UDP": Exchange, "TCP": ExchangeTCP} {
		if _, err := exchange(testContext(t), tcp.Addr().String(), q.Pack()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFraming(t *testing.T) {
	var stream bytes.Buffer
	for _, message := range []string{"one", "", strings.Repeat("x", MaxMessage)} {
		if err := WriteTCP(&stream, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadTCP(&stream); err != nil || string(got) != message {
			t.Errorf("%d octets came back as %d, %v", len(message), len(got), err)
		}
	}
	if err := WriteTCP(&stream, make([]byte, MaxMessage+1)); !errors.Is(err, ErrFormat) || stream.Len() > 0 {
		t.Errorf("too long: %v", err)
	}
	if _, err := ReadTCP(&stream); err != io.EOF {
		t.Errorf("between messages: %v", err)
	}
}
