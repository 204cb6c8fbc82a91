package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"
)

// TestFileSystemOf: the innermost mount point counts, and of two at one point the later.
func TestFileSystemOf(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/pool rw,relatime shared:20 - fuse.mergerfs a:b rw,user_id=0
41 40 0:36 / /mnt/pool/my\040files rw - nfs4 nas:/files rw
42 22 0:37 / /srv rw - ext4 /dev/sdb1 rw
43 22 0:38 / /srv rw - cifs //nas/srv rw
nonsense
`
	for folder, want := range map[string]string{
		"/": "ext4", "/var/lib": "ext4", "/mnt/pool": "fuse.mergerfs", "/mnt/pool/a": "fuse.mergerfs", "/mnt/pools": "ext4",
		"/mnt/pool/my files/a": "nfs4", "/srv/a": "cifs",
	} {
		if got := fileSystemOf(strings.NewReader(mounts), folder); got != want {
			t.Errorf("%s: %s, want %s", folder, got, want)
		}
	}
	if got := fileSystemOf(strings.NewReader(""), "/"); got != "an unknown type" {
		t.Error(got)
	}
}

// TestOnFileSystem: the errors of a file system that SQLite cannot use say so, and others stay as they are.
func TestOnFileSystem(t *testing.T) {
	for err, named := range map[error]bool{
		sqlite3.Error{Code: sqlite3.ErrIoErr, ExtendedCode: sqlite3.ErrIoErrSHMMap}: true,
		sqlite3.Error{Code: sqlite3.ErrIoErr, ExtendedCode: sqlite3.ErrIoErrLock}:   true,
		sqlite3.Error{Code: sqlite3.ErrIoErr, ExtendedCode: sqlite3.ErrIoErrRead}:   false,
		sqlite3.Error{Code: sqlite3.ErrBusy}:                                        false,
		&fs.PathError{Op: "lock", Path: "/proc/self/x", Err: syscall.ENOLCK}:        true,
		&fs.PathError{Op: "lock", Path: "/proc/self/x", Err: syscall.EWOULDBLOCK}:   false,
		errors.New("something else"):                                                false,
	} {
		got := onFileSystem("/proc/self/x", fmt.Errorf("open: %w", err))
		if !errors.Is(got, err) || strings.Contains(got.Error(), "the file system of /proc/self/x is proc,") != named {
			t.Errorf("%v: %v", err, got)
		}
	}
}
