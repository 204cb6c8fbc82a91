package main

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/check"
	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/lease"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/test/api"
	"meshddns/test/support"
)

func TestPrefixFault(t *testing.T) {
	for prefix, want := range map[string]msg.ID{
		"":                                  msg.PrefixEmpty,
		"a":                                 "",
		"A":                                 "",
		"0":                                 "",
		"-":                                 "",
		"_":                                 "",
		"office":                            "",
		"Office_1-b":                        "",
		"mesh":                              "",
		"_mes":                              "",
		"-_mesh":                            "",
		"__mesh":                            "",
		strings.Repeat("x", dns.MaxLabel):   "",
		strings.Repeat("x", dns.MaxLabel+1): msg.PrefixTooLong,
		strings.Repeat(".", dns.MaxLabel+1): msg.PrefixTooLong,
		strings.Repeat("办", dns.MaxLabel):   msg.PrefixCharacters,
		strings.Repeat("办", dns.MaxLabel+1): msg.PrefixTooLong,
		"_mesh" + strings.Repeat("x", 59):   msg.PrefixTooLong,
		" ":                                 msg.PrefixCharacters,
		"a b":                               msg.PrefixCharacters,
		"a.b":                               msg.PrefixCharacters,
		"a\n":                               msg.PrefixCharacters,
		"\x00":                              msg.PrefixCharacters,
		"é":                                 msg.PrefixCharacters,
		"\u212a":                            msg.PrefixCharacters,
		"\xff":                              msg.PrefixCharacters,
		"*":                                 msg.PrefixCharacters,
		"a=":                                msg.PrefixCharacters,
		"_mesh.":                            msg.PrefixCharacters,
		"_mesh":                             msg.PrefixReserved,
		"_mesh-NDI":                         msg.PrefixReserved,
		"_meshed":                           msg.PrefixReserved,
		"_MESH":                             msg.PrefixReserved,
		"_Mesh-":                            msg.PrefixReserved,
	} {
		if got := mesh.PrefixFault(prefix); got != want {
			t.Errorf("mesh.PrefixFault(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// A change that is committed is not answered as a failure, whatever fails while the answer waits.
func TestCommittedWhileReadsFail(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ method, path, body, want string }{
		{"POST", "", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"new","network_id":8}`, `"publish":{"state":"pending"`},
		{"PATCH", "/<id>", `{"description":"other"}`, `"publish":{"state":"pending"`},
		{"DELETE", "/<id>", "", `"status":"releasing"`},
	} {
		t.Run(request.method, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			addresses := book(t, "203.0.113.7", log)
			s, err := openStoreKnowing(t.Context(), filepath.Join(t.TempDir(), "meshddns.db"), knownAddresses(addresses, never), log)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := clients{ledger: s.ledger, zones: s.zones, dnsAddress: "127.0.0.1:53", hidden: never}
			engine := newEngine(s, testEngine(s, c, addresses, time.Hour, log))
			stop := serveAll(t, engine.Run, func(ctx context.Context) error { return addresses.Watch(ctx, time.Hour, s.SaveAddresses) })
			routes := newServer(operations{store: s, clients: c, engine: engine}, "", log).routes()
			call := func(method, path, body string) string {
				w := httptest.NewRecorder()
				routes.ServeHTTP(w, httptest.NewRequest(method, "/api/v1/ddns/"+path, strings.NewReader(body)))
				return w.Body.String()
			}
			call("PUT", "config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://203.0.113.7:1"]}`)
			call("POST", "services", `{"id":"svc","name":"S","config":{"domain":"example.com"}}`)
			id := api.UUIDText.FindString(call("POST", "usages?wait=10", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"old","network_id":7}`))
			stop()
			s.db.Subscribe(func(sqlite.Notice) { s.db.Reader.Close() })
			answer := call(request.method, "usages"+strings.Replace(request.path, "<id>", id, 1)+"?wait=1", request.body)
			if !strings.Contains(answer, request.want) {
				t.Errorf("%s, want %s", answer, request.want)
			}
		})
	}
}

// What is accepted satisfies the rules, written down a second time.
func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{"", "office", "_mesh", "_MESH-x", strings.Repeat("x", 64), "a.b", "办公室", "\xff"} {
		f.Add(seed)
	}
	good := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,63}$`)
	reserved := regexp.MustCompile(`^(?i:_mesh)`)
	f.Fuzz(func(t *testing.T, prefix string) {
		if got, want := mesh.PrefixFault(prefix) == "", good.MatchString(prefix) && !reserved.MatchString(prefix); got != want {
			t.Errorf("mesh.PrefixFault(%q) accepts: %v, want %v", prefix, got, want)
		}
		if mesh.PrefixFault(prefix) == "" && dns.NameFault(dns.Parse(mesh.FullName(prefix, "example.com"))) != "" {
			t.Errorf("%q is accepted and cannot be published", prefix)
		}
	})
}

func TestAutomaticPrefix(t *testing.T) {
	for network, want := range map[mesh.NetworkID]string{
		0:              "_mesh-MA",
		42:             "_mesh-NDI",
		104:            "_mesh-MTA0",
		1<<53 + 1:      "_mesh-OTAwNzE5OTI1NDc0MDk5Mw",
		1 << 63:        "_mesh-OTIyMzM3MjAzNjg1NDc3NTgwOA",
		math.MaxUint64: "_mesh-MTg0NDY3NDQwNzM3MDk1NTE2MTU",
	} {
		if got := mesh.AutomaticPrefix(network); got != want {
			t.Errorf("mesh.AutomaticPrefix(%d) = %q, want %q", network, got, want)
		}
	}
}

// No two networks have one automatic prefix, letter case aside; each fits into
// a label, and none is a custom prefix.
func TestAutomaticPrefixIsDistinct(t *testing.T) {
	owners := map[string]mesh.NetworkID{}
	try := func(n mesh.NetworkID) {
		prefix := mesh.AutomaticPrefix(n)
		folded := dns.Fold(prefix)
		if owner, ok := owners[folded]; ok && owner != n {
			t.Fatalf("%d and %d: %s", owner, n, prefix)
		}
		owners[folded] = n
		if len(prefix) > dns.MaxLabel || mesh.PrefixFault(prefix) != msg.PrefixReserved {
			t.Fatalf("mesh.AutomaticPrefix(%d) = %q", n, prefix)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := mesh.NetworkID(random.Uint64() >> random.IntN(64))
		try(n)
		try(n ^ 1<<random.IntN(64))
	}
	for n := range mesh.NetworkID(20_000) {
		try(n)
		try(math.MaxUint64 - n)
	}
}

func FuzzAutomaticPrefix(f *testing.F) {
	f.Add(uint64(0), uint64(104))
	f.Add(uint64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		p, q := mesh.AutomaticPrefix(mesh.NetworkID(a)), mesh.AutomaticPrefix(mesh.NetworkID(b))
		if a != b && strings.EqualFold(p, q) {
			t.Errorf("%d and %d: %s, %s", a, b, p, q)
		}
		digits, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(p, "_mesh-"))
		if err != nil || string(digits) != strconv.FormatUint(a, 10) {
			t.Errorf("%d: %s is %q, %v", a, p, digits, err)
		}
	})
}

// waiting is a store without a server, in a bubble of synctest.
type waiting struct {
	*store
	t     *testing.T
	ready chan struct{} // closed: the addresses are known
}

// ask makes a request with the engine of a configured program, which works from a time on.
func (w *waiting) ask(from time.Duration, method, path, body string) (answer string, took time.Duration) {
	configuration := mesh.Configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true, SyncMode: "auto"}
	if err := w.PutConfiguration(w.t.Context(), configuration, false); err != nil {
		w.t.Fatal(err)
	}
	book := hostaddr.NewBook(hostaddr.Sources{}, mesh.Addresses{}, noLog)
	config := testEngine(w.store, clients{ledger: w.ledger, zones: w.zones, dnsAddress: "192.0.2.1:53", hidden: never}, book, time.Hour, noLog)
	config.Ready = w.ready
	engine := newEngine(w.store, config)
	ctx, cancel := context.WithCancel(w.t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case <-time.After(from):
			engine.Run(ctx)
		case <-ctx.Done():
		}
	})
	defer working.Wait()
	defer cancel()
	begun, recorder := time.Now(), httptest.NewRecorder()
	server := newServer(operations{store: w.store, engine: engine}, "", noLog)
	server.routes().ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return fmt.Sprint(recorder.Code, " ", recorder.Header().Get("X-Error-Code"), recorder.Body), time.Since(begun)
}

// TestWaits has each request that waits wait as long as the pages say: first nothing works for it, then the engine
// begins shortly before that time ends.
func TestWaits(t *testing.T) {
	t.Parallel()
	const usages = "/api/v1/ddns/usages"
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{store: filledStore(t), t: t, ready: make(chan struct{})}
		close(w.ready)
		reserve := func(prefix string) string {
			return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)
		}
		answer, _ := w.ask(0, "POST", usages+"?wait=30", reserve("old"))
		_, id, _ := strings.Cut(answer, `"id":"`)
		old := usages + "/" + id[:36]
		for _, test := range []struct {
			method, path string
			body         string
			limit        time.Duration
			late, done   string
		}{
			{"POST", usages + "?wait=1", reserve("%d-1"), time.Second, "pending", "published"},
			{"POST", usages + "?wait=30", reserve("%d-30"), 30 * time.Second, "pending", "published"},
			{"POST", "/api/v1/ddns/sync", "", time.Minute, "sync_unfinished", "200"},
			{"DELETE", old, "", 30 * time.Second, "202", "200"},
			{"DELETE", "/api/v1/ddns/config", "", 30 * time.Second, "202", "200"},
		} {
			if answer, took := w.ask(time.Hour, test.method, test.path, strings.Replace(test.body, "%d", "late", 1)); took != test.limit || !strings.Contains(answer, test.late) {
				t.Errorf("%s %s: after %v %s, want %s after %v", test.method, test.path, took, answer, test.late, test.limit)
			}
			if answer, took := w.ask(test.limit-100*time.Millisecond, test.method, test.path, strings.Replace(test.body, "%d", "done", 1)); took >= test.limit || !strings.Contains(answer, test.done) {
				t.Errorf("%s %s: after %v %s, want %s before %v", test.method, test.path, took, answer, test.done, test.limit)
			}
		}
	})
}

