package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"meshddns/test/support"
)

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
	folder, kernel := t.TempDir(), kernel(t)
	g := &guest{t: t, kernel: filepath.Join(kernel, "vmlinuz"), initrd: filepath.Join(folder, "initrd"), acked: map[string]bool{}}
	boot := filepath.Join(folder, "init")
	build := exec.Command("go", "build", "-o", boot, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	var archive bytes.Buffer
	for _, name := range []string{"dev", "proc", "sys", "tmp", "data", "modules"} {
		addEntry(&archive, name, 0o40755, nil)
	}
	files := map[string]string{"init": boot, "meshddns": binary}
	modules, _ := filepath.Glob(filepath.Join(kernel, "modules/*"))
	for _, path := range modules {
		files["modules/"+filepath.Base(path)] = path
	}
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		addEntry(&archive, name, 0o100755, content)
	}
	addEntry(&archive, "TRAILER!!!", 0, nil)
	image := filepath.Join(folder, "image")
	if err := os.WriteFile(g.initrd, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-b", fmt.Sprint(diskBlock), image, fmt.Sprint(diskSize/1024)+"k").CombinedOutput(); err != nil {
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

// kernel gives a folder with Debian's kernel for virtual machines, which has ext4 built
// in, and its modules for the disk. MESHDDNS_KERNEL names its package; else it is loaded
// once for all runs, and not installed.
func kernel(t *testing.T) string {
	t.Helper()
	support.Need(t, "dpkg-deb")
	if os.Getenv("MESHDDNS_KERNEL") == "" {
		support.Need(t, "apt-get")
	}
	folder, err := debianKernel()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return folder
}

var debianKernel = sync.OnceValues(func() (folder string, err error) {
	folder = filepath.Join(dir, "kernel")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = dir // for this run only
	}
	cache = filepath.Join(cache, "meshddns-tests")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	// The names of the modules get numbers: they are loaded in this order.
	cmd := exec.Command("sh", "-c", `set -e
		mkdir -p "$1/load" "$1/modules"; cd "$1/load"
		deb=$MESHDDNS_KERNEL
		if [ -z "$deb" ]; then
			package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
			deb=$(find "$2" -name "$package"'_*.deb' | head -n 1)
		fi
		if [ -z "$deb" ]; then
			apt-get -o APT::Sandbox::User=root download "${package:?is not known to apt}"
			mv "$package"_*.deb "$2"
			deb=$(find "$2" -name "$package"'_*.deb')
		fi
		dpkg-deb --fsys-tarfile "$deb" | tar -x --wildcards '*/vmlinuz-*' '*/virtio*'
		find . -name '*.ko.xz' -exec xz -d {} +
		find . -name 'vmlinuz-*' -exec mv {} ../vmlinuz \;
		n=1
		for name in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
			find . -name $name.ko -exec mv {} ../modules/$n-$name.ko \;
			n=$((n + 1))
		done
		test -e ../vmlinuz`, "sh", folder, cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no kernel: %w\n%s", err, out)
	}
	return folder, nil
})

var ackLine = regexp.MustCompile(`ACK (b\d+-\d+-\d+) \.`)

// boot runs the machine until there are so many acknowledgements, and cuts its power.
func (g *guest) boot(number, acknowledgements int, chance *rand.Rand) {
	g.t.Helper()
	console := &support.Log{}
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-display", "none", "-serial", "stdio", "-monitor", "none",
		"-no-reboot", "-nic", "none", "-kernel", g.kernel, "-initrd", g.initrd,
		"-append", fmt.Sprintf("console=ttyS0 loglevel=4 panic=-1 boot=%d", number),
		"-drive", "if=none,id=disk,format=raw,cache=writeback,file=nbd+unix:///?socket="+g.disk.path, "-device", "virtio-blk-pci,drive=disk")
	cmd.Stdout, cmd.Stderr = console, console
	support.Start(g.t, cmd)
	defer func() {
		support.Kill(cmd)
		if g.t.Failed() {
			g.t.Logf("the console:\n%s", console)
		}
	}()
	support.Eventually(g.t, 10*limit, "the guest acknowledges", func() bool {
		if support.Ended(cmd) {
			g.t.Fatal("the guest has ended")
		}
		return strings.Count(console.String(), "ACK ") > acknowledgements
	})
	before := g.disk.lost
	gone := g.disk.cutWith(1+chance.IntN(40), chance)
	support.Eventually(g.t, 10*limit, "the disk is written to", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	// Nothing is durable since the cut: whatever is on the console was before.
	said := console.String()
	if !strings.Contains(said, "DISK write back, fua 0\r\n") {
		g.t.Fatal("the guest does not flush what it writes")
	}
	for _, found := range ackLine.FindAllStringSubmatch(said, -1) {
		g.acked[found[1]] = true
	}
	g.t.Logf("boot %d: power cut, %d written blocks lost, %d acknowledgements so far", number, g.disk.lost-before, len(g.acked))
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
// The disk is virtio's, which has no FUA: the kernel flushes after what is to be durable
// at once. QEMU's NVMe disk says that it has FUA and does not heed it: it loses the end of
// ext4's journal, and what was acknowledged with it.
func TestStaticPowerCut(t *testing.T) {
	cuts := number(t, "MESHDDNS_POWER_CUTS", support.Count(0, 2))
	if cuts == 0 {
		t.Skip("MESHDDNS_POWER_CUTS=2 boots an emulated machine, which takes minutes")
	}
	t.Parallel()
	support.Need(t, "qemu-system-x86_64", "mke2fs", "e2fsck", "debugfs")
	for _, c := range []struct {
		name   string
		binary func(*testing.T) string
		loses  bool
	}{{"as shipped", staticBinary, false}, {"synchronous=NORMAL", normalBinary, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(1, 1))
			g := newGuest(t, c.binary(t))
			lost := 0
			for n := 0; n < cuts || c.loses && lost == 0 && n < cuts+9; n++ { // the control may be lucky
				g.boot(n, chance.IntN(300), chance)
				gone := g.lost()
				lost += len(gone)
				if len(gone) > 0 && !c.loses {
					t.Errorf("cut %d: %d of %d acknowledged reservations are lost, such as %s", n, len(gone), len(g.acked), gone[0])
				}
				for _, prefix := range gone {
					delete(g.acked, prefix)
				}
			}
			t.Logf("%d power cuts: %d of %d acknowledged reservations lost, of %d blocks; %d flushes of the disk",
				g.disk.cuts, lost, lost+len(g.acked), g.disk.lost, g.disk.flushes)
			if g.disk.lost == 0 {
				t.Error("no power cut has lost a block")
			}
			if c.loses && lost == 0 {
				t.Error("the control loses nothing: this test would find no loss")
			}
		})
	}
}
