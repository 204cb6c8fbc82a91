package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/support"
)

const (
	strainedClients     = 64
	strainedUsages      = 100_000
	strainRounds        = 12
	strainedDescriptors = 64
	strainedMemory      = 32 << 20
)

// strain is what many clients at a time were told.
type strain struct {
	mu              sync.Mutex
	acknowledged    map[string]bool
	listed, backups int
	refused         map[string]int // by status and code
	cut             int            // requests without an answer
}

// ask makes a request, and reports whether it was done. A refusal has a code.
func (s *strain) ask(p *program, method, path, body string) bool {
	a, err := p.try(method, path, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	code := a.header.Get("X-Error-Code")
	switch {
	case err != nil:
		s.cut++
	case a.status == 200:
		return true
	case code != "" && strings.HasPrefix(a.body, `{"error":"`):
		s.refused[fmt.Sprint(a.status, " ", code)]++
	default:
		p.t.Errorf("%d without a code: %.200s", a.status, a.body)
	}
	return false
}

// step is the nth request of a client: most reserve, some list all usages, and one takes
// backups.
func (s *strain) step(p *program, client, n int) {
	number := client*2*strainRounds + n
	count := func(what *int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*what++
	}
	switch {
	case n%4 == 3 && client%8 == 0:
		if s.ask(p, "GET", usagesPath+"/available", "") {
			count(&s.listed)
		}
	case n%4 == 1 && client == 1:
		if s.ask(p, "GET", backupPath, "") {
			count(&s.backups)
		}
	case s.ask(p, "POST", usagesPath, reservation(number)):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acknowledged[fmt.Sprintf("s-%d", number)] = true
	}
}

// strained has many clients make their requests of some numbers at a time, among a
// thousand that ask and do not read.
func strained(p *program, from, to int) *strain {
	s := &strain{acknowledged: map[string]bool{}, refused: map[string]int{}}
	end := crowd(p.http, func(c net.Conn, tick <-chan time.Time) error {
		c.(*net.TCPConn).SetReadBuffer(4096)
		return drip(c, "GET "+usagesPath+"/available HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n", tick)
	})
	defer end()
	var asking sync.WaitGroup
	for client := range strainedClients {
		asking.Go(func() {
			for n := from; n < to && !support.Ended(p.cmd); n++ {
				s.step(p, client, n)
			}
		})
	}
	asking.Wait()
	return s
}

// endures strains a program that is to live on, and has all that it acknowledged.
func endures(p *program, db string) {
	p.t.Helper()
	p.call(200, "GET", usagesPath+"/available?limit=1", "")
	s := strained(p, 0, strainRounds)
	if support.Ended(p.cmd) {
		p.t.Fatal("the program has ended")
	}
	if len(s.acknowledged) == 0 {
		p.t.Errorf("nobody was served: %v, %d without an answer", s.refused, s.cut)
	}
	p.probe("/healthz")
	p.quiet() // the last of the crowd, whose connections wait to be accepted, take no request's place
	p.call(200, "POST", usagesPath, reservation(2*strainedClients*strainRounds))
	p.probe(usagesPath + "/available")
	p.call(200, "GET", backupPath, "")
	p.t.Logf("%d reservations, %d lists, %d backups, refused %v, %d without an answer; %d KiB of memory at most",
		len(s.acknowledged), s.listed, s.backups, s.refused, s.cut, peakMemory(p.t, p.cmd.Process.Pid))
	p.rest()
	mustHave(p, db, s.acknowledged)
}

// With 64 descriptors many and slow clients are served in turn; none of them, and no
// backup, leaves the program without one that it needs.
func TestFewDescriptors(t *testing.T) {
	long(t, support.Long)
	db := filepath.Join(t.TempDir(), "meshddns.db")
	fillUsages(t, db, strainedUsages)
	endures(startWith(t, nil, withDescriptors(strainedDescriptors, binary(t)), "-db", db, "-ipv4", "none", "-ipv6", "none"), db)
}

// With 32 MiB of memory the same is borne where descriptors, and so connections, are few.
// With the connections of every day the kernel may kill the program, and nothing is lost.
func TestLittleMemory(t *testing.T) {
	long(t, support.Long)
	db := filepath.Join(t.TempDir(), "meshddns.db")
	fillUsages(t, db, strainedUsages)
	group := newMemoryGroup(t, strainedMemory)
	few := withDescriptors(strainedDescriptors, binary(t))
	endures(startWith(t, nil, group.holding(few...), "-db", db, "-ipv4", "none", "-ipv6", "none"), db)
	if !group.reached() {
		t.Error("the limit was never reached: nothing was tested")
	}

	p := startWith(t, nil, group.holding(binary(t)), "-db", db, "-ipv4", "none", "-ipv6", "none")
	s := strained(p, strainRounds, strainRounds+3)
	killed := support.Ended(p.cmd)
	support.Kill(p.cmd)
	mustHave(p, db, s.acknowledged)
	t.Logf("with more connections: killed by the kernel %v, %d reservations, none lost", killed, len(s.acknowledged))
	p = startWith(t, nil, group.holding(few...), "-db", db)
	p.probe(usagesPath + "/available?limit=1")
	p.rest()
}

// memoryGroup is a control group whose memory is limited. It is the only limit of the
// memory that is used: Go reserves more address space (RLIMIT_AS) and more that could be
// written (RLIMIT_DATA) than it uses.
type memoryGroup struct {
	t                    *testing.T
	folder, max, reaches string // the files of the limit, and of how often it was reached
}

func newMemoryGroup(t *testing.T, octets int) *memoryGroup {
	t.Helper()
	name := fmt.Sprintf("meshddns-test-%d", os.Getpid())
	g := &memoryGroup{t, filepath.Join("/sys/fs/cgroup", name), "memory.max", "memory.events"}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		g = &memoryGroup{t, filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes", "memory.failcnt"}
	}
	os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0) // which it may have already
	err := os.Mkdir(g.folder, 0o700)
	if err == nil {
		t.Cleanup(func() { os.Remove(g.folder) })
		err = os.WriteFile(filepath.Join(g.folder, g.max), []byte(strconv.Itoa(octets)), 0)
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("no control group of memory: %v", err)
	case err != nil:
		t.Skipf("NOT TESTED: no control group of memory: %v", err)
	}
	os.WriteFile(filepath.Join(g.folder, "memory.swap.max"), []byte("0"), 0) // where there is swap
	return g
}

// holding gives the words that run a program within the group.
func (g *memoryGroup) holding(words ...string) []string {
	return after(fmt.Sprintf("echo $$ > %s/cgroup.procs", g.folder), words...)
}

// reached tells whether the kernel has ever had to make room.
func (g *memoryGroup) reached() bool {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.folder, g.reaches))
	if err != nil {
		g.t.Fatal(err)
	}
	count := strings.TrimSpace(string(text))
	if _, rest, events := strings.Cut(count, "\nmax "); events {
		count, _, _ = strings.Cut(rest, "\n")
	}
	return count != "0"
}
