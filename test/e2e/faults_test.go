package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// control is struct control of testdata/faults.c, in memory that the program shares.
type control struct {
	count      [opKinds]int64
	entries    int64
	kinds      int64
	at         int64
	persistent int64
	err        int64
	seen       int64
	hits       int64
}

// opKind is what an operation does.
type opKind int64

const (
	opWrite opKind = iota
	opSync
	opTruncate
	opUnlink
	opKinds
)

func (k opKind) String() string { return [...]string{"write", "sync", "truncate", "unlink"}[k] }

// What a fault does beside an errno.
const (
	shortWrite    = -1
	crashBefore   = -2 // the operation
	crashBehind   = -3
	allOperations = 1<<opKinds - 1
)

var preload = sync.OnceValues(func() (path string, err error) {
	if _, err := os.ReadFile("testdata/faults.c"); err != nil { // see support.OpenSources
		return "", err
	}
	path = filepath.Join(dir, "faults.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", path, "testdata/faults.c", "-ldl").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("compile faults.c: %w\n%s", err, out)
	}
	return path, err
})

// disk is a folder for a database whose operations are counted, failed and recorded.
type disk struct {
	t       *testing.T
	control *control
	env     []string
	folder  string
	db      string
	journal string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	support.Need(t, "cc")
	library, err := preload()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &disk{t: t, folder: filepath.Join(dir, "db"), journal: filepath.Join(dir, "journal")}
	d.db = filepath.Join(d.folder, "meshddns.db")
	path := filepath.Join(dir, "control")
	d.env = []string{"LD_PRELOAD=" + library, "FAULTS_CONTROL=" + path, "FAULTS_DIR=" + d.folder}
	file, err := os.Create(path)
	if err == nil {
		err = file.Truncate(4096)
	}
	if err == nil {
		err = os.Mkdir(d.folder, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shared, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(shared) })
	d.control = (*control)(unsafe.Pointer(&shared[0]))
	return d
}

// start runs the program on the disk.
func (d *disk) start() *program {
	d.t.Helper()
	return launch(d.t, d.env, []string{binary(d.t)}, "-db", d.db, "-ipv4", "none", "-ipv6", "none")
}

// diskFault is what happens to the nth operation of a kind, and to all after it.
type diskFault struct {
	kinds      int64
	nth        int64
	persistent bool
	err        int64
}

func (f diskFault) String() string {
	errs := map[int64]string{int64(syscall.EIO): "EIO", int64(syscall.ENOSPC): "ENOSPC", shortWrite: "short", crashBefore: "crash before", crashBehind: "crash behind"}
	what, how := "operation", "once"
	for k := range opKinds {
		if f.kinds == 1<<k {
			what = k.String()
		}
	}
	if f.persistent {
		how = "until healed"
	}
	return fmt.Sprintf("%s %d %s %s", what, f.nth, errs[f.err], how)
}

func (d *disk) arm(f diskFault) {
	c := d.control
	c.at, c.seen, c.hits = 0, 0, 0
	c.kinds, c.err, c.persistent = f.kinds, f.err, 0
	if f.persistent {
		c.persistent = 1
	}
	c.at = f.nth
}

func (d *disk) heal() { atomic.StoreInt64(&d.control.at, 0) }

// entries is how many operations there were.
func (d *disk) entries() int64 { return atomic.LoadInt64(&d.control.entries) }

// older makes a database of the oldest version that opens, with a service and a usage.
func older(t *testing.T, path string) map[string]string {
	t.Helper()
	oldfile.Make(t, path, `
		INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, created_at, updated_at) VALUES
		    ('svc-0', 'Old', '{"domain":"w0.mesh.example.com"}', 'w0.mesh.example.com', 'w0.mesh.example.com', 'com.example.mesh.w0', '', '[]', '2026-01-02T03:04:05.678Z', '2026-01-02T03:04:05.678Z');
		INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at, state) VALUES
		    (1, '01936f1e-5c3b-7d4a-8e2f-0123456789ab', 'svc-0', 'mesh_sync', 'custom', 'p-0-0', 'TXT', '', 1, '[]', '_mesh.p-0-0.w0.mesh.example.com', '2026-01-02T03:04:05.678Z', 'none');
		INSERT INTO bindings VALUES (1, '01936f1e-5c3b-7d4a-8e2f-0123456789ac', 7, '01936f1e-5c3b-7d4a-8e2f-0123456789ab', 'svc-0', 'active');
		INSERT INTO names VALUES ('_mesh.p-0-0.w0.mesh.example.com', 1, NULL, '', 0, NULL)`)
	return map[string]string{"usage p-0-0": "7 []", "service svc-0": "Old"}
}

