package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/e2e/soak"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestSoak has the binary that is shipped work for as long as MESHDDNS_SOAK says, under a
// bounded load on every call, with restarts, kills, disk faults, a full disk, backups and
// provider outages, compares what was acknowledged with what is stored and published after
// each phase, and writes a page about it to MESHDDNS_SOAK_REPORT. test/e2e/soak/run is the
// command for people.
func TestSoak(t *testing.T) {
	long(t, "MESHDDNS_SOAK")
	support.Need(t, "strace", "dig", "mount", "knotd")
	t.Parallel()
	if !inNamespaces(t, 0, syscall.CLONE_NEWNS) {
		return
	}
	length, err := time.ParseDuration(os.Getenv("MESHDDNS_SOAK"))
	if err != nil {
		t.Fatalf("MESHDDNS_SOAK: %v", err)
	}
	s := newSoaked(t, staticBinary(t))
	defer s.report(cmp.Or(os.Getenv("MESHDDNS_SOAK_REPORT"), filepath.Join(s.folder, "soak.html"))) // whatever ends the run
	s.run(length, s.storm, s.steady)
	s.judge()
}

// report writes the page.
func (s *soaked) report(path string) {
	file, err := os.Create(path)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer file.Close()
	if err := s.result.Write(file); err != nil {
		s.t.Error(err)
	}
	s.t.Logf("the report is %s", path)
}

// judge prints what must hold, and what did not.
func (s *soaked) judge() {
	for _, c := range s.result.Checks() {
		line := fmt.Sprintf("%s: %s (want %s)", c.What, c.Is, c.Want)
		if s.t.Log(line); !c.OK {
			s.t.Error(line)
		}
	}
	for _, line := range s.wrong() {
		s.t.Log(line)
	}
}

// wrong is all that was found so far.
func (s *soaked) wrong() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	return slices.Concat(r.Unexpected, r.Lost, r.Unsound, r.Astray, r.Copies, r.Panics)
}

// soaked is a program under load, with its providers.
type soaked struct {
	t        *testing.T
	path     string // of the program
	folder   string
	db       string
	env      []string
	server   servertest.Server
	knot     *dnsGate
	cloud    *cloudtest.Cloud
	hook     *gate
	foreign  [2][]string // what others have in the zones of the two providers
	p        atomic.Pointer[program]
	began    time.Time
	length   time.Duration // of a phase
	chance   *rand.Rand
	clients  []*soakClient
	over     chan struct{}
	patience time.Duration // until DNS agrees
	atRest   int           // descriptors, in the first rest of a life

	// rest is held for reading by each request, and for writing while all that is stored
	// and published is looked at.
	rest     sync.RWMutex
	requests atomic.Int64
	refused  atomic.Int64 // answers that tell of a disk fault
	life     atomic.Int64 // 0 while no program runs
	lives    int64
	calm     atomic.Bool
	backups  atomic.Bool // one after the other

	mu       sync.Mutex
	weathers []weather // so far
	times    [soak.Classes][]time.Duration
	tally    map[[2]string]int
	result   soak.Result
}

// weather says what may happen to requests.
type weather struct {
	down     bool // the program may not answer
	disk     bool // writes may be refused
	provider bool // providers may not answer
}

const (
	soakPace   = 125 * time.Millisecond // of a client
	dnsPace    = 33 * time.Millisecond
	backupPace = 10 * time.Second // in phases that are not of backups
	metEnough  = 5
)

// newSoaked starts the providers and a program.
func newSoaked(t *testing.T, path string) *soaked {
	s := &soaked{t: t, path: path, folder: t.TempDir(), chance: rand.New(rand.NewPCG(1, 2)), over: make(chan struct{}), patience: 3 * time.Minute, tally: map[[2]string]int{}, weathers: []weather{{}}}
	s.db = filepath.Join(s.folder, "db", "meshddns.db")
	if err := os.Mkdir(filepath.Dir(s.db), 0o700); err != nil {
		t.Fatal(err)
	}
	s.server = servertest.Knot(t)
	s.knot = newDNSGate(t, s.server.Addr)
	s.cloud = cloudtest.Webhook(t)
	a := newAuthority(t, filepath.Join(s.folder, "authority.pem"))
	s.env = []string{"SSL_CERT_FILE=" + a.file}
	s.hook = newGate(t, strings.TrimPrefix(s.cloud.URL, "http://"), a.certificates(t))
	s.cloud.Add(t, "www."+goodZone, []string{"foreign"})
	s.foreign = [2][]string{transfer(t, s.server), s.cloud.All(goodZone)}
	s.launch()
	s.result.Program = "meshddns " + s.p.Load().version()
	for i := range operator + 1 {
		s.clients = append(s.clients, newSoakClient(s, i))
	}
	s.began = time.Now()
	s.clients[operator].step() // there is no zone of our own without a configuration
	return s
}

