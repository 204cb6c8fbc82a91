package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/test/support"
)

const (
	historySteps   = 8
	manyHistories  = 500 // in which everything has to happen
	historyWorkers = 12  // they mostly wait
	leftoversPath  = "/api/v1/ddns/leftovers"
	servicesPath   = "/api/v1/ddns/services/"

	// restLimit bounds the wait for a state of rest; two looks and the first
	// pauses of a retry are well within.
	restLimit    = 15 * time.Second
	firstPause   = 20 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// TestHistories runs histories: each a database of its own, providers of its
// own, and some steps at random, with faults. After each step the program is
// brought to rest and the whole of every zone is compared with the contract.
//
// MESHDDNS_HISTORIES says how many, MESHDDNS_HISTORY_SEED the seed of the
// first: MESHDDNS_HISTORIES=1 with the seed that is printed runs one again.
func TestHistories(t *testing.T) {
	notShort(t)
	t.Parallel()
	count, first := number(t, "MESHDDNS_HISTORIES", support.Count(4, 40)), number(t, "MESHDDNS_HISTORY_SEED", 1)
	quickBinary(t)
	tally := &tally{counts: map[string]int{}}
	runSeeds(t, first, count, historyWorkers, func(t *testing.T, seed int) { runHistory(t, uint64(seed), tally) })
	for _, s := range historyChoices {
		tally.add("step: "+s.name, 0)
	}
	for _, kind := range slices.Concat(writeFaults, anyFaults) {
		tally.add("fault: "+string(kind), 0)
	}
	tally.report(t, count >= manyHistories)
}

// runSeeds runs a test for each of count seeds, some at a time.
func runSeeds(t *testing.T, first, count, atOnce int, run func(t *testing.T, seed int)) {
	seeds := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, count) {
		workers.Go(func() {
			for seed := range seeds {
				t.Run(strconv.Itoa(seed), func(t *testing.T) { run(t, seed) })
			}
		})
	}
	for seed := first; seed < first+count; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
}

// quickBinary gives the program with a short time between the two looks.
func quickBinary(t *testing.T) string {
	t.Helper()
	path, err := buildQuick()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Names in the environment: of a program that is taken instead, of the time of its second look, and of a regular
// expression of the steps that are made, without visits.
const (
	programName = "MESHDDNS_HISTORY_PROGRAM"
	lookName    = "MESHDDNS_HISTORY_LOOK"
	stepsName   = "MESHDDNS_HISTORY_STEPS"
)

var buildQuick = sync.OnceValues(func() (path string, err error) {
	if path := os.Getenv(programName); path != "" {
		return path, nil
	}
	return compile(filepath.Join(dir, "meshddns-quick"), "-tags", "quick")
})

// tally counts what happened in all histories.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += n
}

// report prints the counts. What was added as 0 and never happened was never tested.
func (c *tally) report(t *testing.T, all bool) {
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("%7d %s", c.counts[what], what)
		if c.counts[what] == 0 && all {
			t.Errorf("never happened: %s", what)
		}
	}
}

// history is one database, its providers, and what must stand there.
type history struct {
	t       *testing.T
	random  *rand.Rand
	tally   *tally
	seals   bool        // with -seal-key
	tenants bool        // with tokens of services
	terms   bool        // with -term
	term    int         // the last one
	many    *crowdModel // nil in most
	starts  int
	host    *host
	p       *program
	nodes   *program // its listener for nodes
	dir     string
	db      string
	model   model

	homes    []home            // of which a configuration or a service takes one
	foreign  map[spot][]string // values of others
	unseen   map[string]bool   // names at which the last pass failed: what stands there it does not know
	before   []found           // what stood of ours at the last rest
	saved    *snapshot         // a backup
	equal    bool              // a value of others is one that was wanted
	planted  map[string]bool   // values that only tampering has put there
	passing  map[spot]bool     // where something was wanted since the last rest
	tampered map[string]bool   // names at which this step took a value away
	left     map[string]bool   // names that the configuration had left in this step, perhaps with its value
	serial   int               // makes every value another
	strict   bool              // nothing excuses a second pass
	sweep    bool              // rest is asked for with sweep=1
	checks   []check           // what a verdict of this step looks at besides
	probes   []string          // what stands only until the program withdraws it by itself
	after    func()            // what this step does when it has come to rest
	useDNS   bool              // the built-in server has had values
	rested   int               // passes until rest
	lost     error             // of the last request without an answer
	running  sync.Mutex        // guards p and killed while it starts or is killed
	killed   bool              // by this test
	mu       sync.Mutex        // guards text
	text     strings.Builder   // the transcript
	quiet    bool              // the passes repeat themselves
}

