package nameserver

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"meshddns/internal/dns"
)

// valid is a query with all that is read of one but TSIG.
func valid() []byte {
	query := question("TXT _mesh.office.example.com")
	opt := dns.EDNS{UDPSize: 4096, DO: true}.RR()
	opt.Data = []byte("\x00\x0a\x00\x08cookie!!")
	query.Additional = []dns.RR{opt}
	return query.Pack()
}

func signed(t testing.TB) []byte {
	t.Helper()
	key, err := dns.ParseKey("mesh-key", "c2VjcmV0")
	if err != nil {
		t.Fatal(err)
	}
	message, _ := key.Sign(valid(), time.Unix(1772600767, 0))
	return message
}

// checkAnswer holds the answer to any octets to what every client relies on.
func checkAnswer(t testing.TB, s *Server, message []byte) {
	t.Helper()
	query, parseErr := dns.ParseMessage(message)
	edns, _, _ := query.EDNS()
	for limit, allowed := range map[int]int{maxUDP: max(512, min(int(edns.UDPSize), 1232)), dns.MaxMessage: dns.MaxMessage} {
		packed := s.answer(t.Context(), nil, message, asker{limit: limit})
		if packed == nil {
			if len(message) >= dns.HeaderSize && message[2]&0x80 == 0 {
				t.Fatalf("no answer to %x", message)
			}
			continue
		}
		answer, err := dns.ParseMessage(packed)
		if err != nil || len(packed) > allowed || answer.ID != query.ID || !answer.Response || answer.RecursionAvailable || query.Response {
			t.Fatalf("answer of %d octets %+v, %v to %x", len(packed), answer, err, message)
		}
		if parseErr != nil && answer.Rcode != dns.RcodeFormErr && answer.Rcode != dns.RcodeNotImp {
			t.Fatalf("%v to what does not parse, %x", answer.Rcode, message)
		}
		if answer.Authoritative && answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNXDomain {
			t.Fatalf("authoritative %v to %x", answer.Rcode, message)
		}
	}
}

// hostileMessages yields random octets, half of them behind the header of a
// query, and every single-octet mutation of whole queries.
func hostileMessages(t testing.TB) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		random := rand.New(rand.NewPCG(1035, 6895))
		for range 10_000 {
			message := make([]byte, random.IntN(600))
			for i := range message {
				message[i] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				copy(message, []byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0})
			}
			if !yield(message) {
				return
			}
		}
		for _, whole := range [][]byte{valid(), signed(t)} {
			for at := range whole {
				for difference := 1; difference < 256; difference++ {
					message := append([]byte(nil), whole...)
					message[at] ^= byte(difference)
					if !yield(message) {
						return
					}
				}
			}
		}
	}
}

func TestHostileMessages(t *testing.T) {
	s := &Server{backend: testZones(), log: slog.New(slog.DiscardHandler)}
	for message := range hostileMessages(t) {
		checkAnswer(t, s, message)
	}
}

// A sample of them goes over the sockets; the server answers after it as before.
func TestHostileMessagesOverSockets(t *testing.T) {
	s := start(t, "", testZones())
	conn := dial(t, "udp", s.Addr())
	number := 0
	for message := range hostileMessages(t) {
		if number++; number%7 == 0 {
			send(t, conn, message)
		}
		if number%500 == 0 {
			stream := dial(t, "tcp", s.Addr())
			send(t, stream, message)
			stream.Close()
		}
	}
	const lastID = 0xfeed
	query := question("SOA example.com")
	query.ID = lastID
	for answered := false; !answered; {
		// The queue that the flood left may be full: ask until it is drained.
		send(t, conn, query.Pack())
		answer, err := receive(conn)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer) > maxUDP {
			t.Errorf("answer of %d octets", len(answer))
		}
		header, err := dns.ParseHeader(answer)
		answered = err == nil && header.ID == lastID && header.Authoritative
	}
	for _, network := range []string{"udp", "tcp"} {
		if got := ask(t, network, s, question("TXT none.example.com")); got != noName {
			t.Errorf("%s: %s", network, got)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(valid())
	f.Add(signed(f))
	for _, text := range []string{"ANY example.com", "AXFR example.com", "NS example.com", "TXT big.example.com", "TXT ."} {
		query := question(text)
		f.Add(query.Pack())
	}
	s := &Server{backend: testZones(), log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, message []byte) { checkAnswer(t, s, message) })
}
