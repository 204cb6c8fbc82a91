package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/dnswire"
	"meshddns/internal/envelope"
	"meshddns/internal/guard"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/probe"
	"meshddns/internal/sqlite"
	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// TestScripts plays the scripts in testdata. A block of a script, up to the
// next empty line, is one request and its answer:
//
//	# What it is about.
//	POST /api/v1/ddns/usages
//	Accept-Language: en
//	{"service_id":"svc","prefix_mode":"nope"}
//	-> 400 prefix_mode_invalid {"error":"prefix_mode must be auto or custom"}
//
// The answer is the status, the X-Error-Code, the headers that matter and the
// body; "go test -update" writes it anew, and the diff is the review. What
// differs from run to run stands as <id-1>, <owner>, <dns> (the address of the
// built-in DNS server), <time> and <ms>; the first three may be used in
// requests too. In a request <70000 x> is as many letters, and a body
// bytes "..." is a Go string. Beside requests there are
//
//	sql STATEMENTS   on the database file, by a connection that checks no foreign keys
//	dns NAME         a TXT question to the built-in DNS server
//	until NAME WHAT  waits until that is answered so
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played := newScript(t).play(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script is a script that is being played.
type script struct {
	*testing.T
	*appliance
	names map[string]string // the placeholder of an id or another text, and the text of a placeholder
	ids   int
}

func newScript(t *testing.T) *script {
	s := &script{T: t, appliance: newAppliance(t, stopClock), names: map[string]string{}}
	s.name("<owner>", s.store.owner)
	s.name("<dns>", s.dns)
	return s
}

func (s *script) name(placeholder, text string) {
	s.names[placeholder], s.names[text] = text, placeholder
}

// play gives the script with the answers that it got.
func (s *script) play(text string) string {
	blocks := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, block := range blocks {
		given, want, _ := strings.Cut("\n"+strings.Trim(block, "\n"), "\n->")
		given = strings.TrimPrefix(given, "\n")
		got := s.step(given)
		if want = strings.TrimSpace(want); got != want && !*update {
			s.Errorf("%s\n-> %s\nwant\n-> %s", given, got, want)
		}
		if blocks[i] = given; got != "" {
			blocks[i] += "\n-> " + got
		}
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

var (
	headerLine  = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)
	placeholder = regexp.MustCompile(`<[a-z]+(-\d+)?>`)
	manyLetters = regexp.MustCompile(`<\d+ x>`)
)

// step does what a block says and gives the answer.
func (s *script) step(given string) (answer string) {
	lines := strings.Split(s.real(given), "\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return ""
	}
	verb, rest, _ := strings.Cut(lines[0], " ")
	switch verb {
	case "sql":
		return s.shown(s.statements(strings.Join(append([]string{rest}, lines[1:]...), "\n")))
	case "dns":
		return s.shown(s.ask(s, rest))
	case "until":
		name, answer, _ := strings.Cut(rest, " ")
		eventually(s, rest, func() bool { return s.ask(s, name) == answer })
		return ""
	}
	headers, lines := http.Header{}, lines[1:]
	for len(lines) > 0 && headerLine.MatchString(lines[0]) {
		name, value, _ := strings.Cut(lines[0], ": ")
		headers.Add(name, value)
		lines = lines[1:]
	}
	body := strings.Join(lines, "\n")
	if quoted, ok := strings.CutPrefix(body, "bytes "); ok {
		var err error
		if body, err = strconv.Unquote(quoted); err != nil {
			s.Fatalf("%s: %v", quoted, err)
		}
	}
	return s.request(verb, rest, headers, body)
}

// real gives a text of the script with the real texts in it.
func (s *script) real(text string) string {
	text = manyLetters.ReplaceAllStringFunc(text, func(many string) string {
		n, _ := strconv.Atoi(strings.Trim(many, "< x>"))
		return strings.Repeat("x", n)
	})
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if text, ok := s.names[name]; ok {
			return text
		}
		return name
	})
}

var (
	uuidText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	took     = regexp.MustCompile(`"duration_ms":\d+`)
	planned  = regexp.MustCompile(`,"next_at":"[^"]*"`) // of the next pass: TestNextPass
	fromPort = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
)

// shown gives a text with the placeholders in it, JSON in lines that are not
// too long.
func (s *script) shown(text string) string {
	text = uuidText.ReplaceAllStringFunc(text, func(id string) string {
		if s.names[id] == "" {
			s.ids++
			s.name(fmt.Sprintf("<id-%d>", s.ids), id)
		}
		return s.names[id]
	})
	for _, name := range []string{"<owner>", "<dns>"} {
		text = strings.ReplaceAll(text, s.names[name], name)
	}
	if strings.HasPrefix(text, `{"data":{"started_at"`) {
		text = planned.ReplaceAllString(text, "")
	}
	text = fromPort.ReplaceAllString(timeText.ReplaceAllString(text, "<time>"), "<client>->")
	text = took.ReplaceAllString(text, `"duration_ms":"<ms>"`)
	if json.Valid([]byte(text)) {
		text = layout(json.RawMessage(text), "")
	}
	return strings.ReplaceAll(text, `"<ms>"`, "<ms>")
}

// width is how long a line of a JSON answer may be.
const width = 150

// layout breaks JSON that is too long for one line: an element of an array a
// line, the members of an object filled into lines.
func layout(value json.RawMessage, indent string) string {
	text := strings.TrimSpace(string(value))
	if len(indent)+len(text) <= width || !strings.ContainsAny(text[:1], "{[") {
		return text
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	open, _ := decoder.Token()
	inner, lines := indent+"  ", []string{}
	for decoder.More() {
		name := ""
		if open == json.Delim('{') {
			token, _ := decoder.Token()
			name = strconv.Quote(token.(string)) + ":"
		}
		var part json.RawMessage
		decoder.Decode(&part)
		line := name + layout(part, inner)
		last := len(lines) - 1
		if name != "" && last >= 0 && !strings.Contains(lines[last]+line, "\n") && len(inner+lines[last]+", "+line) <= width {
			lines[last] += ", " + line
			continue
		}
		lines = append(lines, line)
	}
	return text[:1] + "\n" + inner + strings.Join(lines, ",\n"+inner) + "\n" + indent + text[len(text)-1:]
}

// statements runs SQL on the database file and gives the rows of a query.
func (s *script) statements(text string) string {
	db := s.open(s)
	defer db.Close()
	if !strings.HasPrefix(text, "SELECT") {
		if _, err := db.Exec(text); err != nil {
			s.Fatalf("%s: %v", text, err)
		}
		return ""
	}
	return strings.Join(queryText(s, db, text), "\n")
}

// request sends a request and gives the answer.
func (s *script) request(method, path string, headers http.Header, body string) string {
	response, content := s.do(s, method, path, headers, body)
	checkEnvelope(s, method+" "+path, response, content)
	words := []string{strconv.Itoa(response.StatusCode)}
	if code := response.Header.Get("X-Error-Code"); code != "" {
		words = append(words, code)
	}
	for _, name := range []string{"Allow", "Location"} {
		if value := response.Header.Get(name); value != "" {
			words = append(words, name+": "+value)
		}
	}
	if len(content) > 0 {
		words = append(words, s.shown(content))
	}
	return strings.Join(words, " ")
}

// checkEnvelope holds an answer to what the contract says of all of them.
func checkEnvelope(t testing.TB, request string, response *http.Response, body string) {
	t.Helper()
	if got := response.Header.Get("Content-Type"); got != envelope.MediaType {
		t.Errorf("%s: Content-Type %q", request, got)
	}
	failed := response.StatusCode >= http.StatusBadRequest
	if code := response.Header.Get("X-Error-Code"); failed != (code != "") {
		t.Errorf("%s: status %d with X-Error-Code %q", request, response.StatusCode, code)
	}
	if body == "" && response.Request.Method == http.MethodHead {
		return
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Errorf("%s: %v in %q", request, err, body)
	}
	for name := range members {
		if failed != (name == "error") || !slices.Contains([]string{"error", "data", "message", "next_cursor"}, name) {
			t.Errorf("%s: status %d with member %q", request, response.StatusCode, name)
		}
	}
	if len(members) == 0 || failed && string(members["error"]) == `""` {
		t.Errorf("%s: nothing is said in %s", request, body)
	}
}

// appliance is the program as run wires it, on loopback, without its flags.
type appliance struct {
	*server
	path      string // of the database
	url       string
	dns       string // address of the built-in DNS server
	addresses *hostaddr.Book
	logs      *logBuffer
	http      *http.Client
}

// Every test ends by itself: nothing that it waits for may take longer.
const patience = time.Minute

// newAppliance starts an appliance that ends with the test. What is to be
// otherwise than in the program, change changes before it runs.
func newAppliance(t testing.TB, change ...func(*appliance)) *appliance {
	t.Helper()
	return newApplianceOn(t, filepath.Join(t.TempDir(), "meshddns.db"), change...)
}

// newApplianceOn is newAppliance on a database file.
func newApplianceOn(t testing.TB, path string, change ...func(*appliance)) *appliance {
	t.Helper()
	a := &appliance{path: path, logs: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(a.logs, nil))
	store, err := openStore(t.Context(), a.path, log)
	if err != nil {
		t.Fatal(err)
	}
	a.addresses = hostaddr.NewBook(source(t, hostaddr.IPv4, "203.0.113.7"), source(t, hostaddr.IPv6, "none"), mesh.Addresses{}, store.SaveAddresses, log)
	cache := builtin.NewCache(store.zones, log)
	store.zones.Changed = cache.Changed
	names, err := nameserver.Listen(nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, builtin.Zones{Store: store.zones, Own: a.addresses.All, Cache: cache}, log)
	if err != nil {
		t.Fatal(err)
	}
	a.dns = names.Addr()
	a.server = &server{store: store, log: log, version: "test", dnsMetrics: builtinDNS{server: names, cache: cache}.metrics, public: probe.Internet}
	a.clients = clients{ledger: store.ledger, zones: store.zones, dnsAddress: a.dns}
	for _, f := range change {
		f(a)
	}
	a.engine = store.newEngine(engineConfig(store, a.clients, a.addresses, time.Hour, log))
	web := httptest.NewServer(a.routes())
	a.url, a.http = web.URL, web.Client()
	a.http.Timeout = patience
	a.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for _, task := range []func(context.Context) error{
		names.Serve, cache.Run, a.engine.Run, func(ctx context.Context) error { return a.addresses.Watch(ctx, time.Hour) },
	} {
		serving.Go(func() {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		web.Close()
		stop()
		serving.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.addresses.Ready(): // what it stores is stored by now
	case <-time.After(patience):
		t.Fatal("the addresses were not looked up")
	}
	return a
}

// stopClock keeps all that happens by itself from happening: no change has
// waited for further ones, and no pass is due.
func stopClock(a *appliance) {
	at := time.Now()
	a.store.now = func() time.Time { return at }
}

// source is where an address comes from.
func source(t testing.TB, family hostaddr.Family, text string) hostaddr.Source {
	t.Helper()
	s, err := hostaddr.ParseSource(family, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// receive takes what comes from a channel, or fails the test.
func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came in time")
	}
	return v
}

// exchange sends a request and reads the whole answer.
func (a *appliance) exchange(method, path string, headers http.Header, body io.Reader) (*http.Response, string, error) {
	request, err := http.NewRequest(method, a.url+path, body)
	if err != nil {
		return nil, "", err
	}
	maps.Copy(request.Header, headers)
	response, err := a.http.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response, string(content), err
}

// do is exchange for a test that ends when there is no answer.
func (a *appliance) do(t testing.TB, method, path string, headers http.Header, body string) (*http.Response, string) {
	t.Helper()
	response, content, err := a.exchange(method, path, headers, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return response, content
}

// call sends a request and gives status, error code and body of the answer.
func (a *appliance) call(t testing.TB, method, path, body string) (status int, code, answer string) {
	t.Helper()
	response, answer := a.do(t, method, path, nil, body)
	return response.StatusCode, response.Header.Get("X-Error-Code"), answer
}

// must is call for a request that has to succeed.
func (a *appliance) must(t testing.TB, method, path, body string) (answer string) {
	t.Helper()
	status, code, answer := a.call(t, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %s: %d %s %s", method, path, body, status, code, answer)
	}
	return answer
}

// open opens the database file beside the program.
func (a *appliance) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+a.path+"?_foreign_keys=0&_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

// queryText gives the rows of a query, a line each.
func queryText(t testing.TB, db *sql.DB, query string) (lines []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, cell := range cells {
			words = append(words, cell.String)
		}
		lines = append(lines, strings.Join(words, " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// ask asks the built-in DNS server for the TXT values at a name.
func (a *appliance) ask(t testing.TB, name string) string {
	t.Helper()
	message := servertest.Ask(t, a.dns, name, dnswire.TypeTXT)
	words := []string{message.Rcode.String()}
	for _, rr := range message.Answers {
		value, err := dnswire.ParseTXT(rr.Data)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, strconv.Quote(strings.Join(value, "")))
	}
	slices.Sort(words[1:])
	return strings.Join(words, " ")
}

// Everything that part A of the contract can answer stands in its script.
func TestPartAIsWhole(t *testing.T) {
	script, err := os.ReadFile("testdata/part-a.txt")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]bool{} // "GET /path 200", "GET /path 400 code"
	request := ""
	for line := range strings.Lines(string(script)) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && strings.HasPrefix(words[1], "/"):
			path, _, _ := strings.Cut(words[1], "?")
			request = words[0] + " " + strings.TrimPrefix(path, "/api/v1/ddns")
		case len(words) > 2 && words[0] == "->":
			answers[request+" "+words[1]] = true
			answers[request+" "+words[1]+" "+words[2]] = true
		}
	}
	for request, wanted := range map[string]string{
		"GET /config": "200, 500 internal_error",
		"PUT /config": "200, 400 parameter_error, 400 provider_empty, 400 access_key_empty, 400 domain_empty, 400 txt_record_name_empty, 500 internal_error",
		"POST /test":  "200, 400 parameter_error",
		"POST /sync":  "200, 500 sync_disabled, 500 sync_not_configured, 500 sync_failed, 500 internal_error",
		"POST /usages": "200, 400 parameter_error, 400 service_id_empty, 400 prefix_mode_invalid, 404 unknown_service, 500 service_config_invalid, " +
			"400 service_domain_missing, 400 network_id_missing, 400 prefix_empty, 400 prefix_too_long, 400 prefix_characters, 400 prefix_reserved, " +
			"400 prefix_taken, 500 store_failed, 500 internal_error",
		"GET /check-prefix":     "200, 400 query_missing, 500 internal_error",
		"GET /usages/available": "200, 500 internal_error",
	} {
		for want := range strings.SplitSeq(wanted, ", ") {
			if !answers[request+" "+want] {
				t.Errorf("testdata/part-a.txt: no %s is answered %s", request, want)
			}
		}
	}
	for _, said := range []msg.ID{msg.ConfigurationSaved, msg.SyncDone, msg.UsageCreated} {
		if !strings.Contains(string(script), strconv.Quote(said.In(msg.Chinese))) {
			t.Errorf("testdata/part-a.txt: nothing is answered %q", said.In(msg.Chinese))
		}
	}
}

// However many ask for one prefix at once, in whatever letter case, one gets it.
func TestOnePrefixIsGivenOnce(t *testing.T) {
	const rounds, clients = 100, 12
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	for round := range rounds {
		answers := make(chan string, clients)
		start := make(chan struct{})
		var asking sync.WaitGroup
		for client := range clients {
			prefix := []byte(fmt.Sprintf("office-%d", round))
			for i := range prefix[:6] {
				if client>>(i%4)&1 == 1 {
					prefix[i] -= 'a' - 'A'
				}
			}
			body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, prefix, client)
			asking.Go(func() {
				<-start
				response, _, err := a.exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body))
				if err != nil {
					answers <- err.Error()
					return
				}
				answers <- response.Status + " " + response.Header.Get("X-Error-Code")
			})
		}
		close(start)
		asking.Wait()
		close(answers)
		count := map[string]int{}
		for answer := range answers {
			count[answer]++
		}
		if want := map[string]int{"200 OK ": 1, "400 Bad Request prefix_taken": clients - 1}; !maps.Equal(count, want) {
			t.Fatalf("round %d: %v, want %v", round, count, want)
		}
	}
	db := a.open(t)
	defer db.Close()
	if got := queryText(t, db, `SELECT (SELECT count(*) FROM usages), (SELECT count(*) FROM bindings)`); got[0] != "100 | 100" {
		t.Errorf("usages | bindings = %s", got[0])
	}
}

