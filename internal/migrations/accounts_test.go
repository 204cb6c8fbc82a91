package migrations

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// version6 makes a database with the tables of version 6.
func version6(t *testing.T) *sql.DB {
	t.Helper()
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "_foreign_keys=1")
	db.SetMaxOpenConns(1)
	first, err := os.ReadFile("../../test/oldfile/schema-1.sql")
	if err == nil {
		_, err = db.Exec(string(first))
	}
	if err != nil {
		t.Fatal(err)
	}
	steps(t, db, Steps()[:5])
	return db
}

// steps runs steps in one transaction.
func steps(t *testing.T, db *sql.DB, steps []sqlite.Step) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, step := range steps {
		if err := step(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns the rows of a query, each as a line.
func rowsOf(t *testing.T, db *sql.DB, query string) (lines []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	cells, into := make([]sql.Null[string], len(columns)), make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, cell := range cells {
			if !cell.Valid {
				cell.V = "NULL"
			}
			words = append(words, cell.V)
		}
		lines = append(lines, strings.Join(words, " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// oldAccounts are rows of version 6, in which the newest secret of a key id won: accounts, their users,
// places and lanes.
const oldAccounts = `
	INSERT INTO accounts VALUES
	    (3, 'cloudflare', '', 'token', 'new'), (4, 'powerdns', 'http://NS.example:80/', 'localhost', 'pdns'), (5, 'powerdns', 'http://ns.example', 'localhost', 'pdns'),
	    (6, 'builtin', '', '', ''), (7, 'alidns', '', 'lost', ''), (8, 'rfc2136', '192.0.2.53', 'key.', 'tsig'), (9, 'webhook', 'HTTPS://bridge.example/', 'b', 'of a place');
	UPDATE sqlite_sequence SET seq = 40 WHERE name = 'accounts';
	INSERT INTO configuration VALUES (1, 'cloudflare', 'token', 'of the configuration', '', 'example.com', '_txt', 'auto', NULL, NULL, 1, '[]', '', 'example.com', '_txt.example.com', 3);
	INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at) VALUES
	    ('cf-old',  '', '{"access_key_secret":"old"}', '', '', '', 'cloudflare', '[]', 3, '', '1'),
	    ('cf-old2', '', '{"access_key_secret":"old"}', '', '', '', 'cloudflare', '[]', 3, '', '2'),
	    ('cf-new',  '', '{"access_key_secret":"new"}', '', '', '', 'cloudflare', '[]', 3, '', '3'),
	    ('cf-none', '', '{"access_key_secret":7}',     '', '', '', 'cloudflare', '[]', 3, '', '3'),
	    ('pdns-a',  '', '{"access_key_secret":"pdns"}', '', '', '', 'powerdns', '[]', 4, '', ''),
	    ('pdns-b',  '', '{"access_key_secret":"pdns"}', '', '', '', 'powerdns', '[]', 5, '', ''),
	    ('inner',   '', '{"access_key_secret":"any"}', '', '', '', 'builtin', '[]', 6, '', ''),
	    ('bind',    '', '{"access_key_secret":"tsig"}', '', '', '', 'rfc2136', '[]', 8, '', ''),
	    ('none',    '', 'no JSON', NULL, '', '', '', '[]', NULL, '', '');
	INSERT INTO names (name, version, due, lane, pass) VALUES
	    ('asked', 1, 1, 'ask', 2), ('changed', 2, 2, '', 2), ('idle', 3, NULL, '', 2), ('looked', 4, 4, 'look', 2),
	    ('waits', 5, 5, 'zone example.com cloudflare token ', 2), ('both', 6, NULL, '', 2);
	INSERT INTO places VALUES
	    (11, 'asked', 3, 'example.com', 'z', 'published', 'v', 'v', '', 0, 0, '', '', 0, '', ''), (12, 'idle', 4, 'example.com', '', 'published', 'v', 'v', '', 0, 0, '', '', 0, '', ''),
	    (13, 'both', 4, 'example.com', '', 'withdrawing', 'v', '', '', 0, 0, '', '', 0, '', ''), (14, 'both', 5, 'example.com', '', 'published', 'v', 'v', '', 0, 0, '', '', 0, '', ''),
	    (15, 'looked', 7, '', '', 'leftover', 'v', '', '*', 4, 0, 'credentials_gone', 'alidns', 3, '', ''), (16, 'waits', 9, '', '', 'leftover', 'v', '', '', 0, 0, '', '', 0, '', '');
	DELETE FROM places WHERE id = 16;
	INSERT INTO places VALUES (19, 'waits', 9, '', '', 'leftover', 'v', '', '', 0, 0, '', '', 0, '', '');
	DELETE FROM places WHERE id = 19;
	DELETE FROM accounts WHERE id = 9`

// TestMigratedAccounts migrates version 6 to today's: each secret has an account of its own, endpoints of
// one address are one account, and names keep their waits.
func TestMigratedAccounts(t *testing.T) {
	db := version6(t)
	if _, err := db.Exec(oldAccounts); err != nil {
		t.Fatal(err)
	}
	steps(t, db, Steps()[5:6])
	hash := func(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret))) }
	for query, want := range map[string][]string{
		`SELECT id, provider, endpoint, access_key_id, access_key_secret FROM accounts ORDER BY id`: {
			"3 | cloudflare |  | token | new", "4 | powerdns | http://NS.example:80/ | localhost | pdns", "5 | powerdns | http://ns.example | localhost | pdns",
			"6 | builtin |  |  | ", "7 | alidns |  | lost | ", "8 | rfc2136 | 192.0.2.53:53 | key. | tsig",
			"41 | cloudflare |  | token | of the configuration", "42 | cloudflare |  | token | old", "43 | cloudflare |  | token | ",
		},
		`SELECT DISTINCT access_key_secret, key_hash FROM accounts WHERE key_hash <> '' ORDER BY 1`: {
			"new | " + hash("new"), "of the configuration | " + hash("of the configuration"), "old | " + hash("old"), "pdns | " + hash("pdns"), "tsig | " + hash("tsig"),
		},
		`SELECT id, account FROM services WHERE account IS NOT NULL ORDER BY id`: {
			"bind | 8", "cf-new | 3", "cf-none | 43", "cf-old | 42", "cf-old2 | 42", "inner | 6", "pdns-a | 5", "pdns-b | 5",
		},
		`SELECT account FROM configuration`: {"41"},
		`SELECT id, name, account, zone_id, state, code, detail, key_of, attempts FROM places ORDER BY id`: {
			"11 | asked | 3 | z | published |  |  |  | 0", "12 | idle | 5 |  | published |  |  |  | 0", "13 | both | 4 |  | withdrawing |  |  |  | 0",
			"14 | both | 5 |  | published |  |  |  | 0", "15 | looked | 7 |  | leftover | credentials_gone | alidns |  | 3",
		},
		`SELECT name, version, due, lane, pass, look FROM names ORDER BY version`: {
			"asked | 1 | 1 | ask | 2 | NULL", "changed | 2 | 2 |  | 2 | NULL", "idle | 3 | NULL |  | 2 | NULL", "looked | 4 | NULL |  | 2 | 4",
			"waits | 5 | 5 | ask | 2 | NULL", "both | 6 | NULL |  | 2 | NULL",
		},
		`SELECT name, seq FROM sqlite_sequence WHERE name IN ('accounts', 'places') ORDER BY name`: {"accounts | 43", "places | 19"},
		`SELECT what, count FROM totals WHERE count > 0 ORDER BY what`:                             {"leftover | 1", "services | 9"},
		`PRAGMA foreign_key_check`: nil,
	} {
		if got := rowsOf(t, db, query); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
