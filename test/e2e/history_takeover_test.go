package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"meshddns/test/support"
)

// A takeover: another machine goes on from a copy that lacks the last changes. In some histories the right to write is a term.

// termArgs writes the term file of the next start: the same term for the same database, a later one for a restored copy.
func (w *history) termArgs() []string {
	if !w.terms {
		return nil
	}
	file, stored := w.db+".term", 0
	if _, err := os.Stat(w.db); err == nil {
		stored = w.count(`SELECT term FROM appliance`)
	}
	if stored != w.term || w.term == 0 {
		w.term++
	}
	if stored == w.term {
		stored = 0
	}
	w.renewTerm(file, stored)
	return []string{"-term", file}
}

// keepTerm renews the term that the program has.
func (w *history) keepTerm() {
	if w.terms {
		w.renewTerm(w.db+".term", 0)
	}
}

// renewTerm writes a term that lasts for longer than a step.
func (w *history) renewTerm(file string, after int) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	support.Must(w.t, err)
	uptime, err := os.ReadFile("/proc/uptime")
	support.Must(w.t, err)
	var now float64
	fmt.Sscan(string(uptime), &now)
	support.WriteFile(w.t, file+".new", fmt.Sprintf(`{"term": %d, "after": %d, "asked": %f, "until": %f, "boot_id": %q}`,
		w.term, after, now, now+119, strings.TrimSpace(string(boot))))
	support.Must(w.t, os.Rename(file+".new", file))
}

// takeover publishes changes that the copy lacks, and goes on from the copy. A person adopts what may be ours without a mark, except what
// is another program's.
func (w *history) takeover() func() {
	changes, moves := 1+w.random.IntN(3), w.random.IntN(3) == 0
	return func() {
		w.strict = false
		w.backup()()
		for n := 0; n < changes && !w.dead(); n++ {
			name := pick(w.random, []string{"change endpoints", "change formats", "a lease is made or renewed", "reserve", "release", "several changes"})
			if do := w.choiceNamed(name).prepare(w); do != nil {
				do()
			}
			w.sync()
		}
		if moves {
			w.putAt("s1", w.home())
			w.sync()
		}
		w.goBack(func() {})
		w.adoptUnmarked()
		w.tally.add("takeovers", 1)
	}
}

// adoptUnmarked sweeps, forgets what is another program's, and adopts the rest. What no search can find the operator removes.
func (w *history) adoptUnmarked() {
	w.t.Helper()
	if a, err := w.ask("POST", syncPath+"?sweep=1", ""); err != nil || a.status != 200 && a.status != 500 {
		w.fail("sweep: %d %s %v", a.status, a.body, err)
	}
	var all []leftover
	w.get(leftoversPath, &all)
	offered := map[found]bool{}
	for _, l := range slices.DeleteFunc(all, func(l leftover) bool { return !strings.Contains(l.Error, "恢复之前") }) {
		at := spot{w.accountOf(l), l.Zone, spotName(l.Name)}
		values := strings.Split(l.Value, ", ")
		if slices.ContainsFunc(values, func(text string) bool { return at.account == nil || w.foreignAt(at, text) }) {
			if a, err := w.ask("DELETE", leftoversPath+"/"+l.ID, ""); err != nil || a.status != 200 {
				w.fail("forget %s: %d %v", l.Name, a.status, err)
			}
			w.tally.add("values of others that are no leftovers of ours", 1)
			continue
		}
		for _, text := range values {
			offered[found{account: at.account, zone: at.zone, name: at.name, text: text}] = true
		}
	}
	for _, f := range w.siblings() {
		if f.account == nil || w.saved.standing[f.String()] || offered[f] {
			continue
		}
		if w.promised(f) {
			w.fail("%s was published after the copy, and is not offered", f)
		}
		w.host.mu.Lock()
		w.host.remove(spot{f.account, f.zone, f.name}, f.text)
		w.host.mu.Unlock()
		w.say("  the operator removes %s", f)
	}
	if a, err := w.ask("POST", "/api/v1/ddns/adopt", fmt.Sprintf(`{"owner":%q,"unmarked":true}`, w.host.owner)); err != nil || a.status != 200 {
		w.fail("adopt: %d %s %v", a.status, a.body, err)
	}
	w.tally.add("values without a mark that are adopted", len(offered))
}

// promised says that a value without a mark has to be offered: at a name where a usage wants one, and its value with the mark stands.
func (w *history) promised(f found) bool {
	return w.open(f.account) && !w.shadowed(f.account, f.zone, f.name) && len(w.foreign[spot{f.account, f.zone, f.name}]) == 0 &&
		slices.ContainsFunc(w.model.usages, func(u modelUsage) bool {
			name := w.model.name(u)
			wanted := w.model.wishes(w.host.owner)[name]
			o, single := wanted.only()
			at, reachable := w.locate(o, name)
			return single && reachable && at.account == f.account && at.zone == f.zone && !w.taken(at) && w.standing(at) &&
				w.wantedSiblings(map[string]*wish{name: wanted})[f.name] != nil
		})
}
