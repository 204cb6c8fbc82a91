package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"meshddns/sqlrow"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var noLog = slog.New(slog.DiscardHandler)

func mustOpen(t *testing.T, path string) *store {
	t.Helper()
	s, err := openStore(t.Context(), path, noLog)
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
	if err := s.CreateService(t.Context(), service{ID: "svc", Name: "Site", Config: `{"domain":"example.com"}`}); err != nil {
		t.Fatal(err)
	}
	return s
}

// custom is a usage to make.
func custom(prefix string, network sqlrow.NetworkID) usage {
	return usage{ServiceID: "svc", Mode: modeCustom, Prefix: prefix, Network: sql.Null[sqlrow.NetworkID]{V: network, Valid: true}}
}

// A file is made, and keeps its owner and its content when it is opened again.
func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	var owners []string
	for range 3 {
		s, err := openStore(t.Context(), path, noLog)
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, s.owner)
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
	if other := mustOpen(t, filepath.Join(t.TempDir(), "other.db")).owner; other == owners[0] {
		t.Errorf("another database has the owner %q too", other)
	}
}

// The schema's version is that of the program, and a newer file is left alone.
func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	s := mustOpen(t, path)
	var version int
	if err := s.reader.QueryRow(`PRAGMA user_version`).Scan(&version); err != nil || version != schemaVersion() {
		t.Errorf("version %d, %v, want %d", version, err, schemaVersion())
	}
	if _, err := s.writer.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, schemaVersion()+1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openStore(t.Context(), path, noLog)
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
	migrations = append(slices.Clone(before), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)`)
		return err
	})
	if _, err := openStore(t.Context(), path, noLog); err == nil {
		t.Fatal("a broken migration succeeds")
	}
	migrations = before
	s := mustOpen(t, path)
	var count int
	if err := s.reader.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name = 'half'`).Scan(&count); err != nil || count != 0 {
		t.Errorf("%d tables of the broken migration, %v", count, err)
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
			if err != nil || len(entries) != 2 || entries[0].Name() != filepath.Base(path) || entries[1].Name() != filepath.Base(path)+"-lock" {
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
	first := mustOpen(t, "meshddns.db")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"./meshddns.db", "../" + filepath.Base(dir) + "/meshddns.db", dir + "/meshddns.db", "/" + dir + "/meshddns.db"} {
		again, err := openStore(t.Context(), path, noLog)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if again.owner != first.owner {
			t.Errorf("%s: owner %q, want %q", path, again.owner, first.owner)
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
		if s, err := openStore(t.Context(), path, noLog); err == nil {
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

// One program at a time: a second one is told who has the file, by whatever
// path it comes, and what it would have left is not there.
func TestSecondProgramIsRefused(t *testing.T) {
	first := filledStore(t)
	dir := filepath.Dir(first.path)
	link, folder := filepath.Join(t.TempDir(), "link.db"), filepath.Join(t.TempDir(), "folder")
	for from, to := range map[string]string{link: first.path, folder: dir} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{first.path, dir + "/./meshddns.db", filepath.Join(folder, "meshddns.db"), link} {
		second, err := openStore(t.Context(), path, noLog)
		if want := fmt.Sprintf("in use by another meshddns, process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if err == nil {
			second.Close()
		}
	}
	if services, err := first.Services(t.Context()); err != nil || len(services) != 1 {
		t.Errorf("the first program: %d services, %v", len(services), err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if again := mustOpen(t, first.path); again.owner != first.owner {
		t.Errorf("owner %q, want %q", again.owner, first.owner)
	}
}

// The index refuses what no check before it could: many at once, one prefix.
func TestIndexBeatsTheRace(t *testing.T) {
	s := filledStore(t)
	for round := range 25 {
		var mu sync.Mutex
		count := map[string]int{}
		var writing sync.WaitGroup
		for i := range 8 {
			prefix := []string{"office", "OFFICE", "Office", "oFFICE"}[i/2] + fmt.Sprint(round)
			writing.Go(func() {
				_, err := s.CreateUsage(t.Context(), custom(prefix, sqlrow.NetworkID(i)))
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
	if err := s.reader.QueryRow(`SELECT count(*) FROM bindings WHERE usage_id NOT IN (SELECT id FROM usages)`).Scan(&loose); err != nil || loose != 0 {
		t.Errorf("%d bindings without a usage, %v", loose, err)
	}
}

// The schema itself refuses what the program never writes.
func TestSchemaRefuses(t *testing.T) {
	s := filledStore(t)
	u, err := s.CreateUsage(t.Context(), custom("Office", 1))
	if err != nil {
		t.Fatal(err)
	}
	const usages = `INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at) VALUES `
	const bindings = `INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES `
	const places = `INSERT INTO places (name, account, zone, zone_id, state, standing, intent, doubt, look_at, disturbed, code, detail, attempts, at, since) VALUES `
	seq := fmt.Sprint(u.Seq)
	for name, statement := range map[string]string{
		"a prefix twice":              usages + `('u', 'svc', 'mesh_sync', 'custom', 'Office', 'TXT', '', 1, '[]', '', '')`,
		"in other letter case":        usages + `('u', 'svc', 'mesh_sync', 'custom', 'oFFICE', 'TXT', '', 1, '[]', '', '')`,
		"a service that is not there": usages + `('u', 'gone', 'mesh_sync', 'auto', 'x', 'TXT', '', 1, '[]', '', '')`,
		"an unknown mode":             usages + `('u', 'svc', 'mesh_sync', 'nope', 'x', 'TXT', '', 1, '[]', '', '')`,
		"an id twice":                 usages + `('` + u.ID + `', 'svc', 'mesh_sync', 'auto', 'x', 'TXT', '', 1, '[]', '', '')`,
		"a usage that is not there":   bindings + `(99, 'b', 1, 'gone', 'svc', 'active')`,
		"a second binding":            bindings + `(` + seq + `, 'b', 1, '` + u.ID + `', 'svc', 'active')`,
		"an unknown status":           `UPDATE bindings SET status = 'nope'`,
		"a text for a number":         `UPDATE bindings SET network_id = 'x'`,
		"a second row of the owner":   `INSERT INTO appliance (id, owner) VALUES (2, 'x')`,
		"a second pass":               `INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (2, 0, '', 0, '', '')`,
		"a service that is used":      `DELETE FROM services`,
		"a usage's service, renamed":  `UPDATE services SET id = 'other'`,
		"a place without an account":  places + `('n', 1, '', '', 'pending', '', '', '', 0, 0, '', '', 0, '', '')`,
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
	made, err := s.CreateUsage(ctx, custom("Office", 1<<64-1))
	if err != nil {
		t.Fatal(err)
	}
	if u, err := s.Usage(ctx, made.ID); err != nil || u.Prefix != "Office" || !u.Network.Valid || u.Network.V != 1<<64-1 ||
		u.Status != statusActive || !u.Exclusive || u.Name != "_mesh.office.example.com" || u.Name != made.Name || u.Seq != made.Seq {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	for id, config := range map[string]string{"text": "nothing", "null": "null", "none": "{}", "number": `{"domain":7}`, "long": `{"domain":"` + strings.Repeat("x.", 122) + `xx"}`} {
		if err := s.CreateService(ctx, service{ID: id, Config: "{}"}); err != nil {
			t.Fatal(err)
		}
		parsed, err := parseServiceConfig(config)
		domain := sql.Null[string]{V: parsed.Domain, Valid: err == nil}
		if _, err := s.writer.Exec(`UPDATE services SET config = ?, domain = ?, zone = ? WHERE id = ?`, config, domain, parsed.Domain, id); err != nil {
			t.Fatal(err)
		}
	}
	at := func(service string) usage {
		u := custom("x", 1)
		u.ServiceID = service
		return u
	}
	odd := custom("x", 1)
	odd.Mode = "nope"
	for name, test := range map[string]struct {
		usage usage
		want  error
	}{
		"taken":                 {custom("OFFICE", 1), errPrefixTaken},
		"no such service":       {at("gone"), errNoService},
		"a text for a config":   {at("text"), errServiceConfig},
		"null for a config":     {at("null"), errServiceConfig},
		"no domain":             {at("none"), errNoDomain},
		"a number for a domain": {at("number"), errNoDomain},
		"a name too long":       {at("long"), errNameTooLong},
		"a mode of its own":     {odd, nil},
		"an id that has a twin": {custom("twin", 1), nil},
	} {
		if name == "an id that has a twin" {
			s.newID = func() (string, error) { return made.ID, nil }
		}
		_, err := s.CreateUsage(ctx, test.usage)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || test.want == nil && errors.Is(err, errPrefixTaken) {
			t.Errorf("%s: %v", name, err)
		}
		s.newID = newUUID
	}
	if totals, err := s.Totals(ctx); err != nil || totals["usages"] != 1 {
		t.Errorf("totals %v, %v", totals, err)
	}
	if due, err := s.ledger.Due(ctx, "", s.now().Add(time.Hour), 10); err != nil || !slices.Equal(due, []string{made.Name}) {
		t.Errorf("due: %q, %v", due, err)
	}
}

// A client that goes away cancels its reading, never a write.
func TestCancelledContext(t *testing.T) {
	s := filledStore(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	made, err := s.CreateUsage(gone, custom("office", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutConfiguration(gone, configuration{Provider: "builtin"}, false); err != nil {
		t.Error(err)
	}
	description := "changed"
	if err := s.ChangeUsage(gone, made.ID, nil, &description); err != nil {
		t.Error(err)
	}
	if _, err := s.Usage(gone, made.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("a reading goes on: %v", err)
	}
	if u, err := s.Usage(t.Context(), made.ID); err != nil || u.Description != description {
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
	if _, err := s.writer.Exec(`INSERT INTO bindings VALUES (99, 'b', 1, 'nobody', 'svc', 'active')`); err == nil {
		t.Error("a binding without a usage is stored")
	}
}

// A backup is what stood at one moment, and opens as a database with the same owner.
func TestBackupOfOneMoment(t *testing.T) {
	s := filledStore(t)
	for n := range 20 {
		if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint(n), sqlrow.NetworkID(n))); err != nil {
			t.Fatal(err)
		}
	}
	file, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := s.CreateUsage(t.Context(), custom("later", 1)); err != nil {
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
	if restored.owner != s.owner {
		t.Errorf("owner %q, want %q", restored.owner, s.owner)
	}
}
