package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
	"meshddns/test/api"
	"meshddns/test/support"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// appliance is the program as run wires it, on loopback, without its flags.
type appliance struct {
	*server
	*api.Appliance
	addresses *hostaddr.Book
	files     *provision.Files
	idle      bool // the engine does not run
}

// apply applies the provisioning file at path.
func (a *appliance) apply(ctx context.Context, path string, credentials provision.CredentialFolder) error {
	a.files.Path, a.files.Credentials = path, credentials
	return a.files.Apply(ctx)
}

// apiSuite holds the HTTP API to its promises.
func apiSuite() api.Suite {
	return api.Suite{Start: startAppliance, Update: *update, SyncTime: syncTime, ServicePage: servicePage, LeftoverPage: web.ListPage}
}

// TestScripts plays the scripts in testdata; test/api tells what they may say.
func TestScripts(t *testing.T) {
	t.Parallel()
	apiSuite().Scripts(t)
}

// TestWriteOutlivesItsClient runs alone.
func TestWriteOutlivesItsClient(t *testing.T) { apiSuite().WriteOutlivesItsClient(t) }

// TestAPI runs the tests of the API that are no single request and answer.
func TestAPI(t *testing.T) {
	t.Parallel()
	apiSuite().Test(t)
}

func startAppliance(t testing.TB, o api.Options) *api.Appliance {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "meshddns.db")
	}
	return newApplianceOn(t, o.Path, func(a *appliance) {
		if o.Stopped {
			stopClock(a)
		}
		if o.Now != nil {
			a.ops.store.now = o.Now
		}
		a.idle = o.Idle
		if o.NoServer {
			a.ops.clients.dnsAddress = ""
		}
		if o.IPv4 != "" {
			a.addresses = book(t, o.IPv4, a.log)
		}
	}).Appliance
}

// book knows a public address.
func book(t testing.TB, ipv4 string, log *slog.Logger) *hostaddr.Book {
	return hostaddr.NewBook(hostaddr.Sources{IPv4: source(t, hostaddr.IPv4, ipv4)}, mesh.Addresses{}, log)
}

// provisions sets the files of an appliance. The function that it returns gives the faults of the
// entries that were refused at the last time.
func provisions(a *appliance) (refused func() []string) {
	var last provision.Mistakes
	a.files = &provision.Files{
		Log: a.log, Faults: &a.server.provisionFaults, Refused: a.server.ops.tellRefused,
		Transact: func(ctx context.Context, document *provision.Document) (provision.Applied, error) {
			applied, err := a.server.ops.provision(ctx, document)
			last = applied.Faults
			return applied, err
		},
	}
	return func() (faults []string) {
		for _, m := range last {
			faults = append(faults, m.String())
		}
		return faults
	}
}

// newAppliance starts an appliance that ends with the test. What is to be
// otherwise than in the program, change changes before it runs.
func newAppliance(t testing.TB, change ...func(*appliance)) *appliance {
	t.Helper()
	return newApplianceOn(t, filepath.Join(t.TempDir(), "meshddns.db"), change...)
}

