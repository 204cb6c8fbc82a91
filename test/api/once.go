package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/answers"
	"meshddns/test/support"
)

const (
	onceUsages = "/api/v1/ddns/usages"
	autoConfig = `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","sync_mode":"auto","enabled":true}`
	onceBody   = `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":42}`
)

// published reports whether an answer tells that the usage is published.
func published(answer string) bool { return strings.Contains(answer, `"publish":{"state":"published"`) }

// With wait the answer to a change of a usage comes when DNS has it.
func (suite Suite) testWait(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", autoConfig)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	for n := range 20 {
		name := fmt.Sprintf("_mesh.p%d.example.com", n)
		answer := a.Must(t, "POST", onceUsages+"?wait=30", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":1}`, n))
		if got := a.Ask(t, name); !published(answer) || !strings.Contains(got, "n=1 ") {
			t.Fatalf("POST: %s, DNS %s", answer, got)
		}
		_, rest, _ := strings.Cut(answer, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		answer = a.Must(t, "PATCH", onceUsages+"/"+id+"?wait=30", `{"txt_endpoints":["tcp://192.0.2.9:9"]}`)
		if got := a.Ask(t, name); !published(answer) || !strings.Contains(got, "tcp://192.0.2.9:9") {
			t.Fatalf("PATCH: %s, DNS %s", answer, got)
		}
		answer = a.Must(t, "DELETE", onceUsages+"/"+id+"?wait=30", "")
		if got := a.Ask(t, name); !strings.Contains(answer, `"data":{"status":"released"}`) || strings.Contains(got, "n=1 ") {
			t.Fatalf("DELETE: %s, DNS %s", answer, got)
		}
	}
	for _, value := range []string{"0", "31", "1.5", "abc", "", "+1", "01"} {
		status, code, answer := a.Call(t, "POST", onceUsages+"?wait="+value, onceBody)
		if status != http.StatusBadRequest || code != "query_invalid" || !strings.Contains(answer, "30") {
			t.Errorf("wait=%s: %d %s %s", value, status, code, answer)
		}
	}
}

// A change that needs a person, and one that has failed, are answered before the time is over.
func (suite Suite) testWaitEnds(t *testing.T) {
	for name, test := range map[string]struct{ from, to, want string }{
		"manual":           {`"auto"`, `"manual"`, "pending"},
		"disabled":         {`"enabled":true`, `"enabled":false`, "pending"},
		"no configuration": {"", "", "none"},
		"failure":          {"", "", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := suite.Start(t, Options{NoServer: name == "failure"})
			if name != "no configuration" {
				a.Must(t, "PUT", "/api/v1/ddns/config", strings.Replace(autoConfig, test.from, test.to, 1))
			}
			a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
			began := time.Now()
			answer := a.Must(t, "POST", onceUsages+"?wait=30", onceBody)
			if want := `"publish":{"state":"` + test.want + `"`; !strings.Contains(answer, want) || time.Since(began) >= 30*time.Second {
				t.Errorf("%s after %v, want %s", answer, time.Since(began), want)
			}
		})
	}
}

// A reservation with a key is made once, however often and at once it is asked for.
func (suite Suite) testIdempotencyKey(t *testing.T) {
	var ahead atomic.Int64
	a := suite.Start(t, Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	ask := func(key, body string) (status int, code, replayed, answer string) {
		response, answer := a.Do(t, "POST", onceUsages, http.Header{"Idempotency-Key": {key}}, body)
		return response.StatusCode, response.Header.Get("X-Error-Code"), response.Header.Get("Idempotent-Replay"), answer
	}
	if status, code, _, _ := ask("k", strings.Replace(onceBody, "svc", "none", 1)); status != http.StatusNotFound {
		t.Fatalf("a failure: %d %s", status, code)
	}
	var all sync.Map
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			status, code, _, answer := ask("k", onceBody)
			all.Store(fmt.Sprint(status, code, answer), true)
		})
	}
	clients.Wait()
	count := 0
	all.Range(func(answer, _ any) bool { t.Log(answer); count++; return true })
	if rows := support.Rows(t, a.Reader, `SELECT count(*) FROM usages`); count != 1 || rows[0] != "1" {
		t.Fatalf("%d answers, %s usages", count, rows[0])
	}
	if status, _, replayed, _ := ask("k", onceBody); status != http.StatusOK || replayed != "true" {
		t.Errorf("again: %d, replayed %q", status, replayed)
	}
	if status, code, replayed, _ := ask("k", onceBody+" "); status != http.StatusConflict || code != "idempotency_key_reused" || replayed != "" {
		t.Errorf("another body: %d %s", status, code)
	}
	if status, code, _, _ := ask("other", onceBody); code != "prefix_taken" {
		t.Errorf("another key: %d %s", status, code)
	}
	for _, key := range []string{"", "ü", strings.Repeat("k", 256)} {
		if status, code, _, _ := ask(key, onceBody); status != http.StatusBadRequest || code != "idempotency_key_invalid" {
			t.Errorf("key %q: %d %s", key, status, code)
		}
	}
	ahead.Store(int64(answers.ReplaysKept))
	if status, code, _, _ := ask("k", onceBody); code != "prefix_taken" {
		t.Errorf("a day later: %d %s", status, code)
	}
	ask("new", strings.Replace(onceBody, "office", "new", 1))
	if rows := support.Rows(t, a.Reader, `SELECT key FROM replays`); len(rows) != 1 || rows[0] != "new" {
		t.Errorf("kept a day later: %q", rows)
	}
}
