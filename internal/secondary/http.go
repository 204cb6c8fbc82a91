package secondary

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/envelope"
	"meshddns/internal/msg"
	"meshddns/internal/order"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
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
	order.By(answer.States, func(a, b zoneState) int { return int(b.Lag - a.Lag) })
	answer.States = answer.States[:min(len(answer.States), maxStates)]
	return answer
}

// List answers with all secondaries.
func (n *Notifier) List(r *http.Request) (envelope.Reply, error) {
	zones, err := n.zones.All(r.Context())
	if err != nil {
		return envelope.Reply{}, err
	}
	stored, err := n.All(r.Context())
	all := []shown{}
	for _, s := range stored {
		all = append(all, n.show(s, zones, envelope.Language(r)))
	}
	return envelope.Reply{Data: all}, err
}

// Show answers with one secondary.
func (n *Notifier) Show(r *http.Request) (envelope.Reply, error) {
	s, err := n.Secondary(r.Context(), r.PathValue("id"))
	if err != nil {
		return envelope.Reply{}, err
	}
	zones, err := n.zones.All(r.Context())
	return envelope.Reply{Data: n.show(s, zones, envelope.Language(r))}, err
}

// Put creates or replaces a secondary.
func (n *Notifier) Put(r *http.Request) (envelope.Reply, error) {
	var body Body
	given, err := envelope.DecodeMembers(r, &body)
	if err != nil {
		return envelope.Reply{}, err
	}
	body.ID = r.PathValue("id")
	s, err := body.Check()
	if err != nil {
		return envelope.Reply{}, err
	}
	saved, err := n.Save(r.Context(), s)
	warnings := answers.WarnMembers(given, members)
	if saved.KeyName == "" {
		warnings = append(warnings, answers.Warning{ID: msg.SecondaryUnsigned})
	}
	return envelope.Reply{Message: msg.SecondarySaved, Data: struct {
		Settings
		Warnings []string `json:"warnings,omitempty"`
	}{saved.settings(), answers.WarningTexts(warnings, envelope.Language(r))}}, err
}

// Remove deletes a secondary.
func (n *Notifier) Remove(r *http.Request) (envelope.Reply, error) {
	return envelope.Reply{Message: msg.SecondaryDeleted}, n.Delete(r.Context(), r.PathValue("id"))
}