// newApplianceOn is newAppliance on a database file.
func newApplianceOn(t testing.TB, path string, change ...func(*appliance)) *appliance {
	t.Helper()
	logs := &support.Log{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	a := &appliance{addresses: book(t, "203.0.113.7", log)}
	store, err := openStoreKnowing(t.Context(), path, func() reconcile.Addresses { return knownAddresses(a.addresses, never)() }, log)
	if err != nil {
		t.Fatal(err)
	}
	own := func() []netip.Addr { return a.addresses.All() }
	dns, err := builtin.Listen(t.Context(), nameserver.Config{Addresses: []string{"127.0.0.1:0"}}, store.zones, own, log)
	if err != nil {
		t.Fatal(err)
	}
	o := operations{store: store, clients: clients{ledger: store.ledger, zones: store.zones, dnsAddress: dns.LocalAddr(), hidden: never}, secondaries: newNotifier(store, dns, log), forms: entryForms}
	if o.leases, err = newLeases(t.Context(), store, nil, func(ctx context.Context, name string) []msg.Phrase { return a.ops.engine.WarnRefused(ctx, name) }, log); err != nil {
		t.Fatal(err)
	}
	a.server = newServer(o, "test", log, dns.WriteMetrics)
	refused := provisions(a)
	for _, f := range change {
		f(a)
	}
	a.ops.addresses, a.ops.engine = a.addresses, newEngine(store, testEngine(store, a.ops.clients, a.addresses, time.Hour, log))
	a.status = a.newPage()
	web := httptest.NewServer(a.routes())
	client := web.Client()
	client.Timeout = support.Patience
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a.Appliance = &api.Appliance{
		Path: path, Owner: store.ledger.Owner(), URL: web.URL, DNS: dns.Addrs(), Logs: logs, HTTP: client,
		Public: &a.public, Reader: store.db.Reader, Settle: func() { settle(store) }, Reload: dns.Reload,
		Provision: func(ctx context.Context, path, credentials string) error {
			return a.apply(ctx, path, provision.CredentialFolder{Folder: credentials})
		},
		Faults: refused,
	}
	tasks := []func(context.Context) error{dns.Serve, dns.Keep, func(ctx context.Context) error { return a.addresses.Watch(ctx, time.Hour, store.SaveAddresses) }}
	if !a.idle {
		tasks = append(tasks, a.ops.engine.Run)
	}
	stop := serveAll(t, tasks...)
	t.Cleanup(func() {
		web.Close()
		stop()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.addresses.Ready(): // what it stores is stored by now
	case <-time.After(support.Patience):
		t.Fatal("the addresses were not looked up")
	}
	return a
}

// serveAll runs tasks until stop is called, which waits for their ends.
func serveAll(t testing.TB, tasks ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for _, task := range tasks {
		serving.Go(func() {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); serving.Wait() }
}

// stopClock keeps all that happens by itself from happening: no change has
// waited for further ones, and no pass is due.
func stopClock(a *appliance) {
	at := time.Now()
	a.ops.store.now = func() time.Time { return at }
}

// source is where an address comes from.
func source(t testing.TB, family hostaddr.Family, text string) hostaddr.Source {
	t.Helper()
	s, err := hostaddr.ParseSource(family, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// odd is in SQL what JSON escapes, what it may, what is not UTF-8, and NUL.
const odd = `CAST(x'225c5c22000a1f7f2f3c3e26e280a8e280a9e280a7f09f9880ffe2805c' AS TEXT)`

// The listing is what encoding/json makes of the rows, a line each, whatever is in
// their texts, and whichever services they are of.
func TestListingIsTheRows(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"a\u001fb","config":{"domain":"example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{"domain":"example.org"}}`)
	a.AddUsages(t, 1001, 2)
	db := a.Open(t)
	defer db.Close()
	for _, change := range []string{
		`UPDATE usages SET provider_id = 'bare'`,
		`UPDATE usages SET description = CAST(x'0a22f09f9880ff3c00e280a8' AS TEXT), is_exclusive = seq % 2`,
		`UPDATE usages SET description = seq || ` + odd + ` WHERE seq % 3 > 0`,
		`UPDATE usages SET provider_id = 'svc', record_prefix = ` + odd + ` || seq WHERE seq % 2 = 1`,
		`UPDATE usages SET id = id || ` + odd + `, record_prefix = record_prefix || ` + odd + `, prefix_mode = 'auto' WHERE seq > 700`,
		`UPDATE services SET name = ` + odd + `, domain = domain || ` + odd + ` WHERE id = 'bare'`,
		`UPDATE usages SET description = replace('","|]["id","auto",1,null,7]', '|', char(92)) WHERE seq IN (100, 1001)`,
		`UPDATE usages SET record_type = 'A' WHERE seq IN (1, 21, 700)`,
		`UPDATE services SET domain = NULL WHERE id = 'svc'`,
		`UPDATE services SET domain = NULL`,
		`UPDATE usages SET provider_id = 'svc' WHERE seq > 900`,
		`PRAGMA foreign_keys = OFF; UPDATE usages SET provider_id = 'gone' || ` + odd + ` WHERE seq > 600`,
		`UPDATE services SET id = id || ` + odd + `; UPDATE usages SET provider_id = provider_id || ` + odd + ` WHERE seq < 400`,
		`DELETE FROM usages`,
	} {
		if _, err := db.Exec(change); err != nil {
			t.Fatal(err)
		}
		for query, f := range map[string]usageFilter{
			"": {}, "?service_id=bare": {serviceID: "bare"}, "?service_id=gone": {serviceID: "gone"},
			"?network_id=18446744073709551609": {network: sql.Null[mesh.NetworkID]{V: math.MaxUint64 - 6, Valid: true}},
		} {
			if got, want := a.Must(t, "GET", "/api/v1/ddns/usages/available"+query, ""), a.entries(t, f); got != want {
				t.Errorf("after %s the answer%s is not the rows:\n%.600s\nwant\n%.600s", change, query, got, want)
			}
		}
	}
}

// entries is the answer with the usages that a filter selects, as encoding/json writes them.
func (a *appliance) entries(t *testing.T, f usageFilter) string {
	t.Helper()
	usages, err := a.ops.store.Usages(t.Context(), f, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	encoder := json.NewEncoder(&all)
	encoder.SetEscapeHTML(false)
	for i, u := range usages {
		if i > 0 {
			all.WriteString(",")
		}
		if err := encoder.Encode(answers.NewListedUsage(u, msg.Chinese)); err != nil {
			t.Fatal(err)
		}
	}
	return `{"data":[` + all.String() + "]}\n"
}

// A test of a target that is the program itself causes one refused request, and no further test.
func TestNotificationToItself(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	var requests atomic.Int64
	guarded := web.GuardTCP(web.GuardConfig{Deny: a.deny}, a.routes())
	itself := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 10 {
			http.Error(w, "it goes on and on", http.StatusTeapot)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
	defer itself.Close()
	test := itself.URL + "/api/v1/ddns/notifications/me/test"
	a.Must(t, "PUT", "/api/v1/ddns/notifications/me", `{"kind":"generic","url":"`+test+`"}`)
	response, err := http.Post(test, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || requests.Load() != 2 || !strings.Contains(string(answer), "own_notification") && !strings.Contains(string(answer), `"status":403`) {
		t.Errorf("%d requests, %v: %s", requests.Load(), err, answer)
	}
}

// A stopped target is told by the metrics, the status page and the text of /healthz, until it is saved again.
func TestStoppedTargetIsTold(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	const path, body = "/api/v1/ddns/notifications/ops", `{"kind":"generic","url":"http://127.0.0.1:1/"}`
	told := func(want string, faults int64) {
		t.Helper()
		a.provisionFaults.Store(faults)
		_, health := a.Do(t, "GET", "/healthz", http.Header{"Accept-Language": {"en"}}, "")
		_, metrics := a.Do(t, "GET", "/metrics", nil, "")
		page := httptest.NewRecorder()
		request := httptest.NewRequest("GET", "/", nil)
		request.Header = http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}}
		a.routes().ServeHTTP(page, request)
		stopped := strings.Contains(metrics, `meshddns_notifications{state="stopped"} 1`)
		if !strings.Contains(health, want) || stopped != strings.Contains(want, "stopped") || stopped != strings.Contains(page.Body.String(), "notification targets stopped: 1") {
			t.Errorf("want %q\n%s\n%s\n%s", want, health, page.Body, metrics)
		}
	}
	a.Must(t, "PUT", path, body)
	told(`"message":"ok"`, 0)
	if _, err := a.ops.store.db.Writer.Exec(`UPDATE notifications SET state = 'stopped'`); err != nil {
		t.Fatal(err)
	}
	told("ok, but notification targets are stopped", 0)
	told("the provisioning file is not fully applied, and notification targets are stopped", 1)
	a.Must(t, "PUT", path, body)
	told(`"message":"ok"`, 0)
}

// What the guard refuses is answered as everything else.
func TestGuardAnswersInTheEnvelope(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("first-token-of-the-two\nsecond-token-of-the-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := web.OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	guarded := httptest.NewServer(web.GuardTCP(web.GuardConfig{Tokens: tokens, Deny: a.deny, Now: time.Now}, a.routes()))
	defer guarded.Close()
	a.URL = guarded.URL
	ask := func(path string, headers map[string]string) (int, string) {
		request, err := http.NewRequest("GET", a.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		request.Host = headers["Host"]
		response, err := a.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		api.CheckEnvelope(t, path, response, string(content))
		return response.StatusCode, response.Header.Get("X-Error-Code")
	}
	const good, bad = "Bearer second-token-of-the-two", "Bearer nonsense"
	for _, test := range []struct {
		path    string
		headers map[string]string
		status  int
		code    string
	}{
		{"/api/v1/ddns/config", nil, 401, "unauthorized"},
		{"/nothing", nil, 401, "unauthorized"},
		{"/healthz", nil, 200, ""},
		{"/healthz", map[string]string{"Host": "evil.example"}, 200, ""},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good}, 200, ""},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good, "Host": "evil.example"}, 403, "host_not_allowed"},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good, "Sec-Fetch-Site": "cross-site"}, 403, "cross_site"},
		{"/api/v1/ddns/config", map[string]string{"Authorization": good, web.NotificationHeader: "1"}, 403, "own_notification"},
	} {
		if status, code := ask(test.path, test.headers); status != test.status || code != test.code {
			t.Errorf("%s %v: %d %s, want %d %s", test.path, test.headers, status, code, test.status, test.code)
		}
	}
	for range 10 {
		ask("/api/v1/ddns/config", map[string]string{"Authorization": bad})
	}
	if status, code := ask("/api/v1/ddns/config", map[string]string{"Authorization": bad}); status != 429 || code != "too_many_attempts" {
		t.Errorf("the eleventh wrong token: %d %s", status, code)
	}
}

// atEnd is an answer whose client does something as soon as it has it all.
type atEnd struct {
	*httptest.ResponseRecorder
	do func()
}

func (a *atEnd) Write(p []byte) (int, error) {
	n, err := a.ResponseRecorder.Write(p)
	if length := a.Header().Get("Content-Length"); a.do != nil && length == strconv.Itoa(a.Body.Len()) {
		do := a.do
		a.do = nil
		do()
	}
	return n, err
}

// Who has a whole backup may ask for the next one at once.
func TestBackupAfterBackup(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	request := httptest.NewRequest("GET", "/api/v1/ddns/backup", nil)
	second := httptest.NewRecorder()
	first := &atEnd{httptest.NewRecorder(), func() { a.server.routes().ServeHTTP(second, request.Clone(t.Context())) }}
	a.server.routes().ServeHTTP(first, request)
	if first.Code != http.StatusOK || first.do != nil || second.Code != http.StatusOK {
		t.Errorf("%d, then %d %.200s", first.Code, second.Code, second.Body)
	}
}

// wantBackup takes a backup, which has to be a database.
func (a *appliance) wantBackup(t testing.TB) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(a.Logs)
		}
	}()
	if answer := a.Must(t, "GET", "/api/v1/ddns/backup", ""); !strings.HasPrefix(answer, "SQLite format 3\x00") {
		t.Errorf("the backup is %.100q", answer)
	}
}

