package provider

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// zoneVendor is a vendor that lists whole zones.
type zoneVendor interface {
	// listZone collects the records of the types in sets, and the aliases, of a zone. An incomplete
	// list is an error.
	listZone(ctx context.Context, z zone, sets *zoneSets) error
}

// namesVendor is a vendor that lists some names of a zone in few calls.
type namesVendor interface {
	// listNames collects the records and aliases at the names, and perhaps at others.
	listNames(ctx context.Context, z zone, names []string, sets *zoneSets) error
}

// batchVendor is a vendor that makes many changes in few calls.
type batchVendor interface {
	// applyAll makes changes of different sets of one zone and returns the error of each. If ok
	// is false, it did nothing because the vendor takes single changes only.
	applyAll(ctx context.Context, z zone, plans []plan) (errs []error, ok bool)
}

const (
	atOnce     = 4  // concurrent calls of a batch
	mostFaults = 12 // successive faults after which a vendor counts as out of order
	listCost   = 4  // assumed calls for a whole zone that was not listed before
	listPage   = 1000
)

// ReadAll returns the TXT values and aliases of a zone.
func (c *Client) ReadAll(ctx context.Context, zone string, wanted Wanted) (map[string]RRset, error) {
	z, err := c.named(ctx, zone)
	if err != nil {
		return nil, err
	}
	sets := newZoneSets(wanted, TXT)
	if err := c.listZone(ctx, z, sets); err != nil {
		return nil, err
	}
	all := make(map[string]RRset, len(sets.sets))
	for at, set := range sets.sets {
		all[at.name] = set.values()
		delete(sets.sets, at) // frees memory, because a zone may have many names
	}
	for name, target := range sets.aliases {
		set := all[name]
		set.Alias = msg.Say(dns.Fold(target))
		all[name] = set
	}
	return all, nil
}

// listZone lists a zone, and remembers the cost in calls.
func (c *Client) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	v, ok := c.vendor.(zoneVendor)
	if !ok {
		return &Error{Kind: Invalid, Detail: msg.Say(z.name), Err: ErrNotListed}
	}
	var calls atomic.Int64
	err := v.listZone(context.WithValue(ctx, callCount{}, &calls), z, sets)
	e, failed := errors.AsType[*Error](err)
	switch {
	case failed && e.Kind == Permission:
		err = &Error{Kind: Permission, Detail: e.Detail, Err: ErrNotListed}
	case errors.Is(err, errTooLong):
		err = &Error{Kind: Invalid, Detail: e.Detail, Err: ErrNotListed}
	case err == nil && sets.kept > maxKept:
		err = &Error{Kind: Invalid, Detail: msg.Say(z.name), Err: msg.Errorf("%w: %w", ErrNotListed, errTooLarge)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.costs[z.name] = int(calls.Load()) + sets.records/listPage
	if errors.Is(err, ErrNotListed) {
		c.costs[z.name] = math.MaxInt
	}
	return err
}

// cost returns the number of calls for a list of the whole zone. It counts listPage records as one
// call more.
func (c *Client) cost(z zone) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.costs[z.name], listCost)
}

// job is a change on its way through ChangeAll.
type job struct {
	change Change
	at     setKey
	set    recordSet // as listed last
	plan   plan
	over   bool // failed or done
	err    error

	alone    bool // it is read and made by calls of its own
	repeated bool // it is made by a retry, after an attempt with an unknown outcome
}

func (j *job) end(err error) { j.over, j.err = true, err }

// jobs are the changes of one ChangeAll.
type jobs []*job

func (all jobs) left() jobs {
	return slices.DeleteFunc(slices.Clone(all), func(j *job) bool { return j.over })
}

func (all jobs) end(err error) {
	for _, j := range all {
		j.end(err)
	}
}

// BatchSize returns 400 for a vendor that takes many changes in one call, else the number of single
// calls that a fast vendor answers in half of WriteTime.
func (c *Client) BatchSize() int {
	if _, ok := c.vendor.(batchVendor); ok {
		return 400
	}
	return 64
}

// ChangeAll makes changes of different names or types in one zone.
func (c *Client) ChangeAll(ctx context.Context, changes []Change) []error {
	return c.change(ctx, changes, false)
}

func (c *Client) change(ctx context.Context, changes []Change, alone bool) []error {
	var all jobs
	for _, change := range changes {
		j := &job{change: change, at: change.at(), alone: alone}
		if err := c.fits(change); err != nil {
			j.end(unmade(err))
		}
		all = append(all, j)
	}
	if todo := all.left(); len(todo) > 0 {
		c.changeAll(ctx, todo)
	}
	errs := make([]error, len(all))
	for i, j := range all {
		errs[i] = j.err
	}
	return errs
}

