// Package standby tests two programs of which one writes: with -term, the agents of deploy/standby, etcd, Litestream and
// real name servers, in network namespaces of one machine, so that a partition drops packets.
//
//	the hub: the namespace of the test             10.77.0.20  etcd
//	                                               10.77.0.21  the store of replicas (SFTP)
//	                                               10.77.0.22  the provider: a relay before Knot
//	                                               10.77.0.23  Knot, a secondary of the built-in zone
//	two machines: a namespace each                 10.77.1.2 (a), 10.77.2.2 (b)
//
// The test runs itself once more in new namespaces for network, mounts and processes. The kernel removes all of them with
// the last process, also after a failure.
package standby

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

const (
	etcdHost, storeHost, providerHost, secondaryHost = "10.77.0.20", "10.77.0.21", "10.77.0.22", "10.77.0.23"

	secondaryKey    = "knot.example"
	secondarySecret = "c2VjcmV0IG9mIHRoZSBwZWVyLCAzMiBvY3RldHMgbG9uZw=="

	farDomain  = "far.example.com" // in the zone of the provider
	nearDomain = "near.test"       // a zone of the built-in server
)

// world is everything around the two machines, and they.
type world struct {
	t       *testing.T
	dir     string // short, because it has sockets
	pace    pace
	agent   string // the script
	program string

	replicaPath string // below the store, with the variable of the agent

	knot      servertest.Server
	etcd      *service
	keys      *keyRelay
	relay     *relay
	secondary *service
	a, b      *machine
	diary     diary
}

// pace is what the agents wait, in seconds; zero stands for the agent's defaults.
type pace struct{ granted, longest int }

// service is a program of the hub.
type service struct {
	*exec.Cmd
	log *support.Log
}

// boottime is CLOCK_BOOTTIME, which is one clock for all machines of the test.
func boottime() time.Duration {
	const clockBoottime = 7
	var now syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0); e != 0 {
		panic(e)
	}
	return time.Duration(now.Nano())
}

// programs are what the world is made of, without which its tests are skipped.
var programs = []string{"unshare", "ip", "iptables", "etcd", "etcdctl", "litestream", "/usr/sbin/sshd", "ssh-keygen", "knotd", "nsupdate", "dig", "curl"}

// mark is the variable that names the test to the process in the namespaces.
const mark = "MESHDDNS_TEST_NAMESPACE"

// needs skips a test that cannot run here, or is to run by itself later (MESHDDNS_STANDBY=later).
func needs(t *testing.T) {
	t.Helper()
	if os.Getenv("MESHDDNS_STANDBY") == "later" {
		t.Skip("later")
	}
	if os.Getuid() != 0 {
		t.Skip("sshd and mounts need root")
	}
	support.Need(t, programs...)
}

