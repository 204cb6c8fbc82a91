package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// static is the binary that is shipped: no library can be put before its calls.
var static = sync.OnceValues(func() (path string, err error) {
	if err := support.OpenSources("../.."); err != nil {
		return "", err
	}
	return release(filepath.Join(dir, "static"))
})

// release builds the binary as it is shipped, with more in the environment of its script.
func release(out string, more ...string) (path string, err error) {
	cmd := exec.Command("../../deploy/build", "amd64")
	cmd.Env = append(append(os.Environ(), "OUT="+out, "VERSION=0.0.0-test", "SOURCE_DATE_EPOCH=0"), more...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("deploy/build: %w\n%s", err, text)
	}
	return filepath.Join(out, "meshddns-linux-amd64"), nil
}

// staticBinary gives the path of the binary that is shipped.
func staticBinary(t *testing.T) string {
	t.Helper()
	if buildFlag == "-race" {
		t.Skip("what is shipped is the same without the race detector, and is tested there")
	}
	support.Need(t, "cc", "jq", "x86_64-linux-gnu-gcc", "readelf")
	path, err := static()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// normalBinary gives the control: static too, with synchronous=NORMAL in its sources.
func normalBinary(t *testing.T) string {
	t.Helper()
	changes := overlay(t, "../../internal/sqlite/database.go", `settings.Set("_synchronous", "FULL")`, `settings.Set("_synchronous", "NORMAL")`)
	path, err := release(t.TempDir(), "OVERLAY="+changes)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// overlay makes the file for go build -overlay that changes one text of a source.
func overlay(t *testing.T, name, old, new string) string {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), old) != 1 {
		t.Fatalf("%s has not one %s", name, old)
	}
	changed, path := filepath.Join(t.TempDir(), "changed.go"), filepath.Join(t.TempDir(), "overlay")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, _ := filepath.Abs(name)
	text, _ := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// window lets strace fail system calls of a program until the function that it gives
// is called.
func window(p *program, injections ...string) (shut func()) {
	p.t.Helper()
	args := []string{"-f", "-qq", "-o", filepath.Join(p.t.TempDir(), "calls"), "-p", fmt.Sprint(p.cmd.Process.Pid)}
	for _, injection := range injections {
		args = append(args, "-e", "inject="+injection)
	}
	cmd := exec.Command("strace", args...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("strace is there for every thread", func() bool { return p.traced(cmd.Process.Pid) })
	return sync.OnceFunc(func() {
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		p.eventually("strace is gone", func() bool { return p.traced(0) })
	})
}

// traced tells whether a process traces every thread.
func (p *program) traced(by int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(status), fmt.Sprintf("TracerPid:\t%d\n", by)) {
			return false
		}
	}
	return len(threads) > 0
}

// reservation is the nth that these tests make; it is asked for until it is done.
func reservation(n int) string {
	return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"s-%d","network_id":%d}`, n, n+1)
}

// mustHave looks whether every acknowledged prefix is listed, and in the file.
func mustHave(p *program, path string, acknowledged map[string]bool) {
	p.t.Helper()
	db := openDatabase(p.t, path)
	defer db.Close()
	mustBeSound(p.t, db)
	stored := storedFacts(p.t, db)
	for prefix := range acknowledged {
		if stored["usage "+prefix].is == "" {
			p.t.Errorf("%s was acknowledged and is lost", prefix)
		}
	}
}

// While calls of the shipped binary fail, writes are refused and reads go on; afterwards
// it writes, without a restart.
func TestStaticFaultWindows(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "strace", "dig")
	for name, injections := range map[string][]string{
		"no sync":     {"fsync,fdatasync:error=EIO"},
		"no room":     {"pwrite64:error=ENOSPC"},
		"some writes": {"pwrite64:error=ENOSPC:when=2+3"},
		"some syncs":  {"fsync,fdatasync:error=EIO:when=1+2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "meshddns.db")
			p := startAt(t, staticBinary(t), "-db", path, "-ipv4", "none", "-ipv6", "none")
			p.configure("manual", "tcp://203.0.113.7:1")
			acknowledged, refused := map[string]bool{}, 0
			for round := range 3 {
				shut := window(p, injections...)
				for n := round * 20; n < round*20+10; n++ {
					a, err := p.try("POST", usagesPath, reservation(n))
					switch {
					case err != nil:
						t.Fatal(err)
					case a.status == 200:
						acknowledged[fmt.Sprintf("s-%d", n)] = true
					case a.status >= 500 && strings.HasPrefix(a.body, `{"error":"`):
						refused++
					default:
						t.Errorf("%d %s", a.status, a.body)
					}
					p.call(200, "GET", usagesPath+"/available", "")
				}
				if got := p.dig("+noall", "+comments", "mesh.example.com", "SOA"); !strings.Contains(got, "NOERROR") {
					t.Errorf("DNS does not answer:\n%s", got)
				}
				shut()
				for n := round*20 + 10; n < round*20+20; n++ {
					p.call(200, "POST", usagesPath, reservation(n))
					acknowledged[fmt.Sprintf("s-%d", n)] = true
				}
			}
			p.call(200, "POST", syncPath, "")
			support.Kill(p.cmd)
			mustHave(p, path, acknowledged)
			if refused == 0 {
				t.Error("no write was refused: nothing was failed")
			}
			t.Logf("%d reservations were refused, %d acknowledged, none lost", refused, len(acknowledged))
		})
	}
}