func (c *Client) changeAll(ctx context.Context, all jobs) {
	z, err := c.named(ctx, all[0].change.Zone)
	if err != nil {
		all.end(unmade(err))
		return
	}
	c.check(z, all)
	todo := all.left()
	// All callers take the turns in the same order, so that there is no deadlock.
	slices.SortStableFunc(todo, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.at.name, b.at.name), cmp.Compare(a.at.kind, b.at.kind))
	})
	for i, j := range todo {
		turn := c.turn(j.at)
		if !turn.take(ctx) {
			todo[i:].end(&Error{Kind: Network, Detail: msg.Textf("%s: another change is under way", j.at.name), Err: ctx.Err()})
			break
		}
		defer turn.end()
	}
	c.look(ctx, z, todo.left(), WriteTime*3/4)
	for _, j := range todo.left() {
		if j.plan, err = newPlan(z, j.at, j.set, j.change); err != nil || j.plan.empty() {
			j.end(err)
		}
	}
	for _, j := range all {
		j.err = unmade(j.err)
	}
	c.applyAll(ctx, z, todo.left())
	made := todo.left()
	c.confirm(ctx, z, made)
	for _, j := range made {
		if j.err = unsure(j.err); j.repeated {
			j.err = repeated(j.err)
		}
	}
}

// check ends the jobs that cannot be done.
func (c *Client) check(z zone, all jobs) {
	named := map[setKey]bool{}
	for _, j := range all {
		switch {
		case dns.Fold(j.change.Zone) != z.name:
			j.end(&Error{Kind: Invalid, Detail: msg.Textf("%s is of another zone than the changes before it", j.at.name)})
		case named[j.at]:
			j.end(&Error{Kind: Changed, Detail: msg.Textf("%s is in two changes of one call", j.at.name)})
		default:
			named[j.at] = true
		}
	}
}

// look reads the names of the jobs: together if that takes fewer calls, else one by one, as each does with
// the share.
func (c *Client) look(ctx context.Context, z zone, todo jobs, share time.Duration) {
	if len(todo) == 0 {
		return
	}
	sets, err := c.lookTogether(ctx, z, todo)
	if errors.Is(err, ErrNotListed) {
		for i, err := range each(ctx, share, len(todo), func(i int) (err error) {
			todo[i].set, err = c.vendor.list(ctx, z, todo[i].at)
			return err
		}) {
			if err != nil {
				todo[i].end(err)
			}
		}
		return
	}
	if err != nil {
		todo.end(err)
		return
	}
	for _, j := range todo {
		j.set = sets.of(j.at)
	}
}

// lookTogether reads the names together. ErrNotListed means that they must be read one by one.
func (c *Client) lookTogether(ctx context.Context, z zone, todo jobs) (*zoneSets, error) {
	if todo[0].alone {
		return nil, ErrNotListed
	}
	var names []string
	var types []Type
	wanted := map[string]bool{}
	for _, j := range todo {
		if !wanted[j.at.name] {
			names, wanted[j.at.name] = append(names, j.at.name), true
		}
		if !slices.Contains(types, j.at.kind) {
			types = append(types, j.at.kind)
		}
	}
	sets := newZoneSets(func(name string, _ Value) bool { return wanted[name] }, types...)
	if v, ok := c.vendor.(namesVendor); ok {
		return sets, v.listNames(ctx, z, names, sets)
	}
	if _, only := c.vendor.(interface{ listsTXT() }); only && !slices.Equal(types, []Type{TXT}) {
		return nil, ErrNotListed
	}
	_, always := c.vendor.(interface{ alwaysLists() })
	if cost := c.cost(z); len(todo) < cost && !(always && cost < math.MaxInt) {
		return nil, ErrNotListed
	}
	return sets, c.listZone(ctx, z, sets)
}

// applyAll makes the planned changes.
func (c *Client) applyAll(ctx context.Context, z zone, todo jobs) {
	var plans []plan
	for _, j := range todo {
		plans = append(plans, j.plan)
	}
	var errs []error
	v, done := c.vendor.(batchVendor)
	if done = done && len(todo) > 0 && !todo[0].alone; done {
		errs, done = v.applyAll(ctx, z, plans)
	}
	if !done {
		errs = each(ctx, WriteTime/2, len(plans), func(i int) error { return c.apply(ctx, plans[i]) })
	}
	for i, err := range errs {
		if todo[i].repeated = errors.Is(err, ErrRepeated); err != nil && !todo[i].repeated {
			todo[i].end(overtaken(todo[i].at.name, err))
		}
	}
}

// confirm waits until the lists show the changes. Some vendors list a new record late: a read in between
// would make the program write the record again, or leave it behind.
func (c *Client) confirm(ctx context.Context, z zone, todo jobs) {
	shown := poll(ctx, daemon.Backoff{First: c.poll, Longest: longestPoll}, func() bool {
		c.look(ctx, z, todo, 0)
		for _, j := range todo.left() {
			if !j.set.pending && j.plan.shownBy(j.set) {
				j.end(nil)
			}
		}
		todo = todo.left()
		return len(todo) == 0
	})
	if !shown {
		for _, j := range todo {
			j.end(&Error{Kind: Temporary, Detail: msg.Say(j.at.name), Err: ErrUnseen})
		}
	}
}

