package secondary

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/test/support"
)

// manyZones gives a world zones, each with the serial 7.
func (w *world) manyZones(count int) {
	for n := range count {
		w.serials[fmt.Sprintf("z%d.example.net", n)] = 7
	}
}

// only lets a peer take one zone.
func (w *world) only(p *peer, zone string) {
	w.t.Helper()
	p.Zones = []string{zone}
	if _, err := w.Save(w.t.Context(), p.Secondary); err != nil {
		w.t.Fatal(err)
	}
}

// TestDeafDelaysNone: a peer hears of a change at once, beside one with thousands of zones that does not
// answer.
func TestDeafDelaysNone(t *testing.T) {
	w := newWorld(t)
	well := w.peer("well", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.only(well, "example.com")
	deaf := w.peer("deaf", func(int64) (dns.Rcode, bool) { return 0, false })
	w.manyZones(3000)
	w.run()
	support.Eventually(t, support.Limit, "messages to the deaf one", func() bool { return deaf.heard.Load() >= atOnce })
	w.move("example.com", 8)
	support.Eventually(t, support.Limit, "the other one hears of a change", func() bool { return well.last.Load() == 8 })
	w.fetch(well, "example.com", 8)
}

// TestMessagesUnderWay: sixteen messages are under way to a secondary that answers, and one to a secondary
// that has not answered the last one.
func TestMessagesUnderWay(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.manyZones(3 * atOnce)
	w.begin(t.Context())
	to := *w.Find(p.ID)
	f := to.follower
	take := func() (all []*state) {
		for s, _ := f.next(time.Now()); s != nil; s, _ = f.next(time.Now()) {
			all = append(all, s)
		}
		return all
	}
	taken := take()
	if len(taken) != 16 {
		t.Fatalf("%d messages at once, want 16", len(taken))
	}
	w.notify(t.Context(), to, taken[0])
	if more := take(); len(more) != 1 {
		t.Errorf("%d messages after the end of one", len(more))
	}
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	lost := to
	lost.Address = closed.LocalAddr().String()
	w.notify(t.Context(), lost, taken[1])
	f.underway = 0
	if more := take(); len(more) != 1 {
		t.Errorf("%d messages at once to a silent secondary", len(more))
	}
	w.notify(t.Context(), to, taken[2])
	if more := take(); len(more) != 16 {
		t.Errorf("%d messages at once after an answer", len(more))
	}
}

// TestZonesThatAreNotTaken: a secondary that takes fewer zones than before is not behind with the others,
// and not told of them.
func TestZonesThatAreNotTaken(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.manyZones(20)
	w.begin(t.Context())
	w.only(p, "z7.example.net")
	w.begin(t.Context())
	f := w.Find(p.ID).follower
	if len(f.zones) != 1 || len(f.queue) != 1 || f.queue[0].zone != "z7.example.net" {
		t.Errorf("%d zones, %d messages", len(f.zones), len(f.queue))
	}
}

// TestLagIsToldOnce: the event of a lag that cannot be stored is stored later, and only once.
func TestLagIsToldOnce(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.serials["example.com"] = 7
	w.begin(t.Context())
	w.Find(p.ID).follower.zones["example.com"].moved = time.Now().Add(-behindAfter)
	w.exec(`CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'the disk is full'); END`)
	told := func() (kinds []events.Kind) {
		t.Helper()
		w.tellLags(t.Context())
		all, err := w.events.Page(t.Context(), events.Filter{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			kinds = append(kinds, e.Kind)
		}
		return kinds
	}
	if all := told(); len(all) > 0 {
		t.Fatalf("stored: %q", all)
	}
	w.exec(`DROP TRIGGER full`)
	told()
	if all := told(); fmt.Sprint(all) != "[secondary.behind]" {
		t.Errorf("stored: %q", all)
	}
	w.fetch(p, "example.com", 7)
	f := w.Find(p.ID).follower
	s, _ := f.next(time.Now())
	w.notify(t.Context(), *w.Find(p.ID), s)
	told()
	if all := told(); fmt.Sprint(all) != "[secondary.behind secondary.caught-up]" {
		t.Errorf("stored: %q", all)
	}
}

// TestMovePastIsTriedAgain: a version of a lost database stays known until the zone is past it.
func TestMovePastIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.serials["example.com"] = 7
	w.begin(t.Context())
	to := *w.Find(p.ID)
	apex, _ := dns.ParseName("example.com")
	w.Names(p.at.Addr(), p.key.Name, apex, 100)
	message := func() {
		s, _ := to.follower.next(time.Now().Add(longest))
		w.notify(t.Context(), to, s)
	}
	w.broken = errors.New("the disk is full")
	message()
	w.broken = nil
	message()
	if serials := all(w); serials["example.com"] != 101 {
		t.Errorf("serials %v", serials)
	}
}

// TestZonesAreReadAgain: secondaries are told of zones that could not be read at the start.
func TestZonesAreReadAgain(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.broken = errors.New("the disk fails")
	if w.begin(t.Context()) {
		t.Error("an error is taken for no zone")
	}
	w.run()
	w.mu.Lock()
	w.serials["example.com"], w.broken = 7, nil
	w.mu.Unlock()
	support.Eventually(t, support.Limit, "a message", func() bool { return p.last.Load() == 7 })
}
