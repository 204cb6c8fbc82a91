package builtin

import (
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Unreachable is the kind of the warning about a zone that no resolver finds: the
// server's own name in it has no public address.
const Unreachable provider.Kind = "zone_unreachable"

// Reachable warns of a zone that no resolver can reach.
func (c Client) Reachable(zone string) error {
	if !c.Hidden {
		return nil
	}
	return &provider.Error{Kind: Unreachable, Detail: msg.Say("ns." + zone)}
}
