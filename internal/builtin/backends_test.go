package builtin_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/provider"
	"meshddns/internal/sqlite"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// twoBackends are two servers of one table: one answers from memory, the other
// from the database.
type twoBackends struct {
	*world
	cache            *builtin.Cache
	memory, database string // addresses
}

// startTwo starts them; the cache is read when run is true.
func startTwo(t testing.TB, run bool) *twoBackends {
	t.Helper()
	w := newWorld(t)
	b := &twoBackends{world: w, cache: builtin.NewCache(w.table, slog.New(slog.DiscardHandler))}
	w.changed = b.cache.Committed
	w.open.Subscribe(w.changed)
	own := func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("203.0.113.7")} }
	b.memory = w.listen(builtin.Zones{Store: w.table, Own: own, Cache: b.cache})
	b.database = w.listen(builtin.Zones{Store: w.table, Own: own})
	if run {
		w.task(b.cache.Run)
		b.waitComplete(true)
	}
	return b
}

func (b *twoBackends) waitComplete(want bool) {
	b.t.Helper()
	support.Eventually(b.t, support.Limit, fmt.Sprint("the cache is complete: ", want), func() bool {
		_, _, complete := b.cache.Size()
		return complete == want
	})
}

// same asks both and gives the answer, which has to be one and the same.
func (b *twoBackends) same(name string, kind dns.Type) dns.Message {
	b.t.Helper()
	memory, database := servertest.Ask(b.t, b.memory, name, kind), servertest.Ask(b.t, b.database, name, kind)
	if !reflect.DeepEqual(memory, database) {
		b.t.Fatalf("%s type %d: from memory %+v\nfrom the database %+v", name, kind, memory, database)
	}
	return memory
}

var kinds = []dns.Type{dns.TypeTXT, dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeDS, dns.TypeANY}

// TestTwoBackendsCases asks for every kind of name: the answers are the same ones,
// and those that are right.
func TestTwoBackendsCases(t *testing.T) {
	b := startTwo(t, true)
	for _, zone := range []string{"example.net", "in.deep.example.net", "ns.example.net", "lone.example.org"} {
		b.zone(zone)
	}
	long := strings.Repeat("a.", 110) + "example.net"
	for _, name := range []string{
		"example.net", "_mesh.office.example.net", "x.in.deep.example.net", `a\.b.example.net`, `\000\255.example.net`, long, "left.example.edu",
	} {
		change := provider.Change{Type: provider.TXT, Name: name, Add: []provider.Value{{"one \x00\xff", strings.Repeat("v", 255)}}, TTL: 120}
		if err := (builtin.Client{Store: b.table}).Change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	b.foreign("*.example.net", provider.Value{"old"})
	b.foreign("example.net", provider.Value{"two"})
	for _, test := range []struct {
		name  string
		rcode dns.Rcode
		want  string // of TXT
	}{
		{"example.net", dns.RcodeSuccess, "TXT 120"},
		{"_MESH.office.example.net", dns.RcodeSuccess, "TXT 120"},
		{"office.example.net", dns.RcodeSuccess, "no data of example.net."},
		{"ffice.example.net", dns.RcodeNXDomain, "no data of example.net."},
		{"x._mesh.office.example.net", dns.RcodeNXDomain, "no data of example.net."},
		{"deep.example.net", dns.RcodeSuccess, "no data of example.net."},
		{"in.deep.example.net", dns.RcodeSuccess, "no data of in.deep.example.net."},
		{"x.in.deep.example.net", dns.RcodeSuccess, "TXT 120"},
		{"ns.example.net", dns.RcodeSuccess, "no data of ns.example.net."},
		{"*.example.net", dns.RcodeSuccess, "TXT 120"},
		{"z.example.net", dns.RcodeNXDomain, "no data of example.net."},
		{`a\.b.example.net`, dns.RcodeSuccess, "TXT 120"},
		{"b.example.net", dns.RcodeNXDomain, "no data of example.net."},
		{`\000\255.example.net`, dns.RcodeSuccess, "TXT 120"},
		{long, dns.RcodeSuccess, "TXT 120"},
		{dns.Parent(long), dns.RcodeSuccess, "no data of example.net."},
		{"b." + long, dns.RcodeNXDomain, "no data of example.net."},
		{"ns.lone.example.org", dns.RcodeSuccess, "no data of lone.example.org."},
		{"example.org", dns.RcodeRefused, "nothing"},
		{"net", dns.RcodeRefused, "nothing"},
		{"left.example.edu", dns.RcodeRefused, "nothing"},
	} {
		for _, kind := range kinds {
			answer := b.same(test.name, kind)
			if got := servertest.AnswerText(answer); kind == dns.TypeTXT && (got != test.want || answer.Rcode != test.rcode) {
				t.Errorf("%s: %v, %s, want %v, %s", test.name, answer.Rcode, got, test.rcode, test.want)
			}
		}
	}
	if _, _, complete := b.cache.Size(); !complete {
		t.Error("the database answered for both")
	}
}

// TestTwoBackendsRandom makes random changes, and asks at once for random names.
func TestTwoBackendsRandom(t *testing.T) {
	t.Parallel()
	b := startTwo(t, true)
	random := rand.New(rand.NewPCG(5, 7))
	name := func() string {
		labels := make([]string, 1+random.IntN(4))
		for i := range labels {
			labels[i] = []string{"a", "b", "ns", "_mesh"}[random.IntN(4)]
		}
		return strings.Join(append(labels, "example.com"), ".")
	}
	rcodes := map[string]int{}
	for range 600 {
		if err := b.randomChange(random, name()); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			answer := b.same(name(), kinds[random.IntN(len(kinds))])
			rcodes[answer.Rcode.String()]++
		}
		b.same("example.com", dns.TypeSOA)
	}
	if _, _, complete := b.cache.Size(); !complete || rcodes["NOERROR"] < 100 || rcodes["NXDOMAIN"] < 100 || rcodes["REFUSED"] < 10 {
		t.Errorf("complete: %t, answers: %v", complete, rcodes)
	}
}

