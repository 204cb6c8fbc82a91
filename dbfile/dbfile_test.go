package dbfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A second program is told who has the file, and gets it when that one ends.
func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if want := fmt.Sprintf("process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("second: %v, want %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
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
	if _, err := Open(path); err == nil {
		t.Fatal("a text was opened")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the text has changed: %v %v", info.Mode(), err)
	}
}

// A companion that is another file's name is refused, and that file stays as it is.
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
				_, err := Open(path)
				if err == nil || !strings.Contains(err.Error(), path+suffix) || !strings.Contains(err.Error(), "remove it") {
					t.Errorf("opened: %v", err)
				}
				if info, err := os.Stat(other); err != nil || info.Mode().Perm() != 0o644 {
					t.Errorf("the other file: %v, %v", info.Mode(), err)
				}
				if err := os.Remove(path + suffix); err != nil {
					t.Fatal(err)
				}
				f, err := Open(path)
				if err != nil {
					t.Fatal("the lock is still taken:", err)
				}
				f.Close()
			})
		}
	}
}

// What is no regular file is no database.
func TestNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a fifo was opened")
	}
}

// The file is another one when the path, or a link in it, leads elsewhere.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "link.db")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.WriteFile(target+"-wal", nil, 0o600), os.Symlink("a.db", link)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(link)
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
	if err := errors.Join(os.Rename(target+"-old", target+"-wal"), f.Check()); err != nil {
		t.Error("all is back:", err)
	}
	gone("the link leads elsewhere", os.Remove(link), os.WriteFile(link, nil, 0o600))
	gone("the link is gone", os.Remove(link))
}

// A copy goes where it leaves room, and where there is none that is said.
func TestCopyFolder(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	path := filepath.Join(t.TempDir(), "a.db")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	left, err := os.MkdirTemp(temporary, f.elsewherePrefix())
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
	const huge = 1 << 42 // octets, of which none are written
	if err := os.Truncate(path, huge); err != nil {
		t.Skip("NOT TESTED: the file system has no files of this size:", err)
	}
	if folder, err := f.CopyFolder(); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), temporary) {
		t.Errorf("%s, %v", folder, err)
	}
	own, err := os.MkdirTemp(temporary, f.elsewherePrefix()) // of a copy under way
	if err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(temporary, copyPrefix+"0123456789abcdef-1")
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