// A network's id is exact on its whole way: stored, listed, looked for, published.
func TestNetworkIDIsExact(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/config",
		`{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","enabled":true}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	ids := []string{"0", "1", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	names := map[string]string{}
	for _, id := range ids {
		for i, prefix := range []string{`"auto"`, `"custom","custom_prefix":"n` + id + `"`} {
			answer := a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":`+prefix+`,"network_id":`+id+`}`)
			if want := `"network_id":` + id + `}`; !strings.Contains(answer, want) {
				t.Errorf("POST: no %s in %s", want, answer)
			}
			var made struct {
				Data struct {
					ID     string
					Domain string `json:"full_domain"`
				}
			}
			if err := json.Unmarshal([]byte(answer), &made); err != nil {
				t.Fatal(err)
			}
			names[made.Data.Domain] = id
			if answer, want := a.must(t, "GET", "/api/v1/ddns/usages/"+made.Data.ID, ""), `"network_id":`+id+`,`; !strings.Contains(answer, want) {
				t.Errorf("GET: no %s in %s", want, answer)
			}
			answer = a.must(t, "GET", "/api/v1/ddns/usages/available?network_id="+id, "")
			if found := strings.Count(answer, `"network_id":`); found != i+1 || strings.Count(answer, `"network_id":`+id+`,`) != found {
				t.Errorf("?network_id=%s: %s", id, answer)
			}
		}
	}
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	for name, id := range names {
		if value := a.ask(t, name); !strings.HasPrefix(value, `NOERROR "v=mesh1 n=`+id+` o=`) {
			t.Errorf("%s: %s, want n=%s", name, value, id)
		}
	}
}

// badBodies are bodies that no endpoint takes.
var badBodies = []string{
	"", " ", "{", "null", "[]", `"x"`, "7", "{} {}", `{}x`, "{'a':1}", `{"a":1,}`, "\ufeff{}", "{}\x00", "name=x",
	"{\"x\":\"\xff\"}", `{"x":"\ud800"}`, `{"a":1,"a":2}`, `{"x":{"a":1,"\u0061":2}}`,
	"[" + strings.Repeat("[", 20000), `{"x":"` + strings.Repeat("x", envelope.MaxBody) + `"}`,
}

// badRequests are refused for what they say. {id} is a usage's.
var badRequests = []struct {
	method, path, body string
	status             int
	code               string
}{
	{"POST", "/usages", `{"service_id":1}`, 400, "parameter_error"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":-1}`, 400, "parameter_error"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1.5}`, 400, "parameter_error"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1e30}`, 400, "parameter_error"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":"1"}`, 400, "parameter_error"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1,"network_name":7}`, 400, "parameter_error"},
	{"POST", "/usages", `{}`, 400, "service_id_empty"},
	{"POST", "/usages", `{"service_id":"svc"}`, 400, "prefix_mode_invalid"},
	{"POST", "/usages", `{"service_id":"gone","prefix_mode":"auto","network_id":1}`, 404, "unknown_service"},
	{"POST", "/usages", `{"service_id":"bare","prefix_mode":"auto","network_id":1}`, 400, "service_domain_missing"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto"}`, 400, "network_id_missing"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"custom","network_id":1}`, 400, "prefix_empty"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"custom","network_id":1,"custom_prefix":"a b"}`, 400, "prefix_characters"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"custom","network_id":1,"custom_prefix":"_mesh"}`, 400, "prefix_reserved"},
	{"POST", "/usages", `{"service_id":"svc","prefix_mode":"custom","network_id":1,"custom_prefix":"OFFICE"}`, 400, "prefix_taken"},
	{"PUT", "/config", `{"enabled":1}`, 400, "parameter_error"},
	{"PUT", "/config", `{"retry_interval":1e30}`, 400, "parameter_error"},
	{"PUT", "/config", `{"txt_endpoints":[1]}`, 400, "parameter_error"},
	{"PUT", "/config", `{}`, 400, "provider_empty"},
	{"PUT", "/config", `{"provider":"x","access_key_id":"x","access_key_secret":"********","domain":"x","txt_record_name":"x"}`, 400, "secret_not_stored"},
	{"PUT", "/config", `{"provider":"x","access_key_id":"x","access_key_secret":"x","domain":"x","txt_record_name":"x","txt_endpoints":["x"]}`, 400, "endpoint_invalid"},
	{"POST", "/test", `{"write_test":1}`, 400, "parameter_error"},
	{"POST", "/test", `{"provider":"x","access_key_secret":"********"}`, 400, "secret_not_stored"},
	{"POST", "/services", `{"id":7}`, 400, "parameter_error"},
	{"POST", "/services", `{"id":"a b","name":"x","config":{}}`, 400, "service_id_invalid"},
	{"POST", "/services", `{"name":"","config":{}}`, 400, "service_name_empty"},
	{"POST", "/services", `{"name":"x","config":"x"}`, 400, "service_config_not_object"},
	{"POST", "/services", `{"name":"x","config":{"provider":1}}`, 400, "service_entry_not_string"},
	{"POST", "/services", `{"name":"x","config":{"token":"********"}}`, 400, "secret_not_stored"},
	{"POST", "/services", `{"name":"x","config":{"txt_endpoints":["x"]}}`, 400, "endpoint_invalid"},
	{"POST", "/services", `{"id":"svc","name":"x","config":{}}`, 409, "service_exists"},
	{"PUT", "/services/svc", `{"name":7}`, 400, "parameter_error"},
	{"PUT", "/services/svc", `{"name":"x"}`, 400, "service_config_not_object"},
	{"PUT", "/services/svc", `{"name":"x","config":{"domain":"example.com","token":"********"}}`, 400, "secret_not_stored"},
	{"PUT", "/services/svc", `{"name":"x","config":{"domain":"other.example"}}`, 409, "service_domain_in_use"},
	{"PUT", "/services/a%20b", `{"name":"x","config":{}}`, 400, "service_id_invalid"},
	{"PATCH", "/usages/{id}", `{"description":7}`, 400, "parameter_error"},
	{"PATCH", "/usages/{id}", `{"txt_endpoints":["x"]}`, 400, "endpoint_invalid"},
	{"PATCH", "/usages/{id}", `{"txt_endpoints":["tcp://` + strings.Repeat("x", 250) + `:1"],"description":"x"}`, 400, "value_too_long"},
	{"PATCH", "/usages/gone", `{}`, 404, "unknown_usage"},
	{"DELETE", "/usages/gone", ``, 404, "unknown_usage"},
	{"DELETE", "/usages/gone?force=1", ``, 404, "unknown_usage"},
	{"DELETE", "/services/gone", ``, 404, "unknown_service"},
	{"DELETE", "/services/svc", ``, 409, "service_in_use"},
	{"POST", "/sync", ``, 500, "sync_disabled"},
}

// What is refused leaves the database as it was, byte for byte.
func TestRefusedRequestsChangeNothing(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"s","domain":"example.com","txt_record_name":"_txt"}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{}}`)
	a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}`)
	db := a.open(t)
	defer db.Close()
	id := queryText(t, db, `SELECT id FROM usages`)[0]
	requests := slices.Clone(badRequests)
	for _, endpoint := range []string{"POST /usages", "PUT /config", "POST /test", "POST /services", "PUT /services/svc", "PUT /services/new", "PATCH /usages/{id}"} {
		method, path, _ := strings.Cut(endpoint, " ")
		for _, body := range badBodies {
			status, code := http.StatusBadRequest, "parameter_error"
			if len(body) > envelope.MaxBody {
				status, code = http.StatusRequestEntityTooLarge, "body_too_large"
			}
			requests = append(requests, badRequests[0])
			last := &requests[len(requests)-1]
			last.method, last.path, last.body, last.status, last.code = method, path, body, status, code
		}
	}
	eventually(t, "the engine has reviewed what was stored", func() bool {
		return queryText(t, a.store.reader, `SELECT (SELECT count(*) FROM pass WHERE requested <> '') + (SELECT count(*) FROM names WHERE lane = '' AND due > 0)`)[0] == "0"
	})
	before := a.files(t)
	for _, r := range requests {
		path := "/api/v1/ddns" + strings.ReplaceAll(r.path, "{id}", id)
		response, answer := a.do(t, r.method, path, nil, r.body)
		request := fmt.Sprintf("%s %s %.80q", r.method, path, r.body)
		checkEnvelope(t, request, response, answer)
		if code := response.Header.Get("X-Error-Code"); response.StatusCode != r.status || code != r.code {
			t.Errorf("%s: %d %s %s, want %d %s", request, response.StatusCode, code, answer, r.status, r.code)
		}
		if after := a.files(t); !bytes.Equal(after, before) {
			t.Fatalf("%s: the database is another one", request)
		}
	}
}

