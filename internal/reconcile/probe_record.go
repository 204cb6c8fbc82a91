package reconcile

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// ProbeRecord is a probe: a value that is written only as a test.
type ProbeRecord struct {
	Zone, ZoneID string // as the provider's client found them
	Name         string
	Value        string // with the owner's mark, so a leftover is known to be ours
}

// NewProbeRecord returns a probe at a random name in a domain.
func NewProbeRecord(owner, domain string) ProbeRecord {
	var random [8]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	return ProbeRecord{Name: "_mesh-test-" + mark + "." + domain, Value: mesh.Probe(owner, mark)}
}

// find finds the zone in which the probe is to stand.
func (p *ProbeRecord) find(ctx context.Context, client provider.DNS) (err error) {
	if p.Zone, err = client.Zone(ctx, dns.Parent(p.Name)); err != nil {
		return err
	}
	if identifier, ok := client.(provider.ZoneIdentifier); ok {
		p.ZoneID, err = identifier.ZoneID(ctx, p.Zone)
	}
	return err
}

// ProbeJournal stores each probe until it is known to be gone, also after the program was killed.
type ProbeJournal interface {
	Add(ctx context.Context, p ProbeRecord) error // is called before the write
	End(ctx context.Context, p ProbeRecord) error // is called once the probe is gone for good
}
