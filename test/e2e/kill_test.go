package e2e

import (
	"cmp"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/support"
)

// Whatever was acknowledged is there after SIGKILL at a random moment, and nothing is
// half there. MESHDDNS_KILLS says how often it comes, MESHDDNS_KILL_SEED when.
func TestKills(t *testing.T) {
	notShort(t)
	t.Parallel()
	binary(t) // no start waits for it
	kills := number(t, "MESHDDNS_KILLS", support.Count(6, 15))
	seed := number(t, "MESHDDNS_KILL_SEED", 1)
	t.Run("4 clients", func(t *testing.T) { t.Parallel(); killLoop(t, kills, 4, uint64(seed)) })
	t.Run("64 clients", func(t *testing.T) { t.Parallel(); killLoop(t, max(kills/50, 3), 64, uint64(seed)) })
}

func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// killLoop kills the program on one file after the other: what is compared stays small.
func killLoop(t *testing.T, kills, clients int, seed uint64) {
	for each := 800 / clients; kills > 0 && !t.Failed(); kills -= each {
		killOnFile(t, min(kills, each), clients, seed)
		seed++
	}
}

func killOnFile(t *testing.T, kills, clients int, seed uint64) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	all := make([]*witness, clients)
	for i := range all {
		all[i] = &witness{t: t, number: i, chance: rand.New(rand.NewPCG(seed, uint64(i))), facts: map[string]string{}, ids: map[string]string{}}
	}
	chance := rand.New(rand.NewPCG(seed, 1<<32))
	acknowledged, slowest := 0, time.Duration(0)
	for n := range kills {
		begin := time.Now()
		p := start(t, "-db", path)
		p.call(200, "GET", usagesPath+"/available?limit=1", "")
		slowest = max(slowest, time.Since(begin))
		compare(t, path, all)
		if n%20 == 0 { // reads every event of the file
			compareEvents(t, path)
		}
		acknowledged += killAmong(p, all, chance.Int64N(int64(support.Count(min(30*clients, 500), 30*clients)))+1)
		if t.Failed() {
			return
		}
	}
	compare(t, path, all)
	p := start(t, "-db", path)
	p.configure("manual", "tcp://203.0.113.7:1")
	delete(all[0].facts, "configuration") // which has no retry_interval now
	p.eventually("what was under way is done", func() bool {
		a, err := p.try("POST", syncPath, "")
		return err == nil && a.status == 200
	})
	compare(t, path, all)
	checkAnswers(p, all)
	p.rest()
	compareEvents(t, path)
	t.Logf("%d kills among %d clients, %d acknowledgements, none lost; the slowest start took %v", kills, clients, acknowledged, slowest.Round(time.Millisecond))
}

// killAmong lets all clients work until so many answers have come, and kills the program.
func killAmong(p *program, all []*witness, answers int64) (acknowledged int) {
	var given atomic.Int64
	var working sync.WaitGroup
	for _, w := range all {
		working.Go(func() {
			for w.step(p) {
				if given.Add(1) == answers {
					p.cmd.Process.Kill()
				}
			}
		})
	}
	working.Wait()
	p.cmd.Wait()
	return int(given.Load())
}

// witness is a client that remembers what was acknowledged. No other client changes what
// it changes.
type witness struct {
	t       *testing.T
	number  int
	account string // of the configuration, the built-in server's if empty
	chance  *rand.Rand
	made    int
	facts   map[string]string // by what they are about
	ids     map[string]string // of usages, by prefix
	doubt   change            // asked for, and not answered
}

// change is what a request makes of a fact; "" is its end.
type change struct{ about, to string }

// step makes a request, and reports whether it was answered.
func (w *witness) step(p *program) bool {
	request, c := w.next()
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	w.doubt = c
	a, err := p.try(method, path, body)
	if err != nil {
		return false // killed; it may have been done
	}
	w.doubt = change{}
	switch {
	case a.status == 200 || a.status == 202 && method == "DELETE":
		w.learn(c)
		if prefix, ok := strings.CutPrefix(c.about, "usage "); ok && method == "POST" {
			w.ids[prefix] = a.field("id")
		}
	case c.about != "" || a.status != 500: // a synchronisation may be cut short by changes
		w.t.Errorf("%s: %d %s", request, a.status, a.body)
	}
	return true
}

