package builtin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/sqlite"
)

// Table is the Store of the zones in the database, with all SQL about them.
type Table struct {
	// Changed is called after a commit. records are the names whose records changed, from
	// the root on; zones are names that may have become zones, or be zones no more.
	Changed func(ctx context.Context, records, zones []string)

	db  *sqlite.Database
	now func() time.Time
}

// NewTable returns the table of a database.
func NewTable(db *sqlite.Database, now func() time.Time) *Table {
	return &Table{Changed: func(context.Context, []string, []string) {}, db: db, now: now}
}

// BuiltinZones returns the built-in zones among some names, which are in lower case.
func (t *Table) BuiltinZones(ctx context.Context, names []string) ([]Zone, error) {
	return selectBuiltinZones(ctx, t.db.Reader, names)
}

func selectBuiltinZones(ctx context.Context, q sqlite.Queryer, names []string) ([]Zone, error) {
	return sqlite.Collect(ctx, q, scanZone, `
		SELECT value, coalesce(serial, 1) FROM json_each(?) LEFT JOIN zone_serials ON zone_serials.zone = value
		WHERE EXISTS (SELECT 1 FROM services WHERE zone = value AND provider = 'builtin') OR
		      EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND zone = value AND provider = 'builtin')`, sqlite.TextList(names))
}

// BuiltinZonesAfter returns built-in zones after a name, in the order of their names.
func (t *Table) BuiltinZonesAfter(ctx context.Context, after string, limit int) ([]Zone, error) {
	return sqlite.Collect(ctx, t.db.Reader, scanZone, `
		SELECT zone, serial FROM zone_serials z
		WHERE zone > ? AND (EXISTS (SELECT 1 FROM services WHERE zone = z.zone AND provider = 'builtin') OR
		                    EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND zone = z.zone AND provider = 'builtin'))
		ORDER BY zone LIMIT ? + 0`, after, limit)
}

func scanZone(row sqlite.Scanner) (z Zone, err error) {
	err = row.Scan(&z.Name, &z.Serial)
	return z, err
}

// ZoneChange records which names a transaction may make built-in zones, or no zones.
type ZoneChange struct {
	names  []string
	before []Zone
}

// Begin records which of some names are zones now. The caller calls it before the change.
func (c *ZoneChange) Begin(ctx context.Context, tx *sql.Tx, names ...string) (err error) {
	c.names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	c.before, err = selectBuiltinZones(ctx, tx, c.names)
	return err
}

// ChangeZones runs a transaction that may make names built-in zones, or no zones. Each such
// zone and the zone around it get new serials. f must call Begin before it changes a zone.
func (t *Table) ChangeZones(ctx context.Context, f func(ctx context.Context, tx *sql.Tx, zones *ZoneChange) error) error {
	return t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		change := ZoneChange{}
		if err := f(ctx, tx, &change); err != nil {
			return err
		}
		after, err := selectBuiltinZones(ctx, tx, change.names)
		if err != nil {
			return err
		}
		isZone := func(zones []Zone, name string) bool {
			return slices.ContainsFunc(zones, func(z Zone) bool { return z.Name == name })
		}
		for _, name := range change.names {
			if isZone(change.before, name) != isZone(after, name) {
				if err := t.newSerials(ctx, tx, []string{name}, dnsname.Parent(name)); err != nil {
					return err
				}
			}
		}
		if len(change.names) > 0 {
			sqlite.After(ctx, func(ctx context.Context) { t.Changed(ctx, nil, change.names) })
		}
		return nil
	})
}

// zonesAround returns the built-in zones that some names lie in.
func zonesAround(ctx context.Context, tx *sql.Tx, names []string) ([]string, error) {
	above := map[string]bool{}
	for _, name := range names {
		for at := range dnsname.Ancestors(name) {
			above[at] = true
		}
	}
	zones, err := selectBuiltinZones(ctx, tx, slices.Collect(maps.Keys(above)))
	if err != nil {
		return nil, err
	}
	clear(above)
	for _, z := range zones {
		above[z.Name] = true
	}
	around := map[string]bool{}
	for _, name := range names {
		for at := range dnsname.Ancestors(name) {
			if above[at] {
				around[at] = true
				break
			}
		}
	}
	return slices.Collect(maps.Keys(around)), nil
}

