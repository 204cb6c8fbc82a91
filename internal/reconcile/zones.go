package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// ZoneState is the state of a zone of an account at its last use.
type ZoneState struct {
	Provider, Zone string    // Zone is the domain of services
	Apex           string    // of the provider's zone, "" if it was not found yet
	Since          time.Time // start of this state
	Fault          Fault     // why the zone is down; without a code it is well
	Warning        Fault     // why a zone that is well may not reach resolvers
}

// zoneNews is the state of a zone, and the part of it that was logged.
type zoneNews struct {
	state ZoneState
	told  string // the reason in the log line that the zone is down, "" if there was none
	noted bool   // the database has the zone as down
	pass  int64  // the last pass that has met the zone
}

const (
	// metZones bounds the remembered zones that are well. Each takes some 300 octets.
	metZones = 10_000
	// downZones bounds the zones that are listed as down.
	downZones = 1000
)

// Zone returns the state of the zone of a domain at an account. It is not known before the
// first answer, nor after two passes without work in the zone.
func (e *Engine) Zone(account int64, domain string) (state ZoneState, known bool) {
	n := e.news
	n.mu.Lock()
	defer n.mu.Unlock()
	if z := n.zones[ZoneLane(account, domain)]; z != nil && !z.state.Since.IsZero() {
		return z.state, true
	}
	return ZoneState{}, false
}

// DownZones returns at most 1000 zones that are down, sorted by provider and name. If
// several accounts have a zone of one name, it returns the one that is down for longest.
func (e *Engine) DownZones() (down []ZoneState) {
	n := e.news
	n.mu.Lock()
	for _, z := range n.zones {
		if z.state.Fault.Code != "" {
			down = append(down, z.state)
		}
	}
	n.mu.Unlock()
	slices.SortStableFunc(down, func(a, b ZoneState) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Zone, b.Zone), a.Since.Compare(b.Since), cmp.Compare(reason(a.Fault), reason(b.Fault)))
	})
	down = slices.CompactFunc(down, func(a, b ZoneState) bool { return a.Provider == b.Provider && a.Zone == b.Zone })
	return down[:min(len(down), downZones)]
}

// zone updates the state of a record's zone and logs a change. With a fault the zone has
// been down since the given time, and names wait for it; without one, the zone answers. If
// the provider has no such zone, the names log that.
func (n *news) zone(r Record, now ZoneState, names int) {
	f := now.Fault
	n.mu.Lock()
	defer n.mu.Unlock()
	z := n.zones[r.lane()]
	if z == nil {
		z = &zoneNews{}
		if f.Code != "" || len(n.zones) < metZones {
			n.zones[r.lane()] = z
		}
	}
	before := z.state
	if before.Since.IsZero() || (before.Fault.Code == "") != (f.Code == "") {
		z.state.Since = now.Since
	}
	z.state.Provider, z.state.Zone, z.state.Fault, z.pass = r.Account.Provider, r.Domain, f, n.pass
	z.state.Apex, z.state.Warning = cmp.Or(r.Place.Zone, z.state.Apex), now.Warning
	about := []any{"zone", r.Domain, "provider", r.Account.Provider}
	switch {
	case f.Code == string(provider.ZoneNotFound):
		return
	case reason(f) == z.told:
	case f.Code == "":
		n.log.Info("zone is well again", append(about, "code", z.told, "after", now.Since.Sub(before.Since).Round(time.Second))...)
	default:
		n.log.Warn("zone is down", append(about, "code", f.Code, "detail", f.Detail, "names", names, "key", f.Key)...)
	}
	z.told = reason(f)
}

// down reports whether the zone does not answer. A zone that the provider does not have is no such
// zone.
func (z ZoneState) down() bool {
	return z.Fault.Code != "" && z.Fault.Code != string(provider.ZoneNotFound)
}

// zonesNoted takes over the zones that the database has as down.
func (n *news) zonesNoted(lanes []Lane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, lane := range lanes {
		n.zones[lane] = &zoneNews{noted: true, pass: n.pass}
	}
}

// forgetZones forgets the zones that this pass and the one before have not met, except that the
// database has them as down. The caller holds the lock.
func (n *news) forgetZones() {
	maps.DeleteFunc(n.zones, func(_ Lane, z *zoneNews) bool {
		if z.pass >= n.pass-1 {
			return false
		}
		*z = zoneNews{noted: z.noted, pass: z.pass}
		return !z.noted
	})
}

// unnoted returns the state of a zone if the database has another one. It then counts as noted.
func (n *news) unnoted(lane Lane) (state ZoneState, news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	z := n.zones[lane]
	if z == nil || z.state.Since.IsZero() || z.noted == z.state.down() {
		return ZoneState{}, false
	}
	state = z.state
	if z.noted = state.down(); !z.noted {
		state.Fault = Fault{}
	}
	return state, true
}

// noteZone stores the state of a record's zone if it is news. After a fault of the database the next
// batch of the zone tries again.
func (e *Engine) noteZone(ctx context.Context, r Record) {
	state, isNews := e.news.unnoted(r.lane())
	if !isNews {
		return
	}
	if err := e.config.Database.NoteZone(context.WithoutCancel(ctx), r.Account.ID, state); err != nil {
		e.news.mu.Lock()
		defer e.news.mu.Unlock()
		if z := e.news.zones[r.lane()]; z != nil {
			z.noted = !state.down()
		}
	}
}

// WritesLeft returns the writes that nodes and checks may still cause at once, the least of the accounts of each provider
// at which they have caused any.
func (e *Engine) WritesLeft() map[string]uint64 { return e.budget.left(e.config.Now()) }

// WriteMetrics writes the zones that are down.
func (e *Engine) WriteMetrics(page *daemon.Page) {
	page.Family("meshddns_zone_down_since_timestamp_seconds", "gauge", "First failure of each zone that is down.")
	for _, z := range e.DownZones() {
		page.Time(z.Since, daemon.Label{Name: "provider", Value: z.Provider}, daemon.Label{Name: "zone", Value: msg.Printable(z.Zone)},
			daemon.Label{Name: "code", Value: reason(z.Fault)})
	}
	e.budget.writeMetrics(page, e.config.Now())
}
