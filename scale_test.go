package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/check"
	"meshddns/test/support"
)

const (
	// mostRows bounds the rows that one function of a transaction writes, with those of triggers. On an idle machine of two
	// cores SQLite writes 20 000 to 60 000 of them in 250 ms.
	mostRows = 5000
	mostHeap = 32 << 20
)

// fillTables fills the tables that requests, nodes and providers fill. What a person makes one by one has fewer rows: adopted
// owners, accounts, zones, targets and secondaries; so has what the program bounds itself: samples and dead endpoints.
const fillTables = `
	CREATE TEMP TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n;
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
	    SELECT 1767323045000, 'usage.changed', '_mesh.p' || n.i || '.example.com', n.i, printf('u%05d', n.i), 'svc', n.i, '', '', '', '' FROM n, n AS m WHERE m.i < 7;
	INSERT INTO replays (key, caller, body, answer, at) SELECT 'k' || i, '', x'', '{}', 1 FROM n;
	INSERT INTO samples (at, counts) SELECT i * 900000, '{}' FROM n WHERE i < 700;
	DROP TABLE n`

// TestNothingGrowsWithATable: no function of a transaction writes more than mostRows rows, and no operation takes more than mostHeap
// octets, however many rows the tables have. Rows decide, and not time: a busy machine makes no difference to them. A write
// of another client always waits, so that the functions of the program itself do not share a transaction (sqlite.Queue);
// how long the write waits is logged.
func TestNothingGrowsWithATable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
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
			for code := "sync_unfinished"; code == "sync_unfinished" || code == http.StatusText(http.StatusAccepted); {
				answer, err := a.HTTP.Do(request.Clone(t.Context()))
				support.Must(t, err)
				text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if code = cmp.Or(answer.Header.Get("X-Error-Code"), http.StatusText(answer.StatusCode)); answer.StatusCode == http.StatusInternalServerError && code != "sync_unfinished" {
					t.Errorf("%s %s: %s %s\n%s", method, path, answer.Status, text, a.Logs)
				}
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
POST /api/v1/ddns/usages/u19999/leases {"slot":"new","ttl":60}
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
