package web

import (
	"fmt"
	"syscall"
)

// Flags that package syscall lacks.
const (
	openPath    = 0x200000 // O_PATH
	atEmptyPath = 0x1000   // AT_EMPTY_PATH
)

// giveToGroup sets the group and the mode of a socket's file. Another user may be
// able to put a file of that name into the folder, so giveToGroup follows no link and
// changes only the file that it has opened, if that is a socket.
func giveToGroup(path string, group int) error {
	fd, err := syscall.Open(path, openPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("%s is not a socket", path)
	}
	if err := syscall.Fchownat(fd, "", -1, group, atEmptyPath); err != nil {
		return err
	}
	return syscall.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), socketMode)
}
