package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// static is the binary that is shipped: no library can be put before its calls.
var static = sync.OnceValues(func() (path string, err error) {
	if err := openSources(); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "static")
	cmd := exec.Command("../deploy/build", "amd64")
	cmd.Env = append(os.Environ(), "OUT="+out, "VERSION=0.0.0-test", "SOURCE_DATE_EPOCH=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("deploy/build: %w\n%s", err, text)
	}
	return filepath.Join(out, "meshddns-linux-amd64"), nil
})

// staticBinary gives the path of the binary that is shipped.
func staticBinary(t *testing.T) string {
	t.Helper()
	if buildFlag == "-race" {
		t.Skip("what is shipped is the same without the race detector, and is tested there")
	}
	need(t, "cc", "jq", "x86_64-linux-gnu-gcc", "readelf")
	path, err := static()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// normalBinary gives the control: static too, with synchronous=NORMAL in its sources.
func normalBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meshddns")
	changes := overlay(t, "../store.go", `settings.Set("_synchronous", "FULL")`, `settings.Set("_synchronous", "NORMAL")`)
	flags, err := exec.Command("../deploy/build", "cflags").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", changes, "-trimpath", "-tags", "netgo,osusergo,nethttpomithttp2,sqlite_omit_load_extension",
		"-ldflags", "-linkmode external -extldflags -static", "-o", path, "..")
	cmd.Env = append(os.Environ(), "CGO_CFLAGS="+strings.TrimSpace(string(flags)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the control: %v\n%s", err, out)
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
	t.Parallel()
	need(t, "strace", "dig")
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
			p.cmd.Process.Kill()
			p.cmd.Wait()
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
	t.Parallel()
	need(t, "strace")
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
			script := filepath.Join(folder, "faulty")
			text := fmt.Sprintf("#!/bin/sh\nexec strace -D -f -qq -o /dev/null -P %s -P %s -P %s.v1 -P %s-lock -e inject=%s:error=EIO:when=%d %s \"$@\"\n",
				folder, db, db, db, call, n, path)
			if call == "renameat" || call == "mkdirat" || call == "unlinkat" { // the paths are not known before
				text = fmt.Sprintf("#!/bin/sh\nexec strace -D -f -qq -o /dev/null -e inject=%s:error=EIO:when=%d %s \"$@\"\n", call, n, path)
			}
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			runs++
			p := launch(t, nil, script, "-db", db, "-ipv4", "none", "-ipv6", "none")
			p.cmd.Process.Kill()
			p.cmd.Wait() // and for its log
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
	need(t, "dig", "mount")
	if !inNamespaces(t, 0, syscall.CLONE_NEWNS) {
		return
	}
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
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
	p.cmd.Process.Kill()
	p.cmd.Wait()
	mustHave(p, db, acknowledged)
	t.Logf("%d reservations acknowledged, %d refused on the full disk; none lost", len(acknowledged), refused)
}

// guest is a virtual machine whose only programs are a binary and guest/main.go.
type guest struct {
	t      *testing.T
	kernel string
	initrd string
	disk   *volatileDisk
	acked  map[string]bool
}

const diskSize = 48 << 20

// newGuest makes a machine with an empty file system.
func newGuest(t *testing.T, binary string) *guest {
	t.Helper()
	folder := t.TempDir()
	g := &guest{t: t, kernel: kernel(t), initrd: filepath.Join(folder, "initrd"), acked: map[string]bool{}}
	boot := filepath.Join(folder, "init")
	build := exec.Command("go", "build", "-o", boot, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	var archive bytes.Buffer
	for _, file := range []struct{ name, path string }{{"init", boot}, {"meshddns", binary}} {
		content, err := os.ReadFile(file.path)
		if err != nil {
			t.Fatal(err)
		}
		addEntry(&archive, file.name, 0o100755, content)
	}
	for _, name := range []string{"dev", "proc", "tmp", "data"} {
		addEntry(&archive, name, 0o40755, nil)
	}
	addEntry(&archive, "TRAILER!!!", 0, nil)
	image := filepath.Join(folder, "image")
	if err := os.WriteFile(g.initrd, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", image, fmt.Sprint(diskSize/1024)+"k").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	g.disk = newVolatileDisk(t, content)
	return g
}

// addEntry adds a file to an archive as the kernel reads it (cpio, newc).
func addEntry(archive *bytes.Buffer, name string, mode int, content []byte) {
	fmt.Fprintf(archive, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		archive.Len()+1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	pad := func() { archive.Write(make([]byte, -archive.Len()&3)) }
	pad()
	archive.Write(content)
	pad()
}

// kernel gives Debian's kernel for virtual machines, which has NVMe and ext4 built in.
// MESHDDNS_KERNEL names another one; else its package is loaded, and not installed.
func kernel(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("MESHDDNS_KERNEL"); path != "" {
		return path
	}
	need(t, "apt-get", "dpkg-deb")
	path, err := debianKernel()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return path
}

var debianKernel = sync.OnceValues(func() (path string, err error) {
	cmd := exec.Command("sh", "-c", `set -e
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
		apt-get -o APT::Sandbox::User=root download "$package"
		dpkg-deb --fsys-tarfile "$package"*.deb | tar -x ./boot`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	found, _ := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("no kernel: %v\n%s", err, out)
	}
	return found[0], nil
})

var ackLine = regexp.MustCompile(`ACK (b\d+-\d+-\d+) \.`)

// boot runs the machine until there are so many acknowledgements, and cuts its power.
func (g *guest) boot(number, acknowledgements int, chance *rand.Rand) {
	g.t.Helper()
	console := &buffer{}
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-display", "none", "-serial", "stdio", "-monitor", "none",
		"-no-reboot", "-nic", "none", "-kernel", g.kernel, "-initrd", g.initrd,
		"-append", fmt.Sprintf("console=ttyS0 loglevel=3 panic=-1 boot=%d", number),
		"-drive", "if=none,id=disk,format=raw,cache=writeback,file=nbd+unix:///?socket="+g.disk.path, "-device", "nvme,drive=disk,serial=1")
	cmd.Stdout, cmd.Stderr = console, console
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	p := &program{t: g.t, cmd: cmd}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	p.patiently(4*limit, "the guest acknowledges", func() bool {
		if p.ended() {
			g.t.Fatalf("the guest has ended:\n%s", console)
		}
		return strings.Count(console.String(), "ACK ") > acknowledgements
	})
	// What is on the console now was acknowledged while the disk had power.
	said := console.String()
	lost := g.disk.cut(chance)
	for _, found := range ackLine.FindAllStringSubmatch(said, -1) {
		g.acked[found[1]] = true
	}
	g.t.Logf("boot %d: power cut, %d written sectors lost, %d acknowledgements so far", number, lost, len(g.acked))
}

// lost tells which acknowledged reservations are not on the disk, and looks whether the
// database is sound.
func (g *guest) lost() (lost []string) {
	g.t.Helper()
	folder := g.t.TempDir()
	image, db := filepath.Join(folder, "image"), filepath.Join(folder, "meshddns.db")
	if err := os.WriteFile(image, g.disk.safe, 0o600); err != nil {
		g.t.Fatal(err)
	}
	defer os.Remove(image)
	if out, err := exec.Command("e2fsck", "-fy", image).CombinedOutput(); err != nil && err.(*exec.ExitError).ExitCode() > 1 {
		g.t.Fatalf("e2fsck: %v\n%s", err, out)
	}
	for _, name := range []string{"meshddns.db", "meshddns.db-wal"} {
		exec.Command("debugfs", "-R", "dump /"+name+" "+filepath.Join(folder, name), image).Run()
	}
	d := openDatabase(g.t, db)
	defer d.Close()
	mustBeSound(g.t, d)
	stored := storedFacts(g.t, d)
	for prefix := range g.acked {
		if stored["usage "+prefix].is == "" {
			lost = append(lost, prefix)
		}
	}
	return lost
}

// A power cut of a machine whose disk has a volatile cache loses nothing that was
// acknowledged: MESHDDNS_POWER_CUTS says how many. The control has synchronous=NORMAL.
// The NVMe disk of QEMU must heed a write's FUA bit, with which ext4 makes the end of its
// journal durable: one that does not loses that end, and what was acknowledged with it.
func TestStaticPowerCut(t *testing.T) {
	if os.Getenv("MESHDDNS_POWER_CUTS") == "" {
		t.Skip("MESHDDNS_POWER_CUTS is not given")
	}
	need(t, "qemu-system-x86_64", "mke2fs", "e2fsck", "debugfs")
	cuts := number(t, "MESHDDNS_POWER_CUTS", 1)
	for _, c := range []struct {
		name   string
		binary func(*testing.T) string
		loses  bool
	}{{"as shipped", staticBinary, false}, {"synchronous=NORMAL", normalBinary, true}} {
		t.Run(c.name, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(1, 1))
			g := newGuest(t, c.binary(t))
			lost, acknowledged := 0, 0
			for n := 0; n < cuts || c.loses && lost == 0 && n < cuts+9; n++ { // the control may be lucky
				g.boot(n, 200+chance.IntN(400), chance)
				gone := g.lost()
				lost += len(gone)
				acknowledged = len(g.acked) + lost
				for _, prefix := range gone {
					delete(g.acked, prefix)
				}
				if len(gone) > 0 && !c.loses {
					t.Errorf("cut %d: %d of %d acknowledged reservations are lost, such as %s", n, len(gone), len(g.acked), gone[0])
				}
			}
			t.Logf("%d power cuts at least: %d of %d acknowledged reservations lost; %d flushes of the disk", cuts, lost, acknowledged, g.disk.flushes)
			if c.loses && lost == 0 {
				t.Error("the control loses nothing: this test would find no loss")
			}
		})
	}
}
