package builtin_test

import (
	"net/netip"
	"testing"

	"meshddns/internal/builtin"
)

// BenchmarkTransfer transfers a zone of 50 000 names whole.
func BenchmarkTransfer(b *testing.B) {
	w := newWorld(b)
	w.zone("example.com")
	w.fill(50_000)
	p := newPeers(b)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	records := 0
	for b.Loop() {
		records += len(p.transfer(b, server, "example.com"))
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}
