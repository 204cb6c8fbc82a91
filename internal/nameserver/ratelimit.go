package nameserver

import (
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

// limitedNetworks is the number of entries for networks.
const limitedNetworks = 1 << 16

// rateLimiter bounds the answers over UDP to one network, so attackers with forged
// addresses cannot use this server to flood a network.
type rateLimiter struct {
	rate *connlimit.Rate
	over atomic.Uint64
}

func newRateLimiter(rate int) *rateLimiter {
	return &rateLimiter{rate: connlimit.NewRate(rate, limitedNetworks)}
}

// allow counts an answer to a client, or reports false if it is above the limit. A network
// may have the answers of one second in a burst. Loopback addresses are not limited,
// because other hosts cannot forge them.
func (l *rateLimiter) allow(client netip.Addr, at time.Time) bool {
	return l == nil || client.IsLoopback() || l.rate.Allow(connlimit.Network(client, 24, 56), at)
}

// slip counts an answer above the limit, and reports whether the server sends it without
// records instead of dropping it. That is every second one, so a client whose address is
// not forged can ask again over TCP or with a cookie.
func (l *rateLimiter) slip() bool { return l.over.Add(1)%2 == 0 }
