//go:build !linux

package httpserver

import "os"

// giveToGroup returns a socket's file to a group and lets the group in.
func giveToGroup(path string, group int) error {
	if err := os.Lchown(path, -1, group); err != nil {
		return err
	}
	return os.Chmod(path, socketMode)
}
