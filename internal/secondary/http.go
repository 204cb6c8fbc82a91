package secondary

import (
	"context"
	"maps"
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

// show returns a secondary with the states of its zones, the longest behind first.
func (n *Notifier) show(s Secondary, zones map[string]uint32, language msg.Language) shown {
	answer := shown{Secondary: s, States: []mesh.SecondaryZone{}}
	now := time.Now()
	known := n.Find(s.ID)
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if !s.takes(zone) {
			continue
		}
		at := state{}
		if known != nil {
			at = known.follower.state(zone)
		}
		z := mesh.SecondaryZone{Zone: zone, Serial: zones[zone]}
		if at.known {
			z.Fetched = &at.fetched
		}
		if at.behind() && !at.moved.IsZero() {
			z.Lag = int64(now.Sub(at.moved) / time.Second)
		}
		if !at.notified.IsZero() {
			z.NotifiedAt = sqlite.Shown(at.notified)
		}
		if at.fault != nil {
			z.Error = secrets.ScrubLine(msg.TextOf(at.fault).In(language), secrets.MaxPart)
		}
		answer.States = append(answer.States, z)
	}
	sort.SliceStable(answer.States, func(i, j int) bool { return answer.States[i].Lag > answer.States[j].Lag })
	answer.States = answer.States[:min(len(answer.States), maxStates)]
	return answer
}

// States calls tell for each zone of each secondary, the longest behind first.
func (n *Notifier) States(ctx context.Context, language msg.Language, tell func(id, address string, z mesh.SecondaryZone)) error {
	known := n.Known()
	if len(known) == 0 {
		return nil
	}
	zones, err := n.zones.All(ctx)
	for _, s := range known {
		for _, z := range n.show(s, zones, language).States {
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

// List answers with all secondaries.
func (n *Notifier) List(r *http.Request) (web.Reply, error) {
	form, err := n.form(r)
	if err != nil {
		return web.Reply{}, err
	}
	return n.Table.List(r, form)
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
		return shown{Secondary: s, Warnings: warnings}
	})
}
