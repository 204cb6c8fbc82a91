package main

import (
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"meshddns/sqlrow"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/dnsname"
	"meshddns/dnswire"
	"meshddns/meshtxt"
	"meshddns/provider/cloudtest"
	"meshddns/reconcile"
)

//go:embed testdata/schema-1.sql
var schema1 string

// toVersion2 is what the program added in version 2.
const toVersion2 = `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''; PRAGMA user_version = 2`

const oldOwner = "0123456789ab"

// oldFile makes a database as an earlier version of the program left it.
func oldFile(t testing.TB, version int, content ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "meshddns.db")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_foreign_keys=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := []string{schema1, `INSERT INTO appliance (id, owner, dns_serial) VALUES (1, '` + oldOwner + `', 77)`, `PRAGMA user_version = 1`}
	if version == 2 {
		statements = append(statements, toVersion2)
	}
	for _, statement := range append(statements, content...) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	return path
}

// bothVersions runs a test for files of every earlier version.
func bothVersions(t *testing.T, test func(t *testing.T, version int)) {
	for version := 1; version < schemaVersion(); version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) { test(t, version) })
	}
}

// readSchema gives all that sqlite_schema says.
func readSchema(t testing.TB, path string) []string {
	t.Helper()
	s, err := openStore(t.Context(), path, noLog)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return queryText(t, s.reader, `SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name`)
}

// A migrated file has the schema of a new one, to the letter.
func TestMigratedSchemaIsTheNewOne(t *testing.T) {
	fresh := readSchema(t, filepath.Join(t.TempDir(), "new.db"))
	if len(fresh) < 20 {
		t.Fatalf("a new file has %d objects", len(fresh))
	}
	bothVersions(t, func(t *testing.T, version int) {
		migrated := readSchema(t, oldFile(t, version))
		for _, line := range fresh {
			if !slices.Contains(migrated, line) {
				t.Errorf("the migrated file lacks\n%s", line)
			}
		}
		for _, line := range migrated {
			if !slices.Contains(fresh, line) {
				t.Errorf("the migrated file has\n%s", line)
			}
		}
	})
}

// oldServices are services as older programs let them in.
const oldServices = `
	INSERT INTO services (id, name, config, zone, provider, created_at, updated_at) VALUES
	('text',    'Text',    'no JSON at all',                                       '',            '',        'c1', 'u1'),
	('empty',   'Empty',   '',                                                     '',            '',        'c', 'u'),
	('null',    'Null',    'null',                                                 '',            '',        'c', 'u'),
	('array',   'Array',   '[{"domain":"example.com"}]',                           '',            '',        'c', 'u'),
	('two',     'Two',     '{"a":1} {"b":2}',                                      '',            '',        'c', 'u'),
	('none',    'None',    '{}',                                                   '',            '',        'c', 'u'),
	('number',  'Number',  '{"domain":7,"provider":7,"access_key_id":7}',          '',            '',        'c', 'u'),
	('false',   'False',   '{"domain":null,"txt_endpoints":null,"endpoint":false}','',            '',        'c', 'u'),
	('odd',     'Odd',     '{"domain":"odd.example","txt_endpoints":["tcp://a:1",7]}', 'odd.example', '',    'c', 'u'),
	('odd2',    'Odd',     '{"domain":"odd2.example","txt_endpoints":"tcp://a:1"}',    'odd2.example', '',   'c', 'u'),
	('good',    'Good',    '{"domain":"good.example","txt_endpoints":["tcp://a:1","udp://b:2"]}', 'good.example', '', 'c', 'u'),
	('script',  'Script',  '{"domain":"Lesen.Bücher.Example."}',                   'lesen.bücher.example', '', 'c', 'u'),
	('keyed',   'Keyed',   '{"domain":"k.example","provider":"alidns","access_key_id":"id-1","access_key_secret":"s-old","endpoint":"http://127.0.0.1:1"}', 'k.example', 'alidns', 'c', '2026-01-01'),
	('keyed2',  'Keyed',   '{"domain":"k2.example","provider":"alidns","access_key_id":"id-1","access_key_secret":"s-new","endpoint":"http://127.0.0.1:1"}', 'k2.example', 'alidns', 'c', '2026-01-02'),
	('halfkey', 'Half',    '{"domain":"h.example","provider":"alidns","access_key_id":["x"],"access_key_secret":{"y":1},"endpoint":9}', 'h.example', 'alidns', 'c', 'u'),
	('inner',   'Inner',   '{"domain":"inner.example","provider":"builtin","access_key_id":"x","access_key_secret":"y","endpoint":"z"}', 'inner.example', 'builtin', 'c', 'u')`

