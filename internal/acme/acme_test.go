package acme

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/web"
)

// soon is more than the engine gathers the changes of a name for.
const soon = 100 * time.Millisecond

// settle lets the engine withdraw what nothing waits for.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

// TestAnswers: the answers have the bodies of acme-dns and of httpreq, to the octet.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token := w.lease("a", true)
		for _, test := range []struct{ path, body, want string }{
			{"/update", `{"subdomain":"8e5700ea-a4bf-41c7-8a77-e990661dcc6a","txt":"` + value(1) + `"}`, `{"txt":"` + value(1) + `"}`},
			{"/update", `{"txt":"` + value(1) + `"}`, `{"txt":"` + value(1) + `"}`},  // once more
			{"//update", `{"txt":"` + value(1) + `"}`, `{"txt":"` + value(1) + `"}`}, // a base address that ends with a slash
			{"/present", lego(place+".", value(2)), `{}`},
			{"/present", lego("_ACME-challenge.A.example.COM", value(2)), `{}`},
			{"/cleanup", lego(place, value(2)), `{}`},
			{"/cleanup", lego(place+".", value(9)), `{}`},
		} {
			if a := w.post(token, test.path, test.body); a.status != 200 || strings.TrimSuffix(a.body, "\n") != test.want {
				t.Errorf("%s %s: %d %s, want %s", test.path, test.body, a.status, a.body, test.want)
			}
		}
		settle()
		w.stored("1")
		w.stands(value(1))
	})
}

// TestChangesTakeTurns: a client puts the challenges of a name and of its wildcard at once. The second stands a second later,
// and other leases do not wait.
func TestChangesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, other := w.lease("a", true), w.lease("b", true)
		var asked sync.WaitGroup
		answers := make([]answer, 3)
		for n, by := range []string{token, token, other} {
			asked.Go(func() { answers[n] = w.update(by, value(n+1)) })
		}
		asked.Wait()
		for _, a := range answers {
			w.want("at once", a, 200, "")
		}
		took := []time.Duration{answers[0].took, answers[1].took}
		if slices.Sort(took); took[0] > soon || took[1] < time.Second || took[1] > time.Second+soon || answers[2].took > soon {
			t.Errorf("two of one lease took %v, one of another %v", took, answers[2].took)
		}
		w.stands(value(1), value(2), value(3))
		if a := w.update(token, value(1)); a.status != 200 || a.took < time.Second-soon || a.took > time.Second {
			t.Errorf("a value that stands takes its turn, too, after %v: %+v", a.took, a)
		}
		if a := w.post(token, "/cleanup", lego(place, value(1))); a.took != 0 {
			t.Errorf("a cleanup takes %v", a.took)
		}
		<-time.After(10 * time.Minute)
		if a := w.update(token, value(4)); a.status != 200 || a.took > soon {
			t.Errorf("after a pause it takes %v", a.took)
		}
	})
}

// TestTooManyTurns: four requests of a lease wait. The others are refused at once, and leave no trace.
func TestTooManyTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, msg.Builtin)
		token := w.lease("a", true)
		const count = 40
		var asked sync.WaitGroup
		answers := make([]answer, count)
		for n := range count {
			asked.Go(func() { answers[n] = w.update(token, value(n+1)) })
		}
		asked.Wait()
		well := 0
		var slowest time.Duration
		for _, a := range answers {
			switch {
			case a.status == 200:
				well++
				slowest = max(slowest, a.took)
			case a.status != 503 || a.code != msg.TooManyWaiting || a.after == "" || a.took != 0:
				t.Errorf("refused as %+v", a)
			}
		}
		if well != 4 || slowest < 3*time.Second || slowest > 3*time.Second+soon {
			t.Errorf("%d are well, the last after %v", well, slowest)
		}
		stored := w.db.Texts(`SELECT value FROM challenges ORDER BY value`)
		standing := w.db.Texts(`SELECT substr(data, 2) FROM zone_records WHERE name = 'com.example.a._acme-challenge' ORDER BY data`)
		if len(stored) != 4 || !slices.Equal(stored, standing) {
			t.Errorf("stored: %q, standing: %q", stored, standing)
		}
		<-time.After(time.Second)
		w.want("when none waits", w.update(token, value(99)), 200, "")
	})
}

