package connlimit

import (
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// served are the names of requests in the order of their turns.
type served struct {
	mu    sync.Mutex
	names []string
}

// ask has a request wait for its turn.
func (s *served) ask(p peer, changes bool, name string) {
	go func() {
		if !p.Work(changes) {
			name = "not " + name
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.names = append(s.names, name)
	}()
	synctest.Wait()
}

// expect compares the names since the last call.
func (s *served) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.names, want) {
		t.Errorf("served are %v, want %v", s.names, want)
	}
	s.names = nil
}

// One client has half of the turns, and changes have three quarters of them: however many
// changes wait for the database, requests that read have their turn. Those that wait have
// theirs in order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small) // 8 turns, 4 for one client, 3 of them for changes
		var served served
		var changing []peer
		for _, name := range []string{"c1", "c2", "c3", "c4", "c5"} {
			p := admit(t, l, 1)
			served.ask(p, true, name)
			changing = append(changing, p)
		}
		reads := []peer{admit(t, l, 1), admit(t, l, 1)}
		served.ask(reads[0], false, "r1")
		served.ask(reads[1], false, "r2")
		other := admit(t, l, 2)
		served.ask(other, true, "other")
		served.expect(t, "c1", "c2", "c3", "r1", "other")
		if _, working, _ := l.Counts(); working != 5 {
			t.Errorf("%d requests are in work", working)
		}
		changing[1].Rest()
		served.expect(t, "c4")
		reads[0].Close()
		served.expect(t, "r2")
		changing[0].Await(time.Now()) // a part of its request is still to come
		served.expect(t, "c5")
	})
}

// All clients together have a limit, too.
func TestTurnsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		var served served
		var all []peer
		for client := range byte(3) {
			for _, kind := range []string{"r", "r", "c", "c"} {
				p := admit(t, l, client)
				served.ask(p, kind == "c", kind)
				all = append(all, p)
			}
		}
		served.expect(t, "r", "r", "c", "c", "r", "r", "c", "c")
		all[0].Rest()
		all[3].Rest()
		served.expect(t, "r", "r")
	})
}

// Changes of all clients leave turns to requests that read.
func TestTurnsOfAllChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		var served served
		for client := range byte(2) {
			for range 3 {
				served.ask(admit(t, l, client), true, "change")
			}
		}
		served.ask(admit(t, l, 2), true, "late")
		served.ask(admit(t, l, 3), false, "read")
		served.expect(t, "change", "change", "change", "change", "change", "change", "read")
	})
}

// A client that does not read its answer gives its turn to a request that waits, and one
// that reads keeps it.
func TestUnreadAnswerGivesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		var all []peer
		for range 4 {
			all = append(all, admitWorking(t, l, 1, false))
		}
		go io.Copy(io.Discard, all[0].client)
		go func() {
			for err := error(nil); err == nil; _, err = all[0].Write(make([]byte, 10)) {
				<-time.After(time.Millisecond)
			}
		}()
		after(time.Second)
		go all[2].Write(make([]byte, 10))
		synctest.Wait()
		begun := time.Now()
		late := admitWorking(t, l, 1, false)
		if waited := time.Since(begun); waited < writeGrace || waited > 2*writeGrace {
			t.Errorf("waited for %v", waited)
		}
		if expect(t, "not read", all, 2); late.is(closed) {
			t.Error("the request that waited is closed")
		}
		all[0].Close()
		after(time.Second)
	})
}

// A change that waits takes the turn of a change, of its own client if that has its turns.
func TestUnreadAnswerOfItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		all := []peer{admitWorking(t, l, 3, false), admitWorking(t, l, 2, true)}
		go all[0].Write(make([]byte, 10))
		go all[1].Write(make([]byte, 10))
		admitIdle(t, l, 2, 6)
		for range 3 {
			all = append(all, admitWorking(t, l, 1, true))
		}
		go all[3].Write(make([]byte, 10))
		admitWorking(t, l, 1, true)
		expect(t, "not read", all, 3)
	})
}

// Requests that wait for other work have no turn, also when they go on. One client has three quarters
// of their places, and one more request keeps its turn.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small) // 8 turns, 4 for one client, and 4 places, 3 for one client
		var all []peer
		yield := func(client byte, want bool) {
			t.Helper()
			p := admitWorking(t, l, client, true)
			all = append(all, p)
			for range 2 { // a second call changes nothing
				if got := p.Yield(); got != want {
					t.Errorf("client %d, request %d: yields %t", client, len(all), got)
				}
			}
		}
		for range 3 {
			yield(1, true)
		}
		yield(1, false)
		if all[0].Work(true); !all[0].is(yielded) {
			t.Error("a request that goes on needs a turn")
		}
		yield(2, true)
		yield(2, false)
		var served served
		for range 3 {
			served.ask(admit(t, l, 1), true, "change")
		}
		served.expect(t, "change", "change")
		if _, working, _ := l.Counts(); working != 8 {
			t.Errorf("%d requests are in work", working)
		}
		all[0].Rest()
		all[4].Close()
		yield(2, true)
		yield(2, true)
		yield(2, false)
		after(time.Hour)
		admitIdle(t, l, 3, 12)
		expect(t, "after an hour", all, 4)
	})
}

// A request that has waited for long makes room, after all that are idle.
func TestWaitingMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(small)
		var served served
		var all []peer
		for range 4 {
			all = append(all, admitWorking(t, l, 1, false))
		}
		for range 7 {
			p := admit(t, l, 1)
			served.ask(p, false, "waiting")
			all = append(all, p)
			after(time.Millisecond)
		}
		after(time.Minute)
		idle := admitIdle(t, l, 1, 1)
		late := admit(t, l, 1)
		expect(t, "one is idle", append(all, idle...), 11)
		begun := time.Now()
		all = append(all, late)
		served.ask(late, false, "late")
		admit(t, l, 1)
		if served.expect(t, "not waiting"); time.Since(begun) > 0 {
			t.Errorf("after %v", time.Since(begun))
		}
		expect(t, "all wait", all, 4)
	})
}

// A connection that is closed while its request waits has no turn.
func TestClosedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Connections: 4, PerClient: 4, Requests: 2})
		var served served
		first, second := admitWorking(t, l, 1, false), admit(t, l, 1)
		served.ask(second, false, "second")
		second.Close()
		served.expect(t, "not second")
		if second.Work(false) {
			t.Error("a closed connection has a turn")
		}
		first.Close()
		if open, working, _ := l.Counts(); open != 0 || working != 0 || len(l.queue) != 0 || len(l.shares) != 0 {
			t.Errorf("left are %d connections, %d in work, %d in the queue, %d clients", open, working, len(l.queue), len(l.shares))
		}
	})
}
