package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/provision"
)

// movedPrefix gives a document whose prefix office is network's.
func movedPrefix(network string) string {
	return `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}], "prune": true,
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": ` + network + `},
			{"service_id": "b", "prefix_mode": "auto", "network_id": ` + network + `}]}`
}

// A prefix that is published for one network moves to another: its value is withdrawn, what
// else the file has is applied at once, and the prefix is reserved when it is free.
func TestProvisionMovesAPrefix(t *testing.T) {
	a := newAppliance(t)
	a.applied(t, movedPrefix("1"))
	const name = "_mesh.office.b.example.com"
	eventually(t, "published", func() bool { return strings.Contains(a.ask(t, name), "n=1 ") })
	const want = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:3: usages[0].custom_prefix: the prefix is taken`
	if got := a.applied(t, movedPrefix("7")); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if a.provisionPause() != provisionPause {
		t.Errorf("it is tried again after %v", a.provisionPause())
	}
	eventually(t, "withdrawn", func() bool { return !strings.Contains(a.ask(t, name), "n=1 ") })
	before := len(a.logs.String())
	eventually(t, "reserved", func() bool { a.provisionAgain(t.Context(), "x"); return a.provisionPause() == 0 })
	if got := strings.Join(a.audited(before), "\n"); got != `provision what="POST /api/v1/ddns/usages" id=<id> status=200` {
		t.Errorf("what waited has made\n%s", got)
	}
	eventually(t, "published", func() bool { return strings.Contains(a.ask(t, name), "n=7 ") })
	if n := a.provisioned.count.Load(); n != 0 {
		t.Errorf("%d faults are left", n)
	}
}

// What the stored state does not allow waits, and the rest is applied. It is logged once, is in
// the metrics and the health, and is applied when the state allows it.
func TestProvisionWaits(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.must(t, "PUT", "/api/v1/ddns/services/b", `{"name":"B","config":{"domain":"b.example"}}`)
	id := a.reserve(t, "b", "office", 1)
	const document = `{"configuration": {"provider": "x", "access_key_id": "-", "access_key_secret": "********", "domain": "example.com", "txt_record_name": "@"},
"services": [{"id": "b", "name": "Moved", "config": {"domain": "moved.example"}}, {"id": "c", "name": "C", "config": {"domain": "c.example"}}],
"usages": [{"service_id": "b", "prefix_mode": "auto", "network_id": 2},
  {"service_id": "c", "prefix_mode": "auto", "network_id": 3},
  {"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`
	const want = `provision what="PUT /api/v1/ddns/services/{id}" id=c status=200
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:1: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
0.json:2: services[0].config.domain: the service has usages, its domain cannot change
0.json:5: usages[2].service_id: no such service`
	if got := a.applied(t, document); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	tells := func(faults, health string) {
		t.Helper()
		if page := a.must(t, "GET", "/metrics", ""); !strings.Contains(page, "\nmeshddns_provision_faults "+faults+"\n") {
			t.Errorf("the metrics have no %s faults:\n%s", faults, page)
		}
		if got := a.must(t, "GET", "/healthz", ""); !strings.Contains(got, health) {
			t.Errorf("healthz: %s, want %s", got, health)
		}
	}
	tells("3", "预置文件未完全应用")
	again := func(waits int, want ...string) {
		t.Helper()
		before := len(a.logs.String())
		a.provisionAgain(t.Context(), "x")
		if got := a.audited(before); !slices.Equal(got, want) || len(a.provisioned.faults) != waits {
			t.Errorf("%q, %d faults, want %q, %d", got, len(a.provisioned.faults), want, waits)
		}
		if log := a.logs.String()[before:]; strings.Contains(log, "not applied") {
			t.Errorf("what was told is told once more: %s", log)
		}
	}
	again(3)
	a.must(t, "DELETE", "/api/v1/ddns/usages/"+id+"?force=1", "")
	again(2, `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	a.must(t, "PUT", "/api/v1/ddns/services/none", `{"name":"N","config":{"domain":"none.example"}}`)
	a.must(t, "PUT", "/api/v1/ddns/config", `{"provider":"x","access_key_id":"-","access_key_secret":"sesame","domain":"other.example","txt_record_name":"@"}`)
	again(0, `provision what="PUT /api/v1/ddns/config" id="" status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	tells("0", `"正常"`)
}

// A form that is wrong changes nothing, not even what is right beside it; what waited of the file
// before waits on.
func TestProvisionForm(t *testing.T) {
	a := newAppliance(t, stopClock)
	const waiting = `0.json:1: usages[0].service_id: no such service`
	if got := a.applied(t, `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`); got != waiting {
		t.Fatal(got)
	}
	before := a.rows(t)
	const want = `0.json:1: services[1].name: name must not be empty`
	got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}, {"id": "x", "name": "", "config": {}}]}`)
	if got != want || !slices.Equal(before, a.rows(t)) {
		t.Errorf("%s, and the database is another one: %v", got, !slices.Equal(before, a.rows(t)))
	}
	if n := a.provisioned.count.Load(); n != 2 || a.provisionPause() == 0 {
		t.Errorf("%d faults, again after %v", n, a.provisionPause())
	}
	if got := a.applied(t, `{"services": []}`); got != "" || a.provisioned.count.Load() != 0 {
		t.Errorf("a file without mistakes: %s, %d faults", got, a.provisioned.count.Load())
	}
}

// While the database fails, all of the file waits.
func TestProvisionWaitsForTheDatabase(t *testing.T) {
	a := newAppliance(t, stopClock)
	db := a.open(t)
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON services BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`); !strings.Contains(got, "no") {
		t.Errorf("the fault is %q", got)
	}
	before := len(a.logs.String())
	a.provisionAgain(t.Context(), "x")
	if log := a.logs.String()[before:]; log != "" || a.provisioned.count.Load() != 1 {
		t.Errorf("the same fault again: %s, %d faults", log, a.provisioned.count.Load())
	}
	if _, err := db.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	a.provisionAgain(t.Context(), "x")
	if log := a.logs.String()[before:]; !strings.Contains(log, "msg=provisioned") || a.provisioned.count.Load() != 0 || a.provisionPause() != 0 {
		t.Errorf("the database works: %s, %d faults", log, a.provisioned.count.Load())
	}
}