// TestPlacesWhileDown: one lease leaves places to others also where its requests wait for the provider.
func TestPlacesWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, other := w.lease("a", true), w.lease("b", true)
		w.vendor.mu.Lock()
		w.vendor.down = true
		w.vendor.mu.Unlock()
		var asked sync.WaitGroup
		counts := make([]atomic.Int32, 600)
		ask := func(token string, n int) { asked.Go(func() { counts[w.update(token, value(n)).status].Add(1) }) }
		for range 20 {
			ask(token, 1)
			<-time.After(time.Second)
		}
		ask(other, 2)
		asked.Wait()
		if unseen, refused := counts[504].Load(), counts[503].Load(); unseen != 5 || refused != 16 {
			t.Errorf("%d have waited, %d were refused", unseen, refused)
		}
	})
}

// TestGone: a request whose value can never stand, because it was cleaned up, its lease has ended, or newer ones have its
// place, keeps no place of those that wait.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		w.vendor.mu.Lock()
		w.vendor.late = time.Now().Add(time.Hour)
		w.vendor.mu.Unlock()
		for what, end := range map[string]func(token string){
			"cleaned up": func(token string) { w.post(token, "/cleanup", lego(place, value(1))) },
			"the end":    func(string) { w.must(w.leases.Delete(t.Context(), "u1", w.db.Texts(`SELECT id FROM leases`)[0])) },
		} {
			w.db.Exec(`DELETE FROM leases`)
			token := w.lease("a", true)
			time.AfterFunc(3*time.Second, func() { end(token) })
			if a := w.update(token, value(1)); a.status != 504 || a.took > 10*time.Second {
				t.Errorf("%s: %+v", what, a)
			}
		}
	})
}

// TestTurnIsGivenUp: a request whose wait ends before its turn, because the program stops, is asked to come again, and stores
// nothing.
func TestTurnIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token := w.lease("a", true)
		w.want("the first", w.update(token, value(1)), 200, "")
		s := &calls{Config: Config{Leases: w.leases, Expect: w.engine.Expect}, next: map[int64]time.Time{1: time.Now().Add(10 * time.Second)}}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		if f := web.FailureOf(s.turn(ctx, 1), nil); f.Status != 503 || f.RetryAfter == 0 || time.Since(begin) > time.Second {
			t.Errorf("%+v after %v", f, time.Since(begin))
		}
		s.next[1] = time.Now().Add(patience) // those before have gone away
		late, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begin = time.Now()
		if f := web.FailureOf(s.turn(late, 1), nil); f.ID != msg.TooManyWaiting || time.Since(begin) > 0 {
			t.Errorf("too late: %+v after %v", f, time.Since(begin))
		}
		w.stored("1")
	})
}

// TestUnseenAfterPatience: a challenge that the provider does not show is kept after 504, and asking again waits again.
func TestUnseenAfterPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token := w.lease("a", true)
		w.vendor.mu.Lock()
		w.vendor.late = time.Now().Add(70 * time.Second)
		w.vendor.mu.Unlock()
		for range 2 {
			a := w.update(token, value(1))
			if w.want("unseen", a, 504, msg.ACMEUnseen); a.took != 30*time.Second {
				t.Errorf("504 after %v", a.took)
			}
			w.stored("1")
		}
		seen := w.vendor.late
		for a := w.update(token, value(1)); a.status != 200; a = w.update(token, value(1)) {
			if time.Since(seen) > 5*time.Minute {
				t.Fatalf("%v after the provider shows it: %+v", time.Since(seen), a)
			}
		}
		if time.Now().Before(seen) {
			t.Errorf("200 at %v, and it is seen at %v", time.Now(), seen)
		}
		w.stands(value(1))
		w.want("cleaned up", w.post(token, "/cleanup", lego(place, value(1))), 200, "")
		<-time.After(3 * time.Minute)
		settle()
		w.stands() // a value that was shown late is ours
		w.stored()
	})
}

