package reconcile

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/provider"
)

// news logs changes only: a zone is down, a name has a fault, and either is well again. It
// remembers the logged faults in memory only, so after a restart it logs each fault once
// more.
type news struct {
	journal journal
	now     func() time.Time

	mu    sync.Mutex         // not held while a line is written
	pass  int64              // the number of the running pass, or of the last one
	zones map[Lane]*zoneNews // by the lane of the zone
	views map[string]trouble // of zones that are not searched for orphans, or that no resolver finds
	names map[string]trouble // of records, by Outcome.key
	full  bool               // more names have a fault than are remembered
	base  map[string]*damage // faults of the database, by operation and zone
	bad   int                // bad names of the last pass

	crowds map[string]*crowd // by zone
}

// trouble is a fault that was logged.
type trouble struct {
	code  string
	since time.Time
	pass  int64 // the last one that has seen it
}

// damage is a fault of the database that was logged.
type damage struct {
	what, fault string
	since       time.Time
	well        time.Time // of the first success since the fault; zero: none yet
}

const (
	// calm is how long the database has to work before the log says that it is well: on a
	// full disk small writes succeed, and only larger ones fail.
	calm = 30 * time.Second
	// toldNames bounds the names whose trouble is remembered. Each takes some 200 octets.
	toldNames = 10_000
	// toldApart bounds the names of one batch that have a line each for the same trouble.
	toldApart = 3
)

func newNews(log *slog.Logger, now func() time.Time) *news {
	return &news{
		journal: journal{log: log}, now: now,
		zones: map[Lane]*zoneNews{}, views: map[string]trouble{}, names: map[string]trouble{}, base: map[string]*damage{},
	}
}

// lock takes the lock, so that lines are added in the order of the events. unlock releases
// it and waits until the lines are written.
func (n *news) lock() (unlock func()) {
	n.mu.Lock()
	return func() {
		n.mu.Unlock()
		n.journal.wait()
	}
}

// note remembers the code of the fault of one key, "" for none. It returns the trouble
// before, and whether the code is new. The caller holds the lock.
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

// reason returns a code that is equal for faults of one cause: an overloaded server
// sometimes does not answer and sometimes refuses.
func reason(f Fault) string {
	if f.Code == string(provider.Network) {
		return string(provider.Temporary)
	}
	return f.Code
}

// zoneSearched logs that a zone was not searched for orphans, and why, or that it is searched again.
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
		if panicked, ok := errors.AsType[*daemon.Panic](err); ok {
			about = append(about, "stack", string(panicked.Stack))
		}
		n.journal.add(slog.LevelWarn, "zone is not searched for orphans", about...)
	}
}

// reach logs that no resolver finds the zone of a record, or that resolvers find it again.
// There is one line for the zone, because all its records with our mark have the same fault.
func (n *news) reach(o Outcome) {
	found := o.Fault.Code == "" && (o.writes() || o.Action == ActionUnchanged)
	if o.Zone == "" || o.Sibling != (Sibling{}) || !found && o.Fault.Code != CodeZoneUnreachable {
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

// outcomes logs the outcomes of some records. Many records that begin to fail for one
// reason, or are well again, together have one line.
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
			n.journal.add(first.level(), "records", "names", len(same), "first", first.Sibling.Of(first.Name), "provider", first.Provider,
				"action", first.Action, "code", first.Fault.Code, "was", first.was, "detail", first.Fault.Detail, "key", first.Fault.Key)
			continue
		}
		for _, o := range same {
			n.record(o)
		}
	}
}

// record logs one record.
func (n *news) record(o Outcome) {
	n.journal.add(o.level(), "record", "name", o.Sibling.Of(o.Name), "provider", o.Provider, "action", o.Action,
		"code", o.Fault.Code, "was", o.was, "detail", o.Fault.Detail, "key", o.Fault.Key, "attempts", o.Attempts)
}

// isNew reports whether an outcome is logged: the record has a new fault or another one, is
// well again, or was changed. It sets o.was if the record is well again.
func (n *news) isNew(o *Outcome) bool {
	told, known := n.names[o.key()]
	code := o.Fault.Code
	if code == CodeZoneUnreachable { // reach logs it for the zone
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

// passBegins sets the number of the running pass.
func (n *news) passBegins(number int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass = number
}

// passEnds logs a pass that was asked for, or that found another number of bad names than
// the pass before. It forgets everything that this pass and the one before have not met,
// such as a released name.
func (n *news) passEnds(r Report) {
	defer n.lock()()
	forget := func(_ string, t trouble) bool { return t.pass < n.pass-1 }
	n.forgetZones()
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

// database logs that an operation of the database fails, once for each error text in a row.
// It also records a success after a fault, which calmed logs. zone is "" for the engine
// itself.
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

// calmed logs that an operation of the database works again, once it has worked for calm.
// It returns the time to call calmed again, zero for none.
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

// level returns the log level of an outcome: a warning if a person has to act. A zone that
// no resolver finds is a warning for the zone, not for each record.
func (o Outcome) level() slog.Level {
	if o.bad() || o.warning() && o.Fault.Code != CodeZoneUnreachable || o.Action == ActionLeftover {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// key returns a key that differs between the outcomes at one name.
func (o Outcome) key() string { return o.Name + " " + o.Network + " " + o.at }
