package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"meshddns/test/support"
)

// Steps about providers that fail, hang or answer late while something changes.

// secondLook is that of a program built with the tag quick, or of the one that is taken instead.
var secondLook = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(lookName)); err == nil {
		return d
	}
	return 200 * time.Millisecond
}()

// firm is a name whose value stands at the one place where it is wanted.
type firm struct {
	name   string
	at     spot
	value  string
	usage  modelUsage // that has the name; without an id it is the configuration's
	domain string
	credentials
	unmarked bool // it has records without a mark
}

// lane is what the program works off by itself, apart from other lanes.
func (f firm) lane() string { return fmt.Sprint(f.domain, " ", f.credentials) }

// firms gives the names that are as wanted, but for those of the built-in server, in
// their order.
func (w *history) firms() (all []firm) {
	wishes := w.model.wishes(w.host.owner)
	ours := w.scan(w.mine)
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		wish := wishes[name]
		o, single := wish.only()
		at, reachable := w.locate(o, name)
		stands := slices.ContainsFunc(ours, func(f found) bool {
			return f.account == at.account && f.zone == at.zone && f.name == name && f.text == at.text
		})
		if !single || wish.bad || !reachable || at.account == nil || !stands || w.taken(at) {
			continue
		}
		f := firm{name: name, at: spot{at.account, at.zone, name}, value: o.value, domain: w.model.config.domain, credentials: o.credentials, unmarked: o.siblings != ""}
		for _, u := range w.model.usages {
			if wish.members[u.id] {
				f.usage, f.domain = u, w.model.services[u.service].domain
			}
		}
		all = append(all, f)
	}
	return all
}

// stage has names stand at two accounts, apart from each other, for steps that need
// such. It may come to less, where accounts are not what they were.
func (w *history) stage(manual bool) {
	w.t.Helper()
	var open []home
	for _, at := range w.homes {
		if at.account != nil && w.open(at.account) && at.account.zones["example.com"] != nil {
			open = append(open, at)
		}
	}
	if len(open) == 0 {
		return
	}
	first := pick(w.random, open)
	second := pick(w.random, open)
	for n := 0; second.account == first.account && n < 9; n++ {
		second = pick(w.random, open)
	}
	w.putAnother(func(c *modelConfig) {
		c.credentials, c.domain = w.keyOf(first), "example.com"
		if manual {
			c.mode = "manual"
		}
	})()
	w.putAt("s1", credentials{})
	w.putAt("s2", w.keyOf(second))
	w.furnish("s1")
	w.furnish("s2")
	w.strict = false
	w.rest("names at two accounts")
}

// firmUsage picks a firm name that a usage has, for which a step can be made. Where
// there is none yet the stage is set.
func (w *history) firmUsage(manual bool, fits func(f firm) bool) (f firm, found bool) {
	w.t.Helper()
	for range 2 {
		all := w.firmUsages(fits)
		if len(all) > 0 && (!manual || w.settled()) {
			return pick(w.random, all), true
		}
		w.stage(manual)
	}
	return f, false
}

// apart gives the firm names that are in other lanes than one.
func (w *history) apart(f firm) []firm {
	return slices.DeleteFunc(w.firms(), func(s firm) bool { return s.lane() == f.lane() || s.name == f.name })
}

// only gives the one place and value of a wish, where the contract leaves no choice.
func (w *wish) only() (o option, single bool) {
	if w.optional || w.perhaps || w.skipped || len(w.options) == 0 {
		return o, false
	}
	o = w.options[0]
	return o, !slices.ContainsFunc(w.options, func(p option) bool { return p != o })
}

// firmUsages are those of the firm names that a usage has, and that are as asked for.
func (w *history) firmUsages(wanted func(f firm) bool) []firm {
	return slices.DeleteFunc(w.firms(), func(f firm) bool { return f.usage.id == "" || !wanted(f) })
}

// settled reports whether nothing excuses that one pass is not enough.
func (w *history) settled() bool {
	return w.manual() && !w.leftNow() && !slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.releasing })
}

// sync asks for a pass, whatever comes of it, and starts the program again that was
// killed in it.
func (w *history) sync() answer {
	w.t.Helper()
	a, err := w.ask("POST", syncPath, "")
	if err != nil {
		w.revive()
	}
	w.remember()
	return a
}

