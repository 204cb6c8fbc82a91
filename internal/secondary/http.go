package secondary

import (
	"maps"
	"net/http"
	"slices"
	"sort"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// maxStates bounds the zones of one secondary in an answer.
const maxStates = 1000

// shown is a secondary in an answer.
type shown struct {
	Settings
	States []zoneState `json:"zones_state"`
}

// zoneState is a zone at a secondary.
type zoneState struct {
	Zone       string  `json:"zone"`
	Serial     uint32  `json:"serial"`
	Fetched    *uint32 `json:"fetched_serial"` // null: not known since the start
	Lag        int64   `json:"lag_seconds"`
	NotifiedAt string  `json:"notified_at"`
	Error      string  `json:"error"`
}

// show returns a secondary with the states of its zones, the longest behind first.
func (n *Notifier) show(s Secondary, zones map[string]uint32, language msg.Language) shown {
	answer := shown{Settings: s.settings(), States: []zoneState{}}
	now := time.Now()
	known := n.find(s.ID)
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if !s.takes(zone) {
			continue
		}
		at := state{}
		if known != nil {
			at = known.follower.state(zone)
		}
		z := zoneState{Zone: zone, Serial: zones[zone]}
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
			z.Error = secrets.ScrubLine(msg.TextOf(at.fault).In(language), 200)
		}
		answer.States = append(answer.States, z)
	}
	sort.SliceStable(answer.States, func(i, j int) bool { return answer.States[i].Lag > answer.States[j].Lag })
	answer.States = answer.States[:min(len(answer.States), maxStates)]
	return answer
}

// List answers with all secondaries.
func (n *Notifier) List(r *http.Request) (web.Reply, error) {
	zones, err := n.zones.All(r.Context())
	if err != nil {
		return web.Reply{}, err
	}
	stored, err := n.All(r.Context())
	all := []shown{}
	for _, s := range stored {
		all = append(all, n.show(s, zones, web.Language(r)))
	}
	return web.Reply{Data: all}, err
}

// Show answers with one secondary.
func (n *Notifier) Show(r *http.Request) (web.Reply, error) {
	s, err := n.Secondary(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	zones, err := n.zones.All(r.Context())
	return web.Reply{Data: n.show(s, zones, web.Language(r))}, err
}

// Put creates or replaces a secondary.
func (n *Notifier) Put(r *http.Request) (web.Reply, error) {
	var body Body
	given, err := web.DecodeMembers(r, &body)
	if err != nil {
		return web.Reply{}, err
	}
	body.ID = r.PathValue("id")
	s, err := body.Check()
	if err != nil {
		return web.Reply{}, err
	}
	saved, err := n.Save(r.Context(), s)
	warnings := answers.WarnMembers(given, members)
	if saved.KeyName == "" {
		warnings = append(warnings, answers.Warning{ID: msg.SecondaryUnsigned})
	}
	return web.Reply{Message: msg.SecondarySaved, Data: struct {
		Settings
		Warnings []string `json:"warnings,omitempty"`
	}{saved.settings(), answers.WarningTexts(warnings, web.Language(r))}}, err
}

// Remove deletes a secondary.
func (n *Notifier) Remove(r *http.Request) (web.Reply, error) {
	return web.Reply{Message: msg.SecondaryDeleted}, n.Delete(r.Context(), r.PathValue("id"))
}