// TestCopyWithLeases: a copy made of GET state and a provisioning file takes the token that a node has.
func TestCopyWithLeases(t *testing.T) {
	t.Parallel()
	first, second := newAppliance(t, stopClock), newAppliance(t, stopClock)
	first.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"S","config":{"domain":"example.com"}}`)
	usages := make([]string, 3) // two of them have one network: they are told apart by their order
	for i, body := range []string{`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":42}`, `{"service_id":"svc","prefix_mode":"auto","network_id":7}`, `{"service_id":"svc","prefix_mode":"auto","network_id":7}`} {
		usages[i] = api.UUIDText.FindString(first.Must(t, "POST", "/api/v1/ddns/usages", body))
	}
	tokens := map[lease.Token]string{}
	for i, usage := range usages {
		for _, slot := range []string{"a", "b"} {
			made := first.Must(t, "POST", "/api/v1/ddns/usages/"+usage+"/leases", `{"slot":"`+slot+`","ttl":60}`)
			tokens[lease.Token(regexp.MustCompile(`"token":"([^"]+)`).FindStringSubmatch(made)[1])] = fmt.Sprint(i, slot)
		}
	}
	state := first.StateDocument(t)
	for range 2 {
		if got := second.Applied(t, state); strings.Contains(got, "usages[") {
			t.Error(got)
		}
	}
	var copied []string
	for u, err := range second.ops.store.AllUsages(t.Context(), math.MaxInt64) {
		if copied = append(copied, u.ID); err != nil {
			t.Fatal(err)
		}
	}
	for token, want := range tokens {
		l, err := second.ops.leases.Find(t.Context(), token)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if got := fmt.Sprint(slices.Index(copied, l.UsageID), l.Slot); got != want {
			t.Errorf("the token of %s is that of %s", want, got)
		}
		if r, err := second.ops.leases.Renew(t.Context(), l, []string{"tcp://203.0.113.7:1"}, lease.Keep{}, netip.Addr{}); err != nil || !r.Changed {
			t.Errorf("%s is not renewed: %+v, %v", want, r, err)
		}
		if strings.Contains(state, string(token)) {
			t.Error("the state has a token")
		}
	}
	if got := second.StateDocument(t); got[strings.Index(got, `"services"`):] != state[strings.Index(state, `"services"`):] {
		t.Errorf("the copy's state is %s\nwant %s", got, state)
	}
	released := strings.Replace(state, `{"owner"`, `{"prune":true,"owner"`, 1)
	released = regexp.MustCompile(`"leases":\[\{"slot":"a"[^}]*\},`).ReplaceAllString(released, `"leases":[`)
	if got, want := second.Applied(t, released), strings.TrimSpace(strings.Repeat("provision what=\"POST /api/v1/ddns/usages/{id}/leases\" id=<id> status=200\n", 3)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for token, slot := range tokens {
		if _, err := second.ops.leases.Find(t.Context(), token); (err == nil) != strings.HasSuffix(slot, "b") {
			t.Errorf("%s, pruned: %v", slot, err)
		}
	}
}

