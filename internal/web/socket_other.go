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

// readers returns the users and groups that the group's permission of a file of a group lets read it.
func readers(_ *os.File, group int) (users, groups []int, err error) { return nil, []int{group}, nil }
