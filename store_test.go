package main

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/builtin"
	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/cloudtest"
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
	settle(s)
	return s
}

// settle waits until the store does nothing by itself.
func settle(s *store) {
	s.eraser.Wait()
}

// custom is a usage to make.
func custom(prefix string, network sqlite.NetworkID) usage {
	return usage{ServiceID: "svc", Mode: modeCustom, Prefix: prefix, Network: sql.Null[sqlite.NetworkID]{V: network, Valid: true}}
}

// A file is made, and keeps its owner, the addresses and its content when it is opened again.
func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	var owners []string
	var saved mesh.Addresses
	for range 3 {
		s, err := openStore(t.Context(), path, noLog)
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, s.owner)
		if s.addresses != saved {
			t.Errorf("addresses %v, want %v", s.addresses, saved)
		}
		saved = mesh.Addresses{IPv4: netip.AddrFrom4([4]byte{203, 0, 113, byte(len(owners))}), IPv6: netip.MustParseAddr("2001:db8::7")}
		if err := s.SaveAddresses(t.Context(), saved); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateService(t.Context(), service{ID: fmt.Sprint("svc-", len(owners)), Name: "x", Config: "{}"}); err != nil {
			t.Fatal(err)
		}
		if services, err := s.Services(t.Context(), "", 100); err != nil || len(services) != len(owners) {
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
	if err := s.reader.QueryRow(`PRAGMA user_version`).Scan(&version); err != nil || version != schema.Version() {
		t.Errorf("version %d, %v, want %d", version, err, schema.Version())
	}
	if _, err := s.writer.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, schema.Version()+1)); err != nil {
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
	before := schema.Steps
	t.Cleanup(func() { schema.Steps = before })
	mustOpen(t, path).Close()
	schema.Steps = append(slices.Clone(before), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)`)
		return err
	})
	if _, err := openStore(t.Context(), path, noLog); err == nil {
		t.Fatal("a broken migration succeeds")
	}
	schema.Steps = before
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
	for _, suffix := range []string{"-wal", ""} { // what the log loses meanwhile, the file gets
		content, err := os.ReadFile(killed.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path)
	if services, err := s.Services(t.Context(), "", 100); err != nil || len(services) != 1 {
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
	path := filepath.Join(dir, "meshddns.db")
	hash := fnv.New64a()
	io.WriteString(hash, path)
	own := fmt.Sprintf(".meshddns-backup-%016x-123", hash.Sum64())
	for _, name := range []string{own, ".meshddns-backup-123", "backup"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "copy.db"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, path)
	left, err := filepath.Glob(filepath.Join(dir, "*backup*", "copy.db"))
	if want := []string{filepath.Join(dir, ".meshddns-backup-123", "copy.db"), filepath.Join(dir, "backup", "copy.db")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
	if _, err := os.Stat(filepath.Join(dir, own)); err == nil {
		t.Error("its own folder is left")
	}
}

// Those that a killed program has left in another folder are removed behind the start, and
// the first request finds a connection that reads.
func TestStartLeavesNothingToWaitFor(t *testing.T) {
	path, elsewhere := filepath.Join(t.TempDir(), "meshddns.db"), t.TempDir()
	t.Setenv("TMPDIR", elsewhere)
	hash := fnv.New64a()
	io.WriteString(hash, path)
	left := filepath.Join(elsewhere, fmt.Sprintf(".meshddns-backup-%016x-1", hash.Sum64()))
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	if err := s.openReader(t.Context())(); err != nil {
		t.Error(err)
	}
	if open := s.reader.Stats(); open.Idle != 1 {
		t.Errorf("%+v", open)
	}
	s.lookThrough(t.Context(), noLog)
	if _, err := os.Stat(left); err == nil {
		t.Error(left, "is still there")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.openReader(t.Context())(); err == nil {
		t.Error("a reader of a closed database is open")
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
	if services, err := first.Services(t.Context(), "", 100); err != nil || len(services) != 1 {
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
				_, err := s.CreateUsage(t.Context(), custom(prefix, sqlite.NetworkID(i)))
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

// A group whose disk is full comes to nothing, and each of it is tried alone: what
// was acknowledged is there, what was not has left nothing.
func TestReservationsOnFullDisk(t *testing.T) {
	s := filledStore(t)
	limit := func(pages string) {
		t.Helper()
		if _, err := s.writer.Exec(`PRAGMA max_page_count = ` + pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("60")
	var mu sync.Mutex
	var acknowledged, full int
	fill := func() {
		var writing sync.WaitGroup
		for i := range 64 {
			writing.Go(func() {
				for round := range 5 {
					u, err := s.CreateUsage(t.Context(), custom(fmt.Sprintf("office-%d-%d", i, round), sqlite.NetworkID(i*5+round)))
					if errors.Is(err, errPrefixTaken) {
						continue
					}
					mu.Lock()
					switch {
					case err == nil:
						acknowledged++
					case strings.Contains(err.Error(), "full"):
						full++
					default:
						t.Error(err)
					}
					mu.Unlock()
					if stored, fault := s.Usage(t.Context(), u.ID); err == nil && (fault != nil || stored.Network != u.Network || stored.Seq != u.Seq) {
						t.Errorf("answered %+v, stored %+v, %v", u, stored, fault)
					}
				}
			})
		}
		writing.Wait()
	}
	counts := func() []string {
		return queryText(t, s.reader, `
			SELECT (SELECT count(*) FROM usages), (SELECT count(*) FROM bindings), (SELECT count(*) FROM names),
			       (SELECT sum(count) FROM totals WHERE what <> 'services'), (SELECT usage_count FROM services)`)
	}
	all := func(n int) []string { return []string{strings.Join(slices.Repeat([]string{fmt.Sprint(n)}, 5), " | ")} }
	fill()
	if got := counts(); full == 0 || acknowledged == 0 || !slices.Equal(got, all(acknowledged)) {
		t.Fatalf("%d acknowledged, %d found the disk full, stored %v", acknowledged, full, got)
	}
	limit("1000000")
	fill()
	if got := counts(); !slices.Equal(got, all(64*5)) || acknowledged != 64*5 {
		t.Errorf("%d acknowledged, stored %v", acknowledged, got)
	}
}

// A first try that comes to nothing, for another of its group fails, leaves nothing
// in places and in the verdicts of the built-in zones.
func TestSecondTryForgetsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filledStore(t)
		ctx := t.Context()
		if err := s.PutConfiguration(ctx, configuration{Provider: "builtin"}, false); err != nil {
			t.Fatal(err)
		}
		record := builtin.Record{Name: "com.example.office._mesh", Data: []byte("\x01x"), TTL: 60}
		failed := errors.New("failed")
		open := make(chan struct{})
		var running sync.WaitGroup
		next := func(f func() error, want error) {
			running.Go(func() {
				if err := f(); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		next(func() error { return s.tx(ctx, func(context.Context, *sql.Tx) error { <-open; return nil }) }, nil)
		tries := 0
		next(func() error {
			return s.zones.ChangeZoneRecords(ctx, []string{record.Name}, func([]builtin.Record) (add, remove []builtin.Record) {
				if tries == 0 {
					add = append(add, record) // seen by who comes next in the group, and then never stored
				}
				return add, nil
			})
		}, nil)
		place := &reconcile.Place{Name: "office.example.com", Account: reconcile.Account{ID: 1}, State: reconcile.Pending}
		next(func() error {
			return s.ledger.Intend(ctx, nil, func(reconcile.State) []*reconcile.Place { tries++; return []*reconcile.Place{place} })
		}, nil)
		next(func() error {
			return builtin.Client{Store: s.zones}.Change(ctx, provider.Change{Zone: "example.com", Name: "_mesh.office.example.com", Add: []provider.TXT{{"y"}}, TTL: 60})
		}, nil)
		next(func() error { return s.tx(ctx, func(context.Context, *sql.Tx) error { return failed }) }, failed)
		close(open)
		running.Wait()
		if got := queryText(t, s.reader, `SELECT id, name FROM places`); tries != 2 || !slices.Equal(got, []string{fmt.Sprint(place.ID, " | office.example.com")}) {
			t.Errorf("after %d tries the place %d is stored as %q", tries, place.ID, got)
		}
		if got, err := s.zones.ZoneRecords(ctx, []string{record.Name}); err != nil || len(got) != 1 || string(got[0].Data) != "\x01y" {
			t.Errorf("records %+v, %v", got, err)
		}
	})
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
	const places = `INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since) VALUES `
	seq := fmt.Sprint(u.Seq)
	for name, statement := range map[string]string{
		"a prefix twice":              usages + `('u', 'svc', 'mesh_sync', 'custom', 'Office', 'TXT', '', 1, '[]', '` + u.Name + `', '')`,
		"in other letter case":        usages + `('u', 'svc', 'mesh_sync', 'custom', 'oFFICE', 'TXT', '', 1, '[]', '` + u.Name + `', '')`,
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
		"a place without an account":  places + `('n', 1, '', '', 'pending', '', '', 0, 0, '', '', '', 0, '', '')`,
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
		parsed, err := parseServiceConfig(secrets.Secret(config))
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
		if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint(n), sqlite.NetworkID(n))); err != nil {
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

// While a copy is made no commit stops to empty the log, which the copy keeps long;
// it is emptied after.
func TestLogIsKeptForACopy(t *testing.T) {
	s := filledStore(t)
	setting := func() int {
		t.Helper()
		var pages int
		if err := s.writer.QueryRow(`PRAGMA wal_autocheckpoint`).Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	state := func() (log, emptied int) {
		t.Helper()
		if err := s.reader.QueryRow(`PRAGMA wal_checkpoint(NOOP)`).Scan(new(int), &log, &emptied); err != nil {
			t.Fatal(err)
		}
		return log, emptied
	}
	before := setting()
	gone, cancel := context.WithCancel(t.Context())
	err := s.keeper.Hold(gone, func() error {
		for n := range 400 { // some eleven pages each
			if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint(n), sqlite.NetworkID(n))); err != nil {
				return err
			}
		}
		cancel()
		if log, emptied := state(); log < sqlite.LogPages || emptied > 0 {
			t.Errorf("%d of %d pages of the log are emptied by commits", emptied, log)
		}
		return gone.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if log, emptied := state(); emptied < log {
		t.Errorf("only %d of %d pages of the log are emptied", emptied, log)
	}
	if after := setting(); before != sqlite.LogPages || after != sqlite.LogPages {
		t.Errorf("a commit empties the log at %d pages, and then at %d", before, after)
	}
}

//go:embed testdata/schema-1.sql
var schema1 string

// toVersion2 is what the program added in version 2.
const toVersion2 = `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 2`

const oldOwner = "0123456789ab"

// oldFile makes a database as an earlier version of the program left it.
func oldFile(t testing.TB, version int, content ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "meshddns.db")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_foreign_keys=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := []string{schema1, `INSERT INTO appliance (id, owner, dns_serial) VALUES (1, '` + oldOwner + `', 77)`, `PRAGMA user_version = 1`}
	if version == 2 {
		statements = append(statements, toVersion2)
	}
	for _, statement := range append(statements, content...) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	return path
}

// bothVersions runs a test for files of both versions without places.
func bothVersions(t *testing.T, test func(t *testing.T, version int)) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) { test(t, version) })
	}
}

// migratedTo brings a file to an earlier version than the program's.
func migratedTo(t *testing.T, version int, path string) string {
	t.Helper()
	all := schema.Steps
	defer func() { schema.Steps = all }()
	schema.Steps = all[:version-1]
	s, err := openStore(t.Context(), path, noLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// readSchema gives all that sqlite_schema says.
func readSchema(t testing.TB, path string) []string {
	t.Helper()
	s, err := openStore(t.Context(), path, noLog)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return queryText(t, s.reader, `SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name`)
}

// A migrated file has the schema of a new one, to the letter.
func TestMigratedSchemaIsTheNewOne(t *testing.T) {
	fresh := readSchema(t, filepath.Join(t.TempDir(), "new.db"))
	if len(fresh) < 20 {
		t.Fatalf("a new file has %d objects", len(fresh))
	}
	for version := 1; version < schema.Version(); version++ {
		path := oldFile(t, min(version, 2))
		if version > 2 {
			migratedTo(t, version, path)
		}
		migrated := readSchema(t, path)
		for _, line := range fresh {
			if !slices.Contains(migrated, line) {
				t.Errorf("the file of version %d, migrated, lacks\n%s", version, line)
			}
		}
		for _, line := range migrated {
			if !slices.Contains(fresh, line) {
				t.Errorf("the file of version %d, migrated, has\n%s", version, line)
			}
		}
	}
}

// Version 4 has other indexes over the prefixes: each is found and counted as before.
func TestMigratedPrefixes(t *testing.T) {
	path := migratedTo(t, 3, oldFile(t, 1, `INSERT INTO services VALUES ('svc', 'x', '{"domain":"example.com"}', 'example.com', '', '', '')`, `
		INSERT INTO usages VALUES
		    ('u1', 'svc', 'mesh_sync', 'custom', 'Office',     'TXT', '', 1, '[]', ''),
		    ('u2', 'svc', 'mesh_sync', 'auto',   '_mesh-NDI',  'TXT', '', 1, '[]', ''),
		    ('u3', 'svc', 'mesh_sync', 'auto',   '_mesh-NDI',  'TXT', '', 1, '[]', ''),
		    ('u4', 'svc', 'mesh_sync', 'custom', '_mes',       'TXT', '', 1, '[]', '')`))
	s := mustOpen(t, path)
	for prefix, want := range map[string]int64{"OFFICE": 1, "_Mesh-ndi": 2, "_mes": 1, "_mesh": 0, "": 0, "offic": 0} {
		if count, err := s.CountUsages(t.Context(), "svc", prefix); err != nil || count != want {
			t.Errorf("%q: %d, %v, want %d", prefix, count, err, want)
		}
	}
	for _, prefix := range []string{"oFFICE", "_MES"} {
		if _, err := s.CreateUsage(t.Context(), custom(prefix, 1)); err != errPrefixTaken {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// oldServices are services as older programs let them in.
const oldServices = `
	INSERT INTO services (id, name, config, zone, provider, created_at, updated_at) VALUES
	('text',    'Text',    'no JSON at all',                                       '',            '',        'c1', 'u1'),
	('empty',   'Empty',   '',                                                     '',            '',        'c', 'u'),
	('null',    'Null',    'null',                                                 '',            '',        'c', 'u'),
	('array',   'Array',   '[{"domain":"example.com"}]',                           '',            '',        'c', 'u'),
	('two',     'Two',     '{"a":1} {"b":2}',                                      '',            '',        'c', 'u'),
	('none',    'None',    '{}',                                                   '',            '',        'c', 'u'),
	('number',  'Number',  '{"domain":7,"provider":7,"access_key_id":7}',          '',            '',        'c', 'u'),
	('false',   'False',   '{"domain":null,"txt_endpoints":null,"endpoint":false}','',            '',        'c', 'u'),
	('odd',     'Odd',     '{"domain":"odd.example","txt_endpoints":["tcp://a:1",7]}', 'odd.example', '',    'c', 'u'),
	('odd2',    'Odd',     '{"domain":"odd2.example","txt_endpoints":"tcp://a:1"}',    'odd2.example', '',   'c', 'u'),
	('good',    'Good',    '{"domain":"good.example","txt_endpoints":["tcp://a:1","udp://b:2"]}', 'good.example', '', 'c', 'u'),
	('script',  'Script',  '{"domain":"Lesen.Bücher.Example."}',                   'lesen.bücher.example', '', 'c', 'u'),
	('keyed',   'Keyed',   '{"domain":"k.example","provider":"alidns","access_key_id":"id-1","access_key_secret":"s-old","endpoint":"http://127.0.0.1:1"}', 'k.example', 'alidns', 'c', '2026-01-01'),
	('keyed2',  'Keyed',   '{"domain":"k2.example","provider":"alidns","access_key_id":"id-1","access_key_secret":"s-new","endpoint":"http://127.0.0.1:1"}', 'k2.example', 'alidns', 'c', '2026-01-02'),
	('halfkey', 'Half',    '{"domain":"h.example","provider":"alidns","access_key_id":["x"],"access_key_secret":{"y":1},"endpoint":9}', 'h.example', 'alidns', 'c', 'u'),
	('inner',   'Inner',   '{"domain":"inner.example","provider":"builtin","access_key_id":"x","access_key_secret":"y","endpoint":"z"}', 'inner.example', 'builtin', 'c', 'u')`

// Services are kept as they are, and what the program reads in their configs is
// what it reads in those that are stored now.
func TestMigratedServices(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		services := oldServices
		if version == 2 { // in which names of other scripts are A-labels already
			services = strings.Replace(services, "'lesen.bücher.example'", "'lesen.xn--bcher-kva.example'", 1)
		}
		s := mustOpen(t, oldFile(t, version, services))
		all, err := s.Services(t.Context(), "", 100)
		if err != nil || len(all) != 16 {
			t.Fatalf("%d services, %v", len(all), err)
		}
		for _, v := range all {
			config, err := parseServiceConfig(v.Config)
			if v.Domain.Valid != (err == nil) || v.Domain.V != config.Domain {
				t.Errorf("%s: domain %+v, the config has %q, %v", v.ID, v.Domain, config.Domain, err)
			}
			var endpoints sqlite.TextList
			var provider string
			var account sql.Null[int64]
			row := s.reader.QueryRow(`SELECT provider, txt_endpoints, account FROM services WHERE id = ?`, v.ID)
			if err := row.Scan(&provider, &endpoints, &account); err != nil {
				t.Fatal(err)
			}
			if provider != config.Provider || !slices.Equal(endpoints, config.Endpoints) || account.Valid != (config.Provider != "") {
				t.Errorf("%s: provider %q, endpoints %q, account %+v; the config has %q %q", v.ID, provider, endpoints, account, config.Provider, config.Endpoints)
			}
			if account.Valid {
				checkAccount(t, s, account.V, config.account())
			}
			if zone := dnsname.Parse(config.Domain); v.Zone != zone {
				t.Errorf("%s: zone %q, want %q", v.ID, v.Zone, zone)
			}
		}
		if v, err := s.Service(t.Context(), "text"); err != nil || v.Config != "no JSON at all" || v.CreatedAt != "c1" || v.UpdatedAt != "u1" || v.Name != "Text" {
			t.Errorf("%+v, %v", v, err)
		}
		if got := queryText(t, s.reader, `SELECT zone, serial FROM zone_serials`); !slices.Equal(got, []string{"inner.example | 77"}) {
			t.Errorf("serials %q", got)
		}
		if totals, err := s.Totals(t.Context()); err != nil || totals["services"] != 16 {
			t.Errorf("totals %v, %v", totals, err)
		}
	})
}

// checkAccount compares a stored account with the one of a config.
func checkAccount(t *testing.T, s *store, id int64, want reconcile.Account) {
	t.Helper()
	var got reconcile.Account
	err := s.reader.QueryRow(`SELECT provider, endpoint, access_key_id, access_key_secret FROM accounts WHERE id = ?`, id).Scan(
		&got.Provider, &got.Endpoint, &got.AccessKeyID, &got.Secret)
	if err != nil || got != want {
		t.Errorf("account %d is %s %s %q, want %s %s %q, %v", id, got.Provider, got.AccessKeyID, string(got.Secret), want.Provider, want.AccessKeyID, string(want.Secret), err)
	}
}

// Usages keep their order, their networks and their bindings.
func TestMigratedUsages(t *testing.T) {
	networks := []string{"0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	stored := []string{"0", "1", "9223372036854775807", "-9223372036854775808", "-1"}
	var usages, bindings []string
	for n := range 40 { // inserted from the last to the first
		i := 39 - n
		usages = append(usages, fmt.Sprintf(`('u%02d', 'good', 'mesh_sync', 'custom', 'Pre-%d', 'TXT', 'about %d', %d, '["tcp://a:%d"]', 'at %d')`, i, i, i, i%2, i+1, i))
		if i%8 != 7 {
			bindings = append(bindings, fmt.Sprintf(`('b%02d', %s, 'u%02d', 'good', '%s')`, n, stored[i%5], i, []string{statusActive, statusReleasing}[i%2]))
		}
	}
	bothVersions(t, func(t *testing.T, version int) {
		s := mustOpen(t, oldFile(t, version, oldServices,
			`INSERT INTO usages VALUES `+strings.Join(usages, ", "), `INSERT INTO bindings VALUES `+strings.Join(bindings, ", ")))
		all, err := s.Usages(t.Context(), usageFilter{}, 1000)
		if err != nil || len(all) != 40 {
			t.Fatalf("%d usages, %v", len(all), err)
		}
		for i, u := range all {
			want := fmt.Sprintf("u%02d good custom Pre-%d TXT about %d %v [tcp://a:%d] at %d _mesh.pre-%d.good.example Good good.example", i, i, i, i%2 == 1, i+1, i, i)
			got := fmt.Sprint(u.ID, " ", u.ServiceID, " ", u.Mode, " ", u.Prefix, " ", u.RecordType, " ", u.Description, " ", u.Exclusive, " ", u.Endpoints, " ",
				u.CreatedAt, " ", u.Name, " ", u.ServiceName.V, " ", u.Domain.V)
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if bound := i%8 != 7; u.Network.Valid != bound || bound && (u.Network.V.String() != networks[i%5] || u.Status != []string{statusActive, statusReleasing}[i%2]) {
				t.Errorf("%s: network %+v, status %q", u.ID, u.Network, u.Status)
			}
		}
		if v, err := s.Service(t.Context(), "good"); err != nil || v.UsageCount != 40 {
			t.Errorf("%d usages of the service, %v", v.UsageCount, err)
		}
		if _, err := s.CreateUsage(t.Context(), usage{ServiceID: "good", Mode: modeCustom, Prefix: "PRE-1"}); err != errPrefixTaken {
			t.Errorf("a prefix that is taken: %v", err)
		}
		made, err := s.CreateUsage(t.Context(), usage{ServiceID: "good", Mode: modeCustom, Prefix: "new", Network: sql.Null[sqlite.NetworkID]{V: 1, Valid: true}})
		if err != nil || made.Seq <= all[39].Seq {
			t.Errorf("a new usage has seq %d, %v", made.Seq, err)
		}
		if got := queryText(t, s.reader, `SELECT id, usage_id FROM bindings WHERE id = 'b01'`); !slices.Equal(got, []string{"b01 | u38"}) {
			t.Errorf("binding %q", got)
		}
		if loose := queryText(t, s.reader, `SELECT count(*) FROM usages u WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.name = u.name)`); loose[0] != "0" {
			t.Errorf("%s usages whose name no pass comes by", loose[0])
		}
	})
}

// The configuration is kept, and what only the database itself knows.
func TestMigratedConfiguration(t *testing.T) {
	const configuration = `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at)
		VALUES (1, 'rfc2136', 'key.', 'aGlkZGVu', '127.0.0.1:1', 'Mesh.Bücher.Example.', '@', 'auto', 7, NULL, 1, '["tcp://{ipv4}:1"]', 'then')`
	bothVersions(t, func(t *testing.T, version int) {
		content := []string{configuration, `INSERT INTO zone_records VALUES ('com.example', X'0178', 60)`}
		if version == 2 {
			content = append(content, `UPDATE configuration SET zone = 'mesh.xn--bcher-kva.example'`)
		}
		s := mustOpen(t, oldFile(t, version, content...))
		c, err := s.Configuration(t.Context())
		if err != nil || c.Provider != "rfc2136" || c.AccessKeyID != "key." || string(c.Secret) != "aGlkZGVu" || c.Endpoint != "127.0.0.1:1" ||
			c.Domain != "Mesh.Bücher.Example." || c.TXTRecordName != "@" || c.SyncMode != "auto" || c.RetryInterval.V != 7 || c.MaxRetries.Valid ||
			!c.Enabled || !slices.Equal(c.Endpoints, []string{"tcp://{ipv4}:1"}) || c.UpdatedAt != "then" {
			t.Errorf("%+v, %v", c, err)
		}
		if c.Zone != "mesh.xn--bcher-kva.example" {
			t.Errorf("zone %q", c.Zone)
		}
		checkAccount(t, s, c.AccountID, c.account())
		for query, want := range map[string]string{
			`SELECT owner, ipv4, ipv6 FROM appliance`:                     oldOwner + " |  | ",
			`SELECT name FROM configuration`:                              "mesh.xn--bcher-kva.example",
			`SELECT name FROM names`:                                      "mesh.xn--bcher-kva.example",
			`SELECT name, hex(data), ttl FROM zone_records`:               "com.example | 0178 | 60",
			`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old\_%'`: "0",
			`PRAGMA foreign_key_check`:                                    "",
			`PRAGMA integrity_check`:                                      "ok",
		} {
			if got := strings.Join(queryText(t, s.reader, query), "\n"); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	})
}