// TestChangesTogether: the endpoints that one PATCH brings and the formats that another one brings, whose body arrives later,
// are checked together.
func TestChangesTogether(t *testing.T) {
	t.Parallel()
	a := newAppliance(t, func(a *appliance) { a.idle = true })
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"svc","config":{"domain":"example.com"}}`)
	path := "/api/v1/ddns/usages/" + a.Reserve(t, "svc", "p", 7)
	a.Must(t, "PATCH", path, `{"formats":["hostport"]}`)
	body, late := io.Pipe()
	request, err := http.NewRequest("PATCH", a.URL+path, body)
	support.Must(t, err)
	request.Header.Set("Expect", "100-continue")
	reads := make(chan struct{})
	request = request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }}))
	go func() {
		<-reads // the usage was read before the body
		long := strings.Repeat("x", 60)
		a.Must(t, "PATCH", path, fmt.Sprintf(`{"txt_endpoints":["tcp://%[1]s.a:1","tcp://%[1]s.b:1","tcp://%[1]s.c:1","tcp://%[1]s.d:1"]}`, long))
		fmt.Fprint(late, `{"formats":["mesh1"]}`)
		late.Close()
	}()
	transport := http.Transport{ExpectContinueTimeout: support.Patience}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	support.Must(t, err)
	defer answer.Body.Close()
	if code := answer.Header.Get("X-Error-Code"); code != "value_too_long" {
		t.Errorf("%s %s", answer.Status, code)
	}
}

const (
	// mostRows bounds the rows that one function of a transaction writes, with those of triggers. On an idle machine of two
	// cores SQLite writes 20 000 to 60 000 of them in 250 ms.
	mostRows = 5000
	mostHeap = 32 << 20
)

// fillTables fills the tables that requests, nodes and providers fill. What a person makes one by one has fewer rows: adopted
// owners, accounts, zones, targets and secondaries; so has what the program bounds itself: samples and dead endpoints. 9 000
// rows are more than mostRows, and as many as the bounds of dead endpoints and events need.
const fillTables = `
	CREATE TEMP TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) SELECT i FROM n;
	INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
	    SELECT 's' || i, 's', '{}', '', '', '', '', '[]', NULL, '', '' FROM n;
	INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
	    SELECT i, printf('u%05d', i), 'svc', 'mesh_sync', 'custom', 'p' || i, 'TXT', '', 1, '["tcp://127.0.0.1:1"]', '_mesh.p' || i || '.example.com', '2026-01-02T03:04:05.678Z' FROM n;
	INSERT INTO bindings SELECT seq, 'b' || id, seq, id, provider_id, 'active' FROM usages;
	INSERT INTO usage_options (usage, formats, checking, peer_id) SELECT seq, '["mesh1"]', iif(seq < 4097, '{"kind":"tcp","interval":3600}', ''), '' FROM usages;
	INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, 4102444800000, 'later', 0 FROM usages;
	INSERT INTO leases (id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
	    SELECT 'l' || i, 1 + (i - 1) / 250, 's' || i, randomblob(32), '["tcp","udp","quic"]', '["192.0.2.0/24","198.51.100.0/24","2001:db8::/32"]', 3600, '["tcp://{ip}:11010","udp://{ip}:11010"]', '', '[]', 1767323045000, '192.0.2.1', 1 FROM n;
	UPDATE leases SET endpoints = '["tcp://192.0.2.' || (seq % 250) || ':11010","udp://192.0.2.' || (seq % 250) || ':11010"]'; -- so they are counted as living
	INSERT INTO challenges (usage, lease, value, put_at) SELECT usage, seq, 'v' || seq, 1 FROM leases;
	INSERT INTO dead_endpoints SELECT seq, 'tcp://192.0.2.251:1', 1, 'x' FROM usages WHERE seq > 4096 AND seq < 8193;
	INSERT INTO zone_records (name, type, data, ttl)
	    SELECT 'com.example.o' || i || '._mesh', 16, CAST(char(length(v)) || v AS BLOB), 60 FROM (SELECT i, 'v=mesh1 n=' || i || ' o=' || owner || ' tcp://203.0.113.9:1' AS v FROM n, appliance);
	INSERT INTO zone_journal (zone, serial_before, serial, removed, added) SELECT 'example.com', i, i + 1, x'', x'' FROM n WHERE i < 500;
	INSERT INTO events (at, kind, name, usage, usage_id, service_id, network_id, caller, before, after, detail)
	    SELECT 1767323045000, 'usage.changed', '_mesh.p' || n.i || '.example.com', n.i, printf('u%05d', n.i), 'svc', n.i, '', '', '', '' FROM n, n AS m WHERE m.i < 14;
	INSERT INTO replays (key, caller, body, answer, at) SELECT 'k' || i, '', x'', '{}', 1 FROM n;
	INSERT INTO samples (at, counts) SELECT i * 900000, '{}' FROM n WHERE i < 700;
	DROP TABLE n`

// TestNothingGrowsWithATable: no function of a transaction writes more than mostRows rows, and no operation takes more than mostHeap
// octets, however many rows the tables have. Rows decide, and not time: a busy machine makes no difference to them. A write
// of another client always waits, so that the functions of the program itself do not share a transaction (sqlite.Queue);
// how long the write waits is logged.
func TestNothingGrowsWithATable(t *testing.T) {
	if support.Count(0, 1) == 0 {
		t.Skip("it takes a minute and a half: " + support.Long + "=1 runs it")
	}
	folder, err := os.MkdirTemp("/dev/shm", "meshddns") // rows are counted, so that no disk has to be waited for
	support.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "meshddns.db")
	t.Run("Fill", func(t *testing.T) { fillDatabase(t, path) })
	a := newApplianceOn(t, path)
	w := watchWrites(t, a)
	step := func(what string, do func()) {
		t.Helper()
		w.step(t, what, do)
	}
	ask := func(method, path, body string) func() {
		return func() {
			request, err := http.NewRequest(method, a.URL+path, strings.NewReader(body))
			support.Must(t, err)
			done := support.Within(support.Patience, func() bool { // a reset is asked for until the second looks are over
				answer, err := a.HTTP.Do(request.Clone(t.Context()))
				support.Must(t, err)
				text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				code := answer.Header.Get("X-Error-Code")
				if answer.StatusCode == http.StatusInternalServerError && code != "sync_unfinished" {
					t.Errorf("%s %s: %s %s\n%s", method, path, answer.Status, text, a.Logs)
				}
				return code != "sync_unfinished" && answer.StatusCode != http.StatusAccepted
			})
			if !done {
				t.Errorf("%s %s does not end", method, path)
			}
		}
	}
	operations := func(lines string) {
		for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
			method, rest, _ := strings.Cut(line, " ")
			at, body, _ := strings.Cut(rest, " ")
			step(line, ask(method, at, body))
		}
	}
	operations(readsAtScale)
	store := a.ops.store
	leases, err := newLeases(t.Context(), store, func(context.Context) (bool, bool) { return true, true }, nil, a.log)
	support.Must(t, err)
	step("the end of all leases", func() {
		store.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		support.Must(t, leases.Expire(t.Context()))
		store.now = time.Now
	})
	checks := check.New(&check.Table{DB: store.db, Ledger: store.ledger, Events: store.events, Now: time.Now}, &check.Control{Gateways: func() []netip.Addr { return nil }}, a.addresses.Last, a.log)
	for _, task := range []struct {
		what string
		run  func(context.Context) error
		left string // what it has to do
	}{
		{"events", store.events.Keep, `SELECT 1 FROM (SELECT count(*) AS c FROM events) WHERE c > 102000`},
		{"checks", checks.Run, `SELECT 1 FROM dead_endpoints WHERE since = 1 LIMIT 1`},
		{"samples", a.status.Record, `SELECT 1 WHERE false`},
		{"messages", a.sender.Run, `SELECT 1 WHERE false`},
		{"secondaries", a.ops.secondaries.Run, `SELECT 1 WHERE false`},
	} {
		step("the task of "+task.what, func() {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- task.run(ctx) }()
			if !support.Within(support.Patience, func() bool { return len(support.Rows(t, a.Reader, task.left)) == 0 }) {
				t.Error("it has not done its work")
			}
			cancel()
			<-ended
		})
	}
	operations(changesAtScale)
	_, page := a.Do(t, "GET", "/metrics", nil, "")
	for _, match := range regexp.MustCompile(`_requests_total\{route="([^"]+)",code="200"\} 0`).FindAllStringSubmatch(page, -1) {
		if !regexp.MustCompile(regexp.QuoteMeta(match[1]) + `",code="[^"]+"\} [1-9]`).MatchString(page) {
			t.Errorf("%s is not asked", match[1])
		}
	}
}

