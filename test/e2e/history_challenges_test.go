package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"meshddns/test/support"
)

// Steps about the challenges of ACME authorities, which nodes put. Values of others stand beside them.

var challengePaths = []string{"/update", "/present", "/cleanup"}

const challengeLabel = "_acme-challenge."

func isChallenge(name string) bool { return strings.HasPrefix(name, challengeLabel) }

// challengeName gives the owner name of the challenges of a usage.
func (m model) challengeName(u modelUsage) string { return challengeLabel + below(m.name(u)) }

// challenges gives those of the usages of one network at a name, a line each. Each usage that has an account counts.
func (m model) challenges(mine []modelUsage) string {
	var lines []string
	for _, u := range mine {
		if m.target(m.services[u.service]).provider == "" || m.barred(u) {
			continue
		}
		for _, l := range u.leases {
			for _, value := range l.challenges {
				lines = append(lines, m.challengeName(u)+"\t"+value)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// challenged gives a lease other challenges in a model.
func (m *model) challenged(usage, slot string, change func(values []string) []string) {
	m.lease(usage, func(all []modelLease) []modelLease {
		if at := slotOf(all, slot); at >= 0 {
			all[at].challenges = change(slices.Clone(all[at].challenges))
		}
		return all
	})
}

// with adds a value, unless it is there.
func with(values []string, value string) []string {
	if slices.Contains(values, value) {
		return values
	}
	return append(slices.Clone(values), value)
}

// put gives a lease a challenge in a model. Where there is no room, the eldest by /update goes that has two newer ones of its
// lease; full reports that there is none. updated says that this one is by /update.
func (m *model) put(u modelUsage, l modelLease, value string, updated bool, serial int) (full bool) {
	var own, total int
	there := false
	for _, o := range u.leases {
		if total += len(o.challenges); o.slot == l.slot {
			own, there = len(o.challenges), slices.Contains(o.challenges, value)
		}
	}
	if crowded := own >= 8; !there && (crowded || total >= 16) {
		var slot, gone string
		first := serial
		for _, o := range u.leases {
			puts := slices.DeleteFunc(slices.Clone(o.challenges), func(v string) bool { return m.updates[o.id+v] == 0 })
			if own := o.slot == l.slot; len(puts) > 2 || own && updated && len(puts) == 2 {
				if at := m.updates[o.id+puts[0]]; at < first && (own || !crowded) {
					slot, gone, first = o.slot, puts[0], at
				}
			}
		}
		if gone == "" {
			return true
		}
		m.challenged(u.id, slot, func(values []string) []string {
			return slices.DeleteFunc(values, func(v string) bool { return v == gone })
		})
	}
	m.challenged(u.id, l.slot, func(values []string) []string { return with(values, value) })
	switch {
	case !updated:
		delete(m.updates, l.id+value)
	case !there:
		m.updates[l.id+value] = serial
	}
	return false
}

// freshChallenge makes a value that nothing has.
func (w *history) freshChallenge() string {
	w.serial++
	hash := sha256.Sum256(fmt.Appendf(nil, "challenge %d", w.serial))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// automatic has the configuration work by itself: else a challenge is refused.
func (w *history) automatic() {
	if w.manual() {
		w.putAnother(func(c *modelConfig) { c.mode, c.retries = pick(w.random, []string{"auto", "auto", "upsert-only"}), 1 })()
	}
}

// mayPut reports whether nothing but a value of others hinders a challenge of a usage.
func (w *history) mayPut(u modelUsage) bool {
	wish := w.model.wishes(w.host.owner)[w.model.name(u)]
	if w.dead() || u.releasing || w.manual() || wish == nil || wish.optional || wish.perhaps || wish.skipped || !wish.members[u.id] || w.model.barred(u) ||
		w.model.target(w.model.services[u.service]).provider == "" {
		return false
	}
	return !slices.ContainsFunc(wish.options, func(o option) bool {
		at, reachable := w.locate(o, wish.name)
		return !reachable || w.taken(at) || at.account != nil && (!w.open(at.account) || o.provider == "rfc2163")
	})
}

// usage gives a usage of the model as it is now.
func (w *history) usage(id string) (modelUsage, bool) {
	at := slices.IndexFunc(w.model.usages, func(u modelUsage) bool { return u.id == id })
	if at < 0 {
		return modelUsage{}, false
	}
	return w.model.usages[at], true
}

// holderOf gives a lease of a usage whose token may put challenges, made if there is room.
func (w *history) holderOf(usage string) (l modelLease, ok bool) {
	slot := pick(w.random, []string{"n1", "n2", "n3"})
	for range 4 {
		u, found := w.usage(usage)
		if !found || u.releasing || w.dead() {
			return l, false
		}
		at := slotOf(u.leases, slot)
		if at >= 0 && u.leases[at].token != "" && u.leases[at].acme {
			return u.leases[at], true
		}
		if at >= 0 {
			slot += "x"
			continue
		}
		w.mutate(w.lend(usage, modelLease{slot: slot, peer: pick(w.random, peerIDs)}))
	}
	return l, false
}

// challenge asks for a challenge by one of the two protocols, and compares the answer with what the contract has for it.
func (w *history) challenge(usage string, l modelLease, value string) (status int) {
	w.t.Helper()
	u, found := w.usage(usage)
	if !found || !w.mayPut(u) {
		return 0
	}
	name := w.model.challengeName(u)
	path, body := "/update", jsonText(map[string]string{"subdomain": "any", "txt": value})
	updated := w.random.IntN(2) > 0
	if !updated {
		path, body = "/present", jsonText(map[string]string{"fqdn": strings.ToUpper(name[:5]) + name[5:] + pick(w.random, []string{"", "."}), "value": value})
	}
	next := w.model.clone()
	w.serial++
	full := next.put(u, l, value, updated, w.serial)
	w.guard(next)
	a, err := w.ask("POST", path, body, pick(w.random, []string{"X-Api-Key", "Authorization"}), l.token)
	if err == nil && a.status == 401 { // the header that has a scheme
		a, err = w.ask("POST", path, body, "Authorization", "Bearer "+l.token)
	}
	if err != nil {
		w.revive()
		if stored := w.storedChallenges(l.id); slices.Contains(stored, value) {
			w.say("  which is stored")
			w.model = next
		}
		return 0
	}
	code := a.header.Get("X-Error-Code")
	blocked := slices.ContainsFunc(w.wantedSiblings(next.wishes(w.host.owner))[name].at, func(at siblingAt) bool {
		return at.account != nil && slices.Contains(w.foreign[spot{at.account, at.zone, name}], value)
	})
	switch {
	case full != (code == "acme_full"):
		w.fail("the usage is full: %t; %d %s", full, a.status, a.body)
	case a.status == 200 && !blocked:
		w.model = next
		w.challengeStands(name, value)
	case a.status == 504:
		w.model = next // it is kept
	case a.status == 409 && code == "acme_full":
	case a.status == 409 && code == "conflict" && blocked: // it may have taken the place of another one
		w.model = next
		w.model.challenged(usage, l.slot, func(values []string) []string {
			return slices.DeleteFunc(values, func(v string) bool { return v == value })
		})
	default:
		w.fail("a value of others is the challenge: %t; %d %s %s", blocked, a.status, code, a.body)
	}
	w.tally.add(fmt.Sprintf("challenges: %d %s", a.status, code), 1)
	return a.status
}

// challengeStands wants a value that was just answered with 200 at every account of its name.
func (w *history) challengeStands(name, value string) {
	w.t.Helper()
	standing := w.siblings()
	for _, at := range w.wantedSiblings(w.model.wishes(w.host.owner))[name].at {
		f := found{account: at.account, zone: at.zone, name: name, text: value}
		switch {
		case slices.Contains(standing, f):
		case w.cameLate(name):
			w.tally.add("challenges that an older write has taken away", 1)
		default:
			w.fail("200, and %s does not stand; there stand %v", f, standing)
		}
		if at.account == nil && at.reachable {
			if said := w.resolve(w.p.dns, name); !slices.Contains(said.values, value) {
				w.fail("200, and the built-in server answers %v for %s", said, name)
			}
		}
	}
	w.tally.add("challenges that stand at their 200", 1)
}

// storedChallenges reads those of a lease, the elder first.
func (w *history) storedChallenges(lease string) (values []string) {
	w.t.Helper()
	db := support.OpenSQLite(w.t, w.db, "mode=ro&_busy_timeout=5000")
	defer db.Close()
	rows, err := db.Query(`SELECT value FROM challenges WHERE lease = (SELECT seq FROM leases WHERE id = ?) ORDER BY seq`, lease)
	if err != nil {
		w.fail("%v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			w.fail("%v", err)
		}
		values = append(values, value)
	}
	return values
}

// checkChallenges wants each challenge that was acknowledged, and no other.
func (w *history) checkChallenges(s *spotted) {
	for _, u := range w.model.usages {
		for _, l := range u.leases {
			if stored := w.storedChallenges(l.id); !u.releasing && !slices.Equal(stored, l.challenges) {
				s.say("the lease %s of %s has the challenges %q, want %q", l.slot, w.model.name(u), stored, l.challenges)
			}
		}
	}
}

// putChallenges has a node put one to three values, and perhaps one of another lease.
func (w *history) putChallenges() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	times, after := 1+w.random.IntN(3), w.random.IntN(3)
	return func() {
		w.strict = false
		w.automatic()
		l, ok := w.holderOf(u.id)
		for n := 0; n < times && ok && !w.dead(); n++ {
			value := w.freshChallenge()
			for _, o := range w.leases(u.id) {
				if len(o.challenges) > 0 && w.random.IntN(6) == 0 {
					value = o.challenges[0]
				}
			}
			w.challenge(u.id, l, value)
		}
		w.afterChallenges(after)
	}
}

// throttleChallenge has a call after the write of a challenge be throttled. Then another one is put.
func (w *history) throttleChallenge() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	pass := w.random.IntN(3)
	return func() {
		w.strict = false
		w.automatic()
		if l, ok := w.holderOf(u.id); ok {
			w.planned(fault{kind: throttled, after: true, pass: pass})
			w.challenge(u.id, l, w.freshChallenge())
			w.planned()
			w.challenge(u.id, l, w.freshChallenge())
		}
	}
}

// afterChallenges perhaps has the configuration wait for orders again.
func (w *history) afterChallenges(choice int) {
	if choice == 0 && !w.dead() {
		w.putAnother(func(c *modelConfig) { c.mode = "manual" })()
	}
}

// somePut picks a lease that has a challenge.
func (w *history) somePut() (u modelUsage, l modelLease, found bool) {
	type put struct {
		u modelUsage
		l modelLease
	}
	var all []put
	for _, u := range w.model.usages {
		for _, l := range u.leases {
			if !u.releasing && len(l.challenges) > 0 && l.token != "" {
				all = append(all, put{u, l})
			}
		}
	}
	if len(all) == 0 {
		return u, l, false
	}
	chosen := pick(w.random, all)
	return chosen.u, chosen.l, true
}

// cleanup withdraws a value of a lease.
func (w *history) cleanup(u modelUsage, l modelLease, value string) mutation {
	return mutation{
		method: "POST", path: "/cleanup", body: jsonText(map[string]string{"fqdn": w.model.challengeName(u), "value": value}), statuses: []int{200},
		header: []string{"Authorization", "Bearer " + l.token},
		apply: func(m *model, _ answer) {
			m.challenged(u.id, l.slot, func(values []string) []string {
				return slices.DeleteFunc(values, func(v string) bool { return v == value })
			})
		},
		happened: func() (answer, bool) { return answer{}, !slices.Contains(w.storedChallenges(l.id), value) },
	}
}

// cleanChallenge withdraws a value, or asks for that of another lease or of others, which stays.
func (w *history) cleanChallenge() func() {
	u, l, found := w.somePut()
	if !found {
		return nil
	}
	value := pick(w.random, l.challenges)
	foreign := w.random.IntN(3) == 0
	return func() {
		if foreign {
			value = w.freshChallenge()
			for at, values := range w.foreign {
				if at.name == w.model.challengeName(u) && len(values) > 0 && len(values[0]) == 43 {
					value = values[0]
				}
			}
			for _, o := range u.leases {
				if o.slot != l.slot && len(o.challenges) > 0 && !slices.Contains(l.challenges, o.challenges[0]) {
					value = o.challenges[0]
				}
			}
		}
		w.mutate(w.cleanup(u, l, value))
	}
}

// refuseChallenges asks with wrong tokens, names and values. Nothing is stored.
func (w *history) refuseChallenges() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	manual := w.manual()
	return func() {
		w.strict = false
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		own, value := w.model.challengeName(u), w.freshChallenge()
		present := func(name, value string) string { return jsonText(map[string]string{"fqdn": name, "value": value}) }
		update := func(value string) string { return jsonText(map[string]string{"subdomain": "x", "txt": value}) }
		type refused struct {
			path, body, token, code string
			status                  int
		}
		all := []refused{
			{"/present", present(own, value), "wrong", "unauthorized", 401},
			{"/present", present("_acme-challenge.other.example.com.", value), l.token, "acme_name", 403},
			{"/cleanup", present(strings.TrimPrefix(own, challengeLabel), value), l.token, "acme_name", 403},
			{"/present", `{"domain":"a.example.com","token":"x","keyAuth":"y"}`, l.token, "acme_raw", 400},
			{"/present", present(own, value[:42]), l.token, "acme_value_invalid", 400},
			{"/update", update(value + "a"), l.token, "acme_value_invalid", 400},
			{"/update", update(value[:42] + "+"), l.token, "acme_value_invalid", 400},
		}
		for _, o := range w.leases(u.id) {
			if o.token != "" && !o.acme {
				all = append(all, refused{"/update", update(value), o.token, "not_permitted", 403})
			}
		}
		u, _ := w.usage(u.id)
		wish := w.model.wishes(w.host.owner)[w.model.name(u)]
		switch {
		case wish == nil || wish.optional || wish.skipped:
		case !manual && len(wish.members) > 0 && !wish.members[u.id]:
			all = append(all, refused{"/update", update(value), l.token, "conflict", 409})
		case !manual && w.model.barred(u):
			all = append(all, refused{"/update", update(value), l.token, "name_not_allowed", 403})
		case manual && wish.members[u.id] && !w.model.barred(u):
			all = append(all, refused{"/update", update(value), l.token, "paused", 409})
		}
		for _, r := range all {
			a, err := w.ask("POST", r.path, r.body, "Authorization", "Bearer "+r.token)
			if err != nil || a.status != r.status || a.header.Get("X-Error-Code") != r.code {
				w.fail("%s %s: %d %s %v, want %d %s", r.path, r.body, a.status, a.header.Get("X-Error-Code"), err, r.status, r.code)
			}
		}
	}
}

// challengeSpots gives where the challenges of a usage are or would be, at accounts.
func (w *history) challengeSpots(u modelUsage) (all []spot) {
	wish := w.model.wishes(w.host.owner)[w.model.name(u)]
	if wish == nil || !wish.members[u.id] || w.model.barred(u) {
		return nil
	}
	for _, o := range wish.options {
		if f, reachable := w.locate(o, wish.name); reachable && f.account != nil {
			all = append(all, spot{f.account, f.zone, w.model.challengeName(u)})
		}
	}
	return all
}

// foreignChallenge has another client put a value beside ours, and then changes or ends what is ours there.
func (w *history) foreignChallenge() func() {
	u, found := w.someUsage()
	spots := w.challengeSpots(u)
	if !found || len(spots) == 0 {
		return nil
	}
	at, text, before, next := pick(w.random, spots), w.freshChallenge(), w.random.IntN(2) == 0, w.random.IntN(5)
	if w.random.IntN(4) == 0 {
		text = w.foreignData(at.name)
	}
	return func() {
		w.strict = false
		w.automatic()
		if before {
			w.addForeign(at, text)
		}
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		w.challenge(u.id, l, w.freshChallenge())
		w.rest("a challenge beside a value of others")
		if !before {
			w.addForeign(at, text)
			w.challenge(u.id, l, w.freshChallenge())
		}
		if next == 0 {
			w.mutate(w.release(u, false))
		} else if u, found := w.usage(u.id); found && next < 3 {
			for _, o := range u.leases {
				for _, value := range o.challenges {
					if o.token != "" && !w.dead() {
						w.mutate(w.cleanup(u, o, value))
					}
				}
			}
		}
		w.tally.add("values of others beside challenges", 1)
	}
}

// equalChallenge has the value of others be the challenge. It is never ours, and other values stand beside it.
func (w *history) equalChallenge() func() {
	u, found := w.someUsage()
	spots := w.challengeSpots(u)
	if !found || len(spots) == 0 || len(w.model.adopted) > 0 && w.random.IntN(2) == 0 {
		return nil
	}
	at, value, first := pick(w.random, spots), w.freshChallenge(), w.random.IntN(2) == 0
	after := w.random.IntN(3)
	return func() {
		w.strict = false
		w.automatic()
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		if first {
			w.challenge(u.id, l, w.freshChallenge())
		}
		w.addForeign(at, value)
		w.equal = true
		if status := w.challenge(u.id, l, value); status == 409 {
			w.tally.add("challenges that are values of others", 1)
		}
		if l, ok = w.holderOf(u.id); ok {
			w.challenge(u.id, l, w.freshChallenge())
		}
		w.afterChallenges(after)
	}
}

// moveChallenges moves a service with challenges to another account, perhaps into an outage.
func (w *history) moveChallenges() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	to, outage := w.home(), w.random.IntN(3) == 0
	return func() {
		w.strict = false
		w.automatic()
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		w.challenge(u.id, l, w.freshChallenge())
		key := w.keyFor(to)
		if outage && key != nil {
			w.host.mu.Lock()
			key.account.down = unavailable
			w.host.mu.Unlock()
		}
		w.putAt(u.service, to)
		w.sync()
		w.heal()
		if !outage && !w.dead() {
			w.challenge(u.id, l, w.freshChallenge())
		}
		w.tally.add("challenges that move", 1)
	}
}

// killChallenge kills the program while a node waits: at any moment, or in an outage.
func (w *history) killChallenge() func() {
	u, found := w.someUsage()
	if !found {
		return nil
	}
	moment, outage, spots := time.Duration(w.random.IntN(30_000))*time.Microsecond, w.random.IntN(2) == 0, w.challengeSpots(u)
	return func() {
		w.strict = false
		w.automatic()
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		if outage && len(spots) > 0 {
			moment += time.Second
			w.host.mu.Lock()
			spots[0].account.down = unavailable
			w.host.mu.Unlock()
			if u, _ := w.usage(u.id); w.mayPut(u) {
				w.fail("an account is down, and the challenge may be put")
			}
		}
		timer := time.AfterFunc(moment, w.kill)
		value := w.freshChallenge()
		next := w.model.clone()
		u, _ = w.usage(u.id)
		w.serial++
		next.put(u, l, value, true, w.serial)
		w.guard(next)
		a, err := w.ask("POST", "/update", jsonText(map[string]string{"txt": value}), "Authorization", "Bearer "+l.token)
		timer.Stop()
		switch {
		case err != nil:
			w.revive()
		case a.status == 200:
			w.kill()
			w.revive()
		}
		stored := w.storedChallenges(l.id)
		if a.status == 200 && !slices.Contains(stored, value) {
			w.fail("200, and the challenge is not stored: %q", stored)
		}
		if slices.Contains(stored, value) {
			w.say("  which is stored")
			w.model = next
		}
		w.tally.add("kills while a challenge is put", 1)
	}
}

// staleChallenge has a provider show writes late: a 200 waits for the view, and the value stays ours.
func (w *history) staleChallenge() func() {
	u, found := w.someUsage()
	spots := w.challengeSpots(u)
	if !found || len(spots) == 0 {
		return nil
	}
	kind, cleans := pick(w.random, []faultKind{staleOnce, staleLater, lostAnswer, lateBefore, lateAfter}), w.random.IntN(2) == 0
	return func() {
		w.strict = false
		w.automatic()
		l, ok := w.holderOf(u.id)
		if !ok {
			return
		}
		w.rest("before a late view")
		w.planned(fault{kind: kind, write: true, at: spots[0].account}, fault{kind: staleOnce, write: true, at: spots[0].account})
		value := w.freshChallenge()
		w.challenge(u.id, l, value)
		if u, found := w.usage(u.id); found && cleans && !w.dead() {
			w.mutate(w.cleanup(u, l, value))
		}
		w.tally.add("late views of challenges", 1)
	}
}

// lapse puts challenges wherever it can, lets their hour pass while the program is stopped, and wants none of them
// left, and every value of others. It takes half a minute, so the short form leaves it out.
func (w *history) lapse() {
	if os.Getenv("MESHDDNS_HISTORIES") == "" {
		return
	}
	w.strict = false
	w.automatic()
	w.rest("before the time of challenges is over")
	for _, u := range slices.Clone(w.model.usages) {
		if l, ok := w.holderOf(u.id); ok && w.mayPut(u) {
			for _, at := range w.challengeSpots(u) {
				w.addForeign(at, w.freshChallenge())
			}
			w.challenge(u.id, l, w.freshChallenge())
		}
	}
	w.rest("challenges at the end")
	stored := w.count(`SELECT count(*) FROM challenges`)
	w.stop()
	w.host.mu.Lock()
	clear(w.host.guards)
	clear(w.host.resolved)
	w.host.mu.Unlock()
	db := support.OpenSQLite(w.t, w.db, "_busy_timeout=5000")
	for _, statement := range []string{
		`UPDATE challenges SET put_at = put_at - 3600000 WHERE seq % 2 = 0`, `UPDATE challenges SET put_at = put_at + 3600000 WHERE seq % 2 = 1`,
	} {
		if _, err := db.Exec(statement); err != nil {
			w.fail("%v", err)
		}
	}
	db.Close()
	w.start()
	support.Eventually(w.t, 2*limit, "the time of challenges is over", func() bool { return stored == 0 || w.count(`SELECT count(*) FROM challenges`) == 0 })
	for _, u := range w.model.usages {
		for _, l := range u.leases {
			w.model.challenged(u.id, l.slot, func([]string) []string { return nil })
		}
	}
	w.rest("the time of challenges is over")
	w.tally.add("challenges whose time was over", stored)
}
