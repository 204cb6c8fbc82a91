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

// The client of an ended connection reads all that was sent, whatever it sends meanwhile.
func TestEnd(t *testing.T) {
	server, client := tcpPair(t)
	l := New(small)
	c := l.Admit(server)
	const answers = 10_000
	c.Write(make([]byte, answers))
	io.WriteString(client, "one more request")
	for !unread(server) {
	}
	ended := make(chan struct{})
	go func() { c.End(); close(ended) }()
	for i := range answers {
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
			t.Fatalf("octet %d: %v", i, err)
		}
		if i < 10 {
			io.WriteString(client, "x")
		}
	}
	if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	client.Close()
	<-ended
	if open, _, _ := l.Counts(); open != 0 {
		t.Errorf("%d are open", open)
	}
}

// A request that crosses the end of its connection is not seen by the server, and no reset.
func TestRequestAfterTheEnd(t *testing.T) {
	server, client := tcpPair(t)
	l := New(small)
	c := l.Admit(server)
	read := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 10)); read <- err; c.Close() }()
	for reads := false; !reads; {
		l.mu.Lock()
		reads = c.state == idle
		l.mu.Unlock()
	}
	for l.endIdle(true) > 0 && c.stateNow() != ending {
	}
	io.WriteString(client, "too late")
	if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the client reads %d, %v", n, err)
	}
	client.(*net.TCPConn).CloseWrite()
	if err := <-read; err != io.EOF {
		t.Errorf("the server reads %v", err)
	}
}

func (c *Conn) stateNow() state {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	return c.state
}
