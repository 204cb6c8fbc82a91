package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// The checks of these tests, and what docs/checks.md promises of them.
const (
	checkEvery = 5 * time.Second
	checkCount = 2 // fall and rise
	tcpCheck   = `{"kind":"tcp","interval":5,"fall":2,"rise":2}`
	httpCheck  = `{"kind":"http","interval":5,"fall":2,"rise":2}`

	// A control, the endpoint and a control once more take three seconds each, as does the last failure.
	checkedWithin = checkCount*checkEvery*11/10 + 4*3*time.Second
	checkedAfter  = (checkCount - 1) * checkEvery * 9 / 10
)

// checkQuiet is the least time between two changes of a name: the short form takes the program in which it is short.
var checkQuiet = time.Duration(support.Count(int(time.Second), int(time.Minute)))

// checkProbes is for how many probes of a living endpoint a test looks whether a dead one stays as it is.
var checkProbes = int64(support.Count(2, 4))

// checksBinary is the program with that time.
func checksBinary(t *testing.T) string {
	t.Helper()
	if checkQuiet == time.Minute {
		return binary(t)
	}
	return quickBinary(t)
}

// An endpoint without a listener leaves DNS. When it has one again it returns, checkQuiet after the last change.
// The only endpoint of a usage stays. No control is given: the endpoint that lives is the proof that this host is not
// cut off.
func TestEndpointDies(t *testing.T) {
	if !checksRun(t) {
		return
	}
	living, dying := serve(t, "127.0.0.1:7001"), serve(t, "127.0.0.1:7002")
	p := startChecksAt(t, checksBinary(t), filepath.Join(t.TempDir(), "meshddns.db"))
	id := p.reserveChecked("two", tcpCheck, "tcp://"+living.address, "tcp://"+dying.address)
	alone := p.reserveChecked("alone", `{"kind":"tcp","interval":5,"fall":1,"rise":2}`, "tcp://"+dying.address)

	began := time.Now()
	dying.close()
	p.publishes(checkedWithin, "two", "tcp://"+living.address)
	if took := time.Since(began); took < checkedAfter {
		t.Errorf("it was taken out after %v, which is less than %d failures", took, checkCount)
	}
	t.Logf("closed: out of DNS after %.1f s", time.Since(began).Seconds())
	dead := p.endpointEvents(id)
	if len(dead) != 1 || dead[0].Kind != "endpoint.dead" || dead[0].Detail.After.Endpoint != "tcp://"+dying.address || !strings.Contains(dead[0].Detail.Error, "连接被拒绝") {
		t.Fatalf("events: %+v", dead)
	}
	p.eventually("the only endpoint of a usage has failed as often as its check allows", func() bool { return len(p.failing(alone)) == 1 })
	probes := living.accepted.Load()
	support.Eventually(t, 5*2*checkEvery, "more probes, none of which takes it out", func() bool { return living.accepted.Load() >= probes+checkProbes })

	began = time.Now()
	dying.open(t)
	p.publishes(checkQuiet+checkedWithin, "two", "tcp://"+living.address+" tcp://"+dying.address)
	t.Logf("opened: in DNS after %.1f s", time.Since(began).Seconds())
	both := p.endpointEvents(id)
	if len(both) != 2 || both[1].Kind != "endpoint.alive" || both[1].Detail.After.Endpoint != "tcp://"+dying.address {
		t.Fatalf("events: %+v", both)
	}
	if apart := both[1].At.Sub(both[0].At); apart < checkQuiet-time.Second {
		t.Errorf("a name was changed twice within %v", apart)
	}
	if told := p.endpointEvents(alone); len(told) > 0 || p.published("alone") != "tcp://"+dying.address {
		t.Errorf("the only endpoint: %q is published, events %+v", p.published("alone"), told)
	}
}

