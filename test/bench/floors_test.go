package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/support"
)

var buildFloor = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(dir, "floor")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./floor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the empty server: %w\n%s", err, out)
	}
	return path, nil
})

// floorServer is the server of folder floor.
type floorServer struct {
	process *process
	http    string
}

func startFloor(t testing.TB) floorServer {
	t.Helper()
	path, err := buildFloor()
	if err != nil {
		t.Fatal(err)
	}
	s := floorServer{http: support.FreeAddress(t)}
	s.process = launch(t, filepath.Join(t.TempDir(), "floor.log"), nil, path, s.http)
	support.Eventually(t, limit, "the empty server listens", func() bool { return listens(s.http) })
	return s
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, limit)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// commits is the program of testdata/commits.c on a database of its own.
type commits struct {
	path, db string
	next     int64
}

// startCommits takes a database that the program has filled.
func startCommits(t testing.TB, db string) *commits {
	t.Helper()
	path, err := buildCommits()
	if err != nil {
		t.Fatal(err)
	}
	return &commits{path: path, db: db, next: 1}
}

// rate reserves for a time, and tells how many a second.
func (c *commits) rate(t testing.TB, so time.Duration) float64 {
	t.Helper()
	out, err := exec.Command(c.path, c.db, fmt.Sprint(c.next), fmt.Sprint(so.Milliseconds())).CombinedOutput()
	var done, took int64
	if _, scanned := fmt.Sscan(string(out), &done, &took); err != nil || scanned != nil {
		t.Fatalf("commits one by one: %v\n%s", err, out)
	}
	c.next += done
	return float64(done) / time.Duration(took).Seconds()
}

// buildCommits links it with the SQLite that the go command has compiled for go-sqlite3: with its options, and -O2.
var buildCommits = sync.OnceValues(func() (path string, err error) {
	listed, err := exec.Command("go", "list", "-export", "-f", "{{.Dir}}\n{{.Export}}", "github.com/mattn/go-sqlite3").Output()
	if err != nil {
		return "", fmt.Errorf("compile go-sqlite3: %w", err)
	}
	headers, archive, _ := strings.Cut(strings.TrimSpace(string(listed)), "\n")
	objects, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	indexed := filepath.Join(dir, "sqlite3.a") // the go command's archive has no index of symbols
	if err := os.WriteFile(indexed, objects, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("ranlib", indexed).CombinedOutput(); err != nil {
		return "", fmt.Errorf("index go-sqlite3: %w\n%s", err, out)
	}
	path = filepath.Join(dir, "commits")
	if out, err := exec.Command("cc", "-O2", "-I", headers, "testdata/commits.c", indexed, "-lpthread", "-ldl", "-lm", "-o", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile testdata/commits.c: %w\n%s", err, out)
	}
	return path, nil
})