// fillUp writes until the disk is full, and gives how many writes were acknowledged.
func (a *appliance) fillUp(t testing.TB) (acknowledged int) {
	t.Helper()
	for n := range 5000 {
		body := fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"fill%d","network_id":%d}`, n, n)
		status, code, answer := a.Call(t, "POST", "/api/v1/ddns/usages", body)
		if status == http.StatusOK {
			acknowledged++
			continue
		}
		if status != http.StatusInternalServerError || code != "disk_full" || !strings.Contains(answer, "磁盘已满") {
			t.Fatalf("%d %s %s", status, code, answer)
		}
		return acknowledged
	}
	t.Fatal("the disk is never full")
	return 0
}

// The disk is full while the program runs: writes say so, all else goes on, and it
// heals by itself. So it is when it starts on a full disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	path := filepath.Join(dir, "meshddns.db")
	const config = `{"provider":"builtin","access_key_id":"a","access_key_secret":"b","domain":"example.com","txt_record_name":"_mesh","enabled":true,"txt_endpoints":["tcp://192.0.2.1:1"]}`
	check := func(a *appliance, usages int) {
		t.Helper()
		a.WantHealth(t, http.StatusServiceUnavailable, "disk_full")
		if status, code, _ := a.Call(t, "PUT", "/api/v1/ddns/config", config); status != http.StatusInternalServerError || code != "disk_full" {
			t.Errorf("configuration: %d %s", status, code)
		}
		if got := a.Ask(t, "_mesh.example.com"); !strings.Contains(got, "tcp://192.0.2.1:1") {
			t.Errorf("DNS: %q", got)
		}
		if got := strings.Count(a.Must(t, "GET", "/api/v1/ddns/usages/available", ""), `"full_domain"`); got != usages {
			t.Errorf("%d usages, want %d", got, usages)
		}
		a.wantBackup(t)
	}
	heal := func(a *appliance) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
			t.Fatal(err)
		}
		a.WantHealth(t, http.StatusOK, "")
		a.Must(t, "PUT", "/api/v1/ddns/config", config)
		a.wantBackup(t)
	}
	usages := 0
	t.Run("running", func(t *testing.T) {
		a := newApplianceOn(t, path)
		a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
		a.Must(t, "PUT", "/api/v1/ddns/config", config)
		a.Must(t, "POST", "/api/v1/ddns/sync", "")
		settle(a.ops.store)
		fillDisk(t, dir, 0)
		usages = a.fillUp(t)
		check(a, usages)
		heal(a)
	})
	fillDisk(t, dir, 0)
	t.Run("started", func(t *testing.T) {
		if _, err := os.Stat(path + "-wal"); err == nil {
			t.Fatal("the stop was not clean")
		}
		a := newApplianceOn(t, path)
		if !strings.Contains(a.Logs.String(), "the disk is full") {
			t.Fatal("the disk is not full")
		}
		check(a, usages)
		heal(a)
		a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"after","network_id":1}`)
		usages++
	})
	s := mustOpen(t, path)
	if got, err := s.Usages(t.Context(), usageFilter{}, 10_000); err != nil || len(got) != usages {
		t.Errorf("%d usages, %v, want %d", len(got), err, usages)
	}
}

