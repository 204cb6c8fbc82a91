package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/internal/answers"
	"meshddns/internal/web"
	"meshddns/test/support"
)

// However many ask for one prefix at once, in whatever letter case, one gets it.
func (suite Suite) testOnePrefixIsGivenOnce(t *testing.T) {
	const rounds, clients = 100, 12
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
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
				response, _, err := a.Exchange("POST", "/api/v1/ddns/usages", nil, strings.NewReader(body))
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
	db := a.Open(t)
	defer db.Close()
	if got := support.Rows(t, db, `SELECT (SELECT count(*) FROM usages), (SELECT count(*) FROM bindings)`); got[0] != "100 | 100" {
		t.Errorf("usages | bindings = %s", got[0])
	}
}

// A network's id is exact on its whole way: stored, listed, looked for, published.
func (suite Suite) testNetworkIDIsExact(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config",
		`{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_txt","sync_mode":"auto","enabled":true}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	ids := []string{"0", "1", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	names := map[string]string{}
	for _, id := range ids {
		for i, prefix := range []string{`"auto"`, `"custom","custom_prefix":"n` + id + `"`} {
			answer := a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":`+prefix+`,"network_id":`+id+`}`)
			if want := `"network_id":` + id + `}`; !strings.Contains(answer, want) {
				t.Errorf("POST: no %s in %s", want, answer)
			}
			var made struct {
				Data struct {
					ID     string
					Domain string `json:"full_domain"`
				}
			}
			support.Must(t, json.Unmarshal([]byte(answer), &made))
			names[made.Data.Domain] = id
			if answer, want := a.Must(t, "GET", "/api/v1/ddns/usages/"+made.Data.ID, ""), `"network_id":`+id+`,`; !strings.Contains(answer, want) {
				t.Errorf("GET: no %s in %s", want, answer)
			}
			answer = a.Must(t, "GET", "/api/v1/ddns/usages/available?network_id="+id, "")
			if found := strings.Count(answer, `"network_id":`); found != i+1 || strings.Count(answer, `"network_id":`+id+`,`) != found {
				t.Errorf("?network_id=%s: %s", id, answer)
			}
		}
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	for name, id := range names {
		if value := a.Ask(t, name); !strings.HasPrefix(value, `NOERROR "v=mesh1 n=`+id+` o=`) {
			t.Errorf("%s: %s, want n=%s", name, value, id)
		}
	}
}

// badBodies are bodies that no endpoint takes.
var badBodies = []string{
	"", " ", "{", "null", "[]", `"x"`, "7", "{} {}", `{}x`, "{'a':1}", `{"a":1,}`, "\ufeff{}", "{}\x00", "name=x",
	"{\"x\":\"\xff\"}", `{"x":"\ud800"}`, `{"a":1,"a":2}`, `{"x":{"a":1,"\u0061":2}}`,
	"[" + strings.Repeat("[", 20000), `{"x":"` + strings.Repeat("x", web.MaxBody) + `"}`,
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
func (suite Suite) testRefusedRequestsChangeNothing(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"s","domain":"example.com","txt_record_name":"_txt"}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{}}`)
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}`)
	db := a.Open(t)
	defer db.Close()
	id := support.Rows(t, db, `SELECT id FROM usages`)[0]
	requests := slices.Clone(badRequests)
	for _, endpoint := range []string{"POST /usages", "PUT /config", "POST /test", "POST /services", "PUT /services/svc", "PUT /services/new", "PATCH /usages/{id}"} {
		method, path, _ := strings.Cut(endpoint, " ")
		for _, body := range badBodies {
			status, code := http.StatusBadRequest, "parameter_error"
			if len(body) > web.MaxBody {
				status, code = http.StatusRequestEntityTooLarge, "body_too_large"
			}
			requests = append(requests, badRequests[0])
			last := &requests[len(requests)-1]
			last.method, last.path, last.body, last.status, last.code = method, path, body, status, code
		}
	}
	support.Eventually(t, support.Limit, "the engine has reviewed what was stored", func() bool {
		return support.Rows(t, a.Reader, `SELECT (SELECT count(*) FROM pass WHERE requested <> '') + (SELECT count(*) FROM names WHERE lane = '' AND due > 0)`)[0] == "0"
	})
	before := a.Files(t)
	for _, r := range requests {
		path := "/api/v1/ddns" + strings.ReplaceAll(r.path, "{id}", id)
		response, answer := a.Do(t, r.method, path, nil, r.body)
		request := fmt.Sprintf("%s %s %.80q", r.method, path, r.body)
		CheckEnvelope(t, request, response, answer)
		if code := response.Header.Get("X-Error-Code"); response.StatusCode != r.status || code != r.code {
			t.Errorf("%s: %d %s %s, want %d %s", request, response.StatusCode, code, answer, r.status, r.code)
		}
		if after := a.Files(t); !bytes.Equal(after, before) {
			t.Fatalf("%s: the database is another one", request)
		}
	}
}

