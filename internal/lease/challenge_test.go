package lease

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
)

// answer makes a value of a challenge.
func answer(n int) string { return fmt.Sprintf("%043d", n) }

// holder makes a lease that may put challenges.
func (w *world) holder(slot string) Lease {
	w.t.Helper()
	_, token := w.lease(`{"slot":"` + slot + `","ttl":60,"acme":true}`)
	return w.found(token)
}

func (w *world) found(token Token) Lease {
	w.t.Helper()
	l, err := w.Find(w.t.Context(), token)
	w.must(err)
	return l
}

// puts puts challenges, and returns the error of the last one.
func (w *world) puts(l Lease, numbers ...int) (err error) {
	for _, n := range numbers {
		_, err = w.PutChallenge(w.t.Context(), l, answer(n), false)
	}
	return err
}

// updates is puts by the call of acme-dns.
func (w *world) updates(l Lease, numbers ...int) (err error) {
	for _, n := range numbers {
		_, err = w.PutChallenge(w.t.Context(), l, answer(n), true)
	}
	return err
}

// drops drops a challenge, and wants it to report whether the lease had it.
func (w *world) drops(l Lease, number int, had bool) {
	w.t.Helper()
	if dropped, err := w.DropChallenge(w.t.Context(), l, answer(number)); err != nil || dropped != had {
		w.t.Errorf("the drop of %d reports %t, %v", number, dropped, err)
	}
}

// stored wants the challenges of all leases: the slot and the number of each, the elder first.
func (w *world) stored(want string) {
	w.t.Helper()
	got := strings.Join(w.db.Texts(`SELECT slot || ltrim(value, '0') FROM challenges c JOIN leases l ON l.seq = c.lease ORDER BY c.seq`), " ")
	if got != want {
		w.t.Errorf("the challenges are %q, want %q", got, want)
	}
}

// dues counts how often a function made the name due.
func (w *world) dues(do func()) (times int) {
	w.t.Helper()
	before, _ := strconv.Atoi(w.published())
	do()
	after, _ := strconv.Atoi(w.published())
	return after - before
}

// TestChallengesOfAUsage: a usage has sixteen challenges. A further one changes nothing, unless one that was put by /update can go.
func TestChallengesOfAUsage(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.holder("a"), w.holder("b"), w.holder("c")
	w.must(w.puts(a, 1, 2, 3, 4, 5, 6, 7, 8))
	w.must(w.puts(b, 1, 2, 3, 4, 5))
	w.must(w.updates(c, 1, 2, 3))
	full := "a1 a2 a3 a4 a5 a6 a7 a8 b1 b2 b3 b4 b5 "
	w.stored(full + "c1 c2 c3")
	w.must(w.puts(b, 6)) // c1 has two newer ones
	w.stored(full + "c2 c3 b6")
	times := w.dues(func() {
		if err := w.puts(b, 7); err != ErrFull {
			t.Errorf("a seventeenth challenge: %v", err)
		}
	})
	if w.stored(full + "c2 c3 b6"); times > 0 {
		t.Errorf("the name is due %d times by a challenge that is refused", times)
	}
	w.must(cmp.Or(w.puts(b, 5), w.updates(c, 3))) // what it has, it may ask for again
	w.must(w.updates(c, 4))
	w.stored(full + "c3 b6 c4")
	if err := w.updates(b, 7); err != ErrFull {
		t.Errorf("the first one by /update: %v", err)
	}
	w.drops(b, 3, true)
	w.must(w.updates(b, 7))
	w.stored(strings.Replace(full, "b3 ", "", 1) + "c3 b6 c4 b7")
	w.db.Usage(2, "_mesh.b.example.com", "tcp://192.0.2.2:1")
	_, _, other, err := w.Create(t.Context(), Creation{Usage: "u2", Rules: Rules{Slot: "a", TTL: time.Minute, ACME: true}})
	if w.must(err); other {
		t.Fatal("repeated")
	}
	if all, err := w.OfUsage(t.Context(), "u2"); err != nil || w.puts(all[0], 1, 2) != nil {
		t.Errorf("another usage has no room: %v", err)
	}
}