// files gives the bytes of the database and of its log.
func (a *appliance) files(t testing.TB) []byte {
	t.Helper()
	settle(a.store)
	var all []byte
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(a.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	return all
}

// rows are those of all tables.
func (a *appliance) rows(t *testing.T) (all []string) {
	t.Helper()
	for _, table := range queryText(t, a.store.reader, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`) {
		all = append(append(all, table), queryText(t, a.store.reader, `SELECT * FROM `+table+` ORDER BY 1`)...)
	}
	return all
}

// A body of 64 KiB is taken, one octet more is not, whether or not its length
// is told beforehand.
func TestBodyLimit(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	for request, body := range map[string]string{
		"PUT /services/other": `{"name":"x","config":{}}`,
		"POST /services":      `{"name":"x","config":{}}`,
		"POST /usages":        `{"service_id":"svc","prefix_mode":"auto","network_id":1}`,
		"POST /test":          `{}`,
		"PUT /config":         `{"provider":"x","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"x"}`,
	} {
		method, path, _ := strings.Cut(request, " ")
		for _, size := range []int{envelope.MaxBody, envelope.MaxBody + 1} {
			want := http.StatusOK
			if size > envelope.MaxBody {
				want = http.StatusRequestEntityTooLarge
			}
			padded := body + strings.Repeat(" ", size-len(body))
			for name, reader := range map[string]io.Reader{"told": strings.NewReader(padded), "chunked": io.MultiReader(strings.NewReader(padded))} {
				response, answer, err := a.exchange(method, "/api/v1/ddns"+path, nil, reader)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != want {
					t.Errorf("%s with %d octets (%s): %s %s", request, size, name, response.Status, answer)
				}
			}
		}
	}
}

// addUsages puts many usages into the database, every third without a binding.
func (a *appliance) addUsages(t testing.TB, count, descriptionSize int) {
	t.Helper()
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`
		INSERT INTO usages
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		SELECT i, printf('u%06d', i), 'svc', 'mesh_sync', 'custom', 'p' || i, 'TXT', hex(zeroblob(?2 / 2)), 1, '[]',
		       '_mesh.p' || i || '.example.com', '2026-01-02T03:04:05.678Z', 'pending', 0, '' FROM n;
		INSERT INTO bindings
		SELECT seq, 'b' || id, -seq, id, provider_id, 'active' FROM usages WHERE seq % 3 > 0;
		INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, NULL, '', 0 FROM usages`,
		count, descriptionSize); err != nil {
		t.Fatal(err)
	}
}

// page reads a listing.
func (a *appliance) page(t testing.TB, query string) (entries []string, next string) {
	t.Helper()
	var page struct {
		Data []json.RawMessage
		Next string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/usages/available?"+query, "")), &page); err != nil {
		t.Fatal(err)
	}
	for _, entry := range page.Data {
		entries = append(entries, string(entry))
	}
	return entries, page.Next
}

// The listing as one stream is the same as page by page.
func TestPagesAreTheStream(t *testing.T) {
	const count = 3000
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.addUsages(t, count, 2)
	whole, next := a.page(t, "")
	if len(whole) != count || next != "" {
		t.Fatalf("the stream has %d entries and the cursor %q", len(whole), next)
	}
	for _, limit := range []int{7, 500, 1000} {
		var paged []string
		for cursor, more := "", true; more; more = cursor != "" {
			var entries []string
			entries, cursor = a.page(t, fmt.Sprintf("limit=%d&cursor=%s", limit, cursor))
			if len(entries) > limit || cursor != "" && len(entries) < limit {
				t.Fatalf("limit=%d: %d entries", limit, len(entries))
			}
			paged = append(paged, entries...)
		}
		if !slices.Equal(paged, whole) {
			t.Errorf("limit=%d: the pages are not the stream", limit)
		}
	}
}

// odd is in SQL what JSON escapes, what it may, what is not UTF-8, and NUL.
const odd = `CAST(x'225c5c22000a1f7f2f3c3e26e280a8e280a9e280a7f09f9880ffe2805c' AS TEXT)`

// The listing is what encoding/json makes of the rows, a line each, whatever is in
// their texts, and whichever services they are of.
func TestListingIsTheRows(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"a\u001fb","config":{"domain":"example.com"}}`)
	a.must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{"domain":"example.org"}}`)
	a.addUsages(t, 1001, 2)
	db := a.open(t)
	defer db.Close()
	for _, change := range []string{
		`UPDATE usages SET provider_id = 'bare'`,
		`UPDATE usages SET description = CAST(x'0a22f09f9880ff3c00e280a8' AS TEXT), is_exclusive = seq % 2`,
		`UPDATE usages SET description = seq || ` + odd + ` WHERE seq % 3 > 0`,
		`UPDATE usages SET provider_id = 'svc', record_prefix = ` + odd + ` || seq WHERE seq % 2 = 1`,
		`UPDATE usages SET id = id || ` + odd + `, record_prefix = record_prefix || ` + odd + `, prefix_mode = 'auto' WHERE seq > 700`,
		`UPDATE services SET name = ` + odd + `, domain = domain || ` + odd + ` WHERE id = 'bare'`,
		`UPDATE usages SET description = replace('","|]["id","auto",1,null,7]', '|', char(92)) WHERE seq IN (100, 1001)`,
		`UPDATE usages SET record_type = 'A' WHERE seq IN (1, 21, 700)`,
		`UPDATE services SET domain = NULL WHERE id = 'svc'`,
		`UPDATE services SET domain = NULL`,
		`UPDATE usages SET provider_id = 'svc' WHERE seq > 900`,
		`PRAGMA foreign_keys = OFF; UPDATE usages SET provider_id = 'gone' || ` + odd + ` WHERE seq > 600`,
		`UPDATE services SET id = id || ` + odd + `; UPDATE usages SET provider_id = provider_id || ` + odd + ` WHERE seq < 400`,
		`DELETE FROM usages`,
	} {
		if _, err := db.Exec(change); err != nil {
			t.Fatal(err)
		}
		for query, f := range map[string]usageFilter{
			"": {}, "?service_id=bare": {serviceID: "bare"}, "?service_id=gone": {serviceID: "gone"},
			"?network_id=18446744073709551609": {network: sql.Null[sqlite.NetworkID]{V: math.MaxUint64 - 6, Valid: true}},
		} {
			if got, want := a.must(t, "GET", "/api/v1/ddns/usages/available"+query, ""), a.entries(t, f); got != want {
				t.Errorf("after %s the answer%s is not the rows:\n%.600s\nwant\n%.600s", change, query, got, want)
			}
		}
	}
}

// entries is the answer with the usages that a filter selects, as encoding/json writes them.
func (a *appliance) entries(t *testing.T, f usageFilter) string {
	t.Helper()
	usages, err := a.store.Usages(t.Context(), f, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	encoder := json.NewEncoder(&all)
	encoder.SetEscapeHTML(false)
	for i, u := range usages {
		if i > 0 {
			all.WriteString(",")
		}
		if err := encoder.Encode(u.entry(msg.Chinese)); err != nil {
			t.Fatal(err)
		}
	}
	return `{"data":[` + all.String() + "]}\n"
}

// All services are listed, in the order of their ids, in however many parts they are
// read and sent; and a list that breaks off does not look whole.
func TestManyServices(t *testing.T) {
	const count = 2*servicePage + 1
	a := newAppliance(t)
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`
		INSERT INTO services (id, name, config, zone, zone_key, provider, txt_endpoints, created_at, updated_at)
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('s%06d', i), '<' || i || '>', '{"x":"' || hex(zeroblob(32768)) || '"}', '', '', '', '[]', '', '' FROM n`, count); err != nil {
		t.Fatal(err)
	}
	var body struct{ Data []serviceAnswer }
	if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/services", "")), &body); err != nil || len(body.Data) != count {
		t.Fatalf("%d services, %v", len(body.Data), err)
	}
	for i, v := range body.Data {
		if v.ID != fmt.Sprintf("s%06d", i+1) || v.Name != fmt.Sprintf("<%d>", i+1) || len(v.Config) < 65536 {
			t.Fatalf("the service at %d is %s %s", i, v.ID, v.Name)
		}
	}
	response, err := a.http.Get(a.url + "/api/v1/ddns/services")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := db.Exec(`ALTER TABLE services RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v, and the log is\n%s", err, a.logs.String())
	}
	if response, _ := a.do(t, "GET", "/api/v1/ddns/services", nil, ""); response.StatusCode != 500 {
		t.Error(response.Status)
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	limit := time.After(patience)
	for !holds() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatal("not within", patience, what)
		}
	}
}

// A client that asks for a long listing and does not read it keeps nobody
// from writing, and no old state of the database alive.
func TestSlowReaderHoldsNobodyUp(t *testing.T) {
	const count = 3000
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.addUsages(t, count, 16<<10) // more than the sockets between client and server hold
	response, err := a.http.Get(a.url + "/api/v1/ddns/usages/available")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	db := a.open(t)
	defer db.Close()
	for i := range 20 {
		a.must(t, "PUT", "/api/v1/ddns/services/svc", fmt.Sprintf(`{"name":"%d","config":{"domain":"example.com"}}`, i))
	}
	eventually(t, "no reader is left", func() bool {
		return a.store.reader.Stats().InUse == 0 && strings.HasPrefix(queryText(t, db, `PRAGMA wal_checkpoint(TRUNCATE)`)[0], "0 ")
	})
	var listing struct{ Data []json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&listing); err != nil || len(listing.Data) != count {
		t.Errorf("%d entries, %v", len(listing.Data), err)
	}
}

// A listing that breaks off must not look whole.
func TestListingBrokenOff(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.addUsages(t, 3000, 16<<10)
	response, err := a.http.Get(a.url + "/api/v1/ddns/usages/available")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`ALTER TABLE usages RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer ends with %v", err)
	}
	if !strings.Contains(a.logs.String(), "answer broken off") {
		t.Error("nothing is logged")
	}
}

// A write that has begun is finished, also when its client has gone.
func TestWriteOutlivesItsClient(t *testing.T) {
	a := newAppliance(t)
	settle(a.store) // so that nobody else takes the writer
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "PUT", a.url+"/api/v1/ddns/services/svc", strings.NewReader(`{"name":"x","config":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		_, err := a.http.Do(request)
		gone <- err
	}()
	eventually(t, "the write waits for its turn", func() bool { return stands(".(*server).putService", "sqlite.(*Queue).Do") })
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("the client got an answer")
	}
	if _, err := db.Exec(`COMMIT`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service is stored", func() bool {
		_, err := a.store.Service(t.Context(), "svc")
		return err == nil
	})
}

// stands reports whether a goroutine is in all of some functions.
func stands(functions ...string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return slices.ContainsFunc(strings.Split(string(stacks), "\n\n"), func(stack string) bool {
		return !slices.ContainsFunc(functions, func(name string) bool { return !strings.Contains(stack, name) })
	})
}

// Whatever is asked and whatever fails: no answer and no line of the log has
// a secret in it.
func TestSecretsStayInside(t *testing.T) {
	const secret, encoded, quoted = "Zq9-hidden-Zq9", "WnE5LWhpZGRlbi1acTk=", `Zq9-\"hidden-Zq9`
	a := newAppliance(t)
	withConfig := func(provider, secret string) string {
		return `{"provider":"` + provider + `","access_key_id":"key.","access_key_secret":"` + secret + `","domain":"example.com","endpoint":"127.0.0.1:1",` +
			`"txt_record_name":"_txt","max_retries":0,"enabled":true,"write_test":true}`
	}
	withService := func(provider, secret string) string {
		return `{"name":"x","config":{"domain":"` + provider + `.example","provider":"` + provider + `","access_key_id":"key.","access_key_secret":"` + secret +
			`","endpoint":"127.0.0.1:1","API_TOKEN":"` + secret + `","deep":[{"password":"` + secret + `"}]}}`
	}
	var requests [][3]string
	add := func(method, path, body string) { requests = append(requests, [3]string{method, path, body}) }
	for _, provider := range []string{"builtin", "rfc2136", "nobody"} {
		for _, secret := range []string{secret, encoded, quoted} {
			add("PUT", "/config", withConfig(provider, secret))
			add("POST", "/test", withConfig(provider, secret))
			add("POST", "/test", withConfig(provider, "********"))
			add("PUT", "/config", withConfig(provider, "********"))
			add("POST", "/services", withService(provider, secret))
			add("PUT", "/services/"+provider, withService(provider, secret))
			add("PUT", "/services/"+provider, withService(provider, "********"))
			add("POST", "/usages", `{"service_id":"`+provider+`","prefix_mode":"auto","network_id":1}`)
			for _, path := range []string{"/config", "/services", "/services/" + provider, "/usages/available", "/sync", "/providers", "/check-prefix?service_id=x&prefix=x"} {
				add("GET", path, "")
			}
			add("POST", "/sync?dry_run=1", "")
			add("POST", "/sync", "")
			add("GET", "/sync", "")
		}
	}
	for _, body := range []string{
		secret, `"` + secret + `"`, `{"access_key_secret":["` + secret + `"]}`, `{"access_key_secret":"` + secret + `"`, `{"access_key_secret":"` + secret + `","access_key_secret":""}`,
		`{"name":"x","config":"` + secret + `"}`, `{"name":"x","config":{"access_key_secret":["` + secret + `"]}}`, `{"access_key_secret":"` + secret + `"}`,
	} {
		for _, endpoint := range []string{"PUT /config", "POST /test", "POST /services", "PUT /services/x", "POST /usages"} {
			method, path, _ := strings.Cut(endpoint, " ")
			add(method, path, body)
		}
	}
	db := a.open(t)
	defer db.Close()
	leaked := regexp.MustCompile(`hidden-Zq9|WnE5LWhp` + fmt.Sprintf("|%.6x|%.6x|%.6x", sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(encoded)), sha256.Sum256([]byte(`Zq9-"hidden-Zq9`))))
	for _, fault := range []string{``, `CREATE TRIGGER fault BEFORE UPDATE ON configuration BEGIN SELECT RAISE(ABORT, 'disk full'); END`, `ALTER TABLE services RENAME TO away`} {
		if _, err := db.Exec(fault); err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			response, answer := a.do(t, r[0], "/api/v1/ddns"+r[1], nil, r[2])
			if leaked.MatchString(answer + fmt.Sprint(response.Header)) {
				t.Errorf("%s %s %s: %s", r[0], r[1], r[2], answer)
			}
		}
	}
	a.do(t, "GET", "/metrics", nil, "")
	for line := range strings.Lines(a.logs.String()) {
		if leaked.MatchString(line) {
			t.Errorf("logged: %s", line)
		}
	}
}

