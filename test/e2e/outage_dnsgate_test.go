package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// dnsGate stands before a DNS server, UDP and TCP.
type dnsGate struct {
	t       *testing.T
	records int // of a zone with many
	target  string
	addr    string
	made    atomic.Int64 // calls that a fault has met

	mu    sync.Mutex
	fault string
	end   chan struct{}
	tcp   net.Listener
	udp   net.PacketConn
	hole  func()
	conns map[net.Conn]bool
	held  map[int64]bool
	last  int64
	asked map[string]bool // the addresses that have asked during a silence
	dice  *rand.Rand
}

func newDNSGate(t *testing.T, target string) *dnsGate {
	g := &dnsGate{t: t, records: zoneRecords(t), target: target, conns: map[net.Conn]bool{}, held: map[int64]bool{}, asked: map[string]bool{}, dice: rand.New(rand.NewPCG(3, 4)), end: make(chan struct{})}
	for range 20 { // the port must be free for both
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g.addr = tcp.Addr().String()
		tcp.Close()
		if g.listen() {
			break
		}
	}
	t.Cleanup(func() { g.set(""); g.close() })
	return g
}

func (g *dnsGate) listen() bool {
	tcp, err := net.Listen("tcp", g.addr)
	if err != nil {
		return false
	}
	udp, err := net.ListenPacket("udp", g.addr)
	if err != nil {
		tcp.Close()
		return false
	}
	g.mu.Lock()
	g.tcp, g.udp = tcp, udp
	g.mu.Unlock()
	go g.acceptAll(tcp)
	go g.receiveAll(udp)
	return true
}

// close takes both ports away.
func (g *dnsGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range []io.Closer{g.tcp, g.udp} {
		if c != nil {
			c.Close()
		}
	}
	if g.hole != nil {
		g.hole()
	}
	g.hole = nil
}

func (g *dnsGate) set(fault string) {
	g.mu.Lock()
	was := g.fault
	close(g.end)
	g.fault, g.end = fault, make(chan struct{})
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	if was == blackHole || was == "reset" { // whose ports are closed
		g.close()
		if !support.Within(limit, g.listen) {
			g.t.Error("the port of the gate is gone")
		}
	}
	if fault == "reset" || fault == blackHole {
		g.made.Add(1)
	}
	switch fault {
	case "reset": // nothing listens: TCP is reset, UDP is told that the port is closed
		g.close()
	case blackHole:
		g.close()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.hole = silentPort(g.t, g.addr)
		err := whenFree(func() (err error) {
			g.udp, err = net.ListenPacket("udp", g.addr) // takes every datagram and answers none
			return err
		})
		if err != nil {
			g.t.Error(err)
		}
	}
}

func (g *dnsGate) now() (string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fault, g.end
}

func (g *dnsGate) loses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	lost := g.fault == "30 % loss" && (g.made.Load() == 0 || g.dice.Float64() < 0.3)
	if lost {
		g.made.Add(1)
	}
	return lost
}

// times returns how many calls a fault has met, without those that the kernel drops or
// refuses.
func (g *dnsGate) times() int64 { return g.made.Load() }

func (g *dnsGate) hold() func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	number := g.last
	g.held[number] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, number)
	}
}

func (g *dnsGate) open() map[int64]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.held)
}

func (g *dnsGate) acceptAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go g.serveTCP(c)
	}
}

func (g *dnsGate) serveTCP(c net.Conn) {
	g.mu.Lock()
	full := g.fault == "one connection" && len(g.conns) > 0
	g.conns[c] = true
	if full || slices.Contains([]string{"timeout", "drip", "HTML", "1 GB", "truncated"}, g.fault) {
		g.made.Add(1)
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
		c.Close()
	}()
	if fault, _ := g.now(); full || g.loses() {
		c.(*net.TCPConn).SetLinger(0)
		return
	} else if fault == "timeout" || fault == "drip" {
		defer g.hold()()
		if fault == "drip" {
			go g.dripTo(c)
		}
		io.Copy(io.Discard, c)
		return
	} else if fault == "HTML" {
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>")
		io.Copy(io.Discard, c)
		return
	} else if fault == "1 GB" {
		g.floodTo(c)
		return
	}
	fault, _ := g.now()
	if fault == wrongID || fault == wrongTSIG || fault == endlessZone || fault == manyRecords {
		g.spoilTo(c, fault)
		return
	}
	up, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(up, c)
		up.(*net.TCPConn).CloseWrite()
	}()
	if fault == "truncated" {
		io.CopyN(c, up, 20)
		return
	}
	if g.loses() {
		io.Copy(io.Discard, io.LimitReader(up, 2)) // it is done, and the answer is lost
		return
	}
	io.Copy(c, up)
}

func (g *dnsGate) dripTo(c net.Conn) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for octet := range byte(100) {
		if _, err := c.Write([]byte{octet}); err != nil {
			return
		}
		<-ticker.C
	}
}

// floodTo repeats the head of the question as an answer for a gigabyte.
func (g *dnsGate) floodTo(c net.Conn) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	question := make([]byte, int(head[0])<<8|int(head[1]))
	if _, err := io.ReadFull(c, question); err != nil {
		return
	}
	message := make([]byte, 2+65535)
	message[0], message[1] = 0xff, 0xff
	copy(message[2:], question)
	message[4] |= 0x80
	block := bytes.Repeat(message, 16)
	for range gigabyte / len(block) {
		_, err := c.Write(block)
		if err != nil {
			return
		}
	}
}

