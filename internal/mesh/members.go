package mesh

import (
	"encoding/json"

	"meshddns/internal/msg"
)

// Members are the options of a usage as clients write them. "formats": [] and "check": {} return to
// what the service has.
type Members struct {
	Formats []string        `json:"formats"`
	Check   json.RawMessage `json:"check"`
	PeerID  *string         `json:"peer_id"`
}

// Change returns the change of the options, or the refusal of the first member that is not valid.
func (m Members) Change() (c OptionsChange, err error) {
	if c.PeerID = m.PeerID; m.PeerID != nil && *m.PeerID != "" && !IsPeerID(*m.PeerID) {
		return c, msg.Refuse(msg.PeerIDInvalid)
	}
	if m.Check != nil {
		checking, err := ParseCheck(m.Check)
		if err != nil {
			return c, err
		}
		c.Check = new(checking.Text())
	}
	if m.Formats == nil {
		return c, nil
	}
	if c.Formats, err = ParseFormats(m.Formats); c.Formats == nil {
		c.Formats = []string{}
	}
	return c, err
}
