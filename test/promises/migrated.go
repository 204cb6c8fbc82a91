package promises

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/dnswire"
	"meshddns/internal/mesh"
	"meshddns/internal/reconcile"
	"meshddns/test/cloudtest"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// oldWorld is a database of an earlier version, and what stands at its providers.
type oldWorld struct {
	t                   *testing.T
	now, moved, refused *cloudtest.Cloud // the configuration's, a service's, and one whose key is gone
	statements          []string
	id                  int
	network             int
}

// value is that of a network as the earlier version would have published it.
func (w *oldWorld) value(network int, endpoint string) string {
	return mesh.Value(fmt.Sprint(network), oldfile.Owner, strings.Fields(endpoint))
}

// usage adds a usage and its binding, and gives its network.
func (w *oldWorld) usage(service, prefix, status string) int {
	w.id++
	w.network++
	w.statements = append(w.statements,
		fmt.Sprintf(`INSERT INTO usages VALUES ('u%02d', '%s', 'mesh_sync', 'custom', '%s', 'TXT', '', 1, '[]', '')`, w.id, service, prefix),
		fmt.Sprintf(`INSERT INTO bindings VALUES ('b%02d', %d, 'u%02d', '%s', '%s')`, w.id, w.network, w.id, service, status))
	return w.network
}

// publication adds a row that the earlier version had of a place.
type publication struct {
	name          string
	at            *cloudtest.Cloud // nil: the built-in server
	key           string           // "" for the cloud's own
	network, held int              // 0 for NULL
	value         string
	written       int
	state         string
	stands        []string // there
}

func (w *oldWorld) publication(p publication) {
	w.t.Helper()
	null := func(n int) string {
		if n == 0 {
			return "NULL"
		}
		return fmt.Sprint(n)
	}
	provider, endpoint, key := "builtin", "", ""
	if p.at != nil {
		provider, endpoint, key = p.at.Provider, p.at.URL, p.at.AccessKeyID
	}
	if p.key != "" {
		key = p.key
	}
	w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO publications VALUES ('%s', '%s', '%s', '%s', %s, %s, '%s', %d, '%s', '', '', 1, 'then')`,
		p.name, provider, endpoint, key, null(p.network), null(p.held), p.value, p.written, p.state))
	for _, value := range p.stands {
		if p.at != nil {
			p.at.Add(w.t, p.name, []string{value})
			continue
		}
		labels := strings.Split(p.name, ".")
		slices.Reverse(labels)
		w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO zone_records VALUES ('%s', X'%X', 60)`, strings.Join(labels, "."), dnswire.TXTData([]string{value})))
	}
}

