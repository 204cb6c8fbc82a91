package nameserver

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
)

// longZone is a zone with so many messages of records, which any peer may transfer.
type longZone int

func (longZone) Key(dns.Name) (key dns.Key, ok bool) { return }

func (longZone) May(netip.Addr, dns.Name, dns.Name) bool { return true }

func (longZone) Names(netip.Addr, dns.Name, dns.Name, uint32) bool { return false }

func (longZone) Fetched(netip.Addr, dns.Name, dns.Name, uint32) {}

func (z longZone) Version(_ context.Context, apex dns.Name, read func(Version) error) error {
	rr := dns.RR{Name: apex, Type: dns.TypeTXT, Class: dns.ClassIN, Data: make([]byte, maxRecord-100)}
	return read(Version{Serial: 7, Records: func(yield func(dns.RR, error) bool) {
		for range int(z) * messageRoom / (maxRecord - 100) {
			if !yield(rr, nil) {
				return
			}
		}
	}})
}

// TestTimeOfTransfers: a transfer to a peer that reads a message each 9.9 s is complete after 119 s, and ends after 120 s if the
// peer has not read all.
func TestTimeOfTransfers(t *testing.T) {
	for messages, whole := range map[int]bool{12: true, 13: false} {
		synctest.Test(t, func(t *testing.T) {
			zone := longZone(messages)
			s := &Server{backend: testZones(), peers: zone, versions: zone, transfers: newTransfers(), log: slog.New(slog.DiscardHandler), limiter: newLimiter(16)}
			client, server := net.Pipe()
			defer client.Close()
			ended := make(chan time.Duration, 1)
			begun := time.Now()
			go func() {
				s.serveConn(t.Context(), s.limiter.Admit(server))
				ended <- time.Since(begun)
			}()
			query := question("AXFR example.com")
			send(t, client, query.Pack())
			read := 0
			for range messages {
				<-time.After(9900 * time.Millisecond)
				if _, err := receive(client); err == nil {
					read++
				}
			}
			if whole {
				client.Close()
			}
			took := <-ended
			sent, failed := s.transfers.sent[0].Load(), s.transfers.failed[0].Load()
			if (sent == 1 && read == messages) != whole || (failed == 1 && took == 2*time.Minute) == whole {
				t.Errorf("%d of %d messages after %v, sent %d, failed %d", read, messages, took, sent, failed)
			}
		})
	}
}