// Services are kept as they are, and what the program reads in their configs is
// what it reads in those that are stored now.
func TestMigratedServices(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		services := oldServices
		if version == 2 { // in which names of other scripts are A-labels already
			services = strings.Replace(services, "'lesen.bücher.example'", "'lesen.xn--bcher-kva.example'", 1)
		}
		s := mustOpen(t, oldFile(t, version, services))
		all, err := s.Services(t.Context())
		if err != nil || len(all) != 16 {
			t.Fatalf("%d services, %v", len(all), err)
		}
		for _, v := range all {
			config, err := parseServiceConfig(v.Config)
			if v.Domain.Valid != (err == nil) || v.Domain.V != config.Domain {
				t.Errorf("%s: domain %+v, the config has %q, %v", v.ID, v.Domain, config.Domain, err)
			}
			var endpoints sqlrow.TextList
			var provider string
			var account sql.Null[int64]
			row := s.reader.QueryRow(`SELECT provider, txt_endpoints, account FROM services WHERE id = ?`, v.ID)
			if err := row.Scan(&provider, &endpoints, &account); err != nil {
				t.Fatal(err)
			}
			if provider != config.Provider || !slices.Equal(endpoints, config.Endpoints) || account.Valid != (config.Provider != "") {
				t.Errorf("%s: provider %q, endpoints %q, account %+v; the config has %q %q", v.ID, provider, endpoints, account, config.Provider, config.Endpoints)
			}
			if account.Valid {
				checkAccount(t, s, account.V, config.account())
			}
			if zone := dnsname.Parse(config.Domain); v.Zone != zone {
				t.Errorf("%s: zone %q, want %q", v.ID, v.Zone, zone)
			}
		}
		if v, err := s.Service(t.Context(), "text"); err != nil || v.Config != "no JSON at all" || v.CreatedAt != "c1" || v.UpdatedAt != "u1" || v.Name != "Text" {
			t.Errorf("%+v, %v", v, err)
		}
		if totals, err := s.Totals(t.Context()); err != nil || totals["services"] != 16 {
			t.Errorf("totals %v, %v", totals, err)
		}
	})
}

// checkAccount compares a stored account with the one of a config. The newest
// key of an account counts.
func checkAccount(t *testing.T, s *store, id int64, want reconcile.Account) {
	t.Helper()
	var got reconcile.Account
	err := s.reader.QueryRow(`SELECT provider, endpoint, access_key_id, access_key_secret FROM accounts WHERE id = ?`, id).Scan(
		&got.Provider, &got.Endpoint, &got.AccessKeyID, &got.Secret)
	if string(want.Secret) == "s-old" {
		want.Secret = "s-new"
	}
	if err != nil || got != want {
		t.Errorf("account %d is %s %s %q, want %s %s %q, %v", id, got.Provider, got.AccessKeyID, string(got.Secret), want.Provider, want.AccessKeyID, string(want.Secret), err)
	}
}