// remember notes what stands within a step of several changes: it may stay where a
// further change cannot be made, as what stood before the step may.
func (w *history) remember() {
	for _, f := range slices.Concat(w.scan(w.mine), w.siblings()) {
		if !slices.Contains(w.before, f) {
			w.before = append(w.before, f)
		}
	}
}

// syncBeside asks for a pass while something else is done. An answer without a status
// is none.
func (w *history) syncBeside() <-chan answer {
	p, done := w.p, make(chan answer, 1)
	w.say("POST %s begins", syncPath)
	go func() {
		a, err := p.try("POST", syncPath, "")
		w.say("POST %s has ended: %d %v %s", syncPath, a.status, err, shortened(a.body))
		if err != nil {
			a = answer{}
		}
		done <- a
	}()
	return done
}

// demand wants everything as it must be after an answer to POST /sync: no further
// pass is made.
func (w *history) demand(a answer, what string) {
	w.t.Helper()
	if a.status == 0 {
		w.fail("POST /sync %s: no answer", what)
	}
	for _, wrong := range w.verdict(a) {
		w.fail("POST /sync %s is answered %d, and %s", what, a.status, wrong)
	}
}

// elapse lets a time pass, which is the event.
func (w *history) elapse(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
}

func (w *history) planned(faults ...fault) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.plan = faults
}

// bar makes calls to an account wait.
func (w *history) bar(a *account, catches func(c hostCall) bool) *barrier {
	b := &barrier{catches: catches, opened: make(chan struct{})}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	a.barrier = b
	return b
}

func (w *history) lift(a *account) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.say("  what waits goes on")
	close(a.barrier.opened)
	a.barrier = nil
}

// caught waits until more than some calls have come to a barrier. None may come.
func (w *history) caught(b *barrier, more int) bool {
	return support.Within(5*time.Second, func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return b.caught > more
	})
}

func (w *history) abandoned(b *barrier) int {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return b.abandoned
}

// givenUp returns how many calls at barriers the program has given up so far.
func (w *history) givenUp() int {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.givenUp
}

// waited reports whether a spot was written only after the program had given up a call at a
// barrier, since it had given up so many. The order tells it, not the time: a machine may be slow.
func (w *history) waited(since int, at spot) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.written[at] > since
}

// moveIntoOutage moves something to an account, or changes it there: the first write has
// an unknown outcome, and then the account fails for longer than two looks take. Perhaps
// it moves on before that ends.
func (w *history) moveIntoOutage() func() {
	holders := []string{""}
	for _, id := range slices.Sorted(maps.Keys(w.model.services)) {
		if w.inUse(id) {
			holders = append(holders, id)
		}
	}
	holder := pick(w.random, holders)
	from := w.model.config.credentials
	if v := w.model.services[holder]; v.provider != "" {
		from = v.credentials
	}
	var others []home
	for _, at := range w.homes {
		if at.account != nil && at.account != w.account(from) {
			others = append(others, at)
		}
	}
	to := w.keyOf(pick(w.random, others))
	onward := w.random.IntN(3)
	if w.account(from) != nil && w.random.IntN(2) == 0 { // it has a value there already
		to, onward = from, 2
	}
	return func() {
		w.outageAt(w.keyFor(to).account)
		w.putAt(holder, to)
		w.syncForLong()
		switch onward {
		case 1:
			w.putAt(holder, w.current(from))
			w.sync()
		case 2:
			w.putAt(holder, w.home())
			w.sync()
			w.elapse(2 * secondLook)
			w.sync()
		}
	}
}

// outageAt has the first write at an account come to an unknown outcome, and everything
// after it fail.
func (w *history) outageAt(a *account) {
	w.strict = false
	kind := pick(w.random, []faultKind{lostAnswer, cutAnswer, unreadable, lateBefore, lateAfter, killBefore, killAfter, killLate, killLater})
	w.planned(fault{kind: kind, write: true, at: a, down: true})
}

// syncForLong asks for passes for longer than two looks take.
func (w *history) syncForLong() {
	w.t.Helper()
	w.sync()
	for range 3 {
		w.elapse(2 * secondLook)
		w.sync()
	}
}

