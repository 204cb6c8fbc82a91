package secondary

import (
	"context"
	"database/sql"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// taken asks whether the secondaries have a zone, within a time.
func (w *world) taken(zone string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	return w.Taken(ctx, zone)
}

// acknowledges answers every message.
func acknowledges(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true }

// TestWants says which secondary a change waits for.
func TestWants(t *testing.T) {
	now := time.Now()
	known := func(fetched uint32) *state { return &state{zone: "z", taken: &fetched} }
	for what, test := range map[string]struct {
		heard  time.Duration // ago; 0: never
		silent bool
		state  *state
		serial uint32
		want   bool
	}{
		"it has the version":                   {time.Second, false, known(8), 8, false},
		"it has a later version":               {time.Second, false, known(9), 8, false},
		"it lags":                              {time.Second, false, known(7), 8, true},
		"it lags, and was heard a minute ago":  {livesFor, true, known(7), 8, false},
		"it lags, and was heard a moment less": {livesFor - 1, true, known(7), 8, true},
		"it has the version, dead":             {0, true, known(8), 8, false},
		"never told":                           {0, false, &state{zone: "z"}, 8, true},
		"no state yet":                         {0, false, nil, 8, true},
		"no state, and silent elsewhere":       {0, true, nil, 8, false},
		"told in vain":                         {0, false, &state{zone: "z", vain: 1}, 8, false},
		"told in vain, heard since":            {time.Second, false, &state{zone: "z", vain: 1}, 8, true},
		"the serial wraps":                     {time.Second, false, known(math.MaxUint32), 3, true},
		"the serial has wrapped":               {time.Second, false, known(3), math.MaxUint32, false},
		"the first serial":                     {time.Second, false, known(0), 0, false},
		"unknown, and its serial is 0":         {time.Second, false, &state{zone: "z"}, 0, true},
	} {
		f := newFollower()
		f.silent = test.silent
		f.zones["other"] = &state{zone: "other", heard: now} // which says nothing about this zone
		if test.state != nil {
			f.zones["z"] = test.state
		}
		if test.heard > 0 {
			test.state.heard = now.Add(-test.heard)
		}
		if got := f.wants("z", test.serial, now) != nil; got != test.want {
			t.Errorf("%s: waited for: %t, want %t", what, got, test.want)
		}
	}
}

// TestTaken waits for a secondary that lives until it has fetched the zone, also over the end of the serials, and not for
// zones that no secondary takes.
func TestTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", acknowledges)
	w.serials["example.com"], w.serials["example.net"] = math.MaxUint32, 7
	w.only(p, "example.com")
	w.run()
	support.Eventually(t, support.Limit, "a message", func() bool { return p.last.Load() == math.MaxUint32 })
	for _, serial := range []uint32{math.MaxUint32, 1, 2} {
		w.move("example.com", serial)
		if w.taken("example.com", 20*time.Millisecond) {
			t.Errorf("version %d is taken before it is fetched", serial)
		}
		done := make(chan bool)
		go func() { done <- w.taken("example.com", support.Limit) }()
		w.fetch(p, "example.com", serial)
		if !<-done || !w.taken("example.com", support.Limit) {
			t.Errorf("version %d is fetched, and not taken", serial)
		}
	}
	for _, zone := range []string{"example.net", "no-such-zone.example"} {
		if !w.taken(zone, support.Limit) {
			t.Errorf("%s is waited for", zone)
		}
	}
	if !newWorld(t).taken("example.com", support.Limit) {
		t.Error("without secondaries")
	}
}

// TestTakenAfterARequest: a secondary that asks by itself lives, although it acknowledges no message.
func TestTakenAfterARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeRefused, true })
	w.serials["example.com"] = 7
	w.run()
	if !w.taken("example.com", support.Limit) || p.heard.Load() == 0 {
		t.Error("one that refuses the first message is waited for")
	}
	apex, _ := dns.ParseName("example.com")
	w.Names(p.at.Addr(), p.key.Name, apex, 6)
	w.move("example.com", 8)
	if w.taken("example.com", 20*time.Millisecond) {
		t.Error("one that asks is not waited for")
	}
	w.fetch(p, "example.com", 8)
	if !w.taken("example.com", support.Limit) {
		t.Error("it has fetched the zone")
	}
}

// TestDeadSecondaryDelaysNone: a secondary that has not answered its first message delays nothing from then on, and not the
// wait for one that lives.
func TestDeadSecondaryDelaysNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deaf := w.peer("deaf", func(int64) (dns.Rcode, bool) { return 0, false })
	well := w.peer("well", acknowledges)
	w.serials["example.com"] = 7
	w.run()
	w.fetch(well, "example.com", 7)
	if !w.taken("example.com", support.Limit) || deaf.heard.Load() == 0 {
		t.Errorf("%d messages to the dead one", deaf.heard.Load())
	}
	for _, serial := range []uint32{8, 9} {
		w.move("example.com", serial)
		w.fetch(well, "example.com", serial)
		if w.Find(deaf.ID).follower.wants("example.com", serial, time.Now()) != nil || !w.taken("example.com", support.Limit) {
			t.Errorf("version %d waits for the dead one", serial)
		}
	}
}

// TestTakenUntold: a secondary that was not told yet is waited for, until the time is over.
func TestTakenUntold(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", acknowledges)
	w.serials["example.com"] = 7
	if w.taken("example.com", 20*time.Millisecond) {
		t.Error("nothing was told, and the zone is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- w.Taken(ctx, "example.com") }()
	cancel()
	if <-done {
		t.Error("the wait was given up, and the zone is taken")
	}
	w.run()
	w.fetch(p, "example.com", 7)
	if !w.taken("example.com", support.Limit) {
		t.Error("it was fetched")
	}
}

// TestTakenWithoutOne: a secondary that is deleted, takes the zone no more, or has another address is not waited for any longer.
func TestTakenWithoutOne(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"deleted":          `DELETE FROM secondaries`,
		"of another zone":  `UPDATE secondaries SET zones = '["example.net"]'`,
		"at another place": `UPDATE secondaries SET address = '127.0.0.1:9'`,
	} {
		w := newWorld(t)
		p := w.peer("p", acknowledges)
		w.serials["example.com"] = 7
		w.run()
		support.Eventually(t, support.Limit, "a message is answered", func() bool { return w.state(p, "example.com").Serial == 7 && p.heard.Load() > 0 })
		done := make(chan bool, 1)
		go func() { done <- w.taken("example.com", support.Limit) }()
		w.exec(change)
		if err := w.DB.Tx(t.Context(), func(ctx context.Context, _ *sql.Tx) error { w.Touch(ctx); return nil }); err != nil {
			t.Fatal(err)
		}
		if !support.Receive(t, done) {
			t.Errorf("it is %s, and the zone is not taken", what)
		}
	}
}

// TestTellNeverBlocks: news come although nothing waits, and waits that are given up leave nothing behind.
func TestTellNeverBlocks(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", acknowledges)
	w.serials["example.com"] = 7
	f := w.Find(p.ID).follower
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 300 {
		waiting.Go(func() { w.Taken(ctx, "example.com") })
	}
	for range 10_000 {
		f.mu.Lock()
		f.tell(f.at("example.com", 7), true)
		f.mu.Unlock()
	}
	cancel()
	waiting.Wait()
	support.Eventually(t, support.Limit, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}
