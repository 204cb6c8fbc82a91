// Package dbfile guards the file of a database: its owner alone can read it, and
// one program at a time has it open.
package dbfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// header begins every SQLite file (https://sqlite.org/fileformat.html).
const header = "SQLite format 3\x00"

// File is a database file that this program has for itself.
type File struct{ lock *os.File }

// Open makes the file when it is not there, locks it, and makes it and its
// companions -wal and -shm readable by their owner only: they hold access keys. A
// file that is no database is left as it is. The lock is on a file of its own,
// <path>-lock, which stays: it holds the number of the process that has it.
func Open(path string) (*File, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // SQLite follows links too: one file has one lock
	}
	lock, err := os.OpenFile(path+"-lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(lock, path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := own(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &File{lock: lock}, nil
}

func take(lock *os.File, path string) error {
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(lock, 20))
		return fmt.Errorf("%s is in use by another meshddns, process %s", path, strings.TrimSpace(string(holder)))
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func own(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	beginning, err := io.ReadAll(io.LimitReader(file, int64(len(header))))
	if err != nil {
		return err
	}
	if len(beginning) > 0 && string(beginning) != header {
		return fmt.Errorf("%s is not a database", path)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return file.Chmod(0o600)
}

// Close gives the file free for another program.
func (f *File) Close() error { return f.lock.Close() }

// copyPrefix begins the name of the folder of a copy under way.
const copyPrefix = ".meshddns-backup-"

// TempFolder makes a folder beside the database, for a copy of it.
func TempFolder(path string) (string, error) { return os.MkdirTemp(filepath.Dir(path), copyPrefix) }

// RemoveTempFolders deletes the folders that an end by SIGKILL has left.
func RemoveTempFolders(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), copyPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(path), entry.Name())))
		}
	}
	return err
}
