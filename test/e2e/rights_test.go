package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meshddns/test/support"
)

// mayUse is the contract: which roles may use a route, beside admin.
var mayUse = map[string]string{
	"GET /api/v1/ddns/config": "read", "PUT /api/v1/ddns/config": "", "DELETE /api/v1/ddns/config": "",
	"POST /api/v1/ddns/test": "", "POST /api/v1/ddns/sync": "", "GET /api/v1/ddns/sync": "read",
	"GET /api/v1/ddns/leftovers": "read", "DELETE /api/v1/ddns/leftovers/{id}": "", "POST /api/v1/ddns/adopt": "",
	"GET /api/v1/ddns/providers": "read service", "GET /api/v1/ddns/addresses": "read service", "GET /api/v1/ddns/openapi.json": "read service",
	"POST /api/v1/ddns/usages": "service", "GET /api/v1/ddns/check-prefix": "read service", "GET /api/v1/ddns/usages/available": "read service",
	"GET /api/v1/ddns/usages/{id}": "read service", "PATCH /api/v1/ddns/usages/{id}": "service", "DELETE /api/v1/ddns/usages/{id}": "service",
	"POST /api/v1/ddns/usages/{id}/leases": "service", "GET /api/v1/ddns/usages/{id}/leases": "read service", "DELETE /api/v1/ddns/usages/{id}/leases/{lease}": "service",
	"GET /api/v1/ddns/usages/{id}/events": "read service", "GET /api/v1/ddns/events": "read",
	"POST /api/v1/ddns/services": "", "GET /api/v1/ddns/services": "read", "GET /api/v1/ddns/services/{id}": "read service",
	"PUT /api/v1/ddns/services/{id}": "", "DELETE /api/v1/ddns/services/{id}": "",
	"GET /api/v1/ddns/notifications": "read", "GET /api/v1/ddns/notifications/{id}": "read", "PUT /api/v1/ddns/notifications/{id}": "",
	"DELETE /api/v1/ddns/notifications/{id}": "", "POST /api/v1/ddns/notifications/{id}/test": "",
	"GET /api/v1/ddns/secondaries": "read", "GET /api/v1/ddns/secondaries/{id}": "read", "PUT /api/v1/ddns/secondaries/{id}": "", "DELETE /api/v1/ddns/secondaries/{id}": "",
	"GET /api/v1/ddns/state": "read", "DELETE /api/v1/ddns/state": "", "GET /api/v1/ddns/backup": "", "GET /metrics": "read",
	"GET /healthz": "read service nobody", "OPTIONS /{$}": "read service nobody",
	"GET /{$}": "read", "GET /names": "read", "GET /names/{id}": "read", "GET /nodes": "read", "GET /zones": "read", "GET /events": "read",
}

// The tokens of a roleWorld, by the names of their callers.
var roleTokens = map[string]string{
	"admin": "admin-0123456789abcdef", "numbered": "numbered-0123456789ab", "read": "read-0123456789abcdef",
	"own": "own-0123456789abcdef", "other": "other-0123456789abcdef", "rotated": "rotated-0123456789ab", "nobody": "",
}

const roleFile = `# the roles
admin admin admin-0123456789abcdef
numbered-0123456789ab
	read wall   read-0123456789abcdef

service:own front own-0123456789abcdef
service:own front rotated-0123456789ab
service:other other other-0123456789abcdef
`

// roleOf returns the role of a caller in the words of mayUse.
func roleOf(caller string) string {
	switch caller {
	case "own", "other", "rotated":
		return "service"
	case "numbered":
		return "admin"
	}
	return caller
}

// foreignMarks are in everything of the service "other" that its callers alone may see.
var foreignMarks = regexp.MustCompile(`777000\d|marked|"other"|service other`)

// roleWorld is a program with a token of each role, and two services with one domain. "other" has reserved the name "shared"
// first, and both have the automatic name of the network 4242.
type roleWorld struct {
	*program                     // as an administrator
	as       map[string]*program // by caller
	routes   []string
	usages   map[string][]string // ids by service
	leases   map[string]string   // an id by service
	db       *sql.DB
	file     string // with the tokens
}

