package check

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

const every5 = `{"kind":"tcp","interval":5,"fall":3,"rise":2}`

// TestDeath takes an endpoint out after three failures, with one event and one change of the name,
// and puts it back after two successes.
func TestDeath(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint(), "udp://127.0.0.1:1")
	w.pass(8 * time.Second)
	w.wantDead()
	a.die()
	w.pass(8 * time.Second) // two failures at most
	w.wantDead()
	w.pass(10 * time.Second)
	w.wantDead(a.endpoint())
	if got := w.count(`SELECT count(*) FROM names WHERE name = '` + name + `' AND due IS NOT NULL`); got != 1 {
		t.Fatal("the name is not due")
	}
	states := w.endpoints()
	if len(states) != 3 || states[0].Alive == nil || *states[0].Alive || states[0].Error == "" || !*states[1].Alive || states[2].Alive != nil {
		t.Fatalf("states: %+v", states)
	}
	for _, line := range []string{`state="alive"} 1`, `state="dead"} 1`, `state="unchecked"} 1`} {
		if !strings.Contains(w.figures(), line) {
			t.Fatalf("%s is not in %s", line, w.figures())
		}
	}
	a.live()
	w.pass(30 * time.Second) // within a minute the name is not changed again
	w.wantDead(a.endpoint())
	w.pass(40 * time.Second)
	w.wantDead()
	if dead, alive := w.count(`SELECT count(*) FROM events WHERE kind = 'endpoint.dead'`), w.count(`SELECT count(*) FROM events WHERE kind = 'endpoint.alive'`); dead != 1 || alive != 1 {
		t.Fatalf("events: %d deaths, %d lives", dead, alive)
	}
}

// TestLeaseRanges takes an endpoint on this host out of DNS, although it lives, unless a range of its lease has the address.
func TestLeaseRanges(t *testing.T) {
	a, b, control := newPeer(t), newPeer(t), newPeer(t)
	w := newWorld(t, every5, "udp://192.0.2.1:1")
	w.control.Addresses = []string{control.address}
	for _, l := range []struct{ slot, cidrs, endpoint string }{{"a", `[]`, a.endpoint()}, {"b", `["192.0.2.0/24","127.0.0.0/8"]`, b.endpoint()}} {
		w.db.Exec(`INSERT INTO leases (id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
			VALUES (?1, 1, ?1, CAST(?1 AS BLOB), '[]', ?2, 60, '[]', '', json_array(?3), 0, '', 0)`, l.slot, l.cidrs, l.endpoint)
	}
	w.pass(30 * time.Second)
	w.wantDead(a.endpoint())
}

// TestListedTwice keeps the last living endpoint, also if the usage lists it twice.
func TestListedTwice(t *testing.T) {
	a, b, other := newPeer(t), newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), a.endpoint(), b.endpoint())
	w.control.Addresses = []string{other.address}
	w.pass(8 * time.Second)
	b.die()
	w.pass(90 * time.Second)
	a.die()
	w.pass(3 * time.Minute)
	w.wantDead(b.endpoint())
}

// TestChangedEndpoints: the states are those of the endpoints that are stored now, although the checks read
// them every few seconds only.
func TestChangedEndpoints(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint())
	w.pass(8 * time.Second)
	w.db.Exec(`UPDATE usages SET txt_endpoints = json_array(?, 'tcp://192.0.2.1:1')`, a.endpoint())
	states := w.endpoints()
	if len(states) != 2 || states[0].Endpoint != a.endpoint() || states[0].Alive == nil || states[1].Endpoint != "tcp://192.0.2.1:1" || states[1].Alive != nil {
		t.Fatalf("states: %+v", states)
	}
}

// TestNeverTheLast keeps the last living endpoint of a usage.
func TestNeverTheLast(t *testing.T) {
	a, b, other := newPeer(t), newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint())
	w.control.Addresses = []string{other.address}
	w.pass(8 * time.Second)
	a.die()
	b.die()
	w.pass(3 * time.Minute)
	if got := w.dead(); len(got) != 1 {
		t.Fatalf("dead: %v, want one", got)
	}
}

// TestCutOff declares nothing dead while no control answers, and needs a fresh failure afterwards.
func TestCutOff(t *testing.T) {
	a, b, control := newPeer(t), newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint())
	w.control.Addresses = []string{control.address}
	w.pass(8 * time.Second)
	control.die()
	a.die()
	w.pass(2 * time.Minute)
	w.wantDead()
	if ok, known := w.Reachable(t.Context()); ok || !known {
		t.Fatal("a cut is not seen")
	}
	if count := strings.Count(w.said.String(), "cut off"); count != 1 {
		t.Fatalf("%d warnings, want one: %s", count, &w.said)
	}
	control.live()
	a.live()
	w.pass(10 * time.Second)
	w.wantDead()
	a.die()
	w.pass(20 * time.Second)
	w.wantDead(a.endpoint())
}

