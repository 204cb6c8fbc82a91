package migrations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"

	"meshddns/internal/order"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// accounts7 creates the table of accounts in version 7.
const accounts7 = `CREATE TABLE accounts (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    provider          TEXT NOT NULL,
    endpoint          TEXT NOT NULL, -- in its normal form
    access_key_id     TEXT NOT NULL,
    access_key_secret TEXT NOT NULL, -- '': not known
    key_hash          TEXT NOT NULL, -- hex SHA-256 of the secret; '': not known
    UNIQUE (provider, endpoint, access_key_id, key_hash)
) STRICT`

// account is a row of the table.
type account struct {
	id                        int64
	provider, endpoint, keyID string
	Secret                    secrets.Secret
}

func (a account) hash() string {
	if a.Secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(a.Secret))
	return hex.EncodeToString(sum[:])
}

// normal returns the account with its endpoint in the normal form.
func (a account) normal() account {
	if a.provider != "builtin" {
		a.endpoint = provider.NormalEndpoint(a.provider, a.endpoint)
	}
	return a
}

func scanAccount(row sqlite.Scanner) (a account, err error) {
	err = row.Scan(&a.id, &a.provider, &a.endpoint, &a.keyID, &a.Secret)
	return a, err
}

// find returns the id of the account's row, 0 without one.
func (a account) find(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT id FROM accounts WHERE provider = ? AND endpoint = ? AND access_key_id = ? AND key_hash = ?`,
		a.provider, a.endpoint, a.keyID, a.hash()).Scan(&id)
	return id, sqlite.Absent(err, nil)
}

// insert stores the account. An id of 0 means the next one.
func (a account) insert(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `
		INSERT INTO accounts (id, provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (nullif(?, 0), ?, ?, ?, ?, ?)
		RETURNING id`, a.id, a.provider, a.endpoint, a.keyID, a.Secret, a.hash()).Scan(&id)
	return id, err
}

// splitAccounts migrates to version 7: another secret is another account, and an endpoint has one
// spelling. A configuration or service gets an account of its own if its secret is not the newest one
// that was stored for its account. Places keep their accounts.
func splitAccounts(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, sql7); err != nil {
		return err
	}
	accounts, err := sqlite.Collect(ctx, tx, scanAccount, `SELECT id, provider, endpoint, access_key_id, access_key_secret FROM accounts`)
	if err != nil {
		return err
	}
	var last int64 // ids are never used again
	err = tx.QueryRowContext(ctx, `SELECT seq FROM sqlite_sequence WHERE name = 'accounts'`).Scan(&last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	// SQLite cannot change the constraint of a table, and would rewrite all references to a renamed
	// table. So the rows wait in memory, and the foreign keys are checked at the end.
	if _, err := tx.ExecContext(ctx, `PRAGMA defer_foreign_keys = ON; DROP TABLE accounts; `+accounts7); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES ('accounts', ?)`, last); err != nil {
		return err
	}
	if err := restoreAccounts(ctx, tx, accounts); err != nil {
		return err
	}
	if err := splitUsers(ctx, tx, accounts); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		DELETE FROM accounts
		WHERE NOT EXISTS (SELECT 1 FROM places WHERE account = accounts.id) AND
		      NOT EXISTS (SELECT 1 FROM services WHERE account = accounts.id) AND
		      NOT EXISTS (SELECT 1 FROM configuration WHERE account = accounts.id)`)
	return err
}

// restoreAccounts stores the accounts anew. Two accounts with the same normal endpoint are merged,
// except for names with a place at both: those places keep their accounts.
func restoreAccounts(ctx context.Context, tx *sql.Tx, accounts []account) error {
	order.By(accounts, func(a, b account) int { // accounts with a normal endpoint first: they keep their id
		if x, y := a == a.normal(), b == b.normal(); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	for _, a := range accounts {
		to, err := a.normal().find(ctx, tx)
		if err != nil {
			return err
		}
		if to == 0 {
			if _, err := a.normal().insert(ctx, tx); err != nil {
				return err
			}
			continue
		}
		if _, err := a.insert(ctx, tx); err != nil {
			return err
		}
		for _, move := range []string{
			`UPDATE services SET account = ?1 WHERE account = ?2`,
			`UPDATE configuration SET account = ?1 WHERE account = ?2`,
			`UPDATE places SET account = ?1
			 WHERE account = ?2 AND NOT EXISTS (SELECT 1 FROM places p WHERE p.name = places.name AND p.account = ?1)`,
		} {
			if _, err := tx.ExecContext(ctx, move, to, a.id); err != nil {
				return err
			}
		}
	}
	return nil
}

// user is the configuration or a service with its own secret.
type user struct {
	configuration bool
	id            string
	account       int64
	Secret        secrets.Secret
}

func scanUser(row sqlite.Scanner) (u user, err error) {
	err = row.Scan(&u.configuration, &u.id, &u.account, &u.Secret)
	return u, err
}

// splitUsers gives an account of its own to each user whose secret differs from its account's.
func splitUsers(ctx context.Context, tx *sql.Tx, accounts []account) error {
	stored := map[int64]account{}
	for _, a := range accounts {
		stored[a.id] = a
	}
	users, err := sqlite.Collect(ctx, tx, scanUser, `
		SELECT 1, id, account, access_key_secret FROM configuration WHERE provider <> 'builtin'
		UNION ALL
		SELECT 0, id, account, iif(json_type(config, '$.access_key_secret') = 'text', config ->> '$.access_key_secret', '')
		FROM services WHERE account IS NOT NULL AND provider <> 'builtin' AND json_valid(config)`)
	if err != nil {
		return err
	}
	for _, u := range users {
		own := stored[u.account].normal()
		if own.Secret == u.Secret {
			continue
		}
		own.id, own.Secret = 0, u.Secret
		id, err := own.find(ctx, tx)
		if err == nil && id == 0 {
			id, err = own.insert(ctx, tx)
		}
		if err != nil {
			return err
		}
		update := `UPDATE services SET account = ? WHERE id = ?`
		if u.configuration {
			update = `UPDATE configuration SET account = ? WHERE id = ?`
		}
		if _, err := tx.ExecContext(ctx, update, id, u.id); err != nil {
			return err
		}
	}
	return nil
}
