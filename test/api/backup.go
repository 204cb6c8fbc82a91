package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/test/support"
)

// A backup is one whole database, also while others write: a usage never
// stands in it without its binding.
func (suite Suite) testBackup(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			body := `{"service_id":"svc","prefix_mode":"auto","network_id":1}`
			if response, answer, err := a.Exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body)); err != nil || response.StatusCode != 200 {
				t.Error(answer, err)
				return
			}
		}
	})
	defer writing.Wait()
	defer stop()
	for i := range 10 {
		response, content := a.Do(t, "GET", "/api/v1/ddns/backup", nil, "")
		if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != "application/vnd.sqlite3" || !strings.HasPrefix(content, "SQLite format 3\x00") {
			t.Fatalf("%s, Content-Type %q, %.40q", response.Status, got, content)
		}
		copied := &Appliance{Path: filepath.Join(t.TempDir(), fmt.Sprint(i))}
		support.Must(t, os.WriteFile(copied.Path, []byte(content), 0o600))
		db := copied.Open(t)
		defer db.Close()
		for query, want := range map[string]string{
			`PRAGMA integrity_check`:      "ok",
			`SELECT count(*) FROM usages`: support.Rows(t, db, `SELECT count(*) FROM bindings`)[0],
			`SELECT id FROM services`:     "svc",
		} {
			if got := support.Rows(t, db, query); !slices.Equal(got, []string{want}) {
				t.Errorf("backup %d: %s = %q, want %q", i, query, got, want)
			}
		}
	}
	left, err := os.ReadDir(filepath.Dir(a.Path))
	support.Must(t, err)
	for _, file := range left {
		if !strings.HasPrefix(file.Name(), filepath.Base(a.Path)) {
			t.Errorf("%s is left", file.Name())
		}
	}
}

// One backup at a time: a second is refused until the first is sent or its client has
// gone. Each is a line of the audit.
func (suite Suite) testOneBackupAtATime(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, 3000, 16<<10) // more than the sockets between client and server hold
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", a.URL+"/api/v1/ddns/backup", nil)
	support.Must(t, err)
	first, err := a.HTTP.Do(request)
	support.Must(t, err)
	defer first.Body.Close()
	second, answer := a.Do(t, "GET", "/api/v1/ddns/backup", nil, "")
	if second.StatusCode != 409 || second.Header.Get("X-Error-Code") != "backup_runs" || !strings.HasPrefix(answer, `{"error":`) {
		t.Errorf("%s %.200s", second.Status, answer)
	}
	cancel()
	support.Eventually(t, support.Limit, "the next one is made", func() bool {
		next, _ := a.Do(t, "GET", "/api/v1/ddns/backup", nil, "")
		return next.StatusCode == 200
	})
	for _, line := range []string{`msg=change who=127.0.0.1 what="GET /api/v1/ddns/backup" id="" status=200 code=""`, `status=409 code=backup_runs`} {
		if !strings.Contains(a.Logs.String(), line) {
			t.Errorf("no %s in\n%s", line, a.Logs.String())
		}
	}
}

// Each backup is another copy, so a part of one fits to no part of the next:
// there are only whole ones.
func (suite Suite) testBackupHasNoRanges(t *testing.T) {
	a := suite.Start(t, Options{})
	for _, part := range []string{"bytes=16-", "bytes=0-15", "bytes=0-1,4-5", "bytes=99999999-"} {
		response, content := a.Do(t, "GET", "/api/v1/ddns/backup", http.Header{"Range": {part}}, "")
		if got := response.Header.Get("Accept-Ranges"); response.StatusCode != 200 || got == "bytes" || !strings.HasPrefix(content, "SQLite format 3\x00") {
			t.Errorf("%s: %s, Accept-Ranges %q, %.40q", part, response.Status, got, content)
		}
	}
}

// A HEAD request says what a backup would be, and makes, counts and logs none.
func (suite Suite) testHeadOfBackup(t *testing.T) {
	a := suite.Start(t, Options{})
	get, _ := a.Do(t, "GET", "/api/v1/ddns/backup", nil, "")
	counted := func() (lines []string) {
		for line := range strings.Lines(a.Must(t, "GET", "/metrics", "")) {
			if strings.HasPrefix(line, "meshddns_backup_") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	support.Eventually(t, support.Limit, "the backup is counted", func() bool { return slices.Contains(counted(), "meshddns_backup_runs_total{result=\"ok\"} 1\n") })
	before, logged := counted(), strings.Count(a.Logs.String(), "backup")
	head, body := a.Do(t, "HEAD", "/api/v1/ddns/backup", nil, "")
	get.Header.Del("Content-Length") // the size of a copy
	get.Header.Del("Date")
	head.Header.Del("Date")
	if head.StatusCode != http.StatusOK || body != "" || !maps.EqualFunc(head.Header, get.Header, slices.Equal) {
		t.Errorf("%d %q %v, want %v", head.StatusCode, body, head.Header, get.Header)
	}
	if after := counted(); !slices.Equal(after, before) {
		t.Errorf("counted %q, before %q", after, before)
	}
	if now := strings.Count(a.Logs.String(), "backup"); now != logged {
		t.Errorf("logged: %s", a.Logs.String())
	}
}