// A body of 64 KiB is taken, one octet more is not, whether or not its length
// is told beforehand.
func (suite Suite) testBodyLimit(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	for request, body := range map[string]string{
		"PUT /services/other": `{"name":"x","config":{}}`,
		"POST /services":      `{"name":"x","config":{}}`,
		"POST /usages":        `{"service_id":"svc","prefix_mode":"auto","network_id":1}`,
		"POST /test":          `{}`,
		"PUT /config":         `{"provider":"x","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"x"}`,
	} {
		method, path, _ := strings.Cut(request, " ")
		for _, size := range []int{web.MaxBody, web.MaxBody + 1} {
			want := http.StatusOK
			if size > web.MaxBody {
				want = http.StatusRequestEntityTooLarge
			}
			padded := body + strings.Repeat(" ", size-len(body))
			for name, reader := range map[string]io.Reader{"told": strings.NewReader(padded), "chunked": io.MultiReader(strings.NewReader(padded))} {
				response, answer, err := a.Exchange(method, "/api/v1/ddns"+path, nil, reader)
				support.Must(t, err)
				if response.StatusCode != want {
					t.Errorf("%s with %d octets (%s): %s %s", request, size, name, response.Status, answer)
				}
			}
		}
	}
}

// All services are listed, in the order of their ids, in however many parts they are
// read and sent; and a list that breaks off does not look whole.
func (suite Suite) testManyServices(t *testing.T) {
	count := 2*suite.ServicePage + 1
	a := suite.Start(t, Options{})
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `
		INSERT INTO services (id, name, config, zone, zone_key, provider, txt_endpoints, created_at, updated_at)
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('s%06d', i), '<' || i || '>', '{"x":"' || hex(zeroblob(32768)) || '"}', '', '', '', '[]', '', '' FROM n`, count)
	var body struct {
		Data []struct{ ID, Name, Config string }
	}
	if err := json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/services", "")), &body); err != nil || len(body.Data) != count {
		t.Fatalf("%d services, %v", len(body.Data), err)
	}
	for i, v := range body.Data {
		if v.ID != fmt.Sprintf("s%06d", i+1) || v.Name != fmt.Sprintf("<%d>", i+1) || len(v.Config) < 65536 {
			t.Fatalf("the service at %d is %s %s", i, v.ID, v.Name)
		}
	}
	response, err := a.HTTP.Get(a.URL + "/api/v1/ddns/services")
	support.Must(t, err)
	defer response.Body.Close()
	support.Exec(t, db, `ALTER TABLE services RENAME TO away`)
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.Logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v, and the log is\n%s", err, a.Logs.String())
	}
	if response, _ := a.Do(t, "GET", "/api/v1/ddns/services", nil, ""); response.StatusCode != 500 {
		t.Error(response.Status)
	}
}

// The listing as one stream is the same as page by page.
func (suite Suite) testPagesAreTheStream(t *testing.T) {
	const count = 3000
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, count, 2)
	whole, next := a.Page(t, "")
	if len(whole) != count || next != "" {
		t.Fatalf("the stream has %d entries and the cursor %q", len(whole), next)
	}
	for _, limit := range []int{7, 500, 1000} {
		var paged []string
		for cursor, more := "", true; more; more = cursor != "" {
			var entries []string
			entries, cursor = a.Page(t, fmt.Sprintf("limit=%d&cursor=%s", limit, cursor))
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

// A client that asks for a long listing and does not read it keeps nobody
// from writing, and no old state of the database alive.
func (suite Suite) testSlowReaderHoldsNobodyUp(t *testing.T) {
	const count = 1000
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, count, 16<<10) // more than the sockets between client and server hold
	response, err := a.HTTP.Get(a.URL + "/api/v1/ddns/usages/available")
	support.Must(t, err)
	defer response.Body.Close()
	db := a.Open(t)
	defer db.Close()
	for i := range 20 {
		a.Must(t, "PUT", "/api/v1/ddns/services/svc", fmt.Sprintf(`{"name":"%d","config":{"domain":"example.com"}}`, i))
	}
	support.Eventually(t, support.Limit, "no reader is left", func() bool {
		return a.Reader.Stats().InUse == 0 && strings.HasPrefix(support.Rows(t, db, `PRAGMA wal_checkpoint(TRUNCATE)`)[0], "0 ")
	})
	var listing struct{ Data []json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&listing); err != nil || len(listing.Data) != count {
		t.Errorf("%d entries, %v", len(listing.Data), err)
	}
}

// A listing that breaks off must not look whole.
func (suite Suite) testListingBrokenOff(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, 1000, 16<<10) // more than the sockets hold
	response, err := a.HTTP.Get(a.URL + "/api/v1/ddns/usages/available")
	support.Must(t, err)
	defer response.Body.Close()
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `ALTER TABLE usages RENAME TO away`)
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer ends with %v", err)
	}
	if !strings.Contains(a.Logs.String(), "answer broken off") {
		t.Error("nothing is logged")
	}
}

