package ledger

import (
	"context"
	"database/sql"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

// SaveOptions stores the options of a usage. Without any, the usage has no row.
func SaveOptions(ctx context.Context, tx *sql.Tx, usage int64, o mesh.Options) error {
	if o.Equal(mesh.Options{}) {
		_, err := tx.ExecContext(ctx, `DELETE FROM usage_options WHERE usage = ?`, usage)
		return err
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (?, ?, ?, ?)
		ON CONFLICT (usage) DO UPDATE SET formats = excluded.formats, checking = excluded.checking, peer_id = excluded.peer_id`,
		usage, sqlite.TextList(o.Formats), o.Check, o.PeerID)
	return err
}
