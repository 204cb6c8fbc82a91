package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
)

// TestRenew: a change is stored, told and published; the same endpoints only start the time again.
func TestRenew(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":600}`)
	r := w.renew(token, "tcp://192.0.2.7:1", "udp://[2001:db8::7]:1")
	if !r.Changed || !r.ExpiresAt.Equal(w.at.Add(10*time.Minute)) || len(r.Endpoints) != 2 {
		t.Fatalf("%+v", r)
	}
	w.want(`SELECT renewed_by FROM leases`, "192.0.2.9")
	told, published := w.told(), w.published()
	if told != "lease.created lease.renewed" || published == "0" {
		t.Fatalf("%s, %s publications", told, published)
	}
	first := w.db.Texts(`SELECT CAST(renewed_at AS TEXT) FROM leases`)
	for range 30 {
		w.pass(time.Minute)
		r := w.renew(token, "tcp://192.0.2.7:1", "udp://[2001:db8::7]:1")
		if r.Changed || !r.ExpiresAt.Equal(w.at.Add(10*time.Minute)) {
			t.Fatalf("%+v", r)
		}
	}
	if w.told() != told || w.published() != published {
		t.Errorf("the same endpoints: %s, %s publications", w.told(), w.published())
	}
	if slices.Equal(w.db.Texts(`SELECT CAST(renewed_at AS TEXT) FROM leases`), first) {
		t.Error("no renewal in half an hour is stored")
	}
	if r := w.renew(token, "tcp://192.0.2.8:1"); !r.Changed || w.told() != told+" lease.renewed" || w.published() == published {
		t.Errorf("a change: %+v, %s, %s publications", r, w.told(), w.published())
	}
	for _, line := range []string{`meshddns_lease_renewals_total{result="changed"} 2`, `meshddns_lease_renewals_total{result="unchanged"} 30`} {
		if !strings.Contains(w.figures(), line+"\n") {
			t.Errorf("no %s in\n%s", line, w.figures())
		}
	}
}

// TestRenewWritesSeldom: the time of a renewal is stored once in a quarter of the lease's time.
func TestRenewWritesSeldom(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":600}`)
	w.renew(token, "tcp://192.0.2.7:1")
	stored := map[string]bool{}
	for range 60 {
		w.pass(10 * time.Second)
		w.renew(token, "tcp://192.0.2.7:1")
		stored[w.db.Texts(`SELECT CAST(renewed_at AS TEXT) FROM leases`)[0]] = true
	}
	if len(stored) != 5 { // at the beginning, and after each quarter
		t.Errorf("%d times are stored in 10 minutes", len(stored))
	}
}

// TestRenewNothing: no endpoints withdraw those that stand, and no time runs.
func TestRenewNothing(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	if r := w.renew(token); r.Changed || !r.ExpiresAt.IsZero() || r.Endpoints == nil || w.told() != "lease.created" {
		t.Errorf("nothing of nothing: %+v", r)
	}
	w.renew(token, "tcp://192.0.2.7:1")
	before := w.published()
	w.at = w.at.Add(5 * time.Second)
	if r := w.renew(token); !r.Changed || !r.ExpiresAt.IsZero() || w.leased() != "" || w.published() == before {
		t.Errorf("%+v %s", r, w.leased())
	}
	w.pass(time.Hour)
	if got := w.told(); got != "lease.created lease.renewed lease.renewed" {
		t.Error(got)
	}
}

// TestRenewTooSoon: a family of a lease changes once in 5 seconds; a change that fails does not count.
func TestRenewTooSoon(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	_, other := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(token, "tcp://192.0.2.7:1")
	w.at = w.at.Add(2 * time.Second)
	_, err := w.try(token, "tcp://192.0.2.7:2")
	if soon, ok := errors.AsType[*TooSoonError](err); !ok || soon.Wait != 3*time.Second {
		t.Errorf("%v", err)
	}
	if r := w.renew(token, "tcp://192.0.2.7:1"); r.Changed || !r.ExpiresAt.Equal(w.at.Add(time.Minute)) {
		t.Errorf("the published endpoints: %+v", r)
	}
	w.renew(other, "tcp://192.0.2.7:2")
	w.at = w.at.Add(3 * time.Second)
	w.renew(token, "tcp://192.0.2.7:3")

	w.at = w.at.Add(5 * time.Second)
	w.db.Exec(`CREATE TRIGGER broken BEFORE UPDATE OF endpoints ON leases BEGIN SELECT RAISE(ABORT, 'broken'); END`)
	if _, err := w.try(token, "tcp://192.0.2.7:4"); err == nil {
		t.Fatal("no error")
	}
	w.db.Exec(`DROP TRIGGER broken`)
	if r := w.renew(token, "tcp://192.0.2.7:4"); !r.Changed {
		t.Errorf("%+v", r)
	}
}

