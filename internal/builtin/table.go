package builtin

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// Table is the zones in the database, with all SQL about them. Names of records begin at the root; names of zones do not.
type Table struct {
	db      *sqlite.Database
	catalog string
	journal func() bool
	now     func() time.Time
	common  int64 // the last row of the journal that is older than this process
}

// NewTable returns the table of a database. catalog is the name of the catalog zone, "" for none. journal
// reports whether the changes of zones are kept for secondaries.
func NewTable(db *sqlite.Database, catalog string, journal func() bool, now func() time.Time) *Table {
	return &Table{db: db, catalog: catalog, journal: journal, now: now}
}

// Changed in a notice has the names whose data has changed.
type Changed struct {
	Records []string // their records, from the root on
	Zones   []string // they may have become zones, be zones no more, or have another serial
}

// Moved in a notice is a new serial of a zone.
type Moved struct {
	Zone   string
	Serial uint32
}

// BuiltinZones returns the built-in zones among some names, which are in lower case.
func (t *Table) BuiltinZones(ctx context.Context, names []string) ([]Zone, error) {
	return selectBuiltinZones(ctx, t.db.Reader, names)
}

// Conditions that z.zone is a zone: the configuration or a service has it; or they have left it, and a
// place is in it, whose value resolvers still ask for.
const (
	configured = `
		(EXISTS (SELECT 1 FROM services WHERE zone = z.zone AND provider = 'builtin') OR
		 EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND zone = z.zone AND provider = 'builtin'))`
	served = `
		(` + configured + ` OR
		 EXISTS (SELECT 1 FROM accounts a CROSS JOIN places p ON p.account = a.id WHERE a.provider = 'builtin' AND p.zone = z.zone))`
)

func selectBuiltinZones(ctx context.Context, q sqlite.Queryer, names []string) ([]Zone, error) {
	return sqlite.Collect(ctx, q, scanZone, `
		SELECT zone, coalesce((SELECT serial FROM zone_serials WHERE zone = z.zone), 1), NOT `+configured+`
		FROM (SELECT value AS zone FROM json_each(?)) AS z WHERE `+served, sqlite.TextList(names))
}

// BuiltinZonesAfter returns built-in zones after a name, in the order of their names.
func (t *Table) BuiltinZonesAfter(ctx context.Context, after string, limit int) ([]Zone, error) {
	return sqlite.Collect(ctx, t.db.Reader, scanZone, `
		SELECT zone, serial, NOT `+configured+` FROM zone_serials z WHERE zone > ? AND `+served+` ORDER BY zone LIMIT ? + 0`, after, limit)
}

func scanZone(row sqlite.Scanner) (z Zone, err error) {
	err = row.Scan(&z.Name, &z.Serial, &z.Left)
	return z, err
}

// ErrCatalog is the error for a zone with the name of the catalog, which secondaries would get in its place.
const ErrCatalog = sqlite.Refusal(msg.DomainIsCatalog)

// CheckZone returns ErrCatalog if a zone of the provider would be a built-in one with the name of the catalog.
func (t *Table) CheckZone(provider, zone string) error {
	if provider == msg.Builtin && zone == t.catalog && zone != "" {
		return ErrCatalog
	}
	return nil
}

// CheckCatalog returns ErrCatalog if a zone has the name of the catalog.
func (t *Table) CheckCatalog(ctx context.Context) error {
	if t.catalog == "" { // a service without a domain has that zone
		return nil
	}
	zones, err := selectBuiltinZones(ctx, t.db.Reader, []string{t.catalog})
	if err == nil && len(zones) > 0 {
		err = fmt.Errorf("-dns-catalog %s: a zone has this name (%w): want a name under which nothing else is", t.catalog, ErrCatalog)
	}
	return err
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
		return t.end(ctx, tx, change)
	})
}