// TestChallengesOfALease: a lease has eight values. Where it has no room, a value of /update goes that has two newer ones, and a
// value that was put by the other call, too, never does. One that is there keeps its time and changes nothing.
func TestChallengesOfALease(t *testing.T) {
	w := newWorld(t)
	l := w.holder("a")
	for n, want := range []string{"a1", "a1 a2", "a1 a2 a3"} {
		if times := w.dues(func() { w.must(w.updates(l, n+1)) }); times != 1 {
			t.Errorf("the name is due %d times by one challenge", times)
		}
		w.stored(want)
	}
	w.at = w.at.Add(30 * time.Minute)
	if times := w.dues(func() { w.must(w.updates(l, 3)) }); times != 0 {
		t.Errorf("the same value makes the name due %d times", times)
	}
	w.must(w.puts(l, 1))
	w.stored("a1 a2 a3")
	w.want(`SELECT DISTINCT CAST(put_at AS TEXT) FROM challenges`, strconv.FormatInt(w.at.Add(-30*time.Minute).UnixMilli(), 10))
	w.must(w.updates(l, 1, 4, 5, 6, 7, 8))
	w.stored("a1 a2 a3 a4 a5 a6 a7 a8")
	w.must(w.updates(l, 9))
	w.stored("a1 a3 a4 a5 a6 a7 a8 a9") // the first one is lego's, too
	for n := range 5 {
		w.must(w.puts(l, 10+n))
	}
	w.stored("a1 a8 a9 a10 a11 a12 a13 a14")
	if err := w.puts(l, 20); err != ErrFull {
		t.Errorf("a ninth beside two of /update: %v", err)
	}
	w.must(w.updates(l, 15))
	w.stored("a1 a9 a10 a11 a12 a13 a14 a15")
	if times := w.dues(func() { w.drops(l, 99, false) }); times != 0 {
		t.Errorf("a value that it does not have makes the name due %d times", times)
	}
	other := w.holder("b")
	w.drops(other, 9, false)
	w.must(w.puts(other, 9)) // two leases may have one value
	w.drops(l, 9, true)
	w.stored("a1 a10 a11 a12 a13 a14 a15 b9")
}

// TestChallengesNeedTheRight: the right is that which the lease has when a challenge is stored, not when its token was read.
func TestChallengesNeedTheRight(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"b","ttl":60}`)
	if err := w.puts(w.found(token), 1); err != ErrNotPermitted {
		t.Errorf("a lease without the right: %v", err)
	}
	l := w.holder("a")
	w.db.Exec(`UPDATE leases SET acme = 0 WHERE slot = 'a'`)
	if err := w.puts(l, 1); err != ErrNotPermitted {
		t.Errorf("a right that is gone: %v", err)
	}
	w.db.Exec(`UPDATE leases SET acme = 1 WHERE slot = 'a'; UPDATE bindings SET status = 'releasing'`)
	if err := w.puts(l, 1); err != ErrReleased {
		t.Errorf("a usage that is released: %v", err)
	}
	w.db.Exec(`UPDATE bindings SET status = 'active'`)
	w.must(w.Delete(t.Context(), "u1", l.ID))
	if err := w.puts(l, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("a lease that has ended: %v", err)
	}
	w.stored("")
}

// TestChallengesLapse: a challenge ends an hour after it was put, or if the clock was set back by more than a minute since.
func TestChallengesLapse(t *testing.T) {
	for what, test := range map[string]struct {
		passes time.Duration
		left   string
	}{
		"an hour":                           {time.Hour, "a1 a2"},
		"a moment more":                     {time.Hour + time.Millisecond, ""},
		"a moment less":                     {time.Hour - time.Millisecond, "a1 a2"},
		"a day":                             {24 * time.Hour, ""},
		"the clock is set back by a minute": {-time.Minute, "a1 a2"},
		"the clock is set back by more":     {-time.Minute - time.Millisecond, ""},
	} {
		for _, restarted := range []bool{false, true} {
			w := newWorld(t)
			w.must(w.puts(w.holder("a"), 1, 2))
			w.at = w.at.Add(test.passes)
			times := w.dues(func() {
				if restarted {
					w.restart()
				}
				w.must(w.endChallenges(t.Context(), clockStep))
			})
			w.stored(test.left)
			if ended := times > 0; ended != (test.left == "") {
				t.Errorf("%s: the name is due %d times", what, times)
			}
			w.want(`SELECT lane FROM names WHERE due IS NOT NULL AND lane <> 'node'`)
			if again := w.dues(func() { w.must(w.endChallenges(t.Context(), clockStep)) }); again > 0 {
				t.Errorf("%s: the second look makes the name due", what)
			}
		}
	}
}

// TestChallengesLapseAtAStart: challenges whose time is over, as those of a restored backup, end before anything is published.
// If the clock seems to be set back they stay, because a host may set its clock only after the start.
func TestChallengesLapseAtAStart(t *testing.T) {
	for passes, left := range map[time.Duration]string{
		time.Hour: "a1 a2", time.Hour + time.Millisecond: "", 24 * time.Hour: "", -2 * time.Hour: "a1 a2", -56 * 8766 * time.Hour: "a1 a2",
	} {
		w := newWorld(t)
		w.must(w.puts(w.holder("a"), 1, 2))
		w.at = w.at.Add(passes)
		times := w.dues(w.restart)
		if w.stored(left); (times > 0) != (left == "") {
			t.Errorf("after %v: the name is due %d times", passes, times)
		}
	}
}

// TestFaultAtAStart: a file that takes no write keeps no program from starting; the next look ends the challenges.
func TestFaultAtAStart(t *testing.T) {
	w := newWorld(t)
	w.must(w.puts(w.holder("a"), 1))
	w.at = w.at.Add(2 * time.Hour)
	w.db.Exec(`CREATE TRIGGER full BEFORE DELETE ON challenges BEGIN SELECT RAISE(ABORT, 'full'); END`)
	w.restart()
	w.stored("a1")
	w.db.Exec(`DROP TRIGGER full`)
	w.look(t.Context())
	w.stored("")
}

// TestChallengesLapseAlone: only those whose time is over end, and Run looks for them although no lease is due.
func TestChallengesLapseAlone(t *testing.T) {
	w := newWorld(t)
	l := w.holder("a")
	w.must(w.puts(l, 1))
	w.at = w.at.Add(30 * time.Minute)
	w.must(w.puts(l, 2))
	w.at = w.at.Add(30*time.Minute + time.Second)
	w.look(t.Context())
	w.stored("a2")
	w.at = w.at.Add(30 * time.Minute)
	w.look(t.Context())
	if w.stored(""); w.untilNext() > 30*time.Second {
		t.Errorf("the next look is in %v", w.untilNext())
	}
}

// TestManyChallengesLapse: thousands end in batches, and each name is due.
func TestManyChallengesLapse(t *testing.T) {
	w := newWorld(t)
	const usages = 2500
	w.db.Exec(`DELETE FROM usages`)
	w.db.Exec(`
		WITH n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2500)
		INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT n, 'u' || n, 's', '', 'auto', 'p' || n, 'TXT', '', 1, '[]', '_mesh.p' || n || '.example.com', '' FROM n`)
	w.db.Exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) SELECT seq, seq, 7, id, 's', 'active' FROM usages`)
	w.db.Exec(`INSERT INTO leases (id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
		SELECT 'l' || seq, seq, 'a', CAST(seq AS BLOB), '[]', '[]', 60, '[]', '', '[]', 0, '', 1 FROM usages`)
	w.db.Exec(`INSERT INTO challenges (usage, lease, value, put_at) SELECT usage, seq, printf('%043d', seq), ? FROM leases`, w.at.UnixMilli())
	w.at = w.at.Add(2 * time.Hour)
	w.must(w.endChallenges(t.Context(), clockStep))
	w.want(`SELECT CAST(count(*) AS TEXT) FROM challenges`, "0")
	w.want(`SELECT CAST(count(*) AS TEXT) FROM names WHERE due IS NOT NULL`, strconv.Itoa(usages))
}