// snapshot is a backup and what the model was then.
type snapshot struct {
	file     string
	model    model
	standing map[string]bool
	crowd    *crowdModel
}

// found is a value of ours.
type found struct {
	account *account // nil at the built-in server
	zone    string
	name    string
	text    string
	network string
}

func (f found) String() string {
	if f.account == nil {
		return fmt.Sprintf("builtin/%s %q", f.name, f.text)
	}
	return fmt.Sprintf("%s %q", spot{f.account, f.zone, f.name}, f.text)
}

func runHistory(t *testing.T, seed uint64, tally *tally) {
	w := &history{
		t: t, random: rand.New(rand.NewPCG(seed, 20261121)), tally: tally, host: newHost(), seals: seed%2 == 1, tenants: seed%3 != 0, terms: seed%4 == 1,
		foreign: map[spot][]string{}, planted: map[string]bool{}, passing: map[spot]bool{}, left: map[string]bool{},
	}
	t.Cleanup(w.host.close)
	w.dir = scratch(t)
	w.db = filepath.Join(w.dir, "meshddns.db")
	w.host.say, w.host.kill, w.host.beside, w.host.foreign = w.say, w.kill, w.beside, w.foreignAt
	w.begin()
	steps := historySteps
	if seed%10 == 0 {
		steps = crowdSteps
		w.gather(number(t, "MESHDDNS_HISTORY_USAGES", fewUsages))
		w.rest("the crowd is there")
	}
	for range steps {
		w.step()
	}
	w.end()
	places := placeNames()
	for n := range uint64(visits) {
		if os.Getenv(stepsName) != "" {
			break
		}
		w.visit(places[(visits*seed+n)%uint64(len(places))])
	}
	w.erased()
	w.keepsSecrets(w.p.log.String())
	tally.add("histories", 1)
	for kind, n := range w.host.fired {
		tally.add("fault: "+string(kind), n)
	}
}

// scratch gives a folder in memory where there is one: thousands of databases
// are synced to disk otherwise.
func scratch(t *testing.T) string {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	path, err := os.MkdirTemp(parent, "meshddns-history-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

func (w *history) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.quiet {
		fmt.Fprintf(&w.text, format+"\n", args...)
	}
}

// hush leaves out of the transcript what comes now.
func (w *history) hush(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = quiet
}

// fail ends the history with its transcript and what the program has logged
// since it was last started.
func (w *history) fail(format string, args ...any) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Fatalf("%s\n\n%s\n%s", fmt.Sprintf(format, args...), w.text.String(), w.p.log.String())
}

func (w *history) start() {
	args := []string{"-db", w.db, "-node-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-sync-interval", "1m",
		"-check-control", strings.TrimPrefix(w.host.addrs["webhook"], "http://")}
	if w.starts++; w.seals && os.Getenv(programName) == "" {
		args = append(args, "-seal-key", sealFile(w.t, filepath.Join(w.dir, "key"), w.sealKeys()...))
	}
	if w.tenants {
		file := filepath.Join(w.dir, "tokens")
		if err := os.WriteFile(file, []byte(roles()), 0o600); err != nil {
			w.t.Fatal(err)
		}
		args = append(args, "-token-file", file)
	}
	p := startAt(w.t, quickBinary(w.t), append(args, w.termArgs()...)...)
	p.client.Transport = asBoss{p.client.Transport}
	w.running.Lock()
	defer w.running.Unlock()
	w.p, w.nodes, w.killed = p, nodesOf(p), false
}

// sealKeys chooses the keys of the next start: it seals, rotates or unseals what is there, which may be a backup.
func (w *history) sealKeys() []byte {
	next, present := byte(w.starts%3), byte(1)
	if _, err := os.Stat(w.db); err == nil {
		db := support.OpenSQLite(w.t, w.db, "mode=ro&_busy_timeout=5000")
		defer db.Close()
		var id string
		if err := db.QueryRow(`SELECT seal FROM appliance`).Scan(&id); err != nil {
			w.t.Fatal(err)
		}
		if _, second := sealLine(2); strings.HasPrefix(id, second) {
			present = 2
		}
	}
	what := "sealed anew"
	switch next {
	case present:
		return []byte{present}
	case 0:
		what = "unsealed"
	}
	w.tally.add("starts: "+what, 1)
	return []byte{next, present}
}

