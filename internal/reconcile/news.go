package reconcile

import (
	"context"
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

// news logs changes only: a record was changed, a zone is down, a name has a fault, and either is
// well again. It remembers the logged faults in memory only, so after a restart it logs each fault
// once more. An event of package events tells of every try that fails; a line only of what is not tried again soon.
type news struct {
	log *slog.Logger // which does not wait for its reader
	now func() time.Time

	mu    sync.Mutex
	pass  int64              // the number of the running pass, or of the last one
	zones map[Lane]*zoneNews // by the lane of the zone
	told  map[string]trouble // faults of records, by Outcome.key, and of zones that are not searched for orphans
	full  bool               // more names have a fault than are remembered
	base  map[string]*damage // faults of the database, by operation and zone
	bad   int                // bad names of the last pass

	crowds map[string]*crowd // by provider and zone
}

// trouble is a fault that was logged.
type trouble struct {
	code string
	pass int64 // the last one that has seen it
}

// damage is a fault of the database that was logged.
type damage struct {
	what, fault string
	since       time.Time
	well        time.Time // of the first success since the fault; zero: none yet
}

// crowd is the records of one zone with a line in one crowdTime.
type crowd struct {
	lines int
	more  map[string]*counted // records without a line of their own, by level, action and codes
	end   *time.Timer         // of the crowdTime
}

// counted is a group of records with one line.
type counted struct {
	names int
	first Outcome
	was   string // of all of them
}

const (
	// calm is how long the database has to work before the log says that it is well: on a
	// full disk small writes succeed, and only larger ones fail.
	calm = 30 * time.Second
	// toldNames bounds the names whose trouble is remembered. Each takes some 200 octets.
	toldNames = 10_000
	// crowdAfter bounds the records of a zone that have a line each in one crowdTime.
	crowdAfter = 9
	crowdTime  = time.Second
)

func newNews(log *slog.Logger, now func() time.Time) *news {
	return &news{log: log, now: now, zones: map[Lane]*zoneNews{}, told: map[string]trouble{}, base: map[string]*damage{}, crowds: map[string]*crowd{}}
}

// note remembers the code of the fault of one key, "" for none. It returns the code before,
// and whether the code is new. The caller holds the lock.
func (n *news) note(key, code string) (before string, isNew bool) {
	before = n.told[key].code
	if code == "" {
		delete(n.told, key)
	} else {
		n.told[key] = trouble{code, n.pass}
	}
	return before, before != code
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
	n.mu.Lock()
	defer n.mu.Unlock()
	var f Fault
	if err != nil {
		f = Describe(err, z.Account)
	}
	before, isNew := n.note("search "+strings.Join([]string{z.Account.Provider, z.Account.Endpoint, z.name()}, " "), reason(f))
	about := []any{"zone", z.name(), "provider", z.Account.Provider}
	switch {
	case !isNew:
	case err == nil:
		n.log.Info("zone is searched for orphans again", append(about, "code", before)...)
	default:
		about = append(about, "code", f.Code, "detail", f.Detail)
		if panicked, ok := errors.AsType[*daemon.Panic](err); ok {
			about = append(about, "stack", string(panicked.Stack))
		}
		n.log.Warn("zone is not searched for orphans", about...)
	}
}

// outcomes logs the outcomes of some records, after their commit. Of the records of a zone the first
// crowdAfter in a crowdTime have a line each; one line counts the others when crowdTime is over.
func (n *news) outcomes(all []Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range all {
		was, isNew := n.isNew(o)
		if !isNew {
			continue
		}
		c := n.crowd(o.Provider + " " + o.Zone)
		if c.lines++; c.lines <= crowdAfter {
			n.log.Log(context.Background(), o.level(), "record", "name", o.Sibling.Of(o.Name), "provider", o.Provider, "action", o.Action,
				"code", o.Fault.Code, "was", was, "detail", o.Fault.Detail, "key", o.Fault.Key, "attempts", o.Attempts)
			continue
		}
		kind := strings.Join([]string{o.level().String(), o.Action, o.Fault.Code, was}, " ")
		if c.more[kind] == nil {
			c.more[kind] = &counted{first: o, was: was}
		}
		c.more[kind].names++
	}
}

// crowd returns the crowd of a zone, a new one if there is none. The caller holds the lock.
func (n *news) crowd(key string) *crowd {
	c := n.crowds[key]
	if c != nil {
		return c
	}
	c = &crowd{more: map[string]*counted{}}
	n.crowds[key] = c
	c.end = time.AfterFunc(crowdTime, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.count(c)
		delete(n.crowds, key)
	})
	return c
}

