package main

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/sqlrow"
)

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
		if _, err := first.CreateUsage(t.Context(), custom(prefix, sqlrow.NetworkID(i))); err != nil {
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
