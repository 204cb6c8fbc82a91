package nameserver

import (
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestTransferAtTheEnd: a transfer sends no further message after the end of the term, and none begins.
func TestTransferAtTheEnd(t *testing.T) {
	for _, before := range []int{0, 1, 3, 8} { // messages
		synctest.Test(t, func(t *testing.T) {
			zone := longZone(8)
			var over atomic.Bool
			s := &Server{backend: testZones(), peers: zone, versions: zone, transfers: newTransfers(), over: over.Load, log: slog.New(slog.DiscardHandler), limiter: newLimiter(16)}
			client, server := net.Pipe()
			defer client.Close()
			ended := make(chan bool, 1)
			go func() {
				s.serveConn(t.Context(), s.limiter.Admit(server))
				ended <- true
			}()
			over.Store(before == 0)
			query := question("AXFR example.com")
			send(t, client, query.Pack())
			read := 0
			for {
				synctest.Wait() // the next message is under way: the pipe has no buffer
				if read+1 >= before {
					over.Store(true)
				}
				if _, err := receive(client); err != nil {
					break
				}
				read++
			}
			if client.Close(); read != before {
				t.Errorf("%d messages, want %d", read, before)
			}
			<-ended
			if sent := s.transfers.sent[0].Load(); (sent == 1) != (before == 8) {
				t.Errorf("with %d messages: %d transfers are counted as sent", before, sent)
			}
		})
	}
}
