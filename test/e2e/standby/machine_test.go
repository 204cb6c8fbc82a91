package standby

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// machine is a network namespace with a disk, and two units: the program and its agent.
type machine struct {
	w          *world
	name, host string
	disk       string // a small tmpfs, which outlives a kill
	units      []*unit

	mu     sync.Mutex // held while the processes of the machine are stopped, continued or killed
	paused bool
}

const (
	diskSize    = 48 << 20
	restartTime = time.Second // RestartSec= of the units
)

// newMachine makes a machine that is off.
func (w *world) newMachine(name string, number int) *machine {
	m := &machine{w: w, name: name, host: fmt.Sprintf("10.77.%d.2", number), disk: filepath.Join(w.dir, name)}
	gateway := fmt.Sprintf("10.77.%d.1", number)
	for _, command := range []string{
		"ip netns add " + name,
		"ip link add to-" + name + " type veth peer name eth0 netns " + name,
		"ip address add " + gateway + "/24 dev to-" + name,
		"ip link set to-" + name + " up",
		"ip -n " + name + " address add " + m.host + "/24 dev eth0",
		"ip -n " + name + " link set lo up",
		"ip -n " + name + " link set eth0 up",
		"ip -n " + name + " route add default via " + gateway,
		"mkdir -p " + m.disk,
	} {
		run(w.t, command)
	}
	m.mountDisk()
	support.WriteFile(w.t, filepath.Join(m.disk, "litestream.yml"), fmt.Sprintf(`
dbs:
  - path: %s
    replica:
      url: sftp://root@%s:22%s/store/%s
      key-path: %s/user
      sync-interval: 1s
socket:
  enabled: true
  path: %s
`, m.db(), storeHost, w.dir, w.replicaPath, w.dir, m.run("litestream.sock")))
	m.units = []*unit{
		{name: "program", m: m, log: &support.Log{}, words: m.programWords(),
			env: append(support.Environ(), m.stood(), m.wall())},
		{name: "agent", m: m, log: &support.Log{}, words: []string{"bash", w.agent}, env: append(support.Environ(), m.agentVariables()...)},
	}
	w.t.Cleanup(m.kill)
	return m
}

func (m *machine) db() string { return filepath.Join(m.disk, "meshddns.db") }

// run gives the path of a file that a boot makes anew.
func (m *machine) run(name string) string { return filepath.Join(m.w.dir, "run-"+m.name, name) }

func (m *machine) termFile() string { return m.run("term") }

func (m *machine) programWords() []string {
	return []string{m.w.program, "-db", m.db(), "-term", m.termFile(), "-listen", m.host + ":8053", "-dns-listen", m.host + ":53",
		"-replica-socket", m.run("litestream.sock"), "-ipv4", "none", "-ipv6", "none", "-token-file", filepath.Join(m.w.dir, "tokens")}
}

func (m *machine) agentVariables() []string {
	all := []string{
		"ETCDCTL_ENDPOINTS=" + etcdHost + ":2379", "MESHDDNS_DB=" + m.db(), "MESHDDNS_TERM=" + m.termFile(), "STANDBY_NAME=" + m.name,
		"STANDBY_CURL=" + filepath.Join(m.w.dir, "curl"), "STANDBY_API=http://" + m.host + ":8053", "STANDBY_LITESTREAM=" + filepath.Join(m.disk, "litestream.yml"),
		"STANDBY_PRUNE=rm -rf " + m.w.dir + "/store/term-$1",
	}
	if m.w.pace.granted > 0 {
		all = append(all, fmt.Sprint("STANDBY_TTL=", m.w.pace.granted), fmt.Sprint("STANDBY_CALL=", m.w.pace.longest))
	}
	return append(all, m.stood(), m.wall())
}

// mountDisk gives the machine a disk: a tmpfs, or with MESHDDNS_STANDBY_DISK=ext4 a file system of this kind in a file.
func (m *machine) mountDisk() {
	kind := os.Getenv("MESHDDNS_STANDBY_DISK")
	if kind == "" {
		run(m.w.t, fmt.Sprintf("mount -t tmpfs -o size=%d tmpfs %s", diskSize, m.disk))
		return
	}
	image := filepath.Join(m.w.t.TempDir(), "image")
	support.WriteFile(m.w.t, image, "")
	support.Must(m.w.t, os.Truncate(image, diskSize))
	run(m.w.t, "mkfs."+kind+" -q "+image)
	run(m.w.t, "mount -o loop "+image+" "+m.disk)
}

// unit is a program of a machine that is started again whenever it ends, as systemd does it with Restart=always. What is
// left of its process group is killed before.
type unit struct {
	name  string
	m     *machine
	words []string
	env   []string
	log   *support.Log

	mu   sync.Mutex
	off  chan struct{} // closed when the machine is killed; nil: the unit is off
	done chan struct{} // closed when it is off
	pid  atomic.Int64
}

func (u *unit) start() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.off != nil {
		return
	}
	off, done := make(chan struct{}), make(chan struct{})
	u.off, u.done = off, done
	go func() {
		defer close(done)
		for {
			u.once()
			select {
			case <-off:
				return
			case <-time.After(restartTime):
			}
			select {
			case <-off:
				return
			default:
			}
		}
	}()
}

