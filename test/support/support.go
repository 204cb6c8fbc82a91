// Package support has what the tests of several packages need: a log that is read while it
// is written, waits whose limits follow the pace of the machine, programs that end with
// their test, and small helpers for ports, databases and missing tools. Only tests import it.
package support

import (
	"bytes"
	"database/sql"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Log keeps what is written to it. Its methods may run at the same time.
type Log struct {
	Held chan struct{} // if it is not nil, Write waits until it is closed

	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log and never fails.
func (l *Log) Write(data []byte) (int, error) {
	if l.Held != nil {
		<-l.Held
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

// String returns the text of the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns the text of the log and empties it.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Need skips the test when a program is not installed. With CI=true it fails the test
// instead, because a reader would take a skipped test for one that passed.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		_, err := exec.LookPath(name)
		if err != nil && os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: %v", name, err)
		}
		if err != nil {
			t.Skipf("%s is not installed: %v", name, err)
		}
	}
}

// Must ends the test with an error that is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Long is the variable that asks for the long forms of the tests: Long=1.
const Long = "MESHDDNS_LONG"

// Count returns few, or many when the long forms of the tests are asked for.
func Count(few, many int) int {
	if os.Getenv(Long) != "" {
		return many
	}
	return few
}

// FreeAddress returns an address on loopback whose port was free for TCP and UDP a moment
// ago. Another process can take the port before the caller does.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		Must(t, err)
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		tcp.Close()
		if err == nil {
			udp.Close()
			return tcp.Addr().String()
		}
	}
}

// OpenSQLite opens the database file of a path with the options of a DSN, such as
// "_busy_timeout=5000". The end of the test closes it. The caller's package imports the driver.
func OpenSQLite(t testing.TB, path, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?"+options)
	Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// OpenSources opens every file below root that the program or its tests are made of. The go
// command keeps the result of a test while the files that the test opened stay the same, and
// does not count the files that a compiler opens for the test. Without this call, an old
// pass would stand for new code.
func OpenSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case slices.Contains(sources, filepath.Ext(path)):
			_, err = os.ReadFile(path)
		}
		return err
	})
}

// sources are the suffixes of the files that OpenSources opens.
var sources = []string{".go", ".sql", ".mod", ".md", ".json"}
