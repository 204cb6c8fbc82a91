package fuzz

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const clients = 8

func contract(t *testing.T, change ...string) *Document {
	t.Helper()
	file, err := os.ReadFile("../../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(change...).Replace(string(file))
	if len(change) > 0 && changed == string(file) {
		t.Fatalf("%q is not in the document", change)
	}
	d, err := Parse([]byte(changed))
	if err != nil {
		t.Fatal(err)
	}
	return d
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

// tally is what came of many requests.
type tally struct {
	mu       sync.Mutex
	wrong    map[string]int // by what is wrong
	first    []string       // the first few, with their requests
	statuses map[int]int
	seen     map[string]bool // operations and their statuses
	slowest  time.Duration
	lost     int // connections that ended before an answer, as they may
}

// exchange is a request and its answer.
type exchange struct {
	request
	answer
}

// run sends so many requests by several clients, and shows each exchange before it is checked.
func run(t *testing.T, d *Document, p *program, requests int, seed uint64, see func(exchange)) *tally {
	t.Helper()
	all := &tally{wrong: map[string]int{}, statuses: map[int]int{}, seen: map[string]bool{}}
	var sent atomic.Int64
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i))), d: d, client: i}
			c := &client{address: p.address}
			defer c.close()
			for sent.Add(1) <= int64(requests) && p.alive() {
				all.exchange(g, c, see)
			}
		})
	}
	working.Wait()
	return all
}

func (all *tally) exchange(g *generator, c *client, see func(exchange)) {
	r := g.next()
	begin := time.Now()
	a, err := c.do(r)
	took := time.Since(begin)
	var wrong []string
	if err == nil {
		g.learn(r, a)
		wrong = g.d.check(r, a)
	} else if !r.wrong && len(r.body) < 60<<10 { // what is too much may be cut off
		wrong = []string{"no answer: " + err.Error()}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if see != nil && err == nil {
		see(exchange{r, a})
	}
	all.slowest = max(all.slowest, took)
	if err != nil {
		all.lost++
	} else {
		all.statuses[a.status]++
		if path, _, _ := strings.Cut(r.target, "?"); g.d.route(r.method, path) != nil {
			all.seen[fmt.Sprint(g.d.route(r.method, path), " ", a.status, " ", a.header.Get("X-Error-Code"))] = true
		}
	}
	for _, w := range wrong {
		kind, _, _ := strings.Cut(w, "\n")
		if all.wrong[kind]++; all.wrong[kind] == 1 && len(all.first) < 40 {
			all.first = append(all.first, fmt.Sprintf("%s\nrequest of client %d:\n%.3000q\nanswer: %d %v\n%.1500q", w, g.client, r.wire(), a.status, a.header, a.body))
		}
	}
}

// grant asks for each operation that chance has not granted, and for those that make what it needs, until it is
// granted, and says which is not. What leftovers need is another program's records at a provider.
func (all *tally) grant(d *Document, p *program, seed uint64) (missing []string) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, clients)), d: d, client: clients}
	c := &client{address: p.address}
	defer c.close()
	for _, o := range d.operations {
		if strings.Contains(o.path, "/leftovers/") {
			continue
		}
		g.only = slices.DeleteFunc(slices.Clone(d.operations), func(other *operation) bool { return other != o && !needs(o, other) })
		for end := time.Now().Add(limit); !all.granted(o); all.exchange(g, c, nil) {
			if time.Now().After(end) || !p.alive() {
				missing = append(missing, o.String())
				break
			}
		}
	}
	return missing
}

// needs reports whether other makes what o is about.
func needs(o, other *operation) bool {
	collection := other.path[strings.LastIndex(other.path, "/"):]
	switch {
	case strings.HasSuffix(o.path, "/sync"): // it needs a provider, and nothing that waits for a dead one
		return other.String() == "PUT /api/v1/ddns/config" || other.String() == "DELETE /api/v1/ddns/state"
	case other.method == "POST" || other.method == "PUT":
		return strings.HasPrefix(o.path, other.path) || slices.Contains([]string{"/services", "/usages", "/leases"}, collection)
	}
	return false
}

func (all *tally) granted(o *operation) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(all.seen)), func(s string) bool { return strings.HasPrefix(s, o.String()+" 2") })
}

func (all *tally) report(t *testing.T) {
	t.Helper()
	for _, w := range all.first {
		t.Error(w)
	}
	for _, kind := range slices.Sorted(maps.Keys(all.wrong)) {
		t.Logf("%6d times: %.200s", all.wrong[kind], kind)
	}
}

// Whatever is sent, every answer is one that docs/openapi.json tells of, none is a fault of the
// program, and in the end it holds no more than in the beginning. MESHDDNS_REQUESTS says how
// many are sent, MESHDDNS_FUZZ_SEED which.
func TestRequests(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	requests, seed := number(t, "MESHDDNS_REQUESTS", 20_000), uint64(number(t, "MESHDDNS_FUZZ_SEED", 1))
	t.Logf("MESHDDNS_FUZZ_SEED=%d MESHDDNS_REQUESTS=%d", seed, requests)
	d, p := contract(t), start(t)
	run(t, d, p, 4000, seed+1<<32, nil).report(t) // memory, pools and caches are what they become
	before, _ := p.back(t, p.resources(t), limit)
	begin := time.Now()
	all := run(t, d, p, requests, seed, nil)
	took := time.Since(begin)
	all.report(t)
	if missing := all.grant(d, p, seed); len(missing) > 0 {
		t.Errorf("never granted: %q", missing)
	}
	after, kept := p.back(t, before, limit)
	t.Logf("%d requests in %v, the slowest %v; %v; %d without an answer; %d kinds of answers", requests, took.Round(time.Second), all.slowest.Round(time.Millisecond), all.statuses, all.lost, len(all.seen))
	t.Logf("before %v, after %v", before, after)
	for _, w := range slices.Concat(kept, p.end(t)) {
		t.Error(w)
	}
}