// readsAtScale and changesAtScale have each route, those that take much away last.
const readsAtScale = `
GET /api/v1/ddns/config
GET /api/v1/ddns/sync
GET /api/v1/ddns/leftovers
GET /api/v1/ddns/providers
GET /api/v1/ddns/check-prefix?service_id=svc&prefix=new
GET /api/v1/ddns/usages/available
GET /api/v1/ddns/usages/u00001
GET /api/v1/ddns/usages/u00001/leases
GET /api/v1/ddns/usages/u00001/events
GET /api/v1/ddns/events?limit=1000
GET /api/v1/ddns/services
GET /api/v1/ddns/services/svc
GET /api/v1/ddns/notifications
GET /api/v1/ddns/notifications/x
GET /api/v1/ddns/addresses
GET /api/v1/ddns/secondaries
GET /api/v1/ddns/secondaries/x
GET /api/v1/ddns/state
GET /api/v1/ddns/backup
GET /healthz
OPTIONS /
GET /metrics
GET /api/v1/ddns/openapi.json
GET /
GET /names
GET /names/u00001
GET /nodes
GET /zones
GET /events
`

const changesAtScale = `
PUT /api/v1/ddns/notifications/x {"kind":"generic","url":"http://127.0.0.1:1/","events":["*"]}
POST /api/v1/ddns/notifications/x/test
PUT /api/v1/ddns/secondaries/x {"address":"127.0.0.1:1","zones":["*"]}
POST /api/v1/ddns/usages {"service_id":"svc","prefix_mode":"custom","custom_prefix":"new","network_id":7}
PATCH /api/v1/ddns/usages/u00001 {"description":"x"}
POST /api/v1/ddns/usages/u08999/leases {"slot":"new","ttl":60}
DELETE /api/v1/ddns/usages/u00002/leases/l300
POST /api/v1/ddns/services {"id":"new","name":"new","config":{"domain":"new.example.com"}}
PUT /api/v1/ddns/services/svc {"name":"svc","config":{"domain":"example.com"},"txt_endpoints":["tcp://203.0.113.8:1"]}
POST /api/v1/ddns/test
POST /api/v1/ddns/sync?dry_run=1
POST /api/v1/ddns/sync?sweep=1
POST /api/v1/ddns/adopt {"owner":"0123456789ab"}
PUT /api/v1/ddns/config {"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_other","sync_mode":"auto","enabled":true}
DELETE /api/v1/ddns/leftovers/1
DELETE /api/v1/ddns/usages/u00001?force=1
DELETE /api/v1/ddns/services/new
DELETE /api/v1/ddns/notifications/x
DELETE /api/v1/ddns/secondaries/x
DELETE /api/v1/ddns/state
DELETE /api/v1/ddns/config
`