// A process that is stopped still accepts connections, since the kernel does, and lives for a check of the kind tcp.
// It answers no GET, and is dead for one of the kind http.
func TestStoppedProcess(t *testing.T) {
	if !checksRun(t) {
		return
	}
	living := start(t, "-db", filepath.Join(t.TempDir(), "living.db"), "-ipv4", "none", "-ipv6", "none")
	stopped := start(t, "-db", filepath.Join(t.TempDir(), "stopped.db"), "-ipv4", "none", "-ipv6", "none")
	one, two := "http://"+living.http, "http://"+stopped.http
	p := startChecksAt(t, checksBinary(t), filepath.Join(t.TempDir(), "meshddns.db"))
	byTCP := p.reserveChecked("accepts", tcpCheck, one, two)
	byHTTP := p.reserveChecked("answers", httpCheck, one, two)

	began := time.Now()
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.publishes(checkedWithin, "answers", one)
	t.Logf("stopped: out of DNS after %.1f s", time.Since(began).Seconds())
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.publishes(checkQuiet+checkedWithin, "answers", one+" "+two)
	t.Logf("stopped and continued: %.1f s in all", time.Since(began).Seconds())
	if kinds := kindsOf(p.endpointEvents(byHTTP)); kinds != "endpoint.dead endpoint.alive" {
		t.Errorf("http: events %q", kinds)
	}
	if kinds := kindsOf(p.endpointEvents(byTCP)); kinds != "" || p.published("accepts") != one+" "+two {
		t.Errorf("tcp: events %q, published %s", kinds, p.published("accepts"))
	}
}

// While the link to the control is cut, no endpoint beyond it is taken out, though one on this side answers. When the link
// is back, all are as before, and one that dies then is taken out.
func TestUplinkCut(t *testing.T) {
	if !checksRun(t) {
		return
	}
	beyond := newBeyond(t)
	ip(t, "link add wan type veth peer name isp")
	ip(t, fmt.Sprintf("link set isp netns %d", beyond.thread))
	ip(t, "address add 10.77.0.1/24 dev wan")
	ip(t, "link set wan up")
	beyond.ip(t, "address add 10.77.0.2/24 dev isp")
	beyond.ip(t, "link set isp up")
	near := serve(t, "127.0.0.1:7001")
	one, two, control := beyond.serve(t, "10.77.0.2:7001"), beyond.serve(t, "10.77.0.2:7002"), beyond.serve(t, "10.77.0.2:7003")
	p := startChecks(t, filepath.Join(t.TempDir(), "meshddns.db"), "-check-control", control.address)
	all := []string{"tcp://" + near.address, "tcp://" + one.address, "tcp://" + two.address}
	id := p.reserveChecked("three", tcpCheck, all...)

	warnings := func() int { return strings.Count(p.log.String(), "this host seems to be cut off") }
	for _, cut := range []struct {
		where string
		set   func(state string)
	}{
		{"beyond", func(state string) { beyond.ip(t, "link set isp "+state) }}, // connections get no answer
		{"here", func(state string) { ip(t, "link set wan "+state) }},          // connections have no route
	} {
		began, warned := time.Now(), warnings()
		cut.set("down")
		support.Eventually(t, checkedWithin, "the endpoints beyond the link fail, and the one on this side does not", func() bool {
			return slices.Equal(p.failing(id), all[1:])
		})
		p.eventually("each cut has its warning", func() bool { return warnings() > warned })
		// All are probed at the same pace, give or take a tenth.
		probes := near.accepted.Load()
		support.Eventually(t, 5*2*checkEvery, "more probes, none of which takes an endpoint out", func() bool {
			if p.published("three") != strings.Join(all, " ") {
				t.Fatalf("%q is published while the link is cut", p.published("three"))
			}
			return near.accepted.Load() >= probes+checkProbes
		})
		t.Logf("the link was cut %s for %.1f s", cut.where, time.Since(began).Seconds())
		if failing := p.failing(id); !slices.Equal(failing, all[1:]) {
			t.Errorf("while the link is cut, these fail: %v", failing)
		}
		cut.set("up")
		support.Eventually(t, 3*checkEvery, "all endpoints answer", func() bool { return len(p.failing(id)) == 0 })
		if told := p.endpointEvents(id); len(told) > 0 || p.published("three") != strings.Join(all, " ") {
			t.Fatalf("after the cut %q is published, events %+v", p.published("three"), told)
		}
	}

	began := time.Now()
	two.close()
	p.publishes(checkedWithin, "three", strings.Join(all[:2], " "))
	t.Logf("closed: out of DNS after %.1f s", time.Since(began).Seconds())
	if kinds := kindsOf(p.endpointEvents(id)); kinds != "endpoint.dead" {
		t.Errorf("events %q", kinds)
	}
}

