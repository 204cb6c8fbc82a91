package promises

import (
	"bytes"
	"database/sql"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/migrations"
	"meshddns/test/support"
)

// filled is a database with one service.
func (suite Suite) filled(t testing.TB) *host {
	t.Helper()
	s := suite.mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	s.reconfigure("svc", dnsConfig("example.com"))
	s.Settle()
	return s
}

// A file is made, and keeps its owner, the addresses and its content when it is opened again.
func (suite database) TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	var owners []string
	var saved mesh.Addresses
	for range 3 {
		s, err := suite.open(t, path)
		support.Must(t, err)
		owners = append(owners, s.Owner)
		if !s.Addresses.Equal(saved) {
			t.Errorf("addresses %v, want %v", s.Addresses, saved)
		}
		saved = mesh.Addresses{IPv4: netip.AddrFrom4([4]byte{203, 0, 113, byte(len(owners))}), IPv6: netip.MustParseAddr("2001:db8::7"),
			Named: map[string]mesh.Pair{"wan" + fmt.Sprint(len(owners)): {IPv4: netip.MustParseAddr("198.51.100.7")}, "wan": {IPv6: netip.MustParseAddr("2001:db8::8")}, "off": {}}}
		support.Must(t, s.SaveAddresses(t.Context(), saved))
		s.reconfigure(fmt.Sprint("svc-", len(owners)), "{}")
		if services := s.count(`SELECT count(*) FROM services`); services != len(owners) {
			t.Errorf("%d services, want %d", services, len(owners))
		}
		support.Must(t, s.Close())
	}
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(owners[0]) || owners[1] != owners[0] || owners[2] != owners[0] {
		t.Errorf("owners %q", owners)
	}
	if other := suite.mustOpen(t, filepath.Join(t.TempDir(), "other.db")).Owner; other == owners[0] {
		t.Errorf("another database has the owner %q too", other)
	}
}

// The schema's version is that of the program, and a newer file is left alone.
func (suite database) TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	s := suite.mustOpen(t, path)
	today := migrations.Oldest + len(migrations.Steps())
	var version int
	if err := s.Reader.QueryRow(`PRAGMA user_version`).Scan(&version); err != nil || version != today {
		t.Errorf("version %d, %v, want %d", version, err, today)
	}
	support.Exec(t, s.Writer, fmt.Sprintf(`PRAGMA user_version = %d`, today+1))
	support.Must(t, s.Close())
	before, err := os.ReadFile(path)
	support.Must(t, err)
	_, err = suite.open(t, path)
	if err == nil || !strings.Contains(err.Error(), "newer") || !strings.Contains(err.Error(), path) {
		t.Errorf("openStore: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Error("the file is another one", err)
	}
}

// Nobody but the owner reads the file or its companions: they hold access keys.
func (suite database) TestFileMode(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"new": 0, "open to all": 0o644, "read-only": 0o400} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meshddns.db")
			if mode != 0 {
				support.Must(t, os.WriteFile(path, nil, mode))
			}
			if mode == 0o400 && os.Getuid() != 0 {
				t.Skip("only root opens it")
			}
			suite.mustOpen(t, path)
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
func (suite database) TestFileModeOfLeftLog(t *testing.T) {
	killed := suite.filled(t)
	path := filepath.Join(t.TempDir(), "meshddns.db")
	for _, suffix := range []string{"-wal", ""} { // what the log loses meanwhile, the file gets
		content, err := os.ReadFile(killed.Path + suffix)
		support.Must(t, err)
		support.Must(t, os.WriteFile(path+suffix, content, 0o644))
	}
	s := suite.mustOpen(t, path)
	if services := s.count(`SELECT count(*) FROM services`); services != 1 {
		t.Errorf("%d services", services)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", suffix, info.Mode(), err)
		}
	}
}

// What a file and its folder may be called is not this program's business.
func (suite database) TestOddFileNames(t *testing.T) {
	for _, name := range []string{
		"a b.db", "what?.db", "100%.db", "100%41.db", "a#b.db", "a&b=c.db", "a;b.db", "数据.db", "file:x.db", ":memory:", "x'y\".db", "a\\b.db", "-.db", "\xff.db",
		"folder/x.db", "what?mode=memory/x.db", "50%/x.db", "#/x.db", "*/x.db", "[a/x.db", "[a-z]/x.db", `back\slash/x.db`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			support.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			s := suite.mustOpen(t, path)
			s.reconfigure("svc", "{}")
			s.copy()
			support.Must(t, s.Close())
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

// PathsOfOneFile opens a database by relative paths, and by one that begins with two slashes. The test changes the
// working directory, so it runs while no other test does.
func (suite Suite) PathsOfOneFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	first := suite.mustOpen(t, "meshddns.db")
	support.Must(t, first.Close())
	for _, path := range []string{"./meshddns.db", "../" + filepath.Base(dir) + "/meshddns.db", dir + "/meshddns.db", "/" + dir + "/meshddns.db"} {
		again, err := suite.open(t, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if again.Owner != first.Owner {
			t.Errorf("%s: owner %q, want %q", path, again.Owner, first.Owner)
		}
		again.Close()
	}
}

// A folder's name is no pattern: only its own left backups are removed.
func (suite database) TestLeftBackupsOfOthers(t *testing.T) {
	dir := t.TempDir()
	others := filepath.Join(dir, "other", ".meshddns-backup-1")
	for _, path := range []string{others, filepath.Join(dir, "*")} {
		support.Must(t, os.MkdirAll(path, 0o700))
	}
	suite.mustOpen(t, filepath.Join(dir, "*", "meshddns.db"))
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
}

// What cannot be opened is an error of start-up.
func (suite database) TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	support.Must(t, os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600))
	for name, path := range map[string]string{"a folder": dir, "no folder": filepath.Join(dir, "none", "x.db"), "another kind of file": text} {
		if s, err := suite.open(t, path); err == nil {
			t.Errorf("%s: no error", name)
			s.Close()
		}
	}
}

