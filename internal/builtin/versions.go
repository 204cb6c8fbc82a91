package builtin

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/sqlite"
)

// Version calls read with one version of a zone: what one read transaction sees. The WAL grows until
// read returns.
func (t *Table) Version(ctx context.Context, apex dns.Name, read func(nameserver.Version) error) error {
	tx, err := t.db.Snapshots.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	zone := apex.Bare()
	if zone == t.catalog && zone != "" {
		return t.readCatalog(ctx, tx, apex, read)
	}
	zones, err := selectBuiltinZones(ctx, tx, []string{zone})
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		return nameserver.ErrNoZone
	}
	v := version{ctx: ctx, tx: tx, zone: zone, key: wireKey(apex), serial: zones[0].Serial, common: t.common}
	if err := v.findInner(); err != nil {
		return err
	}
	return read(nameserver.Version{Serial: v.serial, Inner: v.apexes(), Records: v.records, Changes: v.changes})
}

// version is one version of a zone, in a read transaction.
type version struct {
	ctx       context.Context
	tx        *sql.Tx
	zone, key string
	serial    uint32
	common    int64           // the last change that is older than this process
	inner     map[string]bool // zones within the zone, from the root on
}

func (v *version) findInner() error {
	keys, err := sqlite.Collect(v.ctx, v.tx, sqlite.Text, `
		SELECT zone_key FROM zone_serials z WHERE zone_key > ?1 || '.' AND zone_key < ?1 || '/' AND `+served, v.key)
	v.inner = map[string]bool{}
	for _, key := range keys {
		v.inner[key] = true
	}
	return err
}

// innerAt returns the outermost inner zone that a name lies in, "" for none.
func (v *version) innerAt(name string) string {
	if len(v.inner) == 0 {
		return ""
	}
	for at := len(v.key); at < len(name); {
		next := strings.IndexByte(name[at+1:], '.')
		if at += 1 + next; next < 0 {
			at = len(name)
		}
		if v.inner[name[:at]] {
			return name[:at]
		}
	}
	return ""
}

// apexes returns the apexes of the inner zones that lie in no other one.
func (v *version) apexes() (all []dns.Name) {
	for _, key := range slices.Sorted(maps.Keys(v.inner)) {
		name, err := dns.ParseName(dns.Reverse(key))
		if err == nil && v.innerAt(key) == key {
			all = append(all, name)
		}
	}
	return all
}

// versionPage is the number of records that are read at a time.
const versionPage = 1000

// records yields the records of the zone, without those of inner zones.
func (v *version) records(yield func(dns.RR, error) bool) {
	stop := errors.New("the caller has enough")
	var owner, data []byte
	take := func(r Stored) (err error) {
		var ok bool
		if owner, ok = appendWire(owner[:0], r.Name); !ok || v.innerAt(r.Name) != "" {
			return nil // no query can ask for it, or not here
		}
		data = append(data[:0], r.Data...)
		rr := dns.RR{Name: dns.Name(owner), Type: r.Type, Class: dns.ClassIN, TTL: r.TTL, Data: data}
		if !yield(rr, nil) {
			err = stop
		}
		return err
	}
	own, err := selectZoneRecords(v.ctx, v.tx, []string{v.key})
	for i := 0; i < len(own) && err == nil; i++ {
		err = take(Stored{Name: own[i].Name, Type: own[i].Type, Data: string(own[i].Data), TTL: own[i].TTL})
	}
	if err == nil {
		err = v.pages(func(page string) error { return eachRecord(page, take) })
	}
	if err != nil && err != stop {
		yield(dns.RR{}, err)
	}
}