// No fault of the file keeps the program from starting: it serves what is stored, and takes the
// file at the next hang-up. Each mistake is a line of the log.
func TestProvisionFaultsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	file, db := filepath.Join(dir, "x.json"), filepath.Join(dir, "x.db")
	for _, test := range []struct {
		name, document string
		log            []string
	}{
		{"no JSON", `{`, []string{`level=ERROR msg="the provision file is not applied: what was stays" error=` + file + `:1: not JSON`}},
		{"two mistakes", `{"owner": 1, "more": 2}`, []string{file + `:1: owner: is 1, want a string`, file + `:1: more: no such member`}},
		{"no credential", `{"services": [{"id": "a", "name": "A", "config": {"access_key_secret": {"credential": "key"}}}]}`, []string{`$CREDENTIALS_DIRECTORY is not set`}},
		{"no such service", `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]}`,
			[]string{`level=WARN msg="a part of the provision file is not applied" error="` + file + `:1: usages[0].service_id: no such service"`}},
		{"no file", "", []string{`no such file or directory`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(file)
			if test.document != "" {
				writeFile(t, file, test.document)
			}
			p := runProgram(t, nil, "-db", db, "-provision", file)
			for _, want := range test.log {
				if log := strings.ReplaceAll(p.log.String(), `error="`+file, `error=`+file); !strings.Contains(log, strings.ReplaceAll(want, `error="`+file, `error=`+file)) {
					t.Errorf("the log has no %s\n%s", want, log)
				}
			}
			if got := p.health(); !strings.Contains(got, "not fully applied") {
				t.Errorf("healthz says %s", got)
			}
			writeFile(t, file, `{}`)
			p.hangUps <- syscall.SIGHUP
			(&syncHost{t: t, log: p.log}).until("healthy", func() bool { return p.health() == "ok" })
		})
	}
}

// health is what healthz says.
func (p *appProcess) health() string {
	p.t.Helper()
	request, err := http.NewRequest("GET", p.url+"/healthz", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept-Language", "en")
	response, err := (&http.Client{Timeout: dnsPatience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct{ Message string }
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil || response.StatusCode != 200 {
		p.t.Fatalf("healthz: %d %s, %v", response.StatusCode, text, err)
	}
	return body.Message
}

// What waits is tried again after its pause, beside hang-ups, and never when nothing waits.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pauses := []time.Duration{time.Second, time.Minute, 0}
		begin, done := time.Now(), []time.Duration(nil)
		again := repeated{
			after: func() time.Duration { return pauses[0] },
			do:    func(context.Context) { done, pauses = append(done, time.Since(begin)), pauses[1:] },
		}
		ended := make(chan error)
		go func() { ended <- onHangUp(ctx, nil, nil, again) }()
		time.Sleep(time.Hour) // of a clock that does not wait
		cancel()
		if err := <-ended; err != nil || !slices.Equal(done, []time.Duration{time.Second, 61 * time.Second}) {
			t.Errorf("done at %v, %v", done, err)
		}
	})
}

// An error of many lines is as many lines of the log, up to a bound.
func TestLogLines(t *testing.T) {
	a := newAppliance(t, stopClock)
	var all provision.Mistakes
	for range 2 * maxFaultLines {
		all = append(all, provision.Mistake{File: "f", Line: 1, Reason: "bad"})
	}
	before := len(a.logs.String())
	logLines(a.log, 0, "m", all)
	if log := a.logs.String()[before:]; strings.Count(log, `error="f:1: bad"`) != maxFaultLines || !strings.Contains(log, "more=100") {
		t.Error(log)
	}
}
