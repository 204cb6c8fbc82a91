package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// A value that stands is told, also while no configuration says where it is wanted.
func (suite Suite) testValueWithoutConfiguration(t *testing.T) {
	a, c := suite.Start(t, Options{}), cloudtest.Webhook(t)
	configure := func(enabled bool) {
		a.Must(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"_txt","enabled":%t}`,
			c.AccessKeyID, c.AccessKeySecret, c.URL, cloudtest.Zone, enabled))
	}
	configure(true)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"`+cloudtest.Zone+`"}}`)
	id := a.Reserve(t, "svc", "office", 7)
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	configure(false)
	c.Fail(slices.Repeat([]cloudtest.Fault{cloudtest.Throttle}, 1000)...) // or the value is withdrawn
	a.Call(t, "DELETE", "/api/v1/ddns/config", "")
	support.Eventually(t, support.Limit, "the state follows", func() bool {
		return strings.Contains(a.Must(t, "GET", "/api/v1/ddns/usages/"+id, ""), `"state":"none","value":"v=mesh1 n=7 `)
	})
	if len(c.Values(t, "_mesh.office."+cloudtest.Zone)) != 1 {
		t.Error("the value does not stand")
	}
}

// Built-in zones may lie within each other, and their names may begin alike:
// what stands in one is no orphan of the other, and no sweep takes it away.
func (suite Suite) testBuiltinZonesBesideEachOther(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	names := map[string]int{}
	for i, domain := range []string{"example.com", "mesh.example.com", "example-two.com", "sub.example-two.com", "exam.com"} {
		id := fmt.Sprint("s", i)
		a.Must(t, "PUT", "/api/v1/ddns/services/"+id, `{"name":"x","config":{"domain":"`+domain+`","provider":"builtin"}}`)
		a.Reserve(t, id, "a", i+1)
		names["_mesh.a."+domain] = i + 1
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	for _, query := range []string{"", "?sweep=1", "?sweep=1"} {
		a.Must(t, "POST", "/api/v1/ddns/sync"+query, "")
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
func (suite Suite) testBuiltinZoneCuts(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.example.com"}}`)
	a.Reserve(t, "svc", "a", 1)
	check := func(when string) {
		t.Helper()
		for range 3 {
			a.Must(t, "POST", "/api/v1/ddns/sync", "")
			if !a.stands(t, "_mesh.a.mesh.example.com", 1) {
				t.Errorf("%s: the value does not stand", when)
			}
		}
	}
	check("published")
	a.Must(t, "PUT", "/api/v1/ddns/services/inner", `{"name":"x","config":{"domain":"mesh.example.com","provider":"builtin"}}`)
	check("after a zone was made")
	a.Must(t, "DELETE", "/api/v1/ddns/services/inner", "")
	check("after it has gone")
}

// A database that fails is said at once, not after the time that a pass may take.
func (suite Suite) testSyncSaysThatTheDatabaseFails(t *testing.T) {
	for _, table := range []string{"configuration", "pass", "names"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			a := suite.Start(t, Options{})
			a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
			a.Must(t, "POST", "/api/v1/ddns/sync", "")
			db := a.Open(t)
			defer db.Close()
			support.Exec(t, db, `ALTER TABLE `+table+` RENAME TO away`)
			begun := time.Now()
			status, code, answer := a.Call(t, "POST", "/api/v1/ddns/sync", "")
			if status != http.StatusInternalServerError || code != "internal_error" || time.Since(begun) >= suite.SyncTime {
				t.Errorf("%d %s %s after %v", status, code, answer, time.Since(begun))
			}
		})
	}
}

// An outcome that cannot be stored is not one: the pass goes on until it is.
func (suite Suite) testOutcomeThatIsNotStored(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `CREATE TRIGGER fault BEFORE UPDATE ON places WHEN NEW.state = 'published' BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
	answered := make(chan string, 1)
	go func() {
		response, answer, err := a.Exchange("POST", "/api/v1/ddns/sync", nil, strings.NewReader(""))
		if err != nil {
			answered <- err.Error()
			return
		}
		answered <- response.Status + " " + answer
	}()
	support.Eventually(t, support.Limit, "the fault is logged", func() bool { return strings.Contains(a.Logs.String(), "disk full") })
	support.Exec(t, db, `DROP TRIGGER fault`)
	if answer := <-answered; !strings.HasPrefix(answer, "200 OK") {
		t.Fatal(answer)
	}
	if r := a.report(t); r.Counts["unchanged"]+r.Counts["create"] != 1 || !r.OK {
		t.Errorf("after the fault: %+v", r)
	}
	if got := support.Rows(t, db, `SELECT state FROM places`); len(got) != 1 || got[0] != "published" {
		t.Errorf("the place is %q", got)
	}
}

// A report tells of the next pass where one is planned: not in mode manual.
func (suite Suite) testNextPass(t *testing.T) {
	a := suite.Start(t, Options{})
	for range 20 {
		a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
		a.Must(t, "POST", "/api/v1/ddns/sync", "")
		if next := a.report(t).NextAt; next != nil {
			t.Fatalf("in mode manual a pass is planned at %v", next)
		}
	}
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`,"sync_mode":"auto"}`)
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	support.Eventually(t, support.Limit, "a pass is planned", func() bool { return a.report(t).NextAt != nil })
}

// A name counts once in a report, whether it was changed just before or not.
func (suite Suite) testReportCountsANameOnce(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	var id string
	for _, service := range []string{"one", "two"} {
		a.Must(t, "PUT", "/api/v1/ddns/services/"+service, `{"name":"x","config":{"domain":"example.com"}}`)
		id = a.Reserve(t, service, "a", len(service+id))
	}
	for round := range 60 {
		a.Must(t, "PATCH", "/api/v1/ddns/usages/"+id, fmt.Sprintf(`{"description":"%d"}`, round))
		_, _, answer := a.Call(t, "POST", "/api/v1/ddns/sync", "")
		r := a.report(t)
		delete(r.Counts, "create")
		delete(r.Counts, "unchanged")
		maps.DeleteFunc(r.Counts, func(_ string, count int) bool { return count == 0 })
		if want := map[string]int{"conflict": 1}; !maps.Equal(r.Counts, want) || !strings.Contains(answer, "1 / 2 ") {
			t.Fatalf("round %d: %v, %s", round, r.Counts, answer)
		}
	}
}

// A usage that has nowhere to be published any more is in the state none, whatever of it is
// left where it was.
func (suite Suite) testNowhereWithLeftover(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	configure := func(domain string) {
		a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"`+domain+
			`","txt_record_name":"_txt","enabled":true,"sync_mode":"upsert-only"}`)
		a.Must(t, "POST", "/api/v1/ddns/sync", "")
	}
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var made struct{ Data struct{ ID string } }
	text := a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":7}`)
	support.Must(t, json.Unmarshal([]byte(text), &made))
	configure("example.com")
	configure("elsewhere.example")
	if left := a.Must(t, "GET", "/api/v1/ddns/leftovers", ""); !strings.Contains(left, `"value":"v=mesh1 n=7`) {
		t.Fatalf("leftovers %s", left)
	}
	if got := a.Must(t, "GET", "/api/v1/ddns/usages/"+made.Data.ID, ""); !strings.Contains(got, `"publish":{"state":"none",`) {
		t.Errorf("%s", got)
	}
}