// The log says what a migration does. A file that cannot be migrated stays.
func TestMigrationIsLogged(t *testing.T) {
	a := newApplianceOn(t, oldFile(t, 1))
	for _, want := range []string{"from=1", fmt.Sprint("to=", schema.Version()), a.path} {
		if !strings.Contains(a.logs.String(), want) {
			t.Errorf("no %q in the log: %s", want, a.logs)
		}
	}
}

// oldWorld is a database of an earlier version, and what stands at its providers.
type oldWorld struct {
	t                   *testing.T
	now, moved, refused *cloudtest.Cloud // the configuration's, a service's, and one whose key is gone
	statements          []string
	id                  int
	network             int
}

// value is that of a network as the earlier version would have published it.
func (w *oldWorld) value(network int, endpoint string) string {
	return mesh.Value(fmt.Sprint(network), oldOwner, strings.Fields(endpoint))
}

// usage adds a usage and its binding, and gives its network.
func (w *oldWorld) usage(service, prefix, status string) int {
	w.id++
	w.network++
	w.statements = append(w.statements,
		fmt.Sprintf(`INSERT INTO usages VALUES ('u%02d', '%s', 'mesh_sync', 'custom', '%s', 'TXT', '', 1, '[]', '')`, w.id, service, prefix),
		fmt.Sprintf(`INSERT INTO bindings VALUES ('b%02d', %d, 'u%02d', '%s', '%s')`, w.id, w.network, w.id, service, status))
	return w.network
}

