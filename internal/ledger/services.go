// The rows of services.

package ledger

import (
	"context"
	"database/sql"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// ErrNoService is the error for a service that is not there.
const ErrNoService = sqlite.Refusal(msg.UnknownService)

// SelectServices reads services for ScanService.
const SelectServices = `
	SELECT id, name, config, domain, zone, coalesce(account, 0), usage_count, created_at, updated_at
	FROM services`

// ScanService scans a row of SelectServices, or returns ErrNoService.
func (g *Ledger) ScanService(row sqlite.Scanner) (v mesh.Service, err error) {
	err = row.Scan(&v.ID, &v.Name, g.config.Key.Open((*string)(&v.Config), "services", &v.ID, "config"), &v.Domain, &v.Zone, &v.AccountID, &v.UsageCount, &v.CreatedAt, &v.UpdatedAt)
	return v, sqlite.Absent(err, ErrNoService)
}

// SaveService stores a service, with the members of its config that the program looks for. account is the service's own.
func (g *Ledger) SaveService(ctx context.Context, tx *sql.Tx, v mesh.Service, config mesh.ServiceConfig, account sql.Null[int64], now string) error {
	zone := dns.Parse(config.Domain)
	_, err := tx.ExecContext(ctx, `
		INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at, formats, checking)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET
		    name = excluded.name, config = excluded.config, domain = excluded.domain, zone = excluded.zone, zone_key = excluded.zone_key,
		    provider = excluded.provider,
		    txt_endpoints = excluded.txt_endpoints, account = excluded.account, updated_at = excluded.updated_at,
		    formats = excluded.formats, checking = excluded.checking`,
		v.ID, v.Name, g.config.Key.Seal(string(v.Config), "services", v.ID, "config"), config.Domain, zone, dns.Reverse(zone), config.Provider, sqlite.TextList(config.Endpoints), account, now, now,
		sqlite.TextList(config.Formats), string(config.Check))
	return err
}

// ServiceZones reads the zones of services in the order of their names.
func (g *Ledger) ServiceZones(ctx context.Context, limit int) ([]mesh.ServiceZone, error) {
	return sqlite.Collect(ctx, g.config.Reader, func(row sqlite.Scanner) (z mesh.ServiceZone, err error) {
		err = row.Scan(&z.Zone, &z.Provider, &z.AccountID)
		return z, err
	}, `SELECT zone, provider, coalesce(account, 0) FROM services WHERE zone > '' ORDER BY zone, provider LIMIT ? + 0`, limit)
}

// ServiceBeside returns the id of another service with the zone of a service, "" without one.
func ServiceBeside(ctx context.Context, q sqlite.Queryer, v mesh.Service) (id string, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM services WHERE zone = ? AND zone <> '' AND id <> ? LIMIT 1`, v.Zone, v.ID).Scan(&id)
	return id, sqlite.Absent(err, nil)
}

// Inner returns, by full name _mesh.P, a service's domain that is P or lies below it, if there is one.
func Inner(ctx context.Context, q sqlite.Queryer, names []string) (map[string]string, error) {
	var keys sqlite.TextList
	for _, name := range names {
		keys = append(keys, dns.Reverse(dns.Parent(name)))
	}
	inner := map[string]string{}
	_, err := sqlite.Collect(ctx, q, func(row sqlite.Scanner) (at int, err error) {
		var zone string
		err = row.Scan(&at, &zone)
		inner[names[at]] = zone
		return at, err
	}, `
		SELECT key, (SELECT zone FROM services WHERE zone_key = value OR zone_key > value || '.' AND zone_key < value || '/' LIMIT 1) AS inside
		FROM json_each(?) WHERE inside IS NOT NULL`, keys)
	return inner, err
}

// MarkAround makes the usages due whose P is a domain of a service or lies above it, if the domain changes.
func (g *Ledger) MarkAround(ctx context.Context, tx *sql.Tx, before, after string) error {
	if before == after {
		return nil
	}
	for _, domain := range []string{before, after} {
		names, err := Around(ctx, tx, domain)
		for i := 0; i < len(names) && err == nil; i++ {
			err = g.MarkDue(ctx, tx, names[i], reconcile.LaneChanged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Around returns the names of usages whose P is a domain or lies above it.
func Around(ctx context.Context, q sqlite.Queryer, domain string) ([]string, error) {
	var names sqlite.TextList
	for ; domain != ""; domain = dns.Parent(domain) {
		names = append(names, mesh.Label+"."+domain)
	}
	return sqlite.Collect(ctx, q, sqlite.Text, `SELECT DISTINCT name FROM usages WHERE name IN (SELECT value FROM json_each(?))`, names)
}

// ServicesOutside counts the services with usages that use the configuration's provider in zones
// that it does not have, so that their values are not published. It returns the id of one.
func ServicesOutside(ctx context.Context, q sqlite.Queryer, zone string) (count int, id string, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT count(*), coalesce(min(id), '') FROM services
		WHERE provider = '' AND zone <> '' AND usage_count > 0 AND
		      NOT (zone_key = ?1 OR zone_key > ?1 || '.' AND zone_key < ?1 || '/')`, dns.Reverse(zone)).Scan(&count, &id)
	return count, id, err
}