// once runs the program of the unit until it ends.
func (u *unit) once() {
	u.m.awake()
	cmd := exec.Command("ip", append([]string{"netns", "exec", u.m.name}, u.words...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = u.env, u.log, u.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(u.log, err)
		return
	}
	u.pid.Store(int64(cmd.Process.Pid))
	err := cmd.Wait()
	u.pid.Store(0)
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	fmt.Fprintf(u.log, "== %.2f: %s of %s ended: %v\n", boottime().Seconds(), u.name, u.m.name, err)
}

// awake returns when the machine is not paused.
func (m *machine) awake() {
	for {
		m.mu.Lock()
		paused := m.paused
		m.mu.Unlock()
		if !paused {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// boot starts the machine: files of /run are gone, the disk is as it was.
func (m *machine) boot() {
	os.RemoveAll(m.run(""))
	support.Must(m.w.t, os.MkdirAll(m.run(""), 0o755))
	for _, u := range m.units {
		u.start()
	}
}

// kill ends all processes of the machine with SIGKILL.
func (m *machine) kill() {
	m.resume()
	for _, u := range m.units {
		u.mu.Lock()
		if u.off != nil {
			close(u.off)
			u.off = nil
		}
		u.mu.Unlock()
	}
	m.signal(syscall.SIGKILL)
	for _, u := range m.units {
		if u.done != nil {
			<-u.done
		}
	}
	m.signal(syscall.SIGKILL) // what began meanwhile
}

// pause stops all processes of the machine.
func (m *machine) pause() {
	m.mu.Lock()
	m.paused = true
	m.mu.Unlock()
	m.signal(syscall.SIGSTOP)
}

// resume lets them go on, except some.
func (m *machine) resume(except ...int) {
	m.signal(syscall.SIGCONT, except...)
	m.mu.Lock()
	m.paused = false
	m.mu.Unlock()
}

// stood names the file that says for how long the clock of the machine stood still, in hundredths of a second. Only the
// program and the agent of a virtual machine know the variable.
func (m *machine) stood() string { return "STANDBY_STOOD=" + filepath.Join(m.disk, "stood") }

// stand has the clock of a virtual machine have stood still for a time.
func (m *machine) stand(d time.Duration) {
	support.WriteFile(m.w.t, filepath.Join(m.disk, "stood"), fmt.Sprint(d.Milliseconds()/10))
}

// wall names the file that says by how many seconds the wall clock of the machine is wrong. Only the program that wallClock
// has made knows the variable.
func (m *machine) wall() string { return wallName + "=" + filepath.Join(m.w.dir, "wall-"+m.name) }

// setWall sets the wall clock of the machine.
func (m *machine) setWall(shift time.Duration) {
	path := filepath.Join(m.w.dir, "wall-"+m.name)
	support.WriteFile(m.w.t, path+".new", fmt.Sprint(int(shift.Seconds())))
	support.Must(m.w.t, os.Rename(path+".new", path))
}

// signal sends a signal to all processes of the machine but some, until no new one is there.
func (m *machine) signal(s syscall.Signal, except ...int) {
	sent := map[int]bool{}
	for again := true; again; {
		again = false
		for _, pid := range m.pids() {
			if !sent[pid] && !slices.Contains(except, pid) {
				syscall.Kill(pid, s)
				sent[pid], again = true, true
			}
		}
	}
}

// pids gives the processes of the machine's namespace.
func (m *machine) pids() (all []int) {
	want, err := os.Stat("/run/netns/" + m.name)
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if is, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(is, want) {
			all = append(all, pid)
		}
	}
	return all
}

// killOne ends the processes of the machine whose program has a name, and reports whether there was one.
func (m *machine) killOne(name string) (found bool) {
	for _, pid := range m.pids() {
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		first, rest, _ := strings.Cut(string(words), "\x00")
		second, _, _ := strings.Cut(rest, "\x00")
		if filepath.Base(first) == name || filepath.Base(second) == name {
			found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
		}
	}
	return found
}

// fill takes the disk's room until the returned function is called.
func (m *machine) fill() (free func()) {
	path := filepath.Join(m.disk, "filling")
	file, err := os.Create(path)
	support.Must(m.w.t, err)
	defer file.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = file.Write(block)
	}
	return func() { os.Remove(path) }
}

// tidy deletes the renamed databases, as an administrator has to: in a long history they would fill the disk.
func (m *machine) tidy() {
	renamed, _ := filepath.Glob(m.db() + ".term-*")
	for _, path := range renamed {
		os.Remove(path)
	}
}

// grant is what an agent writes for its program.
type grant struct {
	Term, After  uint64
	Asked, Until float64
}

// watch writes each term that a machine gets into the diary, until the test ends.
func (m *machine) watch(t *testing.T) {
	seen := uint64(0)
	every(t, 20*time.Millisecond, func() {
		var g grant
		text, err := os.ReadFile(m.termFile())
		if err != nil || json.Unmarshal(text, &g) != nil || g.Term == seen {
			return
		}
		seen = g.Term
		m.w.diary.tenure(tenure{m.name, g.Term, time.Duration(g.Asked * float64(time.Second))})
		m.w.note("%s has term %d after %d", m.name, g.Term, g.After)
	})
}

// every calls a function again and again until the test ends.
func every(t *testing.T, pause time.Duration, do func()) {
	var running sync.WaitGroup
	end := make(chan struct{})
	running.Go(func() {
		for {
			do()
			select {
			case <-end:
				return
			case <-time.After(pause):
			}
		}
	})
	t.Cleanup(func() {
		close(end)
		running.Wait()
	})
}
