package promises

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/migrations"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// testMigratedSchemaIsTheNewOne compares migrated files with a new one, to the letter.
func (suite Suite) testMigratedSchemaIsTheNewOne(t *testing.T) {
	read := func(path string) []string {
		s := suite.mustOpen(t, path)
		defer s.Close()
		return support.Rows(t, s.Reader, `SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name`)
	}
	fresh := read(filepath.Join(t.TempDir(), "new.db"))
	if len(fresh) < 20 {
		t.Fatalf("a new file has %d objects", len(fresh))
	}
	for version := 1; version <= len(migrations.Steps()); version++ {
		path := oldfile.New(t, min(version, 2))
		oldfile.Bring(t, path, version)
		migrated := read(path)
		for _, line := range fresh {
			if !slices.Contains(migrated, line) {
				t.Errorf("the file of version %d, migrated, lacks\n%s", version, line)
			}
		}
		for _, line := range migrated {
			if !slices.Contains(fresh, line) {
				t.Errorf("the file of version %d, migrated, has\n%s", version, line)
			}
		}
	}
}

// testMigratedPrefixes brings prefixes to version 4, which has other indexes over them: each is
// found and counted as before.
func (suite Suite) testMigratedPrefixes(t *testing.T) {
	path := oldfile.New(t, 1, `INSERT INTO services VALUES ('svc', 'x', '{"domain":"example.com"}', 'example.com', '', '', '')`, `
		INSERT INTO usages VALUES
		    ('u1', 'svc', 'mesh_sync', 'custom', 'Office',     'TXT', '', 1, '[]', ''),
		    ('u2', 'svc', 'mesh_sync', 'auto',   '_mesh-NDI',  'TXT', '', 1, '[]', ''),
		    ('u3', 'svc', 'mesh_sync', 'auto',   '_mesh-NDI',  'TXT', '', 1, '[]', ''),
		    ('u4', 'svc', 'mesh_sync', 'custom', '_mes',       'TXT', '', 1, '[]', '')`)
	oldfile.Bring(t, path, 3)
	s := suite.mustOpen(t, path)
	for prefix, want := range map[string]int64{"OFFICE": 1, "_Mesh-ndi": 2, "_mes": 1, "_mesh": 0, "": 0, "offic": 0} {
		if count, err := s.CountUsages(t.Context(), "svc", prefix); err != nil || count != want {
			t.Errorf("%q: %d, %v, want %d", prefix, count, err, want)
		}
	}
	for _, prefix := range []string{"oFFICE", "_MES"} {
		if _, err := s.Reserve(t.Context(), custom(prefix, 1)); !errors.Is(err, suite.PrefixTaken) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
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

// testMigratedServices compares each migrated service with one that is stored now: what the
// program reads in a config is the same. What cannot be stored now has no domain.
func (suite Suite) testMigratedServices(t *testing.T) {
	fresh := suite.mustOpen(t, filepath.Join(t.TempDir(), "new.db"))
	oldfile.Both(t, func(t *testing.T, version int) {
		services := oldServices
		if version == 2 { // in which names of other scripts are A-labels already
			services = strings.Replace(services, "'lesen.bücher.example'", "'lesen.xn--bcher-kva.example'", 1)
		}
		s := suite.mustOpen(t, oldfile.New(t, version, services))
		ids := support.Rows(t, s.Reader, `SELECT id FROM services`)
		if len(ids) != 16 {
			t.Fatalf("%d services", len(ids))
		}
		for _, id := range ids {
			read := `
				SELECT domain IS NULL, s.domain, s.zone, s.zone_key, s.provider, s.txt_endpoints, a.provider, a.endpoint, a.access_key_id, a.access_key_secret, a.key_hash
				FROM services s LEFT JOIN accounts a ON a.id = s.account WHERE s.id = '` + id + `'`
			want := []string{"1 |  |  |  |  | [] |  |  |  |  | "}
			if fresh.PutService(t.Context(), id, support.Rows(t, s.Reader, `SELECT config FROM services WHERE id = '`+id+`'`)[0]) == nil {
				want = support.Rows(t, fresh.Reader, read)
			}
			if got := support.Rows(t, s.Reader, read); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", id, got, want)
			}
		}
		for query, want := range map[string]string{
			`SELECT name, config, created_at, updated_at FROM services WHERE id = 'text'`: "Text | no JSON at all | c1 | u1",
			`SELECT zone, serial FROM zone_serials`:                                       "inner.example | 77",
			`SELECT count FROM totals WHERE what = 'services'`:                            "16",
		} {
			if got := support.Rows(t, s.Reader, query); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	})
}

// testMigratedUsages has usages keep their order, their networks and their bindings.
func (suite Suite) testMigratedUsages(t *testing.T) {
	networks := []string{"0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"}
	stored := []string{"0", "1", "9223372036854775807", "-9223372036854775808", "-1"}
	var usages, bindings, want []string
	for i := range 40 {
		usages = append(usages, fmt.Sprintf(`('u%02d', 'good', 'mesh_sync', 'custom', 'Pre-%d', 'TXT', 'about %d', %d, '["tcp://a:%d"]', 'at %d')`, i, i, i, i%2, i+1, i))
		line := fmt.Sprintf(`u%02d | good | custom | Pre-%d | TXT | about %d | %d | ["tcp://a:%d"] | at %d | _mesh.pre-%d.good.example`, i, i, i, i%2, i+1, i, i)
		if i%8 == 7 {
			want = append(want, line+" |  |  | ")
			continue
		}
		status := []string{"active", "releasing"}[i%2]
		bindings = append(bindings, fmt.Sprintf(`('b%02d', %s, 'u%02d', 'good', '%s')`, i, stored[i%5], i, status))
		want = append(want, fmt.Sprintf("%s | b%02d | %s | %s", line, i, networks[i%5], status))
	}
	slices.Reverse(usages) // which are inserted from the last to the first
	slices.Reverse(bindings)
	oldfile.Both(t, func(t *testing.T, version int) {
		s := suite.mustOpen(t, oldfile.New(t, version, oldServices,
			`INSERT INTO usages VALUES `+strings.Join(usages, ", "), `INSERT INTO bindings VALUES `+strings.Join(bindings, ", ")))
		got := support.Rows(t, s.Reader, `
			SELECT u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive, u.txt_endpoints, u.created_at, u.name,
			       b.id, iif(b.id IS NULL, '', printf('%u', b.network_id)), b.status
			FROM usages u LEFT JOIN bindings b ON b.seq = u.seq AND b.usage_id = u.id ORDER BY u.seq`)
		if !slices.Equal(got, want) {
			t.Errorf("usages\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for query, want := range map[string]string{
			`SELECT usage_count FROM services WHERE id = 'good'`:                                           "40",
			`SELECT count(*) FROM usages u WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.name = u.name)`: "0", // or no pass would come by
		} {
			if got := support.Rows(t, s.Reader, query); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		if _, err := s.Reserve(t.Context(), Usage{ServiceID: "good", Prefix: "PRE-1"}); !errors.Is(err, suite.PrefixTaken) {
			t.Errorf("a prefix that is taken: %v", err)
		}
		made, err := s.Reserve(t.Context(), Usage{ServiceID: "good", Prefix: "new", Network: 1})
		if last := support.Rows(t, s.Reader, `SELECT max(seq) FROM usages`); err != nil || last[0] != fmt.Sprint(made.Seq) {
			t.Errorf("a new usage has seq %d, the last is %s, %v", made.Seq, last, err)
		}
	})
}

// testMigratedConfiguration has the configuration stay, and what only the database knows.
func (suite Suite) testMigratedConfiguration(t *testing.T) {
	const configuration = `INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at)
		VALUES (1, 'rfc2136', 'key.', 'aGlkZGVu', '127.0.0.1:1', 'Mesh.Bücher.Example.', '@', 'auto', 7, NULL, 1, '["tcp://{ipv4}:1"]', 'then')`
	oldfile.Both(t, func(t *testing.T, version int) {
		content := []string{configuration, `INSERT INTO zone_records VALUES ('com.example', X'0178', 60)`}
		if version == 2 {
			content = append(content, `UPDATE configuration SET zone = 'mesh.xn--bcher-kva.example'`)
		}
		s := suite.mustOpen(t, oldfile.New(t, version, content...))
		for query, want := range map[string]string{
			`SELECT provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode FROM configuration`: "rfc2136 | key. | aGlkZGVu | 127.0.0.1:1 | Mesh.Bücher.Example. | @ | auto",
			`SELECT retry_interval, max_retries IS NULL, enabled, txt_endpoints, updated_at FROM configuration`:                  `7 | 1 | 1 | ["tcp://{ipv4}:1"] | then`,
			`SELECT zone, name FROM configuration`: "mesh.xn--bcher-kva.example | mesh.xn--bcher-kva.example",
			`SELECT a.provider, a.endpoint, a.access_key_id, a.access_key_secret FROM configuration c JOIN accounts a ON a.id = c.account`: "rfc2136 | 127.0.0.1:1 | key. | aGlkZGVu",
			`SELECT owner, ipv4, ipv6 FROM appliance`:                     oldfile.Owner + " |  | ",
			`SELECT name FROM names`:                                      "mesh.xn--bcher-kva.example",
			`SELECT name, hex(data), ttl FROM zone_records`:               "com.example | 0178 | 60",
			`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old\_%'`: "0",
			`PRAGMA foreign_key_check`:                                    "",
			`PRAGMA integrity_check`:                                      "ok",
		} {
			if got := strings.Join(support.Rows(t, s.Reader, query), "\n"); got != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	})
}