// pages calls each with the pages of records below the apex, while the next one is read.
func (v *version) pages(each func(page string) error) error {
	type result struct {
		page string
		err  error
	}
	results, end := make(chan result), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(end)
	reading.Go(func() {
		defer close(results)
		for after := v.key + "."; after != ""; {
			last, page, err := readPage(v.ctx, v.tx, after, v.key+"/", versionPage)
			select {
			case results <- result{page, err}:
			case <-end:
				return
			}
			if after = last; err != nil {
				return
			}
		}
	})
	for r := range results {
		if r.err != nil {
			return r.err
		}
		if err := each(r.page); err != nil {
			return err
		}
	}
	return nil
}

// maxJournal is the number of changes of a zone that are kept.
const maxJournal = 1000

// writeJournal stores what a version of a zone has changed, and deletes what is older than maxJournal
// changes.
func writeJournal(ctx context.Context, tx *sql.Tx, zone string, before, after uint32, removed, added []Record) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO zone_journal (zone, serial_before, serial, removed, added) VALUES (?, ?, ?, ?, ?)`,
		zone, before, after, packRecords(removed), packRecords(added))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		DELETE FROM zone_journal WHERE zone = ?1 AND id <= (SELECT id FROM zone_journal WHERE zone = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`,
		zone, maxJournal)
	return err
}

// Renew gives new serials to all zones, so that every secondary asks for them and tells the version that
// it has. The database may be a restored one: then the versions that it will make are not those that a
// secondary has under the same serials. A secondary that has the version before gets an empty change, but
// the whole zone if the server has other names than at the last start.
func (t *Table) Renew(ctx context.Context, names []dns.Name) error {
	if !t.journal() {
		return nil
	}
	hosts := ""
	for _, name := range names {
		hosts += name.String() + " "
	}
	now := uint32(t.now().Unix())
	return t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO zone_serials (zone, zone_key, serial) SELECT ?1, ?2, 1 WHERE ?1 <> '' ON CONFLICT DO NOTHING`, t.catalog, dns.Reverse(t.catalog))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO zone_journal (zone, serial_before, serial, removed, added)
			SELECT zone, serial, `+renewed+`, x'', x'' FROM zone_serials z WHERE ?2 = (SELECT dns_hosts FROM appliance) AND `+served, now, hosts)
		if err != nil {
			return err
		}
		if err := forgetIdle(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE zone_serials SET serial = `+renewed, now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE appliance SET dns_hosts = ?1 WHERE dns_hosts <> ?1`, hosts); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM zone_journal`).Scan(&t.common)
	})
}

// maxIdle is the number of empty changes in a row, one from each start, that are kept of a zone.
const maxIdle = 16

// forgetIdle deletes all changes of a zone before the last maxIdle ones, if these are empty. Without it the journal
// of a zone that never changes grows at each start.
func forgetIdle(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `
		WITH last (zone, begin) AS MATERIALIZED (
		    SELECT zone, (SELECT iif(max(length(removed) + length(added)) = 0, min(id), 0)
		                  FROM (SELECT id, removed, added FROM zone_journal WHERE zone = z.zone ORDER BY id DESC LIMIT ?1 + 0))
		    FROM zone_serials z)
		DELETE FROM zone_journal WHERE id IN (SELECT j.id FROM last CROSS JOIN zone_journal j ON j.zone = last.zone AND j.id < last.begin)`, maxIdle)
	return err
}

// renewed is NextSerial in SQL, for the time ?1.
const renewed = `iif((?1 - serial) & 4294967295 BETWEEN 1 AND 2147483647, ?1, max(1, (serial + 1) & 4294967295))`

// MoveAll gives new serials to all zones, because the records that they get from the server have
// changed. Secondaries fetch the zones whole.
func (t *Table) MoveAll(ctx context.Context, tx *sql.Tx) error {
	if !t.journal() {
		return nil
	}
	moved, err := sqlite.Collect(ctx, tx, scanSerial, `UPDATE zone_serials SET serial = `+renewed+` RETURNING zone, serial`, uint32(t.now().Unix()))
	if err != nil {
		return err
	}
	var changed Changed
	for _, z := range moved {
		changed.Zones = append(changed.Zones, z.Name)
		sqlite.Touch(ctx, Moved{z.Name, z.Serial})
	}
	sqlite.Touch(ctx, changed)
	_, err = tx.ExecContext(ctx, `DELETE FROM zone_journal`)
	return err
}

func scanSerial(row sqlite.Scanner) (z Zone, err error) {
	err = row.Scan(&z.Name, &z.Serial)
	return z, err
}

// forget gives a new serial to a zone, and deletes the changes before, which lead nowhere now.
func (t *Table) forget(ctx context.Context, tx *sql.Tx, zone string) error {
	if _, _, err := t.newSerial(ctx, tx, zone); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM zone_journal WHERE zone = ?`, zone)
	return err
}