func cloudServiceConfig(c *cloudtest.Cloud, domain string) string {
	text, err := json.Marshal(map[string]string{
		"domain": domain, "provider": c.Provider, "access_key_id": c.AccessKeyID, "access_key_secret": c.AccessKeySecret, "endpoint": c.URL,
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

const strangersValue = "v=mesh1 n=5 o=ffffffffffff tcp://stranger:1"

// build makes publications of every state that the earlier version knew, and
// gives what is to stand at each name after a synchronisation.
func (w *oldWorld) build() (want map[string]string) {
	const zone = cloudtest.Zone
	c := w.now
	w.statements = append(w.statements, fmt.Sprintf(`INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, max_retries, enabled, txt_endpoints, updated_at)
		VALUES (1, '%s', '%s', '%s', '%s', 'Mesh.%s', '_txt', 'manual', 0, 1, '["tcp://new:1"]', '')`, c.Provider, c.AccessKeyID, c.AccessKeySecret, c.URL, zone),
		fmt.Sprintf(`INSERT INTO services VALUES ('conf', 'x', '{"domain":"mesh.%[1]s"}', 'mesh.%[1]s', '', '', ''), ('own', 'x', '%[2]s', 'own.%[1]s', '%[3]s', '', ''),
			('inner', 'x', '{"domain":"inner.example","provider":"builtin","access_key_id":"-","access_key_secret":"-"}', 'inner.example', 'builtin', '', '')`,
			zone, cloudServiceConfig(w.moved, "own."+zone), w.moved.Provider))
	at := func(prefix string) string { return "_mesh." + prefix + ".mesh." + zone }
	fresh := func(network int) string { return w.value(network, "tcp://new:1") }
	stale := func(network int) string { return w.value(network, "tcp://stale:1") }
	want = map[string]string{}

	own := mesh.Value("", oldfile.Owner, []string{"tcp://new:1"})
	w.publication(publication{name: "_txt.mesh." + zone, at: c, value: own, written: 1, state: "published", stands: []string{own}})
	want["_txt.mesh."+zone] = own
	for _, p := range []struct {
		prefix, state, binding string
		written                int
		stands                 string // of the name's own values: fresh, stale, none
		intent                 string
		after                  string
	}{
		{"published", "published", "active", 1, "fresh", "fresh", "fresh"},
		{"changed", "published", "active", 1, "stale", "stale", "fresh"},
		{"tampered", "published", "active", 1, "none", "fresh", "fresh"},
		{"failed-old", "failed", "active", 1, "stale", "fresh", "fresh"},
		{"failed-new", "failed", "active", 1, "fresh", "fresh", "fresh"},
		{"failed-none", "failed", "active", 0, "none", "fresh", "fresh"},
		{"pending-old", "pending", "active", 1, "stale", "fresh", "fresh"},
		{"pending-none", "pending", "active", 0, "none", "fresh", "fresh"},
		{"conflict-old", "conflict", "active", 1, "stale", "fresh", "fresh"},
		{"releasing", "withdrawing", "releasing", 1, "fresh", "", ""},
		{"releasing-gone", "withdrawing", "releasing", 1, "none", "", ""},
		{"releasing-published", "published", "releasing", 1, "fresh", "fresh", ""},
		{"releasing-unwritten", "pending", "releasing", 0, "none", "fresh", ""},
	} {
		network := w.usage("conf", p.prefix, p.binding)
		values := map[string]string{"fresh": fresh(network), "stale": stale(network)}
		row := publication{name: at(p.prefix), at: c, network: network, value: values[p.intent], written: p.written, state: p.state}
		if p.stands != "none" {
			row.stands = []string{values[p.stands]}
		}
		w.publication(row)
		want[row.name] = values[p.after]
	}
	w.buildOddities(want, at, fresh, stale)
	return want
}

func (w *oldWorld) buildOddities(want map[string]string, at func(string) string, fresh, stale func(int) string) {
	c, zone := w.now, cloudtest.Zone
	// Nothing is known of it: it was reserved just before.
	want[at("reserved")] = fresh(w.usage("conf", "reserved", "active"))
	// A network has the name of an earlier one, whose value may still stand.
	network := w.usage("conf", "held", "active")
	w.publication(publication{name: at("held"), at: c, network: network, held: 4711, value: fresh(network), written: 1, state: "failed", stands: []string{stale(4711)}})
	want[at("held")] = fresh(network)
	network = w.usage("conf", "held-both", "active")
	w.publication(publication{name: at("held-both"), at: c, network: network, held: 4712, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network), stale(4712)}})
	want[at("held-both")] = fresh(network)
	// Released by force: nobody has the name.
	w.publication(publication{name: at("forced"), at: c, network: 4713, value: "", written: 1, state: "withdrawing", stands: []string{stale(4713)}})
	want[at("forced")] = ""
	// Put there with a key that another has followed.
	w.publication(publication{name: at("old-key"), at: c, key: "older", network: 4714, value: "", written: 1, state: "withdrawing", stands: []string{stale(4714)}})
	want[at("old-key")] = ""
	// At a service's own provider.
	network = w.usage("own", "at-home", "active")
	home := "_mesh.at-home.own." + zone
	w.publication(publication{name: home, at: w.moved, network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want[home] = fresh(network)
	// Moved from there to the configuration's provider, and not withdrawn yet.
	network = w.usage("conf", "moving", "active")
	w.publication(publication{name: at("moving"), at: w.moved, network: network, value: "", written: 1, state: "withdrawing", stands: []string{stale(network)}})
	w.publication(publication{name: at("moving"), at: c, network: network, value: fresh(network), written: 0, state: "pending"})
	want[at("moving")] = fresh(network)
	// Its key is gone.
	w.publication(publication{name: at("lost"), at: w.refused, network: 4715, value: "", written: 1, state: "withdrawing", stands: []string{stale(4715)}})
	// In the built-in zones.
	network = w.usage("inner", "in", "active")
	w.publication(publication{name: "_mesh.in.inner.example", network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want["_mesh.in.inner.example"] = fresh(network)
	w.publication(publication{name: "_mesh.out.inner.example", network: 4716, value: "", written: 1, state: "withdrawing", stands: []string{stale(4716)}})
	want["_mesh.out.inner.example"] = ""
	w.publication(publication{name: "_mesh.in.gone.example", network: 4717, value: "", written: 1, state: "withdrawing", stands: []string{stale(4717)}})
	want["_mesh.in.gone.example"] = ""
	// Somebody else has the name.
	network = w.usage("conf", "theirs", "active")
	w.publication(publication{name: at("theirs"), at: c, network: network, value: fresh(network), written: 0, state: "conflict", stands: []string{strangersValue}})
	want[at("theirs")] = strangersValue
}

// check compares what stands at every name with what is to.
func (w *oldWorld) check(h *host, when string, want map[string]string) {
	w.t.Helper()
	for name, value := range want {
		var got []string
		for _, c := range []*cloudtest.Cloud{w.now, w.moved} {
			for _, v := range c.Values(w.t, name) {
				got = append(got, strings.Join(v, ""))
			}
		}
		if strings.HasSuffix(name, "inner.example") || strings.HasSuffix(name, "gone.example") {
			for _, text := range h.standing(name) {
				got = append(got, strings.Trim(text, `"`))
			}
		}
		if strings.Join(got, " and ") != value {
			w.t.Errorf("%s: %s has %q, want %q", when, name, got, value)
		}
	}
}

// What stood at the providers is kept true after a migration: what is wanted
// stands, what is not is withdrawn where it was put, and nothing is forgotten.
func (suite Suite) testMigratedPublications(t *testing.T) {
	oldfile.Both(t, func(t *testing.T, version int) {
		w := &oldWorld{t: t, now: cloudtest.AliDNS(t), moved: cloudtest.TencentCloud(t), refused: cloudtest.HuaweiCloud(t), network: 100}
		want := w.build()
		if version == 2 {
			w.statements = append(w.statements, `UPDATE configuration SET zone = 'mesh.example.com'`)
		}
		h := suite.openHost(t, oldfile.New(t, version, w.statements...), dnsBuiltinServer)
		if h.Owner != oldfile.Owner {
			t.Fatalf("owner %q", h.Owner)
		}
		if r := h.run(); r.Bad != 1 || !strings.HasPrefix(r.FirstBad().Name, "_mesh.theirs.") {
			t.Errorf("the first synchronisation: %+v", r)
		}
		w.check(h, "after the first synchronisation", want)
		w.checkLeftover(h)
		for range 2 { // the second looks, and what follows them
			h.later(2 * reconcile.SecondLook)
			h.run()
		}
		w.check(h, "after the second look", want)
		w.checkLeftover(h)
		w.checkRest(h, want)
	})
}

// checkLeftover holds the one value that cannot be withdrawn to what is promised
// of it: it is listed, and it still stands.
func (w *oldWorld) checkLeftover(h *host) {
	w.t.Helper()
	if left := h.leftovers(); !slices.Equal(left, []string{"_mesh.lost.mesh.example.com"}) {
		w.t.Errorf("leftovers: %q", left)
	}
	if len(w.refused.Values(w.t, "_mesh.lost.mesh.example.com")) != 1 {
		w.t.Error("it does not stand any more")
	}
}

// checkRest looks at what the database has in the end.
func (w *oldWorld) checkRest(h *host, want map[string]string) {
	w.t.Helper()
	for query, want := range map[string]string{
		`SELECT count(*) FROM usages WHERE record_prefix LIKE 'releasing%'`:                                                   "0",
		`SELECT DISTINCT state FROM places ORDER BY state`:                                                                    "conflict\nleftover\npublished",
		`SELECT count(*) FROM places WHERE doubt <> '' OR look_at <> 0`:                                                       "1", // the leftover's
		`SELECT name FROM names WHERE name NOT IN (SELECT name FROM usages) AND name NOT IN (SELECT name FROM configuration)`: "_mesh.lost.mesh.example.com",
		`SELECT provider FROM accounts ORDER BY provider`:                                                                     "alidns\nbuiltin\nhuaweicloud\ntencentcloud",
		`SELECT count(*) FROM accounts WHERE access_key_secret = '' `:                                                         "2", // the built-in server's, and the one that is gone
		`SELECT count(*) FROM names WHERE due IS NOT NULL AND lane <> 'look'`:                                                 "0",
	} {
		if got := strings.Join(support.Rows(w.t, h.Reader, query), "\n"); got != want {
			w.t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	published := 0
	for _, value := range want {
		if value != "" && value != strangersValue {
			published++
		}
	}
	if got := support.Rows(w.t, h.Reader, `SELECT count(*) FROM places WHERE state = 'published' AND standing <> ''`); got[0] != fmt.Sprint(published) {
		w.t.Errorf("%s places are published, want %d", got[0], published)
	}
}

// A database that is open to others' eyes is not made by a migration.
func (suite Suite) testMigratedFileMode(t *testing.T) {
	path := oldfile.New(t, 1)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	suite.mustOpen(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// testMigrateMany tells how long a file of version 2 with many usages takes to
// open, beside one pass over its tables. It runs when MESHDDNS_MIGRATE says how
// many usages.
func (suite Suite) testMigrateMany(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("MESHDDNS_MIGRATE"))
	if count == 0 {
		t.Skip("MESHDDNS_MIGRATE=1000000 runs it")
	}
	path := oldfile.New(t, 2, `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, enabled, txt_endpoints, updated_at, zone)
			VALUES (1, 'builtin', 'x', 'x', '', 'example.com', '_txt', 'manual', 1, '["tcp://{ipv4}:11010"]', '', 'example.com')`,
		`INSERT INTO services VALUES ('svc', 'x', '{"domain":"example.com"}', 'example.com', '', '', '')`, fmt.Sprintf(`
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages SELECT printf('01a2001c-74cd-7907-%%04x-%%012x', i / 4096, i), 'svc', 'mesh_sync', 'custom', 'prefix-' || i, 'TXT',
		    'mesh sync - network ' || i, 1, '[]', '2026-01-02T03:04:05.678Z' FROM n`, count), `
		INSERT INTO bindings SELECT 'b' || id, CAST(substr(record_prefix, 8) AS INTEGER), id, 'svc', 'active' FROM usages`, `
		INSERT INTO publications SELECT '_mesh.' || record_prefix || '.example.com', 'builtin', '', '', CAST(substr(record_prefix, 8) AS INTEGER), NULL,
		    'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldfile.Owner+` tcp://203.0.113.7:11010', 1, 'published', '', '', 1, '2026-01-02T03:04:05.678Z' FROM usages`, `
		INSERT INTO zone_records SELECT 'com.example.' || record_prefix || '._mesh',
		    CAST(char(length(value)) || value AS BLOB), 60 FROM (SELECT record_prefix, 'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldfile.Owner+` tcp://203.0.113.7:11010' AS value FROM usages)`)
	took := func(what string, do func()) {
		begun := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	took("one pass over the tables before", func() { walkTables(t, path) })
	var s *stored
	took("openStore with its migration", func() { s = suite.mustOpen(t, path) })
	if totals, err := s.Totals(t.Context()); err != nil || totals["usages"] != uint64(count) || totals["published"] != uint64(count) {
		t.Errorf("%v, %v", totals, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	took("one pass over the tables after", func() { walkTables(t, path) })
	took("openStore once more", func() { suite.mustOpen(t, path) })
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		t.Log(regexp.MustCompile(`VmHWM:.*`).FindString(string(status)))
	}
}

// walkTables reads every cell of a database.
func walkTables(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range support.Rows(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`) {
		columns := support.Rows(t, db, `SELECT group_concat('coalesce(length(' || name || '), 0)', ' + ') FROM pragma_table_info('`+table+`')`)[0]
		support.Rows(t, db, `SELECT count(*), sum(`+columns+`) FROM `+table)
	}
}

// testManualLookTakesNothingAway has a look in mode manual, for a write that may arrive late: it
// takes nothing away whose successor is not there.
func (suite Suite) testManualLookTakesNothingAway(t *testing.T) {
	w := &oldWorld{t: t, now: cloudtest.AliDNS(t), moved: cloudtest.TencentCloud(t), refused: cloudtest.HuaweiCloud(t), network: 100}
	w.build()
	h := suite.openHost(t, oldfile.New(t, 1, w.statements...), dnsBuiltinServer)
	h.start()
	h.until("every place was looked at", func() bool { return h.count(`SELECT count(*) FROM names WHERE due <= 1000`) == 0 })
	for _, prefix := range []string{"failed-old", "pending-old", "conflict-old", "held"} {
		if values := w.now.Values(t, "_mesh."+prefix+".mesh.example.com"); len(values) != 1 {
			t.Errorf("%s: %q", prefix, values)
		}
	}
}