// TestUnseenWhileDown: a provider that does not answer is 504, and what was put stands when it does.
func TestUnseenWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token := w.lease("a", true)
		w.vendor.mu.Lock()
		w.vendor.down = true
		w.vendor.mu.Unlock()
		w.want("down", w.post(token, "/present", lego(place, value(1))), 504, msg.ACMEUnseen)
		w.stored("1")
		w.vendor.mu.Lock()
		w.vendor.down = false
		w.vendor.mu.Unlock()
		<-time.After(10 * time.Minute)
		settle()
		w.stands(value(1))
	})
}

// TestAskedAgainAfterAFailure: a challenge whose write has failed for good is tried again when its node asks again, and not only
// in the next pass. One that stands is not looked at again.
func TestAskedAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token := w.lease("a", true)
		down := func(is bool) {
			w.vendor.mu.Lock()
			w.vendor.down, w.vendor.kind = is, provider.Permission
			w.vendor.mu.Unlock()
		}
		settle()
		down(true)
		w.want("no permission", w.update(token, value(1)), 504, msg.ACMEUnseen)
		down(false)
		for range 2 {
			if a := w.update(token, value(1)); a.status != 200 || a.took != 0 {
				t.Errorf("asked again: %d %s after %v", a.status, a.code, a.took)
			}
			w.stands(value(1))
			<-time.After(apart)
		}
		due := w.db.Texts(`SELECT version FROM names`)
		w.want("it stands", w.update(token, value(1)), 200, "")
		if now := w.db.Texts(`SELECT version FROM names`); !slices.Equal(now, due) {
			t.Errorf("it stands, and the names have the versions %v, before %v", now, due)
		}
	})
}

// TestRefused: what a node may not do is refused, stores nothing and changes nothing at the provider.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, without := w.lease("a", true), w.lease("b", false)
		w.vendor.put(place, "of others")
		good := value(1)
		raw := `{"domain":"a.example.com","token":"x","keyAuth":"y"}`
		for _, test := range []struct {
			token, path, body string
			status            int
			code              msg.ID
		}{
			{"wrong", "/update", `{"txt":"` + good + `"}`, 401, msg.Unauthorized},
			{"", "/present", lego(place, good), 401, msg.Unauthorized},
			{without, "/update", `{"txt":"` + good + `"}`, 403, msg.NotPermitted},
			{without, "/present", lego(place, good), 403, msg.NotPermitted},
			{without, "/cleanup", lego(place, good), 403, msg.NotPermitted},
			{token, "/present", lego("_acme-challenge.b.example.com.", good), 403, msg.ACMEName},
			{token, "/present", lego("a.example.com.", good), 403, msg.ACMEName},
			{token, "/present", lego(name, good), 403, msg.ACMEName},
			{token, "/present", lego("_acme-challenge.x.a.example.com", good), 403, msg.ACMEName},
			{token, "/present", lego(place+"..", good), 403, msg.ACMEName},
			{token, "/present", lego("_acme-challenge.example.com", good), 403, msg.ACMEName},
			{token, "/cleanup", lego("_acme-challenge.b.example.com.", good), 403, msg.ACMEName},
			{token, "/present", raw, 400, msg.ACMERaw},
			{token, "/cleanup", raw, 400, msg.ACMERaw},
			{token, "/present", `{}`, 400, msg.ACMERaw},
			{token, "/update", `{}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[1:] + `"}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"0` + good + `"}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[1:] + `+"}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[1:] + `/"}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[1:] + `="}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[1:] + ` "}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[2:] + `é"}`, 400, msg.ACMEValue},
			{token, "/update", `{"txt":"` + good[:20] + "+" + good[21:] + `"}`, 400, msg.ACMEValue},
			{token, "/present", lego(place, good[1:]), 400, msg.ACMEValue},
			{token, "/cleanup", lego(place, "of others"), 400, msg.ACMEValue},
		} {
			a := w.post(test.token, test.path, test.body)
			if w.want(test.path+" "+test.body, a, test.status, test.code); a.took != 0 {
				t.Errorf("%s takes %v", test.body, a.took)
			}
		}
		settle()
		w.stored()
		w.stands("of others")
		for n := range len(digits) {
			if err := check(strings.Repeat(digits[n:n+1], 43)); err != nil || len(digits) != 64 {
				t.Errorf("%c is refused: %v", digits[n], err)
			}
		}
	})
}