// MovePast gives a zone a serial after one that a secondary has from a database that is lost, unless it
// has such a serial.
func (t *Table) MovePast(ctx context.Context, zone string, serial uint32) error {
	return t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		moved, err := sqlite.Exec(ctx, tx, `
			UPDATE zone_serials SET serial = ?2 WHERE zone = ?1 AND (?2 - serial) & 4294967295 BETWEEN 0 AND 2147483647`, zone, serial)
		if err != nil || moved == 0 {
			return err
		}
		sqlite.Touch(ctx, Changed{Zones: []string{zone}})
		return t.forget(ctx, tx, zone)
	})
}

// packRecords returns records in wire form.
func packRecords(records []Record) []byte {
	packed := []byte{}
	for _, r := range records {
		if owner, ok := appendWire(nil, r.Name); ok {
			packed = dns.AppendRR(packed, dns.RR{Name: dns.Name(owner), Type: r.Type, Class: dns.ClassIN, TTL: r.TTL, Data: r.Data})
		}
	}
	return packed
}

// maxChanges bounds the changes of an answer, in octets of their records. The whole zone is sent instead
// of more.
const maxChanges = 16 << 20

// changes returns the changes since a version, nil if they are not all in the journal. Versions of this
// process may be others than those under the same serials before a restore, so the peer must have got
// such a version from it.
func (v *version) changes(since uint32, sent bool) (iter.Seq2[nameserver.Change, error], error) {
	begin, err := sqlite.One[int64](v.ctx, v.tx, `
		SELECT coalesce(max(id), 0) FROM zone_journal WHERE zone = ? AND serial_before = ?`, v.zone, since)
	if err != nil || begin == 0 || begin > v.common && !sent {
		return nil, err
	}
	var gaps, octets, last int64
	err = v.tx.QueryRowContext(v.ctx, `
		SELECT sum(serial_before <> before), sum(octets), serial, max(id)
		FROM (SELECT id, serial, serial_before, lag(serial, 1, serial_before) OVER (ORDER BY id) AS before, length(removed) + length(added) AS octets
		      FROM zone_journal WHERE zone = ? AND id >= ?)`, v.zone, begin).Scan(&gaps, &octets, &last, new(int64))
	if err != nil || gaps > 0 || octets > maxChanges || last != int64(v.serial) {
		return nil, err
	}
	return func(yield func(nameserver.Change, error) bool) {
		rows, err := v.tx.QueryContext(v.ctx, `
			SELECT serial_before, serial, removed, added FROM zone_journal WHERE zone = ? AND id >= ? ORDER BY id`, v.zone, begin)
		if err != nil {
			yield(nameserver.Change{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			if c, err := scanChange(rows); !yield(c, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nameserver.Change{}, err)
		}
	}, nil
}

func scanChange(row sqlite.Scanner) (c nameserver.Change, err error) {
	var removed, added []byte
	if err := row.Scan(&c.Before, &c.After, &removed, &added); err != nil {
		return c, err
	}
	if c.Removed, err = dns.ParseRRs(removed); err != nil {
		return c, err
	}
	c.Added, err = dns.ParseRRs(added)
	return c, err
}