// A domain in letters of any script is published as DNS has it, and shown as
// it was typed.
func TestDomainOfAnotherScript(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"Bücher.Example",
		"txt_record_name":"@","enabled":true,"txt_endpoints":["tcp://203.0.113.7:1"]}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.BÜCHER.example."}}`)
	reserved := a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Berlin","network_id":7}`)
	if !strings.Contains(reserved, `"full_domain":"_mesh.Berlin.mesh.BÜCHER.example."`) {
		t.Error(reserved)
	}
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	for _, name := range []string{"xn--bcher-kva.example", "_mesh.berlin.mesh.xn--bcher-kva.example"} {
		if got := a.ask(t, name); !strings.Contains(got, "tcp://203.0.113.7:1") {
			t.Errorf("%s has %q", name, got)
		}
	}
	for _, name := range []string{"xn--bcher-kva.example", "mesh.xn--bcher-kva.example"} { // above a zone there is a node
		if got := a.ask(t, name); strings.Contains(got, "NXDOMAIN") {
			t.Errorf("%s: %s", name, got)
		}
	}
	var usage struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(reserved), &usage); err != nil {
		t.Fatal(err)
	}
	a.must(t, "DELETE", "/api/v1/ddns/usages/"+usage.Data.ID, "")
	if got := a.ask(t, "_mesh.berlin.mesh.xn--bcher-kva.example"); strings.Contains(got, "203.0.113.7") {
		t.Errorf("after the release: %s", got)
	}
	for _, domain := range []string{"BÜCHER.example", "new.Bücher.example"} {
		if got := a.items(t, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"`+domain+`","txt_record_name":"@"}`); !strings.HasSuffix(got, "record ok") {
			t.Errorf("%s: %s", domain, got)
		}
	}
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.bücher.EXAMPLE","provider":"builtin"}}`)
	a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Rom","network_id":7}`)
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	if got := a.ask(t, "_mesh.rom.mesh.xn--bcher-kva.example"); !strings.Contains(got, "203.0.113.7") {
		t.Errorf("in a zone of the service's own: %s", got)
	}
	a.must(t, "PUT", "/api/v1/ddns/services/long", `{"name":"x","config":{"domain":"`+strings.Repeat("ü", 40)+`.example"}}`) // 80 octets typed, 46 in DNS
	a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"long","prefix_mode":"custom","custom_prefix":"x","network_id":7}`)
	status, code, answer := a.call(t, "PUT", "/api/v1/ddns/services/odd", `{"name":"x","config":{"domain":"two ☃.example","provider":"builtin"}}`)
	if status != http.StatusBadRequest || code != "service_domain_invalid" || !strings.Contains(answer, "☃") {
		t.Errorf("%d %s %s, want the label that is refused", status, code, answer)
	}
}

// cloudConfig is a configuration for a stand-in of a cloud.
func cloudConfig(c *cloudtest.Cloud, change func(map[string]any)) string {
	fields := map[string]any{
		"provider": c.Provider, "access_key_id": c.AccessKeyID, "access_key_secret": c.AccessKeySecret, "endpoint": c.URL,
		"domain": "mesh." + cloudtest.Zone, "txt_record_name": "_txt", "enabled": true, "max_retries": 0,
		"txt_endpoints": []string{"tcp://203.0.113.7:1"},
	}
	if change != nil {
		change(fields)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// items is the answer of POST /test in short: the names, and the codes of
// those that are not simply ok; a warning is ok with a code.
func (a *appliance) items(t testing.TB, body string) string {
	t.Helper()
	var answer struct {
		Data struct {
			Results []struct {
				Name, Code  string
				OK, Skipped bool
			}
		}
	}
	text := a.must(t, "POST", "/api/v1/ddns/test", body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	var items []string
	for _, item := range answer.Data.Results {
		word := item.Code
		if item.OK && word != "ok" {
			word = "ok, " + word
		}
		items = append(items, item.Name+" "+word)
	}
	return strings.Join(items, "; ")
}

// noResolver is a public DNS that nobody can look into.
func noResolver(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no network")
}

// publicDNS makes one server all of the public DNS.
func publicDNS(t testing.TB, address string) probe.Public {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return probe.Public{Port: port, Root: servertest.Zone, Patience: time.Second, Resolver: servertest.Resolver(address)}
}

// The connection test says of every cloud which setting is wrong.
func TestCloudConnectionTest(t *testing.T) {
	const fine = "params ok; network ok; auth ok; zone ok; record ok"
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := newAppliance(t)
		a.public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		set := func(name string, value any) func(map[string]any) {
			return func(fields map[string]any) { fields[name] = value }
		}
		for _, test := range []struct {
			what   string
			change func(map[string]any)
			want   string
		}{
			{"right", nil, fine},
			{"wrong secret", set("access_key_secret", "another-secret"), "params ok; network ok; auth credentials; zone skipped; record skipped"},
			{"no such server", set("endpoint", "http://127.0.0.1:1"), "params ok; network network; auth skipped; zone skipped; record skipped"},
			{"no endpoint", set("endpoint", "ftp://127.0.0.1"), "params invalid; network skipped; auth skipped; zone skipped; record skipped"},
			{"other zone", set("domain", "example.net"), "params ok; network ok; auth ok; zone zone_not_found; record skipped"},
			{"no domain name", set("domain", "exa mple.com"), "params invalid_name; network skipped; auth skipped; zone skipped; record skipped"},
			{"no letters", set("domain", "\U0001f600.example"), "params invalid_name; network skipped; auth skipped; zone skipped; record skipped"},
			{"another script", set("domain", "中文.example"), fine},
			{"with a write", set("write_test", true), fine + "; write ok; read ok; authoritative no_resolver; cleanup ok"},
		} {
			if got := a.items(t, cloudConfig(c, test.change)); got != test.want {
				t.Errorf("%s: %s, want %s", test.what, got, test.want)
			}
		}
		c.Fail(cloudtest.Throttle)
		if got := a.items(t, cloudConfig(c, nil)); !strings.HasPrefix(got, "params ok; network throttled;") {
			t.Errorf("throttled: %s", got)
		}
		c.SetClock(time.Hour)
		skewed := a.items(t, cloudConfig(c, nil))
		if want := "params ok; network ok; auth clock_skew; zone skipped; record skipped"; skewed != fine && skewed != want || c.Signed && skewed != want {
			t.Errorf("wrong clock: %s", skewed)
		}
	})
}

// The connection test warns when the world asks somebody else about the zone,
// and sees a written value with the world's eyes.
func TestPublicDNS(t *testing.T) {
	s := servertest.PowerDNS(t)
	cloud := cloudtest.AliDNS(t)
	a := newAppliance(t)
	a.public = publicDNS(t, s.Addr)
	at := func(c *cloudtest.Cloud, domain string) string {
		return cloudConfig(c, func(fields map[string]any) { fields["domain"], fields["write_test"] = domain, true })
	}
	server := &cloudtest.Cloud{Provider: "powerdns", AccessKeyID: "localhost", AccessKeySecret: s.APIKey, URL: s.API}
	for _, test := range []struct{ what, body, want string }{
		{"the provider's own servers", at(server, servertest.Zone), "zone ok; record ok; write ok; read ok; authoritative ok; cleanup ok"},
		{"other servers", at(cloud, cloudtest.Zone), "zone ok, not_delegated; record ok; write ok; read ok; authoritative value_missing; cleanup ok"},
		{"no servers", at(cloud, cloudtest.ChildZone), "zone ok, not_delegated; record ok; write ok; read ok; authoritative not_delegated; cleanup ok"},
	} {
		if got := a.items(t, test.body); got != "params ok; network ok; auth ok; "+test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
}

// A vendor that repeats the secret in every answer does not bring it into an
// answer or a line of the log.
func TestCloudSecretsStayInside(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := newAppliance(t)
		a.public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		said := ""
		ask := func(method, path, body string) {
			response, answer := a.do(t, method, "/api/v1/ddns"+path, nil, body)
			said += fmt.Sprintln(method, path, response.Header, answer)
		}
		calls := func() {
			ask("PUT", "/config", cloudConfig(c, nil))
			ask("PUT", "/services/svc", `{"name":"x","config":`+cloudConfig(c, nil)+`}`)
			ask("POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
			ask("POST", "/test", cloudConfig(c, func(fields map[string]any) { fields["write_test"] = true }))
			ask("POST", "/sync?dry_run=1", "")
			ask("POST", "/sync", "")
			for _, path := range []string{"/config", "/services", "/services/svc", "/usages/available", "/sync"} {
				ask("GET", path, "")
			}
		}
		calls()
		octets := func(format string) (all string) {
			for _, octet := range []byte(c.AccessKeySecret) {
				all += fmt.Sprintf(format, octet)
			}
			return all
		}
		writings := []string{
			c.AccessKeySecret, strings.ToUpper(c.AccessKeySecret), octets("%%%02x"), octets("%%%02X"), octets("%02x"), octets("&#%d;"), octets(`\\u%04x`),
			base64.StdEncoding.EncodeToString([]byte(c.AccessKeySecret)), base64.RawURLEncoding.EncodeToString([]byte("k:" + c.AccessKeySecret)),
		}
		for _, status := range []int{200, 400, 401, 403, 429, 500} {
			for _, body := range []string{"%s", `{"Code":"%[1]s","Message":"%[1]s","code":"%[1]s","message":"%[1]s","error":"%[1]s","error_msg":"%[1]s"}`,
				`{"Response":{"Error":{"Code":"x","Message":"%s"},"RequestId":"r"}}`, "<ErrorResponse><Error><Code>x</Code><Message>%s</Message></Error></ErrorResponse>"} {
				for range 40 {
					c.Fail(cloudtest.Instead(cloudtest.Answer{Status: status, Body: fmt.Sprintf(body, strings.Join(writings, " ")+`\u001b\u009b\u202e`)}))
				}
				calls()
				c.FailNoMore()
			}
		}
		for line := range strings.Lines(said + a.logs.String()) {
			for _, writing := range writings {
				if strings.Contains(line, writing) || strings.Contains(line, strings.ReplaceAll(writing, `\\`, `\`)) {
					t.Errorf("the secret is in %s", line)
				}
			}
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("what is no text is in %q", line)
			}
		}
	})
}

// Each change is one audit line, and so is a backup; a reading is none. It says who,
// what, which and how it ended, and nothing of a body.
func TestAuditLines(t *testing.T) {
	a := newAppliance(t)
	config := `{"provider":"builtin","access_key_id":"secret-key","access_key_secret":"secret-word","domain":"example.com","txt_record_name":"_txt"}`
	long := strings.Repeat("x", 5000)
	for _, step := range []struct{ method, path, body, want string }{
		{"PUT", "/services/svc", `{"name":"secret-name","config":{"domain":"example.com"}}`, `what="PUT /api/v1/ddns/services/{id}" id=svc status=200 code=""`},
		{"POST", "/services", `{"id":"svc","name":"x","config":{}}`, `what="POST /api/v1/ddns/services" id=svc status=409 code=service_exists`},
		{"POST", "/services", `{"name":"x","config":{}}`, `what="POST /api/v1/ddns/services" id=<id> status=200 code=""`},
		{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`, `what="POST /api/v1/ddns/usages" id=<id> status=200 code=""`},
		{"POST", "/usages", `secret-body`, `what="POST /api/v1/ddns/usages" id="" status=400 code=parameter_error`},
		{"DELETE", "/services/svc", "", `what="DELETE /api/v1/ddns/services/{id}" id=svc status=409 code=service_in_use`},
		{"DELETE", "/usages/gone?force=1", "", `what="DELETE /api/v1/ddns/usages/{id}?force" id=gone status=404 code=unknown_usage`},
		{"DELETE", "/usages/gone?force=1&secret=secret", "", `what="DELETE /api/v1/ddns/usages/{id}?force" id=gone status=400 code=query_invalid`},
		{"DELETE", "/usages/gone?force=0", "", `what="DELETE /api/v1/ddns/usages/{id}" id=gone status=404 code=unknown_usage`},
		{"DELETE", "/services/" + long, "", `what="DELETE /api/v1/ddns/services/{id}" id=` + long[:128] + ` status=404 code=unknown_service`},
		{"PUT", "/config", config, `what="PUT /api/v1/ddns/config" id="" status=200 code=""`},
		{"PUT", "/config", strings.Repeat("secret", 20000), `what="PUT /api/v1/ddns/config" id="" status=413 code=body_too_large`},
		{"POST", "/adopt?dry_run=1", `{"owner":"0123456789ab"}`, `what="POST /api/v1/ddns/adopt?dry_run" id=0123456789ab status=200 code=""`},
		{"POST", "/adopt", `{"owner":"0123456789ab"}`, `what="POST /api/v1/ddns/adopt" id=0123456789ab status=200 code=""`},
		{"GET", "/backup", "", `what="GET /api/v1/ddns/backup" id="" status=200 code=""`},
		{"GET", "/services", "", ""},
		{"GET", "/config", "", ""},
	} {
		before := len(a.logs.String())
		a.call(t, step.method, "/api/v1/ddns"+step.path, step.body)
		lines := regexp.MustCompile(`msg=change .*`).FindAllString(uuidText.ReplaceAllString(a.logs.String()[before:], "<id>"), -1)
		if got, want := strings.Join(lines, "\n"), "msg=change who=127.0.0.1 "+step.want; got != want && (step.want != "" || got != "") {
			t.Errorf("%s %.80s: logged\n%q, want\n%q", step.method, step.path, got, want)
		}
	}
	if strings.Contains(a.logs.String(), "secret") {
		t.Error("a secret is in the log")
	}
}