// After a kill the log is still there, of which the index may not be: it is read on a
// full disk too.
func TestFullDiskAfterAKill(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	killed := filledStore(t)
	if _, err := killed.CreateUsage(t.Context(), custom("office", 42)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "meshddns.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(killed.path() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fillDisk(t, dir, 0)
	s := mustOpen(t, path)
	if got, err := s.Usages(t.Context(), usageFilter{}, 10); err != nil || len(got) != 1 {
		t.Errorf("%d usages, %v", len(got), err)
	}
}

// Nobody has room for a backup: that is said.
func TestBackupWithoutRoom(t *testing.T) {
	dir := smallDisk(t)
	a := newApplianceOn(t, filepath.Join(dir, "meshddns.db"))
	fillDisk(t, dir, 0)
	t.Setenv("TMPDIR", dir)
	if status, code, answer := a.Call(t, "GET", "/api/v1/ddns/backup", ""); status != http.StatusInternalServerError || code != "backup_no_room" || !strings.Contains(answer, dir) {
		t.Errorf("%d %s %s", status, code, answer)
	}
}

// A full disk with the database does not hinder a backup that finds room elsewhere.
func TestBackupOfAFullDisk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := smallDisk(t)
	a := newApplianceOn(t, filepath.Join(dir, "meshddns.db"))
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.org"}}`)
	fillDisk(t, dir, 0)
	if status, code, answer := a.Call(t, "GET", "/api/v1/ddns/backup", ""); status != http.StatusOK || !strings.HasPrefix(answer, "SQLite format 3") {
		t.Errorf("%d %s %.200s", status, code, answer)
	}
}

