package api

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// Exchange sends a request and reads the whole answer.
func (a *Appliance) Exchange(method, path string, headers http.Header, body io.Reader) (*http.Response, string, error) {
	request, err := http.NewRequest(method, a.URL+path, body)
	if err != nil {
		return nil, "", err
	}
	maps.Copy(request.Header, headers)
	response, err := a.HTTP.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response, string(content), err
}

// Do is exchange for a test that ends when there is no answer.
func (a *Appliance) Do(t testing.TB, method, path string, headers http.Header, body string) (*http.Response, string) {
	t.Helper()
	response, content, err := a.Exchange(method, path, headers, strings.NewReader(body))
	support.Must(t, err)
	return response, content
}

// Call sends a request and gives status, error code and body of the answer.
func (a *Appliance) Call(t testing.TB, method, path, body string) (status int, code, answer string) {
	t.Helper()
	response, answer := a.Do(t, method, path, nil, body)
	return response.StatusCode, response.Header.Get("X-Error-Code"), answer
}

// Must is call for a request that has to succeed.
func (a *Appliance) Must(t testing.TB, method, path, body string) (answer string) {
	t.Helper()
	status, code, answer := a.Call(t, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %s: %d %s %s", method, path, body, status, code, answer)
	}
	return answer
}

// Open opens the database file beside the program.
func (a *Appliance) Open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+a.Path+"?_foreign_keys=0&_busy_timeout=5000")
	support.Must(t, err)
	db.SetMaxOpenConns(1)
	return db
}

// Ask asks the built-in DNS server for the TXT values at a name.
func (a *Appliance) Ask(t testing.TB, name string) string {
	t.Helper()
	message := servertest.Ask(t, a.DNS, name, dns.TypeTXT)
	words := []string{message.Rcode.String()}
	for _, rr := range message.Answers {
		value, err := dns.ParseTXT(rr.Data)
		support.Must(t, err)
		words = append(words, strconv.Quote(strings.Join(value, "")))
	}
	slices.Sort(words[1:])
	return strings.Join(words, " ")
}

// Files gives the bytes of the database and of its log.
func (a *Appliance) Files(t testing.TB) []byte {
	t.Helper()
	a.Settle()
	var all []byte
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(a.Path + suffix)
		support.Must(t, err)
		all = append(all, content...)
	}
	return all
}

// AllRows are those of all tables.
func (a *Appliance) AllRows(t *testing.T) (all []string) {
	t.Helper()
	for _, table := range support.Rows(t, a.Reader, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`) {
		all = append(append(all, table), support.Rows(t, a.Reader, `SELECT * FROM `+table+` ORDER BY 1`)...)
	}
	return all
}

// ForgetRefusals deletes the events of refused provisioning files, and returns their number.
func (a *Appliance) ForgetRefusals(t testing.TB) int64 {
	t.Helper()
	db := a.Open(t)
	defer db.Close()
	result, err := db.Exec(`DELETE FROM events WHERE kind = 'provision.refused'`)
	support.Must(t, err)
	count, err := result.RowsAffected()
	support.Must(t, err)
	return count
}

// Rest waits until no pass runs or is requested, and no change waits to be worked on.
func (a *Appliance) Rest(t testing.TB) {
	t.Helper()
	var busy []string
	if !support.Within(time.Minute, func() bool {
		busy = support.Rows(t, a.Reader, `
			SELECT 'pass', running, requested FROM pass WHERE running <> '' OR requested <> ''
			UNION ALL SELECT name, due, version FROM names WHERE lane = '' AND due IS NOT NULL`)
		return len(busy) == 0
	}) {
		t.Fatalf("a pass or a change still waits: %q; the log is\n%s", busy, a.Logs)
	}
}

// AddUsages puts many usages into the database, every third without a binding.
func (a *Appliance) AddUsages(t testing.TB, count, descriptionSize int) {
	t.Helper()
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `
		INSERT INTO usages
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		SELECT i, printf('u%06d', i), 'svc', 'mesh_sync', 'custom', 'p' || i, 'TXT', hex(zeroblob(?2 / 2)), 1, '[]',
		       '_mesh.p' || i || '.example.com', '2026-01-02T03:04:05.678Z', 'pending', 0, '', 0 FROM n;
		INSERT INTO bindings
		SELECT seq, 'b' || id, -seq, id, provider_id, 'active' FROM usages WHERE seq % 3 > 0;
		INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, NULL, '', 0 FROM usages`,
		count, descriptionSize)
}

// Page reads a listing.
func (a *Appliance) Page(t testing.TB, query string) (entries []string, next string) {
	t.Helper()
	var page struct {
		Data []json.RawMessage
		Next string `json:"next_cursor"`
	}
	support.Must(t, json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/usages/available?"+query, "")), &page))
	for _, entry := range page.Data {
		entries = append(entries, string(entry))
	}
	return entries, page.Next
}

// items is the answer of POST /test in short: the names, and the codes of
// those that are not simply ok; a warning is ok with a code.
func (a *Appliance) items(t testing.TB, body string) string {
	t.Helper()
	var answer struct {
		Data struct {
			Results []struct {
				Name, Code  string
				OK, Skipped bool
			}
		}
	}
	text := a.Must(t, "POST", "/api/v1/ddns/test", body)
	support.Must(t, json.Unmarshal([]byte(text), &answer))
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

func (a *Appliance) report(t testing.TB) (r report) {
	t.Helper()
	var answer struct{ Data report }
	support.Must(t, json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/sync", "")), &answer))
	return answer.Data
}

// report is the answer of GET /sync.
type report struct {
	OK, Complete bool
	Counts       map[string]int
	Records      []struct{ Name, Action string }
	NextAt       *time.Time `json:"next_at"`
}

func (a *Appliance) Reserve(t testing.TB, service, prefix string, network int) (id string) {
	t.Helper()
	return UUIDText.FindString(a.Must(t, "POST", "/api/v1/ddns/usages",
		fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, service, prefix, network)))
}

// stands reports whether the built-in server answers with the value of a network.
func (a *Appliance) stands(t testing.TB, name string, network int) bool {
	t.Helper()
	return strings.HasPrefix(a.Ask(t, name), fmt.Sprintf(`NOERROR "v=mesh1 n=%d `, network))
}

// WantHealth waits until healthz has a status and a code.
func (a *Appliance) WantHealth(t testing.TB, status int, code string) {
	t.Helper()
	var got string
	support.Eventually(t, support.Limit, fmt.Sprint("healthz is ", status, " ", code), func() bool {
		s, c, answer := a.Call(t, "GET", "/healthz", "")
		got = answer
		return s == status && c == code
	})
	if status != http.StatusOK && strings.ContainsAny(got, "（/") {
		t.Errorf("for every caller: %s", got)
	}
}

const inExampleCom = `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","max_retries":0,"enabled":true`