// A dead endpoint stays out of DNS over SIGKILL and a restart, until it answers.
func TestDeadOverRestart(t *testing.T) {
	if !checksRun(t) {
		return
	}
	living, dying := serve(t, "127.0.0.1:7001"), serve(t, "127.0.0.1:7002")
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := startChecksAt(t, checksBinary(t), db)
	id := p.reserveChecked("two", tcpCheck, "tcp://"+living.address, "tcp://"+dying.address)
	dying.close()
	p.publishes(checkedWithin, "two", "tcp://"+living.address)
	support.Kill(p.cmd)

	p = startAt(t, checksBinary(t), checksArgs(db)...)
	probes := living.accepted.Load()
	support.Eventually(t, 5*2*checkEvery, "more probes after the restart, none of which puts it back", func() bool {
		if got := p.published("two"); got != "tcp://"+living.address {
			t.Fatalf("%q is published after the restart", got)
		}
		return living.accepted.Load() >= probes+checkProbes
	})
	if kinds := kindsOf(p.endpointEvents(id)); kinds != "endpoint.dead" {
		t.Errorf("after the restart: events %q", kinds)
	}
	began := time.Now()
	dying.open(t)
	p.publishes(checkQuiet+checkedWithin, "two", "tcp://"+living.address+" tcp://"+dying.address)
	t.Logf("opened: in DNS after %.1f s", time.Since(began).Seconds())
	if kinds := kindsOf(p.endpointEvents(id)); kinds != "endpoint.dead endpoint.alive" {
		t.Errorf("events %q", kinds)
	}
}

// checksRun is inNamespace for the tests of this file, which wait most of the time.
func checksRun(t *testing.T) bool {
	t.Helper()
	notShort(t)
	support.Need(t, "dig", "ip")
	t.Parallel()
	checksBinary(t) // the other process finds it
	if !inNamespace(t) {
		return false
	}
	ip(t, "link set lo up")
	return true
}

func checksArgs(db string, more ...string) []string {
	return append([]string{"-db", db, "-ipv4", "none", "-ipv6", "none"}, more...)
}

// startChecks starts the program with a service.
func startChecks(t *testing.T, db string, more ...string) *program {
	t.Helper()
	return startChecksAt(t, binary(t), db, more...)
}

// startChecksAt starts the program of a path with a service.
func startChecksAt(t *testing.T, path, db string, more ...string) *program {
	t.Helper()
	p := startAt(t, path, checksArgs(db, more...)...)
	p.configure("auto", "tcp://203.0.113.7:1")
	return p
}

// reserveChecked makes a usage with a check, and waits until its endpoints are published and found alive.
func (p *program) reserveChecked(prefix, check string, endpoints ...string) (id string) {
	p.t.Helper()
	id = p.addChecked(prefix, check, endpoints...)
	p.publishes(limit, prefix, strings.Join(endpoints, " "))
	support.Eventually(p.t, limit, "the endpoints of "+prefix+" are alive", func() bool { return p.alive(id, len(endpoints)) })
	return id
}

