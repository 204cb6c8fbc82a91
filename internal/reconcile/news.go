package reconcile

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/tasks"
)

// news tells the log what changes, and not what stays as it is: that a zone is down,
// that a name is not as it should be, and that either is well again. What it has
// told it forgets with the program, and then tells what is wrong once more.
type news struct {
	journal journal
	now     func() time.Time

	mu    sync.Mutex         // held for no line that is written
	pass  int64              // the number of the pass that runs, or of the last one
	zones map[Lane]*zoneNews // of zones
	views map[string]trouble // of zones that are not searched for orphans, or that no resolver finds
	names map[string]trouble // by name and place
	full  bool               // more names are not as they should be than are remembered
	base  map[string]*damage // faults of the database, by what it was asked for, and for which zone
	bad   int                // names that were not as they should be when the last pass ended

	crowds map[string]*crowd // by zone
}

// trouble is what was told.
type trouble struct {
	code  string
	since time.Time
	pass  int64 // that saw it last
}

// damage is a fault of the database that was told.
type damage struct {
	what, fault string
	since       time.Time
	well        time.Time // since when nothing has failed; zero: it fails
}

const (
	// calm is how long the database works before that is told: on a full disk what is
	// small is still written, and what asks for more room is not.
	calm = 30 * time.Second
	// toldNames bounds the names whose trouble is remembered, with some 200 octets each.
	toldNames = 10_000
	// toldApart is how many names of one batch with the same trouble have a line each.
	toldApart = 3
)

func newNews(log *slog.Logger, now func() time.Time) *news {
	return &news{
		journal: journal{log: log}, now: now,
		zones: map[Lane]*zoneNews{}, views: map[string]trouble{}, names: map[string]trouble{}, base: map[string]*damage{},
	}
}

// lock takes the lock, under which lines are added in the order of what they tell. The result
// gives it back, and waits until they are written.
func (n *news) lock() (unlock func()) {
	n.mu.Lock()
	return func() {
		n.mu.Unlock()
		n.journal.wait()
	}
}

// note remembers what is wrong with something, "" for nothing, and reports whether that is news, and
// what was told before. The caller holds the lock.
func (n *news) note(all map[string]trouble, key, code string) (before trouble, isNew bool) {
	before, told := all[key]
	switch {
	case before.code == code:
		if told {
			all[key] = trouble{code, before.since, n.pass}
		}
		return before, false
	case code == "":
		delete(all, key)
	default:
		all[key] = trouble{code, n.now(), n.pass}
	}
	return before, true
}

// reason is what makes two faults of a zone one: a server that is overloaded is now
// slow and now refuses.
func reason(f Fault) string {
	if f.Code == string(provider.Network) {
		return string(provider.Temporary)
	}
	return f.Code
}

// zoneSearched tells that a zone was not searched for orphans, and why, or that it is again.
func (n *news) zoneSearched(z Zone, err error) {
	defer n.lock()()
	var f Fault
	if err != nil {
		f = Describe(err, z.Account)
	}
	before, isNew := n.note(n.views, "search "+strings.Join([]string{z.Account.Provider, z.Account.Endpoint, z.name()}, " "), reason(f))
	about := []any{"zone", z.name(), "provider", z.Account.Provider}
	switch {
	case !isNew:
	case err == nil:
		n.journal.add(slog.LevelInfo, "zone is searched for orphans again", append(about, "code", before.code)...)
	default:
		about = append(about, "code", f.Code, "detail", f.Detail)
		if panicked, ok := errors.AsType[*tasks.Panic](err); ok {
			about = append(about, "stack", string(panicked.Stack))
		}
		n.journal.add(slog.LevelWarn, "zone is not searched for orphans", about...)
	}
}

// reach tells that no resolver finds the zone of a record, or that resolvers do again: once for the zone,
// because it is so for all its records.
func (n *news) reach(o Outcome) {
	found := o.Fault.Code == "" && (o.writes() || o.Action == ActionUnchanged)
	if o.Zone == "" || !found && o.Fault.Code != CodeZoneUnreachable {
		return
	}
	before, isNew := n.note(n.views, "reach "+o.Provider+" "+o.Zone, o.Fault.Code)
	about := []any{"zone", o.Zone, "provider", o.Provider, "code", CodeZoneUnreachable}
	switch {
	case !isNew:
	case found:
		n.journal.add(slog.LevelInfo, "resolvers find the zone again", append(about, "after", n.now().Sub(before.since).Round(time.Second))...)
	default:
		n.journal.add(slog.LevelWarn, "no resolver finds the zone", append(about, "detail", o.Fault.Detail)...)
	}
}