// What Go does to files at the start itself, which no library comes between (the lock,
// the copy before an upgrade, its sync and its name), fails call by call: the program
// starts or says why not, and the next start has everything.
func TestStaticStartFaults(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "strace")
	last := 2
	if sampleOf(t, 1) != 1 {
		last = 12
	}
	path, runs, refused := staticBinary(t), 0, 0
	for _, call := range []string{"openat", "mkdirat", "renameat", "unlinkat", "fsync", "fchmod", "flock", "ftruncate", "pwrite64"} {
		for n := 1; n <= last; n++ {
			folder := t.TempDir()
			db := filepath.Join(folder, "meshddns.db")
			w := newWitness(t, 0, 1)
			w.facts = older(t, db)
			words := []string{"strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", fmt.Sprintf("inject=%s:error=EIO:when=%d", call, n)}
			if call != "renameat" && call != "mkdirat" && call != "unlinkat" { // the paths are known before
				words = append(words, "-P", folder, "-P", db, "-P", db+".v10", "-P", db+"-lock")
			}
			runs++
			p := launch(t, nil, append(words, path), "-db", db, "-ipv4", "none", "-ipv6", "none")
			support.Kill(p.cmd) // and for its log
			if p.client == nil {
				refused++
				if !strings.Contains(p.log.String(), "meshddns: ") {
					t.Errorf("%s %d: the program ended without a reason:\n%s", call, n, p.log)
				}
			}
			startAt(t, path, "-db", db, "-ipv4", "none", "-ipv6", "none").stop()
			compare(t, db, []*witness{w})
			for _, kept := range keptCopies(t, db) {
				if wrong := damaged(t, kept); wrong != "" {
					t.Errorf("%s %d: %s: %s", call, n, kept, wrong)
				}
			}
			if t.Failed() {
				t.Fatalf("at %s %d", call, n)
			}
		}
	}
	t.Logf("%d starts with a failing call: %d were refused with a reason; the next had everything", runs, refused)
	if refused == 0 {
		t.Error("no start was refused: nothing was failed")
	}
}

// keptCopies are those of before an upgrade.
func keptCopies(t *testing.T, db string) []string {
	t.Helper()
	found, err := filepath.Glob(db + ".v*")
	if err != nil || len(found) == 0 {
		t.Errorf("no copy of %s was kept: %v", db, err)
	}
	return found
}

// damaged tells what SQLite finds wrong with a file, "" when there is nothing.
func damaged(t *testing.T, path string) string {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	var said string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&said); err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(said, "ok")
}