// publication adds a row that the earlier version had of a place.
type publication struct {
	name          string
	at            *cloudtest.Cloud // nil: the built-in server
	key           string           // "" for the cloud's own
	network, held int              // 0 for NULL
	value         string
	written       int
	state         string
	stands        []string // there
}

func (w *oldWorld) publication(p publication) {
	w.t.Helper()
	null := func(n int) string {
		if n == 0 {
			return "NULL"
		}
		return fmt.Sprint(n)
	}
	provider, endpoint, key := "builtin", "", ""
	if p.at != nil {
		provider, endpoint, key = p.at.Provider, p.at.URL, p.at.AccessKeyID
	}
	if p.key != "" {
		key = p.key
	}
	w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO publications VALUES ('%s', '%s', '%s', '%s', %s, %s, '%s', %d, '%s', '', '', 1, 'then')`,
		p.name, provider, endpoint, key, null(p.network), null(p.held), p.value, p.written, p.state))
	for _, value := range p.stands {
		if p.at != nil {
			p.at.Add(w.t, p.name, []string{value})
			continue
		}
		labels := strings.Split(p.name, ".")
		slices.Reverse(labels)
		w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO zone_records VALUES ('%s', X'%X', 60)`, strings.Join(labels, "."), dnswire.TXTData([]string{value})))
	}
}

