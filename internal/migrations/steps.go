// Package migrations migrates the tables of an older database to today's (schema.sql), one version
// after the other.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"meshddns/internal/dns"
	"meshddns/internal/sqlite"
)

// Oldest is the oldest version that can be migrated.
const Oldest = 10

// files has the SQL of the step to each version: 11.sql and so on. Steps are only appended.
//
//go:embed *.sql
var files embed.FS

// rest is what SQL cannot do of the step to a version.
var rest = map[int]sqlite.Step{11: addZoneKeys}

// Steps returns the steps of this program, the first from version Oldest to the next.
func Steps() (steps []sqlite.Step) {
	for version := Oldest + 1; ; version++ {
		text, err := files.ReadFile(fmt.Sprint(version, ".sql"))
		if err != nil {
			return steps
		}
		steps = append(steps, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, string(text))
			if more := rest[version]; err == nil && more != nil {
				err = more(ctx, tx)
			}
			return err
		})
	}
}

// addZoneKeys fills the serials of version 11, which have the keys of zones, too.
func addZoneKeys(ctx context.Context, tx *sql.Tx) error {
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
