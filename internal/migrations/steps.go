// Package migrations migrates the tables of an older database to today's (schema.sql), one version
// after the other.
package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"

	"meshddns/internal/dnsname"
	"meshddns/internal/sqlite"
)

// Steps returns the steps of this program, the first from version 1 to version 2. Steps are only
// appended.
func Steps() []sqlite.Step {
	return []sqlite.Step{addConfigurationZone, makePlaces, statements(sql4), statements(sql5), statements(sql6), splitAccounts, statements(sql8), statements(sql9), statements(sql10), addZoneKeys}
}

// The SQL of each step, as far as SQL can do it.
var (
	//go:embed 3.sql
	sql3 string
	//go:embed 4.sql
	sql4 string
	//go:embed 5.sql
	sql5 string
	//go:embed 6.sql
	sql6 string
	//go:embed 7.sql
	sql7 string
	//go:embed 8.sql
	sql8 string
	//go:embed 9.sql
	sql9 string
	//go:embed 10.sql
	sql10 string
	//go:embed 11.sql
	sql11 string
)

// statements makes a step of SQL statements.
func statements(text string) sqlite.Step {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
}

// addConfigurationZone migrates to version 2: the configuration gets a zone, as services have one, and
// every zone is written with A-labels, which SQL cannot do.
func addConfigurationZone(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''`); err != nil {
		return err
	}
	services, err := sqlite.Collect(ctx, tx, scanPair, `SELECT id, config FROM services`)
	if err != nil {
		return err
	}
	for _, r := range services {
		zone := dnsname.Parse(domainIn(r[1]))
		if _, err := tx.ExecContext(ctx, `UPDATE services SET zone = ? WHERE id = ?`, zone, r[0]); err != nil {
			return err
		}
	}
	configurations, err := sqlite.Collect(ctx, tx, sqlite.Text, `SELECT domain FROM configuration`)
	for _, domain := range configurations {
		_, err = tx.ExecContext(ctx, `UPDATE configuration SET zone = ?`, dnsname.Parse(domain))
	}
	return err
}

// addZoneKeys migrates to version 11, in which serials have the keys of zones, too.
func addZoneKeys(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, sql11); err != nil {
		return err
	}
	zones, err := sqlite.Collect(ctx, tx, sqlite.Text, `SELECT zone FROM old_zone_serials`)
	for i := 0; i < len(zones) && err == nil; i++ {
		_, err = tx.ExecContext(ctx, `
			INSERT INTO zone_serials (zone, zone_key, serial) SELECT zone, ?, serial FROM old_zone_serials WHERE zone = ?`, dnsname.Reverse(zones[i]), zones[i])
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `DROP TABLE old_zone_serials`)
	}
	return err
}

// domainIn returns the domain in a service's config, "" if there is none. Older rows may have any
// config.
func domainIn(config string) (domain string) {
	var entries map[string]json.RawMessage
	if json.Unmarshal([]byte(config), &entries) != nil {
		return ""
	}
	if json.Unmarshal(entries["domain"], &domain) != nil {
		return ""
	}
	return domain
}

// makePlaces migrates to version 3: values at the providers get places, and due work is stored in the
// database.
func makePlaces(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, sql3); err != nil {
		return err
	}
	services, err := sqlite.Collect(ctx, tx, scanPair, `SELECT id, zone FROM services`)
	if err != nil {
		return err
	}
	for _, r := range services {
		key := dnsname.Reverse(r[1])
		if _, err := tx.ExecContext(ctx, `UPDATE services SET zone_key = ? WHERE id = ?`, key, r[0]); err != nil {
			return err
		}
	}
	configurations, err := sqlite.Collect(ctx, tx, scanPair, `SELECT txt_record_name, domain FROM configuration WHERE id = 1`)
	for _, r := range configurations {
		name := dnsname.Parse(r[0] + "." + r[1])
		if r[0] == "@" {
			name = dnsname.Parse(r[1])
		}
		if _, err := tx.ExecContext(ctx, `UPDATE configuration SET name = ?`, name); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, NULL, '', 0)
			ON CONFLICT DO NOTHING`, name)
	}
	return err
}

func scanPair(row sqlite.Scanner) (pair [2]string, err error) {
	err = row.Scan(&pair[0], &pair[1])
	return pair, err
}
