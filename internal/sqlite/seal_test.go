package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"meshddns/internal/seal"
	"meshddns/test/support"
)

// vault is a schema of one table with secrets and their hashes.
var vault = Schema{
	Tables: `CREATE TABLE appliance (id INTEGER PRIMARY KEY, seal TEXT NOT NULL DEFAULT '') STRICT;
		CREATE TABLE vault (id TEXT NOT NULL PRIMARY KEY, secret TEXT NOT NULL, hash TEXT NOT NULL) STRICT, WITHOUT ROWID`,
	Own: []string{"appliance"},
	First: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO appliance (id) VALUES (1)`)
		return err
	},
	Probe: `SELECT 1 FROM appliance`, Oldest: 3, Secrets: [][4]string{{"vault", "id", "secret", "hash"}},
}

// keysOf reads keys of equal octets; 0 is none.
func keysOf(t *testing.T, octets ...byte) seal.Keys {
	t.Helper()
	var lines []string
	for _, o := range octets {
		if o == 0 {
			lines = append(lines, "none")
		} else {
			lines = append(lines, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{o}, 32)))
		}
	}
	k, err := seal.Read(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func openVault(t *testing.T, path string, log *strings.Builder, octets ...byte) (*Database, error) {
	t.Helper()
	schema := vault
	if len(octets) > 0 {
		schema.Keys = keysOf(t, octets...)
	}
	return Open(t.Context(), path, schema, slog.New(slog.NewTextHandler(log, nil)))
}

// mustOpenVault opens the database, waits until the WAL is emptied, and closes it after looking at it.
func mustOpenVault(t *testing.T, path string, look func(d *Database), octets ...byte) (log string) {
	t.Helper()
	var lines strings.Builder
	d, err := openVault(t, path, &lines, octets...)
	if err != nil {
		t.Fatal(err)
	}
	d.WaitErased()
	look(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return lines.String()
}

// store stores secrets at random ids, so that SQLite moves rows between pages.
func (d *Database) store(t *testing.T, count int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range count {
		id := fmt.Sprintf("%016x", random.Uint64())
		secret := fmt.Sprintf("canary%05d%s", i, strings.Repeat("y", random.IntN(400)))
		_, err := d.Writer.Exec(`INSERT INTO vault VALUES (?, ?, ?)`, id, d.Key.Seal(secret, "vault", id, "secret"), d.Key.Hash(secret))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// opened counts the secrets that open, with hashes that fit.
func (d *Database) opened(t *testing.T) (count int) {
	t.Helper()
	var id, secret, hash string
	rows, err := d.Reader.Query(`SELECT id, secret, hash FROM vault`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&id, d.Key.Open(&secret, "vault", &id, "secret"), &hash); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(secret, "canary") && hash == d.Key.Hash(secret) {
			count++
		}
	}
	return count
}

var canary = regexp.MustCompile(`canary\d{5}`)

// inClear counts the secrets that the files of a database have in clear.
func inClear(t *testing.T, path string) int {
	t.Helper()
	found := map[string]bool{}
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + suffix)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, secret := range canary.FindAll(content, -1) {
			found[string(secret)] = true
		}
	}
	return len(found)
}

// TestReseal: secrets are sealed, sealed with another key, and unsealed; what they were is in no octet of the files, while they are
// open. Without VACUUM a few of them stay.
func TestReseal(t *testing.T) {
	const count = 3000
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) { d.store(t, count) })
	for _, c := range []struct {
		octets []byte
		clear  int
		told   bool
	}{{[]byte{1}, 0, true}, {[]byte{1}, 0, false}, {[]byte{2, 1}, 0, true}, {[]byte{2}, 0, false}, {[]byte{0, 2}, count, true}, {nil, count, false}, {[]byte{0, 1}, count, false}, {[]byte{3, 1}, 0, true}} {
		log := mustOpenVault(t, path, func(d *Database) {
			var stored string
			if err := d.Reader.QueryRow(`SELECT seal FROM appliance`).Scan(&stored); err != nil || stored != d.Key.ID || (stored == "") != (c.clear > 0) {
				t.Errorf("%v: sealed with %q, the key is %q, %v", c.octets, stored, d.Key.ID, err)
			}
			if n := d.opened(t); n != count {
				t.Errorf("%v: %d of %d open", c.octets, n, count)
			}
			if n := inClear(t, path); n != c.clear {
				t.Errorf("%v: %d are in clear, want %d", c.octets, n, c.clear)
			}
		}, c.octets...)
		if told := strings.Contains(log, "sealed anew"); told != c.told {
			t.Errorf("%v: told %v:\n%s", c.octets, told, log)
		}
	}
}

// TestLostKey: without the key the database does not open, the error names it, and the file stays.
func TestLostKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) { d.store(t, 3) }, 1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, octets := range [][]byte{nil, {2}, {2, 3}, {0, 2}} {
		_, err := openVault(t, path, &strings.Builder{}, octets...)
		if id := keysOf(t, 1).First.ID; err == nil || !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "-seal-key") {
			t.Errorf("%v: %v, want %s and the flag", octets, err, id)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Error("the file has changed", err)
	}
}

// TestDamagedSecret: a secret that was changed or copied ends a rotation with its table and row, and nothing is changed.
func TestDamagedSecret(t *testing.T) {
	for name, change := range map[string]string{
		"copied":  `UPDATE vault SET secret = (SELECT max(secret) FROM vault WHERE id > 'a') WHERE id = 'a'`,
		"changed": `UPDATE vault SET secret = replace(secret, substr(secret, 20, 1), iif(substr(secret, 20, 1) = 'A', 'B', 'A')) WHERE id = 'a'`,
		"plain":   `UPDATE vault SET secret = 'plain' WHERE id = 'a'`,
	} {
		path := filepath.Join(t.TempDir(), "v.db")
		kept := path + ".v1"
		mustOpenVault(t, path, func(d *Database) {
			d.store(t, 3)
			if _, err := d.Writer.Exec(`INSERT INTO vault VALUES ('a', ?, ''), ('z', ?, '')`,
				d.Key.Seal("x", "vault", "a", "secret"), d.Key.Seal("y", "vault", "z", "secret")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Writer.Exec(change); err != nil {
				t.Fatal(err)
			}
			support.WriteFile(t, kept, "a copy")
		}, 1)
		_, err := openVault(t, path, &strings.Builder{}, 2, 1)
		if err == nil || !strings.Contains(err.Error(), `table vault, row "a"`) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Error("the copy is deleted though nothing was sealed anew", err)
		}
		mustOpenVault(t, path, func(d *Database) {
			if d.Key.ID != keysOf(t, 1).First.ID {
				t.Errorf("%s: sealed with %s", name, d.Key.ID)
			}
		}, 1)
	}
}

// TestUnerased: after a kill behind the commit the next start seals once more and erases.
func TestUnerased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) {
		d.store(t, 3)
		if _, err := d.Writer.Exec(`UPDATE appliance SET seal = seal || '*'; INSERT INTO vault VALUES ('a', 'canary99999', ''); PRAGMA secure_delete = off; DELETE FROM vault WHERE id = 'a'`); err != nil {
			t.Fatal(err)
		}
	}, 1)
	if inClear(t, path) != 1 {
		t.Fatal("there is nothing to erase")
	}
	mustOpenVault(t, path, func(d *Database) {
		if n := inClear(t, path); n != 0 || d.opened(t) != 3 {
			t.Errorf("%d in clear, %d open", n, d.opened(t))
		}
	}, 1)
}

// TestCopiesGo: the copies from before upgrades are deleted when secrets are sealed anew, also with a time ahead of the clock, and stay else.
func TestCopiesGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) {})
	for _, c := range []struct {
		octets []byte
		stay   bool
	}{{nil, true}, {[]byte{1}, false}, {[]byte{1}, true}, {[]byte{2, 1}, false}} {
		copies := []string{path + ".v1", path + ".v2", path + ".v2-3"}
		for _, name := range copies {
			support.WriteFile(t, name, "a copy")
			if err := os.Chtimes(name, time.Time{}, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		mustOpenVault(t, path, func(*Database) {}, c.octets...)
		for _, name := range copies {
			if _, err := os.Stat(name); (err == nil) != c.stay {
				t.Errorf("%v: %s: %v, want that it stays: %v", c.octets, name, err, c.stay)
			}
		}
	}
}

// TestResealBesideLitestream: what Litestream's tables keep from being erased is warned of, once.
func TestResealBesideLitestream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) {
		d.store(t, 3)
		if _, err := d.Writer.Exec(`CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)`); err != nil {
			t.Fatal(err)
		}
	})
	for _, want := range []int{1, 0} {
		log := mustOpenVault(t, path, func(*Database) {}, 1)
		if n := strings.Count(log, "level=WARN"); n != want {
			t.Errorf("%d warnings, want %d:\n%s", n, want, log)
		}
	}
}

// TestCopiesStayWithoutCommit: the copies from before upgrades stay if the commit of what is sealed anew fails.
func TestCopiesStayWithoutCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) {
		if _, err := d.Writer.Exec(`CREATE TABLE child (id TEXT REFERENCES vault (id) DEFERRABLE INITIALLY DEFERRED);
			CREATE TRIGGER fails AFTER UPDATE ON appliance BEGIN INSERT INTO child VALUES ('nobody'); END`); err != nil {
			t.Fatal(err)
		}
	})
	support.WriteFile(t, path+".v1", "a copy")
	if _, err := openVault(t, path, &strings.Builder{}, 1); err == nil {
		t.Fatal("the commit does not fail")
	}
	if _, err := os.Stat(path + ".v1"); err != nil {
		t.Error("the copy is deleted though nothing was sealed anew", err)
	}
}

// TestResealWithoutRoom: on a disk without room the secrets stay as they are, and a later start seals them.
func TestResealWithoutRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.db")
	mustOpenVault(t, path, func(d *Database) { d.store(t, 50) })
	schema := vault
	schema.Keys = keysOf(t, 1)
	full := func(room int) { // pages
		schema.Own = []string{"appliance"}
		d, err := Open(t.Context(), path, vault, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var log strings.Builder
		d.schema, d.log = schema, slog.New(slog.NewTextHandler(&log, nil))
		if _, err := d.Writer.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, room)); err != nil {
			t.Fatal(err)
		}
		if err := d.unlock(t.Context()); err != nil || d.Key.ID != "" || d.opened(t) != 50 {
			t.Errorf("%v, sealed with %q", err, d.Key.ID)
		}
		if !strings.Contains(log.String(), "the next start") {
			t.Errorf("not told:\n%s", &log)
		}
	}
	full(1)
	mustOpenVault(t, path, func(d *Database) {
		if d.Key.ID == "" || d.opened(t) != 50 || inClear(t, path) != 0 {
			t.Error("a later start does not seal")
		}
	}, 1)
}
