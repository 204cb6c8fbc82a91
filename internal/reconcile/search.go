package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// ZonePager is a DNS client that reads a whole zone page by page, in its own order, so a
// zone of any size takes little memory.
type ZonePager interface {
	// ReadPage reads the sets at some names of a zone that come after a name. next is that
	// name for the following page. Without sets there is no further page.
	ReadPage(ctx context.Context, zone, after string, limit int) (sets map[string]provider.RRset, next string, err error)
}

// errNotListed is the failure of a search in a zone that no key can list.
var errNotListed error = &provider.Error{Kind: provider.Invalid, Err: provider.ErrNotListed}

// searchPatience bounds the time in which a search for orphans finds one zone.
const searchPatience = 10 * time.Second

// search is the result of a search for orphans.
type search struct {
	orphans []Place // and the values of adopted owners, with CodeAdopted, and those of findUnmarked, with CodeMaybeOurs
	undone  []unsearched
	swept   bool // the database was restored, and nothing is left to look at
}

// unsearched is a zone that could not be searched.
type unsearched struct {
	zone  Zone
	fault Fault
}

// notSearched returns the outcomes of zones that could not be searched. It leaves out a
// zone if an outcome of the same provider already tells the same fault.
func notSearched(undone []unsearched, told []Outcome) (all []Outcome) {
	faults, zones := map[[2]string]bool{}, map[[2]string]bool{} // with their providers
	for _, o := range told {
		faults[[2]string{o.Provider, o.Fault.Code}] = faults[[2]string{o.Provider, o.Fault.Code}] || o.bad() || o.Action == ActionLeftover
		zones[[2]string{o.Provider, o.Name}] = zones[[2]string{o.Provider, o.Name}] || o.Action == ActionSkipped
	}
	for _, u := range undone {
		provider, zone := u.zone.Account.Provider, u.zone.name()
		if !faults[[2]string{provider, u.fault.Code}] && !zones[[2]string{provider, zone}] {
			zones[[2]string{provider, zone}] = true
			all = append(all, Outcome{
				Name: zone, Provider: provider, Zone: zone, Action: ActionSkipped, Fault: Fault{Code: CodeNotSearched, Detail: u.fault.Detail},
			})
		}
	}
	return all
}

// outcomes returns the outcomes of the orphans for a report, each orphan once.
func (s search) outcomes() (all []Outcome) {
	seen := map[[3]string]bool{} // two spellings of an address list one zone twice
	for _, place := range s.orphans {
		if at := [3]string{place.Sibling.Of(place.Name), place.Zone, place.Standing}; !seen[at] {
			seen[at] = true
			action := ActionOrphan
			switch place.Fault.Code {
			case CodeAdopted:
				action = ActionSkipped
			case CodeMaybeOurs:
				action = ActionLeftover
			}
			all = append(all, Outcome{
				Name: place.Name, Sibling: place.Sibling, Provider: place.Account.Provider, Zone: place.Zone, Network: mesh.Network(place.Standing),
				Action: action, Value: place.Standing, Fault: cmp.Or(place.Fault, Fault{Code: CodeOrphan}),
			})
		}
	}
	return all
}

// reach is a zone with the connection that reaches it, or the error that prevents that.
type reach struct {
	Zone
	conn *connection
	err  error
}

// identity is equal for two keys that are known to reach one zone. Without the id of the
// zone it is different, because two zones may have one name.
func (r reach) identity() [4]string {
	return [4]string{r.Account.Provider, r.Account.Endpoint, r.name(), cmp.Or(r.ID, fmt.Sprint("account ", r.Account.ID))}
}

// searching is a search for orphans that is under way.
type searching struct {
	engine *Engine
	sweep  bool // also report the zones that no key can list
	mu     sync.Mutex
	found  search
	keys   map[[4]string][]reach // by identity: several keys may reach one zone
	silent map[[2]string]error   // by address: the failure of a server or vendor that does not answer
	err    error                 // of the database
}

// findOrphans returns a place for every orphan in every zone that a provider lists. It
// searches several zones at once. A zone that cannot be searched is part of the result;
// only a fault of the database or the end of ctx is an error. A zone that no key can list
// is reported only for a sweep.
func (e *Engine) findOrphans(ctx context.Context, sweep bool) (search, error) {
	zones, err := e.config.Database.Zones(ctx)
	if err != nil {
		return search{}, err
	}
	s := &searching{engine: e, sweep: sweep, keys: map[[4]string][]reach{}, silent: map[[2]string]error{}}
	slots := make(chan struct{}, zonesAtOnce)
	beside(ctx, slots, zones, func(z Zone) { s.reach(ctx, z) })
	beside(ctx, slots, slices.Collect(maps.Values(s.keys)), func(keys []reach) { s.zone(ctx, keys) })
	return s.found, cmp.Or(s.err, ctx.Err())
}

