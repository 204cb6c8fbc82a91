package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"meshddns/test/support"
)

// Steps about writes whose outcome is not known, and about time.

// overwriteLate has a write arrive after a newer value stands, and before the look that
// its unknown outcome asks for. The newer one comes back by itself; in mode manual, where
// nothing is written unasked, it is at least not said to be published.
func (w *history) overwriteLate() func() {
	mode := pick(w.random, []string{"manual", "auto", "auto", "upsert-only"})
	at := home{w.host.accounts[2], aliFront.provider} // a bridge compares: there nothing comes late
	return func() {
		w.strict = false
		w.putAnother(func(c *modelConfig) { c.credentials, c.domain, c.mode, c.retries = w.keyOf(at), "example.com", mode, 0 })()
		w.putAt("s1", credentials{})
		w.furnish("s1")
		w.rest("a provider that does not compare")
		for range lateTries {
			all := w.firmUsages(func(f firm) bool { return f.at.account.provider != bridgeFront.provider && f.usage.service == "s1" })
			if len(all) == 0 || w.overtaken(pick(w.random, all)) {
				return
			}
			w.tally.add("late writes that came too late to be looked for", 1)
			w.rest("a write that came too late")
		}
	}
}

// lateTries is how often a step tries to have a write arrive in time: it may not, on a slow machine.
const lateTries = 3

// overtaken changes a usage twice: the first value arrives when the second one stands. It reports whether it did so in time.
func (w *history) overtaken(f firm) (inTime bool) {
	w.t.Helper()
	first, next := w.patch(f.usage.id), w.patch(f.usage.id)
	older, newer := w.valueAfter(f, first), w.valueAfter(f, next)
	l := w.sendLate(fault{kind: lateOver, at: f.at.account}, newer, first)
	w.mutate(next)
	if w.manual() {
		w.sync()
	}
	if !w.arrives(l) {
		return false
	}
	w.tally.add("late writes over newer values", 1)
	w.until("a late write over a newer value is seen", func() string { return w.overwritten(f, older, newer) })
	return true
}

// sendLate makes a change whose first write is late. It returns when that was sent.
func (w *history) sendLate(first fault, newer string, change mutation) *lateWrite {
	w.t.Helper()
	sent := make(chan *lateWrite, 1)
	w.host.mu.Lock()
	w.host.over = overtaking{newer: newer, sent: sent}
	w.host.mu.Unlock()
	first.write = true
	w.planned(first)
	w.mutate(change)
	if w.manual() {
		w.syncBeside()
	}
	select {
	case l := <-sent:
		return l
	case <-time.After(support.Paced(restLimit)):
	}
	w.fail("no write is sent")
	return nil
}

// arrives waits until a late write has been looked for. It reports whether it has arrived in time.
func (w *history) arrives(l *lateWrite) (inTime bool) {
	w.t.Helper()
	w.until("a late write is looked for", func() string {
		if w.late(l.spots[0]) {
			return "it has not arrived, and no look asks for it"
		}
		return ""
	})
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return l.came
}

// valueAfter gives the value of a name after a change.
func (w *history) valueAfter(f firm, c mutation) string {
	after := w.model.clone()
	c.apply(&after, answer{status: 200})
	return after.wishes(w.host.owner)[f.name].options[0].value
}

// withdrawLate releases a usage whose first value is on its way. It arrives after the look that sees nothing, and goes by
// the second look.
func (w *history) withdrawLate() func() {
	mode := pick(w.random, []string{"manual", "auto", "auto"})
	at := home{w.host.accounts[2], aliFront.provider}
	network := w.network()
	return func() {
		w.strict = false
		w.putAnother(func(c *modelConfig) { c.credentials, c.domain, c.mode, c.retries = w.keyOf(at), "example.com", mode, 0 })()
		w.mutate(w.putService(modelService{id: "late", domain: "example.com"}))
		w.rest("a provider that does not compare")
		for range lateTries {
			w.serial++
			u := modelUsage{service: "late", prefix: fmt.Sprint("late", w.serial), network: network}
			if w.account(w.model.config.credentials) != at.account || w.withdrawn(u, at.account) {
				break
			}
			w.tally.add("late writes that came too late to be looked for", 1)
			w.rest("a write that came too late")
		}
		w.rest("late writes")
		if !w.inUse("late") {
			w.mutate(w.deleteService("late"))
		}
	}
}

