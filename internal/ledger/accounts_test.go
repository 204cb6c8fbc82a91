package ledger_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/ledger"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// TestSecretsThatNothingNeedsGo has three secrets of one key: a value stands that was published with
// the first, the second is a service's, and nothing uses the third. It stays as long as the value may
// be withdrawn with it, and no longer.
func TestSecretsThatNothingNeedsGo(t *testing.T) {
	for what, test := range map[string]struct {
		happens func(t *testing.T, g *ledger.Ledger, db *sql.DB)
		want    []string
	}{
		"nothing": {func(*testing.T, *ledger.Ledger, *sql.DB) {}, []string{"one", "two", "three"}},
		"the value is gone": {func(t *testing.T, g *ledger.Ledger, _ *sql.DB) {
			gone := reconcile.Place{ID: 1, Name: "x", Account: reconcile.Account{ID: 1}}
			if err := g.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{gone}}); err != nil {
				t.Fatal(err)
			}
		}, []string{"two"}},
		"the first gets a user": {func(t *testing.T, _ *ledger.Ledger, db *sql.DB) { use(t, db, "one") }, []string{"one", "two"}},
	} {
		t.Run(what, func(t *testing.T) {
			schema, err := os.ReadFile("../../schema.sql")
			if err != nil {
				t.Fatal(err)
			}
			db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "_foreign_keys=1&_txlock=immediate")
			db.SetMaxOpenConns(1)
			exec(t, db, string(schema))
			for _, secret := range []string{"one", "two", "three"} {
				use(t, db, secret)
			}
			exec(t, db, `
				INSERT INTO names (name, version, due, lane, pass) VALUES ('x', 1, NULL, '', 0);
				INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
				VALUES ('x', 1, '', '', 'withdrawing', 'v', '', 0, 0, '', '', '', 0, '', '');
				INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
				VALUES ('s', '', '{}', '', '', '', '', '[]', 2, '', '')`)
			test.happens(t, ledger.New(db, sqlite.NewQueue(db, func() {}).Do, time.Now, "0123456789ab"), db)
			got, err := sqlite.Collect(t.Context(), db, sqlite.Text, `SELECT access_key_secret FROM accounts ORDER BY id`)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("kept are %q, want %q; %v", got, test.want, err)
			}
		})
	}
}

func exec(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
}

// use says that something is to use a secret.
func use(t *testing.T, db *sql.DB, secret string) {
	t.Helper()
	tx, err := db.Begin()
	if err == nil {
		_, err = ledger.UseAccount(t.Context(), tx, reconcile.Account{Provider: "cloudflare", AccessKeyID: "token", Secret: secrets.Secret(secret)})
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}
