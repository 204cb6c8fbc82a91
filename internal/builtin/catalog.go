package builtin

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"iter"

	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/sqlite"
)

// selectZones selects the names of all built-in zones.
const selectZones = `SELECT zone FROM zone_serials z WHERE ` + served + ` ORDER BY zone`

// readCatalog calls read with a version of the catalog zone, which lists the zones (RFC 9432). The label
// of a zone stays the same, because another one tells secondaries to fetch the zone anew.
func (t *Table) readCatalog(ctx context.Context, tx *sql.Tx, apex dns.Name, read func(nameserver.Version) error) error {
	serial, err := selectSerial(ctx, tx, t.catalog)
	if err != nil {
		return err
	}
	records := func(yield func(dns.RR, error) bool) {
		invalid, _ := dns.ParseName("invalid")
		fixed := []dns.RR{
			{Name: apex, Type: dns.TypeNS, Data: []byte(invalid)},
			{Name: under(apex, "version"), Type: dns.TypeTXT, Data: dns.TXTData([]string{"2"})},
		}
		zones, err := sqlite.Collect(ctx, tx, sqlite.Text, selectZones)
		for _, zone := range zones {
			if name, unfit := dns.ParseName(zone); unfit == nil {
				label := sha256.Sum256([]byte(name))
				fixed = append(fixed, dns.RR{Name: under(apex, hex.EncodeToString(label[:16]), "zones"), Type: dns.TypePTR, Data: []byte(name)})
			}
		}
		for _, rr := range fixed {
			if rr.Class = dns.ClassIN; !yield(rr, nil) {
				return
			}
		}
		if err != nil {
			yield(dns.RR{}, err)
		}
	}
	unknown := func(uint32, bool) (iter.Seq2[nameserver.Change, error], error) { return nil, nil }
	return read(nameserver.Version{Serial: serial, Catalog: true, Records: records, Changes: unknown})
}

// under returns a name below an apex.
func under(apex dns.Name, labels ...string) dns.Name {
	var name []byte
	for _, label := range labels {
		name = append(append(name, byte(len(label))), label...)
	}
	return dns.Name(name) + apex
}

func selectSerial(ctx context.Context, q sqlite.Queryer, zone string) (serial uint32, err error) {
	return sqlite.One[uint32](ctx, q, `SELECT coalesce((SELECT serial FROM zone_serials WHERE zone = ?), 1)`, zone)
}

// Announced are the zones as secondaries are told of them.
type Announced struct {
	*Table
	SOARecord func(apex dns.Name, serial uint32) dns.RR
}

// All returns the zones and their serials.
func (a Announced) All(ctx context.Context) (map[string]uint32, error) {
	serials := map[string]uint32{}
	for after := ""; ; {
		page, err := a.BuiltinZonesAfter(ctx, after, versionPage)
		if err != nil {
			return nil, err
		}
		for _, z := range page {
			after, serials[z.Name] = z.Name, z.Serial
		}
		if len(page) == 0 {
			break
		}
	}
	if a.catalog == "" {
		return serials, nil
	}
	serial, err := selectSerial(ctx, a.db.Reader, a.catalog)
	serials[a.catalog] = serial
	return serials, err
}

// SOA returns the SOA record of a zone, and its serial; ok is false if there is no such zone.
func (a Announced) SOA(ctx context.Context, zone string) (soa dns.RR, serial uint32, ok bool, err error) {
	apex, unfit := dns.ParseName(zone)
	zones, err := a.BuiltinZones(ctx, []string{zone})
	if err != nil || unfit != nil || len(zones) == 0 && (zone != a.catalog || zone == "") {
		return soa, 0, false, err
	}
	serial, err = selectSerial(ctx, a.db.Reader, zone)
	return a.SOARecord(apex, serial), serial, err == nil, err
}
