package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"meshddns/internal/dnsname"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// Record is a value that is written only to see what becomes of it.
type Record struct {
	Zone, ZoneID string // as the client that writes it found them
	Name         string
	Value        string // with its owner's mark, so that what is left of it is known to be ours
}

// NewRecord makes a probe at a random name in a domain.
func NewRecord(owner, domain string) Record {
	var random [8]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	return Record{Name: "_mesh-test-" + mark + "." + domain, Value: mesh.Probe(owner, mark)}
}

// find finds the zone in which the probe is to stand.
func (p *Record) find(ctx context.Context, client provider.DNS) (err error) {
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
	Add(ctx context.Context, p Record) error // before the write
	End(ctx context.Context, p Record) error // nothing of it stands any more
}
