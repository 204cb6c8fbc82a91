package builtin

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
)

// NextSerial returns the serial of a zone after a change: the time in seconds, or the
// serial plus one if that is later by serial arithmetic (RFC 1982). It never returns 0,
// because some programs take it for no serial.
func NextSerial(serial uint32, now time.Time) uint32 {
	next := cmp.Or(serial+1, 1)
	if t := uint32(now.Unix()); int32(t-next) > 0 {
		return t
	}
	return next
}

// Zones is the nameserver.Backend of the built-in zones.
type Zones struct {
	Store *Table
	Own   func() []netip.Addr // this host's addresses
	Cache *Cache              // asked first; nil: the database answers
}

// Addresses returns this host's addresses.
func (z Zones) Addresses(context.Context) []netip.Addr { return z.Own() }

// Look returns the data at a name, from the cache if it is complete, else from the database.
func (z Zones) Look(ctx context.Context, name, buffer []byte) (nameserver.Found, error) {
	if z.Cache != nil {
		if found, ok := z.Cache.look(name, buffer); ok {
			return found, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nameserver.AnswerTime)
	defer cancel()
	return look(ctx, z.Store, dns.Name(name), buffer)
}

// look reads the data at a name from the database.
func look(ctx context.Context, store *Table, name dns.Name, buffer []byte) (found nameserver.Found, err error) {
	found.Records = buffer
	names := above(name)
	zones, err := store.BuiltinZones(ctx, names)
	if err != nil || len(zones) == 0 {
		return found, err
	}
	serials := map[string]uint32{}
	for _, zone := range zones {
		serials[zone.Name] = zone.Serial
	}
	apex := name
	for _, text := range names {
		if serial, ok := serials[text]; ok && found.Apex == 0 {
			found.Apex, found.Serial = len(apex), serial
		} else if ok {
			found.Above, found.AboveSerial = len(apex), serial
			break
		}
		apex = apex.Parent()
	}
	key := wireKey(name)
	records, err := store.ZoneRecords(ctx, []string{key})
	if err != nil {
		return found, err
	}
	found.TTL, found.Records = pack(records, buffer)
	if found.Exists = len(records) > 0; !found.Exists {
		found.Exists, err = store.ZoneHasBelow(ctx, key)
	}
	return found, err
}

// pack appends the records of a name in the form of nameserver.Found, and returns their TTL, too.
func pack(records []Record, buffer []byte) (ttl uint32, packed []byte) {
	for _, r := range records {
		ttl, buffer = r.TTL, appendRecord(buffer, r.Type, r.Data)
	}
	return ttl, buffer
}

// appendRecord appends a record in the form of nameserver.Found.
func appendRecord[data string | []byte](buffer []byte, t dns.Type, rdata data) []byte {
	buffer = binary.BigEndian.AppendUint16(buffer, uint16(t))
	return append(binary.BigEndian.AppendUint16(buffer, uint16(len(rdata))), rdata...)
}
