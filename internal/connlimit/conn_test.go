package connlimit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestWriteInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, New(small), 1)
		var got bytes.Buffer
		read := make(chan struct{})
		go func() { io.Copy(&got, p.client); close(read) }()
		want := bytes.Repeat([]byte("meshddns"), 20_000)
		if n, err := p.Write(want); n != len(want) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := p.Write(nil); n != 0 || err != nil {
			t.Errorf("nothing: %d, %v", n, err)
		}
		p.Close()
		if <-read; !bytes.Equal(got.Bytes(), want) {
			t.Error("what was read is not what was written")
		}
	})
}

// A client has the same time for each part of an answer.
func TestWriteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, New(small), 1)
		go func() {
			<-time.After(small.WriteTime - time.Second)
			io.CopyN(io.Discard, p.client, writePart)
		}()
		begun := time.Now()
		n, err := p.Write(make([]byte, 3*writePart))
		if took := time.Since(begun); n != writePart || !errors.Is(err, os.ErrDeadlineExceeded) || took != 2*small.WriteTime-time.Second {
			t.Errorf("%d, %v after %v", n, err, took)
		}
	})
}

// The client of an ended connection reads all that was sent, even if it sends more.
func TestEndedConnection(t *testing.T) {
	server, client := tcpPair(t)
	client.(*net.TCPConn).SetReadBuffer(4096)
	l := New(small)
	c := l.Admit(server)
	answers := make([]byte, 50_000) // more than the client's buffer holds
	c.Write(answers)
	client.Write(make([]byte, 100))
	for !unread(server) {
	}
	l.mu.Lock()
	c.end()
	l.mu.Unlock()
	c.SetReadDeadline(time.Time{}) // the test may be slow
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 10))
		read <- err
		c.Close()
	}()
	for i := 0; i < len(answers); i += 1000 {
		if _, err := io.ReadFull(client, answers[:1000]); err != nil {
			t.Fatalf("after %d octets: %v", i, err)
		}
		if i < 10_000 {
			client.Write([]byte{1})
		}
	}
	if n, err := client.Read(answers); n != 0 || err != io.EOF {
		t.Errorf("at the end the client reads %d, %v", n, err)
	}
	client.Close()
	if err := <-read; err != io.EOF {
		t.Errorf("the server reads %v", err)
	}
}

// half is a connection whose directions are closed one by one.
type half struct{ net.Conn }

func (half) CloseWrite() error { return nil }

// End waits for the client to close its side, too, but not for long.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closes := range []time.Duration{lingerTime / 2, time.Hour} {
			server, client := pipe(t, 1)
			c := New(small).Admit(half{server})
			begun := time.Now()
			go func() {
				client.Write(make([]byte, 10))
				<-time.After(closes)
				client.Close()
			}()
			c.End()
			if took := time.Since(begun); took != min(closes, lingerTime) || !c.is(closed) {
				t.Errorf("the client closes after %v, the server after %v", closes, took)
			}
			after(closes)
		}
	})
}