// newWitness is a client with chance of its own.
func newWitness(t *testing.T, number int, seed uint64) *witness {
	return &witness{t: t, number: number, chance: rand.New(rand.NewPCG(seed, uint64(number))), facts: map[string]string{}, ids: map[string]string{}}
}

const firstConfiguration = `PUT ` + configPath + ` {"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com",` +
	`"txt_record_name":"@","enabled":true,"sync_mode":"manual","retry_interval":1}`

const backupPath = "/api/v1/ddns/backup"

// request makes the nth request of a scenario that has every kind, and says what it
// changes.
func (w *witness) request(n int) (string, change) {
	switch n {
	case 0:
		return firstConfiguration, change{"configuration", "1"}
	case scenarioLength / 2, scenarioLength - 2:
		return "POST " + syncPath + " ", change{}
	case scenarioLength - 1:
		return "GET " + backupPath + " ", change{}
	}
	return w.next()
}

const (
	scenarioLength = 40
	scenarioSeed   = 2 // with it every kind of request is made
)

// run is a scenario under a fault.
type run struct {
	*disk
	p        *program
	w        *witness
	failures int // requests that were answered with 500, programs that did not start or ended
}

// underFault runs the scenario with one fault, and looks whether anything is lost. It
// tells whether the fault came, and whether it was noticed.
func underFault(t *testing.T, old bool, f diskFault) (hit, noticed bool) {
	d := newDisk(t)
	r := &run{disk: d, w: newWitness(t, 0, scenarioSeed)}
	if old {
		r.w.facts = older(t, d.db)
		r.w.ids["p-0-0"] = "01936f1e-5c3b-7d4a-8e2f-0123456789ab"
	}
	d.arm(f)
	r.begin()
	for n := range scenarioLength {
		request, c := r.w.request(n)
		r.step(request, c)
		if t.Failed() {
			t.Logf("at request %d, %s, hits %d", n, request, d.control.hits)
			return true, true
		}
	}
	r.lookedThrough()
	r.synchronise()
	d.heal()
	r.synchronise() // a crash may have come behind the answer
	checkAnswers(r.p, []*witness{r.w})
	r.p.quiet()
	if d.control.hits == 0 {
		d.control.at = f.nth // perhaps when the program ends
	}
	r.end()
	compare(t, d.db, []*witness{r.w})
	return d.control.hits > 0, r.failures > 0
}

// begin starts the program, which may be refused while the fault lasts, with a reason.
func (r *run) begin() {
	r.t.Helper()
	if r.p = r.start(); r.p.client != nil {
		return
	}
	r.failures++
	r.p.cmd.Wait() // and for its log
	if r.control.hits == 0 {
		r.t.Fatalf("the program ended without a fault:\n%s", r.p.log)
	}
	if r.control.err > crashBefore && !strings.Contains(r.p.log.String(), "meshddns: ") {
		r.t.Errorf("the program ended without a reason:\n%s", r.p.log)
	}
	r.heal()
	if r.p = r.start(); r.p.client == nil {
		r.t.Fatalf("the program does not start after the fault:\n%s", r.p.log)
	}
}

// lookedThrough waits until the program has looked through its database, and written it
// anew where it is an old one: what comes then belongs to the scenario. That writes, too, so
// the program may be crashed meanwhile.
func (r *run) lookedThrough() {
	r.t.Helper()
	r.p.eventually("the database is looked through", func() bool {
		if support.Ended(r.p.cmd) {
			r.crashed(change{}, errors.New("it was looking through its database"))
		}
		log := r.p.log.String()
		return strings.Contains(log, "the database is sound") || strings.Contains(log, "restore a backup") || strings.Contains(log, "is not looked through")
	})
}

// step makes a request until it is done. One that the fault fails is answered with a
// reason, reads go on meanwhile, and afterwards it is done at the first try.
func (r *run) step(request string, c change) {
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	a, err := r.ask(method, path, body)
	switch {
	case err != nil && path == backupPath && r.control.err > crashBefore: // cut short: a client sees that
		r.failures++
	case err != nil:
		r.crashed(c, err)
		if c.about != "" && r.w.facts[c.about] == c.to { // done, and not answered
			return
		}
	case a.status >= 500:
		r.failed(request, a)
	}
	if err != nil || a.status >= 500 {
		r.heal()
		a = r.retried(method, path, body)
	}
	if a.status != 200 && !(a.status == 202 && method == "DELETE") {
		r.t.Errorf("%s: %d %s", request, a.status, a.body)
		return
	}
	r.w.learn(c)
	if prefix, ok := strings.CutPrefix(c.about, "usage "); ok && method == "POST" {
		r.w.ids[prefix] = a.field("id")
	} else if ok && method == "DELETE" {
		delete(r.w.ids, prefix) // which a crash has brought back
	}
	if path == backupPath {
		r.readBackup(a.body)
	}
}

