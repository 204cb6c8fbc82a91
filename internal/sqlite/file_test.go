package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// openFile calls FindFile and Take.
func openFile(path string) (*File, error) {
	f, err := FindFile(path)
	if err != nil {
		return nil, err
	}
	return f, f.Take()
}

// TestOneAtATime: a second program gets an error that names the first, and gets the file after its end.
func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	first, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openFile(path)
	if want := fmt.Sprintf("process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("second: %v, want %q", err, want)
	}
	linked := filepath.Join(t.TempDir(), "b.db")
	if err := os.Link(path, linked); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(linked); err == nil || !strings.Contains(err.Error(), "hard link") {
		t.Fatalf("second, by a hard link: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := openFile(path)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	second.Close()
}

func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("this is a text of mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(path); err == nil {
		t.Fatal("a text was opened")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the text has changed: %v %v", info.Mode(), err)
	}
}

// TestCompanions: a companion that is a link to another file is refused, and that file stays unchanged.
func TestCompanions(t *testing.T) {
	for name, make := range map[string]func(other, at string) error{
		"symbolic link": os.Symlink,
		"hard link":     os.Link,
		"regular file":  func(_, at string) error { return os.Mkdir(at, 0o755) },
		"dangling":      func(_, at string) error { return os.Symlink("nowhere", at) },
		"fifo":          func(_, at string) error { return syscall.Mkfifo(at, 0o644) },
	} {
		for _, suffix := range companions {
			t.Run(name+suffix, func(t *testing.T) {
				dir := t.TempDir()
				other, path := filepath.Join(dir, "other"), filepath.Join(dir, "a.db")
				if err := os.WriteFile(other, []byte("x"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := make(other, path+suffix); err != nil {
					t.Fatal(err)
				}
				_, err := openFile(path)
				if err == nil || !strings.Contains(err.Error(), path+suffix) || !strings.Contains(err.Error(), "remove it") {
					t.Errorf("opened: %v", err)
				}
				if info, err := os.Stat(other); err != nil || info.Mode().Perm() != 0o644 {
					t.Errorf("the other file: %v, %v", info.Mode(), err)
				}
				if err := os.Remove(path + suffix); err != nil {
					t.Fatal(err)
				}
				f, err := openFile(path)
				if err != nil {
					t.Fatal("the lock is still taken:", err)
				}
				f.Close()
			})
		}
	}
}

// TestNoFile: a path to something else than a regular file is refused.
func TestNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(path); err == nil {
		t.Error("a fifo was opened")
	}
}

// TestNoFolder: the error for a path in a missing folder names the folder.
func TestNoFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "nosuch")
	if _, err := openFile(filepath.Join(folder, "a.db")); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), folder+": there is no such folder") {
		t.Error(err)
	}
}

// TestCheck: the file counts as another one when the path, or a link in it, leads elsewhere.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "link.db")
	if err := errors.Join(os.WriteFile(target, []byte(header), 0o600), os.WriteFile(target+"-wal", nil, 0o600), os.Symlink("a.db", link)); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(link)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good, gone := errors.Join(f.Check(), f.CheckLogged()), func(what string, steps ...error) {
		t.Helper()
		if err := errors.Join(steps...); err != nil {
			t.Fatal(err)
		}
		if err := f.Check(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if good != nil {
		t.Fatal(good)
	}
	gone("the log is moved", os.Rename(target+"-wal", target+"-old"))
	gone("the log is another", os.WriteFile(target+"-wal", nil, 0o600))
	gone("the log is back, which another program may have changed", os.Rename(target+"-old", target+"-wal"))
	gone("the link leads elsewhere", os.Remove(link), os.WriteFile(link, nil, 0o600))
	gone("the link is gone", os.Remove(link))
}

// TestCopyFolder: a copy is made where it leaves room; without any room the error names the folders.
func TestCopyFolder(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	path := filepath.Join(t.TempDir(), "a.db")
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	left, err := os.MkdirTemp(temporary, f.copyPrefix())
	if err != nil {
		t.Fatal(err)
	}
	beside, err := f.CopyFolder()
	if err != nil || filepath.Dir(beside) != filepath.Dir(path) {
		t.Errorf("%s, %v", beside, err)
	}
	if err := os.WriteFile(path, []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	const huge = 1 << 42 // octets of a sparse file
	if err := os.Truncate(path, huge); err != nil {
		t.Skip("NOT TESTED: the file system has no files of this size:", err)
	}
	if folder, err := f.CopyFolder(); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), temporary) {
		t.Errorf("%s, %v", folder, err)
	}
	own, err := os.MkdirTemp(temporary, f.copyPrefix()) // as a copy under way has it
	if err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(temporary, ".meshddns-backup-0123456789abcdef-1")
	if err := errors.Join(os.Mkdir(others, 0o700), f.RemoveTempFolders()); err != nil {
		t.Fatal(err)
	}
	f.RemoveFoldersElsewhere()
	for folder, want := range map[string]bool{beside: false, left: false, own: true, others: true} {
		if _, err := os.Stat(folder); (err == nil) != want {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// wantNames compares the names in a folder.
func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("in the folder are %q, want %q", names, want)
	}
}

// TestNoneIsMadeBesideALog: no database is created beside the WAL of another, which SQLite would delete.
func TestNoneIsMadeBesideALog(t *testing.T) {
	for _, suffix := range companions {
		for _, empty := range []bool{false, true} {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.db")
			if err := os.WriteFile(path+suffix, []byte("acknowledged"), 0o600); err != nil {
				t.Fatal(err)
			}
			want := []string{"a.db" + suffix}
			if empty {
				want = []string{"a.db", "a.db" + suffix}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := openFile(path)
			if err == nil {
				t.Errorf("%s, empty %t: a database is made", suffix, empty)
				f.Close()
				continue
			}
			for _, part := range []string{path + suffix, "put that database back as " + path} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: want %q", err, part)
				}
			}
			os.Remove(path + "-lock")
			wantNames(t, dir, want...)
		}
	}
}

