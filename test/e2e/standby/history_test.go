package standby

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// found makes the database on the first machine, with a program that has no term, and starts both machines.
func (w *world) found() {
	w.t.Helper()
	support.WriteFile(w.t, filepath.Join(w.dir, "tokens"), token+"\n")
	support.WriteFile(w.t, filepath.Join(w.dir, "curl"), fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", token))
	support.Must(w.t, os.Chmod(filepath.Join(w.dir, "tokens"), 0o600))
	words := append([]string{"netns", "exec", w.a.name}, w.a.programWords()...)
	at := slices.Index(words, "-term")
	words = slices.Delete(words, at, at+2)
	first := exec.Command("ip", words...)
	log := &support.Log{}
	first.Stderr = log
	support.Start(w.t, first)
	support.Eventually(w.t, support.Limit, "the first program listens", func() bool {
		_, _, listens := support.Listening(log.String())
		return listens || support.Ended(first)
	})
	account := fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q`, servertest.Key, servertest.Secret, providerHost+":53")
	for _, call := range [][2]string{
		{"config", fmt.Sprintf(`{%s,"domain":%q,"txt_record_name":"@","enabled":true,"sync_mode":"auto","max_retries":10,"retry_interval":1}`, account, farDomain)},
		{"services/far", fmt.Sprintf(`{"name":"far","config":{"domain":%q}}`, farDomain)},
		{"services/near", fmt.Sprintf(`{"name":"near","config":{"domain":%q,"provider":"builtin"}}`, nearDomain)},
		{"secondaries/knot", fmt.Sprintf(`{"address":"%s:53","key_name":%q,"key_secret":%q}`, secondaryHost, secondaryKey, secondarySecret)},
	} {
		conn, err := net.Dial("tcp", w.a.host+":8053")
		if err != nil {
			w.t.Fatalf("%v\n%s", err, log)
		}
		s := newSession(conn)
		r, err := s.ask("PUT", "/api/v1/ddns/"+call[0], call[1])
		conn.Close()
		if err != nil || r.status != 200 {
			w.t.Fatalf("PUT %s: %v %d %s", call[0], err, r.status, r.body)
		}
	}
	support.Must(w.t, support.Stop(first))
	for _, m := range w.machines() {
		m.watch(w.t)
		m.boot()
	}
	every(w.t, 500*time.Millisecond, func() {
		if n, ok := serialAt(secondaryHost+":53", nearDomain); ok {
			w.diary.serial(n)
		}
	})
}

// serialAt asks for the serial of a zone.
func serialAt(server, zone string) (serial uint32, ok bool) {
	out, err := exec.Command("dig", "@"+strings.TrimSuffix(server, ":53"), "+short", "+time=1", "+tries=1", zone, "SOA").Output()
	f := strings.Fields(string(out))
	if err != nil || len(f) < 7 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[2], 10, 32)
	return uint32(n), err == nil
}

// transfer gives a zone as dig prints it, without repeated blanks.
func transfer(address, zone string) string {
	host, port, _ := net.SplitHostPort(address)
	words := []string{"@" + host, "-p", port, "+noall", "+answer", "+time=5", zone, "AXFR"}
	if zone == servertest.Zone {
		words = append(words, "-y", "hmac-sha256:"+servertest.Key+":"+servertest.Secret)
	}
	out, err := exec.Command("dig", words...).Output()
	if err != nil || !strings.Contains(string(out), "SOA") {
		return ""
	}
	var all []string
	for _, line := range lines(string(out)) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(all, "\n")
}

// writes waits until a machine acknowledges a change that is sent now, and says which.
func (w *world) writes(limit time.Duration) *machine {
	w.t.Helper()
	since := boottime()
	var m *machine
	for ; m == nil; <-time.After(20 * time.Millisecond) {
		for _, one := range w.machines() {
			if w.diary.acknowledged(one.name, since) > 0 {
				m = one
			}
		}
		if boottime()-since > limit {
			w.t.Fatalf("no machine acknowledges a change within %v", limit)
		}
	}
	return m
}

// most bounds the time until a machine writes after any fault.
func (w *world) most() time.Duration {
	if w.pace.granted == 0 {
		return 200 * time.Second
	}
	return time.Duration(12*(w.pace.granted+w.pace.longest)+60) * time.Second
}

// history is a run with a seed.
type history struct {
	*world
	random  *rand.Rand
	writers *writers
	bursts  int
	told    time.Duration // when a line last told why there is no rest
}

// begin founds the world and starts writers, of which some or all make durable changes.
func begin(t *testing.T, durable bool, seed uint64, p pace) *history {
	w := newWorld(t, p)
	h := &history{world: w, random: rand.New(rand.NewPCG(seed, 0)), writers: w.newWriters()}
	w.found()
	for i, service := range []string{"far", "near", "far", "near", "far"} {
		share := 0
		if durable || i > 2 {
			share = 100
		}
		h.writers.begin(fmt.Sprint("w", i), service, seed+uint64(i), share, 0, 150*time.Millisecond, w.a)
	}
	h.steady() // so there is a replica
	h.note("%s writes", w.writes(w.most()).name)
	return h
}

// step is a fault. It gets the machine that writes.
type step struct {
	name string
	do   func(h *history, m *machine)
}

var steps = []step{
	{"the program is killed", func(h *history, m *machine) { m.killOne("meshddns") }},
	{"the agent is killed", func(h *history, m *machine) { m.killOne("meshddns-standby") }},
	{"Litestream is killed", func(h *history, m *machine) { m.killOne("litestream") }},
	{"the machine is killed", func(h *history, m *machine) {
		m.kill()
		h.writes(h.most())
		m.boot()
	}},
	{"both machines are killed", func(h *history, m *machine) {
		h.a.kill()
		h.b.kill()
		h.a.boot()
		h.b.boot()
	}},
	{"the machine is paused in a commit", func(h *history, m *machine) {
		h.burst(m)
		h.paused(m)
	}},
	{"the machine is paused before a call to the provider", func(h *history, m *machine) { h.trapped(m, false) }},
	{"the machine is paused in a call to the provider", func(h *history, m *machine) { h.trapped(m, true) }},
	{"etcd is cut off", func(h *history, m *machine) { h.cutFor(m, etcdHost) }},
	{"the replica is cut off", func(h *history, m *machine) { h.cutFor(m, storeHost) }},
	{"the provider is cut off", func(h *history, m *machine) { h.cutFor(m, providerHost) }},
	{"the other machine is cut off", func(h *history, m *machine) { h.cutFor(m, h.other(m).host) }},
	{"etcd hangs", func(h *history, m *machine) {
		h.etcd.Process.Signal(syscall.SIGSTOP)
		h.lasts()
		h.etcd.Process.Signal(syscall.SIGCONT)
	}},
	{"the disk is full", func(h *history, m *machine) {
		free := m.fill()
		h.lasts()
		free()
	}},
	{"the key is deleted", func(h *history, m *machine) { support.Must(h.t, h.etcdctl("del", "/meshddns/writer")) }},
	{"the wall clock is set", (*history).setClock},
	{"the agent steps down", func(h *history, m *machine) {
		if pid := m.units[1].pid.Load(); pid != 0 {
			syscall.Kill(int(pid), syscall.SIGTERM)
		}
	}},
}

// lasts waits for as long as a fault lasts: less than a term, or longer than a takeover.
func (h *history) lasts() {
	short := h.random.IntN(2) == 0
	wait := time.Duration(1+h.random.IntN(3)) * time.Second
	if !short {
		wait = h.takeover() + wait
	}
	h.note("  for %v", wait)
	<-time.After(wait)
}

// takeover is how long a machine takes over for, and a little more.
func (h *history) takeover() time.Duration {
	p := h.pace
	if p.granted == 0 {
		p = pace{15, 30}
	}
	return time.Duration(2*p.granted+p.longest+6) * time.Second
}

// setClock sets the wall clock of the program forward or back for a while, if MESHDDNS_STANDBY_CLOCK=1 has given it one that
// can be set.
func (h *history) setClock(m *machine) {
	if os.Getenv(clockName) == "" {
		return
	}
	shift := []time.Duration{-time.Hour, time.Hour}[h.random.IntN(2)]
	h.note("  by %v", shift)
	m.setWall(shift)
	h.lasts()
	m.setWall(0)
}

// cutFor cuts a host off for a while.
func (h *history) cutFor(m *machine, host string) {
	heal := h.cut(m, host)
	h.lasts()
	heal()
}

// paused pauses a machine for a while, and has it go on, except some processes. MESHDDNS_STANDBY_PAUSES says how many of
// a hundred pauses last 90 s: more than a takeover with the agent's defaults.
func (h *history) paused(m *machine, except ...int) {
	m.pause()
	wait := h.takeover()
	if h.pace.granted == 0 {
		wait = 20 * time.Second
	}
	if h.random.IntN(100) < count("MESHDDNS_STANDBY_PAUSES", support.Count(0, 50)) {
		wait = 90 * time.Second
	}
	h.note("  paused for %v", wait)
	<-time.After(wait)
	m.resume(except...)
}

// trapped pauses a machine when a message of it arrives at the provider: an update, or a question before one.
func (h *history) trapped(m *machine, update bool) {
	sprung := make(chan struct{})
	var once sync.Once
	h.relay.set(func(from *machine, is bool) {
		if from == m && is == update {
			once.Do(func() {
				m.pause()
				close(sprung)
			})
		}
	})
	defer h.relay.set(nil)
	select {
	case <-sprung:
		h.relay.set(nil)
		h.paused(m)
	case <-time.After(20 * time.Second):
		h.note("  no call came")
	}
}

// burst has many writers change usages of a machine at once, and returns in the middle of it.
func (h *history) burst(m *machine) {
	h.bursts++
	before := h.diary.acknowledged(m.name, 0)
	for i := range 12 {
		h.writers.begin(fmt.Sprintf("x%d-%d", h.bursts, i), "near", h.random.Uint64(), 0, 400, 0, m)
	}
	for until := boottime() + 2*time.Second; boottime() < until && h.diary.acknowledged(m.name, 0) < before+100; {
		<-time.After(time.Millisecond)
	}
}

// finish heals everything, and returns the faults of the history.
func (h *history) finish() []string {
	h.t.Helper()
	h.note("the end: %s writes", h.writes(h.most()).name)
	h.writers.stop()
	e := h.rest()
	counts := map[outcome]int{}
	durable := 0
	for _, o := range h.diary.operations {
		counts[o.outcome]++
		if o.durable && o.outcome == kept {
			durable++
		}
	}
	h.note("%d changes kept (%d durable), %d refused, %d unknown %v; %d calls; %d terms; %d serials; %d usages at the end", counts[kept], durable, counts[refused],
		counts[unknown], h.writers.odd, len(h.diary.calls), len(h.diary.tenures), len(h.diary.serials), len(e.values))
	return h.diary.faults(e)
}

// rest has everything swept and published, and gives what is there then, or what is there after a long time.
func (h *history) rest() (e end) {
	why := fmt.Errorf("no machine writes")
	rested := support.Within(5*support.Limit, func() bool {
		for _, m := range h.machines() {
			s, err := dial(m)
			if err != nil {
				continue
			}
			r, err := s.ask("POST", "/api/v1/ddns/sync?sweep=1", "")
			s.conn.Close()
			if err != nil || r.status != 200 {
				why = fmt.Errorf("a sweep: %d %s %v", r.status, r.body, err)
				continue
			}
			if e, why = h.look(m); why == nil {
				if d := different(e); len(d) > 0 {
					why = fmt.Errorf("%q", d)
				}
			}
			if why != nil && boottime()-h.told > 5*time.Second {
				h.note("  no rest yet: %v", why)
				h.told = boottime()
			}
			return why == nil
		}
		return false
	})
	if !rested {
		h.t.Errorf("no rest: %v", why)
	}
	return e
}

// walk takes some steps at random.
func (h *history) walk(n int) {
	faults := regexp.MustCompile(os.Getenv("MESHDDNS_STANDBY_FAULTS"))
	chosen := slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !faults.MatchString(s.name) })
	for range n {
		s := chosen[h.random.IntN(len(chosen))]
		m := h.writes(h.most())
		h.note("%s: %s", m.name, s.name)
		s.do(h, m)
		h.note("  %s writes", h.writes(h.most()).name)
		h.steady()
		for _, m := range h.machines() {
			m.tidy()
		}
		<-time.After(time.Duration(h.random.IntN(1000)) * time.Millisecond)
	}
}

// quick is the pace of histories on an idle machine. On a busy one a term of 5 s would end before its renewal.
func quick() pace { return pace{granted: int(support.Paced(5*time.Second) / time.Second), longest: 3} }

// seed gives the seed of the first history.
func seed(t *testing.T) uint64 {
	text := os.Getenv("MESHDDNS_HISTORY_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	support.Must(t, err)
	return n
}

// count gives the number in a variable.
func count(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// TestStandby runs a random history: MESHDDNS_HISTORY_SEED repeats its steps, MESHDDNS_STANDBY_STEPS makes it longer, and
// MESHDDNS_STANDBY_FAULTS chooses among the faults, as a regular expression. In the long form the agents have their
// defaults, and pauses take 20 or 90 s.
func TestStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	var variables []string
	if os.Getenv(clockName) != "" && os.Getenv(mark) == "" {
		variables = wallClock.make(t)
	}
	if !inside(t, variables...) {
		return
	}
	n := seed(t)
	t.Logf("MESHDDNS_HISTORY_SEED=%d", n)
	p := quick()
	if os.Getenv(support.Long) != "" {
		p = pace{}
	}
	h := begin(t, false, n, p)
	h.walk(count("MESHDDNS_STANDBY_STEPS", 5))
	for _, fault := range h.finish() {
		t.Error(fault)
	}
}

// TestTakeover kills the machine that writes, with the agent's defaults.
func TestTakeover(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	if !inside(t) {
		return
	}
	h := begin(t, false, seed(t), pace{})
	var all []time.Duration
	for range support.Count(1, 5) {
		h.steady()
		m := h.writes(h.most())
		h.note("%s is killed", m.name)
		at := boottime()
		m.kill()
		h.writes(h.most())
		took := boottime() - at
		all = append(all, took)
		if took > 75*time.Second && took > support.Paced(75*time.Second) {
			t.Errorf("a takeover took %v, want at most 75 s", took)
		}
		h.note("%s took over within %.1f s", h.other(m).name, took.Seconds())
		m.boot()
	}
	slices.Sort(all)
	t.Logf("takeover with the defaults: median %.1f s, longest %.1f s of %d", all[len(all)/2].Seconds(), all[len(all)-1].Seconds(), len(all))
	for _, fault := range h.finish() {
		t.Error(fault)
	}
}
