package nameserver

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"meshddns/internal/connlimit"
)

// DefaultRateLimit is more than a resolver needs: by the TTLs here, a resolver with a cache
// asks for each name once a minute.
const DefaultRateLimit = 1000

// MaxRateLimit is the highest limit.
const MaxRateLimit = 1_000_000

// limitedNetworks bounds the memory. More networks share entries; the seed of the hash,
// which clients do not know, says which.
const limitedNetworks = 1 << 16

// rateLimiter bounds the answers over UDP to one network, so that this server is of
// no use for flooding others in whose name queries are forged. Each entry is the
// time at which all that was answered would be due at the rate allowed.
type rateLimiter struct {
	interval time.Duration // between two answers at that rate; 0 without a limit
	seed     maphash.Seed
	begun    time.Time
	due      [limitedNetworks]atomic.Int64 // since begun
	over     atomic.Uint64
}

func newRateLimiter(rate int) *rateLimiter {
	l := &rateLimiter{seed: maphash.MakeSeed(), begun: time.Now()}
	if rate > 0 {
		l.interval = time.Second / time.Duration(rate)
	}
	return l
}

// allow counts an answer to a client, or says that it is one too many: more than
// come at the rate and those that were left unused in the last second. A
// loopback address cannot be forged from elsewhere, and is not limited.
func (l *rateLimiter) allow(client netip.Addr, at time.Time) bool {
	if l == nil || l.interval == 0 || client.IsLoopback() {
		return true
	}
	network := connlimit.Network(client, 24, 56)
	due := &l.due[maphash.Comparable(l.seed, network)%limitedNetworks]
	now := int64(at.Sub(l.begun))
	for {
		old := due.Load()
		if old-now > int64(time.Second-l.interval) {
			return false
		}
		if due.CompareAndSwap(old, max(old, now)+int64(l.interval)) {
			return true
		}
	}
}

// slip reports whether the server sends this answer above the limit all the same, without
// records. It does for every second one, so that a client whose address is not forged can
// ask again over TCP or with a cookie.
func (l *rateLimiter) slip() bool { return l.over.Add(1)%2 == 0 }