// addChecked makes a usage with a check.
func (p *program) addChecked(prefix, check string, endpoints ...string) (id string) {
	p.t.Helper()
	id = p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1,"check":%s}`, prefix, check)).field("id")
	body, err := json.Marshal(map[string][]string{"txt_endpoints": endpoints})
	if err != nil {
		p.t.Fatal(err)
	}
	p.call(200, "PATCH", usagesPath+"/"+id, string(body))
	return id
}

// alive reports whether all endpoints of a usage have answered their last probe.
func (p *program) alive(id string, count int) bool {
	p.t.Helper()
	states := p.states(id)
	return len(states) == count && !slices.ContainsFunc(states, func(s endpointState) bool { return s.Alive == nil || !*s.Alive || s.Error != "" })
}

// publishes waits until the usage of a prefix has the endpoints in DNS, and no others.
func (p *program) publishes(limit time.Duration, prefix, endpoints string) {
	p.t.Helper()
	support.Eventually(p.t, limit, endpoints+" is published", func() bool { return p.published(prefix) == endpoints })
}

// published returns the endpoints of a prefix in DNS.
func (p *program) published(prefix string) string {
	p.t.Helper()
	return endpointsOf(p.txt("_mesh." + prefix + ".mesh.example.com"))
}

// endpointsOf returns the endpoints of a TXT record, with or without the quotes that dig prints.
func endpointsOf(record string) string {
	_, value, _ := strings.Cut(strings.Trim(record, "\"\n"), " o=")
	_, value, _ = strings.Cut(value, " ")
	return value
}

// endpointState is an entry of publish.endpoints.
type endpointState struct {
	Endpoint string
	Alive    *bool
	Error    string
}

func (p *program) states(id string) []endpointState {
	p.t.Helper()
	var usage struct {
		Data struct {
			Publish struct{ Endpoints []endpointState }
		}
	}
	if err := json.Unmarshal([]byte(p.call(200, "GET", usagesPath+"/"+id, "").body), &usage); err != nil {
		p.t.Fatal(err)
	}
	return usage.Data.Publish.Endpoints
}

// failing returns the endpoints whose last probe failed.
func (p *program) failing(id string) (all []string) {
	p.t.Helper()
	for _, s := range p.states(id) {
		if s.Error != "" {
			all = append(all, s.Endpoint)
		}
	}
	return all
}

type endpointEvent struct {
	Kind   string
	At     time.Time
	Detail struct {
		After struct{ Endpoint string }
		Error string
	}
}

// endpointEvents returns the events of checks of a usage.
func (p *program) endpointEvents(id string) []endpointEvent {
	p.t.Helper()
	var events struct{ Data []endpointEvent }
	if err := json.Unmarshal([]byte(p.call(200, "GET", "/api/v1/ddns/events?kind=endpoint.*&usage_id="+id, "").body), &events); err != nil {
		p.t.Fatal(err)
	}
	return events.Data
}

func kindsOf(all []endpointEvent) string {
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, e.Kind)
	}
	return strings.Join(kinds, " ")
}

// served is an endpoint. It accepts connections while it is open, and counts them.
type served struct {
	address  string
	listener net.Listener
	accepted atomic.Int64
}

func serve(t *testing.T, address string) *served {
	t.Helper()
	s := &served{address: address}
	s.open(t)
	return s
}

func (s *served) open(t *testing.T) {
	t.Helper()
	if err := s.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
}

func (s *served) listen() (err error) {
	if s.listener, err = net.Listen("tcp", s.address); err != nil {
		return err
	}
	go func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			c.Close()
		}
	}(s.listener)
	return nil
}

func (s *served) close() { s.listener.Close() }

// beyond is a second network namespace, that of one thread.
type beyond struct {
	thread int
	work   chan func()
}

func newBeyond(t *testing.T) *beyond {
	t.Helper()
	b := &beyond{work: make(chan func())}
	began := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		b.thread = syscall.Gettid()
		began <- syscall.Unshare(syscall.CLONE_NEWNET)
		for do := range b.work {
			do()
		}
	}()
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(b.work) })
	return b
}

// do does something there.
func (b *beyond) do(t *testing.T, what func() error) {
	t.Helper()
	done := make(chan error)
	b.work <- func() { done <- what() }
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// ip runs the ip command there.
func (b *beyond) ip(t *testing.T, args string) {
	t.Helper()
	b.do(t, func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return errors.New("ip " + strconv.Quote(args) + ": " + string(out))
		}
		return nil
	})
}

// serve opens an endpoint there.
func (b *beyond) serve(t *testing.T, address string) *served {
	t.Helper()
	s := &served{address: address}
	b.do(t, s.listen)
	t.Cleanup(s.close)
	return s
}
