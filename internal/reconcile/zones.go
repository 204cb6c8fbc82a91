package reconcile

import (
	"cmp"
	"log/slog"
	"slices"
	"time"
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
// is down for longest counts.
func (e *Engine) DownZones() []ZoneState {
	down := e.news.down()
	slices.SortFunc(down, func(a, b ZoneState) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Zone, b.Zone), a.Since.Compare(b.Since), cmp.Compare(a.Fault.Code, b.Fault.Code))
	})
	down = slices.CompactFunc(down, func(a, b ZoneState) bool { return a.Provider == b.Provider && a.Zone == b.Zone })
	return down[:min(len(down), downZones)]
}

// down gives the zones that are down. Each has the code that makes its faults one.
func (n *news) down() (all []ZoneState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, z := range n.zones {
		if s := z.state; s.Fault.Code != "" {
			s.Fault.Code = reason(s.Fault)
			all = append(all, s)
		}
	}
	return all
}

// zoneDown tells that a zone cannot be worked on since its first failure, and how many names wait for it.
func (n *news) zoneDown(r Record, since time.Time, f Fault, names int) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	z, _ := n.meet(r, since, f)
	if z.told == reason(f) {
		return
	}
	z.told = reason(f)
	n.tell(slog.LevelWarn, "zone is down", "zone", r.Domain, "provider", r.Account.Provider, "code", f.Code, "detail", f.Detail, "names", names, "key", f.Key)
}

// zoneAbsent notes that the provider answers and has no such zone. Each name tells that itself.
func (n *news) zoneAbsent(r Record, f Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meet(r, n.now(), f)
}

// zoneWell notes that a zone answers, and tells so if it was told that it is down.
func (n *news) zoneWell(r Record) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	z, before := n.meet(r, now, Fault{})
	if z.told != "" {
		n.tell(slog.LevelInfo, "zone is well again", "zone", r.Domain, "provider", r.Account.Provider, "code", z.told, "after", now.Sub(before.Since).Round(time.Second))
	}
	z.told = ""
}

// meet notes how a zone was met, and gives how it was met before. The caller holds the lock.
func (n *news) meet(r Record, since time.Time, f Fault) (z *zoneNews, before ZoneState) {
	if z = n.zones[r.lane()]; z == nil {
		z = &zoneNews{}
		if f.Code != "" || len(n.zones) < metZones {
			n.zones[r.lane()] = z
		}
	}
	if before = z.state; since.IsZero() {
		since = n.now()
	}
	if before.Since.IsZero() || (before.Fault.Code == "") != (f.Code == "") {
		z.state.Since = since
	}
	z.state.Provider, z.state.Zone, z.state.Fault, z.pass = r.Account.Provider, r.Domain, f, n.pass
	return z, before
}
