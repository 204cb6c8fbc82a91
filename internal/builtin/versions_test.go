package builtin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/provider"
	"meshddns/test/support"
)

const (
	peerName   = "peer.example"
	peerSecret = "c2VjcmV0IG9mIHRoZSBwZWVy"
)

// peers is one peer with a key, which may transfer all zones.
type peers struct {
	key     dns.Key
	mu      sync.Mutex
	fetched map[string]uint32 // by zone
	got     map[string]bool   // zones with serials: of two transfers at once the older one may be told last
	has     map[uint32]bool   // versions that it has got; nil: the last one
}

func newPeers(t testing.TB) *peers {
	t.Helper()
	key, err := dns.ParseKey(peerName, peerSecret)
	if err != nil {
		t.Fatal(err)
	}
	return &peers{key: key, fetched: map[string]uint32{}, got: map[string]bool{}}
}

func (p *peers) Key(name dns.Name) (dns.Key, bool) { return p.key, name == p.key.Name }

func (p *peers) May(_ netip.Addr, key, _ dns.Name) bool { return key == p.key.Name }

func (p *peers) Fetched(_ netip.Addr, _, apex dns.Name, serial uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetched[apex.String()] = serial
	p.got[fmt.Sprint(apex, serial)] = true
}

func (p *peers) Names(_ netip.Addr, _, apex dns.Name, serial uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has[serial] || p.has == nil && p.fetched[apex.String()] == serial
}

// gets waits until the server knows that the peer has a version.
func (p *peers) gets(t testing.TB, apex string, serial uint32) {
	t.Helper()
	support.Eventually(t, support.Limit, fmt.Sprintf("%s at %d", apex, serial), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.got[fmt.Sprint(apex, serial)]
	})
}