// kill ends the program with SIGKILL and returns when it has ended.
func (w *history) kill() {
	w.running.Lock()
	defer w.running.Unlock()
	if !w.killed {
		support.Kill(w.p.cmd)
		w.killed = true
		w.say("  killed")
		if strings.Contains(w.p.log.String(), secretMark) {
			w.t.Error("a secret is in the log")
		}
	}
}

// revive starts the program again, which a test has killed.
func (w *history) revive() {
	w.t.Helper()
	if !w.dead() {
		w.fail("no answer, and the program was not killed: %v", w.lost)
	}
	w.tally.add("kills", 1)
	w.start()
}

func (w *history) dead() bool {
	w.running.Lock()
	defer w.running.Unlock()
	return w.killed
}

// ask makes a request and writes it down.
func (w *history) ask(method, path, body string, header ...string) (answer, error) {
	w.t.Helper()
	p := w.p
	if path == leasePath || slices.Contains(challengePaths, path) {
		p = w.nodes
	}
	a, err := p.try(method, path, body, header...)
	if err != nil {
		w.say("%s %s %s: %v", method, path, body, err)
		w.lost = err
		return a, err
	}
	w.say("%s %s %s -> %d %s", method, path, body, a.status, shortened(a.body))
	w.keepsSecrets(a.body)
	return a, nil
}

func shortened(text string) string {
	if text = reportTimes.ReplaceAllString(strings.TrimSpace(text), ""); len(text) > mostOfAnAnswer {
		text = strings.ToValidUTF8(text[:mostOfAnAnswer], "") + "..."
	}
	return text
}

var reportTimes = regexp.MustCompile(`"[a-z]+_at":"[^"]*",?|"[a-z]+":0,?|"duration_ms":\d+,?`)

const mostOfAnAnswer = 500

// keepsSecrets fails when a text has a secret in it.
func (w *history) keepsSecrets(text string) {
	w.t.Helper()
	if i := strings.Index(text, secretMark); i >= 0 {
		w.fail("a secret is told: %s", text[max(0, i-100):])
	}
}

// secretMark is in every secret of the providers.
const secretMark = "hush-"

// get asks for what must be there, and reads data.
func (w *history) get(path string, data any) int {
	w.t.Helper()
	a := w.read(path)
	if a.status == 200 {
		if err := json.Unmarshal([]byte(a.body), &struct{ Data any }{data}); err != nil {
			w.fail("GET %s: %v: %s", path, err, a.body)
		}
	}
	return a.status
}

// read asks for something, once more when the program is killed meanwhile.
func (w *history) read(path string) answer {
	w.t.Helper()
	a, err := w.p.try("GET", path, "")
	if err != nil {
		w.revive()
		a, err = w.p.try("GET", path, "")
	}
	if err != nil {
		w.fail("GET %s: %v", path, err)
	}
	return a
}

// begin configures and reserves nothing yet.
func (w *history) begin() {
	h := w.host
	one := h.open("webhook", "hook-one", "example.com", "example.net")
	two := h.open("webhook", "hook-two", "example.com")
	three := h.open("alidns", "ali", "example.com", "example.net")
	two.lists, three.lists = true, true
	for _, a := range []*account{one, two, three} {
		h.addKey(a, a.provider, a.name+"-key1", secretMark+a.name+"-key1.")
		w.homes = append(w.homes, home{a, a.provider})
	}
	w.homes = append(w.homes, home{provider: "builtin"})
	w.model = model{services: map[string]modelService{}, adopted: map[string]bool{}, updates: map[string]int{}}
	w.start()
	w.mutate(w.putConfig(modelConfig{
		credentials: w.home(), domain: "example.com", record: pick(w.random, []string{"@", "_config"}),
		mode: pick(w.random, []string{"manual", "manual", "manual", "", "auto", "upsert-only"}), enabled: true,
		retries: w.random.IntN(2), endpoints: w.endpoints(),
	}))
	w.mutate(w.putService(modelService{id: "s1", domain: "example.com"}))
	w.say("-- begin: the first pass")
	if a, err := w.ask("POST", syncPath, ""); err != nil || a.status != 200 {
		w.fail("the first pass: %v %d", err, a.status)
	}
	w.learnOwner()
	for range w.random.IntN(3) {
		w.reserveCustom()()
	}
	w.rest("begin")
}

