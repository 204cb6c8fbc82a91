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

	mu    sync.Mutex          // held for no line that is written
	pass  int64               // the number of the pass that runs, or of the last one
	zones map[Lane]*zoneNews  // of zones
	views map[string]*trouble // of zones that are not searched for orphans, or that no resolver finds
	names map[string]*trouble // by name and place
	full  bool                // more names are not as they should be than are remembered
	base  map[string]*damage  // faults of the database, by what it was asked for, and for which zone
	bad   int                 // names that were not as they should be when the last pass ended

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
		zones: map[Lane]*zoneNews{}, views: map[string]*trouble{}, names: map[string]*trouble{}, base: map[string]*damage{},
	}
}

// tell logs a line. The caller holds the lock, so lines are in the order of what they tell.
func (n *news) tell(level slog.Level, message string, attributes ...any) {
	n.journal.add(level, message, attributes...)
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
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	key := "search " + strings.Join([]string{z.Account.Provider, z.Account.Endpoint, z.name()}, " ")
	told := n.views[key]
	about := []any{"zone", z.name(), "provider", z.Account.Provider}
	if err == nil {
		if delete(n.views, key); told != nil {
			n.tell(slog.LevelInfo, "zone is searched for orphans again", append(about, "code", told.code)...)
		}
		return
	}
	f := Describe(err, z.Account)
	if told != nil && told.code == reason(f) {
		told.pass = n.pass
		return
	}
	n.views[key] = &trouble{code: reason(f), since: n.now(), pass: n.pass}
	about = append(about, "code", f.Code, "detail", f.Detail)
	if panicked, ok := errors.AsType[*tasks.Panic](err); ok {
		about = append(about, "stack", string(panicked.Stack))
	}
	n.tell(slog.LevelWarn, "zone is not searched for orphans", about...)
}

// outcomes tells what became of some records. Many that have begun to fail together
// for one reason, or are well again together, are one line.
func (n *news) outcomes(all []Outcome) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	told := map[string][]Outcome{}
	for _, o := range all {
		n.reach(o)
		if o.was = ""; !n.isNew(&o) {
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
			n.tell(first.level(), "records", "names", len(same), "first", first.Name, "provider", first.Provider,
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
	n.tell(o.level(), "record", "name", o.Name, "provider", o.Provider, "action", o.Action,
		"code", o.Fault.Code, "was", o.was, "detail", o.Fault.Detail, "key", o.Fault.Key, "attempts", o.Attempts)
}

// isNew reports whether an outcome is to be told, and notes in it what was wrong.
func (n *news) isNew(o *Outcome) bool {
	told := n.names[o.key()]
	switch {
	case o.Action == "":
		return false
	case o.zoneDown:
		if told != nil {
			told.pass = n.pass
		}
		return false
	case o.Fault.Code != "" && o.Fault.Code != CodeZoneUnreachable: // which is said for all zones
		return n.remember(*o, told)
	case told != nil:
		o.was = told.code
		delete(n.names, o.key())
		return true
	}
	return o.changed()
}

// remember notes that a record is not as it should be, and reports whether that is
// to be told: it is new, or there is another reason, or something was changed.
func (n *news) remember(o Outcome, told *trouble) bool {
	switch {
	case told != nil && told.code == o.Fault.Code:
		told.pass = n.pass
		return o.changed()
	case told == nil && len(n.names) >= toldNames:
		if !n.full {
			n.tell(slog.LevelWarn, "more names are not as they should be than are told one by one", "names", toldNames)
		}
		n.full = true
		return o.changed()
	}
	n.names[o.key()] = &trouble{code: o.Fault.Code, since: n.now(), pass: n.pass}
	return true
}

// passBegins takes the number of a pass.
func (n *news) passBegins(number int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass = number
}

// passEnds tells of a pass that somebody asked for, or that has found another number of
// names that are not as they should be. What it and the one before have not met
// any more, such as a name that was released, is forgotten.
func (n *news) passEnds(r Report) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	forget := func(_ string, t *trouble) bool { return t.pass < n.pass-1 }
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
		n.tell(level, "synchronised", "trigger", r.Trigger, "names", r.Names, "failed", r.Bad, "duration", r.FinishedAt.Sub(r.StartedAt))
	}
	n.bad = r.Bad
}

// database tells that the database fails at something that a zone, or nobody, waits
// for, with another reason again, and notes when it does no more.
func (n *news) database(what string, zone Lane, err error) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.base[what+string(zone)]
	switch {
	case err != nil && (told == nil || told.fault != err.Error()):
		n.base[what+string(zone)] = &damage{what: what, fault: err.Error(), since: n.now()}
		n.tell(slog.LevelError, "the database fails", "what", what, "error", err.Error())
	case err != nil:
		told.well = time.Time{}
	case told != nil && told.well.IsZero():
		told.well = n.now()
	}
}

// calmed tells that the database does not fail any more, when that is so for a while,
// and gives the time to ask again, zero for none.
func (n *news) calmed() (next time.Time) {
	defer n.journal.wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(n.base)) {
		told := n.base[key]
		switch at := told.well.Add(calm); {
		case told.well.IsZero():
		case n.now().Before(at):
			next = soonest(next, at)
		default:
			delete(n.base, key)
			n.tell(slog.LevelInfo, "the database is well again", "what", told.what, "after", told.well.Sub(told.since).Round(time.Second))
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

// changed reports whether something was written.
func (o Outcome) changed() bool {
	return o.Action == ActionCreate || o.Action == ActionUpdate || o.Action == ActionDelete
}

// key tells the outcome from others at its name.
func (o Outcome) key() string { return o.Name + " " + o.Network + " " + o.at }
