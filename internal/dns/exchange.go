package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/term"
)

const (
	udpTry   = 2 * time.Second // the wait for a UDP answer before the next try
	udpTries = 3
)

// Exchange sends one packed message to a server (host:port) and returns the packed answer.
// It uses UDP, and TCP if the answer is truncated or the message is larger than 512 octets.
// It ignores UDP answers with another ID or question (RFC 5452).
func Exchange(ctx context.Context, server string, message []byte) ([]byte, error) {
	if len(message) > 512 {
		return ExchangeTCP(ctx, server, message)
	}
	answer, err := exchangeUDP(ctx, server, message)
	if err != nil {
		return nil, err
	}
	if header, err := ParseHeader(answer); err == nil && header.Truncated {
		return ExchangeTCP(ctx, server, message)
	}
	return answer, nil
}

func exchangeUDP(ctx context.Context, server string, message []byte) ([]byte, error) {
	conn, release, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer release()
	for range udpTries {
		answer, err := tryUDP(conn, message)
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // any moment now, and no message is sent after it
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			continue
		}
		return answer, withoutPort(err)
	}
	return nil, msg.Errorf("no answer from %s: %w", server, context.DeadlineExceeded)
}

func tryUDP(conn net.Conn, message []byte) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(udpTry)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	buffer := make([]byte, MaxMessage)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if answers(buffer[:n], message) {
			return buffer[:n], nil
		}
	}
}

// ExchangeTCP is Exchange over TCP only. It sends the message once.
func ExchangeTCP(ctx context.Context, server string, message []byte) ([]byte, error) {
	conn, release, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer release()
	answer, err := exchangeTCP(conn, message)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answer, withoutPort(err)
}

// withoutPort removes the addresses from an error: the local port differs each time, and
// one fault must have one text.
func withoutPort(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// Transfer sends one packed message over TCP to a server (host:port) and calls take with
// each message of the answer, until take reports the last one or returns an error. An
// earlier end of the stream is an error.
func Transfer(ctx context.Context, server string, query []byte, take func(answer []byte) (last bool, err error)) error {
	conn, release, err := dial(ctx, "tcp", server)
	if err != nil {
		return withoutPort(err)
	}
	defer release()
	answer, err := exchangeTCP(conn, query)
	for {
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return withoutPort(err)
		}
		if last, err := take(answer); last || err != nil {
			return err
		}
		answer, err = readNext(conn, query)
	}
}

// readNext reads a message of an answer after the first one. It need not repeat the
// question (RFC 5936, section 2.2).
func readNext(conn net.Conn, query []byte) ([]byte, error) {
	answer, err := ReadTCP(conn)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, msg.Errorf("read answer: %w", err)
	}
	a, _ := ParseMessage(answer)
	q, _ := ParseHeader(query)
	bare := len(a.Questions) == 0 && a.Response && a.ID == q.ID && a.Opcode == q.Opcode
	if !bare && !answers(answer, query) {
		return nil, msg.Errorf("%w: the answer is to another question", ErrFormat)
	}
	return answer, nil
}

func exchangeTCP(conn net.Conn, message []byte) ([]byte, error) {
	if err := WriteTCP(conn, message); err != nil {
		return nil, err
	}
	answer, err := ReadTCP(conn)
	if err != nil {
		return nil, msg.Errorf("read answer: %w", err)
	}
	if !answers(answer, message) {
		return nil, msg.Errorf("%w: the answer is to another question", ErrFormat)
	}
	return answer, nil
}

// dial connects to a server. The end of ctx closes the connection, which also ends a
// waiting read.
func dial(ctx context.Context, network, server string) (conn net.Conn, release func(), err error) {
	conn, err = term.Dial(ctx, net.Dialer{}, network, server)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return conn, func() { stop(); conn.Close() }, nil
}

// WriteTCP writes a message after its length in two octets (RFC 1035, section 4.2.2), in
// one call of Write (RFC 7766, section 8).
func WriteTCP(w io.Writer, message []byte) error {
	if len(message) > MaxMessage {
		return msg.Errorf("%w: %d octets are more than TCP can frame", ErrFormat, len(message))
	}
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(message)), uint16(len(message)))
	_, err := w.Write(append(framed, message...))
	return err
}

// ReadTCP reads one message in the form that WriteTCP writes. io.EOF means that the stream
// ended between two messages.
func ReadTCP(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(r, message); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return message, nil
}

// answers reports whether answer is a response to query: it has the same ID, and the same
// question unless it has none, as an error may.
func answers(answer, query []byte) bool {
	a, _ := ParseMessage(answer)
	q, _ := ParseMessage(query)
	if !a.Response || a.ID != q.ID || a.Opcode != q.Opcode {
		return false
	}
	if len(a.Questions) == 0 {
		return a.Rcode != RcodeSuccess || q.Opcode == OpcodeUpdate
	}
	return len(q.Questions) == 1 && len(a.Questions) == 1 &&
		a.Questions[0].Name.Fold() == q.Questions[0].Name.Fold() &&
		a.Questions[0].Type == q.Questions[0].Type && a.Questions[0].Class == q.Questions[0].Class
}