// What would be lost is not acknowledged: the file, or its log, is another one.
func (suite Suite) testFileIsGone(t *testing.T) {
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
			a := suite.Start(t, Options{})
			a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
			a.WantHealth(t, http.StatusOK, "")
			support.Must(t, spoil(a.Path))
			var asking sync.WaitGroup
			for n := range 16 {
				asking.Go(func() {
					body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, n, n)
					response, answer, err := a.Exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body))
					if err != nil || response.StatusCode != http.StatusInternalServerError || response.Header.Get("X-Error-Code") != "database_gone" {
						t.Errorf("%v %v %s", err, response, answer)
					}
				})
			}
			asking.Wait()
			if t.Failed() {
				t.Log(a.Logs.String())
			}
			a.WantHealth(t, http.StatusServiceUnavailable, "database_gone")
			support.Eventually(t, support.Limit, "what is open already is read", func() bool { // the check of the start may have it for a while
				status, _, _ := a.Call(t, "GET", "/api/v1/ddns/services/svc", "")
				return status == http.StatusOK
			})
			a.Call(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"late","network_id":99}`)
			if _, _, answer := a.Call(t, "GET", "/api/v1/ddns/usages/available?network_id=99", ""); strings.Contains(answer, "late") {
				t.Errorf("a change begins after it is known that the file is gone: %s", answer)
			}
		})
	}
}

// Another program that holds the database is named as the reason.
func (suite Suite) testLockedByAnother(t *testing.T) {
	a := suite.Start(t, Options{})
	db := a.Open(t)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	support.Must(t, err)
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if status, code, answer := a.Call(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{}}`); status != http.StatusInternalServerError || code != "database_locked" {
		t.Errorf("%d %s %s", status, code, answer)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{}}`)
}
