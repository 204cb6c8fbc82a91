// The database file: found, locked, and watched.

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
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
	lockSuffix  = "-lock"
)

// ErrGone is the error of a file, its log or its lock that was deleted, moved or replaced
// while it was open: what is written since then may be lost when the program ends.
var ErrGone = errors.New("not the file any more that was opened")

// File is a database file that this program has for itself.
type File struct {
	lock   held
	file   *os.File // the database itself, locked too: a hard link leads to it by another path
	path   string   // as given: where it leads now is what the next start opens
	target string   // without links
	opened os.FileInfo
	log    atomic.Pointer[os.FileInfo] // of the log that is written, nil before there is one
	lost   atomic.Pointer[error]       // what Check has found gone

	elsewhere sync.Once // what an earlier end has left in another folder is deleted
}

// held is the lock: the file, as it was opened.
type held struct {
	*os.File
	opened os.FileInfo
}

// OpenFile is Find and Take.
func OpenFile(path string) (*File, error) {
	f, err := FindFile(path)
	if err != nil {
		return nil, err
	}
	return f, f.Take()
}

// FindFile tells what file a path leads to, which need not be there, and changes nothing. It
// refuses a file that is no database.
func FindFile(path string) (*File, error) {
	target, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, target: target} // SQLite follows links too: one file has one lock
	info, err := os.Stat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", target)
	}
	file, err := os.Open(target)
	if err != nil {
		return nil, f.denied(target, err)
	}
	defer file.Close()
	return f, f.checkHeader(file)
}

// maxLinks is as many as the kernel follows.
const maxLinks = 40

// resolve follows the links of a path, also to a file that is not there yet.
func resolve(path string) (string, error) {
	for range maxLinks {
		target, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return target, err
		}
		link, err := os.Readlink(path)
		if err != nil { // no link: the file is not there
			folder, err := filepath.EvalSymlinks(filepath.Dir(path))
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%s: there is no such folder, make it or name another file by -db: %w", filepath.Dir(path), err)
			}
			return filepath.Join(folder, filepath.Base(path)), err
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

func (f *File) checkHeader(file *os.File) error {
	beginning, err := io.ReadAll(io.LimitReader(file, int64(len(header))))
	if err != nil {
		return err
	}
	if len(beginning) > 0 && string(beginning) != header {
		return fmt.Errorf("%s is not a database", f.target)
	}
	return nil
}

// Target is the path without links.
func (f *File) Target() string { return f.target }

// Take locks the file, makes it when it is not there, and makes it and its companions -wal
// and -shm readable by their owner only: they hold access keys. The lock is on a file of
// its own, <path>-lock, which stays: it holds the number of the process that has it.
func (f *File) Take() error {
	path := f.target + lockSuffix
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return f.denied(path, err)
	}
	f.lock.File = lock
	f.lock.opened, err = lock.Stat()
	if err == nil {
		err = take(lock, f.target)
	}
	if err == nil {
		err = f.own()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
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
	for _, suffix := range companions {
		if err := f.ownCompanion(f.target + suffix); err != nil {
			return err
		}
	}
	if err := f.mayBegin(); err != nil {
		return err
	}
	file, err := os.OpenFile(f.target, os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return f.denied(f.target, err)
	}
	f.file = file // its end would end SQLite's locks: it is closed when those are not needed any more
	if f.opened, err = file.Stat(); err != nil {
		return err
	}
	if !f.opened.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.target)
	}
	if err := f.checkHeader(file); err != nil {
		return err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return fmt.Errorf("%s is in use by another meshddns, by another name of the file (a hard link)", f.target)
	}
	return f.denied(f.target, file.Chmod(0o600))
}

// mayBegin refuses to begin a database beside the log of another one, which SQLite would
// delete with all that was acknowledged last.
func (f *File) mayBegin() error {
	if size(f.target) > 0 {
		return nil
	}
	for _, suffix := range companions {
		beside := f.target + suffix
		if _, err := os.Lstat(beside); err == nil {
			return fmt.Errorf("%s is missing or empty, and %s of an earlier database is there: put that database back as %s; "+
				"or move %s and %s away, to begin a new one", f.target, beside, f.target, f.target+logSuffix, f.target+indexSuffix)
		}
	}
	return nil
}

// denied says of a file that may not be used whose it is, and what makes it fit.
func (f *File) denied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	cure := fmt.Sprintf("; as root: chown %d:%d %s", os.Geteuid(), os.Getegid(), quoted(path))
	info, fault := os.Stat(path)
	if errors.Is(fault, fs.ErrNotExist) { // it cannot be made: the folder may be of use to others
		path, cure = filepath.Dir(path), ""
		info, _ = os.Stat(path)
	}
	status, ok := sysOf(info)
	if !ok || int(status.Uid) == os.Geteuid() {
		return err
	}
	return fmt.Errorf("%w: %s belongs to %s, and this program runs as %s%s",
		err, path, userName(int(status.Uid)), userName(os.Geteuid()), cure)
}

func sysOf(info os.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return status, ok
}

// userName is "root (uid 0)", or the number alone for a user that no file names.
func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return fmt.Sprintf("%s (uid %d)", u.Username, id)
	}
	return fmt.Sprintf("uid %d", id)
}

// ownCompanion makes a companion readable by its owner only. One that leads to
// another file is refused: that file's mode and content would be changed.
func (f *File) ownCompanion(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s is a symbolic link, want a regular file: remove it", path)
	case err != nil:
		return f.denied(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: remove it", path)
	}
	if status, ok := sysOf(info); ok && status.Nlink > 1 {
		return fmt.Errorf("%s is a file that has another name too (a hard link), want one of its own: remove it", path)
	}
	return f.denied(path, file.Chmod(0o600))
}

// Close gives the file free for another program.
func (f *File) Close() error {
	if f.file == nil {
		return f.lock.Close()
	}
	return errors.Join(f.file.Close(), f.lock.Close())
}

// Check tells, by ErrGone, whether the path leads no longer to the file that was opened,
// or the lock, or the log that CheckLogged has found, lies no longer beside it. What was
// gone once stays so: another program may have opened the file meanwhile.
func (f *File) Check() error { return f.check(false) }

// CheckLogged is Check for a file whose log is open: it has to lie beside it.
func (f *File) CheckLogged() error { return f.check(true) }

func (f *File) check(logged bool) error {
	if lost := f.lost.Load(); lost != nil {
		return *lost
	}
	now, err := os.Stat(f.path)
	if err := f.same(f.path, now, f.opened, err); err != nil {
		return err
	}
	lock := f.target + lockSuffix
	now, err = os.Lstat(lock)
	if err := f.same(lock, now, f.lock.opened, err); err != nil {
		return err
	}
	if !logged && f.log.Load() == nil {
		return nil
	}
	log := f.target + logSuffix
	if now, err = os.Lstat(log); err != nil {
		return f.same(log, nil, nil, err)
	}
	f.log.CompareAndSwap(nil, &now)
	return f.same(log, now, *f.log.Load(), nil)
}

// same gives ErrGone when a path leads to another file now than the one that was opened, or
// to none, and keeps that. It gives ErrGone with the cause, and keeps nothing, when the
// system cannot tell.
func (f *File) same(path string, now, opened os.FileInfo, err error) error {
	switch {
	case err == nil && os.SameFile(now, opened):
		return nil
	case err == nil, errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s: %w", path, ErrGone)
		f.lost.Store(&err)
		return err
	}
	return fmt.Errorf("%s: %w: %w", path, ErrGone, err)
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