// damaged makes a database with a page of zeros, and gives its path.
func damaged(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "meshddns.db")
	s := mustOpen(t, path)
	page := support.Rows(t, s.db.Reader, `SELECT rootpage FROM sqlite_schema WHERE name = 'marks'`)[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(page, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(make([]byte, 4096), (number-1)*4096); err != nil {
		t.Fatal(err)
	}
	return path
}

// A page of zeros is found soon after the start.
func TestZeroedPage(t *testing.T) {
	t.Parallel()
	p := runProgram(t, nil, "-db", damaged(t))
	p.logged("level=ERROR msg=\"restore a backup\"")
	response, err := http.Get(p.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if code := response.Header.Get("X-Error-Code"); response.StatusCode != http.StatusServiceUnavailable || code != "database_damaged" {
		t.Errorf("%d %s", response.StatusCode, code)
	}
}

// fuzzed are the calls with a body, in the order of their numbers in the inputs of FuzzBodies.
// The connection test is there without its network: its own time ends it at once.
var fuzzed = []string{
	"PUT /api/v1/ddns/config", "POST /api/v1/ddns/test", "POST /api/v1/ddns/adopt?dry_run=1", "POST /api/v1/ddns/usages",
	"PATCH /api/v1/ddns/usages/", "POST /api/v1/ddns/services", "PUT /api/v1/ddns/services/fuzzed",
}

// addBodies gives the fuzzer bodies to begin with.
func addBodies(f *testing.F) {
	for i, body := range []string{
		`{"provider":"nobody","access_key_id":"id","access_key_secret":"s3cr3t-0123456789","domain":"example.com","txt_record_name":"@","retry_interval":-9223372036854775808,"enabled":false,"txt_endpoints":["tcp://{ipv4}:1"]}`,
		`{"provider":"nobody","domain":"a..b","write_test":true}`,
		`{"owner":"0123456789ab"}`,
		`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Office_1","network_id":18446744073709551615,"network_name":"\u529e"}`,
		`{"txt_endpoints":["wss://[{ipv6}]:443"],"description":null}`,
		`{"name":"x","config":"{\"domain\":\"b.example\",\"api_token\":\"s3cr3t-0123456789\"}"}`,
		`{"name":"x","config":{"domain":"例子.example","access_key_secret":"********","a":{"b":[1e400]}}}`,
	} {
		for at := range fuzzed {
			if at == i || at%3 == i%3 {
				f.Add(uint8(at), body)
			}
		}
	}
	for _, body := range []string{"", "null", "[]", "{", "\xff", `{"a":1,"a":2}`, `{"name":"\ud800"}`, strings.Repeat("[", 20_000), strings.Repeat(" ", web.MaxBody+1)} {
		f.Add(uint8(5), body)
	}
}

// Whatever a body is, the real routes on a real database give an answer in the contract's form:
// no fault of the program, what is granted is JSON that encoding/json reads too, what is stored
// comes back, and no secret with it.
func FuzzBodies(f *testing.F) {
	addBodies(f)
	a := newAppliance(f, stopClock)
	routes := a.routes()
	must := func(method, path, body string) string {
		w := exchangeOf(routes, method, path, body)
		if w.Code != http.StatusOK {
			f.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	must("PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var made struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(must("POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)), &made); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, call uint8, body string) {
		method, path, _ := strings.Cut(fuzzed[int(call)%len(fuzzed)], " ")
		if strings.HasSuffix(path, "/usages/") {
			path += made.Data.ID
		}
		w := exchangeOf(routes, method, path, body)
		checkForm(t, w, body)
		var answer struct {
			Data struct{ ID, Config string }
		}
		if w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &answer) != nil {
			answer.Data.ID = ""
		}
		switch {
		case answer.Data.ID == "":
		case strings.HasSuffix(path, "/usages"):
			if w := exchangeOf(routes, "DELETE", path+"/"+answer.Data.ID+"?force=1", ""); w.Code != http.StatusOK {
				t.Errorf("release what was reserved: %d %s", w.Code, w.Body)
			}
		default:
			stored := exchangeOf(routes, "GET", "/api/v1/ddns/services/"+answer.Data.ID, "")
			leaked := strings.Contains(stored.Body.String(), bodySecret) && !strings.Contains(withoutSecrets(body), bodySecret)
			if stored.Code != http.StatusOK || leaked {
				t.Errorf("stored %q, and read %d %s", body, stored.Code, stored.Body)
			}
			if w := exchangeOf(routes, "DELETE", "/api/v1/ddns/services/"+answer.Data.ID, ""); w.Code != http.StatusOK && answer.Data.ID != "svc" {
				t.Errorf("delete %s: %d %s", answer.Data.ID, w.Code, w.Body)
			}
		}
	})
}