// moveZoneIntoOutage moves names into a zone that comes up within theirs: the first
// write there has an unknown outcome, and then the account fails for longer than two
// looks take. Perhaps the zone goes again.
func (w *history) moveZoneIntoOutage() func() {
	goes := w.random.IntN(3)
	return func() {
		f, found := w.firmUsage(false, func(f firm) bool { return f.at.account.zones[parent(f.name)] == nil })
		if !found {
			return
		}
		zone := parent(f.name)
		w.outageAt(f.at.account)
		w.host.mu.Lock()
		f.at.account.zones[zone] = map[string][]standing{}
		w.say("  %s has %s", f.at.account.name, zone)
		w.host.mu.Unlock()
		w.mutate(w.patch(f.usage.id))
		w.syncForLong()
		w.tally.add("zones that come up in an outage", 1)
		if goes == 0 {
			w.removeZone(f.at.account, zone)
			w.sync()
		}
	}
}

// parent gives the name without its first label.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

// stopAfterFailure stops or kills the program within a pass that has found a conflict
// and is not through. A client that asks for a pass then has to hear of it.
func (w *history) stopAfterFailure() func() {
	killed := w.random.IntN(2) == 0
	return func() {
		f, found := w.firmUsage(false, func(f firm) bool { return len(w.apart(f)) > 0 })
		if !found {
			return
		}
		s := pick(w.random, w.apart(f))
		w.strict = false
		w.serial++
		w.addForeign(f.at, fmt.Sprintf("v=mesh1 n=7 o=ba9876543210 tcp://192.0.2.7:%d", w.serial))
		b := w.bar(s.at.account, func(c hostCall) bool { return c.looks && c.at.name == s.name })
		done := w.syncBeside()
		inConflict := func() bool { return w.publication(f.usage.id).State == "conflict" }
		if !w.caught(b, 0) || !support.Within(5*time.Second, inConflict) {
			w.lift(s.at.account)
			<-done
			return
		}
		w.tally.add("stops in a pass after a failure", 1)
		if killed {
			w.kill()
			w.start()
		} else {
			w.restart()()
		}
		<-done
		w.caught(b, b.caught)
		done = w.syncBeside()
		w.elapse(50 * time.Millisecond)
		w.lift(s.at.account)
		if a := <-done; a.status == 200 {
			w.fail("after a stop within a pass POST /sync is 200, though %s is in conflict", f.name)
		}
	}
}

// syncDuringLook asks for a pass while a place is looked at once more by itself.
func (w *history) syncDuringLook() func() {
	if w.model.config.retries > 0 { // a further try would find what was written
		return nil
	}
	kind, change := pick(w.random, []faultKind{lostAnswer, unreadable}), w.random.IntN(3)
	return func() {
		f, found := w.firmUsage(true, func(firm) bool { return true })
		if !found {
			return
		}
		w.planned(fault{kind: kind, write: true, at: f.at.account})
		w.mutate(w.patch(f.usage.id))
		w.sync()
		b := w.bar(f.at.account, func(c hostCall) bool { return c.looks && c.at.name == f.name })
		if !w.caught(b, 0) { // the machine was slow, or nothing was written
			w.lift(f.at.account)
			w.strict = false
			return
		}
		w.tally.add("passes during a second look", 1)
		switch change {
		case 0:
			w.mutate(w.patch(f.usage.id))
		case 1:
			w.configureEndpoints()()
		}
		done := w.syncBeside()
		w.elapse(50 * time.Millisecond)
		w.lift(f.at.account)
		w.demand(<-done, "during a second look")
	}
}

// putDuringPass puts a service while a pass runs, and asks for one after that.
func (w *history) putDuringPass() func() {
	moves := w.random.IntN(2) == 0
	return func() {
		s, found := w.firmUsage(true, func(firm) bool { return true })
		if !found {
			return
		}
		id := w.someService()
		c := w.model.services[id].credentials
		if moves {
			c = w.home()
		}
		b := w.bar(s.at.account, func(c hostCall) bool { return c.looks && c.at.name == s.name })
		first := w.syncBeside()
		if !w.caught(b, 0) {
			w.lift(s.at.account)
			<-first
			return
		}
		w.tally.add("services put during a pass", 1)
		w.putAt(id, c)
		second := w.syncBeside()
		w.elapse(50 * time.Millisecond)
		w.lift(s.at.account)
		<-first
		w.demand(<-second, "after a service was put during a pass")
	}
}

