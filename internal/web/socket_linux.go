package web

import (
	"encoding/binary"
	"fmt"
	"os"
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

// onlyOurs reports whether the group's permission of a file of a group lets no one read it but this process's user and groups.
// With an ACL (acl(5)), such as systemd's for a credential, that permission is the ACL's mask. The form of an ACL is that of
// linux/posix_acl_xattr.h: a version, then entries of a tag, permissions and an id.
func onlyOurs(f *os.File, group int) bool {
	const aclUser, aclOwnGroup, aclGroup, aclRead = 0x02, 0x04, 0x08, 4
	acl := make([]byte, 64<<10)
	n, err := syscall.Getxattr(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "system.posix_acl_access", acl)
	if err == syscall.ENODATA || err == syscall.ENOTSUP {
		return inGroup(group)
	}
	for at := 4; at < n; at += 8 {
		tag, id := binary.LittleEndian.Uint16(acl[at:]), int(binary.LittleEndian.Uint32(acl[at+4:]))
		foreign := tag == aclUser && id != os.Geteuid() || tag == aclOwnGroup && !inGroup(group) || tag == aclGroup && !inGroup(id)
		if foreign && acl[at+2]&aclRead != 0 {
			return false
		}
	}
	return err == nil
}
