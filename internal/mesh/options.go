package mesh

import "slices"

// Options are what a usage has beyond the defaults of its service.
type Options struct {
	Formats []string // in their normal form; none to use the service's
	Check   string   // JSON object: how the endpoints are checked; "" to use the service's
	PeerID  string   // of the usage's own endpoints; "" for none
}

// ValueFormat is the format of the value with our mark. It is the only one of a usage without formats.
const ValueFormat = "mesh1"

// CheckEndpoints reports whether the usage's own endpoints can be published in its formats.
func (u Usage) CheckEndpoints() error {
	switch formats := u.Options.Formats; {
	case len(formats) > 0 && !slices.Contains(formats, ValueFormat):
		return CheckOthers(u.Endpoints)
	case u.Network.Valid:
		return Check(u.Network.V.String(), AnyOwner, u.Endpoints)
	}
	return Check(AnyNetwork.String(), AnyOwner, u.Endpoints)
}

// OptionsChange has the options that a request changes; nil keeps the stored one.
type OptionsChange struct {
	Formats []string
	Check   *string
	PeerID  *string
}

// Over returns the options after the change.
func (c OptionsChange) Over(stored Options) Options {
	if c.Formats != nil {
		stored.Formats = c.Formats
	}
	if c.Check != nil {
		stored.Check = *c.Check
	}
	if c.PeerID != nil {
		stored.PeerID = *c.PeerID
	}
	return stored
}

// Equal reports whether two options are the same.
func (o Options) Equal(p Options) bool {
	return slices.Equal(o.Formats, p.Formats) && o.Check == p.Check && o.PeerID == p.PeerID
}

// UsageChange is the members of a usage that a request changes; nil keeps the stored value.
type UsageChange struct {
	Endpoints   []string
	Description *string
	Options     OptionsChange
}

// Over returns a usage after the change, and reports whether it differs.
func (c UsageChange) Over(u Usage) (changed Usage, differs bool) {
	changed = u
	if c.Endpoints != nil {
		changed.Endpoints = c.Endpoints
	}
	if c.Description != nil {
		changed.Description = *c.Description
	}
	changed.Options = c.Options.Over(u.Options)
	return changed, changed.Description != u.Description || !slices.Equal(changed.Endpoints, u.Endpoints) || !changed.Options.Equal(u.Options)
}
