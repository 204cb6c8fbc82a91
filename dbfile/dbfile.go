// Package dbfile guards the file of a database: its owner alone can read it, one
// program at a time has it open, and it is told when it is no longer the one that was
// opened. It also makes room for copies of it, and keeps those of before an upgrade.
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
	"sync"
	"sync/atomic"
	"syscall"
)

// header begins every SQLite file (https://sqlite.org/fileformat.html).
const header = "SQLite format 3\x00"

// companions are what SQLite writes beside the file: the log, and its index.
var companions = []string{logSuffix, indexSuffix}

const (
	logSuffix   = "-wal"
	indexSuffix = "-shm"
)

// ErrGone is the error of a file that was deleted, moved or replaced while it was
// open: what is written since then is lost when the program ends.
var ErrGone = errors.New("not the file any more that was opened")

// File is a database file that this program has for itself.
type File struct {
	lock   *os.File
	path   string // as given: where it leads now is what the next start opens
	target string // without links
	opened os.FileInfo
	log    atomic.Pointer[os.FileInfo] // of the log that is written, nil before there is one

	elsewhere sync.Once // what an earlier end has left in another folder is deleted
}

// Open makes the file when it is not there, locks it, and makes it and its
// companions -wal and -shm readable by their owner only: they hold access keys. A
// file that is no database is left as it is. The lock is on a file of its own,
// <path>-lock, which stays: it holds the number of the process that has it.
func Open(path string) (*File, error) {
	f := &File{path: path, target: path}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		f.target = target // SQLite follows links too: one file has one lock
	}
	lock, err := os.OpenFile(f.target+"-lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f.lock = lock
	if err := take(lock, f.target); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := f.own(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// take locks, and says who has the lock, unless the disk has no room for that.
func take(lock *os.File, path string) error {
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(lock, 20))
		return fmt.Errorf("%s is in use by another meshddns, process %s", path, strings.TrimSpace(string(holder)))
	}
	holder := strconv.Itoa(os.Getpid()) + "\n"
	_, err := lock.WriteAt([]byte(holder), 0)
	if err == nil {
		err = lock.Truncate(int64(len(holder)))
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil
	}
	return err
}

func (f *File) own() error {
	file, err := os.OpenFile(f.target, os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if f.opened, err = file.Stat(); err != nil {
		return err
	}
	if !f.opened.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.target)
	}
	beginning, err := io.ReadAll(io.LimitReader(file, int64(len(header))))
	if err != nil {
		return err
	}
	if len(beginning) > 0 && string(beginning) != header {
		return fmt.Errorf("%s is not a database", f.target)
	}
	for _, suffix := range companions {
		if err := ownCompanion(f.target + suffix); err != nil {
			return err
		}
	}
	return file.Chmod(0o600)
}

// ownCompanion makes a companion readable by its owner only. One that leads to
// another file is refused: that file's mode and content would be changed.
func ownCompanion(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s is a symbolic link, want a regular file: remove it", path)
	case err != nil:
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: remove it", path)
	}
	if status, ok := info.Sys().(*syscall.Stat_t); ok && status.Nlink > 1 {
		return fmt.Errorf("%s is a file that has another name too (a hard link), want one of its own: remove it", path)
	}
	return file.Chmod(0o600)
}

// Close gives the file free for another program.
func (f *File) Close() error { return f.lock.Close() }

// Check tells, by ErrGone, whether the path leads no longer to the file that was
// opened, or the log that CheckLogged has found lies no longer beside it.
func (f *File) Check() error {
	if now, err := os.Stat(f.path); err != nil || !os.SameFile(now, f.opened) {
		return gone(f.path, err)
	}
	if f.log.Load() == nil {
		return nil
	}
	return f.checkLog()
}

// CheckLogged is Check for a file whose log is open: it has to lie beside it.
func (f *File) CheckLogged() error {
	if err := f.Check(); err != nil || f.log.Load() != nil {
		return err
	}
	return f.checkLog()
}

func (f *File) checkLog() error {
	path := f.target + logSuffix
	now, err := os.Lstat(path)
	if err != nil {
		return gone(path, err)
	}
	if f.log.CompareAndSwap(nil, &now); !os.SameFile(now, *f.log.Load()) {
		return gone(path, nil)
	}
	return nil
}

func gone(path string, err error) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: %w", path, ErrGone, err)
	}
	return fmt.Errorf("%s: %w", path, ErrGone)
}

// LogSize gives the size of the log, 0 when there is none.
func (f *File) LogSize() int64 { return size(f.target + logSuffix) }

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
