package web

import (
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"meshddns/internal/connlimit"
)

const (
	maxWrong    = 10 // wrong tokens from one network in a window
	window      = time.Minute
	maxNetworks = 4096 // in the table; about a megabyte
)

// Attempts counts the wrong tokens of a listener that checks tokens of its own, and logs them.
type Attempts struct {
	wrong *wrongTokens
	log   *RefusalLines
}

// NewAttempts returns an empty count.
func NewAttempts(log *RefusalLines) *Attempts { return &Attempts{newWrongTokens(nil), log} }

// Wrong counts a request with a wrong token. If its network has had too many, Wrong returns the time
// until it counts the next one.
func (a *Attempts) Wrong(r *http.Request) (wait time.Duration) {
	refusal := Denial{Status: http.StatusUnauthorized, Code: "unauthorized"}
	if wait = a.wrong.wrongToken(network(r.RemoteAddr)); wait > 0 {
		refusal = Denial{Status: http.StatusTooManyRequests, Code: "too_many_attempts"}
	}
	a.log.Refused(r, refusal)
	return wait
}

// wrongTokens counts the wrong tokens of each network.
type wrongTokens struct {
	now   func() time.Time
	mu    sync.Mutex
	wrong map[netip.Prefix][]time.Time // oldest first, never empty, maxWrong at most
}

func newWrongTokens(now func() time.Time) *wrongTokens {
	if now == nil {
		now = time.Now
	}
	return &wrongTokens{now: now, wrong: map[netip.Prefix][]time.Time{}}
}

// wrongToken counts a wrong token, or returns the time until it counts the network's next one.
// Wrong tokens during the wait do not count, because the wait would never end. Check and count are
// one step under the lock, so concurrent guesses cannot pass together.
func (l *wrongTokens) wrongToken(from netip.Prefix) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	recent := l.wrong[from]
	for len(recent) > 0 && expired(recent[0], now) {
		recent = recent[1:]
	}
	if len(recent) >= maxWrong {
		return recent[0].Add(window).Sub(now)
	}
	l.makeRoom(from, now)
	l.wrong[from] = append(recent, now)
	return 0
}

// makeRoom bounds the table, because a client may have many addresses. It deletes expired networks, and if that is not
// enough the network whose last wrong token is oldest.
func (l *wrongTokens) makeRoom(from netip.Prefix, now time.Time) {
	if _, known := l.wrong[from]; known || len(l.wrong) < maxNetworks {
		return
	}
	maps.DeleteFunc(l.wrong, func(_ netip.Prefix, times []time.Time) bool { return expired(last(times), now) })
	if len(l.wrong) < maxNetworks {
		return
	}
	var oldest netip.Prefix
	at := now
	for network, times := range l.wrong {
		if !last(times).After(at) {
			oldest, at = network, last(times)
		}
	}
	delete(l.wrong, oldest)
}

func expired(t, now time.Time) bool { return now.Sub(t) >= window }

func last(times []time.Time) time.Time { return times[len(times)-1] }

// network returns the part of a remote address that one client cannot vary: an IPv4 address, or the /64 of an IPv6 address.
// A text that is no address gives the zero Prefix; all such clients share one count.
func network(remoteAddr string) netip.Prefix {
	remote, _ := netip.ParseAddrPort(remoteAddr)
	return connlimit.Network(remote.Addr().Unmap(), 32, 64)
}