// Around runs a part of a transaction after which some names may be no zones any more, because the last
// place in them ends. It does what ChangeZones does.
func (t *Table) Around(ctx context.Context, tx *sql.Tx, names []string, f func() error) error {
	change := ZoneChange{}
	if len(names) > 0 {
		if err := change.Begin(ctx, tx, names...); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	return t.end(ctx, tx, change)
}

// end gives new serials to the names that a change has made zones, or no zones, and to the zones around
// them.
func (t *Table) end(ctx context.Context, tx *sql.Tx, change ZoneChange) error {
	if len(change.names) == 0 {
		return nil
	}
	after, err := selectBuiltinZones(ctx, tx, change.names)
	if err != nil {
		return err
	}
	isZone := func(zones []Zone, name string) bool {
		return slices.ContainsFunc(zones, func(z Zone) bool { return z.Name == name })
	}
	moved := slices.DeleteFunc(change.names, func(name string) bool { return isZone(change.before, name) == isZone(after, name) })
	for _, name := range moved {
		if err := t.newSerials(ctx, tx, name); err != nil {
			return err
		}
	}
	if len(moved) > 0 {
		sqlite.Touch(ctx, Changed{Zones: moved})
	}
	return nil
}

// zonesOf returns the built-in zone that each name lies in.
func zonesOf(ctx context.Context, tx *sql.Tx, names []string) (map[string]string, error) {
	above := map[string]bool{}
	for _, name := range names {
		for at := range dns.Ancestors(name) {
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
	around := map[string]string{}
	for _, name := range names {
		for at := range dns.Ancestors(name) {
			if above[at] {
				around[name] = at
				break
			}
		}
	}
	return around, nil
}

// newSerials gives new serials to a zone, to the zone around it, and to the catalog.
func (t *Table) newSerials(ctx context.Context, tx *sql.Tx, zone string) error {
	around, err := zonesOf(ctx, tx, []string{dns.Parent(zone)})
	if err != nil {
		return err
	}
	zones := map[string]bool{zone: true}
	for _, zone := range around {
		zones[zone] = true
	}
	if t.catalog != "" {
		zones[t.catalog] = true
	}
	for zone := range zones {
		if err := t.forget(ctx, tx, zone); err != nil {
			return err
		}
	}
	return nil
}

// newSerial gives a new serial to a zone, and returns the one before, too.
func (t *Table) newSerial(ctx context.Context, tx *sql.Tx, zone string) (before, after uint32, err error) {
	err = tx.QueryRowContext(ctx, `SELECT serial FROM zone_serials WHERE zone = ?`, zone).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, 0, err
	}
	after = NextSerial(before, t.now())
	_, err = tx.ExecContext(ctx, `
		INSERT INTO zone_serials (zone, zone_key, serial) VALUES (?, ?, ?) ON CONFLICT (zone) DO UPDATE SET serial = excluded.serial`, zone, dns.Reverse(zone), after)
	sqlite.Touch(ctx, Moved{zone, after})
	return before, after, err
}

func scanZoneRecord(row sqlite.Scanner) (r Record, err error) {
	err = row.Scan(&r.Name, &r.Type, &r.Data, &r.TTL)
	return r, err
}

// ZoneRecords returns the records at some names, whose labels begin at the root.
func (t *Table) ZoneRecords(ctx context.Context, names []string) ([]Record, error) {
	return selectZoneRecords(ctx, t.db.Reader, names)
}

func selectZoneRecords(ctx context.Context, q sqlite.Queryer, names []string) ([]Record, error) {
	return sqlite.Collect(ctx, q, scanZoneRecord, `
		SELECT name, type, data, ttl FROM zone_records WHERE name IN (SELECT value FROM json_each(?))`, sqlite.TextList(names))
}

// ZoneRecordsAfter returns TXT records at and below the name zone that come after another name.
func (t *Table) ZoneRecordsAfter(ctx context.Context, zone, after string, limit int) ([]Record, error) {
	return sqlite.Collect(ctx, t.db.Reader, scanZoneRecord, `
		SELECT name, type, data, ttl FROM zone_records
		WHERE name > ?1 AND name >= ?2 AND name < ?2 || '/' AND +type = 16
		ORDER BY name, type, data LIMIT ?3 + 0`, after, zone, limit)
}

// ZoneRecordsPage calls each for records after a name: limit records, and the others of the
// last name. It returns the last name.
func (t *Table) ZoneRecordsPage(ctx context.Context, after string, limit int, each func(Stored) error) (last string, err error) {
	last, page, err := readPage(ctx, t.db.Reader, after, "\xff", limit)
	if err == nil {
		err = eachRecord(page, each)
	}
	return last, err
}

// readPage reads records after a name and before another one: limit records, and the others of the last
// name. It returns the last name, and the records for eachRecord. SQLite makes one text of them, because
// reading a million rows takes the driver five times as long.
func readPage(ctx context.Context, q sqlite.Queryer, after, before string, limit int) (last, page string, err error) {
	err = q.QueryRowContext(ctx, `
		WITH last (name) AS (SELECT max(name) FROM (SELECT name FROM zone_records WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT ?3 + 0))
		SELECT coalesce((SELECT name FROM last), ''),
		       coalesce(group_concat(concat(name, char(0), type, char(0), ttl, char(0), length(data), char(0), data), ''), '')
		FROM (SELECT name, type, ttl, data FROM zone_records WHERE name > ?1 AND name <= (SELECT name FROM last) ORDER BY name, type, data)`,
		after, before, limit).Scan(&last, &page)
	return last, page, err
}

// eachRecord calls each for the records of a page.
func eachRecord(page string, each func(Stored) error) error {
	for page != "" {
		var text [4]string
		for i := range text {
			text[i], page, _ = strings.Cut(page, "\x00")
		}
		number, typeErr := strconv.ParseUint(text[1], 10, 16)
		ttl, ttlErr := strconv.ParseUint(text[2], 10, 32)
		size, sizeErr := strconv.ParseUint(text[3], 10, 31)
		if err := errors.Join(typeErr, ttlErr, sizeErr); err != nil || int(size) > len(page) {
			return cmp.Or(err, errors.New("a page of zone records is cut"))
		}
		if err := each(Stored{Name: text[0], Type: dns.Type(number), Data: page[:size], TTL: uint32(ttl)}); err != nil {
			return err
		}
		page = page[size:]
	}
	return nil
}

// ZoneHasBelow reports whether a record or a built-in zone is below a name, which is given
// from the root on.
func (t *Table) ZoneHasBelow(ctx context.Context, name string) (below bool, err error) {
	return sqlite.One[bool](ctx, t.db.Reader, `
		SELECT EXISTS (SELECT 1 FROM zone_records WHERE name > ?1 || '.' AND name < ?1 || '/') OR
		       EXISTS (SELECT 1 FROM zone_serials z WHERE zone_key > ?1 || '.' AND zone_key < ?1 || '/' AND `+served+`)`, name)
}

// ChangeZoneRecords adds and removes the records that decide returns, in one transaction,
// gives their zones new serials, and writes their journals. decide gets the present records at the names. It may run
// twice, because a transaction may be tried twice. Requests overtake it.
func (t *Table) ChangeZoneRecords(ctx context.Context, names []string, decide func(now []Record) (add, remove []Record)) error {
	return t.db.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		now, err := selectZoneRecords(ctx, tx, names)
		if err != nil {
			return err
		}
		add, remove := decide(now)
		add, remove = oneTTL(now, add, remove)
		var changed []string
		for _, r := range slices.Concat(remove, add) {
			changed = append(changed, r.Name)
		}
		if changed = slices.Compact(changed); len(changed) == 0 {
			return nil
		}
		if remove, err = removeRecords(ctx, tx, remove); err != nil {
			return err
		}
		if add, err = addRecords(ctx, tx, add); err != nil {
			return err
		}
		sqlite.Touch(ctx, Changed{Records: changed})
		return t.moveZones(ctx, tx, changed, remove, add)
	})
}