func cloudServiceConfig(c *cloudtest.Cloud, domain string) string {
	text, err := json.Marshal(map[string]string{
		"domain": domain, "provider": c.Provider, "access_key_id": c.AccessKeyID, "access_key_secret": c.AccessKeySecret, "endpoint": c.URL,
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

const strangersValue = "v=mesh1 n=5 o=ffffffffffff tcp://stranger:1"

// build makes publications of every state that the earlier version knew, and
// gives what is to stand at each name after a synchronisation.
func (w *oldWorld) build() (want map[string]string) {
	const zone = cloudtest.Zone
	c := w.now
	w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, max_retries, enabled, txt_endpoints, updated_at)
		VALUES (1, '%s', '%s', '%s', '%s', 'Mesh.%s', '_txt', 'manual', 0, 1, '["tcp://new:1"]', '')`, c.Provider, c.AccessKeyID, c.AccessKeySecret, c.URL, zone),
		fmt.Sprintf(`INSERT INTO services VALUES ('conf', 'x', '{"domain":"mesh.%[1]s"}', 'mesh.%[1]s', '', '', ''), ('own', 'x', '%[2]s', 'own.%[1]s', '%[3]s', '', ''),
			('inner', 'x', '{"domain":"inner.example","provider":"builtin","access_key_id":"-","access_key_secret":"-"}', 'inner.example', 'builtin', '', '')`,
			zone, cloudServiceConfig(w.moved, "own."+zone), w.moved.Provider))
	at := func(prefix string) string { return "_mesh." + prefix + ".mesh." + zone }
	fresh := func(network int) string { return w.value(network, "tcp://new:1") }
	stale := func(network int) string { return w.value(network, "tcp://stale:1") }
	want = map[string]string{}

	own := mesh.Value("", oldOwner, []string{"tcp://new:1"})
	w.publication(publication{name: "_txt.mesh." + zone, at: c, value: own, written: 1, state: "published", stands: []string{own}})
	want["_txt.mesh."+zone] = own
	for _, p := range []struct {
		prefix, state, binding string
		written                int
		stands                 string // of the name's own values: fresh, stale, none
		intent                 string
		after                  string
	}{
		{"published", "published", statusActive, 1, "fresh", "fresh", "fresh"},
		{"changed", "published", statusActive, 1, "stale", "stale", "fresh"},
		{"tampered", "published", statusActive, 1, "none", "fresh", "fresh"},
		{"failed-old", "failed", statusActive, 1, "stale", "fresh", "fresh"},
		{"failed-new", "failed", statusActive, 1, "fresh", "fresh", "fresh"},
		{"failed-none", "failed", statusActive, 0, "none", "fresh", "fresh"},
		{"pending-old", "pending", statusActive, 1, "stale", "fresh", "fresh"},
		{"pending-none", "pending", statusActive, 0, "none", "fresh", "fresh"},
		{"conflict-old", "conflict", statusActive, 1, "stale", "fresh", "fresh"},
		{"releasing", "withdrawing", statusReleasing, 1, "fresh", "", ""},
		{"releasing-gone", "withdrawing", statusReleasing, 1, "none", "", ""},
		{"releasing-published", "published", statusReleasing, 1, "fresh", "fresh", ""},
		{"releasing-unwritten", "pending", statusReleasing, 0, "none", "fresh", ""},
	} {
		network := w.usage("conf", p.prefix, p.binding)
		values := map[string]string{"fresh": fresh(network), "stale": stale(network)}
		row := publication{name: at(p.prefix), at: c, network: network, value: values[p.intent], written: p.written, state: p.state}
		if p.stands != "none" {
			row.stands = []string{values[p.stands]}
		}
		w.publication(row)
		want[row.name] = values[p.after]
	}
	w.buildOddities(want, at, fresh, stale)
	return want
}

func (w *oldWorld) buildOddities(want map[string]string, at func(string) string, fresh, stale func(int) string) {
	c, zone := w.now, cloudtest.Zone
	// Nothing is known of it: it was reserved just before.
	want[at("reserved")] = fresh(w.usage("conf", "reserved", statusActive))
	// A network has the name of an earlier one, whose value may still stand.
	network := w.usage("conf", "held", statusActive)
	w.publication(publication{name: at("held"), at: c, network: network, held: 4711, value: fresh(network), written: 1, state: "failed", stands: []string{stale(4711)}})
	want[at("held")] = fresh(network)
	network = w.usage("conf", "held-both", statusActive)
	w.publication(publication{name: at("held-both"), at: c, network: network, held: 4712, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network), stale(4712)}})
	want[at("held-both")] = fresh(network)
	// Released by force: nobody has the name.
	w.publication(publication{name: at("forced"), at: c, network: 4713, value: "", written: 1, state: "withdrawing", stands: []string{stale(4713)}})
	want[at("forced")] = ""
	// Put there with a key that another has followed.
	w.publication(publication{name: at("old-key"), at: c, key: "older", network: 4714, value: "", written: 1, state: "withdrawing", stands: []string{stale(4714)}})
	want[at("old-key")] = ""
	// At a service's own provider.
	network = w.usage("own", "at-home", statusActive)
	home := "_mesh.at-home.own." + zone
	w.publication(publication{name: home, at: w.moved, network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want[home] = fresh(network)
	// Moved from there to the configuration's provider, and not withdrawn yet.
	network = w.usage("conf", "moving", statusActive)
	w.publication(publication{name: at("moving"), at: w.moved, network: network, value: "", written: 1, state: "withdrawing", stands: []string{stale(network)}})
	w.publication(publication{name: at("moving"), at: c, network: network, value: fresh(network), written: 0, state: "pending"})
	want[at("moving")] = fresh(network)
	// Its key is gone.
	w.publication(publication{name: at("lost"), at: w.refused, network: 4715, value: "", written: 1, state: "withdrawing", stands: []string{stale(4715)}})
	// In the built-in zones.
	network = w.usage("inner", "in", statusActive)
	w.publication(publication{name: "_mesh.in.inner.example", network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want["_mesh.in.inner.example"] = fresh(network)
	w.publication(publication{name: "_mesh.out.inner.example", network: 4716, value: "", written: 1, state: "withdrawing", stands: []string{stale(4716)}})
	want["_mesh.out.inner.example"] = ""
	w.publication(publication{name: "_mesh.in.gone.example", network: 4717, value: "", written: 1, state: "withdrawing", stands: []string{stale(4717)}})
	want["_mesh.in.gone.example"] = ""
	// Somebody else has the name.
	network = w.usage("conf", "theirs", statusActive)
	w.publication(publication{name: at("theirs"), at: c, network: network, value: fresh(network), written: 0, state: "conflict", stands: []string{strangersValue}})
	want[at("theirs")] = strangersValue
}

// check compares what stands at every name with what is to.
func (w *oldWorld) check(a *appliance, when string, want map[string]string) {
	w.t.Helper()
	for name, value := range want {
		var got []string
		for _, c := range []*cloudtest.Cloud{w.now, w.moved} {
			for _, v := range c.Values(w.t, name) {
				got = append(got, strings.Join(v, ""))
			}
		}
		if strings.HasSuffix(name, "inner.example") || strings.HasSuffix(name, "gone.example") {
			labels := strings.Split(name, ".")
			slices.Reverse(labels)
			records, err := a.store.zones.ZoneRecords(w.t.Context(), []string{strings.Join(labels, ".")})
			if err != nil {
				w.t.Fatal(err)
			}
			for _, r := range records {
				text, _ := dnswire.ParseTXT(r.Data)
				got = append(got, strings.Join(text, ""))
			}
		}
		if strings.Join(got, " and ") != value {
			w.t.Errorf("%s: %s has %q, want %q", when, name, got, value)
		}
	}
}

// What stood at the providers is kept true after a migration: what is wanted
// stands, what is not is withdrawn where it was put, and nothing is forgotten.
func TestMigratedPublications(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		w := &oldWorld{t: t, now: cloudtest.AliDNS(t), moved: cloudtest.TencentCloud(t), refused: cloudtest.HuaweiCloud(t), network: 100}
		want := w.build()
		if version == 2 {
			w.statements = append(w.statements, `UPDATE configuration SET zone = 'mesh.example.com'`)
		}
		path := oldFile(t, version, w.statements...)
		var ahead atomic.Int64
		a := newApplianceOn(t, path, func(a *appliance) {
			a.store.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		if a.store.owner != oldOwner {
			t.Fatalf("owner %q", a.store.owner)
		}
		status, code, answer := a.call(t, "POST", "/api/v1/ddns/sync", "")
		if status != 500 || code != "sync_failed" || !strings.Contains(answer, "_mesh.theirs.") || !strings.Contains(answer, "1 / ") {
			t.Errorf("the first synchronisation: %d %s %s", status, code, answer)
		}
		w.check(a, "after the first synchronisation", want)
		w.checkLeftover(a)
		for range 2 { // the second looks, and what follows them
			ahead.Add(int64(2 * reconcile.SecondLook))
			a.call(t, "POST", "/api/v1/ddns/sync", "")
		}
		w.check(a, "after the second look", want)
		w.checkLeftover(a)
		w.checkRest(a, want)
	})
}

// checkLeftover holds the one value that cannot be withdrawn to what is promised
// of it: it is listed, and it still stands.
func (w *oldWorld) checkLeftover(a *appliance) {
	w.t.Helper()
	answer := a.must(w.t, "GET", "/api/v1/ddns/leftovers", "")
	if strings.Count(answer, `"name"`) != 1 || !strings.Contains(answer, "_mesh.lost.mesh.example.com") {
		w.t.Errorf("leftovers: %s", answer)
	}
	if len(w.refused.Values(w.t, "_mesh.lost.mesh.example.com")) != 1 {
		w.t.Error("it does not stand any more")
	}
}

// checkRest looks at what the database has in the end.
func (w *oldWorld) checkRest(a *appliance, want map[string]string) {
	w.t.Helper()
	db := a.open(w.t)
	defer db.Close()
	for query, want := range map[string]string{
		`SELECT count(*) FROM usages WHERE record_prefix LIKE 'releasing%'`:                                                   "0",
		`SELECT DISTINCT state FROM places ORDER BY state`:                                                                    "conflict\nleftover\npublished",
		`SELECT count(*) FROM places WHERE doubt <> '' OR look_at <> 0`:                                                       "1", // the leftover's
		`SELECT name FROM names WHERE name NOT IN (SELECT name FROM usages) AND name NOT IN (SELECT name FROM configuration)`: "_mesh.lost.mesh.example.com",
		`SELECT provider FROM accounts ORDER BY provider`:                                                                     "alidns\nbuiltin\nhuaweicloud\ntencentcloud",
		`SELECT count(*) FROM accounts WHERE access_key_secret = '' `:                                                         "2", // the built-in server's, and the one that is gone
		`SELECT count(*) FROM names WHERE due IS NOT NULL AND lane <> 'look'`:                                                 "0",
	} {
		if got := strings.Join(queryText(w.t, db, query), "\n"); got != want {
			w.t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	published := 0
	for _, value := range want {
		if value != "" && value != strangersValue {
			published++
		}
	}
	if got := queryText(w.t, db, `SELECT count(*) FROM places WHERE state = 'published' AND standing <> ''`); got[0] != fmt.Sprint(published) {
		w.t.Errorf("%s places are published, want %d", got[0], published)
	}
}

// A database that is open to others' eyes is not made by a migration.
func TestMigratedFileMode(t *testing.T) {
	path := oldFile(t, 1)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestMigrateMany tells how long a file of version 2 with many usages takes to
// open, beside one pass over its tables. It runs when MESHDDNS_MIGRATE says how
// many usages.
func TestMigrateMany(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("MESHDDNS_MIGRATE"))
	if count == 0 {
		t.Skip("MESHDDNS_MIGRATE=1000000 runs it")
	}
	path := oldFile(t, 2, `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, enabled, txt_endpoints, updated_at, zone)
			VALUES (1, 'builtin', 'x', 'x', '', 'example.com', '_txt', 'manual', 1, '["tcp://{ipv4}:11010"]', '', 'example.com')`,
		`INSERT INTO services VALUES ('svc', 'x', '{"domain":"example.com"}', 'example.com', '', '', '')`, fmt.Sprintf(`
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages SELECT printf('01a2001c-74cd-7907-%%04x-%%012x', i / 4096, i), 'svc', 'mesh_sync', 'custom', 'prefix-' || i, 'TXT',
		    'mesh sync - network ' || i, 1, '[]', '2026-01-02T03:04:05.678Z' FROM n`, count), `
		INSERT INTO bindings SELECT 'b' || id, CAST(substr(record_prefix, 8) AS INTEGER), id, 'svc', 'active' FROM usages`, `
		INSERT INTO publications SELECT '_mesh.' || record_prefix || '.example.com', 'builtin', '', '', CAST(substr(record_prefix, 8) AS INTEGER), NULL,
		    'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldOwner+` tcp://203.0.113.7:11010', 1, 'published', '', '', 1, '2026-01-02T03:04:05.678Z' FROM usages`, `
		INSERT INTO zone_records SELECT 'com.example.' || record_prefix || '._mesh',
		    CAST(char(length(value)) || value AS BLOB), 60 FROM (SELECT record_prefix, 'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldOwner+` tcp://203.0.113.7:11010' AS value FROM usages)`)
	took := func(what string, do func()) {
		begun := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	took("one pass over the tables before", func() { walkTables(t, path) })
	var s *store
	took("openStore with its migration", func() { s = mustOpen(t, path) })
	if totals, err := s.Totals(t.Context()); err != nil || totals["usages"] != uint64(count) || totals["published"] != uint64(count) {
		t.Errorf("%v, %v", totals, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	took("one pass over the tables after", func() { walkTables(t, path) })
	took("openStore once more", func() { mustOpen(t, path) })
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		t.Log(regexp.MustCompile(`VmHWM:.*`).FindString(string(status)))
	}
}

// walkTables reads every cell of a database.
func walkTables(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range queryText(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`) {
		columns := queryText(t, db, `SELECT group_concat('coalesce(length(' || name || '), 0)', ' + ') FROM pragma_table_info('`+table+`')`)[0]
		queryText(t, db, `SELECT count(*), sum(`+columns+`) FROM `+table)
	}
}

