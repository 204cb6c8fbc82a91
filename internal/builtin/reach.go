package builtin

import (
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Unreachable is the kind of a warning: no resolver can reach the zone, because the
// server's own name in it has no public address.
const Unreachable provider.Kind = "zone_unreachable"

// Reachable returns a warning if no resolver can reach the zone.
func (c Client) Reachable(zone string) error {
	if !c.Hidden {
		return nil
	}
	return &provider.Error{Kind: Unreachable, Detail: msg.Say("ns." + zone)}
}