// oneTTL returns changes after which all records of each name have the TTL of the last one that is added,
// because an RRset has one TTL (RFC 2181, section 5.2), and the cache has one for a name.
func oneTTL(now, add, remove []Record) (added, removed []Record) {
	ttls := map[string]uint32{}
	for _, r := range add {
		ttls[r.Name] = r.TTL
	}
	is := func(r Record) func(Record) bool {
		return func(o Record) bool { return o.Name == r.Name && o.Type == r.Type && bytes.Equal(o.Data, r.Data) }
	}
	for _, r := range now {
		ttl, ok := ttls[r.Name]
		if ok && r.TTL != ttl && !slices.ContainsFunc(remove, is(r)) {
			remove, add = append(remove, r), append(add, Record{Name: r.Name, Type: r.Type, Data: r.Data, TTL: ttl})
		}
	}
	for i := range add {
		add[i].TTL = ttls[add[i].Name]
	}
	return add, remove
}

// removeRecords deletes records, and returns those that were there, with their TTLs.
func removeRecords(ctx context.Context, tx *sql.Tx, records []Record) (removed []Record, err error) {
	for _, r := range records {
		err := tx.QueryRowContext(ctx, `DELETE FROM zone_records WHERE name = ? AND type = ? AND data = ? RETURNING ttl`, r.Name, r.Type, r.Data).Scan(&r.TTL)
		if err == nil {
			removed = append(removed, r)
		} else if err = sqlite.Absent(err, nil); err != nil {
			return nil, err
		}
	}
	return removed, nil
}

// addRecords stores records, and returns those that were not there.
func addRecords(ctx context.Context, tx *sql.Tx, records []Record) (added []Record, err error) {
	for _, r := range records {
		count, err := sqlite.Exec(ctx, tx, `INSERT INTO zone_records (name, type, data, ttl) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`, r.Name, r.Type, r.Data, r.TTL)
		if err != nil {
			return nil, err
		}
		if count > 0 {
			added = append(added, r)
		}
	}
	return added, nil
}

// moveZones gives new serials to the zones of changed names, and writes what was removed and added
// into the journal.
func (t *Table) moveZones(ctx context.Context, tx *sql.Tx, names []string, removed, added []Record) error {
	var usual []string
	for _, name := range names {
		usual = append(usual, dns.Reverse(name))
	}
	zones, err := zonesOf(ctx, tx, usual)
	if err != nil {
		return err
	}
	of := func(zone string, all []Record) []Record {
		return slices.DeleteFunc(slices.Clone(all), func(r Record) bool { return zones[dns.Reverse(r.Name)] != zone })
	}
	for _, zone := range slices.Compact(slices.Sorted(maps.Values(zones))) {
		before, after, err := t.newSerial(ctx, tx, zone)
		if err != nil {
			return err
		}
		if !t.journal() {
			continue
		}
		if err := writeJournal(ctx, tx, zone, before, after, of(zone, removed), of(zone, added)); err != nil {
			return err
		}
	}
	return nil
}
