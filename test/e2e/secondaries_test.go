package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

const (
	primaryDNS = "127.0.0.1:5300"
	peerSecret = "c2VjcmV0IG9mIHRoZSBwZWVyLCAzMiBvY3RldHMgbG9uZw=="
	meshZone   = "mesh.example.com"
	readerKey  = "reader.example" // the test's own key: a transfer with a peer's would count as that peer's
)

// maker is another maker's name server, set up as deploy/secondary has it.
type maker struct {
	name, program string
	address       string
	begin         [][]string // commands before the first start
	command       []string
	catalog       bool // it takes all zones of the catalog
}

// makers stand in a folder that has the files of deploy/secondary.
var makers = []maker{
	{"knot", "knotd", "127.0.0.1:5301", nil, []string{"knotd", "-c", "knot.conf"}, true},
	{"nsd", "nsd", "127.0.0.1:5302", nil, []string{"nsd", "-d", "-u", "root", "-c", "nsd.conf"}, false},
	{"bind", "named", "127.0.0.1:5303", nil, []string{"named", "-g", "-c", "named.conf"}, true},
	{"powerdns", "pdns_server", "127.0.0.1:5304", [][]string{
		{"sqlite3", "pdns.sqlite3", ".read /usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql", ".read pdns.sql"},
	}, []string{"pdns_server", "--config-dir=."}, true},
}

// theirFolders are the folders of the makers' packages.
var theirFolders = []string{"/var/lib/knot", "/run/knot", "/var/lib/nsd", "/run/nsd", "/var/cache/bind", "/run/named", "/var/lib/powerdns", "/run/pdns"}

// peer is a secondary of the program.
type peer struct {
	maker
	t      *testing.T
	folder string
	cmd    *exec.Cmd
	log    support.Log
}

// newPeer prepares a secondary and starts it. changes are texts of its files, each with the one in its place.
func newPeer(t *testing.T, m maker, changes ...string) *peer {
	t.Helper()
	support.Need(t, m.program)
	folder, err := os.MkdirTemp("", "peer") // a socket's path in it must stay under 108 octets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	files, err := filepath.Glob("../../deploy/secondary/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(changes...).Replace(string(content))
		for _, theirs := range theirFolders {
			text = strings.ReplaceAll(text, theirs, folder)
		}
		support.WriteFile(t, filepath.Join(folder, filepath.Base(file)), text)
	}
	p := &peer{maker: m, t: t, folder: folder}
	for _, command := range m.begin {
		support.Need(t, command[0])
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	p.start()
	t.Cleanup(func() {
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s says\n%s", m.name, text[max(0, len(text)-5000):])
		}
	})
	return p
}

func (p *peer) start() {
	p.cmd = exec.Command(p.command[0], p.command[1:]...)
	p.cmd.Dir, p.cmd.Stderr, p.cmd.Stdout = p.folder, &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // NSD is several processes
	support.Start(p.t, p.cmd)
	p.t.Cleanup(p.kill)
}

// kill ends all processes of the peer with SIGKILL.
func (p *peer) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.cmd.Wait()
}

// register makes the peer a secondary.
func (p *peer) register(program *program) {
	registerSecondary(program, p.name, p.address)
}

func registerSecondary(p *program, id, address string) {
	p.t.Helper()
	p.call(200, "PUT", "/api/v1/ddns/secondaries/"+id, fmt.Sprintf(`{"address":%q,"key_name":%q,"key_secret":%q}`, address, id+".example", peerSecret))
}