// ask makes a request. A pass waits for a database that fails, for a minute, and ends
// when the fault does.
func (r *run) ask(method, path, body string) (a answer, err error) {
	if !strings.HasPrefix(path, syncPath) {
		return r.p.try(method, path, body)
	}
	const fails = "the database fails"
	before := strings.Count(r.p.log.String(), fails)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a, err = r.p.try(method, path, body)
	}()
	answered := false
	r.p.eventually("the pass has ended, or waits for the database", func() bool {
		select {
		case <-done:
			answered = true
		default:
		}
		return answered || strings.Count(r.p.log.String(), fails) > before
	})
	if !answered {
		r.failures++
		r.reads()
		r.heal()
	}
	<-done
	return a, err
}

// retried makes a request once more. A pass may be cut short by changes.
func (r *run) retried(method, path, body string) (a answer) {
	if strings.HasPrefix(path, syncPath) {
		r.synchronise()
		return answer{status: 200}
	}
	a, err := r.p.try(method, path, body)
	if err != nil {
		r.t.Fatalf("%s %s after the fault: %v", method, path, err)
	}
	return a
}

// failed looks at a failure: a reason in JSON, and reads that go on.
func (r *run) failed(request string, a answer) {
	r.failures++
	var body struct{ Error string }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error == "" {
		r.t.Errorf("%s: %d %q is no reason in JSON", request, a.status, a.body)
	}
	if r.control.hits == 0 && !strings.Contains(request, syncPath) {
		r.t.Errorf("%s: %d %s without a fault", request, a.status, a.body)
	}
	r.reads()
}

// reads looks whether what is stored is read, over HTTP and DNS.
func (r *run) reads() {
	r.p.call(200, "GET", usagesPath+"/available?limit=500", "")
	r.p.call(200, "GET", "/api/v1/ddns/services", "")
	a, err := r.p.try("GET", configPath, "")
	if err != nil || a.status >= 500 {
		r.t.Errorf("GET %s: %d %v", configPath, a.status, err)
	}
	if got := r.p.dig("+noall", "+comments", "mesh.example.com", "SOA"); !strings.Contains(got, "NOERROR") && !strings.Contains(got, "REFUSED") {
		r.t.Errorf("DNS is not answered while the fault lasts:\n%s", got)
	}
}

// crashed starts the program anew, and learns what was done.
func (r *run) crashed(c change, err error) {
	r.t.Helper()
	if r.failures++; r.control.hits == 0 || r.control.err > crashBefore {
		r.t.Fatalf("the program ended, and was not crashed: %v\n%s", err, r.p.log)
	}
	r.p.cmd.Wait()
	r.heal()
	r.w.doubt = c
	compare(r.t, r.db, []*witness{r.w})
	r.begin()
}

// synchronise makes DNS agree. A fault that comes now ends when it has been told.
func (r *run) synchronise() {
	r.t.Helper()
	r.p.eventually("everything is published", func() bool {
		a, err := r.ask("POST", syncPath, "")
		switch {
		case err != nil:
			r.crashed(change{}, err)
		case a.status == 200:
			return true
		case r.control.hits > 0:
			r.failed("POST "+syncPath, a)
			r.heal()
		}
		return false
	})
}

// end stops the program. A fault that comes now is told, and harms nothing.
func (r *run) end() {
	r.p.cmd.Process.Signal(syscall.SIGTERM)
	err := r.p.cmd.Wait()
	if err != nil && r.control.hits == 0 {
		r.t.Errorf("at its end: %v\n%s", err, r.p.log)
	}
	r.heal()
}

// readBackup looks whether a backup has everything that was acknowledged.
func (r *run) readBackup(body string) {
	path := filepath.Join(r.t.TempDir(), "backup.db")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		r.t.Fatal(err)
	}
	compare(r.t, path, []*witness{r.w})
}

