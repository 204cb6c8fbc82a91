package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// limit bounds what is not a pass over all names.
const limit = time.Minute

// program is a running meshddns.
type program struct {
	t       testing.TB
	process *process
	db      string
	http    string
	dns     string
	client  *http.Client
}

// way is how a program is started; nothing in it is the usual way.
type way struct {
	path string   // of another build
	wrap []string // the command that runs it
	env  []string
}

// start runs the program on a database, and waits until it listens. It looks for
// no address and begins no pass but the one at its start.
func start(t testing.TB, db string) *program { return startAs(t, db, way{}) }

func startAs(t testing.TB, db string, w way) *program {
	t.Helper()
	if w.path == "" {
		w.path = built(t)
	}
	p := &program{t: t, db: db, client: &http.Client{Timeout: 2 * limit}}
	t.Cleanup(p.client.CloseIdleConnections)
	p.process = launch(t, db+".log", w.env, slices.Concat(w.wrap, []string{w.path}, arguments(db, "127.0.0.1:0", "127.0.0.1:0"))...)
	support.Eventually(t, limit, "the program has started", func() (listens bool) {
		p.http, p.dns, listens = support.Listening(string(p.process.said()))
		return listens
	})
	return p
}

func arguments(db, listen, dns string) []string {
	return []string{"-db", db, "-listen", listen, "-dns-listen", dns, "-ipv4", "none", "-ipv6", "none", "-sync-interval", "24h"}
}

func (p *program) eventually(what string, holds func() bool) {
	p.t.Helper()
	support.Eventually(p.t, limit, what, holds)
}

// stop ends the program in good order.
func (p *program) stop() { p.t.Helper(); p.process.stop() }

// try makes a request of the API.
func (p *program) try(method, path, body string) (status int, code, answer string, err error) {
	request, err := http.NewRequest(method, "http://"+p.http+"/api/v1/ddns"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	request.Header.Set("Accept-Language", "en")
	response, err := p.client.Do(request)
	if err != nil {
		return 0, "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("X-Error-Code"), string(text), err
}

// call makes a request that must succeed, and tells how long it took.
func (p *program) call(method, path, body string) (answer string, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	status, _, answer, err := p.try(method, path, body)
	took = time.Since(began)
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("%s %s: %v, status %d: %s", method, path, err, status, answer)
	}
	return answer, took
}

// report is what a pass has counted.
type report struct {
	Counts  map[string]int
	Records []struct{ Name, Action, Error string }
}

// sync has a pass made, as often as it takes, and tells how long each call took.
func (p *program) sync(most int) (r report, took []time.Duration) {
	p.t.Helper()
	for len(took) < most {
		began := time.Now()
		status, code, answer, err := p.try("POST", "/sync", "")
		took = append(took, time.Since(began))
		switch {
		case err != nil:
			p.t.Fatal(err)
		case status == http.StatusOK:
			body := struct{ Data *report }{&r}
			if err := json.Unmarshal([]byte(answer), &body); err != nil {
				p.t.Fatalf("%v: %s", err, answer)
			}
			return r, took
		case code != "sync_unfinished":
			p.t.Fatalf("POST /sync: status %d: %s", status, answer)
		}
		fmt.Printf("POST /sync, %s: %s\n", round(took[len(took)-1]), strings.TrimSpace(answer))
	}
	p.t.Errorf("not through after %d POSTs", most)
	return r, took
}

// answers reports whether the built-in server has a value at a name.
func (p *program) answers(name string) bool {
	_, records := ask(p.t, p.dns, name)
	return len(records) > 0
}

// commits counts the transactions that have changed the database since it was
// opened: iChange of the index of its log (sqlite.org/walformat.html).
func (p *program) commits() int {
	p.t.Helper()
	index, err := os.ReadFile(p.db + "-shm")
	if err != nil || len(index) < 12 {
		p.t.Fatalf("index of the log: %v, %d octets", err, len(index))
	}
	return int(binary.NativeEndian.Uint32(index[8:]))
}
