package standby

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// relay stands before the provider. It writes each update that arrives into the diary, with the machine that sent it.
type relay struct {
	w      *world
	server string

	mu   sync.Mutex
	trap func(m *machine, update bool) // called with each message that arrives, nil for none
}

func newRelay(w *world, address, server string) *relay {
	r := &relay{w: w, server: server}
	listener, err := net.Listen("tcp", address)
	support.Must(w.t, err)
	packets, err := net.ListenPacket("udp", address)
	support.Must(w.t, err)
	w.t.Cleanup(func() { listener.Close(); packets.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go r.stream(conn)
		}
	}()
	go func() {
		buffer := make([]byte, dns.MaxMessage)
		for n, from, err := packets.ReadFrom(buffer); err == nil; n, from, err = packets.ReadFrom(buffer) {
			query := slices.Clone(buffer[:n])
			go func() {
				if answer := r.exchange(dns.Exchange, from, query); answer != nil {
					packets.WriteTo(answer, from)
				}
			}()
		}
	}()
	return r
}

// stream answers the messages of a connection.
func (r *relay) stream(conn net.Conn) {
	defer conn.Close()
	for {
		query, err := dns.ReadTCP(conn)
		if err != nil {
			return
		}
		answer := r.exchange(dns.ExchangeTCP, conn.RemoteAddr(), query)
		if answer == nil || dns.WriteTCP(conn, answer) != nil {
			return
		}
	}
}

// exchange passes a message on. What arrives has arrived, also if the trap stops its sender.
func (r *relay) exchange(pass func(context.Context, string, []byte) ([]byte, error), from net.Addr, query []byte) []byte {
	at, update := boottime(), servertest.IsUpdate(query)
	m := r.w.from(from)
	if m == nil {
		return nil
	}
	if update {
		r.w.diary.call(call{m.name, at})
	}
	r.mu.Lock()
	trap := r.trap
	r.mu.Unlock()
	if trap != nil {
		trap(m, update)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := pass(ctx, r.server, query)
	if err != nil {
		return nil
	}
	return answer
}

// set has a function called with each message, until it is set anew.
func (r *relay) set(trap func(m *machine, update bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = trap
}

// from gives the machine with an address.
func (w *world) from(address net.Addr) *machine {
	host, _, _ := net.SplitHostPort(address.String())
	for _, m := range w.machines() {
		if m.host == host {
			return m
		}
	}
	return nil
}

// keyRelay stands before etcd.
type keyRelay struct {
	mu   sync.Mutex
	trap func(from *machine) // called when a client that was told of the writer's key has hung up, nil for none
}

func newKeyRelay(w *world, address, server string) *keyRelay {
	r := &keyRelay{}
	listener, err := net.Listen("tcp", address)
	support.Must(w.t, err)
	w.t.Cleanup(func() { listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go r.stream(w.from(conn.RemoteAddr()), conn, server)
		}
	}()
	return r
}

// stream copies both directions of a connection of etcdctl, which makes one request.
func (r *keyRelay) stream(from *machine, client net.Conn, server string) {
	defer client.Close()
	etcd, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	told := make(chan bool, 1)
	go func() {
		var answers bytes.Buffer
		io.Copy(client, io.TeeReader(etcd, &answers))
		client.Close()
		told <- bytes.Contains(answers.Bytes(), []byte("/meshddns/writer"))
	}()
	io.Copy(etcd, client)
	r.mu.Lock()
	trap := r.trap
	r.mu.Unlock()
	etcd.Close()
	if <-told && trap != nil {
		trap(from)
	}
}

// set has a function called, until it is set anew.
func (r *keyRelay) set(trap func(from *machine)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = trap
}