// learnOwner reads the mark of the database from what stands.
func (w *history) learnOwner() {
	for _, f := range w.scan(func(text string) bool { owner, _ := marks(text); return owner != "" }) {
		w.host.owner, _ = marks(f.text)
	}
	if w.host.owner == "" {
		w.fail("nothing is published")
	}
}

// end heals everything, releases everything, and wants nothing left.
func (w *history) end() {
	w.say("-- end")
	w.host.mu.Lock()
	for _, key := range w.host.keys {
		key.refused = false
	}
	w.host.mu.Unlock()
	w.lapse()
	for at, values := range w.foreign {
		for _, text := range slices.Clone(values) {
			w.removeForeign(at, text)
		}
	}
	config := w.model.config
	config.mode, config.enabled, config.credentials = "manual", true, w.current(config.credentials)
	if w.keyFor(config.credentials) == nil && config.provider != "builtin" {
		config.credentials = w.keyOf(w.homes[0])
	}
	w.givesZone(config)
	w.mutate(w.putConfig(config))
	w.rest("all is well again")
	w.disperse()
	for len(w.model.usages) > 0 {
		w.mutate(w.release(w.model.usages[0], false))
		w.rest("released at the end")
	}
	for _, id := range slices.Sorted(maps.Keys(w.model.services)) {
		w.mutate(w.deleteService(id))
	}
	w.rest("only the configuration is left")
}

// givesZone gives the account of a configuration a zone for its record, if it has none: a visit wants that a pass ends well.
func (w *history) givesZone(c modelConfig) {
	key := w.keyFor(c.credentials)
	if key == nil {
		return
	}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for zone := range key.account.zones {
		if c.domain == zone || strings.HasSuffix(c.domain, "."+zone) {
			return
		}
	}
	w.say("  %s has %s", key.account.name, c.domain)
	key.account.zones[c.domain] = map[string][]standing{}
}

// erased wants every key gone from the database but the configuration's. Later
// passes look at what has gone, and need its key until then.
func (w *history) erased() {
	w.t.Helper()
	secret := regexp.MustCompile(secretMark + `[^."]*\.`)
	w.until("only the configuration's key is kept", func() (wrong string) {
		a, err := w.p.try("GET", "/api/v1/ddns/backup", "")
		if err != nil || a.status != 200 {
			w.fail("backup: %v %d", err, a.status)
		}
		for _, kept := range secret.FindAllString(a.body, -1) {
			if kept != w.model.config.secret {
				wrong = kept + " is in the database still"
			}
		}
		if wrong == "" {
			return ""
		}
		if a, err := w.ask("POST", syncPath, ""); err == nil && a.status != 200 {
			return "" // the record cannot move to the configuration's zone, and its old place needs the key
		}
		return wrong
	})
}

// until asks again and again, less and less often, until nothing is wrong.
func (w *history) until(what string, wrong func() string) {
	w.t.Helper()
	began, pause, last := time.Now(), firstPause, ""
	for {
		now := wrong()
		if now == "" {
			w.hush(false)
			return
		}
		if w.hush(now == last); now != last {
			w.say("  not yet: %s", now)
		}
		last = now
		limit := restLimit
		if w.many != nil {
			limit = crowdLimit
		}
		if took := time.Since(began); took > limit && took > support.Paced(limit) {
			w.fail("%s: %s", what, now)
		}
		w.elapse(pause)
		pause = min(2*pause, longestPause)
	}
}

// mutation is a change by the API, and what it makes of the model.
type mutation struct {
	method, path, body string
	header             []string
	statuses           []int // that the contract lets it have
	apply              func(m *model, a answer)
	happened           func() (answer, bool) // asked when its answer was lost
	freed              func()                // called when a prefix is free by it
	tenant             string                // the service whose token makes it, "" for an administrator
}

// mutate makes a change. Names that are wanted before and after it may not be
// without a value from now on.
func (w *history) mutate(c mutation) {
	w.t.Helper()
	next := w.model.clone()
	c.apply(&next, answer{status: 200})
	w.guard(next)
	a, err := w.ask(c.method, c.path, c.body, c.header...)
	if err != nil {
		w.revive()
		if a, happened := c.happened(); happened {
			w.say("  which had happened")
			c.apply(&w.model, a)
			w.model.settle()
		}
		return
	}
	if c.tenant != "" {
		w.tellsOthers(c.tenant, a.body)
	}
	if !slices.Contains(c.statuses, a.status) {
		w.fail("%s %s: status %d, want one of %v", c.method, c.path, a.status, c.statuses)
	}
	if a.status < 300 {
		c.apply(&w.model, a)
		w.model.settle()
	}
	if a.status == 200 && c.freed != nil {
		c.freed()
	}
}

