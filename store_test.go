package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func mustOpen(t *testing.T, path string) *store {
	t.Helper()
	s, err := openStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// filledStore is a store with one service.
func filledStore(t *testing.T) *store {
	t.Helper()
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	if err := s.CreateService(t.Context(), service{ID: "svc", Name: "Site", Config: `{"domain":"example.com"}`, Zone: "example.com"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func custom(prefix string) usage { return usage{ServiceID: "svc", Mode: "custom", Prefix: prefix} }

// A file is made, and keeps its owner and its content when it is opened again.
func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	var owners []string
	for range 3 {
		s, err := openStore(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := s.Owner(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, owner)
		if err := s.CreateService(t.Context(), service{ID: fmt.Sprint("svc-", len(owners)), Name: "x", Config: "{}"}); err != nil {
			t.Fatal(err)
		}
		if services, err := s.Services(t.Context()); err != nil || len(services) != len(owners) {
			t.Errorf("%d services, %v, want %d", len(services), err, len(owners))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(owners[0]) || owners[1] != owners[0] || owners[2] != owners[0] {
		t.Errorf("owners %q", owners)
	}
	other, err := mustOpen(t, filepath.Join(t.TempDir(), "other.db")).Owner(t.Context())
	if err != nil || other == owners[0] {
		t.Errorf("another database has the owner %q too, %v", other, err)
	}
}

// The schema's version is that of the program, and a newer file is left alone.
func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	s := mustOpen(t, path)
	var version int
	if err := s.reader.QueryRow(`PRAGMA user_version`).Scan(&version); err != nil || version != len(migrations) {
		t.Errorf("version %d, %v, want %d", version, err, len(migrations))
	}
	if _, err := s.writer.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)+1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openStore(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "newer") || !strings.Contains(err.Error(), path) {
		t.Errorf("openStore: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Error("the file is another one", err)
	}
}

// A migration that breaks off leaves the file as it was.
func TestMigrationIsOneTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	before := migrations
	t.Cleanup(func() { migrations = before })
	mustOpen(t, path).Close()
	migrations = append(append([]string{}, before...), `CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)`)
	if _, err := openStore(t.Context(), path); err == nil {
		t.Fatal("a broken migration succeeds")
	}
	migrations = before
	s := mustOpen(t, path)
	var count int
	if err := s.reader.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name = 'half'`).Scan(&count); err != nil || count != 0 {
		t.Errorf("%d tables of the broken migration, %v", count, err)
	}
}

// A file of version 1 has its zone after the migration.
func TestMigrationFindsTheZone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{schemaSQL, `PRAGMA user_version = 1`, `
		INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, enabled, txt_endpoints, updated_at)
		VALUES (1, 'builtin', '-', '-', '', 'Mesh.Bücher.Example.', '@', 'manual', 1, '[]', '2026-01-02T03:04:05.678Z')`, `
		INSERT INTO services (id, name, config, zone, provider, created_at, updated_at) VALUES
		    ('a', 'A', '{"domain":"Lesen.Bücher.Example"}', 'lesen.bücher.example', 'builtin', '2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z'),
		    ('b', 'B', 'nothing', '', '', '2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z')`} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path)
	for _, want := range []string{"mesh.xn--bcher-kva.example", "lesen.xn--bcher-kva.example"} {
		if zone, _, err := s.BuiltinZone(t.Context(), textList{"a." + want, want}); err != nil || zone != want {
			t.Errorf("zone %q, %v", zone, err)
		}
	}
}

// Nobody but the owner reads the file or its companions: they hold access keys.
func TestFileMode(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"new": 0, "open to all": 0o644, "read-only": 0o400} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meshddns.db")
			if mode != 0 {
				if err := os.WriteFile(path, nil, mode); err != nil {
					t.Fatal(err)
				}
			}
			if mode == 0o400 && os.Getuid() != 0 {
				t.Skip("only root opens it")
			}
			mustOpen(t, path)
			files, err := filepath.Glob(path + "*")
			if err != nil || len(files) < 2 {
				t.Fatal(files, err)
			}
			for _, file := range files {
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", file, info.Mode(), err)
				}
			}
		})
	}
}

// So it is after a program was killed that had left them open to all.
func TestFileModeOfLeftLog(t *testing.T) {
	killed := filledStore(t)
	path := filepath.Join(t.TempDir(), "meshddns.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(killed.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path)
	if services, err := s.Services(t.Context()); err != nil || len(services) != 1 {
		t.Errorf("%d services, %v", len(services), err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", suffix, info.Mode(), err)
		}
	}
}

// What a file and its folder may be called is not this program's business.
func TestOddFileNames(t *testing.T) {
	for _, name := range []string{
		"a b.db", "what?.db", "100%.db", "100%41.db", "a#b.db", "a&b=c.db", "a;b.db", "数据.db", "file:x.db", ":memory:", "x'y\".db", "a\\b.db", "-.db", "\xff.db",
		"folder/x.db", "what?mode=memory/x.db", "50%/x.db", "#/x.db", "*/x.db", "[a/x.db", "[a-z]/x.db", `back\slash/x.db`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, path)
			if err := s.CreateService(t.Context(), service{ID: "svc", Config: "{}"}); err != nil {
				t.Fatal(err)
			}
			file, err := s.Backup(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(filepath.Dir(path))
			if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
				t.Errorf("in the folder: %v, %v", entries, err)
			}
			if info, err := os.Stat(path); err != nil || info.Size() == 0 {
				t.Errorf("the file is empty: %v", err)
			}
		})
	}
}

// A path may be relative, and may begin with two slashes.
func TestPathsOfOneFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := mustOpen(t, "meshddns.db")
	owner, err := s.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"./meshddns.db", "../" + filepath.Base(dir) + "/meshddns.db", dir + "/meshddns.db", "/" + dir + "/meshddns.db"} {
		again, err := openStore(t.Context(), path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, err := again.Owner(t.Context()); err != nil || got != owner {
			t.Errorf("%s: owner %q, %v", path, got, err)
		}
		again.Close()
	}
}

// A folder's name is no pattern: only its own left backups are removed.
func TestLeftBackupsOfOthers(t *testing.T) {
	dir := t.TempDir()
	others := filepath.Join(dir, "other", ".meshddns-backup-1")
	for _, path := range []string{others, filepath.Join(dir, "*")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, filepath.Join(dir, "*", "meshddns.db"))
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
}

// What cannot be opened is an error of start-up.
func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a folder": dir, "no folder": filepath.Join(dir, "none", "x.db"), "another kind of file": text} {
		if s, err := openStore(t.Context(), path); err == nil {
			t.Errorf("%s: no error", name)
			s.Close()
		}
	}
}

// A folder that a backup left behind when the program was killed is removed,
// and nothing else is.
func TestLeftBackupsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".meshddns-backup-123", "backup"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "copy.db"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, filepath.Join(dir, "meshddns.db"))
	left, err := filepath.Glob(filepath.Join(dir, "*backup*", "*"))
	hidden, err2 := filepath.Glob(filepath.Join(dir, ".meshddns*"))
	if err != nil || err2 != nil || len(left) != 1 || len(hidden) != 0 {
		t.Errorf("left: %q %q", left, hidden)
	}
}

// Two programs on one file wait for each other, and see each other's work.
func TestOpenTwice(t *testing.T) {
	first := filledStore(t)
	second := mustOpen(t, first.path)
	const each = 50
	var writing sync.WaitGroup
	for i, s := range []*store{first, second} {
		for n := range each {
			writing.Go(func() {
				if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprintf("p-%d-%d", i, n)), networkID(n)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	writing.Wait()
	for _, s := range []*store{first, second} {
		if usages, err := s.Usages(t.Context(), usageFilter{}, 1000); err != nil || len(usages) != 2*each {
			t.Errorf("%d usages, %v", len(usages), err)
		}
	}
}

// The index refuses what no check before it could: two programs, one prefix.
func TestIndexBeatsTheRace(t *testing.T) {
	first := filledStore(t)
	second := mustOpen(t, first.path)
	for round := range 25 {
		var mu sync.Mutex
		count := map[string]int{}
		var writing sync.WaitGroup
		for i := range 8 {
			s := []*store{first, second}[i%2]
			prefix := []string{"office", "OFFICE", "Office", "oFFICE"}[i/2] + fmt.Sprint(round)
			writing.Go(func() {
				_, err := s.CreateUsage(t.Context(), custom(prefix), networkID(i))
				mu.Lock()
				defer mu.Unlock()
				count[fmt.Sprint(err)]++
			})
		}
		writing.Wait()
		if want := map[string]int{"<nil>": 1, errPrefixTaken.Error(): 7}; !maps.Equal(count, want) {
			t.Fatalf("round %d: %v, want %v", round, count, want)
		}
	}
	var loose int
	if err := first.reader.QueryRow(`SELECT count(*) FROM bindings WHERE usage_id NOT IN (SELECT id FROM usages)`).Scan(&loose); err != nil || loose != 0 {
		t.Errorf("%d bindings without a usage, %v", loose, err)
	}
}

// The schema itself refuses what the program never writes.
func TestSchemaRefuses(t *testing.T) {
	s := filledStore(t)
	id, err := s.CreateUsage(t.Context(), custom("Office"), 1)
	if err != nil {
		t.Fatal(err)
	}
	const usages = `INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, created_at) VALUES `
	for name, statement := range map[string]string{
		"a prefix twice":              usages + `('u', 'svc', 'mesh_sync', 'custom', 'Office', 'TXT', '', 1, '[]', '')`,
		"in other letter case":        usages + `('u', 'svc', 'mesh_sync', 'custom', 'oFFICE', 'TXT', '', 1, '[]', '')`,
		"a service that is not there": usages + `('u', 'gone', 'mesh_sync', 'auto', 'x', 'TXT', '', 1, '[]', '')`,
		"an unknown mode":             usages + `('u', 'svc', 'mesh_sync', 'nope', 'x', 'TXT', '', 1, '[]', '')`,
		"a usage that is not there":   `INSERT INTO bindings (id, network_id, usage_id, provider_id, status) VALUES ('b', 1, 'gone', 'svc', 'active')`,
		"a second binding":            `INSERT INTO bindings (id, network_id, usage_id, provider_id, status) VALUES ('b', 1, '` + id + `', 'svc', 'active')`,
		"an unknown status":           `UPDATE bindings SET status = 'nope'`,
		"a text for a number":         `UPDATE bindings SET network_id = 'x'`,
		"a second row of the owner":   `INSERT INTO appliance (id, owner) VALUES (2, 'x')`,
		"a service that is used":      `DELETE FROM services`,
		"a usage's service, renamed":  `UPDATE services SET id = 'other'`,
	} {
		if _, err := s.writer.Exec(statement); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A usage and its binding: both or neither.
func TestCreateUsage(t *testing.T) {
	s := filledStore(t)
	ctx := t.Context()
	id, err := s.CreateUsage(ctx, custom("Office"), 1<<64-1)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := s.Usage(ctx, id); err != nil || u.Prefix != "Office" || u.Network == nil || *u.Network != 1<<64-1 || u.Status != statusActive || !u.Exclusive {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	for name, test := range map[string]struct {
		usage usage
		want  error
	}{
		"taken":                 {custom("OFFICE"), errPrefixTaken},
		"no such service":       {usage{ServiceID: "gone", Mode: "custom", Prefix: "x"}, errNotFound},
		"a mode of its own":     {usage{ServiceID: "svc", Mode: "nope", Prefix: "x"}, nil},
		"an id that has a twin": {custom("twin"), nil},
	} {
		if name == "an id that has a twin" {
			s.newID = func() (string, error) { return id, nil }
		}
		_, err := s.CreateUsage(ctx, test.usage, 1)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || test.want == nil && errors.Is(err, errPrefixTaken) {
			t.Errorf("%s: %v", name, err)
		}
		s.newID = newUUID
	}
	if totals, err := s.Totals(ctx); err != nil || totals.usages != 1 {
		t.Errorf("%d usages, %v", totals.usages, err)
	}
}

// A client that goes away cancels its reading, never a write.
func TestCancelledContext(t *testing.T) {
	s := filledStore(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	id, err := s.CreateUsage(gone, custom("office"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutConfiguration(gone, configuration{Provider: "builtin"}, false); err != nil {
		t.Error(err)
	}
	description := "changed"
	if err := s.ChangeUsage(gone, id, nil, &description); err != nil {
		t.Error(err)
	}
	if _, err := s.Usage(gone, id); !errors.Is(err, context.Canceled) {
		t.Errorf("a reading goes on: %v", err)
	}
	if u, err := s.Usage(t.Context(), id); err != nil || u.Description != description {
		t.Errorf("Usage = %+v, %v", u, err)
	}
}

// Readers cannot write, and every connection keeps the rules.
func TestConnections(t *testing.T) {
	s := filledStore(t)
	for range 2 * readers {
		conn, err := s.reader.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), `DELETE FROM services`); err == nil {
			t.Error("a reader deletes")
		}
		for pragma, want := range map[string]string{"foreign_keys": "1", "journal_mode": "wal", "busy_timeout": "5000", "synchronous": "2"} {
			var got string
			if err := conn.QueryRowContext(t.Context(), `PRAGMA `+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %s, %v, want %s", pragma, got, err, want)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.writer.Exec(`INSERT INTO bindings VALUES ('b', 1, 'nobody', 'svc', 'active')`); err == nil {
		t.Error("a binding without a usage is stored")
	}
}

// A backup is what stood at one moment, and opens as a database with the same owner.
func TestBackupOfOneMoment(t *testing.T) {
	s := filledStore(t)
	for n := range 20 {
		if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint(n)), networkID(n)); err != nil {
			t.Fatal(err)
		}
	}
	file, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := s.CreateUsage(t.Context(), custom("later"), 1); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	copied, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copied.ReadFrom(file); err != nil {
		t.Fatal(err)
	}
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	restored := mustOpen(t, path)
	if usages, err := restored.Usages(t.Context(), usageFilter{}, 1000); err != nil || len(usages) != 20 {
		t.Errorf("%d usages, %v", len(usages), err)
	}
	mine, err := s.Owner(t.Context())
	if owner, err2 := restored.Owner(t.Context()); err != nil || err2 != nil || owner != mine {
		t.Errorf("owner %q, want %q, %v", owner, mine, errors.Join(err, err2))
	}
}
