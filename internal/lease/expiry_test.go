package lease

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/mesh"
)

// TestExpiry: a lease that is not renewed in time is withdrawn; its token publishes again.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60}`)
	_, other := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(token, "tcp://192.0.2.7:1")
	w.renew(other, "tcp://192.0.2.8:1")
	w.pass(30 * time.Second)
	w.renew(other, "tcp://192.0.2.8:1")
	w.pass(29 * time.Second)
	before := w.published()
	if w.told() != "lease.created lease.created lease.renewed lease.renewed" {
		t.Fatal(w.told())
	}
	w.pass(time.Second)
	if w.leased() != `["tcp://192.0.2.8:1"]` || w.published() == before || !strings.HasSuffix(w.told(), " lease.expired") {
		t.Errorf("%s, %s, %s publications", w.leased(), w.told(), w.published())
	}
	w.want(`SELECT caller || before || after FROM events WHERE kind = 'lease.expired'`,
		`{"id":"l1","slot":"a","endpoints":["tcp://192.0.2.7:1"]}{"id":"l1","slot":"a","endpoints":[]}`)
	_, _, list := w.ask("GET", "/usages/u1/leases", "")
	if !strings.Contains(list, `"endpoints":[],"renewed_at":"2026-03-04T12:00:00.000Z","expires_at":"","from":"192.0.2.9"`) ||
		!strings.Contains(list, `"expires_at":"2026-03-04T12:01:30.000Z"`) {
		t.Error(list)
	}
	before = w.published()
	if r := w.renew(token, "tcp://192.0.2.7:1"); !r.Changed || w.published() == before || !strings.HasSuffix(w.told(), " lease.expired lease.renewed") {
		t.Errorf("%+v %s", r, w.told())
	}
}

// TestExpiryOfMany: the leases of a usage that end together make its name due once.
func TestExpiryOfMany(t *testing.T) {
	w := newWorld(t)
	w.slots(fewEnds)
	w.db.Exec(`UPDATE names SET version = 0`)
	if w.pass(time.Minute); w.leased() != "" || w.published() != "1" {
		t.Errorf("%s publications, and %q is left", w.published(), w.leased())
	}
}

// TestExpiryFails: a lease whose end cannot be stored ends at the next look.
func TestExpiryFails(t *testing.T) {
	w := newWorld(t)
	w.slots(1)
	w.db.Exec(`CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'broken'); END`)
	w.at = w.at.Add(time.Minute)
	if err := w.Expire(t.Context()); err == nil || w.leased() == "" {
		t.Fatalf("%v %s", err, w.leased())
	}
	for range 3 {
		w.look(t.Context())
	}
	if got := w.said.String(); strings.Count(got, "leases and challenges whose time is over are not ended") != 1 {
		t.Errorf("a fault that lasts is logged as\n%s", got)
	}
	w.db.Exec(`DROP TRIGGER broken`)
	w.pass(time.Second)
	if w.leased() != "" {
		t.Error(w.leased())
	}
}

// TestRestart: the program knows its leases after a restart, and each has its full time.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	tokens := w.slots(5)
	w.at = w.at.Add(24 * time.Hour)
	w.restart()
	published := w.published()
	w.pass(59 * time.Second)
	if r := w.renew(tokens[0], "tcp://192.0.2.7:1000"); r.Changed || !r.ExpiresAt.Equal(w.at.Add(time.Minute)) {
		t.Errorf("%+v", r)
	}
	if strings.Contains(w.told(), "expired") || strings.Contains(w.told(), "held") || w.published() != published {
		t.Fatalf("%s, %s publications, before %s", w.told(), w.published(), published)
	}
	for _, token := range tokens[1:4] {
		w.renew(token, "tcp://192.0.2.7:"+strconv.Itoa(2000))
	}
	w.pass(time.Second)
	if n := strings.Count(w.told(), "lease.expired"); n != 1 {
		t.Errorf("%d leases have ended: %s", n, w.told())
	}
}

// TestHeldIsToldWhenStored: a fault of the database when leases are held back does not lose the event.
func TestHeldIsToldWhenStored(t *testing.T) {
	w := newWorld(t)
	w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
	w.slots(5)
	refuse := `CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.kind = 'lease.held' BEGIN SELECT RAISE(ABORT, 'injected'); END`
	if _, err := w.db.Writer.Exec(refuse); err != nil {
		t.Fatal(err)
	}
	w.at = w.at.Add(time.Minute)
	for range 2 {
		if err := w.Expire(t.Context()); err == nil || !strings.Contains(err.Error(), "injected") {
			t.Errorf("the database has stored the event: %v", err)
		}
	}
	if _, err := w.db.Writer.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Expire(t.Context()); err != nil {
			t.Error(err)
		}
	}
	w.want(`SELECT detail FROM events WHERE kind = 'lease.held'`, `{"count":5}`)
}

