package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"meshddns/provider/cloudtest"
)

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
	if _, err := db.Exec(`INSERT INTO usages VALUES (1, 'u', 'svc', 'mesh_sync', 'auto', 'old', 'TXT', '', 1, '[]', '_mesh.old.example.com', '')`); err != nil {
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

// A look in mode manual, for a write that may arrive late, takes nothing away
// whose successor is not there.
func TestManualLookTakesNothingAway(t *testing.T) {
	w := &oldWorld{t: t, now: cloudtest.AliDNS(t), moved: cloudtest.TencentCloud(t), refused: cloudtest.HuaweiCloud(t), network: 100}
	w.build()
	a := newApplianceOn(t, oldFile(t, 1, w.statements...))
	db := a.open(t)
	defer db.Close()
	eventually(t, "every place was looked at", func() bool {
		return queryText(t, db, `SELECT count(*) FROM names WHERE due <= 1000`)[0] == "0"
	})
	for _, prefix := range []string{"failed-old", "pending-old", "conflict-old", "held"} {
		if values := w.now.Values(t, "_mesh."+prefix+".mesh.example.com"); len(values) != 1 {
			t.Errorf("%s: %q", prefix, values)
		}
	}
}