// faultsOf are the faults of a scenario whose operations are counted, a sample of so
// many for each kind, error and duration.
func faultsOf(count [opKinds]int64, sample int64, chance *rand.Rand) (all []diskFault) {
	errnos := map[opKind][]int64{
		opWrite:    {int64(syscall.EIO), int64(syscall.ENOSPC), shortWrite},
		opSync:     {int64(syscall.EIO), int64(syscall.ENOSPC)},
		opTruncate: {int64(syscall.EIO)},
		opUnlink:   {int64(syscall.EIO)},
	}
	for k := range opKinds {
		for _, errno := range append(errnos[k], crashBefore, crashBehind) {
			for _, persistent := range []bool{false, true} {
				if persistent && errno <= crashBefore {
					continue
				}
				for _, n := range spread(count[k], sample, chance) {
					all = append(all, diskFault{kinds: 1 << k, nth: n, persistent: persistent, err: errno})
				}
			}
		}
	}
	total := count[opWrite] + count[opSync] + count[opTruncate] + count[opUnlink]
	for _, n := range spread(total, sample, chance) { // a disk that is gone altogether
		all = append(all, diskFault{kinds: allOperations, nth: n, persistent: true, err: int64(syscall.EIO)})
	}
	return all
}

// spread gives all numbers from 1 to n, or one out of each of so many equal parts.
func spread(n, parts int64, chance *rand.Rand) (numbers []int64) {
	if parts <= 0 || parts > n {
		parts = n
	}
	for i := range parts {
		from, to := i*n/parts, (i+1)*n/parts
		numbers = append(numbers, from+1+chance.Int64N(to-from))
	}
	return numbers
}

// sampleOf says how many of the operations of each kind are failed in each way: 0 for
// all of them.
func sampleOf(t *testing.T, usual int) int64 {
	if os.Getenv("MESHDDNS_FAULTS") == "all" {
		return 0
	}
	return int64(number(t, "MESHDDNS_FAULTS", usual))
}

// Every operation on the database's files fails in a run of its own, once and for as long as it
// lasts. MESHDDNS_FAULTS=all fails each, a number that many of each kind in each way.
func TestFaults(t *testing.T) {
	notShort(t)
	t.Parallel()
	support.Need(t, "dig")
	sample := sampleOf(t, 1)
	for name, old := range map[string]bool{"first start": false, "older file": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := countOperations(t, old)
			all := faultsOf(count, sample, rand.New(rand.NewPCG(1, 1)))
			var came, noticed atomic.Int64
			t.Cleanup(func() {
				t.Logf("%d faults of %v (write, sync, truncate, unlink) operations: %d came, %d of them failed a request or ended the program; nothing was lost",
					len(all), count, came.Load(), noticed.Load())
				if came.Load() < int64(len(all)*6/10) || noticed.Load() < came.Load()/2 { // a run may need fewer operations than the one that was counted
					t.Errorf("of %d faults %d came and %d were noticed: too few", len(all), came.Load(), noticed.Load())
				}
			})
			for _, f := range all {
				t.Run(f.String(), func(t *testing.T) {
					t.Parallel()
					hit, seen := underFault(t, old, f)
					if hit {
						came.Add(1)
					}
					if seen {
						noticed.Add(1)
					}
				})
			}
		})
	}
}

// countOperations gives what a scenario without faults does, which must include every
// kind of request.
func countOperations(t *testing.T, old bool) [opKinds]int64 {
	t.Helper()
	kinds := map[string]int{}
	d := newDisk(t)
	r := &run{disk: d, w: newWitness(t, 0, scenarioSeed)}
	if old {
		r.w.facts = older(t, d.db)
		r.w.ids["p-0-0"] = "01936f1e-5c3b-7d4a-8e2f-0123456789ab"
	}
	r.begin()
	for n := range scenarioLength {
		request, c := r.w.request(n)
		method, rest, _ := strings.Cut(request, " ")
		kinds[method+" "+strings.Split(rest, "/")[4][:4]]++
		r.step(request, c)
	}
	r.lookedThrough()
	r.end()
	compare(t, d.db, []*witness{r.w})
	for _, kind := range []string{"PUT conf", "PUT serv", "DELETE serv", "POST usag", "PATCH usag", "DELETE usag", "POST sync", "POST adop", "GET back"} {
		if kinds[kind] == 0 {
			t.Errorf("the scenario has no %s, but %v", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
	count := d.control.count
	if count[opWrite] < 50 || count[opSync] < 20 || count[opUnlink] < 1 {
		t.Errorf("the library counts %v operations: it does not see them", count)
	}
	return count
}
