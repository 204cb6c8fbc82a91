// The endpoints of a name as a list over HTTP.

package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

const (
	// Lists need no token, so they have places of their own: they use at most maxLookups of the
	// database's reading connections, and a client may have listRate a second.
	maxLookups  = 2
	lookupTime  = time.Second // that a request waits for a place
	listRate    = 100
	listClients = 4096 // entries for clients
)

// listAge says for how long a client may use a list without asking again: as long as a record.
const listAge = "max-age=60"

// ListedFunc returns the endpoints of a name in any form. found is false for an unknown name and for one
// without the format "urls".
type ListedFunc func(ctx context.Context, name string) (endpoints []string, found bool, err error)

// list answers "GET /d/{name}", where name is a full record name in any letter case: with one endpoint a
// line, or with ?one=1 by a redirect to one of them. EasyTier reads both.
func (s *Nodes) list(w http.ResponseWriter, r *http.Request) {
	endpoints, one, err := s.listed(r)
	switch {
	case err != nil:
		s.adapter.Refuse(w, r, err)
	case one:
		w.Header().Set("Location", draw(endpoints, clientOf(r)))
		w.Header().Set("Cache-Control", "no-store") // the next draw may be another one
		w.WriteHeader(http.StatusFound)
	default:
		writeList(w, r, endpoints)
	}
}

// listed returns the endpoints of the name in a path, and whether the client wants one of them.
func (s *Nodes) listed(r *http.Request) (endpoints []string, one bool, err error) {
	flags, err := web.Flags(r, "one")
	if err != nil {
		return nil, false, err
	}
	if err := s.beginLookup(r); err != nil {
		return nil, false, err
	}
	defer func() { <-s.lookups }()
	name := r.PathValue("name")
	endpoints, found, err := s.Listed(r.Context(), name)
	if err == nil && (!found || flags["one"] && len(endpoints) == 0) {
		err = web.Fail(msg.UnknownName, name[:min(len(name), 255)])
	}
	return endpoints, flags["one"], err
}

// beginLookup takes a place for a lookup.
func (s *Nodes) beginLookup(r *http.Request) error {
	if !s.listRate.Allow(connlimit.Network(clientOf(r), 32, 64), time.Now()) {
		failure := web.Fail(msg.TooManyRequests, listRate)
		failure.RetryAfter = time.Second
		return failure
	}
	select {
	case s.lookups <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel, err := web.Wait(r, lookupTime)
	defer cancel()
	if err != nil {
		return err
	}
	select {
	case s.lookups <- struct{}{}:
		return nil
	case <-ctx.Done():
		return web.TooManyWaiting()
	}
}

// writeList writes one endpoint a line, or status 304 to a client that has the same list.
func writeList(w http.ResponseWriter, r *http.Request, endpoints []string) {
	var body []byte
	for _, endpoint := range endpoints {
		body = append(append(body, endpoint...), '\n')
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("Cache-Control", listAge)
	w.Header().Set("ETag", tag)
	if matches(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// matches reports whether a tag is among those of If-None-Match (RFC 9110, section 13.1.2).
func matches(fields []string, tag string) bool {
	for _, field := range fields {
		for given := range strings.SplitSeq(field, ",") {
			given = strings.TrimSpace(given)
			if given == "*" || strings.TrimPrefix(given, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// draw returns one of the endpoints at random: one with an address of the caller's family, else one with
// a host name, else any.
func draw(endpoints []string, caller netip.Addr) string {
	var best []string
	rank := 0
	for _, endpoint := range endpoints {
		switch fits := fitness(endpoint, caller); {
		case len(best) == 0 || fits > rank:
			best, rank = []string{endpoint}, fits
		case fits == rank:
			best = append(best, endpoint)
		}
	}
	return best[rand.IntN(len(best))]
}

// fitness says how well a caller gets to an endpoint: 2 for an address of the caller's family, 1 for a
// host name, which may have addresses of both, and 0 for an address of the other family.
func fitness(endpoint string, caller netip.Addr) int {
	u, err := url.Parse(endpoint)
	if err != nil {
		return 0
	}
	addr, err := netip.ParseAddr(u.Hostname())
	switch {
	case err != nil:
		return 1
	case caller.IsValid() && addr.Unmap().Is4() == caller.Unmap().Is4():
		return 2
	}
	return 0
}