// inside runs the calling test once more in namespaces of its own, and reports whether this is that run.
func inside(t *testing.T, more ...string) bool {
	t.Helper()
	if os.Getenv(mark) == t.Name() {
		enter(t)
		return true
	}
	needs(t)
	if out, err := again(t, t.Name(), append([]string{programName + "=" + program(t)}, more...)...); err != nil {
		t.Errorf("in the namespaces: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Log(out)
	}
	return false
}

// again runs a test in new namespaces. A shell is the first process there, because it waits for the children of processes
// that are killed.
func again(t *testing.T, name string, variables ...string) (out string, err error) {
	left := time.Hour
	if deadline, ok := t.Deadline(); ok {
		left = time.Until(deadline) - 10*time.Second
	}
	name = strings.ReplaceAll(name, " ", "_")
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
		"sh", "-c", `"$@"; exit $?`, "sh", os.Args[0], "-test.run=^"+strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^")+"$", "-test.v", "-test.timeout="+left.String())
	cmd.Env = append(append(os.Environ(), mark+"="+name), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // which the kernel sends when this thread ends
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// enter furnishes the namespaces. The folder /run is an empty one for the processes in them.
func enter(t *testing.T) {
	t.Helper()
	support.Must(t, syscall.Mount("tmpfs", "/run", "tmpfs", 0, "size=1g"))
	for _, folder := range []string{"/run/netns", "/run/sshd", "/run/lock"} {
		support.Must(t, os.MkdirAll(folder, 0o755))
	}
	run(t, "ip link set lo up")
	for _, host := range []string{etcdHost, storeHost, providerHost, secondaryHost} {
		run(t, "ip address add "+host+"/32 dev lo")
	}
	support.Must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
}

// run runs a command, which must succeed.
func run(t *testing.T, command string) string {
	t.Helper()
	words := strings.Fields(command)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// newWorld starts the services of the hub, and makes two machines that are off.
func newWorld(t *testing.T, p pace) *world {
	t.Helper()
	w := &world{t: t, dir: "/run/w", pace: p, agent: agentScript(t), program: os.Getenv(programName), replicaPath: "term-$REPLICA_TERM"}
	support.Must(t, os.MkdirAll(filepath.Join(w.dir, "store"), 0o755))
	t.Cleanup(w.tell)
	w.knot = servertest.Knot(t)
	for _, foreign := range foreignValues {
		w.knot.Update(t, "add "+foreign.name+" 60 TXT \""+foreign.value+"\"")
	}
	w.relay = newRelay(w, providerHost+":53", w.knot.Addr)
	w.startEtcd()
	w.keys = newKeyRelay(w, etcdHost+":2379", hiddenEtcd)
	w.startStore()
	w.a, w.b = w.newMachine("a", 1), w.newMachine("b", 2)
	w.startSecondary()
	return w
}

// tell shows the logs of a test that has failed.
func (w *world) tell() {
	if !w.t.Failed() {
		return
	}
	tail := func(name, text string) {
		lines := strings.Split(text, "\n")
		w.t.Logf("the last lines of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
	for _, m := range w.machines() {
		for _, u := range m.units {
			tail(m.name+"'s "+u.name, u.log.String())
		}
		if keep := os.Getenv("MESHDDNS_STANDBY_KEEP"); keep != "" { // a folder for the disks and logs of a history that failed
			run(w.t, "cp -a "+m.disk+" "+filepath.Join(keep, m.name))
			for _, u := range m.units {
				support.WriteFile(w.t, filepath.Join(keep, m.name+"-"+u.name+".log"), u.log.String())
			}
		}
	}
	if w.etcd != nil {
		tail("etcd", w.etcd.log.String())
	}
	if w.secondary != nil {
		tail("the secondary", w.secondary.log.String())
	}
}

func (w *world) machines() []*machine {
	if w.b == nil {
		return nil
	}
	return []*machine{w.a, w.b}
}

// other gives the machine beside one.
func (w *world) other(m *machine) *machine {
	if m == w.a {
		return w.b
	}
	return w.a
}

// serve starts a program of the hub.
func (w *world) serve(words ...string) *service {
	w.t.Helper()
	s := &service{exec.Command(words[0], words[1:]...), &support.Log{}}
	s.Stdout, s.Stderr = s.log, s.log
	support.Start(w.t, s.Cmd)
	return s
}

// hiddenEtcd is where etcd listens, behind a relay.
const hiddenEtcd = "127.0.0.1:2379"

func (w *world) startEtcd() {
	url, peers := "http://"+hiddenEtcd, "http://127.0.0.1:2380"
	w.etcd = w.serve("etcd", "--data-dir", filepath.Join(w.dir, "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers,
		"--unsafe-no-fsync", "--log-level", "warn", "--logger", "zap")
	support.Eventually(w.t, support.Limit, "etcd answers", func() bool { return w.etcdctl("endpoint", "health") == nil })
}

// etcdctl runs a command of etcd's client.
func (w *world) etcdctl(words ...string) error {
	cmd := exec.Command("etcdctl", append([]string{"--endpoints", hiddenEtcd, "--command-timeout=3s"}, words...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	return cmd.Run()
}

// startStore starts an SFTP server, which has the replicas.
func (w *world) startStore() {
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(w.dir, name)).CombinedOutput(); err != nil {
			w.t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(w.dir, "user.pub"))
	support.Must(w.t, err)
	support.WriteFile(w.t, filepath.Join(w.dir, "authorized"), string(public))
	support.WriteFile(w.t, filepath.Join(w.dir, "sshd.conf"), fmt.Sprintf(`
ListenAddress %[2]s
Port 22
HostKey %[1]s/host
PidFile none
AuthorizedKeysFile %[1]s/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
MaxSessions 100
UseDNS no
Subsystem sftp internal-sftp
`, w.dir, storeHost))
	store := w.serve("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(w.dir, "sshd.conf"))
	support.Eventually(w.t, support.Limit, "the store listens", func() bool { return strings.Contains(store.log.String(), "listening on") })
}

// startSecondary starts Knot, which transfers the built-in zone from each machine that serves it.
func (w *world) startSecondary() {
	dir := filepath.Join(w.dir, "secondary")
	support.WriteFile(w.t, filepath.Join(dir, "knot.conf"), fmt.Sprintf(`
server:
    rundir: %[1]s
    listen: %[2]s@53
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
log:
  - target: stderr
    any: info
database:
    storage: %[1]s
key:
  - id: %[3]s
    algorithm: hmac-sha256
    secret: %[4]s
remote:
  - id: a
    address: %[5]s@53
    via: %[2]s
    key: %[3]s
  - id: b
    address: %[6]s@53
    via: %[2]s
    key: %[3]s
acl:
  - id: transfer
    address: %[2]s
    action: transfer
  - id: notify
    address: [%[5]s, %[6]s]
    key: %[3]s
    action: notify
zone:
  - domain: %[7]s
    storage: %[1]s
    master: [a, b]
    acl: [notify, transfer]
    retry-min-interval: 1
    retry-max-interval: 3
    refresh-max-interval: 5
`, dir, secondaryHost, secondaryKey, secondarySecret, w.a.host, w.b.host, nearDomain))
	w.secondary = w.serve("knotd", "-c", filepath.Join(dir, "knot.conf"))
}

// cut drops the packets between a machine and a host of the hub, or the other machine, until the returned function is called.
func (w *world) cut(m *machine, host string) (heal func()) {
	rules := []string{"INPUT -s " + m.host + " -d " + host, "OUTPUT -s " + host + " -d " + m.host,
		"FORWARD -s " + m.host + " -d " + host, "FORWARD -s " + host + " -d " + m.host}
	for _, rule := range rules {
		run(w.t, "iptables -w -A "+rule+" -j DROP")
	}
	return sync.OnceFunc(func() {
		for _, rule := range rules {
			run(w.t, "iptables -w -D "+rule+" -j DROP")
		}
	})
}

// note writes a line of what the driver does into the test's log, with the clock of the host.
func (w *world) note(format string, args ...any) {
	w.t.Logf("%8.2f  %s", boottime().Seconds(), fmt.Sprintf(format, args...))
}

// agentScript gives the path of the agent.
func agentScript(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(agentName); path != "" {
		return path
	}
	path, err := filepath.Abs(filepath.Join(root, agentFile))
	support.Must(t, err)
	return path
}

// The variables that give the program and the agent's script to the process in the namespaces.
const programName, agentName = "MESHDDNS_TEST_PROGRAM", "MESHDDNS_TEST_AGENT"

const agentFile = "deploy/standby/meshddns-standby"

// program builds the program once.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	support.Must(t, err)
	return path
}

var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(programName); path != "" {
		return path, nil
	}
	if err := support.OpenSources(root); err != nil {
		return "", err
	}
	path := filepath.Join(built, "meshddns")
	if out, err := exec.Command("go", "build", "-o", path, root).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// root is the folder of the program's sources, built the one of what is built.
const root = "../../.."

var built string

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "3") // these tests mostly wait
	var err error
	if built, err = os.MkdirTemp("", "standby-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(built)
	os.Exit(status)
}

// lines gives the lines of a text that has some.
func lines(text string) (all []string) {
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		all = append(all, scan.Text())
	}
	return all
}