// newSerials gives new serials to some zones, and to the zones that some names lie in.
func (t *Table) newSerials(ctx context.Context, tx *sql.Tx, zones []string, names ...string) error {
	around, err := zonesAround(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, zone := range slices.Concat(zones, around) {
		if err := t.newSerial(ctx, tx, zone); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) newSerial(ctx context.Context, tx *sql.Tx, zone string) error {
	var serial uint32
	err := tx.QueryRowContext(ctx, `SELECT serial FROM zone_serials WHERE zone = ?`, zone).Scan(&serial)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO zone_serials (zone, serial) VALUES (?, ?) ON CONFLICT DO UPDATE SET serial = excluded.serial`,
		zone, NextSerial(serial, t.now()))
	return err
}

func scanZoneRecord(row sqlite.Scanner) (r Record, err error) {
	err = row.Scan(&r.Name, &r.Data, &r.TTL)
	return r, err
}

// ZoneRecords returns the records at some names, whose labels begin at the root.
func (t *Table) ZoneRecords(ctx context.Context, names []string) ([]Record, error) {
	return selectZoneRecords(ctx, t.db.Reader, names)
}

func selectZoneRecords(ctx context.Context, q sqlite.Queryer, names []string) ([]Record, error) {
	return sqlite.Collect(ctx, q, scanZoneRecord, `
		SELECT name, data, ttl FROM zone_records WHERE name IN (SELECT value FROM json_each(?))`, sqlite.TextList(names))
}

// ZoneRecordsAfter returns records at and below the name zone that come after another name.
func (t *Table) ZoneRecordsAfter(ctx context.Context, zone, after string, limit int) ([]Record, error) {
	return sqlite.Collect(ctx, t.db.Reader, scanZoneRecord, `
		SELECT name, data, ttl FROM zone_records
		WHERE name > ?1 AND name >= ?2 AND name < ?2 || '/'
		ORDER BY name, data LIMIT ?3 + 0`, after, zone, limit)
}

// ZoneRecordsPage calls each for records after a name: limit records, and the others of the
// last name. It returns the last name. SQLite returns a page as one text, because reading a
// million rows takes the driver five times as long.
func (t *Table) ZoneRecordsPage(ctx context.Context, after string, limit int, each func(name, data string, ttl uint32) error) (last string, err error) {
	var page string
	err = t.db.Reader.QueryRowContext(ctx, `
		WITH last (name) AS (SELECT max(name) FROM (SELECT name FROM zone_records WHERE name > ?1 ORDER BY name LIMIT ?2 + 0))
		SELECT coalesce((SELECT name FROM last), ''),
		       coalesce(group_concat(name || char(0) || ttl || char(0) || length(data) || char(0) || data, ''), '')
		FROM (SELECT name, ttl, data FROM zone_records WHERE name > ?1 AND name <= (SELECT name FROM last) ORDER BY name, data)`,
		after, limit).Scan(&last, &page)
	for err == nil && page != "" {
		var text [3]string
		for i := range text {
			text[i], page, _ = strings.Cut(page, "\x00")
		}
		ttl, ttlErr := strconv.ParseUint(text[1], 10, 32)
		size, sizeErr := strconv.ParseUint(text[2], 10, 31)
		if err = errors.Join(ttlErr, sizeErr); err != nil || int(size) > len(page) {
			return "", cmp.Or(err, errors.New("a page of zone records is cut"))
		}
		err = each(text[0], page[:size], uint32(ttl))
		page = page[size:]
	}
	return last, err
}

// ZoneHasBelow reports whether a record or a built-in zone is below a name, which is given
// from the root on and in its usual form.
func (t *Table) ZoneHasBelow(ctx context.Context, name, text string) (below bool, err error) {
	err = t.db.Reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM zone_records WHERE name > ?1 || '.' AND name < ?1 || '/') OR
		       EXISTS (SELECT 1 FROM services WHERE provider = 'builtin' AND zone_key > ?1 || '.' AND zone_key < ?1 || '/') OR
		       EXISTS (SELECT 1 FROM configuration
		               WHERE id = 1 AND provider = 'builtin' AND substr(zone, -length(?2) - 1) = '.' || ?2)`,
		name, text).Scan(&below)
	return below, err
}

// ChangeZoneRecords adds and removes the records that decide returns, in one transaction,
// and gives their zones new serials.
func (t *Table) ChangeZoneRecords(ctx context.Context, names []string, decide func(now []Record) (add, remove []Record)) error {
	return t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := selectZoneRecords(ctx, tx, names)
		if err != nil {
			return err
		}
		var changed, within []string
		add, remove := decide(now)
		for _, r := range slices.Concat(remove, add) {
			if len(changed) == 0 || changed[len(changed)-1] != r.Name {
				changed, within = append(changed, r.Name), append(within, dnsname.Reverse(r.Name))
			}
		}
		for _, r := range remove {
			if _, err := tx.ExecContext(ctx, `DELETE FROM zone_records WHERE name = ? AND data = ?`, r.Name, r.Data); err != nil {
				return err
			}
		}
		for _, r := range add {
			if _, err := tx.ExecContext(ctx, `INSERT INTO zone_records (name, data, ttl) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, r.Name, r.Data, r.TTL); err != nil {
				return err
			}
		}
		if len(changed) > 0 {
			sqlite.After(ctx, func(ctx context.Context) { t.Changed(ctx, changed, nil) })
		}
		return t.newSerials(ctx, tx, nil, within...)
	})
}