// bodySecret stands in the inputs where a secret does.
const bodySecret = "s3cr3t-0123456789"

// withoutSecrets is a body without the members that are secrets, as the first inputs write them.
func withoutSecrets(body string) string {
	return strings.NewReplacer(`"access_key_secret":"`+bodySecret+`"`, "", `\"api_token\":\"`+bodySecret+`\"`, "").Replace(body)
}

// exchangeOf asks the routes, for a while at most: a provider is not waited for.
func exchangeOf(routes http.Handler, method, path, body string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	routes.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// checkForm holds an answer to the form of all answers.
func checkForm(t *testing.T, w *httptest.ResponseRecorder, body string) {
	t.Helper()
	var members map[string]json.RawMessage
	err := json.Unmarshal(w.Body.Bytes(), &members)
	code := w.Header().Get("X-Error-Code")
	wanted := []int{http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge}
	switch failed := w.Code >= 400; {
	case err != nil || !utf8.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != web.MediaType:
		t.Errorf("%d %q %q: %v", w.Code, w.Header(), w.Body, err)
	case !slices.Contains(wanted, w.Code):
		t.Errorf("%q: status %d %s %s", body, w.Code, code, w.Body)
	case failed != (code != "") || failed != (len(members) == 1 && len(members["error"]) > len(`""`)):
		t.Errorf("status %d, code %q, %s", w.Code, code, w.Body)
	case !failed && !json.Valid([]byte(body)):
		t.Errorf("granted: %q", body)
	case len(body) > web.MaxBody && w.Code != http.StatusRequestEntityTooLarge:
		t.Errorf("%d octets: status %d", len(body), w.Code)
	}
	if failed := string(members["error"]); strings.Contains(failed, bodySecret) {
		t.Errorf("the secret is in %s", failed)
	}
}

// The flag -language decides about requests without Accept-Language, and about no others. The
// guards' refusals follow it too.
func TestLanguageFlag(t *testing.T) {
	t.Parallel()
	p := runProgram(t, []string{"MESHDDNS_LANGUAGE=en"})
	for _, test := range []struct {
		path, host, accepted string
		id                   msg.ID
		want                 msg.Language
	}{
		{"/nothing", "", "", msg.NotFound, msg.English},
		{"/nothing", "", "zh", msg.NotFound, msg.Chinese},
		{"/nothing", "", "fr", msg.NotFound, msg.Chinese},
		{"/", "evil.example", "", msg.HostNotAllowed, msg.English},
	} {
		request, err := http.NewRequest("GET", p.url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		if test.accepted != "" {
			request.Header.Set("Accept-Language", test.accepted)
		}
		response, err := (&http.Client{Timeout: support.Patience}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		want, _, _ := strings.Cut(test.id.In(test.want, "%"), "%")
		want, _, _ = strings.Cut(want, `"`)
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s, Accept-Language %q: %s, %v; want %q", test.path, test.accepted, body, err, want)
		}
	}
}

// A synchronisation that is not through in time says how far it is, and of how many names.
func TestSyncUnfinishedSaysOfHowMany(t *testing.T) {
	s := filledStore(t)
	err := s.PutConfiguration(t.Context(), mesh.Configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if _, err := s.CreateUsage(t.Context(), custom(fmt.Sprint("name", n), mesh.NetworkID(n))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	book := hostaddr.NewBook(hostaddr.Sources{}, mesh.Addresses{}, noLog)
	engine := newEngine(s, testEngine(s, clients{ledger: s.ledger, zones: s.zones, hidden: never}, book, time.Hour, noLog)) // which does not run
	routes := newServer(operations{store: s, engine: engine}, "", noLog).routes()
	for language, want := range map[string]string{"en": "0 of 5 names", "zh": "0 / 5"} {
		r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/ddns/sync", nil)
		r.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || w.Header().Get("X-Error-Code") != "sync_unfinished" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %q", w.Code, w.Body, want)
		}
	}
}

// All is well until a name fails, or the provisioning file has a fault. Then a dead man's switch
// gets no request.
func TestWell(t *testing.T) {
	t.Parallel()
	a := newAppliance(t, stopClock)
	if !a.sender.Well(t.Context()) {
		t.Error("a new appliance is not well")
	}
	a.provisionFaults.Store(1)
	if a.sender.Well(t.Context()) {
		t.Error("a fault of the provisioning file is well")
	}
	a.provisionFaults.Store(0)
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"nobody's","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","max_retries":0,"enabled":true}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"S","config":{"domain":"example.com"}}`)
	a.Must(t, "POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"a","network_id":1}`)
	if !a.sender.Well(t.Context()) {
		t.Error("a name that is pending is not well")
	}
	a.Call(t, "POST", "/api/v1/ddns/sync", "")
	if a.sender.Well(t.Context()) {
		t.Error("a name that fails is well")
	}
}