// transferred gives a zone as a server transfers it, as sorted lines; none without an answer.
func transferred(t *testing.T, at, zone string, key ...string) []string {
	t.Helper()
	host, port, _ := net.SplitHostPort(at)
	args := []string{"@" + host, "-p", port, zone, "AXFR", "+noall", "+answer"}
	for _, name := range key {
		args = append(args, "-y", "hmac-sha256:"+name+":"+peerSecret)
	}
	out, err := exec.Command("kdig", args...).CombinedOutput()
	if err != nil {
		return []string{err.Error(), string(out)}
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, ";") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// serialOf gives the serial of a zone at a server, "" without an answer.
func serialOf(at, zone string) string {
	host, port, _ := net.SplitHostPort(at)
	out, _ := exec.Command("kdig", "@"+host, "-p", port, zone, "SOA", "+short", "+timeout=1").Output()
	if fields := strings.Fields(string(out)); len(fields) == 7 {
		return fields[2]
	}
	return ""
}

// secondaries is the program with secondaries of four makers.
type secondaries struct {
	*program
	t      *testing.T
	db     string
	ipv4   string // the program's public address
	peers  []*peer
	random *rand.Rand
	ids    map[string]string // usages, with the names of their records
	number int               // of the last network
	took   map[string][]time.Duration
}

func newSecondaries(t *testing.T, db string, makers ...maker) *secondaries {
	t.Helper()
	support.Need(t, "kdig", "sqlite3")
	s := &secondaries{
		t: t, db: db, ipv4: "203.0.113.53", ids: map[string]string{}, took: map[string][]time.Duration{},
		random: rand.New(rand.NewPCG(uint64(number(t, "MESHDDNS_SECONDARY_SEED", 1)), 19)),
	}
	s.start()
	s.configure("auto", "tcp://203.0.113.7:1")
	registerSecondary(s.program, "reader", "127.0.0.1:5399")
	for _, m := range makers {
		p := newPeer(t, m)
		p.register(s.program)
		s.peers = append(s.peers, p)
	}
	return s
}

func (s *secondaries) start() {
	s.program = start(s.t, "-db", s.db, "-dns-listen", primaryDNS, "-dns-catalog", "catalog.invalid", "-dns-rate-limit", "0", "-ipv4", s.ipv4)
}

// change makes one change at random, and waits until it is published.
func (s *secondaries) change() {
	s.t.Helper()
	id := ""
	if ids := slices.Sorted(maps.Keys(s.ids)); len(ids) > 0 {
		id = ids[s.random.IntN(len(ids))]
	}
	switch choice := s.random.IntN(10); {
	case choice < 5 || id == "":
		s.reserve()
	case choice < 8:
		formats := []string{``, `,"formats":["mesh1"]`, `,"formats":["hostport","mesh1","a","srv:_x._tcp"]`}[s.random.IntN(3)]
		s.call(200, "PATCH", usagesPath+"/"+id+"?wait=20", fmt.Sprintf(`{"txt_endpoints":["tcp://203.0.113.8:%d","tcp://[2001:db8::8]:1"]%s}`, 1+s.random.IntN(60000), formats))
	default:
		s.call(200, "DELETE", usagesPath+"/"+id+"?wait=20", "")
		delete(s.ids, id)
	}
}

func (s *secondaries) reserve() {
	s.t.Helper()
	s.number++
	made := s.call(200, "POST", usagesPath+"?wait=20", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"n%d","network_id":%[1]d}`, s.number))
	s.ids[made.field("id")] = made.field("full_domain")
}

// rest waits until all secondaries have the zones as the program has them. The serial may still move
// after one of them was asked for it: a secondary that names an unknown serial moves the zone past it.
func (s *secondaries) rest(zones ...string) {
	s.t.Helper()
	for _, zone := range zones {
		s.follow(zone)
		var want, got []string
		for _, p := range s.peers {
			if p.takes(zone) && !support.Within(limit, func() bool {
				want, got = transferred(s.t, primaryDNS, zone, readerKey), transferred(s.t, p.address, zone)
				return slices.Equal(got, want)
			}) {
				s.t.Fatalf("%s has\n%s\nwant\n%s", p.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if zone == meshZone {
			s.complete(want)
		}
	}
}

func (p *peer) takes(zone string) bool { return zone == meshZone || p.catalog }

// follow waits until all secondaries have the serial of the program, and notes how long each took.
func (s *secondaries) follow(zone string) {
	s.t.Helper()
	began := time.Now()
	var waiting sync.WaitGroup
	took := make([]time.Duration, len(s.peers))
	for i, p := range s.peers {
		waiting.Go(func() {
			if p.takes(zone) && !support.Within(limit, func() bool {
				serial := serialOf(p.address, zone)
				took[i] = time.Since(began)
				return serial != "" && serial == serialOf(primaryDNS, zone)
			}) {
				s.t.Errorf("%s has serial %s of %s, want %s", p.name, serialOf(p.address, zone), zone, serialOf(primaryDNS, zone))
			}
		})
	}
	if waiting.Wait(); s.t.Failed() {
		s.t.Fatal(s.call(200, "GET", "/api/v1/ddns/secondaries", "").body)
	}
	for i, p := range s.peers {
		if p.takes(zone) {
			s.took[p.name] = append(s.took[p.name], took[i])
		}
	}
}

// complete compares the names in a transfer with the names that are reserved.
func (s *secondaries) complete(lines []string) {
	s.t.Helper()
	want := []string{}
	for _, name := range s.ids {
		want = append(want, name)
	}
	var got []string
	for _, line := range lines {
		if name, ok := strings.CutSuffix(line[:strings.IndexByte(line+" ", ' ')], "."); ok && strings.Contains(line, " TXT ") && strings.HasPrefix(name, "_mesh.n") {
			got = append(got, name)
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Errorf("%d names are transferred, %d are reserved", len(got), len(want))
	}
}

// lags logs the time from a change until each secondary answered with its serial.
func (s *secondaries) lags() {
	for _, p := range s.peers {
		took := s.took[p.name]
		slices.Sort(took)
		s.t.Logf("%s: %d times; median %v, p99 %v after the change", p.name, len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
	}
}

// TestSecondaries: servers of other makers have each change within seconds, and the zone of a new service
// without a hand on them.
func TestSecondaries(t *testing.T) {
	notShort(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"), makers...)
	s.fill(number(t, "MESHDDNS_SECONDARY_NAMES", support.Count(100, 300)))
	changes := number(t, "MESHDDNS_SECONDARY_CHANGES", support.Count(16, 40))
	for n := range changes {
		s.change()
		if n == changes/2 {
			s.call(200, "POST", "/api/v1/ddns/services", `{"id":"later","name":"later","config":{"domain":"later.example.org","provider":"builtin"}}`)
			s.rest("later.example.org")
		}
		if s.random.IntN(4) == 0 {
			s.follow(meshZone)
		}
		if n%number(t, "MESHDDNS_SECONDARY_COMPARED", 7) == 0 {
			s.rest(meshZone)
		}
	}
	s.rest(meshZone, "later.example.org")
	s.lags()
}

// fill reserves many names, of many clients at once.
func (s *secondaries) fill(count int) {
	s.t.Helper()
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for {
				mu.Lock()
				s.number++
				n := s.number
				mu.Unlock()
				if n > count {
					return
				}
				made, err := s.try("POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"n%d","network_id":%[1]d}`, n))
				if err != nil || made.status != 200 {
					s.t.Errorf("%v, %s", err, made.body)
					return
				}
				mu.Lock()
				s.ids[made.field("id")] = made.field("full_domain")
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	s.call(200, "POST", "/api/v1/ddns/sync", "")
	s.rest(meshZone)
	clear(s.took) // the first transfer is not a change
}