// silence keeps a question open that comes for the first time. The client asks for
// six seconds; it is counted as open for the first five.
func (g *dnsGate) silence(from string, end <-chan struct{}) {
	g.mu.Lock()
	again := g.asked[from]
	g.asked[from] = true
	g.mu.Unlock()
	if again {
		return
	}
	defer g.hold()()
	select {
	case <-end:
	case <-time.After(5 * time.Second):
	}
}

func (g *dnsGate) receiveAll(udp net.PacketConn) {
	for {
		buffer := make([]byte, 65535)
		n, from, err := udp.ReadFrom(buffer)
		if err != nil {
			return
		}
		go g.serveUDP(udp, from, buffer[:n])
	}
}

func (g *dnsGate) serveUDP(udp net.PacketConn, from net.Addr, question []byte) {
	fault, end := g.now()
	if slices.Contains([]string{"timeout", "drip", "HTML", "1 GB", "truncated"}, fault) {
		g.made.Add(1)
	}
	switch {
	case fault == "timeout" || fault == "drip":
		g.silence(from.String(), end)
		return
	case fault == "HTML":
		udp.WriteTo([]byte("<!doctype html><title>Maintenance</title>"), from)
		return
	case fault == "1 GB":
		flood := make([]byte, 60_000)
		copy(flood, question)
		flood[2] |= 0x80
		udp.WriteTo(flood, from)
		return
	case g.loses():
		return
	}
	up, err := net.Dial("udp", g.target)
	if err != nil {
		return
	}
	defer up.Close()
	up.SetDeadline(time.Now().Add(5 * time.Second))
	up.Write(question)
	answer := make([]byte, 65535)
	n, err := up.Read(answer)
	if err != nil || g.loses() {
		return
	}
	if fault == "truncated" {
		n /= 2
	}
	udp.WriteTo(g.spoil(fault, answer[:n]), from)
}

const (
	wrongID     = "wrong id"
	wrongTSIG   = "wrong TSIG"
	endlessZone = "endless AXFR"
)

// spoil makes an answer one to another question, or one that was changed on its way.
func (g *dnsGate) spoil(fault string, answer []byte) []byte {
	const behindMAC = 7 // its last octet, the id, the error, and no other data
	switch {
	case fault == wrongID:
		answer[0] ^= 0xff
	case fault == wrongTSIG && len(answer) > dns.HeaderSize:
		answer[len(answer)-behindMAC] ^= 1
	default:
		return answer
	}
	g.made.Add(1)
	return answer
}

// spoilTo hands on what is asked over TCP, message by message, spoiled; a transfer of the
// zone gets one that is too large.
func (g *dnsGate) spoilTo(c net.Conn, fault string) {
	for {
		data, err := dns.ReadTCP(c)
		if err != nil {
			return
		}
		query, err := dns.ParseMessage(data)
		if err != nil {
			return
		}
		axfr := len(query.Questions) == 1 && query.Questions[0].Type == dns.TypeAXFR
		if axfr && (fault == endlessZone || fault == manyRecords) {
			stands, err := g.ask(data)
			if err == nil {
				g.zoneTo(c, query, stands, fault)
			}
			return
		}
		answer, err := g.ask(data)
		if err != nil || dns.WriteTCP(c, g.spoil(fault, answer)) != nil {
			return
		}
	}
}

// ask asks the server over TCP. A transfer of the test's zone has one message.
func (g *dnsGate) ask(data []byte) ([]byte, error) {
	up, err := net.Dial("tcp", g.target)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if err := dns.WriteTCP(up, data); err != nil {
		return nil, err
	}
	return dns.ReadTCP(up)
}

// zoneTo transfers a zone of many records, or of as many as are taken, after the TXT records of
// the server's own answer: a client may believe it.
func (g *dnsGate) zoneTo(c net.Conn, query dns.Message, answer []byte, fault string) {
	stands, err := dns.ParseMessage(answer)
	if err != nil {
		g.t.Errorf("the server's transfer: %v", err)
		return
	}
	apex := query.Questions[0].Name
	tsig := query.Additional[len(query.Additional)-1].Data
	signer := servertest.NewSigner(tsig[len(tsig)-6-sha256.Size : len(tsig)-6])
	soa := dns.RR{Name: apex, Type: dns.TypeSOA, Class: dns.ClassIN, TTL: 60, Data: dns.SOA{MName: apex, RName: apex, Serial: 1}.Data()}
	const each = 1000
	for n := 0; fault == endlessZone || n < g.records; n += each {
		m := dns.Message{ID: query.ID, Response: true, Authoritative: true}
		if n == 0 {
			m.Questions, m.Answers = query.Questions, []dns.RR{soa}
			for _, rr := range stands.Answers {
				if rr.Type == dns.TypeTXT {
					m.Answers = append(m.Answers, rr)
				}
			}
		}
		for i := n; i < n+each; i++ {
			name, _ := apex.Child(fmt.Sprintf("host-%d", i))
			text := fmt.Sprintf("the value of %d", i)
			m.Answers = append(m.Answers, dns.RR{Name: name, Type: dns.TypeTXT, Class: dns.ClassIN, TTL: 60, Data: append([]byte{byte(len(text))}, text...)})
		}
		if dns.WriteTCP(c, signer.Next(m.Pack(), n%(50*each) == 0)) != nil {
			g.made.Add(1) // the client has had enough
			return
		}
	}
	last := dns.Message{ID: query.ID, Response: true, Authoritative: true, Answers: []dns.RR{soa}}
	if dns.WriteTCP(c, signer.Next(last.Pack(), true)) == nil {
		g.made.Add(1)
	}
}