// TestPaused: nothing is stored while a person has to act first.
func TestPaused(t *testing.T) {
	for what, statement := range map[string]string{
		"mode manual":      `UPDATE configuration SET sync_mode = 'manual'`,
		"disabled":         `UPDATE configuration SET enabled = 0`,
		"no configuration": `DELETE FROM configuration`,
		"no provider":      `UPDATE services SET account = NULL; UPDATE configuration SET domain = 'example.net', zone = 'example.net', name = '_host.example.net'`,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "vendor")
			token := w.lease("a", true)
			w.db.Exec(statement)
			for _, a := range []answer{w.update(token, value(1)), w.post(token, "/present", lego(place, value(2)))} {
				w.want(what, a, 409, msg.Paused)
			}
			w.stored()
			w.stands()
		})
	}
}

// TestPausedForOneUsage: a usage without a provider of its own is paused, although its name has another usage that has one.
func TestPausedForOneUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		w.db.Exec(`UPDATE configuration SET domain = 'example.net', zone = 'example.net', name = '_host.example.net'`)
		w.another()
		w.db.Exec(`UPDATE services SET account = NULL WHERE id = 'more'`)
		a := w.update(w.leaseOf("u2", "a", true), value(1))
		if w.want("no provider", a, 409, msg.Paused); a.took > soon {
			t.Errorf("409 after %v", a.took)
		}
		w.stored()
		w.want("the other usage", w.update(w.lease("a", true), value(2)), 200, "")
	})
}

// TestConflicts: where a challenge cannot stand as things are, it is refused and nothing of it is left.
func TestConflicts(t *testing.T) {
	for what, begin := range map[string]func(w *world){
		"an alias":              func(w *world) { w.vendor.alias[place] = "elsewhere.example.net" },
		"another owner":         func(w *world) { w.vendor.put(name, "v=mesh1 n=7 o=ffffffffffff tcp://192.0.2.9:1") },
		"the value is there":    func(w *world) { w.vendor.put(place, value(1)) },
		"another network's":     func(w *world) { w.db.Exec(`UPDATE bindings SET network_id = 8`) },
		"of others and one too": func(w *world) { w.vendor.put(place, value(1), "beside") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "vendor")
			begin(w)
			before := slices.Clone(w.vendor.values[place])
			usage := "u1"
			if what == "another network's" {
				w.another()
				usage = "u2"
			}
			a := w.update(w.leaseOf(usage, "a", true), value(1))
			if w.want(what, a, 409, msg.Conflict); a.took > soon {
				t.Errorf("%s: after %v", what, a.took)
			}
			if strings.Contains(a.body, "8") && what == "another network's" {
				t.Errorf("the node is told of the other network: %s", a.body)
			}
			w.stored()
			<-time.After(10 * time.Minute)
			synctest.Wait()
			w.stands(before...)
		})
	}
}

// TestConflictHindersNoOther: the conflict of one challenge is none of another one.
func TestConflictHindersNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, other := w.lease("a", true), w.lease("b", true)
		w.vendor.put(place, value(1))
		put := func(what string, by string, n, status int, code msg.ID) {
			t.Helper()
			a := w.update(by, value(n))
			if w.want(what, a, status, code); a.took > time.Second+soon {
				t.Errorf("%s: after %v", what, a.took)
			}
		}
		put("of others", token, 1, 409, msg.Conflict)
		put("at once", other, 3, 200, "")
		settle()
		w.stands(value(1), value(3))
		<-time.After(10 * time.Minute)                                                                                             // for more changes
		w.db.Exec(`INSERT INTO challenges (usage, lease, value, put_at) SELECT 1, 1, ?, put_at FROM challenges LIMIT 1`, value(1)) // as a kill leaves it
		put("beside a conflict that stays", other, 4, 200, "")
		put("once more", other, 5, 200, "")
		put("the conflict, asked again", token, 1, 409, msg.Conflict)
		<-time.After(10 * time.Minute)
		w.stored("3", "4", "5")
		w.stands(value(1), value(3), value(4), value(5))
	})
}

