package secondary

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sort"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/resource"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// maxStates bounds the zones of one secondary in an answer.
const maxStates = 1000

// shown is a secondary in an answer.
type shown struct {
	Secondary
	States   []mesh.SecondaryZone `json:"zones_state,omitzero"`
	Warnings []string             `json:"warnings,omitempty"`
}

// show returns a secondary with the states of its zones.
func (n *Notifier) show(s Secondary, zones map[string]uint32, language msg.Language) shown {
	return shown{Secondary: s, States: n.states(s, zones, maxStates, language)}
}

// states returns the states of at most limit zones of a secondary, the longest behind first.
func (n *Notifier) states(s Secondary, zones map[string]uint32, limit int, language msg.Language) []mesh.SecondaryZone {
	type stated struct {
		state
		zone string
		lag  int64
	}
	var all []stated
	now := time.Now()
	known := n.Find(s.ID)
	for zone := range zones {
		if !s.takes(zone) {
			continue
		}
		at := stated{zone: zone}
		if known != nil {
			at.state = known.follower.state(zone)
		}
		if at.behind() && !at.moved.IsZero() {
			at.lag = int64(now.Sub(at.moved) / time.Second)
		}
		all = append(all, at)
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(cmp.Compare(all[j].lag, all[i].lag), cmp.Compare(all[i].zone, all[j].zone)) < 0
	})
	states := []mesh.SecondaryZone{}
	for _, at := range all[:min(len(all), limit)] {
		z := mesh.SecondaryZone{Zone: at.zone, Serial: zones[at.zone], Lag: at.lag}
		if at.known {
			z.Fetched = &at.fetched
		}
		if !at.notified.IsZero() {
			z.NotifiedAt = sqlite.Shown(at.notified)
		}
		if at.fault != nil {
			z.Error = secrets.ScrubLine(msg.TextOf(at.fault).In(language), secrets.MaxPart)
		}
		states = append(states, z)
	}
	return states
}

// States calls tell for each secondary and at most limit of its zones, the longest behind first.
func (n *Notifier) States(ctx context.Context, limit int, language msg.Language, tell func(id, address string, z mesh.SecondaryZone)) error {
	known := n.Known()
	if len(known) == 0 {
		return nil
	}
	zones, err := n.zones.All(ctx)
	for _, s := range known {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, z := range n.states(s, zones, limit, language) {
			tell(s.ID, s.Address, z)
		}
	}
	return err
}

// form returns the form of answers that have the states of zones.
func (n *Notifier) form(r *http.Request) (resource.Form[Secondary], error) {
	zones, err := n.zones.All(r.Context())
	return func(s Secondary, _ []string, language msg.Language) any { return n.show(s, zones, language) }, err
}

// List reads the secondaries for an answer.
func (n *Notifier) List(r *http.Request) (web.PartReader[string], error) {
	form, err := n.form(r)
	return n.Table.List(r, form), err
}

// Show answers with one secondary.
func (n *Notifier) Show(r *http.Request) (web.Reply, error) {
	form, err := n.form(r)
	if err != nil {
		return web.Reply{}, err
	}
	return n.Table.Show(r, form)
}

// Put creates or replaces a secondary.
func (n *Notifier) Put(r *http.Request) (web.Reply, error) {
	return n.Table.Put(r, func(s Secondary, warnings []string, language msg.Language) any {
		if s.KeyName == "" {
			warnings = append(warnings, msg.SecondaryUnsigned.In(language))
		}
		if slices.Contains(s.From, "0.0.0.0/0") || slices.Contains(s.From, "::/0") {
			warnings = append(warnings, msg.SecondaryAnywhere.In(language))
		}
		return shown{Secondary: s, Warnings: warnings}
	})
}
