//go:build !linux

package web

import "os"

// giveToGroup sets the group and the mode of a socket's file.
func giveToGroup(path string, group int) error {
	if err := os.Lchown(path, -1, group); err != nil {
		return err
	}
	return os.Chmod(path, socketMode)
}

// onlyOurs reports whether this process is in the group of a file. An ACL is not looked at.
func onlyOurs(_ *os.File, group int) bool { return inGroup(group) }