// TestOnlyNamedControl: a gateway that answers tells leases nothing about the line behind it.
func TestOnlyNamedControl(t *testing.T) {
	w := newWorld(t, every5)
	w.control.Gateways = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }
	if ok, known := w.control.Reachable(t.Context()); !ok || !known {
		t.Fatal("the gateway does not answer")
	}
	if ok, known := w.Reachable(t.Context()); ok || known {
		t.Errorf("without a named control: %t, %t", ok, known)
	}
	w.control.Addresses = []string{newPeer(t).address}
	if ok, known := w.Reachable(t.Context()); !ok || !known {
		t.Errorf("with a named control: %t, %t", ok, known)
	}
}

// TestWithoutControl believes a death only if another endpoint has answered.
func TestWithoutControl(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint())
	w.pass(8 * time.Second)
	a.die()
	b.die()
	w.pass(time.Minute)
	w.wantDead()
	b.live()
	w.pass(20 * time.Second)
	w.wantDead(a.endpoint())
}

// TestFlapping changes a name at most ten times in ten minutes, whatever an endpoint does.
func TestFlapping(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	w := newWorld(t, `{"kind":"tcp","interval":5,"fall":1,"rise":1}`, a.endpoint(), b.endpoint())
	w.pass(8 * time.Second)
	alive := true
	for range 600 {
		if alive {
			a.die()
		} else {
			a.live()
		}
		alive = !alive
		w.pass(time.Second)
	}
	writes := w.count(`SELECT count(*) FROM events WHERE kind GLOB 'endpoint.*'`)
	t.Logf("%d writes in ten minutes of flapping", writes)
	if writes < 2 || writes > 10 {
		t.Fatalf("%d writes, want 2 to 10", writes)
	}
}

// TestUnwanted deletes the rows of endpoints that are not checked any more, and makes the name due.
func TestUnwanted(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	w := newWorld(t, every5, a.endpoint(), b.endpoint())
	w.pass(8 * time.Second)
	a.die()
	w.pass(20 * time.Second)
	w.wantDead(a.endpoint())
	w.db.Exec(`UPDATE names SET due = NULL`)
	w.db.Exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (1, '[]', '{"kind":"none"}', '')`)
	w.pass(time.Second)
	w.wantDead()
	if got := w.count(`SELECT count(*) FROM names WHERE due IS NOT NULL`); got != 1 || len(w.endpoints()) != 0 {
		t.Fatal("the endpoint is not published again")
	}
}

// TestSilent probes and declares dead what refuses connections while the probe of another endpoint waits for an answer.
func TestSilent(t *testing.T) {
	const silent, refusing, living = "tcp://192.0.2.1:1", "tcp://192.0.2.2:1", "tcp://192.0.2.3:1"
	w := newWorld(t, every5, silent, refusing, living)
	answer := make(chan struct{})
	defer w.probes.Wait()
	defer close(answer)
	w.probe = func(_ context.Context, t target) error {
		switch t.endpoint {
		case silent:
			<-answer
		case refusing:
			return errors.New("refused")
		}
		return nil
	}
	waiting := func(endpoint string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.states[key{1, endpoint}].probed
	}
	for range 3 * 6 {
		w.step()
		support.Eventually(t, support.Limit, "the others have answered", func() bool { return !waiting(refusing) && !waiting(living) })
		w.must(w.apply(t.Context()))
	}
	if !waiting(silent) {
		t.Error("the silent endpoint has answered")
	}
	w.wantDead(refusing)
}

// TestCrash has the probe of one endpoint crash: it counts as unchecked and is never declared dead, the log tells it
// once, and the others are checked.
func TestCrash(t *testing.T) {
	const crashing, refusing, living = "tcp://192.0.2.1:1", "tcp://192.0.2.2:1", "tcp://192.0.2.3:1"
	w := newWorld(t, every5, crashing, refusing, living)
	w.probe = func(_ context.Context, t target) error {
		switch t.endpoint {
		case crashing:
			panic("injected")
		case refusing:
			return errors.New("refused")
		}
		return nil
	}
	w.pass(time.Minute)
	w.wantDead(refusing)
	if e := w.endpoints()[0]; e.Endpoint != crashing || e.Alive != nil {
		t.Errorf("%+v", e)
	}
	if log := w.said.String(); strings.Count(log, "injected") != 1 || !strings.Contains(log, "watch_test.go") {
		t.Error(log)
	}
}
