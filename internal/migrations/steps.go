// Package migrations migrates the tables of an older database to today's (schema.sql), one version
// after the other.
package migrations

import (
	"context"
	"database/sql"
	_ "embed"

	"meshddns/internal/dns"
	"meshddns/internal/sqlite"
)

// Oldest is the oldest version that can be migrated.
const Oldest = 10

// Steps returns the steps of this program, the first from version Oldest to the next. Steps are only
// appended.
func Steps() []sqlite.Step {
	return []sqlite.Step{addZoneKeys}
}

// sql11 is the SQL of the step to version 11, as far as SQL can do it.
//
//go:embed 11.sql
var sql11 string

// addZoneKeys migrates to version 11, in which serials have the keys of zones, too.
func addZoneKeys(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, sql11); err != nil {
		return err
	}
	zones, err := sqlite.Collect(ctx, tx, sqlite.Text, `SELECT zone FROM old_zone_serials`)
	for i := 0; i < len(zones) && err == nil; i++ {
		_, err = tx.ExecContext(ctx, `
			INSERT INTO zone_serials (zone, zone_key, serial) SELECT zone, ?, serial FROM old_zone_serials WHERE zone = ?`, dns.Reverse(zones[i]), zones[i])
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `DROP TABLE old_zone_serials`)
	}
	return err
}
