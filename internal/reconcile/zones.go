package reconcile

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"meshddns/internal/provider"
)

// ZoneState is how the engine has met a zone of an account last.
type ZoneState struct {
	Provider, Zone string
	Since          time.Time // it is so
	Fault          Fault     // why it is down; without a code it is well
}

// zoneNews is what is known of a zone.
type zoneNews struct {
	state ZoneState
	told  string // the reason for which it was told that the zone is down, "" when it was not
	pass  int64  // that saw it last
}

const (
	// metZones bounds the zones that are remembered although they are well, with some 300 octets each.
	metZones = 10_000
	// downZones bounds the zones that are listed as down.
	downZones = 1000
)

// Zone tells how the zone of a domain was met with an account. It is not known before the first answer,
// nor when two passes had nothing to do there.
func (e *Engine) Zone(account int64, domain string) (state ZoneState, known bool) {
	n := e.news
	n.mu.Lock()
	defer n.mu.Unlock()
	if z := n.zones[ZoneLane(account, domain)]; z != nil {
		return z.state, true
	}
	return ZoneState{}, false
}

// DownZones gives zones that are down, 1000 at most, by provider and name. Of several accounts the one whose zone
// is down for longest counts. Each has the code that makes its faults one.
func (e *Engine) DownZones() (down []ZoneState) {
	n := e.news
	n.mu.Lock()
	for _, z := range n.zones {
		if s := z.state; s.Fault.Code != "" {
			s.Fault.Code = reason(s.Fault)
			down = append(down, s)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(down, func(a, b ZoneState) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Zone, b.Zone), a.Since.Compare(b.Since), cmp.Compare(a.Fault.Code, b.Fault.Code))
	})
	down = slices.CompactFunc(down, func(a, b ZoneState) bool { return a.Provider == b.Provider && a.Zone == b.Zone })
	return down[:min(len(down), downZones)]
}

// zone tells that the zone of a record cannot be worked on since a time, and how many names wait for it,
// or, without a fault, that it answers. That the provider has no such zone is told of each name.
func (n *news) zone(r Record, since time.Time, f Fault, names int) {
	defer n.lock()()
	z := n.zones[r.lane()]
	if z == nil {
		z = &zoneNews{}
		if f.Code != "" || len(n.zones) < metZones {
			n.zones[r.lane()] = z
		}
	}
	before := z.state
	if before.Since.IsZero() || (before.Fault.Code == "") != (f.Code == "") {
		z.state.Since = since
	}
	z.state.Provider, z.state.Zone, z.state.Fault, z.pass = r.Account.Provider, r.Domain, f, n.pass
	about := []any{"zone", r.Domain, "provider", r.Account.Provider}
	switch {
	case f.Code == string(provider.ZoneNotFound):
		return
	case reason(f) == z.told:
	case f.Code == "":
		n.journal.add(slog.LevelInfo, "zone is well again", append(about, "code", z.told, "after", since.Sub(before.Since).Round(time.Second))...)
	default:
		n.journal.add(slog.LevelWarn, "zone is down", append(about, "code", f.Code, "detail", f.Detail, "names", names, "key", f.Key)...)
	}
	z.told = reason(f)
}