// reach finds a zone and adds it to the zones to search.
func (s *searching) reach(ctx context.Context, z Zone) {
	r := reach{Zone: z, err: s.silence(z)}
	if r.err == nil {
		s.engine.reach(ctx, &r)
	}
	if r.conn != nil && r.conn.client == nil || provider.KindOf(r.err) == provider.ZoneNotFound {
		return // the names of the zone report that
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(z, r.err)
	s.keys[r.identity()] = append(s.keys[r.identity()], r)
}

// zone searches one zone and records the result.
func (s *searching) zone(ctx context.Context, keys []reach) {
	z := keys[0].Zone
	failure := s.silence(z)
	var orphans []Place
	if failure == nil {
		orphans, failure = s.engine.searchZone(ctx, keys)
	}
	if ctx.Err() != nil {
		return
	}
	if fault, ok := errors.AsType[*databaseError](failure); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = fault
		return
	}
	unlisted := errors.Is(failure, provider.ErrNotListed)
	if !unlisted {
		s.engine.news.zoneSearched(z, failure)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(z, failure)
	s.found.orphans = append(s.found.orphans, orphans...)
	if failure != nil && (s.sweep || !unlisted) {
		s.found.undone = append(s.found.undone, unsearched{z, Describe(failure, z.Account)})
	}
}

// silence returns the failure of a zone's server or vendor that does not answer, nil if
// none is known.
func (s *searching) silence(z Zone) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent[z.Account.address()]
}

// hear records a failure if it means that a server or vendor does not answer. The caller
// holds the lock.
func (s *searching) hear(z Zone, err error) {
	if provider.KindOf(err) == provider.Network {
		s.silent[z.Account.address()] = err
	}
}

// databaseError is a fault of the database, and not of a zone.
type databaseError struct{ error }

// reach finds the apex and the id of a zone within searchPatience.
func (e *Engine) reach(ctx context.Context, r *reach) {
	ctx, cancel := context.WithTimeoutCause(ctx, searchPatience, errSilent)
	defer cancel()
	e.mu.Lock()
	r.conn = e.connection(r.Account)
	e.mu.Unlock()
	if r.conn.client == nil {
		return
	}
	r.err = daemon.Call(func() (err error) {
		if r.Apex == "" {
			found := r.conn.domain(ctx, r.Domain)
			if r.Apex, err = found.apex, found.err; err != nil {
				return err
			}
		}
		if identifier, ok := r.conn.client.(provider.ZoneIdentifier); ok {
			r.ID, err = identifier.ZoneID(ctx, r.Apex)
		}
		return err
	})
	if r.err != nil && context.Cause(ctx) == errSilent {
		r.err = &provider.Error{Kind: provider.Network, Detail: msg.Say("find a zone"), Err: errSilent}
	}
}

// searchZone searches a zone with the first of its keys that can list it.
func (e *Engine) searchZone(ctx context.Context, keys []reach) (all []Place, err error) {
	for _, r := range keys {
		fault := r.err
		if fault == nil {
			fault = daemon.Call(func() (err error) { all, err = e.orphansOf(ctx, r.conn, r.Zone); return err })
		}
		switch {
		case fault == nil:
			return all, nil
		case err == nil || errors.Is(err, provider.ErrNotListed):
			err = fault
		}
	}
	return nil, err
}

// orphansOf searches one zone with one key.
func (e *Engine) orphansOf(ctx context.Context, conn *connection, z Zone) (all []Place, err error) {
	switch client := conn.client.(type) {
	case ZonePager:
		for after := ""; ; {
			sets, next, err := client.ReadPage(ctx, z.Apex, after, pageNames)
			if err != nil || len(sets) == 0 {
				return all, err
			}
			found, err := e.strangers(ctx, z, sets)
			if err != nil {
				return all, err
			}
			all, after = append(all, found...), next
		}
	case provider.ZoneReader:
		listed, err := conn.list(ctx, client, z.Apex, false)
		if listed == nil {
			return nil, cmp.Or(err, errNotListed)
		}
		return e.strangers(ctx, z, conn.unchanged(listed))
	}
	return nil, errNotListed
}

// strangers returns a place for each owner, ours or an adopted one, of a value at a name among the sets, if the
// value is wanted neither in the zone nor in one that may be it, and no place knows it.
func (e *Engine) strangers(ctx context.Context, z Zone, sets map[string]provider.RRset) (all []Place, err error) {
	state, err := e.config.Database.State(ctx, nil)
	if err != nil {
		return nil, &databaseError{err}
	}
	here, values := Place{Account: z.Account, Zone: z.Apex, ZoneID: z.ID, State: Leftover}, map[string][]string{}
	for name, set := range sets {
		for _, v := range set.Values {
			if o, mesh := mesh.Owner(v.Text()); mesh && (o == state.Owner || slices.Contains(state.Adopted, o)) {
				values[strings.ToLower(name)] = append(values[strings.ToLower(name)], v.Text())
			}
		}
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(values)), pageNames) {
		unknown, err := e.config.Database.Strangers(ctx, z, names)
		if err == nil {
			state, err = e.config.Database.State(ctx, unknown)
		}
		if err != nil {
			return nil, &databaseError{err}
		}
		for _, t := range Desired(state, e.config.Addresses()) {
			values[t.Name.Name] = slices.DeleteFunc(values[t.Name.Name], func(v string) bool {
				owner, _ := mesh.Owner(v)
				return slices.ContainsFunc(t.Records, func(r Record) bool {
					return !r.Place.Apart(here) && (r.Want == v || r.Want != "" && owner != state.Owner)
				})
			})
		}
		for _, name := range unknown {
			told := map[string]bool{}
			for _, v := range values[name] {
				p := here
				p.Name, p.Standing = name, v
				owner, _ := mesh.Owner(v)
				if owner != state.Owner {
					p.Fault.Code = CodeAdopted
				}
				if !told[owner] {
					all = append(all, p)
				}
				told[owner] = true
			}
		}
	}
	return all, nil
}