func (w *witness) learn(c change) {
	switch {
	case c.to != "":
		w.facts[c.about] = c.to
	case c.about != "":
		delete(w.facts, c.about)
	}
}

// next chooses a request, and says what it changes.
func (w *witness) next() (request string, c change) {
	w.made++
	svc := fmt.Sprintf("svc-%d", w.number)
	if w.facts["service "+svc] == "" {
		return w.saveService(svc)
	}
	prefixes := slices.Sorted(maps.Keys(w.ids))
	switch n := w.chance.IntN(20); {
	case n < 9 || len(prefixes) == 0:
		prefix := fmt.Sprintf("p-%d-%d", w.number, w.made)
		return fmt.Sprintf(`POST %s {"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, usagesPath, svc, prefix, w.made),
			change{"usage " + prefix, fmt.Sprintf("%d []", w.made)}
	case n < 12:
		prefix := prefixes[w.chance.IntN(len(prefixes))]
		network, _, _ := strings.Cut(w.facts["usage "+prefix], " ")
		endpoints := fmt.Sprintf(`["tcp://203.0.113.7:%d"]`, w.made%60000+1)
		return fmt.Sprintf(`PATCH %s/%s {"txt_endpoints":%s}`, usagesPath, w.ids[prefix], endpoints), change{"usage " + prefix, network + " " + endpoints}
	case n < 15:
		prefix := prefixes[w.chance.IntN(len(prefixes))]
		id := w.ids[prefix]
		delete(w.ids, prefix)
		return fmt.Sprintf(`DELETE %s/%s?force=%d `, usagesPath, id, w.chance.IntN(2)), change{"usage " + prefix, ""}
	case n < 16:
		return w.saveService(svc)
	case n < 17:
		other := fmt.Sprintf("svc-%d-other", w.number)
		if w.facts["service "+other] == "" {
			return w.saveService(other)
		}
		return "DELETE " + servicesPath + other + " ", change{"service " + other, ""}
	case n < 18 && w.number == 0:
		return fmt.Sprintf(`PUT %s {%s,"domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":"manual","retry_interval":%d}`,
			configPath, cmp.Or(w.account, `"provider":"builtin","access_key_id":"-","access_key_secret":"-"`), w.made), change{"configuration", strconv.Itoa(w.made)}
	case n < 19:
		owner := fmt.Sprintf("%06x%06x", w.number, w.made)
		return fmt.Sprintf(`POST /api/v1/ddns/adopt {"owner":%q}`, owner), change{"adopted " + owner, "yes"}
	default:
		return "POST " + syncPath + "?dry_run=0 ", change{}
	}
}

func (w *witness) saveService(id string) (string, change) {
	name := fmt.Sprintf("Site %d", w.made)
	return fmt.Sprintf(`PUT %s%s {"name":%q,"config":{"domain":"w%d.mesh.example.com"}}`, servicesPath, id, name, w.number), change{"service " + id, name}
}

// compare looks whether the database knows what was acknowledged, and nothing else. What
// was asked for and not answered is done or not, and known from now on.
func compare(t *testing.T, path string, all []*witness) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	mustBeSound(t, db)
	for _, wrong := range differences(t, db, all) {
		t.Error(wrong)
	}
}

// differences are those between what the database knows and what was acknowledged.
func differences(t *testing.T, db *sql.DB, all []*witness) (wrong []string) {
	t.Helper()
	stored := storedFacts(t, db)
	known := map[string]string{}
	for _, w := range all {
		w.resolve(stored)
		maps.Copy(known, w.facts)
	}
	for about, want := range known {
		if is := stored[about].is; is != want {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %q as acknowledged", about, is, want))
		}
	}
	for about, f := range stored {
		if known[about] == "" {
			wrong = append(wrong, fmt.Sprintf("%s is %q, and was never asked for or is acknowledged to be gone", about, f.is))
		}
	}
	return wrong
}

// resolve learns whether what was not answered was done.
func (w *witness) resolve(stored map[string]fact) {
	about := w.doubt.about
	if about == "" {
		return
	}
	f := stored[about]
	if f.is == w.doubt.to {
		w.learn(w.doubt)
	}
	if prefix, ok := strings.CutPrefix(about, "usage "); ok && f.is != "" {
		w.ids[prefix] = f.id
	}
	w.doubt = change{}
}

// fact is what the database knows of something, and its id if it is a usage.
type fact struct{ is, id string }

// storedFacts reads what witnesses know. A usage that is being released is gone for them.
func storedFacts(t *testing.T, db *sql.DB) map[string]fact {
	t.Helper()
	facts, err := readFacts(db)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// readFacts is storedFacts for a database that may be damaged.
func readFacts(db *sql.DB) (map[string]fact, error) {
	rows, err := db.Query(`
		SELECT 'usage ' || u.record_prefix, b.network_id || ' ' || u.txt_endpoints, u.id
		FROM usages u JOIN bindings b ON b.seq = u.seq WHERE b.status = 'active'
		UNION ALL SELECT 'service ' || id, name, '' FROM services WHERE id <> 'svc'
		UNION ALL SELECT 'configuration', retry_interval, '' FROM configuration WHERE retry_interval IS NOT NULL
		UNION ALL SELECT 'adopted ' || owner, 'yes', '' FROM adopted`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	facts := map[string]fact{}
	for rows.Next() {
		var about string
		var f fact
		if err := rows.Scan(&about, &f.is, &f.id); err != nil {
			return nil, err
		}
		facts[about] = f
	}
	return facts, rows.Err()
}

// checkAnswers looks whether DNS has every usage, and none that is gone.
func checkAnswers(p *program, all []*witness) {
	p.t.Helper()
	support.Need(p.t, "dig")
	var questions strings.Builder
	want := map[string]string{}
	for _, w := range all {
		for made := range w.made + 1 {
			prefix := fmt.Sprintf("p-%d-%d", w.number, made)
			name := fmt.Sprintf("_mesh.%s.w%d.mesh.example.com.", prefix, w.number)
			fmt.Fprintln(&questions, name, "TXT")
			if is := w.facts["usage "+prefix]; is != "" {
				network, _, _ := strings.Cut(is, " ")
				want[name] = "n=" + network
			}
		}
	}
	file := filepath.Join(p.t.TempDir(), "questions")
	if err := os.WriteFile(file, []byte(questions.String()), 0o600); err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(p.dig("+noall", "+answer", "-f", file)) {
		if strings.HasPrefix(line, ";;") {
			continue // dig warns of what it sends to itself, on a port that it shares with the server
		}
		f := strings.Fields(line)
		if len(f) < 6 || want[f[0]] == "" || f[5] != want[f[0]] {
			p.t.Errorf("answered %s, want %q", line, want[f[0]])
		}
		delete(want, f[0])
	}
	for name, network := range want { // dig may have taken its own question for the answer
		if got := p.dig("+short", name, "TXT"); !strings.Contains(got, network) {
			p.t.Errorf("%s is answered %q", name, got)
		}
	}
}

// The comparison finds each kind of loss.
func TestKillsFindsLoss(t *testing.T) {
	t.Parallel()
	for _, loss := range []string{
		`DELETE FROM usages WHERE seq = 1`,
		`UPDATE bindings SET network_id = 99`,
		`UPDATE usages SET txt_endpoints = '[]'`,
		`DELETE FROM services WHERE id = 'other'`,
		`UPDATE services SET name = 'old' WHERE id = 'other'`,
		`UPDATE configuration SET retry_interval = 1`,
		`DELETE FROM adopted`,
		`INSERT INTO adopted VALUES ('never asked for')`,
	} {
		path := filepath.Join(t.TempDir(), "meshddns.db")
		p := start(t, "-db", path)
		p.configure("manual", "tcp://203.0.113.7:1")
		p.call(200, "PUT", servicesPath+"other", `{"name":"Other","config":{}}`)
		id := p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"a","network_id":1}`).field("id")
		p.call(200, "PATCH", usagesPath+"/"+id, `{"txt_endpoints":["tcp://203.0.113.8:1"]}`)
		p.stop()
		execute(t, path, `UPDATE configuration SET retry_interval = 7`)
		execute(t, path, `INSERT INTO adopted VALUES ('0123456789ab')`)
		w := &witness{facts: map[string]string{
			"usage a": `1 ["tcp://203.0.113.8:1"]`, "service other": "Other", "configuration": "7", "adopted 0123456789ab": "yes",
		}}
		compare(t, path, []*witness{w})
		execute(t, path, loss)
		if wrong := differences(t, openDatabase(t, path), []*witness{w}); len(wrong) == 0 {
			t.Errorf("%s is not found", loss)
		}
	}
}
