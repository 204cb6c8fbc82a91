package nameserver

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
)

// The first outputs of the table in the reference implementation, and the
// example in appendix A of the paper.
func TestSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	for length, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		if got := sipHash(&key, key[:length]); got != want {
			t.Errorf("of %d octets: %x, want %x", length, got, want)
		}
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// cookies is a server with a secret, and a query that comes at a time.
func cookies(t *testing.T, secret, client string, at int64) (*Server, asker) {
	t.Helper()
	s := &Server{backend: testZones(), log: slog.New(slog.DiscardHandler)}
	copy(s.secret[:], unhex(t, secret))
	return s, asker{address: netip.MustParseAddr(client), limit: maxUDP, at: time.Unix(at, 0)}
}

// The vectors of RFC 9018, appendix A.
func TestServerCookies(t *testing.T) {
	const (
		first  = "e5e973e5a6b2a43f48e7dc849e37bfcf"
		old    = "dd3bdf9344b678b185a6f5cb60fca715"
		rolled = "445536bcd2513298075a5d379663c962"
	)
	for _, test := range []struct {
		name, secret, client, sent string
		at                         int64
		known                      bool
		reply                      string
	}{
		{"A.1", first, "198.51.100.100", "2464c4abcf10c957", 1559731985, false, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"A.2", first, "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", 1559734385, true, "2464c4abcf10c957010000005cf7a871d4a564a1442aca77"},
		{"A.3", first, "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", 1559728000, true, ""},
		{"A.3 renewed", first, "203.0.113.203", "fc93fc62807ddb86", 1559734700, false, "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"},
		{"A.4 old", old, "2001:db8:220:1:59de:d0f4:8769:82b8", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", 1559741961, true, ""},
		{"A.4", rolled, "2001:db8:220:1:59de:d0f4:8769:82b8", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", 1559741961, false, "22681ab97d52c298010000005cf7c609a6bb79d16625507a"},
	} {
		s, from := cookies(t, test.secret, test.client, test.at)
		sent := unhex(t, test.sent)
		o, err := s.readOptions(dns.EDNS{Options: append([]byte{0, optionCookie, 0, byte(len(sent))}, sent...)}, from)
		if err != nil || o.known != test.known {
			t.Errorf("%s: known %t, %v", test.name, o.known, err)
		}
		if got := fmt.Sprintf("%x", s.appendOptions(nil, o, from)); test.reply != "" && got != "000a0018"+test.reply {
			t.Errorf("%s: %s, want %s", test.name, got, test.reply)
		}
	}
}

// What was changed, is too old or from the future, or was given to another is
// not known.
func TestCookiesThatAreNotKnown(t *testing.T) {
	const made = 1559731985
	good := unhex(t, "2464c4abcf10c957010000005cf79f111f8130c3eee29480")
	for age, want := range map[int64]bool{-301: false, -300: true, 0: true, 3600: true, 3601: false, 1 << 32: true, 1 << 31: false} {
		s, from := cookies(t, "e5e973e5a6b2a43f48e7dc849e37bfcf", "198.51.100.100", made+age)
		if got := s.knows(good, from); got != want {
			t.Errorf("at an age of %d s: %t", age, got)
		}
	}
	s, from := cookies(t, "e5e973e5a6b2a43f48e7dc849e37bfcf", "198.51.100.100", made)
	for i := range good {
		changed := append([]byte(nil), good...)
		changed[i]++
		if s.knows(changed, from) {
			t.Errorf("octet %d changed: still known", i)
		}
	}
	if from.address = netip.MustParseAddr("198.51.100.101"); s.knows(good, from) {
		t.Error("it is known from another address")
	}
}

// withOption is a query with an EDNS option, which question "" leaves without one.
func withOption(asked string, code byte, data []byte) dns.Message {
	query := dns.Message{ID: 4711}
	if asked != "" {
		query = question(asked)
	}
	options := append([]byte{0, code, 0, byte(len(data))}, data...)
	query.Additional = []dns.RR{dns.EDNS{UDPSize: 1232, Options: options}.RR()}
	return query
}

// optionOf gives an answer's rcode and its option of a code.
func optionOf(t *testing.T, packed []byte, code byte) (rcode string, data []byte) {
	t.Helper()
	answer, err := dns.ParseMessage(packed)
	edns, _, ednsErr := answer.EDNS()
	if err != nil || ednsErr != nil {
		t.Fatalf("%x: %v, %v", packed, err, ednsErr)
	}
	for rest := edns.Options; len(rest) > 0; rest = rest[4+rest[3]:] {
		if rest[1] == code {
			data = rest[4 : 4+rest[3]]
		}
	}
	return mnemonic(answer.Rcode | dns.Rcode(edns.Extended)<<4), data
}

func TestCookiesOverSockets(t *testing.T) {
	s := start(t, "", testZones())
	mine := []byte("abcdefgh")
	for _, network := range []string{"udp", "tcp"} {
		first := withOption("TXT none.example.com", optionCookie, mine)
		rcode, cookie := optionOf(t, exchange(t, network, s.Addr(), first.Pack()), optionCookie)
		if rcode != "NXDOMAIN" || len(cookie) != 24 || string(cookie[:8]) != string(mine) {
			t.Fatalf("%s: %s with %x", network, rcode, cookie)
		}
		wrong := append([]byte(nil), cookie...)
		wrong[23]++
		for _, test := range []struct {
			asked  string
			cookie []byte
			want   string
			size   int
		}{
			{"TXT none.example.com", cookie, "NXDOMAIN", 24},
			{"TXT none.example.com", wrong, "NXDOMAIN", 24}, // as if it had none, RFC 7873, section 5.2.4
			{"", mine, "NOERROR", 24},
			{"", cookie, "NOERROR", 24},
			{"", wrong, "BADCOOKIE", 24},
			{"TXT none.example.com", nil, "FORMERR", 0},
			{"TXT none.example.com", mine[:7], "FORMERR", 0},
			{"TXT none.example.com", cookie[:15], "FORMERR", 0},
			{"TXT none.example.com", make([]byte, 41), "FORMERR", 0},
			{"TXT none.example.com", make([]byte, 40), "NXDOMAIN", 24},
		} {
			query := withOption(test.asked, optionCookie, test.cookie)
			rcode, got := optionOf(t, exchange(t, network, s.Addr(), query.Pack()), optionCookie)
			if rcode != test.want || len(got) != test.size {
				t.Errorf("%s, %q with %x: %s with %x", network, test.asked, test.cookie, rcode, got)
			}
		}
	}
	for name, query := range map[string]dns.Message{
		"without a cookie": question("SOA example.com"), "with another option": withOption("SOA example.com", 12, nil),
	} {
		if _, got := optionOf(t, exchange(t, "udp", s.Addr(), query.Pack()), optionCookie); got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
	bare := dns.Message{ID: 1}
	if rcode, _ := optionOf(t, exchange(t, "udp", s.Addr(), bare.Pack()), optionCookie); rcode != "FORMERR" {
		t.Errorf("neither question nor cookie: %s", rcode)
	}
}

// Cookies come with nearly every query of a resolver: they cost no garbage.
func TestCookiesMakeNoGarbage(t *testing.T) {
	s, from := cookies(t, "e5e973e5a6b2a43f48e7dc849e37bfcf", "2001:db8::1", 1559731985)
	cookie := s.appendOptions(nil, options{cookie: []byte("abcdefgh")}, from)
	edns := dns.EDNS{Options: cookie}
	made := testing.AllocsPerRun(100, func() {
		if o, err := s.readOptions(edns, from); err != nil || !o.known {
			t.Fatalf("%+v, %v", o, err)
		}
		s.appendOptions(cookie[:0], options{cookie: edns.Options[4:]}, from)
	})
	if made != 0 {
		t.Errorf("%v allocations", made)
	}
}

func TestNSID(t *testing.T) {
	long := strings.Repeat("n", MaxNSID)
	for _, id := range []string{"", "ams-1", long} {
		s := startWith(t, Config{Addresses: []string{"127.0.0.1:0"}, NSID: id}, testZones())
		query := withOption("SOA example.com", optionNSID, nil)
		if rcode, got := optionOf(t, exchange(t, "udp", s.Addr(), query.Pack()), optionNSID); rcode != "NOERROR" || string(got) != id {
			t.Errorf("%q: %s with %q", id, rcode, got)
		}
		query = withOption("SOA example.com", 12, nil)
		if _, got := optionOf(t, exchange(t, "udp", s.Addr(), query.Pack()), optionNSID); got != nil {
			t.Errorf("%q not asked for: %q", id, got)
		}
	}
	if _, err := Listen(Config{NSID: long + "n"}, testZones(), nil); err == nil {
		t.Error("an NSID that is too long is taken")
	}
}

// limitedServer has a limit of 10 answers a second.
func limitedServer() *Server {
	return &Server{backend: testZones(), log: slog.New(slog.DiscardHandler), rates: newRateLimiter(10)}
}

// outcomes sends a query some times and counts what comes back.
func outcomes(t *testing.T, s *Server, count int, query dns.Message, address string, limit int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range count {
		packed := s.answer(t.Context(), nil, query.Pack(), asker{address: netip.MustParseAddr(address), limit: limit, at: time.Now()})
		if packed == nil {
			got["none"]++
			continue
		}
		answer, err := dns.ParseMessage(packed)
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(show(answer), "\n")
		got[text]++
	}
	return got
}

func TestRateLimit(t *testing.T) {
	plain, unknown := question("TXT none.example.com"), withOption("TXT none.example.com", optionCookie, []byte("abcdefgh"))
	for _, test := range []struct {
		name, address string
		limit         int
		query         dns.Message
		want          string
	}{
		{"above it half are truncated", "192.0.2.1", maxUDP, plain, "map[NOERROR tc:10 NXDOMAIN aa:10 none:10]"},
		{"or told the cookie", "2001:db8::1", maxUDP, unknown, "map[BADCOOKIE edns=0,1232,false:10 NXDOMAIN aa edns=0,1232,false:10 none:10]"},
		{"TCP is not limited", "192.0.2.1", dns.MaxMessage, plain, "map[NXDOMAIN aa:30]"},
		{"nor is loopback", "127.0.0.1", maxUDP, plain, "map[NXDOMAIN aa:30]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := fmt.Sprint(outcomes(t, limitedServer(), 30, test.query, test.address, test.limit)); got != test.want {
				t.Errorf("%s: %s, want %s", test.name, got, test.want)
			}
		})
	}
}

func TestRateLimitSparesCookies(t *testing.T) {
	s := limitedServer()
	from := asker{address: netip.MustParseAddr("192.0.2.1"), limit: maxUDP, at: time.Now()}
	first := withOption("TXT none.example.com", optionCookie, []byte("abcdefgh"))
	_, cookie := optionOf(t, s.answer(t.Context(), nil, first.Pack(), from), optionCookie)
	known := withOption("TXT none.example.com", optionCookie, cookie)
	if got := outcomes(t, s, 100, known, "192.0.2.1", maxUDP); got["NXDOMAIN aa edns=0,1232,false"] != 100 {
		t.Errorf("with a cookie: %v", got)
	}
}

// A network is a /24 or a /56, and a second brings back what the rate allows.
func TestRateLimitIsByNetworkAndSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRateLimiter(10)
		allowed := func(address string) (n int) {
			for range 30 {
				if l.allow(netip.MustParseAddr(address), time.Now()) {
					n++
				}
			}
			return n
		}
		for _, step := range []struct {
			address string
			pause   time.Duration
			want    int
		}{
			{"192.0.2.1", 0, 10}, {"192.0.2.255", 0, 0}, {"192.0.3.1", 0, 10},
			{"2001:db8:0:ff::1", 0, 10}, {"2001:db8::1", 0, 0}, {"2001:db8:0:100::1", 0, 10},
			{"192.0.2.1", 300 * time.Millisecond, 3}, {"192.0.2.1", time.Hour, 10},
		} {
			<-time.After(step.pause)
			if got := allowed(step.address); got != step.want {
				t.Errorf("%s after %v: %d, want %d", step.address, step.pause, got, step.want)
			}
		}
		if l = newRateLimiter(0); allowed("192.0.2.1") != 30 {
			t.Error("no limit limits")
		}
	})
}
