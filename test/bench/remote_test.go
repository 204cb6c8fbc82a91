package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
)

// remote is a provider that counts what it is asked.
type remote struct {
	account account
	calls   func() int // nil: no provider is asked
	server  string     // that answers DNS queries
}

func (r remote) asked() int {
	if r.calls == nil {
		return 0
	}
	return r.calls()
}

func atCloud(c *cloudtest.Cloud) remote {
	c.SetPageLimit(0)
	return remote{
		account: account{Provider: c.Provider, KeyID: c.AccessKeyID, Secret: c.AccessKeySecret, Endpoint: c.URL, Mode: "manual"},
		calls:   c.Requests,
	}
}

// atPowerDNS counts the requests of a real server's API.
func atPowerDNS(t *testing.T) remote {
	s := servertest.PowerDNS(t)
	to, err := url.Parse(s.API)
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return remote{
		account: account{Provider: "powerdns", KeyID: "localhost", Secret: s.APIKey, Endpoint: server.URL, Mode: "manual"},
		calls:   func() int { return int(calls.Load()) },
	}
}

// atKnot counts the messages that a real server gets over UDP and TCP.
func atKnot(t *testing.T) remote {
	s := servertest.Knot(t)
	r := &relay{server: s.Addr}
	address := r.listen(t)
	return remote{
		account: account{Provider: "rfc2136", KeyID: servertest.Key, Secret: servertest.Secret, Endpoint: address, Mode: "manual"},
		calls:   func() int { return int(r.messages.Load()) },
		server:  s.Addr,
	}
}

// relay hands DNS messages on and counts those to the server.
type relay struct {
	server   string
	messages atomic.Int64
}

func (r *relay) listen(t *testing.T) string {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	go r.datagrams(udp)
	go r.accept(tcp)
	return tcp.Addr().String()
}

// datagrams hands each question on from a port of its own.
func (r *relay) datagrams(udp net.PacketConn) {
	question := make([]byte, 64<<10)
	for {
		n, client, err := udp.ReadFrom(question)
		if err != nil {
			return
		}
		r.messages.Add(1)
		server, err := net.Dial("udp", r.server)
		if err != nil {
			continue
		}
		server.SetDeadline(time.Now().Add(limit))
		if _, err := server.Write(question[:n]); err != nil {
			server.Close()
			continue
		}
		go func() {
			defer server.Close()
			answer := make([]byte, 64<<10)
			if n, err := server.Read(answer); err == nil {
				udp.WriteTo(answer[:n], client)
			}
		}()
	}
}

func (r *relay) accept(tcp net.Listener) {
	for {
		client, err := tcp.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.server)
		if err != nil {
			client.Close()
			continue
		}
		go func() {
			defer client.Close()
			io.Copy(client, server)
		}()
		go func() {
			defer server.Close()
			r.count(server, client)
		}()
	}
}

// count hands messages on, each with its length before it (RFC 1035, section
// 4.2.2).
func (r *relay) count(server io.Writer, client io.Reader) {
	for {
		message := make([]byte, 2, 2+64<<10)
		if _, err := io.ReadFull(client, message); err != nil {
			return
		}
		message = message[:2+int(binary.BigEndian.Uint16(message))]
		if _, err := io.ReadFull(client, message[2:]); err != nil {
			return
		}
		r.messages.Add(1)
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

// valueOf is the value of the first name as another has it.
func valueOf(value []string, n int) (other []string) {
	for _, s := range value {
		other = append(other, strings.ReplaceAll(s, fmt.Sprint(first), fmt.Sprint(first+n)))
	}
	return other
}

// nameOfTest is the last part of it.
func nameOfTest(t *testing.T) string { return strings.ReplaceAll(path.Base(t.Name()), "_", " ") }
