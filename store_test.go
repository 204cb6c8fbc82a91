package main

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/events"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/seal"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

var noLog = slog.New(slog.DiscardHandler)

func never() bool { return false }

// openStore opens a store without addresses.
func openStore(ctx context.Context, path string, log *slog.Logger) (*store, error) {
	return openStoreKnowing(ctx, path, func() reconcile.Addresses { return reconcile.Addresses{} }, log)
}

func openStoreKnowing(ctx context.Context, path string, addresses func() reconcile.Addresses, log *slog.Logger) (*store, error) {
	var db *sqlite.Database
	var owner string
	err := support.Unlocked(func() (err error) {
		db, owner, _, err = openDatabase(ctx, path, schema, log)
		return err
	})
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db, owner, mesh.Program{}, addresses, log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// testEngine is the configuration of an engine of a store.
func testEngine(s *store, c clients, addresses *hostaddr.Book, interval time.Duration, log *slog.Logger) reconcile.Config {
	return reconcile.Config{
		Database: s.ledger, Open: c.open, Addresses: knownAddresses(addresses, func() bool { return c.dnsAddress != "" && c.hidden() }),
		Ready: addresses.Ready(), Interval: interval, Warning: reconcile.Internet.Warning, Writes: nodeWrites(nil), Log: log, Now: s.now,
	}
}

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
	if err := s.CreateService(t.Context(), mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "svc", Name: "Site"}, Config: `{"domain":"example.com"}`}); err != nil {
		t.Fatal(err)
	}
	settle(s)
	return s
}

// path gives the path of the database.
func (s *store) path() string {
	var path string
	s.db.Reader.QueryRow(`SELECT file FROM pragma_database_list`).Scan(&path)
	return path
}

// settle waits until the store does nothing by itself.
func settle(s *store) {
	s.db.WaitErased()
}