// count logs the records of a crowd that have no line. The caller holds the lock.
func (n *news) count(c *crowd) {
	for _, kind := range slices.Sorted(maps.Keys(c.more)) {
		group, first := c.more[kind], c.more[kind].first
		n.log.Log(context.Background(), first.level(), "records", "names", group.names, "first", first.Sibling.Of(first.Name), "provider", first.Provider,
			"zone", first.Zone, "action", first.Action, "code", first.Fault.Code, "was", group.was, "detail", first.Fault.Detail, "key", first.Fault.Key)
	}
	clear(c.more)
}

// end logs what waits for the end of its crowdTime.
func (n *news) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(n.crowds)) {
		n.crowds[key].end.Stop()
		n.count(n.crowds[key])
	}
	clear(n.crowds)
}

// isNew reports whether an outcome is logged: the record has a new fault or another one, is
// well again, or was changed. was is the code of the fault that a well record had.
func (n *news) isNew(o Outcome) (was string, isNew bool) {
	told, known := n.told[o.key()]
	code := o.Fault.Code
	if code == CodeZoneUnreachable { // one line tells it of all zones
		code = ""
	}
	switch {
	case o.Action == "":
		return "", false
	case o.zoneDown:
		n.note(o.key(), told.code)
		return "", false
	case code != "" && !known && len(n.told) >= toldNames:
		if !n.full {
			n.log.Warn("more names are not as they should be than are told one by one", "names", toldNames)
		}
		n.full = true
		return "", o.changed()
	}
	if was, isNew = n.note(o.key(), code); code != "" {
		was = ""
	}
	return was, isNew || o.changed()
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetZones()
	maps.DeleteFunc(n.told, func(_ string, t trouble) bool { return t.pass < n.pass-1 })
	n.full = n.full && len(n.told) >= toldNames
	if r.Trigger != TriggerInterval || r.Bad != n.bad {
		level := slog.LevelInfo
		if r.Bad > 0 {
			level = slog.LevelWarn
		}
		n.log.Log(context.Background(), level, "synchronised", "trigger", r.Trigger, "names", r.Names, "failed", r.Bad, "duration", r.FinishedAt.Sub(r.StartedAt))
	}
	n.bad = r.Bad
}

// database logs that an operation of the database fails, once for each error text in a row.
// It also records a success after a fault, which calmed logs. zone is "" for the engine
// itself.
func (n *news) database(what string, zone Lane, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.base[what+string(zone)]
	switch {
	case err != nil && (told == nil || told.fault != err.Error()):
		n.base[what+string(zone)] = &damage{what: what, fault: err.Error(), since: n.now()}
		n.log.Error("the database fails", "what", what, "error", err.Error())
	case err != nil:
		told.well = time.Time{}
	case told != nil && told.well.IsZero():
		told.well = n.now()
	}
}

// calmed logs that an operation of the database works again, once it has worked for calm.
// It returns the time to call calmed again, zero for none.
func (n *news) calmed() (next time.Time) {
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
			n.log.Info("the database is well again", "what", told.what, "after", told.well.Sub(told.since).Round(time.Second))
		}
	}
	return next
}

// level returns the log level of an outcome: a warning if a person has to act.
func (o Outcome) level() slog.Level {
	if o.bad() || o.warning() && o.Fault.Code != CodeZoneUnreachable || o.Action == ActionLeftover {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// key returns a key that differs between the outcomes at one name.
func (o Outcome) key() string { return o.Name + " " + o.Network + " " + o.at }