func newRoleWorld(t *testing.T) *roleWorld {
	t.Helper()
	dir := t.TempDir()
	w := &roleWorld{as: map[string]*program{}, usages: map[string][]string{}, leases: map[string]string{}, file: filepath.Join(dir, "tokens")}
	w.write(t, roleFile)
	w.program = start(t, "-token-file", w.file, "-db", filepath.Join(dir, "meshddns.db"), "-sync-interval", "24h", "-ipv4", "203.0.113.7", "-ipv6", "none")
	for caller, token := range roleTokens {
		p := &program{t: t, log: w.log, http: w.http}
		p.connect()
		if token != "" {
			p.client.Transport = bearer{token, p.client.Transport}
		}
		w.as[caller] = p
	}
	w.program.client = w.as["admin"].client
	w.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto"}`)
	for _, service := range []string{"other", "own"} {
		w.call(200, "PUT", "/api/v1/ddns/services/"+service, `{"name":"`+map[string]string{"own": "mine", "other": "marked"}[service]+`","config":{"domain":"example.com","formats":["mesh1","hostport"]}}`)
		number := map[string]int{"other": 7770001, "own": 11}[service]
		for _, body := range []string{
			`"prefix_mode":"custom","custom_prefix":"shared","network_id":` + fmt.Sprint(number),
			`"prefix_mode":"custom","custom_prefix":"alone-` + service + `","network_id":` + fmt.Sprint(number+1),
			`"prefix_mode":"auto","network_id":4242`,
		} {
			id := w.call(200, "POST", usagesPath, `{"service_id":"`+service+`",`+body+`}`).field("id")
			w.usages[service] = append(w.usages[service], id)
		}
		w.call(200, "PATCH", usagesPath+"/"+w.usages[service][2], `{"txt_endpoints":["tcp://of-`+service+`.example.net:1"]}`)
		w.leases[service] = w.call(200, "POST", usagesPath+"/"+w.usages[service][1]+"/leases", `{"slot":"a","ttl":3600}`).field("id")
	}
	w.eventually("the shared name is a conflict", func() bool {
		return strings.Contains(w.call(200, "GET", usagesPath+"/"+w.usages["own"][0], "").body, `"state":"conflict"`)
	})
	w.call(500, "POST", syncPath, "")
	for _, m := range regexp.MustCompile(`(?m)^meshddns_http_requests_total{route="([^"]+)",code="200"}`).FindAllStringSubmatch(w.call(200, "GET", "/metrics", "").body, -1) {
		w.routes = append(w.routes, m[1])
	}
	w.db = support.OpenSQLite(t, filepath.Join(dir, "meshddns.db"), "mode=ro&_busy_timeout=10000")
	return w
}