// What the guard refuses is answered as everything else.
func TestGuardAnswersInTheEnvelope(t *testing.T) {
	a := newAppliance(t)
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("first-token-of-the-two\nsecond-token-of-the-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := guard.OpenTokens(file, "")
	if err != nil {
		t.Fatal(err)
	}
	guarded := httptest.NewServer(guard.TCP(guard.Config{Tokens: tokens, Deny: a.deny, Now: time.Now}, a.routes()))
	defer guarded.Close()
	a.url = guarded.URL
	ask := func(path string, headers map[string]string) (int, string) {
		request, err := http.NewRequest("GET", a.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		request.Host = headers["Host"]
		response, err := a.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		checkEnvelope(t, path, response, string(content))
		return response.StatusCode, response.Header.Get("X-Error-Code")
	}
	const good, bad = "Bearer second-token-of-the-two", "Bearer nonsense"
	for _, test := range []struct {
		path    string
		headers map[string]string
		status  int
		code    string
	}{
		{"/api/v1/ddns/config", nil, 401, "unauthorized"},
		{"/nothing", nil, 401, "unauthorized"},
		{"/healthz", nil, 200, ""},
		{"/healthz", map[string]string{"Host": "evil.example"}, 200, ""},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good}, 200, ""},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good, "Host": "evil.example"}, 403, "host_not_allowed"},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good, "Sec-Fetch-Site": "cross-site"}, 403, "cross_site"},
	} {
		if status, code := ask(test.path, test.headers); status != test.status || code != test.code {
			t.Errorf("%s %v: %d %s, want %d %s", test.path, test.headers, status, code, test.status, test.code)
		}
	}
	for range 10 {
		ask("/api/v1/ddns/config", map[string]string{"Authorization": bad})
	}
	if status, code := ask("/api/v1/ddns/config", map[string]string{"Authorization": bad}); status != 429 || code != "too_many_attempts" {
		t.Errorf("the eleventh wrong token: %d %s", status, code)
	}
}

// Without -dns-listen the built-in provider says so, and publishes nothing.
func TestBuiltinWithoutServer(t *testing.T) {
	a := newAppliance(t, func(a *appliance) { a.clients.dnsAddress = "" })
	config := `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","enabled":true}`
	a.must(t, "PUT", "/api/v1/ddns/config", config)
	if answer := a.must(t, "POST", "/api/v1/ddns/test", config); !strings.Contains(answer, `"code":"not_listening"`) {
		t.Error(answer)
	}
	if status, code, answer := a.call(t, "POST", "/api/v1/ddns/sync", ""); status != 500 || code != "sync_failed" || !strings.Contains(answer, "-dns-listen") {
		t.Error(status, code, answer)
	}
}

// The operator's three: health is in a script, the other two are no JSON.
func TestMetrics(t *testing.T) {
	sqliteVersion, _, _ := sqlite3.Version()
	a := newAppliance(t, func(a *appliance) {
		a.store.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC) }
	})
	a.call(t, "POST", "/api/v1/ddns/sync", "")
	a.must(t, "PUT", "/api/v1/ddns/config",
		`{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","enabled":true}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	a.call(t, "GET", "/api/v1/ddns/services/a-path-is-no-label", "")
	a.call(t, "GET", "/a-path-is-no-label", "")
	a.ask(t, "_txt.example.com")
	response, page := a.do(t, "GET", "/metrics", nil, "")
	if got := response.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("Content-Type %q", got)
	}
	for _, want := range []string{
		`meshddns_build_info{version="test",goversion="` + runtime.Version() + `",sqlite="` + sqliteVersion + `"} 1`, `meshddns_services 1`, `meshddns_usages 1`, `meshddns_records{state="published"} 2`,
		`meshddns_http_requests_total{route="POST /api/v1/ddns/usages",code="200"} 1`,
		`meshddns_http_requests_total{route="GET /api/v1/ddns/services/{id}",code="404"} 1`,
		`meshddns_http_requests_total{route="POST /api/v1/ddns/sync",code="500",error="sync_not_configured"} 1`,
		`meshddns_http_requests_total{route="",code="404"} 1`, `meshddns_sync_runs_total{result="ok"} 1`, `meshddns_dns_answers_total{rcode="NOERROR"} 1`,
		`# TYPE meshddns_dns_cached_names gauge`, `meshddns_sync_last_success_timestamp_seconds 1767323045.678`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, "a-path-is-no-label") {
		t.Errorf("a path is a label:\n%s", page)
	}
}

// TestMetricsOfZones has a real server fail for a while, with two accounts at its zone: one zone is down as long as
// both fail, or one.
func TestMetricsOfZones(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	relay := servertest.Relay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() {
			return servertest.ServFail(query, forward)
		}
		return forward()
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	a := newAppliance(t, func(a *appliance) { a.store.now = func() time.Time { return at } })
	account := fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"domain":"example.com"`, servertest.Key, servertest.Secret)
	a.must(t, "PUT", "/api/v1/ddns/config", `{`+account+`,"endpoint":"`+relay+`","txt_record_name":"_mesh-host","max_retries":0,"enabled":true}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{`+account+`,"endpoint":"`+servertest.ClosedPort(t)+`"}}`)
	a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
	db := a.open(t)
	defer db.Close()
	lines := func() []string {
		return regexp.MustCompile(`(?m)^meshddns_zone_.*$`).FindAllString(a.must(t, "GET", "/metrics", ""), -1)
	}
	want := func(when string, want ...string) {
		t.Helper()
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	const temporary = `meshddns_zone_down_since_timestamp_seconds{provider="rfc2136",zone="example.com",code="temporary"} 1767323045.678`
	want("before the first synchronisation")
	down.Store(true)
	a.call(t, "POST", "/api/v1/ddns/sync", "")
	want("both are down", temporary)
	down.Store(false)
	a.call(t, "POST", "/api/v1/ddns/sync", "")
	want("one is down", temporary)
	a.must(t, "DELETE", "/api/v1/ddns/usages/"+queryText(t, db, `SELECT id FROM usages`)[0]+"?force=1", "")
	for range 3 {
		a.must(t, "POST", "/api/v1/ddns/sync", "")
	}
	want("none is down")
}

// What can be counted is there before it has happened: an alert on an increase sees
// the first one. The page is as the people of Prometheus want one.
func TestMetricsFromTheStart(t *testing.T) {
	a := newAppliance(t)
	_, page := a.do(t, "GET", "/metrics", nil, "")
	for _, want := range []string{
		`meshddns_services 0`, `meshddns_records{state="leftover"} 0`, `meshddns_sync_runs_total{result="ok"} 0`, `meshddns_sync_runs_total{result="failed"} 0`,
		`meshddns_sync_last_success_timestamp_seconds 0`, `meshddns_backup_runs_total{result="failed"} 0`, `meshddns_backup_last_success_timestamp_seconds 0`,
		`meshddns_http_requests_total{route="DELETE /api/v1/ddns/usages/{id}",code="200"} 0`, `meshddns_http_requests_total{route="",code="401"} 0`,
		`meshddns_dns_answers_total{rcode="SERVFAIL"} 0`, `meshddns_dns_answers_total{rcode="BADVERS"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s in\n%s", want, page)
		}
	}
	a.must(t, "GET", "/api/v1/ddns/backup", "")
	eventually(t, "the backup is counted", func() bool {
		_, page := a.do(t, "GET", "/metrics", nil, "")
		return strings.Contains(page, "meshddns_backup_runs_total{result=\"ok\"} 1\n") && !strings.Contains(page, "meshddns_backup_last_success_timestamp_seconds 0\n")
	})
	operate, err := os.ReadFile("docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(string(operate), "`"+family[1]+"`") {
			t.Errorf("docs/operate.md says nothing of %s", family[1])
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("promtool is not installed")
		}
		t.Skip("promtool is not installed")
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(page)
	if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}