// transfer asks for a zone, or for the changes since a serial, and gives the records of the answer.
func (p *peers) transfer(t testing.TB, server, zone string, since ...uint32) (all []dns.RR) {
	t.Helper()
	apex, err := dns.ParseName(zone)
	if err != nil {
		t.Fatal(err)
	}
	q := dns.Message{ID: 4711, Questions: []dns.Question{{Name: apex, Type: dns.TypeAXFR, Class: dns.ClassIN}}}
	if len(since) > 0 {
		q.Questions[0].Type = dns.TypeIXFR
		soa := dns.SOA{MName: dns.Root, RName: dns.Root, Serial: since[0]}
		q.Authority = []dns.RR{{Name: apex, Type: dns.TypeSOA, Class: dns.ClassIN, Data: soa.Data()}}
	}
	request, mac := p.key.Sign(q.Pack(), time.Now())
	stream := p.key.Stream(mac)
	ctx, cancel := context.WithTimeout(t.Context(), support.Limit)
	defer cancel()
	err = dns.Transfer(ctx, server, request, func(answer []byte) (last bool, err error) {
		if proven, err := stream.Verify(answer, time.Now()); err != nil || !proven {
			return false, fmt.Errorf("proven %v: %w", proven, err)
		}
		m, err := dns.ParseMessage(answer)
		if err != nil || m.Rcode != dns.RcodeSuccess {
			return false, fmt.Errorf("%v: %w", m.Rcode, err)
		}
		all = append(all, m.Answers...)
		end := len(all) - 1
		return end > 0 && all[end].Type == dns.TypeSOA && slices.Equal(all[0].Data, all[end].Data) && !open(all) || len(since) > 0 && end == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// open reports whether changes begin with the last record: the new SOA stands at the begin, as the
// version after the last change, and at the end.
func open(all []dns.RR) bool {
	count := 0
	for _, rr := range all {
		if rr.Type == dns.TypeSOA && slices.Equal(rr.Data, all[0].Data) {
			count++
		}
	}
	return len(all) > 1 && all[1].Type == dns.TypeSOA && count < 3
}

// zoneText is a zone as lines, without its SOA.
func zoneText(all []dns.RR) (lines []string) {
	for _, rr := range all {
		if rr.Type != dns.TypeSOA {
			lines = append(lines, fmt.Sprintf("%s %d %d %q", rr.Name, rr.TTL, rr.Type, rr.Data))
		}
	}
	slices.Sort(lines)
	return lines
}

// apply makes the changes of an answer, and gives the zone after them.
func apply(t testing.TB, zone []string, answer []dns.RR) []string {
	t.Helper()
	if len(answer) == 1 {
		return zone
	}
	if answer[1].Type != dns.TypeSOA {
		return zoneText(answer)
	}
	zone = slices.Clone(zone)
	adding := true // turned by each SOA
	for _, rr := range answer[1 : len(answer)-1] {
		line := zoneText([]dns.RR{rr})
		switch {
		case rr.Type == dns.TypeSOA:
			adding = !adding
		case adding:
			zone = append(zone, line...)
		case !slices.Contains(zone, line[0]):
			t.Errorf("%s is removed and was not there", line)
		default:
			zone = slices.DeleteFunc(zone, func(l string) bool { return l == line[0] })
		}
	}
	slices.Sort(zone)
	return zone
}

// TestTransfers: after random changes the zone of a peer that fetched changes is the zone that a new
// peer gets, whatever it missed.
func TestTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.zone("example.com")
	w.zone("inner.example.com")
	client := builtin.Client{Store: w.table, Address: "x"}
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.1")} }}, p)
	random := rand.New(rand.NewPCG(1, 2))
	standing := map[string]provider.Value{}
	change := func() {
		name := fmt.Sprintf("_mesh.n%d.example.com", random.IntN(20))
		if random.IntN(10) == 0 {
			name = "_mesh.a.inner.example.com"
		}
		c := provider.Change{Type: provider.TXT, Zone: "example.com", Name: name, TTL: 60}
		if old, ok := standing[name]; ok {
			c.Seen, c.Remove = provider.RRset{Values: []provider.Value{old}}, []provider.Value{old}
			delete(standing, name)
		}
		if len(c.Remove) == 0 || random.IntN(2) == 0 {
			value := provider.Value{fmt.Sprintf("value %d", random.IntN(1000))}
			c.Add, standing[name] = []provider.Value{value}, value
		}
		if err := client.Change(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	first := p.transfer(t, server, "example.com")
	zone, serial := zoneText(first), serialOf(t, first[0])
	for round := range 60 {
		for range random.IntN(5) {
			change()
		}
		if round == 30 {
			w.zone("n3.example.com") // takes a name with it
		}
		answer := p.transfer(t, server, "example.com", serial)
		whole := p.transfer(t, server, "example.com")
		zone = apply(t, zone, answer)
		if want := zoneText(whole); !slices.Equal(zone, want) {
			t.Fatalf("round %d, since %d: %d records\n%s\nwant\n%s", round, serial, len(answer), strings.Join(zone, "\n"), strings.Join(want, "\n"))
		}
		if serial = serialOf(t, answer[0]); serial != serialOf(t, whole[0]) {
			t.Errorf("serial %d, whole %d", serial, serialOf(t, whole[0]))
		}
		p.gets(t, "example.com.", serial)
	}
	if answer := p.transfer(t, server, "example.com", serial+1); len(answer) != 1 {
		t.Errorf("a later serial gets %d records", len(answer))
	}
	if answer := p.transfer(t, server, "example.com", serial-1<<30); len(answer) < 3 || answer[1].Type == dns.TypeSOA {
		t.Errorf("an unknown serial does not get the zone: %d records", len(answer))
	}
}

// TestRenew: a secondary that has seen nothing since the backup gets an empty change after the restore, and
// one that has a version of the lost database the whole zone, also under a serial that the restored one
// used again.
func TestRenew(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	whole := func(what string, since uint32, want bool) uint32 {
		t.Helper()
		answer := p.transfer(t, server, "example.com", since)
		if is := len(answer) > 1 && answer[1].Type != dns.TypeSOA; is != want {
			t.Errorf("%s: whole is %v, want %v: %d records", what, is, want, len(answer))
		}
		return serialOf(t, answer[0])
	}
	w.exec(`UPDATE zone_serials SET serial = serial - 1000`)
	backup := serialOf(t, p.transfer(t, server, "example.com")[0])
	hosts := func(names ...dns.Name) {
		t.Helper()
		if err := w.table.Renew(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	hosts()
	renewed := whole("the version of the backup", backup, false)
	if renewed-backup < 900 {
		t.Errorf("serial %d is before the present time", renewed)
	}
	whole("a version that is gone", backup+5, true)
	w.put("_mesh.a.example.com", "one")
	again := w.serial("example.com") // the lost database may have given it, too
	w.put("_mesh.b.example.com", "two")
	p.has = map[uint32]bool{}
	whole("a serial that was used again", again, true)
	whole("the present one, used again", renewed, true)
	p.has[again] = true
	whole("a version that was sent", again, false)

	hosts()
	renewed = whole("renewed again", again, false)
	hosts("\x02ns\x07example\x00")
	whole("after another name of the server", renewed, true)
	renewed = serialOf(t, p.transfer(t, server, "example.com")[0])
	err := w.table.ChangeZones(t.Context(), func(ctx context.Context, tx *sql.Tx, _ *builtin.ZoneChange) error { return w.table.MoveAll(ctx, tx) })
	if err != nil {
		t.Error(err)
	}
	whole("after a change of the server's records", renewed, true)
	past := w.serial("example.com") + 5000
	for _, past := range []uint32{past, past - 1} {
		err := w.table.MovePast(t.Context(), "example.com", past)
		if serial := serialOf(t, p.transfer(t, server, "example.com")[0]); err != nil || int32(serial-past) <= 0 {
			t.Errorf("past %d: %d, %v", past, serial, err)
		}
	}
}

// TestJournalIsBounded: a peer that has missed more changes than are kept gets the whole zone.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.zone("example.com")
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	first := w.serial("example.com")
	p.has = map[uint32]bool{first: true}
	const kept = 1000
	var second uint32
	for n := range kept + 1 {
		w.put(fmt.Sprintf("_mesh.n%d.example.com", n), "value")
		if n == 0 {
			second = w.serial("example.com")
			p.has[second] = true
		}
	}
	if answer := p.transfer(t, server, "example.com", second); len(answer) != 2+3*kept {
		t.Errorf("the last %d changes are %d records", kept, len(answer))
	}
	if answer := p.transfer(t, server, "example.com", first); answer[1].Type == dns.TypeSOA {
		t.Error("a change that is not kept any more was sent")
	}
	var rows int
	if err := w.db.QueryRow(`SELECT count(*) FROM zone_journal`).Scan(&rows); err != nil || rows != kept {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// TestIdleJournalIsBounded: of a zone that does not change sixteen starts are kept. A peer that has missed them gets
// an empty change, one that has missed more the whole zone. Zones that are gone, and the catalog, have no journal.
func TestIdleJournalIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("catalog.invalid")
	for _, zone := range []string{"example.com", "busy.example", "gone.example"} {
		w.zone(zone)
	}
	if err := w.putService("gone.example", "", ""); err != nil {
		t.Fatal(err)
	}
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	const kept = 16
	var serials []uint32
	for range 3 * kept {
		w.exec(`UPDATE zone_serials SET serial = serial - 1000 WHERE serial > 1000`) // a start is not in the second of the last one
		w.exec(`UPDATE zone_journal SET serial_before = serial_before - 1000, serial = serial - 1000`)
		for i := range serials {
			serials[i] -= 1000
		}
		if len(serials) > 2*kept {
			w.put(fmt.Sprintf("_mesh.n%d.busy.example", len(serials)), "value")
		}
		serials = append(serials, w.serial("example.com"))
		if err := w.table.Renew(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	rows := func(zone string) (count int) {
		t.Helper()
		if err := w.db.QueryRow(`SELECT count(*) FROM zone_journal WHERE zone = ?`, zone).Scan(&count); err != nil {
			t.Fatal(err)
		}
		return count
	}
	// The changes of the busy zone, each followed by a start, and the starts before them.
	if idle, busy := rows("example.com"), rows("busy.example"); idle != kept || busy != kept+2*(kept-1) {
		t.Errorf("%d and %d rows", idle, busy)
	}
	if gone, catalog := rows("gone.example"), rows("catalog.invalid"); gone+catalog != 0 {
		t.Errorf("%d rows of a zone that is gone, %d of the catalog", gone, catalog)
	}
	first := len(serials) - kept
	if answer := p.transfer(t, server, "example.com", serials[first]); answer[1].Type != dns.TypeSOA {
		t.Error("a peer that has missed what is kept gets the whole zone")
	}
	if answer := p.transfer(t, server, "example.com", serials[first-1]); answer[1].Type == dns.TypeSOA {
		t.Error("a peer gets the changes since a version that is not kept")
	}
}

// TestCachedSerials: what is served from memory has the serial of a zone that was moved.
func TestCachedSerials(t *testing.T) {
	b := startTwo(t, true)
	for what, move := range map[string]func() error{
		"past another serial": func() error { return b.table.MovePast(t.Context(), "example.com", b.serial("example.com")+5) },
		"with all zones": func() error {
			return b.table.ChangeZones(t.Context(), func(ctx context.Context, tx *sql.Tx, _ *builtin.ZoneChange) error { return b.table.MoveAll(ctx, tx) })
		},
	} {
		b.zone("example.com")
		before := serialOf(t, b.same("example.com", dns.TypeSOA).Answers[0])
		if err := move(); err != nil {
			t.Fatal(err)
		}
		if after := serialOf(t, b.same("example.com", dns.TypeSOA).Answers[0]); int32(after-before) <= 0 {
			t.Errorf("%s: serial %d after %d", what, after, before)
		}
	}
}

// TestOneTTL: a value with another TTL gives it to all values of the name, in a whole zone and in changes.
func TestOneTTL(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	client := builtin.Client{Store: w.table, Address: "x"}
	first := p.transfer(t, server, "example.com")
	zone, seen := zoneText(first), provider.RRset{}
	for i, ttl := range []uint32{300, 60, 600} {
		value := provider.Value{fmt.Sprint(i)}
		if err := client.Change(t.Context(), provider.Change{Type: provider.TXT, Zone: "example.com", Name: "x.example.com", Seen: seen, Add: []provider.Value{value}, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		seen.Values = append(seen.Values, value)
	}
	zone = apply(t, zone, p.transfer(t, server, "example.com", serialOf(t, first[0])))
	if whole := zoneText(p.transfer(t, server, "example.com")); !slices.Equal(zone, whole) || strings.Count(strings.Join(zone, "\n"), "x.example.com. 600 ") != 3 {
		t.Errorf("%q, whole %q", zone, whole)
	}
}

// TestCatalogIsNoZone: no zone begins with the name of the catalog, and the catalog cannot have that of a zone.
func TestCatalogIsNoZone(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	w.name("catalog.invalid")
	for zone, want := range map[string]error{"catalog.invalid": builtin.ErrCatalog, "a.catalog.invalid": nil, "": nil} {
		if err := w.table.CheckZone("builtin", zone); err != want {
			t.Errorf("%q: %v", zone, err)
		}
		if err := w.table.CheckZone("rfc2136", zone); err != nil {
			t.Errorf("%q elsewhere: %v", zone, err)
		}
	}
	if err := w.table.CheckCatalog(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.db.Exec(`UPDATE services SET zone = '', zone_key = ''`); err != nil {
		t.Fatal(err)
	}
	w.name("")
	if err := w.table.CheckCatalog(t.Context()); err != nil {
		t.Errorf("no catalog, and a service without a domain: %v", err)
	}
	w.zone("example.com")
	w.name("example.com")
	if err := w.table.CheckCatalog(t.Context()); !errors.Is(err, builtin.ErrCatalog) {
		t.Errorf("a catalog with the name of a zone: %v", err)
	}
}

// TestCatalog: the catalog lists all zones, each with the same label again, and has a new serial only after
// a change of the list.
func TestCatalog(t *testing.T) {
	w := newWorld(t)
	w.zone("example.com")
	if err := w.table.Version(t.Context(), dns.Root, func(nameserver.Version) error { return nil }); err != nameserver.ErrNoZone {
		t.Errorf("the root without a catalog: %v", err)
	}
	w.name("catalog.invalid") // its zones are older
	p := newPeers(t)
	server := w.listen(builtin.Zones{Store: w.table, Own: func() []netip.Addr { return nil }}, p)
	first := p.transfer(t, server, "catalog.invalid")
	w.put("_mesh.a.example.com", "one")
	if again := p.transfer(t, server, "catalog.invalid"); !slices.Equal(zoneText(first), zoneText(again)) || serialOf(t, again[0]) != serialOf(t, first[0]) {
		t.Errorf("after a record: %q", zoneText(again))
	}
	if err := w.table.Renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if renewed := serialOf(t, p.transfer(t, server, "catalog.invalid")[0]); int32(renewed-serialOf(t, first[0])) <= 0 || renewed < 1_000_000_000 {
		t.Errorf("after a start the catalog has the serial %d", renewed)
	}
	w.zone("example.net")
	second := p.transfer(t, server, "catalog.invalid", serialOf(t, first[0]))
	lines := zoneText(second)
	for _, line := range zoneText(first) {
		if !slices.Contains(lines, line) {
			t.Errorf("%s is gone", line)
		}
	}
	if len(lines) != 4 || int32(serialOf(t, second[0])-serialOf(t, first[0])) <= 0 {
		t.Errorf("%q", lines)
	}
}

func serialOf(t testing.TB, rr dns.RR) uint32 {
	t.Helper()
	soa, err := dns.ParseSOA(rr)
	if err != nil {
		t.Fatal(err)
	}
	return soa.Serial
}
