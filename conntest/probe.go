package conntest

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"meshddns/dnsname"
	"meshddns/meshtxt"
	"meshddns/provider"
)

// Probe is a value that is written only to see what becomes of it.
type Probe struct {
	Zone, ZoneID string // as the client that writes it found them
	Name         string
	Value        string // with its owner's mark, so that what is left of it is known to be ours
}

// NewProbe makes a probe at a random name in a domain.
func NewProbe(owner, domain string) Probe {
	var random [8]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	return Probe{Name: "_mesh-test-" + mark + "." + domain, Value: meshtxt.Probe(owner, mark)}
}

// find finds the zone in which the probe is to stand.
func (p *Probe) find(ctx context.Context, client provider.DNS) (err error) {
	if p.Zone, err = client.Zone(ctx, dnsname.Parent(p.Name)); err != nil {
		return err
	}
	if identifier, ok := client.(provider.ZoneIdentifier); ok {
		p.ZoneID, err = identifier.ZoneID(ctx, p.Zone)
	}
	return err
}

// Journal keeps what is written until it is known to be gone, also when the program is
// killed meanwhile.
type Journal interface {
	Add(ctx context.Context, p Probe) error // before the write
	End(ctx context.Context, p Probe) error // nothing of it stands any more
}