// The controls: what is left over is found, in what a program holds and in its database.
func TestLeftoversAreFound(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	before := resources{descriptors: 10, goroutines: 20, resident: 30 << 10}
	for what, after := range map[string]resources{
		"": before, "11 descriptors": {descriptors: 11}, "15 descriptors of the database": {database: 15}, "51 goroutines": {goroutines: 51}, "47105 KiB": {resident: 46<<10 + 1},
	} {
		if wrong := after.surplus(before); len(wrong) > 1 || !strings.HasPrefix(strings.Join(wrong, ""), what) || (what == "") != (wrong == nil) {
			t.Errorf("%v: %q, want %q", after, wrong, what)
		}
	}
	d, p := contract(t), start(t)
	run(t, d, p, 1000, 3, nil).report(t)
	p.reserve(t) // what was asked for at random may have left nothing
	before, wrong := p.back(t, p.resources(t), limit)
	for range 2 * mayWait {
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept := p.back(t, before, 0); len(wrong) > 0 || len(kept) == 0 {
		t.Errorf("%q without open connections, %q with them", wrong, kept)
	}
	if wrong := p.end(t); len(wrong) != 1 || !strings.Contains(wrong[0], "goroutines") {
		t.Errorf("with open connections: %q", wrong)
	}
	for _, change := range []string{
		"DELETE FROM bindings WHERE seq = (SELECT min(seq) FROM bindings)", "UPDATE totals SET count = count + 1 WHERE what = 'services'",
		"INSERT INTO totals VALUES ('live leases', 99) ON CONFLICT DO UPDATE SET count = 99",
		"UPDATE services SET usage_count = 99 WHERE id = (SELECT min(id) FROM services)", "UPDATE appliance SET owner = ''",
	} {
		if wrong := p.unsound(t, change); len(wrong) == 0 {
			t.Errorf("%s is not found", change)
		} else {
			t.Logf("%s: %q", change, wrong)
		}
	}
}

// The controls: an answer that is changed in any way is found, each time, and so is a document
// that promises more than the program keeps.
func TestFuzzerFinds(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	d, p := contract(t), start(t)
	var all []exchange
	run(t, d, p, 8000, 7, func(e exchange) { all = append(all, e) }).report(t)
	for what, change := range map[string]func(a *answer){
		"another status": func(a *answer) { a.status = http.StatusCreated },
		"a fault": func(a *answer) {
			a.status = http.StatusInternalServerError
			a.header.Set("X-Error-Code", "internal_error")
		},
		"an unknown code":    func(a *answer) { a.header.Set("X-Error-Code", "no_such_code") },
		"no code":            func(a *answer) { a.status = http.StatusBadRequest; a.header.Del("X-Error-Code") },
		"another media type": func(a *answer) { a.header.Set("Content-Type", "application/json") },
		"one more member":    func(a *answer) { a.body = bytes.Replace(a.body, []byte("{"), []byte(`{"debug":1,`), 1) },
		"one member twice":   func(a *answer) { a.body = bytes.Replace(a.body, []byte("{"), []byte(`{"data":1,"data":1,`), 1) },
		"cut":                func(a *answer) { a.body = a.body[:len(a.body)-2] },
		"no object":          func(a *answer) { a.body = []byte("[]") },
	} {
		changed := 0
		for _, e := range all {
			if e.wrong || e.method == "CONNECT" || e.header.Get("Content-Type") != "application/json; charset=utf-8" || len(e.answer.body) == 0 || strings.Contains(e.target, "openapi.json") {
				continue
			}
			a := answer{e.status, e.header.Clone(), bytes.Clone(e.answer.body)}
			if change(&a); len(d.check(e.request, a)) == 0 {
				t.Errorf("%s is not found: %s %s", what, e.method, e.target)
			}
			changed++
		}
		t.Logf("%s: %d answers changed", what, changed)
	}
	for _, change := range [][]string{
		{`"enum": ["auto", "custom"]`, `"enum": ["custom"]`},
		{`"enum": ["unknown_usage"]`, `"enum": ["service_in_use"]`},
		{`"Time": {"type": "string", "description"`, `"Time": {"type": "string", "maxLength": 1, "description"`},
		{`"count": {"type": "integer"`, `"count": {"type": "string"`},
		{`"is_occupied": {"type": "boolean"}`, `"is_occupied": {"const": false}`},
		{`/api/v1/ddns/providers"`, `/api/v1/ddns/vendors"`},
	} {
		d, found := contract(t, change...), 0
		for _, e := range all {
			if len(d.check(e.request, e.answer)) > 0 {
				found++
			}
		}
		t.Logf("%s instead of %s: %d answers are wrong by it", change[1], change[0], found)
		if found == 0 {
			t.Errorf("%s instead of %s is not found", change[1], change[0])
		}
	}
}
