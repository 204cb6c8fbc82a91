package dbfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second program is told who has the file, and gets it when that one ends.
func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if want := fmt.Sprintf("process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("second: %v, want %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	second.Close()
}

func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("this is a text of mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Fatal("a text was opened")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the text has changed: %v %v", info.Mode(), err)
	}
}