// fillDatabase makes a database with a configuration, a service and full tables.
func fillDatabase(t *testing.T, path string) {
	a := newApplianceOn(t, path, func(a *appliance) { a.idle = true })
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"_host","sync_mode":"auto","enabled":true}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"svc","config":{"domain":"example.com"}}`)
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, fillTables)
}

// writes watches the transactions of an appliance and its heap.
type writes struct {
	rows map[string]int64                 // of the transaction that is open, by their tables
	most atomic.Pointer[map[string]int64] // of the largest one in this step
	idle atomic.Bool                      // the last one has written nothing
	wait atomic.Int64                     // the longest of a write
	heap atomic.Int64                     // the most octets in use after a collection
}

// watchWrites counts the rows that each transaction writes, by triggers of the connection, and keeps a write waiting until
// the test ends.
func watchWrites(t *testing.T, a *appliance) *writes {
	w := &writes{rows: map[string]int64{}}
	w.most.Store(&map[string]int64{})
	conn, err := a.ops.store.db.Writer.Conn(t.Context())
	support.Must(t, err)
	defer conn.Close()
	support.Must(t, conn.Raw(func(driver any) error {
		c := driver.(*sqlite3.SQLiteConn)
		c.RegisterCommitHook(func() int {
			rows := w.rows
			if w.idle.Store(len(rows) == 0); sum(rows) > sum(*w.most.Load()) {
				w.most.Store(&rows)
			}
			w.rows = map[string]int64{}
			return 0
		})
		c.RegisterRollbackHook(func() { w.rows = map[string]int64{} })
		return c.RegisterFunc("counted", func(table string) int64 { w.rows[table]++; return 0 }, false)
	}))
	for _, table := range support.Rows(t, a.Reader, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`) {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			_, err := conn.ExecContext(t.Context(), fmt.Sprintf(`CREATE TEMP TRIGGER counted_%s_%s AFTER %s ON main.%s BEGIN SELECT counted('%s'); END`, table, event, event, table, table))
			support.Must(t, err)
		}
	}
	var writing sync.WaitGroup
	ended, begun := make(chan struct{}), make(chan struct{}, 1)
	var write func()
	write = func() {
		if w.idle.Load() {
			<-time.After(time.Millisecond) // leaves the machine to others
		}
		next := sync.OnceFunc(func() { // once, because a transaction may be tried twice
			select {
			case <-ended:
			default:
				writing.Go(write)
				<-begun
				runtime.Gosched() // now it waits in the queue, or is about to
			}
		})
		begun <- struct{}{}
		began := time.Now()
		err := a.ops.store.db.Tx(t.Context(), func(context.Context, *sql.Tx) error {
			w.wait.Store(max(w.wait.Load(), int64(time.Since(began))))
			next()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	writing.Go(write)
	<-begun
	t.Cleanup(func() { close(ended); writing.Wait() })
	t.Cleanup(func() { debug.SetGCPercent(debug.SetGCPercent(25)) })
	debug.SetGCPercent(25)
	return w
}

// step does something, and wants the bounds.
func (w *writes) step(t *testing.T, what string, do func()) {
	t.Helper()
	live := func() int64 {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	runtime.GC()
	before, began := live(), time.Now()
	w.most.Store(&map[string]int64{})
	w.wait.Store(0)
	w.heap.Store(before)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-time.After(2 * time.Millisecond):
				w.heap.Store(max(w.heap.Load(), live()))
			case <-done:
				return
			}
		}
	})
	do()
	close(done)
	watching.Wait()
	grown := w.heap.Load() - before
	most := *w.most.Load()
	t.Logf("%s: %.1f s, %d rows, a write waited %d ms, %d KB", what, time.Since(began).Seconds(), sum(most), w.wait.Load()/1e6, grown>>10)
	if sum(most) > mostRows || grown > mostHeap {
		t.Errorf("%s: a transaction has written %v, and the heap has grown by %d KB", what, most, grown>>10)
	}
}

func sum(rows map[string]int64) (all int64) {
	for _, count := range rows {
		all += count
	}
	return all
}
