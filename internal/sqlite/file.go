// The database file: how it is found, locked and checked.

package sqlite

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

// header begins every SQLite file (https://sqlite.org/fileformat.html).
const header = "SQLite format 3\x00"

// companions are the suffixes of the files that SQLite creates beside the database: the WAL and
// its index.
var companions = []string{logSuffix, indexSuffix}

const (
	logSuffix   = "-wal"
	indexSuffix = "-shm"
	lockSuffix  = "-lock"
)

// ErrGone is the error when the database file, its WAL or its lock file was deleted, moved or
// replaced while it was open. Later writes may be lost when the program ends.
var ErrGone = errors.New("not the file any more that was opened")

// File is a database file that this process has locked.
type File struct {
	lock   held
	file   *os.File // the database, locked too: a hard link leads to it by another path
	path   string   // as given; Check follows it, as the next start does
	target string   // path without symbolic links
	opened os.FileInfo
	log    atomic.Pointer[os.FileInfo] // the open WAL, nil before there is one
	lost   atomic.Pointer[error]       // the ErrGone that Check found

	elsewhere sync.Once // runs RemoveFoldersElsewhere
}

// held is the open lock file.
type held struct {
	*os.File
	opened os.FileInfo
	made   bool  // by this process
	noted  int64 // by the process before
}

// FindFile finds the file that a path leads to, and changes nothing. The file may be missing. A
// file that is no SQLite database is an error.
func FindFile(path string) (*File, error) {
	target, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, target: target} // SQLite follows links too, so that all links share one lock
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

// maxLinks is the number of symbolic links that Linux follows in a path (path_resolution(7)).
const maxLinks = 40

// resolve follows the symbolic links of a path. The last link may lead to a missing file.
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

// Target returns the path without symbolic links.
func (f *File) Target() string { return f.target }

// Take locks the file, creates it if it is missing, and makes it and its companions readable by
// their owner only, because they hold access keys. The lock is on a file of its own,
// <path>-lock, which stays. It contains the id of the process that holds the lock, and the number of Note.
func (f *File) Take() error {
	path := f.target + lockSuffix
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return f.denied(path, err)
	}
	f.lock.File = lock
	f.lock.opened, err = lock.Stat()
	if err == nil {
		err = f.lock.take(f.target)
	}
	if err == nil {
		err = f.own()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// take locks the lock file, and reads the number that was noted in it.
func (h *held) take(path string) error {
	locked := syscall.Flock(int(h.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	content, err := io.ReadAll(io.LimitReader(h, 64))
	holder, noted, _ := strings.Cut(string(content), "\n")
	if locked == syscall.EWOULDBLOCK {
		return fmt.Errorf("%s is in use by another meshddns, process %s", path, strings.TrimSpace(holder))
	}
	if locked != nil {
		return onFileSystem(path, fmt.Errorf("lock %s: %w", h.Name(), locked))
	}
	h.made = len(content) == 0
	h.noted, _ = strconv.ParseInt(strings.TrimSpace(noted), 10, 64)
	return cmp.Or(err, h.write(h.noted))
}

// write writes the process id and a number, always as many octets. A full disk is no error.
func (h *held) write(number int64) error {
	_, err := h.WriteAt(fmt.Appendf(nil, "%-10d\n%-20d\n", os.Getpid(), number), 0)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil
	}
	return err
}

// InUse returns an error that names the process if another one has the database at a path. It makes no file.
func InUse(path string) error {
	target, err := resolve(path)
	if err != nil {
		return nil // opening it tells that
	}
	lock, err := os.OpenFile(target+lockSuffix, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer lock.Close()
	return (&held{File: lock}).take(target)
}

// Noted returns the last number of Note, also that of an earlier process. known is false if the lock file is new: the
// database was not used in this folder before, or by a program that noted nothing.
func (f *File) Noted() (number int64, known bool) { return f.lock.noted, !f.lock.made }

// Note writes a number that grows with the database into the lock file. A database that was restored has a lower one.
func (f *File) Note(number int64) error { return f.lock.write(number) }

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
	f.file = file // closing it releases SQLite's POSIX locks too, so it stays open until Close
	if f.opened, err = file.Stat(); err != nil {
		return err
	}
	if !f.opened.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.target)
	}
	if err := f.checkHeader(file); err != nil {
		return err
	}
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == syscall.EWOULDBLOCK:
		return fmt.Errorf("%s is in use by another meshddns, by another name of the file (a hard link)", f.target)
	case err != nil:
		return onFileSystem(f.target, fmt.Errorf("lock %s: %w", f.target, err))
	}
	return f.denied(f.target, file.Chmod(0o600))
}

