// The sealing of all secrets with another key.

package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"meshddns/internal/seal"
)

// unerased follows the stored id of a key until the file is written anew.
const unerased = "*"

// unlock finds the key of the secrets. If it is not the first key of the schema, unlock seals them anew, then deletes the copies
// from before upgrades, where they are as they were, and erases what they were. What a full disk does not allow, the next start does.
func (d *Database) unlock(ctx context.Context) (err error) {
	var stored string
	if err := d.Reader.QueryRowContext(ctx, `SELECT seal FROM appliance`).Scan(&stored); err != nil {
		return err
	}
	first := d.schema.Keys.First
	if d.Key, err = d.schema.Keys.Find(strings.TrimSuffix(stored, unerased)); err != nil || stored == first.ID {
		return err
	}
	err = d.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.reseal(ctx, tx, first) })
	if err == nil {
		d.Key = first
		if _, err := d.file.RemoveKept(d.schema.Version(), time.Now().AddDate(100, 0, 0)); err != nil { // the clock may have been set back
			return err
		}
		d.log.Info("all secrets are sealed anew, and the copies from before upgrades are deleted", "key", first.ID)
		if kept, _ := d.eraser.kept(ctx); kept {
			d.log.Warn("what the secrets were stays in Litestream's copies, and in the log of the database until Litestream empties it: stop it, drop its tables and delete its copies")
		}
		// SQLite leaves traces where rows were that it has moved to other pages. VACUUM writes all pages anew.
		_, err = d.Writer.ExecContext(ctx, `VACUUM; UPDATE appliance SET seal = ?`, first.ID)
		d.Erase()
	} else if FaultOf(err) != Full {
		return err
	}
	if err != nil {
		d.log.Error("secrets stay in the database as they were: the next start seals them anew and erases them", "error", err)
	}
	return nil
}

// reseal seals all secrets with another key, if all open.
func (d *Database) reseal(ctx context.Context, tx *sql.Tx, key seal.Key) error {
	for _, s := range d.schema.Secrets {
		table, row, column, hash := s[0], s[1], s[2], s[3]
		ids, err := Collect(ctx, tx, Text, `SELECT CAST(id AS TEXT) FROM `+table)
		for i := 0; i < len(ids) && err == nil; i++ {
			var bound, secret string
			err = tx.QueryRowContext(ctx, `SELECT `+row+`, `+column+` FROM `+table+` WHERE id = ?`, ids[i]).Scan(&bound, d.Key.Open(&secret, table, &bound, column))
			if err == nil && hash != "" && secret != "" {
				_, err = tx.ExecContext(ctx, `UPDATE `+table+` SET `+hash+` = ? WHERE id = ?`, key.Hash(secret), ids[i])
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, `UPDATE `+table+` SET `+column+` = ? WHERE id = ?`, key.Seal(secret, table, bound, column), ids[i])
			}
		}
		if err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE appliance SET seal = ?`, key.ID+unerased)
	return err
}