// guard has the providers watch the names that must not be without a value:
// those that have one now, and want one of the same network before and after.
func (w *history) guard(next model) {
	after := next.wishes(w.host.owner)
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	clear(w.host.guards)
	clear(w.host.resolved)
	w.host.guarded++
	there := w.builtin()
	for name, wish := range w.model.wishes(w.host.owner) {
		for _, o := range wish.options {
			if key := w.keyFor(o.credentials); key != nil {
				w.passing[spot{key.account, key.account.zoneOf(name), name}] = true
			}
		}
		g := guard{name, wish.network}
		then := after[name]
		if w.cannotBeTold(wish) || w.cannotBeTold(then) {
			continue
		}
		if !w.host.standsOr(g, there) {
			continue
		}
		w.guardSiblings(wish, then, there)
		if then != nil && then.network == wish.network && len(then.options) > 0 && len(wish.options) > 0 && !wish.optional && !then.optional {
			w.host.guards[g] = true
			w.resolves(g, there)
		}
	}
}

// cannotBeTold says that a name is at an account that tells no ids of its zones. Whether
// the places of two keys with one value are one may be seen only when one is withdrawn:
// the value is put back then.
func (w *history) cannotBeTold(wish *wish) bool {
	return wish != nil && slices.ContainsFunc(wish.options, func(o option) bool {
		key := w.keyFor(o.credentials)
		return key != nil && key.account.nameless
	})
}

// step does one thing at random, perhaps with faults, and comes to rest.
func (w *history) step() {
	w.t.Helper()
	w.host.mu.Lock()
	clear(w.host.lateNames)
	clear(w.host.stale)
	clear(w.host.hidden)
	w.host.mu.Unlock()
	w.strict, w.sweep, w.tampered, w.checks, w.after = true, false, map[string]bool{}, nil, nil
	w.keepTerm()
	chosen, do := w.choose()
	name := chosen.name
	w.say("-- %s", name)
	w.guard(w.model)
	var timer *time.Timer
	if !chosen.calm {
		timer = w.breakSomething()
	}
	watched := w.watchDNS()
	do()
	if !w.strict {
		if _, err := w.ask("POST", syncPath, ""); err != nil {
			w.revive()
		}
	}
	if timer != nil && timer.Stop() {
		w.kill()
	}
	if w.dead() {
		w.revive()
	}
	w.heal()
	w.tally.add("step: "+name, 1)
	w.rest(name)
	if w.after != nil {
		w.after()
	}
	watched()
}

// heal ends the faults of a step. A write that waits for a newer one waits no more.
func (w *history) heal() {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.plan = nil
	for _, a := range w.host.accounts {
		a.down, a.listsDown = noFault, false
		if a.barrier != nil {
			close(a.barrier.opened)
			a.barrier = nil
		}
	}
	for _, l := range w.host.late {
		l.afterNew = ""
	}
}

// choose takes a step that is possible now.
func (w *history) choose() (historyChoice, func()) {
	only := regexp.MustCompile(os.Getenv(stepsName))
	choices, total := slices.DeleteFunc(slices.Clone(historyChoices), func(c historyChoice) bool { return !only.MatchString(c.name) }), 0
	for _, c := range choices {
		total += c.weight
	}
	for {
		n := w.random.IntN(total)
		for _, c := range choices {
			if n -= c.weight; n >= 0 {
				continue
			}
			if do := c.prepare(w); do != nil {
				return c, do
			}
			break
		}
	}
}

// breakSomething plans faults for a step, sometimes a kill at any moment.
func (w *history) breakSomething() *time.Timer {
	choice := w.random.IntN(10)
	first := fault{kind: pick(w.random, writeFaults), write: true, pass: w.random.IntN(2)}
	if choice < 2 {
		first = fault{kind: pick(w.random, anyFaults), pass: w.random.IntN(8)}
	}
	moment := time.Duration(w.random.IntN(20_000)) * time.Microsecond
	switch {
	case choice >= 7:
		return nil
	case choice == 6:
		w.strict = false
		w.say("  to be killed after %v", moment)
		w.tally.add("fault: kill at any moment", 1)
		return time.AfterFunc(moment, w.kill)
	}
	w.strict = false
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.plan = []fault{first}
	if w.random.IntN(3) == 0 {
		w.host.plan = append(w.host.plan, fault{kind: pick(w.random, writeFaults), write: true, pass: w.random.IntN(3)})
	}
	return nil
}