// TestNoLockBesideOthers: a file that is no database gets no lock file.
func TestNoLockBesideOthers(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"text":   func(path string) error { return os.WriteFile(path, []byte("this is a text of mine"), 0o644) },
		"fifo":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "other")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := openFile(path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("opened: %v", err)
			}
			wantNames(t, dir, "other")
		})
	}
}

// TestLockIsGone: after the lock file was deleted or replaced, a second program may have the database.
func TestLockIsGone(t *testing.T) {
	for name, spoil := range map[string]func(lock string) error{
		"deleted":  os.Remove,
		"replaced": func(lock string) error { return errors.Join(os.Remove(lock), os.WriteFile(lock, nil, 0o600)) },
	} {
		path := filepath.Join(t.TempDir(), "a.db")
		f, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := errors.Join(f.Check(), spoil(path+"-lock")); err != nil {
			t.Fatal(err)
		}
		if err := f.Check(); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), path+"-lock") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDanglingLink: a link to a missing file, in a folder that is a link too, is the path of the new
// file from the first start on.
func TestDanglingLink(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	link := filepath.Join(dir, "folder", "a.db")
	if err := errors.Join(os.Mkdir(disk, 0o700), os.Symlink("disk", filepath.Join(dir, "folder")), os.Symlink("real.db", link)); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"first", "second"} {
		f, err := openFile(link)
		if err != nil {
			t.Fatalf("%s start: %v", start, err)
		}
		wantNames(t, disk, "a.db", "real.db", "real.db-lock")
		if err := errors.Join(f.Check(), f.Close()); err != nil {
			t.Errorf("%s start: %v", start, err)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(loop); err == nil {
		t.Error("a link to itself was opened")
	}
}

// TestFoldersOfOthers: a start deletes the folders that an earlier run left, and no other folders.
func TestFoldersOfOthers(t *testing.T) {
	dir := t.TempDir()
	var files [2]*File
	for i, name := range []string{"a.db", "b.db"} {
		var err error
		if files[i], err = openFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	own, err := files[0].TempFolder()
	if err != nil {
		t.Fatal(err)
	}
	running, err := files[1].TempFolder()
	if err != nil {
		t.Fatal(err)
	}
	file, folder := filepath.Join(dir, ".meshddns-backup-monday.db"), filepath.Join(dir, ".meshddns-backup-old")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(folder, 0o700), files[0].RemoveTempFolders()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{own: false, running: true, file: true, folder: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestFileOfAnother: the error for a file of another user names the owner and the chown command.
func TestFileOfAnother(t *testing.T) {
	f := &File{path: "/proc/1/environ", target: "/proc/1/environ"}
	err := f.denied(f.target, &fs.PathError{Op: "open", Path: f.target, Err: syscall.EACCES})
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		f.target = filepath.Join(dir, "it's.db")
		if err := errors.Join(os.WriteFile(f.target, nil, 0o600), os.Chown(f.target, 4242, 4242)); err != nil {
			t.Fatal(err)
		}
		err = f.denied(f.target, &fs.PathError{Op: "open", Path: f.target, Err: syscall.EACCES})
		if want := fmt.Sprintf(`belongs to uid 4242, and this program runs as root (uid 0); as root: chown 0:0 '%s/it'\''s.db'`, dir); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err := os.Chown(dir, 4242, 4242); err != nil {
			t.Fatal(err)
		}
		missing := filepath.Join(dir, "none.db")
		if err := f.denied(missing, &fs.PathError{Op: "open", Path: missing, Err: syscall.EACCES}); !strings.HasSuffix(err.Error(), dir+" belongs to uid 4242, and this program runs as root (uid 0)") {
			t.Errorf("a folder: %v", err)
		}
	} else if !strings.Contains(err.Error(), "belongs to root (uid 0)") {
		t.Error(err)
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v is no refusal of permission any more", err)
	}
}
