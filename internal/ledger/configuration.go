// The row of the configuration.

package ledger

import (
	"context"
	"database/sql"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// ErrNoConfiguration is the error when no configuration is stored.
const ErrNoConfiguration = sqlite.Refusal(msg.UnknownConfiguration)

// SelectConfiguration reads the configuration, or returns ErrNoConfiguration.
func (g *Ledger) SelectConfiguration(ctx context.Context, q sqlite.Queryer) (c mesh.Configuration, err error) {
	var row string
	err = q.QueryRowContext(ctx, `
		SELECT `+SecretRow+`, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		       retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, account
		FROM configuration WHERE id = 1`).Scan(
		&row, &c.Provider, &c.AccessKeyID, g.config.Key.Open((*string)(&c.Secret), "configuration", &row, "access_key_secret"), &c.Endpoint, &c.Domain, &c.TXTRecordName, &c.SyncMode,
		&c.RetryInterval, &c.MaxRetries, &c.Enabled, (*sqlite.TextList)(&c.Endpoints), &c.UpdatedAt, &c.Zone, &c.AccountID)
	return c, sqlite.Absent(err, ErrNoConfiguration)
}

// SaveConfiguration stores the configuration.
func (g *Ledger) SaveConfiguration(ctx context.Context, tx *sql.Tx, c mesh.Configuration) error {
	_, err := tx.ExecContext(ctx, `
		INSERT OR REPLACE INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name,
		    sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, name, account)
		VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.Provider, c.AccessKeyID, g.config.Key.Seal(string(c.Secret), "configuration", secretRow(1, c.Provider, c.Endpoint, c.AccessKeyID), "access_key_secret"), c.Endpoint, c.Domain, c.TXTRecordName, c.SyncMode,
		c.RetryInterval, c.MaxRetries, c.Enabled, sqlite.TextList(c.Endpoints), c.UpdatedAt, dns.Parse(c.Domain), c.RecordName(), c.AccountID)
	return err
}