// statement is a text of SQL in the program's source.
type statement struct{ function, text string }

// sourceReader finds the SQL in a source file: what its string expressions can be.
type sourceReader struct {
	constants map[string]string
	results   map[string][]string // what functions give, the first of it
	variables map[string][]string // of the function that is being read
}

var beginning = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s`)

// readStatements gives every statement in a file. A variable stands for each of
// the texts that its function gives it.
func readStatements(t *testing.T, path string) (all []statement) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := sourceReader{constants: map[string]string{}, results: map[string][]string{}}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for i, value := range spec.(*ast.ValueSpec).Values {
					if texts := r.texts(value); len(texts) == 1 {
						r.constants[spec.(*ast.ValueSpec).Names[i].Name] = texts[0]
					}
				}
			}
		}
	}
	for _, d := range file.Decls { // so that the others know what these give
		if f, ok := d.(*ast.FuncDecl); ok {
			r.function(f)
		}
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			for _, text := range r.function(f) {
				all = append(all, statement{f.Name.Name, text})
			}
		}
	}
	return all
}

func (r *sourceReader) function(f *ast.FuncDecl) (found []string) {
	r.variables = map[string][]string{}
	for range 2 { // the second time with what a variable is by then
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ReturnStmt:
				if len(n.Results) > 0 {
					r.results[f.Name.Name] = r.texts(n.Results[0])
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs[:len(n.Rhs)] {
					if name, ok := left.(*ast.Ident); ok {
						for _, text := range r.texts(n.Rhs[i]) {
							if !slices.Contains(r.variables[name.Name], text) && strings.Count(text, " AND u.provider_id") < 2 {
								r.variables[name.Name] = append(r.variables[name.Name], text)
							}
						}
					}
				}
			}
			return true
		})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		texts := r.texts(e)
		for _, text := range texts {
			for part := range strings.SplitSeq(text, ";") {
				if beginning.MatchString(part) && !slices.Contains(found, part) {
					found = append(found, part)
				}
			}
		}
		return len(texts) == 0
	})
	return found
}

// texts gives what a string expression can be, nothing where that is not known.
func (r *sourceReader) texts(e ast.Expr) (texts []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []string{text}
		}
	case *ast.Ident:
		if text, ok := r.constants[e.Name]; ok {
			return []string{text}
		}
		return r.variables[e.Name]
	case *ast.CallExpr:
		if method, ok := e.Fun.(*ast.SelectorExpr); ok {
			return r.results[method.Sel.Name]
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return nil
		}
		for _, left := range r.texts(e.X) {
			for _, right := range r.texts(e.Y) {
				texts = append(texts, left+right)
			}
		}
	}
	return texts
}

// growing are the tables that have a row for each of something, by the names
// that they have in the statements.
var growing = []string{
	"services", "s", "usages", "u", "bindings", "b", "names", "places", "p", "zone_records", "zone_serials", "accounts", "a", "marks",
}

// No statement walks through a table that grows, none sorts, and none is compiled each time
// that it runs.
func TestQueryPlans(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	walks, peeks := regexp.MustCompile(`SCAN (\w+)`), regexp.MustCompile(`LIMIT \?\d*\s*(\)|$)`)
	var statements []statement
	for _, path := range []string{"store.go", "internal/builtin/table.go", "internal/ledger/ledger.go", "internal/ledger/places.go", "internal/ledger/state.go"} {
		statements = append(statements, readStatements(t, path)...)
	}
	for _, q := range statements {
		if peeks.MatchString(q.text) {
			t.Errorf("%s: the plan depends on the number that LIMIT gets: want ? + 0 in\n%s", q.function, q.text)
		}
		for _, step := range explain(t, s.writer, q.text) {
			table := walks.FindStringSubmatch(step)
			if strings.Contains(step, "TEMP B-TREE") || table != nil && slices.Contains(growing, table[1]) {
				t.Errorf("%s: %s in\n%s", q.function, step, q.text)
			}
		}
	}
	if len(statements) < 80 {
		t.Errorf("only %d statements were found", len(statements))
	}
}

// explain gives the steps of a query's plan.
func explain(t *testing.T, db *sql.DB, query string) (steps []string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, make([]any, 20)...)
	if err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return steps
}

// What is shown as a total is what counting gives, whatever was called.
func TestTotalsAreCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	s := filledStore(t)
	ctx := t.Context()
	for i := range 3 {
		if err := s.CreateService(ctx, service{ID: fmt.Sprint("s", i), Config: `{"domain":"s.example","provider":"builtin"}`}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutConfiguration(ctx, configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true}, false); err != nil {
		t.Fatal(err)
	}
	calls := []func() error{
		func() error {
			u := custom(fmt.Sprint("p", random.IntN(40)), sqlite.NetworkID(random.Uint64()))
			u.ServiceID = []string{"svc", "s0", "s1", "gone"}[random.IntN(4)]
			_, err := s.CreateUsage(ctx, u)
			return err
		},
		func() error {
			all, err := s.Usages(ctx, usageFilter{after: int64(random.IntN(40))}, 1)
			if err != nil || len(all) == 0 {
				return err
			}
			_, err = s.ReleaseUsage(ctx, all[0].ID, random.IntN(2) == 0)
			return err
		},
		func() error { return s.DeleteService(ctx, fmt.Sprint("s", random.IntN(4))) },
		func() error {
			return s.PutService(ctx, fmt.Sprint("s", random.IntN(4)), func(service) (service, error) {
				return service{Name: "x", Config: `{"domain":"s.example"}`}, nil
			})
		},
		func() error { return settleRandomly(t, s, random) },
		func() error {
			all, err := s.ledger.Leftovers(ctx, 0, 1)
			if err != nil || len(all) == 0 {
				return err
			}
			return s.ledger.ForgetLeftover(ctx, all[0].Place.ID)
		},
	}
	seen := map[string]bool{}
	for n := range 1500 {
		calls[random.IntN(len(calls))]() // many are refused, and leave the counts as they are
		if n%100 == 0 {
			maps.Copy(seen, checkTotals(t, s))
		}
	}
	if len(seen) < 9 {
		t.Errorf("only %v have rows: the test has come to little", seen)
	}
}

// settleRandomly brings the place of a name into another state, or ends it.
func settleRandomly(t *testing.T, s *store, random *rand.Rand) error {
	all, err := s.Usages(t.Context(), usageFilter{after: int64(random.IntN(40))}, 1)
	if err != nil || len(all) == 0 {
		return err
	}
	name := all[0].Name
	state, err := s.ledger.State(t.Context(), []string{name})
	if err != nil || len(state.Names[0].Usages) == 0 || state.Names[0].Usages[0].Account == nil {
		return err
	}
	p := reconcile.Place{Name: name, Account: *state.Names[0].Usages[0].Account}
	if stored := state.Names[0].Places; len(stored) > 0 {
		p = stored[0]
	}
	if p.ID != 0 && random.IntN(4) == 0 {
		return s.ledger.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{p}})
	}
	p.State = reconcile.PlaceStates[random.IntN(len(reconcile.PlaceStates))]
	p.Standing = mesh.Value(state.Names[0].Usages[0].Network, s.owner, nil)
	return s.ledger.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}})
}

// checkTotals counts what the totals tell of, and gives what there is any of.
func checkTotals(t *testing.T, s *store) (seen map[string]bool) {
	t.Helper()
	totals, err := s.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]string{"services": `SELECT count(*) FROM services`, "usages": `SELECT count(*) FROM usages`}
	for _, state := range []reconcile.PlaceState{reconcile.Leftover, reconcile.Withdrawn} {
		count[string(state)] = `SELECT count(*) FROM places WHERE state = '` + string(state) + `'`
	}
	for _, state := range reconcile.UsageStates {
		count[string(state)] = `SELECT count(*) FROM usages WHERE state = '` + string(state) + `'`
	}
	own, err := s.ledger.OwnState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	totals[string(own)]--
	seen = map[string]bool{}
	for what, query := range count {
		got := queryText(t, s.reader, query)[0]
		if got != fmt.Sprint(totals[what]) {
			t.Errorf("total of %s: %d, there are %s", what, totals[what], got)
		}
		if got != "0" {
			seen[what] = true
		}
	}
	for _, line := range queryText(t, s.reader, `SELECT id, usage_count, (SELECT count(*) FROM usages WHERE provider_id = services.id) FROM services`) {
		if words := strings.Split(line, " | "); words[1] != words[2] {
			t.Errorf("usages of a service: %s", line)
		}
	}
	return seen
}

// A key goes when nothing needs it any more, and stays as long as a value stands
// that it was published with.
func TestKeysOfAccounts(t *testing.T) {
	s := filledStore(t)
	ctx := t.Context()
	put := func(key string) {
		t.Helper()
		c := configuration{Provider: "alidns", AccessKeyID: key, Secret: secrets.Secret("secret of " + key), Domain: "example.com", TXTRecordName: "_txt"}
		if err := s.PutConfiguration(ctx, c, false); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		got := queryText(t, s.reader, `SELECT access_key_id, access_key_secret FROM accounts ORDER BY access_key_id`)
		for i, key := range want {
			want[i] = key + " | secret of " + key
		}
		if !slices.Equal(got, want) {
			t.Errorf("accounts %q, want %q", got, want)
		}
	}
	put("one")
	put("two")
	check("two")
	state, err := s.ledger.State(ctx, []string{"_txt.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	p := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Published, Standing: "v"}
	if err := s.ledger.Settle(ctx, reconcile.Settlement{Places: []reconcile.Place{p}}); err != nil {
		t.Fatal(err)
	}
	put("three")
	check("three", "two")
	if err := s.CreateService(ctx, service{ID: "own", Config: `{"domain":"o.example","provider":"alidns","access_key_id":"four","access_key_secret":"secret of four"}`}); err != nil {
		t.Fatal(err)
	}
	check("four", "three", "two")
	if err := s.DeleteService(ctx, "own"); err != nil {
		t.Fatal(err)
	}
	check("three", "two")
	if state, err = s.ledger.State(ctx, []string{"_txt.example.com"}); err != nil || len(state.Names[0].Places) != 1 {
		t.Fatal(state, err)
	}
	if err := s.ledger.Settle(ctx, reconcile.Settlement{Ended: state.Names[0].Places}); err != nil {
		t.Fatal(err)
	}
	check("three")
}

// TestListsWhileAccountsGo lists zones and leftovers while their accounts come and
// go: what is listed is of one moment.
func TestListsWhileAccountsGo(t *testing.T) {
	s := filledStore(t)
	ctx := t.Context()
	put := func(n int) error {
		key := fmt.Sprint("key ", n%2)
		c := configuration{Provider: "alidns", AccessKeyID: key, Secret: "secret", Domain: "example.com", TXTRecordName: "_txt"}
		return s.PutConfiguration(ctx, c, false)
	}
	place := func() error {
		state, err := s.ledger.State(ctx, []string{"_txt.example.com"})
		if err != nil {
			return err
		}
		left := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Leftover, Standing: "v"}
		return s.ledger.Settle(ctx, reconcile.Settlement{Ended: state.Names[0].Places, Places: []reconcile.Place{left}})
	}
	if err := put(0); err != nil {
		t.Fatal(err)
	}
	changed := make(chan error, 1)
	go func() {
		var err error
		for n := range 200 {
			err = errors.Join(err, put(n), place())
		}
		changed <- err
	}()
	for {
		if zones, err := s.ledger.Zones(ctx); err != nil || len(zones) == 0 {
			t.Fatal(zones, err)
		}
		if left, err := s.ledger.Leftovers(ctx, 0, 10); err != nil {
			t.Fatal(left, err)
		}
		select {
		case err := <-changed:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

const hiddenSecret = "hunter2-is-my-secret"

// secretHolders are all types of values in which a secret may be.
var secretHolders = []any{
	configuration{}, configurationBody{}, serviceConfig{}, service{}, serviceBody{}, ledger.StoredPlace{},
	provider.Credentials{}, reconcile.Account{}, reconcile.Usage{}, reconcile.Own{}, reconcile.Place{}, reconcile.Name{},
	reconcile.State{}, reconcile.Record{}, reconcile.Zone{}, reconcile.Settlement{}, provision.Entry{},
}

// hide puts the secret wherever it can be, and gives in how many places.
func hide(v reflect.Value, depth int) (count int) {
	switch {
	case depth > 8 || !v.CanSet():
		return 0
	case v.Type() == reflect.TypeFor[secrets.Secret]():
		v.SetString(hiddenSecret)
		return 1
	case v.Type() == reflect.TypeFor[secrets.JSON]():
		return hideText(v)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name == "Config" {
				count += hideText(v.Field(i))
				continue
			}
			count += hide(v.Field(i), depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return hide(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return hide(v.Index(0), depth+1)
	}
	return count
}

// hideText puts a service's config with a secret into a field that holds one.
func hideText(v reflect.Value) int {
	text := `{"access_key_secret":"` + hiddenSecret + `"}`
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Slice:
		v.SetBytes([]byte(text))
	default:
		return 0
	}
	return 1
}

// However a value is printed by mistake, no secret comes out.
func TestSecretsAreNotPrinted(t *testing.T) {
	for _, holder := range secretHolders {
		t.Run(fmt.Sprintf("%T", holder), func(t *testing.T) {
			pointer := reflect.New(reflect.TypeOf(holder))
			if hide(pointer.Elem(), 0) == 0 {
				t.Fatal("it holds no secret")
			}
			value := pointer.Elem().Interface()
			for _, v := range []any{value, pointer.Interface(), []any{value}, map[string]any{"x": value}} {
				for _, verb := range []string{"%v", "%+v", "%#v"} {
					check(t, verb, fmt.Sprintf(verb, v))
				}
				if text, err := json.Marshal(v); err == nil {
					check(t, "json", string(text))
				}
				var log bytes.Buffer
				slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
				slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
				check(t, "slog", log.String())
			}
		})
	}
}

func check(t *testing.T, how, text string) {
	t.Helper()
	decimal := strings.Trim(fmt.Sprint([]byte(hiddenSecret)), "[]") // as %v prints bytes
	hex := fmt.Sprintf("%x", hiddenSecret)
	commas := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%#v", []byte(hiddenSecret)), "[]byte", ""), "{}")
	for _, form := range []string{hiddenSecret, decimal, hex, commas} {
		if strings.Contains(text, form) {
			t.Fatalf("%s: %s", how, text)
		}
	}
}

// A secret in a field that is not exported is printed raw, for fmt cannot call
// its methods. So there is none.
func TestSecretFieldsAreExported(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					if isSecret(field.Type) && !name.IsExported() {
						t.Errorf("%s: field %s is not exported", path, name.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isSecret reports whether a type in the source is secrets.Secret, or a struct
// of another package that holds one.
func isSecret(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isSecret(e.X)
	case *ast.Ident:
		return e.Name == "Secret" || e.Name == "Credentials"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Secret" || e.Sel.Name == "Credentials"
	}
	return false
}

// What was replaced or deleted is in no octet of the files, and of a copy; a control
// shows that the search finds it.
func TestOldSecretsAreErased(t *testing.T) {
	for name, control := range map[string]bool{"erased": false, "without secure_delete": true} {
		t.Run(name, func(t *testing.T) {
			s := filledStore(t)
			if control {
				if _, err := s.writer.Exec(`PRAGMA secure_delete = off`); err != nil {
					t.Fatal(err)
				}
			}
			current := changeSecretsOften(t, s, rand.New(rand.NewPCG(9, 5)))
			settle(s)
			file, err := s.Backup(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			copied, err := io.ReadAll(file)
			if err != nil {
				t.Fatal(err)
			}
			contents := map[string][]byte{"the copy": copied}
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if contents[suffix], err = os.ReadFile(s.path + suffix); err != nil {
					t.Fatal(err)
				}
			}
			old, known := 0, 0
			for where, content := range contents {
				for _, secret := range oneSecret.FindAllString(string(content), -1) {
					if known++; !current[secret] {
						if old++; !control {
							t.Errorf("%s is in %q", secret, where)
						}
					}
				}
			}
			if known == 0 || control && old == 0 {
				t.Errorf("%d secrets are found, %d of them old: the search finds nothing", known, old)
			}
		})
	}
}

var oneSecret = regexp.MustCompile(`canary[0-9]{5}`)

// changeSecretsOften stores, replaces and deletes some hundred secrets, short and long,
// in the configuration and in services, and gives those that are to be there.
func changeSecretsOften(t *testing.T, s *store, random *rand.Rand) map[string]bool {
	t.Helper()
	var made int
	secret := func() string { made++; return fmt.Sprintf("canary%05d", made) }
	services, configured := map[string]string{}, ""
	for range 600 {
		id, err := fmt.Sprint("s", random.IntN(60)), error(nil)
		switch kind := random.IntN(8); {
		case kind == 0:
			configured = secret()
			err = s.PutConfiguration(t.Context(), configuration{
				Provider: "cloudflare", AccessKeyID: "token", Secret: secrets.Secret(configured), Domain: "example.org", TXTRecordName: "x",
			}, false)
		case kind < 3 && services[id] != "":
			delete(services, id)
			err = s.DeleteService(t.Context(), id)
		default:
			services[id] = secret()
			size := random.IntN(600)
			if random.IntN(10) == 0 {
				size = random.IntN(20_000)
			}
			config := fmt.Sprintf(`{"domain":"example.com","provider":"cloudflare","access_key_id":"%s","access_key_secret":"%s","note":"%s"}`,
				id, services[id], strings.Repeat("n", size))
			err = s.PutService(t.Context(), id, func(service) (service, error) { return service{Name: "x", Config: secrets.Secret(config)}, nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	current := map[string]bool{configured: true}
	for _, secret := range services {
		current[secret] = true
	}
	return current
}

// The key that a place was published with goes with the last that needs it.
func TestKeysOfEndedPlacesGo(t *testing.T) {
	for name, end := range map[string]func(s *store) error{
		"ended": func(s *store) error {
			return s.ledger.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{{ID: 5, Account: reconcile.Account{ID: 7}}}})
		},
		"forgotten": func(s *store) error { return s.ledger.ForgetLeftover(t.Context(), 5) },
	} {
		t.Run(name, func(t *testing.T) {
			s := filledStore(t)
			_, err := s.writer.Exec(`
				INSERT INTO accounts VALUES (7, 'cloudflare', '', 'token', 'canary00001', 'hash');
				INSERT INTO places VALUES (5, 'a.example.com', 7, 'example.com', '', 'leftover', 'x', '', 0, 0, '', '', '', 0, '', '')`)
			if err != nil {
				t.Fatal(err)
			}
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			settle(s)
			for _, suffix := range []string{"", "-wal"} {
				if content, err := os.ReadFile(s.path + suffix); err != nil || bytes.Contains(content, []byte("canary")) {
					t.Errorf("%q has the secret, %v", suffix, err)
				}
			}
		})
	}
}

// A reader that holds the log keeps no change waiting; the log is emptied once it has
// gone.
func TestSecretsGoWhenTheLogIsFree(t *testing.T) {
	s := filledStore(t)
	held, err := s.reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback()
	if err := held.QueryRow(`SELECT count(*) FROM services`).Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	put := func(secret secrets.Secret) {
		t.Helper()
		if err := s.PutConfiguration(t.Context(), configuration{Provider: "cloudflare", AccessKeyID: "token", Secret: secret, Domain: "example.org", TXTRecordName: "x"}, false); err != nil {
			t.Fatal(err)
		}
	}
	put("canary00001")
	put("another")
	if s.file.LogSize() == 0 {
		t.Fatal("the log is empty while it is read")
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	settle(s)
	for _, suffix := range []string{"", "-wal"} {
		if content, err := os.ReadFile(s.path + suffix); err != nil || bytes.Contains(content, []byte("canary")) {
			t.Errorf("%q has the secret, %v", suffix, err)
		}
	}
}

// A database that was in use before is written anew, once.
func TestOldDatabaseIsCleaned(t *testing.T) {
	before := filledStore(t)
	path := before.path
	for _, statement := range []string{
		`PRAGMA secure_delete = off`, `CREATE TABLE old (x)`, `INSERT INTO old VALUES ('` + strings.Repeat("canary00001", 5000) + `')`,
		`DROP TABLE old`, `PRAGMA application_id = 0`,
	} {
		if _, err := before.writer.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.eraser.Clean(t.Context(), func() bool { return false }); err == nil {
		t.Error("it is written anew without room")
	}
	before.Close()
	if content, err := os.ReadFile(path); err != nil || !bytes.Contains(content, []byte("canary")) {
		t.Fatal("the old file has no such text", err)
	}
	s := mustOpen(t, path)
	s.lookThrough(t.Context(), noLog)
	settle(s)
	if content, err := os.ReadFile(path); err != nil || bytes.Contains(content, []byte("canary")) {
		t.Error("the text is still there", err)
	}
	s.Close()
	clean, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	s.lookThrough(t.Context(), noLog)
	settle(s)
	if after, err := os.Stat(path); err != nil || !after.ModTime().Equal(clean.ModTime()) {
		t.Error("the second start writes it again", err)
	}
}

// Before an upgrade a copy is kept, which no later one replaces, and the earlier
// program says the command that brings it back.
func TestUpgradeKeepsACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it's here", "meshddns.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(oldFile(t, 1, `INSERT INTO services VALUES ('old', 'Old', '{}', '', '', '', '')`), path); err != nil {
		t.Fatal(err)
	}
	all := schema.Steps
	t.Cleanup(func() { schema.Steps = all })
	schema.Steps = append(slices.Clone(all), func(context.Context, *sql.Tx) error { return errors.New("it fails") })
	for range 2 {
		if _, err := openStore(t.Context(), path, noLog); err == nil {
			t.Fatal("a broken migration succeeds")
		}
	}
	schema.Steps = all
	mustOpen(t, path).Close()
	kept, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.v*"))
	if err != nil || len(kept) != 1 || kept[0] != path+".v1" {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	goBack(t, path, 1)
	if got := versionOf(t, path); got != "1" {
		t.Fatalf("version %s after the way back", got)
	}
	other, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(`UPDATE services SET name = 'Other'`); err != nil {
		t.Fatal(err)
	}
	other.Close()
	copied, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".v1", copied[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path).Close()
	if content, err := os.ReadFile(path + ".v1"); err != nil || len(content) != 100 {
		t.Error("another copy is overwritten", err)
	}
	goBack(t, path, 1)
	if s := mustOpen(t, path); !slices.Equal(queryText(t, s.reader, `SELECT name FROM services`), []string{"Other"}) {
		t.Error("the newest copy is not the one that was brought back")
	}
}

// goBack runs the command that the program of a version refuses a newer file with.
func goBack(t *testing.T, path string, version int) {
	t.Helper()
	all := schema.Steps
	defer func() { schema.Steps = all }()
	schema.Steps = all[:version-1]
	_, err := openStore(t.Context(), path, noLog)
	if err == nil {
		t.Fatal("a newer file is opened")
	}
	_, command, ok := strings.Cut(err.Error(), "what came after it: ")
	if !ok {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", command, err, out)
	}
}

func versionOf(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return queryText(t, db, `PRAGMA user_version`)[0]
}

// Without room for the copy nothing is upgraded.
func TestUpgradeWithoutRoom(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "meshddns.db")
	content, err := os.ReadFile(oldFile(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, dir, 64<<10)
	_, err = openStore(t.Context(), path, noLog)
	if err == nil || !strings.Contains(err.Error(), "keep a copy") || !strings.Contains(err.Error(), "full") {
		t.Errorf("the upgrade: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
		t.Fatal(err)
	}
	if got := versionOf(t, path); got != "1" {
		t.Errorf("version %s", got)
	}
	mustOpen(t, path)
}

// smallDisk gives a folder that is a file system of its own, with little room.
func smallDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mountDisk(t, dir)
	return dir
}

// mountDisk makes a folder a small file system of its own until the test ends.
func mountDisk(t testing.TB, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=600k"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("a small disk cannot be mounted: %v; root can", err)
		}
		t.Skipf("NOT TESTED: a small disk cannot be mounted: %v; root can", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fillDisk takes the room of a disk but for so much.
func fillDisk(t testing.TB, dir string, leave int64) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 4096); ; {
		if _, err = file.Write(block); err != nil {
			break
		}
	}
	if info, fault := file.Stat(); !errors.Is(err, syscall.ENOSPC) || fault != nil || file.Truncate(info.Size()-leave) != nil {
		t.Fatal(err, fault)
	}
}

// What has come to a list that is not JSON, and a missing binding, do not keep others
// from being listed.
func TestUnreadableRowsAreListed(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/good", `{"name":"x","config":{"domain":"example.com"}}`)
	a.must(t, "PUT", "/api/v1/ddns/services/odd", `{"name":"x","config":{"domain":"example.org"}}`)
	var ids []string
	for n := range 4 {
		ids = append(ids, a.reserve(t, []string{"good", "odd"}[n/2], fmt.Sprint("p", n), n))
	}
	db := a.open(t)
	defer db.Close()
	for _, statement := range []string{
		`UPDATE usages SET txt_endpoints = '{' WHERE record_prefix = 'p0'`,
		`DELETE FROM bindings WHERE network_id = 1`,
		`UPDATE services SET config = '{"domain', txt_endpoints = 'x', domain = NULL WHERE id = 'odd'`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, query := range []string{"", "?state=pending", "?state=none", "?limit=10", "?service_id=odd"} {
		status, code, answer := a.call(t, "GET", "/api/v1/ddns/usages/available"+query, "")
		if status != http.StatusOK || query == "" && strings.Count(answer, `"id":"`) != 8 {
			t.Errorf("%s: %d %s %s", query, status, code, answer)
		}
	}
	for _, id := range ids {
		a.must(t, "GET", "/api/v1/ddns/usages/"+id, "")
	}
	if answer := a.must(t, "GET", "/api/v1/ddns/services", ""); !strings.Contains(answer, `"good"`) || !strings.Contains(answer, `"odd"`) {
		t.Error(answer)
	}
	a.must(t, "GET", "/api/v1/ddns/services/odd", "")
}