// The contract that is served is the one in docs, and has the routes of the program,
// all of them and no other.
func TestContract(t *testing.T) {
	a := newAppliance(t)
	response, text := a.do(t, "GET", "/api/v1/ddns/openapi.json", nil, "")
	if file, err := os.ReadFile("docs/openapi.json"); err != nil || response.StatusCode != 200 || text != string(file) {
		t.Errorf("%s, %v: %.100s", response.Status, err, text)
	}
	if got := response.Header.Get("Content-Type"); got != envelope.MediaType {
		t.Errorf("Content-Type %q", got)
	}
	var contract struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(text), &contract); err != nil {
		t.Fatal(err)
	}
	var written, served []string
	_, page := a.do(t, "GET", "/metrics", nil, "")
	for _, match := range regexp.MustCompile(`_requests_total\{route="([^"]+)",code="200"\}`).FindAllStringSubmatch(page, -1) {
		served = append(served, match[1])
	}
	for path, item := range contract.Paths {
		for method := range item {
			if method != "parameters" {
				written = append(written, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(written)
	if slices.Sort(served); !slices.Equal(written, served) {
		t.Errorf("docs/openapi.json has the routes\n%q\nthe program has\n%q", written, served)
	}
}

// What an earlier run of the program has synchronised is not forgotten.
func TestLastSuccessOutlivesTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	t.Run("first run", func(t *testing.T) {
		a := newApplianceOn(t, path)
		a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"@","enabled":true}`)
		a.must(t, "POST", "/api/v1/ddns/sync", "")
	})
	a := newApplianceOn(t, path)
	eventually(t, "the time is known", func() bool {
		_, page := a.do(t, "GET", "/metrics", nil, "")
		return strings.Contains(page, "\nmeshddns_sync_last_success_timestamp_seconds 1")
	})
}

// A backup is one whole database, also while others write: a usage never
// stands in it without its binding.
func TestBackup(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			body := `{"service_id":"svc","prefix_mode":"auto","network_id":1}`
			if response, answer, err := a.exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body)); err != nil || response.StatusCode != 200 {
				t.Error(answer, err)
				return
			}
		}
	})
	defer writing.Wait()
	defer stop()
	for i := range 10 {
		response, content := a.do(t, "GET", "/api/v1/ddns/backup", nil, "")
		if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != "application/vnd.sqlite3" || !strings.HasPrefix(content, "SQLite format 3\x00") {
			t.Fatalf("%s, Content-Type %q, %.40q", response.Status, got, content)
		}
		copied := &appliance{path: filepath.Join(t.TempDir(), fmt.Sprint(i))}
		if err := os.WriteFile(copied.path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		db := copied.open(t)
		defer db.Close()
		for query, want := range map[string]string{
			`PRAGMA integrity_check`:      "ok",
			`SELECT count(*) FROM usages`: queryText(t, db, `SELECT count(*) FROM bindings`)[0],
			`SELECT id FROM services`:     "svc",
		} {
			if got := queryText(t, db, query); !slices.Equal(got, []string{want}) {
				t.Errorf("backup %d: %s = %q, want %q", i, query, got, want)
			}
		}
	}
	left, err := os.ReadDir(filepath.Dir(a.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		if !strings.HasPrefix(file.Name(), filepath.Base(a.path)) {
			t.Errorf("%s is left", file.Name())
		}
	}
}

// One backup at a time: a second is refused until the first is sent or its client has
// gone. Each is a line of the audit.
func TestOneBackupAtATime(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.addUsages(t, 3000, 16<<10) // more than the sockets between client and server hold
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", a.url+"/api/v1/ddns/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	second, answer := a.do(t, "GET", "/api/v1/ddns/backup", nil, "")
	if second.StatusCode != 409 || second.Header.Get("X-Error-Code") != "backup_runs" || !strings.HasPrefix(answer, `{"error":`) {
		t.Errorf("%s %.200s", second.Status, answer)
	}
	cancel()
	eventually(t, "the next one is made", func() bool {
		next, _ := a.do(t, "GET", "/api/v1/ddns/backup", nil, "")
		return next.StatusCode == 200
	})
	for _, line := range []string{`msg=change who=127.0.0.1 what="GET /api/v1/ddns/backup" id="" status=200 code=""`, `status=409 code=backup_runs`} {
		if !strings.Contains(a.logs.String(), line) {
			t.Errorf("no %s in\n%s", line, a.logs.String())
		}
	}
}

// atEnd is an answer whose client does something as soon as it has it all.
type atEnd struct {
	*httptest.ResponseRecorder
	do func()
}

func (a *atEnd) Write(p []byte) (int, error) {
	n, err := a.ResponseRecorder.Write(p)
	if length := a.Header().Get("Content-Length"); a.do != nil && length == strconv.Itoa(a.Body.Len()) {
		do := a.do
		a.do = nil
		do()
	}
	return n, err
}

// Who has a whole backup may ask for the next one at once.
func TestBackupAfterBackup(t *testing.T) {
	a := newAppliance(t)
	request := httptest.NewRequest("GET", "/api/v1/ddns/backup", nil)
	second := httptest.NewRecorder()
	first := &atEnd{httptest.NewRecorder(), func() { a.server.routes().ServeHTTP(second, request.Clone(t.Context())) }}
	a.server.routes().ServeHTTP(first, request)
	if first.Code != http.StatusOK || first.do != nil || second.Code != http.StatusOK {
		t.Errorf("%d, then %d %.200s", first.Code, second.Code, second.Body)
	}
}

// Each backup is another copy, so a part of one fits to no part of the next:
// there are only whole ones.
func TestBackupHasNoRanges(t *testing.T) {
	a := newAppliance(t)
	for _, part := range []string{"bytes=16-", "bytes=0-15", "bytes=0-1,4-5", "bytes=99999999-"} {
		response, content := a.do(t, "GET", "/api/v1/ddns/backup", http.Header{"Range": {part}}, "")
		if got := response.Header.Get("Accept-Ranges"); response.StatusCode != 200 || got == "bytes" || !strings.HasPrefix(content, "SQLite format 3\x00") {
			t.Errorf("%s: %s, Accept-Ranges %q, %.40q", part, response.Status, got, content)
		}
	}
}

// Two clients that change two members of one usage do not undo each other.
func TestChangesOfOneUsageAtOnce(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	path := "/api/v1/ddns/usages/" + uuidText.FindString(a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`))
	for round := range 50 {
		changes := []string{fmt.Sprintf(`{"txt_endpoints":["tcp://a:%d"]}`, round+1), fmt.Sprintf(`{"description":"%d"}`, round+1)}
		var changing sync.WaitGroup
		for _, change := range changes {
			changing.Go(func() {
				if response, answer, err := a.exchange("PATCH", path, nil, strings.NewReader(change)); err != nil || response.StatusCode != 200 {
					t.Error(answer, err)
				}
			})
		}
		changing.Wait()
		answer := a.must(t, "GET", path, "")
		for _, change := range changes {
			if !strings.Contains(answer, strings.Trim(change, "{}")) {
				t.Fatalf("round %d: no %s in %s", round, change, answer)
			}
		}
	}
}

const inExampleCom = `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","max_retries":0,"enabled":true`

// report is the answer of GET /sync.
type report struct {
	OK, Complete bool
	Counts       map[string]int
	Records      []struct{ Name, Action string }
	NextAt       *time.Time `json:"next_at"`
}

func (a *appliance) report(t testing.TB) (r report) {
	t.Helper()
	var answer struct{ Data report }
	if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/sync", "")), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Data
}

func (a *appliance) reserve(t testing.TB, service, prefix string, network int) (id string) {
	t.Helper()
	return uuidText.FindString(a.must(t, "POST", "/api/v1/ddns/usages",
		fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, service, prefix, network)))
}

// stands reports whether the built-in server answers with the value of a network.
func (a *appliance) stands(t testing.TB, name string, network int) bool {
	t.Helper()
	return strings.HasPrefix(a.ask(t, name), fmt.Sprintf(`NOERROR "v=mesh1 n=%d `, network))
}

// A value that stands is told, also while no configuration says where it is wanted.
func TestValueWithoutConfiguration(t *testing.T) {
	a, c := newAppliance(t), cloudtest.Webhook(t)
	configure := func(enabled bool) {
		a.must(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"_txt","enabled":%t}`,
			c.AccessKeyID, c.AccessKeySecret, c.URL, cloudtest.Zone, enabled))
	}
	configure(true)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"`+cloudtest.Zone+`"}}`)
	id := a.reserve(t, "svc", "office", 7)
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	configure(false)
	a.call(t, "DELETE", "/api/v1/ddns/config", "")
	eventually(t, "the state follows", func() bool {
		return strings.Contains(a.must(t, "GET", "/api/v1/ddns/usages/"+id, ""), `"state":"none","value":"v=mesh1 n=7 `)
	})
	if len(c.Values(t, "_mesh.office."+cloudtest.Zone)) != 1 {
		t.Error("the value does not stand")
	}
}

// Built-in zones may lie within each other, and their names may begin alike:
// what stands in one is no orphan of the other, and no sweep takes it away.
func TestBuiltinZonesBesideEachOther(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	names := map[string]int{}
	for i, domain := range []string{"example.com", "mesh.example.com", "example-two.com", "sub.example-two.com", "exam.com"} {
		id := fmt.Sprint("s", i)
		a.must(t, "PUT", "/api/v1/ddns/services/"+id, `{"name":"x","config":{"domain":"`+domain+`","provider":"builtin"}}`)
		a.reserve(t, id, "a", i+1)
		names["_mesh.a."+domain] = i + 1
	}
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	for _, query := range []string{"", "?sweep=1", "?sweep=1"} {
		a.must(t, "POST", "/api/v1/ddns/sync"+query, "")
		r := a.report(t)
		if r.Counts["orphan"] != 0 || r.Counts["delete"] != 0 || r.Counts["unchanged"] != len(names)+1 {
			t.Errorf("%q: %v", query, r.Counts)
		}
		for name, network := range names {
			if !a.stands(t, name, network) {
				t.Errorf("%q: %s is not there", query, name)
			}
		}
	}
}

// A built-in zone is made within another, and goes again: the values below it
// stand all the time.
func TestBuiltinZoneCuts(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.example.com"}}`)
	a.reserve(t, "svc", "a", 1)
	check := func(when string) {
		t.Helper()
		for range 3 {
			a.must(t, "POST", "/api/v1/ddns/sync", "")
			if !a.stands(t, "_mesh.a.mesh.example.com", 1) {
				t.Errorf("%s: the value does not stand", when)
			}
		}
	}
	check("published")
	a.must(t, "PUT", "/api/v1/ddns/services/inner", `{"name":"x","config":{"domain":"mesh.example.com","provider":"builtin"}}`)
	check("after a zone was made")
	a.must(t, "DELETE", "/api/v1/ddns/services/inner", "")
	check("after it has gone")
}

// A database that fails is said at once, not after the time that a pass may take.
func TestSyncSaysThatTheDatabaseFails(t *testing.T) {
	for _, table := range []string{"configuration", "pass", "names"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			a := newAppliance(t)
			a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
			a.must(t, "POST", "/api/v1/ddns/sync", "")
			db := a.open(t)
			defer db.Close()
			if _, err := db.Exec(`ALTER TABLE ` + table + ` RENAME TO away`); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			status, code, answer := a.call(t, "POST", "/api/v1/ddns/sync", "")
			if status != http.StatusInternalServerError || code != "internal_error" || time.Since(begun) > syncTime/2 {
				t.Errorf("%d %s %s after %v", status, code, answer, time.Since(begun))
			}
		})
	}
}

// An outcome that cannot be stored is not one: the pass goes on until it is.
func TestOutcomeThatIsNotStored(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`CREATE TRIGGER fault BEFORE UPDATE ON places WHEN NEW.state = 'published' BEGIN SELECT RAISE(ABORT, 'disk full'); END`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 1)
	go func() {
		response, answer, err := a.exchange("POST", "/api/v1/ddns/sync", nil, strings.NewReader(""))
		if err != nil {
			answered <- err.Error()
			return
		}
		answered <- response.Status + " " + answer
	}()
	eventually(t, "the fault is logged", func() bool { return strings.Contains(a.logs.String(), "disk full") })
	if _, err := db.Exec(`DROP TRIGGER fault`); err != nil {
		t.Fatal(err)
	}
	if answer := <-answered; !strings.HasPrefix(answer, "200 OK") {
		t.Fatal(answer)
	}
	if r := a.report(t); r.Counts["unchanged"]+r.Counts["create"] != 1 || !r.OK {
		t.Errorf("after the fault: %+v", r)
	}
	if got := queryText(t, db, `SELECT state FROM places`); len(got) != 1 || got[0] != "published" {
		t.Errorf("the place is %q", got)
	}
}

// A report tells of the next pass where one is planned: not in mode manual.
func TestNextPass(t *testing.T) {
	a := newAppliance(t)
	for range 20 {
		a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
		a.must(t, "POST", "/api/v1/ddns/sync", "")
		if next := a.report(t).NextAt; next != nil {
			t.Fatalf("in mode manual a pass is planned at %v", next)
		}
	}
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`,"sync_mode":"auto"}`)
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	eventually(t, "a pass is planned", func() bool { return a.report(t).NextAt != nil })
}

// A name counts once in a report, whether it was changed just before or not.
func TestReportCountsANameOnce(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	var id string
	for _, service := range []string{"one", "two"} {
		a.must(t, "PUT", "/api/v1/ddns/services/"+service, `{"name":"x","config":{"domain":"example.com"}}`)
		id = a.reserve(t, service, "a", len(service+id))
	}
	for round := range 60 {
		a.must(t, "PATCH", "/api/v1/ddns/usages/"+id, fmt.Sprintf(`{"description":"%d"}`, round))
		_, _, answer := a.call(t, "POST", "/api/v1/ddns/sync", "")
		r := a.report(t)
		delete(r.Counts, "create")
		delete(r.Counts, "unchanged")
		maps.DeleteFunc(r.Counts, func(_ string, count int) bool { return count == 0 })
		if want := map[string]int{"conflict": 1}; !maps.Equal(r.Counts, want) || !strings.Contains(answer, "1 / 2 ") {
			t.Fatalf("round %d: %v, %s", round, r.Counts, answer)
		}
	}
}

// A custom prefix is taken by every usage of the service, of whatever mode.
func TestPrefixIsTakenByAnyUsage(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`INSERT INTO usages VALUES (1, 'u', 'svc', 'mesh_sync', 'auto', 'old', 'TXT', '', 1, '[]', '_mesh.old.example.com', '', 'none', 0, '')`); err != nil {
		t.Fatal(err)
	}
	if status, code, answer := a.call(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"OLD","network_id":1}`); code != "prefix_taken" {
		t.Errorf("%d %s %s", status, code, answer)
	}
}

// Who releases the newest of two usages of a network takes its endpoints out of
// the record: that is a person's order, in mode manual too.
func TestReleaseOfTheNewestUsage(t *testing.T) {
	a := newAppliance(t)
	a.must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var ids []string
	for _, endpoint := range []string{"tcp://elder:1", "tcp://newest:1"} {
		id := uuidText.FindString(a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":42}`))
		a.must(t, "PATCH", "/api/v1/ddns/usages/"+id, `{"txt_endpoints":["`+endpoint+`"]}`)
		ids = append(ids, id)
	}
	a.must(t, "POST", "/api/v1/ddns/sync", "")
	a.must(t, "DELETE", "/api/v1/ddns/usages/"+ids[1], "")
	if got := a.ask(t, "_mesh._mesh-NDI.example.com"); !strings.HasSuffix(got, ` tcp://elder:1"`) {
		t.Error(got)
	}
}

// english is two words of English in a row. Values in quotes are no words, nor are names
// with "_", "-" or digits, nor what has more capitals than one.
var (
	english     = regexp.MustCompile(`(^|[^\w.:/-])([A-Z]?[a-z]['a-z]*)[,;:]? ([a-z]['a-z]*)($|[^\w./-])`)
	quotedValue = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	shownText   = regexp.MustCompile(`"(?:error|message)":\s*("(?:[^"\\]|\\.)+")|"warnings":\s*\[([^\]]*)\]`)
)

// englishIn gives the texts for people in a Chinese answer that have English in them.
func englishIn(t testing.TB, answer string) (found []string, texts int) {
	t.Helper()
	for _, match := range shownText.FindAllStringSubmatch(answer, -1) {
		var all []string
		if err := json.Unmarshal([]byte("["+match[1]+match[2]+"]"), &all); err != nil {
			t.Fatalf("%s: %v", match[0], err)
		}
		for _, text := range all {
			texts++
			if english.MatchString(quotedValue.ReplaceAllString(text, `""`)) {
				found = append(found, text)
			}
		}
	}
	return found, texts
}