// rest brings the program to rest: it synchronises until all is as it must be.
func (w *history) rest(after string) {
	w.t.Helper()
	releasing := slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.releasing })
	if !w.manual() || releasing || w.leftNow() || w.probeLate() || w.many != nil {
		w.strict = false
	}
	path := syncPath
	if w.sweep {
		path += "?sweep=1"
	}
	w.rested = 0
	w.until("after "+after, func() string {
		a, err := w.ask("POST", path, "")
		if err != nil { // the kill of a timer that had run out
			w.revive()
			return "killed"
		}
		w.rested++
		if w.many != nil && a.status == 202 {
			return "the pass goes on"
		}
		wrong := w.verdict(a)
		if len(wrong) > 0 && (w.strict || w.host.isBroken()) {
			w.fail("after %s, %d passes:\n%s", after, w.rested, strings.Join(wrong, "\n"))
		}
		return strings.Join(append(wrong, w.probes...), "\n  ")
	})
	w.tally.add(fmt.Sprintf("rest after %d passes", min(w.rested, 5)), 1)
	w.checkStates()
	w.checkFormats()
	w.checkTenants()
	if log := w.p.log.String(); strings.Contains(log, "constraint failed") || strings.Contains(log, "panic") {
		w.fail("the log has a fault of the program")
	}
	if wrong := eventFaults(w.t, w.db, `SELECT 1`); len(wrong) > 0 {
		w.fail("the events tell another story:\n%s", strings.Join(wrong, "\n"))
	}
	clear(w.passing)
	clear(w.left)
	w.before = slices.Concat(w.scan(w.mine), w.siblings())
	w.askDNS()
}

func (w *history) mine(text string) bool { _, ours := w.host.ours(text); return ours }

// scan gives every value in every zone that a test wants.
func (w *history) scan(wanted func(text string) bool) (all []found) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, at := range w.host.all() {
		for _, value := range w.host.values(at) {
			if wanted(value.text) {
				_, network := marks(value.text)
				all = append(all, found{at.account, at.zone, at.name, value.text, network})
			}
		}
	}
	for _, f := range w.builtin() {
		if wanted(f.text) {
			all = append(all, f)
		}
	}
	return all
}

// builtin reads the table of the built-in server.
func (w *history) builtin() (all []found) {
	if !w.useDNS {
		return nil
	}
	db := support.OpenSQLite(w.t, w.db, "mode=ro&_busy_timeout=5000")
	defer db.Close()
	rows, err := db.Query(`SELECT name, type, data FROM zone_records ORDER BY name, type, data`)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var number dns.Type
		var data []byte
		if err := rows.Scan(&name, &number, &data); err != nil {
			w.t.Error(err)
		}
		kind, text := recordText(w.t, number, data)
		labels := strings.Split(name, ".")
		slices.Reverse(labels)
		_, network := marks(text)
		all = append(all, found{name: typed(strings.Join(labels, "."), kind), text: text, network: network})
	}
	if err := rows.Err(); err != nil {
		w.t.Error(err)
	}
	return all
}

// recordText gives the type of a record and its data as a text.
func recordText(t *testing.T, number dns.Type, data []byte) (kind, text string) {
	for _, of := range (builtin.Client{}).Types() {
		if of.Wire() == number {
			value, err := of.ParseData(data)
			if err != nil {
				t.Error(err)
			}
			return string(of), value.Text()
		}
	}
	t.Errorf("a record of type %d", number)
	return "", ""
}

// beside says whether the built-in server has a value of a network.
func (w *history) beside(g guard) bool {
	return slices.ContainsFunc(w.builtin(), func(f found) bool { return f.name == g.name && w.host.holds(f.text, g) })
}

// askDNS compares what the built-in server answers with its table: a zone is served while something
// is in it.
func (w *history) askDNS() {
	w.t.Helper()
	for _, f := range w.builtin() {
		if said := w.resolve(w.p.dns, f.name); !slices.Contains(said.values, f.text) {
			w.fail("the built-in server answers %v for %s", said, f)
		}
		w.tally.add("names asked by DNS", 1)
	}
}

func pick[T any](random *rand.Rand, items []T) T { return items[random.IntN(len(items))] }

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