// TestSQLiteVersion: before 3.51.3 two connections that write and checkpoint at one time
// could corrupt the database (https://sqlite.org/wal.html#walresetbug).
func TestSQLiteVersion(t *testing.T) {
	if version, number, _ := sqlite3.Version(); number < 3_051_003 {
		t.Errorf("SQLite %s: want 3.51.3 at least", version)
	}
}

// A write that was not tried, because its account or its name went meanwhile, leaves no
// place, and takes nothing with it of what else came of its batch.
func TestSettleAfterAccount(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"alidns","access_key_id":"x","access_key_secret":"secret of x","domain":"example.com","txt_record_name":"_txt"}`)
	state, err := a.store.ledger.State(t.Context(), []string{"_txt.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	kept := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Failed}
	lost := kept
	lost.Account.ID += 1000
	released := kept
	released.Name = "_mesh.released.example.com"
	if err := a.store.ledger.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{lost, released, kept}}); err != nil {
		t.Fatal(err)
	}
	if got := queryText(t, a.store.reader, `SELECT name, state FROM places`); len(got) != 1 || got[0] != "_txt.example.com | failed" {
		t.Errorf("places %q", got)
	}
}

// TestStateIsSearched wants the usages of one state to be found by their index.
func TestStateIsSearched(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	for _, f := range []usageFilter{{state: reconcile.Failed}, {state: reconcile.Failed, serviceID: "svc"}} {
		where, _ := f.where(1)
		plan := strings.Join(explain(t, s.writer, selectUsages+where), "; ")
		if want := "SEARCH u USING INDEX usages_by_state (state=? AND seq>?)"; !strings.Contains(plan, want) {
			t.Errorf("%+v: %s, want %s", f, plan, want)
		}
	}
}

// The SQLite file of another program stays as it is, and nothing is made beside it.
func TestForeignDatabase(t *testing.T) {
	for name, c := range map[string]struct{ settings, statements string }{
		"new, with tables":            {"", `CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('https://example.com')`},
		"with a log":                  {"?_journal_mode=WAL", `CREATE TABLE bookmarks (url TEXT)`},
		"with a version":              {"", `CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 3`},
		"newer":                       {"", `CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 35`},
		"with the id of another":      {"", `PRAGMA application_id = 252006673`},
		"with tables of another name": {"", `CREATE TABLE services (x); CREATE VIEW usages AS SELECT x FROM services; PRAGMA user_version = 6`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "places.sqlite")
			db, err := sql.Open("sqlite3", "file:"+path+c.settings)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(c.statements); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := openStore(t.Context(), path, noLog)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another program") {
				t.Errorf("openStore: %v", err)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file has changed, %v", err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("its mode: %v, %v", info.Mode(), err)
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
				t.Errorf("beside it: %v, %v", entries, err)
			}
		})
	}
}

// Tables of another program that are in its log alone are seen too.
func TestForeignLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "places.sqlite")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE bookmarks (url TEXT)`); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), path, noLog)
	if err == nil {
		s.Close()
		t.Fatal("another program's database is taken over")
	}
	if after, err := os.ReadDir(filepath.Dir(path)); err != nil || len(after) != len(before) {
		t.Errorf("beside it: %v, %v", after, err)
	}
	if names := queryText(t, db, `SELECT name FROM sqlite_schema`); strings.Join(names, " ") != "bookmarks" || !strings.Contains(err.Error(), "another program") {
		t.Errorf("%v, and in the file are %q", err, names)
	}
}