func (w *roleWorld) write(t *testing.T, content string) {
	t.Helper()
	if err := os.WriteFile(w.file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stored is all that clients can change.
func (w *roleWorld) stored() string {
	w.t.Helper()
	return strings.Join(support.Rows(w.t, w.db, `
		SELECT max(seq), (SELECT group_concat(id || description || txt_endpoints) FROM usages), (SELECT group_concat(status) FROM bindings),
		       (SELECT group_concat(id || hex(token) || acme) FROM leases), (SELECT group_concat(usage || value) FROM challenges), (SELECT group_concat(id || config) FROM services), (SELECT group_concat(key || caller) FROM replays),
		       (SELECT group_concat(id) FROM notifications), (SELECT group_concat(id) FROM secondaries), (SELECT group_concat(updated_at) FROM configuration)
		FROM events WHERE kind <> 'backup.made'`), "\n")
}

// fill puts ids into the path of a route.
func fill(path, id, lease string) string {
	return strings.NewReplacer("{id}", id, "{lease}", lease, "{$}", "").Replace(path)
}

// TestRouteRoles asks every route with every role, and each path with the methods that it does not take. The routes are those
// that the program has registered, which its metrics list. No request changes anything: what is permitted is not valid.
func TestRouteRoles(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	if len(w.routes) != len(mayUse) {
		t.Errorf("%d routes, want %d", len(w.routes), len(mayUse))
	}
	large := strings.Repeat(" ", 70_000)
	before := w.stored()
	for _, route := range w.routes {
		roles, known := mayUse[route]
		if !known {
			t.Errorf("%s: the contract does not say which roles may use it", route)
		}
		method, path, _ := strings.Cut(route, " ")
		id := "none"
		if path == "/api/v1/ddns/services/{id}" && method == "GET" {
			id = "own"
		}
		if strings.HasPrefix(path, usagesPath+"/{id}") {
			id = w.usages["own"][0]
		}
		query := map[string]string{"DELETE": "?dry_run=x", "POST": "?dry_run=x"}[method]
		for caller, p := range w.as {
			if caller == "other" {
				continue // which TestForeignUsages has
			}
			methods := []string{method}
			if method == "GET" {
				methods = append(methods, "HEAD")
			}
			for _, m := range methods {
				a, err := p.ask(m, fill(path, id, "none")+query, "[", "Accept", "text/html")
				code := a.header.Get("X-Error-Code")
				var good bool
				switch permitted := roleOf(caller) == "admin" || strings.Contains(roles, roleOf(caller)); {
				case caller == "nobody" && !permitted:
					good = a.status == 401
				case permitted:
					good = a.status != 401 && a.status != 403 && a.status < 500 && (m != method || method == "GET" || a.status >= 400 || path == "/{$}")
				default:
					good = a.status == 403 && code == "not_permitted"
					if b, err := p.ask(m, fill(path, id, "none"), large); method != "GET" && (err != nil || b.status != 403) {
						t.Errorf("%s with a body of %d octets as %s: %d, %v", route, len(large), caller, b.status, err)
					}
				}
				if err != nil || !good {
					t.Errorf("%s %s as %s: %d %s %.300s, %v", m, route, caller, a.status, code, a.body, err)
				}
			}
		}
		w.otherMethods(path, id)
	}
	if after := w.stored(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	w.logged(`status=403 code=not_permitted`)
	w.logged(`msg="more: request refused" count=`)
	for _, path := range []string{"/nothing", "/api/v1/ddns/usages/a/b/c"} {
		for caller, p := range w.as {
			if a, err := p.ask("GET", path, ""); err != nil || a.status != 404 && caller != "nobody" {
				t.Errorf("%s as %s: %d %v", path, caller, a.status, err)
			}
		}
	}
}

// otherMethods asks a path with the methods that it does not take, which is no question of roles.
func (w *roleWorld) otherMethods(path, id string) {
	w.t.Helper()
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} {
		if slices.Contains(w.routes, method+" "+path) || !strings.HasPrefix(path, "/api/") && path != "/metrics" {
			continue
		}
		if method == "GET" && path == usagesPath || slices.Contains(w.routes, method+" "+usagesPath+"/{id}") && path == usagesPath+"/available" {
			continue // "available" is an id for other methods
		}
		for _, caller := range []string{"admin", "read", "own"} {
			if a, err := w.as[caller].ask(method, fill(path, id, "none"), ""); err != nil || a.status != 405 || a.header.Get("Allow") == "" {
				w.t.Errorf("%s %s as %s: %d, %v", method, path, caller, a.status, err)
			}
		}
	}
}

// TestForeignUsages: to the token of a service, a usage of another service is as one that is not there, by each call, and
// nothing that is answered tells of the other service. Another service_id is not permitted.
func TestForeignUsages(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	own := w.as["own"]
	before := w.stored()
	for _, ask := range [][3]string{
		{"GET", "", ""}, {"HEAD", "", ""}, {"PATCH", "", `{"description":"x"}`}, {"PATCH", "?wait=1", `{"description":"x","service_id":"own"}`}, {"DELETE", "", ""}, {"DELETE", "?force=1", ""}, {"DELETE", "?wait=1", ""},
		{"GET", "/leases", ""}, {"POST", "/leases", `{"slot":"a","ttl":60}`}, {"POST", "/leases?replace=1", `{"slot":"a","ttl":60,"acme":true}`}, {"DELETE", "/leases/" + w.leases["other"], ""}, {"DELETE", "/leases/" + w.leases["own"], ""},
		{"GET", "/events", ""}, {"GET", "/events?kind=usage.*", ""}, {"GET", "/events?after=0&limit=1", ""},
	} {
		missing, err := own.ask(ask[0], usagesPath+"/01890000-0000-7000-8000-000000000000"+ask[1], ask[2])
		if err != nil || missing.status != 404 || ask[0] != "HEAD" && missing.header.Get("X-Error-Code") != "unknown_usage" {
			t.Errorf("%q of no usage: %d %s %v", ask, missing.status, missing.body, err)
		}
		for _, id := range w.usages["other"] {
			a, err := own.ask(ask[0], usagesPath+"/"+id+ask[1], ask[2])
			missing.header.Set("Date", a.header.Get("Date"))
			if err != nil || a.status != missing.status || a.body != missing.body || fmt.Sprint(a.header) != fmt.Sprint(missing.header) {
				t.Errorf("%q: %d %v %s, and of no usage %d %v %s; %v", ask, a.status, a.header, a.body, missing.status, missing.header, missing.body, err)
			}
		}
	}
	for _, service := range []string{"other", "none", "OWN"} {
		for _, ask := range [][3]string{
			{"GET", "/api/v1/ddns/services/" + service, ""}, {"GET", "/api/v1/ddns/check-prefix?prefix=shared&service_id=" + service, ""}, {"GET", "/api/v1/ddns/check-prefix?service_id=" + service, ""},
			{"GET", usagesPath + "/available?service_id=" + service, ""}, {"GET", usagesPath + "/available?limit=0&service_id=" + service, ""}, {"GET", usagesPath + "/available?network_id=7770001&state=pending&service_id=" + service, ""},
			{"POST", usagesPath, `{"service_id":"` + service + `","prefix_mode":"custom","custom_prefix":"new","network_id":1}`}, {"POST", usagesPath + "?wait=1", `{"service_id":"` + service + `","prefix_mode":"auto","network_id":1}`},
			{"POST", usagesPath, `{"service_id":"` + service + `","prefix_mode":"?","custom_prefix":"_mesh"}`},
		} {
			if a := own.call(403, ask[0], ask[1], ask[2], "Idempotency-Key", "k"); a.header.Get("X-Error-Code") != "not_permitted" {
				t.Errorf("%q: %s", ask, a.body)
			}
		}
	}
	if after := w.stored(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	// Its own ones are all there, with nothing of the other service.
	own.call(200, "GET", "/api/v1/ddns/services/own", "")
	for _, query := range []string{"", "?service_id=", "?service_id=own", "?limit=2", "?limit=1&cursor=0", "?state=conflict", "?network_id=4242", "?network_id=7770001", "?limit=1000&cursor=1"} {
		a := own.call(200, "GET", usagesPath+"/available"+query, "")
		if ids := strings.Count(a.body, `"provider_id":"own"`); foreignMarks.MatchString(a.body) || query == "" && ids != 3 || ids != strings.Count(a.body, `"provider_id"`) {
			t.Errorf("%s: %s", query, a.body)
		}
	}
	if a := own.call(200, "GET", usagesPath+"/available?limit=1&network_id=7770001", ""); a.body != `{"data":[]}`+"\n" {
		t.Error(a.body)
	}
	for _, id := range w.usages["own"] {
		for _, path := range []string{"", "/events", "/leases"} {
			if a := own.call(200, "GET", usagesPath+"/"+id+path, ""); foreignMarks.MatchString(a.body) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
		var events struct {
			Data []struct {
				Kind      string
				ServiceID string `json:"service_id"`
			}
		}
		if err := json.Unmarshal([]byte(own.call(200, "GET", usagesPath+"/"+id+"/events", "").body), &events); err != nil || len(events.Data) == 0 {
			t.Error(events, err)
		}
		for _, e := range events.Data {
			if e.ServiceID != "own" {
				t.Errorf("an event of another service: %+v", e)
			}
		}
	}
	if left := own.call(200, "GET", usagesPath+"/"+w.usages["own"][2], "").body; strings.Contains(left, `"left_out":[{`) || !strings.Contains(w.call(200, "GET", usagesPath+"/"+w.usages["own"][2], "").body, `"left_out":[{`) {
		t.Errorf("left out of a shared name: %s", left)
	}
	for body, want := range map[string]string{
		`{"service_id":"own","prefix_mode":"custom","custom_prefix":"shared2","network_id":5}`: `is taken`,
		`{"service_id":"own","prefix_mode":"custom","custom_prefix":"shared","network_id":5}`:  `by network 11`,
	} {
		w.as["other"].call(map[bool]int{true: 200, false: 400}[strings.Contains(body, "shared2")], "POST", usagesPath, strings.NewReplacer(`"own"`, `"other"`, ":5}", ":7770002}").Replace(body))
		if a, err := own.ask("POST", usagesPath+"?wait=10", body, "Accept-Language", "en"); err != nil || foreignMarks.MatchString(a.body) || !strings.Contains(a.body, want) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	released := w.usages["own"][1]
	own.call(200, "DELETE", usagesPath+"/"+released+"?force=1", "")
	own.call(200, "GET", usagesPath+"/"+released+"/events", "")
	w.as["other"].call(404, "GET", usagesPath+"/"+released+"/events", "")
	w.logged(`msg="request refused" who="token \"front\"" status=403 code=not_permitted`)
	w.logged(`who="token \"front\"" what="DELETE /api/v1/ddns/usages/{id}?force" id=` + released)
	if a := w.call(200, "GET", "/api/v1/ddns/events?kind=usage.released", ""); !strings.Contains(a.body, `"by":"token \"front\""`) {
		t.Error(a.body)
	}
}

// TestReplaysOfCallers: an Idempotency-Key is that of one token name, or of one number.
func TestReplaysOfCallers(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	post := func(caller, path, body string) (id, replayed string) {
		t.Helper()
		a := w.as[caller].call(200, "POST", path, body, "Idempotency-Key", map[bool]string{true: "k", false: "of a lease"}[path == usagesPath])
		return a.field("id"), a.header.Get("Idempotent-Replay")
	}
	const body = `{"service_id":"own","prefix_mode":"auto","network_id":99}`
	first, replayed := post("own", usagesPath, body)
	if again, replayed := post("rotated", usagesPath, body); again != first || replayed != "true" {
		t.Errorf("with the other token of the name: %s %q, want %s", again, replayed, first)
	}
	ids := []string{first}
	for _, caller := range []string{"admin", "numbered"} {
		id, r := post(caller, usagesPath, body)
		again, replayed := post(caller, usagesPath, body)
		if slices.Contains(ids, id) || r != "" || again != id || replayed != "true" {
			t.Errorf("as %s: %s %q, then %s %q", caller, id, r, again, replayed)
		}
		ids = append(ids, id)
	}
	if replayed != "" {
		t.Error("the first one is a replay")
	}
	w.as["own"].call(409, "POST", usagesPath, body+" ", "Idempotency-Key", "k")
	w.as["other"].call(200, "POST", usagesPath, strings.Replace(body, "own", "other", 1), "Idempotency-Key", "k")

	leases, lease := usagesPath+"/"+first+"/leases", `{"slot":"a","ttl":60}`
	made, _ := post("admin", leases, lease)
	if again, replayed := post("admin", leases, lease); again != made || replayed != "true" {
		t.Errorf("the lease %s %q, want %s", again, replayed, made)
	}
	if a := w.as["own"].call(409, "POST", leases, lease, "Idempotency-Key", "of a lease"); a.header.Get("X-Error-Code") != "lease_exists" {
		t.Error(a.body)
	}
}

// TestRoleChanges: a changed token file changes the roles of the next requests. A stream that is open goes on.
func TestRoleChanges(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	request, err := http.NewRequest("GET", "http://localhost/api/v1/ddns/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	stream, err := w.as["read"].client.Do(request)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	defer stream.Body.Close()
	w.write(t, "read admin admin-0123456789abcdef\nnumbered-0123456789ab\n")
	if err := w.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	w.eventually("the role is another one", func() bool {
		a, err := w.as["admin"].ask("POST", syncPath, "")
		return err == nil && a.status == 403
	})
	w.as["admin"].call(200, "GET", configPath, "")
	w.as["read"].call(401, "GET", configPath, "")
	w.as["own"].call(401, "GET", usagesPath+"/available", "")
	w.as["numbered"].call(200, "PUT", "/api/v1/ddns/services/told", `{"name":"x","config":{}}`)
	told := make([]byte, 0, 1<<16)
	for !strings.Contains(string(told), `"service_id":"told"`) {
		n, err := stream.Body.Read(told[len(told):cap(told)])
		if told = told[:len(told)+n]; err != nil {
			t.Fatalf("%v after %s", err, told)
		}
	}
	if !strings.Contains(string(told), `"by":"token 1"`) {
		t.Errorf("%s", told)
	}
	w.write(t, "read admin admin-0123456789abcdef\nadmin admin secret-0123456789abcdef\n")
	if err := w.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	w.logged("line 2: the same name with another role")
	w.as["numbered"].call(200, "GET", configPath, "")
	if strings.Contains(w.log.String(), "0123456789ab") {
		t.Error("a token is in the log")
	}
}

// roleRequest is a request of TestRandomRoles.
type roleRequest struct{ caller, method, route, service, path, body string }

// any makes a request, which may be one of anything.
func (w *roleWorld) any(r *rand.Rand, ids map[string]string) roleRequest {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	q := roleRequest{caller: pick("admin", "numbered", "read", "own", "own", "other", "rotated"), route: pick(w.routes...)}
	method, path, _ := strings.Cut(q.route, " ")
	if q.method = method; method == "GET" {
		q.method = pick("GET", "HEAD")
	}
	id := pick("own", "other", "none")
	if strings.HasPrefix(path, usagesPath+"/{id}") {
		var all []string
		for usage := range ids {
			all = append(all, usage)
		}
		slices.Sort(all)
		id = pick(all...)
	}
	service := pick("own", "other")
	q.service = service
	q.body = pick("", "{}", "[", `{"service_id":"`+service+`","prefix_mode":"auto","network_id":4242}`, `{"service_id":"`+service+`","prefix_mode":"custom","custom_prefix":"p`+fmt.Sprint(r.IntN(9))+`","network_id":`+map[string]string{"own": "55", "other": "7770005"}[service]+`}`,
		`{"description":"by `+map[bool]string{true: "marked"}[q.caller == "other"]+`","service_id":"own"}`, `{"slot":"a","ttl":60}`, `{"slot":"b","ttl":60,"acme":true}`, strings.Repeat(" ", 70_000))
	switch {
	case path == usagesPath+"/available", path == "/api/v1/ddns/check-prefix":
		q.path = fill(path, "", "") + "?prefix=shared&service_id=" + service
	default:
		q.service = ""
		if named := regexp.MustCompile(`"service_id":"(\w+)"`).FindStringSubmatch(q.body); named != nil && path == usagesPath {
			q.service = named[1]
		}
		q.path = fill(path, id, pick(w.leases["own"], w.leases["other"])) + pick("", "", "?wait=1", "?force=1", "?replace=1", "?limit=1", "?dry_run=1", "?service_id=other")
	}
	if strings.HasPrefix(path, usagesPath+"/{id}") {
		q.service = ids[id]
	}
	if path == "/api/v1/ddns/services/{id}" {
		q.service = id
	}
	return q
}

// TestRandomRoles makes requests of every role by chance. No answer differs from what the contract says, no refused request
// changes anything, and no answer to the token of a service tells of another one.
func TestRandomRoles(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	w.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","enabled":false}`)
	ids := map[string]string{"none": "none"}
	for service, usages := range w.usages {
		for _, id := range usages {
			ids[id] = service
		}
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	refused, granted := 0, 0
	for range support.Count(500, 3000) {
		q := w.any(r, ids)
		role := roleOf(q.caller)
		if role == "admin" && !strings.HasPrefix(q.route, "GET ") { // it would take the world away
			continue
		}
		own := map[string]string{"own": "own", "rotated": "own", "other": "other"}[q.caller]
		before := w.stored()
		a, err := w.as[q.caller].ask(q.method, q.path, q.body, "Idempotency-Key", fmt.Sprint(r.IntN(1000)), "Accept", "text/html")
		code := a.header.Get("X-Error-Code")
		foreign := role == "service" && q.service != "" && q.service != own
		wrong := err != nil || a.status == 401 || a.status >= 500
		switch {
		case role != "admin" && !strings.Contains(mayUse[q.route], role):
			wrong = wrong || a.status != 403 || code != "not_permitted"
		case foreign && strings.Contains(q.route, "/usages/{id}"):
			wrong = wrong || a.status != 404 && a.status != 400 && a.status != 413 && a.status != 403
		case foreign && a.status != 413:
			wrong = wrong || a.status != 403 && !(a.status == 400 && strings.Contains(q.path, "?"))
		case a.status == 403:
			wrong = wrong || role != "service" || !strings.Contains(q.path, "service_id=other")
		}
		if role == "service" && own == "own" && a.status < 400 && foreignMarks.MatchString(a.body) && !strings.Contains(q.route, "openapi") {
			wrong = true
		}
		after := w.stored()
		if changes := after != before; changes && (a.status >= 400 || role == "read" || strings.HasPrefix(q.route, "GET ")) || wrong {
			t.Fatalf("seed %d: %+v: %d %s %.400s, %v\nbefore:\n%s\nafter:\n%s", seed, q, a.status, code, a.body, err, before, after)
		}
		if a.status == 403 || a.status == 404 {
			refused++
		} else if a.status == 200 {
			granted++
		}
		if q.route == "POST "+usagesPath && a.status == 200 {
			ids[a.field("id")] = q.service
		}
	}
	if t.Logf("seed %d: %d refused, %d granted", seed, refused, granted); refused < 50 || granted < 50 {
		t.Error("the requests are too few")
	}
}
