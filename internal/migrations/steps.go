// Package migrations brings the tables of an older database to today's (schema.sql), one
// version at a time.
package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"

	"meshddns/internal/dnsname"
	"meshddns/internal/sqlite"
)

// Steps gives the steps of this program, the first from version 1 to version 2. The list only
// grows.
func Steps() []sqlite.Step {
	return []sqlite.Step{addConfigurationZone, makePlaces, statements(sql4), statements(sql5), statements(sql6), splitAccounts}
}

// What leads to a version, as far as SQL can say it.
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
)

// statements makes a step of what SQL can say alone.
func statements(text string) sqlite.Step {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
}

// addConfigurationZone leads to version 2: the configuration has a zone as
// services have, and every zone is written anew with A-labels, which SQL cannot.
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

// domainIn gives the domain that a service's config has. An older row may have anything,
// and then no domain.
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

// makePlaces leads to version 3: what stands at the providers has places, and
// what is due is in the database.
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