// hangAccount has an account accept calls and answer none. What is at another is
// changed and released meanwhile, before the first call is given up.
func (w *history) hangAccount() func() {
	others := func(f firm) []firm {
		return slices.DeleteFunc(w.apart(f), func(s firm) bool { return s.at.account == f.at.account })
	}
	released := w.random.IntN(2) == 0
	return func() {
		f, found := w.firmUsage(false, func(f firm) bool { return len(others(f)) > 0 })
		if !found {
			return
		}
		x := pick(w.random, others(f)).at.account
		w.strict = false
		w.looked() // nothing of the name is at the other account any more
		b, since := w.bar(x, func(hostCall) bool { return true }), w.givenUp()
		if !released {
			w.mutate(w.patch(f.usage.id))
		}
		done := w.syncBeside()
		if !w.caught(b, 0) {
			w.lift(x)
			<-done
			return
		}
		w.tally.add("changes while an account hangs", 1)
		if released {
			since = w.givenUp()
			w.mutate(w.release(f.usage, false))
		} else {
			want := w.model.wishes(w.host.owner)[f.name].options[0].value
			support.Within(restLimit, func() bool { return w.standsAt(f.at, want) })
			if !w.standsAt(f.at, want) {
				w.fail("%s is not changed while %s hangs", f.at, x.name)
			}
		}
		if w.waited(since, f.at) {
			w.fail("%s has waited for %s, which hangs", f.at, x.name)
		}
		w.lift(x)
		<-done
	}
}

// standsAt reports whether a value stands at a spot.
func (w *history) standsAt(at spot, text string) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return slices.Contains(texts(w.host.values(at)), text)
}

// listing gives an account that tells whole zones, and has something of ours.
func (w *history) listing() *account {
	all := slices.DeleteFunc(w.firms(), func(f firm) bool { return !f.at.account.lists })
	if len(all) == 0 {
		return nil
	}
	return pick(w.random, all).at.account
}

// hangList has the lists of whole zones hang, which only the search for orphans asks
// for. A release does not wait for it, and the pass does not fail.
func (w *history) hangList() func() {
	if !w.openAll() {
		return nil
	}
	patient := w.random.IntN(4) == 0
	return func() {
		f, found := w.firmUsage(true, func(f firm) bool { return w.listing() != nil && !w.doubted(f.name) && !f.unmarked && !w.contested(f) })
		if !found {
			return
		}
		a := w.listing()
		b := w.bar(a, func(c hostCall) bool { return c.looks && c.at.name == "" })
		done := w.syncBeside()
		if !w.caught(b, 0) {
			w.lift(a)
			<-done
			return
		}
		w.tally.add("releases while a list hangs", 1)
		since := w.givenUp()
		w.mutate(w.release(f.usage, false))
		if w.waited(since, f.at) || slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.id == f.usage.id }) {
			w.fail("the release of %s has waited for a list of a zone of %s, which hangs", f.name, a.name)
		}
		if patient {
			support.Within(limit, func() bool { return w.abandoned(b) > 0 })
		}
		w.lift(a)
		w.demand(<-done, "while a list of a zone hangs")
	}
}

// contested reports whether another usage waits for a name: the running pass reports that conflict, although a release ends it.
func (w *history) contested(f firm) bool {
	return slices.ContainsFunc(w.model.usages, func(u modelUsage) bool { return u.id != f.usage.id && w.model.name(u) == f.name })
}

// doubted reports whether a write at a name has an unknown outcome: a release waits until it is known.
func (w *history) doubted(name string) bool {
	return w.count(`SELECT count(*) FROM places WHERE name = ? AND doubt <> ''`, name) > 0
}

// openAll reports whether every account opens.
func (w *history) openAll() bool {
	return !slices.ContainsFunc(w.host.accounts, func(a *account) bool { return !w.open(a) })
}

// failList has the lists of whole zones fail, which only the search for orphans asks
// for. The report says so, and nothing fails by it.
func (w *history) failList() func() {
	return func() {
		if _, found := w.firmUsage(true, func(firm) bool { return w.listing() != nil }); !found {
			return
		}
		a := w.listing()
		w.tally.add("lists of zones that fail", 1)
		w.host.mu.Lock()
		a.listsDown = true
		w.host.mu.Unlock()
		w.checks = append(w.checks, func(s *spotted, report syncReport) {
			told := slices.ContainsFunc(report.Records, func(r reported) bool {
				return r.Action == "skipped" && (a.zones[r.Zone] != nil || a.zones[r.Name] != nil) && r.Error != ""
			})
			if a.listsDown && !told {
				s.say("a list of a zone of %s has failed, and the report does not say so", a.name)
			}
		})
		w.demand(w.sync(), "while a list of a zone fails")
	}
}
