// Package migrations migrates the tables of an older database to today's (schema.sql), one version
// after the other.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"meshddns/internal/sqlite"
)

// Oldest is the oldest version that can be migrated.
const Oldest = 10

// files has the SQL of the step to each version: 11.sql and so on. Steps are only appended.
//
//go:embed *.sql
var files embed.FS

// Steps returns the steps of this program, the first from version Oldest to the next.
func Steps() (steps []sqlite.Step) {
	for version := Oldest + 1; ; version++ {
		text, err := files.ReadFile(fmt.Sprint(version, ".sql"))
		if err != nil {
			return steps
		}
		steps = append(steps, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, string(text))
			return err
		})
	}
}
