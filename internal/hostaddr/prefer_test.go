package hostaddr

import (
	"net/netip"
	"testing"
)

// TestLongest: half of the longest lifetime is enough for the lower address, and less is not.
func TestLongest(t *testing.T) {
	low, high := netip.MustParseAddr("2620:4f:8000::1"), netip.MustParseAddr("2620:4f:8000::2")
	for _, test := range []struct {
		low, high uint32
		want      netip.Addr
	}{
		{0, 0, low}, {500, 1000, low}, {499, 1000, high}, {1, 1 << 31, high}, {1<<32 - 1, 7200, low}, {7200, 1<<32 - 1, high},
	} {
		if got := longest([]netip.Addr{low, high}, map[netip.Addr]uint32{low: test.low, high: test.high}); got != test.want {
			t.Errorf("%d and %d: %s", test.low, test.high, got)
		}
	}
	if got := longest([]netip.Addr{low, high}, nil); got != low {
		t.Errorf("unknown lifetimes: %s", got)
	}
}
