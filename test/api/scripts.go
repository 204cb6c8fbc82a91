package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/internal/msg"
	"meshddns/internal/web"
	"meshddns/test/support"
)

// Scripts plays the scripts in testdata. A block of a script, up to the
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
// built-in DNS server), <time>, <ms> and <token>; the first three may be used in
// requests too. In a request <70000 x> is as many letters, and a body
// bytes "..." is a Go string. Beside requests there are
//
//	sql STATEMENTS   on the database file, by a connection that checks no foreign keys
//	dns NAME         a TXT question to the built-in DNS server
//	until NAME WHAT  waits until that is answered so
//	rest             waits until no pass runs or is requested, and no change waits
func (suite Suite) Scripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			support.Must(t, err)
			played := suite.newScript(t).play(string(text))
			if suite.Update {
				support.Must(t, os.WriteFile(file, []byte(played), 0o644))
			}
		})
	}
}

// script is a script that is being played.
type script struct {
	*testing.T
	*Appliance
	names  map[string]string // the placeholder of an id or another text, and the text of a placeholder
	ids    int
	update bool // take each answer for the wanted one
}

func (suite Suite) newScript(t *testing.T) *script {
	s := &script{T: t, Appliance: suite.Start(t, Options{Stopped: true}), names: map[string]string{}, update: suite.Update}
	s.name("<owner>", s.Owner)
	s.name("<dns>", s.DNS)
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
		if want = strings.TrimSpace(want); got != want && !s.update {
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
		return s.shown(s.Ask(s, rest))
	case "rest":
		s.Rest(s)
		return ""
	case "until":
		name, answer, _ := strings.Cut(rest, " ")
		support.Eventually(s, support.Limit, rest, func() bool { return s.Ask(s, name) == answer })
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

// Expanded gives a text with as many letters as <70000 x> says.
func Expanded(text string) string {
	return manyLetters.ReplaceAllStringFunc(text, func(many string) string {
		n, _ := strconv.Atoi(strings.Trim(many, "< x>"))
		return strings.Repeat("x", n)
	})
}

// real gives a text of the script with the real texts in it.
func (s *script) real(text string) string {
	return placeholder.ReplaceAllStringFunc(Expanded(text), func(name string) string {
		if text, ok := s.names[name]; ok {
			return text
		}
		return name
	})
}

// UUIDText finds the ids that the program makes.
var UUIDText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

var (
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	took     = regexp.MustCompile(`"duration_ms":\d+`)
	planned  = regexp.MustCompile(`,"next_at":"[^"]*"`) // of the next pass: testNextPass
	token    = regexp.MustCompile(`"token":"[A-Za-z0-9_-]{43}"`)
	fromPort = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
)

// shown gives a text with the placeholders in it, JSON in lines that are not
// too long.
func (s *script) shown(text string) string {
	text = UUIDText.ReplaceAllStringFunc(text, func(id string) string {
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
	text = token.ReplaceAllString(text, `"token":"<token>"`)
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

// statements runs SQL on the database file, after a change of which the program reads its zones
// again, and gives the rows of a query.
func (s *script) statements(text string) string {
	db := s.Open(s)
	defer db.Close()
	if !strings.HasPrefix(text, "SELECT") {
		if _, err := db.Exec(text); err != nil {
			s.Fatalf("%s: %v", text, err)
		}
		s.Reload()
		return ""
	}
	return strings.Join(support.Rows(s, db, text), "\n")
}

// request sends a request and gives the answer.
func (s *script) request(method, path string, headers http.Header, body string) string {
	response, content := s.Do(s, method, path, headers, body)
	CheckEnvelope(s, method+" "+path, response, content)
	words := []string{strconv.Itoa(response.StatusCode)}
	if code := response.Header.Get("X-Error-Code"); code != "" {
		words = append(words, code)
	}
	for _, name := range []string{"Allow", "Location", "Idempotent-Replay"} {
		if value := response.Header.Get(name); value != "" {
			words = append(words, name+": "+value)
		}
	}
	if len(content) > 0 {
		words = append(words, s.shown(content))
	}
	return strings.Join(words, " ")
}

// CheckEnvelope holds an answer to what the contract says of all of them.
func CheckEnvelope(t testing.TB, request string, response *http.Response, body string) {
	t.Helper()
	for name, want := range map[string]string{"Content-Type": web.MediaType, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %s %q", request, name, got)
		}
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

// Everything that part A of the contract can answer stands in its script.
func (suite Suite) testPartAIsWhole(t *testing.T) {
	script, err := os.ReadFile("testdata/part-a.txt")
	support.Must(t, err)
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
