package nameserver

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"meshddns/internal/connlimit"
)

// DefaultRateLimit is the default of Config.RateLimit. A resolver with a cache needs less,
// because with the TTLs here it asks for each name once a minute.
const DefaultRateLimit = 1000

// MaxRateLimit is the largest Config.RateLimit.
const MaxRateLimit = 1_000_000

// limitedNetworks is the number of entries, which bounds the memory. More networks share
// entries, chosen by a hash whose seed clients do not know.
const limitedNetworks = 1 << 16

// rateLimiter bounds the answers over UDP to one network, so attackers with forged
// addresses cannot use this server to flood a network. Each entry is the time at which the
// next answer would be due if all answers so far had been sent at the allowed rate.
type rateLimiter struct {
	interval time.Duration // between two answers at the allowed rate; 0: no limit
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

// allow counts an answer to a client, or reports false if it is above the limit. A network
// may have the answers of one second in a burst. Loopback addresses are not limited,
// because other hosts cannot forge them.
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

// slip counts an answer above the limit, and reports whether the server sends it without
// records instead of dropping it. That is every second one, so a client whose address is
// not forged can ask again over TCP or with a cookie.
func (l *rateLimiter) slip() bool { return l.over.Add(1)%2 == 0 }