// TestConflictWhileWritesAreUsedUp: what waits for its turn is not refused for the conflict of another value.
func TestConflictWhileWritesAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, other := w.lease("a", true), w.lease("b", true)
		w.vendor.put(place, value(1))
		w.want("of others", w.update(token, value(1)), 409, msg.Conflict)
		w.db.Exec(`INSERT INTO challenges (usage, lease, value, put_at) VALUES (1, 1, ?, 0)`, value(1))
		var last answer
		for n := 2; n < 14 && last.status != 504; n++ {
			last = w.update(other, value(n))
		}
		if w.want("writes are used up", last, 504, msg.ACMEUnseen); last.took != 30*time.Second {
			t.Errorf("after %v", last.took)
		}
		newest := w.db.Texts(`SELECT value FROM challenges WHERE lease = 2 ORDER BY seq DESC LIMIT 1`)[0]
		<-time.After(10 * time.Minute)
		w.want("asked again", w.update(other, newest), 200, "")
	})
}

// TestCleanup: a value of another lease or of others stays, without a fault.
func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "vendor")
		token, other := w.lease("a", true), w.lease("b", true)
		w.vendor.put(place, value(9))
		w.want("one", w.update(token, value(1)), 200, "")
		w.want("another", w.update(other, value(2)), 200, "")
		for _, n := range []int{2, 9, 7} {
			w.want("not its own", w.post(token, "/cleanup", lego(place, value(n))), 200, "")
		}
		settle()
		w.stands(value(1), value(2), value(9))
		w.want("its own", w.post(token, "/cleanup", lego(place, value(1))), 200, "")
		settle()
		w.stored("2")
		w.stands(value(2), value(9))
	})
}

// TestFull: a ninth challenge of a lease by /present is refused, and a seventeenth of a usage. One by /update takes the place of
// one by /update that has two newer ones.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, msg.Builtin)
		a, b, c := w.lease("a", true), w.lease("b", true), w.lease("c", true)
		present := func(token string, n, status int, code msg.ID) {
			t.Helper()
			w.want(strconv.Itoa(n), w.post(token, "/present", lego(place, value(n))), status, code)
		}
		for n := range 8 {
			present(a, 11+n, 200, "")
			w.want("one of eight", w.update(b, value(21+n)), 200, "")
		}
		present(a, 19, 409, msg.ACMEFull)
		w.want("of a full usage", w.update(b, value(29)), 200, "")
		for n := range 6 {
			present(c, 31+n, 200, "")
		}
		present(c, 37, 409, msg.ACMEFull)
		w.want("none can go", w.update(c, value(38)), 409, msg.ACMEFull)
		settle()
		w.stored("11", "12", "13", "14", "15", "16", "17", "18", "28", "29", "31", "32", "33", "34", "35", "36")
	})
}

// TestSecondaryLags: in a built-in zone a challenge waits for the secondaries too.
func TestSecondaryLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, msg.Builtin)
		token := w.lease("a", true)
		var asked []string
		w.taken = func(ctx context.Context, zone string) bool {
			asked = append(asked, zone)
			<-ctx.Done()
			return false
		}
		a := w.update(token, value(1))
		if w.want("a secondary lags", a, 504, msg.ACMEUnseen); a.took != 30*time.Second || !slices.Equal(asked, []string{"example.com"}) {
			t.Errorf("%v: %q", a.took, asked)
		}
		w.stored("1")
		w.taken = func(context.Context, string) bool { return true }
		if a := w.update(token, value(1)); a.status != 200 || a.took != 0 {
			t.Errorf("it has fetched the zone: %+v", a)
		}
	})
}