// randomChange changes records at a name, a service or the configuration.
func (b *twoBackends) randomChange(random *rand.Rand, name string) error {
	provider := []string{"builtin", "rfc2136"}[random.IntN(2)]
	switch id := fmt.Sprint("s", random.IntN(4)); random.IntN(8) {
	case 0, 1:
		return b.putService(id, name, provider)
	case 2:
		return b.putService(id, "", "")
	case 3:
		return b.configure(name, provider)
	}
	names := []string{key(name), key("x." + name)}
	return b.table.ChangeZoneRecords(b.t.Context(), names, func(now []builtin.Record) (add, remove []builtin.Record) {
		for i := range random.IntN(3) {
			add = append(add, builtin.Record{Name: names[random.IntN(2)], Data: dns.TXTData([]string{fmt.Sprint(i)}), TTL: uint32(random.IntN(3))})
		}
		for _, r := range now {
			if random.IntN(2) == 0 {
				remove = append(remove, r)
			}
		}
		return add, remove
	})
}

// TestCacheBuiltDuringChanges changes the zones while they are read at start.
func TestCacheBuiltDuringChanges(t *testing.T) {
	b := startTwo(t, false)
	const names = 10_000
	b.zone("example.net")
	b.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
		INSERT INTO zone_records SELECT 'net.example.n' || i, 16, X'0178', 60 FROM n`)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { b.cache.Run(ctx) })
	random := rand.New(rand.NewPCG(8, 9))
	client := builtin.Client{Store: b.table, Address: b.memory}
	var asked []string
	for complete := false; !complete || len(asked) < 50; {
		name := fmt.Sprintf("n%d.example.net", random.IntN(names))
		set, err := client.Read(ctx, "", name, provider.TXT)
		if err != nil {
			t.Fatal(err)
		}
		change := provider.Change{Type: provider.TXT, Name: name, Seen: set, Remove: set.Values, TTL: 60}
		if random.IntN(2) == 0 {
			change.Add = []provider.Value{{"changed"}}
		}
		if err := client.Change(ctx, change); err != nil {
			t.Fatal(err)
		}
		b.same(name, dns.TypeTXT)
		asked = append(asked, name)
		_, _, complete = b.cache.Size()
	}
	for i := range 300 {
		asked = append(asked, fmt.Sprintf("n%d.example.net", i*33))
	}
	for _, name := range asked {
		b.same(name, dns.TypeTXT)
	}
}

// TestCacheIsGivenUp has a database that cannot be read after a change, and one that is
// too large: it answers itself.
func TestCacheIsGivenUp(t *testing.T) {
	b := startTwo(t, true)
	b.zone("example.net")
	b.foreign("a.example.net", provider.Value{"v"})
	b.exec(`ALTER TABLE zone_records RENAME TO away`)
	b.cache.Committed(sqlite.Notice{builtin.Changed{Records: []string{"net.example.a"}}})
	b.exec(`ALTER TABLE away RENAME TO zone_records`)
	if _, _, complete := b.cache.Size(); complete {
		t.Error("what could not be read is thought to be known")
	}
	b.same("a.example.net", dns.TypeTXT)

	b = startTwo(t, true)
	b.zone("example.net")
	b.cache.MaxNames = 1
	b.foreign("b.example.net", provider.Value{"v"})
	b.foreign("c.example.net", provider.Value{"v"})
	if _, _, complete := b.cache.Size(); complete {
		t.Error("too much is kept")
	}
	b.same("c.example.net", dns.TypeTXT)
}

// TestReload has another program write into the database: it is answered after the zones were read
// again, and also while they are read.
func TestReload(t *testing.T) {
	b := startTwo(t, true)
	b.zone("example.net")
	other, err := sql.Open("sqlite3", "file:"+b.path+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec(`INSERT INTO zone_records VALUES ('net.example.b', 16, X'0178', 60)`); err != nil {
		t.Fatal(err)
	}
	b.cache.Reload()
	for range 2 {
		if answer := b.same("b.example.net", dns.TypeTXT); len(answer.Answers) != 1 {
			t.Errorf("what another program has written is not answered: %+v", answer)
		}
		b.waitComplete(true)
	}
}