// On a disk that is full, reads and DNS go on; when it has grown, writes are done again.
func TestStaticFullDisk(t *testing.T) {
	notShort(t)
	support.Need(t, "dig", "mount")
	t.Parallel()
	if !inNamespaces(t, 0, syscall.CLONE_NEWNS) {
		return
	}
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(folder, syscall.MNT_DETACH) })
	db := filepath.Join(folder, "meshddns.db")
	p := startAt(t, staticBinary(t), "-db", db, "-ipv4", "none", "-ipv6", "none")
	p.configure("manual", "tcp://203.0.113.7:1")
	acknowledged, refused, n := map[string]bool{}, 0, 0
	for ; refused < 20 && n < 10_000; n++ {
		a, err := p.try("POST", usagesPath, reservation(n))
		switch {
		case err != nil:
			t.Fatal(err)
		case a.status == 200:
			acknowledged[fmt.Sprintf("s-%d", n)] = true
		case a.status >= 500 && a.header.Get("X-Error-Code") == "disk_full":
			refused++
		default:
			t.Fatalf("%d %q %s", a.status, a.header.Get("X-Error-Code"), a.body)
		}
	}
	if filled := len(acknowledged); refused < 20 || filled < 10 {
		t.Fatalf("%d reservations fill the disk, %d are refused: want some of both", filled, refused)
	}
	p.call(200, "GET", usagesPath+"/available", "")
	if got := p.dig("+noall", "+comments", "mesh.example.com", "SOA"); !strings.Contains(got, "NOERROR") {
		t.Errorf("DNS does not answer:\n%s", got)
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_REMOUNT, "size=30m"); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		p.call(200, "POST", usagesPath, reservation(n))
		acknowledged[fmt.Sprintf("s-%d", n)] = true
		n++
	}
	p.call(200, "POST", syncPath, "")
	if got := p.dig("+short", fmt.Sprintf("_mesh.s-%d.mesh.example.com", n-1), "TXT"); !strings.Contains(got, fmt.Sprintf(" n=%d ", n)) {
		t.Errorf("the last reservation is answered as %q", got)
	}
	support.Kill(p.cmd)
	mustHave(p, db, acknowledged)
	t.Logf("%d reservations acknowledged, %d refused on the full disk; none lost", len(acknowledged), refused)
}

// TestReleaseOnFullDisk: the disk is full when an update has reached the provider, so its outcome cannot be stored. When it
// has room again the engine goes on by itself: the value of a usage that was deleted then, or before, goes, and the usage
// too, at the latest after the second look.
func TestReleaseOnFullDisk(t *testing.T) {
	notShort(t)
	support.Need(t, "mount")
	t.Parallel()
	if !inNamespaces(t, 0, syscall.CLONE_NEWNS) {
		return
	}
	folder := t.TempDir()
	support.Must(t, syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=30m"))
	t.Cleanup(func() { syscall.Unmount(folder, syscall.MNT_DETACH) })
	ballast := filepath.Join(folder, "ballast")
	server := servertest.Knot(t)
	var full sync.Once
	full.Do(func() {})
	var fills atomic.Pointer[sync.Once]
	fills.Store(&full)
	relay := servertest.Relay(t, server.Addr, func(query []byte, forward func() []byte) []byte {
		if servertest.IsUpdate(query) {
			fills.Load().Do(func() {
				file, err := os.Create(ballast)
				if err == nil {
					_, err = io.Copy(file, zeros{})
					file.Close()
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Error(err)
				}
			})
		}
		return forward()
	})
	p := startAt(t, quickBinary(t), "-db", filepath.Join(folder, "meshddns.db"), "-ipv4", "none", "-ipv6", "none")
	p.call(200, "PUT", "/api/v1/ddns/config", fmt.Sprintf(`{"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":"far.example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto"}`,
		servertest.Key, servertest.Secret, relay))
	p.call(200, "PUT", "/api/v1/ddns/services/svc", `{"name":"far","config":{"domain":"far.example.com"}}`)
	for _, before := range []bool{true, false} {
		a := p.call(200, "POST", usagesPath+"?wait=30", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"gone","network_id":7,"txt_endpoints":["udp://203.0.113.7:1"]}`)
		path := usagesPath + "/" + a.field("id")
		failed := strings.Count(p.log.String(), "disk is full")
		fills.Store(new(sync.Once))
		if before {
			p.call(202, "DELETE", path+"?wait=1", "")
		} else {
			p.call(200, "PATCH", path+"?wait=1", `{"txt_endpoints":["udp://203.0.113.7:2"]}`)
		}
		p.eventually("an outcome cannot be stored", func() bool { return strings.Count(p.log.String(), "disk is full") > failed })
		if a, err := p.try("DELETE", path, ""); err != nil || a.header.Get("X-Error-Code") != "disk_full" {
			t.Errorf("DELETE on the full disk: %d %s %v", a.status, a.body, err)
		}
		support.Must(t, os.Remove(ballast))
		if !before {
			p.eventually("the usage is deleted", func() bool {
				a, err := p.try("DELETE", path+"?wait=1", "")
				return err == nil && (a.status == 200 || a.status == 202)
			})
		}
		began := time.Now()
		p.eventually("the usage is gone", func() bool {
			a := p.call(200, "GET", usagesPath+"/available", "")
			return !strings.Contains(a.body, `"gone"`)
		})
		t.Logf("gone after %v", time.Since(began))
		if left := strings.Join(transfer(t, server), "\n"); strings.Contains(left, "_mesh.gone.") {
			t.Errorf("at the provider is still:\n%s", left)
		}
	}
}