// saidByOthers are words of the database and of clients in the golden answers.
var saidByOthers = []string{"insert usage", "insert binding", "disk full", "FOREIGN KEY constraint failed", "two words.example.com"}

// TestChineseAnswers has no English in any Chinese answer of the golden files, nor where
// a provider fails without a word of its own.
func TestChineseAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	texts := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(data), "\n\n") {
			given, answer, _ := strings.Cut(block, "\n-> ")
			preferred := regexp.MustCompile(`Accept-Language: .*`).FindAllString(given, -1)
			if msg.Preferred(strings.ReplaceAll(strings.Join(preferred, ","), "Accept-Language: ", "")) == msg.English {
				continue
			}
			for _, words := range saidByOthers {
				answer = strings.ReplaceAll(answer, words, "")
			}
			found, n := englishIn(t, answer)
			texts += n
			for _, text := range found {
				t.Errorf("%s: %s\n%s", file, given, text)
			}
		}
	}
	if texts < 200 {
		t.Errorf("%d texts, want more than 200", texts)
	}
}

// TestChineseFaults has every provider fail in ways that leave nothing that it said.
func TestChineseFaults(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := newAppliance(t)
		a.public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		check := func(what, body string) {
			_, answer := a.do(t, "POST", "/api/v1/ddns/test", nil, body)
			found, _ := englishIn(t, answer)
			if len(found) > 0 || !strings.Contains(answer, `"ok":false`) {
				t.Errorf("%s: %q in %s", what, found, answer)
			}
		}
		page := cloudtest.Answer{Status: http.StatusOK, Body: "<html>"}
		for what, fault := range map[string]cloudtest.Fault{
			"reset": cloudtest.Reset, "cut": cloudtest.Cut, "page": cloudtest.Instead(page),
			"null": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "null"}), "object": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "{}"}),
			"number": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "7"}), "nothing": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK}),
			"500": cloudtest.Instead(cloudtest.Answer{Status: http.StatusInternalServerError}), "404": cloudtest.Instead(cloudtest.Answer{Status: http.StatusNotFound}),
			"401": cloudtest.Instead(cloudtest.Answer{Status: http.StatusUnauthorized}), "429": cloudtest.Instead(cloudtest.Answer{Status: http.StatusTooManyRequests}),
			"redirect": cloudtest.Instead(cloudtest.Answer{Status: http.StatusFound, Header: map[string]string{"Location": "/x"}}),
		} {
			for range 20 {
				c.Fail(fault)
			}
			check(what, cloudConfig(c, nil))
			c.FailNoMore()
		}
		for name, value := range map[string]string{
			"endpoint": "http://192.0.2.1", "domain": "nobody.example.net", "access_key_secret": "with\na break", "access_key_id": "",
		} {
			check(name, cloudConfig(c, func(fields map[string]any) { fields[name] = value }))
		}
		for _, endpoint := range []string{"ftp://192.0.2.1", "https://user@192.0.2.1", "https://%zz", "http://127.0.0.1:1", "https://127.0.0.1:1"} {
			check(endpoint, cloudConfig(c, func(fields map[string]any) { fields["endpoint"] = endpoint }))
		}
	})
	a := newAppliance(t)
	for _, endpoint := range []string{"", "127.0.0.1:1", "127.0.0.1:0", "a b", "[::1", a.dns} {
		for _, key := range []string{"key.", "md5:key", "a..b"} {
			for _, secret := range []string{"c2VjcmV0", "no base64!"} {
				_, answer := a.do(t, "POST", "/api/v1/ddns/test", nil, fmt.Sprintf(
					`{"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":"example.com","txt_record_name":"x"}`, key, secret, endpoint))
				if found, _ := englishIn(t, answer); len(found) > 0 {
					t.Errorf("%q", found)
				}
			}
		}
	}
}

// TestPrivateAddressIsTold configures endpoints at an address that nobody outside can
// reach, and what else is stored and cannot work.
func TestPrivateAddressIsTold(t *testing.T) {
	a := newAppliance(t, func(a *appliance) {
		a.addresses = hostaddr.NewBook(source(t, hostaddr.IPv4, "192.168.1.2"), source(t, hostaddr.IPv6, "none"), mesh.Addresses{}, a.store.SaveAddresses, a.server.log)
	})
	const config = `{"provider":"builtin","access_key_id":"k","access_key_secret":"s","domain":"example.com","txt_record_name":"x","enabled":true%s}`
	for _, test := range []struct{ method, path, body, want string }{
		{"PUT", "/config", fmt.Sprintf(config, `,"txt_endpoints":["tcp://{ipv4}:1"]`), `{"message":"the configuration is saved","data":{"warnings":["{ipv4} is the private address 192.168.1.2 now, which nobody outside can reach"]}}`},
		{"PUT", "/config", fmt.Sprintf(config, `,"txtEndpoints":[],"sync-mode":"auto"`), `{"message":"the configuration is saved","data":{"warnings":[` +
			`"member \"txtEndpoints\" is unknown and ignored; is \"txt_endpoints\" meant?","member \"sync-mode\" is unknown and ignored; is \"sync_mode\" meant?","there are no txt_endpoints: the value that is published has no address"]}}`},
		{"PUT", "/config", fmt.Sprintf(config, `,"txt_endpoints":["tcp://a:1"]`), `{"message":"the configuration is saved"}`},
		{"POST", "/services", `{"name":"x","config":{"domain":"a.example.com","txt_endpoints":["tcp://{ipv4}:1"]}}`, `"warnings":["{ipv4} is the private address 192.168.1.2 now, which nobody outside can reach"]}}`},
		{"PUT", "/services/y", `{"name":"x","config":{"domain":"b.example.com"}}`, `updated_at":"`},
	} {
		response, answer := a.do(t, test.method, "/api/v1/ddns"+test.path, http.Header{"Accept-Language": {"en"}}, test.body)
		if response.StatusCode != http.StatusOK || !strings.Contains(answer, test.want) || !strings.Contains(test.want, "warnings") && strings.Contains(answer, "warnings") {
			t.Errorf("%s %s %s: %s", test.method, test.path, test.body, answer)
		}
	}
	_, shown := a.do(t, "GET", "/api/v1/ddns/config", nil, "")
	var got struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(shown), &got); err != nil {
		t.Fatal(err)
	}
	if _, answer := a.do(t, "PUT", "/api/v1/ddns/config", nil, string(got.Data)); strings.Contains(answer, "warnings") {
		t.Errorf("what GET gives is warned of: %s", answer)
	}
}

// wantHealth waits until healthz has a status and a code.
func (a *appliance) wantHealth(t testing.TB, status int, code string) {
	t.Helper()
	var got string
	eventually(t, fmt.Sprint("healthz is ", status, " ", code), func() bool {
		s, c, answer := a.call(t, "GET", "/healthz", "")
		got = answer
		return s == status && c == code
	})
	if status != http.StatusOK && strings.ContainsAny(got, "（/") {
		t.Errorf("for every caller: %s", got)
	}
}

// wantBackup takes a backup, which has to be a database.
func (a *appliance) wantBackup(t testing.TB) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(a.logs)
		}
	}()
	if answer := a.must(t, "GET", "/api/v1/ddns/backup", ""); !strings.HasPrefix(answer, "SQLite format 3\x00") {
		t.Errorf("the backup is %.100q", answer)
	}
}

// fillUp writes until the disk is full, and gives how many writes were acknowledged.
func (a *appliance) fillUp(t testing.TB) (acknowledged int) {
	t.Helper()
	for n := range 5000 {
		body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"fill%d","network_id":%d}`, n, n)
		status, code, answer := a.call(t, "POST", "/api/v1/ddns/usages", body)
		if status == http.StatusOK {
			acknowledged++
			continue
		}
		if status != http.StatusInternalServerError || code != "disk_full" || !strings.Contains(answer, "磁盘已满") {
			t.Fatalf("%d %s %s", status, code, answer)
		}
		return acknowledged
	}
	t.Fatal("the disk is never full")
	return 0
}

// The disk is full while the program runs: writes say so, all else goes on, and it
// heals by itself. So it is when it starts on a full disk.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "meshddns.db")
	const config = `{"provider":"builtin","access_key_id":"a","access_key_secret":"b","domain":"example.com","txt_record_name":"_mesh","enabled":true,"txt_endpoints":["tcp://192.0.2.1:1"]}`
	check := func(a *appliance, usages int) {
		t.Helper()
		a.wantHealth(t, http.StatusServiceUnavailable, "disk_full")
		if status, code, _ := a.call(t, "PUT", "/api/v1/ddns/config", config); status != http.StatusInternalServerError || code != "disk_full" {
			t.Errorf("configuration: %d %s", status, code)
		}
		if got := a.ask(t, "_mesh.example.com"); !strings.Contains(got, "tcp://192.0.2.1:1") {
			t.Errorf("DNS: %q", got)
		}
		if got := strings.Count(a.must(t, "GET", "/api/v1/ddns/usages/available", ""), `"full_domain"`); got != usages {
			t.Errorf("%d usages, want %d", got, usages)
		}
		a.wantBackup(t)
	}
	heal := func(a *appliance) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
			t.Fatal(err)
		}
		a.wantHealth(t, http.StatusOK, "")
		a.must(t, "PUT", "/api/v1/ddns/config", config)
		a.wantBackup(t)
	}
	usages := 0
	t.Run("running", func(t *testing.T) {
		a := newApplianceOn(t, path)
		a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
		a.must(t, "PUT", "/api/v1/ddns/config", config)
		a.must(t, "POST", "/api/v1/ddns/sync", "")
		settle(a.store)
		fillDisk(t, dir, 0)
		usages = a.fillUp(t)
		check(a, usages)
		heal(a)
	})
	fillDisk(t, dir, 0)
	t.Run("started", func(t *testing.T) {
		if _, err := os.Stat(path + "-wal"); err == nil {
			t.Fatal("the stop was not clean")
		}
		a := newApplianceOn(t, path)
		if !a.store.gate.Frozen() {
			t.Fatal("the disk is not full")
		}
		check(a, usages)
		heal(a)
		a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"after","network_id":1}`)
		usages++
	})
	s := mustOpen(t, path)
	if got, err := s.Usages(t.Context(), usageFilter{}, 10_000); err != nil || len(got) != usages {
		t.Errorf("%d usages, %v, want %d", len(got), err, usages)
	}
}

// After a kill the log is still there, of which the index may not be: it is read on a
// full disk too.
func TestFullDiskAfterAKill(t *testing.T) {
	dir := smallDisk(t)
	killed := filledStore(t)
	if _, err := killed.CreateUsage(t.Context(), custom("office", 42)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "meshddns.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(killed.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fillDisk(t, dir, 0)
	s := mustOpen(t, path)
	if got, err := s.Usages(t.Context(), usageFilter{}, 10); err != nil || len(got) != 1 {
		t.Errorf("%d usages, %v", len(got), err)
	}
}

// Nobody has room for a backup: that is said.
func TestBackupWithoutRoom(t *testing.T) {
	dir := smallDisk(t)
	a := newApplianceOn(t, filepath.Join(dir, "meshddns.db"))
	fillDisk(t, dir, 0)
	t.Setenv("TMPDIR", dir)
	if status, code, answer := a.call(t, "GET", "/api/v1/ddns/backup", ""); status != http.StatusInternalServerError || code != "backup_no_room" || !strings.Contains(answer, dir) {
		t.Errorf("%d %s %s", status, code, answer)
	}
}

// A full disk with the database does not hinder a backup that finds room elsewhere.
func TestBackupOfAFullDisk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := smallDisk(t)
	a := newApplianceOn(t, filepath.Join(dir, "meshddns.db"))
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
	fillDisk(t, dir, 0)
	if status, code, answer := a.call(t, "GET", "/api/v1/ddns/backup", ""); status != http.StatusOK || !strings.HasPrefix(answer, "SQLite format 3") {
		t.Errorf("%d %s %.200s", status, code, answer)
	}
}

// What would be lost is not acknowledged: the file, or its log, is another one.
func TestFileIsGone(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"deleted":      os.Remove,
		"moved":        func(path string) error { return os.Rename(path, path+".old") },
		"replaced":     func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		"lock deleted": func(path string) error { return os.Remove(path + "-lock") },
		"log deleted":  func(path string) error { return os.Remove(path + "-wal") },
		"log replaced": func(path string) error {
			return errors.Join(os.Remove(path+"-wal"), os.WriteFile(path+"-wal", nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAppliance(t)
			a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
			a.wantHealth(t, http.StatusOK, "")
			if err := spoil(a.path); err != nil {
				t.Fatal(err)
			}
			var asking sync.WaitGroup
			for n := range 16 {
				asking.Go(func() {
					body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, n, n)
					response, answer, err := a.exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body))
					if err != nil || response.StatusCode != http.StatusInternalServerError || response.Header.Get("X-Error-Code") != "database_gone" {
						t.Errorf("%v %v %s", err, response, answer)
					}
				})
			}
			asking.Wait()
			if t.Failed() {
				t.Log(a.logs.String())
			}
			a.wantHealth(t, http.StatusServiceUnavailable, "database_gone")
			eventually(t, "what is open already is read", func() bool { // the check of the start may have it for a while
				status, _, _ := a.call(t, "GET", "/api/v1/ddns/services/svc", "")
				return status == http.StatusOK
			})
		})
	}
}