// launch starts the program, and a life.
func (s *soaked) launch() {
	s.t.Helper()
	p := startWith(s.t, s.env, []string{s.path}, "-db", s.db, "-sync-interval", "30s", "-dns-host", "ns.example.net", "-ipv4", "none", "-ipv6", "none")
	p.client.Timeout = 70 * time.Second
	p.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 16
	s.p.Store(p)
	s.atRest = 0
	s.lives++
	s.life.Store(s.lives)
}

// ended keeps of a program's log what is wrong with it.
func (s *soaked) ended(p *program) {
	for line := range strings.Lines(p.log.Take()) { // a run of an hour has many
		if strings.Contains(line, "panic: ") {
			s.add(&s.result.Panics, "%s", strings.TrimSpace(line))
		}
	}
}

// add appends to what is wrong, as far as anybody would read it.
func (s *soaked) add(to *[]string, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*to) < 1000 {
		*to = append(*to, fmt.Sprintf("%v: ", time.Since(s.began).Round(10*time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

// run works for a time: acts have a share of it each, and repeat until it is over.
func (s *soaked) run(length time.Duration, acts ...func()) {
	s.began = time.Now()
	s.result.Began = s.began
	s.length = min(max(length/120, min(length/40, time.Second)), 20*time.Second)
	var working sync.WaitGroup
	for _, c := range s.clients {
		working.Go(c.work)
	}
	working.Go(s.askDNS)
	working.Go(s.takeBackups)
	working.Go(s.watch)
	stop := sync.OnceFunc(func() { close(s.over); working.Wait(); s.result.Took = time.Since(s.began) })
	defer stop() // also when the test is ended by a failure
	shares := []time.Duration{length}
	if len(acts) == 2 { // lives that end, and one that lasts
		shares = []time.Duration{length / 4, length}
	}
	s.result.Short = length < time.Minute
	for i, act := range acts {
		for act(); time.Since(s.began) < shares[i] || i == len(acts)-1 && !s.result.Short && s.slopes() == 0; act() {
			s.t.Logf("%v: %d phases, %d requests, %d things wrong", time.Since(s.began).Round(time.Second), len(s.result.Phases), s.requests.Load(), len(s.wrong()))
		}
	}
	stop()
	s.quit()
	s.result.Load = fmt.Sprintf("%d clients with %v between two requests over HTTP, a DNS query every %v, %d requests in all.", len(s.clients), soakPace, dnsPace, s.requests.Load())
	for key, n := range s.tally {
		s.result.Answers = append(s.result.Answers, soak.Answers{Kind: key[0], Status: key[1], Count: n})
	}
	slices.SortFunc(s.result.Answers, func(a, b soak.Answers) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Status, b.Status))
	})
}

// slopes counts those of memory that can be told so far.
func (s *soaked) slopes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.result.Slopes())
}

// quit counts goroutines, and looks at the file once more.
func (s *soaked) quit() {
	p := s.p.Load()
	p.client.CloseIdleConnections()
	p.cmd.Process.Signal(syscall.SIGQUIT)
	p.cmd.Wait()
	s.result.Goroutines = strings.Count(p.log.String(), "\ngoroutine ")
	s.ended(p)
	s.compare()
}

// storm has the lives that end.
func (s *soaked) storm() {
	s.phase(soak.Calm, "load alone", weather{}, nil)
	s.phase(soak.Restart, "restart", weather{down: true}, func() func() int64 {
		s.pass(s.length / 2)
		s.restart()
		return nil
	})
	s.phase(soak.Kill, "kills", weather{down: true}, func() func() int64 {
		for range 3 {
			s.pass(s.length/3 + time.Duration(s.chance.IntN(200))*time.Millisecond)
			s.end(syscall.SIGKILL)
			s.launch()
			s.look()
		}
		return nil
	})
	s.phase(soak.Disk, "full disk", weather{down: true, disk: true}, s.fullDisk)
}

// steady is all that happens in one life.
func (s *soaked) steady() {
	s.phase(soak.Calm, "load alone", weather{}, nil)
	s.phase(soak.Backup, "backups, one after the other", weather{}, func() func() int64 {
		s.backups.Store(true)
		s.pass(s.length)
		s.backups.Store(false)
		return nil
	})
	s.phase(soak.Disk, "no sync (EIO)", weather{disk: true}, func() func() int64 { return s.failing("fsync,fdatasync:error=EIO") })
	s.phase(soak.Disk, "no room (ENOSPC)", weather{disk: true}, func() func() int64 { return s.failing("pwrite64:error=ENOSPC") })
	s.phase(soak.Calm, "load alone", weather{}, nil)
	s.phase(soak.Outage, "no connection", weather{provider: true}, func() func() int64 { return s.outage("reset", blackHole) })
	s.phase(soak.Outage, "silence", weather{provider: true}, func() func() int64 { return s.outage("timeout", "timeout") })
	s.phase(soak.Outage, "errors", weather{provider: true}, func() func() int64 { return s.outage("HTML", "5xx") })
	s.phase(soak.Outage, "30 % loss", weather{provider: true}, func() func() int64 { return s.outage("30 % loss", "30 % loss") })
	s.phase(soak.Calm, "load alone", weather{}, nil)
}

