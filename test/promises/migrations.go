package promises

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/reconcile"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// TestMigratedSchemaIsTheNewOne compares a migrated file with a new one, to the letter.
func (suite database) TestMigratedSchemaIsTheNewOne(t *testing.T) {
	read := func(path string) []string {
		s := suite.mustOpen(t, path)
		defer s.Close()
		return support.Rows(t, s.Reader, `SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name`)
	}
	fresh := read(filepath.Join(t.TempDir(), "new.db"))
	if len(fresh) < 20 {
		t.Fatalf("a new file has %d objects", len(fresh))
	}
	migrated := read(oldfile.New(t))
	for _, line := range fresh {
		if !slices.Contains(migrated, line) {
			t.Errorf("the migrated file lacks\n%s", line)
		}
	}
	for _, line := range migrated {
		if !slices.Contains(fresh, line) {
			t.Errorf("the migrated file has\n%s", line)
		}
	}
}

// TestMigratedValues has the values of a migrated file stay: before the first synchronisation, after it, and
// after the second looks.
func (suite database) TestMigratedValues(t *testing.T) {
	h := suite.openHost(t, oldfile.New(t, oldfile.Content), dnsBuiltinServer)
	if h.Owner != oldfile.Owner {
		t.Fatalf("owner %q", h.Owner)
	}
	check := func(when string) {
		t.Helper()
		for name, want := range map[string]string{
			"mesh.example.com":                                         h.text("", "tcp://203.0.113.7:11010"),
			"_mesh.berlin.mesh.example.com":                            h.text("42", "tcp://203.0.113.7:11010"),
			"_mesh._mesh-mtg0ndy3ndqwnzm3mdk1nte2mtu.mesh.example.com": h.text("18446744073709551615", "tcp://203.0.113.7:11010"),
			"_mesh.paris.mesh.example.com":                             h.text("43", "tcp://203.0.113.7:11010", "tcp://198.51.100.7:11010"),
			"paris.mesh.example.com":                                   `"198.51.100.7:11010" "203.0.113.7:11010"`,
			"_mesh.gone.mesh.example.com":                              "",
		} {
			got := h.standing(name)
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %s has %q, want %q", when, name, got, want)
			}
		}
		if totals := h.totals(); totals["usages"] != 4 || totals["published"] != 4 || totals["failed"] != 1 {
			t.Errorf("%s: %v", when, totals)
		}
	}
	check("after the migration")
	for range 2 {
		if r := h.run(); r.Bad != 1 || r.FirstBad().Name != "_mesh.cloudy.cloud.example" || r.Counts[reconcile.ActionUnchanged] != 5 {
			t.Errorf("a synchronisation: %+v", r)
		}
		check("after a synchronisation")
		h.later(2 * reconcile.SecondLook)
	}
}

// TestMigratedFileMode has the files of a migrated database readable by their owner only.
func (suite database) TestMigratedFileMode(t *testing.T) {
	path := oldfile.New(t)
	support.Must(t, os.Chmod(path, 0o644))
	suite.mustOpen(t, path)
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

// TestOlderSchemaIsRefused has a file whose version does not open any more stay as it is, also when its last changes
// are in its log, and nothing is made beside it. The message tells the way out.
func (suite database) TestOlderSchemaIsRefused(t *testing.T) {
	closed, killed := oldfile.New(t, `PRAGMA user_version = 9`), filepath.Join(t.TempDir(), "meshddns.db")
	open := oldfile.New(t)
	db := support.OpenSQLite(t, open, "_journal_mode=WAL")
	support.Exec(t, db, `PRAGMA user_version = 9`)
	for name, content := range filesBeside(t, open) {
		support.WriteFile(t, filepath.Join(filepath.Dir(killed), name), string(content))
	}
	for path, files := range map[string]int{closed: 1, open: 3, killed: 3} {
		before := filesBeside(t, path)
		s, err := suite.open(t, path)
		if err == nil {
			s.Close()
			t.Fatal("it opens")
		}
		for _, want := range []string{path, "schema version 9 is older than 10", "GET /api/v1/ddns/state", "-provision"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
		after := filesBeside(t, path)
		for name, content := range after {
			if !bytes.Equal(content, before[name]) && !strings.HasSuffix(name, "-shm") { // in which every reader writes
				t.Errorf("%s of %d files has changed", name, files)
			}
		}
		if len(before) != files || len(after) != files {
			t.Errorf("%d files before, %d after, want %d", len(before), len(after), files)
		}
	}
}

// filesBeside reads the files of a database's folder.
func filesBeside(t *testing.T, path string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range entries {
		if err == nil {
			files[entry.Name()], err = os.ReadFile(filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
	support.Must(t, err)
	return files
}