// A page of zeros is found soon after the start.
func TestZeroedPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	s := mustOpen(t, path)
	page := queryText(t, s.reader, `SELECT rootpage FROM sqlite_schema WHERE name = 'marks'`)[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(page, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(make([]byte, 4096), (number-1)*4096); err != nil {
		t.Fatal(err)
	}
	p := runProgram(t, nil, "-db", path)
	p.logged("level=ERROR msg=\"restore a backup\"")
	response, err := http.Get(p.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if code := response.Header.Get("X-Error-Code"); response.StatusCode != http.StatusServiceUnavailable || code != "database_damaged" {
		t.Errorf("%d %s", response.StatusCode, code)
	}
}

// Another program that holds the database is named as the reason.
func TestLockedByAnother(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	db := a.open(t)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if status, code, answer := a.call(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{}}`); status != http.StatusInternalServerError || code != "database_locked" {
		t.Errorf("%d %s %s", status, code, answer)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{}}`)
}

// A usage that has nowhere to be published any more is in the state none, whatever of it is
// left where it was.
func TestNowhereWithLeftover(t *testing.T) {
	a := newAppliance(t, stopClock)
	configure := func(domain string) {
		a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"`+domain+
			`","txt_record_name":"_txt","enabled":true,"sync_mode":"upsert-only"}`)
		a.must(t, "POST", "/api/v1/ddns/sync", "")
	}
	a.must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var made struct{ Data struct{ ID string } }
	text := a.must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":7}`)
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	configure("example.com")
	configure("elsewhere.example")
	if left := a.must(t, "GET", "/api/v1/ddns/leftovers", ""); !strings.Contains(left, `"value":"v=mesh1 n=7`) {
		t.Fatalf("leftovers %s", left)
	}
	if got := a.must(t, "GET", "/api/v1/ddns/usages/"+made.Data.ID, ""); !strings.Contains(got, `"publish":{"state":"none",`) {
		t.Errorf("%s", got)
	}
}

// fuzzed are the calls with a body, in the order of their numbers in the inputs of FuzzBodies.
// The connection test is there without its network: its own time ends it at once.
var fuzzed = []string{
	"PUT /api/v1/ddns/config", "POST /api/v1/ddns/test", "POST /api/v1/ddns/adopt?dry_run=1", "POST /api/v1/ddns/usages",
	"PATCH /api/v1/ddns/usages/", "POST /api/v1/ddns/services", "PUT /api/v1/ddns/services/fuzzed",
}

// Whatever a body is, the real routes on a real database give an answer in the contract's form:
// no fault of the program, what is granted is JSON that encoding/json reads too, what is stored
// comes back, and no secret with it.
func FuzzBodies(f *testing.F) {
	for i, body := range []string{
		`{"provider":"nobody","access_key_id":"id","access_key_secret":"s3cr3t-0123456789","domain":"example.com","txt_record_name":"@","retry_interval":-9223372036854775808,"enabled":false,"txt_endpoints":["tcp://{ipv4}:1"]}`,
		`{"provider":"nobody","domain":"a..b","write_test":true}`,
		`{"owner":"0123456789ab"}`,
		`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Office_1","network_id":18446744073709551615,"network_name":"\u529e"}`,
		`{"txt_endpoints":["wss://[{ipv6}]:443"],"description":null}`,
		`{"name":"x","config":"{\"domain\":\"b.example\",\"api_token\":\"s3cr3t-0123456789\"}"}`,
		`{"name":"x","config":{"domain":"例子.example","access_key_secret":"********","a":{"b":[1e400]}}}`,
	} {
		for at := range fuzzed {
			if at == i || at%3 == i%3 {
				f.Add(uint8(at), body)
			}
		}
	}
	for _, body := range []string{"", "null", "[]", "{", "\xff", `{"a":1,"a":2}`, `{"name":"\ud800"}`, strings.Repeat("[", 20_000), strings.Repeat(" ", envelope.MaxBody+1)} {
		f.Add(uint8(5), body)
	}
	a := newAppliance(f, stopClock)
	routes := a.routes()
	must := func(method, path, body string) string {
		w := exchangeOf(routes, method, path, body)
		if w.Code != http.StatusOK {
			f.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	must("PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var made struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(must("POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)), &made); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, call uint8, body string) {
		method, path, _ := strings.Cut(fuzzed[int(call)%len(fuzzed)], " ")
		if strings.HasSuffix(path, "/usages/") {
			path += made.Data.ID
		}
		w := exchangeOf(routes, method, path, body)
		checkForm(t, w, body)
		var answer struct {
			Data struct{ ID, Config string }
		}
		if w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &answer) != nil {
			answer.Data.ID = ""
		}
		switch {
		case answer.Data.ID == "":
		case strings.HasSuffix(path, "/usages"):
			if w := exchangeOf(routes, "DELETE", path+"/"+answer.Data.ID+"?force=1", ""); w.Code != http.StatusOK {
				t.Errorf("release what was reserved: %d %s", w.Code, w.Body)
			}
		default:
			stored := exchangeOf(routes, "GET", "/api/v1/ddns/services/"+answer.Data.ID, "")
			leaked := strings.Contains(stored.Body.String(), bodySecret) && !strings.Contains(withoutSecrets(body), bodySecret)
			if stored.Code != http.StatusOK || leaked {
				t.Errorf("stored %q, and read %d %s", body, stored.Code, stored.Body)
			}
			if w := exchangeOf(routes, "DELETE", "/api/v1/ddns/services/"+answer.Data.ID, ""); w.Code != http.StatusOK && answer.Data.ID != "svc" {
				t.Errorf("delete %s: %d %s", answer.Data.ID, w.Code, w.Body)
			}
		}
	})
}

// bodySecret stands in the inputs where a secret does.
const bodySecret = "s3cr3t-0123456789"

// withoutSecrets is a body without the members that are secrets, as the first inputs write them.
func withoutSecrets(body string) string {
	return strings.NewReplacer(`"access_key_secret":"`+bodySecret+`"`, "", `\"api_token\":\"`+bodySecret+`\"`, "").Replace(body)
}

// exchangeOf asks the routes, for a second at most: a provider is not waited for.
func exchangeOf(routes http.Handler, method, path, body string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	routes.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// checkForm holds an answer to the form of all answers.
func checkForm(t *testing.T, w *httptest.ResponseRecorder, body string) {
	t.Helper()
	var members map[string]json.RawMessage
	err := json.Unmarshal(w.Body.Bytes(), &members)
	code := w.Header().Get("X-Error-Code")
	wanted := []int{http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge}
	switch failed := w.Code >= 400; {
	case err != nil || !utf8.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != envelope.MediaType:
		t.Errorf("%d %q %q: %v", w.Code, w.Header(), w.Body, err)
	case !slices.Contains(wanted, w.Code):
		t.Errorf("%q: status %d %s %s", body, w.Code, code, w.Body)
	case failed != (code != "") || failed != (len(members) == 1 && len(members["error"]) > len(`""`)):
		t.Errorf("status %d, code %q, %s", w.Code, code, w.Body)
	case !failed && !json.Valid([]byte(body)):
		t.Errorf("granted: %q", body)
	case len(body) > envelope.MaxBody && w.Code != http.StatusRequestEntityTooLarge:
		t.Errorf("%d octets: status %d", len(body), w.Code)
	}
	if failed := string(members["error"]); strings.Contains(failed, bodySecret) {
		t.Errorf("the secret is in %s", failed)
	}
}

// TestLeftoversAreStreamed lists more leftovers than are kept at a time: all of them, in
// pages too, and with an answer that is cut when the database goes on the way.
func TestLeftoversAreStreamed(t *testing.T) {
	const count = 10*leftoverPage + 1
	a := newAppliance(t)
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`
		INSERT INTO accounts (id, provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (1, 'vendor', '', 'key', '', '');
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('n%06d', i), 1, 'z', '', 'leftover', hex(zeroblob(8192)), '', 0, 0, '', '', '', 0, '', '' FROM n`, count); err != nil {
		t.Fatal(err)
	}
	page := func(query string) (names []string, next string) {
		var body struct {
			Data []answers.Leftover
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/leftovers"+query, "")), &body); err != nil {
			t.Fatal(err)
		}
		for _, l := range body.Data {
			names = append(names, l.Name)
		}
		return names, body.Next
	}
	whole, next := page("")
	if len(whole) != count || next != "" {
		t.Fatalf("%d leftovers, and the cursor %q", len(whole), next)
	}
	var paged []string
	for cursor, more := "", true; more; more = cursor != "" {
		var names []string
		names, cursor = page("?limit=77&cursor=" + cursor)
		paged = append(paged, names...)
		if more := len(paged) < count; more != (cursor != "") || more && len(names) != 77 {
			t.Fatalf("a page of %d behind %d, and the cursor %q", len(names), len(paged)-len(names), cursor)
		}
	}
	if fmt.Sprint(paged) != fmt.Sprint(whole) {
		t.Error("the pages are not the whole")
	}
	response, err := a.http.Get(a.url + "/api/v1/ddns/leftovers")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := db.Exec(`ALTER TABLE places RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v: it was read as a whole before it was sent", err)
	}
}

// The flag -language decides about requests without Accept-Language, and about no others. The
// guards' refusals follow it too.
func TestLanguageFlag(t *testing.T) {
	p := runProgram(t, []string{"MESHDDNS_LANGUAGE=en"})
	for _, test := range []struct {
		path, host, accepted string
		id                   msg.ID
		want                 msg.Language
	}{
		{"/nothing", "", "", msg.NotFound, msg.English},
		{"/nothing", "", "zh", msg.NotFound, msg.Chinese},
		{"/nothing", "", "fr", msg.NotFound, msg.Chinese},
		{"/", "evil.example", "", msg.HostNotAllowed, msg.English},
	} {
		request, err := http.NewRequest("GET", p.url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		if test.accepted != "" {
			request.Header.Set("Accept-Language", test.accepted)
		}
		response, err := (&http.Client{Timeout: patience}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		want, _, _ := strings.Cut(test.id.In(test.want, "x"), "%")
		want, _, _ = strings.Cut(want, `"`)
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s, Accept-Language %q: %s, %v; want %q", test.path, test.accepted, body, err, want)
		}
	}
}

// A synchronisation that is not through in time says how far it is, and of how many names.
func TestSyncUnfinishedSaysOfHowMany(t *testing.T) {
	s := filledStore(t)
	err := s.PutConfiguration(t.Context(), configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint("name", n), sqlite.NetworkID(n))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	book := hostaddr.NewBook(hostaddr.Source{}, hostaddr.Source{}, mesh.Addresses{}, s.SaveAddresses, noLog)
	engine := s.newEngine(engineConfig(s, clients{ledger: s.ledger, zones: s.zones}, book, time.Hour, noLog)) // which does not run
	routes := (&server{store: s, engine: engine, log: noLog}).routes()
	for language, want := range map[string]string{"en": "0 of 5 names", "zh": "0 / 5"} {
		r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/ddns/sync", nil)
		r.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || w.Header().Get("X-Error-Code") != "sync_unfinished" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %q", w.Code, w.Body, want)
		}
	}
}

// TestEndpointSpellings writes one endpoint in several ways: it is one account, a mask
// keeps its secret, and the answers have each as it was typed.
func TestEndpointSpellings(t *testing.T) {
	a := newAppliance(t)
	const config = `{"provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q,"domain":"example.com","txt_record_name":"_txt"}`
	const service = `{"name":"x","config":{"domain":"example.com","provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q}}`
	secret := "the secret"
	for n, endpoint := range []string{"https://bridge.example/x", "HTTPS://Bridge.Example:443/x/", "bridge.example/x//"} {
		path := fmt.Sprint("/api/v1/ddns/services/s", n)
		a.must(t, "PUT", path, fmt.Sprintf(service, "the secret", "https://bridge.example/x"))
		a.must(t, "PUT", path, fmt.Sprintf(service, "********", endpoint))
		a.must(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, secret, endpoint))
		for _, path := range []string{path, "/api/v1/ddns/config"} {
			if answer := a.must(t, "GET", path, ""); !strings.Contains(answer, endpoint) {
				t.Errorf("%s: %s, want the endpoint %s as it was typed", path, answer, endpoint)
			}
		}
		secret = "********"
	}
	got := queryText(t, a.store.reader, `SELECT endpoint, access_key_secret FROM accounts`)
	if want := []string{"https://bridge.example/x | the secret"}; !slices.Equal(got, want) {
		t.Errorf("accounts %q, want %q", got, want)
	}
	if status, code, answer := a.call(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, "********", "https://bridge.example/y")); status != 400 || code != "secret_not_stored" {
		t.Errorf("another address: %d %s %s", status, code, answer)
	}
}
