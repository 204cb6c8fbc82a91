package mesh

import (
	"fmt"
	"testing"
)

// mostFormats returns MaxFormats formats.
func mostFormats() []string {
	all := []string{Mesh1, Address, HostPort, IP4P, EasyTierSRV}
	for i := range MaxFormats - len(all) {
		all = append(all, fmt.Sprintf("%s_s%d._tcp", SRV, i))
	}
	return all
}

// mostEndpoints returns the endpoints of a usage with 256 leases.
func mostEndpoints() (all []Endpoint) {
	for slot := range 256 {
		for i := range 9 { // as many fit into a lease's own value
			all = append(all, Endpoint{Text: fmt.Sprintf("tcp://192.%d.%d.%d:1", i, slot, i), Slot: fmt.Sprint(slot)})
		}
	}
	return all
}

// TestWorkAtTheLimits: the records of the most endpoints in the most formats cost a bounded number of allocations each,
// and as many as those of few endpoints.
func TestWorkAtTheLimits(t *testing.T) {
	formats, endpoints := mostFormats(), mostEndpoints()
	each := func(endpoints []Endpoint) float64 {
		return testing.AllocsPerRun(1, func() { FormatSets(formats, parent, endpoints) }) / float64(len(endpoints)*len(formats))
	}
	few, all := each(endpoints[:64]), each(endpoints)
	if all > 8 || all > 2*few {
		t.Errorf("%.1f allocations for an endpoint and format, %.1f where there are few", all, few)
	}
}

func BenchmarkSets(b *testing.B) {
	formats, endpoints := mostFormats(), mostEndpoints()
	b.ReportAllocs()
	for b.Loop() {
		FormatSets(formats, parent, endpoints)
	}
}