// TestChallengesEndWithTheirLease: no row is left of a lease that ends, is replaced, or loses the right, and of a usage that
// is gone; the name is due.
func TestChallengesEndWithTheirLease(t *testing.T) {
	for what, end := range map[string]func(w *world, l Lease){
		"it ends": func(w *world, l Lease) { w.must(w.Delete(t.Context(), "u1", l.ID)) },
		"it is replaced": func(w *world, _ Lease) {
			if status, _, answer := w.ask("POST", "/usages/u1/leases?replace=1", `{"slot":"a","ttl":60,"acme":true}`); status != 200 {
				t.Fatal(answer)
			}
		},
		"it is replaced by one without the right": func(w *world, _ Lease) {
			if status, _, answer := w.ask("POST", "/usages/u1/leases?replace=1", `{"slot":"a","ttl":60}`); status != 200 {
				t.Fatal(answer)
			}
		},
		"it loses the right": func(w *world, l Lease) {
			if said := w.save(`{"leases":[{"slot":"a","ttl":60,"token_hash":"`+l.hash+`"}]}`, false); said != "true" {
				t.Error(said)
			}
		},
		"it is not in the file": func(w *world, _ Lease) {
			if said := w.save(`{"leases":[]}`, true); said != "true" {
				t.Error(said)
			}
		},
	} {
		w := newWorld(t)
		l := w.holder("a")
		w.must(w.puts(l, 1, 2))
		times := w.dues(func() { end(w, l) })
		w.want(`SELECT value FROM challenges`)
		if times == 0 {
			t.Errorf("%s: the name is not due", what)
		}
	}
	w := newWorld(t)
	w.must(w.puts(w.holder("a"), 1, 2))
	w.db.Exec(`DELETE FROM usages`)
	w.want(`SELECT value FROM challenges`)
}

// TestChallengesOutliveARenewal: a provisioning file that changes something else, a token that is made anew, and endpoints that
// end leave the challenges.
func TestChallengesOutliveARenewal(t *testing.T) {
	w := newWorld(t)
	_, token := w.lease(`{"slot":"a","ttl":60,"acme":true}`)
	l := w.found(token)
	w.must(w.puts(l, 1))
	w.renew(token, "tcp://192.0.2.7:1000")
	w.pass(time.Minute)
	if w.leased() != "" {
		t.Fatal("the lease has endpoints")
	}
	w.stored("a1")
	if said := w.save(`{"leases":[{"slot":"a","ttl":90,"acme":true,"token_hash":"`+l.hash+`"}]}`, false); said != "true" {
		t.Error(said)
	}
	w.stored("a1")
	w.restart()
	w.stored("a1")
	if l.ChallengeName() != "_acme-challenge.a.example.com" {
		t.Error(l.ChallengeName())
	}
	if may, err := w.Challenge(t.Context(), w.found(token), ""); err != nil || msg.ID(may.Fault.Code) != msg.Paused {
		t.Errorf("a challenge without a configuration: %+v, %v", may, err)
	}
}