// TestCrowd: many leases whose time is over at once are held until the control answers. While they are, the next look at them
// and the next question to the control come after heldLook, and not when another lease may end.
func TestCrowd(t *testing.T) {
	w := newWorld(t)
	ok, known, asked := false, true, 0
	w.config.Reachable = func(context.Context) (bool, bool) { asked++; return ok, known }
	tokens := w.slots(5)
	w.pass(time.Minute)
	all := w.leased()
	for range 10 {
		w.pass(10 * time.Minute)
	}
	if w.leased() != all || strings.Count(w.told(), "lease.held") != 1 || strings.Contains(w.told(), "expired") {
		t.Fatalf("%s %s", w.leased(), w.told())
	}
	w.want(`SELECT detail FROM events WHERE kind = 'lease.held'`, `{"count":5}`)
	if !strings.Contains(w.figures(), "meshddns_leases_held 5\n") {
		t.Error(w.figures())
	}
	if got := w.untilNext(); got != heldLook {
		t.Errorf("the next look is in %v", got)
	}
	if w.pass(heldLook - time.Second); asked != 11 || len(w.clocks.over(w.at)) > 0 {
		t.Errorf("the control was asked %d times, and %d leases are looked up", asked, len(w.clocks.over(w.at)))
	}
	published := w.published()
	if r := w.renew(tokens[2], "tcp://192.0.2.7:1002"); r.Changed || w.published() != published || !strings.Contains(w.figures(), "meshddns_leases_held 4\n") {
		t.Errorf("a renewal of a lease that is held: %+v", r)
	}
	w.pass(time.Second)
	ok = true
	w.pass(heldLook)
	if w.leased() != `["tcp://192.0.2.7:1002"]` || strings.Count(w.told(), "lease.expired") != 4 || !strings.Contains(w.figures(), "meshddns_leases_held 0\n") {
		t.Errorf("%s %s", w.leased(), w.told())
	}
}

// TestSmallestCrowd: four leases, or one more than a third, are held.
func TestSmallestCrowd(t *testing.T) {
	for _, test := range []struct{ all, end int }{{4, 4}, {11, 4}, {12, 5}} {
		w := newWorld(t)
		w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
		tokens := w.slots(test.all)
		w.pass(30 * time.Second)
		for i, token := range tokens[test.end:] {
			w.renew(token, "tcp://192.0.2.7:"+strconv.Itoa(1000+test.end+i))
		}
		w.pass(30 * time.Second)
		w.want(`SELECT detail FROM events WHERE kind = 'lease.held'`, fmt.Sprintf(`{"count":%d}`, test.end))
	}
}

// TestNoCrowd: few leases, or a small part of them, end without a control.
func TestNoCrowd(t *testing.T) {
	for _, test := range []struct{ all, end int }{{1, 1}, {3, 3}, {12, 4}, {30, 10}} {
		w := newWorld(t)
		w.config.Reachable = func(context.Context) (bool, bool) { t.Error("the control is asked"); return false, true }
		tokens := w.slots(test.all)
		w.pass(30 * time.Second)
		for i, token := range tokens[test.end:] {
			w.renew(token, "tcp://192.0.2.7:"+strconv.Itoa(1000+test.end+i))
		}
		w.pass(30 * time.Second)
		if n := strings.Count(w.told(), "lease.expired"); n != test.end || strings.Contains(w.told(), "held") {
			t.Errorf("%d of %d: %d have ended: %s", test.end, test.all, n, w.told())
		}
	}
}

// TestCrowdOfMinutes: a crowd need not end at one moment.
func TestCrowdOfMinutes(t *testing.T) {
	w := newWorld(t)
	w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
	for i := range 6 {
		_, token := w.lease(`{"slot":"s` + strconv.Itoa(i) + `","ttl":60}`)
		w.renew(token, "tcp://192.0.2.7:"+strconv.Itoa(1000+i))
		w.at = w.at.Add(5 * time.Second)
	}
	w.pass(20 * time.Second)
	for range 60 {
		w.pass(5 * time.Second)
	}
	if n := strings.Count(w.told(), "lease.expired"); n > 3 || !strings.Contains(w.told(), "lease.held") {
		t.Errorf("%d of 6 have ended: %s", n, w.told())
	}
}

// TestCrowdWithoutControl: without a control a lease that is held ends when it is overdue by its time
// once more and another lease has been renewed.
func TestCrowdWithoutControl(t *testing.T) {
	for _, known := range []bool{false, true} {
		w := newWorld(t)
		if known { // a control that knows nothing is none
			w.config.Reachable = func(context.Context) (bool, bool) { return false, false }
		}
		w.slots(5)
		_, other := w.lease(`{"slot":"other","ttl":3600}`)
		w.renew(other, "tcp://192.0.2.8:1")
		w.pass(time.Minute)
		w.pass(10 * time.Minute)
		if strings.Contains(w.told(), "expired") {
			t.Fatal("no lease has been renewed: " + w.told())
		}
		w.renew(other, "tcp://192.0.2.8:1")
		w.pass(heldLook)
		if n := strings.Count(w.told(), "lease.expired"); n != 5 || w.leased() != `["tcp://192.0.2.8:1"]` {
			t.Errorf("%d have ended: %s", n, w.leased())
		}
	}
}