// custom is a usage to make.
func custom(prefix string, network mesh.NetworkID) mesh.Usage {
	return mesh.Usage{ServiceID: "svc", Mode: mesh.CustomMode, Prefix: prefix, Network: sql.Null[mesh.NetworkID]{V: network, Valid: true}}
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
	if err := s.db.Reader.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name = 'half'`).Scan(&count); err != nil || count != 0 {
		t.Errorf("%d tables of the broken migration, %v", count, err)
	}
}

// A first try that comes to nothing, for another of its group fails, leaves nothing
// in places and in the verdicts of the built-in zones.
func TestSecondTryForgetsTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := filledStore(t)
		ctx := t.Context()
		if err := s.PutConfiguration(ctx, mesh.Configuration{Provider: "builtin"}, false); err != nil {
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
		next(func() error { return s.db.Tx(ctx, func(context.Context, *sql.Tx) error { <-open; return nil }) }, nil)
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
			return s.ledger.Intend(ctx, nil, nil, func(reconcile.State) []*reconcile.Place { tries++; return []*reconcile.Place{place} })
		}, nil)
		next(func() error {
			return builtin.Client{Store: s.zones}.Change(ctx, provider.Change{Type: provider.TXT, Zone: "example.com", Name: "_mesh.office.example.com", Add: []provider.Value{{"y"}}, TTL: 60})
		}, nil)
		next(func() error {
			return s.db.Tx(sqlite.Background(ctx), func(context.Context, *sql.Tx) error { return failed })
		}, failed)
		close(open)
		running.Wait()
		if got := support.Rows(t, s.db.Reader, `SELECT id, name FROM places`); tries != 2 || !slices.Equal(got, []string{fmt.Sprint(place.ID, " | office.example.com")}) {
			t.Errorf("after %d tries the place %d is stored as %q", tries, place.ID, got)
		}
		if got, err := s.zones.ZoneRecords(ctx, []string{record.Name}); err != nil || len(got) != 1 || string(got[0].Data) != "\x01y" {
			t.Errorf("records %+v, %v", got, err)
		}
	})
}

// TestRollbackDoesNothing makes changes after whose commit keys are erased and zones are read again,
// in a transaction that fails and in one that is committed.
func TestRollbackDoesNothing(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	record := builtin.Record{Name: "com.example.office._mesh", Data: []byte("\x01x"), TTL: 60}
	add := func([]builtin.Record) (add, remove []builtin.Record) { return []builtin.Record{record}, nil }
	for what, test := range map[string]struct {
		state        reconcile.PlaceState
		change       func(ctx context.Context, s *store, p reconcile.Place) error
		erased, read int
	}{
		"configuration": {"", func(ctx context.Context, s *store, _ reconcile.Place) error {
			return s.PutConfiguration(ctx, mesh.Configuration{Provider: "builtin", Domain: "example.net"}, false)
		}, 1, 1},
		"service": {"", func(ctx context.Context, s *store, _ reconcile.Place) error {
			return s.CreateService(ctx, mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "new"}, Config: `{"provider":"builtin","domain":"example.net"}`})
		}, 1, 1},
		"records": {"", func(ctx context.Context, s *store, _ reconcile.Place) error {
			return s.zones.ChangeZoneRecords(ctx, []string{record.Name}, add)
		}, 0, 1},
		"settlement": {reconcile.Withdrawing, func(ctx context.Context, s *store, p reconcile.Place) error {
			return s.ledger.Settle(ctx, reconcile.Settlement{Ended: []reconcile.Place{p}})
		}, 1, 0},
		"probe": {reconcile.Withdrawing, func(ctx context.Context, s *store, p reconcile.Place) error { return s.ledger.EndProbe(ctx, p) }, 1, 0},
		"leftover": {reconcile.Leftover, func(ctx context.Context, s *store, p reconcile.Place) error {
			return s.ledger.ForgetLeftover(ctx, p.ID)
		}, 1, 0},
	} {
		t.Run(what, func(t *testing.T) {
			s := filledStore(t)
			var p reconcile.Place
			if test.state != "" {
				p = goneInState(t, s, test.state)
			}
			erased, read := 0, 0
			s.db.Subscribe(func(n sqlite.Notice) {
				for _, what := range n {
					switch what.(type) {
					case sqlite.Replaced:
						erased++
					case builtin.Changed:
						read++
					}
				}
			})
			run := func(end error) {
				err := s.db.Tx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
					if err := test.change(ctx, s, p); err != nil {
						t.Error(err)
					}
					if erased+read > 0 {
						t.Error("acted before the commit")
					}
					return end
				})
				if !errors.Is(err, end) {
					t.Error(err)
				}
			}
			if run(failed); erased+read > 0 {
				t.Errorf("after a rollback erased %d, read %d times", erased, read)
			}
			if run(nil); erased != test.erased || read != test.read {
				t.Errorf("after the commit erased %d, read %d times, want %d, %d", erased, read, test.erased, test.read)
			}
		})
	}
}

// goneInState stores a place in a state, with a key that nothing else uses.
func goneInState(t *testing.T, s *store, state reconcile.PlaceState) reconcile.Place {
	t.Helper()
	p := reconcile.Place{
		Name: "gone.example.com", Zone: "example.com", State: state,
		Account: reconcile.Account{Provider: "cloudflare", AccessKeyID: "token", Secret: "old"}, Doubt: reconcile.Doubt{Value: "x"},
	}
	if err := s.ledger.AddProbe(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	if state == reconcile.Leftover {
		if _, err := s.db.Writer.Exec(`UPDATE places SET state = 'leftover' WHERE id = ?`, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// A usage that was freed before its release is cancelled does not come back, and no event says so.
func TestKeepFreedUsage(t *testing.T) {
	s := filledStore(t)
	u, err := s.CreateUsage(t.Context(), custom("Office", 1))
	if err != nil {
		t.Fatal(err)
	}
	if freed, _, err := s.ReleaseUsage(t.Context(), u.ID, true); err != nil || !freed {
		t.Fatalf("freed %t, %v", freed, err)
	}
	count := func() (n int) {
		if err := s.db.Reader.QueryRow(`SELECT count(*) FROM events`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	if err := s.KeepUsage(t.Context(), u.ID); !errors.Is(err, errNoUsage) || count() != before {
		t.Errorf("%v, %d events more", err, count()-before)
	}
}

// A usage and its binding: both or neither.
func TestCreateUsage(t *testing.T) {
	t.Parallel()
	s := filledStore(t)
	ctx := t.Context()
	made, err := s.CreateUsage(ctx, custom("Office", 1<<64-1))
	if err != nil {
		t.Fatal(err)
	}
	if u, err := s.Usage(ctx, made.ID); err != nil || u.Prefix != "Office" || !u.Network.Valid || u.Network.V != 1<<64-1 ||
		u.Status != mesh.Active || !u.Exclusive || u.Name != "_mesh.office.example.com" || u.Name != made.Name || u.Seq != made.Seq {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	for id, config := range map[string]string{"text": "nothing", "null": "null", "none": "{}", "number": `{"domain":7}`, "long": `{"domain":"` + strings.Repeat("x.", 122) + `xx"}`} {
		if err := s.CreateService(ctx, mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: id}, Config: "{}"}); err != nil {
			t.Fatal(err)
		}
		parsed, err := mesh.ParseServiceConfig(secrets.Secret(config))
		domain := sql.Null[string]{V: parsed.Domain, Valid: err == nil}
		if _, err := s.db.Writer.Exec(`UPDATE services SET config = ?, domain = ?, zone = ? WHERE id = ?`, config, domain, parsed.Domain, id); err != nil {
			t.Fatal(err)
		}
	}
	at := func(service string) mesh.Usage {
		u := custom("x", 1)
		u.ServiceID = service
		return u
	}
	odd := custom("x", 1)
	odd.Mode = "nope"
	for name, test := range map[string]struct {
		usage mesh.Usage
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
	if totals, err := s.ledger.Totals(ctx); err != nil || totals["usages"] != 1 {
		t.Errorf("totals %v, %v", totals, err)
	}
	// Without a configuration the name waits for a pass.
	if names := support.Rows(t, s.db.Reader, `SELECT name, due IS NULL FROM names`); !slices.Equal(names, []string{made.Name + " | 1"}) {
		t.Errorf("names: %q", names)
	}
}

// A client that goes away cancels its reading, never a write.
func TestCancelledContext(t *testing.T) {
	t.Parallel()
	s := filledStore(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	made, err := s.CreateUsage(gone, custom("office", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutConfiguration(gone, mesh.Configuration{Provider: "builtin"}, false); err != nil {
		t.Error(err)
	}
	description := "changed"
	if err := s.ChangeUsage(gone, made.ID, mesh.UsageChange{Description: &description}); err != nil {
		t.Error(err)
	}
	if _, err := s.Usage(gone, made.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("a reading goes on: %v", err)
	}
	if u, err := s.Usage(t.Context(), made.ID); err != nil || u.Description != description {
		t.Errorf("Usage = %+v, %v", u, err)
	}
}

// The log says what a migration does. A file that cannot be migrated stays.
func TestMigrationIsLogged(t *testing.T) {
	a := newApplianceOn(t, oldfile.New(t))
	for _, want := range []string{fmt.Sprint("from=", oldfile.Version), fmt.Sprint("to=", schema.Version()), a.Path} {
		if !strings.Contains(a.Logs.String(), want) {
			t.Errorf("no %q in the log: %s", want, a.Logs)
		}
	}
}

const hiddenSecret = "hunter2-is-my-secret"

// secretHolders are all types of values in which a secret may be.
var secretHolders = []any{
	mesh.Configuration{}, mesh.ServiceConfig{}, mesh.Service{}, mesh.ServiceBody{}, reconcile.StoredPlace{},
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
					hides(t, verb, fmt.Sprintf(verb, v))
				}
				if text, err := json.Marshal(v); err == nil {
					hides(t, "json", string(text))
				}
				var log bytes.Buffer
				slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
				slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
				hides(t, "slog", log.String())
			}
		})
	}
}

func hides(t *testing.T, how, text string) {
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

// Before an upgrade a copy is kept, which no later one replaces, and the earlier
// program says the command that brings it back.
func TestUpgradeKeepsACopy(t *testing.T) { // alone, because it changes the steps of all migrations
	path := filepath.Join(t.TempDir(), "it's here", "meshddns.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(oldfile.New(t, oldfile.Content), path); err != nil {
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
	if err != nil || len(kept) != 1 || kept[0] != path+".v10" {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	goBack(t, path, oldfile.Version)
	if got := versionOf(t, path); got != "10" {
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
	if err := os.WriteFile(path+".v10", copied[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path).Close()
	if content, err := os.ReadFile(path + ".v10"); err != nil || len(content) != 100 {
		t.Error("another copy is overwritten", err)
	}
	goBack(t, path, oldfile.Version)
	if s := mustOpen(t, path); !slices.Equal(support.Rows(t, s.db.Reader, `SELECT DISTINCT name FROM services`), []string{"Other"}) {
		t.Error("the newest copy is not the one that was brought back")
	}
}

// goBack runs the command that the program of a version refuses a newer file with.
func goBack(t *testing.T, path string, version int) {
	t.Helper()
	all := schema.Steps
	defer func() { schema.Steps = all }()
	schema.Steps = all[:version-schema.Oldest]
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
	return support.Rows(t, db, `PRAGMA user_version`)[0]
}

// Without room for the copy nothing is upgraded.
func TestUpgradeWithoutRoom(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	path := filepath.Join(dir, "meshddns.db")
	content, err := os.ReadFile(oldfile.New(t))
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
	if got := versionOf(t, path); got != "10" {
		t.Errorf("version %s", got)
	}
	mustOpen(t, path)
}

// TestSealOnAFullDisk: without room a start seals nothing, and reads what is there; a start with room seals it.
func TestSealOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	path := filepath.Join(dir, "meshddns.db")
	s := mustOpen(t, path)
	if err := s.CreateService(t.Context(), mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "svc", Name: "Site"}, Config: `{"domain":"example.com"}`}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	sealed := schema
	var err error
	if sealed.Keys, err = seal.Read(strings.NewReader(strings.Repeat("A", 43) + "=")); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, dir, 0)
	for _, want := range []string{"", sealed.Keys.First.ID} {
		var log strings.Builder
		db, _, _, err := openDatabase(t.Context(), path, sealed, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || db.Key.ID != want || strings.Contains(log.String(), "the next start") != (want == "") {
			t.Fatalf("%v, want the key %q:\n%s", err, want, &log)
		}
		s, err := newStore(t.Context(), db, "", mesh.Program{}, func() reconcile.Addresses { return reconcile.Addresses{} }, noLog)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := s.Service(t.Context(), "svc"); err != nil || v.Config != `{"domain":"example.com"}` {
			t.Error(v.ID, err)
		}
		s.Close()
		os.Remove(filepath.Join(dir, "fill"))
	}
}

// smallDisk gives a folder that is a file system of its own, with little room.
func smallDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mountDisk(t, dir)
	return dir
}

// A backup that cannot be cleaned up does not keep the program from its start.
func TestLeftFolderStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	hash := fnv.New64a()
	io.WriteString(hash, path)
	mountPoint := filepath.Join(filepath.Dir(path), fmt.Sprintf(".meshddns-backup-%016x-1", hash.Sum64()), "busy")
	if err := os.MkdirAll(mountPoint, 0o700); err != nil {
		t.Fatal(err)
	}
	mountDisk(t, mountPoint)
	var out bytes.Buffer
	s, err := openStore(t.Context(), path, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), mountPoint) {
		t.Errorf("told: %s", &out)
	}
}

// mountDisk makes a folder a small file system of its own until the test ends.
func mountDisk(t testing.TB, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=720k"); err != nil {
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
	manager.SetReadDeadline(time.Now().Add(support.Patience))
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
	t.Parallel()
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
	s := mustOpen(t, damaged(t))
	s.db.Verify(t.Context())
	text, err := work(s)(t.Context())
	if err != nil || !strings.Contains(text, "names published 0; the database file is damaged, restore a backup") {
		t.Errorf("%q, %v", text, err)
	}
}

// Requests that keep all readers at work do not make the watchdog bite.
func TestStatusWhileRequestsRead(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	for range s.db.Reader.Stats().MaxOpenConnections {
		if _, err := s.db.Reader.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), support.Slowest*2*time.Second)
	defer cancel()
	if text, err := work(s)(ctx); err != nil || text != "busy with requests" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestDatabase runs the tests of what the database keeps with the program's own operations.
func TestDatabase(t *testing.T) {
	t.Parallel()
	suite.Database(t)
}

// TestPathsOfOneFile opens a database by several paths.
func TestPathsOfOneFile(t *testing.T) { suite.PathsOfOneFile(t) }

// A usage has the name of what its service is when it is stored, also when the service is
// changed meanwhile.
func TestUsageAsStored(t *testing.T) {
	t.Parallel()
	s := filledStore(t)
	begun, wait := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun); <-wait })
	s.newID = func() (string, error) {
		begin()
		return newUUID()
	}
	made := make(chan mesh.Usage, 1)
	go func() {
		u, err := s.CreateUsage(context.Background(), custom("office", 42))
		if err != nil {
			t.Error(err)
		}
		made <- u
	}()
	support.Receive(t, begun)
	err := s.PutService(t.Context(), mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "svc", Name: "Site"}, Config: `{"domain":"example.net"}`})
	if err != nil {
		t.Fatal(err)
	}
	close(wait)
	u := support.Receive(t, made)
	if again, err := s.Usage(t.Context(), u.ID); err != nil || u.Name != "_mesh.office.example.net" || again.Name != u.Name || again.Domain != u.Domain {
		t.Errorf("told %q in %q, stored %q in %q, %v", u.Name, u.Domain.V, again.Name, again.Domain.V, err)
	}
}

// TestUnchangedIsNoEvent stores what is stored already: nothing has changed, except with another secret.
func TestUnchangedIsNoEvent(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	count := func() (n int) {
		t.Helper()
		if err := s.db.Reader.QueryRow(`SELECT count(*) FROM events`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n, secret := range []secrets.Secret{"one", "one", "two", "two"} {
		c := mesh.Configuration{Provider: "cloudflare", AccessKeyID: "token", Secret: secret, Domain: "example.com", TXTRecordName: "_x"}
		v := mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "svc", Name: "Site"}, Config: `{"domain":"example.net","access_key_secret":"` + secret + `"}`}
		if err := errors.Join(s.PutConfiguration(t.Context(), c, false), s.PutService(t.Context(), v)); err != nil {
			t.Fatal(err)
		}
		if got, want := count(), 2*(n/2+1); got != want {
			t.Errorf("after %d rounds there are %d events, want %d", n+1, got, want)
		}
	}
}

// TestRestoreIsNoticed: a start with an older copy of the database, or with one from another folder, stores an event
// with a number beyond the lost ones. Other starts do not, also after a kill between a commit and its note.
func TestRestoreIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	run := func(backups int) (restores []string) {
		t.Helper()
		s := mustOpen(t, path)
		for range backups {
			if err := s.events.Note(t.Context(), events.Event{Kind: events.BackupMade}); err != nil {
				t.Fatal(err)
			}
		}
		restores = support.Rows(t, s.db.Reader, `SELECT seq FROM events WHERE kind = 'database.restored' ORDER BY seq`)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return restores
	}
	files := func() (database, lock []byte) {
		t.Helper()
		for suffix, content := range map[string]*[]byte{"": &database, "-lock": &lock} {
			var err error
			if *content, err = os.ReadFile(path + suffix); err != nil {
				t.Fatal(err)
			}
		}
		return database, lock
	}
	put := func(suffix string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(2); got != nil {
		t.Errorf("a new database: %q", got)
	}
	backup, early := files()
	if got := run(3); got != nil {
		t.Errorf("the same database: %q", got)
	}
	put("-lock", early)
	if got := run(1); got != nil {
		t.Errorf("after a kill before the note: %q", got)
	}
	put("", backup)
	first := run(1)
	if len(first) != 1 || len(first[0]) < 7 {
		t.Errorf("a restored database: %q", first)
	}
	if got := run(1); !slices.Equal(got, first) {
		t.Errorf("the next start: %q", got)
	}
	if err := os.Remove(path + "-lock"); err != nil {
		t.Fatal(err)
	}
	if got := run(0); len(got) != 2 {
		t.Errorf("another folder: %q", got)
	}
	put("-lock", []byte("12345\n"))
	if got := run(0); len(got) != 2 {
		t.Errorf("after a program that noted nothing: %q", got)
	}
}