// outcomes tells what became of some records. Many that have begun to fail together
// for one reason, or are well again together, are one line.
func (n *news) outcomes(all []Outcome) {
	defer n.lock()()
	told := map[string][]Outcome{}
	for _, o := range all {
		n.reach(o)
		if !n.isNew(&o) {
			continue
		}
		if o.changed() {
			n.changes(o)
			continue
		}
		kind := o.Action + " " + o.Fault.Code + " " + o.was
		told[kind] = append(told[kind], o)
	}
	for _, kind := range slices.Sorted(maps.Keys(told)) {
		same := told[kind]
		if first := same[0]; len(same) > toldApart {
			n.journal.add(first.level(), "records", "names", len(same), "first", first.Name, "provider", first.Provider,
				"action", first.Action, "code", first.Fault.Code, "was", first.was, "detail", first.Fault.Detail, "key", first.Fault.Key)
			continue
		}
		for _, o := range same {
			n.record(o)
		}
	}
}

// record tells of one record.
func (n *news) record(o Outcome) {
	n.journal.add(o.level(), "record", "name", o.Name, "provider", o.Provider, "action", o.Action,
		"code", o.Fault.Code, "was", o.was, "detail", o.Fault.Detail, "key", o.Fault.Key, "attempts", o.Attempts)
}

// isNew reports whether an outcome is to be told, and notes in it what was wrong: a record is not as it
// should be, or for another reason, or is well again, or something was changed.
func (n *news) isNew(o *Outcome) bool {
	told, known := n.names[o.key()]
	code := o.Fault.Code
	if code == CodeZoneUnreachable { // which is said of the zone
		code = ""
	}
	switch {
	case o.Action == "":
		return false
	case o.zoneDown:
		n.note(n.names, o.key(), told.code)
		return false
	case code != "" && !known && len(n.names) >= toldNames:
		if !n.full {
			n.journal.add(slog.LevelWarn, "more names are not as they should be than are told one by one", "names", toldNames)
		}
		n.full = true
		return o.changed()
	}
	_, isNew := n.note(n.names, o.key(), code)
	if code == "" {
		o.was = told.code
	}
	return isNew || o.changed()
}

// passBegins takes the number of a pass.
func (n *news) passBegins(number int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass = number
}

// passEnds tells of a pass that was asked for, or that has found another number of
// names that are not as they should be. What it and the one before have not met
// any more, such as a name that was released, is forgotten.
func (n *news) passEnds(r Report) {
	defer n.lock()()
	forget := func(_ string, t trouble) bool { return t.pass < n.pass-1 }
	maps.DeleteFunc(n.zones, func(_ Lane, z *zoneNews) bool { return z.pass < n.pass-1 })
	maps.DeleteFunc(n.views, forget)
	maps.DeleteFunc(n.names, forget)
	n.full = n.full && len(n.names) >= toldNames
	n.crowdsEnd()
	if r.Trigger != TriggerInterval || r.Bad != n.bad {
		level := slog.LevelInfo
		if r.Bad > 0 {
			level = slog.LevelWarn
		}
		n.journal.add(level, "synchronised", "trigger", r.Trigger, "names", r.Names, "failed", r.Bad, "duration", r.FinishedAt.Sub(r.StartedAt))
	}
	n.bad = r.Bad
}

// database tells that the database fails at something that a zone waits for, or the engine,
// with another reason again, and notes when it does no more.
func (n *news) database(what string, zone Lane, err error) {
	defer n.lock()()
	told := n.base[what+string(zone)]
	switch {
	case err != nil && (told == nil || told.fault != err.Error()):
		n.base[what+string(zone)] = &damage{what: what, fault: err.Error(), since: n.now()}
		n.journal.add(slog.LevelError, "the database fails", "what", what, "error", err.Error())
	case err != nil:
		told.well = time.Time{}
	case told != nil && told.well.IsZero():
		told.well = n.now()
	}
}

// calmed tells that the database does not fail any more, when that is so for a while,
// and gives the time to ask again, zero for none.
func (n *news) calmed() (next time.Time) {
	defer n.lock()()
	for _, key := range slices.Sorted(maps.Keys(n.base)) {
		told := n.base[key]
		switch at := told.well.Add(calm); {
		case told.well.IsZero():
		case n.now().Before(at):
			next = soonest(next, at)
		default:
			delete(n.base, key)
			n.journal.add(slog.LevelInfo, "the database is well again", "what", told.what, "after", told.well.Sub(told.since).Round(time.Second))
		}
	}
	return next
}

// level is that of an outcome in the log: what needs a person is a warning. That no resolver finds a
// zone is one warning for the zone.
func (o Outcome) level() slog.Level {
	if o.bad() || o.warning() && o.Fault.Code != CodeZoneUnreachable || o.Action == ActionLeftover {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// key tells the outcome from others at its name.
func (o Outcome) key() string { return o.Name + " " + o.Network + " " + o.at }
