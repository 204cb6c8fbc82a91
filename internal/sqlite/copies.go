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
)

// ErrNoRoom is the error when no folder has room for a copy.
var ErrNoRoom = errors.New("no room for a copy of the database")

// TempFolder makes a folder beside the database, for a copy of it.
func (f *File) TempFolder() (string, error) {
	return os.MkdirTemp(filepath.Dir(f.target), f.copyPrefix())
}

// CopyFolder makes a folder for a copy that is gone when it is closed: beside the
// database where the copy leaves as much room as it takes, else in the system's
// folder for what is temporary, else beside the database if it fits at all.
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

// Copied has a copy of the database made, where there is room for it, and opens it. The
// copy has no name any more, so it is gone when it is closed. A copy of a file that is not
// the one any more that was opened is none.
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

// RoomToRewrite reports whether the database can be written anew in its log and leaves
// as much room as that takes.
func (f *File) RoomToRewrite() bool {
	free, _ := f.Free()
	return free > 2*uint64(size(f.target)+f.LogSize())
}

// copyPrefix begins the name of the folder of a copy under way. It tells the folders of
// this database from those of others, which another program may be using.
func (f *File) copyPrefix() string {
	path, _ := filepath.Abs(f.target)
	hash := fnv.New64a()
	io.WriteString(hash, path)
	return fmt.Sprintf(".meshddns-backup-%016x-", hash.Sum64())
}

// Free gives the octets that this program may still write beside the database, and the
// folder. Where there is no limit, or none that is known, they are many.
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

// RemoveTempFolders deletes the folders beside the database that an end by SIGKILL has left.
func (f *File) RemoveTempFolders() error {
	return removeFolders(filepath.Dir(f.target), f.copyPrefix())
}

// RemoveFoldersElsewhere deletes those in the system's folder for what is temporary, which
// may be a large one. It does so once, before this program makes the first there.
func (f *File) RemoveFoldersElsewhere() {
	f.elsewhere.Do(func() {
		removeFolders(os.TempDir(), f.copyPrefix()) // what others have put there stays
	})
}

func removeFolders(in, prefix string) error {
	folder, err := os.Open(in)
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1) // in no order: a folder of strangers may be large
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

// Keep gives a copy in a folder beside the database its lasting name,
// <path>.v<version>, and tells it. What has that name already stays: when it is the
// same, it is the copy, else the new one gets a number after it.
func (f *File) Keep(temporary string, version int) (path string, err error) {
	for n := 1; ; n++ {
		path = f.keptName(version, n)
		same, err := sameContent(path, temporary)
		if same {
			return path, nil
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

// Kept gives the newest copy of a version that was kept, "" when there is none.
func (f *File) Kept(version int) (path string) {
	for n := 1; ; n++ {
		next := f.keptName(version, n)
		if _, err := os.Lstat(next); err != nil {
			return path
		}
		path = next
	}
}

// WayBack gives the command that puts a copy in the database's place. The log goes
// first: it belongs to the file that is replaced.
func (f *File) WayBack(kept string) string {
	return fmt.Sprintf("rm -f %s %s && mv %s %s", quoted(f.target+logSuffix), quoted(f.target+indexSuffix), quoted(kept), quoted(f.target))
}

// quoted writes a path as a shell reads it.
func quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./") == "" {
		return path
	}
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// flush gives a file or folder to the disk, a file for its owner alone.
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

// sameContent reports whether two files are the same, octet for octet.
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