// phase begins a weather, does what belongs to it, and looks at everything. What it does
// gives a count of what the fault has met, where it is one.
func (s *soaked) phase(kind soak.Kind, name string, w weather, does func() func() int64) {
	s.t.Helper()
	s.change(w)
	from, before := time.Since(s.began), s.requests.Load()
	var met int64
	if kind == soak.Calm {
		s.calm.Store(true)
		s.pass(2 * s.length)
		s.calm.Store(false)
	} else if count := does(); count != nil {
		met = count()
	}
	to := time.Since(s.began)
	s.look()
	s.mu.Lock()
	s.result.Phases = append(s.result.Phases, soak.Phase{Name: name, Kind: kind, From: from, To: to, Answers: int(s.requests.Load() - before), Met: met})
	s.mu.Unlock()
	s.change(weather{})
}

// change begins a weather. A request may have met each that there was since it began.
func (s *soaked) change(w weather) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weathers = append(s.weathers, w)
}

// season is the number of the present weather.
func (s *soaked) season() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.weathers) - 1
}

// weatherSince has all that was possible since a season.
func (s *soaked) weatherSince(first int) (w weather) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.weathers[first:] {
		w.down, w.disk, w.provider = w.down || each.down, w.disk || each.disk, w.provider || each.provider
	}
	return w
}

// pass lets a time of load pass.
func (s *soaked) pass(d time.Duration) { <-time.After(d) }

// end ends the program with a signal.
func (s *soaked) end(signal syscall.Signal) {
	s.t.Helper()
	p := s.p.Load()
	s.life.Store(0)
	p.cmd.Process.Signal(signal)
	err := p.cmd.Wait()
	if signal == syscall.SIGKILL {
		s.result.Kills++
	} else if s.result.Restarts++; err != nil {
		s.t.Fatalf("after SIGTERM: %v\n%s", err, p.log)
	}
	s.ended(p)
}

func (s *soaked) restart() {
	s.t.Helper()
	s.end(syscall.SIGTERM)
	s.launch()
}

// failing is a window in which calls of the system fail, until enough was refused.
func (s *soaked) failing(injection string) func() int64 {
	before := s.refused.Load()
	shut := window(s.p.Load(), injection)
	s.pass(s.length)
	s.p.Load().eventually("writes are refused", func() bool { return s.refused.Load() >= before+metEnough })
	shut()
	return func() int64 { return s.refused.Load() - before }
}

// fullDisk puts a small disk in the place of the folder, fills it, and takes it away again.
func (s *soaked) fullDisk() func() int64 {
	folder, before := filepath.Dir(s.db), s.refused.Load()
	s.end(syscall.SIGTERM)
	files, octets := s.files()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", octets+4<<20)); err != nil {
		s.t.Fatal(err)
	}
	undo := sync.OnceFunc(func() { syscall.Unmount(folder, syscall.MNT_DETACH) })
	s.t.Cleanup(undo)
	s.put(files)
	s.launch()
	s.look() // a client without an answer goes on
	ballast, err := os.Create(filepath.Join(folder, "ballast"))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.Copy(ballast, zeros{}); err == nil {
		s.t.Fatal("the disk is never full")
	}
	s.pass(s.length)
	s.p.Load().eventually("writes are refused", func() bool { return s.refused.Load() >= before+metEnough })
	if err := os.Remove(ballast.Name()); err != nil {
		s.t.Fatal(err)
	}
	ballast.Close()
	s.look()
	s.end(syscall.SIGTERM)
	files, _ = s.files()
	undo()
	s.put(files)
	s.launch()
	return func() int64 { return s.refused.Load() - before }
}

// files reads the file of the database, and its WAL, which stays if a reader outlives the writer.
func (s *soaked) files() (files [2][]byte, octets int) {
	s.t.Helper()
	for i, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(s.db + end)
		if err != nil && !(end != "" && errors.Is(err, os.ErrNotExist)) {
			s.t.Fatal(err)
		}
		files[i], octets = content, octets+len(content)
	}
	return files, octets
}

// put writes what files has read.
func (s *soaked) put(files [2][]byte) {
	s.t.Helper()
	for i, end := range []string{"", "-wal"} {
		if err := os.WriteFile(s.db+end, files[i], 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// outage has faults at both providers, until each has met a call.
func (s *soaked) outage(knot, hook string) func() int64 {
	before := [2]int64{s.knot.times(), s.hook.times()}
	s.knot.set(knot)
	s.hook.set(hook)
	s.pass(s.length)
	s.p.Load().eventually("the faults meet somebody", func() bool { return s.knot.times() > before[0] && s.hook.times() > before[1] })
	s.knot.set("")
	s.hook.set("")
	return func() int64 { return s.knot.times() - before[0] + s.hook.times() - before[1] }
}

// version says what the program calls itself.
func (p *program) version() string {
	a := p.call(200, "GET", "/metrics", "")
	for line := range strings.Lines(a.body) {
		if _, rest, ok := strings.Cut(line, `meshddns_build_info{version="`); ok {
			version, _, _ := strings.Cut(rest, `"`)
			return version
		}
	}
	return ""
}