// Usages keep their order, their networks and their bindings.
func TestMigratedUsages(t *testing.T) {
	networks := []string{"0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	stored := []string{"0", "1", "9223372036854775807", "-9223372036854775808", "-1"}
	var usages, bindings []string
	for n := range 40 { // inserted from the last to the first
		i := 39 - n
		usages = append(usages, fmt.Sprintf(`('u%02d', 'good', 'mesh_sync', 'custom', 'Pre-%d', 'TXT', 'about %d', %d, '["tcp://a:%d"]', 'at %d')`, i, i, i, i%2, i+1, i))
		if i%8 != 7 {
			bindings = append(bindings, fmt.Sprintf(`('b%02d', %s, 'u%02d', 'good', '%s')`, n, stored[i%5], i, []string{statusActive, statusReleasing}[i%2]))
		}
	}
	bothVersions(t, func(t *testing.T, version int) {
		s := mustOpen(t, oldFile(t, version, oldServices,
			`INSERT INTO usages VALUES `+strings.Join(usages, ", "), `INSERT INTO bindings VALUES `+strings.Join(bindings, ", ")))
		all, err := s.Usages(t.Context(), usageFilter{}, 1000)
		if err != nil || len(all) != 40 {
			t.Fatalf("%d usages, %v", len(all), err)
		}
		for i, u := range all {
			want := fmt.Sprintf("u%02d good custom Pre-%d TXT about %d %v [tcp://a:%d] at %d _mesh.pre-%d.good.example Good good.example", i, i, i, i%2 == 1, i+1, i, i)
			got := fmt.Sprint(u.ID, " ", u.ServiceID, " ", u.Mode, " ", u.Prefix, " ", u.RecordType, " ", u.Description, " ", u.Exclusive, " ", u.Endpoints, " ",
				u.CreatedAt, " ", u.Name, " ", u.ServiceName.V, " ", u.Domain.V)
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if bound := i%8 != 7; u.Network.Valid != bound || bound && (u.Network.V.String() != networks[i%5] || u.Status != []string{statusActive, statusReleasing}[i%2]) {
				t.Errorf("%s: network %+v, status %q", u.ID, u.Network, u.Status)
			}
		}
		if v, err := s.Service(t.Context(), "good"); err != nil || v.UsageCount != 40 {
			t.Errorf("%d usages of the service, %v", v.UsageCount, err)
		}
		if _, err := s.CreateUsage(t.Context(), usage{ServiceID: "good", Mode: modeCustom, Prefix: "PRE-1"}); err != errPrefixTaken {
			t.Errorf("a prefix that is taken: %v", err)
		}
		made, err := s.CreateUsage(t.Context(), usage{ServiceID: "good", Mode: modeCustom, Prefix: "new", Network: sql.Null[sqlrow.NetworkID]{V: 1, Valid: true}})
		if err != nil || made.Seq <= all[39].Seq {
			t.Errorf("a new usage has seq %d, %v", made.Seq, err)
		}
		if got := queryText(t, s.reader, `SELECT id, usage_id FROM bindings WHERE id = 'b01'`); !slices.Equal(got, []string{"b01 | u38"}) {
			t.Errorf("binding %q", got)
		}
		if loose := queryText(t, s.reader, `SELECT count(*) FROM usages u WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.name = u.name)`); loose[0] != "0" {
			t.Errorf("%s usages whose name no pass comes by", loose[0])
		}
	})
}

// The configuration is kept, and what only the database itself knows.
func TestMigratedConfiguration(t *testing.T) {
	const configuration = `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at)
		VALUES (1, 'rfc2136', 'key.', 'aGlkZGVu', '127.0.0.1:1', 'Mesh.Bücher.Example.', '@', 'auto', 7, NULL, 1, '["tcp://{ipv4}:1"]', 'then')`
	bothVersions(t, func(t *testing.T, version int) {
		content := []string{configuration, `INSERT INTO zone_records VALUES ('com.example', X'0178', 60)`}
		if version == 2 {
			content = append(content, `UPDATE configuration SET zone = 'mesh.xn--bcher-kva.example'`)
		}
		s := mustOpen(t, oldFile(t, version, content...))
		c, err := s.Configuration(t.Context())
		if err != nil || c.Provider != "rfc2136" || c.AccessKeyID != "key." || string(c.Secret) != "aGlkZGVu" || c.Endpoint != "127.0.0.1:1" ||
			c.Domain != "Mesh.Bücher.Example." || c.TXTRecordName != "@" || c.SyncMode != "auto" || c.RetryInterval.V != 7 || c.MaxRetries.Valid ||
			!c.Enabled || !slices.Equal(c.Endpoints, []string{"tcp://{ipv4}:1"}) || c.UpdatedAt != "then" {
			t.Errorf("%+v, %v", c, err)
		}
		if c.Zone != "mesh.xn--bcher-kva.example" {
			t.Errorf("zone %q", c.Zone)
		}
		checkAccount(t, s, c.AccountID, c.account())
		for query, want := range map[string]string{
			`SELECT owner, dns_serial, ipv4, ipv6 FROM appliance`:         oldOwner + " | 77 |  | ",
			`SELECT name FROM configuration`:                              "mesh.xn--bcher-kva.example",
			`SELECT name FROM names`:                                      "mesh.xn--bcher-kva.example",
			`SELECT name, hex(data), ttl FROM zone_records`:               "com.example | 0178 | 60",
			`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old\_%'`: "0",
			`PRAGMA foreign_key_check`:                                    "",
			`PRAGMA integrity_check`:                                      "ok",
		} {
			if got := strings.Join(queryText(t, s.reader, query), "\n"); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	})
}

// The log says what a migration does. A file that cannot be migrated stays.
func TestMigrationIsLogged(t *testing.T) {
	a := newApplianceOn(t, oldFile(t, 1))
	for _, want := range []string{"from=1", fmt.Sprint("to=", schemaVersion()), a.path} {
		if !strings.Contains(a.logs.String(), want) {
			t.Errorf("no %q in the log: %s", want, a.logs)
		}
	}
}

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
	return meshtxt.Value(fmt.Sprint(network), oldOwner, strings.Fields(endpoint))
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

	own := meshtxt.Value("", oldOwner, []string{"tcp://new:1"})
	w.publication(publication{name: "_txt.mesh." + zone, at: c, value: own, written: 1, state: "published", stands: []string{own}})
	want["_txt.mesh."+zone] = own
	for _, p := range []struct {
		prefix, state, binding string
		written                int
		stands                 string // of the name's own values: fresh, stale, none
		intent                 string
		after                  string
	}{
		{"published", "published", statusActive, 1, "fresh", "fresh", "fresh"},
		{"changed", "published", statusActive, 1, "stale", "stale", "fresh"},
		{"tampered", "published", statusActive, 1, "none", "fresh", "fresh"},
		{"failed-old", "failed", statusActive, 1, "stale", "fresh", "fresh"},
		{"failed-new", "failed", statusActive, 1, "fresh", "fresh", "fresh"},
		{"failed-none", "failed", statusActive, 0, "none", "fresh", "fresh"},
		{"pending-old", "pending", statusActive, 1, "stale", "fresh", "fresh"},
		{"pending-none", "pending", statusActive, 0, "none", "fresh", "fresh"},
		{"conflict-old", "conflict", statusActive, 1, "stale", "fresh", "fresh"},
		{"releasing", "withdrawing", statusReleasing, 1, "fresh", "", ""},
		{"releasing-gone", "withdrawing", statusReleasing, 1, "none", "", ""},
		{"releasing-published", "published", statusReleasing, 1, "fresh", "fresh", ""},
		{"releasing-unwritten", "pending", statusReleasing, 0, "none", "fresh", ""},
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
	want[at("reserved")] = fresh(w.usage("conf", "reserved", statusActive))
	// A network has the name of an earlier one, whose value may still stand.
	network := w.usage("conf", "held", statusActive)
	w.publication(publication{name: at("held"), at: c, network: network, held: 4711, value: fresh(network), written: 1, state: "failed", stands: []string{stale(4711)}})
	want[at("held")] = fresh(network)
	network = w.usage("conf", "held-both", statusActive)
	w.publication(publication{name: at("held-both"), at: c, network: network, held: 4712, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network), stale(4712)}})
	want[at("held-both")] = fresh(network)
	// Released by force: nobody has the name.
	w.publication(publication{name: at("forced"), at: c, network: 4713, value: "", written: 1, state: "withdrawing", stands: []string{stale(4713)}})
	want[at("forced")] = ""
	// Put there with a key that another has followed.
	w.publication(publication{name: at("old-key"), at: c, key: "older", network: 4714, value: "", written: 1, state: "withdrawing", stands: []string{stale(4714)}})
	want[at("old-key")] = ""
	// At a service's own provider.
	network = w.usage("own", "at-home", statusActive)
	home := "_mesh.at-home.own." + zone
	w.publication(publication{name: home, at: w.moved, network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want[home] = fresh(network)
	// Moved from there to the configuration's provider, and not withdrawn yet.
	network = w.usage("conf", "moving", statusActive)
	w.publication(publication{name: at("moving"), at: w.moved, network: network, value: "", written: 1, state: "withdrawing", stands: []string{stale(network)}})
	w.publication(publication{name: at("moving"), at: c, network: network, value: fresh(network), written: 0, state: "pending"})
	want[at("moving")] = fresh(network)
	// Its key is gone.
	w.publication(publication{name: at("lost"), at: w.refused, network: 4715, value: "", written: 1, state: "withdrawing", stands: []string{stale(4715)}})
	// In the built-in zones.
	network = w.usage("inner", "in", statusActive)
	w.publication(publication{name: "_mesh.in.inner.example", network: network, value: fresh(network), written: 1, state: "published", stands: []string{fresh(network)}})
	want["_mesh.in.inner.example"] = fresh(network)
	w.publication(publication{name: "_mesh.out.inner.example", network: 4716, value: "", written: 1, state: "withdrawing", stands: []string{stale(4716)}})
	want["_mesh.out.inner.example"] = ""
	w.publication(publication{name: "_mesh.in.gone.example", network: 4717, value: "", written: 1, state: "withdrawing", stands: []string{stale(4717)}})
	want["_mesh.in.gone.example"] = ""
	// Somebody else has the name.
	network = w.usage("conf", "theirs", statusActive)
	w.publication(publication{name: at("theirs"), at: c, network: network, value: fresh(network), written: 0, state: "conflict", stands: []string{strangersValue}})
	want[at("theirs")] = strangersValue
}

// check compares what stands at every name with what is to.
func (w *oldWorld) check(a *appliance, when string, want map[string]string) {
	w.t.Helper()
	for name, value := range want {
		var got []string
		for _, c := range []*cloudtest.Cloud{w.now, w.moved} {
			for _, v := range c.Values(w.t, name) {
				got = append(got, strings.Join(v, ""))
			}
		}
		if strings.HasSuffix(name, "inner.example") || strings.HasSuffix(name, "gone.example") {
			labels := strings.Split(name, ".")
			slices.Reverse(labels)
			records, err := a.store.ZoneRecords(w.t.Context(), []string{strings.Join(labels, ".")})
			if err != nil {
				w.t.Fatal(err)
			}
			for _, r := range records {
				text, _ := dnswire.ParseTXT(r.Data)
				got = append(got, strings.Join(text, ""))
			}
		}
		if strings.Join(got, " and ") != value {
			w.t.Errorf("%s: %s has %q, want %q", when, name, got, value)
		}
	}
}

// What stood at the providers is kept true after a migration: what is wanted
// stands, what is not is withdrawn where it was put, and nothing is forgotten.
func TestMigratedPublications(t *testing.T) {
	bothVersions(t, func(t *testing.T, version int) {
		w := &oldWorld{t: t, now: cloudtest.AliDNS(t), moved: cloudtest.TencentCloud(t), refused: cloudtest.HuaweiCloud(t), network: 100}
		want := w.build()
		if version == 2 {
			w.statements = append(w.statements, `UPDATE configuration SET zone = 'mesh.example.com'`)
		}
		path := oldFile(t, version, w.statements...)
		var ahead atomic.Int64
		a := newApplianceOn(t, path, func(a *appliance) {
			a.store.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		if a.store.owner != oldOwner {
			t.Fatalf("owner %q", a.store.owner)
		}
		status, code, answer := a.call(t, "POST", "/api/v1/ddns/sync", "")
		if status != 500 || code != "sync_failed" || !strings.Contains(answer, "_mesh.theirs.") || !strings.Contains(answer, "1 / ") {
			t.Errorf("the first synchronisation: %d %s %s", status, code, answer)
		}
		w.check(a, "after the first synchronisation", want)
		w.checkLeftover(a)
		for range 2 { // the second looks, and what follows them
			ahead.Add(int64(2 * reconcile.SecondLook))
			a.call(t, "POST", "/api/v1/ddns/sync", "")
		}
		w.check(a, "after the second look", want)
		w.checkLeftover(a)
		w.checkRest(a, want)
	})
}

// checkLeftover holds the one value that cannot be withdrawn to what is promised
// of it: it is listed, and it still stands.
func (w *oldWorld) checkLeftover(a *appliance) {
	w.t.Helper()
	answer := a.must(w.t, "GET", "/api/v1/ddns/leftovers", "")
	if strings.Count(answer, `"name"`) != 1 || !strings.Contains(answer, "_mesh.lost.mesh.example.com") {
		w.t.Errorf("leftovers: %s", answer)
	}
	if len(w.refused.Values(w.t, "_mesh.lost.mesh.example.com")) != 1 {
		w.t.Error("it does not stand any more")
	}
}

// checkRest looks at what the database has in the end.
func (w *oldWorld) checkRest(a *appliance, want map[string]string) {
	w.t.Helper()
	db := a.open(w.t)
	defer db.Close()
	for query, want := range map[string]string{
		`SELECT count(*) FROM usages WHERE record_prefix LIKE 'releasing%'`:                                                   "0",
		`SELECT DISTINCT state FROM places ORDER BY state`:                                                                    "conflict\nleftover\npublished",
		`SELECT count(*) FROM places WHERE doubt <> '' OR look_at <> 0`:                                                       "1", // the leftover's
		`SELECT name FROM names WHERE name NOT IN (SELECT name FROM usages) AND name NOT IN (SELECT name FROM configuration)`: "_mesh.lost.mesh.example.com",
		`SELECT provider FROM accounts ORDER BY provider`:                                                                     "alidns\nbuiltin\nhuaweicloud\ntencentcloud",
		`SELECT count(*) FROM accounts WHERE access_key_secret = '' `:                                                         "2", // the built-in server's, and the one that is gone
		`SELECT count(*) FROM names WHERE due IS NOT NULL AND lane <> 'look'`:                                                 "0",
	} {
		if got := strings.Join(queryText(w.t, db, query), "\n"); got != want {
			w.t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	published := 0
	for _, value := range want {
		if value != "" && value != strangersValue {
			published++
		}
	}
	if got := queryText(w.t, db, `SELECT count(*) FROM places WHERE state = 'published' AND standing <> ''`); got[0] != fmt.Sprint(published) {
		w.t.Errorf("%s places are published, want %d", got[0], published)
	}
}

// A database that is open to others' eyes is not made by a migration.
func TestMigratedFileMode(t *testing.T) {
	path := oldFile(t, 1)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestMigrateMany tells how long a file of version 2 with many usages takes to
// open, beside one pass over its tables. It runs when MESHDDNS_MIGRATE says how
// many usages.
func TestMigrateMany(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("MESHDDNS_MIGRATE"))
	if count == 0 {
		t.Skip("MESHDDNS_MIGRATE=1000000 runs it")
	}
	path := oldFile(t, 2, `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, enabled, txt_endpoints, updated_at, zone)
			VALUES (1, 'builtin', 'x', 'x', '', 'example.com', '_txt', 'manual', 1, '["tcp://{ipv4}:11010"]', '', 'example.com')`,
		`INSERT INTO services VALUES ('svc', 'x', '{"domain":"example.com"}', 'example.com', '', '', '')`, fmt.Sprintf(`
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages SELECT printf('01a2001c-74cd-7907-%%04x-%%012x', i / 4096, i), 'svc', 'mesh_sync', 'custom', 'prefix-' || i, 'TXT',
		    'mesh sync - network ' || i, 1, '[]', '2026-01-02T03:04:05.678Z' FROM n`, count), `
		INSERT INTO bindings SELECT 'b' || id, CAST(substr(record_prefix, 8) AS INTEGER), id, 'svc', 'active' FROM usages`, `
		INSERT INTO publications SELECT '_mesh.' || record_prefix || '.example.com', 'builtin', '', '', CAST(substr(record_prefix, 8) AS INTEGER), NULL,
		    'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldOwner+` tcp://203.0.113.7:11010', 1, 'published', '', '', 1, '2026-01-02T03:04:05.678Z' FROM usages`, `
		INSERT INTO zone_records SELECT 'com.example.' || record_prefix || '._mesh',
		    CAST(char(length(value)) || value AS BLOB), 60 FROM (SELECT record_prefix, 'v=mesh1 n=' || substr(record_prefix, 8) || ' o=`+oldOwner+` tcp://203.0.113.7:11010' AS value FROM usages)`)
	took := func(what string, do func()) {
		begun := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	took("one pass over the tables before", func() { walkTables(t, path) })
	var s *store
	took("openStore with its migration", func() { s = mustOpen(t, path) })
	if totals, err := s.Totals(t.Context()); err != nil || totals["usages"] != uint64(count) || totals["published"] != uint64(count) {
		t.Errorf("%v, %v", totals, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	took("one pass over the tables after", func() { walkTables(t, path) })
	took("openStore once more", func() { mustOpen(t, path) })
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
	for _, table := range queryText(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`) {
		columns := queryText(t, db, `SELECT group_concat('coalesce(length(' || name || '), 0)', ' + ') FROM pragma_table_info('`+table+`')`)[0]
		queryText(t, db, `SELECT count(*), sum(`+columns+`) FROM `+table)
	}
}