// A folder that a backup left behind when the program was killed is removed,
// and nothing else is.
func (suite database) TestLeftBackupsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "meshddns.db")
	hash := fnv.New64a()
	io.WriteString(hash, path)
	own := fmt.Sprintf(".meshddns-backup-%016x-123", hash.Sum64())
	for _, name := range []string{own, ".meshddns-backup-123", "backup"} {
		support.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		support.Must(t, os.WriteFile(filepath.Join(dir, name, "copy.db"), []byte("x"), 0o600))
	}
	suite.mustOpen(t, path)
	left, err := filepath.Glob(filepath.Join(dir, "*backup*", "copy.db"))
	if want := []string{filepath.Join(dir, ".meshddns-backup-123", "copy.db"), filepath.Join(dir, "backup", "copy.db")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
	if _, err := os.Stat(filepath.Join(dir, own)); err == nil {
		t.Error("its own folder is left")
	}
}

// One program at a time: a second one is told who has the file, by whatever
// path it comes, and what it would have left is not there.
func (suite database) TestSecondProgramIsRefused(t *testing.T) {
	first := suite.filled(t)
	dir := filepath.Dir(first.Path)
	link, folder := filepath.Join(t.TempDir(), "link.db"), filepath.Join(t.TempDir(), "folder")
	for from, to := range map[string]string{link: first.Path, folder: dir} {
		support.Must(t, os.Symlink(to, from))
	}
	for _, path := range []string{first.Path, dir + "/./meshddns.db", filepath.Join(folder, "meshddns.db"), link} {
		second, err := suite.tryOpen(t, path)
		if want := fmt.Sprintf("in use by another meshddns, process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if err == nil {
			second.Close()
		}
	}
	if services := first.count(`SELECT count(*) FROM services`); services != 1 {
		t.Errorf("the first program: %d services", services)
	}
	support.Must(t, first.Close())
	if again := suite.mustOpen(t, first.Path); again.Owner != first.Owner {
		t.Errorf("owner %q, want %q", again.Owner, first.Owner)
	}
}

// A backup is what stood at one moment, and opens as a database with the same owner.
func (suite database) TestBackupOfOneMoment(t *testing.T) {
	s := suite.filled(t)
	for n := range 20 {
		if _, err := s.tryReserve("svc", fmt.Sprint(n), uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	path := s.backup(t)
	if _, err := s.tryReserve("svc", "later", 1); err != nil {
		t.Fatal(err)
	}
	restored := suite.mustOpen(t, path)
	if usages := restored.usages(""); len(usages) != 20 {
		t.Errorf("%d usages", len(usages))
	}
	if restored.Owner != s.Owner {
		t.Errorf("owner %q, want %q", restored.Owner, s.Owner)
	}
}

// The SQLite file of another program stays as it is, and nothing is made beside it.
func (suite database) TestForeignDatabase(t *testing.T) {
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
			support.Must(t, err)
			support.Exec(t, db, c.statements)
			support.Must(t, db.Close())
			support.Must(t, os.Chmod(path, 0o644))
			before, err := os.ReadFile(path)
			support.Must(t, err)
			s, err := suite.open(t, path)
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
func (suite database) TestForeignLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "places.sqlite")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL")
	support.Must(t, err)
	defer db.Close()
	support.Exec(t, db, `CREATE TABLE bookmarks (url TEXT)`)
	before, err := os.ReadDir(filepath.Dir(path))
	support.Must(t, err)
	s, err := suite.open(t, path)
	if err == nil {
		s.Close()
		t.Fatal("another program's database is taken over")
	}
	if after, err := os.ReadDir(filepath.Dir(path)); err != nil || len(after) != len(before) {
		t.Errorf("beside it: %v, %v", after, err)
	}
	if names := support.Rows(t, db, `SELECT name FROM sqlite_schema`); strings.Join(names, " ") != "bookmarks" || !strings.Contains(err.Error(), "another program") {
		t.Errorf("%v, and in the file are %q", err, names)
	}
}

// The first start logs the path of the database that it makes, the second has nothing to tell.
func (suite database) TestNewDatabaseIsTold(t *testing.T) {
	var out string
	path := filepath.Join(t.TempDir(), "typo.db")
	for start := 1; start <= 2; start++ {
		s, err := suite.open(t, path)
		support.Must(t, err)
		support.Must(t, s.Close())
		out += s.log.String()
		if got := strings.Count(out, `level=WARN msg="a new database is made" file=`+path); got != 1 {
			t.Errorf("told %d times at start %d: %s", got, start, out)
		}
	}
}

// After the database was moved away, the start beside its log is refused, and all that was
// acknowledged is there when the file is back.
func (suite database) TestFileComesBack(t *testing.T) {
	first := suite.filled(t)
	path := first.Path
	for i, prefix := range []string{"p1", "p2", "p3"} {
		if _, err := first.tryReserve("svc", prefix, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(filepath.Dir(path), "kept.db")
	support.Must(t, os.Rename(path, kept))
	if err := first.Close(); err != nil { // SQLite leaves the log of a file that was moved
		t.Fatal(err)
	}
	if s, err := suite.open(t, path); err == nil {
		s.Close()
		t.Error("a database is made beside the log of another")
	}
	support.Must(t, os.Rename(kept, path))
	s := suite.mustOpen(t, path)
	if got := s.usages(""); len(got) != 3 {
		t.Errorf("%d usages", len(got))
	}
}