// The first start logs the path of the database that it makes, the second has nothing to tell.
func TestNewDatabaseIsTold(t *testing.T) {
	var out bytes.Buffer
	path := filepath.Join(t.TempDir(), "typo.db")
	for start := 1; start <= 2; start++ {
		s, err := openStore(t.Context(), path, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), `level=WARN msg="a new database is made" file=`+path); got != 1 {
			t.Errorf("told %d times at start %d: %s", got, start, &out)
		}
	}
}

// A backup that cannot be cleaned up does not keep the program from its start.
func TestLeftFolderStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	s := mustOpen(t, path)
	left, err := s.file.TempFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mountPoint := filepath.Join(left, "busy")
	if err := os.Mkdir(mountPoint, 0o700); err != nil {
		t.Fatal(err)
	}
	mountDisk(t, mountPoint)
	var out bytes.Buffer
	again, err := openStore(t.Context(), path, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), mountPoint) {
		t.Errorf("told: %s", &out)
	}
}

// After the database was moved away, the start beside its log is refused, and all that was
// acknowledged is there when the file is back.
func TestFileComesBack(t *testing.T) {
	first := filledStore(t)
	path := first.path
	for i, prefix := range []string{"p1", "p2", "p3"} {
		if _, err := first.CreateUsage(t.Context(), custom(prefix, sqlite.NetworkID(i))); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(filepath.Dir(path), "kept.db")
	if err := os.Rename(path, kept); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil { // SQLite leaves the log of a file that was moved
		t.Fatal(err)
	}
	if s, err := openStore(t.Context(), path, noLog); err == nil {
		s.Close()
		t.Error("a database is made beside the log of another")
	}
	if err := os.Rename(kept, path); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	if got, err := s.Usages(t.Context(), usageFilter{}, 10); err != nil || len(got) != 3 {
		t.Errorf("%d usages, %v", len(got), err)
	}
}

// A HEAD request says what a backup would be, and makes, counts and logs none.
func TestHeadOfBackup(t *testing.T) {
	a := newAppliance(t)
	get, _ := a.do(t, "GET", "/api/v1/ddns/backup", nil, "")
	counted := func() (lines []string) {
		for line := range strings.Lines(a.must(t, "GET", "/metrics", "")) {
			if strings.HasPrefix(line, "meshddns_backup_") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	eventually(t, "the backup is counted", func() bool { return slices.Contains(counted(), "meshddns_backup_runs_total{result=\"ok\"} 1\n") })
	before, logged := counted(), strings.Count(a.logs.String(), "backup")
	head, body := a.do(t, "HEAD", "/api/v1/ddns/backup", nil, "")
	get.Header.Del("Content-Length") // the size of a copy
	get.Header.Del("Date")
	head.Header.Del("Date")
	if head.StatusCode != http.StatusOK || body != "" || !maps.EqualFunc(head.Header, get.Header, slices.Equal) {
		t.Errorf("%d %q %v, want %v", head.StatusCode, body, head.Header, get.Header)
	}
	if after := counted(); !slices.Equal(after, before) {
		t.Errorf("counted %q, before %q", after, before)
	}
	if now := strings.Count(a.logs.String(), "backup"); now != logged {
		t.Errorf("logged: %s", a.logs.String())
	}
}

// managed is the socket of a service manager, which reads until a message begins as wanted and
// has some text in it.
func managed(t *testing.T) (path string, told func(begin, part string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	manager.SetReadDeadline(time.Now().Add(patience))
	return path, func(begin, part string) {
		t.Helper()
		buffer, last := make([]byte, 4096), ""
		for !strings.HasPrefix(last, begin) || !strings.Contains(last, part) {
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatalf("%q with %q is not told, last %q: %v", begin, part, last, err)
			}
			last = string(buffer[:n])
		}
	}
}

// The service manager is told why the program does not start.
func TestManagerIsToldOfAStartThatFails(t *testing.T) {
	path, told := managed(t)
	db := t.TempDir()
	err := run(t.Context(), process{args: []string{"-db", db}, environ: []string{"NOTIFY_SOCKET=" + path}, stdout: io.Discard, stderr: io.Discard})
	if err == nil {
		t.Fatal("a folder is opened")
	}
	told("STATUS=failed: ", db+" is not a regular file")
}

// The service manager is told what is wrong while the program runs.
func TestManagerIsToldOfAFault(t *testing.T) {
	path, told := managed(t)
	db := filepath.Join(t.TempDir(), "meshddns.db")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	defer func() { cancel(); <-ended }() // with the fault as its error, or not
	go func() {
		ended <- run(ctx, process{args: []string{"-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-db", db},
			environ: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=1000000"}, stdout: io.Discard, stderr: io.Discard})
	}()
	told("WATCHDOG=1", "")
	if err := os.Remove(db + "-lock"); err != nil {
		t.Fatal(err)
	}
	told("STATUS=", "meshddns.db-lock: not the file any more that was opened")
}

// What hinders no reading is in the status too, and is no reason for the watchdog to bite.
func TestStatusOfADamage(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	var damage error = sqlite3.Error{Code: sqlite3.ErrCorrupt}
	s.damage.Store(&damage)
	text, err := work(s)(t.Context())
	if err != nil || !strings.Contains(text, "names published 0; the database file is damaged, restore a backup") {
		t.Errorf("%q, %v", text, err)
	}
}

// A usage has the name of what its service is when it is stored, also when the service is
// changed meanwhile.
func TestUsageAsStored(t *testing.T) {
	s := filledStore(t)
	begun, wait := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun); <-wait })
	s.newID = func() (string, error) {
		begin()
		return newUUID()
	}
	made := make(chan usage, 1)
	go func() {
		u, err := s.CreateUsage(context.Background(), custom("office", 42))
		if err != nil {
			t.Error(err)
		}
		made <- u
	}()
	receive(t, begun)
	err := s.PutService(t.Context(), "svc", func(v service) (service, error) { v.Config = `{"domain":"example.net"}`; return v, nil })
	if err != nil {
		t.Fatal(err)
	}
	close(wait)
	u := receive(t, made)
	if again, err := s.Usage(t.Context(), u.ID); err != nil || u.Name != "_mesh.office.example.net" || again.Name != u.Name || again.Domain != u.Domain {
		t.Errorf("told %q in %q, stored %q in %q, %v", u.Name, u.Domain.V, again.Name, again.Domain.V, err)
	}
}