// TestAfterCrowd: leases that are held hold a later one only while no lease is renewed.
func TestAfterCrowd(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		w := newWorld(t)
		w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
		w.slots(5)
		_, late := w.lease(`{"slot":"late","ttl":120}`)
		w.renew(late, "tcp://192.0.2.8:1")
		_, other := w.lease(`{"slot":"other","ttl":3600}`)
		w.renew(other, "tcp://192.0.2.8:2")
		w.pass(time.Minute)
		w.want(`SELECT detail FROM events WHERE kind = 'lease.held'`, `{"count":5}`)
		if renewed {
			w.at = w.at.Add(time.Second)
			w.renew(other, "tcp://192.0.2.8:2")
		}
		w.pass(time.Minute)
		if ended := strings.HasSuffix(w.told(), "lease.expired"); ended != renewed || strings.Count(w.told(), "lease.expired") > 1 {
			t.Errorf("another lease was renewed: %t; %s", renewed, w.told())
		}
	}
}

// TestShareOfLiving: leases that are held for long do not count among those that live.
func TestShareOfLiving(t *testing.T) {
	w := newWorld(t)
	w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
	w.slots(12)
	var tokens []Token
	for i := range 8 {
		_, token := w.lease(`{"slot":"later` + strconv.Itoa(i) + `","ttl":` + strconv.Itoa(300+i/4*3300) + `}`)
		w.renew(token, "tcp://192.0.2.8:"+strconv.Itoa(1000+i))
		tokens = append(tokens, token)
	}
	w.pass(time.Minute)
	w.at = w.at.Add(time.Second)
	w.renew(tokens[7], "tcp://192.0.2.8:1007")
	w.pass(5 * time.Minute)
	w.want(`SELECT detail FROM events WHERE kind = 'lease.held' ORDER BY seq`, `{"count":12}`, `{"count":4}`)
}

// TestCrowdOfReleased: the leases of a usage that goes are no crowd, and hold no other lease.
func TestCrowdOfReleased(t *testing.T) {
	for _, statement := range []string{`UPDATE bindings SET status = 'releasing' WHERE seq = 2`, `DELETE FROM usages WHERE seq = 2`} {
		w := newWorld(t)
		w.config.Reachable = func(context.Context) (bool, bool) { return false, true }
		w.db.Usage(2, "_mesh.b.example.com")
		w.slots(6)
		w.db.Exec(`UPDATE leases SET usage = 2`)
		_, token := w.lease(`{"slot":"a","ttl":60}`)
		w.renew(token, "tcp://192.0.2.8:1")
		w.db.Exec(statement)
		w.pass(time.Minute)
		w.pass(time.Second)
		if strings.Contains(w.told(), "held") || !strings.HasSuffix(w.told(), "lease.expired") || w.leased() != "" {
			t.Errorf("%s: %s %s", statement, w.told(), w.leased())
		}
	}
}

// TestUntilNext: the next look is when the next lease ends, within 1 and 30 seconds.
func TestUntilNext(t *testing.T) {
	w := newWorld(t)
	if got := w.untilNext(); got != 30*time.Second {
		t.Error(got)
	}
	w.slots(1)
	for _, test := range []struct{ passed, want time.Duration }{{0, 30}, {40, 20}, {19, 1}, {30, 1}} {
		w.at = w.at.Add(test.passed * time.Second)
		if got := w.untilNext(); got != test.want*time.Second {
			t.Errorf("%v, want %d s", got, test.want)
		}
	}
}

// TestRun: Run ends leases by itself, and ends with its context.
func TestRun(t *testing.T) {
	w := newWorld(t)
	w.slots(1)
	w.at = w.at.Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for grown := w.config.Events.Grown(); w.leased() != ""; grown = w.config.Events.Grown() {
		<-grown
	}
	cancel()
	w.must(<-done)
}

// TestPages: leases are read in the order of their usages and slots, those that are held with their number, and each
// with its state.
func TestPages(t *testing.T) {
	w := newWorld(t)
	tokens := w.slots(5)
	states := func(leases []mesh.NodeLease) (told []string) {
		for _, l := range leases {
			told = append(told, l.Slot+" "+l.State+" "+strconv.FormatBool(l.Ends.IsZero()))
		}
		return told
	}
	read := func(usage int64, slot string, want ...string) {
		t.Helper()
		all, err := w.Page(t.Context(), usage, slot, 3)
		w.must(err)
		if got := states(all); !slices.Equal(got, want) {
			t.Errorf("behind %d %q: %q, want %q", usage, slot, got, want)
		}
	}
	read(0, "", "s0 live false", "s1 live false", "s2 live false")
	read(1, "s2", "s3 live false", "s4 live false")
	read(1, "s4")
	w.pass(time.Minute)
	w.pass(time.Hour)
	if first, all, err := w.Held(t.Context(), 2); err != nil || all != 5 || len(first) != 2 {
		t.Errorf("%d of %d are held, %v", len(first), all, err)
	}
	w.renew(tokens[1], "tcp://192.0.2.7:1002")
	w.must(w.Delete(t.Context(), "u1", "l1"))
	w.lease(`{"slot":"s9","ttl":60}`)
	read(0, "", "s1 live false", "s2 held false", "s3 held false")
	read(1, "s4", "s9 new true")
}