// WriteOutlivesItsClient finishes a write that has begun, also when its client has gone. It looks at all goroutines, so
// no other test may run beside it.
func (suite Suite) WriteOutlivesItsClient(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Settle() // so that nobody else takes the writer
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `BEGIN IMMEDIATE`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "PUT", a.URL+"/api/v1/ddns/services/svc", strings.NewReader(`{"name":"x","config":{}}`))
	support.Must(t, err)
	gone := make(chan error, 1)
	go func() {
		_, err := a.HTTP.Do(request)
		gone <- err
	}()
	support.Eventually(t, support.Limit, "the write waits for its turn", func() bool { return stands(".serviceSaver", "sqlite.(*Queue).Do") })
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("the client got an answer")
	}
	support.Exec(t, db, `COMMIT`)
	support.Eventually(t, support.Limit, "the service is stored", func() bool {
		return slices.Equal(support.Rows(t, a.Reader, `SELECT id FROM services`), []string{"svc"})
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

// Two clients that change two members of one usage do not undo each other.
func (suite Suite) testChangesOfOneUsageAtOnce(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	path := "/api/v1/ddns/usages/" + UUIDText.FindString(a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`))
	for round := range 50 {
		changes := []string{fmt.Sprintf(`{"txt_endpoints":["tcp://a:%d"]}`, round+1), fmt.Sprintf(`{"description":"%d"}`, round+1)}
		var changing sync.WaitGroup
		for _, change := range changes {
			changing.Go(func() {
				if response, answer, err := a.Exchange("PATCH", path, nil, strings.NewReader(change)); err != nil || response.StatusCode != 200 {
					t.Error(answer, err)
				}
			})
		}
		changing.Wait()
		answer := a.Must(t, "GET", path, "")
		for _, change := range changes {
			if !strings.Contains(answer, strings.Trim(change, "{}")) {
				t.Fatalf("round %d: no %s in %s", round, change, answer)
			}
		}
	}
}

// A custom prefix is taken by every usage of the service, of whatever mode.
func (suite Suite) testPrefixIsTakenByAnyUsage(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `INSERT INTO usages VALUES (1, 'u', 'svc', 'mesh_sync', 'auto', 'old', 'TXT', '', 1, '[]', '_mesh.old.example.com', '', 'none', 0, '', 0)`)
	if status, code, answer := a.Call(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"OLD","network_id":1}`); code != "prefix_taken" {
		t.Errorf("%d %s %s", status, code, answer)
	}
}

// Who releases the newest of two usages of a network takes its endpoints out of
// the record: that is a person's order, in mode manual too.
func (suite Suite) testReleaseOfTheNewestUsage(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", inExampleCom+`}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var ids []string
	for _, endpoint := range []string{"tcp://elder:1", "tcp://newest:1"} {
		id := UUIDText.FindString(a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":42}`))
		a.Must(t, "PATCH", "/api/v1/ddns/usages/"+id, `{"txt_endpoints":["`+endpoint+`"]}`)
		ids = append(ids, id)
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	a.Must(t, "DELETE", "/api/v1/ddns/usages/"+ids[1], "")
	if got := a.Ask(t, "_mesh._mesh-NDI.example.com"); !strings.HasSuffix(got, ` tcp://elder:1"`) {
		t.Error(got)
	}
}

// testLeftoversAreStreamed lists more leftovers than are kept at a time: all of them, in
// pages too, and with an answer that is cut when the database goes on the way.
func (suite Suite) testLeftoversAreStreamed(t *testing.T) {
	count := 10*suite.LeftoverPage + 1
	a := suite.Start(t, Options{})
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `
		INSERT INTO accounts (id, provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (1, 'vendor', '', 'key', '', '');
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('n%06d', i), 1, 'z', '', 'leftover', hex(zeroblob(8192)), '', 0, 0, '', '', '', 0, '', '' FROM n`, count)
	page := func(query string) (names []string, next string) {
		var body struct {
			Data []answers.Leftover
			Next string `json:"next_cursor"`
		}
		support.Must(t, json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/leftovers"+query, "")), &body))
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
	response, err := a.HTTP.Get(a.URL + "/api/v1/ddns/leftovers")
	support.Must(t, err)
	defer response.Body.Close()
	support.Exec(t, db, `ALTER TABLE places RENAME TO away`)
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.Logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v: it was read as a whole before it was sent", err)
	}
}

// A domain in letters of any script is published as DNS has it, and shown as
// it was typed.
func (suite Suite) testDomainOfAnotherScript(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"Bücher.Example",
		"txt_record_name":"@","enabled":true,"txt_endpoints":["tcp://203.0.113.7:1"]}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.BÜCHER.example."}}`)
	reserved := a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Berlin","network_id":7}`)
	if !strings.Contains(reserved, `"full_domain":"_mesh.Berlin.mesh.BÜCHER.example."`) {
		t.Error(reserved)
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	for _, name := range []string{"xn--bcher-kva.example", "_mesh.berlin.mesh.xn--bcher-kva.example"} {
		if got := a.Ask(t, name); !strings.Contains(got, "tcp://203.0.113.7:1") {
			t.Errorf("%s has %q", name, got)
		}
	}
	for _, name := range []string{"xn--bcher-kva.example", "mesh.xn--bcher-kva.example"} { // above a zone there is a node
		if got := a.Ask(t, name); strings.Contains(got, "NXDOMAIN") {
			t.Errorf("%s: %s", name, got)
		}
	}
	var usage struct{ Data struct{ ID string } }
	support.Must(t, json.Unmarshal([]byte(reserved), &usage))
	a.Must(t, "DELETE", "/api/v1/ddns/usages/"+usage.Data.ID, "")
	if got := a.Ask(t, "_mesh.berlin.mesh.xn--bcher-kva.example"); strings.Contains(got, "203.0.113.7") {
		t.Errorf("after the release: %s", got)
	}
	for _, domain := range []string{"BÜCHER.example", "new.Bücher.example"} {
		if got := a.items(t, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"`+domain+`","txt_record_name":"@"}`); !strings.HasSuffix(got, "record ok") {
			t.Errorf("%s: %s", domain, got)
		}
	}
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"mesh.bücher.EXAMPLE","provider":"builtin"}}`)
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Rom","network_id":7}`)
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	if got := a.Ask(t, "_mesh.rom.mesh.xn--bcher-kva.example"); !strings.Contains(got, "203.0.113.7") {
		t.Errorf("in a zone of the service's own: %s", got)
	}
	a.Must(t, "PUT", "/api/v1/ddns/services/long", `{"name":"x","config":{"domain":"`+strings.Repeat("ü", 40)+`.example"}}`) // 80 octets typed, 46 in DNS
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"long","prefix_mode":"custom","custom_prefix":"x","network_id":7}`)
	status, code, answer := a.Call(t, "PUT", "/api/v1/ddns/services/odd", `{"name":"x","config":{"domain":"two ☃.example","provider":"builtin"}}`)
	if status != http.StatusBadRequest || code != "service_domain_invalid" || !strings.Contains(answer, "☃") {
		t.Errorf("%d %s %s, want the label that is refused", status, code, answer)
	}
}

// What has come to a list that is not JSON, and a missing binding, do not keep others
// from being listed.
func (suite Suite) testUnreadableRowsAreListed(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/services/good", `{"name":"x","config":{"domain":"example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/odd", `{"name":"x","config":{"domain":"example.org"}}`)
	var ids []string
	for n := range 4 {
		ids = append(ids, a.Reserve(t, []string{"good", "odd"}[n/2], fmt.Sprint("p", n), n))
	}
	db := a.Open(t)
	defer db.Close()
	for _, statement := range []string{
		`UPDATE usages SET txt_endpoints = '{' WHERE record_prefix = 'p0'`,
		`DELETE FROM bindings WHERE network_id = 1`,
		`UPDATE services SET config = '{"domain', txt_endpoints = 'x', domain = NULL WHERE id = 'odd'`,
	} {
		support.Exec(t, db, statement)
	}
	for _, query := range []string{"", "?state=pending", "?state=none", "?limit=10", "?service_id=odd"} {
		status, code, answer := a.Call(t, "GET", "/api/v1/ddns/usages/available"+query, "")
		if status != http.StatusOK || query == "" && strings.Count(answer, `"id":"`) != 8 {
			t.Errorf("%s: %d %s %s", query, status, code, answer)
		}
	}
	for _, id := range ids {
		a.Must(t, "GET", "/api/v1/ddns/usages/"+id, "")
	}
	if answer := a.Must(t, "GET", "/api/v1/ddns/services", ""); !strings.Contains(answer, `"good"`) || !strings.Contains(answer, `"odd"`) {
		t.Error(answer)
	}
	a.Must(t, "GET", "/api/v1/ddns/services/odd", "")
}