// TestStreamsAtOnce: 64 streams of events are open at once. A further one is refused, and has a place when
// one of them has ended.
func TestStreamsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	open := func() (response *http.Response, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", a.URL+"/api/v1/ddns/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", web.StreamType)
		if response, err = a.HTTP.Do(r); err != nil {
			t.Fatal(err)
		}
		end = func() { cancel(); response.Body.Close() }
		t.Cleanup(end)
		return response, end
	}
	var last func()
	for n := range 64 {
		response, end := open()
		if last = end; response.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", n+1, response.Status)
		}
	}
	response, end := open()
	if code := response.Header.Get("X-Error-Code"); response.StatusCode != http.StatusServiceUnavailable || code != "too_many_streams" || response.Header.Get("Retry-After") == "" {
		t.Errorf("stream 65: %s, %s", response.Status, code)
	}
	end()
	last()
	support.Eventually(t, support.Patience, "a stream has the free place", func() bool {
		response, end := open()
		if response.StatusCode != http.StatusOK {
			end()
		}
		return response.StatusCode == http.StatusOK
	})
}

// counted is a context that ends after some looks at it.
type counted struct {
	context.Context
	end  func()
	left atomic.Int64
}

func (c *counted) Done() <-chan struct{} {
	if c.left.Add(-1) < 0 {
		c.end()
	}
	return c.Context.Done()
}

// TestStoppedWhileItStarts: a signal to end is no fault, whenever it comes.
func TestStoppedWhileItStarts(t *testing.T) {
	p := process{args: []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "a.db"), "-ipv4", "none", "-ipv6", "none"}, stdout: io.Discard}
	for looks, log := int64(0), (&support.Log{}); !strings.Contains(log.String(), "msg=started"); looks++ {
		c := &counted{}
		c.Context, c.end = context.WithCancel(t.Context())
		c.left.Store(looks)
		p.stderr = log
		if err := run(c, p); err != nil {
			t.Errorf("ended at look %d: %v", looks, err)
		}
	}
}
