package bench

import (
	"crypto/sha256"
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

// buildCommits compiles it as cgo compiles SQLite by default: with -O2, and with go-sqlite3's own SQLite and
// options. That takes its time, so it is kept in the user's cache, named after all that it is made of.
var buildCommits = sync.OnceValues(func() (path string, err error) {
	out, err := exec.Command("go", "list", "-f", `{{.Dir}}{{range .CgoCFLAGS}}{{"\n"}}{{.}}{{end}}`, "-tags", "sqlite_omit_load_extension", "github.com/mattn/go-sqlite3").Output()
	if err != nil {
		return "", fmt.Errorf("find go-sqlite3: %w", err)
	}
	listed := strings.Split(strings.TrimSpace(string(out)), "\n")
	amalgamation := filepath.Join(listed[0], "sqlite3-binding.c")
	args := append(listed[1:], "-O2", "-I", listed[0], "testdata/commits.c", amalgamation, "-lpthread", "-ldl", "-lm")
	sum := sha256.New()
	fmt.Fprintln(sum, args)
	for _, name := range []string{"testdata/commits.c", amalgamation} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path = filepath.Join(cache, "meshddns-bench", fmt.Sprintf("commits-%x", sum.Sum(nil)[:8]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	half, err := os.MkdirTemp(filepath.Dir(path), "half-") // so that no program finds half of it
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	made := filepath.Join(half, "commits")
	if out, err := exec.Command("cc", append(args, "-o", made)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile testdata/commits.c: %w\n%s", err, out)
	}
	return path, os.Rename(made, path)
})