// mayBegin refuses to create a database beside the WAL of an earlier one. SQLite would delete that
// WAL with the last committed transactions.
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

// denied adds to a permission error the owner of the file and the command that corrects it.
func (f *File) denied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	cure := fmt.Sprintf("; as root: chown %d:%d %s", os.Geteuid(), os.Getegid(), quoted(path))
	info, fault := os.Stat(path)
	if errors.Is(fault, fs.ErrNotExist) { // the folder refuses the file; no cure, because others may use the folder
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

// userName returns "root (uid 0)", or "uid 1234" if the user has no name.
func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return fmt.Sprintf("%s (uid %d)", u.Username, id)
	}
	return fmt.Sprintf("uid %d", id)
}

// ownCompanion makes a companion readable by its owner only. It refuses a link, because a change
// of mode or content would reach another file.
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

// Close closes the file and releases its lock.
func (f *File) Close() error {
	if f.file == nil {
		return f.lock.Close()
	}
	return errors.Join(f.file.Close(), f.lock.Close())
}

// Check returns ErrGone if the path no longer leads to the file that was opened, or if the lock
// file or the WAL is no longer beside it. It checks the WAL only after CheckLogged found one. After
// the first ErrGone, Check always fails: another program may have opened the file meanwhile.
func (f *File) Check() error { return f.check(false) }

// CheckLogged is Check for a file whose WAL is open: a missing WAL is ErrGone too.
func (f *File) CheckLogged() error { return f.check(true) }

// Lost returns the ErrGone that Check has found, nil for none.
func (f *File) Lost() error {
	if lost := f.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

func (f *File) check(logged bool) error {
	if err := f.Lost(); err != nil {
		return err
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

// same returns ErrGone if a path now leads to another file than the one that was opened, or to
// none, and remembers this error. If the system cannot tell, it returns ErrGone with the cause and
// remembers nothing.
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

// LogSize returns the size of the WAL in octets, 0 if there is none.
func (f *File) LogSize() int64 { return size(f.target + logSuffix) }

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// unfit are SQLite's errors on a file system without locks or shared memory: mergerfs and other FUSE file systems
// without mmap, and network file systems.
var unfit = []sqlite3.ErrNoExtended{sqlite3.ErrIoErrSHMMap, sqlite3.ErrIoErrSHMLock, sqlite3.ErrIoErrSHMOpen, sqlite3.ErrIoErrLock}

// onFileSystem adds the type of the file system of a path to an error that the file system is the reason of.
func onFileSystem(path string, err error) error {
	fault, _ := errors.AsType[sqlite3.Error](err)
	if !slices.Contains(unfit, fault.ExtendedCode) && !errors.Is(err, syscall.ENOLCK) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	kind := "an unknown type"
	if mounts, fault := os.Open("/proc/self/mountinfo"); fault == nil {
		kind = fileSystemOf(mounts, filepath.Dir(path))
		mounts.Close()
	}
	return fmt.Errorf("%w: the file system of %s is %s, without the locks or the shared memory that SQLite needs: name a file on a local disk by -db",
		err, path, kind)
}

// fileSystemOf returns the type of the file system that has a folder, as proc_pid_mountinfo(5) tells it. Of two at one
// mount point the later one hides the earlier.
func fileSystemOf(mounts io.Reader, folder string) (kind string) {
	kind, longest := "an unknown type", 0
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		mount, source, _ := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(mount), strings.Fields(source)
		if len(fields) < 5 || len(rest) == 0 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\134`, `\`).Replace(fields[4])
		if within := strings.TrimSuffix(point, "/") + "/"; strings.HasPrefix(folder+"/", within) && len(point) >= longest {
			kind, longest = rest[0], len(point)
		}
	}
	return kind
}
