package nameserver

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

func page(s *Server) string {
	var out strings.Builder
	s.WriteMetrics(daemon.NewPage(&out))
	return out.String()
}

func TestMetrics(t *testing.T) {
	s := startWith(t, Config{Addresses: []string{"127.0.0.1:0"}, RateLimit: 10}, testZones())
	conn := dial(t, "udp", s.Addr())
	send(t, conn, []byte("no query"))
	for _, asked := range []string{"TXT none.example.com", "TXT big.example.com", "TXT example.net"} {
		query := question(asked)
		send(t, conn, query.Pack())
		if _, err := receive(conn); err != nil {
			t.Fatal(err)
		}
	}
	stream := dial(t, "tcp", s.Addr())
	if err := askOn(stream); err != nil {
		t.Fatal(err)
	}
	idle(t, s, "127.0.0.2", s.limiter.PerClient+1)
	s.rates.over.Add(3)
	wants := []string{
		`meshddns_dns_answers_total{rcode="NXDOMAIN"} 1`,
		`meshddns_dns_answers_total{rcode="REFUSED"} 1`,
		`meshddns_dns_answer_seconds_bucket{transport="udp",le="+Inf"} 3`,
		`meshddns_dns_answer_seconds_count{transport="tcp"} 66`,
		`meshddns_dns_truncated_total{transport="udp"} 1`,
		`meshddns_dns_truncated_total{transport="tcp"} 0`,
		`meshddns_dns_dropped_total{transport="udp"} 1`,
		`meshddns_dns_overflow_total 0`,
		`meshddns_dns_rate_limited_total 3`,
		`meshddns_dns_connections 65`,
		`meshddns_dns_connections_crowded_out_total 1`,
	}
	// An answer is counted after it was sent.
	for ends := time.Now().Add(patience); ; {
		var missing []string
		got := page(s)
		for _, want := range wants {
			if !strings.Contains(got, want+"\n") {
				missing = append(missing, want)
			}
		}
		if len(missing) == 0 {
			break
		}
		if time.Now().After(ends) {
			t.Fatalf("not there: %s\nin\n%s", strings.Join(missing, "\n"), got)
		}
	}
	if got := page(s); !regexp.MustCompile(`answer_seconds_sum\{transport="udp"\} [0-9]`).MatchString(got) || strings.Contains(got, `sum{transport="udp"} 0`+"\n") {
		t.Errorf("no time was spent:\n%s", got)
	}
}

// What comes while nobody reads is kept as far as the buffer goes, and the rest
// is counted.
func TestOverflowIsCounted(t *testing.T) {
	s, err := Listen(Config{Addresses: []string{"127.0.0.1:0"}}, testZones(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(s.ends)
	raw, err := s.ends[0].udp[0].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if dropped(raw) != 0 {
		t.Error("a new socket has dropped messages")
	}
	conn := dial(t, "udp", s.Addr())
	query := make([]byte, dns.MaxMessage/2)
	for range 1000 { // 32 MB
		send(t, conn, query)
	}
	if s.overflow() == 0 {
		t.Error("a buffer of 2 MB held 32 MB")
	}
}
