package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/mattn/go-sqlite3"
)

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
