// Package check finds out which endpoints live, and takes the dead ones out of the published values:
// it stores them in the table dead_endpoints, which package reconcile reads. It never declares an
// endpoint dead while this host may be cut off, never the last one of a usage, and changes a name at
// most once a minute.
package check

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// Bounds.
const (
	maxUsages    = 4096 // with a check, in the order of their reservations
	maxEndpoints = 4096 // of these; the endpoints beyond a bound are unchecked
	maxProbes    = 64   // at once, and as many more to decide on deaths
	maxWitnesses = 8    // that tell whether this host is cut off
	reloadEvery  = 5 * time.Second
)

// Watch checks endpoints.
type Watch struct {
	table     *Table
	control   *Control
	addresses func() mesh.Addresses
	log       *slog.Logger
	now       func() time.Time
	probe     func(context.Context, target) error
	room      chan struct{}  // has an element for each probe that runs
	probes    sync.WaitGroup // that Run has begun
	news      chan struct{}  // a probe may have decided on its endpoint

	stored  sync.Mutex // held while the database and the targets change together
	commits int64      // of the database, when the targets were read; -1: they were not
	known   mesh.Addresses
	mu      sync.Mutex
	targets []target
	states  map[key]*health
	changed map[string]time.Time // of each name that checks have changed within reconcile.ChangeEvery
	stands  bool                 // a death was not believed, which is logged
	beyond  bool                 // some endpoints are beyond the bounds, which is logged

	reading, writing daemon.Fault
}

// New makes a Watch. addresses gives the last known addresses of this host.
func New(table *Table, control *Control, addresses func() mesh.Addresses, log *slog.Logger) *Watch {
	return &Watch{
		table: table, control: control, addresses: addresses, log: log, now: table.Now, probe: probe,
		room: make(chan struct{}, maxProbes), news: make(chan struct{}, 1),
		commits: -1, states: map[key]*health{}, changed: map[string]time.Time{},
	}
}

// health is what the probes of an endpoint have shown since the start.
type health struct {
	due         time.Time
	probed      bool      // a probe is under way
	seen, alive time.Time // of the last probe, and of the last success
	since       time.Time // of the last change between success and failure
	fails, wins int       // in a row
	error       msg.Text  // of the last probe, "" if it succeeded
	crashed     bool      // the last probe has crashed, which is logged
}

// record notes the outcome of a probe.
func (s *health) record(now time.Time, err error) {
	if s.seen = now; err == nil {
		if s.wins == 0 {
			s.since = now
		}
		s.fails, s.error, s.alive = 0, "", now
		s.wins++
		return
	}
	if s.fails == 0 {
		s.since = now
	}
	s.wins, s.error = 0, msg.TextOf(err)
	s.fails++
}

// Run checks until ctx ends. A decision takes the time of several probes, so it has a loop of its own, and
// all other endpoints are probed meanwhile.
func (w *Watch) Run(ctx context.Context) error {
	w.control.Reachable(ctx) // a gateway that answers now is a control later
	w.probes.Go(func() { w.decide(ctx) })
	reload, probe := time.NewTimer(0), time.NewTimer(0)
	for {
		select {
		case <-reload.C:
			w.told(ctx, &w.reading, w.load(ctx))
			reload.Reset(reloadEvery)
		case <-probe.C:
		case <-ctx.Done():
			w.probes.Wait()
			return nil
		}
		w.begin(ctx)
		probe.Reset(w.pause())
	}
}

// told logs a fault, which is most often one of the database.
func (w *Watch) told(ctx context.Context, fault *daemon.Fault, err error) {
	if ctx.Err() == nil {
		fault.Note(w.log, "the checks of endpoints have failed, and are tried again", err)
	}
}

// decide stores what the probes have shown until ctx ends: when one may have decided on its endpoint, and from
// time to time, because a name rests after a change.
func (w *Watch) decide(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.news:
		case <-time.After(reloadEvery):
		case <-ctx.Done():
			return
		}
		w.told(ctx, &w.writing, daemon.Call(func() error { return w.apply(ctx) }))
	}
}

// load reads the endpoints to check if they may have changed, and forgets the dead ones that are not checked any more.
func (w *Watch) load(ctx context.Context) error {
	w.stored.Lock()
	defer w.stored.Unlock()
	commits, known := w.table.DB.Commits(), w.addresses()
	if commits == w.commits && known.Equal(w.known) {
		return nil
	}
	targets, beyond, err := w.table.targets(ctx, known, maxUsages)
	if err != nil {
		return err
	}
	kept := map[key]bool{}
	for i, t := range targets {
		if !Testable(t.endpoint) {
			continue
		}
		if len(kept) == maxEndpoints {
			targets[i].dead, beyond = false, true
			continue
		}
		kept[t.key] = true
	}
	if err := w.table.forget(ctx, kept); err != nil {
		return err
	}
	w.tellBeyond(beyond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets = targets
	for k := range w.states {
		if !kept[k] {
			delete(w.states, k)
		}
	}
	for _, t := range targets {
		if w.states[t.key] == nil && kept[t.key] {
			w.states[t.key] = &health{due: w.now().Add(rand.N(min(time.Second, t.check.Every())))}
		}
	}
	now := w.now()
	for name, at := range w.changed {
		if now.Sub(at) >= reconcile.ChangeEvery {
			delete(w.changed, name)
		}
	}
	w.commits, w.known = commits, known
	return nil
}

// tellBeyond warns once when endpoints are beyond the bounds.
func (w *Watch) tellBeyond(beyond bool) {
	if beyond && !w.beyond {
		w.log.Warn("more endpoints have a check than can be checked: those of the latest reservations count as living", "usages", maxUsages, "endpoints", maxEndpoints)
	}
	w.beyond = beyond
}

// due returns the targets whose time has come, and sets their next time, a tenth earlier or later.
func (w *Watch) due(now time.Time) (all []target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		s := w.states[t.key]
		if s == nil || s.probed || s.due.After(now) {
			continue
		}
		every := t.check.Every()
		s.due, s.probed = now.Add(every*9/10+rand.N(every/5)), true
		all = append(all, t)
	}
	return all
}