// withdrawn reserves and releases a prefix. It reports whether the value arrived after the release.
func (w *history) withdrawn(u modelUsage, a *account) (inTime bool) {
	w.t.Helper()
	l := w.sendLate(fault{kind: lateAfter, at: a}, "", w.reservation(u))
	for _, m := range w.model.usages {
		if m.service == u.service && m.prefix == u.prefix {
			w.mutate(w.release(m, false))
		}
	}
	if !w.arrives(l) {
		return false
	}
	w.tally.add("late writes after withdrawals", 1)
	return true
}

func (w *history) late(at spot) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return slices.ContainsFunc(w.host.late, func(l *lateWrite) bool { return l.spots[0] == at })
}

// overwritten says what is wrong after an older value has arrived.
func (w *history) overwritten(f firm, older, newer string) string {
	old, stands := w.standsAt(f.at, older), w.standsAt(f.at, newer)
	state := w.publication(f.usage.id).State
	switch {
	case stands && !old:
		return ""
	case old && stands && w.model.config.mode == "upsert-only": // which may not remove it; the verdict wants it listed
		return ""
	case !stands && w.manual() && state != "published":
		return ""
	}
	return "the newer value stands: " + yes(stands) + ", the older one: " + yes(old) + ", the usage is " + state
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// breakBatch changes many names of one zone by one call, whose outcome is not known.
func (w *history) breakBatch() func() {
	at := w.powerHome("pdns-one")
	kind := pick(w.random, []faultKind{unreadable, unreadable, lostAnswer, killAfter, killLater, lateBefore, lateAfter, staleOnce})
	moves := w.random.IntN(3) == 0
	return func() {
		w.strict = false
		w.putAt("", w.keyOf(at))
		if w.model.services["s1"].provider != "" || w.model.services["s1"].id == "" {
			w.putAt("s1", credentials{})
		}
		for _, prefix := range []string{"a", "b", "c"} {
			if len(w.model.usages) < mostUsages {
				w.reserve(modelUsage{service: "s1", prefix: prefix, network: w.network()})()
			}
		}
		w.rest("several names in one zone")
		w.planned(fault{kind: kind, write: true, batch: true, at: at.account})
		w.configureEndpoints()()
		w.sync()
		if moves {
			w.putAt("", w.home())
		}
	}
}

// setClock stops the program, and moves every time that it has stored, as if the clock
// had been set. Nothing may wait for that long.
func (w *history) setClock() func() {
	shift := pick(w.random, []time.Duration{-8 * time.Hour, 8 * time.Hour})
	cause, killed := w.random.IntN(4), w.random.IntN(2) == 0
	u, found := w.someUsage()
	down := w.firms()
	return func() {
		w.strict = false
		switch {
		case cause == 1 && found:
			w.mutate(w.release(u, false))
		case cause == 2 && found:
			w.mutate(w.patch(u.id))
		case cause == 3 && len(down) > 0:
			w.host.mu.Lock()
			pick(w.random, down).at.account.down = unavailable
			w.host.mu.Unlock()
			w.configureEndpoints()()
			done := w.syncBeside()
			w.elapse(secondLook)
			defer func() { <-done }()
		}
		if killed {
			w.kill()
		} else {
			w.stop()
		}
		w.shift(shift)
		w.heal()
		w.start()
	}
}

// stop ends the program in good order.
func (w *history) stop() {
	w.running.Lock()
	defer w.running.Unlock()
	if !w.killed {
		w.p.stop()
		w.killed = true
	}
}

// shift moves the times in the database of a program that does not run.
func (w *history) shift(by time.Duration) {
	w.t.Helper()
	w.say("  the times of the database are moved by %v", by)
	db := support.OpenSQLite(w.t, w.db, "_busy_timeout=5000")
	defer db.Close()
	for _, statement := range []string{
		`UPDATE names SET due = due + ?1 WHERE due > 1000`,
		`UPDATE places SET look_at = look_at + ?1 WHERE look_at > 0`,
		`UPDATE pass SET requested_at = requested_at + ?1 WHERE requested_at > 0`,
	} {
		if _, err := db.Exec(statement, by.Milliseconds()); err != nil {
			w.fail("%s: %v", statement, err)
		}
	}
}

// count gives the number that a query tells.
func (w *history) count(query string, args ...any) (n int) {
	w.t.Helper()
	db := support.OpenSQLite(w.t, w.db, "mode=ro&_busy_timeout=5000")
	defer db.Close()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		w.fail("%s: %v", strings.TrimSpace(query), err)
	}
	return n
}
