package sqlite

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrNoRoom is the error when no folder has room for a copy of the database.
var ErrNoRoom = errors.New("no room for a copy of the database")

// TempFolder creates a folder beside the database for a copy of it.
func (f *File) TempFolder() (string, error) {
	return os.MkdirTemp(filepath.Dir(f.target), f.copyPrefix())
}

// CopyFolder creates a folder for a temporary copy. The folder is beside the database if there is
// room for two copies, else in the system's temporary folder, else beside the database if there is
// room for one.
func (f *File) CopyFolder() (string, error) {
	f.RemoveFoldersElsewhere() // they take room
	need := uint64(size(f.target) + f.LogSize())
	beside, elsewhere := filepath.Dir(f.target), os.TempDir()
	free := [2]uint64{free(beside), free(elsewhere)}
	switch {
	case free[0] >= 2*need:
		return f.TempFolder()
	case free[1] > need:
		return os.MkdirTemp(elsewhere, f.copyPrefix())
	case free[0] > need:
		return f.TempFolder()
	}
	return "", fmt.Errorf("%w: it takes %d octets, free are %d in %s and %d in %s", ErrNoRoom, need, free[0], beside, free[1], elsewhere)
}

// Copied calls make to write a copy of the database where there is room, and opens the copy. It
// deletes the name of the copy, so that the disk space is free when the file is closed. If the
// database file was moved or replaced meanwhile, Copied fails.
func (f *File) Copied(make func(path string) error) (_ *os.File, err error) {
	dir, err := f.CopyFolder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "copy.db")
	err = make(path)
	if FaultOf(err) == Full {
		return nil, fmt.Errorf("%w in %s: %w", ErrNoRoom, filepath.Dir(dir), err)
	}
	if err = cmp.Or(f.Check(), err); err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	return os.Open(path)
}

// copyPrefix begins the names of the folders for copies. It contains a hash of the database's
// path, because another meshddns may have copies in the same folder.
func (f *File) copyPrefix() string {
	path, _ := filepath.Abs(f.target)
	hash := fnv.New64a()
	io.WriteString(hash, path)
	return fmt.Sprintf(".meshddns-backup-%016x-", hash.Sum64())
}

// Free returns the number of octets that this program may still write beside the database, and the
// absolute path of that folder. A disk that cannot tell has math.MaxInt64 octets.
func (f *File) Free() (octets uint64, folder string) {
	folder = filepath.Dir(f.target)
	if whole, err := filepath.Abs(folder); err == nil {
		folder = whole
	}
	return free(folder), folder
}

func free(folder string) uint64 {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil || s.Blocks == 0 {
		return math.MaxInt64
	}
	if os.Geteuid() == 0 {
		return uint64(s.Bfree) * uint64(s.Bsize)
	}
	return uint64(s.Bavail) * uint64(s.Bsize)
}

// RemoveTempFolders deletes the folders beside the database that a killed process left.
func (f *File) RemoveTempFolders() error {
	return removeFolders(filepath.Dir(f.target), f.copyPrefix())
}

// RemoveFoldersElsewhere deletes the folders that a killed process left in the system's temporary
// folder. Reading that folder may be slow, so only the first call does it.
func (f *File) RemoveFoldersElsewhere() {
	f.elsewhere.Do(func() {
		removeFolders(os.TempDir(), f.copyPrefix()) // folders of other users stay: an error changes nothing
	})
}

func removeFolders(in, prefix string) error {
	folder, err := os.Open(in)
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1) // unsorted, because a shared folder may be large
	for _, name := range names {
		path := filepath.Join(in, name)
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if info, fault := os.Lstat(path); fault == nil && info.IsDir() {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// Keep gives a temporary copy beside the database its lasting name, <path>.v<version>, and returns
// that name. It never overwrites a file: if an older copy has the same content, Keep returns the
// older one, else it appends a number to the name.
func (f *File) Keep(temporary string, version int) (path string, err error) {
	for n := 1; ; n++ {
		path = f.keptName(version, n)
		same, err := sameContent(path, temporary)
		if same {
			return path, os.Chtimes(path, time.Time{}, time.Now()) // it is kept from now on
		}
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if err := flush(temporary); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, path); err != nil {
		return "", err
	}
	return path, flush(filepath.Dir(path))
}

func (f *File) keptName(version, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s.v%d", f.target, version)
	}
	return fmt.Sprintf("%s.v%d-%d", f.target, version, n)
}

// Kept returns the newest kept copy of a version, "" if there is none.
func (f *File) Kept(version int) (path string) {
	for n := 1; ; n++ {
		next := f.keptName(version, n)
		if _, err := os.Lstat(next); err != nil {
			return path
		}
		path = next
	}
}

// RemoveKept deletes the kept copies of the versions before one that are older than a time, and returns
// their names. Of each version the newest goes first, so that Kept finds the others until they go.
func (f *File) RemoveKept(before int, time time.Time) (removed []string, err error) {
	for version := 1; version < before; version++ {
		for n := 99; n > 0; n-- { // there are not more: an upgrade makes one
			path := f.keptName(version, n)
			if _, err := os.Lstat(path); err != nil {
				continue // the log tells a command that moves one away
			}
			if !isOlder(path, time) {
				break
			}
			if err := os.Remove(path); err != nil {
				return removed, err
			}
			removed = append(removed, path)
		}
	}
	return removed, nil
}

func isOlder(path string, time time.Time) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.ModTime().Before(time)
}

// WayBack returns the shell command that puts a kept copy in the database's place. It deletes the
// WAL first, because the WAL belongs to the replaced file.
func (f *File) WayBack(kept string) string {
	return fmt.Sprintf("rm -f %s %s && mv %s %s", quoted(f.target+logSuffix), quoted(f.target+indexSuffix), quoted(kept), quoted(f.target))
}

// quoted quotes a path for a shell.
func quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./") == "" {
		return path
	}
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// flush syncs a file or folder to the disk, and makes a file readable by its owner only.
func flush(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = file.Chmod(0o600)
	}
	return errors.Join(err, file.Sync())
}

// sameContent reports whether two files have the same content.
func sameContent(a, b string) (bool, error) {
	info, err := os.Lstat(a)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size(b) {
		return false, err
	}
	files := [2]*os.File{}
	for i, path := range []string{a, b} {
		if files[i], err = os.Open(path); err != nil {
			return false, err
		}
		defer files[i].Close()
	}
	var parts [2][64 << 10]byte
	for {
		n, err := io.ReadFull(files[0], parts[0][:])
		m, _ := io.ReadFull(files[1], parts[1][:])
		if n != m || !bytes.Equal(parts[0][:n], parts[1][:m]) {
			return false, nil
		}
		if err != nil {
			return err == io.EOF || err == io.ErrUnexpectedEOF, nil
		}
	}
}
