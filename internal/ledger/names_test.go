package ledger_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
)

// reserveMany stores usages p<from> to p<to-1> of the service of a zone in a state, with a place that has a code.
func (b *book) reserveMany(zone string, from, to int, state, code, detail string) {
	b.t.Helper()
	b.exec(`INSERT OR IGNORE INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, created_at, updated_at)
		VALUES (?1, '', '{}', ?1, ?1, ?1, '', '[]', '', '')`, zone)
	b.exec(`WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		SELECT '_mesh.p' || i || '.' || ?3, 1, '', '', 'failed', '', '', 0, 0, ?4, iif(?5 = 'each', i, ?5), '', 1, '', '' FROM n`, from, to, zone, code, detail)
	b.exec(`WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
		INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at, state, place)
		SELECT ?3 || i, ?3, 'mesh_sync', 'custom', 'p' || i, 'TXT', '', 1, '[]', '_mesh.p' || i || '.' || ?3, '', ?4,
		       (SELECT id FROM places WHERE name = '_mesh.p' || i || '.' || ?3) FROM n`, from, to, zone, state)
	b.exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) SELECT seq, id, seq % 100, id, provider_id, 'active' FROM usages WHERE seq NOT IN (SELECT seq FROM bindings)`)
}

// TestAmiss groups what is not as it should be by zone and reason, and reads at most 10 000 usages for it.
func TestAmiss(t *testing.T) {
	b := newBook(t)
	b.account("token", "one")
	b.reserveMany("a.example", 0, 12, "failed", "network", "no route")
	b.reserveMany("a.example", 12, 14, "conflict", "conflict", "each")
	b.reserveMany("b.example", 0, 3, "failed", "network", "no route")
	b.reserveMany("b.example", 3, 20, "published", "", "")
	b.reserveMany("c.example", 0, 30, "pending", "quota", "")
	b.reserveMany("c.example", 30, 33, "pending", "", "") // which wait for a person
	b.configure("manual", 1)
	amiss := func(limit int) (told []string, total int, more bool) {
		t.Helper()
		groups, total, more, err := b.Amiss(t.Context(), limit)
		b.must(err)
		for _, g := range groups {
			told = append(told, fmt.Sprint(g.Zone, " ", g.Provider, " ", g.Bad, " ", g.Fault.Code, " ", g.Fault.Detail, " ", g.Count, " ", len(g.First), " ", g.First[0].Name, " ", g.First[0].Publish.State))
		}
		return told, total, more
	}
	want := []string{
		"a.example cloudflare true network no route 12 5 _mesh.p0.a.example failed", "b.example cloudflare true network no route 3 3 _mesh.p0.b.example failed",
		"a.example cloudflare true conflict  2 2 _mesh.p12.a.example conflict", "c.example cloudflare false quota  30 5 _mesh.p0.c.example pending",
	}
	if told, total, more := amiss(10); !slices.Equal(told, want) || total != 47 || more {
		t.Errorf("%d, %t\n%s", total, more, strings.Join(told, "\n"))
	}
	if told, total, _ := amiss(2); !slices.Equal(told, want[:2]) || total != 47 {
		t.Errorf("%d\n%s", total, strings.Join(told, "\n"))
	}
	b.reserveMany("d.example", 0, ledger.AmissRead-51, "failed", "network", "no route")
	if told, total, more := amiss(1); total != ledger.AmissRead-4 || more || !strings.HasPrefix(told[0], fmt.Sprintf("d.example cloudflare true network no route %d 5", ledger.AmissRead-51)) {
		t.Errorf("one below the limit: %d, %t, %s", total, more, told)
	}
	b.reserveMany("d.example", ledger.AmissRead-51, ledger.AmissRead+100, "failed", "network", "no route")
	if _, total, more := amiss(1); total > ledger.AmissRead || !more {
		t.Errorf("beyond the limit: %d, %t", total, more)
	}
}

// TestFound finds usages by full names, a prefix below any zone, and a network, page by page.
func TestFound(t *testing.T) {
	b := newBook(t)
	b.account("token", "one")
	b.reserveMany("a.example", 0, 200, "published", "", "")
	b.reserveMany("b.example", 0, 200, "failed", "quota", "")
	for _, test := range []struct {
		search mesh.Search
		after  int64
		want   string
	}{
		{mesh.Search{Names: []string{"p7.a.example", "_mesh.p7.a.example"}}, 0, "8"},
		{mesh.Search{Prefix: "p7"}, 0, "8 208"},
		{mesh.Search{Prefix: "p7"}, 8, "208"},
		{mesh.Search{Prefix: "p7", State: "failed"}, 0, "208"},
		{mesh.Search{Prefix: "p7", Service: "a.example"}, 0, "8"},
		{mesh.Search{Prefix: "p"}, 0, ""},
		{mesh.Search{Prefix: "p6", Network: sql.Null[mesh.NetworkID]{V: 7, Valid: true}}, 0, "7 107 207"},
		{mesh.Search{Prefix: "p6", Network: sql.Null[mesh.NetworkID]{V: 7, Valid: true}}, 207, "307"},
	} {
		all, err := b.Found(t.Context(), test.search, test.after, 3)
		b.must(err)
		var seqs []string
		for _, u := range all {
			seqs = append(seqs, fmt.Sprint(u.Seq))
		}
		if got := strings.Join(seqs, " "); got != test.want {
			t.Errorf("%+v after %d: %s, want %s", test.search, test.after, got, test.want)
		}
	}
}
