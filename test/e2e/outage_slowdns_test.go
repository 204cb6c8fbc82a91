package e2e

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// resolvers counts those of all tests, for an address each.
var resolvers atomic.Int64

// resolver tells the address of slowName, at once or after some seconds.
type resolver struct {
	host string // it listens on port 53
	mu   sync.Mutex
	slow bool
}

func newSlowResolver(t *testing.T) *resolver {
	t.Helper()
	support.Need(t, "unshare", "mount")
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root may have a resolver of its own")
		}
		t.Skip("only root may have a resolver of its own")
	}
	r := &resolver{host: fmt.Sprintf("127.53.53.%d", resolvers.Add(1))}
	conn, err := net.ListenPacket("udp", net.JoinHostPort(r.host, "53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for {
			buffer := make([]byte, 4096)
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			go r.answer(conn, from, buffer[:n])
		}
	}()
	return r
}

func (r *resolver) set(fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = fault != ""
}

// answer waits for less than a call may take.
func (r *resolver) answer(conn net.PacketConn, from net.Addr, data []byte) {
	m, err := dns.ParseMessage(data)
	if err != nil || len(m.Questions) == 0 {
		return
	}
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	if slow {
		<-time.After(3 * time.Second)
	}
	q := m.Questions[0]
	answer := dns.Message{ID: m.ID, Response: true, Questions: m.Questions}
	const a dns.Type = 1
	if q.Type == a {
		answer.Answers = []dns.RR{{Name: q.Name, Type: a, Class: dns.ClassIN, TTL: 0, Data: []byte{127, 0, 0, 1}}}
	}
	conn.WriteTo(answer.Pack(), from)
}
