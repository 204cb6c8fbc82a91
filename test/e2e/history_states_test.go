package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// What is said of usages: it follows from what is wanted and what stands.

// publication gives what a usage says of its value.
func (w *history) publication(id string) publication {
	w.t.Helper()
	var u struct{ Publish publication }
	w.get(usagesPath+"/"+id, &u)
	return u.Publish
}

// checkStates compares what is said of every usage with what stands, and the metrics
// with that.
func (w *history) checkStates() {
	w.t.Helper()
	var report syncReport
	w.get(syncPath, &report)
	w.unseen = map[string]bool{}
	for _, r := range report.Records {
		name := spotName(r.Name)
		w.unseen[name] = w.unseen[name] || r.Action == "failed"
	}
	if wrong := w.wrongStates(w.said); wrong != "" {
		w.fail("at rest: %s", wrong)
	}
	w.until("the metrics agree with the usages", w.wrongMetrics)
	w.tally.add("states compared", len(w.model.usages))
}

// said says what is wrong with the state of a usage whose value stands, or does not.
func (w *history) said(f found, stands bool, p publication) string {
	switch {
	case stands && p.State == "failed" && w.unseen[f.name]: // the pass could not look there
	case stands && p.State == "pending" && w.shownOld(f):
	case stands != (p.State == "published"):
		return fmt.Sprintf("the usage is %q (%s), and that %s stands is: %s", p.State, p.Error, f, yes(stands))
	case stands && p.Value != f.text:
		return fmt.Sprintf("the usage says %q, and %s stands", p.Value, f)
	}
	return ""
}

// wrongStates asks for every usage of which the contract says one state.
func (w *history) wrongStates(judge func(f found, stands bool, p publication) string) string {
	w.t.Helper()
	wishes := w.model.wishes(w.host.owner)
	for _, u := range w.model.usages {
		name := w.model.name(u)
		wish := wishes[name]
		if u.releasing || w.model.target(w.model.services[u.service]).provider == "" {
			continue
		}
		p := w.publication(u.id)
		if !wish.members[u.id] {
			if p.State != "conflict" && !wish.optional {
				return fmt.Sprintf("%s is another usage's, and %s says that it is %s", name, u.id, p.State)
			}
			continue
		}
		o, single := wish.only()
		if !single {
			continue
		}
		at, reachable := w.locate(o, name)
		switch stands := w.standing(at); {
		case !reachable || w.taken(at):
			if p.State == "published" && !w.standsAnywhere(name, o.value) {
				return fmt.Sprintf("%s is said to be published, and %q stands nowhere", name, o.value)
			}
		default:
			if wrong := judge(at, stands, p); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// standing reports whether a value stands where it was found.
func (w *history) standing(at found) bool {
	if at.account != nil {
		return w.standsAt(spot{at.account, at.zone, at.name}, at.text)
	}
	return slices.ContainsFunc(w.builtin(), func(f found) bool { return f.name == at.name && f.text == at.text })
}

func (w *history) standsAnywhere(name, text string) bool {
	return slices.ContainsFunc(w.scan(w.mine), func(f found) bool { return f.name == name && f.text == text })
}

// wrongMetrics compares the number of usages, and of the configuration's own record, whose
// value is said to be published with that of those where it must be, and where it may be.
func (w *history) wrongMetrics() string {
	w.t.Helper()
	least, most := 0, 0
	wishes := w.model.wishes(w.host.owner)
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		all, holders := w.counted(name, wishes[name])
		o, single := wishes[name].only()
		at, reachable := w.locate(o, name)
		switch {
		case !single || !reachable || w.taken(at):
			most += all
		case w.standing(at):
			most += holders
			if !w.unseen[name] {
				least += holders
			}
		}
	}
	var said int
	page := w.read("/metrics").body
	for _, m := range stateFigure.FindAllStringSubmatch(page, -1) {
		if m[1] == "published" {
			said, _ = strconv.Atoi(m[2])
		}
	}
	if w.many != nil {
		most += len(w.many.usages)
		if w.open(w.many.account) {
			least += len(w.many.usages)
		}
	}
	if said < least || said > most {
		return fmt.Sprintf("the metrics say that %d values are published, want %d to %d", said, least, most)
	}
	return ""
}

// counted gives how many usages, and the configuration's own record, want a name, and how many of
// them have it.
func (w *history) counted(name string, wish *wish) (all, holders int) {
	if w.model.config.name() == name {
		all++
		if wish.network == "" {
			holders++
		}
	}
	for _, u := range w.model.usages {
		if !u.releasing && w.model.name(u) == name {
			all++
			if wish.members[u.id] {
				holders++
			}
		}
	}
	return all, holders
}

// stateAtOnce changes what is wanted in mode manual, and asks before anything is done. A change
// of a usage is in its state at once, one of a service or of the configuration soon.
func (w *history) stateAtOnce() func() {
	choice := w.random.IntN(4)
	return func() {
		f, ok := w.firmUsage(true, func(firm) bool { return true })
		if !ok {
			return
		}
		before := w.scan(w.mine)
		switch choice {
		case 0:
			w.mutate(w.patch(f.usage.id))
		case 1:
			w.configureEndpoints()()
		case 2:
			w.putAt(f.usage.service, w.model.services[f.usage.service].credentials)
		case 3:
			w.configureAccount()()
		}
		w.tally.add("states at once", 1)
		judge := func(at found, stands bool, p publication) string {
			old := slices.IndexFunc(before, func(b found) bool { return b.name == at.name && b.network == at.network })
			switch moved := old >= 0 && (before[old].account != at.account || before[old].zone != at.zone); {
			case stands && moved: // it stands there by chance
				return ""
			case stands:
				return w.said(at, stands, p)
			case p.State != "pending":
				return fmt.Sprintf("%s is wanted since a moment, and the usage is %q", at, p.State)
			case old >= 0 && p.Value != before[old].text:
				return fmt.Sprintf("%s is wanted since a moment, and the usage says that %q stands, not %s", at, p.Value, before[old])
			}
			return ""
		}
		wrong := func() string { return w.wrongStates(judge) }
		if now := wrong(); now != "" && choice == 0 {
			w.fail("at once: %s", now)
		}
		w.until("the states are those of what is wanted now", wrong)
		w.until("the metrics agree with what is wanted now", w.wrongMetrics)
	}
}