// TestSecondariesKilled: after kills of the program and of secondaries, also of one that was away for more
// than the journal holds, all have the same zone.
func TestSecondariesKilled(t *testing.T) {
	notShort(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"), makers...)
	s.fill(100)
	for range number(t, "MESHDDNS_SECONDARY_KILLS", support.Count(4, 8)) {
		for range s.random.IntN(6) {
			s.change()
		}
		away := s.peers[s.random.IntN(len(s.peers))]
		switch s.random.IntN(3) {
		case 0:
			support.Kill(s.cmd)
			s.start()
		case 1:
			away.kill()
			away.start()
			s.change() // one that has lost what it had just fetched asks again now: BIND by itself in 75 to 300 s
		default:
			away.kill()
			for range number(t, "MESHDDNS_SECONDARY_AWAY", 30) {
				s.change()
			}
			support.Kill(s.cmd)
			s.start()
			away.start()
		}
		s.rest(meshZone)
	}
	s.lags()
}

// TestTwoMachines: while the program is lost with its disk and comes back elsewhere, secondaries answer;
// afterwards they have what was restored.
func TestTwoMachines(t *testing.T) {
	support.Need(t, "litestream")
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	at := newReplicaPlaces(t)
	litestream := at.replicate(t)
	s := newSecondaries(t, at.db(), makers[0], makers[1])
	s.fill(50)
	at.arrives(s.program, "svc", "seen")
	s.call(200, "POST", syncPath, "")
	s.rest(meshZone)
	answers := asking(t, s.peers, "_mesh.seen."+meshZone)
	defer answers.stop()
	litestream.Process.Kill()
	litestream.Wait()
	for range 5 {
		s.reserve() // is lost
	}
	s.rest(meshZone)
	support.Kill(s.cmd)
	if err := os.RemoveAll(at.node); err != nil {
		t.Fatal(err)
	}
	answers.more(t, "while the machine is lost")
	restored, err := at.restore(t, "restored")
	if err != nil {
		t.Fatal(err)
	}
	s.db = restored
	s.start()
	lost := s.reload()
	s.rest(meshZone)
	s.reserve()
	s.rest(meshZone)
	answers.more(t, "after the restore")
	if lost != 5 {
		t.Errorf("%d names are lost, want the 5 after the last sync", lost)
	}
}

// reload takes the usages as the program has them now, and gives the number of names that differ.
func (s *secondaries) reload() (lost int) {
	s.t.Helper()
	db := openDatabase(s.t, s.db)
	defer db.Close()
	was := slices.Collect(maps.Values(s.ids))
	s.ids = map[string]string{}
	for _, row := range support.Cells(s.t, db, `SELECT id, name FROM usages WHERE record_prefix LIKE 'n%'`) {
		s.ids[row[0]] = row[1]
	}
	for _, name := range was {
		if !slices.Contains(slices.Collect(maps.Values(s.ids)), name) {
			lost++
		}
	}
	return lost
}

// poll asks the peers for one name all the time, until it is stopped.
type poll struct {
	right, wrong []atomic.Int64 // answers by peer
	stop         func()
}

// asking begins to ask.
func asking(t *testing.T, peers []*peer, name string) *poll {
	asked, err := dns.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	query := dns.Message{ID: 7, Questions: []dns.Question{{Name: asked, Type: dns.TypeTXT, Class: dns.ClassIN}}}
	p := &poll{right: make([]atomic.Int64, len(peers)), wrong: make([]atomic.Int64, len(peers))}
	var loops sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = func() { cancel(); loops.Wait() }
	for i, peer := range peers {
		loops.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				answer, err := dns.Exchange(ctx, peer.address, query.Pack())
				switch {
				case err == nil && bytes.Contains(answer, []byte("v=mesh1")):
					p.right[i].Add(1)
				case ctx.Err() == nil:
					p.wrong[i].Add(1)
				}
				<-pace.C
			}
		})
	}
	return p
}

// more waits until each peer has answered ten more questions rightly, and none wrongly.
func (p *poll) more(t *testing.T, when string) {
	t.Helper()
	for i := range p.right {
		want := p.right[i].Load() + 10
		support.Eventually(t, time.Minute, "answers "+when, func() bool { return p.right[i].Load() >= want })
		if wrong := p.wrong[i].Load(); wrong > 0 {
			t.Errorf("%d answers are not right %s", wrong, when)
		}
	}
}