// begin begins the probes that are due. They wait for room, which silent endpoints take for three seconds.
func (w *Watch) begin(ctx context.Context) {
	for _, t := range w.due(w.now()) {
		w.probes.Go(func() {
			w.room <- struct{}{}
			defer func() { <-w.room }()
			if w.probeOne(ctx, t) {
				select {
				case w.news <- struct{}{}:
				default: // there is news already
				}
			}
		})
	}
}

// probeOne probes a target, and reports whether that may change what is published.
func (w *Watch) probeOne(ctx context.Context, t target) bool {
	err := daemon.Call(func() error { return w.probe(ctx, t) })
	crash, crashed := errors.AsType[*daemon.Panic](err)
	if crashed && w.firstCrash(t) {
		w.log.Error("the check of an endpoint has crashed: what is known of the endpoint stays", "name", t.of.Name, "endpoint", t.endpoint, "error", crash)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.states[t.key]
	if s == nil {
		return false
	}
	s.probed = false
	if crashed || ctx.Err() != nil {
		return false
	}
	s.crashed = false
	s.record(w.now(), err)
	return t.dead && s.wins >= t.check.Rise || !t.dead && s.fails >= t.check.Fall
}

// firstCrash notes that the probe of a target has crashed, and reports whether the one before had not.
func (w *Watch) firstCrash(t target) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.states[t.key]
	if s == nil || s.crashed {
		return false
	}
	s.crashed, s.seen, s.fails, s.wins = true, time.Time{}, 0, 0
	return true
}

// probeAll probes targets, maxProbes at once, and waits for them.
func (w *Watch) probeAll(ctx context.Context, all []target) {
	room := make(chan struct{}, maxProbes)
	var running sync.WaitGroup
	for _, t := range all {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			w.probeOne(ctx, t)
		})
	}
	running.Wait()
}

// pause returns the time to the next probe, between a tenth of a second and reloadEvery.
func (w *Watch) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.now().Add(reloadEvery)
	for _, s := range w.states {
		if !s.probed && s.due.Before(next) {
			next = s.due
		}
	}
	return max(next.Sub(w.now()), 100*time.Millisecond)
}

// apply stores the changes that the probes have shown, name by name.
func (w *Watch) apply(ctx context.Context) error {
	deaths := deathsOf(w.changes(func(key) bool { return true }))
	dying := keysOf(deaths)
	believed := len(deaths) > 0 && w.believed(ctx, deaths)
	w.judge(deaths, believed)
	for _, changes := range w.changes(func(k key) bool { return believed && dying[k] }) {
		if err := w.store(ctx, changes); err != nil {
			return err
		}
		w.log.Info("endpoints have died or live again", "name", changes[0].of.Name, "changes", len(changes))
	}
	return nil
}

// store stores changes, and notes them until load reads them.
func (w *Watch) store(ctx context.Context, changes []change) error {
	w.stored.Lock()
	defer w.stored.Unlock()
	if err := w.table.save(ctx, changes); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[changes[0].of.Name] = w.now()
	of := map[key]change{}
	for _, c := range changes {
		of[c.key] = c
	}
	for i := range w.targets {
		if c, ok := of[w.targets[i].key]; ok {
			w.targets[i].dead, w.targets[i].since, w.targets[i].error = c.error != "", c.now, c.error
		}
	}
	return nil
}

// keysOf returns the keys of targets.
func keysOf(all []target) map[key]bool {
	keys := map[key]bool{}
	for _, t := range all {
		keys[t.key] = true
	}
	return keys
}

// deathsOf returns the targets that changes declare dead.
func deathsOf(changes map[string][]change) (all []target) {
	for _, of := range changes {
		for _, c := range of {
			if c.error != "" {
				all = append(all, c.target)
			}
		}
	}
	return all
}

// ripe reports whether a name has not been changed for reconcile.ChangeEvery. The caller holds mu.
func (w *Watch) ripe(name string) bool {
	at, ok := w.changed[name]
	return !ok || w.now().Sub(at) >= reconcile.ChangeEvery
}