// health decides when further calls of a vendor are useless.
type health struct {
	mu     sync.Mutex
	faults int // successive
	err    error
}

// note records the result of a call, and returns the failure of the vendor as a whole, if there is one.
func (h *health) note(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch KindOf(err) {
	case Network, Throttled, BadCredentials, ClockSkew, ZoneNotFound:
		h.err = cmp.Or(h.err, err)
	case Temporary, BadAnswer, Permission:
		if h.faults++; h.faults >= mostFaults {
			h.err = cmp.Or(h.err, err)
		}
	default:
		h.faults = 0
	}
	return h.err
}

func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// each calls f for 0 to n-1, at most atOnce at the same time, and returns the error of each. It stops
// after a failure of the vendor as a whole, and after the first atOnce calls if less than a share of
// WriteTime is left, unless the share is 0.
func each(ctx context.Context, share time.Duration, n int, f func(i int) error) []error {
	var (
		errs  = make([]error, n)
		state health
		next  atomic.Int64
		group sync.WaitGroup
	)
	for range min(n, atOnce) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if errs[i] = unmade(state.failure()); errs[i] == nil && i >= atOnce && share > 0 && late(ctx, share) {
					errs[i] = errLater
				}
				if errs[i] == nil {
					errs[i] = daemon.Call(func() error { return f(i) })
					state.note(errs[i])
				}
			}
		})
	}
	group.Wait()
	return errs
}

// inBatches submits plans in batches; fit returns the size of the next one. It halves a refused batch
// until each refused plan is alone. It stops after a failure of the vendor as a whole. After a failure
// that is not Unmade, the results of all retries are those of repeated. Once a plan has an outcome, no
// batch begins in the second half of WriteTime.
func inBatches(ctx context.Context, plans []plan, fit func([]plan) int, submit func([]plan) error) []error {
	errs := make([]error, len(plans))
	var state health
	decided := false
	var try func(from, to int, doubted bool)
	try = func(from, to int, doubted bool) {
		err := unmade(state.failure())
		later := err == nil && decided && late(ctx, WriteTime/2)
		switch {
		case later:
			err = errLater
		case err == nil:
			err = submit(plans[from:to])
			err = cmp.Or(state.note(err), err)
			decided = decided || err == nil || to-from == 1
		}
		if err != nil && to-from > 1 && !later && state.failure() == nil {
			middle := (from + to) / 2
			doubted = doubted || !Unmade(err)
			try(from, middle, doubted)
			try(middle, to, doubted)
			return
		}
		if doubted {
			err = repeated(err)
		}
		for i := from; i < to; i++ {
			errs[i] = err
		}
	}
	for at := 0; at < len(plans); {
		n := max(1, fit(plans[at:]))
		try(at, at+n, false)
		at += n
	}
	return errs
}

// zoneSets collects the wanted records of a zone.
type zoneSets struct {
	types   []Type
	wanted  Wanted
	sets    map[setKey]recordSet
	aliases map[string]string // targets by folded name
	records int               // records that the vendor has shown
	kept    int               // estimated octets of memory; over maxKept nothing more is kept
}

func newZoneSets(wanted Wanted, types ...Type) *zoneSets {
	return &zoneSets{types: types, wanted: wanted, sets: map[setKey]recordSet{}, aliases: map[string]string{}}
}

// has reports whether the sets have records of a vendor's type.
func (s *zoneSets) has(kind string) bool { return slices.Contains(s.types, Type(kind)) }

// of returns the set of a name and type, with the alias of the name.
func (s *zoneSets) of(at setKey) recordSet {
	set := s.sets[at]
	set.alias = s.aliases[at.name]
	return set
}

func (s *zoneSets) add(at setKey, r record) {
	s.join(at, func(set recordSet) recordSet {
		set.records = append(set.records, r)
		return set
	})
}

// alias adds the alias of a name.
func (s *zoneSets) alias(name, target string) {
	s.records++
	_, there := s.sets[setKey{name, TXT}]
	if s.kept <= maxKept && (there || s.wanted == nil || s.wanted(name, nil)) {
		s.kept += recordCost + len(name)
		s.aliases[name] = target
	}
}

// join changes a set by add.
func (s *zoneSets) join(at setKey, add func(recordSet) recordSet) {
	s.records++
	before, there := s.sets[at]
	set := add(before)
	is := func(r record) bool { return s.wanted(at.name, r.value) }
	if s.kept > maxKept || !there && s.wanted != nil && !s.wanted(at.name, nil) && !slices.ContainsFunc(set.records, is) {
		return
	}
	s.kept += recordCost + len(at.name)
	for _, r := range set.records[len(before.records):] {
		s.kept += recordCost + len(r.id) + len(r.raw) + len(r.value.Text())
	}
	s.sets[at] = set
}