// TestRenewKeeping: of two renewals at once, each with the endpoints of one family, both stand; and their sum is
// checked, in which an endpoint that is told twice counts once.
func TestRenewKeeping(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	stale, err := w.Find(t.Context(), token)
	w.must(err)
	for _, told := range []string{"a://[2a00::7]:1", "a://1.1.1.1:1"} {
		keep := Keep{Family: [families]Keeping{Stay, Stay}}
		keep.Family[partOf(told).family] = Withdraw
		if _, err := w.Renew(t.Context(), stale, []string{told}, keep, node); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.leased(); got != `["a://1.1.1.1:1","a://[2a00::7]:1"]` {
		t.Fatal(got)
	}
	var full []string
	for n := range MaxEndpoints {
		full = append(full, fmt.Sprintf("%c://1.1.1.1:1", 'a'+n))
	}
	w.at = w.at.Add(5 * time.Second)
	_, err = w.Renew(t.Context(), stale, full, Keep{Family: [families]Keeping{IPv6: Stay}}, node)
	if refusal, ok := errors.AsType[*msg.Refusal](err); !ok || refusal.ID != msg.LeaseTooManyEndpoints {
		t.Errorf("%v", err)
	}
	if _, err = w.Renew(t.Context(), stale, append(full[1:], full[1]), Keep{Family: [families]Keeping{IPv6: Stay}}, node); err != nil {
		t.Error(err)
	}
}

// TestRenewFails: a change that is not stored leaves the lease the time that it has.
func TestRenewFails(t *testing.T) {
	for _, endpoints := range [][]string{{"tcp://192.0.2.7:2"}, {}} {
		w := newWorld(t)
		_, token := w.lease(`{"slot":"a","ttl":60}`)
		w.renew(token, "tcp://192.0.2.7:1")
		w.at = w.at.Add(30 * time.Second)
		w.db.Exec(`CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		if _, err := w.try(token, endpoints...); err == nil {
			t.Fatal("no error")
		}
		w.db.Exec(`DROP TRIGGER broken`)
		w.pass(29 * time.Second)
		if w.leased() == "" {
			t.Errorf("after %s the lease has ended too soon", endpoints)
		}
		w.pass(time.Second)
		if w.leased() != "" {
			t.Errorf("after %s the lease does not end", endpoints)
		}
	}
}

// TestRenewWithoutStoring: a renewal without a change stands although its time cannot be stored; the log tells it once.
func TestRenewWithoutStoring(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	w.renew(token, "tcp://192.0.2.7:1")
	for round := range 2 {
		w.db.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON leases BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		for range 3 {
			w.pass(30 * time.Second)
			if r := w.renew(token, "tcp://192.0.2.7:1"); r.Changed || !r.ExpiresAt.Equal(w.at.Add(time.Minute)) {
				t.Errorf("%+v", r)
			}
		}
		w.db.Exec(`DROP TRIGGER broken`)
		w.pass(30 * time.Second)
		w.renew(token, "tcp://192.0.2.7:1")
		if told := strings.Count(w.said.String(), `msg="times of renewals cannot be stored`); told != round+1 {
			t.Errorf("the log tells it %d times in %d failures:\n%s", told, round+1, w.said.String())
		}
	}
	if !strings.Contains(w.figures(), `meshddns_lease_renewals_total{result="unchanged"} 8`+"\n") {
		t.Error(w.figures())
	}
}

// numbered returns different endpoints, with blanks between them.
func numbered(endpoint string, count int) string {
	var all []string
	for n := range count {
		all = append(all, fmt.Sprint(endpoint, n))
	}
	return strings.Join(all, " ")
}

// TestRenewRefuses: what the lease does not permit changes nothing.
func TestRenewRefuses(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60,"schemes":["tcp","udp"],"cidrs":["192.0.2.0/24","2001:db8::/32"]}`)
	w.renew(token, "tcp://192.0.2.7:1")
	w.at = w.at.Add(30 * time.Second)
	for _, test := range []struct {
		endpoints string
		code      msg.ID
	}{
		{"wss://192.0.2.7:1", msg.LeaseScheme},
		{"udp://198.51.100.1:1", msg.LeaseAddress},
		{"udp://[2001:db9::1]:1", msg.LeaseAddress},
		{"udp://a.example:1", msg.LeaseAddress},
		{"udp://192.0.2.7:1 udp://198.51.100.1:1", msg.LeaseAddress},
		{"udp://192.0.2.7", msg.LeaseEndpoint},
		{"udp://192.0.2.7:0", msg.LeaseEndpoint},
		{"udp://192.0.2.7:1/", msg.LeaseEndpoint},
		{"UDP://192.0.2.7:1", msg.LeaseEndpoint},
		{"192.0.2.7:1", msg.LeaseEndpoint},
		{"udp://{ipv4}:1", msg.LeaseEndpoint},
		{"udp://192.0.2.7:1\x00", msg.LeaseEndpoint},
		{"udp://" + strings.Repeat("a", 60000) + ":1", msg.LeaseEndpoint},
		{numbered("udp://192.0.2.7:1", MaxEndpoints+1), msg.LeaseTooManyEndpoints},
		{numbered("udp://[2001:db8:1111:2222:3333:4444:5555:6666]:110", MaxEndpoints), msg.ValueTooLong},
	} {
		_, err := w.try(token, strings.Split(test.endpoints, " ")...)
		if refusal, ok := errors.AsType[*msg.Refusal](err); !ok || refusal.ID != test.code || len(refusal.Error()) > 1000 {
			t.Errorf("%.80q: %.300v, want %s", test.endpoints, err, test.code)
		}
	}
	if got := w.told(); got != "lease.created lease.renewed" || w.leased() != `["tcp://192.0.2.7:1"]` {
		t.Errorf("%s %s", got, w.leased())
	}
	_, open := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(open, strings.Split(numbered("tcp://a:1", 16), " ")...)
	for _, good := range []string{"udp://192.0.2.255:65535", "tcp://[2001:db8::1]:1", "tcp://[::ffff:192.0.2.1]:1"} {
		w.at = w.at.Add(5 * time.Second)
		if _, err := w.try(token, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// TestNoRanges: a lease without ranges permits public addresses, those of examples, and names.
func TestNoRanges(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	for _, host := range []string{
		"127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255",
		"[::]", "[::1]", "[::ffff:10.1.2.3]", "[fd00::1]", "[fe80::1]", "[ff02::1]", "[64:ff9b::a01:203]",
	} {
		_, err := w.try(token, "udp://"+host+":1")
		refusal, ok := errors.AsType[*msg.Refusal](err)
		if !ok || refusal.ID != msg.LeaseAddress || !strings.Contains(refusal.Error(), "permits public addresses") || !strings.Contains(refusal.In(msg.Chinese), "公网地址") {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"10.1", "1.2.3.400", "167772161", "0x7f000001", "a.0x7f", "127.0.0.1.", "09"} {
		if _, err := w.try(token, "udp://"+host+":1"); err == nil {
			t.Errorf("%s is taken as a name", host)
		}
	}
	for _, host := range []string{"192.31.195.7", "192.0.2.7", "198.51.100.7", "203.0.113.7", "[2001:db8::7]", "[3fff::7]", "[2a00::7]", "a.example"} {
		w.at = w.at.Add(5 * time.Second)
		w.renew(token, "udp://"+host+":1")
	}
	_, named := w.lease(`{"slot":"b","ttl":60,"cidrs":["127.0.0.0/8","fd00::/8"]}`)
	w.renew(named, "udp://127.0.0.1:1", "udp://[fd00::1]:1")
}

// TestKeptIsPermitted: an endpoint that an older program has stored, and that is not permitted any more, does not keep
// the other family from its renewal.
func TestKeptIsPermitted(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	w.renew(token, "udp://192.0.2.7:1")
	w.db.Exec(`UPDATE leases SET endpoints = '["udp://192.168.1.1:1"]'`)
	w.at = w.at.Add(5 * time.Second)
	l, err := w.Find(t.Context(), token)
	w.must(err)
	r, err := w.Renew(t.Context(), l, []string{"udp://[2001:db8::7]:1"}, Keep{Family: [families]Keeping{Stay}}, node)
	if err != nil || !slices.Equal(r.Endpoints, []string{"udp://[2001:db8::7]:1"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRangesOfIPv4: a range of IPv4 addresses in IPv6 form permits them, also one that an older program stored.
func TestRangesOfIPv4(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string]string{
		`{"slot":"a","ttl":60,"cidrs":["::ffff:10.0.0.0/104"]}`:               `["10.0.0.0/8"]`,
		`{"slot":"b","ttl":60,"cidrs":["::ffff:10.1.2.3"]}`:                   `["10.1.2.3/32"]`,
		`{"slot":"c","ttl":60,"cidrs":["::ffff:0.0.0.0/96","2001:db8::/32"]}`: `["0.0.0.0/0","2001:db8::/32"]`,
		`{"slot":"d","ttl":60,"cidrs":["10.1.2.3/8"]}`:                        `["10.0.0.0/8"]`,
	} {
		id, token := w.lease(body)
		w.want(`SELECT cidrs FROM leases WHERE id = '`+id+`'`, want)
		w.renew(token, "tcp://10.1.2.3:1")
		if strings.Contains(body, `"d"`) {
			w.db.Exec(`UPDATE leases SET cidrs = '["::ffff:10.0.0.0/104"]' WHERE id = ?`, id)
			w.renew(token, "tcp://10.1.2.3:1")
		}
	}
}

// TestReleased: a usage that is being released takes no renewal, and its leases go with it.
func TestReleased(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	_, unused := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(token, "tcp://192.0.2.7:1")
	stale, err := w.Find(t.Context(), unused)
	w.must(err)
	w.db.Exec(`UPDATE bindings SET status = 'releasing'`)
	for _, endpoints := range [][]string{{"tcp://192.0.2.7:1"}, {"tcp://192.0.2.7:2"}, {}} {
		if _, err := w.try(token, endpoints...); err != ErrReleased {
			t.Errorf("%s: %v", endpoints, err)
		}
	}
	if _, err := w.Renew(t.Context(), stale, []string{"tcp://192.0.2.7:3"}, Keep{}, node); err != ErrReleased {
		t.Errorf("a renewal that began before: %v", err)
	}
	w.db.Exec(`DELETE FROM usages`)
	w.want(`SELECT id FROM leases`)
	if _, err := w.try(token, "tcp://192.0.2.7:1"); err != ErrUnknown {
		t.Errorf("the token: %v", err)
	}
	if _, err := w.Renew(t.Context(), Lease{Seq: stale.Seq, Rules: stale.Rules}, []string{"tcp://192.0.2.7:1"}, Keep{}, node); err != ErrUnknown {
		t.Errorf("a renewal that began before: %v", err)
	}
	w.pass(time.Hour)
	if got := w.told(); got != "lease.created lease.created lease.renewed" {
		t.Error(got)
	}
	if len(w.clocks.all) != 0 {
		t.Errorf("%d clocks are left", len(w.clocks.all))
	}
}

// TestAddressed: addresses go into the template, by default into the usage's own endpoints.
func TestAddressed(t *testing.T) {
	w := newWorld(t)
	w.db.Usage(2, "_mesh.b.example.com")
	w.db.Exec(`UPDATE usages SET txt_endpoints = '["tcp://192.0.2.1:11010","udp://{ipv4}:11011","tcp://[2001:db8::1]:11010"]' WHERE seq = 1`)
	for _, test := range []struct{ body, addresses, want string }{
		{`{"slot":"a","ttl":60}`, "192.0.2.7", "tcp://192.0.2.7:11010 udp://192.0.2.7:11011"},
		{`{"slot":"b","ttl":60,"schemes":["udp"]}`, "192.0.2.7 2001:db8::7", "udp://192.0.2.7:11011 udp://[2001:db8::7]:11011"},
		{`{"slot":"c","ttl":60,"template":["wss://{ip}:443","ws://{ip}:80"]}`, "2001:db8::7", "wss://[2001:db8::7]:443 ws://[2001:db8::7]:80"},
		{`{"slot":"d","ttl":60,"schemes":["wss"]}`, "192.0.2.7", ""},
	} {
		_, token := w.lease(test.body)
		l, err := w.Find(t.Context(), token)
		w.must(err)
		var addresses []netip.Addr
		for text := range strings.FieldsSeq(test.addresses) {
			addresses = append(addresses, netip.MustParseAddr(text))
		}
		got, err := w.Addressed(t.Context(), l, addresses)
		if (err == ErrNoTemplate) != (test.want == "") || err != nil && err != ErrNoTemplate || strings.Join(got, " ") != test.want {
			t.Errorf("%s: %s %v, want %s", test.body, got, err, test.want)
		}
	}
}

// TestHas: a lease answers to its record name with and without the first label.
func TestHas(t *testing.T) {
	l := Lease{Name: name}
	for host, want := range map[string]bool{
		"a.example.com": true, "A.Example.COM.": true, "_mesh.a.example.com": true, "_MESH.a.example.com": true,
		"": false, ".": false, "example.com": false, "b.example.com": false, "a.example.com.x": false, "_mesh._mesh.a.example.com": false,
	} {
		if l.Has(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}
