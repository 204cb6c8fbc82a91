package api

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/web"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// The operator's three: health is in a script, the other two are no JSON.
func (suite Suite) testMetrics(t *testing.T) {
	sqliteVersion, _, _ := sqlite3.Version()
	a := suite.Start(t, Options{Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC) }})
	a.Call(t, "POST", "/api/v1/ddns/sync", "")
	a.Must(t, "PUT", "/api/v1/ddns/config",
		`{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","enabled":true}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	a.Call(t, "GET", "/api/v1/ddns/services/a-path-is-no-label", "")
	a.Call(t, "GET", "/a-path-is-no-label", "")
	a.Ask(t, "_txt.example.com")
	response, page := a.Do(t, "GET", "/metrics", nil, "")
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

// testMetricsOfZones has a real server fail for a while, with two accounts at its zone: one zone is down as long as
// both fail, or one.
func (suite Suite) testMetricsOfZones(t *testing.T) {
	s := servertest.BIND(t)
	var down atomic.Bool
	relay := servertest.Relay(t, s.Addr, func(query []byte, forward func() []byte) []byte {
		if down.Load() {
			return servertest.ServFail(query, forward)
		}
		return forward()
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	a := suite.Start(t, Options{Now: func() time.Time { return at }})
	account := fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"domain":"example.com"`, servertest.Key, servertest.Secret)
	a.Must(t, "PUT", "/api/v1/ddns/config", `{`+account+`,"endpoint":"`+relay+`","txt_record_name":"_mesh-host","max_retries":0,"enabled":true}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{`+account+`,"endpoint":"`+support.FreeAddress(t)+`"}}`)
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
	db := a.Open(t)
	defer db.Close()
	lines := func() []string {
		return regexp.MustCompile(`(?m)^meshddns_zone_.*$`).FindAllString(a.Must(t, "GET", "/metrics", ""), -1)
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
	a.Call(t, "POST", "/api/v1/ddns/sync", "")
	want("both are down", temporary)
	down.Store(false)
	a.Call(t, "POST", "/api/v1/ddns/sync", "")
	want("one is down", temporary)
	a.Must(t, "DELETE", "/api/v1/ddns/usages/"+support.Rows(t, db, `SELECT id FROM usages`)[0]+"?force=1", "")
	for range 3 {
		a.Must(t, "POST", "/api/v1/ddns/sync", "")
	}
	want("none is down")
}

// What can be counted is there before it has happened: an alert on an increase sees
// the first one. The page is as the people of Prometheus want one.
func (suite Suite) testMetricsFromTheStart(t *testing.T) {
	a := suite.Start(t, Options{})
	_, page := a.Do(t, "GET", "/metrics", nil, "")
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
	a.Must(t, "GET", "/api/v1/ddns/backup", "")
	support.Eventually(t, support.Limit, "the backup is counted", func() bool {
		_, page := a.Do(t, "GET", "/metrics", nil, "")
		return strings.Contains(page, "meshddns_backup_runs_total{result=\"ok\"} 1\n") && !strings.Contains(page, "meshddns_backup_last_success_timestamp_seconds 0\n")
	})
	operate, err := os.ReadFile("docs/operate.md")
	support.Must(t, err)
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
func (suite Suite) testContract(t *testing.T) {
	a := suite.Start(t, Options{})
	response, text := a.Do(t, "GET", "/api/v1/ddns/openapi.json", nil, "")
	if file, err := os.ReadFile("docs/openapi.json"); err != nil || response.StatusCode != 200 || text != string(file) {
		t.Errorf("%s, %v: %.100s", response.Status, err, text)
	}
	if got := response.Header.Get("Content-Type"); got != web.MediaType {
		t.Errorf("Content-Type %q", got)
	}
	var contract struct{ Paths map[string]map[string]any }
	support.Must(t, json.Unmarshal([]byte(text), &contract))
	var written, served []string
	_, page := a.Do(t, "GET", "/metrics", nil, "")
	for _, match := range regexp.MustCompile(`_requests_total\{route="([^"]+)",code="200"\}`).FindAllStringSubmatch(page, -1) {
		served = append(served, strings.TrimSuffix(match[1], "{$}"))
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
func (suite Suite) testLastSuccessOutlivesTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meshddns.db")
	t.Run("first run", func(t *testing.T) {
		a := suite.Start(t, Options{Path: path})
		a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"@","enabled":true}`)
		a.Must(t, "POST", "/api/v1/ddns/sync", "")
	})
	a := suite.Start(t, Options{Path: path})
	support.Eventually(t, support.Limit, "the time is known", func() bool {
		_, page := a.Do(t, "GET", "/metrics", nil, "")
		return strings.Contains(page, "\nmeshddns_sync_last_success_timestamp_seconds 1")
	})
}