// believed reports whether this host is not cut off. Between two answers of a control the endpoints
// are probed once more, because the failures may come from a cut that has just ended. Without a
// control another endpoint must answer at the same time.
func (w *Watch) believed(ctx context.Context, deaths []target) bool {
	ok, known := w.control.Reachable(ctx)
	if known && !ok {
		return false
	}
	if known {
		w.probeAll(ctx, deaths)
		ok, _ = w.control.Reachable(ctx)
		return ok && ctx.Err() == nil
	}
	others := w.witnesses(deaths)
	if len(others) == 0 {
		return false
	}
	w.probeAll(ctx, slices.Concat(others, deaths))
	w.mu.Lock()
	defer w.mu.Unlock()
	return ctx.Err() == nil && slices.ContainsFunc(others, func(t target) bool { return w.states[t.key] != nil && w.states[t.key].wins > 0 })
}

// witnesses returns at most maxWitnesses endpoints that have answered their last probe.
func (w *Watch) witnesses(deaths []target) (all []target) {
	dying := keysOf(deaths)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		s := w.states[t.key]
		if s != nil && s.wins > 0 && !t.dead && !dying[t.key] && len(all) < maxWitnesses {
			all = append(all, t)
		}
	}
	return all
}

// judge takes one failure of deaths back that are not believed, so that an endpoint has to fail once
// more after the host is connected again. It warns of the first of them.
func (w *Watch) judge(deaths []target, believed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if believed || len(deaths) == 0 {
		w.stands = w.stands && !believed && w.failing()
		return
	}
	for _, t := range deaths {
		if s := w.states[t.key]; s != nil {
			s.fails = min(s.fails, t.check.Fall-1)
		}
	}
	if !w.stands {
		w.stands = true
		w.log.Warn("this host seems to be cut off: no endpoint is declared dead", "endpoints", len(deaths))
	}
}

// failing reports whether an endpoint failed at its last probe and is not dead. The caller holds mu.
func (w *Watch) failing() bool {
	return slices.ContainsFunc(w.targets, func(t target) bool {
		s := w.states[t.key]
		return s != nil && !t.dead && s.error != ""
	})
}

// changes returns the changes of each name that has been quiet. mayDie selects the endpoints that may
// be declared dead.
func (w *Watch) changes(mayDie func(key) bool) map[string][]change {
	w.mu.Lock()
	defer w.mu.Unlock()
	living := map[int64]int{}
	for _, t := range w.targets {
		if !t.dead {
			living[t.usage]++
		}
	}
	all := map[string][]change{}
	for _, dying := range []bool{false, true} { // first those that live again: they may save the others
		for _, t := range w.targets {
			s := w.states[t.key]
			switch {
			case s == nil || t.dead == dying || !w.ripe(t.of.Name):
			case !dying && s.wins >= t.check.Rise:
				living[t.usage]++
				all[t.of.Name] = append(all[t.of.Name], change{target: t, now: w.now()})
			case dying && s.fails >= t.check.Fall && living[t.usage] > 1 && mayDie(t.key):
				living[t.usage]--
				all[t.of.Name] = append(all[t.of.Name], change{target: t, now: w.now(), error: s.error})
			}
		}
	}
	return all
}

// Reachable reports whether a named control answers, so that this host is not cut off. It is not known without one:
// a gateway answers also while the line behind it is down.
func (w *Watch) Reachable(ctx context.Context) (ok, known bool) {
	if len(w.control.Addresses) == 0 {
		return false, false
	}
	return w.control.Reachable(ctx)
}

// Endpoints returns the endpoints that a usage with a check has now, which is given by its seq, and what
// the probes have shown, in a language. Without a Watch there are none.
func (w *Watch) Endpoints(ctx context.Context, usage int64, language msg.Language) (all []mesh.CheckedEndpoint, err error) {
	if w == nil {
		return nil, nil
	}
	targets, err := w.table.targetsOf(ctx, usage, w.addresses())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range targets {
		all = append(all, w.shown(t, language))
	}
	return all, err
}

func (w *Watch) shown(t target, language msg.Language) mesh.CheckedEndpoint {
	e := mesh.CheckedEndpoint{Endpoint: t.endpoint, Slot: t.slot}
	s := w.states[t.key]
	switch {
	case t.dead:
		e.Alive, e.Since, e.Error = new(false), sqlite.Shown(t.since), t.error.In(language)
	case s != nil && !s.seen.IsZero():
		e.Alive, e.Since, e.Error = new(true), sqlite.Shown(s.since), s.error.In(language)
	}
	return e
}

// WriteMetrics writes the states.
func (w *Watch) WriteMetrics(page *daemon.Page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]uint64{}
	for _, t := range w.targets {
		switch alive := w.shown(t, msg.English).Alive; {
		case alive == nil:
			counts["unchecked"]++
		case *alive:
			counts["alive"]++
		default:
			counts["dead"]++
		}
	}
	page.Family("meshddns_endpoints", "gauge", "Endpoints of usages with a check, by state.")
	for _, state := range []string{"alive", "dead", "unchecked"} {
		page.Figure(counts[state], daemon.Label{Name: "state", Value: state})
	}
}
